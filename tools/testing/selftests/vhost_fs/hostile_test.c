// SPDX-License-Identifier: GPL-2.0
/*
 * A guest that means harm: requests that lie, and ways out of the directory.  None
 * of them may do anything but fail.  RANDOM= says how many random ones, SEED=
 * repeats a run.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fsrig.h"

#define ROOT	FUSE_ROOT_ID
#define ENTRY	sizeof(struct fuse_entry_out)
#define HEADER	sizeof(struct fuse_in_header)

static void begin(struct fs *f, const struct vhost_fs_export *export)
{
	fs_make_dir(f, "tmpfs");
	fs_open(f, export);
}

/* Nothing that was played has kept it from its work. */
static void works(struct fs *f)
{
	struct fuse_entry_out e;
	u64 fh;

	EXPECT_EQ(fs_create(f, ROOT, "works", O_RDWR, 0600, &e, &fh), 0);
	EXPECT_EQ(fs_write(f, e.nodeid, fh, 0, "yes", 3), 3);
	EXPECT(fs_host_is(f, "works", "yes", 3));
	EXPECT_EQ(fs_release(f, e.nodeid, fh), 0);
	EXPECT_EQ(fs_remove(f, FUSE_UNLINK, ROOT, "works"), 0);
	EXPECT(fs_host_is(f, "../secret", "secret", 6));
}

/* A request of @opcode with @len bytes of arguments, and a header that says so. */
static u32 play(struct fs *f, u32 opcode, u64 node, const void *arg, u32 len,
		u32 says, u32 room)
{
	static u8 in[100 << 10];
	struct fuse_in_header *ih = (void *)in;

	*ih = (struct fuse_in_header){
		.len = says, .opcode = opcode, .nodeid = node,
		.unique = f->unique += 2,
	};
	memcpy(in + HEADER, arg, len);
	return fs_play(f, &(struct fs_raw){ .in = in, .in_len = HEADER + len,
					    .out_room = room, .queue = 1 });
}

static void lengths_that_lie_are_refused(void)
{
	struct fuse_getattr_in in = {};
	struct fs f;
	u32 n;

	begin(&f, NULL);
	/* the header says more than there is, less than itself, nothing */
	EXPECT_EQ(play(&f, FUSE_GETATTR, ROOT, &in, 16, HEADER + 17, 200), 16);
	EXPECT_EQ(fs_answer(&f, 0), -EINVAL);
	EXPECT_EQ(play(&f, FUSE_GETATTR, ROOT, &in, 16, HEADER - 1, 200), 16);
	EXPECT_EQ(fs_answer(&f, 0), -EINVAL);
	EXPECT_EQ(play(&f, FUSE_GETATTR, ROOT, &in, 16, ~0U, 200), 16);
	EXPECT_EQ(fs_answer(&f, 0), -EINVAL);
	/* arguments that are too short, or too long */
	EXPECT_EQ(play(&f, FUSE_GETATTR, ROOT, &in, 16, HEADER + 15, 200), 16);
	EXPECT_EQ(fs_answer(&f, 0), -EINVAL);
	EXPECT_EQ(play(&f, FUSE_GETATTR, ROOT, "0123456789abcdefg", 17,
		       HEADER + 17, 200), 16);
	EXPECT_EQ(fs_answer(&f, 0), -EINVAL);
	/* not even a header */
	for (n = 1; n < HEADER; n++)
		EXPECT_EQ(fs_play(&f, &(struct fs_raw){
			.in = &in, .in_len = n < 16 ? n : 16, .out_room = 200,
			.queue = 1 }), 0);
	works(&f);
	fs_close(&f);
}

