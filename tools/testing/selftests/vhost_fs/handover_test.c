// SPDX-License-Identifier: GPL-2.0
/*
 * An owner hands a device over to the next one (VHOST_SERVE_HAND_OVER), and the guest's
 * session goes on: nodes, open files and locks stay, and requests that the guest
 * offered meanwhile are served.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/fs.h>
#include <linux/vhost.h>
#include <linux/vhost_serve.h>

#include "fsrig.h"
#include "hot.h"
#include "module.h"

/* A file that the guest has open and has removed, and one that it has locked. */
struct session {
	struct fs f;
	u64 gone;
	u64 gone_fh;
	u64 locked;
	u64 locked_fh;
	int host;
};

static const char text[] = "still here";

static int flock_it(struct session *s, u32 opcode, u64 owner, u32 type)
{
	struct fuse_lk_in in = {
		.fh = s->locked_fh, .owner = owner, .lk = { .type = type },
		.lk_flags = FUSE_LK_FLOCK,
	};

	return fs_call(&s->f, opcode, s->locked, &in, sizeof(in), 0);
}

static void begin(struct session *s)
{
	struct fs *f = &s->f;

	fs_make_dir(f, "tmpfs");
	fs_open(f, NULL);
	fs_host_write(f, "gone", text, sizeof(text));
	s->gone = fs_node(f, "gone");
	EXPECT_EQ(fs_open_node(f, s->gone, O_RDWR, &s->gone_fh), 0);
	EXPECT_EQ(fs_remove(f, FUSE_UNLINK, 1, "gone"), 0);
	fs_host_write(f, "locked", "x", 1);
	s->locked = fs_node(f, "locked");
	EXPECT_EQ(fs_open_node(f, s->locked, O_RDWR, &s->locked_fh), 0);
	EXPECT_EQ(flock_it(s, FUSE_SETLK, 7, F_WRLCK), 0);
	s->host = open(fs_path(f, "locked"), O_RDWR | O_CLOEXEC);
	EXPECT(s->host >= 0);
}

static void goes_on(struct session *s)
{
	char buf[sizeof(text)];
	struct fuse_attr attr;

	EXPECT_EQ(fs_read(&s->f, s->gone, s->gone_fh, 0, sizeof(buf), buf), sizeof(buf));
	EXPECT(!memcmp(buf, text, sizeof(buf)));
	EXPECT_EQ(fs_getattr(&s->f, s->locked, &attr), 0);
	EXPECT_EQ(attr.size, 1);
	EXPECT_EQ(flock(s->host, LOCK_EX | LOCK_NB), -1);
	EXPECT_EQ(errno, EWOULDBLOCK);
}

static void end(struct session *s)
{
	EXPECT_EQ(flock_it(s, FUSE_SETLK, 7, F_UNLCK), 0);
	EXPECT_EQ(flock(s->host, LOCK_EX | LOCK_NB), 0);
	fs_close(&s->f);
}

