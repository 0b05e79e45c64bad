// SPDX-License-Identifier: GPL-2.0
/*
 * A guest that knows more files than it may pin: the others are swapped for file handles, come
 * back when they are used, and lead nowhere that they would not have led to before.  SEED=
 * repeats a run of the random case, ROUNDS= says how long it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fsrig.h"
#include "swapped.h"

/* swap_ext4_test.c and swap_xfs_test.c have the same tests for others. */
#ifndef FS_KIND
#define FS_KIND	"tmpfs"
#endif

static void more_files_than_the_cap_are_served(void)
{
	struct fs *f = begin();
	struct vhost_fs_info info;
	struct fuse_attr attr;
	u64 node[100], dir[5];
	char name[24];
	unsigned int i, k;

	for (i = 0; i < KTAP_COUNT(dir); i++) {
		snprintf(name, sizeof(name), "d%u", i);
		EXPECT(!mkdir(fs_path(f, name), 0755));
		dir[i] = fs_node(f, name);
	}
	for (i = 0; i < KTAP_COUNT(node); i++) {
		snprintf(name, sizeof(name), "d%u/f%u", i % 5, i);
		host_file(f, name);
		EXPECT_EQ(fs_lookup(f, dir[i % 5], name + 3, NULL), 0);
		node[i] = ((struct fuse_entry_out *)f->reply)->nodeid;
		fs_info(f, &info);
		EXPECT(info.dentries <= CAP);
	}
	EXPECT_EQ(info.max_dentries, CAP);
	EXPECT_EQ(info.nodes, KTAP_COUNT(node) + KTAP_COUNT(dir));
	EXPECT(info.swapped_out >= KTAP_COUNT(node));
	for (k = 0; k < 2; k++) {
		for (i = 0; i < KTAP_COUNT(node); i++) {
			snprintf(name, sizeof(name), "d%u/f%u", i % 5, i);
			EXPECT_EQ(fs_getattr(f, node[i], &attr), 0);
			EXPECT_EQ(attr.size, strlen(name));
			EXPECT_EQ(reads(f, node[i], name), 0);
		}
		host_drops();
	}
	fs_info(f, &info);
	EXPECT(info.swapped_in >= 2 * KTAP_COUNT(node));
	EXPECT_EQ(info.refused, 0);
	for (i = 0; i < KTAP_COUNT(node); i++) {
		snprintf(name, sizeof(name), "f%u", i);
		EXPECT_EQ(fs_lookup(f, dir[i % 5], name, NULL), 0);
		EXPECT_EQ(((struct fuse_entry_out *)f->reply)->nodeid, node[i]);
		fs_forget(f, node[i], 2);
	}
	for (i = 0; i < KTAP_COUNT(dir); i++)
		fs_forget(f, dir[i], 1);
	fs_info(f, &info);
	EXPECT_EQ(info.nodes, 0);
	EXPECT_EQ(info.dentries, 0);
	end(f);
}

/* Each in a way of its own. */
static void operations_bring_their_nodes_back(void)
{
	struct fs *f = begin();
	struct fuse_link_in link = { 0 };
	u64 a, b, one, before, fh;
	struct fuse_entry_out e;

	EXPECT(!mkdir(fs_path(f, "a"), 0755));
	EXPECT(!mkdir(fs_path(f, "b"), 0755));
	host_file(f, "a/one");
	a = fs_node(f, "a");
	b = fs_node(f, "b");
	one = fs_node(f, "a/one");
	swap_all(f);
	host_drops();
	before = came_back(f);
	EXPECT_EQ(fs_rename(f, a, "one", b, "two", 0), 0);
	EXPECT_EQ(came_back(f), before + 2);
	swap_all(f);
	before = came_back(f);
	link.oldnodeid = one;
	EXPECT_EQ(fs_call_name(f, FUSE_LINK, a, &link, sizeof(link), "three", NULL,
			       sizeof(struct fuse_entry_out)), 0);
	EXPECT_EQ(came_back(f), before + 2);
	swap_all(f);
	host_drops();
	before = came_back(f);
	EXPECT_EQ(fs_lookup(f, b, "two", NULL), 0);
	EXPECT_EQ(((struct fuse_entry_out *)f->reply)->nodeid, one);
	EXPECT_EQ(came_back(f), before + 2);
	swap_all(f);
	EXPECT_EQ(fs_create(f, b, "two", O_RDWR, 0600, &e, &fh), 0);
	EXPECT_EQ(e.nodeid, one);
	EXPECT_EQ(fs_release(f, one, fh), 0);
	swap_all(f);
	EXPECT_EQ(fs_remove(f, FUSE_UNLINK, a, "three"), 0);
	EXPECT_EQ(fs_lookup(f, b, "..", NULL), 0);
	EXPECT_EQ(((struct fuse_entry_out *)f->reply)->nodeid, ROOT);
	end(f);
}

