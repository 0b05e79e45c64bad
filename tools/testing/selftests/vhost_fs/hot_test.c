// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that may sleep: the poller's thread carries them out, and passes the rings on
 * to another thread if one of them does sleep.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <linux/fs.h>
#include <linux/vhost_serve.h>

#include "faults.h"
#include "fsrig.h"
#include "hot.h"

#define NAMES		50
#define LATE_QUEUE	2
#define LATE_LEN	4096
/* Of crew.c: threads that may sleep for one owner. */
#define PER_OWNER	4

static void names_and_writes_need_no_worker_on(const char *kind)
{
	struct vhost_serve_stats before, after;
	struct vhost_poll_stats poller;
	struct fs f;
	unsigned int i;

	hot_begin(&f, kind);
	before = ring_stats(&f, 1);
	poller = poller_stats(&f);
	for (i = 0; i < NAMES; i++)
		make_and_remove(&f, i);
	after = ring_stats(&f, 1);
	EXPECT_EQ(after.requests - before.requests, NAMES * MADE);
	EXPECT_EQ(after.punted - before.punted, 0);
	EXPECT_EQ(after.hot - before.hot, NAMES * MADE);
	EXPECT_EQ(poller_stats(&f).handoffs + poller_stats(&f).hot -
		  poller.handoffs - poller.hot, NAMES * MADE);
	ktap_msg("%s: %u requests, %llu of them slept", kind, NAMES * MADE,
		 (unsigned long long)(poller_stats(&f).handoffs - poller.handoffs));
	fs_close(&f);
}

static void names_and_writes_need_no_worker(void)
{
	names_and_writes_need_no_worker_on("tmpfs");
}

static void nor_on_ext4(void)
{
	names_and_writes_need_no_worker_on("ext4");
}

/* Files to be written from memory whose pages are not there yet, one for each slot. */
struct late {
	struct fs f;
	u64 node[FS_SLOTS];
	u64 fh[FS_SLOTS];
	int faults[FS_SLOTS];
};

static void late_begin(struct late *l)
{
	struct fuse_entry_out e;
	char name[16];
	unsigned int i;

	hot_begin(&l->f, "tmpfs");
	for (i = 0; i < FS_SLOTS; i++) {
		snprintf(name, sizeof(name), "late%u", i);
		EXPECT_EQ(fs_create(&l->f, FUSE_ROOT_ID, name, O_RDWR, 0644, &e,
				    &l->fh[i]), 0);
		l->node[i] = e.nodeid;
	}
}

static void send_write(struct late *l, unsigned int slot)
{
	struct {
		struct fuse_in_header ih;
		struct fuse_write_in arg;
	} in = { .arg = { .fh = l->fh[slot], .size = LATE_LEN } };
	struct fs_raw raw = {
		.in = &in, .in_len = sizeof(in), .data_len = LATE_LEN,
		.out_room = sizeof(struct fuse_out_header) +
			    sizeof(struct fuse_write_out),
		.queue = LATE_QUEUE,
	};

	fs_header(&l->f, &in.ih, FUSE_WRITE, l->node[slot],
		  sizeof(in.arg) + LATE_LEN);
	fs_send(&l->f, slot, &raw);
}

/* It sleeps in the page fault, which the test answers, or closes. */
static void late_send(struct late *l, unsigned int slot)
{
	struct pollfd p = { .events = POLLIN };

	l->faults[slot] = catch_faults(l->f.slot[slot].data, LATE_LEN);
	send_write(l, slot);
	p.fd = l->faults[slot];
	EXPECT_EQ(poll(&p, 1, FS_WAIT_MS), 1);
	EXPECT_EQ(p.revents, POLLIN);
}

static void late_answer(struct late *l, unsigned int slot)
{
	end_faults(l->faults[slot], l->f.slot[slot].data, LATE_LEN);
	fs_wait(&l->f, slot, LATE_QUEUE);
	EXPECT_EQ(fs_answer(&l->f, slot), 0);
	EXPECT_EQ(((struct fuse_write_out *)l->f.reply)->size, LATE_LEN);
	close(l->faults[slot]);
}

/* The fault is seen before the thread that takes over has counted itself. */
static void expect_handoffs(struct fs *f, u64 want)
{
	EVENTUALLY(poller_stats(f).handoffs >= want);
	EXPECT_EQ(poller_stats(f).handoffs, want);
}

