// SPDX-License-Identifier: GPL-2.0
/*
 * Direct I/O of files on a disk: the poller's thread submits it, and the disk's completion ends
 * the request.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <linux/fs.h>

#include "hot.h"

#define BLOCK		4096
#define BLOCKS		64
/* Pages; VHFS_MAX_HELD of the kernel. */
#define MAX_HELD	2048
#define ROUNDS		(2 * MAX_HELD / BLOCKS / FS_SLOTS)

struct direct {
	struct fs f;
	u64 node;
	u64 fh;
	u8 *data;
};

static void fill(u8 *block, unsigned int i, u8 salt)
{
	memset(block, i ^ salt, BLOCK);
	memcpy(block, &i, sizeof(i));
}

static void direct_begin(struct direct *d, const char *kind)
{
	unsigned int i;
	int fd;

	hot_begin(&d->f, kind);
	d->data = malloc(BLOCKS * BLOCK);
	EXPECT(d->data);
	for (i = 0; i < BLOCKS; i++)
		fill(d->data + i * BLOCK, i, 0);
	fs_host_write(&d->f, "file", d->data, BLOCKS * BLOCK);
	/* The blocks are on the disk, and not in the page cache. */
	fd = open(fs_path(&d->f, "file"), O_RDWR);
	EXPECT(fd >= 0);
	EXPECT(!fsync(fd));
	EXPECT(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	close(fd);
	d->node = fs_node(&d->f, "file");
	EXPECT_EQ(fs_open_node(&d->f, d->node, O_RDWR | O_DIRECT, &d->fh), 0);
}

static void direct_end(struct direct *d)
{
	EXPECT_EQ(fs_release(&d->f, d->node, d->fh), 0);
	free(d->data);
	fs_close(&d->f);
}

static int read_block(struct direct *d, u64 at, u32 len)
{
	struct fuse_read_in in = {
		.fh = d->fh, .offset = at, .size = len, .flags = O_DIRECT,
	};

	return fs_call(&d->f, FUSE_READ, d->node, &in, sizeof(in), len);
}

static void write_and_read_all(struct direct *d, u8 salt)
{
	u8 block[BLOCK];
	unsigned int i;

	for (i = 0; i < BLOCKS; i++) {
		fill(block, i, salt);
		EXPECT_EQ(fs_write_flags(&d->f, d->node, d->fh, i * BLOCK, block, BLOCK,
					 O_DIRECT, 0), BLOCK);
	}
	for (i = 0; i < BLOCKS; i++) {
		fill(block, i, salt);
		EXPECT_EQ(read_block(d, i * BLOCK, BLOCK), 0);
		EXPECT_EQ(d->f.reply_len, BLOCK);
		EXPECT(!memcmp(d->f.reply, block, BLOCK));
	}
}

static void no_thread_waits_on(const char *kind)
{
	struct vhost_serve_stats before, after;
	struct vhost_poll_stats poller;
	struct direct d;
	u64 slept;

	direct_begin(&d, kind);
	before = ring_stats(&d.f, 1);
	poller = poller_stats(&d.f);
	write_and_read_all(&d, 0x55);
	after = ring_stats(&d.f, 1);
	slept = poller_stats(&d.f).handoffs - poller.handoffs;
	ktap_msg("%s: %u reads and writes, %llu of them slept", kind, 2 * BLOCKS,
		 (unsigned long long)slept);
	/* The journal makes one wait now and then, and a worker may get the next one. */
	EXPECT(slept * 8 <= 2 * BLOCKS);
	EXPECT(after.punted - before.punted <= slept);
	EXPECT_EQ(after.hot - before.hot, 2 * BLOCKS);
	direct_end(&d);
}

static void no_thread_waits_on_ext4(void)
{
	no_thread_waits_on("ext4");
}

static void no_thread_waits_on_xfs(void)
{
	no_thread_waits_on("xfs");
}

/* Short at the end of the file, and nothing behind it. */
static void the_end_of_the_file_is_found(void)
{
	struct direct d;

	direct_begin(&d, "ext4");
	EXPECT(!truncate(fs_path(&d.f, "file"), (BLOCKS - 1) * BLOCK + 512));
	EXPECT_EQ(read_block(&d, (BLOCKS - 2) * BLOCK, 2 * BLOCK), 0);
	EXPECT_EQ(d.f.reply_len, BLOCK + 512);
	EXPECT(!memcmp(d.f.reply, d.data + (BLOCKS - 2) * BLOCK, BLOCK + 512));
	EXPECT_EQ(read_block(&d, BLOCKS * BLOCK, BLOCK), 0);
	EXPECT_EQ(d.f.reply_len, 0);
	direct_end(&d);
}

/* Of the whole file. */
static void send_read(struct direct *d, unsigned int slot)
{
	struct {
		struct fuse_in_header ih;
		struct fuse_read_in arg;
	} in = { .arg = {
		.fh = d->fh, .size = BLOCKS * BLOCK, .flags = O_DIRECT,
	} };
	struct fs_raw raw = {
		.in = &in, .in_len = sizeof(in),
		.out_room = sizeof(struct fuse_out_header) + BLOCKS * BLOCK, .queue = 1,
	};

	fs_header(&d->f, &in.ih, FUSE_READ, d->node, sizeof(in.arg));
	fs_send(&d->f, slot, &raw);
}

/* And in all twice as much as a vring may hold at a time. */
static void many_at_once(void)
{
	unsigned int round, i;
	struct direct d;
	u64 punted, slept;

	direct_begin(&d, "ext4");
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < FS_SLOTS; i++)
			send_read(&d, i);
		for (i = 0; i < FS_SLOTS; i++) {
			fs_wait(&d.f, i, 1);
			EXPECT_EQ(fs_answer(&d.f, i), 0);
			EXPECT_EQ(d.f.reply_len, BLOCKS * BLOCK);
			EXPECT(!memcmp(d.f.reply, d.data, BLOCKS * BLOCK));
		}
	}
	/* All that was held has been given back, so the next ones need no worker. */
	until_there_is_a_spare(&d.f);
	punted = ring_stats(&d.f, 1).punted;
	slept = poller_stats(&d.f).handoffs;
	for (i = 0; i < BLOCKS; i++)
		EXPECT_EQ(read_block(&d, i * BLOCK, BLOCK), 0);
	EXPECT(ring_stats(&d.f, 1).punted - punted <= poller_stats(&d.f).handoffs - slept);
	direct_end(&d);
}

