// SPDX-License-Identifier: GPL-2.0
/*
 * Engines: each kind of backend is served by the engine that suits it, which
 * can be read back, and data arrives on it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

/* All of it through the device, then looked at from below. */
static void serves(const char *disk, const char *below, u64 below_offset,
		   u32 engine)
{
	u8 *seen = malloc(65536);
	struct vhost_blk_stats st;
	struct vhost_blk_info info;
	struct rig g;
	unsigned int i;

	rig_open(&g, disk, NULL);
	rig_info(&g, &info);
	ktap_msg("%s: engine %u, %u contexts, %u of them polled", disk,
		 info.engine, info.nr_hctx, info.nr_poll_hctx);
	if (engine)
		EXPECT_EQ(info.engine, engine);
	for (i = 0; i < 16; i++) {
		rig_pattern(g.data, 65536, i);
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, i * 128, g.data,
				 65536), VIRTIO_BLK_S_OK);
		memset(g.data, 0, 65536);
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_IN, i * 128, g.data,
				 65536), VIRTIO_BLK_S_OK);
		EXPECT(rig_pattern_ok(g.data, 65536, i));
	}
	if (info.features & FEATURE(VIRTIO_BLK_F_FLUSH))
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_FLUSH, 0, NULL, 0),
			  VIRTIO_BLK_S_OK);
	for (i = 0; i < 16; i++) {
		backend_read(below, below_offset + i * 65536, seen, 65536);
		EXPECT(rig_pattern_ok(seen, 65536, i));
	}
	rig_stats(&g, 0, &st);
	if (engine)
		EXPECT_EQ(st.engine, engine);
	EXPECT_EQ(st.writes, 16);
	EXPECT_EQ(st.write_bytes, 16 * 65536);
	EXPECT_EQ(st.errors, 0);
	EXPECT_EQ(st.inflight, 0);
	rig_close(&g);
	free(seen);
}

/* Firmware has accepted no limits, and reads a whole initrd at once. */
static u8 large(struct rig *g, u32 type, unsigned int pieces)
{
	struct rig_req *req = rig_req_new(g, type, 8);
	bool in = type == VIRTIO_BLK_T_IN;
	struct ring_seg seg[64];
	unsigned int n = 0;

	seg[n++] = ring_seg(&g->mem, req->hdr, sizeof(*req->hdr), false);
	while (pieces--)
		seg[n++] = ring_seg(&g->mem, g->data, RIG_DATA, in);
	seg[n++] = ring_seg(&g->mem, req->status, 1, true);
	rig_queue_segs(g, 0, req, seg, n, false);
	rig_kick(g, 0);
	rig_wait(g, 0);
	return *req->status;
}

static void serves_large(const char *disk)
{
	/* 40 MiB: the same 4 MiB again and again */
	const unsigned int pieces = 10;
	u8 *seen = malloc(RIG_DATA);
	struct rig g;
	unsigned int i;

	rig_open(&g, disk, &(struct rig_opts){
		.without = FEATURE(VIRTIO_BLK_F_SIZE_MAX) |
			   FEATURE(VIRTIO_BLK_F_SEG_MAX) });
	rig_pattern(g.data, RIG_DATA, 1);
	EXPECT_EQ(large(&g, VIRTIO_BLK_T_OUT, pieces), VIRTIO_BLK_S_OK);
	for (i = 0; i < pieces; i++) {
		backend_read(disk, 8 * 512 + i * RIG_DATA, seen, RIG_DATA);
		EXPECT(rig_pattern_ok(seen, RIG_DATA, 1));
	}
	memset(g.data, 0, RIG_DATA);
	EXPECT_EQ(large(&g, VIRTIO_BLK_T_IN, pieces), VIRTIO_BLK_S_OK);
	EXPECT(rig_pattern_ok(g.data, RIG_DATA, 1));
	/* and the ring goes on */
	rig_check_works(&g, 0, 100);
	/* more than any: 160 MiB */
	EXPECT_EQ(large(&g, VIRTIO_BLK_T_IN, 40), VIRTIO_BLK_S_IOERR);
	rig_check_works(&g, 0, 100);
	rig_close(&g);
	free(seen);
}

static void requests_beyond_the_limits_are_served(void)
{
	backend_need_modules();
	serves_large(nullb_create(&(struct nullb){ .name = "large" }));
	serves_large(file_create(64));
}