static void data_that_lie_are_refused(void)
{
	struct fuse_write_in in = { .size = 100 };
	struct fuse_setxattr_in x = { .size = 100 };
	char buf[64] = { 0 };
	struct fs f;
	u64 node;

	begin(&f, NULL);
	fs_host_write(&f, "one", "", 0);
	node = fs_node(&f, "one");
	EXPECT_EQ(fs_open_node(&f, node, O_RDWR, (u64 *)&in.fh), 0);
	EXPECT_EQ(fs_call_data(&f, FUSE_WRITE, node, &in, sizeof(in), "short", 5,
			       8), -EINVAL);
	in.size = 2 << 20;
	EXPECT_EQ(fs_call_data(&f, FUSE_WRITE, node, &in, sizeof(in), "short", 5,
			       8), -EINVAL);
	EXPECT(fs_host_is(&f, "one", "", 0));
	memcpy(buf, &x, 16);
	memcpy(buf + 16, "user.a\0v", 8);
	EXPECT_EQ(fs_call(&f, FUSE_SETXATTR, node, buf, 24, 0), -EINVAL);
	works(&f);
	fs_close(&f);
}

static void names_that_are_none_are_refused(void)
{
	static const char *const bad[] = { "", ".", "..", "a/b", "/", "../secret" };
	struct fuse_mkdir_in mk = { .mode = 0755 };
	char longer[300];
	unsigned int i;
	struct fs f;

	begin(&f, NULL);
	fs_host_write(&f, "one", "", 0);
	for (i = 0; i < KTAP_COUNT(bad); i++) {
		EXPECT_EQ(fs_mkdir(&f, ROOT, bad[i], 0755, NULL), -EINVAL);
		EXPECT_EQ(fs_remove(&f, FUSE_UNLINK, ROOT, bad[i]), -EINVAL);
		EXPECT_EQ(fs_remove(&f, FUSE_RMDIR, ROOT, bad[i]), -EINVAL);
		EXPECT_EQ(fs_create(&f, ROOT, bad[i], O_RDWR, 0600, NULL, NULL),
			  -EINVAL);
		EXPECT_EQ(fs_rename(&f, ROOT, bad[i], ROOT, "x", 0), -EINVAL);
		EXPECT_EQ(fs_rename(&f, ROOT, "one", ROOT, bad[i], 0), -EINVAL);
		if (!strchr(bad[i], '.') || strchr(bad[i], '/'))
			EXPECT_EQ(fs_lookup(&f, ROOT, bad[i], NULL), -EINVAL);
	}
	memset(longer, 'x', sizeof(longer));
	longer[256] = 0;
	EXPECT_EQ(fs_lookup(&f, ROOT, longer, NULL), -ENAMETOOLONG);
	EXPECT_EQ(fs_mkdir(&f, ROOT, longer, 0755, NULL), -ENAMETOOLONG);
	longer[255] = 0;
	EXPECT_EQ(fs_mkdir(&f, ROOT, longer, 0755, NULL), 0);
	/* a name without an end, one with a NUL within, two where one is due */
	EXPECT_EQ(fs_call(&f, FUSE_LOOKUP, ROOT, "one", 3, ENTRY), -EINVAL);
	EXPECT_EQ(fs_call(&f, FUSE_LOOKUP, ROOT, "on\0e", 5, ENTRY), -EINVAL);
	EXPECT_EQ(fs_call(&f, FUSE_LOOKUP, ROOT, NULL, 0, ENTRY), -EINVAL);
	EXPECT_EQ(fs_call(&f, FUSE_MKDIR, ROOT, &mk, sizeof(mk), ENTRY),
		  -EINVAL);
	works(&f);
	fs_close(&f);
}

static void replies_that_do_not_fit_are_not_begun(void)
{
	struct fuse_mkdir_in mk = { .mode = 0755 };
	char buf[64];
	struct fs f;
	u32 room;

	begin(&f, NULL);
	memcpy(buf, &mk, sizeof(mk));
	memcpy(buf + sizeof(mk), "d", 2);
	for (room = 0; room < 16 + ENTRY; room += 4) {
		u32 used = play(&f, FUSE_MKDIR, ROOT, buf, sizeof(mk) + 2,
				HEADER + sizeof(mk) + 2, room);

		EXPECT_EQ(used, room < 16 ? 0 : 16);
		EXPECT(!fs_host_there(&f, "d"));
	}
	works(&f);
	fs_close(&f);
}