/* The file system waits for these itself. */
static void appended_writes_are_there(void)
{
	u8 block[BLOCK];
	unsigned int i;
	struct direct d;

	direct_begin(&d, "ext4");
	for (i = BLOCKS; i < 2 * BLOCKS; i++) {
		fill(block, i, 0x33);
		EXPECT_EQ(fs_write_flags(&d.f, d.node, d.fh, i * BLOCK, block, BLOCK,
					 O_DIRECT, 0), BLOCK);
		EXPECT_EQ(read_block(&d, i * BLOCK, 2 * BLOCK), 0);
		EXPECT_EQ(d.f.reply_len, BLOCK);
		EXPECT(!memcmp(d.f.reply, block, BLOCK));
	}
	direct_end(&d);
}

static void closed_in_the_middle(void)
{
	unsigned int round, i;
	struct direct d;

	for (round = 0; round < 20; round++) {
		direct_begin(&d, "ext4");
		for (i = 0; i < FS_SLOTS; i++)
			send_read(&d, i);
		free(d.data);
		fs_close(&d.f);
	}
}

/* A write that has ended does not keep the file system from being frozen. */
static void it_can_be_frozen_after(void)
{
	struct direct d;
	int dir;

	direct_begin(&d, "ext4");
	write_and_read_all(&d, 0xaa);
	dir = open(d.f.dir, O_RDONLY);
	EXPECT(dir >= 0);
	EXPECT(!ioctl(dir, FIFREEZE, 0));
	EXPECT(!ioctl(dir, FITHAW, 0));
	close(dir);
	direct_end(&d);
}

/* A listener hears of each write, once it was made. */
static void a_listener_hears_of_it(void)
{
	char event[sizeof(struct inotify_event) + 256];
	u8 block[BLOCK] = "heard of";
	struct direct d;
	int in;

	direct_begin(&d, "ext4");
	in = inotify_init1(IN_NONBLOCK);
	EXPECT(in >= 0);
	EXPECT(inotify_add_watch(in, fs_path(&d.f, "file"), IN_MODIFY) >= 0);
	EXPECT_EQ(fs_write_flags(&d.f, d.node, d.fh, 0, block, BLOCK, O_DIRECT, 0), BLOCK);
	EXPECT(read(in, event, sizeof(event)) > 0);
	close(in);
	direct_end(&d);
}

#define TEST(f) { .name = #f, .run = f, .limit = 600 }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(no_thread_waits_on_ext4),
		TEST(no_thread_waits_on_xfs),
		TEST(the_end_of_the_file_is_found),
		TEST(many_at_once),
		TEST(appended_writes_are_there),
		TEST(closed_in_the_middle),
		TEST(it_can_be_frozen_after),
		TEST(a_listener_hears_of_it),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), hot_cleanup);
}
