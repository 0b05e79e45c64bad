// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of calls.c, which decides when to interrupt a guest.  They simulate the guest. */
#include <kunit/test.h>
#include <linux/module.h>
#include <linux/time64.h>

#include "serve.h"

#define USEC	((u64)NSEC_PER_USEC)
/* How long the guest takes for an interrupt. */
#define TOOK	(10 * USEC)
/* How often the poller polls. */
#define ROUND	(USEC / 4)

static u64 now;

/* Returns the state of a vring whose guest was measured to take TOOK for an interrupt. */
static struct vserve_calls measured(void)
{
	struct vserve_calls c = {};

	now = NSEC_PER_SEC;
	c.asked_ns = now - TOOK;
	vserve_calls_learn(&c, now, true);
	return c;
}

/*
 * Simulate an answer, and then COUNT more events, each GAP after the last one.  Returns how long
 * after the answer the guest was interrupted.
 */
static u64 held(struct vserve_calls *c, unsigned int count, u64 gap)
{
	u64 begin = now, last = now;

	c->due = true;
	vserve_calls_event(c, now);
	while (vserve_calls_hold(c, now)) {
		now += ROUND;
		if (!count || now - last < gap)
			continue;
		vserve_calls_event(c, now);
		last = now;
		count--;
	}
	vserve_calls_end(c);
	return now - begin;
}

static void nothing_is_held_before_the_guest_was_measured(struct kunit *test)
{
	struct vserve_calls c = {};
	unsigned int i;

	for (i = 0; i < 100; i++)
		KUNIT_EXPECT_EQ(test, held(&c, 10, USEC), 0);
}

static void held_until_the_ring_is_quiet(struct kunit *test)
{
	struct vserve_calls c = measured();
	u64 t = held(&c, 3, USEC);

	/* After three events the ring is quiet for half the time that an interrupt takes. */
	KUNIT_EXPECT_GE(test, t, 3 * USEC + TOOK / 2);
	KUNIT_EXPECT_LE(test, t, 3 * USEC + TOOK / 2 + ROUND);
}

static void held_no_longer_than_an_interrupt_takes(struct kunit *test)
{
	struct vserve_calls c = measured();
	u64 t = held(&c, UINT_MAX, USEC);

	KUNIT_EXPECT_GE(test, t, TOOK);
	KUNIT_EXPECT_LE(test, t, TOOK + ROUND);
}

static void single_requests_are_held_ever_more_seldom(struct kunit *test)
{
	struct vserve_calls c = measured();
	unsigned int i, tries = 0;

	for (i = 0; i < 4096; i++)
		tries += held(&c, 0, 0) != 0;
	/* The first three are held, then one after 16, 32, ... 1024, and 1024 others. */
	KUNIT_EXPECT_EQ(test, tries, 12);
}

static void what_pays_is_held_each_time(struct kunit *test)
{
	struct vserve_calls c = measured();
	unsigned int i;

	for (i = 0; i < 100; i++)
		held(&c, 0, 0);
	while (c.skip)
		held(&c, 0, 0);
	held(&c, 1, USEC);
	for (i = 0; i < 100; i++)
		KUNIT_EXPECT_GT(test, held(&c, 1, USEC), 0);
}

static void measure(struct vserve_calls *c, u64 took)
{
	c->asked_ns = now;
	now += took;
	vserve_calls_learn(c, now, true);
}

static void one_long_interrupt_changes_little(struct kunit *test)
{
	struct vserve_calls c = measured();

	measure(&c, NSEC_PER_MSEC);
	KUNIT_EXPECT_LE(test, c.took_ns, 2 * TOOK);
	measure(&c, TOOK);
	KUNIT_EXPECT_GE(test, c.took_ns, TOOK);
}

static void never_more_than_a_millisecond(struct kunit *test)
{
	struct vserve_calls c = measured();
	unsigned int i;

	for (i = 0; i < 1000; i++)
		measure(&c, 3 * NSEC_PER_MSEC);
	KUNIT_EXPECT_LE(test, c.took_ns, NSEC_PER_MSEC);
	KUNIT_EXPECT_GE(test, c.took_ns, NSEC_PER_MSEC / 2);
	for (i = 0; i < 1000; i++)
		measure(&c, 0);
	KUNIT_EXPECT_GT(test, c.took_ns, 0);
	KUNIT_EXPECT_LE(test, c.took_ns, USEC);
}

/* The poller slept meanwhile, or did something else, so this time says nothing of the guest. */
static void a_second_is_not_what_an_interrupt_takes(struct kunit *test)
{
	struct vserve_calls c = {};

	now = NSEC_PER_SEC;
	measure(&c, NSEC_PER_SEC);
	KUNIT_EXPECT_EQ(test, c.took_ns, 0);
}

static void a_guest_that_does_not_ask_again_is_not_measured(struct kunit *test)
{
	struct vserve_calls c = measured();
	unsigned int i;

	c.asked_ns = now;
	for (i = 0; i < 100; i++) {
		now += NSEC_PER_MSEC;
		vserve_calls_learn(&c, now, false);
	}
	KUNIT_EXPECT_EQ(test, c.asked_ns, 0);
	KUNIT_EXPECT_EQ(test, c.took_ns, TOOK);
}

static struct kunit_case calls_cases[] = {
	KUNIT_CASE(nothing_is_held_before_the_guest_was_measured),
	KUNIT_CASE(held_until_the_ring_is_quiet),
	KUNIT_CASE(held_no_longer_than_an_interrupt_takes),
	KUNIT_CASE(single_requests_are_held_ever_more_seldom),
	KUNIT_CASE(what_pays_is_held_each_time),
	KUNIT_CASE(one_long_interrupt_changes_little),
	KUNIT_CASE(never_more_than_a_millisecond),
	KUNIT_CASE(a_second_is_not_what_an_interrupt_takes),
	KUNIT_CASE(a_guest_that_does_not_ask_again_is_not_measured),
	{}
};

static struct kunit_suite calls_suite = {
	.name = "vhost_serve_calls",
	.test_cases = calls_cases,
};

kunit_test_suite(calls_suite);

MODULE_IMPORT_NS(EXPORTED_FOR_KUNIT_TESTING);
MODULE_DESCRIPTION("KUnit tests of vhost_serve");
MODULE_LICENSE("GPL");
