// SPDX-License-Identifier: GPL-2.0
/*
 * Locks are the host's: a guest's owners, another guest's and the host's own
 * processes exclude each other.  Requests that wait are answered when the lock is
 * free, when they are interrupted, and when their ring stops.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <linux/vhost_serve.h>

#include "fsrig.h"
#include "hostfuse.h"

#define QUEUE	2

/* A file that the guest has open twice, and the host once. */
struct locked {
	struct fs f;
	u64 node;
	u64 fh[2];
	int host;
};

static void nap(void)
{
	struct timespec ts = { .tv_nsec = 20000000 };

	nanosleep(&ts, NULL);
}

static void begin_with(struct locked *l, const struct vhost_fs_export *export)
{
	fs_make_dir(&l->f, "tmpfs");
	fs_open(&l->f, export);
	fs_host_write(&l->f, "one", "x", 1);
	l->node = fs_node(&l->f, "one");
	EXPECT_EQ(fs_open_node(&l->f, l->node, O_RDWR, &l->fh[0]), 0);
	EXPECT_EQ(fs_open_node(&l->f, l->node, O_RDWR, &l->fh[1]), 0);
	l->host = open(fs_path(&l->f, "one"), O_RDWR | O_CLOEXEC);
	EXPECT(l->host >= 0);
}

static void begin(struct locked *l)
{
	begin_with(l, NULL);
}

static struct fuse_lk_in lock_arg(struct locked *l, unsigned int who, u32 type,
				  u64 start, u64 end, u32 flags)
{
	return (struct fuse_lk_in){
		.fh = l->fh[who], .owner = 0x1234567890abcdefULL + who,
		.lk = { .start = start, .end = end, .type = type,
			.pid = 100 + who },
		.lk_flags = flags,
	};
}

static int setlk(struct locked *l, unsigned int who, u32 type, u64 start,
		 u64 end)
{
	struct fuse_lk_in in = lock_arg(l, who, type, start, end, 0);

	return fs_call(&l->f, FUSE_SETLK, l->node, &in, sizeof(in), 0);
}

static int flock_it(struct locked *l, unsigned int who, u32 type)
{
	struct fuse_lk_in in = lock_arg(l, who, type, 0, 0, FUSE_LK_FLOCK);

	return fs_call(&l->f, FUSE_SETLK, l->node, &in, sizeof(in), 0);
}

/* Puts a blocking one on the other ring, and returns what it is known by. */
static u64 send_setlkw(struct locked *l, unsigned int slot, unsigned int who, u32 type, u32 flags)
{
	struct {
		struct fuse_in_header ih;
		struct fuse_lk_in arg;
	} in = {
		.ih = { .len = sizeof(in), .opcode = FUSE_SETLKW,
			.nodeid = l->node, .unique = l->f.unique += 2 },
		.arg = lock_arg(l, who, type, 0, 9, flags),
	};
	struct fs_raw raw = { .in = &in, .in_len = sizeof(in), .out_room = 16,
			      .queue = QUEUE };

	fs_send(&l->f, slot, &raw);
	return in.ih.unique;
}

static u64 setlkw(struct locked *l, unsigned int who, u32 type, u32 flags)
{
	u64 unique = send_setlkw(l, 1, who, type, flags);

	nap();
	EXPECT(!fs_poll(&l->f, 1, QUEUE));
	return unique;
}

static int answer_in(struct locked *l, unsigned int slot)
{
	fs_wait(&l->f, slot, QUEUE);
	return fs_answer(&l->f, slot);
}

static int answer(struct locked *l)
{
	return answer_in(l, 1);
}

static int host_lock_byte(struct locked *l, unsigned int at)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1 };

	return fcntl(l->host, F_SETLK, &fl) < 0 ? -errno : 0;
}

static int host_lock(struct locked *l, short type, short *found)
{
	struct flock fl = { .l_type = type, .l_whence = SEEK_SET, .l_len = 10 };
	int r = fcntl(l->host, found ? F_GETLK : F_SETLK, &fl);

	if (found)
		*found = fl.l_type;
	return r < 0 ? -errno : 0;
}

