// SPDX-License-Identifier: GPL-2.0
/*
 * A guest that means harm cannot: whatever it puts on its ring, its own device
 * works again after a reset, and another device on the same poller notices
 * nothing.  What it does to the kernel's health is the lab's to see, in the
 * debug lane.  LAYOUTS= says how many random ones, SEED= repeats a run.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <linux/vhost.h>

#include "hostile.h"

static bool debug_kernel(void)
{
	return !access("/sys/kernel/debug/failslab", F_OK) ||
	       !access("/sys/kernel/debug/kmemleak", F_OK);
}

#define FEW	2000
#define MANY	10000
/* after which a slow machine has done enough, unless FULL=1 */
#define SECONDS	60

static unsigned long random_layouts(void)
{
	bool many = debug_kernel() || ktap_full();

	return ktap_env("LAYOUTS", many ? MANY : FEW);
}

static bool enough(unsigned long done, time_t start)
{
	return done >= FEW && !ktap_full() && !ktap_env("LAYOUTS", 0) &&
	       time(NULL) - start > SECONDS;
}

static void play_all(u32 engine, u32 flags)
{
	struct hostile h;
	unsigned int i;

	hostile_open(&h, engine, flags);
	hostile_stop(&h);
	for (i = 0; i < hostile_ncases; i++) {
		hostile_play(&h, &hostile_cases[i]);
		hostile_check(&h);
	}
	ktap_msg("%llu layouts", (unsigned long long)h.layouts);
	EXPECT(h.layouts >= 100);
	hostile_close(&h);
}

static void layouts_written_by_hand_are_survived(void)
{
	play_all(VHOST_BLK_ENGINE_MQ, 0);
}

static void the_bio_engine_survives_them_too(void)
{
	play_all(VHOST_BLK_ENGINE_BIO, 0);
}

static void with_pinned_memory_they_are_survived_too(void)
{
	play_all(VHOST_BLK_ENGINE_AUTO, VHOST_BLK_BACKEND_PINNED);
}

static void random_layouts_are_survived(void)
{
	unsigned long i, n = random_layouts();
	time_t start = time(NULL);
	struct hostile h;

	hostile_open(&h, VHOST_BLK_ENGINE_AUTO, 0);
	hostile_stop(&h);
	for (i = 0; i < n && !enough(i, start); i++) {
		hostile_random(&h);
		if (i % 100 == 99)
			hostile_check(&h);
	}
	hostile_check(&h);
	ktap_msg("%llu layouts", (unsigned long long)h.layouts);
	hostile_close(&h);
}

/* The other CPU of the guest: changes what the parser is about to read. */
struct changer {
	struct hostile *h;
	bool stop;
	u64 changes;
};

static void *change(void *arg)
{
	struct changer *c = arg;
	struct hostile *h = c->h;
	struct vring *vr = &h->g.ring[0].vr;
	u64 seed = 1;

	while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
		struct vring_desc *d;

		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		d = seed >> 63 ? h->table : vr->desc;
		d += (seed >> 40) % 16;
		switch ((seed >> 50) % 6) {
		case 0:
			d->addr ^= 0xdead00000000ULL;
			break;
		case 1:
			d->len ^= 0xfffffe00;
			break;
		case 2:
			d->flags ^= 1 << (seed >> 60);
			break;
		case 3:
			d->next ^= 1 << (seed >> 60);
			break;
		case 4:
			h->hdr[(seed >> 44) % 8].type ^= 0x100;
			break;
		default:
			h->hdr[(seed >> 44) % 8].sector ^= 1ULL << 55;
		}
		c->changes++;
	}
	return NULL;
}

