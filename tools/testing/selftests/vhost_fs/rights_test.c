// SPDX-License-Identifier: GPL-2.0
/*
 * Whose rights act: the opener's, with what is made belonging to the caller; or one
 * user's, whose rights the host checks.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <linux/capability.h>
#include <unistd.h>

#include "fsrig.h"

#define ROOT	FUSE_ROOT_ID
#define ENTRY	sizeof(struct fuse_entry_out)

static void begin(struct fs *f, const struct vhost_fs_export *export)
{
	fs_make_dir(f, "tmpfs");
	fs_open(f, export);
}

static struct stat host_stat(struct fs *f, const char *name)
{
	struct stat st;

	EXPECT(!lstat(fs_path(f, name), &st));
	return st;
}

static void what_is_made_belongs_to_the_caller(void)
{
	struct fuse_mknod_in mk = { .mode = S_IFIFO | 0600 };
	struct stat st;
	struct fs f;

	begin(&f, NULL);
	f.uid = 1000;
	f.gid = 2000;
	/* in a directory that is root's alone: the guest has checked */
	EXPECT_EQ(fs_create(&f, ROOT, "file", O_RDWR, 0600, NULL, NULL), 0);
	EXPECT_EQ(fs_mkdir(&f, ROOT, "dir", 0700, NULL), 0);
	EXPECT_EQ(fs_call_name(&f, FUSE_SYMLINK, ROOT, NULL, 0, "link", "x",
			       ENTRY), 0);
	EXPECT_EQ(fs_call_name(&f, FUSE_MKNOD, ROOT, &mk, sizeof(mk), "fifo",
			       NULL, ENTRY), 0);
	st = host_stat(&f, "file");
	EXPECT(st.st_uid == 1000 && st.st_gid == 2000);
	st = host_stat(&f, "dir");
	EXPECT(st.st_uid == 1000 && st.st_gid == 2000);
	st = host_stat(&f, "link");
	EXPECT(st.st_uid == 1000 && st.st_gid == 2000);
	st = host_stat(&f, "fifo");
	EXPECT(st.st_uid == 1000 && st.st_gid == 2000);
	/* and the next caller is another one */
	f.uid = 1001;
	EXPECT_EQ(fs_mkdir(&f, ROOT, "dir2", 0700, NULL), 0);
	EXPECT_EQ(host_stat(&f, "dir2").st_uid, 1001);
	f.uid = -1;
	EXPECT_EQ(fs_mkdir(&f, ROOT, "dir3", 0700, NULL), -EOVERFLOW);
	fs_close(&f);
}

static void the_group_bit_needs_the_group(void)
{
	struct fuse_create_in in = { .flags = O_RDWR, .mode = 02775 };
	struct fuse7_groups groups = {
		.size = 16, .type = FUSE7_EXT_GROUPS, .nr_groups = 1,
		.group = 3000,
	};
	struct {
		struct fuse_in_header ih;
		u8 rest[sizeof(in) + 5 + sizeof(groups)];
	} req;
	struct fs_raw raw = { .in = &req, .out_room = 400, .queue = 1 };
	struct fs f;

	begin(&f, NULL);
	EXPECT(!chown(f.dir, 0, 3000) && !chmod(f.dir, 02777));
	f.uid = 1000;
	f.gid = 1000;
	EXPECT_EQ(fs_create(&f, ROOT, "without", O_RDWR, 02775, NULL, NULL), 0);
	EXPECT_EQ(host_stat(&f, "without").st_gid, 3000);
	EXPECT_EQ(host_stat(&f, "without").st_mode & 07777, 0775);
	memset(&req, 0, sizeof(req));
	req.ih = (struct fuse_in_header){
		.len = sizeof(req.ih) + sizeof(in) + 5 + sizeof(groups),
		.opcode = FUSE_CREATE, .nodeid = ROOT, .unique = f.unique += 2,
		.uid = 1000, .gid = 1000,
	};
	/* total_extlen, in units of 8, where older headers have padding */
	*(u16 *)((u8 *)&req.ih + 36) = sizeof(groups) / 8;
	memcpy(req.rest, &in, sizeof(in));
	memcpy(req.rest + sizeof(in), "with", 5);
	memcpy(req.rest + sizeof(in) + 5, &groups, sizeof(groups));
	raw.in_len = req.ih.len;
	fs_play(&f, &raw);
	EXPECT_EQ(fs_answer(&f, 0), 0);
	EXPECT_EQ(host_stat(&f, "with").st_mode & 07777, 02775);
	fs_close(&f);
}

