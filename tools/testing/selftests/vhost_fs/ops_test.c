// SPDX-License-Identifier: GPL-2.0
/*
 * Each operation does to the directory what it says; the directory is looked at
 * from the host's side.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <linux/falloc.h>
#include <linux/fs.h>

#include "fsrig.h"

#define ROOT	FUSE_ROOT_ID
#define ENTRY	sizeof(struct fuse_entry_out)

/* ops_ext4_test.c has the same tests for another one. */
#ifndef FS_KIND
#define FS_KIND	"tmpfs"
#endif

static struct fs *begin(void)
{
	static struct fs f;

	fs_make_dir(&f, FS_KIND);
	fs_open(&f, NULL);
	return &f;
}

static void end(struct fs *f)
{
	fs_close(f);
}

static void init_negotiates(void)
{
	struct fs *f = begin();
	struct fuse_init_out out;
	struct vhost_fs_info info;

	EXPECT_EQ(fs_init(f, FUSE_POSIX_LOCKS | FUSE_MAX_PAGES | FUSE_WRITEBACK_CACHE,
			  &out), 0);
	EXPECT_EQ(out.major, 7);
	EXPECT_EQ(out.flags, FUSE_POSIX_LOCKS | FUSE_MAX_PAGES);
	EXPECT_EQ(out.max_background, 65535);
	EXPECT_EQ(out.max_write, 1 << 20);
	EXPECT_EQ(out.max_pages, (1 << 20) / sysconf(_SC_PAGESIZE));
	fs_info(f, &info);
	EXPECT(info.state & VHOST_FS_INFO_SESSION);
	EXPECT_EQ(info.fuse_flags, FUSE_POSIX_LOCKS | FUSE_MAX_PAGES);
	EXPECT_EQ(info.sessions, 2);
	end(f);
}

static void lookup_finds_and_forget_forgets(void)
{
	struct fs *f = begin();
	struct fuse_entry_out a, b;
	struct vhost_fs_info info;

	fs_host_write(f, "one", "hello", 5);
	EXPECT_EQ(fs_lookup(f, ROOT, "none", &a), -ENOENT);
	EXPECT_EQ(fs_lookup(f, ROOT, "one", &a), 0);
	EXPECT(a.nodeid > ROOT);
	EXPECT_EQ(a.attr.size, 5);
	EXPECT_EQ(a.attr.mode, S_IFREG | 0644);
	/* another name of the same file is the same node */
	EXPECT(!link(fs_path(f, "one"), fs_path(f, "two")));
	EXPECT_EQ(fs_lookup(f, ROOT, "two", &b), 0);
	EXPECT_EQ(a.nodeid, b.nodeid);
	EXPECT_EQ(b.attr.nlink, 2);
	fs_info(f, &info);
	EXPECT_EQ(info.nodes, 1);
	fs_forget(f, a.nodeid, 1);
	EXPECT_EQ(fs_getattr(f, a.nodeid, NULL), 0);
	fs_forget(f, a.nodeid, 1);
	EXPECT_EQ(fs_getattr(f, a.nodeid, NULL), -ESTALE);
	fs_info(f, &info);
	EXPECT_EQ(info.nodes, 0);
	end(f);
}

static void a_node_outlives_its_first_name(void)
{
	struct fs *f = begin();
	struct fuse_entry_out a, b;

	fs_host_write(f, "one", "hello", 5);
	EXPECT_EQ(fs_lookup(f, ROOT, "one", &a), 0);
	EXPECT(!link(fs_path(f, "one"), fs_path(f, "two")));
	EXPECT(!unlink(fs_path(f, "one")));
	EXPECT_EQ(fs_lookup(f, ROOT, "two", &b), 0);
	EXPECT_EQ(a.nodeid, b.nodeid);
	EXPECT(!unlink(fs_path(f, "two")));
	EXPECT_EQ(fs_getattr(f, a.nodeid, &a.attr), 0);
	EXPECT_EQ(a.attr.nlink, 0);
	end(f);
}

static void batch_forget_forgets(void)
{
	struct fs *f = begin();
	struct {
		struct fuse_batch_forget_in b;
		struct fuse_forget_one one[2];
	} in = { .b.count = 2 };
	struct {
		struct fuse_in_header ih;
		u8 rest[sizeof(in)];
	} raw = { .ih = { .len = sizeof(raw), .opcode = FUSE_BATCH_FORGET } };
	struct vhost_fs_info info;

	fs_host_write(f, "a", "", 0);
	fs_host_write(f, "b", "", 0);
	in.one[0] = (struct fuse_forget_one){ fs_node(f, "a"), 1 };
	in.one[1] = (struct fuse_forget_one){ fs_node(f, "b"), 1 };
	memcpy(raw.rest, &in, sizeof(in));
	EXPECT_EQ(fs_play(f, &(struct fs_raw){ &raw, sizeof(raw) }), 0);
	fs_info(f, &info);
	EXPECT_EQ(info.nodes, 0);
	end(f);
}

static void dots_are_looked_up_for_nfs(void)
{
	struct fs *f = begin();
	struct fuse_entry_out e;
	u64 dir;

	EXPECT(!mkdir(fs_path(f, "d"), 0755));
	dir = fs_node(f, "d");
	EXPECT_EQ(fs_lookup(f, dir, ".", &e), 0);
	EXPECT_EQ(e.nodeid, dir);
	EXPECT_EQ(fs_lookup(f, dir, "..", &e), 0);
	EXPECT_EQ(e.nodeid, ROOT);
	EXPECT_EQ(fs_lookup(f, ROOT, "..", &e), 0);
	EXPECT_EQ(e.nodeid, ROOT);
	end(f);
}

