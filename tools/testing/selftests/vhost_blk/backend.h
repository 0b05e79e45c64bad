/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Block devices and files to serve in tests.  All are made for the test, under
 * names of their own, and taken away by backend_cleanup(): nothing that was
 * there before is written to.
 */
#ifndef VHOST_BLK_BACKEND_H
#define VHOST_BLK_BACKEND_H

#include <stdbool.h>
#include "ring.h"

struct nullb {
	const char *name;
	unsigned int size_mb;
	unsigned int queues;
	unsigned int poll_queues;
	/* 0 none, 1 softirq, 2 timer */
	unsigned int irqmode;
	u64 completion_nsec;
	unsigned int blocksize;
	bool no_memory;
	bool discard;
	/* a volatile write cache of that size */
	unsigned int cache_mb;
	/* requests that a queue has at a time, or 0: null_blk's default */
	unsigned int tags;
};

/* Loads the modules, or skips the test saying what is missing. */
void backend_need_modules(void);
void backend_need_root(void);

/* Each returns the device's path, in memory that stays; no return on failure. */
const char *nullb_create(const struct nullb *want);
/* Takes one away while it may be in use. */
void nullb_delete(const char *name);
/* Writes one of its configfs attributes; 0 or -errno. */
int nullb_set(const char *name, const char *attr, const char *value);
const char *loop_create(unsigned int size_mb);
int loop_detach(const char *path);
/* The file that a loop device is of. */
void loop_file(const char *path, char *file, size_t len);
/* The one that is said to be for tests: others hold somebody's data. */
const char *nvme_disk(void);
const char *brd_create(void);
const char *dm_linear_create(const char *name, const char *below,
			     u64 sectors);
/* Another table under a live device; @rest is of the target's arguments. */
void dm_replace(const char *name, const char *target, const char *below,
		u64 sectors, const char *rest);
/* Nothing that is sent to it is answered until dm_resume(). */
void dm_suspend(const char *name);
void dm_resume(const char *name);
const char *partition_create(const char *disk, u64 start, u64 sectors);
const char *file_create(unsigned int size_mb);
/* A file of 8 MiB on ext4, mounted at /run/vbt, on a disk. */
const char *ext4_on(const char *disk);
/* The same on a null_blk of blocks of a size. */
const char *ext4_file(const char *name, unsigned int blocksize);
void ext4_umount(void);
/* Thaws and unmounts it, if it is there; before backend_cleanup(). */
void ext4_cleanup(void);

void backend_cleanup(void);

/* O_DIRECT access beside the device under test. */
void backend_read(const char *path, u64 offset, void *buf, size_t len);
void backend_write(const char *path, u64 offset, const void *buf, size_t len);

int write_text(const char *path, const char *text);
/* How a command ended. */
int run_command(const char *fmt, ...) __printf(1, 2);

#endif /* VHOST_BLK_BACKEND_H */
