/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/vhost-blk: a virtio-blk device served by the kernel.  The base vhost
 * ioctls (linux/vhost.h: owner, features, memory table, vrings, kick and call
 * descriptors) apply as everywhere, and those of linux/vhost_serve.h for vrings;
 * these add the backend and what can be read back.
 *
 * The order is: VHOST_SET_OWNER, VHOST_BLK_SET_BACKEND, VHOST_SET_FEATURES,
 * VHOST_SET_MEM_TABLE, for each vring its base ioctls and
 * VHOST_SERVE_SET_VRING, then VHOST_SERVE_START / VHOST_SERVE_STOP for each vring,
 * see linux/vhost_serve.h.
 *
 * Structures carry their size as in linux/vhost_poll.h.
 */
#ifndef _UAPI_LINUX_VHOST_BLK_H
#define _UAPI_LINUX_VHOST_BLK_H

#include <linux/ioctl.h>
#include <linux/types.h>
#include <linux/vhost_serve.h>

#define VHOST_BLK_IOC	0xAF	/* VHOST_VIRTIO; 0xD0 to 0xDF are ours */

#define VHOST_BLK_SERIAL_LEN	20
#define VHOST_BLK_HCTX_AUTO	VHOST_SERVE_TARGET_AUTO

enum vhost_blk_engine {
	VHOST_BLK_ENGINE_AUTO	= 0,
	VHOST_BLK_ENGINE_MQ	= 1,	/* straight onto a hardware context */
	VHOST_BLK_ENGINE_BIO	= 2,	/* submit_bio() */
	VHOST_BLK_ENGINE_FILE	= 3,	/* a file's own read and write */
};

/* VHOST_BLK_SET_BACKEND flags */
#define VHOST_BLK_BACKEND_READ_ONLY		(1U << 0)
/* mq even if the backend has an I/O scheduler; needs CAP_SYS_ADMIN */
#define VHOST_BLK_BACKEND_BYPASS_SCHEDULER	(1U << 1)
/* do not use the backend's poll queues */
#define VHOST_BLK_BACKEND_NO_POLL_QUEUES	(1U << 2)
/* pin guest memory when the table is set, accounted to RLIMIT_MEMLOCK */
#define VHOST_BLK_BACKEND_PINNED		(1U << 3)
/* the guest frees no blocks: no discards, and write-zeroes keeps what it zeroes allocated */
#define VHOST_BLK_BACKEND_NO_DISCARD		(1U << 4)

/**
 * struct vhost_blk_backend - VHOST_BLK_SET_BACKEND
 * @size: sizeof(struct vhost_blk_backend)
 * @flags: VHOST_BLK_BACKEND_*
 * @fd: an open block device or regular file; -1 takes the backend away
 *	(requests end in IOERR until there is another)
 * @engine: enum vhost_blk_engine; a choice the backend cannot serve is
 *	-EOPNOTSUPP
 * @serial: answer to GET_ID, padded with zeroes
 * @pad: 0
 *
 * Fails with -EBUSY while a vring runs: from VHOST_SERVE_START until a stop of it has
 * succeeded, because one that failed with -ETIMEDOUT left requests with the backend.  What
 * fails changes nothing.
 *
 * It flushes nothing.  What the guest wrote and did not flush may still be in a cache of the
 * old backend, and later flushes of the guest go to the new one.  So an owner whose guest
 * goes on calls fsync() on the old descriptor between the stop and this.
 */
struct vhost_blk_backend {
	__u32	size;
	__u32	flags;
	__s32	fd;
	__u32	engine;
	__u8	serial[VHOST_BLK_SERIAL_LEN];
	__u32	pad;
};

/*
 * struct vhost_blk_info - VHOST_BLK_GET_INFO: what the backend is and allows
 * @size: in: room; out: what the kernel filled
 * @flags: VHOST_BLK_BACKEND_* in force
 * @engine: enum vhost_blk_engine that was chosen
 * @nr_hctx: hardware contexts a vring can be matched to (0: none to choose)
 * @nr_poll_hctx: of those, how many are polled
 * @free_choice: 1 if any poller can submit to any context (patched kernel)
 * @features: virtio features this backend allows
 * @capacity: in 512-byte sectors
 * The rest is as in struct virtio_blk_config.
 */
