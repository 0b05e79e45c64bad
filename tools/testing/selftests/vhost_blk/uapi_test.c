// SPDX-License-Identifier: GPL-2.0
/*
 * The ioctls of /dev/vhost-blk: what is refused, and with which error; and
 * that what was refused changed nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/capability.h>
#include <linux/vhost.h>

#include "rig.h"

/* 0 or -errno. */
static int ctl(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) < 0 ? -errno : 0;
}

static int open_device(void)
{
	int fd;

	backend_need_modules();
	fd = open("/dev/vhost-blk", O_RDWR | O_CLOEXEC);
	EXPECT(fd >= 0);
	return fd;
}

static int open_owned(void)
{
	int fd = open_device();

	EXPECT_EQ(ctl(fd, VHOST_SET_OWNER, NULL), 0);
	return fd;
}

static int open_disk(void)
{
	const char *disk;
	int fd;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "api" });
	fd = open(disk, O_RDWR | O_CLOEXEC);
	EXPECT(fd >= 0);
	return fd;
}

static void only_root_may_open_it(void)
{
	int status;
	pid_t pid;

	close(open_device());
	pid = fork();
	if (!pid) {
		if (setgid(65534) || setuid(65534))
			_exit(2);
		_exit(open("/dev/vhost-blk", O_RDWR) < 0 && errno == EACCES ?
		      0 : 1);
	}
	EXPECT(waitpid(pid, &status, 0) == pid);
	EXPECT_EQ(status, 0);
}

/* Threads that the kernel keeps for the workqueues of devices, in case it has no memory. */
static unsigned int rescuers(void)
{
	char name[300], comm[32];
	struct dirent *e;
	unsigned int n = 0;
	DIR *dir = opendir("/proc");
	FILE *f;

	EXPECT(dir);
	while ((e = readdir(dir))) {
		snprintf(name, sizeof(name), "/proc/%s/comm", e->d_name);
		f = fopen(name, "r");
		if (!f)
			continue;
		if (fgets(comm, sizeof(comm), f) && !strncmp(comm, "kworker/R-vhost", 15))
			n++;
		fclose(f);
	}
	closedir(dir);
	return n;
}

/* No cgroup is charged for threads of the kernel. */
static void to_open_it_makes_no_thread(void)
{
	unsigned int before, i;
	int fd[8];

	backend_need_modules();
	before = rescuers();
	for (i = 0; i < KTAP_COUNT(fd); i++)
		fd[i] = i % 2 ? open_owned() : open_device();
	EXPECT_EQ(rescuers(), before);
	for (i = 0; i < KTAP_COUNT(fd); i++)
		close(fd[i]);
}

static void nothing_works_before_set_owner(void)
{
	struct vhost_blk_backend b = { .size = sizeof(b), .fd = -1 };
	int fd = open_device();

	EXPECT_EQ(ctl(fd, VHOST_BLK_SET_BACKEND, &b), -EPERM);
	EXPECT_EQ(vblk_start(fd, 0), -EPERM);
	EXPECT_EQ(vblk_set_vring(fd, 0, 0, VHOST_BLK_HCTX_AUTO, 0), -EPERM);
	EXPECT_EQ(ctl(fd, VHOST_SET_OWNER, NULL), 0);
	EXPECT_EQ(ctl(fd, VHOST_SET_OWNER, NULL), -EBUSY);
	close(fd);
}

static void unknown_ioctls_are_refused(void)
{
	int fd = open_owned();

	EXPECT_EQ(ctl(fd, _IO(VHOST_BLK_IOC, 0xBF), NULL), -ENOTTY);
	EXPECT_EQ(ctl(fd, _IO(VHOST_BLK_IOC, 0xC0), NULL), -ENOTTY);
	EXPECT_EQ(ctl(fd, _IO(VHOST_BLK_IOC, 0xDF), NULL), -ENOTTY);
	EXPECT_EQ(ctl(fd, _IO('x', 1), NULL), -ENOTTY);
	close(fd);
}

/* A structure that is longer than ours, with or without news in its tail. */
struct longer_backend {
	struct vhost_blk_backend b;
	u64 tail;
	u8 more[8192];
};