static void owners_exclude_each_other(void)
{
	struct fuse_lk_in in;
	struct fuse_lk_out *out;
	struct locked l;

	begin(&l);
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 9), 0);
	EXPECT_EQ(setlk(&l, 1, F_WRLCK, 5, 20), -EAGAIN);
	EXPECT_EQ(setlk(&l, 1, F_RDLCK, 5, 20), -EAGAIN);
	EXPECT_EQ(setlk(&l, 1, F_WRLCK, 10, 20), 0);
	in = lock_arg(&l, 1, F_WRLCK, 0, 5, 0);
	EXPECT_EQ(fs_call(&l.f, FUSE_GETLK, l.node, &in, sizeof(in), 24), 0);
	out = (void *)l.f.reply;
	EXPECT_EQ(out->lk.type, F_WRLCK);
	EXPECT_EQ(out->lk.start, 0);
	EXPECT_EQ(out->lk.end, 9);
	EXPECT_EQ(out->lk.pid, 100);
	EXPECT_EQ(setlk(&l, 0, F_UNLCK, 0, 9), 0);
	EXPECT_EQ(fs_call(&l.f, FUSE_GETLK, l.node, &in, sizeof(in), 24), 0);
	EXPECT_EQ(((struct fuse_lk_out *)l.f.reply)->lk.type, F_UNLCK);
	EXPECT_EQ(setlk(&l, 1, F_WRLCK, 0, 9), 0);
	fs_close(&l.f);
}

static void the_host_and_a_guest_exclude_each_other(void)
{
	struct locked l;
	short found = F_WRLCK;

	begin(&l);
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 9), 0);
	EXPECT_EQ(host_lock(&l, F_WRLCK, NULL), -EAGAIN);
	EXPECT_EQ(host_lock(&l, F_WRLCK, &found), 0);
	EXPECT_EQ(found, F_WRLCK);
	EXPECT_EQ(setlk(&l, 0, F_UNLCK, 0, 100), 0);
	EXPECT_EQ(host_lock(&l, F_WRLCK, NULL), 0);
	EXPECT_EQ(setlk(&l, 0, F_RDLCK, 0, 9), -EAGAIN);
	EXPECT_EQ(flock_it(&l, 0, F_WRLCK), 0);
	EXPECT(flock(l.host, LOCK_EX | LOCK_NB) < 0 && errno == EAGAIN);
	EXPECT_EQ(flock_it(&l, 1, F_WRLCK), -EAGAIN);
	EXPECT_EQ(flock_it(&l, 0, F_UNLCK), 0);
	EXPECT(!flock(l.host, LOCK_EX | LOCK_NB));
	fs_close(&l.f);
}

static void who_waits_gets_the_lock(void)
{
	struct vhost_fs_info info;
	struct locked l;

	begin(&l);
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 9), 0);
	setlkw(&l, 1, F_WRLCK, 0);
	EXPECT_EQ(setlk(&l, 0, F_UNLCK, 0, 9), 0);
	EXPECT_EQ(answer(&l), 0);
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 9), -EAGAIN);
	EXPECT_EQ(setlk(&l, 1, F_UNLCK, 0, 9), 0);
	/* of the host, by its death */
	EXPECT_EQ(host_lock(&l, F_WRLCK, NULL), 0);
	setlkw(&l, 1, F_WRLCK, 0);
	close(l.host);
	EXPECT_EQ(answer(&l), 0);
	fs_close(&l.f);
	(void)info;
}

static void who_waits_for_flock_gets_it(void)
{
	struct locked l;

	begin(&l);
	EXPECT_EQ(flock_it(&l, 0, F_WRLCK), 0);
	setlkw(&l, 1, F_WRLCK, FUSE_LK_FLOCK);
	EXPECT_EQ(fs_release(&l.f, l.node, l.fh[0]), 0);
	EXPECT_EQ(answer(&l), 0);
	EXPECT(flock(l.host, LOCK_EX | LOCK_NB) < 0);
	EXPECT_EQ(flock_it(&l, 1, F_UNLCK), 0);
	EXPECT(!flock(l.host, LOCK_EX | LOCK_NB));
	setlkw(&l, 1, F_RDLCK, FUSE_LK_FLOCK);
	EXPECT(!flock(l.host, LOCK_UN));
	EXPECT_EQ(answer(&l), 0);
	fs_close(&l.f);
}

