// SPDX-License-Identifier: GPL-2.0
/*
 * Pinned guest memory whose mapping changes, as balloons, free-page reporting and
 * virtio-mem change it: requests move data from and to the pages that are there when
 * they are made, and what the guest has given away is not held for ever.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

#define PAGE		4096UL
#define LEN		(16 * PAGE)
#define SLOT		(64UL << 10)
#define SLOTS		16
#define SLOW_MS		3000

static const char *usual_disk(void)
{
	backend_need_modules();
	return nullb_create(&(struct nullb){ .name = "pins", .irqmode = 1 });
}

static const char *slow_disk(void)
{
	backend_need_modules();
	return nullb_create(&(struct nullb){
		.name = "pins", .irqmode = 2,
		.completion_nsec = SLOW_MS * 1000000ULL,
	});
}

static void open_pinned(struct rig *g, const char *disk, bool private_memory)
{
	rig_open(g, disk, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY,
		.queues = 2,
		.flags = VHOST_BLK_BACKEND_PINNED,
		.private_memory = private_memory,
	});
}

static void punch(struct rig *g, void *p, size_t len)
{
	EXPECT_EQ(fallocate(g->mem.fd, FALLOC_FL_PUNCH_HOLE |
			    FALLOC_FL_KEEP_SIZE, (u8 *)p - g->mem.base, len),
		  0);
}

/* A write takes its data from memory as it is now, and a read leaves it there. */
static void both_ways(struct rig *g, const char *disk, u8 *p, u64 seed)
{
	u8 *seen = malloc(LEN);
	u64 sector = 4096 + seed * (LEN / 512);

	rig_pattern(p, LEN, seed);
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_OUT, sector, p, LEN), 0);
	backend_read(disk, sector * 512, seen, LEN);
	EXPECT(rig_pattern_ok(seen, LEN, seed));

	rig_pattern(seen, LEN, seed + 1000);
	backend_write(disk, sector * 512, seen, LEN);
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_IN, sector, p, LEN), 0);
	EXPECT(rig_pattern_ok(p, LEN, seed + 1000));
	free(seen);
}

/* Once, and again after the table had the time to pin the new pages. */
static void check_moves(struct rig *g, const char *disk, u8 *p)
{
	static u64 seed;

	both_ways(g, disk, p, ++seed);
	sleep_ms(300);
	both_ways(g, disk, p, ++seed);
}

static void pages_punched_out_are_seen(void)
{
	const char *disk = usual_disk();
	struct rig g;
	int i;

	open_pinned(&g, disk, false);
	check_moves(&g, disk, g.data);
	for (i = 0; i < 3; i++) {
		punch(&g, g.data, LEN);
		check_moves(&g, disk, g.data);
	}
	/* and one of many pages */
	punch(&g, g.data + 5 * PAGE, PAGE);
	check_moves(&g, disk, g.data);
	rig_close(&g);
}

static void pages_dropped_by_madvise_are_seen(void)
{
	const char *disk = usual_disk();
	struct rig g;

	open_pinned(&g, disk, true);
	check_moves(&g, disk, g.data);
	EXPECT_EQ(madvise(g.data, LEN, MADV_DONTNEED), 0);
	check_moves(&g, disk, g.data);
	EXPECT_EQ(madvise(g.data, LEN, MADV_FREE), 0);
	check_moves(&g, disk, g.data);
	rig_close(&g);

	open_pinned(&g, disk, false);
	check_moves(&g, disk, g.data);
	EXPECT_EQ(madvise(g.data, LEN, MADV_REMOVE), 0);
	check_moves(&g, disk, g.data);
	EXPECT_EQ(madvise(g.data, LEN, MADV_DONTNEED), 0);
	check_moves(&g, disk, g.data);
	rig_close(&g);
}

static void another_mapping_is_seen(void)
{
	const char *disk = usual_disk();
	struct rig g;
	u8 *other;

	open_pinned(&g, disk, false);
	check_moves(&g, disk, g.data);
	EXPECT(mmap(g.data, LEN, PROT_READ | PROT_WRITE, MAP_FIXED |
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == g.data);
	check_moves(&g, disk, g.data);

	other = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(other != MAP_FAILED);
	memset(other, 7, LEN);
	EXPECT(mremap(other, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, g.data) ==
	       g.data);
	check_moves(&g, disk, g.data);

	EXPECT_EQ(munmap(g.data, LEN), 0);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, 0, g.data, LEN),
		  VIRTIO_BLK_S_IOERR);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_IN, 0, g.data, LEN),
		  VIRTIO_BLK_S_IOERR);
	EXPECT(mmap(g.data, LEN, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED,
		    g.mem.fd, g.data - g.mem.base) == g.data);
	check_moves(&g, disk, g.data);
	rig_close(&g);
}

