// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of policy.h. */
#include <kunit/test.h>
#include <linux/module.h>

#include "policy.h"

#define MAX_NS 200000ULL

static void learn_times(struct pvblk_policy *p, u64 ns, int times)
{
	while (times--)
		pvblk_policy_learn(p, ns, MAX_NS);
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

static void test_extremes(struct kunit *test)
{
	struct pvblk_policy p = {};

	pvblk_policy_learn(&p, 0, 0);
	KUNIT_EXPECT_GT(test, p.wait_ns, 0ULL);
	KUNIT_EXPECT_FALSE_MSG(test, pvblk_policy_pays(&p, 0), "no time to poll: never");
	pvblk_policy_learn(&p, U64_MAX, MAX_NS);
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
