// SPDX-License-Identifier: GPL-2.0
/*
 * Faults: allocations, user copies and the backend fail now and then while
 * requests run.  Each request ends, with an error if it must; afterwards all
 * is well.  Leaks are the lab's to find (kmemleak).  Needs fault injection.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

#define DEBUGFS	"/sys/kernel/debug"
#define POLLER	"test"

/* The fault that is on may hit us as well, when we turn it off above all. */
static void fault_set(const char *fault, const char *attr, const char *value)
{
	unsigned int tries = 1000;
	char path[160];

	snprintf(path, sizeof(path), DEBUGFS "/%s/%s", fault, attr);
	while (write_text(path, value) == -ENOMEM && --tries)
		;
	EXPECT(tries);
}

static void fault_on(const char *fault, unsigned int percent, bool by_task)
{
	char path[160], text[16];

	snprintf(path, sizeof(path), DEBUGFS "/%s/probability", fault);
	if (access(path, F_OK))
		ktap_skip("this kernel has no such fault injection");
	snprintf(text, sizeof(text), "%u", percent);
	fault_set(fault, "verbose", "0");
	fault_set(fault, "interval", "1");
	fault_set(fault, "times", "-1");
	fault_set(fault, "space", "0");
	fault_set(fault, "ignore-gfp-wait", "0");
	fault_set(fault, "cache-filter", "0");
	fault_set(fault, "task-filter", by_task ? "1" : "0");
	fault_set(fault, "probability", text);
}

static void faults_off(void)
{
	static const char *const faults[] = {
		"failslab", "fail_make_request", "fail_usercopy",
		"fail_page_alloc"
	};
	unsigned int i;

	for (i = 0; i < KTAP_COUNT(faults); i++)
		fault_set(faults[i], "probability", "0");
}

static void prepare(void)
{
	backend_need_modules();
	run_command("mountpoint -q " DEBUGFS " || mount -t debugfs none " DEBUGFS);
}

static void fail_task(const char *pid, const char *on)
{
	char path[300];

	snprintf(path, sizeof(path), "/proc/%s/make-it-fail", pid);
	write_text(path, on);
}

/* The poller's thread, known by the name the rig gave it, and only that. */
static void fail_poller(const char *on)
{
	char path[300], comm[64];
	struct dirent *e;
	DIR *dir = opendir("/proc");
	unsigned int found = 0;
	FILE *f;

	while (dir && (e = readdir(dir))) {
		if (!isdigit(e->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(comm, sizeof(comm), f) && strstr(comm, POLLER) &&
		    strstr(comm, "vhost")) {
			fail_task(e->d_name, on);
			found++;
		}
		fclose(f);
	}
	if (dir)
		closedir(dir);
	EXPECT(found);
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

static void requests_end_when_the_poller_gets_no_memory(void)
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
		fail_poller("1");
		fault_on("failslab", 20, true);
		storm(&g, 40);
		faults_off();
		rig_check_works(&g, 0, 0);
		rig_close(&g);
	}
}

static void requests_end_when_files_get_no_memory(void)
{
	struct rig g;

	prepare();
	rig_open(&g, file_create(16), NULL);
	fail_poller("1");
	fault_on("failslab", 10, true);
	storm(&g, 40);
	faults_off();
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void set_up_fails_cleanly_without_memory(void)
{
	unsigned int i, ok = 0, rounds = ktap_full() ? 1000 : 100;
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
		faults_off();
		if (poller >= 0)
			close(poller);
		close(fd);
		ring_free(&r);
		ring_mem_free(&mem);
	}
	ktap_msg("%u of %u came up", ok, rounds);
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
		fault_on("failslab", 20, true);
		r = vblk_set_backend(g.dev.fd, fd, VHOST_BLK_BACKEND_PINNED,
				     0);
		faults_off();
		failed += r != 0;
		EXPECT_EQ(locked_kb(), kb);
		rig_check_works(&g, i % 4, 0);
	}
	fail_task("self", "0");
	ktap_msg("%u of %u failed", failed, rounds);
	EXPECT(failed && failed < rounds);
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
		TEST(requests_end_when_the_poller_gets_no_memory),
		TEST(requests_end_when_files_get_no_memory),
		TEST(set_up_fails_cleanly_without_memory),
		TEST(a_failed_swap_leaves_all_as_it_was),
		TEST(the_backends_errors_reach_the_guest),
		TEST(a_ring_that_cannot_be_read_stops_and_starts),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), cleanup);
}
