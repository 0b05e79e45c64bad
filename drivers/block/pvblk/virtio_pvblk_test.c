// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of policy.h and name.h. */
#include <kunit/test.h>
#include <linux/module.h>

#include "name.h"
#include "policy.h"

#define MAX_NS 200000ULL

static void learn_times(struct pvblk_policy *p, u64 ns, int times)
{
	while (times--)
		pvblk_policy_learn(p, ns, MAX_NS, false);
}

/* How many waits are left to interrupts before one is polled through. */
static int waits_to_try(struct pvblk_policy *p)
{
	int n = 0;

	while (n < 1 << 20 && !pvblk_policy_polls(p, MAX_NS))
		n++;
	return n;
}

static void test_unknown_polls(struct kunit *test)
{
	struct pvblk_policy p = {};

	KUNIT_EXPECT_TRUE(test, pvblk_policy_pays(&p, MAX_NS));
	KUNIT_EXPECT_EQ(test, pvblk_policy_budget(&p, MAX_NS), MAX_NS);
}

static void test_short_waits_poll(struct kunit *test)
{
	struct pvblk_policy p = {};

	learn_times(&p, 10000, 50);
	KUNIT_EXPECT_EQ(test, p.wait_ns, 10000ULL);
	KUNIT_EXPECT_TRUE(test, pvblk_policy_pays(&p, MAX_NS));
	KUNIT_EXPECT_EQ(test, pvblk_policy_budget(&p, MAX_NS), 40000ULL);
}

static void test_long_waits_sleep(struct kunit *test)
{
	struct pvblk_policy p = {};

	learn_times(&p, 10000, 50);
	learn_times(&p, 1000000, 1);
	KUNIT_EXPECT_TRUE_MSG(test, pvblk_policy_pays(&p, MAX_NS), "one long wait is no reason");
	learn_times(&p, 1000000, 20);
	KUNIT_EXPECT_FALSE(test, pvblk_policy_pays(&p, MAX_NS));
	KUNIT_EXPECT_EQ(test, pvblk_policy_budget(&p, MAX_NS), MAX_NS);
}

static void test_recovers(struct kunit *test)
{
	struct pvblk_policy p = {};

	learn_times(&p, 3600ULL * 1000 * 1000 * 1000, 100);
	KUNIT_EXPECT_FALSE(test, pvblk_policy_pays(&p, MAX_NS));
	learn_times(&p, 10000, 20);
	KUNIT_EXPECT_TRUE(test, pvblk_policy_pays(&p, MAX_NS));
}

/* Interrupts take long to arrive; the device itself would do. */
static void test_try_that_pays(struct kunit *test)
{
	struct pvblk_policy p = {};

	learn_times(&p, 600000, 50);
	KUNIT_EXPECT_FALSE(test, pvblk_policy_pays(&p, MAX_NS));
	KUNIT_EXPECT_EQ(test, waits_to_try(&p), PVBLK_TRY_AFTER - 1);
	KUNIT_EXPECT_EQ(test, pvblk_policy_budget(&p, MAX_NS), MAX_NS);
	pvblk_policy_learn(&p, 50000, MAX_NS, true);
	KUNIT_EXPECT_EQ(test, p.wait_ns, 50000ULL);
	KUNIT_EXPECT_TRUE(test, pvblk_policy_pays(&p, MAX_NS));
}

static void test_tries_in_vain_become_rare(struct kunit *test)
{
	struct pvblk_policy p = {};

	learn_times(&p, 600000, 50);
	for (int i = 0; i <= PVBLK_TRY_SHIFT + 2; i++) {
		KUNIT_EXPECT_EQ(test, waits_to_try(&p),
				(PVBLK_TRY_AFTER << min(i, PVBLK_TRY_SHIFT)) - 1);
		pvblk_policy_gave_up(&p, MAX_NS);
		learn_times(&p, 600000, 1);
	}
	pvblk_policy_learn(&p, 50000, MAX_NS, true);
	KUNIT_EXPECT_EQ(test, p.try_shift, PVBLK_TRY_SHIFT - 1U);
	KUNIT_EXPECT_EQ(test, p.slept, 0U);
}

/* Noticed by a poller that got the CPU too late. */
static void test_late_try_is_in_vain(struct kunit *test)
{
	struct pvblk_policy p = {};

	learn_times(&p, 600000, 50);
	waits_to_try(&p);
	pvblk_policy_learn(&p, 600000, MAX_NS, true);
	KUNIT_EXPECT_FALSE(test, pvblk_policy_pays(&p, MAX_NS));
	KUNIT_EXPECT_EQ(test, p.try_shift, 1U);
}