static void what_is_swapped_can_be_forgotten(void)
{
	struct fs *f = begin();
	struct vhost_fs_info info;
	u64 one;

	host_file(f, "one");
	one = fs_node(f, "one");
	fs_node(f, "one");
	swap_all(f);
	fs_info(f, &info);
	EXPECT_EQ(info.nodes, 1);
	fs_forget(f, one, 1);
	EXPECT_EQ(reads(f, one, "one"), 0);
	swap_all(f);
	fs_forget(f, one, 1);
	fs_info(f, &info);
	EXPECT_EQ(info.nodes, 0);
	EXPECT_EQ(fs_getattr(f, one, NULL), -ESTALE);
	EXPECT(fs_node(f, "one") != one);
	/* all of them, by the end of the session */
	swap_all(f);
	EXPECT_EQ(fs_init(f, ~0ULL, NULL), 0);
	fs_info(f, &info);
	EXPECT_EQ(info.nodes, 0);
	end(f);
}

static void what_was_removed_does_not_come_back(void)
{
	struct fs *f = begin();
	u64 one, dir, new;

	host_file(f, "one");
	EXPECT(!mkdir(fs_path(f, "dir"), 0755));
	one = fs_node(f, "one");
	dir = fs_node(f, "dir");
	swap_all(f);
	EXPECT(!unlink(fs_path(f, "one")));
	EXPECT(!rmdir(fs_path(f, "dir")));
	EXPECT_EQ(fs_getattr(f, one, NULL), -ESTALE);
	EXPECT_EQ(fs_getattr(f, dir, NULL), -ESTALE);
	/* and its name is another file's */
	host_file(f, "one");
	EXPECT_EQ(fs_getattr(f, one, NULL), -ESTALE);
	new = fs_node(f, "one");
	EXPECT(new != one);
	swap_all(f);
	host_file(f, "two");
	host_move(f, "two", "one");
	EXPECT_EQ(fs_getattr(f, new, NULL), -ESTALE);
	EXPECT_EQ(reads(f, fs_node(f, "one"), "two"), 0);
	end(f);
}

/* What is removed after the guest has come to know it is a file until it is swapped: never. */
static void what_was_removed_before_is_kept(void)
{
	struct fs *f = begin();
	struct fuse_attr attr;
	u64 one;

	host_file(f, "one");
	one = fs_node(f, "one");
	EXPECT(!unlink(fs_path(f, "one")));
	fs_node(f, "filler0");
	EXPECT_EQ(fs_getattr(f, one, &attr), 0);
	EXPECT_EQ(attr.nlink, 0);
	EXPECT_EQ(reads(f, one, "one"), 0);
	end(f);
}

static u64 inode_of(struct fs *f, const char *name)
{
	struct stat st;

	EXPECT(!stat(fs_path(f, name), &st));
	return st.st_ino;
}

/* The new file has the number of the old one, and not its generation. */
static void the_number_of_an_inode_is_not_enough(void)
{
	struct fs *f = begin();
	unsigned int tries;
	u64 one, ino;

	host_file(f, "one");
	one = fs_node(f, "one");
	ino = inode_of(f, "one");
	swap_all(f);
	host_drops();
	EXPECT(!unlink(fs_path(f, "one")));
	for (tries = 0; tries < 50; tries++) {
		host_file(f, "two");
		if (inode_of(f, "two") == ino)
			break;
		EXPECT(!unlink(fs_path(f, "two")));
		sync();
	}
	if (tries == 50) {
		ktap_msg("no number was used again");
		EXPECT(strcmp(FS_KIND, "ext4"));
		host_file(f, "two");
	}
	EXPECT_EQ(fs_getattr(f, one, NULL), -ESTALE);
	EXPECT(fs_node(f, "two") != one);
	end(f);
}

