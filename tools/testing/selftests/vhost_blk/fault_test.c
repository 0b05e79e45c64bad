// SPDX-License-Identifier: GPL-2.0
/*
 * Faults: allocations, user copies and the backend fail now and then while
 * requests run.  Each request ends, with an error if it must; afterwards all
 * is well.  Leaks are the lab's to find (kmemleak).  Needs fault injection.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject.h"
#include "rig.h"

#define POLLER	"test"

static void prepare(void)
{
	backend_need_modules();
	inject_begin();
}

/* The one with the name the rig gave it, and only that. */
static void fail_poller(const char *on)
{
	EXPECT(fail_threads("vhost", POLLER, on));
}

/* Threads of the device, and those of unbound workqueues, where others' work may be hit as well. */
static void fail_workers(const char *on)
{
	EXPECT(fail_threads("vhost_blk-", "-w", on));
	EXPECT(fail_threads("kworker", "/u", on));
}

/* Rounds of requests; how many failed.  All of them must end. */
static unsigned int storm(struct rig *g, unsigned int rounds)
{
	unsigned int i, j, failed = 0;
	struct rig_req *req[32];

	for (i = 0; i < rounds; i++) {
		for (j = 0; j < 32; j++)
			req[j] = rig_queue(g, 0, (i + j) % 2, j * 24,
					   g->data + j * 16384, 8192);
		rig_kick(g, 0);
		rig_wait(g, 0);
		for (j = 0; j < 32; j++) {
			EXPECT(*req[j]->status <= VIRTIO_BLK_S_IOERR);
			failed += *req[j]->status;
		}
	}
	ktap_msg("%u of %u failed", failed, rounds * 32);
	return failed;
}

/* Each allocation of the poller would fail: it makes none for what a slot has room for. */
static void small_requests_need_no_memory_of_the_poller(void)
{
	static const u32 engines[] = {
		VHOST_BLK_ENGINE_MQ, VHOST_BLK_ENGINE_BIO
	};
	const char *disk;
	struct rig g;
	unsigned int i;

	prepare();
	disk = nullb_create(&(struct nullb){ .name = "fault" });
	for (i = 0; i < KTAP_COUNT(engines); i++) {
		rig_open(&g, disk, &(struct rig_opts){
			.mode = VHOST_POLL_MODE_BUSY, .engine = engines[i],
		});
		/* null_blk wants memory for what was never written. */
		EXPECT_EQ(storm(&g, 2), 0);
		fail_poller("1");
		fault_on("failslab", 100, true);
		EXPECT_EQ(storm(&g, 40), 0);
		EXPECT_EQ(faults_hit("failslab"), 0);
		faults_off();
		rig_check_works(&g, 0, 0);
		rig_close(&g);
	}
}

#define LARGE	65536	/* more pages than a request has room for itself */
#define LARGES	16
#define APART	(2 * LARGE)

static u8 *large_at(struct rig *g, unsigned int j, unsigned int odd)
{
	return g->data + j * APART + odd;
}

static bool is_large(const void *at, u64 seed)
{
	static u8 want[LARGE];

	rig_pattern(want, LARGE, seed);
	return !memcmp(at, want, LARGE);
}

/* Data at @odd bytes into a page; how many failed.  The others are right. */
static unsigned int large_round(struct rig *g, const char *disk, u32 type,
				unsigned int odd, u64 seed)
{
	static u8 buf[LARGE];
	struct rig_req *req[LARGES];
	unsigned int j, failed = 0;

	for (j = 0; j < LARGES; j++) {
		rig_pattern(buf, LARGE, seed + j);
		if (type == VIRTIO_BLK_T_IN)
			memset(buf, 0, LARGE);
		memcpy(large_at(g, j, odd), buf, LARGE);
		req[j] = rig_queue(g, 0, type, j * APART / 512,
				   large_at(g, j, odd), LARGE);
	}
	rig_kick(g, 0);
	rig_wait(g, 0);
	for (j = 0; j < LARGES; j++) {
		EXPECT(*req[j]->status <= VIRTIO_BLK_S_IOERR);
		failed += *req[j]->status;
		if (*req[j]->status != VIRTIO_BLK_S_OK)
			continue;
		backend_read(disk, j * APART, buf, LARGE);
		EXPECT(is_large(buf, seed + j));
		EXPECT(is_large(large_at(g, j, odd), seed + j));
	}
	return failed;
}

