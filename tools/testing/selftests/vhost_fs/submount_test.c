// SPDX-License-Identifier: GPL-2.0
/*
 * File systems mounted beneath the directory: the guest enters them if the export says
 * so, and gets nothing by them that is not mounted there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>
#include <linux/fs.h>

#include "fsrig.h"

#define ROOT	FUSE_ROOT_ID
#define ENTRY	sizeof(struct fuse_entry_out)
#define SUB_MB	7

static const struct vhost_fs_export with_submounts = {
	.flags = VHOST_FS_EXPORT_SUBMOUNTS,
};

static void begin(struct fs *f)
{
	fs_make_dir(f, "tmpfs");
	/* A mount of a shared one could not be moved. */
	EXPECT(!mount(NULL, "/tmp/vhost_fs", NULL, MS_PRIVATE, NULL));
}

/* A directory of the host, beside the one that is served. */
static const char *beside(struct fs *f, const char *name)
{
	const char *path = fs_path(f, "..");
	static char beside[700];

	snprintf(beside, sizeof(beside), "%s/%s", path, name);
	return beside;
}

static void host_dir(struct fs *f, const char *name)
{
	EXPECT(!mkdir(fs_path(f, name), 0755));
}

static void mount_sub(struct fs *f, const char *name)
{
	EXPECT(!mount("sub", fs_path(f, name), "tmpfs", 0, "size=7m,mode=755"));
}

static void bind(struct fs *f, const char *from, const char *name)
{
	EXPECT(!mount(from, fs_path(f, name), NULL, MS_BIND, NULL));
}

/* The tick in which the mount was last seen at its place is over. */
static void next_tick(void)
{
	usleep(50000);
}

/* tmpfs at /sub, and /sub/one in it. */
static void begin_sub(struct fs *f, const struct vhost_fs_export *export)
{
	begin(f);
	host_dir(f, "sub");
	fs_host_write(f, "sub/hidden", "h", 1);
	mount_sub(f, "sub");
	fs_host_write(f, "sub/one", "hello", 5);
	fs_open(f, export);
}

static void end(struct fs *f)
{
	fs_close(f);
	fs_cleanup();
}

static u32 marks(struct fs *f, u64 dir, const char *name)
{
	struct fuse_entry_out e;

	EXPECT_EQ(fs_lookup(f, dir, name, &e), 0);
	return e.attr.flags;
}

static u64 blocks(struct fs *f, u64 node)
{
	EXPECT_EQ(fs_call(f, FUSE_STATFS, node, NULL, 0,
			  sizeof(struct fuse_statfs_out)), 0);
	return ((struct fuse_statfs_out *)f->reply)->st.blocks;
}

static void without_the_flag_the_guest_sees_what_lies_beneath(void)
{
	struct vhost_fs_info info;
	struct fs f;

	begin_sub(&f, NULL);
	fs_info(&f, &info);
	EXPECT(!(info.fuse_flags & FUSE_SUBMOUNTS));
	EXPECT_EQ(marks(&f, ROOT, "sub"), 0);
	fs_node(&f, "sub/hidden");
	EXPECT_EQ(fs_lookup(&f, fs_node(&f, "sub"), "one", NULL), -ENOENT);
	end(&f);
}