static void structures_grow_as_in_openat2(void)
{
	struct longer_backend l = {
		.b = { .size = offsetof(struct longer_backend, more),
		       .fd = open_disk() },
	};
	int fd = open_owned();

	EXPECT_EQ(ctl(fd, VHOST_BLK_SET_BACKEND, &l), 0);
	l.tail = 1;
	EXPECT_EQ(ctl(fd, VHOST_BLK_SET_BACKEND, &l), -E2BIG);
	l.b.size = 4;
	EXPECT_EQ(ctl(fd, VHOST_BLK_SET_BACKEND, &l), -EINVAL);
	l.b.size = 0;
	EXPECT_EQ(ctl(fd, VHOST_BLK_SET_BACKEND, &l), -EINVAL);
	EXPECT_EQ(ctl(fd, VHOST_BLK_SET_BACKEND, NULL), -EFAULT);
	close(fd);
}

/* What newer user space sends: its structures, and so its numbers, are larger. */
struct longer_info {
	struct vhost_blk_info i;
	u64 news[2];
};

struct longer_stats {
	struct vhost_blk_stats s;
	u64 news[2];
};

static void numbers_need_not_have_our_sizes(void)
{
	struct { struct vhost_blk_backend b; u64 news; } b = {
		.b = { .size = sizeof(b), .fd = open_disk() },
	};
	struct longer_stats s = { .s.size = sizeof(s), .news = { 1, 1 } };
	struct longer_info i = { .i.size = sizeof(i), .news = { 1, 1 } };
	u32 old_size = offsetof(struct vhost_blk_info, size_max);
	int fd = open_owned();

	EXPECT_EQ(ctl(fd, _IOW(VHOST_BLK_IOC, 0xD0, typeof(b)), &b), 0);
	EXPECT_EQ(ctl(fd, _IOWR(VHOST_BLK_IOC, 0xD1, typeof(i)), &i), 0);
	EXPECT_EQ(i.i.size, sizeof(i.i));
	EXPECT_EQ(i.news[0] | i.news[1], 0);
	EXPECT_EQ(ctl(fd, _IOWR(VHOST_BLK_IOC, 0xD3, typeof(s)), &s), 0);
	EXPECT_EQ(s.s.size, sizeof(s.s));
	EXPECT_EQ(s.news[0] | s.news[1], 0);

	/* And older user space has less room. */
	memset(&i, 0x5a, sizeof(i));
	i.i.size = old_size;
	EXPECT_EQ(ctl(fd, VHOST_BLK_GET_INFO, &i), 0);
	EXPECT_EQ(i.i.size, old_size);
	EXPECT_EQ(i.i.size_max, 0x5a5a5a5a);
	close(fd);
}

/* The backend's pages may be pinned in its owner, and a VMM connects to the next pvio anyway. */
static void a_disk_is_not_handed_over(void)
{
	int fd = open_owned(), disk = open_disk();
	struct vhost_blk_info info;

	EXPECT_EQ(vblk_set_backend(fd, disk, 0, VHOST_BLK_ENGINE_AUTO), 0);
	EXPECT_EQ(ctl(fd, VHOST_SERVE_HAND_OVER, NULL), -EOPNOTSUPP);
	EXPECT_EQ(vblk_info(fd, &info), 0);
	EXPECT(info.capacity != 0);
	close(disk);
	close(fd);
}

/* However little there is in them. */
static void structures_are_no_longer_than_a_page(void)
{
	static const unsigned long cmds[] = {
		VHOST_BLK_SET_BACKEND, VHOST_SERVE_SET_VRING,
		VHOST_BLK_SET_CACHE, VHOST_BLK_GET_INFO, VHOST_BLK_GET_STATS
	};
	static const u32 sizes[] = { 4097, 8192, ~0U };
	struct longer_backend l = { .b.fd = -1 };
	int fd = open_owned(), disk = open_disk();
	unsigned int i, j;

	EXPECT_EQ(vblk_set_backend(fd, disk, 0, VHOST_BLK_ENGINE_AUTO), 0);
	for (i = 0; i < KTAP_COUNT(cmds); i++) {
		for (j = 0; j < KTAP_COUNT(sizes); j++) {
			memset(&l, 0, sizeof(l));
			l.b.size = sizes[j];
			EXPECT_EQ(ctl(fd, cmds[i], &l), -E2BIG);
		}
	}
	close(fd);
}