static int interrupt(struct locked *l, u64 unique)
{
	struct fuse_interrupt_in in = { .unique = unique };

	return fs_call(&l->f, FUSE_INTERRUPT, 0, &in, sizeof(in), 0);
}

static void who_waits_can_be_interrupted(void)
{
	static const u32 flags[] = { 0, FUSE_LK_FLOCK };
	struct vhost_fs_info info;
	struct locked l;
	unsigned int i;
	u64 unique;

	begin(&l);
	EXPECT_EQ(interrupt(&l, 4711), -EAGAIN);
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 9), 0);
	EXPECT_EQ(flock_it(&l, 0, F_WRLCK), 0);
	for (i = 0; i < 2; i++) {
		unique = setlkw(&l, 1, F_WRLCK, flags[i]);
		EXPECT_EQ(interrupt(&l, unique + 1), -EAGAIN);
		EXPECT_EQ(interrupt(&l, unique), 0);
		EXPECT_EQ(answer(&l), -EINTR);
	}
	fs_info(&l.f, &info);
	EXPECT_EQ(info.locks, 2);
	/* it has none, and waits for none */
	EXPECT_EQ(setlk(&l, 0, F_UNLCK, 0, 9), 0);
	EXPECT_EQ(host_lock(&l, F_WRLCK, NULL), 0);
	fs_close(&l.f);
}

#define WAITS	30	/* in slots 1 and up */

static unsigned int locks_used(struct locked *l)
{
	struct vhost_fs_info info;

	fs_info(&l->f, &info);
	return info.locks;
}

static int flock_other(struct locked *l, u64 node, u64 fh, u32 type)
{
	struct fuse_lk_in in = lock_arg(l, 0, type, 0, 0, FUSE_LK_FLOCK);

	in.fh = fh;
	return fs_call(&l->f, FUSE_SETLK, node, &in, sizeof(in), 0);
}

/* As many as the export may have; locks of another file are taken meanwhile. */
static void many_wait_for_one_file(void)
{
	struct vhost_fs_export few = { .max_locks = WAITS };
	u64 unique[WAITS + 1], two, fh;
	struct fuse_lk_in one_more;
	struct locked l;
	unsigned int i;

	begin_with(&l, &few);
	for (i = FS_SLOTS; i <= WAITS; i++) {
		l.f.slot[i].in = ring_mem_alloc(&l.f.mem, 4096, 4096);
		l.f.slot[i].out = ring_mem_alloc(&l.f.mem, 4096, 4096);
	}
	fs_host_write(&l.f, "two", "", 0);
	two = fs_node(&l.f, "two");
	EXPECT_EQ(fs_open_node(&l.f, two, O_RDWR, &fh), 0);
	EXPECT_EQ(flock_it(&l, 0, F_WRLCK), 0);
	for (i = 1; i <= WAITS; i++)
		unique[i] = send_setlkw(&l, i, 1, F_WRLCK, FUSE_LK_FLOCK);
	while (locks_used(&l) < WAITS)
		nap();
	one_more = lock_arg(&l, 1, F_WRLCK, 0, 9, FUSE_LK_FLOCK);
	EXPECT_EQ(fs_call(&l.f, FUSE_SETLKW, l.node, &one_more, sizeof(one_more), 0), -ENOLCK);
	for (i = 0; i < WAITS; i++) {
		EXPECT_EQ(flock_other(&l, two, fh, F_WRLCK), 0);
		EXPECT_EQ(flock_other(&l, two, fh, F_UNLCK), 0);
	}
	EXPECT_EQ(locks_used(&l), WAITS);
	/* Every second one; the others have the lock, which is one handle's. */
	for (i = 2; i <= WAITS; i += 2) {
		EXPECT_EQ(interrupt(&l, unique[i]), 0);
		EXPECT_EQ(answer_in(&l, i), -EINTR);
	}
	EXPECT_EQ(fs_release(&l.f, l.node, l.fh[0]), 0);
	for (i = 1; i <= WAITS; i += 2)
		EXPECT_EQ(answer_in(&l, i), 0);
	EXPECT_EQ(locks_used(&l), 0);
	EXPECT(flock(l.host, LOCK_EX | LOCK_NB) < 0);
	EXPECT_EQ(flock_it(&l, 1, F_UNLCK), 0);
	EXPECT(!flock(l.host, LOCK_EX | LOCK_NB));
	fs_close(&l.f);
}

