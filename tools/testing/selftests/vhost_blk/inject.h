/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's fault injection, for tests.  It is there in debug kernels only. */
#ifndef VHOST_BLK_INJECT_H
#define VHOST_BLK_INJECT_H

#include <stdbool.h>

void inject_begin(void);
/* Skips the test if the kernel has no such fault. */
void fault_on(const char *fault, unsigned int percent, bool by_task);
/* Since it was turned on. */
unsigned int faults_hit(const char *fault);
void faults_off(void);
/* "1" or "0" for a task, which a fault "by task" hits then. */
void fail_task(const char *pid, const char *on);
/* The same for the threads whose name has both in it; how many there are. */
unsigned int fail_threads(const char *kind, const char *name, const char *on);

#endif