static void a_submount_is_entered_and_marked(void)
{
	struct fuse_entry_out e;
	struct fuse_attr attr;
	struct statfs st;
	struct stat sb;
	struct fs f;
	u64 sub;

	begin_sub(&f, &with_submounts);
	/* twice: by a worker, and by the poller as far as it comes */
	EXPECT_EQ(marks(&f, ROOT, "sub"), FUSE_ATTR_SUBMOUNT);
	EXPECT_EQ(marks(&f, ROOT, "sub"), FUSE_ATTR_SUBMOUNT);
	sub = fs_node(&f, "sub");
	EXPECT_EQ(fs_getattr(&f, sub, &attr), 0);
	EXPECT_EQ(attr.flags, FUSE_ATTR_SUBMOUNT);
	EXPECT(!stat(fs_path(&f, "sub"), &sb));
	EXPECT_EQ(attr.ino, sb.st_ino);
	EXPECT_EQ(marks(&f, sub, "one"), 0);
	EXPECT_EQ(marks(&f, sub, "."), FUSE_ATTR_SUBMOUNT);
	EXPECT_EQ(fs_lookup(&f, sub, "hidden", NULL), -ENOENT);
	EXPECT(!statfs(fs_path(&f, "sub"), &st));
	EXPECT_EQ(st.f_blocks * st.f_bsize, SUB_MB << 20);
	EXPECT_EQ(blocks(&f, sub), st.f_blocks);
	EXPECT(blocks(&f, ROOT) != st.f_blocks);
	/* above it is what it is mounted in */
	EXPECT_EQ(fs_lookup(&f, sub, "..", &e), 0);
	EXPECT_EQ(e.nodeid, ROOT);
	EXPECT_EQ(e.attr.flags, 0);
	end(&f);
}

static void a_guest_that_does_not_know_the_mark_gets_none(void)
{
	struct vhost_fs_info info;
	struct fs f;

	begin_sub(&f, &with_submounts);
	fs_info(&f, &info);
	EXPECT(info.fuse_flags & FUSE_SUBMOUNTS);
	EXPECT_EQ(fs_init(&f, ~(u64)FUSE_SUBMOUNTS, NULL), 0);
	fs_info(&f, &info);
	EXPECT(!(info.fuse_flags & FUSE_SUBMOUNTS));
	EXPECT_EQ(marks(&f, ROOT, "sub"), 0);
	fs_node(&f, "sub/one");
	end(&f);
}

/* The entry of a name in the listing of a directory; zero without one. */
static struct fuse_entry_out listed(struct fs *f, u64 dir, const char *name)
{
	struct fuse_read_in in = { .size = 4096 };
	struct fuse_entry_out e = {};
	struct fuse_direntplus *plus;
	u32 at;

	EXPECT_EQ(fs_open_dir(f, dir, (u64 *)&in.fh), 0);
	EXPECT_EQ(fs_call(f, FUSE_READDIRPLUS, dir, &in, sizeof(in), in.size), 0);
	for (at = 0; at < f->reply_len; at += FUSE_DIRENTPLUS_SIZE(plus)) {
		plus = (void *)f->reply + at;
		if (plus->dirent.namelen == strlen(name) &&
		    !memcmp(plus->dirent.name, name, strlen(name)))
			e = plus->entry_out;
	}
	EXPECT_EQ(fs_release(f, dir, in.fh), 0);
	return e;
}

static void a_listing_enters_submounts(void)
{
	struct fuse_entry_out e;
	struct fs f;

	begin_sub(&f, &with_submounts);
	e = listed(&f, ROOT, "sub");
	EXPECT_EQ(e.attr.flags, FUSE_ATTR_SUBMOUNT);
	EXPECT_EQ(e.nodeid, fs_node(&f, "sub"));
	e = listed(&f, e.nodeid, "one");
	EXPECT_EQ(e.attr.size, 5);
	EXPECT_EQ(e.nodeid, fs_node(&f, "sub/one"));
	end(&f);
}

static u64 generation(struct fs *f, u64 dir, const char *name)
{
	struct fuse_entry_out e;

	EXPECT_EQ(fs_lookup(f, dir, name, &e), 0);
	return e.generation;
}

/* Checks that all nodes but the roots of mounts have one generation, and returns that. */
static u64 the_generation(struct fs *f)
{
	struct fuse_entry_out e;
	u64 sub = fs_node(f, "sub"), all = generation(f, ROOT, "file");

	EXPECT(all);
	EXPECT_EQ(generation(f, ROOT, "dir"), all);
	EXPECT_EQ(generation(f, sub, "one"), all);
	EXPECT_EQ(listed(f, sub, "one").generation, all);
	EXPECT_EQ(fs_mkdir(f, ROOT, "new", 0755, &e), 0);
	EXPECT_EQ(e.generation, all);
	EXPECT_EQ(fs_remove(f, FUSE_RMDIR, ROOT, "new"), 0);
	/* A guest makes these nodes itself, and believes that one with a generation is stale. */
	EXPECT_EQ(generation(f, ROOT, "."), 0);
	EXPECT_EQ(generation(f, ROOT, "sub"), 0);
	EXPECT_EQ(listed(f, ROOT, "sub").generation, 0);
	EXPECT_EQ(generation(f, sub, "."), 0);
	EXPECT_EQ(generation(f, sub, ".."), 0);
	return all;
}