static void attributes_are_read(void)
{
	struct fs *f = begin();
	struct fuse7_statx_in in = { .sx_mask = 0xfff };
	struct fuse_attr attr;
	struct stat st;
	u64 node;

	fs_host_write(f, "one", "hello", 5);
	EXPECT(!stat(fs_path(f, "one"), &st));
	node = fs_node(f, "one");
	EXPECT_EQ(fs_getattr(f, node, &attr), 0);
	EXPECT_EQ(attr.ino, st.st_ino);
	EXPECT_EQ(attr.size, st.st_size);
	EXPECT_EQ(attr.mtime, st.st_mtim.tv_sec);
	EXPECT_EQ(attr.mtimensec, st.st_mtim.tv_nsec);
	EXPECT_EQ(attr.blocks, st.st_blocks);
	EXPECT_EQ(fs_call(f, FUSE7_STATX, node, &in, sizeof(in), 32 + 256), 0);
	/* mask, behind the timeouts: basic attributes at least */
	EXPECT_EQ(*(u32 *)(f->reply + 32) & 0x7ff, 0x7ff);
	/* and the size, by linux/stat.h */
	EXPECT_EQ(*(u64 *)(f->reply + 32 + 40), 5);
	end(f);
}

static void attributes_are_set(void)
{
	struct fs *f = begin();
	struct fuse_setattr_in in = { .valid = FATTR_MODE, .mode = 0604 };
	struct stat st;
	u64 node, fh;

	fs_host_write(f, "one", "hello", 5);
	node = fs_node(f, "one");
	EXPECT_EQ(fs_setattr(f, node, &in), 0);
	in = (struct fuse_setattr_in){ .valid = FATTR_UID | FATTR_GID,
				       .uid = 12, .gid = 34 };
	EXPECT_EQ(fs_setattr(f, node, &in), 0);
	in = (struct fuse_setattr_in){ .valid = FATTR_ATIME | FATTR_MTIME,
				       .atime = 1000, .mtime = 2000,
				       .mtimensec = 7 };
	EXPECT_EQ(fs_setattr(f, node, &in), 0);
	EXPECT(!stat(fs_path(f, "one"), &st));
	EXPECT_EQ(st.st_mode, S_IFREG | 0604);
	EXPECT_EQ(st.st_uid, 12);
	EXPECT_EQ(st.st_gid, 34);
	EXPECT_EQ(st.st_atim.tv_sec, 1000);
	EXPECT_EQ(st.st_mtim.tv_sec, 2000);
	EXPECT_EQ(st.st_mtim.tv_nsec, 7);
	in = (struct fuse_setattr_in){ .valid = FATTR_SIZE, .size = 2 };
	EXPECT_EQ(fs_setattr(f, node, &in), 0);
	EXPECT(fs_host_is(f, "one", "he", 2));
	EXPECT_EQ(fs_open_node(f, node, O_RDWR, &fh), 0);
	in = (struct fuse_setattr_in){ .valid = FATTR_SIZE | FATTR_FH,
				       .size = 1, .fh = fh };
	EXPECT_EQ(fs_setattr(f, node, &in), 0);
	EXPECT(fs_host_is(f, "one", "h", 1));
	in = (struct fuse_setattr_in){ .valid = FATTR_MTIME | FATTR_MTIME_NOW |
					FATTR_ATIME | FATTR_ATIME_NOW };
	EXPECT_EQ(fs_setattr(f, node, &in), 0);
	EXPECT(!stat(fs_path(f, "one"), &st));
	EXPECT(st.st_mtim.tv_sec > 2000);
	end(f);
}

static void chown_kills_set_id_bits(void)
{
	struct fs *f = begin();
	struct fuse_setattr_in in = {
		.valid = FATTR_UID | FATTR_MODE | FATTR_KILL_SUIDGID | FATTR_SIZE,
		.uid = 3, .mode = 0755,
	};
	struct stat st;
	u64 node;

	fs_host_write(f, "one", "hello", 5);
	EXPECT(!chmod(fs_path(f, "one"), 06755));
	node = fs_node(f, "one");
	/* all at once, which the VFS would not take */
	EXPECT_EQ(fs_setattr(f, node, &in), 0);
	EXPECT(!stat(fs_path(f, "one"), &st));
	EXPECT_EQ(st.st_mode, S_IFREG | 0755);
	EXPECT(!chmod(fs_path(f, "one"), 06755));
	in = (struct fuse_setattr_in){ .valid = FATTR_UID, .uid = 4 };
	EXPECT_EQ(fs_setattr(f, node, &in), 0);
	EXPECT(!stat(fs_path(f, "one"), &st));
	EXPECT_EQ(st.st_mode, S_IFREG | 0755);
	end(f);
}

static void links_are_made_and_read(void)
{
	struct fs *f = begin();
	struct fuse_link_in in;
	char target[64] = "";
	struct stat st;
	u64 node;

	EXPECT_EQ(fs_call_name(f, FUSE_SYMLINK, ROOT, NULL, 0, "s",
			       "../secret", ENTRY), 0);
	EXPECT_EQ(readlink(fs_path(f, "s"), target, 63), 9);
	EXPECT(!strcmp(target, "../secret"));
	node = ((struct fuse_entry_out *)f->reply)->nodeid;
	EXPECT_EQ(fs_call(f, FUSE_READLINK, node, NULL, 0, 4096), 0);
	EXPECT(f->reply_len == 9 && !memcmp(f->reply, "../secret", 9));
	/* it is the guest's to follow */
	EXPECT_EQ(fs_open_node(f, node, O_RDONLY, NULL), -ELOOP);
	fs_host_write(f, "one", "hello", 5);
	in.oldnodeid = fs_node(f, "one");
	EXPECT_EQ(fs_call_name(f, FUSE_LINK, ROOT, &in, sizeof(in), "two", NULL,
			       ENTRY), 0);
	EXPECT_EQ(((struct fuse_entry_out *)f->reply)->nodeid, in.oldnodeid);
	EXPECT(!stat(fs_path(f, "two"), &st));
	EXPECT_EQ(st.st_nlink, 2);
	end(f);
}

