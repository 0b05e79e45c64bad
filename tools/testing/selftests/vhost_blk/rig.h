/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A device under test, whole: a backend served by vhost_blk, its pollers, and
 * rings to play.  What goes wrong here fails the test.
 */
#ifndef VHOST_BLK_RIG_H
#define VHOST_BLK_RIG_H

#include "backend.h"
#include "device.h"
#include "ktap.h"
#include "ring.h"

#define RIG_MAX_QUEUES	8
#define RIG_DATA	(4UL << 20)
#define RIG_TIMEOUT_MS	30000
#define NO_STATUS	0xff

struct rig_opts {
	unsigned int queues;
	unsigned int ring_size;
	unsigned int mode;
	/* one poller for each queue, on the CPUs in turn */
	bool poller_each;
	/* the first poller on CPU 0 and not on the last */
	bool first_cpu;
	u32 flags;
	u32 engine;
	/* features left out */
	u64 without;
	/* another rig's poller, to be shared; 0 for one of its own */
	int share_poller;
	/* first index of the rings */
	u16 base;
	bool read_only_fd;
	/* for open() of the backend, besides */
	int open_flags;
	/* the backend, open, and not closed here; 0: open the path */
	int fd;
	/* of guest memory in two regions, see struct ring_mem */
	size_t split;
	u64 hole;
	/* guest memory is anonymous, and not shared */
	bool private_memory;
	/* set up, but do not start */
	bool stopped;
};

struct rig {
	struct ring_mem mem;
	struct vdev dev;
	unsigned int queues;
	struct ring ring[RIG_MAX_QUEUES];
	int poller[RIG_MAX_QUEUES];
	unsigned int npoll;
	/* room for data, and a header and a status for each request in flight */
	u8 *data;
	struct rig_req *req;
	unsigned int nreq;
};

/* One request; its header and status lie in guest memory. */
struct rig_req {
	struct virtio_blk_outhdr *hdr;
	u8 *status;
	u32 used_len;
	bool done;
};

/* @opts may be NULL: one queue of 256, a busy poller on the last CPU. */
void rig_open(struct rig *g, const char *path, const struct rig_opts *opts);
/* The same but returns what opening the device did. */
int rig_try(struct rig *g, const char *path, const struct rig_opts *opts);
void rig_close(struct rig *g);
void rig_info(struct rig *g, struct vhost_blk_info *info);
void rig_stats(struct rig *g, unsigned int queue, struct vhost_blk_stats *st);

u64 rig_malformed(struct rig *g, unsigned int queue);
/* Offer header, data (if @len) and status; not published. */
struct rig_req *rig_queue(struct rig *g, unsigned int queue, u32 type,
			  u64 sector, void *data, u32 len);
/* The same with a request's pieces as given. */
struct rig_req *rig_queue_segs(struct rig *g, unsigned int queue,
			       struct rig_req *req, const struct ring_seg *seg,
			       unsigned int n, bool indirect);
struct rig_req *rig_req_new(struct rig *g, u32 type, u64 sector);
void rig_kick(struct rig *g, unsigned int queue);
/* Until all that is in flight came back; fails the test if it does not. */
void rig_wait(struct rig *g, unsigned int queue);
unsigned int rig_reap(struct rig *g, unsigned int queue);

/* All of it: one request there and back, its status. */
u8 rig_io(struct rig *g, unsigned int queue, u32 type, u64 sector, void *data,
	  u32 len);

/* Writes and reads back something at @sector; fails the test if it differs. */
void rig_check_works(struct rig *g, unsigned int queue, u64 sector);

/* Bytes that tell where they belong. */
void rig_pattern(void *buf, size_t len, u64 seed);
bool rig_pattern_ok(const void *buf, size_t len, u64 seed);

unsigned int last_cpu(void);
void sleep_ms(unsigned int ms);

#endif /* VHOST_BLK_RIG_H */
