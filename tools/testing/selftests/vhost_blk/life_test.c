// SPDX-License-Identifier: GPL-2.0
/*
 * Life and death: vrings stop and go on exactly, backends go under I/O, owners die at
 * any moment, modules are unloaded: requests end once, never hang, and nothing is left
 * behind.  Loops are short unless FULL=1.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/vhost.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"
#include "module.h"
#include "rig.h"
#include "writes.h"

#define SLOTS		64
#define OPENS_IN_A_ROW	64

static unsigned int loops(unsigned int few)
{
	return ktap_env("LAB_LOOPS", ktap_full() ? 200 : few);
}

static void stop_and_resume_lose_and_repeat_nothing(void)
{
	const char *disk = disk_named("stop");
	unsigned int i, rounds = loops(20);
	struct rig_req *req[SLOTS];
	struct rig g;
	u16 base;

	rig_open(&g, disk, NULL);
	for (i = 0; i < rounds; i++) {
		offer_writes(&g, req, SLOTS);
		base = stop_exactly(&g);
		usleep(100);
		EXPECT_EQ(base, g.ring[0].vr.used->idx);
		resume_at(&g, base);
		rig_wait(&g, 0);
		expect_writes(disk, req, SLOTS);
	}
	rig_close(&g);
}

static void a_stopped_vring_is_left_alone(void)
{
	const char *disk = disk_named("stop");
	struct rig_req *req[SLOTS];
	struct rig g;
	u16 base;

	rig_open(&g, disk, NULL);
	base = stop_exactly(&g);
	offer_writes(&g, req, 8);
	ring_kick_always(&g.ring[0]);
	sleep_ms(20);
	EXPECT(!ring_has_used(&g.ring[0]));
	resume_at(&g, base);
	rig_wait(&g, 0);
	expect_writes(disk, req, 8);
	rig_close(&g);
}

static void another_device_goes_on_where_one_stopped(void)
{
	const char *disk = disk_named("move");
	struct rig_req *req[SLOTS];
	struct vdev next;
	struct rig g;
	int fd;
	u16 base;

	rig_open(&g, disk, NULL);
	offer_writes(&g, req, SLOTS);
	base = stop_exactly(&g);
	vdev_close(&g.dev);

	fd = open(disk, O_RDWR | O_CLOEXEC);
	EXPECT_EQ(vdev_open_kernel(&next, &g.mem, fd, 0, 0, VDEV_FEATURES), 0);
	close(fd);
	next.poller[0] = g.poller[0];
	EXPECT_EQ(vblk_set_vring(next.fd, 0, g.poller[0], VHOST_BLK_HCTX_AUTO,
				 0), 0);
	g.dev = next;
	resume_at(&g, base);
	rig_wait(&g, 0);
	expect_writes(disk, req, SLOTS);
	rig_close(&g);
}

static void a_deleted_null_blk_gives_errors_and_no_hang(void)
{
	unsigned int i, j, rounds = loops(5);
	struct rig_req *req[SLOTS];
	struct vhost_blk_info info;
	const char *disk;
	struct rig g;

	for (i = 0; i < rounds; i++) {
		disk = disk_named("gone");
		rig_open(&g, disk, &(struct rig_opts){
			.mode = i % 3, .engine = i % 2 ? VHOST_BLK_ENGINE_BIO :
				VHOST_BLK_ENGINE_AUTO,
		});
		offer_writes(&g, req, SLOTS);
		usleep(i * 37 % 400);
		nullb_delete("gone");
		rig_wait(&g, 0);
		for (j = 0; j < SLOTS; j++)
			EXPECT(*req[j]->status <= VIRTIO_BLK_S_IOERR);
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, 0, g.data, 4096),
			  VIRTIO_BLK_S_IOERR);
		/* what is known of its contexts went with the driver's part */
		rig_info(&g, &info);
		EXPECT_EQ(info.nr_hctx, 0);
		EXPECT(vblk_set_vring(g.dev.fd, 0, g.poller[0], 0, 0) < 0);
		rig_close(&g);
	}
}

/* What requests of a backend that something is done to came to. */
struct tally {
	unsigned int ok;
	unsigned int failed;
};

static void tally(struct tally *t, struct rig_req **req, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		EXPECT(req[i]->done);
		EXPECT(*req[i]->status <= VIRTIO_BLK_S_IOERR);
		if (*req[i]->status == VIRTIO_BLK_S_OK)
			t->ok++;
		else
			t->failed++;
	}
}

/* Requests all the time until @child has done it to the backend. */
static struct tally io_until_end_of(struct rig *g, pid_t child)
{
	struct rig_req *req[SLOTS];
	struct tally t = { 0 };
	int status;