static void set_id_bits_go_when_the_guest_says_so(void)
{
	struct fs f;
	u64 node, fh;

	begin(&f, NULL);
	fs_host_write(&f, "one", "hello", 5);
	EXPECT(!chmod(fs_path(&f, "one"), 06755));
	node = fs_node(&f, "one");
	EXPECT_EQ(fs_open_node(&f, node, O_RDWR, &fh), 0);
	EXPECT_EQ(fs_write(&f, node, fh, 0, "x", 1), 1);
	EXPECT_EQ(host_stat(&f, "one").st_mode & 07777, 06755);
	EXPECT_EQ(fs_write_flags(&f, node, fh, 0, "x", 1, 0,
				 FUSE_WRITE_KILL_PRIV), 1);
	EXPECT_EQ(host_stat(&f, "one").st_mode & 07777, 0755);
	fs_close(&f);
}

/* The guest cannot say so in these requests, and does not clear the bits itself. */
static void set_id_bits_go_with_what_users_change(void)
{
	struct fuse_fallocate_in room = { .length = 65536 };
	struct fuse_copy_file_range_in copy = { .len = 5 };
	struct fs f;
	u64 node;

	begin(&f, NULL);
	fs_host_write(&f, "one", "hello", 5);
	fs_host_write(&f, "from", "HELLO", 5);
	node = fs_node(&f, "one");
	EXPECT_EQ(fs_open_node(&f, node, O_RDWR, (u64 *)&room.fh), 0);
	copy.nodeid_out = node;
	copy.fh_out = room.fh;
	EXPECT_EQ(fs_open_node(&f, fs_node(&f, "from"), O_RDONLY, (u64 *)&copy.fh_in), 0);
	for (f.uid = 0; f.uid <= 1000; f.uid += 1000) {
		EXPECT(!chmod(fs_path(&f, "one"), 06755));
		EXPECT_EQ(fs_call(&f, FUSE_FALLOCATE, node, &room, sizeof(room), 0), 0);
		EXPECT_EQ(host_stat(&f, "one").st_mode & 07777, f.uid ? 0755 : 06755);
		EXPECT(!chmod(fs_path(&f, "one"), 06755));
		EXPECT_EQ(fs_call(&f, FUSE_COPY_FILE_RANGE, fs_node(&f, "from"), &copy,
				  sizeof(copy), sizeof(struct fuse_write_out)), 0);
		EXPECT_EQ(host_stat(&f, "one").st_mode & 07777, f.uid ? 0755 : 06755);
	}
	fs_close(&f);
}

static void a_read_only_export_is_not_changed(void)
{
	struct vhost_fs_export ro = { .flags = VHOST_FS_EXPORT_READ_ONLY };
	struct fuse_setattr_in set = { .valid = FATTR_MODE, .mode = 0 };
	char buf[8];
	struct fs f;
	u64 node, fh;

	begin(&f, &ro);
	fs_host_write(&f, "one", "hello", 5);
	node = fs_node(&f, "one");
	EXPECT_EQ(fs_open_node(&f, node, O_RDWR, NULL), -EROFS);
	EXPECT_EQ(fs_open_node(&f, node, O_RDONLY | O_TRUNC, NULL), -EROFS);
	EXPECT_EQ(fs_open_node(&f, node, O_RDONLY, &fh), 0);
	EXPECT_EQ(fs_read(&f, node, fh, 0, 8, buf), 5);
	EXPECT_EQ(fs_mkdir(&f, ROOT, "d", 0755, NULL), -EROFS);
	EXPECT_EQ(fs_remove(&f, FUSE_UNLINK, ROOT, "one"), -EROFS);
	EXPECT_EQ(fs_rename(&f, ROOT, "one", ROOT, "two", 0), -EROFS);
	EXPECT_EQ(fs_setattr(&f, node, &set), -EROFS);
	EXPECT_EQ(fs_write(&f, node, fh, 0, "x", 1), -EROFS);
	EXPECT(fs_host_is(&f, "one", "hello", 5));
	fs_close(&f);
}