static void nodes_of_all_kinds_are_made(void)
{
	struct fs *f = begin();
	static const u32 kinds[] = { S_IFREG, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK };
	struct fuse_mknod_in in = { .umask = 022 };
	struct stat st;
	unsigned int i;
	char name[16];
	u64 node;

	for (i = 0; i < KTAP_COUNT(kinds); i++) {
		snprintf(name, sizeof(name), "n%u", i);
		in.mode = kinds[i] | 0666;
		in.rdev = makedev(1, 3);
		EXPECT_EQ(fs_call_name(f, FUSE_MKNOD, ROOT, &in, sizeof(in),
				       name, NULL, ENTRY), 0);
		node = ((struct fuse_entry_out *)f->reply)->nodeid;
		EXPECT(!lstat(fs_path(f, name), &st));
		EXPECT_EQ(st.st_mode, kinds[i] | 0644);
		if (kinds[i] == S_IFCHR)
			EXPECT_EQ(st.st_rdev, makedev(1, 3));
		/* none of them is opened on the host, but a file */
		EXPECT_EQ(fs_open_node(f, node, O_RDWR, NULL),
			  kinds[i] == S_IFREG ? 0 : -ENXIO);
	}
	in.mode = S_IFDIR | 0755;
	EXPECT_EQ(fs_call_name(f, FUSE_MKNOD, ROOT, &in, sizeof(in), "nd", NULL,
			       ENTRY), -EINVAL);
	EXPECT_EQ(fs_call_name(f, FUSE_MKNOD, ROOT, &in, sizeof(in), "n0", NULL,
			       ENTRY), -EEXIST);
	end(f);
}

static void directories_come_and_go(void)
{
	struct fs *f = begin();
	struct fuse_entry_out e;
	struct stat st;

	EXPECT_EQ(fs_mkdir(f, ROOT, "d", 0751, &e), 0);
	EXPECT(!stat(fs_path(f, "d"), &st));
	EXPECT_EQ(st.st_mode, S_IFDIR | 0751);
	EXPECT_EQ(fs_mkdir(f, ROOT, "d", 0751, NULL), -EEXIST);
	EXPECT_EQ(fs_mkdir(f, e.nodeid, "e", 0755, NULL), 0);
	EXPECT_EQ(fs_remove(f, FUSE_RMDIR, ROOT, "d"), -ENOTEMPTY);
	EXPECT_EQ(fs_remove(f, FUSE_UNLINK, ROOT, "d"), -EISDIR);
	EXPECT_EQ(fs_remove(f, FUSE_RMDIR, e.nodeid, "e"), 0);
	EXPECT_EQ(fs_remove(f, FUSE_RMDIR, ROOT, "d"), 0);
	EXPECT(!fs_host_there(f, "d"));
	EXPECT_EQ(fs_remove(f, FUSE_RMDIR, ROOT, "d"), -ENOENT);
	/* one that is gone takes nothing */
	EXPECT_EQ(fs_mkdir(f, e.nodeid, "x", 0755, NULL), -ENOENT);
	end(f);
}

static void files_are_unlinked(void)
{
	struct fs *f = begin();
	u64 node, fh;
	char buf[8];

	fs_host_write(f, "one", "hello", 5);
	node = fs_node(f, "one");
	EXPECT_EQ(fs_open_node(f, node, O_RDONLY, &fh), 0);
	EXPECT_EQ(fs_remove(f, FUSE_RMDIR, ROOT, "one"), -ENOTDIR);
	EXPECT_EQ(fs_remove(f, FUSE_UNLINK, ROOT, "one"), 0);
	EXPECT(!fs_host_there(f, "one"));
	EXPECT_EQ(fs_remove(f, FUSE_UNLINK, ROOT, "one"), -ENOENT);
	EXPECT_EQ(fs_read(f, node, fh, 0, 8, buf), 5);
	end(f);
}

static void names_are_moved(void)
{
	struct fs *f = begin();
	struct fuse_rename_in old = { .newdir = ROOT };
	u64 dir, sub;

	EXPECT(!mkdir(fs_path(f, "d"), 0755) && !mkdir(fs_path(f, "d/e"), 0755));
	dir = fs_node(f, "d");
	sub = fs_node(f, "d/e");
	fs_host_write(f, "a", "a", 1);
	fs_host_write(f, "b", "bb", 2);
	EXPECT_EQ(fs_rename(f, ROOT, "a", dir, "x", 0), 0);
	EXPECT(fs_host_is(f, "d/x", "a", 1));
	EXPECT_EQ(fs_rename(f, ROOT, "b", dir, "x", RENAME_NOREPLACE), -EEXIST);
	EXPECT_EQ(fs_rename(f, ROOT, "b", dir, "x", RENAME_EXCHANGE), 0);
	EXPECT(fs_host_is(f, "d/x", "bb", 2) && fs_host_is(f, "b", "a", 1));
	EXPECT_EQ(fs_call_name(f, FUSE_RENAME, dir, &old, sizeof(old), "x", "b",
			       0), 0);
	EXPECT(fs_host_is(f, "b", "bb", 2));
	EXPECT_EQ(fs_rename(f, ROOT, "none", dir, "x", 0), -ENOENT);
	EXPECT_EQ(fs_rename(f, ROOT, "d", sub, "x", 0), -EINVAL);
	EXPECT_EQ(fs_rename(f, dir, "e", ROOT, "d", 0), -ENOTEMPTY);
	EXPECT_EQ(fs_rename(f, ROOT, "b", ROOT, "c", 8), -EINVAL);
	EXPECT_EQ(fs_rename(f, ROOT, "b", ROOT, "c",
			    RENAME_EXCHANGE | RENAME_NOREPLACE), -EINVAL);
	end(f);
}