	EXPECT(child > 0);
	while (!waitpid(child, &status, WNOHANG)) {
		offer_writes(g, req, SLOTS);
		rig_wait(g, 0);
		tally(&t, req, SLOTS);
	}
	EXPECT_EQ(status, 0);
	ktap_msg("%u requests were served meanwhile, %u failed", t.ok,
		 t.failed);
	return t;
}

static void expect_all(struct rig *g, u32 type, u8 status)
{
	unsigned int i;

	for (i = 0; i < 16; i++)
		EXPECT_EQ(rig_io(g, 0, type, i * 64, g->data, 4096), status);
}

static void fill(struct rig *g, unsigned int mb)
{
	unsigned int i;

	rig_pattern(g->data, 1 << 20, 1);
	for (i = 0; i < mb; i++)
		EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_OUT, i << 11, g->data,
				 1 << 20), VIRTIO_BLK_S_OK);
}

/* Reads of @file's disk while the file becomes a shorter one: right or failed. */
static void cut_under_reads(struct rig *g, const char *file, unsigned int usec)
{
	static u8 whole[1 << 20];
	struct rig_req *req[SLOTS];
	struct tally t = { 0 };
	unsigned int i;

	memset(g->data, 0, RIG_DATA);
	for (i = 0; i < SLOTS; i++)
		req[i] = rig_queue(g, 0, VIRTIO_BLK_T_IN, i * 256,
				   g->data + i * 65536, 65536);
	rig_kick(g, 0);
	usleep(usec);
	EXPECT(!truncate(file, 0));
	rig_wait(g, 0);
	tally(&t, req, SLOTS);
	rig_pattern(whole, sizeof(whole), 1);
	for (i = 0; i < SLOTS; i++)
		EXPECT(*req[i]->status != VIRTIO_BLK_S_OK ||
		       !memcmp(g->data + i * 65536,
			       whole + i * 131072 % sizeof(whole), 65536));
	ktap_msg("%u were faster than the cut, %u were not", t.ok, t.failed);
	expect_all(g, VIRTIO_BLK_T_IN, VIRTIO_BLK_S_IOERR);
}