static void null_blk_gets_mq(void)
{
	const char *disk;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "mq", .queues = 2 });
	serves(disk, disk, 0, VHOST_BLK_ENGINE_MQ);
}

/* Of which kind the block layer says that a context is. */
static void expect_kind(const char *disk, u32 hctx, const char *want)
{
	char path[128], kind[16] = "";
	FILE *f;

	run_command("mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug");
	snprintf(path, sizeof(path), "/sys/kernel/debug/block/%s/hctx%u/type",
		 disk + 5, hctx);
	f = fopen(path, "r");
	if (!f)
		ktap_skip("the block layer has no debugfs here");
	EXPECT_EQ(fscanf(f, "%15s", kind), 1);
	fclose(f);
	ktap_msg("context %u is of the kind '%s'", hctx, kind);
	EXPECT(!strcmp(kind, want));
}

/* Reads and writes both go to contexts of that kind. */
static void uses_contexts(const char *disk, u32 flags, const char *kind)
{
	static const u32 types[] = { VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_IN };
	struct vhost_blk_info info;
	struct vhost_blk_stats st;
	struct rig g;
	unsigned int i;

	rig_open(&g, disk, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .flags = flags });
	rig_info(&g, &info);
	EXPECT_EQ(info.engine, VHOST_BLK_ENGINE_MQ);
	EXPECT_EQ(info.nr_poll_hctx, 1);
	memset(g.data, 0, 4096);
	for (i = 0; i < KTAP_COUNT(types); i++) {
		EXPECT_EQ(rig_io(&g, 0, types[i], 0, g.data, 4096),
			  VIRTIO_BLK_S_OK);
		rig_stats(&g, 0, &st);
		EXPECT(st.hctx < info.nr_hctx);
		expect_kind(disk, st.hctx, kind);
	}
	rig_close(&g);
}

static const char *disk_with_a_poll_queue(void)
{
	backend_need_modules();
	return nullb_create(&(struct nullb){
		.name = "poll", .queues = 2, .poll_queues = 1,
	});
}

static void null_blk_with_poll_queues_is_polled(void)
{
	const char *disk = disk_with_a_poll_queue();

	uses_contexts(disk, 0, "poll");
	serves(disk, disk, 0, VHOST_BLK_ENGINE_MQ);
}

static void poll_queues_are_left_alone_where_that_is_asked(void)
{
	uses_contexts(disk_with_a_poll_queue(),
		      VHOST_BLK_BACKEND_NO_POLL_QUEUES, "default");
}

/* In a child: takes the poll queue away and gives it back. */
static pid_t flip_poll_queues(unsigned int times)
{
	pid_t child = fork();

	if (child)
		return child;
	for (; times; times--)
		if (nullb_set("poll", "poll_queues", times % 2 ? "1" : "0"))
			_exit(1);
	_exit(0);
}

/* Reads with 16 in flight until @child ends; returns how many. */
static unsigned int read_until_end_of(struct rig *g, pid_t child)
{
	struct rig_req *req[16];
	unsigned int i, n = 0;
	int status;

	while (!waitpid(child, &status, WNOHANG)) {
		for (i = 0; i < 16; i++)
			req[i] = rig_queue(g, 0, VIRTIO_BLK_T_IN, i * 100,
					   g->data + i * 4096, 4096);
		rig_kick(g, 0);
		rig_wait(g, 0);
		for (i = 0; i < 16; i++)
			EXPECT_EQ(*req[i]->status, VIRTIO_BLK_S_OK);
		n += 16;
	}
	EXPECT_EQ(status, 0);
	return n;
}

static void poll_queues_go_and_come_back_under_reads(void)
{
	struct vhost_blk_info info;
	unsigned int during;
	struct rig g;

	rig_open(&g, disk_with_a_poll_queue(), NULL);
	memset(g.data, 0, RIG_DATA);
	during = read_until_end_of(&g, flip_poll_queues(40));
	ktap_msg("%u reads while poll queues changed 40 times", during);
	EXPECT(during > 40);
	rig_info(&g, &info);
	EXPECT_EQ(info.nr_poll_hctx, 1);
	EXPECT_EQ(nullb_set("poll", "poll_queues", "0"), 0);
	rig_info(&g, &info);
	EXPECT_EQ(info.nr_poll_hctx, 0);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void null_blk_with_a_timer_completes(void)
{
	const char *disk;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){
		.name = "timer", .irqmode = 2, .completion_nsec = 1000000,
	});
	serves(disk, disk, 0, VHOST_BLK_ENGINE_MQ);
}