struct vhost_blk_info {
	__u32	size;
	__u32	flags;
	__u32	engine;
	__u32	nr_hctx;
	__u32	nr_poll_hctx;
	__u32	free_choice;
	__u64	features;
	__u64	capacity;
	__u32	size_max;
	__u32	seg_max;
	__u32	blk_size;
	__u8	physical_block_exp;
	__u8	alignment_offset;
	__u16	min_io_size;
	__u32	opt_io_size;
	__u32	max_discard_sectors;
	__u32	max_discard_seg;
	__u32	discard_sector_alignment;
	__u32	max_write_zeroes_sectors;
	__u32	max_write_zeroes_seg;
	__u8	write_zeroes_may_unmap;
	__u8	pad[7];
};

/**
 * struct vhost_blk_cache - VHOST_BLK_SET_CACHE
 * @size: sizeof(struct vhost_blk_cache)
 * @writeback: 1: a write is done when the backend says so, the guest flushes;
 *	0: a write is done when it is on the medium
 */
struct vhost_blk_cache {
	__u32	size;
	__u32	writeback;
};

/*
 * struct vhost_blk_stats - VHOST_BLK_GET_STATS: counters of one vring
 * @size: in: room; out: what the kernel filled
 * @index: the vring
 * @hctx: where it submits now, VHOST_BLK_HCTX_AUTO where that has no meaning
 * @engine: enum vhost_blk_engine in use
 * @poller_cpu: CPU of its poller, ~0 if it has none
 * @inflight: with the backend or a worker now
 * @reads: @writes, @flushes, @discards, @write_zeroes, @get_ids: requests
 * @unsupp: answered UNSUPP
 * @errors: answered IOERR
 * @malformed: chains with no place for a status, and rings that make no sense
 * @read_bytes: and @write_bytes: data moved
 * @merged: requests that went along with a neighbour's command
 * @commands: commands given to the backend
 * @punted: requests a worker finished because the poller would have slept
 * @kicks: notifications received
 * @calls: interrupts asked for
 * @latency: of requests, from taken to done; bucket i counts those of
 *	[2^i, 2^(i+1)) ns, the last one all that took longer, too
 * @hot: requests that the poller's thread began after its round, whether they slept or
 *	not; one that a worker had to finish (a read of what is not cached) counts in
 *	@punted, too
 *
 * Not a snapshot: while the vring is served, they may be of different moments.
 */
struct vhost_blk_stats {
	__u32	size;
	__u32	index;
	__u32	hctx;
	__u32	engine;
	__u32	poller_cpu;
	__u32	inflight;
	__u64	reads;
	__u64	writes;
	__u64	flushes;
	__u64	discards;
	__u64	write_zeroes;
	__u64	get_ids;
	__u64	unsupp;
	__u64	errors;
	__u64	malformed;
	__u64	read_bytes;
	__u64	write_bytes;
	__u64	merged;
	__u64	commands;
	__u64	punted;
	__u64	kicks;
	__u64	calls;
	__u64	latency[VHOST_SERVE_HIST_BUCKETS];
	__u64	hot;
};

#define VHOST_BLK_SET_BACKEND	_IOW(VHOST_BLK_IOC, 0xD0, struct vhost_blk_backend)
#define VHOST_BLK_GET_INFO	_IOWR(VHOST_BLK_IOC, 0xD1, struct vhost_blk_info)
#define VHOST_BLK_SET_CACHE	_IOW(VHOST_BLK_IOC, 0xD2, struct vhost_blk_cache)
#define VHOST_BLK_GET_STATS	_IOWR(VHOST_BLK_IOC, 0xD3, struct vhost_blk_stats)

#endif /* _UAPI_LINUX_VHOST_BLK_H */