static void files_are_created_and_open(void)
{
	struct fs *f = begin();
	struct fuse_entry_out e;
	struct vhost_fs_info info;
	struct stat st;
	u64 fh;

	/* not to be written by its mode, and written all the same: it is new */
	EXPECT_EQ(fs_create(f, ROOT, "one", O_RDWR | O_EXCL, 0400, &e, &fh), 0);
	EXPECT_EQ(fs_write(f, e.nodeid, fh, 0, "hello", 5), 5);
	EXPECT(fs_host_is(f, "one", "hello", 5));
	EXPECT(!stat(fs_path(f, "one"), &st));
	EXPECT_EQ(st.st_mode, S_IFREG | 0400);
	fs_info(f, &info);
	EXPECT_EQ(info.handles, 1);
	EXPECT_EQ(fs_release(f, e.nodeid, fh), 0);
	EXPECT_EQ(fs_release(f, e.nodeid, fh), -EBADF);
	EXPECT_EQ(fs_create(f, ROOT, "one", O_RDWR | O_EXCL, 0600, &e, &fh),
		  -EEXIST);
	EXPECT_EQ(fs_create(f, ROOT, "one", O_RDWR | O_TRUNC, 0600, &e, &fh), 0);
	EXPECT_EQ(e.attr.size, 0);
	EXPECT(fs_host_is(f, "one", "", 0));
	EXPECT(!mkdir(fs_path(f, "d"), 0755));
	EXPECT_EQ(fs_create(f, ROOT, "d", O_RDWR, 0600, &e, &fh), -EISDIR);
	fs_info(f, &info);
	EXPECT_EQ(info.handles, 1);
	end(f);
}

static void a_file_without_a_name_gets_one(void)
{
	struct fs *f = begin();
	struct fuse_create_in in = { .flags = O_RDWR, .mode = 0640 };
	struct fuse_link_in link;
	u64 fh;

	/* Linux sends this name. */
	EXPECT_EQ(fs_call_name(f, FUSE7_TMPFILE, ROOT, &in, sizeof(in), "/", NULL,
			       ENTRY + sizeof(struct fuse_open_out)), 0);
	link.oldnodeid = ((struct fuse_entry_out *)f->reply)->nodeid;
	fh = ((struct fuse_open_out *)(f->reply + ENTRY))->fh;
	EXPECT_EQ(fs_write(f, link.oldnodeid, fh, 0, "hello", 5), 5);
	EXPECT_EQ(fs_call_name(f, FUSE_LINK, ROOT, &link, sizeof(link), "one",
			       NULL, ENTRY), 0);
	EXPECT_EQ(((struct fuse_entry_out *)f->reply)->nodeid, link.oldnodeid);
	EXPECT(fs_host_is(f, "one", "hello", 5));
	end(f);
}

static void data_are_read_and_written(void)
{
	struct fs *f = begin();
	static const u32 sizes[] = { 1, 511, 4096, 5000, 131072, 1 << 20 };
	u8 *a = malloc(1 << 20), *b = malloc(1 << 20);
	unsigned int i, k;
	u64 node, fh;

	fs_host_write(f, "one", "", 0);
	node = fs_node(f, "one");
	EXPECT_EQ(fs_open_node(f, node, O_RDWR, &fh), 0);
	for (i = 0; i < KTAP_COUNT(sizes); i++) {
		for (k = 0; k < sizes[i]; k++)
			a[k] = k * 7 + i;
		EXPECT_EQ(fs_write(f, node, fh, 0, a, sizes[i]), sizes[i]);
		EXPECT(fs_host_is(f, "one", a, sizes[i]));
		memset(b, 0, sizes[i]);
		EXPECT_EQ(fs_read(f, node, fh, 0, sizes[i], b), sizes[i]);
		EXPECT(!memcmp(a, b, sizes[i]));
	}
	/* to the end and not beyond; and at it */
	EXPECT_EQ(fs_read(f, node, fh, (1 << 20) - 10, 4096, b), 10);
	EXPECT_EQ(fs_read(f, node, fh, 1 << 20, 4096, b), 0);
	EXPECT_EQ(fs_read(f, node, fh, 1ULL << 40, 4096, b), 0);
	EXPECT_EQ(fs_read(f, node, fh, -1ULL, 4096, b), -EINVAL);
	EXPECT_EQ(fs_write(f, node, fh, -1ULL, a, 1), -EINVAL);
	/* a hole */
	EXPECT_EQ(fs_write(f, node, fh, 3 << 20, "x", 1), 1);
	EXPECT_EQ(fs_read(f, node, fh, (3 << 20) - 2, 8, b), 3);
	EXPECT(!memcmp(b, "\0\0x", 3));
	end(f);
}