/* Half of the tries pay, and all that follows is slow. */
static void test_lucky_tries_do_not_keep_it_polling(struct kunit *test)
{
	struct pvblk_policy p = {};
	unsigned int polled = 0, waits = 0;

	while (waits < 10000) {
		bool try = !pvblk_policy_pays(&p, MAX_NS);

		waits++;
		if (!pvblk_policy_polls(&p, MAX_NS)) {
			learn_times(&p, 800000, 1);
			continue;
		}
		polled++;
		if (try && waits % 2) {
			pvblk_policy_learn(&p, 50000, MAX_NS, true);
			continue;
		}
		pvblk_policy_gave_up(&p, MAX_NS);
		learn_times(&p, 800000, 1);
	}
	/* A try and the few waits after it, in 16 at most. */
	KUNIT_EXPECT_LT(test, polled, waits / 4);
}

static void test_one_miss_is_no_try(struct kunit *test)
{
	struct pvblk_policy p = {};

	learn_times(&p, 10000, 50);
	pvblk_policy_gave_up(&p, MAX_NS);
	KUNIT_EXPECT_EQ(test, p.try_shift, 0U);
}

static void test_extremes(struct kunit *test)
{
	struct pvblk_policy p = {};

	KUNIT_EXPECT_FALSE_MSG(test, pvblk_policy_polls(&p, 0), "nor for the first wait");
	pvblk_policy_learn(&p, 0, 0, true);
	KUNIT_EXPECT_GT(test, p.wait_ns, 0ULL);
	for (int i = 0; i < 5000; i++)
		KUNIT_ASSERT_FALSE_MSG(test, pvblk_policy_polls(&p, 0), "no time to poll: never");
	pvblk_policy_learn(&p, U64_MAX, MAX_NS, true);
	KUNIT_EXPECT_LE(test, p.wait_ns, 4 * MAX_NS);
	learn_times(&p, 1, 1000);
	KUNIT_EXPECT_EQ(test, p.wait_ns, 1ULL);
}

static void test_names(struct kunit *test)
{
	char buf[32];

	KUNIT_EXPECT_EQ(test, pvblk_disk_name(0, buf, sizeof(buf)), 0);
	KUNIT_EXPECT_STREQ(test, buf, "vda");
	KUNIT_EXPECT_EQ(test, pvblk_disk_name(25, buf, sizeof(buf)), 0);
	KUNIT_EXPECT_STREQ(test, buf, "vdz");
	KUNIT_EXPECT_EQ(test, pvblk_disk_name(26, buf, sizeof(buf)), 0);
	KUNIT_EXPECT_STREQ(test, buf, "vdaa");
	KUNIT_EXPECT_EQ(test, pvblk_disk_name(26 + 26 * 26, buf, sizeof(buf)), 0);
	KUNIT_EXPECT_STREQ(test, buf, "vdaaa");
	KUNIT_EXPECT_EQ(test, pvblk_disk_name((1 << 16) - 1, buf, sizeof(buf)), 0);
	KUNIT_EXPECT_STREQ(test, buf, "vdcrxp");
	KUNIT_EXPECT_EQ(test, pvblk_disk_name(26, buf, 4), -EINVAL);
	KUNIT_EXPECT_EQ(test, pvblk_disk_name(26, buf, 5), 0);
}

static struct kunit_case pvblk_policy_cases[] = {
	KUNIT_CASE(test_unknown_polls),
	KUNIT_CASE(test_short_waits_poll),
	KUNIT_CASE(test_long_waits_sleep),
	KUNIT_CASE(test_recovers),
	KUNIT_CASE(test_try_that_pays),
	KUNIT_CASE(test_tries_in_vain_become_rare),
	KUNIT_CASE(test_late_try_is_in_vain),
	KUNIT_CASE(test_lucky_tries_do_not_keep_it_polling),
	KUNIT_CASE(test_one_miss_is_no_try),
	KUNIT_CASE(test_extremes),
	KUNIT_CASE(test_names),
	{}
};

static struct kunit_suite pvblk_policy_suite = {
	.name = "virtio_pvblk_policy",
	.test_cases = pvblk_policy_cases,
};

kunit_test_suite(pvblk_policy_suite);

MODULE_DESCRIPTION("KUnit tests of the polling policy of virtio_pvblk");
MODULE_LICENSE("GPL");
