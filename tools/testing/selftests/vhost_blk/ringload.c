// SPDX-License-Identifier: GPL-2.0
/*
 * ringload: a load generator that plays the guest of a virtio-blk device in
 * the host, so that what the host side costs can be compared without a guest
 * and without nesting.  One thread submits to and reaps all queues.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "ringload.h"

#define THREAD_NAME	"rload"

struct slot {
	struct virtio_blk_outhdr *hdr;
	u8 *status;
	struct ring_seg seg[3];
	u64 start_ns;
};

struct queue {
	struct ring ring;
	struct slot *slots;
	struct slot **idle;
	unsigned int nidle;
};

struct load {
	struct load_opts o;
	struct ring_mem mem;
	/* how much of the second region is in use */
	size_t high;
	struct vdev dev;
	struct queue *q;
	int poller[LOAD_MAX_CPUS];
	u64 blocks;
	u64 seq;
	u64 seed;
	double next_ns;
	bool counting;
	bool draining;
	u64 errors;
	struct latency lat;
};

/* What is read at both ends of the measured time. */
struct sample {
	u64 ns;
	u64 cpu_ns;
	u64 player_ns;
	u64 kicks;
	u64 waits;
	u64 rounds;
	u64 busy_ns;
	u64 sleeps;
	u64 calls;
	u64 commands;
};

static u64 rnd(struct load *l)
{
	l->seed ^= l->seed << 13;
	l->seed ^= l->seed >> 7;
	l->seed ^= l->seed << 17;
	return l->seed;
}

static u64 next_sector(struct load *l)
{
	u64 block = l->o.sequential ? l->seq++ : rnd(l) >> 11;

	return block % l->blocks * (l->o.bs / 512);
}

static void submit(struct load *l, struct queue *q, u64 now)
{
	struct slot *s = q->idle[--q->nidle];
	int ret;

	s->hdr->type = l->o.write ? VIRTIO_BLK_T_OUT : VIRTIO_BLK_T_IN;
	s->hdr->sector = next_sector(l);
	*s->status = 0xff;
	s->start_ns = now;
	if (q->ring.indirect)
		ret = ring_add_indirect(&q->ring, s->seg, 3, s);
	else
		ret = ring_add(&q->ring, s->seg, 3, s);
	if (ret < 0)
		abort();
}

static unsigned int reap(struct load *l, struct queue *q)
{
	unsigned int n = 0;
	struct slot *s;
	u64 now;

	if (!ring_has_used(&q->ring))
		return 0;
	now = now_ns();
	while ((s = ring_pop(&q->ring, NULL))) {
		if (l->counting)
			lat_add(&l->lat, now - s->start_ns);
		if (*s->status != VIRTIO_BLK_S_OK)
			l->errors++;
		q->idle[q->nidle++] = s;
		n++;
	}
	return n;
}

static double interval(struct load *l)
{
	double mean = 1e9 / l->o.rate;

	if (!l->o.poisson)
		return mean;
	return -mean * log(((rnd(l) >> 11) + 1) * ldexp(1, -53));
}

/* As many as the depth and the rate allow; the rate goes round the queues. */
static unsigned int fill(struct load *l, struct queue *q)
{
	unsigned int n = 0;
	u64 now;

	if (l->draining || !q->nidle)
		return 0;
	if (l->o.burst && q->nidle < l->o.depth)
		return 0;
	now = now_ns();
	while (q->nidle) {
		if (l->o.rate) {
			if (now < l->next_ns)
				break;
			l->next_ns += interval(l);
		}
		submit(l, q, now);
		n++;
		if (l->o.rate && l->o.queues > 1)
			break;
	}
	if (n) {
		ring_publish(&q->ring);
		ring_kick(&q->ring);
	}
	return n;
}

static void sleep_for_work(struct load *l)
{
	struct pollfd pfd[VHOST_SERVE_MAX_VRINGS];
	struct timespec ts = { .tv_nsec = 100000000 };
	u64 count, now;
	unsigned int i;

	for (i = 0; i < l->o.queues; i++) {
		ring_enable_call(&l->q[i].ring);
		if (ring_has_used(&l->q[i].ring))
			return;
		pfd[i] = (struct pollfd){ l->q[i].ring.call, POLLIN, 0 };
	}
	now = now_ns();
	if (l->o.rate && !l->draining) {
		if (l->next_ns <= now)
			return;
		if (l->next_ns - now < ts.tv_nsec)
			ts.tv_nsec = l->next_ns - now;
	}
	if (ppoll(pfd, l->o.queues, &ts, NULL) <= 0)
		return;
	for (i = 0; i < l->o.queues; i++) {
		if (pfd[i].revents &&
		    read(l->q[i].ring.call, &count, sizeof(count)) < 0 &&
		    errno != EAGAIN)
			abort();
	}
}

static void run_until(struct load *l, u64 end)
{
	unsigned int i, work;

	while (now_ns() < end) {
		work = 0;
		for (i = 0; i < l->o.queues; i++) {
			work += reap(l, &l->q[i]);
			work += fill(l, &l->q[i]);
		}
		if (!work && l->o.wait_event)
			sleep_for_work(l);
	}
}