static void one_that_sleeps_passes_the_rings_on(void)
{
	struct vhost_poll_stats before;
	struct late l;
	unsigned int i, round;

	late_begin(&l);
	before = poller_stats(&l.f);
	for (round = 1; round < FS_SLOTS; round++) {
		late_send(&l, round);
		EVENTUALLY(poller_stats(&l.f).handoffs > before.handoffs);
		before = poller_stats(&l.f);
		for (i = 0; i < 20; i++) {
			make_and_remove(&l.f, i);
			EXPECT_EQ(fs_getattr(&l.f, FUSE_ROOT_ID, NULL), 0);
		}
		EXPECT(!fs_poll(&l.f, round, LATE_QUEUE));
		late_answer(&l, round);
	}
	fs_close(&l.f);
}

static void an_owner_sleeps_in_a_few_threads_only(void)
{
	struct vhost_serve_stats ring;
	struct vhost_poll_stats before;
	struct late l;
	unsigned int i;

	late_begin(&l);
	before = poller_stats(&l.f);
	for (i = 1; i <= PER_OWNER; i++) {
		until_there_is_a_spare(&l.f);
		late_send(&l, i);
		expect_handoffs(&l.f, before.handoffs + i);
	}
	ring = ring_stats(&l.f, LATE_QUEUE);
	late_send(&l, i);
	EXPECT_EQ(poller_stats(&l.f).handoffs - before.handoffs, PER_OWNER);
	EXPECT_EQ(ring_stats(&l.f, LATE_QUEUE).punted - ring.punted, 1);
	/* A spare is there by now: only the limit keeps requests away from it. */
	nap();
	ring = ring_stats(&l.f, 1);
	make_and_remove(&l.f, 0);
	EXPECT_EQ(ring_stats(&l.f, 1).punted - ring.punted, MADE);
	EXPECT_EQ(fs_getattr(&l.f, FUSE_ROOT_ID, NULL), 0);
	for (; i; i--)
		late_answer(&l, i);
	/* They are back. */
	until_there_is_a_spare(&l.f);
	fs_close(&l.f);
}

#define LONG_LEN	(1024L * 1024 * 1024)

struct filler {
	const char *path;
	bool done;
};

