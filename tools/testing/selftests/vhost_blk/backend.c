// SPDX-License-Identifier: GPL-2.0
/* Block devices and files to serve in tests; see backend.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <linux/blkpg.h>
#include <linux/loop.h>

#include "backend.h"
#include "ktap.h"
#include "module.h"

#define CONFIGFS	"/sys/kernel/config"
#define NULLB		CONFIGFS "/nullb"
#define SCRATCH		"/dev/shm/vhost-blk-test"
#define EXT4		"/run/vbt"
/* of everything that is made here */
#define PREFIX		"vbt"

int run_command(const char *fmt, ...)
{
	char cmd[1024];
	va_list ap;
	int ret;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	fflush(stdout);
	ret = system(cmd);
	return WIFEXITED(ret) ? WEXITSTATUS(ret) : 128;
}

int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

void backend_need_root(void)
{
	if (geteuid())
		ktap_skip("needs root");
}

void backend_need_modules(void)
{
	backend_need_root();
	if (!access("/dev/vhost-blk", F_OK))
		return;
	run_command("modprobe -q vhost 2>/dev/null");
	if (!module_loaded("vhost_poll"))
		load_module("vhost_poll");
	if (!module_loaded("vhost_serve"))
		load_module("vhost_serve");
	if (!module_loaded("vhost_blk"))
		load_module("vhost_blk");
	if (access("/dev/vhost-blk", F_OK))
		ktap_skip("vhost_blk is not loaded and cannot be: build it, or set PVIO_MODULES");
}

static int nullb_path(char *buf, size_t len, const char *name,
		      const char *attr)
{
	return snprintf(buf, len, NULLB "/" PREFIX "%s/%s", name, attr);
}

int nullb_set(const char *name, const char *attr, const char *value)
{
	char path[256];

	nullb_path(path, sizeof(path), name, attr);
	return write_text(path, value);
}

static void nullb_set_num(const char *name, const char *attr, u64 v)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
	EXPECT_EQ(nullb_set(name, attr, text), 0);
}

static void need_configfs(void)
{
	if (!module_loaded("null_blk") &&
	    run_command("modprobe null_blk nr_devices=0"))
		ktap_skip("no null_blk in this kernel");
	if (access(NULLB, F_OK))
		run_command("mount -t configfs none " CONFIGFS);
	if (access(NULLB, F_OK))
		ktap_skip("null_blk has no configfs here");
}

const char *nullb_create(const struct nullb *want)
{
	char *dev = malloc(64);
	char path[256];

	need_configfs();
	nullb_path(path, sizeof(path), want->name, "");
	EXPECT(!mkdir(path, 0700));
	nullb_set_num(want->name, "size", want->size_mb ? want->size_mb : 64);
	nullb_set_num(want->name, "memory_backed", !want->no_memory);
	nullb_set_num(want->name, "submit_queues",
		      want->queues ? want->queues : 1);
	nullb_set_num(want->name, "poll_queues", want->poll_queues);
	nullb_set_num(want->name, "irqmode", want->irqmode);
	nullb_set_num(want->name, "completion_nsec", want->completion_nsec);
	nullb_set_num(want->name, "blocksize",
		      want->blocksize ? want->blocksize : 512);
	if (want->tags)
		nullb_set_num(want->name, "hw_queue_depth", want->tags);
	if (want->cache_mb)
		nullb_set_num(want->name, "cache_size", want->cache_mb);
	if (want->discard)
		nullb_set_num(want->name, "discard", 1);
	nullb_set_num(want->name, "power", 1);
	snprintf(dev, 64, "/dev/" PREFIX "%s", want->name);
	EXPECT(!access(dev, F_OK));
	/* one with one queue has mq-deadline by default */
	snprintf(path, sizeof(path), "/sys/block/%s/queue/scheduler", dev + 5);
	EXPECT_EQ(write_text(path, "none"), 0);
	return dev;
}

void nullb_delete(const char *name)
{
	char path[256];

	nullb_path(path, sizeof(path), name, "");
	rmdir(path);
}