static void renames_inside_are_followed(void)
{
	struct fs *f = begin();
	u64 one, dir, in;

	EXPECT(!mkdir(fs_path(f, "d"), 0755));
	EXPECT(!mkdir(fs_path(f, "e"), 0755));
	host_file(f, "d/one");
	host_file(f, "d/in");
	dir = fs_node(f, "d");
	one = fs_node(f, "d/one");
	in = fs_node(f, "d/in");
	swap_all(f);
	/* in its directory: it is searched */
	host_move(f, "d/one", "d/two");
	EXPECT_EQ(reads(f, one, "d/one"), 0);
	swap_all(f);
	host_move(f, "d/two", "d/three");
	host_drops();
	EXPECT_EQ(reads(f, one, "d/one"), 0);
	/* a directory, and what is beneath it */
	swap_all(f);
	host_move(f, "d", "e/f");
	host_drops();
	EXPECT_EQ(reads(f, in, "d/in"), 0);
	EXPECT_EQ(fs_lookup(f, dir, "three", NULL), 0);
	EXPECT_EQ(((struct fuse_entry_out *)f->reply)->nodeid, one);
	/* to another directory: while the host knows where */
	swap_all(f);
	host_move(f, "e/f/three", "one");
	EXPECT_EQ(reads(f, one, "d/one"), 0);
	/* or once the guest has come by it */
	swap_all(f);
	host_move(f, "one", "e/one");
	host_drops();
	EXPECT_EQ(reads(f, one, "d/one"), drops_names() ? -ESTALE : 0);
	EXPECT_EQ(fs_node(f, "e/one"), one);
	EXPECT_EQ(reads(f, one, "d/one"), 0);
	end(f);
}

static void moves_out_are_no_way_out(void)
{
	struct fs *f = begin();
	unsigned int i;
	u64 one, dir, in;

	EXPECT(!mkdir(fs_path(f, "d"), 0755));
	host_file(f, "one");
	host_file(f, "d/in");
	one = fs_node(f, "one");
	dir = fs_node(f, "d");
	in = fs_node(f, "d/in");
	for (i = 0; i < 2; i++) {
		swap_all(f);
		host_move(f, "one", "../one");
		host_move(f, "d", "../d");
		if (i)
			host_drops();
		EXPECT_EQ(fs_getattr(f, one, NULL), -ESTALE);
		EXPECT_EQ(fs_getattr(f, dir, NULL), -ESTALE);
		EXPECT_EQ(fs_getattr(f, in, NULL), -ESTALE);
		EXPECT_EQ(fs_open_node(f, in, O_RDWR, NULL), -ESTALE);
		EXPECT_EQ(fs_lookup(f, dir, "in", NULL), -ESTALE);
		EXPECT_EQ(fs_lookup(f, dir, "..", NULL), -ESTALE);
		EXPECT_EQ(fs_rename(f, dir, "in", ROOT, "in", 0), -ESTALE);
		EXPECT_EQ(fs_rename(f, ROOT, "filler0", dir, "x", 0), -ESTALE);
		/* and back */
		host_move(f, "../one", "one");
		host_move(f, "../d", "d");
		EXPECT_EQ(reads(f, one, "one"), 0);
		EXPECT_EQ(reads(f, in, "d/in"), 0);
	}
	end(f);
}

/* One that is known outside only, to the host, and has a name inside. */
static void links_outside_are_no_way_out(void)
{
	struct fs *f = begin();
	struct stat st;
	u64 one;

	EXPECT(!mkdir(fs_path(f, "d"), 0755));
	host_file(f, "d/one");
	EXPECT(!link(fs_path(f, "d/one"), fs_path(f, "../one")));
	one = fs_node(f, "d/one");
	swap_all(f);
	host_drops();
	EXPECT(!stat(fs_path(f, "../one"), &st));
	EXPECT_EQ(reads(f, one, "d/one"), 0);
	/* Then it has none inside. */
	swap_all(f);
	host_drops();
	EXPECT(!unlink(fs_path(f, "d/one")));
	EXPECT(!stat(fs_path(f, "../one"), &st));
	EXPECT_EQ(fs_getattr(f, one, NULL), -ESTALE);
	EXPECT_EQ(fs_open_node(f, one, O_RDWR, NULL), -ESTALE);
	/* Another one inside will do, once the guest has come by it. */
	EXPECT(!link(fs_path(f, "../one"), fs_path(f, "two")));
	EXPECT_EQ(fs_node(f, "two"), one);
	EXPECT_EQ(reads(f, one, "d/one"), 0);
	end(f);
}

