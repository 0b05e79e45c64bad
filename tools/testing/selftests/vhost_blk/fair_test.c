// SPDX-License-Identifier: GPL-2.0
/*
 * Fairness between the vrings of one poller, in counts: how many requests of one
 * were taken when so many of the other were.  Both rings are full before the poller
 * is told, and a trace tells afterwards in which order it took them, so neither the
 * speed of this process nor that of the machine plays a part.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rig.h"
#include "trace.h"

#define RING	8192
#define FLOOD	2048
#define BUDGET	64	/* of a round at weight 100, see BUDGET_100 */

struct pair {
	struct rig a;
	struct rig b;
};

static const char *fast_disk(const char *name)
{
	backend_need_modules();
	return nullb_create(&(struct nullb){ .name = name, .no_memory = true });
}

/*
 * With all of its memory there, the used ring above all, the poller never hands the ring
 * to its worker, whose rounds know no weight.
 */
static void warm_up(struct rig *g)
{
	size_t at;

	for (at = 0; at < g->mem.size; at += 4096)
		__atomic_fetch_or((u8 *)g->mem.base + at, 0, __ATOMIC_RELAXED);
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_IN, 0, g->data, 512),
		  VIRTIO_BLK_S_OK);
}

static void pair_open_ring(struct pair *p, u32 weight_a, u32 weight_b,
			   unsigned int ring_size)
{
	struct rig_opts o = {
		.mode = VHOST_POLL_MODE_EVENT, .ring_size = ring_size,
		.stopped = true,
	};

	rig_open(&p->a, fast_disk("a"), &o);
	o.share_poller = p->a.poller[0];
	rig_open(&p->b, fast_disk("b"), &o);
	p->a.dev.weight[0] = weight_a;
	p->b.dev.weight[0] = weight_b;
	EXPECT_EQ(vdev_start(&p->a.dev, &p->a.ring[0]), 0);
	EXPECT_EQ(vdev_start(&p->b.dev, &p->b.ring[0]), 0);
	warm_up(&p->a);
	warm_up(&p->b);
}

static void pair_open(struct pair *p, u32 weight_a, u32 weight_b)
{
	pair_open_ring(p, weight_a, weight_b, RING);
}

static void pair_close(struct pair *p)
{
	rig_close(&p->b);
	rig_close(&p->a);
}

static void fill(struct rig *g, unsigned int n)
{
	unsigned int i;

	/* places that do not touch, so that none merge */
	for (i = 0; i < n; i++)
		rig_queue(g, 0, VIRTIO_BLK_T_IN, i * 16 % 100000, g->data,
			  512);
}

static unsigned int served(const struct rig *g)
{
	return (u16)(__atomic_load_n(&g->ring[0].vr.used->idx,
				     __ATOMIC_ACQUIRE) - g->ring[0].used_idx);
}

static void go(struct pair *p)
{
	ring_publish(&p->b.ring[0]);
	ring_publish(&p->a.ring[0]);
	ring_kick_always(&p->a.ring[0]);
	ring_kick_always(&p->b.ring[0]);
}

static void finish(struct pair *p)
{
	rig_wait(&p->a, 0);
	rig_wait(&p->b, 0);
}

/*
 * Has the poller serve both rings; the order in which it answered, by device.  The disk
 * answers within the round, so that is the order of taking, less what is taken again.
 */
static unsigned int take_both(struct pair *p, int *order, unsigned int max)
{
	unsigned int n;

	trace_begin("vhost_blk/vhost_blk_finish");
	go(p);
	finish(p);
	n = trace_end_devs(order, max);
	EXPECT_EQ(n, max);
	return n;
}

/*
 * Both rings have @each requests, and the first has the larger share.  How many of
 * the second were taken when the last of the first was?
 */
static unsigned int others_when_first_is_done(struct pair *p, unsigned int each)
{
	static int order[2 * FLOOD];
	unsigned int n = take_both(p, order, 2 * each);
	unsigned int first = 0, i;

	/* Of the second device is the last one taken. */
	for (i = 0; i < n && first < each; i++)
		first += order[i] != order[n - 1];
	EXPECT_EQ(first, each);
	ktap_msg("%u of the other were taken beside %u", i - first, first);
	return i - first;
}

/* Within what two rounds of the second take. */
static void expect_about(unsigned int have, unsigned int want,
			 unsigned int round)
{
	EXPECT(have + 2 * round >= want);
	EXPECT(have <= want + 2 * round);
}

static void equal_weights_get_equal_service(void)
{
	struct pair p;

	pair_open(&p, 0, 0);
	fill(&p.a, FLOOD);
	fill(&p.b, FLOOD);
	expect_about(others_when_first_is_done(&p, FLOOD), FLOOD, BUDGET);
	pair_close(&p);
}

static void three_times_the_weight_gets_three_times_the_service(void)
{
	struct pair p;

	pair_open(&p, 300, 100);
	fill(&p.a, FLOOD);
	fill(&p.b, FLOOD);
	expect_about(others_when_first_is_done(&p, FLOOD), FLOOD / 3, BUDGET);
	pair_close(&p);
}

/* More than a 64th of a round, and no more than null_blk takes at once. */
#define PIECE		(120 * 1024)
#define ROUND_BYTES	(4 * 1024 * 1024)	/* see VBLK_ROUND_BYTES */
#define PIECES		720

static void fill_large(struct rig *g)
{
	unsigned int i;

	for (i = 0; i < PIECES; i++)
		rig_queue(g, 0, VIRTIO_BLK_T_IN, i % 100 * 1024, g->data, PIECE);
}

