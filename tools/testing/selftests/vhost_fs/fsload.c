// SPDX-License-Identifier: GPL-2.0
/*
 * fsload: one operation over and over, on a file system, as a guest would have it done.
 *
 * The requests go to /dev/vhost-fs, to a busy poller on the last CPU, or to a vhost-user
 * socket, such as virtiofsd's; this process polls for the replies on the first CPU.  Or it
 * makes the system calls that do the same, on the last CPU, for comparison.  It prints one
 * line of JSON.
 */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <linux/vhost_serve.h>

#include "device.h"
#include "fsload.h"
#include "measure.h"

#define POLLERS		"vhost-poll/"
#define SMALL_ROOM	8192

static const char usage[] =
"usage: fsload OP FS SECS [OPTION]...\n"
"\n"
"  OP is one of %s.\n"
"  FS is tmpfs or what mkfs knows, which fsload makes, or a directory with a slash in its name.\n"
"\n"
"  --socket PATH  to a vhost-user socket whose server shares the same directory\n"
"  --host         by system calls\n"
"  --depth N      requests in flight (1)\n"
"  --burst        N requests at once, the next N when all are answered\n"
"  --times N      N times instead of SECS, in a window of tools/lab/insns/insns.c\n";

/* fsload reads these at both ends of the measured time. */
struct sample {
	u64 ns;
	u64 turns;
	u64 cpu_ns;
	u64 switches;
	u64 kicks;
	u64 busy_ns;
	u64 handoffs;
	u64 hot;
	u64 punted;
};

static void run_on(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	EXPECT(!sched_setaffinity(0, sizeof(set), &set));
}

static void window_begin(void)
{
	asm volatile(".byte 0x0f, 0x1f, 0x84, 0, 'p', 'v', 'i', 'b'" ::: "memory");
}

static void window_end(void)
{
	asm volatile(".byte 0x0f, 0x1f, 0x84, 0, 'p', 'v', 'i', 'e'" ::: "memory");
}

static void reap(struct load *l)
{
	struct fs_slot *s;
	unsigned int slot;
	u32 used;

	while ((s = ring_pop(&l->f.ring[LOAD_QUEUE], &used))) {
		s->used = used;
		slot = s - l->f.slot;
		if (l->o.op->next) {
			if (l->o.op->next(l, slot)) {
				l->added = true;
				continue;
			}
		} else {
			EXPECT_EQ(fs_answer(&l->f, slot), 0);
			EXPECT(l->f.reply_len >= l->o.op->reply);
		}
		l->idle[l->nidle++] = slot;
		l->turns++;
	}
}

static void fill(struct load *l, u64 limit)
{
	if (l->o.burst && l->nidle < l->o.depth)
		return;
	while (l->nidle && l->begun < limit) {
		l->o.op->send(l, l->idle[--l->nidle]);
		l->begun++;
		l->added = true;
	}
}

/* Goes on; begins no turn beyond @limit. */
static void step(struct load *l, u64 limit)
{
	if (!l->o.host) {
		reap(l);
		fill(l, limit);
		if (l->added)
			fs_publish(&l->f, LOAD_QUEUE);
		l->added = false;
		return;
	}
	if (l->begun >= limit)
		return;
	l->o.op->host(l);
	l->begun += l->o.depth;
	l->turns += l->o.depth;
}

static void run_for(struct load *l, double secs)
{
	u64 end = now_ns() + secs * 1e9;

	while (now_ns() < end)
		step(l, ~0ULL);
}

static void run_times(struct load *l, u64 times)
{
	u64 limit = l->begun + times;

	/* Those in flight end first. */
	while (l->turns < limit)
		step(l, limit);
}

static void open_socket(struct load *l)
{
	struct vdev d;
	unsigned int i;

	fs_make_memory(&l->f);
	EXPECT_EQ(vdev_open_user_fs(&d, &l->f.mem, l->o.socket,
				    FEATURE(VIRTIO_F_VERSION_1) |
				    FEATURE(VIRTIO_RING_F_EVENT_IDX)), 0);
	/* The high priority queue and that of requests. */
	EXPECT(d.num_queues > LOAD_QUEUE);
	for (i = 0; i <= LOAD_QUEUE; i++)
		EXPECT_EQ(vdev_start(&d, &l->f.ring[i]), 0);
	l->f.fd = d.fd;
	l->f.poller = -1;
	l->server = d.pid;
	EXPECT_EQ(fs_init(&l->f, ~0ULL, NULL), 0);
}

static void open_slots(struct load *l)
{
	unsigned int i;

	for (i = FS_SLOTS; i < l->o.depth; i++) {
		struct fs_slot *s = &l->f.slot[i];

		s->in = ring_mem_alloc(&l->f.mem, 4096, 4096);
		s->data = ring_mem_alloc(&l->f.mem, LOAD_BLOCK, 4096);
		s->out = ring_mem_alloc(&l->f.mem, SMALL_ROOM, 4096);
		EXPECT(s->in && s->data && s->out);
		s->out += 4096 - sizeof(struct fuse_out_header);
	}
	for (i = 0; i < l->o.depth; i++)
		l->idle[l->nidle++] = i;
}