static void what_is_open_is_not_swapped(void)
{
	struct fs *f = begin();
	struct fuse_entry_out e;
	char buf[8] = "";
	u64 fh, made, before;
	char name[16];
	unsigned int i;
	u64 one;

	host_file(f, "one");
	one = fs_node(f, "one");
	EXPECT_EQ(fs_open_node(f, one, O_RDWR, &fh), 0);
	EXPECT_EQ(fs_create(f, ROOT, "new", O_RDWR, 0600, &e, &made), 0);
	for (i = 0; i < FILLERS; i++) {
		snprintf(name, sizeof(name), "filler%u", i);
		EXPECT_EQ(fs_lookup(f, ROOT, name, NULL), 0);
	}
	EXPECT(!unlink(fs_path(f, "one")));
	EXPECT(!unlink(fs_path(f, "new")));
	host_drops();
	before = came_back(f);
	EXPECT_EQ(fs_read(f, one, fh, 0, sizeof(buf), buf), 3);
	EXPECT(!strcmp(buf, "one"));
	EXPECT_EQ(fs_write(f, e.nodeid, made, 0, "data", 4), 4);
	EXPECT_EQ(came_back(f), before);
	EXPECT_EQ(fs_release(f, one, fh), 0);
	EXPECT_EQ(fs_release(f, e.nodeid, made), 0);
	end(f);
}

/* @live: filler1, @swapped: known */
static void what_is_known_needs_no_room(struct fs *f, u64 live, u64 swapped)
{
	struct fuse_link_in link = { .oldnodeid = live };
	struct vhost_fs_info info;
	struct fuse_entry_out e;
	u64 fh, before;

	fs_info(f, &info);
	before = info.refused;
	EXPECT_EQ(known_child(f, ROOT, "filler1"), live);
	EXPECT_EQ(fs_create(f, ROOT, "filler1", O_RDWR, 0600, &e, &fh), 0);
	EXPECT_EQ(e.nodeid, live);
	EXPECT_EQ(fs_release(f, live, fh), 0);
	EXPECT_EQ(fs_call_name(f, FUSE_LINK, ROOT, &link, sizeof(link), "link", NULL,
			       sizeof(e)), 0);
	EXPECT_EQ(known_child(f, ROOT, "known"), swapped);
	fs_info(f, &info);
	EXPECT_EQ(info.refused, before);
	EXPECT_EQ(info.dentries, CAP);
	/* This is another matter. */
	EXPECT_EQ(fs_create(f, ROOT, "known", O_RDWR, 0600, NULL, NULL), -ENFILE);
	EXPECT_EQ(fs_getattr(f, swapped, NULL), -ENFILE);
}

static void no_room_is_enfile_and_leaves_nothing_behind(void)
{
	struct fs *f = begin();
	struct vhost_fs_info info;
	u64 node[CAP], fh[CAP], known;
	char name[16];
	unsigned int i;

	host_file(f, "known");
	known = fs_node(f, "known");
	swap_all(f);
	for (i = 0; i < CAP; i++) {
		snprintf(name, sizeof(name), "filler%u", i);
		node[i] = fs_node(f, name);
		EXPECT_EQ(fs_open_node(f, node[i], O_RDONLY, &fh[i]), 0);
	}
	host_file(f, "one");
	EXPECT_EQ(fs_lookup(f, ROOT, "one", NULL), -ENFILE);
	EXPECT_EQ(fs_mkdir(f, ROOT, "new", 0755, NULL), -ENFILE);
	EXPECT_EQ(fs_create(f, ROOT, "new", O_RDWR, 0600, NULL, NULL), -ENFILE);
	EXPECT(!fs_host_there(f, "new"));
	fs_info(f, &info);
	EXPECT_EQ(info.refused, 3);
	EXPECT_EQ(info.dentries, CAP);
	what_is_known_needs_no_room(f, node[1], known);
	EXPECT_EQ(fs_release(f, node[0], fh[0]), 0);
	EXPECT_EQ(reads(f, fs_node(f, "one"), "one"), 0);
	EXPECT_EQ(fs_mkdir(f, ROOT, "new", 0755, NULL), 0);
	/* It was counted. */
	fs_forget(f, known, 1);
	EXPECT_EQ(reads(f, known, "known"), 0);
	end(f);
}

