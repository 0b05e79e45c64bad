// SPDX-License-Identifier: GPL-2.0
/*
 * The poller carries a request out in its round, or its thread does after the round, or a worker.
 * Mostly that is a matter of files.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rig.h"
#include "trace.h"

static void a_raw_file_on_a_file_system_gets_file(void)
{
	const char *file = ext4_file("fs", 0);
	struct vhost_blk_info info;
	struct rig g;

	rig_open(&g, file, NULL);
	rig_info(&g, &info);
	EXPECT_EQ(info.engine, VHOST_BLK_ENGINE_FILE);
	rig_check_works(&g, 0, 100);
	rig_close(&g);
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
	EXPECT_EQ(handled_by(&g, VIRTIO_BLK_T_IN, 0, 131072), IN_ROUND);
	EXPECT_EQ(handled_by(&g, VIRTIO_BLK_T_OUT, 0, 135168), BY_WORKER);
	EXPECT_EQ(handled_by(&g, VIRTIO_BLK_T_IN, 0, 135168), BY_WORKER);
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

static bool flipping;

/* Each flag on its own, and both. */
static void *flip_flags(void *arg)
{
	static const int flags[] = { 0, O_DIRECT, O_NOATIME, O_DIRECT | O_NOATIME };
	int fd = *(int *)arg;
	unsigned int i;

	for (i = 0; __atomic_load_n(&flipping, __ATOMIC_RELAXED); i++)
		EXPECT(!fcntl(fd, F_SETFL, flags[i % 4]));
	return NULL;
}

/* Data that are cached, and a write that would be too long to copy if it were not direct. */
static void requests_while_flags_change(struct rig *g, bool direct)
{
	unsigned int i;

	for (i = 0; i < 200; i++) {
		if (!direct)
			EXPECT_EQ(read_by(g, 8), IN_ROUND);
		else if (i % 10 == 0)
			until_hot(g, VIRTIO_BLK_T_OUT, 0, 1 << 20);
	}
}

/*
 * The owner can change the flags of its open file at any time, and so during a request.  If they
 * were the backend's, the poller would sleep in its round.
 */
static void the_owners_flags_change_nothing(void)
{
	static const int flags[] = { O_NOATIME, O_DIRECT };
	const char *file = ext4_file("flags", 0);
	pthread_t thread;
	unsigned int i;
	struct rig g;
	int fd;

	EXPECT(!write_text("/sys/module/vhost_poll/parameters/max_run_us", "0"));
	EXPECT(!run_command("dd if=/dev/zero of=%s bs=1M count=8 conv=fsync 2>/dev/null", file));
	for (i = 0; i < 2; i++) {
		fd = open(file, O_RDWR | O_CLOEXEC | flags[i]);
		EXPECT(fd >= 0);
		rig_open(&g, file, &(struct rig_opts){ .mode = VHOST_POLL_MODE_BUSY, .fd = fd });
		until_hot(&g, VIRTIO_BLK_T_OUT, 8, 4096);
		__atomic_store_n(&flipping, true, __ATOMIC_RELAXED);
		EXPECT(!pthread_create(&thread, NULL, flip_flags, &fd));
		requests_while_flags_change(&g, flags[i] & O_DIRECT);
		__atomic_store_n(&flipping, false, __ATOMIC_RELAXED);
		EXPECT(!pthread_join(thread, NULL));
		rig_close(&g);
		close(fd);
	}
	ext4_umount();
}

/* The sectors of a disk on which the file system has the first block of a file. */
static void bad_first_block(const char *disk, int fd, char sign)
{
	int block = 0, bytes;
	char range[64];

	EXPECT(!ioctl(fd, FIGETBSZ, &bytes));
	EXPECT(!ioctl(fd, FIBMAP, &block));
	EXPECT(block);
	snprintf(range, sizeof(range), "%c%u-%u", sign, block * (bytes / 512),
		 (block + 1) * (bytes / 512) - 1);
	EXPECT_EQ(nullb_set(disk, "badblocks", range), 0);
}

/* Each open file hears once of an error, and neither has the other miss it. */
static void a_write_fails_after_its_answer(struct rig *g, int fd, bool owner_first)
{
	rig_pattern(g->data, 4096, 1);
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_OUT, 0, g->data, 4096), VIRTIO_BLK_S_OK);
	if (owner_first)
		EXPECT(fsync(fd) == -1 && errno == EIO);
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_FLUSH, 0, NULL, 0), VIRTIO_BLK_S_IOERR);
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_FLUSH, 0, NULL, 0), VIRTIO_BLK_S_OK);
	if (!owner_first)
		EXPECT(fsync(fd) == -1 && errno == EIO);
}

static void the_owner_takes_no_error_from_the_guest(void)
{
	const char *file = ext4_file("wberr", 0);
	unsigned int i;
	struct rig g;
	int fd;

	EXPECT(!run_command("dd if=/dev/zero of=%s bs=1M count=8 conv=fsync 2>/dev/null", file));
	fd = open(file, O_RDWR | O_CLOEXEC);
	EXPECT(fd >= 0);
	rig_open(&g, file, &(struct rig_opts){ .fd = fd });
	for (i = 0; i < 4; i++) {
		bad_first_block("wberr", fd, '+');
		a_write_fails_after_its_answer(&g, fd, !(i % 2));
		bad_first_block("wberr", fd, '-');
	}
	rig_check_works(&g, 0, 0);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_FLUSH, 0, NULL, 0), VIRTIO_BLK_S_OK);
	rig_close(&g);
	close(fd);
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
	rig_open(&g, file, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .open_flags = O_DIRECT, .ring_size = 1024 });
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

