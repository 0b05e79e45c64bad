/* SPDX-License-Identifier: GPL-2.0 */
/* The parts of ringload share the options. */
#ifndef VHOST_BLK_RINGLOAD_H
#define VHOST_BLK_RINGLOAD_H

#include <stdbool.h>

#include "measure.h"

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
	bool high_data;
	const char *watch[LOAD_MAX_WATCH];
	unsigned int nwatch;
};

/* Returns 0, or an exit status having said why. */
int load_parse(struct load_opts *o, int argc, char **argv);

#endif /* VHOST_BLK_RINGLOAD_H */