/* ramfs has no file handles. */
static void without_file_handles_the_cap_is_the_limit(void)
{
	struct vhost_fs_export export = { .max_dentries = CAP };
	struct vhost_fs_info info;
	struct fs f;
	char name[16];
	unsigned int i;

	fs_make_dir(&f, "tmpfs");
	EXPECT(!mount("r", f.dir, "ramfs", 0, NULL));
	fs_open(&f, &export);
	for (i = 0; i < CAP + 3; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		fs_host_write(&f, name, "", 0);
		EXPECT_EQ(fs_lookup(&f, ROOT, name, NULL), i < CAP ? 0 : -ENFILE);
	}
	fs_info(&f, &info);
	EXPECT_EQ(info.swapped_out, 0);
	EXPECT_EQ(info.nodes, CAP);
	fs_close(&f);
}

static void nodes_of_a_submount_stay_in_it(void)
{
	struct fs *f = begin_with(VHOST_FS_EXPORT_SUBMOUNTS, CAP);
	u64 sub, one;

	EXPECT(!mkdir(fs_path(f, "sub"), 0755));
	EXPECT(!mount("sub", fs_path(f, "sub"), "tmpfs", 0, "mode=755"));
	host_file(f, "sub/one");
	sub = fs_node(f, "sub");
	one = fs_node(f, "sub/one");
	fs_node(f, "filler0");
	fs_node(f, "filler1");
	fs_node(f, "filler2");
	fs_node(f, "filler3");
	EXPECT_EQ(reads(f, one, "sub/one"), 0);
	EXPECT_EQ(came_back(f), 1);
	EXPECT_EQ(fs_getattr(f, sub, NULL), 0);
	EXPECT_EQ(came_back(f), 1);
	fs_node(f, "filler4");
	fs_node(f, "filler5");
	fs_node(f, "filler6");
	fs_node(f, "filler7");
	EXPECT(umount2(fs_path(f, "sub"), 0) < 0 && errno == EBUSY);
	EXPECT(!umount2(fs_path(f, "sub"), MNT_DETACH));
	usleep(20000);
	EXPECT_EQ(fs_getattr(f, one, NULL), -ESTALE);
	end(f);
}

/* All that name one node at once get it, and it comes back once. */
static void requests_that_come_at_once_agree(void)
{
	struct {
		struct fuse_in_header ih;
		struct fuse_getattr_in arg;
	} in = {};
	struct fs_raw raw = {
		.in = &in, .in_len = sizeof(in),
		.out_room = sizeof(struct fuse_out_header) + sizeof(struct fuse_attr_out),
	};
	struct fs *f = begin();
	unsigned int i, k;
	u64 one, before;

	host_file(f, "one");
	one = fs_node(f, "one");
	for (k = 0; k < 20; k++) {
		swap_all(f);
		if (k & 1)
			host_drops();
		before = came_back(f);
		for (i = 0; i < FS_SLOTS; i++) {
			fs_header(f, &in.ih, FUSE_GETATTR, one, sizeof(in.arg));
			raw.queue = 1 + i % 2;
			fs_send(f, i, &raw);
		}
		for (i = 0; i < FS_SLOTS; i++) {
			fs_wait(f, i, 1 + i % 2);
			EXPECT_EQ(fs_answer(f, i), 0);
		}
		EXPECT_EQ(came_back(f), before + 1);
	}
	end(f);
}

static u64 seed;

static u64 rnd(u64 below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 8) % below;
}

static unsigned int rounds(void)
{
	const char *s = getenv("ROUNDS");

	return s ? strtoul(s, NULL, 0) : 600;
}

#define FILES	24

enum place { IN_A, IN_B, OUTSIDE, REMOVED };

struct file {
	enum place at;
	unsigned int number;	/* a new one is a new file */
	u64 node;		/* that the guest knows, or 0 */
	unsigned int known;	/* the number of the file that it knew */
	u64 count;
	char path[32];
};

static const char *path_of(const struct file *file, enum place at, unsigned int i)
{
	static const char *const dirs[] = { "a", "b", "../out" };
	static char path[2][40];
	static unsigned int n;

	n ^= 1;
	snprintf(path[n], sizeof(path[n]), "%s/%u.%u", dirs[at], i, file->number);
	return path[n];
}

