/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of ringload share: the options, and the measuring. */
#ifndef VHOST_BLK_RINGLOAD_H
#define VHOST_BLK_RINGLOAD_H

#include <stdbool.h>

#include "ring.h"

#define LOAD_MAX_CPUS	64
#define LOAD_MAX_WATCH	8

struct load_opts {
	const char *device;
	const char *socket;
	const char *op;
	const char *path;
	const char *mode_name;
	unsigned int mode;
	unsigned int engine;
	unsigned int backend_flags;
	unsigned int poll_cpu[LOAD_MAX_CPUS];
	unsigned int npoll;
	u32 hctx[LOAD_MAX_CPUS];
	unsigned int nhctx;
	int cpu;
	unsigned int depth;
	unsigned int queues;
	unsigned int ring_size;
	unsigned int bs;
	double secs;
	double warmup;
	double rate;
	u64 span;
	bool burst;
	bool poisson;
	bool write;
	bool sequential;
	bool wait_event;
	bool no_indirect;
	bool no_event_idx;
	bool buffered;
	const char *watch[LOAD_MAX_WATCH];
	unsigned int nwatch;
};

/* Returns 0, or an exit status having said why. */
int load_parse(struct load_opts *o, int argc, char **argv);

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

#endif /* VHOST_BLK_RINGLOAD_H */
