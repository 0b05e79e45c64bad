// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that come at the very moment at which the poller goes to sleep.
 *
 * The guest spins for its answer, waits a little, and offers the next request; it
 * kicks only if the device asks for that.  The pause is steered to the moment at which
 * the device begins to ask: shorter after a kick, longer after none.  So about half of
 * the requests come just before the poller arms the ring, or while it does.  A poller
 * that then sleeps without another look at the ring leaves such a request there, and
 * this process waits for ever: the device was never kicked.
 *
 * The next request is made ready while the last one is served.  With no pause left, one
 * store follows the answer, and that is sooner than any poller arms.
 */
#include <stdlib.h>
#include <time.h>

#include "rig.h"

#define ROUNDS		20000
#define TRIES		5
#define PATIENCE_MS	20000

static u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ULL + ts.tv_nsec / 1000000;
}

static void spin(unsigned int turns)
{
	while (turns--)
		__asm__ volatile("pause");
}

static void make_ready(struct rig *g)
{
	rig_queue(g, 0, VIRTIO_BLK_T_GET_ID, 0, g->data, 20);
}

static bool answered(struct rig *g, u16 count)
{
	return __atomic_load_n(&g->ring[0].vr.used->idx, __ATOMIC_ACQUIRE) ==
	       count;
}

static void spin_for_answer(struct rig *g, unsigned int round)
{
	u64 end = now_ms() + PATIENCE_MS;
	unsigned int turns = 0;

	while (!answered(g, round + 1)) {
		/* The clock is a system call in some guests. */
		if (++turns % 4096 || now_ms() < end)
			continue;
		ktap_msg("round %u was never answered", round);
		EXPECT(answered(g, round + 1));
	}
}

/* Publish what make_ready() left, and kick if the device asks; true if it did. */
static bool offer(struct rig *g)
{
	bool kicked;

	ring_publish(&g->ring[0]);
	kicked = ring_kick(&g->ring[0]);
	rig_reap(g, 0);
	ring_disable_call(&g->ring[0]);
	return kicked;
}

/* Returns how many were kicked. */
static unsigned int offer_many(u32 mode, u64 without)
{
	unsigned int i, pause = 1000, kicked = 0;
	struct rig g;

	rig_open(&g, file_create(1), &(struct rig_opts){
		.mode = mode, .without = without,
	});
	ring_disable_call(&g.ring[0]);
	srandom(1);
	make_ready(&g);
	for (i = 0; i < ROUNDS; i++) {
		if (offer(&g)) {
			kicked++;
			pause -= pause ? pause / 16 + 1 : 0;
		} else {
			pause += pause / 16 + 1;
		}
		make_ready(&g);
		spin_for_answer(&g, i);
		spin(pause - pause / 4 + random() % (pause / 2 + 1));
	}
	ktap_msg("%u of %u were kicked", kicked, i);
	rig_close(&g);
	return kicked;
}

/*
 * The moment is met only while the poller and this process run at the same time.  Where
 * other machines share the CPUs they may take turns: nothing is shown then.
 */
static void offer_while_it_arms(u32 mode, u64 without)
{
	unsigned int i, kicked;

	for (i = 0; i < TRIES; i++) {
		kicked = offer_many(mode, without);
		if (kicked > ROUNDS / 100 && kicked < ROUNDS - ROUNDS / 100)
			return;
	}
	ktap_skip("the two CPUs took turns: no request came while the poller armed");
}

static void event_mode_with_event_index(void)
{
	offer_while_it_arms(VHOST_POLL_MODE_EVENT, 0);
}

static void event_mode_without_event_index(void)
{
	offer_while_it_arms(VHOST_POLL_MODE_EVENT,
			    1ULL << VIRTIO_RING_F_EVENT_IDX);
}

static void adaptive_mode(void)
{
	offer_while_it_arms(VHOST_POLL_MODE_ADAPTIVE, 0);
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(event_mode_with_event_index),
		TEST(event_mode_without_event_index),
		TEST(adaptive_mode),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests),
			 backend_cleanup);
}