static void unknown_bits_are_refused(void)
{
	struct vhost_blk_backend b = { .size = sizeof(b), .fd = open_disk() };
	struct vhost_blk_cache c = { .size = sizeof(c), .writeback = 2 };
	u64 features = 1ULL << 63;
	int fd = open_owned();

	b.flags = 1U << 31;
	EXPECT_EQ(ctl(fd, VHOST_BLK_SET_BACKEND, &b), -EINVAL);
	b.flags = 0;
	b.engine = 77;
	EXPECT_EQ(ctl(fd, VHOST_BLK_SET_BACKEND, &b), -EINVAL);
	b.engine = 0;
	b.pad = 1;
	EXPECT_EQ(ctl(fd, VHOST_BLK_SET_BACKEND, &b), -EINVAL);
	b.pad = 0;
	EXPECT_EQ(ctl(fd, VHOST_BLK_SET_BACKEND, &b), 0);
	EXPECT_EQ(ctl(fd, VHOST_BLK_SET_CACHE, &c), -EINVAL);
	EXPECT_EQ(ctl(fd, VHOST_SET_FEATURES, &features), -EOPNOTSUPP);
	close(fd);
}

static int backend_of(int fd, int backend)
{
	return vblk_set_backend(fd, backend, 0, VHOST_BLK_ENGINE_AUTO);
}

static void only_disks_and_files_are_backends(void)
{
	int fd = open_owned(), null = open("/dev/null", O_RDWR);
	int dir = open("/", O_RDONLY | O_DIRECTORY), pipes[2];

	EXPECT(!pipe(pipes));
	EXPECT(backend_of(fd, null) < 0);
	EXPECT(backend_of(fd, dir) < 0);
	EXPECT(backend_of(fd, pipes[0]) < 0);
	EXPECT(backend_of(fd, fd) < 0);
	EXPECT_EQ(backend_of(fd, 9999), -EBADF);
	EXPECT_EQ(backend_of(fd, -2), -EBADF);
	close(fd);
}

static void an_engine_that_cannot_serve_is_refused(void)
{
	int fd = open_owned(), image = open(file_create(4), O_RDWR);

	EXPECT_EQ(vblk_set_backend(fd, image, 0, VHOST_BLK_ENGINE_MQ),
		  -EOPNOTSUPP);
	EXPECT_EQ(vblk_set_backend(fd, image, 0, VHOST_BLK_ENGINE_BIO),
		  -EOPNOTSUPP);
	EXPECT_EQ(vblk_set_backend(fd, image, 0, VHOST_BLK_ENGINE_FILE), 0);
	close(fd);
}

static void start_needs_all_that_comes_before(void)
{
	int fd = open_owned(), disk = open_disk();
	struct ring_mem mem;
	struct ring r;
	int poller;

	EXPECT(!ring_mem_init(&mem, 1 << 20));
	EXPECT(!ring_init(&r, &mem, 0, 64, 0));
	EXPECT(vblk_start(fd, 0) < 0);
	EXPECT_EQ(backend_of(fd, disk), 0);
	EXPECT(vblk_start(fd, 0) < 0);
	EXPECT_EQ(vblk_set_features(fd, FEATURE(VIRTIO_F_VERSION_1)), 0);
	EXPECT_EQ(vblk_set_mem(fd, &mem), 0);
	EXPECT(vblk_start(fd, 0) < 0);
	EXPECT_EQ(vblk_set_ring(fd, &r, 0), 0);
	EXPECT(vblk_start(fd, 0) < 0);
	poller = poller_open(last_cpu(), VHOST_POLL_MODE_EVENT, "api");
	EXPECT(poller >= 0);
	EXPECT_EQ(vblk_set_vring(fd, 0, poller, VHOST_BLK_HCTX_AUTO, 0), 0);
	EXPECT_EQ(vblk_start(fd, 0), 0);
	EXPECT_EQ(vblk_start(fd, 0), -EBUSY);
	EXPECT_EQ(vblk_stop(fd, 0), 0);
	EXPECT_EQ(vblk_start(fd, 0), 0);
	close(fd);
	close(poller);
}