static void weights_count_for_bytes(void)
{
	struct pair p;

	pair_open(&p, 300, 100);
	fill_large(&p.a);
	fill_large(&p.b);
	expect_about(others_when_first_is_done(&p, PIECES), PIECES / 3,
		     ROUND_BYTES / PIECE);
	pair_close(&p);
}

static void a_flood_does_not_keep_a_single_request_waiting(void)
{
	static int order[FLOOD + 1];
	unsigned int ahead = 0;
	struct pair p;

	pair_open(&p, 0, 0);
	fill(&p.a, FLOOD);
	fill(&p.b, 1);
	take_both(&p, order, FLOOD + 1);
	/* The single one is of the device that has no neighbour of its own. */
	while (ahead < FLOOD && order[ahead] == order[0])
		ahead++;
	if (order[0] != order[FLOOD] && ahead == 1)
		ahead = 0;
	ktap_msg("%u of %u went ahead of it", ahead, FLOOD);
	EXPECT(ahead <= BUDGET);
	pair_close(&p);
}

#define LONG		250	/* descriptors of a long chain */
#define ROUND_DESCS	4096	/* of a round, see VBLK_ROUND_DESCS */
#define CHAINS		256

static u64 rounds_with_work(struct rig *g)
{
	struct vhost_poll_stats st;

	EXPECT_EQ(poller_stats(g->poller[0], &st), 0);
	return st.rounds_hit;
}

/* Reads into the same place again and again. */
static struct rig_req *queue_long(struct rig *g, u32 piece)
{
	struct rig_req *req = rig_req_new(g, VIRTIO_BLK_T_IN, 0);
	struct ring_seg seg[LONG];
	unsigned int i;

	seg[0] = ring_seg(&g->mem, req->hdr, 16, false);
	for (i = 1; i < LONG - 1; i++)
		seg[i] = ring_seg(&g->mem, g->data, piece, true);
	seg[i] = ring_seg(&g->mem, req->status, 1, true);
	return rig_queue_segs(g, 0, req, seg, LONG, true);
}

static void weights_count_for_descriptors(void)
{
	unsigned int i;
	struct pair p;

	pair_open_ring(&p, 300, 100, CHAINS);
	for (i = 0; i < CHAINS; i++) {
		queue_long(&p.a, 0);
		queue_long(&p.b, 0);
	}
	expect_about(others_when_first_is_done(&p, CHAINS), CHAINS / 3,
		     ROUND_DESCS / LONG + 1);
	pair_close(&p);
}

static void descriptors_count_in_a_round(void)
{
	unsigned int i;
	struct rig g;
	u64 before;

	rig_open(&g, fast_disk("a"), &(struct rig_opts){
		.mode = VHOST_POLL_MODE_EVENT,
	});
	before = rounds_with_work(&g);
	for (i = 0; i < CHAINS; i++)
		queue_long(&g, 0);
	rig_kick(&g, 0);
	rig_wait(&g, 0);
	EXPECT(rounds_with_work(&g) - before >=
	       CHAINS * (LONG + 1) / (ROUND_DESCS + LONG + 1));
	rig_close(&g);
}

#define HELD	16384	/* pages that a vring may hold, see VBLK_MAX_HELD */

static unsigned int in_flight(struct rig *g)
{
	struct vhost_blk_stats st;

	rig_stats(g, 0, &st);
	return st.inflight;
}

/* Nothing else stops them: what finds no tag is a worker's. */
static void what_a_vring_holds_has_a_bound(void)
{
	unsigned int bound = HELD / (LONG - 2) + 1, most = 0, now, i;
	struct rig_req *req[CHAINS];
	struct rig g;

	backend_need_modules();
	rig_open(&g, nullb_create(&(struct nullb){
		.name = "slow", .no_memory = true, .irqmode = 2,
		.completion_nsec = 300 * 1000 * 1000,
	}), &(struct rig_opts){ .engine = VHOST_BLK_ENGINE_BIO });
	for (i = 0; i < CHAINS; i++)
		req[i] = queue_long(&g, 512);
	rig_kick(&g, 0);
	do {
		now = in_flight(&g);
		most = now > most ? now : most;
	} while (served(&g) < CHAINS);
	rig_wait(&g, 0);
	for (i = 0; i < CHAINS; i++)
		EXPECT_EQ(*req[i]->status, VIRTIO_BLK_S_OK);
	ktap_msg("at most %u in flight", most);
	EXPECT(most <= bound);
	/* else it was not looked at */
	EXPECT(most > bound / 2);
	rig_close(&g);
}

static void both_vrings_of_one_device_are_served(void)
{
	struct rig g;

	rig_open(&g, fast_disk("a"), &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .ring_size = RING, .queues = 2,
	});
	fill(&g, FLOOD);
	rig_kick(&g, 0);
	EXPECT_EQ(rig_io(&g, 1, VIRTIO_BLK_T_IN, 0, g.data, 512),
		  VIRTIO_BLK_S_OK);
	rig_wait(&g, 0);
	rig_close(&g);
}

static void cleanup(void)
{
	trace_cleanup();
	backend_cleanup();
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(equal_weights_get_equal_service),
		TEST(three_times_the_weight_gets_three_times_the_service),
		TEST(weights_count_for_bytes),
		TEST(weights_count_for_descriptors),
		TEST(a_flood_does_not_keep_a_single_request_waiting),
		TEST(descriptors_count_in_a_round),
		TEST(what_a_vring_holds_has_a_bound),
		TEST(both_vrings_of_one_device_are_served),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), cleanup);
}
