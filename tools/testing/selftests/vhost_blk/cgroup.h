/* SPDX-License-Identifier: GPL-2.0 */
/* A cgroup (version 2) for the processes of one test. */
#ifndef VHOST_BLK_CGROUP_H
#define VHOST_BLK_CGROUP_H

#include <stdbool.h>

#include "ring.h"

/* Makes it, with the io and memory controllers, and moves this process there. */
void cgroup_enter(void);
/* Moves this process out again, and no thread of a device. */
void cgroup_leave(void);
/* Sets cpu.max; skips the test if it cannot. */
void cgroup_limit_cpu(const char *limit);
/* A number of cpu.stat. */
u64 cgroup_cpu(const char *key);
/* Is a thread in it? */
bool cgroup_has_thread(int thread);
unsigned int cgroup_threads(void);
/* Writes one of its files; 0 or -errno. */
int cgroup_set(const char *file, const char *value);
u64 cgroup_memory(void);
/* A number of a disk's line in io.stat, 0 where there is none. */
u64 cgroup_io(const char *disk, const char *key);
/* From outside; 0 or -errno, which is -EBUSY if a thread is in it. */
int cgroup_remove(void);
/* From outside, when its processes are gone. */
void cgroup_cleanup(void);
/* MAJOR:MINOR as the controllers want it, in a buffer that stays. */
const char *cgroup_disk(const char *disk);

#endif /* VHOST_BLK_CGROUP_H */
