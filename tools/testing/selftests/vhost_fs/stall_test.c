// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that may wait for ever: for a frozen file system, a suspended disk, a server that has
 * stopped, or a fanotify listener.  The guest's other requests must go on meanwhile, and so must
 * those of another guest of the same poller.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <linux/fs.h>
#include <linux/vhost_serve.h>

#include "fsrig.h"
#include "hostfuse.h"
#include "hot.h"

#define FORGETS		0
#define STALL_QUEUE	2
/* Of crew.c: threads that may sleep for one owner. */
#define PER_OWNER	4
/* Slots of requests that wait; they are more than that. */
#define FIRST		1
#define LAST		(FS_SLOTS - 1)
#define STALLED		(LAST - FIRST + 1)
#define ROUNDS		10
#define BLOCK		4096
/* The kernel has eight mutexes for files: one of so many files shares that of the server's. */
#define LOCKED		64
#define DM		"vhost_fs_stall"

static const struct vhost_fs_export with_submounts = {
	.flags = VHOST_FS_EXPORT_SUBMOUNTS,
};

/* A guest with two file systems, one of which will stall, and another guest. */
struct stall {
	struct fs f;
	struct fs other;
	char slow[512];
	u64 quick;			/* a file of the first one, and its handle */
	u64 quick_fh;
	struct vhost_poll_stats poller;
	struct vhost_serve_stats ring;
};

static void stall_dirs(struct stall *s)
{
	memset(s, 0, sizeof(*s));
	fs_make_dir(&s->f, "tmpfs");
	snprintf(s->slow, sizeof(s->slow), "%s", fs_path(&s->f, "slow"));
	EXPECT(!mkdir(s->slow, 0755));
	fs_host_write(&s->f, "quick", "quick", 5);
}

static void stall_guests(struct stall *s)
{
	struct fs *other = &s->other;

	fs_open(&s->f, &with_submounts);
	snprintf(other->dir, sizeof(other->dir), "%s", fs_path(&s->f, "../other"));
	EXPECT(!mkdir(other->dir, 0755));
	other->beside = &s->f;
	fs_open(other, NULL);
	/* An emulator may take longer than any limit for a real machine. */
	hot_set_limit(0);
	until_there_is_a_spare(&s->f);
	s->quick = fs_node(&s->f, "quick");
	EXPECT_EQ(fs_open_node(&s->f, s->quick, O_RDONLY, &s->quick_fh), 0);
	s->poller = poller_stats(&s->f);
	s->ring = ring_stats(&s->f, STALL_QUEUE);
}

static void stall_end(struct stall *s)
{
	fs_close(&s->other);
	fs_close(&s->f);
}

static void expect_stalled(struct stall *s)
{
	unsigned int slot;

	for (slot = FIRST; slot <= LAST; slot++)
		EXPECT(!fs_poll(&s->f, slot, STALL_QUEUE));
}

/* All of them wait, and neither guest has to. */
static void others_go_on(struct stall *s)
{
	unsigned int i;
	char data[5];

	nap();
	expect_stalled(s);
	for (i = 0; i < ROUNDS; i++) {
		make_and_remove(&s->f, i);
		EXPECT_EQ(fs_getattr(&s->f, FUSE_ROOT_ID, NULL), 0);
		EXPECT_EQ(fs_read(&s->f, s->quick, s->quick_fh, 0, 5, data), 5);
		make_and_remove(&s->other, i);
		EXPECT_EQ(fs_getattr(&s->other, FUSE_ROOT_ID, NULL), 0);
	}
	expect_stalled(s);
}

/* None of them took a thread from the poller. */
static void expect_workers(struct stall *s)
{
	EXPECT_EQ(ring_stats(&s->f, STALL_QUEUE).punted - s->ring.punted, STALLED);
	EXPECT_EQ(poller_stats(&s->f).handoffs, s->poller.handoffs);
}

static void expect_answers(struct stall *s, int error)
{
	unsigned int slot;

	for (slot = FIRST; slot <= LAST; slot++) {
		fs_wait(&s->f, slot, STALL_QUEUE);
		EXPECT_EQ(fs_answer(&s->f, slot), error);
	}
}

/* The same request in each slot. */
static void send_all(struct stall *s, u32 opcode, u64 node, const void *arg, u32 len, u32 room)
{
	struct {
		struct fuse_in_header ih;
		u8 arg[128];
	} in = {};
	struct fs_raw raw = {
		.in = &in, .in_len = sizeof(struct fuse_in_header) + len,
		.out_room = sizeof(struct fuse_out_header) + room, .queue = STALL_QUEUE,
	};
	unsigned int slot;

	EXPECT(len <= sizeof(in.arg));
	if (len)
		memcpy(in.arg, arg, len);
	for (slot = FIRST; slot <= LAST; slot++) {
		fs_header(&s->f, &in.ih, opcode, node, len);
		fs_send(&s->f, slot, &raw);
	}
}

