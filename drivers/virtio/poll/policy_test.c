// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of virtio_poll_policy.h: when polling pays off. */
#include <kunit/test.h>
#include <linux/module.h>
#include <linux/virtio_poll_policy.h>

#define MAX_NS 200000ULL

static void vpoll_learn_times(struct virtio_poll_policy *p, u64 ns, int times)
{
	while (times--)
		virtio_poll_policy_learn(p, ns, MAX_NS, false);
}

/* Returns how many waits the policy leaves to interrupts before it polls through one. */
static int vpoll_waits_to_try(struct virtio_poll_policy *p)
{
	int n = 0;

	while (n < 1 << 20 && !virtio_poll_policy_polls(p, MAX_NS))
		n++;
	return n;
}

static void vpoll_test_unknown_polls(struct kunit *test)
{
	struct virtio_poll_policy p = {};

	KUNIT_EXPECT_TRUE(test, virtio_poll_policy_pays(&p, MAX_NS));
	KUNIT_EXPECT_EQ(test, virtio_poll_policy_budget(&p, MAX_NS), MAX_NS);
}

static void vpoll_test_short_waits_poll(struct kunit *test)
{
	struct virtio_poll_policy p = {};

	vpoll_learn_times(&p, 10000, 50);
	KUNIT_EXPECT_EQ(test, p.wait_ns, 10000ULL);
	KUNIT_EXPECT_TRUE(test, virtio_poll_policy_pays(&p, MAX_NS));
	KUNIT_EXPECT_EQ(test, virtio_poll_policy_budget(&p, MAX_NS), 40000ULL);
}

static void vpoll_test_long_waits_sleep(struct kunit *test)
{
	struct virtio_poll_policy p = {};

	vpoll_learn_times(&p, 10000, 50);
	vpoll_learn_times(&p, 1000000, 1);
	KUNIT_EXPECT_TRUE_MSG(test, virtio_poll_policy_pays(&p, MAX_NS),
			      "one long wait is no reason");
	vpoll_learn_times(&p, 1000000, 20);
	KUNIT_EXPECT_FALSE(test, virtio_poll_policy_pays(&p, MAX_NS));
	KUNIT_EXPECT_EQ(test, virtio_poll_policy_budget(&p, MAX_NS), MAX_NS);
}

static void vpoll_test_recovers(struct kunit *test)
{
	struct virtio_poll_policy p = {};

	vpoll_learn_times(&p, 3600ULL * 1000 * 1000 * 1000, 100);
	KUNIT_EXPECT_FALSE(test, virtio_poll_policy_pays(&p, MAX_NS));
	vpoll_learn_times(&p, 10000, 20);
	KUNIT_EXPECT_TRUE(test, virtio_poll_policy_pays(&p, MAX_NS));
}

/* Interrupts arrive late, but the device itself is fast enough. */
static void vpoll_test_try_that_pays(struct kunit *test)
{
	struct virtio_poll_policy p = {};

	vpoll_learn_times(&p, 600000, 50);
	KUNIT_EXPECT_FALSE(test, virtio_poll_policy_pays(&p, MAX_NS));
	KUNIT_EXPECT_EQ(test, vpoll_waits_to_try(&p), VIRTIO_POLL_TRY_AFTER - 1);
	KUNIT_EXPECT_EQ(test, virtio_poll_policy_budget(&p, MAX_NS), MAX_NS);
	virtio_poll_policy_learn(&p, 50000, MAX_NS, true);
	KUNIT_EXPECT_EQ(test, p.wait_ns, 50000ULL);
	KUNIT_EXPECT_TRUE(test, virtio_poll_policy_pays(&p, MAX_NS));
}

static void vpoll_test_tries_in_vain_become_rare(struct kunit *test)
{
	struct virtio_poll_policy p = {};

	vpoll_learn_times(&p, 600000, 50);
	for (int i = 0; i <= VIRTIO_POLL_TRY_SHIFT + 2; i++) {
		KUNIT_EXPECT_EQ(test, vpoll_waits_to_try(&p),
				(VIRTIO_POLL_TRY_AFTER << min(i, VIRTIO_POLL_TRY_SHIFT)) - 1);
		virtio_poll_policy_gave_up(&p, MAX_NS);
		vpoll_learn_times(&p, 600000, 1);
	}
	virtio_poll_policy_learn(&p, 50000, MAX_NS, true);
	KUNIT_EXPECT_EQ(test, p.try_shift, VIRTIO_POLL_TRY_SHIFT - 1U);
	KUNIT_EXPECT_EQ(test, p.slept, 0U);
}

/* The poller got the CPU too late, so it found the answer late.  The try has not paid off. */
static void vpoll_test_late_try_is_in_vain(struct kunit *test)
{
	struct virtio_poll_policy p = {};

	vpoll_learn_times(&p, 600000, 50);
	vpoll_waits_to_try(&p);
	virtio_poll_policy_learn(&p, 600000, MAX_NS, true);
	KUNIT_EXPECT_FALSE(test, virtio_poll_policy_pays(&p, MAX_NS));
	KUNIT_EXPECT_EQ(test, p.try_shift, 1U);
}

