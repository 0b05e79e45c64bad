// SPDX-License-Identifier: GPL-2.0
/*
 * The host is suspended while rings are full: nothing is submitted while its kernel threads are
 * frozen, and everything is answered after the thaw.
 *
 * The kernel's own test mode (pm_test) freezes all tasks for a second, and then thaws them
 * again; the task that asks for it is not frozen, and sleeps in the kernel meanwhile.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rig.h"
#include "trace.h"

#define POWER	"/sys/power"
#define DELAY	"/sys/module/suspend/parameters/pm_test_delay"

/* Of the trace: the time between freeze and thaw, and the events in it. */
struct window {
	bool frozen;
	unsigned int freezes;
	unsigned int before;
	unsigned int within;
	unsigned int after;
	unsigned int ended_within;
	/* what threads of the device began, and what workqueues did */
	unsigned int by_threads;
	unsigned int by_others;
};

static void need_suspend(void)
{
	backend_need_modules();
	if (!getenv("PVIO_TEST_SUSPEND"))
		ktap_skip("PVIO_TEST_SUSPEND does not say that this machine may be suspended");
	if (access(POWER "/pm_test", W_OK))
		ktap_skip("this kernel has no pm_test");
	EXPECT_EQ(write_text(POWER "/pm_test", "freezer"), 0);
	EXPECT_EQ(write_text(DELAY, "1"), 0);
	/* Else the rings may be empty before the freeze. */
	EXPECT_EQ(write_text(POWER "/sync_on_suspend", "0"), 0);
}

/* The kernel waits without sleeping for that second, so not on a poller's CPU. */
static void stay_on_cpu_0(void)
{
	cpu_set_t set;

	if (!last_cpu())
		ktap_skip("needs two CPUs");
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	EXPECT(!sched_setaffinity(0, sizeof(set), &set));
}

static void see_event(const char *line, void *arg)
{
	struct window *w = arg;

	if (strstr(line, "freeze_processes[0] end")) {
		w->frozen = true;
		w->freezes++;
	} else if (strstr(line, "thaw_processes[0] begin")) {
		w->frozen = false;
	} else if (strstr(line, "vhost_blk_submit")) {
		if (w->frozen)
			w->within++;
		else if (w->freezes)
			w->after++;
		else
			w->before++;
	} else if (strstr(line, "vhost_blk_backend_done")) {
		w->ended_within += w->frozen;
	} else if (strstr(line, "vhost_serve_work")) {
		/* "  vhost_blk-0-w-123     [001] ..." */
		if (strstr(line, "-w-"))
			w->by_threads++;
		else
			w->by_others++;
	}
}

static void offer_traced(struct rig *g)
{
	trace_begin("power/suspend_resume");
	trace_add("vhost_blk/vhost_blk_submit");
	trace_add("vhost_blk/vhost_blk_backend_done");
	trace_add("vhost_serve/vhost_serve_work");
	rig_kick(g, 0);
}

static struct window end_traced(struct rig *g)
{
	struct window w = {};

	rig_wait(g, 0);
	trace_end(see_event, &w);
	ktap_msg("submitted %u before the freeze, %u within, %u after the thaw",
		 w.before, w.within, w.after);
	ktap_msg("ended %u within; threads began %u, others %u",
		 w.ended_within, w.by_threads, w.by_others);
	return w;
}

static struct window freeze_traced(struct rig *g)
{
	struct window w;

	EXPECT_EQ(write_text(POWER "/state", "freeze"), 0);
	w = end_traced(g);
	EXPECT_EQ(w.freezes, 1);
	return w;
}

static struct window freeze_and_thaw(struct rig *g)
{
	offer_traced(g);
	return freeze_traced(g);
}

static void fill(struct rig *g, u32 type, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		rig_pattern(g->data + i * 4096, 4096, i);
		/* places that do not touch, so that none merge */
		rig_queue(g, 0, type, i * 16, g->data + i * 4096, 4096);
	}
}

static void expect_all_ok(struct rig *g, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		EXPECT_EQ(*g->req[g->nreq - n + i].status, VIRTIO_BLK_S_OK);
}