static bool busy(const struct load *l)
{
	unsigned int i;

	for (i = 0; i < l->o.queues; i++)
		if (ring_inflight(&l->q[i].ring))
			return true;
	return false;
}

static int drain(struct load *l)
{
	u64 limit = now_ns() + 30 * 1000000000ULL;

	l->draining = true;
	while (busy(l)) {
		if (now_ns() > limit)
			return -ETIMEDOUT;
		run_until(l, now_ns() + 1000000);
	}
	return 0;
}

static void sample_kernel(struct load *l, struct sample *s)
{
	struct vhost_poll_stats ps;
	struct vhost_blk_stats bs;
	unsigned int i;

	for (i = 0; i < l->o.npoll; i++) {
		if (poller_stats(l->poller[i], &ps))
			continue;
		s->rounds += ps.rounds;
		s->busy_ns += ps.busy_ns;
		s->sleeps += ps.sleeps;
	}
	for (i = 0; i < l->o.queues; i++) {
		if (vblk_stats(l->dev.fd, i, &bs))
			continue;
		s->calls += bs.calls;
		s->commands += bs.commands;
	}
}

static void sample(struct load *l, struct sample *s)
{
	unsigned int i;

	memset(s, 0, sizeof(*s));
	for (i = 0; i < l->o.nwatch; i++)
		s->cpu_ns += cpu_of_name(l->o.watch[i]);
	if (l->o.device) {
		s->cpu_ns += cpu_of_name(THREAD_NAME);
		sample_kernel(l, s);
	} else {
		s->cpu_ns += cpu_of_pid(l->dev.pid);
	}
	for (i = 0; i < l->o.queues; i++) {
		s->kicks += l->q[i].ring.kicks;
		s->waits += l->q[i].ring.waits;
	}
	s->player_ns = cpu_of_pid(getpid());
	s->ns = now_ns();
}

static void report(const struct load *l, const struct sample *a,
		   const struct sample *b)
{
	const struct load_opts *o = &l->o;
	double wall = b->ns - a->ns;
	double ios = l->lat.count ? l->lat.count : 1;

	printf("{\"path\": \"%s\", \"op\": \"%s\", \"bs\": %u, \"depth\": %u, \"queues\": %u, ",
	       o->path, o->op, o->bs, o->depth, o->queues);
	printf("\"mode\": \"%s\", \"pollers\": %u, \"rate\": %.0f, ",
	       o->device ? o->mode_name : "", o->device ? o->npoll : 0, o->rate);
	printf("\"secs\": %.3f, \"ios\": %llu, \"errors\": %llu, ", wall / 1e9,
	       (unsigned long long)l->lat.count,
	       (unsigned long long)l->errors);
	printf("\"iops\": %.1f, \"ns_per_io\": %.1f, ",
	       l->lat.count / (wall / 1e9), wall / ios);
	printf("\"lat_us\": {\"mean\": %.3f, \"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f}, ",
	       l->lat.sum / ios / 1e3, lat_percentile(&l->lat, 0.50) / 1e3,
	       lat_percentile(&l->lat, 0.99) / 1e3, l->lat.max / 1e3);
	printf("\"cpu_ns_per_io\": %.1f, \"cpu_pct\": %.3f, \"player_pct\": %.1f, ",
	       (b->cpu_ns - a->cpu_ns) / ios,
	       (b->cpu_ns - a->cpu_ns) / wall * 100,
	       (b->player_ns - a->player_ns) / wall * 100);
	printf("\"busy_pct\": %.3f, \"rounds\": %llu, \"sleeps\": %llu, ",
	       (b->busy_ns - a->busy_ns) / wall * 100,
	       (unsigned long long)(b->rounds - a->rounds),
	       (unsigned long long)(b->sleeps - a->sleeps));
	printf("\"kicks\": %llu, \"calls\": %llu, \"commands\": %llu}\n",
	       (unsigned long long)(b->kicks - a->kicks),
	       (unsigned long long)(b->calls - a->calls),
	       (unsigned long long)(b->commands - a->commands));
}

static void *data_alloc(struct load *l)
{
	size_t at = l->mem.split + l->high;

	if (!l->o.high_data)
		return ring_mem_alloc(&l->mem, l->o.bs, 4096);
	l->high += (l->o.bs + 4095) & ~4095UL;
	return at + l->o.bs <= l->mem.size ? l->mem.base + at : NULL;
}