static void forks_and_protection_change_nothing(void)
{
	const char *disk = usual_disk();
	int shared, i;
	struct rig g;
	pid_t child;

	for (shared = 0; shared < 2; shared++) {
		open_pinned(&g, disk, !shared);
		for (i = 0; i < 3; i++) {
			rig_pattern(g.data, LEN, i);
			child = fork();
			EXPECT(child >= 0);
			if (!child) {
				if (!shared)
					memset(g.data, 0xee, LEN);
				pause();
			}
			check_moves(&g, disk, g.data);
			kill(child, SIGKILL);
			waitpid(child, NULL, 0);
			check_moves(&g, disk, g.data);
		}
		EXPECT_EQ(mprotect(g.data, LEN, PROT_READ), 0);
		EXPECT_EQ(mprotect(g.data, LEN, PROT_READ | PROT_WRITE), 0);
		check_moves(&g, disk, g.data);
		rig_close(&g);
	}
}

/* Pages that are pinned now, by anybody. */
static long pinned_now(void)
{
	FILE *f = fopen("/proc/vmstat", "r");
	unsigned long value;
	char name[128];
	long pinned = 0;
	int found = 0;

	EXPECT(f);
	while (fscanf(f, "%127s %lu", name, &value) == 2) {
		if (!strcmp(name, "nr_foll_pin_acquired")) {
			pinned += value;
			found++;
		} else if (!strcmp(name, "nr_foll_pin_released")) {
			pinned -= value;
			found++;
		}
	}
	fclose(f);
	EXPECT_EQ(found, 2);
	return pinned;
}

/* The counters are folded by and by. */
static bool pins_become(long low, long high)
{
	int i;

	for (i = 0; i < 300; i++) {
		long now = pinned_now();

		if (now >= low && now <= high)
			return true;
		sleep_ms(100);
	}
	ktap_msg("%ld pages are pinned, not %ld to %ld", pinned_now(), low,
		 high);
	return false;
}

#define GIVEN	(RIG_DATA / PAGE)
/* Others may pin a page, and a counter of a CPU may be behind. */
#define ABOUT	(GIVEN / 8)

static void what_was_given_away_is_not_held(void)
{
	const char *disk = usual_disk();
	struct rig g;
	long all;

	open_pinned(&g, disk, false);
	sleep_ms(3000);
	all = pinned_now();
	punch(&g, g.data, RIG_DATA);
	EXPECT(pins_become(all - GIVEN - ABOUT, all - GIVEN + ABOUT));
	/* nor does I/O elsewhere bring it back */
	check_moves(&g, disk, g.mem.base + g.mem.size - LEN);
	EXPECT(pins_become(all - GIVEN - ABOUT, all - GIVEN + ABOUT));
	rig_close(&g);
}

static void what_is_used_again_is_pinned_again(void)
{
	const char *disk = usual_disk();
	struct rig g;
	size_t at;
	long all;

	open_pinned(&g, disk, false);
	sleep_ms(3000);
	all = pinned_now();
	punch(&g, g.data, RIG_DATA);
	EXPECT(pins_become(all - GIVEN - ABOUT, all - GIVEN + ABOUT));
	memset(g.data, 1, RIG_DATA);
	for (at = 0; at < RIG_DATA; at += 1UL << 20)
		check_moves(&g, disk, g.data + at);
	EXPECT(pins_become(all - ABOUT, all + ABOUT));
	rig_close(&g);
}

/* The device has its page until it is done with it, and nothing of the new one. */
static void a_request_keeps_its_page_until_it_is_done(void)
{
	const char *disk = slow_disk();
	u8 *seen = malloc(RIG_DATA);
	struct rig_req *req;
	struct rig g;
	long all;

	memset(seen, 0xd1, RIG_DATA);
	backend_write(disk, 0, seen, RIG_DATA);
	open_pinned(&g, disk, false);
	sleep_ms(3000);
	all = pinned_now();
	req = rig_queue(&g, 0, VIRTIO_BLK_T_IN, 0, g.data, LEN);
	rig_kick(&g, 0);
	sleep_ms(50);
	punch(&g, g.data, RIG_DATA);
	rig_pattern(g.data, RIG_DATA, 77);
	/* longer than the worker takes to look at it */
	sleep_ms(1000);
	EXPECT(pinned_now() > all - GIVEN / 2);
	EXPECT_EQ(rig_reap(&g, 0), 0);
	rig_wait(&g, 0);
	EXPECT_EQ(*req->status, VIRTIO_BLK_S_OK);
	EXPECT(rig_pattern_ok(g.data, RIG_DATA, 77));
	EXPECT(pins_become(all - GIVEN - ABOUT, all - GIVEN + ABOUT));
	free(seen);
	rig_close(&g);
}