static void send_getattrs(struct stall *s, u64 node)
{
	struct fuse_getattr_in in = {};

	send_all(s, FUSE_GETATTR, node, &in, sizeof(in), sizeof(struct fuse_attr_out));
}

static void send_opens(struct stall *s, u64 node)
{
	struct fuse_open_in in = { .flags = O_RDONLY };

	send_all(s, FUSE_OPEN, node, &in, sizeof(in), sizeof(struct fuse_open_out));
}

#define IMAGE	"/tmp/vhost_fs/slow.img"
#define DISK	"/dev/mapper/" DM
#define CREATE	"dmsetup create " DM

static bool shell(const char *command)
{
	return !system(command);
}

static bool there_is_device_mapper(void)
{
	return shell("modprobe -aq loop dm_mod; dmsetup version >/dev/null 2>&1") &&
	       shell("command -v mkfs.ext4 >/dev/null");
}

/* An ext4 on a disk of its own, which can be suspended. */
static void mount_disk(struct stall *s)
{
	if (!there_is_device_mapper())
		ktap_skip("there is no device mapper, or no mkfs.ext4");
	EXPECT(shell("truncate -s 64M " IMAGE " && losetup -f " IMAGE));
	EXPECT(shell("echo 0 131072 linear $(losetup -j " IMAGE " | cut -d: -f1) 0 | "
		     CREATE));
	EXPECT(shell("mkfs.ext4 -q " DISK));
	EXPECT(!mount(DISK, s->slow, "ext4", 0, NULL));
}

/* A test that failed leaves some of this. */
static void stall_cleanup(void)
{
	shell("fsfreeze -u /tmp/vhost_fs/export/slow 2>/dev/null");
	shell("dmsetup resume " DM " 2>/dev/null");
	umount2("/tmp/vhost_fs/export/slow", MNT_DETACH);
	shell("dmsetup remove --retry " DM " 2>/dev/null");
	if (!shell("losetup -j " IMAGE " | cut -d: -f1 | xargs -r losetup -d"))
		ktap_msg("a loop device is left behind");
	hot_cleanup();
}

static void a_frozen_file_system(void)
{
	struct {
		struct fuse_mkdir_in arg;
		char name[8];
	} in = { .arg.mode = 0755, .name = "new" };
	unsigned int slot, made = 0;
	struct stall s;
	u64 node;
	int dir;

	stall_dirs(&s);
	mount_disk(&s);
	stall_guests(&s);
	node = fs_node(&s.f, "slow");
	dir = open(s.slow, O_RDONLY | O_DIRECTORY);
	EXPECT(dir >= 0);
	EXPECT(!ioctl(dir, FIFREEZE, 0));
	send_all(&s, FUSE_MKDIR, node, &in, sizeof(in.arg) + strlen(in.name) + 1,
		 sizeof(struct fuse_entry_out));
	others_go_on(&s);
	expect_workers(&s);
	EXPECT(!ioctl(dir, FITHAW, 0));
	for (slot = FIRST; slot <= LAST; slot++) {
		fs_wait(&s.f, slot, STALL_QUEUE);
		made += !fs_answer(&s.f, slot);
	}
	EXPECT_EQ(made, 1);
	close(dir);
	stall_end(&s);
}

/* Whether a worker, and not the poller, carries out a FORGET. */
static bool a_worker_forgets(struct stall *s)
{
	u64 punted = ring_stats(&s->f, FORGETS).punted;

	fs_forget(&s->f, fs_node(&s->f, "quick"), 1);
	return ring_stats(&s->f, FORGETS).punted != punted;
}

/* Send a FORGET in the slot FIRST, and do not wait for its end. */
static void send_forget(struct stall *s, u64 node)
{
	struct {
		struct fuse_in_header ih;
		struct fuse_forget_in arg;
	} in = { .arg.nlookup = 1 };
	struct fs_raw raw = { .in = &in, .in_len = sizeof(in), .queue = FORGETS };

	fs_header(&s->f, &in.ih, FUSE_FORGET, node, sizeof(in.arg));
	fs_send(&s->f, FIRST, &raw);
}

/* A file system that no node holds any more can be unmounted. */
static bool unmounted(const char *path)
{
	if (!umount2(path, 0))
		return true;
	EXPECT_EQ(errno, EBUSY);
	return false;
}

static bool a_forget_is_punted(struct stall *s)
{
	return ring_stats(&s->f, FORGETS).punted != s->ring.punted;
}

