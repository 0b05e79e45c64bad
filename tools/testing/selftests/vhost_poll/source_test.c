// SPDX-License-Identifier: GPL-2.0
/* What linux/vhost_poll.h promises to a source, seen from one. */
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "poller.h"

#define NO_LOST_WAKEUP	1000

static void wrong_sources_are_refused(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_EVENT, "wrong");
	int empty = open_poller(), source = open_source();

	EXPECT_EQ(try_attach(source, fd, 0, NULL), -EINVAL);
	EXPECT_EQ(try_attach(source, fd, 1001, NULL), -EINVAL);
	EXPECT_EQ(try_attach(source, -1, 100, NULL), -EBADF);
	EXPECT_EQ(try_attach(source, source, 100, NULL), -EINVAL);
	EXPECT_EQ(try_attach(source, empty, 100, NULL), -ENXIO);
	EXPECT_EQ(poller_stats(fd).sources, 0);
	EXPECT_EQ(try_attach(source, fd, 1000, NULL), 0);
	EXPECT_EQ(try_attach(source, fd, 100, NULL), -EBUSY);
	EXPECT_EQ(poller_stats(fd).sources, 1);
	EXPECT_EQ(ctl(source, VPS_DETACH, NULL), 0);
	EXPECT_EQ(poller_stats(fd).sources, 0);
}

static void work_is_served(void)
{
	unsigned int mode;

	for (mode = 0; mode < 3; mode++) {
		int fd = create_poller(0, mode, "serves");
		int source = attached_source(fd);

		add_work(source, 10000);
		expect_served(source);
		EXPECT(poller_stats(fd).work >= 10000);
		EXPECT(poller_stats(fd).rounds_hit > 1);
		close(source);
		close(fd);
	}
}

/* One piece at a time, each after the poller may have gone to sleep. */
static void no_wakeup_is_lost(void)
{
	unsigned int mode, i;

	for (mode = 0; mode < 3; mode++) {
		int fd = create_poller(0, mode, "wakes");
		int source = attached_source(fd);

		for (i = 0; i < NO_LOST_WAKEUP; i++) {
			add_work(source, 1);
			EVENTUALLY(source_state(source).served == i + 1);
		}
		EXPECT_EQ(source_state(source).violations, 0);
		close(source);
		close(fd);
	}
}

static void wakeups_from_interrupts(void)
{
	unsigned int mode;

	for (mode = 0; mode < 3; mode++) {
		int fd = create_poller(0, mode, "irq");
		int source = attached_source(fd);

		set_tick(source, 500000);
		EVENTUALLY(source_state(source).served >= 500);
		set_tick(source, 0);
		expect_served(source);
		close(source);
		close(fd);
	}
}

static void event_mode_arms_before_each_sleep(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_EVENT, "arms");
	int source = attached_source(fd);
	struct selftest_state st;
	unsigned int i;

	for (i = 0; i < 50; i++) {
		add_work(source, 1);
		EVENTUALLY(source_state(source).arms > i);
		expect_served(source);
	}
	st = source_state(source);
	/* One more at attach, one less while it sleeps. */
	EXPECT(st.disarms == st.arms || st.disarms == st.arms + 1);
	EXPECT(poller_stats(fd).sleeps >= 25);
}

static void busy_mode_does_not_arm(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_BUSY, "spins");
	int source = attached_source(fd);

	EVENTUALLY(source_state(source).polls > 1000);
	EXPECT_EQ(source_state(source).arms, 0);
	EXPECT_EQ(set_mode(fd, VHOST_POLL_MODE_EVENT), 0);
	EVENTUALLY(source_state(source).arms);
	EXPECT_EQ(set_mode(fd, VHOST_POLL_MODE_BUSY), 0);
	EVENTUALLY(source_state(source).disarms == source_state(source).arms + 1);
}

/* Nothing is in flight, so once it sleeps only a wake-up ends that. */
static void idle_adaptive_poller_is_still(void)
{
	unsigned int i;
	int fd = create_poller(0, VHOST_POLL_MODE_ADAPTIVE, "idle");
	struct vhost_poll_stats st, later;
	int source = attached_source(fd);

	add_work(source, 100);
	expect_served(source);
	EVENTUALLY((st = poller_stats(fd), usleep(50000),
		    later = poller_stats(fd),
		    st.rounds == later.rounds && st.sleeps == later.sleeps));
	for (i = 0; i < 20; i++) {
		usleep(50000);
		later = poller_stats(fd);
		EXPECT_EQ(later.rounds, st.rounds);
		EXPECT_EQ(later.sleeps, st.sleeps);
	}
}