/* Half of the tries find an answer soon, but all waits after them are long. */
static void vpoll_test_lucky_tries_do_not_keep_it_polling(struct kunit *test)
{
	struct virtio_poll_policy p = {};
	unsigned int polled = 0, waits = 0;

	while (waits < 10000) {
		bool try = !virtio_poll_policy_pays(&p, MAX_NS);

		waits++;
		if (!virtio_poll_policy_polls(&p, MAX_NS)) {
			vpoll_learn_times(&p, 800000, 1);
			continue;
		}
		polled++;
		if (try && waits % 2) {
			virtio_poll_policy_learn(&p, 50000, MAX_NS, true);
			continue;
		}
		virtio_poll_policy_gave_up(&p, MAX_NS);
		vpoll_learn_times(&p, 800000, 1);
	}
	/* Of 16 waits, the policy polls at most through a try and the few waits after it. */
	KUNIT_EXPECT_LT(test, polled, waits / 4);
}

static void vpoll_test_one_miss_is_no_try(struct kunit *test)
{
	struct virtio_poll_policy p = {};

	vpoll_learn_times(&p, 10000, 50);
	virtio_poll_policy_gave_up(&p, MAX_NS);
	KUNIT_EXPECT_EQ(test, p.try_shift, 0U);
}

static void vpoll_test_extremes(struct kunit *test)
{
	struct virtio_poll_policy p = {};

	KUNIT_EXPECT_FALSE_MSG(test, virtio_poll_policy_polls(&p, 0), "nor for the first wait");
	virtio_poll_policy_learn(&p, 0, 0, true);
	KUNIT_EXPECT_GT(test, p.wait_ns, 0ULL);
	for (int i = 0; i < 5000; i++)
		KUNIT_ASSERT_FALSE_MSG(test, virtio_poll_policy_polls(&p, 0),
				       "no time to poll: never");
	virtio_poll_policy_learn(&p, U64_MAX, MAX_NS, true);
	KUNIT_EXPECT_LE(test, p.wait_ns, 4 * MAX_NS);
	vpoll_learn_times(&p, 1, 1000);
	KUNIT_EXPECT_EQ(test, p.wait_ns, 1ULL);
}

/*
 * Simulate PERIODS periods.  In each the host steals one part in PARTS of the CPU's time, or none
 * of it if PARTS is 0.  Returns in how many of them the policy lets the CPU poll.
 */
static int vpoll_steal_periods(struct virtio_poll_steal *s, u64 *now, u64 *stolen, u64 parts,
			       int periods)
{
	int polled = 0;

	while (periods--) {
		*now += VIRTIO_POLL_STEAL_PERIOD_NS;
		*stolen += parts ? VIRTIO_POLL_STEAL_PERIOD_NS / parts : 0;
		polled += !virtio_poll_steal_too_much(s, *now, *stolen);
	}
	return polled;
}

static void vpoll_test_no_steal_polls(struct kunit *test)
{
	struct virtio_poll_steal s = {};
	u64 now = 1, stolen = 1000 * NSEC_PER_SEC;

	KUNIT_EXPECT_FALSE_MSG(test, virtio_poll_steal_too_much(&s, now, stolen),
			       "what was stolen before is no reason");
	KUNIT_EXPECT_EQ(test, vpoll_steal_periods(&s, &now, &stolen, 0, 100), 100);
	KUNIT_EXPECT_EQ_MSG(test, vpoll_steal_periods(&s, &now, &stolen, 16, 100), 100,
			    "a sixteenth is not too much");
}

/* The policy looks at whole periods, so a short preemption decides nothing. */
static void vpoll_test_one_preemption_is_no_steal(struct kunit *test)
{
	struct virtio_poll_steal s = {};
	u64 now = 1, stolen = 0;

	virtio_poll_steal_too_much(&s, now, stolen);
	now += 4 * NSEC_PER_MSEC;
	stolen += 4 * NSEC_PER_MSEC;
	KUNIT_EXPECT_FALSE(test, virtio_poll_steal_too_much(&s, now, stolen));
	now += VIRTIO_POLL_STEAL_PERIOD_NS;
	KUNIT_EXPECT_FALSE(test, virtio_poll_steal_too_much(&s, now, stolen));
}

/*
 * While the policy backs off, the vCPU halts, and the host steals nothing.  When the vCPU polls
 * again, the host steals half of its time.
 */
static void vpoll_test_steal_backs_off_longer(struct kunit *test)
{
	struct virtio_poll_steal s = {};
	u64 now = 1, stolen = 0, back_off;

	virtio_poll_steal_too_much(&s, now, stolen);
	for (int i = 0; i <= VIRTIO_POLL_STEAL_SHIFT + 2; i++) {
		KUNIT_EXPECT_EQ(test, vpoll_steal_periods(&s, &now, &stolen, 2, 1), 0);
		back_off = VIRTIO_POLL_STEAL_BACK_OFF_NS << min(i, VIRTIO_POLL_STEAL_SHIFT);
		now += back_off - 1;
		KUNIT_EXPECT_TRUE(test, virtio_poll_steal_too_much(&s, now, stolen));
		now++;
		KUNIT_EXPECT_FALSE(test, virtio_poll_steal_too_much(&s, now, stolen));
	}
}