static void indices_are_checked(void)
{
	static const unsigned int bad[] = {
		VHOST_SERVE_MAX_VRINGS, 65535, 0x7fffffff, 0xffffffff
	};
	struct vhost_blk_stats st;
	unsigned int i;
	struct rig g;

	backend_need_modules();
	rig_open(&g, nullb_create(&(struct nullb){ .name = "api" }), NULL);
	for (i = 0; i < KTAP_COUNT(bad); i++) {
		EXPECT(vblk_start(g.dev.fd, bad[i]) < 0);
		EXPECT(vblk_stop(g.dev.fd, bad[i]) < 0);
		EXPECT(vblk_stats(g.dev.fd, bad[i], &st) < 0);
		EXPECT(vblk_set_vring(g.dev.fd, bad[i], g.poller[0],
				      VHOST_BLK_HCTX_AUTO, 0) < 0);
	}
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void vrings_want_a_poller_a_context_and_a_weight_that_exist(void)
{
	struct rig g;
	int null = open("/dev/null", O_RDWR);
	int unbound = open("/dev/vhost-poll", O_RDWR);

	backend_need_modules();
	rig_open(&g, nullb_create(&(struct nullb){ .name = "api" }),
		 &(struct rig_opts){ .stopped = true });
	EXPECT_EQ(vblk_set_ring(g.dev.fd, &g.ring[0], 0), 0);
	EXPECT(vblk_set_vring(g.dev.fd, 0, -1, VHOST_BLK_HCTX_AUTO, 0) < 0);
	EXPECT(vblk_set_vring(g.dev.fd, 0, null, VHOST_BLK_HCTX_AUTO, 0) < 0);
	EXPECT(vblk_set_vring(g.dev.fd, 0, g.dev.fd, VHOST_BLK_HCTX_AUTO,
			      0) < 0);
	EXPECT(vblk_set_vring(g.dev.fd, 0, unbound, VHOST_BLK_HCTX_AUTO,
			      0) < 0);
	EXPECT(vblk_set_vring(g.dev.fd, 0, g.poller[0], 1000, 0) < 0);
	EXPECT(vblk_set_vring(g.dev.fd, 0, g.poller[0], VHOST_BLK_HCTX_AUTO,
			      1001) < 0);
	EXPECT_EQ(vblk_set_vring(g.dev.fd, 0, g.poller[0],
				 VHOST_BLK_HCTX_AUTO, 1000), 0);
	EXPECT_EQ(vblk_start(g.dev.fd, 0), 0);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void info_tells_what_the_backend_is(void)
{
	struct vhost_blk_info info;
	struct rig g;

	backend_need_modules();
	rig_open(&g, nullb_create(&(struct nullb){
			.name = "api", .size_mb = 8, .blocksize = 4096,
			.discard = true, .queues = 1,
		 }), NULL);
	rig_info(&g, &info);
	EXPECT_EQ(info.capacity, 8 * 2048);
	EXPECT_EQ(info.blk_size, 4096);
	EXPECT_EQ(info.engine, VHOST_BLK_ENGINE_MQ);
	EXPECT_EQ(info.nr_hctx, 1);
	EXPECT(info.seg_max >= 1);
	EXPECT(info.features & FEATURE(VIRTIO_BLK_F_MQ));
	EXPECT(info.features & FEATURE(VIRTIO_F_VERSION_1));
	EXPECT(!(info.features & FEATURE(VIRTIO_F_RING_PACKED)));
	EXPECT(!(info.features & FEATURE(VIRTIO_BLK_F_RO)));
	EXPECT_EQ(info.features & g.dev.offered, g.dev.offered &
		  ~FEATURE(26));
	/* sectors smaller than the device's blocks do not exist */
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_IN, 1, g.data, 4096),
		  VIRTIO_BLK_S_IOERR);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_IN, 0, g.data, 512),
		  VIRTIO_BLK_S_IOERR);
	rig_check_works(&g, 0, 8);
	rig_close(&g);
}

static void serve_until_told(const char *disk, int in, int out)
{
	struct rig g;
	char c;

	rig_open(&g, disk, &(struct rig_opts){ .first_cpu = true });
	rig_check_works(&g, 0, 0);
	EXPECT(write(out, "x", 1) == 1);
	EXPECT(read(in, &c, 1) == 1);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
	_exit(0);
}