static void squashed_all_are_one_user(void)
{
	struct vhost_fs_export squash = {
		.flags = VHOST_FS_EXPORT_SQUASH, .squash_uid = 1000,
		.squash_gid = 1000,
	};
	struct fuse_setattr_in set = { .valid = FATTR_UID, .uid = 5 };
	struct fs f;
	u64 node;

	begin(&f, &squash);
	fs_host_write(&f, "roots", "x", 1);
	EXPECT(!chmod(fs_path(&f, "roots"), 0600));
	EXPECT(!mkdir(fs_path(&f, "his"), 0700));
	EXPECT(!chown(fs_path(&f, "his"), 1000, 1000));
	node = fs_node(&f, "roots");
	EXPECT_EQ(fs_open_node(&f, node, O_RDONLY, NULL), -EACCES);
	EXPECT_EQ(fs_setattr(&f, node, &set), -EPERM);
	EXPECT_EQ(fs_mkdir(&f, ROOT, "d", 0755, NULL), -EACCES);
	EXPECT_EQ(fs_remove(&f, FUSE_UNLINK, ROOT, "roots"), -EACCES);
	node = fs_node(&f, "his");
	EXPECT_EQ(fs_mkdir(&f, node, "d", 0755, NULL), 0);
	EXPECT_EQ(host_stat(&f, "his/d").st_uid, 1000);
	fs_close(&f);
}

static int link_it(struct fs *f, u64 node, u64 dir, const char *name)
{
	struct fuse_link_in in = { .oldnodeid = node };

	return fs_call_name(f, FUSE_LINK, dir, &in, sizeof(in), name, NULL, ENTRY);
}

/* As fs.protected_hardlinks has it for the host's users. */
static void a_squashed_user_links_what_he_may_write(void)
{
	struct vhost_fs_export squash = {
		.flags = VHOST_FS_EXPORT_SQUASH, .squash_uid = 1000,
		.squash_gid = 1000,
	};
	struct fs f;
	u64 node, dir;

	begin(&f, &squash);
	EXPECT(!mkdir(fs_path(&f, "his"), 0700));
	EXPECT(!chown(fs_path(&f, "his"), 1000, 1000));
	dir = fs_node(&f, "his");
	fs_host_write(&f, "roots", "x", 1);
	node = fs_node(&f, "roots");
	EXPECT(!chmod(fs_path(&f, "roots"), 0644));
	EXPECT_EQ(link_it(&f, node, dir, "read"), -EPERM);
	EXPECT(!chmod(fs_path(&f, "roots"), 04666));
	EXPECT_EQ(link_it(&f, node, dir, "suid"), -EPERM);
	EXPECT(!chmod(fs_path(&f, "roots"), 02676));
	EXPECT_EQ(link_it(&f, node, dir, "sgid"), -EPERM);
	EXPECT(!chmod(fs_path(&f, "roots"), 0666));
	EXPECT_EQ(link_it(&f, node, dir, "written"), 0);
	EXPECT(!mkfifo(fs_path(&f, "fifo"), 0666));
	EXPECT_EQ(link_it(&f, fs_node(&f, "fifo"), dir, "fifo"), -EPERM);
	/* His own, whatever it is. */
	EXPECT(!chown(fs_path(&f, "fifo"), 1000, 1000));
	EXPECT_EQ(link_it(&f, fs_node(&f, "fifo"), dir, "fifo"), 0);
	EXPECT(!fs_host_there(&f, "his/read") && fs_host_there(&f, "his/written"));
	fs_close(&f);
}

