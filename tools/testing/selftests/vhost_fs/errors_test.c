// SPDX-License-Identifier: GPL-2.0
/*
 * Errors of the file system and of its disk reach the guest.  Where the guest looks only at the
 * error of an answer, a part of the data is not reported as success.  What is said to be on the
 * disk is there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/fiemap.h>
#include <linux/fs.h>

#include "../vhost_blk/backend.h"
#include "../vhost_blk/inject.h"
#include "fsrig.h"
#include "hostfuse.h"

#define BLOCK	4096U
#define BLOCKS	16
#define BAD	8
#define SECTORS	(BLOCK / 512)
#define DISK	"fserr"
/* Larger ones go to a worker: VHFS_HOT_COPY of the kernel. */
#define HOT	(128U << 10)

static u8 data[1 << 20];
static const char *disk;

/* The exported directory is on a disk whose blocks can be made bad. */
static void make_disk_with(struct fs *f, unsigned int cache_mb, const char *features)
{
	disk = nullb_create(&(struct nullb){ .name = DISK, .cache_mb = cache_mb });
	EXPECT(!run_command("mkfs.ext4 -q -b %u -O %s %s", BLOCK, features, disk));
	EXPECT(!mount(disk, f->dir, "ext4", 0, NULL));
}

static void make_disk(struct fs *f, const char *features)
{
	make_disk_with(f, 0, features);
}

static void begin_on_disk(struct fs *f)
{
	fs_make_dir(f, "tmpfs");
	make_disk(f, "has_journal");
	fs_open(f, NULL);
}

static void begin_with_room(struct fs *f, const char *size)
{
	fs_make_dir(f, "tmpfs");
	EXPECT(!mount("t", f->dir, "tmpfs", 0, size));
	fs_open(f, NULL);
}