static void the_engine_can_be_chosen(void)
{
	struct vhost_blk_info info;
	const char *disk;
	struct rig g;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "mq" });
	rig_open(&g, disk, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .engine = VHOST_BLK_ENGINE_BIO,
	});
	rig_info(&g, &info);
	EXPECT_EQ(info.engine, VHOST_BLK_ENGINE_BIO);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void a_scheduler_is_kept_unless_told_otherwise(void)
{
	char path[128];
	const char *disk;
	struct vhost_blk_info info;
	struct vhost_blk_stats st;
	struct rig g;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "sched" });
	snprintf(path, sizeof(path), "/sys/block/%s/queue/scheduler", disk + 5);
	run_command("modprobe -q mq-deadline");
	if (write_text(path, "mq-deadline"))
		ktap_skip("no mq-deadline in this kernel");
	serves(disk, disk, 0, VHOST_BLK_ENGINE_BIO);

	rig_open(&g, disk, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY,
		.flags = VHOST_BLK_BACKEND_BYPASS_SCHEDULER,
	});
	rig_info(&g, &info);
	EXPECT_EQ(info.engine, VHOST_BLK_ENGINE_MQ);
	rig_check_works(&g, 0, 0);
	/* Nothing went through a worker, and so through the scheduler. */
	rig_stats(&g, 0, &st);
	EXPECT(st.reads + st.writes > 0);
	EXPECT_EQ(st.punted, 0);
	rig_close(&g);
}

static void flush_in_the_poller(const char *disk, u32 engine)
{
	struct vhost_blk_stats before, after;
	unsigned int i;
	struct rig g;

	rig_open(&g, disk, &(struct rig_opts){ .engine = engine });
	rig_stats(&g, 0, &before);
	for (i = 0; i < 16; i++) {
		rig_pattern(g.data, 4096, i);
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, i * 8, g.data, 4096),
			  VIRTIO_BLK_S_OK);
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_FLUSH, 0, NULL, 0), VIRTIO_BLK_S_OK);
	}
	rig_stats(&g, 0, &after);
	EXPECT_EQ(after.flushes - before.flushes, 16);
	EXPECT_EQ(after.punted - before.punted, 0);
	rig_close(&g);
}

static void flushes_need_no_worker(void)
{
	const char *disk;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "flush", .cache_mb = 16 });
	flush_in_the_poller(disk, VHOST_BLK_ENGINE_MQ);
	flush_in_the_poller(disk, VHOST_BLK_ENGINE_BIO);
}

static void set_read_only(const char *disk, int on)
{
	int fd = open(disk, O_RDONLY | O_CLOEXEC);

	EXPECT(fd >= 0);
	EXPECT(!ioctl(fd, BLKROSET, &on));
	close(fd);
}

/*
 * The disk has one tag, and a write takes 800 ms.  So the others wait when the disk becomes
 * read-only: in the vring, and not yet in a worker.  If @missing, the page of the second one
 * is not there, so the vring's worker takes them and leaves them to the poller.
 */
static void writes_wait_for_a_disk(const char *disk, bool missing)
{
	struct rig_req *req[6];
	struct vhost_blk_stats st;
	unsigned int i, ms;
	struct rig g;

	rig_open(&g, disk, NULL);
	memset(g.data, 1, KTAP_COUNT(req) * 4096);
	if (missing)
		EXPECT(!madvise(g.data + 4096, 4096, MADV_DONTNEED));
	for (i = 0; i < KTAP_COUNT(req); i++)
		req[i] = rig_queue(&g, 0, VIRTIO_BLK_T_OUT, i * 64, g.data + i * 4096, 4096);
	rig_kick(&g, 0);
	for (ms = 0; ms < RIG_TIMEOUT_MS; ms++) {
		rig_stats(&g, 0, &st);
		if (st.inflight)
			break;
		sleep_ms(1);
	}
	EXPECT_EQ(st.inflight, 1);
	set_read_only(disk, 1);
	rig_wait(&g, 0);
	set_read_only(disk, 0);
	EXPECT_EQ(*req[0]->status, VIRTIO_BLK_S_OK);
	for (i = 1; i < KTAP_COUNT(req); i++)
		EXPECT_EQ(*req[i]->status, VIRTIO_BLK_S_IOERR);
	rig_stats(&g, 0, &st);
	EXPECT_EQ(st.punted, 0);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void a_disk_that_becomes_read_only_gets_no_write_that_waited(void)
{
	const char *disk;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){
		.name = "ro", .irqmode = 2, .completion_nsec = 800000000, .tags = 1 });
	writes_wait_for_a_disk(disk, false);
	writes_wait_for_a_disk(disk, true);
}

