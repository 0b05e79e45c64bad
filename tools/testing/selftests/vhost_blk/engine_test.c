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

#include "module.h"
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
	/* The poller counts the next one, too, while it tries to submit it. */
	for (ms = 0; ms < RIG_TIMEOUT_MS; ms++) {
		rig_stats(&g, 0, &st);
		if (st.inflight == 1)
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

static bool may_lock(const char *file)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = open(file, O_RDWR | O_CLOEXEC);
	bool may;

	EXPECT(fd >= 0);
	may = !fcntl(fd, F_OFD_SETLK, &lock);
	EXPECT(may || errno == EAGAIN);
	close(fd);
	return may;
}

/* Locks are the open file's, which the owner has closed. */
static void the_owners_lock_lasts_as_long_as_the_backend(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	const char *file;
	struct rig g;
	int fd;

	backend_need_modules();
	file = file_create(16);
	fd = open(file, O_RDWR | O_CLOEXEC);
	EXPECT(fd >= 0);
	EXPECT(!fcntl(fd, F_OFD_SETLK, &lock));
	rig_open(&g, file, &(struct rig_opts){ .fd = fd });
	close(fd);
	rig_check_works(&g, 0, 0);
	EXPECT(!may_lock(file));
	EXPECT_EQ(vblk_stop(g.dev.fd, 0), 0);
	EXPECT_EQ(vblk_set_backend(g.dev.fd, -1, 0, 0), 0);
	EXPECT(may_lock(file));
	rig_close(&g);
}

static void files_without_a_name_are_served(void)
{
	const char *file;
	struct rig g;
	int fd[2];

	backend_need_modules();
	file = file_create(16);
	fd[0] = open(file, O_RDWR | O_CLOEXEC);
	EXPECT(fd[0] >= 0 && !unlink(file));
	fd[1] = memfd_create("disk", MFD_CLOEXEC);
	EXPECT(fd[1] >= 0 && !ftruncate(fd[1], 16 << 20));
	for (unsigned int i = 0; i < 2; i++) {
		rig_open(&g, file, &(struct rig_opts){ .fd = fd[i] });
		rig_check_works(&g, 0, 0);
		rig_close(&g);
		close(fd[i]);
	}
}

/* mtdblock says that it may sleep, and does so while its thread reads or writes. */
static void workers_have_a_disk_whose_driver_sleeps(void)
{
	struct vhost_blk_stats st;
	struct vhost_blk_info info;
	struct rig g;

	backend_need_modules();
	if (module_loaded("mtdblock") || module_loaded("mtdram"))
		ktap_skip("mtdblock is in use");
	if (run_command("modprobe -q mtdram total_size=16384 && modprobe -q mtdblock"))
		ktap_skip("no mtdblock in this kernel");
	EXPECT(!access("/dev/mtdblock0", F_OK));
	EXPECT(!write_text("/sys/block/mtdblock0/queue/scheduler", "none"));
	rig_open(&g, "/dev/mtdblock0", NULL);
	rig_info(&g, &info);
	EXPECT_EQ(info.engine, VHOST_BLK_ENGINE_BIO);
	rig_check_works(&g, 0, 0);
	rig_stats(&g, 0, &st);
	EXPECT_EQ(st.punted, st.reads + st.writes);
	rig_close(&g);
}

static unsigned int inflight(struct rig *g)
{
	struct vhost_blk_stats st;
	unsigned int i, n = 0;

	for (i = 0; i < g->queues; i++) {
		rig_stats(g, i, &st);
		n += st.inflight;
	}
	return n;
}

/* Offer a read of 128 KiB in each of N descriptors, all in the same page and the next ones. */
static struct rig_req *offer_wide(struct rig *g, unsigned int queue, unsigned int n)
{
	struct rig_req *req = rig_req_new(g, VIRTIO_BLK_T_IN, 0);
	struct ring_seg seg[256];
	unsigned int i;

	EXPECT(n <= 254);
	seg[0] = ring_seg(&g->mem, req->hdr, sizeof(*req->hdr), false);
	for (i = 1; i <= n; i++)
		seg[i] = ring_seg(&g->mem, g->data, 128 << 10, true);
	seg[i] = ring_seg(&g->mem, req->status, 1, true);
	rig_queue_segs(g, queue, req, seg, n + 2, true);
	rig_kick(g, queue);
	return req;
}

/* Offer them, and see how many are in flight together at most, until all are done. */
static unsigned int most_at_a_time(struct rig *g, unsigned int each, unsigned int n)
{
	struct rig_req *req[RIG_MAX_QUEUES * 4];
	unsigned int i, nr = 0, most = 0, waited = 0;

	for (i = 0; i < g->queues * each; i++)
		req[nr++] = offer_wide(g, i % g->queues, n);
	for (i = 0; i < g->queues; i++) {
		while (ring_inflight(&g->ring[i])) {
			unsigned int now = inflight(g);

			most = now > most ? now : most;
			EXPECT(waited++ < RIG_TIMEOUT_MS);
			sleep_ms(1);
			rig_reap(g, i);
		}
	}
	for (i = 0; i < nr; i++)
		EXPECT_EQ(*req[i]->status, VIRTIO_BLK_S_OK);
	ktap_msg("%u requests of %u pieces, %u at a time", nr, n, most);
	return most;
}

static const char *slow_disk(const char *name)
{
	backend_need_modules();
	return nullb_create(&(struct nullb){
		.name = name, .irqmode = 2, .completion_nsec = 100000000 });
}

/* They could hold one page so often that its counter would be at its limit. */
static void a_device_has_one_large_request_at_a_time(void)
{
	struct rig g;

	rig_open(&g, slow_disk("one"), &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .queues = 4, .poller_each = true });
	EXPECT_EQ(most_at_a_time(&g, 2, 160), 1);
	rig_check_works(&g, 3, 0);
	rig_close(&g);
}

/* 1,280 KiB of memory that has to be pinned counts as 10,240 pages, and 16,384 is the limit. */
static void a_vring_takes_nothing_that_would_exceed_its_limit(void)
{
	struct rig g;

	rig_open(&g, slow_disk("held"), &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .private_memory = true });
	EXPECT_EQ(most_at_a_time(&g, 4, 10), 1);
	EXPECT(most_at_a_time(&g, 4, 4) > 1);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
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

static void cleanup(void)
{
	backend_cleanup();
	run_command("rmmod mtdblock mtdram 2>/dev/null");
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
		TEST(the_owners_lock_lasts_as_long_as_the_backend),
		TEST(files_without_a_name_are_served),
		TEST(workers_have_a_disk_whose_driver_sleeps),
		TEST(so_many_discards_at_a_time),
		TEST(a_device_has_one_large_request_at_a_time),
		TEST(a_vring_takes_nothing_that_would_exceed_its_limit),
		TEST(nvme_gets_mq),
		TEST(requests_beyond_the_limits_are_served),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), cleanup);
}