static void ids_that_were_never_given_are_refused(void)
{
	static const u64 ids[] = { 0, 2, 3, 1000, 1ULL << 32, 1ULL << 63, -1ULL };
	struct fuse_link_in link;
	unsigned int i;
	struct fs f;

	begin(&f, NULL);
	for (i = 0; i < KTAP_COUNT(ids); i++) {
		EXPECT_EQ(fs_getattr(&f, ids[i], NULL), -ESTALE);
		EXPECT_EQ(fs_lookup(&f, ids[i], "x", NULL), -ESTALE);
		EXPECT_EQ(fs_open_node(&f, ids[i], O_RDONLY, NULL), -ESTALE);
		EXPECT_EQ(fs_rename(&f, ROOT, "a", ids[i], "b", 0), -ESTALE);
		EXPECT_EQ(fs_release(&f, ids[i], ids[i]), -EBADF);
		EXPECT_EQ(fs_release(&f, ROOT, ids[i]), -EBADF);
		link.oldnodeid = ids[i];
		EXPECT_EQ(fs_call_name(&f, FUSE_LINK, ROOT, &link, sizeof(link),
				       "x", NULL, ENTRY), -ESTALE);
		fs_forget(&f, ids[i], 1);
	}
	works(&f);
	fs_close(&f);
}

static void forgetting_more_than_was_told_is_forgetting(void)
{
	struct vhost_fs_info info;
	struct fs f;
	u64 node;

	begin(&f, NULL);
	fs_host_write(&f, "one", "", 0);
	node = fs_node(&f, "one");
	fs_forget(&f, node, 0);
	EXPECT_EQ(fs_getattr(&f, node, NULL), 0);
	fs_forget(&f, node, ~0ULL);
	fs_forget(&f, node, ~0ULL);
	EXPECT_EQ(fs_getattr(&f, node, NULL), -ESTALE);
	fs_forget(&f, ROOT, ~0ULL);
	EXPECT_EQ(fs_getattr(&f, ROOT, NULL), 0);
	fs_info(&f, &info);
	EXPECT_EQ(info.nodes, 0);
	works(&f);
	fs_close(&f);
}

/* A FORGET comes by another vring than the RELEASE before it, and may be faster. */
static void what_was_forgotten_can_be_closed(void)
{
	u64 one, two, dir, fh, dh;
	struct vhost_fs_info info;
	struct fs f;

	begin(&f, NULL);
	fs_host_write(&f, "one", "", 0);
	fs_host_write(&f, "two", "", 0);
	EXPECT(!mkdir(fs_path(&f, "dir"), 0755));
	one = fs_node(&f, "one");
	two = fs_node(&f, "two");
	dir = fs_node(&f, "dir");
	EXPECT_EQ(fs_open_node(&f, one, O_RDONLY, &fh), 0);
	EXPECT_EQ(fs_open_dir(&f, dir, &dh), 0);
	/* It is not closed by another node, known or forgotten. */
	EXPECT_EQ(fs_release(&f, two, fh), -EBADF);
	fs_forget(&f, two, 1);
	EXPECT_EQ(fs_release(&f, two, fh), -EBADF);
	fs_forget(&f, one, 1);
	fs_forget(&f, dir, 1);
	EXPECT_EQ(fs_getattr(&f, one, NULL), -ESTALE);
	EXPECT_EQ(fs_release(&f, dir, fh), -EBADF);
	EXPECT_EQ(fs_release(&f, one, fh), 0);
	EXPECT_EQ(fs_release(&f, one, fh), -EBADF);
	EXPECT_EQ(fs_release(&f, dir, dh), 0);
	fs_info(&f, &info);
	EXPECT_EQ(info.handles, 0);
	EXPECT_EQ(info.nodes, 0);
	works(&f);
	fs_close(&f);
}