static void loop_is_served(void)
{
	const char *disk;

	backend_need_modules();
	disk = loop_create(16);
	serves(disk, disk, 0, 0);
}

static void brd_gets_bio(void)
{
	const char *disk;

	backend_need_modules();
	disk = brd_create();
	serves(disk, disk, 0, VHOST_BLK_ENGINE_BIO);
}

static void dm_linear_gets_bio(void)
{
	const char *below, *disk;

	backend_need_modules();
	below = nullb_create(&(struct nullb){ .name = "dm" });
	disk = dm_linear_create("lin", below, 65536);
	serves(disk, below, 8 * 512, VHOST_BLK_ENGINE_BIO);
}

/* As when a snapshot of a volume is taken: its new table knows no NOWAIT. */
static void a_stack_that_loses_nowait_is_served_on(void)
{
	const char *below, *disk;
	struct vhost_blk_stats st;
	struct rig g;

	backend_need_modules();
	if (run_command("modprobe -q dm_delay"))
		ktap_skip("no dm_delay in this kernel");
	below = nullb_create(&(struct nullb){ .name = "nowait" });
	disk = dm_linear_create("nowait", below, 65536);
	rig_open(&g, disk, NULL);
	rig_check_works(&g, 0, 0);
	dm_replace("nowait", "delay", below, 65536, " 0");
	rig_check_works(&g, 0, 0);
	rig_stats(&g, 0, &st);
	EXPECT_EQ(st.errors, 0);
	EXPECT(st.punted > st.flushes);
	rig_close(&g);
}

static void a_partition_is_served_in_its_place(void)
{
	const char *disk, *part;
	struct rig g;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "part" });
	part = partition_create(disk, 2048, 8192);
	serves(part, disk, 2048 * 512, 0);

	rig_open(&g, part, NULL);
	EXPECT_EQ(g.dev.capacity, 8192);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, 8192, g.data, 512),
		  VIRTIO_BLK_S_IOERR);
	rig_close(&g);
}

static void a_raw_file_gets_file(void)
{
	const char *file;

	backend_need_modules();
	file = file_create(16);
	serves(file, file, 0, VHOST_BLK_ENGINE_FILE);
}

/* A file on ext4, on a disk of blocks of a size. */
static const char *ext4_file(const char *name, unsigned int blocksize)
{
	const char *disk, *file = "/run/vbt/disk.img";

	backend_need_modules();
	disk = nullb_create(&(struct nullb){
		.name = name, .size_mb = 64, .blocksize = blocksize });
	if (run_command("mkdir -p /run/vbt 2>/dev/null") ||
	    run_command("mkfs.ext4 -q -F %s 2>/dev/null", disk) ||
	    run_command("mount %s /run/vbt 2>/dev/null", disk))
		ktap_skip("no ext4 here");
	EXPECT(!run_command("truncate -s 8M %s", file));
	return file;
}

static void ext4_umount(void)
{
	EXPECT(!run_command("umount /run/vbt && rmdir /run/vbt"));
}

static void a_raw_file_on_a_file_system_gets_file(void)
{
	const char *file = ext4_file("fs", 0);

	serves(file, file, 0, VHOST_BLK_ENGINE_FILE);
	ext4_umount();
}

/* How the poller handled a request: in a round, after it, or by a worker. */
#define IN_ROUND	0
#define HOT		1
#define BY_WORKER	2