static void circles_are_found(void)
{
	struct fuse_lk_in in;
	struct locked l;

	begin(&l);
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 9), 0);
	EXPECT_EQ(setlk(&l, 1, F_WRLCK, 10, 19), 0);
	setlkw(&l, 1, F_WRLCK, 0);
	in = lock_arg(&l, 0, F_WRLCK, 10, 19, 0);
	EXPECT_EQ(fs_call(&l.f, FUSE_SETLKW, l.node, &in, sizeof(in), 0),
		  -EDEADLK);
	EXPECT_EQ(setlk(&l, 0, F_UNLCK, 0, 9), 0);
	EXPECT_EQ(answer(&l), 0);
	fs_close(&l.f);
}

static void flush_and_release_take_locks_away(void)
{
	struct fuse_flush_in flush = { .lock_owner = 0x1234567890abcdefULL };
	struct locked l;

	begin(&l);
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 9), 0);
	/* by any descriptor of the owner's, as POSIX has it */
	flush.fh = l.fh[1];
	EXPECT_EQ(fs_call(&l.f, FUSE_FLUSH, l.node, &flush, sizeof(flush), 0), 0);
	EXPECT_EQ(host_lock(&l, F_WRLCK, NULL), 0);
	EXPECT_EQ(host_lock(&l, F_UNLCK, NULL), 0);
	/* a guest that does not flush */
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 9), 0);
	EXPECT_EQ(fs_release(&l.f, l.node, l.fh[0]), 0);
	EXPECT_EQ(host_lock(&l, F_WRLCK, NULL), 0);
	fs_close(&l.f);
}

/*
 * The guest sends nothing else if the owner closes one of two descriptors, so its locks would stay.
 */
static void what_left_the_export_is_flushed(void)
{
	struct fuse_flush_in flush = {};
	struct locked l;

	fs_make_dir(&l.f, "tmpfs");
	EXPECT(!mkdir(fs_path(&l.f, "d"), 0755));
	fs_host_write(&l.f, "d/one", "x", 1);
	fs_open(&l.f, NULL);
	l.node = fs_node(&l.f, "d/one");
	EXPECT_EQ(fs_open_node(&l.f, l.node, O_RDWR, &l.fh[0]), 0);
	EXPECT_EQ(fs_open_node(&l.f, l.node, O_RDWR, &l.fh[1]), 0);
	l.host = open(fs_path(&l.f, "d/one"), O_RDWR | O_CLOEXEC);
	EXPECT(l.host >= 0);
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 9), 0);
	EXPECT(!rename(fs_path(&l.f, "d"), fs_path(&l.f, "../d")));
	while (!fs_getattr(&l.f, l.node, NULL))
		nap();
	EXPECT_EQ(fs_getattr(&l.f, l.node, NULL), -ESTALE);
	EXPECT_EQ(host_lock(&l, F_WRLCK, NULL), -EAGAIN);
	flush.fh = l.fh[1];
	flush.lock_owner = lock_arg(&l, 0, F_WRLCK, 0, 9, 0).owner;
	EXPECT_EQ(fs_call(&l.f, FUSE_FLUSH, l.node, &flush, sizeof(flush), 0), 0);
	EXPECT_EQ(host_lock(&l, F_WRLCK, NULL), 0);
	EXPECT_EQ(fs_release(&l.f, l.node, l.fh[0]), 0);
	EXPECT_EQ(fs_release(&l.f, l.node, l.fh[1]), 0);
	fs_close(&l.f);
}