/* The handle is for reading, too, and lets no one read what he may not. */
static void writing_back_gives_no_right_to_read(void)
{
	struct vhost_fs_export squash = {
		.flags = VHOST_FS_EXPORT_SQUASH | VHOST_FS_EXPORT_WRITEBACK,
		.squash_uid = 1000, .squash_gid = 1000,
	};
	struct fuse_setattr_in times = { .valid = FATTR_MTIME | FATTR_CTIME | FATTR_FH };
	struct fs f;
	u64 node;

	begin(&f, &squash);
	fs_host_write(&f, "drop", "x", 1);
	EXPECT(!chmod(fs_path(&f, "drop"), 0622));
	node = fs_node(&f, "drop");
	EXPECT_EQ(fs_open_node(&f, node, O_WRONLY, NULL), -EACCES);
	/* Nor to set times, and that is no error where they follow a write. */
	EXPECT(!chmod(fs_path(&f, "drop"), 0666));
	EXPECT_EQ(fs_open_node(&f, node, O_WRONLY, (u64 *)&times.fh), 0);
	EXPECT_EQ(fs_setattr(&f, node, &times), 0);
	EXPECT(host_stat(&f, "drop").st_mtime);
	times.valid = FATTR_MTIME | FATTR_CTIME;
	EXPECT_EQ(fs_setattr(&f, node, &times), -EPERM);
	/* As truncate(2) and ftruncate(2) send them. */
	fs_host_write(&f, "drop", "hello", 5);
	times.size = 3;
	times.valid = FATTR_SIZE | FATTR_LOCKOWNER | FATTR_MTIME | FATTR_CTIME;
	EXPECT_EQ(fs_setattr(&f, node, &times), 0);
	EXPECT(fs_host_is(&f, "drop", "hel", 3));
	times.size = 2;
	times.valid |= FATTR_FH;
	EXPECT_EQ(fs_setattr(&f, node, &times), 0);
	EXPECT(fs_host_is(&f, "drop", "he", 2));
	/* The error of the truncation itself is one. */
	EXPECT(!chmod(fs_path(&f, "drop"), 0644));
	times.valid &= ~FATTR_FH;
	EXPECT_EQ(fs_setattr(&f, node, &times), -EACCES);
	EXPECT(fs_host_is(&f, "drop", "he", 2));
	fs_close(&f);
}

static void privileged_attributes_go_by_policy(void)
{
	struct vhost_fs_export map = { .flags = VHOST_FS_EXPORT_MAP_XATTR };
	struct vhost_fs_export raw = { .flags = VHOST_FS_EXPORT_RAW_XATTR };
	struct fuse_getxattr_in list = { .size = 4096 };
	char buf[64];
	struct fs f;
	u64 node;

	begin(&f, &raw);
	fs_host_write(&f, "one", "x", 1);
	node = fs_node(&f, "one");
	EXPECT_EQ(fs_setxattr(&f, node, "trusted.a", "v", 1), 0);
	EXPECT_EQ(getxattr(fs_path(&f, "one"), "trusted.a", buf, 64), 1);
	fs_close(&f);

	begin(&f, &map);
	fs_host_write(&f, "one", "x", 1);
	node = fs_node(&f, "one");
	if (fs_setxattr(&f, node, "trusted.overlay.opaque", "y", 1))
		ktap_skip("no user.* on tmpfs");
	EXPECT_EQ(getxattr(fs_path(&f, "one"),
			   "user.virtiofs.trusted.overlay.opaque", buf, 64), 1);
	EXPECT_EQ(fs_getxattr(&f, node, "trusted.overlay.opaque", buf, 64), 1);
	EXPECT_EQ(fs_setxattr(&f, node, "user.virtiofs.security.x", "y", 1),
		  -EPERM);
	EXPECT_EQ(fs_setxattr(&f, node, "security.capability", "y", 1),
		  -EOPNOTSUPP);
	EXPECT_EQ(fs_call(&f, FUSE_LISTXATTR, node, &list, sizeof(list), 4096),
		  0);
	EXPECT(f.reply_len == sizeof("trusted.overlay.opaque") &&
	       !strcmp((char *)f.reply, "trusted.overlay.opaque"));
	fs_close(&f);
}