const char *file_create(unsigned int size_mb)
{
	static unsigned int count;
	char *path = malloc(96);
	int fd;

	mkdir(SCRATCH, 0700);
	snprintf(path, 96, SCRATCH "/%d-%u.img", getpid(), count++);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	EXPECT(fd >= 0);
	EXPECT(!ftruncate(fd, (off_t)size_mb << 20));
	close(fd);
	return path;
}

const char *ext4_on(const char *disk)
{
	const char *file = EXT4 "/disk.img";

	if (run_command("mkdir -p " EXT4 " 2>/dev/null") ||
	    run_command("mkfs.ext4 -q -F %s 2>/dev/null", disk) ||
	    run_command("mount %s " EXT4 " 2>/dev/null", disk))
		ktap_skip("no ext4 here");
	EXPECT(!run_command("truncate -s 8M %s", file));
	return file;
}

const char *ext4_file(const char *name, unsigned int blocksize)
{
	backend_need_modules();
	return ext4_on(nullb_create(&(struct nullb){
		.name = name, .size_mb = 64, .blocksize = blocksize }));
}

void ext4_umount(void)
{
	EXPECT(!run_command("umount " EXT4 " && rmdir " EXT4));
}

void ext4_cleanup(void)
{
	run_command("fsfreeze -u " EXT4 " 2>/dev/null; umount -q " EXT4 " 2>/dev/null; "
		    "rmdir " EXT4 " 2>/dev/null");
}

const char *loop_create(unsigned int size_mb)
{
	struct loop_config conf = { .info.lo_file_name = PREFIX };
	const char *file = file_create(size_mb);
	char *dev = malloc(32);
	int ctl, fd, n, image;

	run_command("modprobe -q loop");
	ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (ctl < 0)
		ktap_skip("no loop devices in this kernel");
	n = ioctl(ctl, LOOP_CTL_GET_FREE);
	EXPECT(n >= 0);
	close(ctl);
	snprintf(dev, 32, "/dev/loop%d", n);
	fd = open(dev, O_RDWR | O_CLOEXEC);
	EXPECT(fd >= 0);
	image = open(file, O_RDWR | O_CLOEXEC);
	EXPECT(image >= 0);
	conf.fd = image;
	EXPECT(!ioctl(fd, LOOP_CONFIGURE, &conf));
	close(image);
	close(fd);
	return dev;
}

int loop_detach(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (ioctl(fd, LOOP_CLR_FD))
		ret = -errno;
	close(fd);
	return ret;
}

void loop_file(const char *path, char *file, size_t len)
{
	char attr[64];
	FILE *f;

	snprintf(attr, sizeof(attr), "/sys/block/%s/loop/backing_file",
		 path + 5);
	f = fopen(attr, "r");
	EXPECT(f);
	EXPECT(fgets(file, len, f));
	fclose(f);
	file[strcspn(file, "\n")] = 0;
}

const char *nvme_disk(void)
{
	const char *disk = getenv("PVIO_TEST_NVME");

	backend_need_modules();
	if (!disk)
		ktap_skip("PVIO_TEST_NVME names no NVMe disk to overwrite");
	return disk;
}

const char *brd_create(void)
{
	/* one that is there may hold somebody's data */
	if (module_loaded("brd"))
		ktap_skip("brd is in use");
	if (run_command("modprobe -q brd rd_nr=1 rd_size=32768"))
		ktap_skip("no brd in this kernel");
	EXPECT(!access("/dev/ram0", F_OK));
	EXPECT(!mkdir(SCRATCH, 0700) || errno == EEXIST);
	run_command("touch " SCRATCH "/brd");
	return "/dev/ram0";
}

static void need_dm(void)
{
	if (run_command("command -v dmsetup >/dev/null && modprobe -q dm_mod"))
		ktap_skip("no device mapper, or no dmsetup");
}

static const char *dm_path(const char *name)
{
	char *dev = malloc(64);

	snprintf(dev, 64, "/dev/mapper/" PREFIX "%s", name);
	if (access(dev, F_OK))
		run_command("dmsetup mknodes " PREFIX "%s >/dev/null", name);
	EXPECT(!access(dev, F_OK));
	return dev;
}

const char *dm_linear_create(const char *name, const char *below, u64 sectors)
{
	need_dm();
	EXPECT(!run_command("dmsetup create --noudevrules --noudevsync " PREFIX
			    "%s --table '0 %llu linear %s 8'", name,
			    (unsigned long long)sectors, below));
	return dm_path(name);
}