static void host_makes(struct fs *f, struct file *file, unsigned int i)
{
	file->number++;
	file->at = IN_A;
	snprintf(file->path, sizeof(file->path), "%u.%u", i, file->number);
	fs_host_write(f, path_of(file, IN_A, i), file->path, strlen(file->path));
}

static void host_changes(struct fs *f, struct file *file, unsigned int i)
{
	enum place to = rnd(4);

	if (file->at == REMOVED) {
		host_makes(f, file, i);
	} else if (to == REMOVED) {
		EXPECT(!unlink(fs_path(f, path_of(file, file->at, i))));
		file->at = REMOVED;
	} else {
		host_move(f, path_of(file, file->at, i), path_of(file, to, i));
		file->at = to;
	}
}

static void guest_forgets(struct fs *f, struct file *file)
{
	if (file->node)
		fs_forget(f, file->node, file->count);
	file->node = 0;
}

static void guest_looks_up(struct fs *f, struct file *file, unsigned int i, const u64 *dirs)
{
	struct fuse_entry_out e;

	if (file->at > IN_B)
		return;
	EXPECT_EQ(fs_lookup(f, dirs[file->at], strchr(path_of(file, file->at, i), '/') + 1, &e), 0);
	if (file->node && file->known == file->number)
		EXPECT_EQ(e.nodeid, file->node);
	else
		guest_forgets(f, file);
	if (!file->node)
		file->count = 0;
	file->node = e.nodeid;
	file->known = file->number;
	file->count++;
	EXPECT_EQ(reads(f, file->node, file->path), 0);
}

/* By its number alone: it may be lost, but it is never another file, and never outside. */
static void guest_uses(struct fs *f, struct file *file)
{
	struct fuse_attr attr;
	int r;

	if (!file->node)
		return;
	r = fs_getattr(f, file->node, &attr);
	EXPECT(!r || r == -ESTALE);
	if (file->known != file->number || file->at == REMOVED) {
		EXPECT(r || !attr.nlink);
		return;
	}
	EXPECT(r || file->at != OUTSIDE);
	if (!r)
		EXPECT_EQ(reads(f, file->node, file->path), 0);
}

static void whatever_happens_a_node_is_its_file(void)
{
	struct fs *f = begin_with(0, 8);
	static struct file files[FILES];
	struct vhost_fs_info info;
	u64 dirs[2];
	unsigned int i, k;

	seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : (u64)getpid() * 2654435761U;
	ktap_msg("SEED=%llu", (unsigned long long)seed);
	memset(files, 0, sizeof(files));
	EXPECT(!mkdir(fs_path(f, "a"), 0755));
	EXPECT(!mkdir(fs_path(f, "b"), 0755));
	EXPECT(!mkdir(fs_path(f, "../out"), 0755));
	dirs[0] = fs_node(f, "a");
	dirs[1] = fs_node(f, "b");
	for (i = 0; i < FILES; i++)
		host_makes(f, &files[i], i);
	for (k = 0; k < rounds(); k++) {
		i = rnd(FILES);
		switch (rnd(10)) {
		case 0:
		case 1:
			host_changes(f, &files[i], i);
			break;
		case 2:
			guest_forgets(f, &files[i]);
			break;
		case 3:
		case 4:
		case 5:
			guest_looks_up(f, &files[i], i, dirs);
			break;
		default:
			guest_uses(f, &files[i]);
		}
		if (!(k % 100))
			host_drops();
	}
	fs_info(f, &info);
	EXPECT(info.swapped_in > 0);
	EXPECT_EQ(info.refused, 0);
	for (i = 0; i < FILES; i++)
		guest_forgets(f, &files[i]);
	fs_info(f, &info);
	EXPECT_EQ(info.nodes, 2);
	end(f);
}

/* The host moves a directory in and out, and drops what it knows, meanwhile. */
static void storm(struct fs *f)
{
	unsigned int i;

	for (i = 0;; i++) {
		host_move(f, "d", "../d");
		if (!(i % 64))
			host_drops();
		host_move(f, "../d", "d");
		host_move(f, "d/f0", "e/f0");
		host_move(f, "e/f0", "d/f0");
	}
}