static void no_attribute_is_no_request(void)
{
	struct vhost_fs_export none = {
		.flags = VHOST_FS_EXPORT_NO_XATTR | VHOST_FS_EXPORT_NO_ACL,
	};
	struct vhost_fs_export acls = { .flags = VHOST_FS_EXPORT_NO_XATTR };
	struct vhost_fs_info info;
	char buf[64];
	struct fs f;
	u64 node;

	/* The guest does not ask again. */
	begin(&f, &none);
	fs_host_write(&f, "one", "x", 1);
	node = fs_node(&f, "one");
	EXPECT_EQ(fs_getxattr(&f, node, "security.capability", buf, 64), -ENOSYS);
	EXPECT_EQ(fs_setxattr(&f, node, "user.a", "y", 1), -ENOSYS);
	fs_close(&f);

	/* It would not ask for ACLs, either. */
	begin(&f, &acls);
	fs_info(&f, &info);
	if (!(info.fuse_flags & FUSE_POSIX_ACL))
		ktap_skip("no ACLs on tmpfs");
	fs_host_write(&f, "one", "x", 1);
	node = fs_node(&f, "one");
	EXPECT_EQ(fs_getxattr(&f, node, "security.capability", buf, 64), -EOPNOTSUPP);
	EXPECT_EQ(fs_getxattr(&f, node, "system.posix_acl_access", buf, 64), -ENODATA);
	fs_close(&f);
}

static bool reading_sets_atime(struct fs *f, u64 node, u32 flags)
{
	const struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 2000 } };
	char buf[8];
	u64 fh;

	EXPECT(!utimensat(AT_FDCWD, fs_path(f, "one"), old, 0));
	EXPECT_EQ(fs_open_node(f, node, flags, &fh), 0);
	EXPECT_EQ(fs_read(f, node, fh, 0, sizeof(buf), buf), 5);
	EXPECT_EQ(fs_release(f, node, fh), 0);
	return host_stat(f, "one").st_atime != 1000;
}

static void the_owner_may_leave_the_access_time(void)
{
	struct vhost_fs_export squash = {
		.flags = VHOST_FS_EXPORT_SQUASH, .squash_uid = 1000,
		.squash_gid = 1000,
	};
	struct fs f;
	u64 node;

	begin(&f, NULL);
	fs_host_write(&f, "one", "hello", 5);
	node = fs_node(&f, "one");
	EXPECT(reading_sets_atime(&f, node, O_RDONLY));
	EXPECT(!reading_sets_atime(&f, node, O_RDONLY | O_NOATIME));
	fs_close(&f);

	begin(&f, &squash);
	fs_host_write(&f, "one", "hello", 5);
	EXPECT(!chmod(fs_path(&f, "one"), 0644));
	node = fs_node(&f, "one");
	EXPECT(reading_sets_atime(&f, node, O_RDONLY | O_NOATIME));
	EXPECT(!chown(fs_path(&f, "one"), 1000, 1000));
	EXPECT(!reading_sets_atime(&f, node, O_RDONLY | O_NOATIME));
	fs_close(&f);
}

static int try(struct vhost_fs_export e)
{
	struct fs f;
	int r;

	fs_make_dir(&f, "tmpfs");
	r = fs_try(&f, &e);
	if (!r)
		close(f.fd);
	return r;
}