/* The numbers of nodes begin anew then, and the guest's NFS clients may still have the old ones. */
static void nodes_of_another_export_are_of_another_generation(void)
{
	struct vhost_fs_info info;
	struct fs f, again;
	u64 first;

	begin_sub(&f, &with_submounts);
	fs_host_write(&f, "file", "", 0);
	host_dir(&f, "dir");
	first = the_generation(&f);
	/* A session that ends is not the end of the export. */
	EXPECT_EQ(fs_init(&f, ~0ULL, NULL), 0);
	fs_info(&f, &info);
	EXPECT_EQ(info.sessions, 2);
	EXPECT_EQ(the_generation(&f), first);
	fs_close(&f);
	fs_use_dir(&again, f.dir);
	fs_open(&again, &with_submounts);
	EXPECT(the_generation(&again) != first);
	end(&again);
}

/* A guest takes EOPNOTSUPP for the answer to the access that it wants to check. */
static void a_submount_without_acls_has_none(void)
{
	static const char *const acl = "system.posix_acl_access";
	struct vhost_fs_info info;
	char buf[64] = "\2\0\0";
	struct fs f;
	u64 node;

	begin(&f);
	host_dir(&f, "sub");
	EXPECT(!mount("t", fs_path(&f, "sub"), "ramfs", 0, NULL));
	fs_host_write(&f, "sub/one", "hello", 5);
	fs_open(&f, &with_submounts);
	fs_info(&f, &info);
	if (!(info.fuse_flags & FUSE_POSIX_ACL))
		ktap_skip("no ACLs on tmpfs");
	node = fs_node(&f, "sub/one");
	EXPECT_EQ(fs_getxattr(&f, node, acl, buf, sizeof(buf)), -ENODATA);
	EXPECT_EQ(fs_setxattr(&f, node, acl, buf, 4), -EOPNOTSUPP);
	end(&f);
}

static void mounts_come_later_and_in_stacks(void)
{
	struct fuse_entry_out e;
	struct fs f;
	u64 first;

	begin_sub(&f, &with_submounts);
	first = fs_node(&f, "sub");
	mount_sub(&f, "sub");
	host_dir(&f, "sub/deep");
	EXPECT(fs_node(&f, "sub") != first);
	mount_sub(&f, "sub/deep");
	fs_host_write(&f, "sub/deep/two", "2", 1);
	EXPECT_EQ(marks(&f, fs_node(&f, "sub"), "deep"), FUSE_ATTR_SUBMOUNT);
	fs_node(&f, "sub/deep/two");
	EXPECT_EQ(fs_lookup(&f, fs_node(&f, "sub/deep"), "..", &e), 0);
	EXPECT_EQ(e.nodeid, fs_node(&f, "sub"));
	EXPECT_EQ(fs_lookup(&f, e.nodeid, "..", &e), 0);
	EXPECT_EQ(e.nodeid, ROOT);
	/* the lower one stays what it is to those who know it */
	EXPECT_EQ(fs_lookup(&f, first, "one", NULL), 0);
	end(&f);
}