void dm_replace(const char *name, const char *target, const char *below,
		u64 sectors, const char *rest)
{
	EXPECT(!run_command("dmsetup load " PREFIX "%s --table '0 %llu %s %s 8%s'",
			    name, (unsigned long long)sectors, target, below,
			    rest));
	EXPECT(!run_command("dmsetup resume --noudevrules --noudevsync " PREFIX
			    "%s", name));
}

void dm_suspend(const char *name)
{
	EXPECT(!run_command("dmsetup suspend --nolockfs --noflush --noudevrules --noudevsync "
			    PREFIX "%s", name));
}

void dm_resume(const char *name)
{
	EXPECT(!run_command("dmsetup resume --noudevrules --noudevsync " PREFIX "%s", name));
}

const char *partition_create(const char *disk, u64 start, u64 sectors)
{
	struct blkpg_partition part = {
		.start = start << 9, .length = sectors << 9, .pno = 1,
	};
	struct blkpg_ioctl_arg arg = {
		.op = BLKPG_ADD_PARTITION, .datalen = sizeof(part),
		.data = &part,
	};
	char last = disk[strlen(disk) - 1];
	int fd = open(disk, O_RDONLY | O_CLOEXEC);
	char *dev = malloc(64);

	EXPECT(fd >= 0);
	EXPECT(!ioctl(fd, BLKPG, &arg));
	close(fd);
	snprintf(dev, 64, "%s%s1", disk,
		 last >= '0' && last <= '9' ? "p" : "");
	EXPECT(!access(dev, F_OK));
	return dev;
}

static void cleanup_loops(void)
{
	char path[300], name[300];
	struct dirent *e;
	DIR *dir = opendir("/sys/block");
	FILE *f;

	while (dir && (e = readdir(dir))) {
		if (strncmp(e->d_name, "loop", 4))
			continue;
		snprintf(path, sizeof(path), "/sys/block/%s/loop/backing_file",
			 e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(name, sizeof(name), f) && strstr(name, SCRATCH)) {
			snprintf(path, sizeof(path), "/dev/%s", e->d_name);
			loop_detach(path);
		}
		fclose(f);
	}
	if (dir)
		closedir(dir);
}

static void cleanup_nullbs(void)
{
	char path[512];
	struct dirent *e;
	DIR *dir = opendir(NULLB);

	while (dir && (e = readdir(dir))) {
		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)))
			continue;
		snprintf(path, sizeof(path), NULLB "/%s", e->d_name);
		rmdir(path);
	}
	if (dir)
		closedir(dir);
}

void backend_cleanup(void)
{
	if (!run_command("ls /dev/mapper/" PREFIX "* >/dev/null 2>&1"))
		run_command("cd /dev/mapper && dmsetup remove --noudevrules --noudevsync "
			    PREFIX "* >/dev/null; rm -f " PREFIX "*");
	cleanup_loops();
	cleanup_nullbs();
	if (!access(SCRATCH "/brd", F_OK))
		run_command("rmmod brd");
	run_command("rm -rf " SCRATCH);
}

static void *aligned(size_t len)
{
	void *p = aligned_alloc(4096, (len + 4095) & ~4095UL);

	EXPECT(p);
	return p;
}

/* Past the page cache where the device can: it may not know of our writes. */
static int open_direct(const char *path, int flags)
{
	int fd = open(path, flags | O_DIRECT | O_CLOEXEC);

	return fd >= 0 ? fd : open(path, flags | O_CLOEXEC);
}

void backend_read(const char *path, u64 offset, void *buf, size_t len)
{
	int fd = open_direct(path, O_RDONLY);
	void *p = aligned(len);

	EXPECT(fd >= 0);
	EXPECT_EQ(pread(fd, p, len, offset), len);
	memcpy(buf, p, len);
	free(p);
	close(fd);
}

void backend_write(const char *path, u64 offset, const void *buf, size_t len)
{
	int fd = open_direct(path, O_RDWR);
	void *p = aligned(len);

	EXPECT(fd >= 0);
	memcpy(p, buf, len);
	EXPECT_EQ(pwrite(fd, p, len, offset), len);
	free(p);
	close(fd);
}