static void exports_that_make_no_sense_are_refused(void)
{
	struct vhost_fs_export e = { .size = sizeof(e) };
	int fd;

	EXPECT_EQ(try((struct vhost_fs_export){ .flags = 1U << 31 }), -EINVAL);
	EXPECT_EQ(try((struct vhost_fs_export){ .cache = 3 }), -EINVAL);
	EXPECT_EQ(try((struct vhost_fs_export){ .max_dentries = ~0U }), -EINVAL);
	EXPECT_EQ(try((struct vhost_fs_export){ .max_dentries = 3 }), -EINVAL);
	EXPECT_EQ(try((struct vhost_fs_export){ .squash_uid = 1 }), -EINVAL);
	EXPECT_EQ(try((struct vhost_fs_export){ .max_nodes = ~0U }), -EINVAL);
	EXPECT_EQ(try((struct vhost_fs_export){
		.flags = VHOST_FS_EXPORT_MAP_XATTR |
			 VHOST_FS_EXPORT_RAW_XATTR }), -EINVAL);
	EXPECT_EQ(try((struct vhost_fs_export){
		.flags = VHOST_FS_EXPORT_SQUASH, .squash_uid = ~0U }), -EINVAL);
	EXPECT_EQ(try((struct vhost_fs_export){}), 0);
	/* one who does not own the device */
	fd = open("/dev/vhost-fs", O_RDWR | O_CLOEXEC);
	EXPECT(fd >= 0);
	e.fd = fd;
	EXPECT(ioctl(fd, VHOST_FS_SET_EXPORT, &e) < 0 && errno == EPERM);
	close(fd);
}

static void drop_cap(unsigned int cap)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	EXPECT(!syscall(SYS_capget, &head, data));
	data[cap / 32].effective &= ~(1U << cap % 32);
	EXPECT(!syscall(SYS_capset, &head, data));
}

/* Becoming another user takes what it takes elsewhere. */
static void to_squash_needs_capabilities(void)
{
	struct vhost_fs_export user = { .flags = VHOST_FS_EXPORT_SQUASH, .squash_uid = 1000 };
	struct vhost_fs_export group = { .flags = VHOST_FS_EXPORT_SQUASH, .squash_gid = 1000 };
	struct vhost_fs_export self = { .flags = VHOST_FS_EXPORT_SQUASH };

	EXPECT_EQ(try(user), 0);
	EXPECT_EQ(try(group), 0);
	EXPECT(!setgroups(0, NULL));
	drop_cap(CAP_SETUID);
	EXPECT_EQ(try(user), -EPERM);
	EXPECT_EQ(try(group), 0);
	drop_cap(CAP_SETGID);
	EXPECT_EQ(try(group), -EPERM);
	EXPECT_EQ(try(self), 0);
}

/* The only id that the mount maps, as the file system has it, and as its users see it. */
#define ON_DISK	5000
#define SEEN	1000