static unsigned int handled_by(struct rig *g, u32 type, u64 sector, u32 len)
{
	struct vhost_blk_stats before, after;

	rig_stats(g, 0, &before);
	if (type == VIRTIO_BLK_T_IN)
		memset(g->data, 0, len);
	else
		rig_pattern(g->data, len, sector);
	EXPECT_EQ(rig_io(g, 0, type, sector, g->data, len), VIRTIO_BLK_S_OK);
	EXPECT(rig_pattern_ok(g->data, len, sector));
	rig_stats(g, 0, &after);
	EXPECT(after.hot - before.hot <= 1 && after.punted - before.punted <= 1);
	return after.hot - before.hot + 2 * (after.punted - before.punted);
}

static unsigned int read_by(struct rig *g, u64 sector)
{
	return handled_by(g, VIRTIO_BLK_T_IN, sector, 4096);
}

static unsigned int write_by(struct rig *g, u64 sector)
{
	return handled_by(g, VIRTIO_BLK_T_OUT, sector, 4096);
}

/*
 * Repeat a request until it is hot.  A worker gets it where the poller has no spare thread: at
 * first, and after a request that slept.
 */
static void until_hot(struct rig *g, u32 type, u64 sector, u32 len)
{
	unsigned int tries = RIG_TIMEOUT_MS / 10;

	while (handled_by(g, type, sector, len) != HOT) {
		EXPECT(tries--);
		sleep_ms(10);
	}
}

static void open_hot(struct rig *g, const char *file, int open_flags)
{
	/* An emulator may take longer than any limit for a real machine. */
	EXPECT(!write_text("/sys/module/vhost_poll/parameters/max_run_us", "0"));
	rig_open(g, file, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .open_flags = open_flags });
	until_hot(g, VIRTIO_BLK_T_OUT, 8, 4096);
	read_by(g, 8);
}

static void the_poller_does_what_is_cached(void)
{
	const char *file = ext4_file("cached", 0);
	struct rig g;

	open_hot(&g, file, O_NOATIME);
	EXPECT_EQ(read_by(&g, 8), IN_ROUND);
	until_hot(&g, VIRTIO_BLK_T_OUT, 0, 131072);
	EXPECT_EQ(handled_by(&g, VIRTIO_BLK_T_OUT, 0, 135168), BY_WORKER);
	EXPECT(!run_command("sync; echo 3 >/proc/sys/vm/drop_caches"));
	EXPECT_EQ(read_by(&g, 0), BY_WORKER);
	rig_close(&g);

	/* To note an access time may wait for a journal. */
	open_hot(&g, file, 0);
	until_hot(&g, VIRTIO_BLK_T_IN, 8, 4096);
	EXPECT(!run_command("sync; echo 3 >/proc/sys/vm/drop_caches"));
	EXPECT(read_by(&g, 8) & BY_WORKER);
	rig_close(&g);
	ext4_umount();
}

/* On a poller that has a spare thread, so that nothing else keeps a request from being hot. */
static void what_waits_for_the_disk_is_a_workers(void)
{
	const char *file = ext4_file("waits", 0);
	struct rig warm, g;

	open_hot(&warm, file, O_NOATIME);
	rig_open(&g, file, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .open_flags = O_DSYNC,
		.share_poller = warm.poller[0] });
	EXPECT_EQ(write_by(&g, 8), BY_WORKER);
	rig_close(&g);
	rig_open(&g, file, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .share_poller = warm.poller[0],
		.without = FEATURE(VIRTIO_BLK_F_FLUSH) | FEATURE(VIRTIO_BLK_F_CONFIG_WCE) });
	EXPECT_EQ(write_by(&g, 8), BY_WORKER);
	rig_close(&g);
	rig_close(&warm);
	ext4_umount();
}

