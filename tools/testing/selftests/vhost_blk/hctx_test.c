// SPDX-License-Identifier: GPL-2.0
/*
 * Hardware contexts: each virtqueue is matched to one of the backend's, and it
 * is that one which gets its requests.  What null_blk was given is read from
 * the block layer (debugfs, requests in flight in each context), not from
 * what vhost_blk says.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

#define QUEUES		4
#define MAX_CONTEXTS	4
/* long enough to be looked at: as long as all of them wait */
#define SERVICE_NS	1000000000ULL

/* null_blk has no more than there are CPUs. */
static unsigned int contexts(void)
{
	return last_cpu() + 1 < MAX_CONTEXTS ? last_cpu() + 1 : MAX_CONTEXTS;
}

static const char *slow_disk(void)
{
	backend_need_modules();
	run_command("mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug");
	return nullb_create(&(struct nullb){
		.name = "ctx", .queues = contexts(), .irqmode = 2,
		.completion_nsec = SERVICE_NS, .no_memory = true,
	});
}

/* Requests a hardware context has in flight: lines of its "busy" file. */
static unsigned int in_context(const char *disk, unsigned int hctx)
{
	unsigned int n = 0;
	char path[128];
	int c;
	FILE *f;

	snprintf(path, sizeof(path),
		 "/sys/kernel/debug/block/%s/hctx%u/busy", disk + 5, hctx);
	f = fopen(path, "r");
	if (!f)
		ktap_skip("the block layer has no debugfs here");
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

static unsigned int in_flight(const char *disk)
{
	unsigned int i, n = 0;

	for (i = 0; i < contexts(); i++)
		n += in_context(disk, i);
	return n;
}

/* Requests at places that do not touch, so that none merge. */
static void offer(struct rig *g, unsigned int queue, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		rig_queue(g, queue, VIRTIO_BLK_T_IN, queue * 1000 + i * 100,
			  g->data + (queue * 16 + i) * 4096, 4096);
	rig_kick(g, queue);
}

/*
 * Queue q offers q + 3 requests: as no two offer the same number, the numbers
 * in the contexts tell who went where.  @want[q] is the context of queue q.
 */
static void expect_match(struct rig *g, const char *disk, const u32 *want)
{
	unsigned int have[MAX_CONTEXTS] = { 0 }, sum[MAX_CONTEXTS] = { 0 };
	unsigned int q, h, total = 0, tries;

	for (q = 0; q < g->queues; q++) {
		sum[want[q]] += q + 3;
		total += q + 3;
		offer(g, q, q + 3);
	}
	for (tries = 0; tries < 1000 && in_flight(disk) < total; tries++)
		sleep_ms(1);
	for (h = 0; h < contexts(); h++)
		have[h] = in_context(disk, h);
	ktap_msg("in flight in contexts 0 to 3: %u %u %u %u", have[0], have[1],
		 have[2], have[3]);
	for (h = 0; h < contexts(); h++)
		EXPECT_EQ(have[h], sum[h]);
	for (q = 0; q < g->queues; q++)
		rig_wait(g, q);
}

static bool free_choice(struct rig *g)
{
	struct vhost_blk_info info;

	rig_info(g, &info);
	EXPECT_EQ(info.nr_hctx, contexts());
	return info.free_choice;
}

static void read_matches(struct rig *g, u32 *hctx)
{
	struct vhost_blk_stats st;
	unsigned int q;

	/*
	 * Known once it has submitted something.  To memory that is there: a
	 * fault would send the request round by a worker.
	 */
	memset(g->data, 0, RIG_DATA);
	for (q = 0; q < g->queues; q++)
		offer(g, q, 1);
	for (q = 0; q < g->queues; q++)
		rig_wait(g, q);
	for (q = 0; q < g->queues; q++) {
		rig_stats(g, q, &st);
		hctx[q] = st.hctx;
		ktap_msg("queue %u: poller on CPU %u, context %u", q,
			 st.poller_cpu, st.hctx);
		EXPECT(st.hctx < contexts());
	}
}

/* Each context gets as many queues as the others, or one more. */
static void expect_spread(const u32 *hctx)
{
	unsigned int count[MAX_CONTEXTS] = { 0 }, i;

	for (i = 0; i < QUEUES; i++)
		count[hctx[i]]++;
	for (i = 0; i < contexts(); i++)
		EXPECT(count[i] >= QUEUES / contexts());
}

static void four_queues_of_one_poller_spread_over_the_contexts(void)
{
	const char *disk = slow_disk();
	u32 hctx[QUEUES];
	struct rig g;

	rig_open(&g, disk, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .queues = QUEUES,
	});
	if (!free_choice(&g))
		ktap_skip("this kernel has no free choice of context");
	read_matches(&g, hctx);
	expect_spread(hctx);
	expect_match(&g, disk, hctx);
	rig_close(&g);
}

static void contexts_can_be_set(void)
{
	static const u32 wish[QUEUES] = { 2, 0, 3, 1 };
	const char *disk = slow_disk();
	u32 hctx[QUEUES];
	unsigned int i;
	struct rig g;

	rig_open(&g, disk, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .queues = QUEUES,
		.stopped = true,
	});
	if (!free_choice(&g))
		ktap_skip("this kernel has no free choice of context");
	for (i = 0; i < QUEUES; i++) {
		g.dev.hctx[i] = wish[i] % contexts();
		EXPECT_EQ(vdev_start(&g.dev, &g.ring[i]), 0);
	}
	read_matches(&g, hctx);
	for (i = 0; i < QUEUES; i++)
		EXPECT_EQ(hctx[i], wish[i] % contexts());
	expect_match(&g, disk, hctx);
	rig_close(&g);
}

/* Without a free choice a poller has the contexts of its own CPU. */
static void what_is_read_back_is_where_requests_go(void)
{
	const char *disk = slow_disk();
	u32 hctx[QUEUES];
	struct rig g;

	rig_open(&g, disk, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_EVENT,
		.queues = contexts(),
		.poller_each = true,
	});
	free_choice(&g);
	read_matches(&g, hctx);
	expect_match(&g, disk, hctx);
	rig_close(&g);
}

static void pollers_on_different_cpus_use_different_contexts(void)
{
	const char *disk = slow_disk();
	u32 hctx[QUEUES];
	struct rig g;

	if (!last_cpu())
		ktap_skip("one CPU");
	rig_open(&g, disk, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_EVENT, .queues = 2,
		.poller_each = true,
	});
	read_matches(&g, hctx);
	EXPECT(hctx[0] != hctx[1]);
	rig_close(&g);
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(four_queues_of_one_poller_spread_over_the_contexts),
		TEST(contexts_can_be_set),
		TEST(what_is_read_back_is_where_requests_go),
		TEST(pollers_on_different_cpus_use_different_contexts),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests),
			 backend_cleanup);
}