static void expect_written(const char *path, unsigned int n)
{
	u8 block[4096];
	unsigned int i;

	for (i = 0; i < n; i++) {
		backend_read(path, i * 16 * 512, block, sizeof(block));
		EXPECT(rig_pattern_ok(block, sizeof(block), i));
	}
}

#define RING	512
#define WRITES	160	/* in three descriptors each */

/* A disk that does one write at a time, of 60 ms. */
static const char *slow_disk(const char *name)
{
	return nullb_create(&(struct nullb){
		.name = name, .irqmode = 2, .completion_nsec = 60000000, .tags = 1 });
}

/* The host freezes once those writes have ended that workers wait for, which are 64 at most. */
static void full_ring(const char *name, const struct rig_opts *o, unsigned int rounds_before)
{
	const char *disk;
	struct window w;
	struct rig g;

	need_suspend();
	stay_on_cpu_0();
	disk = slow_disk(name);
	rig_open(&g, disk, o);
	while (rounds_before--) {
		fill(&g, VIRTIO_BLK_T_OUT, WRITES);
		rig_kick(&g, 0);
		rig_wait(&g, 0);
	}
	fill(&g, VIRTIO_BLK_T_OUT, WRITES);
	w = freeze_and_thaw(&g);
	EXPECT_EQ(w.within, 0);
	EXPECT(w.after);
	expect_all_ok(&g, WRITES);
	expect_written(disk, WRITES);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void a_poller_submits_nothing_while_frozen(void)
{
	full_ring("mq", &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .ring_size = RING }, 0);
}

static void a_poller_that_sleeps_submits_nothing_while_frozen(void)
{
	full_ring("event", &(struct rig_opts){
		.mode = VHOST_POLL_MODE_EVENT, .ring_size = RING }, 0);
}

/* More of them than there are workers, each waits for the disk. */
static void full_ring_of_workers(const char *name, unsigned int rounds_before)
{
	full_ring(name, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .engine = VHOST_BLK_ENGINE_FILE,
		.open_flags = O_DSYNC, .ring_size = RING }, rounds_before);
}

/* A device that is new has few threads, so a workqueue does most. */
static void workers_submit_nothing_while_frozen(void)
{
	full_ring_of_workers("file", 0);
}

/* All threads of the device have a request, and the others wait for them. */
static void threads_of_a_device_submit_nothing_while_frozen(void)
{
	full_ring_of_workers("threads", 2);
}

/* Fewer than there are threads after WRITES at once. */
#define FEW	32

static void until_taken(struct rig *g, u64 writes)
{
	struct vhost_blk_stats st = {};
	unsigned int tries;

	for (tries = 0; st.writes + st.inflight != writes && tries < RIG_TIMEOUT_MS; tries++) {
		sleep_ms(1);
		rig_stats(g, 0, &st);
	}
	EXPECT_EQ(st.writes + st.inflight, writes);
}

/*
 * The workqueue freezes only once it has done what it has begun.  It has nothing here, so only the
 * guard of the threads can hold the freeze up until these are done.
 */
static void the_host_freezes_when_threads_have_done_what_they_began(void)
{
	unsigned int tries = 20;
	const char *disk;
	struct window w;
	struct rig g;

	need_suspend();
	stay_on_cpu_0();
	disk = slow_disk("guard");
	rig_open(&g, disk, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .engine = VHOST_BLK_ENGINE_FILE,
		.open_flags = O_DSYNC, .ring_size = RING });
	fill(&g, VIRTIO_BLK_T_OUT, WRITES);
	rig_kick(&g, 0);
	rig_wait(&g, 0);
	do {
		EXPECT(tries--);
		fill(&g, VIRTIO_BLK_T_OUT, FEW);
		offer_traced(&g);
		w = end_traced(&g);
	} while (w.by_others);
	fill(&g, VIRTIO_BLK_T_OUT, FEW);
	offer_traced(&g);
	until_taken(&g, g.nreq);
	w = freeze_traced(&g);
	EXPECT_EQ(w.by_threads, FEW);
	EXPECT_EQ(w.by_others, 0);
	EXPECT_EQ(w.ended_within, 0);
	expect_all_ok(&g, FEW);
	expect_written(disk, FEW);
	rig_close(&g);
}