/* FUSE's server has such locks, and the kernel knows of none. */
static void locks_of_a_fuse_server_go_with_their_owner(void)
{
	struct hostfuse *server;
	struct fuse_flush_in flush = {};
	struct locked l;

	fs_make_dir(&l.f, "tmpfs");
	server = hostfuse_mount(l.f.dir);
	fs_open(&l.f, NULL);
	l.node = fs_node(&l.f, "one");
	EXPECT_EQ(fs_open_node(&l.f, l.node, O_RDWR, &l.fh[0]), 0);
	EXPECT_EQ(fs_open_node(&l.f, l.node, O_RDWR, &l.fh[1]), 0);
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 9), 0);
	EXPECT(server->holder);
	/* Another owner's close */
	flush.fh = l.fh[0];
	flush.lock_owner = 4711;
	EXPECT_EQ(fs_call(&l.f, FUSE_FLUSH, l.node, &flush, sizeof(flush), 0), 0);
	EXPECT(server->holder);
	flush.fh = l.fh[1];
	flush.lock_owner = lock_arg(&l, 0, F_WRLCK, 0, 9, 0).owner;
	EXPECT_EQ(fs_call(&l.f, FUSE_FLUSH, l.node, &flush, sizeof(flush), 0), 0);
	EXPECT(!server->holder);
	fs_close(&l.f);
}

static void the_end_takes_locks_away(void)
{
	struct locked l;

	begin(&l);
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 9), 0);
	EXPECT_EQ(flock_it(&l, 0, F_WRLCK), 0);
	setlkw(&l, 1, F_WRLCK, 0);
	EXPECT(ioctl(l.f.fd, VHOST_SERVE_STOP, (long)QUEUE) == 0);
	EXPECT_EQ(answer(&l), -ENOLCK);
	fs_close(&l.f);
	EXPECT_EQ(host_lock(&l, F_WRLCK, NULL), 0);
	EXPECT(!flock(l.host, LOCK_EX | LOCK_NB));
}

static void a_session_that_ends_ends_waiting(void)
{
	struct locked l;

	begin(&l);
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 9), 0);
	setlkw(&l, 1, F_WRLCK, 0);
	EXPECT_EQ(fs_call(&l.f, FUSE_DESTROY, 0, NULL, 0, 0), 0);
	/* the lock, or word that there will be none */
	fs_wait(&l.f, 1, QUEUE);
	EXPECT_EQ(host_lock(&l, F_WRLCK, NULL), 0);
	fs_close(&l.f);
}

#define OWNERS	4
#define RANGES	(4 * OWNERS)
#define CLAIMS	RANGES

/* Of two owners, which lock every second byte; each has so many already. */
static int lock_range(struct locked *l, unsigned int who, unsigned int n)
{
	unsigned int start = 4 * n + 2 * who;

	return setlk(l, who, F_WRLCK, start, start);
}

/* The host has memory for each range, so all owners together have a limit, too. */
static void the_ranges_of_an_export_are_bounded(void)
{
	struct vhost_fs_export few = { .max_locks = OWNERS };
	struct fuse_lk_in in;
	struct locked l;
	unsigned int i;

	begin_with(&l, &few);
	/* What only passes by does not count for ever. */
	for (i = 0; i < 3 * RANGES; i++) {
		EXPECT_EQ(setlk(&l, 0, F_WRLCK, i, i), 0);
		EXPECT_EQ(setlk(&l, 1, F_WRLCK, i, i), -EAGAIN);
		in = lock_arg(&l, 1, F_WRLCK, 0, RANGES * 4, 0);
		EXPECT_EQ(fs_call(&l.f, FUSE_GETLK, l.node, &in, sizeof(in), 24), 0);
		EXPECT_EQ(setlk(&l, 0, F_UNLCK, i, i), 0);
	}
	for (i = 0; i < RANGES; i++)
		EXPECT_EQ(lock_range(&l, i % 2, i / 2), 0);
	EXPECT_EQ(lock_range(&l, 0, i), -ENOLCK);
	EXPECT_EQ(lock_range(&l, 1, i), -ENOLCK);
	/* To unlock is allowed, and makes room again. */
	EXPECT_EQ(setlk(&l, 0, F_UNLCK, 0, 0), 0);
	EXPECT_EQ(lock_range(&l, 1, i), 0);
	EXPECT_EQ(lock_range(&l, 1, i + 1), -ENOLCK);
	EXPECT_EQ(setlk(&l, 1, F_UNLCK, 0, ~0ULL >> 1), 0);
	EXPECT_EQ(lock_range(&l, 0, i), 0);
	fs_close(&l.f);
}

