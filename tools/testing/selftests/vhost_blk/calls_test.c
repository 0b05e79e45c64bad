// SPDX-License-Identifier: GPL-2.0
/*
 * When the guest is interrupted: for each answer at last, and for many at once where it
 * pays (drivers/vhost/serve/calls.c).
 *
 * This process plays a guest whose driver takes interrupts, in one thread: between any two
 * of its requests it looks whether there is an interrupt, and then it runs the handler,
 * which takes a while and asks for the next interrupt at its end.
 */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "rig.h"

#define DEPTH		32
#define WAITS		3000
#define REQUESTS	(64 * DEPTH)
/* Turns of spin() in a handler, and between two requests. */
#define HANDLER		40000
#define BETWEEN		1000

struct guest {
	struct rig g;
	unsigned int interrupts;
	unsigned int answers;
};

/* Without PAUSE, which takes an emulator hundreds of times as long as other instructions. */
static void spin(unsigned int turns)
{
	while (turns--)
		__asm__ volatile("");
}

static void guest_open(struct guest *v, u32 mode, u64 without)
{
	*v = (struct guest) {};
	rig_open(&v->g, file_create(1), &(struct rig_opts){
		.mode = mode, .without = without,
	});
	ring_enable_call(&v->g.ring[0]);
}

static void handler(struct guest *v)
{
	struct ring *r = &v->g.ring[0];

	v->interrupts++;
	spin(HANDLER);
	do {
		ring_disable_call(r);
		v->answers += rig_reap(&v->g, 0);
		ring_enable_call(r);
	} while (ring_has_used(r));
}

/* Is there an interrupt, or will there be one soon?  It fails the test if it never comes. */
static bool interrupted(struct guest *v, int timeout_ms)
{
	struct pollfd pfd = { .fd = v->g.ring[0].call, .events = POLLIN };
	u64 count;

	if (poll(&pfd, 1, timeout_ms) <= 0) {
		EXPECT_EQ(timeout_ms, 0);
		return false;
	}
	return read(v->g.ring[0].call, &count, sizeof(count)) == sizeof(count);
}

static void take_interrupts(struct guest *v, int timeout_ms)
{
	if (interrupted(v, timeout_ms))
		handler(v);
}

static void offer_one(struct guest *v)
{
	rig_queue(&v->g, 0, VIRTIO_BLK_T_GET_ID, 0, v->g.data, 20);
	rig_kick(&v->g, 0);
}

/* Some requests, some pauses, and then it sleeps until the interrupt comes. */
static void each_answer_is_told(u32 mode, u64 without)
{
	unsigned int i, n;
	struct guest v;

	guest_open(&v, mode, without);
	srandom(1);
	for (i = 0; i < WAITS; i++) {
		for (n = 1 + random() % 8; n; n--) {
			offer_one(&v);
			spin(random() % (2 * BETWEEN));
			take_interrupts(&v, 0);
		}
		while (ring_inflight(&v.g.ring[0]))
			take_interrupts(&v, RIG_TIMEOUT_MS);
	}
	ktap_msg("%u interrupts for %u answers", v.interrupts, v.answers);
	rig_close(&v.g);
}

static void each_answer_is_told_in_busy_mode(void)
{
	each_answer_is_told(VHOST_POLL_MODE_BUSY, 0);
}

static void each_answer_is_told_in_adaptive_mode(void)
{
	each_answer_is_told(VHOST_POLL_MODE_ADAPTIVE, 0);
}

static void each_answer_is_told_in_event_mode(void)
{
	each_answer_is_told(VHOST_POLL_MODE_EVENT, 0);
}

static void each_answer_is_told_without_event_index(void)
{
	each_answer_is_told(VHOST_POLL_MODE_BUSY, 1ULL << VIRTIO_RING_F_EVENT_IDX);
}

/* A guest that always has more to submit is told of several at once. */
static void a_deep_ring_shares_interrupts(void)
{
	unsigned int i;
	struct guest v;

	guest_open(&v, VHOST_POLL_MODE_BUSY, 0);
	for (i = 0; i < REQUESTS; i++) {
		while (ring_inflight(&v.g.ring[0]) >= DEPTH)
			take_interrupts(&v, RIG_TIMEOUT_MS);
		offer_one(&v);
		spin(BETWEEN);
		take_interrupts(&v, 0);
	}
	while (ring_inflight(&v.g.ring[0]))
		take_interrupts(&v, RIG_TIMEOUT_MS);
	ktap_msg("%u interrupts for %u answers", v.interrupts, v.answers);
	EXPECT_EQ(v.answers, REQUESTS);
	/* Without moderation about a third of the answers interrupt under emulation, or more. */
	EXPECT(v.interrupts * 5 < REQUESTS);
	rig_close(&v.g);
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(each_answer_is_told_in_busy_mode),
		TEST(each_answer_is_told_in_adaptive_mode),
		TEST(each_answer_is_told_in_event_mode),
		TEST(each_answer_is_told_without_event_index),
		TEST(a_deep_ring_shares_interrupts),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests),
			 backend_cleanup);
}