/* Slots keep what they were given, so each round has new ones. */
static void new_slots(struct rig *g)
{
	EXPECT_EQ(vblk_stop(g->dev.fd, 0), 0);
	ring_reset(&g->ring[0], 0);
	EXPECT_EQ(vdev_start(&g->dev, &g->ring[0]), 0);
}

/* The chain waits for the vring's worker, which gets some. */
static void large_requests_need_no_memory_of_the_poller(void)
{
	static const u32 engines[] = {
		VHOST_BLK_ENGINE_MQ, VHOST_BLK_ENGINE_BIO
	};
	unsigned int i, j, hits, rounds = 10;
	const char *disk;
	struct rig g;

	prepare();
	disk = nullb_create(&(struct nullb){ .name = "fault" });
	for (i = 0; i < KTAP_COUNT(engines); i++) {
		rig_open(&g, disk, &(struct rig_opts){
			.mode = VHOST_POLL_MODE_BUSY, .engine = engines[i],
		});
		/* null_blk, too, wants memory for what was never written */
		EXPECT_EQ(large_round(&g, disk, VIRTIO_BLK_T_OUT, 0, 1), 0);
		fail_poller("1");
		fault_on("failslab", 100, true);
		for (j = 0; j < rounds; j++) {
			new_slots(&g);
			EXPECT_EQ(large_round(&g, disk, VIRTIO_BLK_T_OUT, 0,
					      j), 0);
			EXPECT_EQ(large_round(&g, disk, VIRTIO_BLK_T_IN, 0,
					      j), 0);
		}
		hits = faults_hit("failslab");
		faults_off();
		ktap_msg("%u allocations failed", hits);
		/* The worker takes what is behind the first one, too. */
		EXPECT(hits >= rounds);
		rig_close(&g);
	}
}

/* The same while some allocations of workers fail. */
static unsigned int large_round_with_faults(struct rig *g, const char *disk,
					    u32 type, unsigned int odd, u64 seed)
{
	unsigned int failed;

	fail_workers("1");
	fault_on("failslab", 30, true);
	failed = large_round(g, disk, type, odd, seed);
	faults_off();
	return failed;
}

/* They go through buffers of our own, which workers allocate. */
static void odd_buffers_end_when_workers_get_no_memory(void)
{
	unsigned int i, failed = 0, rounds = 20;
	const char *disk;
	struct rig g;

	prepare();
	disk = nullb_create(&(struct nullb){ .name = "fault" });
	rig_open(&g, disk, NULL);
	EXPECT_EQ(large_round(&g, disk, VIRTIO_BLK_T_OUT, 0, 1), 0);
	for (i = 0; i < rounds; i++) {
		unsigned int odd = 1 + i * 51 % 511;

		failed += large_round_with_faults(&g, disk, VIRTIO_BLK_T_OUT,
						  odd, i);
		EXPECT_EQ(large_round(&g, disk, VIRTIO_BLK_T_OUT, 0, i), 0);
		failed += large_round_with_faults(&g, disk, VIRTIO_BLK_T_IN,
						  odd, i);
	}
	fail_workers("0");
	ktap_msg("%u of %u failed", failed, 2 * rounds * LARGES);
	EXPECT(failed && failed < 2 * rounds * LARGES);
	EXPECT_EQ(large_round(&g, disk, VIRTIO_BLK_T_IN, 1, rounds - 1), 0);
	rig_close(&g);
}

/* The file system wants memory for each new page of a file. */
static void files_end_when_workers_get_no_memory(void)
{
	unsigned int i, failed = 0, rounds = 40;
	const char *file;
	struct rig g;

	prepare();
	file = file_create(16);
	rig_open(&g, file, NULL);
	for (i = 0; i < rounds; i++) {
		EXPECT(!truncate(file, 0));
		EXPECT(!truncate(file, 16 << 20));
		failed += large_round_with_faults(&g, file, VIRTIO_BLK_T_OUT,
						  0, i);
	}
	fail_workers("0");
	ktap_msg("%u of %u failed", failed, rounds * LARGES);
	EXPECT(failed && failed < rounds * LARGES);
	EXPECT_EQ(large_round(&g, file, VIRTIO_BLK_T_OUT, 0, 1), 0);
	rig_close(&g);
}