static void memory_that_changes_under_the_parser_is_survived(void)
{
	unsigned long i, n = random_layouts() / 10;
	struct changer c = { 0 };
	struct hostile h;
	pthread_t thread;

	hostile_open(&h, VHOST_BLK_ENGINE_AUTO, 0);
	hostile_stop(&h);
	c.h = &h;
	EXPECT(!pthread_create(&thread, NULL, change, &c));
	for (i = 0; i < n; i++) {
		hostile_random(&h);
		if (i % 100 == 99)
			rig_check_works(&h.other, 0, 512);
	}
	__atomic_store_n(&c.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	hostile_check(&h);
	ktap_msg("%llu layouts, %llu changes", (unsigned long long)h.layouts,
		 (unsigned long long)c.changes);
	hostile_close(&h);
}

/* Honest requests in flight while something is done to the device. */
static void keep_busy(struct hostile *h)
{
	unsigned int i;

	for (i = 0; i < 32; i++)
		rig_queue(&h->g, 0, i % 2, i * 16, h->g.data + i * 4096, 4096);
	rig_kick(&h->g, 0);
}

static void set_addr(struct hostile *h, u64 desc, u64 avail, u64 used)
{
	struct vhost_vring_addr a = {
		.index = 0, .desc_user_addr = desc, .avail_user_addr = avail,
		.used_user_addr = used,
	};

	/* refused or not: not the question here */
	if (ioctl(h->g.dev.fd, VHOST_SET_VRING_ADDR, &a))
		return;
}

static void restart(struct hostile *h)
{
	vblk_stop(h->g.dev.fd, 0);
	EXPECT_EQ(vblk_set_mem(h->g.dev.fd, &h->g.mem), 0);
	ring_reset(&h->g.ring[0], 0);
	EXPECT_EQ(vdev_start(&h->g.dev, &h->g.ring[0]), 0);
	rig_check_works(&h->g, 0, 512);
	rig_check_works(&h->other, 0, 512);
}

static void rings_moved_while_live_are_survived(void)
{
	struct hostile h;
	unsigned int i;

	hostile_open(&h, VHOST_BLK_ENGINE_AUTO, 0);
	for (i = 0; i < 100; i++) {
		struct vring *vr = &h.g.ring[0].vr;
		u64 desc = (uintptr_t)vr->desc, avail = (uintptr_t)vr->avail;
		u64 used = (uintptr_t)vr->used;

		keep_busy(&h);
		set_addr(&h, desc, used & ~63ULL, avail & ~63ULL);
		set_addr(&h, desc + 16 * (i + 1), avail, used);
		set_addr(&h, 0, 0, 0);
		set_addr(&h, ~0ULL & ~15, ~0ULL & ~1, ~0ULL & ~3);
		set_addr(&h, desc, avail, 0xffff888000000000ULL);
		set_addr(&h, 8, 1, 2);
		restart(&h);
	}
	hostile_close(&h);
}

static void set_one_region(struct hostile *h, u64 gpa, u64 size, u64 user)
{
	struct {
		struct vhost_memory head;
		struct vhost_memory_region region;
	} m = {
		.head.nregions = 1,
		.region = { gpa, size, user, 0 },
	};

	if (ioctl(h->g.dev.fd, VHOST_SET_MEM_TABLE, &m))
		return;
}

static void memory_tables_that_lie_are_survived(u32 flags)
{
	struct ring_mem *mem;
	struct hostile h;
	unsigned int i;

	hostile_open(&h, VHOST_BLK_ENGINE_AUTO, flags);
	mem = &h.g.mem;
	for (i = 0; i < 10; i++) {
		keep_busy(&h);
		set_one_region(&h, mem->gpa, mem->size, 4096);
		set_one_region(&h, mem->gpa, ~0ULL, (uintptr_t)mem->base);
		set_one_region(&h, ~0ULL - 4095, 8192, (uintptr_t)mem->base);
		set_one_region(&h, mem->gpa, 0, (uintptr_t)mem->base);
		set_one_region(&h, mem->gpa, mem->size,
			       0xffff888000000000ULL);
		set_one_region(&h, mem->gpa + 4096, mem->size,
			       (uintptr_t)mem->base);
		set_one_region(&h, mem->gpa, 4096, (uintptr_t)mem->base);
		restart(&h);
	}
	hostile_close(&h);
}

static void lying_memory_tables_are_survived(void)
{
	memory_tables_that_lie_are_survived(0);
}

static void lying_pinned_memory_tables_are_survived(void)
{
	memory_tables_that_lie_are_survived(VHOST_BLK_BACKEND_PINNED);
}

/* Take pages away from under the device: its own owner does that. */
static void memory_that_goes_away_is_survived(void)
{
	struct hostile h;
	struct ring_mem *mem = &h.g.mem;
	unsigned int i;

	hostile_open(&h, VHOST_BLK_ENGINE_AUTO, 0);
	for (i = 0; i < 30; i++) {
		keep_busy(&h);
		if (i % 3 == 0)
			mprotect(mem->base, mem->size, PROT_NONE);
		else if (i % 3 == 1)
			mprotect(mem->base, mem->size, PROT_READ);
		else
			EXPECT(!ftruncate(mem->fd, 0));
		vblk_stop(h.g.dev.fd, 0);
		EXPECT(!ftruncate(mem->fd, mem->size));
		mprotect(mem->base, mem->size, PROT_READ | PROT_WRITE);
		restart(&h);
	}
	keep_busy(&h);
	munmap(mem->base, mem->size);
	vblk_stop(h.g.dev.fd, 0);
	rig_check_works(&h.other, 0, 512);
}

/* Every chain is the longest there is, without a status. */
static void lay_garbage(struct hostile *h)
{
	struct vring *vr = &h->g.ring[0].vr;
	unsigned int i;

	for (i = 0; i < HOSTILE_RING; i++) {
		vr->desc[i] = (struct vring_desc){
			hostile_gpa(h, A_DATA), 512, VRING_DESC_F_NEXT, i + 1
		};
		vr->avail->ring[i] = 0;
	}
	vr->desc[HOSTILE_RING - 1].flags = 0;
}

/* A ring full of it, all of which has to be taken before there may be more. */
static void offer_garbage(struct hostile *h)
{
	struct vring *vr = &h->g.ring[0].vr;

	__atomic_store_n(&vr->avail->idx, vr->avail->idx + HOSTILE_RING,
			 __ATOMIC_RELEASE);
	ring_kick_always(&h->g.ring[0]);
}

static unsigned int garbage_left(struct hostile *h)
{
	struct vring *vr = &h->g.ring[0].vr;

	return (u16)(vr->avail->idx -
		     __atomic_load_n(&vr->used->idx, __ATOMIC_ACQUIRE));
}

static void expect_all_garbage_found(struct hostile *h, u64 before)
{
	unsigned int ms;

	for (ms = 0; garbage_left(h) && ms < RIG_TIMEOUT_MS; ms++)
		sleep_ms(1);
	EXPECT_EQ(garbage_left(h), 0);
	EXPECT_EQ(rig_malformed(&h->g, 0) - before, HOSTILE_RING);
}

/* The ring stays whole all the time: each round of it is an attack. */
static void neighbours_work_while_there_is_garbage(void)
{
	struct rig_opts apart = {
		.mode = VHOST_POLL_MODE_EVENT, .first_cpu = true,
	};
	struct hostile h;
	unsigned int i;
	struct rig far;
	u64 before;

	hostile_open(&h, VHOST_BLK_ENGINE_AUTO, 0);
	rig_open(&far, nullb_create(&(struct nullb){ .name = "far" }), &apart);
	lay_garbage(&h);
	for (i = 0; i < 50; i++) {
		before = rig_malformed(&h.g, 0);
		offer_garbage(&h);
		rig_check_works(&h.other, 0, 512);
		rig_check_works(&far, 0, 512);
		expect_all_garbage_found(&h, before);
	}
	hostile_stop(&h);
	hostile_check(&h);
	rig_close(&far);
	hostile_close(&h);
}

#define NEIGHBOURS	40	/* requests, as many as its ring has room for */
#define TRIES		40

/*
 * Both at once: how much of the garbage was taken when the last of the
 * neighbour's requests was served?  This process may look late, now and then.
 */
static unsigned int garbage_ahead(struct hostile *h)
{
	struct ring *r = &h->other.ring[0];
	u64 before = rig_malformed(&h->g, 0);
	unsigned int i, ahead;

	for (i = 0; i < NEIGHBOURS; i++)
		rig_queue(&h->other, 0, VIRTIO_BLK_T_IN, i * 16,
			  h->other.data, 512);
	offer_garbage(h);
	ring_publish(r);
	ring_kick_always(r);
	while ((u16)(__atomic_load_n(&r->vr.used->idx, __ATOMIC_ACQUIRE) -
		     r->used_idx) < NEIGHBOURS)
		;
	ahead = HOSTILE_RING - garbage_left(h);
	rig_wait(&h->other, 0);
	expect_all_garbage_found(h, before);
	return ahead;
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* In counts, as fair_test does: equal weights, so no more than its own share. */
static void garbage_does_not_starve_the_neighbour(void)
{
	int ahead[TRIES], i;
	struct hostile h;

	hostile_open(&h, VHOST_BLK_ENGINE_AUTO, 0);
	lay_garbage(&h);
	for (i = 0; i < TRIES; i++)
		ahead[i] = garbage_ahead(&h);
	qsort(ahead, TRIES, sizeof(*ahead), by_number);
	ktap_msg("of %u, %d went ahead of %u requests (%d to %d)",
		 HOSTILE_RING, ahead[TRIES / 2], NEIGHBOURS, ahead[0],
		 ahead[TRIES - 1]);
	EXPECT(ahead[TRIES / 2] <= NEIGHBOURS);
	hostile_close(&h);
}

#define LONGEST	1024	/* descriptors of a chain, see the driver's VBLK_MAX_CHAIN */
#define TABLE_MAX	65536

/* A read of nothing in a table of @n descriptors; most of them are empty. */
static void fill_table(struct hostile *h, struct vring_desc *table,
		       unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		table[i] = (struct vring_desc){
			hostile_gpa(h, A_HDR), i ? 0 : 16, VRING_DESC_F_NEXT,
			i + 1
		};
	table[n - 1] = (struct vring_desc){
		hostile_gpa(h, A_STAT), 1, VRING_DESC_F_WRITE, 0
	};
}

/* Until the driver answers, or counts a malformed chain. */
static void wait_for_verdict(struct hostile *h, const struct vhost_blk_stats *before)
{
	struct vhost_blk_stats after;
	unsigned int ms;

	/* It may go to a worker, whom settling does not see. */
	for (ms = 0; ms < RIG_TIMEOUT_MS; ms++) {
		rig_stats(&h->g, 0, &after);
		if (after.malformed != before->malformed ||
		    __atomic_load_n(h->status, __ATOMIC_ACQUIRE) != NO_STATUS)
			return;
		sleep_ms(1);
	}
}

static u64 count_malformed(struct hostile *h, const struct vhost_blk_stats *before)
{
	struct vhost_blk_stats after;

	wait_for_verdict(h, before);
	hostile_settle(h);
	hostile_stop(h);
	rig_stats(&h->g, 0, &after);
	return after.malformed - before->malformed;
}

/* How many chains were malformed when @first and what follows it was offered. */
static u64 offer_table(struct hostile *h, struct vring_desc first)
{
	struct vring *vr = &h->g.ring[0].vr;
	struct vhost_blk_stats before;
	unsigned int i;

	hostile_fresh(h);
	memset(h->hdr, 0, 4096);
	*h->status = NO_STATUS;
	rig_stats(&h->g, 0, &before);
	for (i = 0; i < HOSTILE_RING; i++) {
		vr->desc[i] = first;
		vr->desc[i].next = (i + 1) % HOSTILE_RING;
	}
	vr->avail->ring[0] = 0;
	__atomic_store_n(&vr->avail->idx, 1, __ATOMIC_RELEASE);
	ring_kick_always(&h->g.ring[0]);
	return count_malformed(h, &before);
}

/* The same, once a chain has told the driver in which region chains lie. */
static u64 offer_table_behind_another(struct hostile *h, struct vring_desc first)
{
	struct vring *vr = &h->g.ring[0].vr;
	struct vhost_blk_stats before;

	hostile_fresh(h);
	memset(h->hdr, 0, 4096);
	*h->status = NO_STATUS;
	rig_stats(&h->g, 0, &before);
	vr->desc[0] = (struct vring_desc){ hostile_gpa(h, A_HDR), 16, VRING_DESC_F_NEXT, 1 };
	vr->desc[1] = (struct vring_desc){ hostile_gpa(h, A_STAT), 1, VRING_DESC_F_WRITE, 0 };
	vr->desc[2] = first;
	vr->avail->ring[0] = 0;
	vr->avail->ring[1] = 2;
	__atomic_store_n(&vr->avail->idx, 1, __ATOMIC_RELEASE);
	ring_kick_always(&h->g.ring[0]);
	wait_for_verdict(h, &before);
	EXPECT_EQ(*h->status, VIRTIO_BLK_S_OK);
	*h->status = NO_STATUS;
	__atomic_store_n(&vr->avail->idx, 2, __ATOMIC_RELEASE);
	ring_kick_always(&h->g.ring[0]);
	return count_malformed(h, &before);
}

static void chains_have_an_end(void)
{
	struct vring_desc *table, first;
	struct hostile h;
	unsigned int i;

	hostile_open(&h, VHOST_BLK_ENGINE_AUTO, 0);
	hostile_stop(&h);
	table = ring_mem_alloc(&h.g.mem, TABLE_MAX * sizeof(*table), 4096);
	EXPECT(table);
	first = (struct vring_desc){ .addr = ring_gpa(&h.g.mem, table),
				     .len = TABLE_MAX * sizeof(*table),
				     .flags = VRING_DESC_F_INDIRECT };

	/* the one in the ring counts, too */
	fill_table(&h, table, LONGEST - 1);
	EXPECT_EQ(offer_table(&h, first), 0);
	EXPECT_EQ(*h.status, VIRTIO_BLK_S_OK);
	fill_table(&h, table, LONGEST);
	EXPECT_EQ(offer_table(&h, first), 1);
	EXPECT_EQ(*h.status, NO_STATUS);
	/* none of them empty, so that nothing sends the chain to the reader that takes all */
	for (i = 1; i < LONGEST - 1; i++)
		table[i].len = 1;
	first.len = LONGEST * sizeof(*table);
	EXPECT_EQ(offer_table_behind_another(&h, first), 1);
	EXPECT_EQ(*h.status, NO_STATUS);
	first.len = TABLE_MAX * sizeof(*table);
	/* the longest that vhost's own parser would read */
	fill_table(&h, table, TABLE_MAX);
	first.flags |= VRING_DESC_F_NEXT;
	EXPECT_EQ(offer_table(&h, first), 1);
	EXPECT_EQ(*h.status, NO_STATUS);
	hostile_check(&h);
	hostile_close(&h);
}

#define TEST(f) { .name = #f, .run = f, .limit = 900 }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(layouts_written_by_hand_are_survived),
		TEST(the_bio_engine_survives_them_too),
		TEST(with_pinned_memory_they_are_survived_too),
		TEST(random_layouts_are_survived),
		TEST(memory_that_changes_under_the_parser_is_survived),
		TEST(rings_moved_while_live_are_survived),
		TEST(lying_memory_tables_are_survived),
		TEST(lying_pinned_memory_tables_are_survived),
		TEST(memory_that_goes_away_is_survived),
		TEST(neighbours_work_while_there_is_garbage),
		TEST(garbage_does_not_starve_the_neighbour),
		TEST(chains_have_an_end),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests),
			 backend_cleanup);
}