static void load_begin(struct load *l)
{
	if (strchr(l->o.where, '/'))
		fs_use_dir(&l->f, l->o.where);
	else
		fs_make_dir(&l->f, l->o.where);
	load_make_files(l);
	load_open_host(l);
	run_on(l->o.host ? sysconf(_SC_NPROCESSORS_ONLN) - 1 : 0);
	if (l->o.host)
		return;
	if (l->o.socket)
		open_socket(l);
	else
		fs_open(&l->f, NULL);
	load_open_ring(l);
	open_slots(l);
}

static void load_end(struct load *l)
{
	run_times(l, 0);
	if (!l->o.host)
		fs_close(&l->f);
	close(l->dir);
	close(l->fd);
	close(l->root);
	if (!strchr(l->o.where, '/'))
		fs_cleanup();
}

static void sample_kernel(struct load *l, struct sample *s)
{
	struct vhost_serve_stats ring = { .size = sizeof(ring), .index = LOAD_QUEUE };
	struct vhost_poll_stats poller = { .size = sizeof(poller) };

	EXPECT(!ioctl(l->f.fd, VHOST_SERVE_GET_STATS, &ring));
	EXPECT(!ioctl(l->f.poller, VHOST_POLL_GET_STATS, &poller));
	s->hot = ring.hot;
	s->punted = ring.punted;
	s->handoffs = poller.handoffs;
	s->busy_ns = poller.busy_ns;
	s->cpu_ns = cpu_of_name(POLLERS);
	s->switches = switches_of_name(POLLERS);
}

static void sample(struct load *l, struct sample *s)
{
	int pid = l->o.host ? getpid() : l->server;

	memset(s, 0, sizeof(*s));
	if (pid) {
		s->cpu_ns = cpu_of_pid(pid);
		s->switches = switches_of_pid(pid);
	} else {
		sample_kernel(l, s);
	}
	if (!l->o.host)
		s->kicks = l->f.ring[LOAD_QUEUE].kicks;
	s->turns = l->turns;
	s->ns = now_ns();
}

static void report(const struct load *l, const struct sample *a, const struct sample *b)
{
	double secs = (b->ns - a->ns) / 1e9;
	double turns = b->turns - a->turns;

	printf("{\"op\": \"%s\", \"fs\": \"%s\", \"depth\": %u, \"requests\": %u, ",
	       l->o.op->name, l->o.where, l->o.depth, l->o.op->requests);
	printf("\"secs\": %.3f, \"turns\": %.0f, \"ops_per_s\": %.1f, ", secs, turns,
	       turns / secs);
	printf("\"cpu_ns_per_op\": %.1f, \"busy_ns_per_op\": %.1f, ",
	       (b->cpu_ns - a->cpu_ns) / turns, (b->busy_ns - a->busy_ns) / turns);
	printf("\"csw\": %llu, \"kicks\": %llu, ",
	       (unsigned long long)(b->switches - a->switches),
	       (unsigned long long)(b->kicks - a->kicks));
	printf("\"hot\": %llu, \"punted\": %llu, \"handoffs\": %llu}\n",
	       (unsigned long long)(b->hot - a->hot),
	       (unsigned long long)(b->punted - a->punted),
	       (unsigned long long)(b->handoffs - a->handoffs));
}

enum { O_SOCKET = 256, O_HOST, O_DEPTH, O_BURST, O_TIMES };

static const struct option long_opts[] = {
	{ "socket", required_argument, NULL, O_SOCKET },
	{ "host", no_argument, NULL, O_HOST },
	{ "depth", required_argument, NULL, O_DEPTH },
	{ "burst", no_argument, NULL, O_BURST },
	{ "times", required_argument, NULL, O_TIMES },
	{ }
};

static bool parse_one(struct load_opts *o, int c)
{
	switch (c) {
	case O_SOCKET:
		o->socket = optarg;
		return true;
	case O_HOST:
		o->host = true;
		return true;
	case O_DEPTH:
		o->depth = strtoul(optarg, NULL, 0);
		return true;
	case O_BURST:
		o->burst = true;
		return true;
	case O_TIMES:
		o->times = strtoul(optarg, NULL, 0);
		return true;
	default:
		return false;
	}
}

static bool parse(struct load_opts *o, int argc, char **argv)
{
	int c;

	*o = (struct load_opts){ .depth = 1 };
	while ((c = getopt_long(argc, argv, "", long_opts, NULL)) != -1)
		if (!parse_one(o, c))
			return false;
	if (argc - optind != 3)
		return false;
	o->op = load_find_op(argv[optind]);
	o->where = argv[optind + 1];
	o->secs = atof(argv[optind + 2]);
	if (!o->op || !o->depth || o->depth > FS_MAX_SLOTS)
		return false;
	/* A server can share only what is there before it starts. */
	if (o->socket && (o->host || !strchr(o->where, '/')))
		return false;
	return o->depth == 1 || (o->host ? !!o->op->next : o->op->deep);
}

int main(int argc, char **argv)
{
	static struct load l;
	struct sample before, after;

	if (!parse(&l.o, argc, argv)) {
		fprintf(stderr, usage, load_op_names());
		return 2;
	}
	/* A check that fails ends the process at once, with words on stdout. */
	setlinebuf(stdout);
	load_begin(&l);
	/* What is learned, cached and recruited first. */
	run_for(&l, 1);
	run_times(&l, 0);
	sample(&l, &before);
	if (l.o.times) {
		window_begin();
		run_times(&l, l.o.times);
		window_end();
	} else {
		run_for(&l, l.o.secs);
	}
	sample(&l, &after);
	load_end(&l);
	report(&l, &before, &after);
	return 0;
}