/* As large_requests_need_no_memory_of_the_poller(), of which some do get it. */
static void files_need_no_memory_of_the_poller(void)
{
	unsigned int i, hits;
	const char *file;
	struct rig g;

	prepare();
	file = file_create(16);
	rig_open(&g, file, NULL);
	EXPECT_EQ(large_round(&g, file, VIRTIO_BLK_T_OUT, 0, 1), 0);
	fail_poller("1");
	fault_on("failslab", 30, true);
	for (i = 0; i < 20; i++) {
		new_slots(&g);
		EXPECT_EQ(large_round(&g, file, VIRTIO_BLK_T_OUT, 0, i), 0);
		EXPECT_EQ(large_round(&g, file, VIRTIO_BLK_T_IN, 0, i), 0);
	}
	hits = faults_hit("failslab");
	faults_off();
	ktap_msg("%u allocations failed", hits);
	EXPECT(hits);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void set_up_fails_cleanly_without_memory(void)
{
	unsigned int i, ok = 0, hits = 0, rounds = ktap_full() ? 1000 : 100;
	const char *disk;
	int fd;

	prepare();
	disk = nullb_create(&(struct nullb){ .name = "fault" });
	fail_task("self", "1");
	for (i = 0; i < rounds; i++) {
		struct ring_mem mem;
		struct vdev d;
		struct ring r;
		int poller;

		EXPECT(!ring_mem_init(&mem, 1 << 20));
		EXPECT(!ring_init(&r, &mem, 0, 64, 0));
		fd = open(disk, O_RDWR | O_CLOEXEC);
		fault_on("failslab", 4, true);
		poller = poller_open(last_cpu(), VHOST_POLL_MODE_EVENT, "f");
		if (!vdev_open_kernel(&d, &mem, fd, i % 2 ?
				      VHOST_BLK_BACKEND_PINNED : 0, 0,
				      VDEV_FEATURES)) {
			d.poller[0] = poller;
			ok += !vdev_start(&d, &r);
			vdev_close(&d);
		}
		/* First off: the faults are ours, and would keep us from asking. */
		faults_off();
		hits += faults_hit("failslab");
		if (poller >= 0)
			close(poller);
		close(fd);
		ring_free(&r);
		ring_mem_free(&mem);
	}
	fail_task("self", "0");
	ktap_msg("%u of %u came up, %u allocations failed", ok, rounds, hits);
	EXPECT(hits && ok && ok < rounds);
}

static unsigned long locked_kb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long kb = 0;
	char line[256];

	EXPECT(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmLck: %lu", &kb) == 1)
			break;
	fclose(f);
	return kb;
}

static void stop_all(struct rig *g)
{
	unsigned int i;

	for (i = 0; i < g->queues; i++)
		EXPECT_EQ(vblk_stop(g->dev.fd, i), 0);
}

static void start_all(struct rig *g)
{
	unsigned int i;

	for (i = 0; i < g->queues; i++)
		EXPECT_EQ(vblk_start(g->dev.fd, i), 0);
}

/* A backend that could not be set changed nothing, pinned memory above all. */
static void a_failed_swap_leaves_all_as_it_was(void)
{
	unsigned int i, failed = 0, rounds = ktap_full() ? 1000 : 100;
	const char *disk;
	unsigned long kb;
	struct rig g;
	int fd, r;

	prepare();
	disk = nullb_create(&(struct nullb){ .name = "fault" });
	rig_open(&g, disk, &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .queues = 4,
		.flags = VHOST_BLK_BACKEND_PINNED,
	});
	kb = locked_kb();
	EXPECT(kb);
	fd = open(disk, O_RDWR | O_CLOEXEC);
	EXPECT(fd >= 0);
	fail_task("self", "1");
	for (i = 0; i < rounds; i++) {
		stop_all(&g);
		fault_on("failslab", 20, true);
		r = vblk_set_backend(g.dev.fd, fd, VHOST_BLK_BACKEND_PINNED,
				     0);
		faults_off();
		failed += r != 0;
		EXPECT_EQ(locked_kb(), kb);
		start_all(&g);
		rig_check_works(&g, i % 4, 0);
	}
	fail_task("self", "0");
	ktap_msg("%u of %u failed", failed, rounds);
	EXPECT(failed && failed < rounds);
	rig_close(&g);
}