/* The disk's completion ends them.  The journal makes one wait now and then. */
static void direct_io_of_a_file_needs_no_thread(void)
{
	struct vhost_poll_stats p = { .size = sizeof(p) };
	const char *file = ext4_file("direct", 0);
	struct vhost_blk_stats before, after;
	const unsigned int blocks = 64;
	unsigned int i;
	u64 slept;
	struct rig g;

	EXPECT(!run_command("dd if=/dev/zero of=%s bs=1M count=8 conv=fsync 2>/dev/null", file));
	open_hot(&g, file, O_DIRECT);
	rig_stats(&g, 0, &before);
	EXPECT(!ioctl(g.poller[0], VHOST_POLL_GET_STATS, &p));
	slept = p.handoffs;
	for (i = 0; i < blocks; i++) {
		write_by(&g, i * 8);
		read_by(&g, i * 8);
	}
	EXPECT(!ioctl(g.poller[0], VHOST_POLL_GET_STATS, &p));
	rig_stats(&g, 0, &after);
	slept = p.handoffs - slept;
	ktap_msg("%u reads and writes, %llu of them slept", 2 * blocks,
		 (unsigned long long)slept);
	EXPECT(slept * 8 <= 2 * blocks);
	EXPECT(after.punted - before.punted <= slept);
	EXPECT(after.hot - before.hot >= 2 * blocks - slept);
	/* More is split into many bios. */
	EXPECT_EQ(handled_by(&g, VIRTIO_BLK_T_OUT, 0, 2 << 20), BY_WORKER);
	rig_close(&g);
	ext4_umount();
}

/* Reads go on, and the write ends once the file system is thawed. */
static void a_frozen_file_system_holds_up_its_writes_alone(void)
{
	const char *file = ext4_file("frozen", 0);
	struct vhost_blk_stats before, after;
	struct rig_req *write, *read;
	unsigned int tries = RIG_TIMEOUT_MS;
	struct rig g;
	int dir;

	open_hot(&g, file, O_NOATIME);
	dir = open("/run/vbt", O_RDONLY | O_CLOEXEC);
	EXPECT(dir >= 0);
	EXPECT(!ioctl(dir, FIFREEZE, 0));
	rig_stats(&g, 0, &before);
	rig_pattern(g.data + 65536, 4096, 16);
	write = rig_queue(&g, 0, VIRTIO_BLK_T_OUT, 16, g.data + 65536, 4096);
	read = rig_queue(&g, 0, VIRTIO_BLK_T_IN, 8, g.data, 4096);
	rig_kick(&g, 0);
	while (__atomic_load_n(read->status, __ATOMIC_ACQUIRE) == NO_STATUS) {
		EXPECT(tries--);
		sleep_ms(1);
	}
	EXPECT_EQ(*read->status, VIRTIO_BLK_S_OK);
	EXPECT_EQ(__atomic_load_n(write->status, __ATOMIC_ACQUIRE), NO_STATUS);
	EXPECT(!ioctl(dir, FITHAW, 0));
	close(dir);
	rig_wait(&g, 0);
	EXPECT_EQ(*write->status, VIRTIO_BLK_S_OK);
	rig_stats(&g, 0, &after);
	EXPECT_EQ(after.hot - before.hot, 0);
	EXPECT_EQ(after.punted - before.punted, 1);
	EXPECT_EQ(read_by(&g, 16), IN_ROUND);
	rig_close(&g);
	ext4_umount();
}

/* But for as many requests as slept: after each the poller has no spare for a moment. */
static void tmpfs_needs_no_worker(void)
{
	struct vhost_poll_stats p = { .size = sizeof(p) };
	const char *file = file_create(16);
	struct vhost_blk_stats before, after;
	u64 handoffs;
	unsigned int i;
	struct rig g;

	open_hot(&g, file, 0);
	rig_stats(&g, 0, &before);
	EXPECT(!ioctl(g.poller[0], VHOST_POLL_GET_STATS, &p));
	handoffs = p.handoffs;
	for (i = 0; i < 200; i++) {
		write_by(&g, i * 8);
		read_by(&g, i * 8);
	}
	EXPECT(!ioctl(g.poller[0], VHOST_POLL_GET_STATS, &p));
	rig_stats(&g, 0, &after);
	EXPECT(after.punted - before.punted <= p.handoffs - handoffs);
	EXPECT(after.hot - before.hot >= 200 - (p.handoffs - handoffs));
	rig_close(&g);
}

/*
 * A discard waits, with the inode's lock, for the direct writes that are under way.  Those of
 * them that end must not wait for a worker, because the workers may all wait for that lock.
 */