static bool the_other_is_unmounted(struct stall *s)
{
	return unmounted(fs_path(&s->f, "other"));
}

static bool in_time(bool (*cond)(struct stall *s), struct stall *s)
{
	unsigned int naps = FS_WAIT_MS / NAP_MS;

	while (!cond(s)) {
		if (!naps--)
			return false;
		nap();
	}
	return true;
}

/*
 * To free a removed file, the reaper waits until the file system is thawed.  The nodes that the
 * guest forgets meanwhile would wait for the reaper, so workers free them.  Nothing fails before
 * the thaw, because a test that ends closes the device, which waits for the reaper.
 */
static void a_reaper_that_waits(void)
{
	struct stall s;
	u64 gone, next, slow, file, top, hot;
	bool late, punted, freed;
	int dir;

	stall_dirs(&s);
	mount_disk(&s);
	EXPECT(!mkdir(fs_path(&s.f, "other"), 0755));
	EXPECT(!mount("other", fs_path(&s.f, "other"), "tmpfs", 0, NULL));
	fs_host_write(&s.f, "slow/gone", "data", 4);
	fs_host_write(&s.f, "slow/next", "data", 4);
	fs_host_write(&s.f, "other/file", "data", 4);
	stall_guests(&s);
	slow = fs_node(&s.f, "slow");
	gone = fs_node(&s.f, "slow/gone");
	next = fs_node(&s.f, "slow/next");
	top = fs_node(&s.f, "other");
	file = fs_node(&s.f, "other/file");
	EXPECT(!a_worker_forgets(&s));
	EXPECT(!unlink(fs_path(&s.f, "slow/gone")));
	EXPECT(!unlink(fs_path(&s.f, "slow/next")));
	dir = open(s.slow, O_RDONLY | O_DIRECTORY);
	EXPECT(dir >= 0);
	EXPECT(!ioctl(dir, FIFREEZE, 0));
	fs_forget(&s.f, gone, 1);
	late = in_time(a_worker_forgets, &s);
	/* The thread that frees this file waits, too.  It must not be the poller's. */
	s.ring = ring_stats(&s.f, FORGETS);
	send_forget(&s, next);
	punted = in_time(a_forget_is_punted, &s);
	hot = ring_stats(&s.f, FORGETS).hot - s.ring.hot;
	fs_forget(&s.f, file, 1);
	fs_forget(&s.f, top, 2);
	freed = in_time(the_other_is_unmounted, &s);
	EXPECT(!ioctl(dir, FITHAW, 0));
	EXPECT(late);
	EXPECT(punted);
	EXPECT_EQ(hot, 0);
	EXPECT(freed);
	fs_wait(&s.f, FIRST, FORGETS);
	close(dir);
	EVENTUALLY(!a_worker_forgets(&s));
	fs_forget(&s.f, slow, 3);
	EVENTUALLY(unmounted(s.slow));
	stall_end(&s);
}

