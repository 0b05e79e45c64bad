/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Ioctls that all devices carried by vhost_serve have in common (/dev/vhost-blk,
 * /dev/vhost-fs): the poller of a vring, its start and stop, and the counters of
 * the ring itself.  The base vhost ioctls (linux/vhost.h) apply as well.
 *
 * Numbers.  All are of the type VHOST_VIRTIO (0xAF), beyond those of
 * linux/vhost.h:
 *
 *   0xB0 to 0xBF	shared by all devices, in this header
 *   0xC0 to 0xCF	/dev/vhost-fs, linux/vhost_fs.h
 *   0xD0 to 0xDF	/dev/vhost-blk, linux/vhost_blk.h
 *
 * A number in a device's range means nothing to another device.
 *
 * Structures carry their size as in linux/vhost_poll.h.
 */
#ifndef _UAPI_LINUX_VHOST_SERVE_H
#define _UAPI_LINUX_VHOST_SERVE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define VHOST_SERVE_IOC			0xAF	/* VHOST_VIRTIO */

#define VHOST_SERVE_MAX_VRINGS		64
#define VHOST_SERVE_TARGET_AUTO		(~0U)
#define VHOST_SERVE_HIST_BUCKETS	32

/**
 * struct vhost_serve_vring - VHOST_SERVE_SET_VRING: the poller of a vring
 * @size: sizeof(struct vhost_serve_vring)
 * @index: the vring
 * @poller_fd: a /dev/vhost-poll descriptor
 * @target: where the device submits to; for /dev/vhost-blk a hardware context.
 *	VHOST_SERVE_TARGET_AUTO leaves the choice to the device, and is the only
 *	value for devices that have no choice
 * @weight: share of the poller's round, 1 to 1000; 0 is the default 100
 * @pad: 0
 */
struct vhost_serve_vring {
	__u32	size;
	__u32	index;
	__s32	poller_fd;
	__u32	target;
	__u32	weight;
	__u32	pad;
};

/*
 * struct vhost_serve_stats - VHOST_SERVE_GET_STATS: counters of one vring
 * @size: in: room; out: what the kernel filled
 * @index: the vring
 * @poller_cpu: CPU of its poller, ~0 if it has none
 * @inflight: with the backend or a worker now
 * @requests: given back to the guest
 * @malformed: chains that make no sense, and rings that make none
 * @punted: requests that a worker carried out
 * @kicks: notifications received
 * @calls: interrupts asked for
 * @latency: of requests, from taken to given back; bucket i counts those of
 *	[2^i, 2^(i+1)) ns, the last one all that took longer, too
 * @hot: requests that the poller's thread began after its round, whether they slept or
 *	not; one that a worker had to finish (a read of what is not cached) counts in
 *	@punted, too
 *
 * Not a snapshot: while the vring is served, they may be of different moments.
 */
struct vhost_serve_stats {
	__u32	size;
	__u32	index;
	__u32	poller_cpu;
	__u32	inflight;
	__u64	requests;
	__u64	malformed;
	__u64	punted;
	__u64	kicks;
	__u64	calls;
	__u64	latency[VHOST_SERVE_HIST_BUCKETS];
	__u64	hot;
};

/*
 * May come while the vring is served.  It fails with ETIMEDOUT if a request of the vring sleeps in
 * a thread of the old poller.  The vring then goes on there, but was not served meanwhile.
 */
#define VHOST_SERVE_SET_VRING	_IOW(VHOST_SERVE_IOC, 0xB0, struct vhost_serve_vring)
/*
 * The argument is the vring's index.  STOP returns when nothing is in flight, or fails with
 * ETIMEDOUT: requests still use the guest's memory then, and STOP has to be called again.
 */
#define VHOST_SERVE_START	_IO(VHOST_SERVE_IOC, 0xB1)
#define VHOST_SERVE_STOP	_IO(VHOST_SERVE_IOC, 0xB2)
#define VHOST_SERVE_GET_STATS	_IOWR(VHOST_SERVE_IOC, 0xB3, struct vhost_serve_stats)
/*
 * Stops all vrings and gives up the ownership, like VHOST_RESET_OWNER, and fails like STOP.  But
 * the device keeps what it serves: for /dev/vhost-fs the export and the guest's session, with its
 * nodes, open files and locks.  Another process that has the file becomes the owner
 * (VHOST_SET_OWNER).  It sets the features, the memory table and the vrings, each vring at the base
 * that VHOST_GET_VRING_BASE told before, and starts them; the guest notices nothing but a pause.
 * A device that cannot do this returns EOPNOTSUPP.
 */
#define VHOST_SERVE_HAND_OVER	_IO(VHOST_SERVE_IOC, 0xB4)
/*
 * The argument is the index of a vring whose STOP (or GET_VRING_BASE, or what stops all) has failed
 * with ETIMEDOUT or EINTR.  The vring is served again, and requests that were not answered stay in
 * flight, but vhost_fs has ended those that waited for a lock (ENOLCK).  Fails with EINVAL if no
 * stop of this vring is under way, or with the poller's error if that does not take the vring,
 * which goes on stopping then.
 */
#define VHOST_SERVE_GO_ON	_IO(VHOST_SERVE_IOC, 0xB5)

#endif /* _UAPI_LINUX_VHOST_SERVE_H */
