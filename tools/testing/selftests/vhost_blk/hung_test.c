// SPDX-License-Identifier: GPL-2.0
/*
 * A backend that does not answer: a task that stops a vring, closes the device or is killed does
 * not wait for it without a limit, unless that is safer.  The memory, disk and modules that its
 * requests use stay meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/vhost.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "module.h"
#include "rig.h"
#include "writes.h"

static const char *disk_that_can_be_suspended(void)
{
	return dm_linear_create("hang", disk_named("hang"), 65536);
}

static void set_stop_timeout(const char *seconds)
{
	EXPECT(!write_text("/sys/module/vhost_serve/parameters/stop_timeout", seconds));
}

static void until_in_flight(struct rig *g, u64 n)
{
	struct vhost_blk_stats st;
	unsigned int ms;

	for (ms = 0; ms < RIG_TIMEOUT_MS; ms++) {
		rig_stats(g, 0, &st);
		if (st.inflight == n)
			return;
		sleep_ms(1);
	}
	EXPECT_EQ(st.inflight, n);
}

static void a_stop_does_not_wait_for_ever(void)
{
	const char *disk = disk_that_can_be_suspended();
	int fd = open(disk, O_RDWR | O_CLOEXEC);
	struct rig_req *req[8];
	struct rig g;
	u16 base;

	EXPECT(fd >= 0);
	rig_open(&g, disk, NULL);
	dm_suspend("hang");
	offer_writes(&g, req, 8);
	until_in_flight(&g, 8);
	set_stop_timeout("1");
	EXPECT_EQ(vblk_stop(g.dev.fd, 0), -ETIMEDOUT);
	EXPECT_EQ(vblk_get_base(g.dev.fd, 0, &base), -ETIMEDOUT);
	EXPECT_EQ(ioctl(g.dev.fd, VHOST_RESET_OWNER), -1);
	EXPECT_EQ(errno, ETIMEDOUT);
	/* Requests still use all of this. */
	EXPECT_EQ(vblk_start(g.dev.fd, 0), -EBUSY);
	EXPECT_EQ(vblk_set_vring(g.dev.fd, 0, g.poller[0], VHOST_SERVE_TARGET_AUTO, 0), -EBUSY);
	EXPECT_EQ(vblk_set_features(g.dev.fd, g.dev.features), -EBUSY);
	EXPECT_EQ(vblk_set_ring(g.dev.fd, &g.ring[0], 0), -EBUSY);
	EXPECT_EQ(vblk_set_backend(g.dev.fd, -1, 0, 0), -EBUSY);
	EXPECT_EQ(vblk_set_backend(g.dev.fd, fd, 0, 0), -EBUSY);

	dm_resume("hang");
	/* All requests are answered, but no stop has succeeded yet. */
	until_in_flight(&g, 0);
	EXPECT_EQ(vblk_set_backend(g.dev.fd, fd, 0, 0), -EBUSY);
	set_stop_timeout("60");
	base = stop_exactly(&g);
	EXPECT_EQ(vblk_set_backend(g.dev.fd, fd, 0, 0), 0);
	resume_at(&g, base);
	rig_wait(&g, 0);
	expect_writes(disk, req, 8);
	rig_check_works(&g, 0, 4096);
	rig_close(&g);
	close(fd);
}

static void open_and_hang(struct rig *g, const char *disk)
{
	struct rig_req *req[8];

	rig_open(g, disk, NULL);
	dm_suspend("hang");
	offer_writes(g, req, 8);
	until_in_flight(g, 8);
}

/* The disk answers, and the device ends then, which the module had to stay for. */
static void expect_late_end(const char *disk, long before)
{
	unsigned int i;
	u8 seen[4096];

	EXPECT_EQ(module_references("vhost_blk"), before + 1);
	EXPECT(run_command("rmmod vhost_blk 2>/dev/null"));

	dm_resume("hang");
	for (i = 0; i < RIG_TIMEOUT_MS && module_references("vhost_blk") != before; i++)
		sleep_ms(1);
	EXPECT_EQ(module_references("vhost_blk"), before);
	set_stop_timeout("60");
	for (i = 0; i < 8; i++) {
		backend_read(disk, i * 16 * 512, seen, sizeof(seen));
		EXPECT(rig_pattern_ok(seen, sizeof(seen), i));
	}
}

/* The disk is in use until the last answer, and so is the module. */
static void killed_while_it_hangs(bool in_close)
{
	const char *disk = disk_that_can_be_suspended();
	long before = module_references("vhost_blk");
	int status, hung[2];
	struct rig g;
	pid_t pid;
	u8 byte;

	set_stop_timeout("1");
	EXPECT(!pipe(hung));
	pid = fork();
	if (!pid) {
		open_and_hang(&g, disk);
		EXPECT_EQ(write(hung[1], "", 1), 1);
		if (in_close)
			close(g.dev.fd);
		for (;;)
			pause();
	}
	EXPECT_EQ(read(hung[0], &byte, 1), 1);
	if (in_close)
		sleep_ms(200);
	kill(pid, SIGKILL);
	EXPECT(waitpid(pid, &status, 0) == pid);
	EXPECT(WIFSIGNALED(status));
	expect_late_end(disk, before);
	close(hung[0]);
	close(hung[1]);
}

static void an_owner_is_killed_whose_disk_does_not_answer(void)
{
	killed_while_it_hangs(false);
}

static void an_owner_is_killed_in_close_whose_disk_does_not_answer(void)
{
	killed_while_it_hangs(true);
}

/* The kernel closes the descriptor of a registered file in a thread of its own. */
static void close_by_io_uring(int fd)
{
	struct io_uring_params params = {};
	int ring = syscall(SYS_io_uring_setup, 1, &params);

	EXPECT(ring >= 0);
	EXPECT_EQ(syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, &fd, 1), 0);
	close(fd);
	close(ring);
}

/* That thread closes files for the whole host, one after the other. */
static void a_close_by_the_kernel_holds_up_no_other(void)
{
	const char *disk = disk_that_can_be_suspended();
	long before = module_references("vhost_blk");
	struct pollfd end;
	int ends[2];
	struct rig g;

	set_stop_timeout("60");
	open_and_hang(&g, disk);
	close_by_io_uring(g.dev.fd);
	EXPECT(!pipe(ends));
	/* The kernel's thread takes what comes together in the opposite order. */
	sleep_ms(500);
	close_by_io_uring(ends[1]);
	end = (struct pollfd){ .fd = ends[0], .events = POLLIN };
	EXPECT_EQ(poll(&end, 1, RIG_TIMEOUT_MS), 1);
	EXPECT(end.revents & POLLHUP);
	expect_late_end(disk, before);
	g.dev.fd = ends[0];
	rig_close(&g);
}

static void cleanup(void)
{
	set_stop_timeout("60");
	/* One that is suspended cannot be removed. */
	run_command("dmsetup resume --noudevrules --noudevsync vbthang 2>/dev/null");
	backend_cleanup();
}

#define TEST(f) { .name = #f, .run = f, .limit = 300 }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(a_stop_does_not_wait_for_ever),
		TEST(an_owner_is_killed_whose_disk_does_not_answer),
		TEST(an_owner_is_killed_in_close_whose_disk_does_not_answer),
		TEST(a_close_by_the_kernel_holds_up_no_other),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), cleanup);
}