/* Holes can be made in a large lock, one for each range of the limit. */
static void unlocking_makes_no_more_ranges_than_that(void)
{
	struct vhost_fs_export few = { .max_locks = OWNERS };
	struct locked l;
	unsigned int i;

	begin_with(&l, &few);
	EXPECT_EQ(setlk(&l, 0, F_WRLCK, 0, 1000), 0);
	for (i = 1; i < 2 * RANGES; i++)
		EXPECT_EQ(setlk(&l, 0, F_UNLCK, 2 * i, 2 * i), 0);
	EXPECT_EQ(setlk(&l, 0, F_UNLCK, 2 * i, 2 * i), -ENOLCK);
	EXPECT_EQ(setlk(&l, 0, F_UNLCK, 0, ~0ULL >> 1), 0);
	EXPECT_EQ(host_lock(&l, F_WRLCK, NULL), 0);
	fs_close(&l.f);
}

static int lock_byte(struct locked *l, unsigned int who, u64 fh, u32 type)
{
	struct fuse_lk_in in = lock_arg(l, who, type, who, who, 0);

	in.fh = fh;
	return fs_call(&l->f, FUSE_SETLK, l->node, &in, sizeof(in), 0);
}

/* By each handle by which it has locks an owner has a claim, and all are used up. */
static void who_has_a_claim_needs_no_other(void)
{
	struct vhost_fs_export few = { .max_locks = OWNERS };
	u64 fh[CLAIMS / OWNERS + 1];
	struct vhost_fs_info info;
	struct locked l;
	unsigned int i;

	begin_with(&l, &few);
	for (i = 0; i < KTAP_COUNT(fh); i++)
		EXPECT_EQ(fs_open_node(&l.f, l.node, O_RDWR, &fh[i]), 0);
	for (i = 0; i < CLAIMS; i++)
		EXPECT_EQ(lock_byte(&l, i % OWNERS, fh[i / OWNERS], F_WRLCK), 0);
	EXPECT_EQ(lock_byte(&l, 0, fh[CLAIMS / OWNERS], F_WRLCK), -ENOLCK);
	for (i = 0; i < CLAIMS; i++)
		EXPECT_EQ(lock_byte(&l, i % OWNERS, fh[i / OWNERS], F_RDLCK), 0);
	fs_info(&l.f, &info);
	EXPECT_EQ(info.refused, 1);
	/* The owners have their locks, and each release makes room. */
	for (i = 0; i < OWNERS; i++)
		EXPECT_EQ(host_lock_byte(&l, i), -EAGAIN);
	EXPECT_EQ(fs_release(&l.f, l.node, fh[0]), 0);
	EXPECT_EQ(lock_byte(&l, 0, fh[CLAIMS / OWNERS], F_WRLCK), 0);
	fs_close(&l.f);
}

static const struct ktap_test tests[] = {
	{ "owners_exclude_each_other", owners_exclude_each_other },
	{ "the_host_and_a_guest_exclude_each_other",
	  the_host_and_a_guest_exclude_each_other },
	{ "who_waits_gets_the_lock", who_waits_gets_the_lock },
	{ "who_waits_for_flock_gets_it", who_waits_for_flock_gets_it },
	{ "who_waits_can_be_interrupted", who_waits_can_be_interrupted },
	{ "many_wait_for_one_file", many_wait_for_one_file },
	{ "circles_are_found", circles_are_found },
	{ "flush_and_release_take_locks_away",
	  flush_and_release_take_locks_away },
	{ "what_left_the_export_is_flushed", what_left_the_export_is_flushed },
	{ "locks_of_a_fuse_server_go_with_their_owner",
	  locks_of_a_fuse_server_go_with_their_owner },
	{ "the_end_takes_locks_away", the_end_takes_locks_away },
	{ "a_session_that_ends_ends_waiting", a_session_that_ends_ends_waiting },
	{ "the_ranges_of_an_export_are_bounded", the_ranges_of_an_export_are_bounded },
	{ "unlocking_makes_no_more_ranges_than_that", unlocking_makes_no_more_ranges_than_that },
	{ "who_has_a_claim_needs_no_other", who_has_a_claim_needs_no_other },
};

int main(int argc, char **argv)
{
	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), fs_cleanup);
}