static void expect_locked(unsigned long kb)
{
	unsigned int tries;

	/* A worker lets go of the pins of the table before. */
	for (tries = 0; tries < 1000 && locked_kb() != kb; tries++)
		sleep_ms(5);
	EXPECT_EQ(locked_kb(), kb);
}

/* Vrings go on with the old table, or with the new one and no pins. */
static void a_table_that_fails_under_io_does_no_harm(void)
{
	unsigned int i, failed = 0, rounds = ktap_full() ? 1000 : 100;
	unsigned long kb;
	struct rig g;

	prepare();
	rig_open(&g, nullb_create(&(struct nullb){ .name = "fault" }), &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .queues = 4,
		.flags = VHOST_BLK_BACKEND_PINNED,
	});
	kb = locked_kb();
	fail_task("self", "1");
	for (i = 0; i < rounds; i++) {
		fault_on("failslab", 20, true);
		failed += vblk_set_mem(g.dev.fd, &g.mem) != 0;
		faults_off();
		rig_check_works(&g, i % 4, 0);
	}
	fail_task("self", "0");
	ktap_msg("%u of %u failed", failed, rounds);
	EXPECT(failed && failed < rounds);
	EXPECT_EQ(vblk_set_mem(g.dev.fd, &g.mem), 0);
	expect_locked(kb);
	rig_close(&g);
}

static void the_backends_errors_reach_the_guest(void)
{
	static const u32 engines[] = {
		VHOST_BLK_ENGINE_MQ, VHOST_BLK_ENGINE_BIO
	};
	struct vhost_blk_stats st;
	unsigned int i, failed;
	char path[128];
	const char *disk;
	struct rig g;

	prepare();
	disk = nullb_create(&(struct nullb){ .name = "fault" });
	snprintf(path, sizeof(path), "/sys/block/%s/make-it-fail", disk + 5);
	for (i = 0; i < KTAP_COUNT(engines); i++) {
		rig_open(&g, disk, &(struct rig_opts){
			.mode = VHOST_POLL_MODE_BUSY, .engine = engines[i],
		});
		fault_on("fail_make_request", 30, false);
		EXPECT_EQ(write_text(path, "1"), 0);
		failed = storm(&g, 20);
		faults_off();
		EXPECT(failed);
		rig_stats(&g, 0, &st);
		EXPECT_EQ(st.errors, failed);
		rig_check_works(&g, 0, 0);
		rig_close(&g);
	}
}

static void a_ring_that_cannot_be_read_stops_and_starts(void)
{
	const char *disk;
	struct rig g;
	unsigned int i, j;
	u16 base;

	prepare();
	disk = nullb_create(&(struct nullb){ .name = "fault" });
	rig_open(&g, disk, NULL);
	fail_poller("1");
	for (i = 0; i < 40; i++) {
		fault_on("fail_usercopy", 10, true);
		for (j = 0; j < 16; j++)
			rig_queue(&g, 0, VIRTIO_BLK_T_IN, j * 24,
				  g.data + j * 16384, 8192);
		rig_kick(&g, 0);
		sleep_ms(2);
		EXPECT_EQ(vblk_stop(g.dev.fd, 0), 0);
		faults_off();
		EXPECT_EQ(vblk_get_base(g.dev.fd, 0, &base), 0);
		ring_reset(&g.ring[0], 0);
		EXPECT_EQ(vdev_start(&g.dev, &g.ring[0]), 0);
		rig_check_works(&g, 0, 0);
	}
	rig_close(&g);
}

static void cleanup(void)
{
	faults_off();
	backend_cleanup();
}

#define TEST(f) { .name = #f, .run = f, .limit = 300 }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(small_requests_need_no_memory_of_the_poller),
		TEST(files_need_no_memory_of_the_poller),
		TEST(large_requests_need_no_memory_of_the_poller),
		TEST(odd_buffers_end_when_workers_get_no_memory),
		TEST(files_end_when_workers_get_no_memory),
		TEST(set_up_fails_cleanly_without_memory),
		TEST(a_failed_swap_leaves_all_as_it_was),
		TEST(a_table_that_fails_under_io_does_no_harm),
		TEST(the_backends_errors_reach_the_guest),
		TEST(a_ring_that_cannot_be_read_stops_and_starts),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), cleanup);
}
