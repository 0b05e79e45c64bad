// SPDX-License-Identifier: GPL-2.0
/*
 * Everything at once: attach and detach, wake-ups from interrupts, mode
 * changes, CPUs that come and go, owners that are killed.  What must hold is
 * that nobody's promise is broken and nothing is left.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "poller.h"

#define ATTACHERS	3

static unsigned int loops(unsigned int usual)
{
	return ktap_full() ? usual * 10 : usual;
}

struct shared {
	int poller[2];
	atomic_bool stop;
};

static void *change_modes(void *arg)
{
	struct shared *s = arg;
	unsigned int i;

	for (i = 0; !s->stop; i++) {
		set_mode(s->poller[i & 1], i % 3);
		usleep(500);
	}
	return NULL;
}

static void *attach_and_detach(void *arg)
{
	struct shared *s = arg;
	unsigned int i, n = loops(200);

	for (i = 0; i < n; i++) {
		int source = open_source();

		set_tick(source, 50000 + i % 7 * 10000);
		EXPECT_EQ(try_attach(source, s->poller[i & 1], 1 + i % 1000,
				     NULL), 0);
		add_work(source, 1 + i % 100);
		if (i % 3)
			EXPECT_EQ(ctl(source, VPS_DETACH, NULL), 0);
		EXPECT_EQ(source_state(source).violations, 0);
		close(source);
	}
	return NULL;
}

static void start_threads(struct shared *s, pthread_t *changer, pthread_t *t)
{
	unsigned int i;

	EXPECT_EQ(pthread_create(changer, NULL, change_modes, s), 0);
	for (i = 0; i < ATTACHERS; i++)
		EXPECT_EQ(pthread_create(&t[i], NULL, attach_and_detach, s), 0);
}

static void join_threads(struct shared *s, pthread_t changer, pthread_t *t)
{
	unsigned int i;

	for (i = 0; i < ATTACHERS; i++)
		pthread_join(t[i], NULL);
	s->stop = true;
	pthread_join(changer, NULL);
}

static void attach_detach_wake_and_modes(void)
{
	pthread_t changer, t[ATTACHERS];
	struct shared s = { .stop = false };
	unsigned int cpu = sysconf(_SC_NPROCESSORS_ONLN) - 1;
	int constant;

	need_source();
	s.poller[0] = create_poller(0, VHOST_POLL_MODE_ADAPTIVE, "race0");
	s.poller[1] = create_poller(cpu, VHOST_POLL_MODE_BUSY, "race1");
	constant = attached_source(s.poller[0]);
	set_tick(constant, 100000);
	start_threads(&s, &changer, t);
	join_threads(&s, changer, t);
	set_tick(constant, 0);
	expect_served(constant);
	EXPECT_EQ(poller_stats(s.poller[0]).sources, 1);
	EXPECT_EQ(poller_stats(s.poller[1]).sources, 0);
}

static void cpus_come_and_go_meanwhile(void)
{
	pthread_t changer, t[ATTACHERS];
	struct shared s = { .stop = false };
	unsigned int cpu = need_other_cpu(), i;

	need_source();
	s.poller[0] = create_poller(cpu, VHOST_POLL_MODE_BUSY, "hot0");
	s.poller[1] = create_poller(cpu, VHOST_POLL_MODE_ADAPTIVE, "hot1");
	start_threads(&s, &changer, t);
	for (i = 0; i < loops(10); i++) {
		EXPECT_EQ(cpu_online(cpu, false), 0);
		EXPECT_EQ(cpu_online(cpu, true), 0);
	}
	join_threads(&s, changer, t);
	EXPECT_EQ(poller_stats(s.poller[0]).state, 0);
	EXPECT_EQ(poller_stats(s.poller[0]).sources, 0);
}

static void own_sources(unsigned int seed)
{
	uint64_t number = seed;
	int fd, i;

	fd = create_poller(0, seed % 3, "victim");
	for (i = 0; i < 4; i++) {
		int source = open_source();

		set_tick(source, 100000);
		EXPECT_EQ(try_attach(source, fd, 100, i & 1 ? &number : NULL),
			  0);
	}
	if (seed & 1)
		close(fd);
	for (;;)
		pause();
}

static void owners_are_killed(void)
{
	unsigned int i;

	need_source();
	for (i = 0; i < loops(40); i++) {
		pid_t pid = fork();

		EXPECT(pid >= 0);
		if (!pid)
			own_sources(i);
		/* At any moment of its life. */
		usleep(i * 1237 % 20000);
		EXPECT_EQ(kill(pid, SIGKILL), 0);
		EXPECT_EQ(waitpid(pid, NULL, 0), pid);
	}
	EVENTUALLY(!poller_count("victim"));
}

static void pollers_come_and_go(void)
{
	unsigned int cpus = sysconf(_SC_NPROCESSORS_ONLN), i;

	for (i = 0; i < loops(200); i++)
		close(create_poller(i % cpus, i % 3, "brief"));
	EVENTUALLY(!poller_count("brief"));
}

static const struct ktap_test tests[] = {
	{ "attach_detach_wake_and_modes", attach_detach_wake_and_modes, 0 },
	{ "cpus_come_and_go_meanwhile", cpus_come_and_go_meanwhile, 0 },
	{ "owners_are_killed", owners_are_killed, 0 },
	{ "pollers_come_and_go", pollers_come_and_go, 0 },
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, KTAP_COUNT(tests));
}