/* A thread of the poller's may sleep for the first few; workers have the rest. */
static void a_suspended_disk(void)
{
	struct fuse_read_in in = { .size = BLOCK };
	static u8 data[BLOCK];
	struct stall s;
	unsigned int slot;
	u64 node;
	int fd;

	stall_dirs(&s);
	mount_disk(&s);
	memset(data, 0x5a, sizeof(data));
	fs_host_write(&s.f, "slow/file", data, sizeof(data));
	stall_guests(&s);
	node = fs_node(&s.f, "slow/file");
	EXPECT_EQ(fs_open_node(&s.f, node, O_RDONLY, (u64 *)&in.fh), 0);
	fd = open(fs_path(&s.f, "slow/file"), O_RDONLY);
	EXPECT(fd >= 0);
	EXPECT(!fsync(fd));
	EXPECT(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	close(fd);

	EXPECT(shell("dmsetup suspend --nolockfs --noflush " DM));
	send_all(&s, FUSE_READ, node, &in, sizeof(in), in.size);
	others_go_on(&s);
	EXPECT(poller_stats(&s.f).handoffs - s.poller.handoffs <= PER_OWNER);
	EXPECT(shell("dmsetup resume " DM));
	expect_answers(&s, 0);
	for (slot = FIRST; slot <= LAST; slot++) {
		EXPECT_EQ(fs_answer(&s.f, slot), 0);
		EXPECT_EQ(s.f.reply_len, BLOCK);
		EXPECT(!memcmp(s.f.reply, data, BLOCK));
	}
	stall_end(&s);
}

static void stop_server(const struct hostfuse *server)
{
	int status;

	EXPECT(!kill(server->pid, SIGSTOP));
	EXPECT_EQ(waitpid(server->pid, &status, WUNTRACED), server->pid);
}

static void a_server_that_has_stopped(void)
{
	struct hostfuse *server;
	struct stall s;
	u64 node;

	stall_dirs(&s);
	server = hostfuse_mount(s.slow);
	stall_guests(&s);
	node = fs_node(&s.f, "slow/one");
	s.ring = ring_stats(&s.f, STALL_QUEUE);

	stop_server(server);
	send_getattrs(&s, node);
	others_go_on(&s);
	expect_workers(&s);
	EXPECT(!kill(server->pid, SIGCONT));
	expect_answers(&s, 0);
	EXPECT(S_ISREG(((struct fuse_attr_out *)s.f.reply)->attr.mode));

	/* The server dies while requests wait for it. */
	stop_server(server);
	send_getattrs(&s, node);
	others_go_on(&s);
	EXPECT(!kill(server->pid, SIGKILL));
	EXPECT_EQ(waitpid(server->pid, NULL, 0), server->pid);
	expect_answers(&s, -ECONNABORTED);
	EXPECT_EQ(fs_getattr(&s.f, node, NULL), -ENOTCONN);
	stall_end(&s);
}

static int set_lock(struct stall *s, u64 node, u64 fh, u32 type)
{
	struct fuse_lk_in in = { .fh = fh, .owner = 2, .lk = { .type = type } };

	return fs_call(&s->f, FUSE_SETLK, node, &in, sizeof(in), 0);
}

/* Workers that try for locks of one file wait for each other, and those of other files do not. */
static void a_server_that_grants_no_lock(void)
{
	struct fuse_lk_in in = { .owner = 1, .lk = { .type = F_WRLCK } };
	u64 node[LOCKED], fh[LOCKED], slow;
	struct hostfuse *server;
	char name[16];
	struct stall s;
	unsigned int i;

	stall_dirs(&s);
	server = hostfuse_mount(s.slow);
	stall_guests(&s);
	slow = fs_node(&s.f, "slow/one");
	EXPECT_EQ(fs_open_node(&s.f, slow, O_RDWR, (u64 *)&in.fh), 0);
	for (i = 0; i < LOCKED; i++) {
		snprintf(name, sizeof(name), "lock%u", i);
		fs_host_write(&s.f, name, "", 0);
		node[i] = fs_node(&s.f, name);
		EXPECT_EQ(fs_open_node(&s.f, node[i], O_RDWR, &fh[i]), 0);
	}
	stop_server(server);
	send_all(&s, FUSE_SETLK, slow, &in, sizeof(in), 0);
	others_go_on(&s);
	for (i = 0; i < LOCKED; i++) {
		EXPECT_EQ(set_lock(&s, node[i], fh[i], F_WRLCK), 0);
		EXPECT_EQ(set_lock(&s, node[i], fh[i], F_UNLCK), 0);
	}
	expect_stalled(&s);
	EXPECT(!kill(server->pid, SIGCONT));
	expect_answers(&s, 0);
	EXPECT(server->holder);
	stall_end(&s);
}

static int listen_at(const char *path)
{
	int fd = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY);

	if (fd < 0 || fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, path))
		ktap_skip("this kernel asks no listener for permission");
	return fd;
}

static void permit(int listener, unsigned int nr)
{
	while (nr--) {
		struct fanotify_event_metadata event;
		struct fanotify_response answer = { .response = FAN_ALLOW };

		EXPECT_EQ(read(listener, &event, sizeof(event)), sizeof(event));
		answer.fd = event.fd;
		EXPECT_EQ(write(listener, &answer, sizeof(answer)), sizeof(answer));
		close(event.fd);
	}
}

static void a_listener_that_sleeps(void)
{
	struct stall s;
	int listener;
	u64 node;

	stall_dirs(&s);
	EXPECT(!mount("slow", s.slow, "tmpfs", 0, "mode=755"));
	fs_host_write(&s.f, "slow/file", "data", 4);
	stall_guests(&s);
	node = fs_node(&s.f, "slow/file");
	listener = listen_at(fs_path(&s.f, "slow/file"));
	send_opens(&s, node);
	others_go_on(&s);
	expect_workers(&s);
	permit(listener, STALLED);
	expect_answers(&s, 0);

	/* When the listener closes, the kernel allows all opens that wait for it. */
	send_opens(&s, node);
	others_go_on(&s);
	close(listener);
	expect_answers(&s, 0);
	stall_end(&s);
}

#define TEST(f) { .name = #f, .run = f, .limit = 600 }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(a_frozen_file_system),
		TEST(a_reaper_that_waits),
		TEST(a_suspended_disk),
		TEST(a_server_that_has_stopped),
		TEST(a_server_that_grants_no_lock),
		TEST(a_listener_that_sleeps),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), stall_cleanup);
}