/* Whether @run ended well in a process of its own. */
static bool in_child(struct session *s, void (*run)(struct session *s, const u16 *base),
		     const u16 *base)
{
	int pid = fork(), status;

	EXPECT(pid >= 0);
	if (!pid) {
		run(s, base);
		_exit(0);
	}
	EXPECT_EQ(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

static void serve_in_child(struct session *s, const u16 *base)
{
	fs_take_over(&s->f, base);
	goes_on(s);
	end(s);
}

static void another_process_goes_on(void)
{
	struct session s = {};
	u16 base[FS_QUEUES];

	begin(&s);
	fs_hand_over(&s.f, base);
	EXPECT(in_child(&s, serve_in_child, base));
}

static void the_same_process_goes_on_many_times(void)
{
	struct session s = {};
	u16 base[FS_QUEUES];
	unsigned int i, times = ktap_env("LAB_LOOPS", 50);

	begin(&s);
	for (i = 0; i < times; i++) {
		fs_hand_over(&s.f, base);
		fs_take_over(&s.f, base);
		goes_on(&s);
	}
	end(&s);
}

static void a_request_offered_meanwhile_is_served(void)
{
	struct session s = {};
	struct {
		struct fuse_in_header ih;
		struct fuse_getattr_in arg;
	} in = {};
	struct fs_raw raw = {
		.in = &in, .in_len = sizeof(in), .queue = 1,
		.out_room = sizeof(struct fuse_out_header) + sizeof(struct fuse_attr_out),
	};
	u16 base[FS_QUEUES];

	begin(&s);
	fs_hand_over(&s.f, base);
	fs_header(&s.f, &in.ih, FUSE_GETATTR, s.locked, sizeof(in.arg));
	fs_send(&s.f, 0, &raw);
	fs_take_over(&s.f, base);
	fs_wait(&s.f, 0, 1);
	EXPECT_EQ(fs_answer(&s.f, 0), 0);
	goes_on(&s);
	end(&s);
}

/* Nothing is left for the guest to wait for: as with STOP. */
static void a_wait_for_a_lock_ends(void)
{
	struct session s = {};
	struct {
		struct fuse_in_header ih;
		struct fuse_lk_in arg;
	} in = {};
	struct fs_raw raw = {
		.in = &in, .in_len = sizeof(in), .queue = 2,
		.out_room = sizeof(struct fuse_out_header),
	};
	u16 base[FS_QUEUES];
	u64 fh;

	begin(&s);
	EXPECT_EQ(fs_open_node(&s.f, s.locked, O_RDWR, &fh), 0);
	in.arg = (struct fuse_lk_in){ .fh = fh, .owner = 8, .lk = { .type = F_WRLCK },
				      .lk_flags = FUSE_LK_FLOCK };
	fs_header(&s.f, &in.ih, FUSE_SETLKW, s.locked, sizeof(in.arg));
	fs_send(&s.f, 1, &raw);
	goes_on(&s);
	fs_hand_over(&s.f, base);
	EXPECT(fs_poll(&s.f, 1, 2));
	EXPECT_EQ(fs_answer(&s.f, 1), -ENOLCK);
	fs_take_over(&s.f, base);
	goes_on(&s);
	end(&s);
}

static void set_stop_timeout(const char *seconds)
{
	int fd = open("/sys/module/vhost_serve/parameters/stop_timeout", O_WRONLY | O_CLOEXEC);

	EXPECT(fd >= 0);
	EXPECT_EQ(write(fd, seconds, strlen(seconds)), (ssize_t)strlen(seconds));
	close(fd);
}

static void until_in_flight(struct fs *f)
{
	EVENTUALLY(ring_stats(f, 1).inflight);
}

static void stop_takes_too_long(struct fs *f)
{
	until_in_flight(f);
	set_stop_timeout("1");
	EXPECT_EQ(ioctl(f->fd, VHOST_SERVE_STOP, 1L), -1);
	EXPECT_EQ(errno, ETIMEDOUT);
	set_stop_timeout("60");
	EXPECT_EQ(ioctl(f->fd, VHOST_SERVE_START, 1L), -1);
	EXPECT_EQ(errno, EBUSY);
}

/* The owner cannot hand over while a request hangs, and the guest must not wait for that, too. */
static void a_stop_that_takes_too_long_is_taken_back(void)
{
	struct {
		struct fuse_in_header ih;
		struct fuse_mkdir_in arg;
		char name[8];
	} in = { .arg.mode = 0755, .name = "made" };
	struct fs_raw raw = {
		.in = &in, .in_len = sizeof(in.ih) + sizeof(in.arg) + 5, .queue = 1,
		.out_room = sizeof(struct fuse_out_header) + sizeof(struct fuse_entry_out),
	};
	u16 base[FS_QUEUES];
	unsigned int i;
	struct fs f;
	int dir;

	fs_make_dir(&f, "ext4");
	fs_open(&f, NULL);
	dir = open(f.dir, O_RDONLY | O_CLOEXEC);
	EXPECT(dir >= 0);
	for (i = 0; i < 2; i++) {
		in.name[0] = 'm' + i;
		EXPECT_EQ(ioctl(f.fd, VHOST_SERVE_GO_ON, 1L), -1);
		EXPECT_EQ(errno, EINVAL);
		EXPECT(!ioctl(dir, FIFREEZE, 0));
		fs_header(&f, &in.ih, FUSE_MKDIR, FUSE_ROOT_ID, raw.in_len - sizeof(in.ih));
		fs_send(&f, 1, &raw);
		stop_takes_too_long(&f);
		/* The second time all requests are answered, but no stop has succeeded. */
		if (i) {
			EXPECT(!ioctl(dir, FITHAW, 0));
			fs_wait(&f, 1, 1);
		}
		EXPECT(!ioctl(f.fd, VHOST_SERVE_GO_ON, 1L));
		EXPECT_EQ(fs_getattr(&f, FUSE_ROOT_ID, NULL), 0);
		if (!i) {
			EXPECT(!fs_poll(&f, 1, 1));
			EXPECT(!ioctl(dir, FITHAW, 0));
			fs_wait(&f, 1, 1);
		}
		EXPECT_EQ(fs_answer(&f, 1), 0);
	}
	fs_hand_over(&f, base);
	fs_take_over(&f, base);
	EXPECT_EQ(fs_lookup(&f, FUSE_ROOT_ID, "nade", NULL), 0);
	close(dir);
	fs_close(&f);
}

static void try_to_take(struct session *s, const u16 *unused)
{
	EXPECT_EQ(ioctl(s->f.fd, VHOST_SET_OWNER), -1);
	EXPECT_EQ(errno, EBUSY);
	EXPECT_EQ(ioctl(s->f.fd, VHOST_SERVE_HAND_OVER), -1);
	EXPECT_EQ(errno, EPERM);
}

static void only_the_owner_hands_over(void)
{
	struct session s = {};
	u16 base[FS_QUEUES];

	begin(&s);
	EXPECT(in_child(&s, try_to_take, NULL));
	goes_on(&s);
	fs_hand_over(&s.f, base);
	EXPECT_EQ(ioctl(s.f.fd, VHOST_SERVE_HAND_OVER), -1);
	EXPECT_EQ(errno, EPERM);
	EXPECT_EQ(ioctl(s.f.fd, VHOST_SERVE_START, 1L), -1);
	EXPECT_EQ(errno, EPERM);
	fs_take_over(&s.f, base);
	end(&s);
}

static void without_a_next_owner_nothing_is_left(void)
{
	struct session s = {};
	u16 base[FS_QUEUES];

	begin(&s);
	fs_hand_over(&s.f, base);
	EXPECT_EQ(flock(s.host, LOCK_EX | LOCK_NB), -1);
	close(s.f.fd);
	EXPECT_EQ(flock(s.host, LOCK_EX | LOCK_NB), 0);
	close(s.host);
	EXPECT_EQ(umount(fs_path(&s.f, "..")), 0);
}

static const struct ktap_test tests[] = {
	{ "another_process_goes_on", another_process_goes_on },
	{ "the_same_process_goes_on_many_times", the_same_process_goes_on_many_times },
	{ "a_request_offered_meanwhile_is_served", a_request_offered_meanwhile_is_served },
	{ "a_wait_for_a_lock_ends", a_wait_for_a_lock_ends },
	{ "a_stop_that_takes_too_long_is_taken_back",
	  a_stop_that_takes_too_long_is_taken_back },
	{ "only_the_owner_hands_over", only_the_owner_hands_over },
	{ "without_a_next_owner_nothing_is_left", without_a_next_owner_nothing_is_left },
};

static void cleanup(void)
{
	if (system("fsfreeze -u /tmp/vhost_fs 2>/dev/null") == 0)
		ktap_msg("a test left the file system frozen");
	if (module_loaded("vhost_serve"))
		set_stop_timeout("60");
	fs_cleanup();
}

int main(int argc, char **argv)
{
	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), cleanup);
}
