/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/vhost-blk: a virtio-blk device that the kernel serves.  It has the base vhost
 * ioctls (linux/vhost.h: owner, features, memory table, vrings, kick and call
 * descriptors), and those of linux/vhost_serve.h for vrings.  The ioctls here set the
 * backend (the disk or file), and read its properties and the counters.
 *
 * A program calls VHOST_SET_OWNER, VHOST_BLK_SET_BACKEND, VHOST_SET_FEATURES and
 * VHOST_SET_MEM_TABLE, in this order.  For each vring it then calls the base ioctls and
 * VHOST_SERVE_SET_VRING, and VHOST_SERVE_START and VHOST_SERVE_STOP: see
 * linux/vhost_serve.h.
 *
 * Each structure begins with its size: see linux/vhost_poll.h.
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
	VHOST_BLK_ENGINE_MQ	= 1,	/* commands to the disk's hardware contexts */
	VHOST_BLK_ENGINE_BIO	= 2,	/* submit_bio() */
	VHOST_BLK_ENGINE_FILE	= 3,	/* reads and writes of the file, as by a program */
};

/* VHOST_BLK_SET_BACKEND flags */
#define VHOST_BLK_BACKEND_READ_ONLY		(1U << 0)
/* use the mq engine even if the disk has an I/O scheduler; needs CAP_SYS_ADMIN */
#define VHOST_BLK_BACKEND_BYPASS_SCHEDULER	(1U << 1)
/* do not use the disk's poll queues */
#define VHOST_BLK_BACKEND_NO_POLL_QUEUES	(1U << 2)
/* pin guest memory when the owner sets the memory table; accounted to RLIMIT_MEMLOCK */
#define VHOST_BLK_BACKEND_PINNED		(1U << 3)
/* the guest cannot free blocks: no discards, and write-zeroes keeps the blocks allocated */
#define VHOST_BLK_BACKEND_NO_DISCARD		(1U << 4)

/**
 * struct vhost_blk_backend - VHOST_BLK_SET_BACKEND: set the disk or file
 * @size: sizeof(struct vhost_blk_backend)
 * @flags: VHOST_BLK_BACKEND_*
 * @fd: an open block device or regular file; -1 takes the backend away (requests end in
 *	IOERR until the owner sets another one)
 * @engine: enum vhost_blk_engine; the call fails with -EOPNOTSUPP if the backend does not
 *	allow this engine
 * @serial: the answer to GET_ID, padded with zeroes
 * @pad: 0
 *
 * The call fails with -EBUSY while a vring runs: from VHOST_SERVE_START until a stop of the
 * vring has succeeded.  A stop that failed does not count, because the backend may still have
 * requests.  A call that fails changes nothing.
 *
 * The call flushes nothing.  Data that the guest wrote and did not flush may still be in a
 * cache of the old backend, and later flushes of the guest go to the new one.  If the guest
 * goes on, the owner therefore calls fsync() on the old descriptor between the stop and this
 * call.
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
 * struct vhost_blk_info - VHOST_BLK_GET_INFO: read the properties of the backend
 * @size: in: the room for the structure; out: how many bytes the kernel filled
 * @flags: VHOST_BLK_BACKEND_* in force
 * @engine: the enum vhost_blk_engine that was chosen
 * @nr_hctx: hardware contexts that VHOST_SERVE_SET_VRING can name as @target; 0: none
 * @nr_poll_hctx: of @nr_hctx, those that are polled
 * @free_choice: 1 if any poller can submit to any context (patched kernel)
 * @features: virtio features that can be negotiated with this backend
 * @capacity: in 512-byte sectors
 * The other fields are as in struct virtio_blk_config.
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
 * struct vhost_blk_cache - VHOST_BLK_SET_CACHE: set the guest's write cache mode
 * @size: sizeof(struct vhost_blk_cache)
 * @writeback: 1: a write is done when the backend has done it, and the guest flushes;
 *	0: a write is done when it is on the medium
 */
struct vhost_blk_cache {
	__u32	size;
	__u32	writeback;
};

/*
 * struct vhost_blk_stats - VHOST_BLK_GET_STATS: read the counters of one vring
 * @size: in: the room for the structure; out: how many bytes the kernel filled
 * @index: the vring
 * @hctx: the hardware context that the last request went to; VHOST_BLK_HCTX_AUTO: no
 *	request went to one yet, or the engine has none
 * @engine: the enum vhost_blk_engine in use
 * @poller_cpu: @inflight: @malformed: @kicks: @calls: @latency: @hot: as in struct
 *	vhost_serve_stats
 * @reads: @writes: @flushes: @discards: @write_zeroes: @get_ids: requests by type
 * @unsupp: requests answered with UNSUPP
 * @errors: requests answered with IOERR
 * @read_bytes: @write_bytes: bytes of data moved
 * @merged: requests that were merged into the command of a neighbour
 * @commands: commands that went to the backend
 * @punted: requests that a worker finished because the poller would have slept
 *
 * The kernel reads the counters one by one, so while the vring is served, two of them may be
 * of different moments.
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