static int queue_init(struct load *l, unsigned int index)
{
	struct queue *q = &l->q[index];
	const struct load_opts *o = &l->o;
	bool indirect = !o->no_indirect &&
			l->dev.features & FEATURE(VIRTIO_RING_F_INDIRECT_DESC);
	unsigned int i;
	u8 *data;
	int ret;

	ret = ring_init(&q->ring, &l->mem, index, o->ring_size,
			indirect ? 3 : 0);
	if (ret)
		return ret;
	q->slots = calloc(o->depth, sizeof(*q->slots));
	q->idle = calloc(o->depth, sizeof(*q->idle));
	for (i = 0; i < o->depth; i++) {
		struct slot *s = &q->slots[i];

		s->hdr = ring_mem_alloc(&l->mem, 64, 64);
		data = data_alloc(l);
		if (!s->hdr || !data)
			return -ENOMEM;
		s->status = (u8 *)s->hdr + sizeof(*s->hdr);
		s->seg[0] = ring_seg(&l->mem, s->hdr, sizeof(*s->hdr), false);
		s->seg[1] = ring_seg(&l->mem, data, o->bs, !o->write);
		s->seg[2] = ring_seg(&l->mem, s->status, 1, true);
		q->idle[q->nidle++] = s;
	}
	return 0;
}

static int fail(const char *what, int err)
{
	fprintf(stderr, "ringload: %s: %s\n", what, strerror(-err));
	return 1;
}

static int open_kernel(struct load *l, u64 want)
{
	struct load_opts *o = &l->o;
	int backend, ret;
	unsigned int i;

	backend = open(o->device, O_RDWR | (o->buffered ? 0 : O_DIRECT));
	if (backend < 0)
		return fail(o->device, -errno);
	ret = vdev_open_kernel(&l->dev, &l->mem, backend, o->backend_flags,
			       o->engine, want);
	close(backend);
	if (ret)
		return fail("/dev/vhost-blk", ret);

	for (i = 0; i < o->npoll; i++) {
		char name[VHOST_POLL_NAME_LEN];

		snprintf(name, sizeof(name), THREAD_NAME "%u", i);
		l->poller[i] = poller_open(o->poll_cpu[i], o->mode, name);
		if (l->poller[i] < 0)
			return fail("/dev/vhost-poll", l->poller[i]);
	}
	for (i = 0; i < o->queues; i++) {
		l->dev.poller[i] = l->poller[i % o->npoll];
		if (i < o->nhctx)
			l->dev.hctx[i] = o->hctx[i];
	}
	return 0;
}

static size_t mem_needed(const struct load_opts *o)
{
	size_t slot = ((o->bs + 4095) & ~4095UL) + 8192;
	size_t ring = o->ring_size * (16 + 6 + 8 + 3 * 16) + 3 * 8192UL;

	return (o->queues * (o->depth * slot + ring) + (2UL << 20)) &
	       ~((2UL << 20) - 1);
}

static int prepare(struct load *l)
{
	struct load_opts *o = &l->o;
	u64 want = VDEV_FEATURES;
	unsigned int i;
	size_t size;
	int ret;

	if (o->no_event_idx)
		want &= ~FEATURE(VIRTIO_RING_F_EVENT_IDX);
	size = mem_needed(o) + (2UL << 20);
	ret = ring_mem_init(&l->mem, o->high_data ? 2 * size : size);
	if (ret)
		return fail("guest memory", ret);
	if (o->high_data) {
		l->mem.split = size;
		l->mem.hole = 1UL << 30;
	}
	memset(l->mem.base, 0, l->mem.size);

	if (o->device)
		ret = open_kernel(l, want);
	else
		ret = vdev_open_user(&l->dev, &l->mem, o->socket, want);
	if (ret)
		return o->device ? ret : fail(o->socket, ret);
	if (o->queues > l->dev.num_queues)
		return fail("that many queues", -EINVAL);

	l->blocks = l->dev.capacity * 512 / o->bs;
	if (o->span && o->span / o->bs < l->blocks)
		l->blocks = o->span / o->bs;
	if (!l->blocks)
		return fail("the disk is too small", -EINVAL);

	l->q = calloc(o->queues, sizeof(*l->q));
	for (i = 0; i < o->queues; i++) {
		ret = queue_init(l, i);
		if (ret)
			return fail("guest memory", ret);
		ret = vdev_start(&l->dev, &l->q[i].ring);
		if (ret)
			return fail("starting a vring", ret);
		if (!o->wait_event)
			ring_disable_call(&l->q[i].ring);
	}
	return 0;
}

static int bind_to(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return 0;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
}

int main(int argc, char **argv)
{
	static struct load l;
	struct sample before, after;
	int ret;

	ret = load_parse(&l.o, argc, argv);
	if (ret)
		return ret;
	l.seed = 0x9e3779b97f4a7c15ULL;
	ret = bind_to(l.o.cpu);
	if (ret)
		return fail("--cpu", ret);
	ret = prepare(&l);
	if (ret)
		return ret;

	l.next_ns = now_ns();
	run_until(&l, now_ns() + (u64)(l.o.warmup * 1e9));
	sample(&l, &before);
	l.counting = true;
	run_until(&l, now_ns() + (u64)(l.o.secs * 1e9));
	l.counting = false;
	sample(&l, &after);

	ret = drain(&l);
	if (ret)
		return fail("requests were never completed", ret);
	report(&l, &before, &after);
	return l.errors ? 1 : 0;
}