static void flags_of_each_request_are_heeded(void)
{
	struct fs *f = begin();
	u8 *a = malloc(8192), *b = malloc(8192);
	u64 node, fh;
	int r;

	memset(a, 'a', 8192);
	fs_host_write(f, "one", "hello", 5);
	node = fs_node(f, "one");
	EXPECT_EQ(fs_open_node(f, node, O_RDWR, &fh), 0);
	EXPECT_EQ(fs_write_flags(f, node, fh, 0, "!", 1, O_APPEND, 0), 1);
	EXPECT(fs_host_is(f, "one", "hello!", 6));
	/* a page of the guest's cache has its place */
	EXPECT_EQ(fs_write_flags(f, node, fh, 0, "J", 1, O_APPEND,
				 FUSE_WRITE_CACHE), 1);
	EXPECT(fs_host_is(f, "one", "Jello!", 6));
	EXPECT_EQ(fs_write_flags(f, node, fh, 0, "h", 1, O_SYNC, 0), 1);
	/* direct, and what is misaligned for it */
	EXPECT_EQ(fs_write_flags(f, node, fh, 0, a, 8192, O_DIRECT, 0), 8192);
	EXPECT_EQ(fs_write_flags(f, node, fh, 3, "xyz", 3, O_DIRECT, 0), 3);
	memcpy(a + 3, "xyz", 3);
	EXPECT(fs_host_is(f, "one", a, 8192));
	for (r = 0; r < 2; r++) {
		struct fuse_read_in in = {
			.fh = fh, .offset = r, .size = 4096, .flags = O_DIRECT,
		};

		EXPECT_EQ(fs_call(f, FUSE_READ, node, &in, sizeof(in), 4096), 0);
		EXPECT_EQ(f->reply_len, 4096);
		EXPECT(!memcmp(f->reply, a + r, 4096));
	}
	free(b);
	end(f);
}

static void a_handle_is_for_what_it_was_opened_for(void)
{
	struct fs *f = begin();
	u64 node, other, fh, wr, dh;
	char buf[8];

	fs_host_write(f, "one", "hello", 5);
	fs_host_write(f, "two", "hello", 5);
	node = fs_node(f, "one");
	other = fs_node(f, "two");
	EXPECT_EQ(fs_open_node(f, node, O_RDONLY, &fh), 0);
	EXPECT_EQ(fs_open_node(f, node, O_WRONLY, &wr), 0);
	EXPECT_EQ(fs_write(f, node, fh, 0, "x", 1), -EBADF);
	EXPECT_EQ(fs_read(f, node, wr, 0, 8, buf), -EBADF);
	EXPECT_EQ(fs_read(f, other, fh, 0, 8, buf), -EBADF);
	EXPECT_EQ(fs_read(f, node, fh + 1000, 0, 8, buf), -EBADF);
	EXPECT_EQ(fs_open_dir(f, ROOT, &dh), 0);
	EXPECT_EQ(fs_read(f, ROOT, dh, 0, 8, buf), -EISDIR);
	EXPECT_EQ(fs_open_node(f, ROOT, O_RDONLY, NULL), -EISDIR);
	EXPECT_EQ(fs_open_dir(f, node, NULL), -ENOTDIR);
	EXPECT_EQ(fs_open_node(f, node, O_ACCMODE, NULL), -EINVAL);
	EXPECT_EQ(fs_open_node(f, node, O_RDWR | O_TRUNC, NULL), 0);
	EXPECT(fs_host_is(f, "one", "", 0));
	end(f);
}

static void files_are_flushed_and_synced(void)
{
	struct fs *f = begin();
	struct fuse_flush_in flush = {};
	struct fuse_fsync_in sync = {};
	struct fuse_syncfs_in all = {};
	u64 node, fh, dh;

	fs_host_write(f, "one", "hello", 5);
	node = fs_node(f, "one");
	EXPECT_EQ(fs_open_node(f, node, O_RDWR, &fh), 0);
	flush.fh = fh;
	sync.fh = fh;
	EXPECT_EQ(fs_call(f, FUSE_FLUSH, node, &flush, sizeof(flush), 0), 0);
	EXPECT_EQ(fs_call(f, FUSE_FSYNC, node, &sync, sizeof(sync), 0), 0);
	sync.fsync_flags = 1;
	EXPECT_EQ(fs_call(f, FUSE_FSYNC, node, &sync, sizeof(sync), 0), 0);
	EXPECT_EQ(fs_open_dir(f, ROOT, &dh), 0);
	sync.fh = dh;
	EXPECT_EQ(fs_call(f, FUSE_FSYNCDIR, ROOT, &sync, sizeof(sync), 0), 0);
	EXPECT_EQ(fs_call(f, FUSE_SYNCFS, ROOT, &all, sizeof(all), 0), 0);
	end(f);
}

static void space_is_made_and_holes_are_found(void)
{
	struct fs *f = begin();
	struct fuse_fallocate_in in = { .length = 65536 };
	struct fuse_lseek_in seek = { .whence = SEEK_HOLE };
	static char page[4096];
	struct stat st;
	u64 node, fh;

	fs_host_write(f, "one", "", 0);
	node = fs_node(f, "one");
	EXPECT_EQ(fs_open_node(f, node, O_RDWR, &fh), 0);
	in.fh = fh;
	seek.fh = fh;
	EXPECT_EQ(fs_call(f, FUSE_FALLOCATE, node, &in, sizeof(in), 0), 0);
	EXPECT(!stat(fs_path(f, "one"), &st));
	EXPECT_EQ(st.st_size, 65536);
	EXPECT_EQ(fs_write(f, node, fh, 0, page, 4096), 4096);
	in.mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	in.offset = 4096;
	in.length = 61440;
	EXPECT_EQ(fs_call(f, FUSE_FALLOCATE, node, &in, sizeof(in), 0), 0);
	EXPECT_EQ(fs_call(f, FUSE_LSEEK, node, &seek, sizeof(seek), 8), 0);
	EXPECT_EQ(*(u64 *)f->reply, 4096);
	seek.whence = SEEK_SET;
	EXPECT_EQ(fs_call(f, FUSE_LSEEK, node, &seek, sizeof(seek), 8), -EINVAL);
	in.length = 0;
	EXPECT_EQ(fs_call(f, FUSE_FALLOCATE, node, &in, sizeof(in), 0), -EINVAL);
	in.length = -1;
	EXPECT_EQ(fs_call(f, FUSE_FALLOCATE, node, &in, sizeof(in), 0), -EINVAL);
	end(f);
}