/* The new table has the same pages, so they are pinned twice for as long. */
static void a_replaced_table_goes_with_its_last_request(void)
{
	const char *disk = slow_disk();
	struct rig_req *req;
	struct rig g;
	long all, half;

	open_pinned(&g, disk, false);
	half = g.mem.size / PAGE / 2;
	sleep_ms(3000);
	all = pinned_now();
	rig_pattern(g.data, LEN, 78);
	req = rig_queue(&g, 0, VIRTIO_BLK_T_OUT, 0, g.data, LEN);
	rig_kick(&g, 0);
	sleep_ms(50);
	EXPECT_EQ(vblk_set_mem(g.dev.fd, &g.mem), 0);
	/* longer than the worker takes to look at it */
	sleep_ms(1000);
	EXPECT(pinned_now() > all + half);
	EXPECT_EQ(rig_reap(&g, 0), 0);
	rig_wait(&g, 0);
	EXPECT_EQ(*req->status, VIRTIO_BLK_S_OK);
	EXPECT(pins_become(all - ABOUT, all + ABOUT));
	check_moves(&g, disk, g.data);
	rig_close(&g);
	EXPECT(pins_become(all - 3 * half, all - half));
}

struct noise {
	struct rig *g;
	pthread_t thread;
	bool stop;
	unsigned long rounds;
};

/*
 * Punches and refills what no request uses, beside what requests use: the same
 * chunk of the table, other entries.
 */
static void *make_noise(void *arg)
{
	struct noise *n = arg;
	u8 *beside = n->g->data + SLOTS * SLOT;

	while (!__atomic_load_n(&n->stop, __ATOMIC_RELAXED)) {
		punch(n->g, beside, SLOT);
		memset(beside, n->rounds, SLOT);
		n->rounds++;
	}
	return NULL;
}

static void end_noise(struct noise *n)
{
	__atomic_store_n(&n->stop, true, __ATOMIC_RELAXED);
	pthread_join(n->thread, NULL);
}

/*
 * Slots in turn: a slot whose request is done is checked, punched, refilled, and
 * gives its data to the next request, while those of the others are under way.
 */
static void punching_under_load_loses_nothing(void)
{
	unsigned int rounds = ktap_full() ? 20000 : 1500, i, slot;
	struct { struct rig_req *req; u64 seed; bool in; } s[SLOTS] = {};
	const char *disk = usual_disk();
	struct noise n = {};
	struct rig g;

	open_pinned(&g, disk, false);
	n.g = &g;
	EXPECT_EQ(pthread_create(&n.thread, NULL, make_noise, &n), 0);
	for (i = 0; i < rounds; i++) {
		u8 *p = g.data + (slot = i % SLOTS) * SLOT;

		while (s[slot].req && !s[slot].req->done) {
			EXPECT_EQ(ring_wait(&g.ring[slot % 2], RIG_TIMEOUT_MS),
				  0);
			rig_reap(&g, slot % 2);
		}
		if (s[slot].req)
			EXPECT_EQ(*s[slot].req->status, VIRTIO_BLK_S_OK);
		if (s[slot].in)
			EXPECT(rig_pattern_ok(p, SLOT, s[slot].seed));
		/* Some stay, so that what was pinned again is used, too. */
		if (i % 7 < 4)
			punch(&g, p + (i % 3) * PAGE, SLOT / 2);
		s[slot].in = s[slot].req && !s[slot].in;
		if (!s[slot].in) {
			s[slot].seed = i;
			rig_pattern(p, SLOT, i);
		}
		s[slot].req = rig_queue(&g, slot % 2, s[slot].in ?
					VIRTIO_BLK_T_IN : VIRTIO_BLK_T_OUT,
					slot * (SLOT / 512), p, SLOT);
		rig_kick(&g, slot % 2);
		if (i % 100 == 99)
			sleep_ms(50);
	}
	rig_wait(&g, 0);
	rig_wait(&g, 1);
	end_noise(&n);
	ktap_msg("%lu rounds of noise", n.rounds);
	rig_close(&g);
}

/* Vrings, their device and the table come and go while pages are punched. */
static void stopping_and_closing_meet_no_notifier(void)
{
	const char *disk = usual_disk();
	struct noise n = {};
	struct rig g;
	int i;

	for (i = 0; i < (ktap_full() ? 200 : 25); i++) {
		u16 base;

		open_pinned(&g, disk, i & 1);
		n.stop = i & 1;
		n.g = &g;
		EXPECT_EQ(pthread_create(&n.thread, NULL, make_noise, &n), 0);
		rig_check_works(&g, 0, 8);
		EXPECT_EQ(vblk_set_mem(g.dev.fd, &g.mem), 0);
		rig_check_works(&g, 1, 800);
		EXPECT_EQ(vdev_stop(&g.dev, &g.ring[0], &base), 0);
		if (i & 2)
			vdev_close(&g.dev);
		end_noise(&n);
		rig_close(&g);
	}
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(pages_punched_out_are_seen),
		TEST(pages_dropped_by_madvise_are_seen),
		TEST(another_mapping_is_seen),
		TEST(forks_and_protection_change_nothing),
		TEST(what_was_given_away_is_not_held),
		TEST(what_is_used_again_is_pinned_again),
		TEST(a_request_keeps_its_page_until_it_is_done),
		TEST(a_replaced_table_goes_with_its_last_request),
		TEST(punching_under_load_loses_nothing),
		TEST(stopping_and_closing_meet_no_notifier),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests),
			 backend_cleanup);
}