/* Detached in name only, as long as somebody has it open. */
static void a_loop_to_be_detached_serves_to_the_end(void)
{
	struct rig_req *req[SLOTS];
	const char *disk;
	struct rig g;

	backend_need_modules();
	disk = loop_create(16);
	rig_open(&g, disk, NULL);
	offer_writes(&g, req, SLOTS);
	EXPECT_EQ(loop_detach(disk), 0);
	rig_wait(&g, 0);
	expect_writes(disk, req, SLOTS);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void a_loop_whose_file_is_cut_gives_errors(void)
{
	unsigned int i, rounds = 10;
	const char *disk;
	char file[128];
	struct rig g;

	backend_need_modules();
	disk = loop_create(16);
	loop_file(disk, file, sizeof(file));
	rig_open(&g, disk, NULL);
	for (i = 0; i < rounds; i++) {
		fill(&g, 8);
		cut_under_reads(&g, file, i * 200);
		EXPECT(!truncate(file, 16 << 20));
		expect_all(&g, VIRTIO_BLK_T_IN, VIRTIO_BLK_S_OK);
	}
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void a_file_that_is_cut_gives_errors(void)
{
	unsigned int i, rounds = 10;
	const char *file;
	struct rig g;

	backend_need_modules();
	file = file_create(16);
	rig_open(&g, file, NULL);
	for (i = 0; i < rounds; i++) {
		fill(&g, 8);
		cut_under_reads(&g, file, i * 200);
		/* The disk ends where the file does. */
		expect_all(&g, VIRTIO_BLK_T_OUT, VIRTIO_BLK_S_IOERR);
		EXPECT(!truncate(file, 16 << 20));
	}
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static pid_t replace_table(const char *name, const char *target,
			   const char *below)
{
	pid_t child = fork();

	if (child)
		return child;
	dm_replace(name, target, below, 65536, "");
	_exit(0);
}

/* As when a volume's last path is gone, and when it comes back. */
static void a_volume_that_turns_to_errors_gives_them(void)
{
	const char *below = disk_named("below"), *disk;
	struct vhost_blk_stats st;
	struct tally t;
	struct rig g;

	disk = dm_linear_create("turns", below, 65536);
	rig_open(&g, disk, NULL);
	t = io_until_end_of(&g, replace_table("turns", "error", below));
	EXPECT(t.ok);
	expect_all(&g, VIRTIO_BLK_T_OUT, VIRTIO_BLK_S_IOERR);
	expect_all(&g, VIRTIO_BLK_T_IN, VIRTIO_BLK_S_IOERR);
	rig_stats(&g, 0, &st);
	EXPECT_EQ(st.errors, t.failed + 32);

	io_until_end_of(&g, replace_table("turns", "linear", below));
	expect_all(&g, VIRTIO_BLK_T_IN, VIRTIO_BLK_S_OK);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

/* A file of the disk's controller in sysfs, or of what is below that. */
static void nvme_attr(char *path, size_t len, const char *disk,
		      const char *attr)
{
	snprintf(path, len, "/sys/block/%s/device/%s", disk + 5, attr);
	if (access(path, W_OK))
		ktap_skip("the NVMe disk is not of a controller of its own");
}

static pid_t write_in_child(const char *path, unsigned int times)
{
	pid_t child = fork();

	if (child)
		return child;
	for (; times; times--)
		if (write_text(path, "1"))
			_exit(1);
	_exit(0);
}

static void an_nvme_that_is_reset_goes_on(void)
{
	const char *disk = nvme_disk();
	char reset[128];
	struct tally t;
	struct rig g;

	nvme_attr(reset, sizeof(reset), disk, "reset_controller");
	rig_open(&g, disk, NULL);
	t = io_until_end_of(&g, write_in_child(reset, 5));
	EXPECT(t.ok);
	expect_all(&g, VIRTIO_BLK_T_IN, VIRTIO_BLK_S_OK);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void an_nvme_that_is_removed_gives_errors(void)
{
	const char *disk = nvme_disk();
	struct vhost_blk_info info;
	char pci[128];
	unsigned int ms;
	struct rig g;

	nvme_attr(pci, sizeof(pci), disk, "device/remove");
	rig_open(&g, disk, NULL);
	rig_check_works(&g, 0, 0);
	io_until_end_of(&g, write_in_child(pci, 1));
	expect_all(&g, VIRTIO_BLK_T_OUT, VIRTIO_BLK_S_IOERR);
	expect_all(&g, VIRTIO_BLK_T_IN, VIRTIO_BLK_S_IOERR);
	rig_info(&g, &info);
	EXPECT_EQ(info.nr_hctx, 0);
	/* Only then its name is free for the one that comes. */
	rig_close(&g);

	EXPECT_EQ(write_text("/sys/bus/pci/rescan", "1"), 0);
	for (ms = 0; access(disk, F_OK) && ms < RIG_TIMEOUT_MS; ms++)
		sleep_ms(1);
	rig_open(&g, disk, NULL);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

/* What an owner does until it is killed: starts late enough to be hit early. */
static void play_for_ever(const char *disk, unsigned int mode)
{
	struct rig_req *req[SLOTS];
	struct rig g;
	u16 base;

	for (;;) {
		rig_open(&g, disk, &(struct rig_opts){
			.mode = mode, .queues = 2,
			.flags = mode == 1 ? VHOST_BLK_BACKEND_PINNED : 0,
		});
		offer_writes(&g, req, SLOTS);
		vdev_stop(&g.dev, &g.ring[0], &base);
		resume_at(&g, base);
		rig_wait(&g, 0);
		rig_close(&g);
	}
}

static void an_owner_killed_at_any_moment_frees_everything(void)
{
	const char *disk = disk_named("kill");
	unsigned int i, rounds = loops(30);
	long before = module_references("vhost_blk");
	long poll_before = module_references("vhost_poll");
	struct rig g;
	int status;
	pid_t pid;

	for (i = 0; i < rounds; i++) {
		pid = fork();
		if (!pid)
			play_for_ever(disk, i % 3);
		usleep(rand() % 30000);
		kill(pid, SIGKILL);
		EXPECT(waitpid(pid, &status, 0) == pid);
		EXPECT(WIFSIGNALED(status));
	}
	EXPECT_EQ(module_references("vhost_blk"), before);
	/* a thread may still be on its way out */
	for (i = 0; i < 1000 && module_references("vhost_poll") != poll_before; i++)
		sleep_ms(5);
	EXPECT_EQ(module_references("vhost_poll"), poll_before);
	/* nobody holds the disk, and it works for the next one */
	rig_open(&g, disk, NULL);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void the_module_stays_while_it_is_used(void)
{
	const char *disk = disk_named("mod");
	struct rig g;

	if (module_references("vhost_blk") < 0)
		ktap_skip("vhost_blk is built in");
	rig_open(&g, disk, NULL);
	EXPECT(run_command("rmmod vhost_blk 2>/dev/null"));
	EXPECT(run_command("rmmod vhost_poll 2>/dev/null"));
	rig_check_works(&g, 0, 0);
	rig_close(&g);
	if (module_references("vhost_blk"))
		ktap_skip("somebody else uses vhost_blk");
	EXPECT(!run_command("rmmod vhost_blk"));
	EXPECT(access("/dev/vhost-blk", F_OK));
	backend_need_modules();
}

/* What the two sides of a race count, in memory of both. */
struct race {
	unsigned int opened;
	unsigned int missing;
};

/*
 * Most of the time it has the device open, so that unloading has to hit.  Now and
 * then it rests, as on two CPUs it can be in the way for ever.
 */
static void hammer_open(struct race *race)
{
	struct vhost_blk_info info;
	int fd;

	for (;;) {
		fd = open("/dev/vhost-blk", O_RDWR | O_CLOEXEC);
		if (fd < 0) {
			__atomic_add_fetch(&race->missing, 1, __ATOMIC_RELAXED);
			sched_yield();
			continue;
		}
		vblk_info(fd, &info);
		close(fd);
		if (__atomic_add_fetch(&race->opened, 1, __ATOMIC_RELAXED) %
		    OPENS_IN_A_ROW == 0)
			sleep_ms(1);
	}
}

static unsigned int count(const unsigned int *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/*
 * Not before the other side has opened it since; false if it fails through several of
 * the other side's rests.  Tries are no measure: where both share a CPU, thousands fit
 * into the grace period of one close().
 */
static bool unload_after_an_open(struct race *race, unsigned int *busy)
{
	unsigned int opened = count(&race->opened);

	while (count(&race->opened) == opened)
		sched_yield();
	while (count(&race->opened) - opened < 4 * OPENS_IN_A_ROW) {
		if (!unload_module("vhost_blk"))
			return true;
		++*busy;
		sched_yield();
	}
	return false;
}

static void unload_races_with_open(void)
{
	unsigned int i, missing, busy = 0, rounds = loops(10);
	struct race *race;
	int status;
	pid_t pid;

	backend_need_modules();
	if (module_references("vhost_blk"))
		ktap_skip("vhost_blk is built in, or in use");
	race = mmap(NULL, sizeof(*race), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(race != MAP_FAILED);
	pid = fork();
	if (!pid)
		hammer_open(race);
	for (i = 0; i < rounds; i++) {
		EXPECT(unload_after_an_open(race, &busy));
		EXPECT(!module_loaded("vhost_blk"));
		/* the other side has seen it gone, and tries on */
		missing = count(&race->missing);
		while (count(&race->missing) == missing)
			sched_yield();
		backend_need_modules();
	}
	kill(pid, SIGKILL);
	EXPECT(waitpid(pid, &status, 0) == pid);
	ktap_msg("unloaded %u times, refused %u times, opened %u times",
		 rounds, busy, race->opened);
	/* else it was no race */
	EXPECT(busy);
	EXPECT_EQ(module_references("vhost_blk"), 0);
}

static u64 rounds_of(struct rig *g)
{
	struct vhost_poll_stats st;

	EXPECT_EQ(poller_stats(g->poller[0], &st), 0);
	return st.rounds;
}

static bool at_rest(struct rig *g)
{
	u64 before = rounds_of(g);

	sleep_ms(100);
	return rounds_of(g) == before;
}

/*
 * Its page is there to be read, and notifications are off in it: neither poller nor
 * worker try for ever to turn them on.
 */
static void a_used_ring_that_is_gone_ends_the_service(void)
{
	size_t page = sysconf(_SC_PAGESIZE);
	unsigned int tries;
	struct rig g;
	void *used;

	backend_need_modules();
	rig_open(&g, nullb_create(&(struct nullb){ .name = "a" }), NULL);
	rig_check_works(&g, 0, 0);
	used = (void *)((unsigned long)g.ring[0].vr.used & -page);
	EXPECT_EQ(mprotect(used, page, PROT_READ), 0);
	EXPECT_EQ(poller_set_mode(g.poller[0], VHOST_POLL_MODE_EVENT), 0);
	for (tries = 0; tries < 100 && !(rig_malformed(&g, 0) && at_rest(&g)); tries++)
		sleep_ms(100);
	EXPECT_EQ(rig_malformed(&g, 0), 1);
	EXPECT(at_rest(&g));
	EXPECT_EQ(mprotect(used, page, PROT_READ | PROT_WRITE), 0);
	rig_close(&g);
}

static void cpu_online(unsigned int cpu, const char *on)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/online",
		 cpu);
	if (write_text(path, on))
		ktap_skip("no CPU can go offline here");
}

static void io_goes_on_when_the_pollers_cpu_goes_offline(void)
{
	const char *disk = disk_named("cpu");
	unsigned int mode;
	struct rig_req *req[SLOTS];
	struct rig g;

	if (!last_cpu())
		ktap_skip("one CPU");
	for (mode = 0; mode < 3; mode++) {
		rig_open(&g, disk, &(struct rig_opts){ .mode = mode });
		offer_writes(&g, req, SLOTS);
		cpu_online(last_cpu(), "0");
		rig_wait(&g, 0);
		offer_writes(&g, req, SLOTS);
		rig_wait(&g, 0);
		cpu_online(sysconf(_SC_NPROCESSORS_CONF) - 1, "1");
		offer_writes(&g, req, SLOTS);
		rig_wait(&g, 0);
		expect_writes(disk, req, SLOTS);
		rig_close(&g);
	}
}

#define LATE_AT		(2UL << 20)	/* of the data: not touched before */
#define LATE_LEN	65536

/* A worker waits for the owner: not the poller, nor a ring of somebody else. */
static void an_owner_late_with_its_memory_holds_nobody_else(void)
{
	struct vhost_poll_stats before, after;
	struct rig g, other;
	struct pollfd p;
	struct rig_req *req;
	unsigned int i;

	rig_open(&g, disk_named("late"), NULL);
	rig_open(&other, disk_named("other"),
		 &(struct rig_opts){ .share_poller = g.poller[0] });
	p.fd = catch_faults(g.data + LATE_AT, LATE_LEN);
	p.events = POLLIN;
	req = rig_queue(&g, 0, VIRTIO_BLK_T_IN, 0, g.data + LATE_AT, LATE_LEN);
	rig_kick(&g, 0);
	EXPECT_EQ(poll(&p, 1, RIG_TIMEOUT_MS), 1);
	EXPECT_EQ(p.revents, POLLIN);

	EXPECT_EQ(poller_stats(g.poller[0], &before), 0);
	for (i = 0; i < 50; i++)
		rig_check_works(&other, 0, 0);
	EXPECT_EQ(vblk_stop(other.dev.fd, 0), 0);
	EXPECT_EQ(vblk_start(other.dev.fd, 0), 0);
	rig_check_works(&other, 0, 0);
	EXPECT_EQ(poller_stats(g.poller[0], &after), 0);
	EXPECT(after.work > before.work);
	EXPECT(!ring_has_used(&g.ring[0]));

	end_faults(p.fd, g.data + LATE_AT, LATE_LEN);
	rig_wait(&g, 0);
	EXPECT_EQ(*req->status, VIRTIO_BLK_S_OK);
	close(p.fd);
	rig_close(&other);
	rig_close(&g);
}

static void modes_change_under_io(void)
{
	const char *disk = disk_named("mode");
	unsigned int i, rounds = loops(30);
	struct rig_req *req[SLOTS];
	struct rig g;

	rig_open(&g, disk, NULL);
	for (i = 0; i < rounds; i++) {
		offer_writes(&g, req, SLOTS);
		EXPECT_EQ(poller_set_mode(g.poller[0], i % 3), 0);
		rig_wait(&g, 0);
	}
	expect_writes(disk, req, SLOTS);
	rig_close(&g);
}

static void cleanup(void)
{
	run_command("cd /sys/devices/system/cpu; for f in */online; do echo 1 >$f; done");
	backend_cleanup();
}

#define TEST(f) { .name = #f, .run = f, .limit = 1200 }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(stop_and_resume_lose_and_repeat_nothing),
		TEST(a_stopped_vring_is_left_alone),
		TEST(another_device_goes_on_where_one_stopped),
		TEST(a_deleted_null_blk_gives_errors_and_no_hang),
		TEST(a_loop_to_be_detached_serves_to_the_end),
		TEST(a_loop_whose_file_is_cut_gives_errors),
		TEST(a_file_that_is_cut_gives_errors),
		TEST(a_volume_that_turns_to_errors_gives_them),
		TEST(an_nvme_that_is_reset_goes_on),
		TEST(an_nvme_that_is_removed_gives_errors),
		TEST(an_owner_killed_at_any_moment_frees_everything),
		TEST(an_owner_late_with_its_memory_holds_nobody_else),
		TEST(modes_change_under_io),
		TEST(io_goes_on_when_the_pollers_cpu_goes_offline),
		TEST(the_module_stays_while_it_is_used),
		TEST(unload_races_with_open),
		TEST(a_used_ring_that_is_gone_ends_the_service),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), cleanup);
}
