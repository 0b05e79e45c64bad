// SPDX-License-Identifier: GPL-2.0
/*
 * fsload OP FS SECS [host]: one operation over and over, on a file system of kind FS.
 *
 * The requests go to /dev/vhost-fs as a guest's would, one at a time, to a busy poller on
 * the last CPU; this process polls for the replies on the first one.  With "host" it makes
 * the system calls that do the same, on the last CPU, for comparison.  It prints one line
 * of JSON.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <linux/vhost_serve.h>

#include "fsrig.h"

#define QUEUE		1
#define BLOCK		4096
#define FILE_SIZE	(64 * BLOCK)
#define NAME		"file"

struct load {
	struct fs f;
	u64 node;
	u64 fh;
	int dir;
	int fd;
	u64 turn;
};

struct op {
	const char *name;
	/* requests, or system calls, of a turn */
	unsigned int requests;
	void (*ring)(struct load *l);
	void (*host)(struct load *l);
};

#define NO_REPLY	(~0U)

/* As fs_call_data(), but without an interrupt. */
static void play(struct load *l, u32 opcode, u64 node, const void *arg, u32 len,
		 u32 room)
{
	static u8 in[512];
	struct fs_raw raw = {
		.in = in, .in_len = sizeof(struct fuse_in_header) + len,
		.out_room = room == NO_REPLY ? 0 :
			    sizeof(struct fuse_out_header) + room,
		.queue = QUEUE,
	};

	fs_header(&l->f, (void *)in, opcode, node, len);
	memcpy(in + sizeof(struct fuse_in_header), arg, len);
	fs_send(&l->f, 0, &raw);
	while (!fs_poll(&l->f, 0, QUEUE))
		;
	if (room != NO_REPLY)
		EXPECT_EQ(fs_answer(&l->f, 0), 0);
}

static u64 place(struct load *l)
{
	return l->turn % (FILE_SIZE / BLOCK) * BLOCK;
}

static void ring_getattr(struct load *l)
{
	struct fuse_getattr_in in = {};

	play(l, FUSE_GETATTR, l->node, &in, sizeof(in),
	     sizeof(struct fuse_attr_out));
}

static void host_getattr(struct load *l)
{
	struct stat st;

	EXPECT(!syscall(SYS_fstat, l->fd, &st));
}

static void ring_lookup(struct load *l)
{
	play(l, FUSE_LOOKUP, FUSE_ROOT_ID, NAME, sizeof(NAME),
	     sizeof(struct fuse_entry_out));
}

static void host_lookup(struct load *l)
{
	struct stat st;

	EXPECT(!syscall(SYS_newfstatat, l->dir, NAME, &st, 0));
}

static void ring_read(struct load *l)
{
	struct fuse_read_in in = {
		.fh = l->fh, .offset = place(l), .size = BLOCK,
	};

	play(l, FUSE_READ, l->node, &in, sizeof(in), BLOCK);
}

static void host_read(struct load *l)
{
	static char data[BLOCK];

	EXPECT_EQ(pread(l->fd, data, BLOCK, place(l)), BLOCK);
}

static void ring_write(struct load *l)
{
	struct {
		struct fuse_in_header ih;
		struct fuse_write_in arg;
	} in = { .arg = { .fh = l->fh, .offset = place(l), .size = BLOCK } };
	struct fs_raw raw = {
		.in = &in, .in_len = sizeof(in), .data_len = BLOCK,
		.out_room = sizeof(struct fuse_out_header) +
			    sizeof(struct fuse_write_out),
		.queue = QUEUE,
	};

	fs_header(&l->f, &in.ih, FUSE_WRITE, l->node, sizeof(in.arg) + BLOCK);
	fs_send(&l->f, 0, &raw);
	while (!fs_poll(&l->f, 0, QUEUE))
		;
	EXPECT_EQ(fs_answer(&l->f, 0), 0);
}

static void host_write(struct load *l)
{
	static char data[BLOCK];

	EXPECT_EQ(pwrite(l->fd, data, BLOCK, place(l)), BLOCK);
}

/* A guest sends these requests when a program makes a file, closes and removes it. */
static void ring_create(struct load *l)
{
	struct {
		struct fuse_create_in arg;
		char name[4];
	} in = { .arg = { .flags = O_RDWR, .mode = 0644 }, .name = "new" };
	struct fuse_release_in release = {};
	struct fuse_forget_in forget = { .nlookup = 1 };
	struct fuse_entry_out *e;
	u64 node;

	play(l, FUSE_CREATE, FUSE_ROOT_ID, &in, sizeof(in),
	     sizeof(*e) + sizeof(struct fuse_open_out));
	e = (void *)l->f.reply;
	node = e->nodeid;
	release.fh = ((struct fuse_open_out *)(e + 1))->fh;
	play(l, FUSE_RELEASE, node, &release, sizeof(release), 0);
	play(l, FUSE_UNLINK, FUSE_ROOT_ID, "new", 4, 0);
	play(l, FUSE_FORGET, node, &forget, sizeof(forget), NO_REPLY);
}