static void nothing_moves_from_mount_to_mount(void)
{
	struct fuse_link_in link;
	struct fs f;
	u64 sub;

	begin_sub(&f, &with_submounts);
	fs_host_write(&f, "top", "t", 1);
	sub = fs_node(&f, "sub");
	EXPECT_EQ(fs_rename(&f, ROOT, "top", sub, "top", 0), -EXDEV);
	EXPECT_EQ(fs_rename(&f, sub, "one", ROOT, "one", 0), -EXDEV);
	link.oldnodeid = fs_node(&f, "top");
	EXPECT_EQ(fs_call_name(&f, FUSE_LINK, sub, &link, sizeof(link), "x", NULL,
			       ENTRY), -EXDEV);
	/* in it they do */
	EXPECT_EQ(fs_rename(&f, sub, "one", sub, "two", 0), 0);
	link.oldnodeid = fs_node(&f, "sub/two");
	EXPECT_EQ(fs_call_name(&f, FUSE_LINK, sub, &link, sizeof(link), "x", NULL,
			       ENTRY), 0);
	EXPECT_EQ(fs_mkdir(&f, sub, "d", 0755, NULL), 0);
	EXPECT(fs_host_there(&f, "sub/x") && fs_host_there(&f, "sub/d"));
	end(&f);
}

static void a_bind_mount_of_the_same_is_another_mount(void)
{
	struct fuse_link_in link;
	struct fuse_entry_out e;
	char buf[8];
	struct fs f;
	u64 fh;

	begin(&f);
	host_dir(&f, "d");
	host_dir(&f, "b");
	fs_host_write(&f, "d/one", "hello", 5);
	bind(&f, fs_path(&f, "d"), "b");
	EXPECT(!mount(NULL, fs_path(&f, "b"), NULL,
		      MS_BIND | MS_REMOUNT | MS_RDONLY, NULL));
	fs_open(&f, &with_submounts);
	EXPECT(fs_node(&f, "d/one") != fs_node(&f, "b/one"));
	link.oldnodeid = fs_node(&f, "b/one");
	EXPECT_EQ(fs_call_name(&f, FUSE_LINK, fs_node(&f, "d"), &link, sizeof(link),
			       "x", NULL, ENTRY), -EXDEV);
	/* a handle is the node's by which it was opened, and so are its rights */
	EXPECT_EQ(fs_open_node(&f, fs_node(&f, "d/one"), O_RDWR, &fh), 0);
	EXPECT_EQ(fs_write(&f, fs_node(&f, "b/one"), fh, 0, "x", 1), -EBADF);
	EXPECT_EQ(fs_read(&f, fs_node(&f, "b/one"), fh, 0, 8, buf), -EBADF);
	EXPECT_EQ(fs_lookup(&f, fs_node(&f, "b"), "..", &e), 0);
	EXPECT_EQ(e.nodeid, ROOT);
	end(&f);
}

static void a_bind_mount_is_no_way_out(void)
{
	struct fuse_entry_out e;
	struct fs f;
	u64 in, out;

	begin(&f);
	host_dir(&f, "b");
	host_dir(&f, "../data");
	host_dir(&f, "../data/shared");
	host_dir(&f, "../data/shared/d");
	host_dir(&f, "../data/private");
	bind(&f, beside(&f, "data/shared"), "b");
	fs_open(&f, &with_submounts);
	in = fs_node(&f, "b");
	EXPECT_EQ(fs_lookup(&f, in, "..", &e), 0);
	EXPECT_EQ(e.nodeid, ROOT);
	out = fs_node(&f, "b/d");
	EXPECT_EQ(fs_lookup(&f, out, "..", &e), 0);
	EXPECT_EQ(e.nodeid, in);
	/* moved out of what is mounted, on the host */
	EXPECT(!rename(fs_path(&f, "../data/shared/d"),
		       fs_path(&f, "../data/private/d")));
	EXPECT_EQ(fs_getattr(&f, out, NULL), -ESTALE);
	EXPECT_EQ(fs_lookup(&f, out, "..", NULL), -ESTALE);
	EXPECT_EQ(fs_mkdir(&f, out, "x", 0755, NULL), -ESTALE);
	end(&f);
}