static void vpoll_test_steal_that_is_gone_is_forgotten(struct kunit *test)
{
	struct virtio_poll_steal s = {};
	u64 now = 1, stolen = 0;

	virtio_poll_steal_too_much(&s, now, stolen);
	KUNIT_EXPECT_EQ(test, vpoll_steal_periods(&s, &now, &stolen, 2, 100), 0);
	KUNIT_EXPECT_EQ(test, s.shift, (unsigned int)VIRTIO_POLL_STEAL_SHIFT);
	/* The longest back-off comes twice at most: time was stolen when the first began. */
	KUNIT_EXPECT_GE(test, vpoll_steal_periods(&s, &now, &stolen, 0, 200), 200 - 2 * 64);
	KUNIT_EXPECT_EQ(test, s.shift, 0U);
}

/* Simulate TIMES runs of the CPU's timer, 8 ms (two ticks) apart.  Each finds the same task. */
static void vpoll_sample_times(struct virtio_poll_computes *c, const void *task, int slept,
			       u64 *now, int times)
{
	while (times--) {
		*now += 8 * NSEC_PER_MSEC;
		virtio_poll_computes_note(c, task, slept, *now);
	}
}

static void vpoll_test_computes(struct kunit *test)
{
	struct virtio_poll_computes c = {};
	u64 now = NSEC_PER_SEC;
	int task;

	KUNIT_EXPECT_FALSE(test, virtio_poll_computes_lately(&c, now));
	vpoll_sample_times(&c, &task, 7, &now, VIRTIO_POLL_COMPUTES_SAMPLES - 1);
	KUNIT_EXPECT_FALSE_MSG(test, virtio_poll_computes_lately(&c, now), "too few to tell");
	vpoll_sample_times(&c, &task, 7, &now, 1);
	KUNIT_EXPECT_TRUE(test, virtio_poll_computes_lately(&c, now));
	now += VIRTIO_POLL_COMPUTES_LATELY_NS;
	KUNIT_EXPECT_FALSE_MSG(test, virtio_poll_computes_lately(&c, now), "it has ended since");
	vpoll_sample_times(&c, &task, 7, &now, 1);
	KUNIT_EXPECT_TRUE(test, virtio_poll_computes_lately(&c, now));
}

static void vpoll_test_who_sleeps_does_not_compute(struct kunit *test)
{
	struct virtio_poll_computes c = {};
	u64 now = NSEC_PER_SEC;
	int tasks[2];
	int i;

	for (i = 0; i < 100; i++) {
		vpoll_sample_times(&c, &tasks[0], i, &now, VIRTIO_POLL_COMPUTES_SAMPLES - 1);
		KUNIT_EXPECT_FALSE_MSG(test, virtio_poll_computes_lately(&c, now), "bursts");
	}
	for (i = 0; i < 100; i++) {
		vpoll_sample_times(&c, &tasks[i % 2], 0, &now, 1);
		KUNIT_EXPECT_FALSE_MSG(test, virtio_poll_computes_lately(&c, now), "in turn");
	}
}

static struct kunit_case vpoll_policy_cases[] = {
	KUNIT_CASE(vpoll_test_unknown_polls),
	KUNIT_CASE(vpoll_test_short_waits_poll),
	KUNIT_CASE(vpoll_test_long_waits_sleep),
	KUNIT_CASE(vpoll_test_recovers),
	KUNIT_CASE(vpoll_test_try_that_pays),
	KUNIT_CASE(vpoll_test_tries_in_vain_become_rare),
	KUNIT_CASE(vpoll_test_late_try_is_in_vain),
	KUNIT_CASE(vpoll_test_lucky_tries_do_not_keep_it_polling),
	KUNIT_CASE(vpoll_test_one_miss_is_no_try),
	KUNIT_CASE(vpoll_test_extremes),
	KUNIT_CASE(vpoll_test_no_steal_polls),
	KUNIT_CASE(vpoll_test_one_preemption_is_no_steal),
	KUNIT_CASE(vpoll_test_steal_backs_off_longer),
	KUNIT_CASE(vpoll_test_steal_that_is_gone_is_forgotten),
	KUNIT_CASE(vpoll_test_computes),
	KUNIT_CASE(vpoll_test_who_sleeps_does_not_compute),
	{}
};

static struct kunit_suite vpoll_policy_suite = {
	.name = "virtio_poll_policy",
	.test_cases = vpoll_policy_cases,
};

kunit_test_suite(vpoll_policy_suite);

MODULE_DESCRIPTION("KUnit tests of the polling policy of virtio_poll");
MODULE_LICENSE("GPL");
