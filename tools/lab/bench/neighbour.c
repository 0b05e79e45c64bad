// SPDX-License-Identifier: GPL-2.0
/*
 * neighbour BUSY_US REST_US: a task that computes for so long, sleeps for so long, and so on.
 *
 * The time is that of the CPU which the task gets, so it computes as much when others take the
 * CPU from it.  fio's cpuio engine does not do here: where nanosleep() takes long, as in a nested
 * guest, fio spins instead of sleeping for less than that.
 */
#include <stdlib.h>
#include <time.h>

static long long cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int argc, char **argv)
{
	long busy_us = argc > 1 ? atol(argv[1]) : 0;
	struct timespec rest = { .tv_nsec = (argc > 2 ? atol(argv[2]) : 0) * 1000 };

	for (;;) {
		long long end = cpu_ns() + busy_us * 1000LL;

		while (cpu_ns() < end)
			;
		if (rest.tv_nsec)
			nanosleep(&rest, NULL);
	}
}