static void host_create(struct load *l)
{
	int fd = openat(l->dir, "new", O_CREAT | O_RDWR, 0644);

	EXPECT(fd >= 0);
	EXPECT(!close(fd));
	EXPECT(!unlinkat(l->dir, "new", 0));
}

static const struct op ops[] = {
	{ "getattr", 1, ring_getattr, host_getattr },
	{ "lookup", 1, ring_lookup, host_lookup },
	{ "read", 1, ring_read, host_read },
	{ "write", 1, ring_write, host_write },
	{ "create", 4, ring_create, host_create },
};

static const struct op *find_op(const char *name)
{
	unsigned int i;

	for (i = 0; i < KTAP_COUNT(ops); i++)
		if (!strcmp(ops[i].name, name))
			return &ops[i];
	return NULL;
}

static u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static void run_on(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	EXPECT(!sched_setaffinity(0, sizeof(set), &set));
}

static void load_begin(struct load *l, const char *kind, bool host)
{
	static char data[FILE_SIZE];

	memset(l, 0, sizeof(*l));
	fs_make_dir(&l->f, kind);
	fs_host_write(&l->f, NAME, data, sizeof(data));
	l->dir = open(l->f.dir, O_RDONLY | O_DIRECTORY);
	l->fd = open(fs_path(&l->f, NAME), O_RDWR);
	EXPECT(l->dir >= 0 && l->fd >= 0);
	run_on(host ? sysconf(_SC_NPROCESSORS_ONLN) - 1 : 0);
	if (host)
		return;
	fs_open(&l->f, NULL);
	ring_disable_call(&l->f.ring[QUEUE]);
	l->node = fs_node(&l->f, NAME);
	EXPECT_EQ(fs_open_node(&l->f, l->node, O_RDWR, &l->fh), 0);
}

static struct vhost_serve_stats ring_stats(struct load *l)
{
	struct vhost_serve_stats s = { .size = sizeof(s), .index = QUEUE };

	EXPECT(!ioctl(l->f.fd, VHOST_SERVE_GET_STATS, &s));
	return s;
}

static struct vhost_poll_stats poller_stats(struct load *l)
{
	struct vhost_poll_stats s = { .size = sizeof(s) };

	EXPECT(!ioctl(l->f.poller, VHOST_POLL_GET_STATS, &s));
	return s;
}

static void run(struct load *l, void (*turn)(struct load *l), double secs)
{
	u64 end = now_ns() + secs * 1e9;

	while (now_ns() < end) {
		turn(l);
		l->turn++;
	}
}

int main(int argc, char **argv)
{
	const struct op *op = argc > 3 ? find_op(argv[1]) : NULL;
	bool host = argc > 4 && !strcmp(argv[4], "host");
	struct vhost_serve_stats before = {}, after = {};
	struct vhost_poll_stats poller = {};
	struct load l;
	u64 turns;

	if (!op) {
		fprintf(stderr, "usage: fsload getattr|lookup|read|write|create FS SECS [host]\n");
		return 2;
	}
	load_begin(&l, argv[2], host);
	/* What is learned, cached and recruited first. */
	run(&l, host ? op->host : op->ring, 1);
	turns = l.turn;
	if (!host) {
		before = ring_stats(&l);
		poller = poller_stats(&l);
	}
	run(&l, host ? op->host : op->ring, atof(argv[3]));
	if (!host) {
		after = ring_stats(&l);
		poller.handoffs = poller_stats(&l).handoffs - poller.handoffs;
		fs_close(&l.f);
	}
	printf("{\"op\": \"%s\", \"fs\": \"%s\", \"turns\": %llu, \"requests\": %u, ",
	       op->name, argv[2], (unsigned long long)(l.turn - turns), op->requests);
	printf("\"hot\": %llu, \"punted\": %llu, \"handoffs\": %llu}\n",
	       (unsigned long long)(after.hot - before.hot),
	       (unsigned long long)(after.punted - before.punted),
	       (unsigned long long)poller.handoffs);
	close(l.fd);
	close(l.dir);
	fs_cleanup();
	return 0;
}