#define OVERLAY "/run/vbt/all"

/* A file on overlayfs, which has no disk, on ext4 on one of 4 KiB blocks. */
static const char *overlay_file(const char *name)
{
	const char *file = OVERLAY "/disk.img";

	ext4_file(name, 4096);
	EXPECT(!run_command("cd /run/vbt && mkdir low up work all && mv disk.img low/"));
	if (run_command("cd /run/vbt; "
			"mount -t overlay -o lowerdir=low,upperdir=up,workdir=work none all"))
		ktap_skip("no overlayfs here");
	return file;
}

/* A sector is written and read, and those around it stay. */
static void one_sector(struct rig *g, u64 sector)
{
	rig_pattern(g->data, 4096, sector);
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_OUT, sector & ~7, g->data, 4096), VIRTIO_BLK_S_OK);
	memset(g->data + 4096, 7, 512);
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_OUT, sector, g->data + 4096, 512), VIRTIO_BLK_S_OK);
	memcpy(g->data + sector % 8 * 512, g->data + 4096, 512);
	memset(g->data + 8192, 0, 8192);
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_IN, sector, g->data + 8192, 512), VIRTIO_BLK_S_OK);
	EXPECT(!memcmp(g->data + 8192, g->data + 4096, 512));
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_IN, sector & ~7, g->data + 8192, 4096),
		  VIRTIO_BLK_S_OK);
	EXPECT(!memcmp(g->data + 8192, g->data, 4096));
}

/* A guest that was told of smaller blocks, or firmware, does not know of larger ones. */
static void direct_files_take_single_sectors(void)
{
	struct vhost_blk_info info;
	const char *file;
	unsigned int i;
	struct rig g;

	for (i = 0; i < 2; i++) {
		file = i ? overlay_file("over") : ext4_file("sector", 4096);
		rig_open(&g, file, &(struct rig_opts){
			.mode = VHOST_POLL_MODE_BUSY, .open_flags = O_DIRECT });
		rig_info(&g, &info);
		EXPECT_EQ(info.blk_size, 4096);
		one_sector(&g, 19);
		rig_check_works(&g, 0, 24);
		rig_close(&g);
		if (i)
			EXPECT(!run_command("umount " OVERLAY));
		ext4_umount();
	}
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

#define READS	8

static void see_work_of_a_request(const char *line, void *arg)
{
	unsigned int *works = arg;

	if (strstr(line, "vhost_serve_work"))
		++*works;
}

/* Reads of 64 KiB, with OFFSET into a sector of memory; returns for how many there was a worker. */
static unsigned int reads_by_workers(struct rig *g, unsigned int offset)
{
	unsigned int i, works = 0;

	trace_begin("vhost_serve/vhost_serve_work");
	for (i = 0; i < READS; i++) {
		memset(g->data, 0, 2 * 65536);
		EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_IN, 0, g->data + offset, 65536),
			  VIRTIO_BLK_S_OK);
		EXPECT(rig_pattern_ok(g->data + offset, 65536, 1));
	}
	trace_end(see_work_of_a_request, &works);
	ktap_msg("%u of %u reads needed a worker", works, READS);
	return works;
}

/* The poller has other rings to serve, and a guest can have many such buffers. */
static void workers_copy_what_the_disk_cannot_address(void)
{
	struct rig g;

	backend_need_modules();
	rig_open(&g, nullb_create(&(struct nullb){ .name = "odd" }), &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY });
	rig_pattern(g.data, 65536, 1);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, 0, g.data, 65536), VIRTIO_BLK_S_OK);
	EXPECT_EQ(reads_by_workers(&g, 0), 0);
	EXPECT_EQ(reads_by_workers(&g, 100), READS);
	rig_close(&g);
}

static void umount_cleanup(void)
{
	trace_cleanup();
	write_text("/sys/module/vhost_poll/parameters/max_run_us", "250");
	run_command("umount -q " OVERLAY " 2>/dev/null");
	ext4_cleanup();
	backend_cleanup();
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(a_raw_file_on_a_file_system_gets_file),
		TEST(the_poller_does_what_is_cached),
		TEST(the_owners_flags_change_nothing),
		TEST(the_owner_takes_no_error_from_the_guest),
		TEST(what_waits_for_the_disk_is_a_workers),
		TEST(direct_io_of_a_file_needs_no_thread),
		TEST(a_frozen_file_system_holds_up_its_writes_alone),
		TEST(tmpfs_needs_no_worker),
		TEST(discards_do_not_wait_for_direct_writes_for_ever),
		TEST(direct_files_take_odd_buffers),
		TEST(direct_files_take_single_sectors),
		TEST(a_full_file_system_gives_errors_and_a_line),
		TEST(the_poller_splits_what_one_command_cannot_take),
		TEST(workers_copy_what_the_disk_cannot_address),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), umount_cleanup);
}