static u32 storm_request(struct fs *f, void *in, u64 dir, const u64 *node)
{
	struct fuse_in_header *ih = in;
	char *arg = (char *)(ih + 1);
	u32 len;

	memset(arg, 0, 64);
	switch (rnd(4)) {
	case 0:
		len = 1 + sprintf(arg, "f%u", (unsigned int)rnd(8));
		fs_header(f, ih, FUSE_LOOKUP, dir, len);
		break;
	case 1:
		((struct fuse_forget_in *)arg)->nlookup = 1 + rnd(2);
		len = sizeof(struct fuse_forget_in);
		fs_header(f, ih, FUSE_FORGET, node[rnd(8)] + rnd(64), len);
		break;
	case 2:
		len = sizeof(struct fuse_access_in);
		fs_header(f, ih, FUSE_ACCESS, node[rnd(8)], len);
		break;
	default:
		len = sizeof(struct fuse_getattr_in);
		fs_header(f, ih, FUSE_GETATTR, node[rnd(8)], len);
	}
	return sizeof(*ih) + len;
}

static void a_storm_of_everything_leaves_nothing_behind(void)
{
	struct fs *f = begin_with(0, 8);
	u64 in[64], node[8], dir;
	struct fs_raw raw = { .in = in, .out_room = 200 };
	struct vhost_fs_info info;
	unsigned int i, k;
	char name[16];
	pid_t pid;
	int r;

	EXPECT(!mkdir(fs_path(f, "d"), 0755));
	EXPECT(!mkdir(fs_path(f, "e"), 0755));
	for (i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "d/f%u", i);
		host_file(f, name);
		node[i] = fs_node(f, name);
	}
	dir = fs_node(f, "d");
	seed = 88172645463325252ULL;
	pid = fork();
	EXPECT(pid >= 0);
	if (!pid)
		storm(f);
	for (k = 0; k < rounds(); k += FS_SLOTS) {
		for (i = 0; i < FS_SLOTS; i++) {
			raw.queue = 1 + i % 2;
			raw.in_len = storm_request(f, in, dir, node);
			fs_send(f, i, &raw);
		}
		for (i = 0; i < FS_SLOTS; i++) {
			if (!fs_wait(f, i, 1 + i % 2))
				continue;
			r = fs_answer(f, i);
			EXPECT(!r || r == -ESTALE || r == -ENOENT || r == -ENFILE);
			/* what a LOOKUP has found may be any number */
			if (!r && f->reply_len == sizeof(struct fuse_entry_out))
				node[rnd(8)] = ((struct fuse_entry_out *)f->reply)->nodeid;
		}
	}
	kill(pid, SIGKILL);
	EXPECT_EQ(waitpid(pid, NULL, 0), pid);
	EXPECT_EQ(fs_init(f, ~0ULL, NULL), 0);
	fs_info(f, &info);
	EXPECT_EQ(info.nodes, 0);
	EXPECT_EQ(info.handles, 0);
	EXPECT_EQ(info.dentries, 0);
	end(f);
	EXPECT(!umount("/tmp/vhost_fs"));
}

static const struct ktap_test tests[] = {
	{ "more_files_than_the_cap_are_served", more_files_than_the_cap_are_served },
	{ "operations_bring_their_nodes_back", operations_bring_their_nodes_back },
	{ "what_is_swapped_can_be_forgotten", what_is_swapped_can_be_forgotten },
	{ "what_was_removed_does_not_come_back", what_was_removed_does_not_come_back },
	{ "what_was_removed_before_is_kept", what_was_removed_before_is_kept },
	{ "the_number_of_an_inode_is_not_enough", the_number_of_an_inode_is_not_enough },
	{ "renames_inside_are_followed", renames_inside_are_followed },
	{ "moves_out_are_no_way_out", moves_out_are_no_way_out },
	{ "links_outside_are_no_way_out", links_outside_are_no_way_out },
	{ "what_is_open_is_not_swapped", what_is_open_is_not_swapped },
	{ "no_room_is_enfile_and_leaves_nothing_behind",
	  no_room_is_enfile_and_leaves_nothing_behind },
	{ "without_file_handles_the_cap_is_the_limit",
	  without_file_handles_the_cap_is_the_limit },
	{ "nodes_of_a_submount_stay_in_it", nodes_of_a_submount_stay_in_it },
	{ "requests_that_come_at_once_agree", requests_that_come_at_once_agree },
	{ "whatever_happens_a_node_is_its_file", whatever_happens_a_node_is_its_file },
	{ "a_storm_of_everything_leaves_nothing_behind",
	  a_storm_of_everything_leaves_nothing_behind },
};

int main(int argc, char **argv)
{
	swap_kind = FS_KIND;
	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), fs_cleanup);
}
