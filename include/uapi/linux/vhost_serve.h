/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The ioctls of all devices that vhost_serve serves (/dev/vhost-blk, /dev/vhost-fs):
 * they set the poller of a vring, start and stop the vring, and read its counters.
 * These devices also have the base vhost ioctls (linux/vhost.h).
 *
 * Numbers.  All ioctls have the type VHOST_VIRTIO (0xAF), and numbers above those of
 * linux/vhost.h:
 *
 *   0xB0 to 0xBF	shared by all devices, in this header
 *   0xC0 to 0xCF	/dev/vhost-fs, linux/vhost_fs.h
 *   0xD0 to 0xDF	/dev/vhost-blk, linux/vhost_blk.h
 *
 * A number in a device's range means nothing to another device.
 *
 * Each structure begins with its size: see linux/vhost_poll.h.
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
 * struct vhost_serve_vring - VHOST_SERVE_SET_VRING: set the poller of a vring
 * @size: sizeof(struct vhost_serve_vring)
 * @index: the vring
 * @poller_fd: a /dev/vhost-poll descriptor
 * @target: for /dev/vhost-blk, the hardware context of the disk that gets the vring's
 *	requests.  VHOST_SERVE_TARGET_AUTO leaves the choice to the device.
 *	/dev/vhost-fs has no targets, and accepts only this value
 * @weight: the vring's share of a round of the poller, 1 to 1000; 0 is the default 100
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
 * struct vhost_serve_stats - VHOST_SERVE_GET_STATS: read the counters of one vring
 * @size: in: the room for the structure; out: how many bytes the kernel filled
 * @index: the vring
 * @poller_cpu: the CPU of the vring's poller; ~0: the vring has no poller
 * @inflight: requests that the backend, a worker or the poller's thread has now
 * @requests: requests that were given back to the guest
 * @malformed: chains that cannot be read, or that have no room for an answer; heads
 *	that the guest offered again while they were in flight; and used rings that
 *	cannot be written
 * @punted: requests that a worker carried out
 * @kicks: notifications by the guest
 * @calls: interrupts sent to the guest
 * @latency: requests by the time from when the vring took them until it gave them back.
 *	Bucket i counts those that took [2^i, 2^(i+1)) ns; the last bucket also counts
 *	those that took longer
 * @hot: requests that the poller's thread began after its round, whether they slept or
 *	not.  If a worker had to finish such a request (a read of data that are not
 *	cached), it counts in @punted, too
 *
 * The kernel reads the counters one by one, so while the vring is served, two of them may
 * be of different moments.
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
 * The owner may call this while the vring is served.  The call fails with ETIMEDOUT if a request of
 * the vring still sleeps in a thread of the old poller after the time limit of vhost_serve (the
 * module parameter stop_timeout).  The vring then stays with the old poller.  No poller serves the
 * vring while the call waits.
 */
#define VHOST_SERVE_SET_VRING	_IOW(VHOST_SERVE_IOC, 0xB0, struct vhost_serve_vring)
/*
 * The argument is the vring's index.  STOP returns 0 when no request is in flight any more.  It
 * fails with ETIMEDOUT after the time limit (stop_timeout), or with EINTR if the caller is being
 * killed.  Requests then still use the guest's memory, so the owner has to call STOP again.
 */
#define VHOST_SERVE_START	_IO(VHOST_SERVE_IOC, 0xB1)
#define VHOST_SERVE_STOP	_IO(VHOST_SERVE_IOC, 0xB2)
#define VHOST_SERVE_GET_STATS	_IOWR(VHOST_SERVE_IOC, 0xB3, struct vhost_serve_stats)
/*
 * HAND_OVER stops all vrings and gives up the ownership, like VHOST_RESET_OWNER, and fails like
 * STOP.  But the device keeps the backend: /dev/vhost-fs keeps the export and the guest's session,
 * with its nodes, open files and locks.
 *
 * Another process that has the device's file then becomes the owner (VHOST_SET_OWNER).  It sets the
 * features, the memory table and the vrings, and starts the vrings.  Each vring begins at the base
 * that VHOST_GET_VRING_BASE returned to the old owner.  The guest notices only a pause.
 *
 * A device that cannot be handed over (/dev/vhost-blk) fails with EOPNOTSUPP.
 */
#define VHOST_SERVE_HAND_OVER	_IO(VHOST_SERVE_IOC, 0xB4)
/*
 * GO_ON takes a stop back that has failed with ETIMEDOUT or EINTR: by STOP, by VHOST_GET_VRING_BASE
 * or by an ioctl that stops all vrings.  The argument is the vring's index.  The poller serves the
 * vring again, and requests that were not answered stay in flight.  But the stop has ended the
 * requests of vhost_fs that waited for a lock: the guest gets ENOLCK for them.
 *
 * GO_ON fails with EINVAL if no stop of this vring is under way.  If the poller cannot take the
 * vring, GO_ON fails with the poller's error, and the vring goes on stopping.
 */
#define VHOST_SERVE_GO_ON	_IO(VHOST_SERVE_IOC, 0xB5)

#endif /* _UAPI_LINUX_VHOST_SERVE_H */
