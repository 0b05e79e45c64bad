// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of complete.c: how much one round completes.  Their vring has no ring. */
#include <kunit/test.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "serve.h"

#define REQS	200U

static unsigned int released;

static bool complete_test_release(struct vserve_req *req, bool may_sleep)
{
	released++;
	return true;
}

/* Say that writing the status byte would fault, so that answers stay on a list. */
static int complete_test_finish(struct vserve_req *req, bool may_sleep)
{
	return -EFAULT;
}

static const struct vserve_ops complete_test_ops = {
	.release = complete_test_release,
	.finish = complete_test_finish,
};

/* Make a vring with REQS requests of BYTES each, which its backend has ended in this round. */
static struct vserve_vring *vring_with(struct kunit *test, u32 bytes)
{
	struct vserve_req *reqs = kunit_kcalloc(test, REQS, sizeof(*reqs), GFP_KERNEL);
	struct vserve_vring *vring = kunit_kzalloc(test, sizeof(*vring), GFP_KERNEL);
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, reqs);
	KUNIT_ASSERT_NOT_NULL(test, vring);
	mutex_init(&vring->vq.mutex);
	vring->ops = &complete_test_ops;
	vring->src.weight = VSERVE_WEIGHT;
	vring->vq.num = 256;
	INIT_LIST_HEAD(&vring->inflight);
	vring->finished_last = &vring->finished;
	vring->reaper = current;
	for (i = 0; i < REQS; i++) {
		reqs[i].vring = vring;
		reqs[i].bytes = bytes;
		vserve_req_start(&reqs[i]);
		vserve_req_end(&reqs[i], 0);
	}
	released = 0;
	return vring;
}

/* Simulate one round, which may complete BUDGET requests.  Returns how many it released. */
static unsigned int completed(struct vserve_vring *vring, unsigned int budget)
{
	unsigned int before = released;

	mutex_lock(&vring->vq.mutex);
	vserve_complete(vring, budget, false);
	mutex_unlock(&vring->vq.mutex);
	return released - before;
}

static void no_more_than_the_budget(struct kunit *test)
{
	struct vserve_vring *vring = vring_with(test, 512);

	KUNIT_EXPECT_EQ(test, completed(vring, 64), 64);
	KUNIT_EXPECT_NOT_NULL(test, vring->backlog);
	KUNIT_EXPECT_EQ(test, completed(vring, 100), 100);
	KUNIT_EXPECT_NOT_NULL(test, vring->backlog);
	KUNIT_EXPECT_EQ(test, completed(vring, 64), REQS - 164);
	KUNIT_EXPECT_NULL(test, vring->backlog);
	KUNIT_EXPECT_EQ(test, vring->nr_inflight, 0);
}

static void no_more_bytes_than_a_round_takes(struct kunit *test)
{
	struct vserve_vring *vring = vring_with(test, SZ_1M);

	KUNIT_EXPECT_EQ(test, completed(vring, 64), VSERVE_ROUND_BYTES / SZ_1M);
	KUNIT_EXPECT_NOT_NULL(test, vring->backlog);
	vring->src.weight = 3 * VSERVE_WEIGHT;
	KUNIT_EXPECT_EQ(test, completed(vring, 64), 3 * VSERVE_ROUND_BYTES / SZ_1M);
}

static void a_request_of_more_bytes_is_completed_alone(struct kunit *test)
{
	struct vserve_vring *vring = vring_with(test, 16 * SZ_1M);
	unsigned int i;

	for (i = 0; i < REQS; i++)
		KUNIT_EXPECT_EQ(test, completed(vring, 64), 1);
	KUNIT_EXPECT_NULL(test, vring->backlog);
}

static struct kunit_case complete_cases[] = {
	KUNIT_CASE(no_more_than_the_budget),
	KUNIT_CASE(no_more_bytes_than_a_round_takes),
	KUNIT_CASE(a_request_of_more_bytes_is_completed_alone),
	{}
};

static struct kunit_suite complete_suite = {
	.name = "vhost_serve_complete",
	.test_cases = complete_cases,
};

kunit_test_suite(complete_suite);