static void mount_points_are_busy(void)
{
	struct fs f;

	begin_sub(&f, &with_submounts);
	fs_host_write(&f, "file", "", 0);
	fs_host_write(&f, "other", "other", 5);
	host_dir(&f, "d");
	bind(&f, fs_path(&f, "other"), "file");
	EXPECT_EQ(fs_remove(&f, FUSE_RMDIR, ROOT, "sub"), -EBUSY);
	EXPECT_EQ(fs_remove(&f, FUSE_UNLINK, ROOT, "file"), -EBUSY);
	EXPECT_EQ(fs_rename(&f, ROOT, "sub", ROOT, "x", 0), -EBUSY);
	EXPECT_EQ(fs_rename(&f, ROOT, "d", ROOT, "sub", 0), -EBUSY);
	EXPECT_EQ(fs_rename(&f, ROOT, "d", ROOT, "sub", RENAME_EXCHANGE), -EBUSY);
	EXPECT_EQ(fs_mkdir(&f, ROOT, "sub", 0755, NULL), -EEXIST);
	fs_node(&f, "sub/one");
	end(&f);
}

static void a_file_may_be_mounted_on_a_file(void)
{
	struct fuse_entry_out e;
	char buf[8] = "";
	struct fs f;
	u64 fh;

	begin(&f);
	fs_host_write(&f, "file", "lower", 5);
	bind(&f, beside(&f, "secret"), "file");
	fs_open(&f, &with_submounts);
	EXPECT_EQ(fs_lookup(&f, ROOT, "file", &e), 0);
	EXPECT_EQ(e.attr.size, 6);
	/* the guest mounts directories only */
	EXPECT_EQ(e.attr.flags, 0);
	EXPECT_EQ(fs_create(&f, ROOT, "file", O_RDWR, 0600, &e, &fh), 0);
	EXPECT_EQ(fs_read(&f, e.nodeid, fh, 0, 8, buf), 6);
	EXPECT(!memcmp(buf, "secret", 6));
	EXPECT_EQ(fs_create(&f, ROOT, "file", O_RDWR | O_EXCL, 0600, &e, &fh), -EEXIST);
	end(&f);
}

static void a_submount_keeps_its_own_flags(void)
{
	struct fuse_setattr_in set = { .valid = FATTR_MODE, .mode = 0600 };
	struct fuse_access_in access = { .mask = W_OK };
	struct fs f;
	u64 sub, one;

	begin_sub(&f, &with_submounts);
	EXPECT(!mount(NULL, fs_path(&f, "sub"), NULL,
		      MS_BIND | MS_REMOUNT | MS_RDONLY, NULL));
	sub = fs_node(&f, "sub");
	one = fs_node(&f, "sub/one");
	EXPECT_EQ(fs_create(&f, sub, "new", O_RDWR, 0600, NULL, NULL), -EROFS);
	EXPECT_EQ(fs_open_node(&f, one, O_RDWR, NULL), -EROFS);
	EXPECT_EQ(fs_open_node(&f, one, O_RDONLY, NULL), 0);
	EXPECT_EQ(fs_setattr(&f, one, &set), -EROFS);
	EXPECT_EQ(fs_remove(&f, FUSE_UNLINK, sub, "one"), -EROFS);
	EXPECT_EQ(fs_setxattr(&f, one, "user.x", "x", 1), -EROFS);
	EXPECT_EQ(fs_call(&f, FUSE_ACCESS, one, &access, sizeof(access), 0), -EROFS);
	/* and so does what it is mounted in */
	EXPECT_EQ(fs_create(&f, ROOT, "new", O_RDWR, 0600, NULL, NULL), 0);
	/* it is the host's own mount: what the host changes holds at once */
	EXPECT(!mount(NULL, fs_path(&f, "sub"), NULL, MS_BIND | MS_REMOUNT, NULL));
	EXPECT_EQ(fs_create(&f, sub, "new", O_RDWR, 0600, NULL, NULL), 0);
	end(&f);
}