static void nothing_is_served_before_init(void)
{
	struct fuse_init_in in = { .major = 6 };
	struct fs f;

	fs_make_dir(&f, "tmpfs");
	fs_open_cold(&f, NULL);
	EXPECT_EQ(fs_getattr(&f, ROOT, NULL), -EIO);
	EXPECT_EQ(fs_lookup(&f, ROOT, "x", NULL), -EIO);
	EXPECT_EQ(fs_mkdir(&f, ROOT, "x", 0755, NULL), -EIO);
	fs_forget(&f, ROOT, 1);
	EXPECT_EQ(fs_call(&f, FUSE_INIT, 0, &in, sizeof(in), 64), -EPROTO);
	EXPECT_EQ(fs_getattr(&f, ROOT, NULL), -EIO);
	/* a newer one is told of ours, and comes again */
	in.major = 8;
	EXPECT_EQ(fs_call(&f, FUSE_INIT, 0, &in, sizeof(in), 64), 0);
	EXPECT_EQ(((struct fuse_init_out *)f.reply)->major, 7);
	EXPECT_EQ(fs_getattr(&f, ROOT, NULL), -EIO);
	EXPECT_EQ(fs_init(&f, ~0ULL, NULL), 0);
	EXPECT_EQ(fs_init(&f, ~0ULL, NULL), 0);
	works(&f);
	fs_close(&f);
}

static void opcodes_that_are_none_are_refused(void)
{
	static const u32 codes[] = { 0, 7, 19, 37, 39, 40, 41, 48, 49, 53, 100,
				     4096, 1 << 20, 436207616, ~0U };
	unsigned int i;
	struct fs f;

	begin(&f, NULL);
	for (i = 0; i < KTAP_COUNT(codes); i++)
		EXPECT_EQ(fs_call(&f, codes[i], ROOT, "01234567", 8, 64),
			  -ENOSYS);
	works(&f);
	fs_close(&f);
}

static void a_symlink_leads_nowhere(void)
{
	struct fs f;
	u64 node;

	begin(&f, NULL);
	EXPECT(!symlink("..", fs_path(&f, "up")));
	EXPECT(!symlink("../secret", fs_path(&f, "s")));
	node = fs_node(&f, "up");
	EXPECT_EQ(fs_lookup(&f, node, "secret", NULL), -ENOTDIR);
	EXPECT_EQ(fs_open_dir(&f, node, NULL), -ENOTDIR);
	EXPECT_EQ(fs_open_node(&f, fs_node(&f, "s"), O_RDWR, NULL), -ELOOP);
	EXPECT_EQ(fs_create(&f, ROOT, "s", O_RDWR | O_TRUNC, 0600, NULL, NULL),
		  -ELOOP);
	works(&f);
	fs_close(&f);
}

static void what_was_moved_out_is_out(void)
{
	struct fuse_entry_out e;
	struct fs f;
	u64 dir, file, fh;
	char outside[600];

	begin(&f, NULL);
	EXPECT(!mkdir(fs_path(&f, "d"), 0755));
	fs_host_write(&f, "d/file", "x", 1);
	dir = fs_node(&f, "d");
	file = fs_node(&f, "d/file");
	EXPECT_EQ(fs_open_dir(&f, dir, &fh), 0);
	snprintf(outside, sizeof(outside), "%s/../out", f.dir);
	EXPECT(!rename(fs_path(&f, "d"), outside));
	EXPECT_EQ(fs_lookup(&f, dir, "file", NULL), -ESTALE);
	EXPECT_EQ(fs_lookup(&f, dir, "..", NULL), -ESTALE);
	EXPECT_EQ(fs_getattr(&f, file, NULL), -ESTALE);
	EXPECT_EQ(fs_open_node(&f, file, O_RDWR, NULL), -ESTALE);
	EXPECT_EQ(fs_mkdir(&f, dir, "x", 0755, NULL), -ESTALE);
	EXPECT_EQ(fs_rename(&f, ROOT, "one", dir, "x", 0), -ESTALE);
	/* but closed it can be */
	EXPECT_EQ(fs_release(&f, dir, fh), 0);
	EXPECT(!rename(outside, fs_path(&f, "back")));
	EXPECT_EQ(fs_lookup(&f, dir, "file", &e), 0);
	EXPECT_EQ(e.nodeid, file);
	works(&f);
	fs_close(&f);
}