static void discards_do_not_wait_for_direct_writes_for_ever(void)
{
	const char *file = ext4_file("dio", 0);
	struct virtio_blk_discard_write_zeroes *range;
	unsigned int i, round;
	struct rig g;

	EXPECT(!run_command("dd if=/dev/zero of=%s bs=1M count=8 conv=fsync 2>/dev/null", file));
	open_hot(&g, file, O_DIRECT);
	range = (void *)(g.data + (1 << 20));
	*range = (struct virtio_blk_discard_write_zeroes){ .sector = 8192, .num_sectors = 8 };
	memset(g.data, 1, 4096);
	for (round = 0; round < 10; round++) {
		for (i = 0; i < 60; i++) {
			rig_queue(&g, 0, VIRTIO_BLK_T_OUT, i * 8, g.data, 4096);
			rig_queue(&g, 0, VIRTIO_BLK_T_DISCARD, 0, range, sizeof(*range));
		}
		for (i = 0; i < 100; i++)
			rig_queue(&g, 0, VIRTIO_BLK_T_OUT, 1024 + i * 8, g.data, 4096);
		rig_kick(&g, 0);
		rig_wait(&g, 0);
	}
	rig_check_works(&g, 0, 0);
	rig_close(&g);
	ext4_umount();
}

/* 4 KiB in two pieces, neither of them a block. */
static void direct_files_take_odd_buffers(void)
{
	static const u32 types[] = { VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_IN };
	const char *file = ext4_file("odd", 4096);
	struct ring_seg seg[4];
	struct rig_req *req;
	unsigned int i;
	struct rig g;

	rig_open(&g, file, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .open_flags = O_DIRECT });
	for (i = 0; i < 2; i++) {
		bool in = types[i] == VIRTIO_BLK_T_IN;

		if (in)
			memset(g.data, 0, 8192);
		else
			rig_pattern(g.data + 512, 4096, 1);
		req = rig_req_new(&g, types[i], 8);
		seg[0] = ring_seg(&g.mem, req->hdr, sizeof(*req->hdr), false);
		seg[1] = ring_seg(&g.mem, g.data + 512, 3584, in);
		seg[2] = ring_seg(&g.mem, g.data + 4096, 512, in);
		seg[3] = ring_seg(&g.mem, req->status, 1, true);
		rig_queue_segs(&g, 0, req, seg, 4, false);
		rig_kick(&g, 0);
		rig_wait(&g, 0);
		EXPECT_EQ(*req->status, VIRTIO_BLK_S_OK);
		EXPECT(rig_pattern_ok(g.data + 512, 4096, 1));
	}
	rig_close(&g);
	ext4_umount();
}

/* A write for each MiB of the disk, of which its file system has too few. */
static unsigned int writes_that_failed(struct rig *g)
{
	unsigned int i, failed = 0;

	rig_pattern(g->data, 1 << 20, 1);
	for (i = 0; i < 128; i++) {
		if (rig_io(g, 0, VIRTIO_BLK_T_OUT, i * 2048, g->data, 1 << 20) != VIRTIO_BLK_S_OK)
			failed++;
	}
	return failed;
}

static void a_full_file_system_gives_errors_and_a_line(void)
{
	static const int flags[] = { O_NOATIME, O_DIRECT };
	const char *file = ext4_file("full", 0);
	struct virtio_blk_discard_write_zeroes *range;
	unsigned int i, failed;
	struct rig g;

	EXPECT(!run_command("dmesg -C"));
	for (i = 0; i < 2; i++) {
		EXPECT(!run_command("truncate -s 0 %s && truncate -s 128M %s", file, file));
		rig_open(&g, file, &(struct rig_opts){ .open_flags = flags[i] });
		failed = writes_that_failed(&g);
		ktap_msg("%u of 128 writes failed", failed);
		EXPECT(failed > 32 && failed < 128);
		/* What was written is there, and there is room again after a discard. */
		memset(g.data, 0, 1 << 20);
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_IN, 0, g.data, 1 << 20), VIRTIO_BLK_S_OK);
		EXPECT(rig_pattern_ok(g.data, 1 << 20, 1));
		range = (void *)g.data;
		*range = (struct virtio_blk_discard_write_zeroes){ .num_sectors = 16 * 2048 };
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_DISCARD, 0, range, sizeof(*range)),
			  VIRTIO_BLK_S_OK);
		rig_check_works(&g, 0, 0);
		rig_close(&g);
	}
	/* One at least: the rate of these lines is limited. */
	EXPECT(!run_command("dmesg | grep -q 'vhost_blk-.*: write at .* failed: error -28'"));
	ext4_umount();
}