static void a_read_only_export_changes_no_submount(void)
{
	static const struct vhost_fs_export export = {
		.flags = VHOST_FS_EXPORT_SUBMOUNTS | VHOST_FS_EXPORT_READ_ONLY,
	};
	struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 2000 } };
	struct stat st;
	char buf[8];
	struct fs f;
	u64 one, fh;

	begin_sub(&f, &export);
	EXPECT(!utimensat(AT_FDCWD, fs_path(&f, "sub/one"), old, 0));
	one = fs_node(&f, "sub/one");
	EXPECT_EQ(fs_open_node(&f, one, O_RDWR, NULL), -EROFS);
	EXPECT_EQ(fs_mkdir(&f, fs_node(&f, "sub"), "d", 0755, NULL), -EROFS);
	EXPECT_EQ(fs_open_node(&f, one, O_RDONLY, &fh), 0);
	EXPECT_EQ(fs_read(&f, one, fh, 0, 8, buf), 5);
	EXPECT(!stat(fs_path(&f, "sub/one"), &st));
	EXPECT_EQ(st.st_atime, 1000);
	end(&f);
}

static void until_unmounted(const char *path)
{
	unsigned int tries = 500;

	while (umount2(path, 0)) {
		EXPECT_EQ(errno, EBUSY);
		EXPECT(--tries);
		usleep(10000);
	}
}

static void a_node_keeps_its_mount_until_it_is_forgotten(void)
{
	struct fs f;
	u64 one;

	begin_sub(&f, &with_submounts);
	one = fs_node(&f, "sub/one");
	EXPECT(umount2(fs_path(&f, "sub"), 0) && errno == EBUSY);
	fs_forget(&f, one, 1);
	fs_forget(&f, fs_node(&f, "sub"), 2);
	/* where the poller took it, the reaper lets go, sooner or later */
	until_unmounted(fs_path(&f, "sub"));
	fs_node(&f, "sub/hidden");
	/* and the end of the session is the end of all */
	mount_sub(&f, "sub");
	fs_host_write(&f, "sub/two", "", 0);
	fs_node(&f, "sub/two");
	EXPECT(umount2(fs_path(&f, "sub"), 0) && errno == EBUSY);
	EXPECT_EQ(fs_init(&f, ~0ULL, NULL), 0);
	EXPECT(!umount2(fs_path(&f, "sub"), 0));
	mount_sub(&f, "sub");
	fs_host_write(&f, "sub/two", "", 0);
	fs_node(&f, "sub/two");
	fs_close(&f);
	EXPECT(!umount2(fs_path(&f, "sub"), 0));
	fs_cleanup();
}

static void what_is_unmounted_lazily_is_stale(void)
{
	struct fuse_entry_out e;
	char buf[8];
	struct fs f;
	u64 sub, one, fh;

	begin_sub(&f, &with_submounts);
	sub = fs_node(&f, "sub");
	one = fs_node(&f, "sub/one");
	EXPECT_EQ(fs_open_node(&f, one, O_RDWR, &fh), 0);
	EXPECT(!umount2(fs_path(&f, "sub"), MNT_DETACH));
	next_tick();
	EXPECT_EQ(fs_getattr(&f, sub, NULL), -ESTALE);
	EXPECT_EQ(fs_lookup(&f, sub, "one", NULL), -ESTALE);
	EXPECT_EQ(fs_lookup(&f, sub, "..", NULL), -ESTALE);
	EXPECT_EQ(fs_mkdir(&f, sub, "d", 0755, NULL), -ESTALE);
	EXPECT_EQ(fs_read(&f, one, fh, 0, 8, buf), -ESTALE);
	EXPECT_EQ(fs_write(&f, one, fh, 0, "x", 1), -ESTALE);
	/* what is open can be closed, and the name is there again */
	EXPECT_EQ(fs_release(&f, one, fh), 0);
	EXPECT_EQ(fs_lookup(&f, ROOT, "sub", &e), 0);
	EXPECT(e.nodeid != sub);
	EXPECT_EQ(e.attr.flags, 0);
	fs_node(&f, "sub/hidden");
	end(&f);
}