static void budget_follows_weight(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_BUSY, "weights");
	int light = open_source(), even = open_source(), heavy = open_source();

	EXPECT_EQ(try_attach(light, fd, 1, NULL), 0);
	EXPECT_EQ(try_attach(even, fd, 100, NULL), 0);
	EXPECT_EQ(try_attach(heavy, fd, 300, NULL), 0);
	EVENTUALLY(source_state(heavy).polls);
	EXPECT_EQ(source_state(light).max_budget, 1);
	EXPECT_EQ(source_state(heavy).max_budget,
		  3 * source_state(even).max_budget);
}

/* However much one has to do, the others have their turn. */
static void nobody_starves(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_BUSY, "fair");
	int greedy = open_source(), modest = attached_source(fd);

	EXPECT_EQ(try_attach(greedy, fd, 1000, NULL), 0);
	add_work(greedy, 1ULL << 60);
	EVENTUALLY(source_state(greedy).served > 1000);
	add_work(modest, 1000);
	expect_served(modest);
	EXPECT(source_state(greedy).pending);
	close(greedy);
	EVENTUALLY(poller_stats(fd).sources == 1);
}

static int submit(int source, uint64_t delay_ns, bool polled)
{
	struct selftest_submit arg = { .delay_ns = delay_ns, .polled = polled };

	return ctl(source, VPS_SUBMIT, &arg);
}

/* Nobody wakes the poller for these, so it has to look by itself. */
static void polled_backends_are_looked_at(void)
{
	unsigned int mode, i;

	for (mode = 0; mode < 3; mode++) {
		int fd = create_poller(0, mode, "polled");
		int source = attached_source(fd);

		for (i = 0; i < 50; i++) {
			EXPECT_EQ(submit(source, 2000000, true), 0);
			EVENTUALLY(source_state(source).completed == i + 1);
		}
		EXPECT_EQ(source_state(source).violations, 0);
		if (mode != VHOST_POLL_MODE_BUSY)
			EXPECT(poller_stats(fd).sleeps_timed > 0);
		close(source);
		close(fd);
	}
}

/* With nothing in flight, and no work: by its own wish. */
static void a_source_is_looked_at_again(void)
{
	uint64_t ms = 1000000, never = 0, polls;
	unsigned int mode;

	for (mode = 0; mode < 3; mode++) {
		int fd = create_poller(0, mode, "again");
		int source = attached_source(fd);

		EXPECT_EQ(ctl(source, VPS_RETRY, &ms), 0);
		polls = source_state(source).polls;
		EVENTUALLY(source_state(source).polls > polls + 20);
		EXPECT_EQ(source_state(source).served, 0);
		if (mode != VHOST_POLL_MODE_BUSY)
			EXPECT(poller_stats(fd).sleeps_timed > 10);
		EXPECT_EQ(ctl(source, VPS_RETRY, &never), 0);
		close(source);
		close(fd);
	}
}

static void told_backends_are_slept_for(void)
{
	unsigned int mode, i;

	for (mode = 0; mode < 3; mode++) {
		int fd = create_poller(0, mode, "told");
		int source = attached_source(fd);

		for (i = 0; i < 50; i++) {
			EXPECT_EQ(submit(source, 2000000, false), 0);
			EVENTUALLY(source_state(source).completed == i + 1);
		}
		EXPECT_EQ(source_state(source).violations, 0);
		if (mode == VHOST_POLL_MODE_ADAPTIVE)
			EXPECT(poller_stats(fd).sleeps_timed > 0);
		if (mode == VHOST_POLL_MODE_EVENT)
			EXPECT_EQ(poller_stats(fd).sleeps_timed, 0);
		close(source);
		close(fd);
	}
}

static void a_source_keeps_its_poller(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_ADAPTIVE, "kept");
	int source = attached_source(fd);

	close(fd);
	EXPECT(poller_pid(0, "kept"));
	add_work(source, 1000);
	expect_served(source);
	close(source);
	EVENTUALLY(!poller_pid(0, "kept"));
}

static void detached_is_left_alone(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_BUSY, "alone");
	int source = attached_source(fd);
	uint64_t polls;

	set_tick(source, 200000);
	EVENTUALLY(source_state(source).served > 10);
	EXPECT_EQ(ctl(source, VPS_DETACH, NULL), 0);
	polls = source_state(source).polls;
	EVENTUALLY(source_state(source).pending > 10);
	EXPECT_EQ(source_state(source).polls, polls);
	EXPECT_EQ(try_attach(source, fd, 100, NULL), 0);
	set_tick(source, 0);
	expect_served(source);
}

