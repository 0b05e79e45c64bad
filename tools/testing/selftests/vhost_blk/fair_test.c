// SPDX-License-Identifier: GPL-2.0
/*
 * Fairness between the vrings of one poller, in counts: how many requests of
 * one were served when so many of the other were.  Both rings are full before
 * the poller is told, so the speed of this process plays no part; what it can
 * miss is the moment to look, and then it tries again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rig.h"

#define RING	8192
#define FLOOD	2048
#define TRIES	40

struct pair {
	struct rig a;
	struct rig b;
};

static const char *fast_disk(const char *name)
{
	backend_need_modules();
	return nullb_create(&(struct nullb){ .name = name, .no_memory = true });
}

static void pair_open(struct pair *p, u32 weight_a, u32 weight_b)
{
	struct rig_opts o = {
		.mode = VHOST_POLL_MODE_EVENT, .ring_size = RING,
		.stopped = true,
	};

	rig_open(&p->a, fast_disk("a"), &o);
	o.share_poller = p->a.poller[0];
	rig_open(&p->b, fast_disk("b"), &o);
	p->a.dev.weight[0] = weight_a;
	p->b.dev.weight[0] = weight_b;
	EXPECT_EQ(vdev_start(&p->a.dev, &p->a.ring[0]), 0);
	EXPECT_EQ(vdev_start(&p->b.dev, &p->b.ring[0]), 0);
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
 * Both flood; what share of the first half was the first one's, in percent?
 * -1 when the moment was missed.
 */
static int share_of_first(struct pair *p)
{
	unsigned int a, b;

	fill(&p->a, FLOOD);
	fill(&p->b, FLOOD);
	go(p);
	do {
		a = served(&p->a);
		b = served(&p->b);
	} while (a + b < FLOOD / 2);
	finish(p);
	return a < FLOOD && b < FLOOD ? (int)(a * 100 / (a + b)) : -1;
}

static int median_share(struct pair *p)
{
	int share[TRIES], n = 0, i, j, t;

	for (i = 0; i < TRIES && n < 9; i++) {
		t = share_of_first(p);
		if (t < 0)
			continue;
		for (j = n++; j > 0 && share[j - 1] > t; j--)
			share[j] = share[j - 1];
		share[j] = t;
	}
	if (n < 3)
		ktap_skip("too coarse a view of the rings on this machine");
	ktap_msg("the first one's share: median %d%%, %d%% to %d%%",
		 share[n / 2], share[0], share[n - 1]);
	return share[n / 2];
}

static void equal_weights_get_equal_service(void)
{
	struct pair p;
	int share;

	pair_open(&p, 0, 0);
	share = median_share(&p);
	EXPECT(share >= 35 && share <= 65);
	pair_close(&p);
}

static void three_times_the_weight_gets_three_times_the_service(void)
{
	struct pair p;
	int share;

	pair_open(&p, 300, 100);
	share = median_share(&p);
	EXPECT(share >= 62 && share <= 88);
	pair_close(&p);
}

static void a_flood_does_not_keep_a_single_request_waiting(void)
{
	unsigned int i, ahead, least = FLOOD;
	struct pair p;

	pair_open(&p, 0, 0);
	for (i = 0; i < TRIES; i++) {
		fill(&p.a, FLOOD);
		fill(&p.b, 1);
		go(&p);
		while (!served(&p.b))
			;
		ahead = served(&p.a);
		if (ahead < least)
			least = ahead;
		finish(&p);
	}
	ktap_msg("at best %u of %u went ahead of it", least, FLOOD);
	EXPECT(least < FLOOD / 4);
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

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(equal_weights_get_equal_service),
		TEST(three_times_the_weight_gets_three_times_the_service),
		TEST(a_flood_does_not_keep_a_single_request_waiting),
		TEST(descriptors_count_in_a_round),
		TEST(what_a_vring_holds_has_a_bound),
		TEST(both_vrings_of_one_device_are_served),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests),
			 backend_cleanup);
}