/*
 * A discard waits, with the inode's lock, for direct writes that are under way, and the poller,
 * or its worker, carries out the end of these.  So the workers cannot freeze before they end.
 */
static void discards_and_direct_writes_do_not_keep_the_host_awake(void)
{
	struct virtio_blk_discard_write_zeroes *range;
	const char *file;
	unsigned int i;
	struct rig g;

	need_suspend();
	stay_on_cpu_0();
	file = ext4_file("dio", 0);
	EXPECT(!run_command("dd if=/dev/zero of=%s bs=1M count=8 conv=fsync 2>/dev/null", file));
	rig_open(&g, file, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .open_flags = O_DIRECT, .ring_size = 1024 });
	range = (void *)(g.data + (3 << 20));
	*range = (struct virtio_blk_discard_write_zeroes){ .sector = 8192, .num_sectors = 8 };
	for (i = 0; i < 150; i++) {
		rig_pattern(g.data + i * 4096, 4096, i);
		rig_queue(&g, 0, VIRTIO_BLK_T_OUT, i * 16, g.data + i * 4096, 4096);
		rig_queue(&g, 0, VIRTIO_BLK_T_DISCARD, 0, range, sizeof(*range));
	}
	EXPECT_EQ(freeze_and_thaw(&g).within, 0);
	expect_all_ok(&g, 300);
	expect_written(file, 150);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
	ext4_umount();
}

/* The poller has a spare thread once a request has slept, or may have. */
static void spare_threads_freeze(void)
{
	struct vhost_poll_stats p = { .size = sizeof(p) };
	unsigned int tries = RIG_TIMEOUT_MS / 10;
	const char *file;
	struct rig g;

	need_suspend();
	stay_on_cpu_0();
	file = ext4_file("spare", 0);
	rig_open(&g, file, &(struct rig_opts){ .mode = VHOST_POLL_MODE_ADAPTIVE });
	do {
		EXPECT(tries--);
		sleep_ms(10);
		rig_check_works(&g, 0, 8);
		EXPECT(!ioctl(g.poller[0], VHOST_POLL_GET_STATS, &p));
	} while (!p.hot);
	freeze_and_thaw(&g);
	rig_check_works(&g, 0, 8);
	rig_close(&g);
	ext4_umount();
}

/* The disk does not answer for as long as the host is frozen, and longer. */
static void a_disk_that_does_not_answer_keeps_no_host_awake(void)
{
	const char *disk, *dm;
	struct rig g;

	need_suspend();
	stay_on_cpu_0();
	disk = nullb_create(&(struct nullb){ .name = "deaf" });
	dm = dm_linear_create("deaf", disk, 65536);
	rig_open(&g, dm, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_ADAPTIVE, .ring_size = RING });
	dm_suspend("deaf");
	fill(&g, VIRTIO_BLK_T_OUT, WRITES);
	rig_kick(&g, 0);
	sleep_ms(100);
	EXPECT_EQ(write_text(POWER "/state", "freeze"), 0);
	dm_resume("deaf");
	rig_wait(&g, 0);
	expect_all_ok(&g, WRITES);
	rig_close(&g);
}

static void cleanup(void)
{
	write_text(POWER "/pm_test", "none");
	write_text(DELAY, "5");
	write_text(POWER "/sync_on_suspend", "1");
	trace_cleanup();
	ext4_cleanup();
	backend_cleanup();
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(a_poller_submits_nothing_while_frozen),
		TEST(a_poller_that_sleeps_submits_nothing_while_frozen),
		TEST(workers_submit_nothing_while_frozen),
		TEST(threads_of_a_device_submit_nothing_while_frozen),
		TEST(the_host_freezes_when_threads_have_done_what_they_began),
		TEST(discards_and_direct_writes_do_not_keep_the_host_awake),
		TEST(spare_threads_freeze),
		TEST(a_disk_that_does_not_answer_keeps_no_host_awake),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), cleanup);
}
