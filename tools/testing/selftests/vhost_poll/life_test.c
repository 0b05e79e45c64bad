// SPDX-License-Identifier: GPL-2.0
/* A poller's thread: where it runs, and when it is gone. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "poller.h"

static void thread_is_named_and_bound(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_BUSY, "bound");
	char cpus[64];
	cpu_set_t all;
	int pid = poller_pid(0, "bound");

	EXPECT(pid);
	status_line(pid, "Cpus_allowed_list", cpus, sizeof(cpus));
	EXPECT(!strcmp(cpus, "0"));
	memset(&all, 0xff, sizeof(all));
	EXPECT(sched_setaffinity(pid, sizeof(all), &all) < 0);
	EXPECT_EQ(sched_getscheduler(pid), SCHED_OTHER);
	EXPECT_EQ(poller_stats(fd).cpu, 0);
	EXPECT_EQ(poller_stats(fd).state, 0);
}

static void close_ends_it(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_BUSY, "closed");

	EXPECT(poller_pid(0, "closed"));
	close(fd);
	EVENTUALLY(!poller_pid(0, "closed"));
}

static void the_last_descriptor_counts(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_ADAPTIVE, "dup");
	int other = dup(fd);

	close(fd);
	EXPECT(poller_pid(0, "dup"));
	close(other);
	EVENTUALLY(!poller_pid(0, "dup"));
}

static void several_live_side_by_side(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned int i;
	int fd[16];
	char name[16];

	for (i = 0; i < KTAP_COUNT(fd); i++) {
		snprintf(name, sizeof(name), "many%u", i);
		fd[i] = create_poller(i % cpus, i % 3, name);
	}
	EXPECT_EQ(poller_count("many"), KTAP_COUNT(fd));
	for (i = 0; i < KTAP_COUNT(fd); i += 2)
		close(fd[i]);
	EVENTUALLY(poller_count("many") == KTAP_COUNT(fd) / 2);
	EXPECT_EQ(poller_stats(fd[1]).mode, 1);
	for (i = 1; i < KTAP_COUNT(fd); i += 2)
		close(fd[i]);
	EVENTUALLY(!poller_count("many"));
}

static void without_sources_it_sleeps(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_BUSY, "bored");
	struct vhost_poll_stats st;

	EVENTUALLY(poller_stats(fd).rounds);
	usleep(100000);
	st = poller_stats(fd);
	EXPECT(st.rounds < 10);
	EXPECT(st.sleep_ns > 0);
}

/* Runs @owner in a child, which is ready when it says so. */
static pid_t start_owner(void (*owner)(void))
{
	int ready[2];
	char c;
	pid_t pid;

	EXPECT_EQ(pipe(ready), 0);
	pid = fork();
	EXPECT(pid >= 0);
	if (!pid) {
		owner();
		EXPECT_EQ(write(ready[1], "r", 1), 1);
		for (;;)
			pause();
	}
	close(ready[1]);
	EXPECT_EQ(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static void kill_owner(pid_t pid)
{
	EXPECT_EQ(kill(pid, SIGKILL), 0);
	EXPECT_EQ(waitpid(pid, NULL, 0), pid);
}

static void own_three(void)
{
	create_poller(0, VHOST_POLL_MODE_BUSY, "killed0");
	create_poller(0, VHOST_POLL_MODE_ADAPTIVE, "killed1");
	create_poller(0, VHOST_POLL_MODE_EVENT, "killed2");
}

static void a_killed_owner_leaves_nothing(void)
{
	unsigned int i;

	need_poll();
	for (i = 0; i < 20; i++) {
		pid_t pid = start_owner(own_three);

		EXPECT_EQ(poller_count("killed"), 3);
		kill_owner(pid);
		EVENTUALLY(!poller_count("killed"));
	}
}

static void owner_of_nothing(void)
{
}

static void a_child_keeps_what_it_inherited(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_ADAPTIVE, "child");
	pid_t pid = start_owner(owner_of_nothing);

	close(fd);
	EXPECT(poller_pid(0, "child"));
	kill_owner(pid);
	EVENTUALLY(!poller_pid(0, "child"));
}

static bool is_module(void)
{
	return !access("/sys/module/vhost_poll/refcnt", F_OK);
}

static int refcount(void)
{
	char text[32];

	EXPECT_EQ(get_text("/sys/module/vhost_poll/refcnt", text, sizeof(text)),
		  0);
	return atoi(text);
}

/* The modules that hold vhost_poll, in the order in which they can go. */
static const char *const users[] = {
	"vhost_poll_selftest", "vhost_blk", "vhost_fs", "vhost_serve",
};

static void unloading_waits_for_the_last_user(void)
{
	int fd = create_poller(0, VHOST_POLL_MODE_BUSY, "inuse");
	bool was[KTAP_COUNT(users)];
	int i;

	if (!is_module())
		ktap_skip("vhost_poll is built in");
	EXPECT(refcount() > 0);
	EXPECT_EQ(unload_module("vhost_poll"), -EAGAIN);
	EXPECT_EQ(poller_stats(fd).mode, VHOST_POLL_MODE_BUSY);
	close(fd);

	for (i = 0; i < (int)KTAP_COUNT(users); i++) {
		was[i] = module_loaded(users[i]);
		unload_module(users[i]);
	}
	EVENTUALLY(!refcount());
	EXPECT_EQ(unload_module("vhost_poll"), 0);
	EXPECT(access("/dev/vhost-poll", F_OK));
	create_poller(0, VHOST_POLL_MODE_BUSY, "reloaded");
	while (--i > 0)
		if (was[i])
			load_module(users[i]);
}

static const struct ktap_test tests[] = {
	{ "thread_is_named_and_bound", thread_is_named_and_bound, 0 },
	{ "close_ends_it", close_ends_it, 0 },
	{ "the_last_descriptor_counts", the_last_descriptor_counts, 0 },
	{ "several_live_side_by_side", several_live_side_by_side, 0 },
	{ "without_sources_it_sleeps", without_sources_it_sleeps, 0 },
	{ "a_killed_owner_leaves_nothing", a_killed_owner_leaves_nothing, 0 },
	{ "a_child_keeps_what_it_inherited", a_child_keeps_what_it_inherited, 0 },
	{ "unloading_waits_for_the_last_user", unloading_waits_for_the_last_user, 0 },
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, KTAP_COUNT(tests));
}