/* A user name space that maps it. */
static int open_user_ns(void)
{
	char command[200], name[64];
	int fds[2], ns;
	pid_t pid;
	char c;

	EXPECT(!pipe(fds));
	pid = fork();
	if (!pid) {
		if (!unshare(CLONE_NEWUSER) && write(fds[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(fds[1]);
	EXPECT(read(fds[0], &c, 1) == 1);
	snprintf(command, sizeof(command),
		 "cd /proc/%d && echo %d %d 1 >uid_map && echo %d %d 1 >gid_map", pid, ON_DISK,
		 SEEN, ON_DISK, SEEN);
	EXPECT(!system(command));
	snprintf(name, sizeof(name), "/proc/%d/ns/user", pid);
	ns = open(name, O_RDONLY | O_CLOEXEC);
	EXPECT(ns >= 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return ns;
}

/* An id-mapped mount on f->dir; returns the directory beneath, where ids are as on the disk. */
static int map_ids(struct fs *f)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = open_user_ns() };
	int below = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int tree = open_tree(AT_FDCWD, f->dir, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	EXPECT(below >= 0 && tree >= 0);
	EXPECT(!mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)));
	EXPECT(!move_mount(tree, "", AT_FDCWD, f->dir, MOVE_MOUNT_F_EMPTY_PATH));
	close(tree);
	return below;
}

/* A directory of one user's, which has a file, on a mount that maps no other user. */
static int begin_mapped(struct fs *f)
{
	int below;

	fs_make_dir(f, "tmpfs");
	fs_host_write(f, "one", "x", 1);
	EXPECT(!chown(f->dir, ON_DISK, ON_DISK));
	EXPECT(!chown(fs_path(f, "one"), ON_DISK, ON_DISK));
	below = map_ids(f);
	fs_open(f, NULL);
	f->uid = SEEN;
	f->gid = SEEN;
	return below;
}

static void names_are_made_for_whom_the_mount_maps(void)
{
	struct fuse_rename_in old = { .newdir = ROOT };
	struct stat st;
	struct fs f;
	int below;

	below = begin_mapped(&f);
	EXPECT_EQ(host_stat(&f, "one").st_uid, SEEN);
	EXPECT_EQ(fs_create(&f, ROOT, "new", O_RDWR, 0600, NULL, NULL), 0);
	EXPECT_EQ(fs_call_name(&f, FUSE_RENAME, ROOT, &old, sizeof(old), "new", "moved", 0), 0);
	EXPECT_EQ(link_it(&f, fs_node(&f, "moved"), ROOT, "linked"), 0);
	EXPECT_EQ(fs_rename(&f, ROOT, "linked", ROOT, "again", RENAME_NOREPLACE), 0);
	EXPECT(!fstatat(below, "again", &st, 0));
	EXPECT(st.st_uid == ON_DISK && st.st_nlink == 2);
	/* Those that it does not map make none. */
	f.uid = 0;
	EXPECT_EQ(fs_call_name(&f, FUSE_RENAME, ROOT, &old, sizeof(old), "again", "x", 0),
		  -EOVERFLOW);
	fs_close(&f);
}

/* An ACL with entries for one user and one group. */
static void fill_acl(u8 acl[52], u32 uid, u32 gid)
{
	static const u8 form[52] = {
		2, 0, 0, 0,
		1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff,
		2, 0, 4, 0, 0, 0, 0, 0,
		4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,
		8, 0, 4, 0, 0, 0, 0, 0,
		0x10, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,
		0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
	};

	memcpy(acl, form, sizeof(form));
	memcpy(acl + 16, &uid, 4);
	memcpy(acl + 32, &gid, 4);
}

static void ids_in_acls_are_mapped_as_owners_are(void)
{
	static const char *const name = "system.posix_acl_access";
	u8 acl[52], want[52], have[128];
	struct vhost_fs_info info;
	struct fs f;
	int fd;
	u64 node;

	fd = openat(begin_mapped(&f), "one", O_RDWR | O_CLOEXEC);
	EXPECT(fd >= 0);
	fs_info(&f, &info);
	if (!(info.fuse_flags & FUSE_POSIX_ACL))
		ktap_skip("no ACLs on tmpfs");
	node = fs_node(&f, "one");
	fill_acl(acl, SEEN, SEEN);
	EXPECT_EQ(fs_setxattr(&f, node, name, acl, sizeof(acl)), 0);
	fill_acl(want, ON_DISK, ON_DISK);
	EXPECT_EQ(fgetxattr(fd, name, have, sizeof(have)), sizeof(want));
	EXPECT(!memcmp(have, want, sizeof(want)));
	EXPECT_EQ(fs_getxattr(&f, node, name, NULL, 0), sizeof(acl));
	EXPECT_EQ(fs_getxattr(&f, node, name, have, sizeof(have)), sizeof(acl));
	EXPECT(!memcmp(have, acl, sizeof(acl)));
	/* The mount maps neither id: the guest gets the overflow id for each, and no rights. */
	EXPECT(!fsetxattr(fd, name, acl, sizeof(acl), 0));
	fill_acl(want, 65534, 65534);
	want[14] = 0;
	want[30] = 0;
	EXPECT_EQ(fs_getxattr(&f, node, name, have, sizeof(have)), sizeof(want));
	EXPECT(!memcmp(have, want, sizeof(want)));
	EXPECT_EQ(fs_setxattr(&f, node, name, want, sizeof(want)), -EINVAL);
	fs_close(&f);
}

/* It makes nothing for others, and may move what they have. */
static void an_opener_that_cannot_be_the_caller_moves_names(void)
{
	struct fuse_rename_in old = { .newdir = ROOT };
	struct fs f;

	fs_make_dir(&f, "tmpfs");
	fs_host_write(&f, "one", "x", 1);
	drop_cap(CAP_SETUID);
	fs_open(&f, NULL);
	f.uid = 1000;
	EXPECT_EQ(fs_mkdir(&f, ROOT, "d", 0755, NULL), -EPERM);
	EXPECT_EQ(fs_call_name(&f, FUSE_RENAME, ROOT, &old, sizeof(old), "one", "two", 0), 0);
	EXPECT_EQ(link_it(&f, fs_node(&f, "two"), ROOT, "three"), 0);
	EXPECT_EQ(fs_rename(&f, ROOT, "three", ROOT, "four", RENAME_NOREPLACE), 0);
	EXPECT_EQ(fs_rename(&f, ROOT, "four", ROOT, "five", RENAME_WHITEOUT), -EPERM);
	EXPECT(fs_host_there(&f, "four") && host_stat(&f, "two").st_nlink == 2);
	fs_close(&f);
}

static void write_proc(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	EXPECT(fd >= 0);
	EXPECT_EQ(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* Root of a user namespace in which root is the only user. */
static void enter_user_ns(void)
{
	EXPECT(!unshare(CLONE_NEWUSER | CLONE_NEWNS));
	write_proc("/proc/self/uid_map", "0 0 1");
	write_proc("/proc/self/setgroups", "deny");
	write_proc("/proc/self/gid_map", "0 0 1");
}

/*
 * Such an opener may link what linkat(2) would let it link with fs.protected_hardlinks=1.  It has
 * the poller of another guest, because it can make none.
 */
static void an_opener_in_a_user_namespace_links_no_files_of_others(void)
{
	struct fs f, other;
	u64 node;

	begin(&other, NULL);
	fs_host_write(&other, "roots", "x", 1);
	fs_host_write(&other, "users", "x", 1);
	EXPECT(!chown(fs_path(&other, "users"), 1000, 1000));
	EXPECT_EQ(link_it(&other, fs_node(&other, "users"), ROOT, "linked"), 0);
	enter_user_ns();
	fs_use_dir(&f, other.dir);
	f.beside = &other;
	fs_open(&f, NULL);
	EXPECT_EQ(link_it(&f, fs_node(&f, "roots"), ROOT, "own"), 0);
	node = fs_node(&f, "users");
	EXPECT_EQ(link_it(&f, node, ROOT, "another"), -EPERM);
	EXPECT(!fs_host_there(&f, "another"));
	fs_close(&f);
	fs_close(&other);
}

static const struct ktap_test tests[] = {
	{ "what_is_made_belongs_to_the_caller",
	  what_is_made_belongs_to_the_caller },
	{ "the_group_bit_needs_the_group", the_group_bit_needs_the_group },
	{ "set_id_bits_go_when_the_guest_says_so",
	  set_id_bits_go_when_the_guest_says_so },
	{ "set_id_bits_go_with_what_users_change", set_id_bits_go_with_what_users_change },
	{ "a_read_only_export_is_not_changed",
	  a_read_only_export_is_not_changed },
	{ "squashed_all_are_one_user", squashed_all_are_one_user },
	{ "a_squashed_user_links_what_he_may_write", a_squashed_user_links_what_he_may_write },
	{ "writing_back_gives_no_right_to_read", writing_back_gives_no_right_to_read },
	{ "privileged_attributes_go_by_policy",
	  privileged_attributes_go_by_policy },
	{ "no_attribute_is_no_request", no_attribute_is_no_request },
	{ "the_owner_may_leave_the_access_time", the_owner_may_leave_the_access_time },
	{ "exports_that_make_no_sense_are_refused",
	  exports_that_make_no_sense_are_refused },
	{ "to_squash_needs_capabilities", to_squash_needs_capabilities },
	{ "names_are_made_for_whom_the_mount_maps", names_are_made_for_whom_the_mount_maps },
	{ "ids_in_acls_are_mapped_as_owners_are", ids_in_acls_are_mapped_as_owners_are },
	{ "an_opener_in_a_user_namespace_links_no_files_of_others",
	  an_opener_in_a_user_namespace_links_no_files_of_others },
	{ "an_opener_that_cannot_be_the_caller_moves_names",
	  an_opener_that_cannot_be_the_caller_moves_names },
};

int main(int argc, char **argv)
{
	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), fs_cleanup);
}