static void what_is_mounted_there_is_not(void)
{
	struct fuse_entry_out e;
	struct fs f;

	fs_make_dir(&f, "tmpfs");
	EXPECT(!mkdir(fs_path(&f, "d"), 0755));
	EXPECT(!mount("/proc", fs_path(&f, "d"), NULL, MS_BIND, NULL));
	fs_open(&f, NULL);
	EXPECT_EQ(fs_lookup(&f, ROOT, "d", &e), 0);
	EXPECT_EQ(fs_lookup(&f, e.nodeid, "self", NULL), -ENOENT);
	/* nor what is mounted afterwards, on the directory itself */
	EXPECT(!mount("/proc", f.dir, NULL, MS_BIND, NULL));
	EXPECT_EQ(fs_lookup(&f, ROOT, "self", NULL), -ENOENT);
	EXPECT(!umount2(f.dir, MNT_DETACH));
	EXPECT(!umount2(fs_path(&f, "d"), MNT_DETACH));
	works(&f);
	fs_close(&f);
}

static void the_file_system_can_be_unmounted_right_after(void)
{
	struct fs f;
	u64 node;

	begin(&f, NULL);
	fs_host_write(&f, "one", "x", 1);
	node = fs_node(&f, "one");
	EXPECT_EQ(fs_open_node(&f, node, O_RDWR, NULL), 0);
	fs_close(&f);
	EXPECT(!umount("/tmp/vhost_fs"));
}

static void limits_are_for_one_guest(void)
{
	struct vhost_fs_export limits = { .max_nodes = 3, .max_handles = 2 };
	struct vhost_fs_info info;
	struct fuse_entry_out e;
	struct fs f;
	char name[8];
	unsigned int i;
	u64 fh, node = 0;

	begin(&f, &limits);
	for (i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		fs_host_write(&f, name, "", 0);
		EXPECT_EQ(fs_lookup(&f, ROOT, name, &e), i < 3 ? 0 : -ENFILE);
		if (!i)
			node = e.nodeid;
	}
	EXPECT_EQ(fs_open_node(&f, node, O_RDONLY, &fh), 0);
	EXPECT_EQ(fs_open_node(&f, node, O_RDONLY, NULL), 0);
	EXPECT_EQ(fs_open_node(&f, node, O_RDONLY, NULL), -EMFILE);
	/* and nothing is left behind that the guest is not told of */
	EXPECT_EQ(fs_create(&f, ROOT, "new", O_RDWR, 0600, NULL, NULL), -EMFILE);
	EXPECT_EQ(fs_mkdir(&f, ROOT, "new", 0755, NULL), -ENFILE);
	EXPECT(!fs_host_there(&f, "new"));
	fs_info(&f, &info);
	EXPECT_EQ(info.nodes, 3);
	EXPECT_EQ(info.handles, 2);
	EXPECT_EQ(info.refused, 5);
	EXPECT_EQ(fs_release(&f, node, fh), 0);
	EXPECT_EQ(fs_open_node(&f, node, O_RDONLY, NULL), 0);
	fs_forget(&f, node, 1);
	EXPECT_EQ(fs_lookup(&f, ROOT, "f4", NULL), 0);
	fs_close(&f);
}

static u64 seed;

static u64 rnd(u64 below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 8) % below;
}