static void make_file(struct fs *f, const char *name)
{
	unsigned int i;
	int fd;

	for (i = 0; i < BLOCKS; i++)
		memset(data + i * BLOCK, 'a' + i, BLOCK);
	fs_host_write(f, name, data, BLOCKS * BLOCK);
	fd = open(fs_path(f, name), O_RDWR);
	EXPECT(fd >= 0);
	EXPECT(!fsync(fd));
	EXPECT(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	close(fd);
}

/* One block of a file cannot be read or written any more. */
static void break_block(struct fs *f, const char *name, int block)
{
	int fd = open(fs_path(f, name), O_RDONLY);
	char range[64];

	EXPECT(fd >= 0);
	EXPECT(!ioctl(fd, FIBMAP, &block));
	EXPECT(block);
	close(fd);
	snprintf(range, sizeof(range), "+%u-%u", block * SECTORS, (block + 1) * SECTORS - 1);
	EXPECT_EQ(nullb_set(DISK, "badblocks", range), 0);
}

static int read_blocks(struct fs *f, u64 node, u64 fh, u32 flags, u32 read_flags)
{
	struct fuse_read_in in = {
		.fh = fh, .size = BLOCKS * BLOCK, .flags = flags, .read_flags = read_flags,
	};
	int r = fs_call(f, FUSE_READ, node, &in, sizeof(in), in.size);

	return r ? r : (int)f->reply_len;
}

/* The guest would fill the rest of its pages with zeroes, and cut the file at that place. */
static void a_read_error_is_no_end_of_file(void)
{
	struct fs f;
	u64 node, fh;

	begin_on_disk(&f);
	make_file(&f, "file");
	break_block(&f, "file", BAD);
	node = fs_node(&f, "file");
	EXPECT_EQ(fs_open_node(&f, node, O_RDONLY, &fh), 0);
	EXPECT_EQ(read_blocks(&f, node, fh, 0, 0), -EIO);
	/* Now the poller finds the part before the bad block in the page cache. */
	EXPECT_EQ(read_blocks(&f, node, fh, 0, 0), -EIO);
	EXPECT_EQ(read_blocks(&f, node, fh, O_DIRECT, 0), -EIO);
	/* A program gets that part. */
	EXPECT_EQ(read_blocks(&f, node, fh, 0, FUSE_READ_LOCKOWNER), BAD * BLOCK);
	EXPECT(!memcmp(f.reply, data, BAD * BLOCK));
	/* And here is an end. */
	EXPECT(!truncate(fs_path(&f, "file"), BAD * BLOCK - 1));
	EXPECT_EQ(read_blocks(&f, node, fh, 0, 0), BAD * BLOCK - 1);
	EXPECT_EQ(read_blocks(&f, node, fh, O_DIRECT, 0), BAD * BLOCK - 1);
	fs_close(&f);
}

static void a_full_disk_fails_a_write_of(u32 size)
{
	struct fs f;
	u64 node, fh;

	begin_with_room(&f, "size=1M");
	fs_host_write(&f, "full", data, sizeof(data) - size / 2);
	fs_host_write(&f, "file", "", 0);
	node = fs_node(&f, "file");
	EXPECT_EQ(fs_open_node(&f, node, O_RDWR, &fh), 0);
	EXPECT_EQ(fs_write_flags(&f, node, fh, 0, data, size, 0, FUSE_WRITE_CACHE), -ENOSPC);
	EXPECT_EQ(fs_write_flags(&f, node, fh, 0, data, size, O_DIRECT, FUSE_WRITE_CACHE),
		  -ENOSPC);
	/* A program gets the length, and the error when it goes on. */
	EXPECT_EQ(fs_write(&f, node, fh, 0, data, size), size / 2);
	EXPECT_EQ(fs_write(&f, node, fh, size / 2, data, size / 2), -ENOSPC);
	/* What was freed can be written back after all. */
	EXPECT(!unlink(fs_path(&f, "full")));
	EXPECT_EQ(fs_write_flags(&f, node, fh, 0, data, size, 0, FUSE_WRITE_CACHE), size);
	EXPECT(fs_host_is(&f, "file", data, size));
	fs_close(&f);
}

/* The guest would take all its pages for written, and forget the rest. */
static void a_full_disk_fails_what_is_written_back(void)
{
	a_full_disk_fails_a_write_of(HOT);
	a_full_disk_fails_a_write_of(2 * HOT);
}

/* The file system cuts such a write without an error. */
static void the_largest_file_fails_what_is_written_back(void)
{
	const u64 last = (0xffffffffULL - 1) * BLOCK;
	struct fs f;
	u64 node, fh;

	begin_on_disk(&f);
	fs_host_write(&f, "file", "", 0);
	node = fs_node(&f, "file");
	EXPECT_EQ(fs_open_node(&f, node, O_RDWR, &fh), 0);
	EXPECT_EQ(fs_write(&f, node, fh, last, data, 2 * BLOCK), BLOCK);
	EXPECT_EQ(fs_write_flags(&f, node, fh, last, data, 2 * BLOCK, 0, FUSE_WRITE_CACHE),
		  -EFBIG);
	EXPECT_EQ(fs_write_flags(&f, node, fh, last, data, BLOCK, 0, FUSE_WRITE_CACHE), BLOCK);
	fs_close(&f);
}

static int syncfs_of(struct fs *f)
{
	struct fuse_syncfs_in in = {};

	return fs_call(f, FUSE_SYNCFS, FUSE_ROOT_ID, &in, sizeof(in), 0);
}

/* The host has tried to write it already, and has told no program of the guest. */
static void syncfs_tells_of_what_was_lost(void)
{
	struct fs f;
	u64 node, fh;
	int fd;

	begin_on_disk(&f);
	make_file(&f, "file");
	break_block(&f, "file", BAD);
	node = fs_node(&f, "file");
	EXPECT_EQ(fs_open_node(&f, node, O_RDWR, &fh), 0);
	EXPECT_EQ(syncfs_of(&f), 0);
	EXPECT_EQ(fs_write(&f, node, fh, BAD * BLOCK, data, BLOCK), BLOCK);
	fd = open(fs_path(&f, "file"), O_RDONLY);
	EXPECT(fd >= 0);
	EXPECT(fsync(fd) < 0 && errno == EIO);
	close(fd);
	EXPECT_EQ(syncfs_of(&f), -EIO);
	EXPECT_EQ(syncfs_of(&f), 0);
	fs_close(&f);
}

/* More than a slot has room for itself: VHFS_INLINE_IOV of the kernel. */
#define PIECES	12
#define PIECE	512

/* A READ into many pieces; how it was answered. */
static int read_pieces(struct fs *f, u64 node, u64 fh)
{
	struct fs_slot *s = &f->slot[0];
	struct {
		struct fuse_in_header ih;
		struct fuse_read_in arg;
	} *in = (void *)s->in;
	struct ring_seg seg[PIECES + 2];
	unsigned int i;

	in->arg = (struct fuse_read_in){ .fh = fh, .size = PIECES * PIECE };
	fs_header(f, &in->ih, FUSE_READ, node, sizeof(in->arg));
	memset(s->out, 0, sizeof(struct fuse_out_header));
	s->done = false;
	seg[0] = ring_seg(&f->mem, in, sizeof(*in), false);
	seg[1] = ring_seg(&f->mem, s->out, sizeof(struct fuse_out_header), true);
	for (i = 0; i < PIECES; i++)
		seg[i + 2] = ring_seg(&f->mem, s->out + sizeof(struct fuse_out_header) + i * PIECE,
				      PIECE, true);
	EXPECT(ring_add(&f->ring[1], seg, PIECES + 2, s) >= 0);
	ring_publish(&f->ring[1]);
	ring_kick(&f->ring[1]);
	fs_wait(f, 0, 1);
	return fs_answer(f, 0);
}

/* A guest would take an answer of no length for success, and its stale pages for data. */
static void a_request_without_memory_fails(void)
{
	unsigned int i;
	struct fs f;
	u64 node, fh;
	int r = 0;

	inject_begin();
	begin_with_room(&f, "size=1M");
	fs_host_write(&f, "file", data, sizeof(data) / 2);
	node = fs_node(&f, "file");
	EXPECT_EQ(fs_open_node(&f, node, O_RDONLY, &fh), 0);
	EXPECT_EQ(read_pieces(&f, node, fh), 0);
	/* A worker that is new has its memory, so it may take some tries. */
	for (i = 0; i < 200 && !r; i++) {
		EXPECT(fail_threads("vhost", "fs", "1"));
		fail_threads("kworker", "/u", "1");
		fault_on("failslab", 100, true);
		r = read_pieces(&f, node, fh);
		faults_off();
	}
	EXPECT_EQ(r, -ENOMEM);
	EXPECT_EQ(read_pieces(&f, node, fh), 0);
	EXPECT_EQ(f.reply_len, PIECES * PIECE);
	fs_close(&f);
}

/* How often the disk was told to write its cache. */
static unsigned long flushes(void)
{
	unsigned long n = 0;
	char name[64];
	unsigned int i;
	FILE *stats;

	snprintf(name, sizeof(name), "/sys/block%s/stat", strrchr(disk, '/'));
	stats = fopen(name, "r");
	EXPECT(stats);
	for (i = 0; i < 16; i++)
		EXPECT_EQ(fscanf(stats, "%lu", &n), 1);
	fclose(stats);
	return n;
}

/* These requests do not say how their descriptor was opened. */
static void copies_and_new_space_are_synced_if_the_file_is(void)
{
	static const u32 flags[] = { 0, O_DSYNC, O_SYNC };
	struct fuse_fallocate_in room = { .length = BLOCK };
	struct fuse_copy_file_range_in copy = { .len = 5 };
	unsigned long before;
	unsigned int i;
	struct fs f;
	u64 from;

	fs_make_dir(&f, "tmpfs");
	/* Without a journal, which would flush the disk by itself. */
	make_disk_with(&f, 64, "^has_journal");
	fs_host_write(&f, "from", "hello", 5);
	fs_host_write(&f, "to", "", 0);
	fs_open(&f, NULL);
	from = fs_node(&f, "from");
	copy.nodeid_out = fs_node(&f, "to");
	EXPECT_EQ(fs_open_node(&f, from, O_RDONLY, (u64 *)&copy.fh_in), 0);
	for (i = 0; i < KTAP_COUNT(flags); i++) {
		EXPECT_EQ(fs_open_node(&f, copy.nodeid_out, O_RDWR | flags[i],
				       (u64 *)&copy.fh_out), 0);
		before = flushes();
		EXPECT_EQ(fs_call(&f, FUSE_COPY_FILE_RANGE, from, &copy, sizeof(copy), 8), 0);
		EXPECT_EQ(*(u32 *)f.reply, copy.len);
		EXPECT_EQ(flushes() > before, !!flags[i]);
		before = flushes();
		room.fh = copy.fh_out;
		EXPECT_EQ(fs_call(&f, FUSE_FALLOCATE, copy.nodeid_out, &room, sizeof(room), 0), 0);
		EXPECT_EQ(flushes() > before, !!flags[i]);
		room.offset += BLOCK;
	}
	fs_close(&f);
}

#define NAMES	100

/* Where a block of a directory is on the disk, or 0 behind the last. */
static u64 dir_block(struct fs *f, const char *name, unsigned int n)
{
	struct {
		struct fiemap map;
		struct fiemap_extent extent;
	} get = { .map = { .fm_start = (u64)n * BLOCK, .fm_length = 1, .fm_extent_count = 1 } };
	int fd = open(fs_path(f, name), O_RDONLY);

	EXPECT(fd >= 0);
	EXPECT(!ioctl(fd, FS_IOC_FIEMAP, &get));
	close(fd);
	return get.map.fm_mapped_extents ?
		(get.extent.fe_physical + get.map.fm_start - get.extent.fe_logical) / BLOCK : 0;
}

static void drop_buffers(void)
{
	int fd = open(disk, O_RDONLY);

	EXPECT(fd >= 0);
	EXPECT(!ioctl(fd, BLKFLSBUF));
	close(fd);
}

/* How a listing ends; how many names it has, each once. */
static int list(struct fs *f, u64 dir, unsigned int *found)
{
	struct fuse_read_in in = { .size = 4096 };
	bool seen[NAMES] = {};
	struct fuse_dirent *d;
	unsigned int i;
	u32 at;
	int r;

	*found = 0;
	EXPECT_EQ(fs_open_dir(f, dir, (u64 *)&in.fh), 0);
	do {
		r = fs_call(f, FUSE_READDIR, dir, &in, sizeof(in), in.size);
		for (at = 0; !r && at < f->reply_len; at += FUSE_DIRENT_SIZE(d)) {
			d = (void *)(f->reply + at);
			in.offset = d->off;
			if (d->name[0] == '.')
				continue;
			i = strtoul(d->name, NULL, 10);
			EXPECT(i < NAMES && !seen[i]);
			seen[i] = true;
			++*found;
		}
	} while (!r && f->reply_len);
	EXPECT_EQ(fs_release(f, dir, in.fh), 0);
	return r;
}

/* The guest goes on behind the last name that it has. */
static void a_directory_that_cannot_be_read_has_an_end(void)
{
	unsigned int i, found, parts = 0;
	char name[240], range[64];
	struct fs f;
	u64 dir, block;

	fs_make_dir(&f, "tmpfs");
	make_disk(&f, "^has_journal");
	EXPECT(!mkdir(fs_path(&f, "d"), 0755));
	for (i = 0; i < NAMES; i++) {
		/* The length leaves room for a zero behind it in a listing. */
		snprintf(name, sizeof(name), "d/%0201u", i);
		fs_host_write(&f, name, "", 0);
	}
	sync();
	fs_open(&f, NULL);
	dir = fs_node(&f, "d");
	EXPECT_EQ(list(&f, dir, &found), 0);
	EXPECT_EQ(found, NAMES);
	/* The first has the index of the others. */
	for (i = 1; (block = dir_block(&f, "d", i)); i++) {
		snprintf(range, sizeof(range), "+%llu-%llu", block * SECTORS,
			 (block + 1) * SECTORS - 1);
		EXPECT_EQ(nullb_set(DISK, "badblocks", range), 0);
		drop_buffers();
		EXPECT_EQ(list(&f, dir, &found), -EIO);
		parts += found > 0;
		range[0] = '-';
		EXPECT_EQ(nullb_set(DISK, "badblocks", range), 0);
	}
	EXPECT(parts > 1);
	EXPECT_EQ(list(&f, dir, &found), 0);
	EXPECT_EQ(found, NAMES);
	fs_close(&f);
}

/* Another writer's data may be at the end by then. */
static void what_is_appended_is_not_continued(void)
{
	struct hostfuse *server;
	struct fs f;
	u64 node, fh;

	fs_make_dir(&f, "tmpfs");
	server = hostfuse_mount(f.dir);
	server->max_write = 100;
	fs_open(&f, NULL);
	node = fs_node(&f, "one");
	EXPECT_EQ(fs_open_node(&f, node, O_RDWR, &fh), 0);
	EXPECT_EQ(fs_write_flags(&f, node, fh, 0, data, 250, O_APPEND, 0), 100);
	EXPECT_EQ(server->writes, 1);
	/* Elsewhere it has its place. */
	EXPECT_EQ(fs_write(&f, node, fh, 0, data, 250), 250);
	EXPECT_EQ(server->writes, 4);
	fs_close(&f);
}

/* If only the host's cache knew of it, the old data would be there again behind the new ones. */
static void truncate_at_the_server(u32 init_flags)
{
	struct hostfuse *server;
	struct fuse_entry_out e;
	struct fuse_attr attr;
	struct fs f;
	u64 node, fh;

	fs_make_dir(&f, "tmpfs");
	server = hostfuse_mount_with(f.dir, init_flags);
	server->size = 10;
	fs_open(&f, NULL);
	node = fs_node(&f, "one");
	EXPECT_EQ(fs_open_node(&f, node, O_RDWR | O_TRUNC, &fh), 0);
	EXPECT_EQ(server->resizes, 1);
	EXPECT_EQ(fs_write(&f, node, fh, 0, data, 3), 3);
	EXPECT_EQ(server->size, 3);
	EXPECT_EQ(fs_getattr(&f, node, &attr), 0);
	EXPECT_EQ(attr.size, 3);
	EXPECT_EQ(fs_write(&f, node, fh, 3, data, 7), 7);
	/* CREATE of a name that is there. */
	EXPECT_EQ(fs_create(&f, FUSE_ROOT_ID, "one", O_RDWR | O_TRUNC, 0644, &e, &fh), 0);
	EXPECT_EQ(e.nodeid, node);
	EXPECT_EQ(e.attr.size, 0);
	EXPECT_EQ(server->resizes, 2);
	EXPECT_EQ(fs_write(&f, node, fh, 0, data, 3), 3);
	EXPECT_EQ(server->size, 3);
	fs_close(&f);
}

static void a_fuse_server_hears_of_truncation(void)
{
	truncate_at_the_server(0);
	/* The host's FUSE expects of this server that it has truncated the file in OPEN. */
	truncate_at_the_server(FUSE_ATOMIC_O_TRUNC);
}

static void cleanup(void)
{
	faults_off();
	fs_cleanup();
	backend_cleanup();
}

/* The guest would believe that the file is gone. */
static void a_disk_that_cannot_be_read_is_no_stale_node(void)
{
	struct vhost_fs_export export = { .max_dentries = 4 };
	struct vhost_fs_info info;
	char name[16];
	unsigned int i;
	struct fs f;
	u64 node;

	fs_make_dir(&f, "tmpfs");
	/* A journal keeps in memory what it has not written to its place yet. */
	make_disk(&f, "^has_journal");
	EXPECT(!mkdir(fs_path(&f, "d"), 0755));
	fs_host_write(&f, "d/file", "", 0);
	for (i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "filler%u", i);
		fs_host_write(&f, name, "", 0);
	}
	fs_open(&f, &export);
	node = fs_node(&f, "d/file");
	for (i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "filler%u", i);
		fs_node(&f, name);
	}
	fs_info(&f, &info);
	EXPECT(info.swapped_out);
	sync();
	EXPECT(!run_command("echo 3 > /proc/sys/vm/drop_caches"));
	EXPECT(!run_command("echo 3 > /proc/sys/vm/drop_caches"));
	EXPECT_EQ(nullb_set(DISK, "badblocks", "+0-200000"), 0);
	EXPECT_EQ(fs_getattr(&f, node, NULL), -EIO);
	EXPECT_EQ(nullb_set(DISK, "badblocks", "-0-200000"), 0);
	EXPECT_EQ(fs_getattr(&f, node, NULL), 0);
	fs_close(&f);
}

static const struct ktap_test tests[] = {
	{ "a_read_error_is_no_end_of_file", a_read_error_is_no_end_of_file },
	{ "a_full_disk_fails_what_is_written_back", a_full_disk_fails_what_is_written_back },
	{ "the_largest_file_fails_what_is_written_back",
	  the_largest_file_fails_what_is_written_back },
	{ "syncfs_tells_of_what_was_lost", syncfs_tells_of_what_was_lost },
	{ "a_disk_that_cannot_be_read_is_no_stale_node",
	  a_disk_that_cannot_be_read_is_no_stale_node },
	{ "copies_and_new_space_are_synced_if_the_file_is",
	  copies_and_new_space_are_synced_if_the_file_is },
	{ "a_directory_that_cannot_be_read_has_an_end",
	  a_directory_that_cannot_be_read_has_an_end },
	{ "what_is_appended_is_not_continued", what_is_appended_is_not_continued },
	{ "a_fuse_server_hears_of_truncation", a_fuse_server_hears_of_truncation },
	{ "a_request_without_memory_fails", a_request_without_memory_fails },
};

int main(int argc, char **argv)
{
	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), cleanup);
}