static void split_in_the_poller(const char *disk, u32 engine)
{
	struct rig g;

	rig_open(&g, disk, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .engine = engine });
	until_hot(&g, VIRTIO_BLK_T_OUT, 0, 1 << 20);
	until_hot(&g, VIRTIO_BLK_T_IN, 0, 1 << 20);
	EXPECT_EQ(handled_by(&g, VIRTIO_BLK_T_IN, 0, 65536), IN_ROUND);
	EXPECT_EQ(handled_by(&g, VIRTIO_BLK_T_OUT, 0, 2 << 20), BY_WORKER);
	rig_close(&g);
}

static void the_poller_splits_what_one_command_cannot_take(void)
{
	char path[128];
	const char *disk;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "split" });
	snprintf(path, sizeof(path), "/sys/block/%s/queue/max_sectors_kb", disk + 5);
	EXPECT_EQ(write_text(path, "64"), 0);
	EXPECT(!write_text("/sys/module/vhost_poll/parameters/max_run_us", "0"));
	split_in_the_poller(disk, VHOST_BLK_ENGINE_MQ);
	split_in_the_poller(disk, VHOST_BLK_ENGINE_BIO);
}

static void umount_cleanup(void)
{
	write_text("/sys/module/vhost_poll/parameters/max_run_us", "250");
	run_command("fsfreeze -u /run/vbt 2>/dev/null; umount -q /run/vbt 2>/dev/null; "
		    "rmdir /run/vbt 2>/dev/null");
	backend_cleanup();
}

static void nvme_gets_mq(void)
{
	const char *disk = nvme_disk();

	serves(disk, disk, 0, VHOST_BLK_ENGINE_MQ);
}

/* The others stay in the ring, so that the vring can be stopped in bounded time. */
static void so_many_discards_at_a_time(void)
{
	struct virtio_blk_discard_write_zeroes *range;
	struct vhost_blk_stats st;
	const char *disk;
	unsigned int i;
	struct rig g;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){
		.name = "many", .irqmode = 2, .completion_nsec = 1000000000,
		.discard = true });
	rig_open(&g, disk, NULL);
	range = (void *)g.data;
	*range = (struct virtio_blk_discard_write_zeroes){ .num_sectors = 8 };
	for (i = 0; i < 80; i++)
		rig_queue(&g, 0, VIRTIO_BLK_T_DISCARD, 0, range, sizeof(*range));
	rig_kick(&g, 0);
	sleep_ms(300);
	rig_stats(&g, 0, &st);
	EXPECT_EQ(st.inflight, 64);
	rig_wait(&g, 0);
	rig_stats(&g, 0, &st);
	EXPECT_EQ(st.discards, 80);
	EXPECT_EQ(st.errors, 0);
	rig_close(&g);
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(null_blk_gets_mq),
		TEST(null_blk_with_poll_queues_is_polled),
		TEST(poll_queues_are_left_alone_where_that_is_asked),
		TEST(poll_queues_go_and_come_back_under_reads),
		TEST(null_blk_with_a_timer_completes),
		TEST(the_engine_can_be_chosen),
		TEST(a_scheduler_is_kept_unless_told_otherwise),
		TEST(flushes_need_no_worker),
		TEST(a_disk_that_becomes_read_only_gets_no_write_that_waited),
		TEST(loop_is_served),
		TEST(brd_gets_bio),
		TEST(dm_linear_gets_bio),
		TEST(a_stack_that_loses_nowait_is_served_on),
		TEST(a_partition_is_served_in_its_place),
		TEST(a_raw_file_gets_file),
		TEST(a_raw_file_on_a_file_system_gets_file),
		TEST(the_poller_does_what_is_cached),
		TEST(what_waits_for_the_disk_is_a_workers),
		TEST(direct_io_of_a_file_needs_no_thread),
		TEST(a_frozen_file_system_holds_up_its_writes_alone),
		TEST(tmpfs_needs_no_worker),
		TEST(discards_do_not_wait_for_direct_writes_for_ever),
		TEST(direct_files_take_odd_buffers),
		TEST(a_full_file_system_gives_errors_and_a_line),
		TEST(the_poller_splits_what_one_command_cannot_take),
		TEST(so_many_discards_at_a_time),
		TEST(nvme_gets_mq),
		TEST(requests_beyond_the_limits_are_served),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests),
			 umount_cleanup);
}