static void two_processes_serve_two_devices(void)
{
	int up[2], down[2], status;
	const char *one, *two;
	struct rig g;
	pid_t pid;
	char c;

	backend_need_modules();
	one = nullb_create(&(struct nullb){ .name = "one" });
	two = nullb_create(&(struct nullb){ .name = "two" });
	EXPECT(!pipe(up) && !pipe(down));
	pid = fork();
	if (!pid)
		serve_until_told(one, down[0], up[1]);
	EXPECT(read(up[0], &c, 1) == 1);
	rig_open(&g, two, NULL);
	rig_check_works(&g, 0, 0);
	EXPECT(write(down[1], "x", 1) == 1);
	EXPECT(waitpid(pid, &status, 0) == pid);
	EXPECT_EQ(status, 0);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void another_process_cannot_use_the_descriptor(void)
{
	struct rig g;
	int status;
	pid_t pid;

	backend_need_modules();
	rig_open(&g, nullb_create(&(struct nullb){ .name = "api" }), NULL);
	pid = fork();
	if (!pid)
		_exit(vblk_stop(g.dev.fd, 0) == -EPERM &&
		      vblk_set_mem(g.dev.fd, &g.mem) == -EPERM ? 0 : 1);
	EXPECT(waitpid(pid, &status, 0) == pid);
	EXPECT_EQ(status, 0);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

/* Root may lock as much as it likes, unless it gives that up. */
static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct caps[2];

	EXPECT(!syscall(SYS_capget, &head, caps));
	caps[0].effective &= ~(1U << CAP_IPC_LOCK);
	EXPECT(!syscall(SYS_capset, &head, caps));
}

static void pinned_memory_is_limited_as_locked_memory_is(void)
{
	struct rig_opts o = { .flags = VHOST_BLK_BACKEND_PINNED };
	struct rlimit few = { 1 << 20, 1 << 20 };
	const char *disk;
	struct rig g;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "lock" });
	EXPECT(!setrlimit(RLIMIT_MEMLOCK, &few));
	rig_open(&g, disk, &o);
	rig_close(&g);
	drop_ipc_lock();
	EXPECT_EQ(rig_try(&g, disk, &o), -ENOMEM);
	/* and what is not pinned is not limited */
	o.flags = 0;
	rig_open(&g, disk, &o);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static long locked_kb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long kb = -1;

	EXPECT(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "VmLck:", 6))
			kb = strtol(line + 6, NULL, 10);
	fclose(f);
	return kb;
}

/* A VMM sets the table again whenever something is plugged. */
static void another_table_needs_no_room_for_both(void)
{
	struct rig_opts o = { .flags = VHOST_BLK_BACKEND_PINNED };
	struct rlimit lim;
	struct ring_mem part;
	const char *disk;
	struct rig g;
	long locked;
	int i;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "lock" });
	rig_open(&g, disk, &o);
	locked = locked_kb();
	EXPECT(locked >= (long)(g.mem.size >> 10));
	lim.rlim_cur = locked << 10;
	lim.rlim_max = lim.rlim_cur;
	EXPECT(!setrlimit(RLIMIT_MEMLOCK, &lim));
	drop_ipc_lock();
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(vblk_set_mem(g.dev.fd, &g.mem), 0);
		EXPECT_EQ(locked_kb(), locked);
		rig_check_works(&g, 0, 0);
	}
	/* less is given back, and may be had again */
	part = g.mem;
	part.size /= 2;
	EXPECT_EQ(vblk_set_mem(g.dev.fd, &part), 0);
	EXPECT_EQ(locked_kb(), locked / 2);
	EXPECT_EQ(vblk_set_mem(g.dev.fd, &g.mem), 0);
	EXPECT_EQ(locked_kb(), locked);
	rig_check_works(&g, 0, 0);
	vdev_close(&g.dev);
	EXPECT_EQ(locked_kb(), 0);
	rig_close(&g);
}

/* There is no such memory, and that is all that is wrong with it. */
static void a_region_of_more_than_a_terabyte_can_be_pinned(void)
{
	struct rig_opts o = { .flags = VHOST_BLK_BACKEND_PINNED };
	struct ring_mem huge;
	const char *disk;
	struct rig g;

	if (!ktap_full())
		ktap_skip("FULL=1 runs it: its table takes 2 GiB");
	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "huge" });
	rig_open(&g, disk, &o);
	huge = g.mem;
	huge.size = (1UL << 40) + 4096;
	huge.base = mmap(NULL, huge.size, PROT_NONE, MAP_PRIVATE |
			 MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	EXPECT(huge.base != MAP_FAILED);
	EXPECT_EQ(vblk_set_mem(g.dev.fd, &huge), -EFAULT);
	rig_close(&g);
}

static void a_disk_without_a_cache_wants_no_flushes(void)
{
	u64 cache = FEATURE(VIRTIO_BLK_F_FLUSH) |
		    FEATURE(VIRTIO_BLK_F_CONFIG_WCE);
	const char *disk;
	struct rig g;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "wt" });
	rig_open(&g, disk, NULL);
	EXPECT_EQ(g.dev.offered & cache, 0);
	rig_check_works(&g, 0, 0);
	/* one that had it from another backend may keep it */
	vblk_stop(g.dev.fd, 0);
	EXPECT_EQ(vblk_set_features(g.dev.fd, g.dev.features | cache), 0);
	rig_close(&g);

	disk = nullb_create(&(struct nullb){ .name = "wb", .cache_mb = 4 });
	rig_open(&g, disk, NULL);
	EXPECT_EQ(g.dev.offered & cache, cache);
	rig_close(&g);
	rig_open(&g, file_create(8), NULL);
	EXPECT_EQ(g.dev.offered & cache, cache);
	rig_close(&g);
}

