// SPDX-License-Identifier: GPL-2.0
/*
 * Threads in the owner's cgroup do requests that may sleep, so their CPU time is the owner's.  They
 * are not the owner's threads: a request is done whatever becomes of the owner's process.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/vhost.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup.h"
#include "module.h"
#include "rig.h"
#include "trace.h"

/* More than there are threads at most. */
#define WRITES	160
#define THREADS	64
#define RING	512

static void until_threads(unsigned int nr)
{
	unsigned int tries;

	for (tries = 0; cgroup_threads() != nr && tries < 2000; tries++)
		sleep_ms(100);
	EXPECT_EQ(cgroup_threads(), nr);
}

/* A disk that does one write at a time, each of which takes a while. */
static const char *slow_disk(void)
{
	backend_need_modules();
	return nullb_create(&(struct nullb){
		.name = "slow", .irqmode = 2, .completion_nsec = 20000000, .tags = 1 });
}

/* A thread sleeps in each of the writes. */
static void rig_open_slow(struct rig *g, const char *disk)
{
	rig_open(g, disk, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_ADAPTIVE, .engine = VHOST_BLK_ENGINE_FILE,
		.open_flags = O_DSYNC, .ring_size = RING });
}

static void offer_writes(struct rig *g)
{
	unsigned int i;

	for (i = 0; i < WRITES; i++) {
		rig_pattern(g->data + i * 4096, 4096, i);
		rig_queue(g, 0, VIRTIO_BLK_T_OUT, i * 16, g->data + i * 4096, 4096);
	}
	rig_kick(g, 0);
}

static void expect_on_disk(const char *disk)
{
	u8 block[4096];
	unsigned int i;

	for (i = 0; i < WRITES; i++) {
		backend_read(disk, i * 16 * 512, block, sizeof(block));
		EXPECT(rig_pattern_ok(block, sizeof(block), i));
	}
}

static void expect_written(struct rig *g, const char *disk)
{
	unsigned int i;

	rig_wait(g, 0);
	for (i = 0; i < WRITES; i++)
		EXPECT_EQ(*g->req[i].status, VIRTIO_BLK_S_OK);
	expect_on_disk(disk);
}

struct seen {
	unsigned int ours;
	unsigned int others;
};

/* "      vhost_blk-0-123     [001] ..." */
static int thread_of(const char *line)
{
	const char *at = strstr(line, " [");

	EXPECT(at);
	while (at > line && at[-1] == ' ')
		at--;
	while (at > line && at[-1] >= '0' && at[-1] <= '9')
		at--;
	return atoi(at);
}

static void see_work(const char *line, void *arg)
{
	int thread = thread_of(line);
	struct seen *seen = arg;

	if (thread != getpid() && cgroup_has_thread(thread))
		seen->ours++;
	else
		seen->others++;
}

/*
 * The first jobs may find no thread that is idle: workqueues do these, and a thread for the next
 * one is made meanwhile.
 */
#define BURSTS	50

static void threads_in_the_owners_cgroup_do_what_may_sleep(void)
{
	struct virtio_blk_discard_write_zeroes *range;
	struct seen seen = {};
	unsigned int i, j;
	const char *disk;
	struct rig g;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "who", .discard = true });
	cgroup_enter();
	rig_open(&g, disk, NULL);
	range = (void *)g.data;
	*range = (struct virtio_blk_discard_write_zeroes){ .num_sectors = 8 };
	for (i = 0; i < BURSTS && seen.ours != 32; i++) {
		seen = (struct seen){};
		trace_begin("vhost_serve/vhost_serve_work");
		for (j = 0; j < 32; j++)
			EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_DISCARD, 0, range, sizeof(*range)),
				  VIRTIO_BLK_S_OK);
		trace_end(see_work, &seen);
		ktap_msg("%u requests by threads of the cgroup, %u by others", seen.ours,
			 seen.others);
	}
	EXPECT_EQ(seen.ours, 32);
	EXPECT_EQ(seen.others, 0);
	rig_close(&g);
	until_threads(1);
}

/*
 * The disk cannot zero, so the threads copy pages into its memory.  No other task is in the cgroup,
 * so they use its quota alone.
 */
