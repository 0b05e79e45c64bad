// SPDX-License-Identifier: GPL-2.0
#include <kunit/resource.h>
#include <kunit/test.h>
#include <linux/log2.h>
#include <linux/module.h>

#include "ids.h"

#define BUCKETS		65536
#define IDS		(BUCKETS / 4 * 3)	/* beyond that a table grows */
#define LONGEST		12			/* at 16 an insertion has the table rehashed */
#define OBJECTS		3000

/* The guest looks up new files, and forgets all but every @stride-th of them. */
static void spread(struct kunit *test, u64 stride, u32 seed)
{
	u8 *chain = kunit_kzalloc(test, BUCKETS, GFP_KERNEL);
	unsigned int i, used = 0, longest = 0;
	u64 nr;

	KUNIT_ASSERT_NOT_NULL(test, chain);
	for (i = 0; i < IDS; i++) {
		u8 *len;

		nr = 2 + i * stride;
		len = &chain[vhfs_id_hash(&nr, sizeof(nr), seed) % BUCKETS];
		used += !*len;
		(*len)++;
		longest = max(longest, *len);
	}
	/* Random numbers would use 53% of the buckets. */
	KUNIT_EXPECT_GT(test, used, BUCKETS / 100 * 45);
	KUNIT_EXPECT_LE(test, longest, LONGEST);
	kunit_kfree(test, chain);
}

static void ids_that_stay_are_spread(struct kunit *test)
{
	static const u32 seeds[] = { 0, 1, 0x5eed5eed, 0xa5a5a5a5, ~0U };
	static const u64 strides[] = { 1, 2, 3, 4, 5, 6, 7, 8, 16, 64, 100, 1 << 10, 1 << 16 };
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(seeds); i++)
		for (j = 0; j < ARRAY_SIZE(strides); j++)
			spread(test, strides[j], seeds[i]);
}

static struct rhashtable table;
static struct vhfs_id *ids;

static struct vhfs_id *find(u64 nr)
{
	struct vhfs_id *id;

	rcu_read_lock();
	id = vhfs_id_find(&table, nr);
	rcu_read_unlock();
	return id;
}

static void remove_one(struct vhfs_export *ex, u64 nr)
{
	if (nr)
		vhfs_id_remove(&table, &ids[nr]);
}

static void destroy(void *unused)
{
	rhashtable_destroy(&table);
}

static void fill(struct kunit *test)
{
	unsigned int i;

	ids = kunit_kcalloc(test, OBJECTS, sizeof(*ids), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, ids);
	KUNIT_ASSERT_EQ(test, vhfs_ids_init(&table), 0);
	/* The table goes before the ids, also if an assertion ends the test. */
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, destroy, NULL), 0);
	for (i = 0; i < OBJECTS; i++) {
		ids[i].nr = i;
		KUNIT_ASSERT_EQ(test, vhfs_id_add(&table, &ids[i]), 0);
	}
}

static void ids_are_found_until_they_are_removed(struct kunit *test)
{
	unsigned int i, found = 0;

	fill(test);
	for (i = 0; i < OBJECTS; i++)
		found += find(i) == &ids[i];
	KUNIT_EXPECT_EQ(test, found, OBJECTS);
	KUNIT_EXPECT_NULL(test, find(OBJECTS));
	KUNIT_EXPECT_NULL(test, find(1ULL << 32));
	for (i = 0; i < OBJECTS; i++) {
		KUNIT_EXPECT_TRUE(test, vhfs_id_remove(&table, &ids[i]));
		KUNIT_EXPECT_FALSE(test, vhfs_id_remove(&table, &ids[i]));
	}
}

static void all_but_the_root_are_cleared(struct kunit *test)
{
	fill(test);
	vhfs_ids_clear(NULL, &table, 1, remove_one);
	KUNIT_EXPECT_EQ(test, atomic_read(&table.nelems), 1);
	KUNIT_EXPECT_PTR_EQ(test, find(0), &ids[0]);
}

static struct kunit_case ids_cases[] = {
	KUNIT_CASE(ids_that_stay_are_spread),
	KUNIT_CASE(ids_are_found_until_they_are_removed),
	KUNIT_CASE(all_but_the_root_are_cleared),
	{}
};

static struct kunit_suite ids_suite = {
	.name = "vhost_fs_ids",
	.test_cases = ids_cases,
};

kunit_test_suite(ids_suite);

MODULE_IMPORT_NS(EXPORTED_FOR_KUNIT_TESTING);
MODULE_DESCRIPTION("KUnit tests of vhost_fs's tables by id");
MODULE_LICENSE("GPL");