/* A guest that discarded before its disk lost that: see vserve_ops.tolerated. */
static void a_disk_that_cannot_discard_says_so(void)
{
	struct virtio_blk_discard_write_zeroes range = { .num_sectors = 8 };
	u64 lost = FEATURE(VIRTIO_BLK_F_DISCARD) |
		   FEATURE(VIRTIO_BLK_F_WRITE_ZEROES);
	const char *disk;
	struct rig g;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "lost" });
	rig_open(&g, disk, NULL);
	EXPECT_EQ(g.dev.offered & FEATURE(VIRTIO_BLK_F_DISCARD), 0);
	vblk_stop(g.dev.fd, 0);
	EXPECT_EQ(vblk_set_features(g.dev.fd, g.dev.features | lost), 0);
	EXPECT_EQ(vblk_start(g.dev.fd, 0), 0);
	memcpy(g.data, &range, sizeof(range));
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_DISCARD, 0, g.data, sizeof(range)),
		  VIRTIO_BLK_S_UNSUPP);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void a_file_discards_by_its_blocks(void)
{
	struct vhost_blk_info info;
	const char *file;
	struct stat st;
	struct rig g;

	backend_need_modules();
	file = file_create(8);
	EXPECT(!stat(file, &st));
	rig_open(&g, file, NULL);
	rig_info(&g, &info);
	EXPECT_EQ(info.discard_sector_alignment * 512, st.st_blksize);
	EXPECT_EQ(info.blk_size, 512);
	rig_close(&g);
}

/* On a stripe of 256 KiB, 4 KiB off: 504 blocks, which no byte can tell. */
static void an_offset_that_does_not_fit_is_not_cut_off(void)
{
	const char *below, *stripes, *disk;
	struct vhost_blk_info info;
	struct rig g;

	backend_need_modules();
	below = nullb_create(&(struct nullb){ .name = "align" });
	stripes = dm_linear_create("stripes", below, 65536);
	dm_replace("stripes", "striped 1 512", below, 65536, "");
	disk = dm_linear_create("off", stripes, 32768);
	rig_open(&g, disk, NULL);
	rig_info(&g, &info);
	EXPECT_EQ(info.physical_block_exp, 0);
	EXPECT_EQ(info.alignment_offset, 0);
	rig_close(&g);
}

static void a_running_vring_cannot_be_rearranged(void)
{
	struct vhost_vring_state s = { .index = 0, .num = 128 };
	struct rig g;

	backend_need_modules();
	rig_open(&g, nullb_create(&(struct nullb){ .name = "api" }), NULL);
	EXPECT(ctl(g.dev.fd, VHOST_SET_VRING_NUM, &s) < 0);
	s.num = 7;
	EXPECT(ctl(g.dev.fd, VHOST_SET_VRING_BASE, &s) < 0);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(only_root_may_open_it),
		TEST(to_open_it_makes_no_thread),
		TEST(nothing_works_before_set_owner),
		TEST(unknown_ioctls_are_refused),
		TEST(structures_grow_as_in_openat2),
		TEST(numbers_need_not_have_our_sizes),
		TEST(a_disk_is_not_handed_over),
		TEST(structures_are_no_longer_than_a_page),
		TEST(unknown_bits_are_refused),
		TEST(only_disks_and_files_are_backends),
		TEST(an_engine_that_cannot_serve_is_refused),
		TEST(start_needs_all_that_comes_before),
		TEST(indices_are_checked),
		TEST(vrings_want_a_poller_a_context_and_a_weight_that_exist),
		TEST(info_tells_what_the_backend_is),
		TEST(two_processes_serve_two_devices),
		TEST(another_process_cannot_use_the_descriptor),
		TEST(pinned_memory_is_limited_as_locked_memory_is),
		TEST(another_table_needs_no_room_for_both),
		TEST(a_region_of_more_than_a_terabyte_can_be_pinned),
		TEST(a_disk_without_a_cache_wants_no_flushes),
		TEST(a_disk_that_cannot_discard_says_so),
		TEST(a_file_discards_by_its_blocks),
		TEST(an_offset_that_does_not_fit_is_not_cut_off),
		TEST(a_running_vring_cannot_be_rearranged),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests),
			 backend_cleanup);
}