static void a_quota_holds_for_threads(void)
{
	struct virtio_blk_discard_write_zeroes *range;
	unsigned int i, j;
	const char *disk;
	struct rig g;
	u64 used;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "quota" });
	cgroup_enter();
	rig_open(&g, disk, NULL);
	cgroup_leave();
	cgroup_limit_cpu("10000 100000");
	EXPECT_EQ(cgroup_threads(), 1);
	range = (void *)g.data;
	*range = (struct virtio_blk_discard_write_zeroes){ .num_sectors = 4096 };
	used = cgroup_cpu("usage_usec");
	for (i = 0; i < BURSTS && !cgroup_cpu("nr_throttled"); i++) {
		for (j = 0; j < 16; j++)
			rig_queue(&g, 0, VIRTIO_BLK_T_WRITE_ZEROES, 0, range, sizeof(*range));
		rig_kick(&g, 0);
		rig_wait(&g, 0);
	}
	ktap_msg("%u bursts, %llu us", i, (unsigned long long)(cgroup_cpu("usage_usec") - used));
	EXPECT(cgroup_cpu("nr_throttled"));
	EXPECT(cgroup_cpu("usage_usec") > used);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
	until_threads(0);
}

/* There are more requests than threads, so some wait for a thread that is busy. */
static void as_many_threads_as_sleep_and_not_for_ever(void)
{
	const char *disk = slow_disk();
	struct seen seen = {};
	unsigned int i;
	struct rig g;

	cgroup_enter();
	rig_open_slow(&g, disk);
	for (i = 0; i < BURSTS && seen.ours != WRITES; i++) {
		seen = (struct seen){};
		trace_begin("vhost_serve/vhost_serve_work");
		offer_writes(&g);
		rig_wait(&g, 0);
		trace_end(see_work, &seen);
		ktap_msg("%u requests by threads of the cgroup, %u by others", seen.ours,
			 seen.others);
	}
	EXPECT_EQ(seen.ours, WRITES);
	EXPECT_EQ(seen.others, 0);
	EXPECT_EQ(cgroup_threads(), 1 + THREADS);
	expect_written(&g, disk);
	/* This thread, and the first one of the device. */
	until_threads(2);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

/*
 * The disk answers nothing until all threads are there.  So workqueues do one request for each
 * thread that is missing at first, and threads do all others.
 */
static void a_burst_waits_for_threads(void)
{
	const char *disk = dm_linear_create("late", slow_disk(), WRITES * 16);
	struct seen seen = {};
	struct rig g;

	cgroup_enter();
	rig_open_slow(&g, disk);
	dm_suspend("late");
	trace_begin("vhost_serve/vhost_serve_work");
	offer_writes(&g);
	until_threads(1 + THREADS);
	dm_resume("late");
	rig_wait(&g, 0);
	trace_end(see_work, &seen);
	ktap_msg("%u requests by threads of the cgroup, %u by others", seen.ours, seen.others);
	EXPECT_EQ(seen.others, THREADS - 1);
	EXPECT_EQ(seen.ours, WRITES - (THREADS - 1));
	expect_written(&g, disk);
	rig_close(&g);
}

static void the_threads_end_with_the_ownership(void)
{
	const char *disk = slow_disk();
	struct rig g;

	cgroup_enter();
	rig_open_slow(&g, disk);
	EXPECT(cgroup_threads() >= 2);
	offer_writes(&g);
	EXPECT_EQ(vblk_stop(g.dev.fd, 0), 0);
	EXPECT_EQ(ioctl(g.dev.fd, VHOST_RESET_OWNER), 0);
	until_threads(1);
	EXPECT_EQ(ioctl(g.dev.fd, VHOST_SET_OWNER), 0);
	EXPECT_EQ(cgroup_threads(), 2);
	EXPECT_EQ(ioctl(g.dev.fd, VHOST_SET_OWNER), -1);
	EXPECT_EQ(errno, EBUSY);
	rig_close(&g);
	until_threads(1);
}

static void closing_ends_the_threads(void)
{
	const char *disk = slow_disk();
	struct rig g;

	cgroup_enter();
	rig_open_slow(&g, disk);
	offer_writes(&g);
	rig_close(&g);
	until_threads(1);
}

static void until_references(const char *module, long n)
{
	unsigned int tries;

	for (tries = 0; module_references(module) != n && tries < 600; tries++)
		sleep_ms(100);
	EXPECT_EQ(module_references(module), n);
}

/* The owner counts on while it runs; in memory that this process sees. */
static unsigned int *owner_count;

static void count_for_ever(void)
{
	for (;;) {
		__atomic_add_fetch(owner_count, 1, __ATOMIC_RELAXED);
		usleep(1000);
	}
}

static bool owner_stands_still(void)
{
	unsigned int before = __atomic_load_n(owner_count, __ATOMIC_RELAXED);

	sleep_ms(500);
	return __atomic_load_n(owner_count, __ATOMIC_RELAXED) == before;
}

static void exec_another(int sig)
{
	(void)sig;
	execl("/bin/sleep", "sleep", "1000", NULL);
	_exit(1);
}

static void owner_that_writes(const char *disk, bool enter, int told)
{
	struct rig g;

	signal(SIGUSR1, exec_another);
	if (enter)
		cgroup_enter();
	rig_open_slow(&g, disk);
	offer_writes(&g);
	EXPECT_EQ(write(told, &g.dev.fd, sizeof(g.dev.fd)), sizeof(g.dev.fd));
	count_for_ever();
}

static pid_t fork_owner(const char *disk, bool enter, int told)
{
	pid_t pid;

	if (!owner_count)
		owner_count = mmap(NULL, sizeof(*owner_count), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(owner_count != MAP_FAILED);
	pid = fork();
	if (!pid)
		owner_that_writes(disk, enter, told);
	return pid;
}

static void an_owner_is_killed_whose_threads_sleep(void)
{
	unsigned int i, rounds = ktap_full() ? 200 : 10;
	const char *disk = slow_disk();
	long serve = module_references("vhost_serve"), blk = module_references("vhost_blk");
	int told[2], fd, status;
	struct rig g;
	pid_t pid;

	EXPECT(!pipe(told));
	for (i = 0; i < rounds; i++) {
		pid = fork_owner(disk, false, told[1]);
		EXPECT_EQ(read(told[0], &fd, sizeof(fd)), sizeof(fd));
		usleep(i * 9973 % 100000);
		kill(pid, SIGKILL);
		EXPECT(waitpid(pid, &status, 0) == pid);
		EXPECT(WIFSIGNALED(status));
	}
	until_references("vhost_blk", blk);
	until_references("vhost_serve", serve);
	rig_open_slow(&g, disk);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void set_stop_timeout(const char *seconds)
{
	EXPECT(!write_text("/sys/module/vhost_serve/parameters/stop_timeout", seconds));
}

static void until_in_flight(struct rig *g, u64 nr)
{
	struct vhost_blk_stats st = {};
	unsigned int tries;

	for (tries = 0; st.inflight != nr && tries < 600; tries++) {
		sleep_ms(100);
		rig_stats(g, 0, &st);
	}
	EXPECT_EQ(st.inflight, nr);
}

static void owner_whose_disk_does_not_answer(const char *disk, int told)
{
	struct rig g;

	cgroup_enter();
	rig_open_slow(&g, disk);
	dm_suspend("late");
	offer_writes(&g);
	until_in_flight(&g, WRITES);
	EXPECT_EQ(write(told, "", 1), 1);
	for (;;)
		pause();
}

/*
 * The device outlives its owner, because its threads wait for the disk.  They do so outside the
 * owner's cgroup, which therefore can be removed.
 */
static void a_disk_that_does_not_answer_keeps_no_cgroup(void)
{
	const char *slow = slow_disk(), *disk = dm_linear_create("late", slow, WRITES * 16);
	long serve = module_references("vhost_serve"), blk = module_references("vhost_blk");
	int told[2], status;
	struct rig g;
	pid_t pid;
	char c;

	set_stop_timeout("1");
	EXPECT(!pipe(told));
	pid = fork();
	if (!pid)
		owner_whose_disk_does_not_answer(disk, told[1]);
	EXPECT_EQ(read(told[0], &c, 1), 1);
	until_threads(1 + THREADS);
	kill(pid, SIGKILL);
	EXPECT(waitpid(pid, &status, 0) == pid);
	until_threads(0);
	EXPECT_EQ(cgroup_remove(), 0);
	EXPECT_EQ(module_references("vhost_blk"), blk + 1);

	dm_resume("late");
	until_references("vhost_blk", blk);
	until_references("vhost_serve", serve);
	expect_on_disk(disk);
	set_stop_timeout("60");
	rig_open_slow(&g, disk);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static int take_descriptor(pid_t pid, int fd)
{
	int process = syscall(SYS_pidfd_open, pid, 0), ours;

	EXPECT(process >= 0);
	ours = syscall(SYS_pidfd_getfd, process, fd, 0);
	EXPECT(ours >= 0);
	close(process);
	return ours;
}

static void until_written(const char *disk, int fd)
{
	struct vhost_blk_stats st;
	unsigned int tries;
	u8 block[4096];

	for (tries = 0; tries < 600; tries++) {
		EXPECT_EQ(vblk_stats(fd, 0, &st), 0);
		if (st.writes == WRITES)
			break;
		sleep_ms(100);
	}
	EXPECT_EQ(st.writes, WRITES);
	EXPECT_EQ(st.errors, 0);
	backend_read(disk, (WRITES - 1) * 16 * 512, block, sizeof(block));
	EXPECT(rig_pattern_ok(block, sizeof(block), WRITES - 1));
}

/*
 * Requests wait for threads when something happens to the owner's process.  The guest may live on
 * with another owner, so all of them are done, and none fails.  This process has the device open,
 * so nothing is drained before it looks.
 */
static void owner_in_the_middle(unsigned int rounds, bool enter, void (*happens)(pid_t pid))
{
	const char *disk = slow_disk();
	int told[2], fd, ours, status;
	u8 block[4096] = {};
	unsigned int i;
	pid_t pid;

	EXPECT(!pipe(told));
	for (i = 0; i < rounds; i++) {
		backend_write(disk, (WRITES - 1) * 16 * 512, block, sizeof(block));
		pid = fork_owner(disk, enter, told[1]);
		EXPECT_EQ(read(told[0], &fd, sizeof(fd)), sizeof(fd));
		ours = take_descriptor(pid, fd);
		usleep(i * 19973 % 100000);
		happens(pid);
		until_written(disk, ours);
		if (enter) {
			EXPECT(owner_stands_still());
			EXPECT_EQ(cgroup_set("cgroup.freeze", "0"), 0);
		}
		close(ours);
		kill(pid, SIGKILL);
		EXPECT(waitpid(pid, &status, 0) == pid);
	}
}

static void by_sigkill(pid_t pid)
{
	kill(pid, SIGKILL);
}

static void by_sigstop(pid_t pid)
{
	int status;

	kill(pid, SIGSTOP);
	EXPECT(waitpid(pid, &status, WUNTRACED) == pid);
	EXPECT(WIFSTOPPED(status));
}

static void by_exec(pid_t pid)
{
	kill(pid, SIGUSR1);
}

static void by_freezer(pid_t pid)
{
	unsigned int tries;

	(void)pid;
	EXPECT(!owner_stands_still());
	EXPECT_EQ(cgroup_set("cgroup.freeze", "1"), 0);
	for (tries = 0; !owner_stands_still() && tries < 60; tries++)
		;
}

static void a_killed_owner_leaves_no_request(void)
{
	owner_in_the_middle(ktap_full() ? 100 : 5, false, by_sigkill);
}

static void a_stopped_owner_leaves_no_request(void)
{
	owner_in_the_middle(3, false, by_sigstop);
}

static void an_owner_that_execs_leaves_no_request(void)
{
	owner_in_the_middle(3, false, by_exec);
}

static void a_frozen_cgroup_leaves_no_request(void)
{
	owner_in_the_middle(1, true, by_freezer);
}

static void cleanup(void)
{
	trace_cleanup();
	write_text("/sys/module/vhost_serve/parameters/stop_timeout", "60");
	/* One that is suspended cannot be removed. */
	run_command("dmsetup resume --noudevrules --noudevsync vbtlate 2>/dev/null");
	backend_cleanup();
	cgroup_cleanup();
}

#define TEST(f) { .name = #f, .run = f, .limit = 300 }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(threads_in_the_owners_cgroup_do_what_may_sleep),
		TEST(a_quota_holds_for_threads),
		TEST(as_many_threads_as_sleep_and_not_for_ever),
		TEST(a_burst_waits_for_threads),
		TEST(the_threads_end_with_the_ownership),
		TEST(closing_ends_the_threads),
		TEST(an_owner_is_killed_whose_threads_sleep),
		TEST(a_disk_that_does_not_answer_keeps_no_cgroup),
		TEST(a_killed_owner_leaves_no_request),
		TEST(a_stopped_owner_leaves_no_request),
		TEST(an_owner_that_execs_leaves_no_request),
		TEST(a_frozen_cgroup_leaves_no_request),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), cleanup);
}