static void ranges_are_copied(void)
{
	struct fs *f = begin();
	struct fuse_copy_file_range_in in = { .len = 3, .off_in = 1 };
	u64 a, b;

	fs_host_write(f, "a", "hello", 5);
	fs_host_write(f, "b", "", 0);
	a = fs_node(f, "a");
	b = fs_node(f, "b");
	EXPECT_EQ(fs_open_node(f, a, O_RDONLY, (u64 *)&in.fh_in), 0);
	EXPECT_EQ(fs_open_node(f, b, O_RDWR, (u64 *)&in.fh_out), 0);
	in.nodeid_out = b;
	EXPECT_EQ(fs_call(f, FUSE_COPY_FILE_RANGE, a, &in, sizeof(in), 8), 0);
	EXPECT_EQ(*(u32 *)f->reply, 3);
	EXPECT(fs_host_is(f, "b", "ell", 3));
	in.nodeid_out = a;
	EXPECT_EQ(fs_call(f, FUSE_COPY_FILE_RANGE, a, &in, sizeof(in), 8),
		  -EBADF);
	end(f);
}

/* All names of a directory in replies of @room, each once. */
static unsigned int list(struct fs *f, u64 dir, bool plus, u32 room,
			 unsigned int want, unsigned char *seen)
{
	struct fuse_read_in in = { .size = room };
	unsigned int n = 0, i;
	u32 at;
	int r;

	EXPECT_EQ(fs_open_dir(f, dir, (u64 *)&in.fh), 0);
	do {
		r = fs_call(f, plus ? FUSE_READDIRPLUS : FUSE_READDIR, dir, &in,
			    sizeof(in), room);
		EXPECT_EQ(r, 0);
		EXPECT(f->reply_len <= room);
		for (at = 0; at < f->reply_len;) {
			struct fuse_direntplus *p = (void *)(f->reply + at);
			struct fuse_dirent *d = plus ? &p->dirent : (void *)p;

			if (plus && d->name[0] != '.')
				EXPECT(p->entry_out.nodeid > ROOT &&
				       p->entry_out.attr.ino == d->ino);
			if (sscanf(d->name, "f%u", &i) == 1 && i < want)
				seen[i]++;
			in.offset = d->off;
			at += plus ? FUSE_DIRENTPLUS_SIZE(p) :
				     FUSE_DIRENT_SIZE(d);
			n++;
		}
	} while (f->reply_len);
	return n;
}

static void directories_are_read(void)
{
	struct fs *f = begin();
	static const u32 rooms[] = { 512, 4096, 100000 };
	unsigned char seen[300];
	struct vhost_fs_info info;
	unsigned int i, k;
	char name[16];

	for (i = 0; i < KTAP_COUNT(seen); i++) {
		snprintf(name, sizeof(name), "f%u", i);
		fs_host_write(f, name, "", 0);
	}
	for (k = 0; k < 2 * KTAP_COUNT(rooms); k++) {
		memset(seen, 0, sizeof(seen));
		EXPECT_EQ(list(f, ROOT, k & 1, rooms[k / 2],
			       KTAP_COUNT(seen), seen), KTAP_COUNT(seen) + 2);
		for (i = 0; i < KTAP_COUNT(seen); i++)
			EXPECT_EQ(seen[i], 1);
	}
	fs_info(f, &info);
	EXPECT_EQ(info.nodes, KTAP_COUNT(seen));
	end(f);
}

static void the_file_system_is_described(void)
{
	struct fs *f = begin();
	struct statfs st;
	struct fuse_kstatfs *k;

	EXPECT_EQ(fs_call(f, FUSE_STATFS, ROOT, NULL, 0,
			  sizeof(struct fuse_statfs_out)), 0);
	k = (void *)f->reply;
	EXPECT(!statfs(f->dir, &st));
	EXPECT_EQ(k->blocks, st.f_blocks);
	EXPECT_EQ(k->bsize, st.f_bsize);
	EXPECT_EQ(k->namelen, 255);
	end(f);
}

static void access_is_answered(void)
{
	struct fs *f = begin();
	struct fuse_access_in in = { .mask = R_OK | W_OK };

	EXPECT_EQ(fs_call(f, FUSE_ACCESS, ROOT, &in, sizeof(in), 0), 0);
	in.mask = 0x40;
	EXPECT_EQ(fs_call(f, FUSE_ACCESS, ROOT, &in, sizeof(in), 0), -EINVAL);
	end(f);
}