static const char *random_name(char *room)
{
	static const char *const names[] = { "a", "b", "d", "s", "..", ".", "",
					     "a/b", "user.x", "#" };

	if (rnd(8))
		return names[rnd(KTAP_COUNT(names))];
	memset(room, 'n', 300);
	room[rnd(300)] = 0;
	return room;
}

/* Mostly of the right shape, so that more than the decoder sees it. */
static u32 random_args(u8 *arg)
{
	static const u32 sizes[] = { 0, 4, 8, 16, 24, 32, 40, 48, 64, 88 };
	u32 len = sizes[rnd(KTAP_COUNT(sizes))], i, n;
	char room[301] = { 0 };

	for (i = 0; i < len; i += 4)
		*(u32 *)(arg + i) = rnd(3) ? rnd(6) : rnd(~0U);
	for (n = rnd(3); n; n--) {
		const char *name = random_name(room);

		memcpy(arg + len, name, strlen(name) + 1);
		len += strlen(name) + 1;
	}
	return len;
}

static void random_one(struct fs *f)
{
	u8 arg[1024];
	u32 len = random_args(arg);
	u32 says = rnd(20) ? HEADER + len : rnd(2 * (HEADER + len));
	u32 opcode = rnd(10) ? 1 + rnd(54) : rnd(~0U);

	/* These wait, or end the session. */
	if (opcode == FUSE_SETLKW || opcode == FUSE_SYNCFS)
		return;
	play(f, opcode, rnd(4) ? 1 + rnd(8) : rnd(~0ULL), arg, len, says,
	     rnd(10) ? 16 + rnd(5000) : rnd(200));
}

static void random_requests_are_survived(void)
{
	unsigned long i, n = ktap_env("RANDOM", ktap_full() ? 20000 : 4000);
	struct fs f;

	seed = ktap_env("SEED", getpid() * 0x9e3779b97f4a7c15ULL) | 1;
	ktap_msg("SEED=%llu repeats this run", (unsigned long long)seed);
	begin(&f, NULL);
	EXPECT(!mkdir(fs_path(&f, "d"), 0755));
	EXPECT(!symlink("../..", fs_path(&f, "s")));
	for (i = 0; i < n; i++) {
		random_one(&f);
		if (i % 200 == 199) {
			EXPECT_EQ(fs_init(&f, ~0ULL, NULL), 0);
			EXPECT(fs_host_is(&f, "../secret", "secret", 6));
		}
	}
	fs_close(&f);
	/* nothing came to be beside the directory */
	EXPECT(!system("test $(ls -A /tmp/vhost_fs | wc -l) = 2"));
}

static const struct ktap_test tests[] = {
	{ "lengths_that_lie_are_refused", lengths_that_lie_are_refused },
	{ "data_that_lie_are_refused", data_that_lie_are_refused },
	{ "names_that_are_none_are_refused", names_that_are_none_are_refused },
	{ "replies_that_do_not_fit_are_not_begun",
	  replies_that_do_not_fit_are_not_begun },
	{ "ids_that_were_never_given_are_refused",
	  ids_that_were_never_given_are_refused },
	{ "forgetting_more_than_was_told_is_forgetting",
	  forgetting_more_than_was_told_is_forgetting },
	{ "what_was_forgotten_can_be_closed", what_was_forgotten_can_be_closed },
	{ "nothing_is_served_before_init", nothing_is_served_before_init },
	{ "opcodes_that_are_none_are_refused",
	  opcodes_that_are_none_are_refused },
	{ "a_symlink_leads_nowhere", a_symlink_leads_nowhere },
	{ "what_was_moved_out_is_out", what_was_moved_out_is_out },
	{ "what_is_mounted_there_is_not", what_is_mounted_there_is_not },
	{ "the_file_system_can_be_unmounted_right_after",
	  the_file_system_can_be_unmounted_right_after },
	{ "limits_are_for_one_guest", limits_are_for_one_guest },
	{ "random_requests_are_survived", random_requests_are_survived, 200 },
};

int main(int argc, char **argv)
{
	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), fs_cleanup);
}