/* It has the inode's lock for as long as it runs. */
static void *fill_file(void *arg)
{
	struct filler *filler = arg;
	int fd = open(filler->path, O_RDWR);

	EXPECT(fd >= 0);
	EXPECT(!fallocate(fd, 0, 0, LONG_LEN));
	close(fd);
	__atomic_store_n(&filler->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/*
 * The lock that it wants is held by a task that runs, so it need not sleep for it: it may
 * spin, and no scheduler tells.
 */
static void one_that_waits_for_a_running_task_passes_the_rings_on(void)
{
	struct filler filler = {};
	struct vhost_poll_stats before;
	pthread_t thread;
	struct stat st;
	struct late l;

	late_begin(&l);
	hot_set_limit(USUAL_LIMIT);
	before = poller_stats(&l.f);
	filler.path = fs_path(&l.f, "late1");
	EXPECT(!pthread_create(&thread, NULL, fill_file, &filler));
	do {
		EXPECT(!stat(filler.path, &st));
	} while (!st.st_blocks);
	send_write(&l, 1);
	EXPECT_EQ(fs_getattr(&l.f, FUSE_ROOT_ID, NULL), 0);
	if (__atomic_load_n(&filler.done, __ATOMIC_ACQUIRE))
		ktap_skip("the file was filled before anything could wait for it");
	while (poller_stats(&l.f).handoffs == before.handoffs)
		EXPECT(!fs_poll(&l.f, 1, LATE_QUEUE));
	EXPECT_EQ(fs_getattr(&l.f, FUSE_ROOT_ID, NULL), 0);
	EXPECT(!fs_poll(&l.f, 1, LATE_QUEUE));
	EXPECT(!pthread_join(thread, NULL));
	fs_wait(&l.f, 1, LATE_QUEUE);
	EXPECT_EQ(fs_answer(&l.f, 1), 0);
	fs_close(&l.f);
}

struct stopper {
	int fd;
	bool done;
};

static void *stop_ring(void *arg)
{
	struct stopper *stopper = arg;

	EXPECT(!ioctl(stopper->fd, VHOST_SERVE_STOP, (long)LATE_QUEUE));
	__atomic_store_n(&stopper->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void stop_waits_for_one_that_sleeps(void)
{
	struct stopper stopper = {};
	struct vhost_poll_stats before;
	pthread_t thread;
	struct late l;
	unsigned int i;

	late_begin(&l);
	before = poller_stats(&l.f);
	for (i = 1; i <= 2; i++) {
		until_there_is_a_spare(&l.f);
		late_send(&l, i);
		expect_handoffs(&l.f, before.handoffs + i);
	}
	stopper.fd = l.f.fd;
	EXPECT(!pthread_create(&thread, NULL, stop_ring, &stopper));
	nap();
	EXPECT(!__atomic_load_n(&stopper.done, __ATOMIC_ACQUIRE));
	/* The other rings go on meanwhile. */
	make_and_remove(&l.f, 0);
	late_answer(&l, 2);
	nap();
	EXPECT(!__atomic_load_n(&stopper.done, __ATOMIC_ACQUIRE));
	late_answer(&l, 1);
	EXPECT(!pthread_join(thread, NULL));
	EXPECT_EQ(ring_stats(&l.f, LATE_QUEUE).inflight, 0);
	fs_close(&l.f);
}

static unsigned int poller_threads(void)
{
	FILE *pipe = popen("grep -l '^vhost-poll' /proc/[0-9]*/comm 2>/dev/null | wc -l",
			   "r");
	unsigned int n;

	EXPECT(pipe && fscanf(pipe, "%u", &n) == 1);
	pclose(pipe);
	return n;
}

static void be_killed_asleep(unsigned int sleepers)
{
	struct vhost_poll_stats before;
	struct late l;
	unsigned int i;

	late_begin(&l);
	before = poller_stats(&l.f);
	for (i = 1; i <= sleepers; i++) {
		if (i <= PER_OWNER)
			until_there_is_a_spare(&l.f);
		late_send(&l, i);
		if (i <= PER_OWNER)
			expect_handoffs(&l.f, before.handoffs + i);
	}
	raise(SIGSTOP);
}

/* The kernel ends the faults with the descriptor, and the requests go on. */
static void an_owner_killed_asleep_leaves_no_thread(void)
{
	unsigned int i, left = poller_threads();
	int status;
	pid_t pid;

	for (i = 0; i < (ktap_full() ? 200 : 5); i++) {
		pid = fork();
		EXPECT(pid >= 0);
		if (!pid) {
			be_killed_asleep(1 + i % (PER_OWNER + 1));
			_exit(1);
		}
		EXPECT_EQ(waitpid(pid, &status, WUNTRACED), pid);
		EXPECT(WIFSTOPPED(status));
		EXPECT(!kill(pid, SIGKILL));
		EXPECT_EQ(waitpid(pid, &status, 0), pid);
		EVENTUALLY(poller_threads() == left);
	}
}

static void big_files_are_freed_by_workers(void)
{
	static const char *const ops[] = { "unlink", "truncate", "open", "create" };
	struct fuse_setattr_in cut = { .valid = FATTR_SIZE };
	struct vhost_serve_stats before;
	struct fs f;
	unsigned int i;
	u64 node, fh;

	hot_begin(&f, "tmpfs");
	for (i = 0; i < KTAP_COUNT(ops); i++) {
		fs_host_write(&f, "big", "", 0);
		EXPECT(!truncate(fs_path(&f, "big"), 2 << 20));
		node = fs_node(&f, "big");
		before = ring_stats(&f, 1);
		if (i == 0)
			EXPECT_EQ(fs_remove(&f, FUSE_UNLINK, FUSE_ROOT_ID, "big"), 0);
		else if (i == 1)
			EXPECT_EQ(fs_setattr(&f, node, &cut), 0);
		else if (i == 2)
			EXPECT_EQ(fs_open_node(&f, node, O_RDWR | O_TRUNC, &fh), 0);
		else
			EXPECT_EQ(fs_create(&f, FUSE_ROOT_ID, "big",
					    O_RDWR | O_TRUNC, 0644, NULL, &fh), 0);
		ktap_msg("%s", ops[i]);
		EXPECT_EQ(ring_stats(&f, 1).punted - before.punted, 1);
		/* The same with a small one. */
		if (i == 0)
			fs_host_write(&f, "big", "x", 1);
		before = ring_stats(&f, 1);
		EXPECT_EQ(fs_remove(&f, FUSE_UNLINK, FUSE_ROOT_ID, "big"), 0);
		EXPECT_EQ(ring_stats(&f, 1).punted - before.punted, 0);
	}
	fs_close(&f);
}

static u64 free_inodes(struct fs *f)
{
	struct statvfs st;

	EXPECT(!statvfs(fs_path(f, ""), &st));
	return st.f_ffree;
}

/* Returns how many FORGETs of a file, which is removed, the poller's thread carries out. */
static u64 hot_forgets(struct fs *f, off_t size, bool open)
{
	u64 inodes = free_inodes(f), node, fh = 0, hot;

	fs_host_write(f, "file", "x", 1);
	EXPECT(!truncate(fs_path(f, "file"), size));
	node = fs_node(f, "file");
	if (open)
		EXPECT_EQ(fs_open_node(f, node, O_RDWR, &fh), 0);
	EXPECT_EQ(fs_remove(f, FUSE_UNLINK, FUSE_ROOT_ID, "file"), 0);
	EXPECT_EQ(free_inodes(f), inodes - 1);
	hot = ring_stats(f, 0).hot;
	/* More than it was told: the guest may lie. */
	fs_forget(f, node, open ? 1 : 7);
	hot = ring_stats(f, 0).hot - hot;
	EXPECT_EQ(fs_getattr(f, node, NULL), -ESTALE);
	if (open) {
		EXPECT_EQ(free_inodes(f), inodes - 1);
		EXPECT_EQ(fs_release(f, node, fh), 0);
	}
	EVENTUALLY(free_inodes(f) == inodes);
	return hot;
}

static void small_removed_files_are_freed_after_the_round(void)
{
	struct fs f;
	u64 node, hot;

	hot_begin(&f, "tmpfs");
	EXPECT_EQ(hot_forgets(&f, 1, false), 1);
	EXPECT_EQ(hot_forgets(&f, 2 << 20, false), 0);
	EXPECT_EQ(hot_forgets(&f, 1, true), 0);
	/* There is nothing to free. */
	fs_host_write(&f, "file", "x", 1);
	node = fs_node(&f, "file");
	hot = ring_stats(&f, 0).hot;
	fs_forget(&f, node, 1);
	EXPECT_EQ(ring_stats(&f, 0).hot, hot);
	fs_close(&f);
}

static u64 punted(struct fs *f)
{
	return ring_stats(f, 1).punted;
}

static void what_takes_long_is_left_to_workers(void)
{
	struct fuse_read_in dirents = { .size = 32 << 10 };
	struct fuse_lk_in lock = { .owner = 1, .lk.type = F_WRLCK };
	static u8 data[(128 << 10) + 1];
	struct fuse_entry_out e;
	struct fs f;
	u64 fh, before;
	int fd;

	hot_begin(&f, "tmpfs");
	EXPECT_EQ(fs_create(&f, FUSE_ROOT_ID, "file", O_RDWR, 0644, &e, &fh), 0);
	before = punted(&f);
	EXPECT_EQ(fs_write(&f, e.nodeid, fh, 0, data, sizeof(data) - 1),
		  sizeof(data) - 1);
	EXPECT_EQ(punted(&f) - before, 0);
	EXPECT_EQ(fs_write(&f, e.nodeid, fh, 0, data, sizeof(data)), sizeof(data));
	EXPECT_EQ(punted(&f) - before, 1);
	EXPECT_EQ(fs_write_flags(&f, e.nodeid, fh, 0, data, sizeof(data), O_DIRECT, 0),
		  sizeof(data));
	EXPECT_EQ(punted(&f) - before, 2);
	/* There is no disk to wait for. */
	EXPECT_EQ(fs_write_flags(&f, e.nodeid, fh, 0, data, 1, O_DSYNC, 0), 1);
	EXPECT_EQ(fs_write_flags(&f, e.nodeid, fh, 0, data, 4096, O_DIRECT, 0), 4096);
	EXPECT_EQ(punted(&f) - before, 2);

	/* The first one brings in the memory for the answers. */
	EXPECT_EQ(fs_read(&f, e.nodeid, fh, 0, sizeof(data), data), sizeof(data));
	before = punted(&f);
	EXPECT_EQ(fs_read(&f, e.nodeid, fh, 0, sizeof(data) - 1, data), sizeof(data) - 1);
	EXPECT_EQ(punted(&f) - before, 0);
	EXPECT_EQ(fs_read(&f, e.nodeid, fh, 0, sizeof(data), data), sizeof(data));
	EXPECT_EQ(punted(&f) - before, 1);

	EXPECT_EQ(fs_open_dir(&f, FUSE_ROOT_ID, (u64 *)&dirents.fh), 0);
	EXPECT_EQ(fs_call(&f, FUSE_READDIR, FUSE_ROOT_ID, &dirents,
			  sizeof(dirents), dirents.size), 0);
	EXPECT_EQ(punted(&f) - before, 2);
	dirents.size = 4096;
	dirents.offset = 0;
	EXPECT_EQ(fs_call(&f, FUSE_READDIR, FUSE_ROOT_ID, &dirents,
			  sizeof(dirents), dirents.size), 0);
	EXPECT_EQ(punted(&f) - before, 2);

	/* The lock is a worker's, and so is closing the file then. */
	lock.fh = fh;
	EXPECT_EQ(fs_call(&f, FUSE_SETLK, e.nodeid, &lock, sizeof(lock), 0), 0);
	EXPECT_EQ(punted(&f) - before, 3);
	EXPECT_EQ(fs_release(&f, e.nodeid, fh), 0);
	EXPECT_EQ(punted(&f) - before, 4);

	/* Small by its size, and large by its blocks. */
	fd = open(fs_path(&f, "file"), O_RDWR);
	EXPECT(fd >= 0);
	EXPECT(!fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 2 << 20));
	close(fd);
	EXPECT_EQ(fs_remove(&f, FUSE_UNLINK, FUSE_ROOT_ID, "file"), 0);
	EXPECT_EQ(punted(&f) - before, 5);
	fs_close(&f);
}

/* READ of 128 KiB from the beginning of a file, in a slot. */
static void send_read(struct fs *f, unsigned int slot, u64 node, u64 fh)
{
	u8 in[sizeof(struct fuse_in_header) + sizeof(struct fuse_read_in)];
	struct fuse_read_in arg = { .fh = fh, .size = 128 << 10 };
	struct fs_raw raw = {
		.in = in, .in_len = sizeof(in), .queue = 1,
		.out_room = sizeof(struct fuse_out_header) + arg.size,
	};

	fs_header(f, (void *)in, FUSE_READ, node, sizeof(arg));
	memcpy(in + sizeof(struct fuse_in_header), &arg, sizeof(arg));
	fs_send(f, slot, &raw);
}

/* A ring starts with more reads than its device may have in a round. */
static void a_round_copies_so_much_and_no_more(void)
{
	static const u8 data[128 << 10];
	struct fuse_entry_out e;
	u16 base[FS_QUEUES];
	unsigned int i;
	struct fs f;
	u64 fh, before;

	hot_begin(&f, "tmpfs");
	EXPECT_EQ(fs_create(&f, FUSE_ROOT_ID, "file", O_RDWR, 0644, &e, &fh), 0);
	EXPECT_EQ(fs_write(&f, e.nodeid, fh, 0, data, sizeof(data)), sizeof(data));
	/* Once, so that the memory for the answers is there. */
	for (i = 0; i < FS_SLOTS; i++) {
		send_read(&f, i, e.nodeid, fh);
		fs_wait(&f, i, 1);
	}
	before = punted(&f);
	fs_hand_over(&f, base);
	for (i = 0; i < FS_SLOTS; i++)
		send_read(&f, i, e.nodeid, fh);
	fs_take_over(&f, base);
	for (i = 0; i < FS_SLOTS; i++)
		EXPECT_EQ(fs_wait(&f, i, 1), sizeof(struct fuse_out_header) + sizeof(data));
	EXPECT_EQ(punted(&f) - before, 0);
	ktap_msg("%llu rounds", (unsigned long long)poller_stats(&f).rounds_hit);
	/* With two rings or more, each may copy 512 KiB at most. */
	EXPECT(poller_stats(&f).rounds_hit >= FS_SLOTS * sizeof(data) / (512 << 10));
	fs_close(&f);
}

/* The reader allocates an event for the watcher, and may sleep. */
static void a_read_that_is_watched_is_left_to_workers(void)
{
	struct vhost_serve_stats before;
	struct fuse_entry_out e;
	char event[256], data[] = "data", back[sizeof(data)];
	int fd = inotify_init1(IN_NONBLOCK);
	struct fs f;
	u64 fh;

	EXPECT(fd >= 0);
	hot_begin(&f, "tmpfs");
	EXPECT_EQ(fs_create(&f, FUSE_ROOT_ID, "file", O_RDWR, 0644, &e, &fh), 0);
	EXPECT_EQ(fs_write(&f, e.nodeid, fh, 0, data, sizeof(data)), sizeof(data));
	/* Once, so that the memory for the answer is there. */
	EXPECT_EQ(fs_read(&f, e.nodeid, fh, 0, sizeof(data), back), sizeof(data));
	before = ring_stats(&f, 1);
	EXPECT_EQ(fs_read(&f, e.nodeid, fh, 0, sizeof(data), back), sizeof(data));
	EXPECT_EQ(ring_stats(&f, 1).punted - before.punted, 0);

	EXPECT(inotify_add_watch(fd, fs_path(&f, "file"), IN_ACCESS) >= 0);
	EXPECT_EQ(fs_read(&f, e.nodeid, fh, 0, sizeof(data), back), sizeof(data));
	EXPECT_EQ(ring_stats(&f, 1).punted - before.punted, 1);
	EXPECT(read(fd, event, sizeof(event)) > 0);
	close(fd);
	fs_close(&f);
}

static void a_frozen_file_system_is_left_to_workers(void)
{
	struct {
		struct fuse_in_header ih;
		struct fuse_mkdir_in arg;
		char name[2];
	} in = { .arg.mode = 0755, .name = "d" };
	struct fs_raw raw = {
		.in = &in,
		.in_len = offsetof(typeof(in), name) + sizeof(in.name),
		.out_room = sizeof(struct fuse_out_header) +
			    sizeof(struct fuse_entry_out),
		.queue = 1,
	};
	struct vhost_serve_stats before;
	struct vhost_poll_stats poller;
	struct fs f;
	int dir;

	hot_begin(&f, "ext4");
	dir = open(f.dir, O_RDONLY);
	EXPECT(dir >= 0);
	EXPECT(!ioctl(dir, FIFREEZE, 0));
	before = ring_stats(&f, 1);
	poller = poller_stats(&f);
	fs_header(&f, &in.ih, FUSE_MKDIR, FUSE_ROOT_ID,
		  raw.in_len - sizeof(in.ih));
	fs_send(&f, 1, &raw);
	nap();
	EXPECT_EQ(fs_getattr(&f, FUSE_ROOT_ID, NULL), 0);
	EXPECT(!fs_poll(&f, 1, 1));
	EXPECT_EQ(ring_stats(&f, 1).punted - before.punted, 1);
	EXPECT_EQ(poller_stats(&f).handoffs, poller.handoffs);
	EXPECT(!ioctl(dir, FITHAW, 0));
	fs_wait(&f, 1, 1);
	EXPECT_EQ(fs_answer(&f, 1), 0);
	close(dir);
	fs_close(&f);
}

#define DEEP	300	/* directories, of which a guest may make any number */

/* A rename has each node looked at once: is it still beneath the directory? */
static u64 punted_after_rename(struct fs *f, u64 node)
{
	u64 before = ring_stats(f, 1).punted;

	EXPECT(!rename(fs_path(f, "one"), fs_path(f, "two")));
	EXPECT(!rename(fs_path(f, "two"), fs_path(f, "one")));
	EXPECT_EQ(fs_getattr(f, node, NULL), 0);
	return ring_stats(f, 1).punted - before;
}

static void a_long_way_up_is_left_to_workers(void)
{
	u64 node = FUSE_ROOT_ID, first = 0;
	struct fuse_entry_out e;
	unsigned int i;
	struct fs f;

	hot_begin(&f, "tmpfs");
	fs_host_write(&f, "one", "", 0);
	for (i = 0; i < DEEP; i++) {
		EXPECT_EQ(fs_mkdir(&f, node, "d", 0755, &e), 0);
		node = e.nodeid;
		first = first ?: node;
	}
	EXPECT_EQ(punted_after_rename(&f, first), 0);
	EXPECT(punted_after_rename(&f, node));
	fs_close(&f);
}

#define TEST(f) { .name = #f, .run = f, .limit = 600 }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(names_and_writes_need_no_worker),
		TEST(nor_on_ext4),
		TEST(one_that_sleeps_passes_the_rings_on),
		TEST(one_that_waits_for_a_running_task_passes_the_rings_on),
		TEST(an_owner_sleeps_in_a_few_threads_only),
		TEST(stop_waits_for_one_that_sleeps),
		TEST(an_owner_killed_asleep_leaves_no_thread),
		TEST(big_files_are_freed_by_workers),
		TEST(small_removed_files_are_freed_after_the_round),
		TEST(what_takes_long_is_left_to_workers),
		TEST(a_round_copies_so_much_and_no_more),
		TEST(a_read_that_is_watched_is_left_to_workers),
		TEST(a_frozen_file_system_is_left_to_workers),
		TEST(a_long_way_up_is_left_to_workers),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), hot_cleanup);
}