static void attributes_are_extended(void)
{
	struct fs *f = begin();
	struct fuse_getxattr_in in = { .size = 4096 };
	char buf[64];
	u64 node;

	fs_host_write(f, "one", "hello", 5);
	if (setxattr(fs_path(f, "one"), "user.test", "x", 1, 0) &&
	    errno == EOPNOTSUPP)
		ktap_skip("no user.* on this file system");
	node = fs_node(f, "one");
	EXPECT_EQ(fs_setxattr(f, node, "user.key", "value", 5), 0);
	EXPECT_EQ(getxattr(fs_path(f, "one"), "user.key", buf, 64), 5);
	EXPECT_EQ(fs_getxattr(f, node, "user.key", NULL, 0), 5);
	EXPECT_EQ(fs_getxattr(f, node, "user.key", buf, 64), 5);
	EXPECT(!memcmp(buf, "value", 5));
	EXPECT_EQ(fs_getxattr(f, node, "user.key", buf, 3), -ERANGE);
	EXPECT_EQ(fs_getxattr(f, node, "user.none", buf, 64), -ENODATA);
	EXPECT_EQ(fs_setxattr(f, node, "trusted.key", "v", 1), -EOPNOTSUPP);
	EXPECT_EQ(fs_setxattr(f, node, "security.key", "v", 1), -EOPNOTSUPP);
	EXPECT(!setxattr(fs_path(f, "one"), "trusted.host", "x", 1, 0));
	EXPECT_EQ(fs_call(f, FUSE_LISTXATTR, node, &in, sizeof(in), 4096), 0);
	EXPECT_EQ(f->reply_len, sizeof("user.test") + sizeof("user.key"));
	EXPECT_EQ(fs_remove(f, FUSE_REMOVEXATTR, node, "user.key"), 0);
	EXPECT_EQ(getxattr(fs_path(f, "one"), "user.key", buf, 64), -1);
	EXPECT_EQ(fs_remove(f, FUSE_REMOVEXATTR, node, "user.key"), -ENODATA);
	end(f);
}

static void acls_are_kept(void)
{
	struct fs *f = begin();
	static const u8 acl[] = {
		2, 0, 0, 0,
		1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff,
		2, 0, 4, 0, 44, 0, 0, 0,
		4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,
		0x10, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,
		0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
	};
	u8 buf[128];
	u64 node;

	fs_host_write(f, "one", "hello", 5);
	node = fs_node(f, "one");
	EXPECT_EQ(fs_getxattr(f, node, "system.posix_acl_access", buf, 128),
		  -ENODATA);
	EXPECT_EQ(fs_setxattr(f, node, "system.posix_acl_access", acl,
			      sizeof(acl)), 0);
	EXPECT_EQ(getxattr(fs_path(f, "one"), "system.posix_acl_access", buf,
			   128), sizeof(acl));
	EXPECT_EQ(fs_getxattr(f, node, "system.posix_acl_access", buf, 128),
		  sizeof(acl));
	EXPECT(!memcmp(buf, acl, sizeof(acl)));
	EXPECT_EQ(fs_setxattr(f, node, "system.posix_acl_access", "junk", 4),
		  -EOPNOTSUPP);
	EXPECT_EQ(fs_remove(f, FUSE_REMOVEXATTR, node,
			    "system.posix_acl_access"), 0);
	end(f);
}

static void the_umask_is_the_callers_and_an_acl_goes_before_it(void)
{
	struct fs *f = begin();
	static const u8 acl[] = {
		2, 0, 0, 0,
		1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff,
		4, 0, 7, 0, 0xff, 0xff, 0xff, 0xff,
		0x20, 0, 7, 0, 0xff, 0xff, 0xff, 0xff,
	};
	struct fuse_mkdir_in in = { .mode = 0777, .umask = 027 };
	struct stat st;

	EXPECT_EQ(fs_call_name(f, FUSE_MKDIR, ROOT, &in, sizeof(in), "d", NULL,
			       ENTRY), 0);
	EXPECT(!stat(fs_path(f, "d"), &st));
	EXPECT_EQ(st.st_mode, S_IFDIR | 0750);
	EXPECT(!setxattr(f->dir, "system.posix_acl_default", acl, sizeof(acl),
			 0));
	EXPECT_EQ(fs_call_name(f, FUSE_MKDIR, ROOT, &in, sizeof(in), "e", NULL,
			       ENTRY), 0);
	EXPECT(!stat(fs_path(f, "e"), &st));
	EXPECT_EQ(st.st_mode, S_IFDIR | 0777);
	end(f);
}

static void a_session_ends_and_another_begins(void)
{
	struct fs *f = begin();
	struct vhost_fs_info info;
	u64 node, fh;

	fs_host_write(f, "one", "hello", 5);
	node = fs_node(f, "one");
	EXPECT_EQ(fs_open_node(f, node, O_RDONLY, &fh), 0);
	EXPECT_EQ(fs_call(f, FUSE_DESTROY, 0, NULL, 0, 0), 0);
	fs_info(f, &info);
	EXPECT_EQ(info.nodes, 0);
	EXPECT_EQ(info.handles, 0);
	EXPECT(!(info.state & VHOST_FS_INFO_SESSION));
	EXPECT_EQ(fs_getattr(f, ROOT, NULL), -EIO);
	EXPECT_EQ(fs_init(f, ~0ULL, NULL), 0);
	EXPECT_EQ(fs_getattr(f, node, NULL), -ESTALE);
	EXPECT_EQ(fs_getattr(f, ROOT, NULL), 0);
	EXPECT(fs_node(f, "one") != node);
	end(f);
}

/* An export whose owner says that only this guest uses it, and a guest that writes back. */
static struct fs *begin_writing_back(void)
{
	struct vhost_fs_export exclusive = { .flags = VHOST_FS_EXPORT_WRITEBACK };
	struct fuse_init_out out;
	static struct fs f;