/* Its number is where its twin has another one. */
static void serve_as_owner(int poller, int source, uint64_t value, int ready)
{
	uint64_t *number = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	EXPECT(number != MAP_FAILED);
	*number = value;
	EXPECT_EQ(try_attach(source, poller, 100, number), 0);
	EXPECT_EQ(write(ready, "r", 1), 1);
	for (;;)
		pause();
}

static pid_t start_owner(int poller, int source, uint64_t value)
{
	int ready[2];
	char c;
	pid_t pid;

	EXPECT_EQ(pipe(ready), 0);
	pid = fork();
	EXPECT(pid >= 0);
	if (!pid)
		serve_as_owner(poller, source, value, ready[1]);
	close(ready[1]);
	EXPECT_EQ(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static void each_source_sees_its_owners_memory(void)
{
	unsigned int mode, i;

	for (mode = 0; mode < 3; mode++) {
		int fd = create_poller(0, mode, "memory");
		int a = open_source(), b = open_source();
		pid_t pa = start_owner(fd, a, 0xaaaa);
		pid_t pb = start_owner(fd, b, 0xbbbb);

		for (i = 0; i < 50; i++) {
			add_work(a, 10);
			add_work(b, 10);
			expect_served(a);
			expect_served(b);
		}
		kill(pa, SIGKILL);
		kill(pb, SIGKILL);
		EXPECT_EQ(waitpid(pa, NULL, 0), pa);
		EXPECT_EQ(waitpid(pb, NULL, 0), pb);
		close(a);
		close(b);
		close(fd);
	}
}

/* The owner is gone, but somebody else has the descriptor. */
static void a_dead_owners_source_is_left_out(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_EVENT, "dead");
	int orphan = open_source(), other = attached_source(fd);
	pid_t owner = start_owner(fd, orphan, 1);
	uint64_t polls;

	add_work(orphan, 10);
	expect_served(orphan);
	/* Asleep, the poller has no hold on the owner's memory. */
	EVENTUALLY(source_state(orphan).arms);
	EXPECT_EQ(kill(owner, SIGKILL), 0);
	EXPECT_EQ(waitpid(owner, NULL, 0), owner);

	add_work(other, 10);
	expect_served(other);
	polls = source_state(orphan).polls;
	add_work(orphan, 10);
	add_work(other, 1000);
	expect_served(other);
	EXPECT_EQ(source_state(orphan).polls, polls);
	EXPECT_EQ(source_state(orphan).violations, 0);
	close(orphan);
	EVENTUALLY(poller_stats(fd).sources == 1);
}

/* It shares its CPU, and grace periods end. */
static void a_busy_poller_lets_others_run(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_BUSY, "shares");
	int source = attached_source(fd), status;
	cpu_set_t cpu0;
	pid_t pid;

	EVENTUALLY(source_state(source).polls > 100);
	pid = fork();
	EXPECT(pid >= 0);
	if (!pid) {
		CPU_ZERO(&cpu0);
		CPU_SET(0, &cpu0);
		EXPECT_EQ(sched_setaffinity(0, sizeof(cpu0), &cpu0), 0);
		EXPECT_EQ(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0),
			  0);
		_exit(0);
	}
	EXPECT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(source_state(source).arms, 0);
}

static const struct ktap_test tests[] = {
	{ "wrong_sources_are_refused", wrong_sources_are_refused, 0 },
	{ "work_is_served", work_is_served, 0 },
	{ "no_wakeup_is_lost", no_wakeup_is_lost, 0 },
	{ "wakeups_from_interrupts", wakeups_from_interrupts, 0 },
	{ "event_mode_arms_before_each_sleep", event_mode_arms_before_each_sleep, 0 },
	{ "busy_mode_does_not_arm", busy_mode_does_not_arm, 0 },
	{ "idle_adaptive_poller_is_still", idle_adaptive_poller_is_still, 0 },
	{ "budget_follows_weight", budget_follows_weight, 0 },
	{ "nobody_starves", nobody_starves, 0 },
	{ "polled_backends_are_looked_at", polled_backends_are_looked_at, 0 },
	{ "a_source_is_looked_at_again", a_source_is_looked_at_again, 0 },
	{ "told_backends_are_slept_for", told_backends_are_slept_for, 0 },
	{ "a_source_keeps_its_poller", a_source_keeps_its_poller, 0 },
	{ "detached_is_left_alone", detached_is_left_alone, 0 },
	{ "each_source_sees_its_owners_memory", each_source_sees_its_owners_memory, 0 },
	{ "a_dead_owners_source_is_left_out", a_dead_owners_source_is_left_out, 0 },
	{ "a_busy_poller_lets_others_run", a_busy_poller_lets_others_run, 0 },
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, KTAP_COUNT(tests));
}