static void what_is_moved_away_is_stale(void)
{
	struct fuse_entry_out e;
	struct fs f;
	u64 sub;

	begin_sub(&f, &with_submounts);
	host_dir(&f, "a");
	host_dir(&f, "../away");
	sub = fs_node(&f, "sub");
	EXPECT(!mount(fs_path(&f, "sub"), beside(&f, "away"), NULL, MS_MOVE, NULL));
	next_tick();
	EXPECT_EQ(fs_getattr(&f, sub, NULL), -ESTALE);
	EXPECT_EQ(fs_lookup(&f, sub, "one", NULL), -ESTALE);
	EXPECT_EQ(fs_lookup(&f, sub, "..", NULL), -ESTALE);
	/* back, at another name */
	EXPECT(!mount(beside(&f, "away"), fs_path(&f, "a"), NULL, MS_MOVE, NULL));
	next_tick();
	EXPECT_EQ(fs_lookup(&f, sub, "one", NULL), 0);
	EXPECT_EQ(fs_node(&f, "a"), sub);
	EXPECT_EQ(fs_lookup(&f, sub, "..", &e), 0);
	EXPECT_EQ(e.nodeid, ROOT);
	end(&f);
}

/* devtmpfs says that it is a tmpfs. */
static void interfaces_of_the_kernel_are_refused_and_nothing_else(void)
{
	static const char *const types[] = { "proc", "devtmpfs", "hugetlbfs", "mqueue" };
	unsigned int i;
	struct fs f;

	begin_sub(&f, &with_submounts);
	for (i = 0; i < KTAP_COUNT(types); i++) {
		host_dir(&f, types[i]);
		if (mount(types[i], fs_path(&f, types[i]), types[i], 0, NULL)) {
			EXPECT_EQ(errno, ENODEV);
			continue;
		}
		EXPECT_EQ(fs_lookup(&f, ROOT, types[i], NULL), -EACCES);
		EXPECT_EQ(listed(&f, ROOT, types[i]).nodeid, 0);
		EXPECT(listed(&f, ROOT, "sub").nodeid);
		fs_node(&f, "sub/one");
		EXPECT(!umount2(fs_path(&f, types[i]), 0));
		fs_node(&f, types[i]);
	}
	end(&f);
}

static const struct ktap_test tests[] = {
	{ "without_the_flag_the_guest_sees_what_lies_beneath",
	  without_the_flag_the_guest_sees_what_lies_beneath },
	{ "a_submount_is_entered_and_marked", a_submount_is_entered_and_marked },
	{ "a_guest_that_does_not_know_the_mark_gets_none",
	  a_guest_that_does_not_know_the_mark_gets_none },
	{ "a_listing_enters_submounts", a_listing_enters_submounts },
	{ "nodes_of_another_export_are_of_another_generation",
	  nodes_of_another_export_are_of_another_generation },
	{ "a_submount_without_acls_has_none", a_submount_without_acls_has_none },
	{ "mounts_come_later_and_in_stacks", mounts_come_later_and_in_stacks },
	{ "nothing_moves_from_mount_to_mount", nothing_moves_from_mount_to_mount },
	{ "a_bind_mount_of_the_same_is_another_mount",
	  a_bind_mount_of_the_same_is_another_mount },
	{ "a_bind_mount_is_no_way_out", a_bind_mount_is_no_way_out },
	{ "mount_points_are_busy", mount_points_are_busy },
	{ "a_file_may_be_mounted_on_a_file", a_file_may_be_mounted_on_a_file },
	{ "a_submount_keeps_its_own_flags", a_submount_keeps_its_own_flags },
	{ "a_read_only_export_changes_no_submount",
	  a_read_only_export_changes_no_submount },
	{ "a_node_keeps_its_mount_until_it_is_forgotten",
	  a_node_keeps_its_mount_until_it_is_forgotten },
	{ "what_is_unmounted_lazily_is_stale", what_is_unmounted_lazily_is_stale },
	{ "what_is_moved_away_is_stale", what_is_moved_away_is_stale },
	{ "interfaces_of_the_kernel_are_refused_and_nothing_else",
	  interfaces_of_the_kernel_are_refused_and_nothing_else },
};

int main(int argc, char **argv)
{
	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), fs_cleanup);
}