	fs_make_dir(&f, FS_KIND);
	fs_open_cold(&f, &exclusive);
	EXPECT_EQ(fs_init(&f, FUSE_MAX_PAGES, &out), 0);
	EXPECT_EQ(out.flags, FUSE_MAX_PAGES);
	EXPECT_EQ(fs_init(&f, FUSE_MAX_PAGES | FUSE_WRITEBACK_CACHE, &out), 0);
	EXPECT_EQ(out.flags, FUSE_MAX_PAGES | FUSE_WRITEBACK_CACHE);
	return &f;
}

static void who_writes_back_reads_what_it_opened_to_write(void)
{
	struct fs *f = begin_writing_back();
	struct fuse_entry_out e;
	char buf[8];
	u64 node, fh;

	fs_host_write(f, "one", "hello", 5);
	node = fs_node(f, "one");
	EXPECT_EQ(fs_open_node(f, node, O_WRONLY, &fh), 0);
	EXPECT_EQ(fs_read(f, node, fh, 0, 8, buf), 5);
	EXPECT(!memcmp(buf, "hello", 5));
	EXPECT_EQ(fs_create(f, ROOT, "two", O_WRONLY | O_EXCL, 0600, &e, &fh), 0);
	EXPECT_EQ(fs_write(f, e.nodeid, fh, 0, "new", 3), 3);
	EXPECT_EQ(fs_read(f, e.nodeid, fh, 0, 8, buf), 3);
	end(f);
}

static void who_writes_back_says_where_the_end_is(void)
{
	struct fs *f = begin_writing_back();
	struct fuse_lseek_in seek = { .whence = SEEK_DATA };
	u64 node, fh;

	fs_host_write(f, "one", "", 0);
	node = fs_node(f, "one");
	EXPECT_EQ(fs_open_node(f, node, O_WRONLY | O_APPEND, &fh), 0);
	/* The end first, then the page of the cache that lies before it. */
	EXPECT_EQ(fs_write_flags(f, node, fh, 3, "end", 3, O_APPEND, 0), 3);
	EXPECT_EQ(fs_write_flags(f, node, fh, 0, "the", 3, 0, FUSE_WRITE_CACHE), 3);
	EXPECT(fs_host_is(f, "one", "theend", 6));
	/* Nor does the host know which data there will be. */
	seek.fh = fh;
	EXPECT_EQ(fs_call(f, FUSE_LSEEK, node, &seek, sizeof(seek), 8), -ENOSYS);
	end(f);
}

static void who_writes_back_keeps_the_times(void)
{
	struct fs *f = begin_writing_back();
	struct fuse_setattr_in set = {
		.valid = FATTR_MTIME | FATTR_CTIME | FATTR_FH, .mtime = 1000000000, .ctime = 1,
	};
	struct fuse_attr attr;
	u64 node;

	fs_host_write(f, "one", "", 0);
	node = fs_node(f, "one");
	EXPECT_EQ(fs_open_node(f, node, O_WRONLY, (u64 *)&set.fh), 0);
	EXPECT_EQ(fs_write_flags(f, node, set.fh, 0, "x", 1, 0, FUSE_WRITE_CACHE), 1);
	EXPECT_EQ(fs_setattr(f, node, &set), 0);
	EXPECT_EQ(fs_getattr(f, node, &attr), 0);
	EXPECT_EQ(attr.mtime, 1000000000);
	end(f);
}

static const struct ktap_test tests[] = {
	{ "init_negotiates", init_negotiates },
	{ "lookup_finds_and_forget_forgets", lookup_finds_and_forget_forgets },
	{ "a_node_outlives_its_first_name", a_node_outlives_its_first_name },
	{ "batch_forget_forgets", batch_forget_forgets },
	{ "dots_are_looked_up_for_nfs", dots_are_looked_up_for_nfs },
	{ "attributes_are_read", attributes_are_read },
	{ "attributes_are_set", attributes_are_set },
	{ "chown_kills_set_id_bits", chown_kills_set_id_bits },
	{ "links_are_made_and_read", links_are_made_and_read },
	{ "nodes_of_all_kinds_are_made", nodes_of_all_kinds_are_made },
	{ "directories_come_and_go", directories_come_and_go },
	{ "files_are_unlinked", files_are_unlinked },
	{ "names_are_moved", names_are_moved },
	{ "files_are_created_and_open", files_are_created_and_open },
	{ "a_file_without_a_name_gets_one", a_file_without_a_name_gets_one },
	{ "data_are_read_and_written", data_are_read_and_written },
	{ "flags_of_each_request_are_heeded",
	  flags_of_each_request_are_heeded },
	{ "a_handle_is_for_what_it_was_opened_for",
	  a_handle_is_for_what_it_was_opened_for },
	{ "files_are_flushed_and_synced", files_are_flushed_and_synced },
	{ "space_is_made_and_holes_are_found",
	  space_is_made_and_holes_are_found },
	{ "ranges_are_copied", ranges_are_copied },
	{ "directories_are_read", directories_are_read },
	{ "the_file_system_is_described", the_file_system_is_described },
	{ "access_is_answered", access_is_answered },
	{ "attributes_are_extended", attributes_are_extended },
	{ "acls_are_kept", acls_are_kept },
	{ "the_umask_is_the_callers_and_an_acl_goes_before_it",
	  the_umask_is_the_callers_and_an_acl_goes_before_it },
	{ "a_session_ends_and_another_begins",
	  a_session_ends_and_another_begins },
	{ "who_writes_back_reads_what_it_opened_to_write",
	  who_writes_back_reads_what_it_opened_to_write },
	{ "who_writes_back_says_where_the_end_is",
	  who_writes_back_says_where_the_end_is },
	{ "who_writes_back_keeps_the_times", who_writes_back_keeps_the_times },
};

int main(int argc, char **argv)
{
	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), fs_cleanup);
}
