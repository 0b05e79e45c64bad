/* SPDX-License-Identifier: GPL-2.0 */
/* Load generators measure latencies with this, and the CPU time of other threads. */
#ifndef VHOST_BLK_MEASURE_H
#define VHOST_BLK_MEASURE_H

#include "ring.h"

/* Latencies in buckets of 1/32 of their power of two: within 3%. */
#define LAT_SUB_BITS	5
#define LAT_BUCKETS	((64 - LAT_SUB_BITS) << LAT_SUB_BITS)

struct latency {
	u64 bucket[LAT_BUCKETS];
	u64 count;
	u64 sum;
	u64 max;
};

void lat_add(struct latency *l, u64 ns);
double lat_percentile(const struct latency *l, double p);

u64 now_ns(void);

/* CPU time so far of all threads of @pid, ns; 0 if it is gone. */
u64 cpu_of_pid(int pid);
/* CPU time so far of all processes and kernel threads named like that. */
u64 cpu_of_name(const char *part);
/* Context switches so far of the same threads. */
u64 switches_of_pid(int pid);
u64 switches_of_name(const char *part);

#endif /* VHOST_BLK_MEASURE_H */
