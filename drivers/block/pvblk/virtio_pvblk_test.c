// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of name.h: the names of disks. */
#include <kunit/test.h>
#include <linux/module.h>

#include "name.h"

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

static struct kunit_case pvblk_name_cases[] = {
	KUNIT_CASE(test_names),
	{}
};

static struct kunit_suite pvblk_name_suite = {
	.name = "virtio_pvblk_names",
	.test_cases = pvblk_name_cases,
};

kunit_test_suite(pvblk_name_suite);

MODULE_DESCRIPTION("KUnit tests of the names of virtio_pvblk's disks");
MODULE_LICENSE("GPL");
