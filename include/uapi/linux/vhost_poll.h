/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/vhost-poll: a file descriptor that is a thread polling vrings from one
 * CPU.  Open it, VHOST_POLL_CREATE binds it, devices (vhost_blk) take the
 * descriptor to attach their vrings.  Closing the last reference ends the
 * thread.
 *
 * Every structure starts with its size as user space knows it, as in
 * openat2(2): a shorter one is completed with zeroes, a longer one must be
 * zero beyond what the kernel knows, and none is longer than a page (-E2BIG).
 * Unknown flags are -EINVAL.
 */
#ifndef _UAPI_LINUX_VHOST_POLL_H
#define _UAPI_LINUX_VHOST_POLL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define VHOST_POLL_IOC	0xAF	/* VHOST_VIRTIO; 0xA0 to 0xAF are ours */

/* How a poller waits for work; changeable while it runs. */
enum vhost_poll_mode {
	VHOST_POLL_MODE_ADAPTIVE	= 0,	/* poll while it pays, else sleep */
	VHOST_POLL_MODE_BUSY		= 1,	/* never sleep */
	VHOST_POLL_MODE_EVENT		= 2,	/* notifications on, sleep at once */
};

#define VHOST_POLL_NAME_LEN	16

/**
 * struct vhost_poll_create - VHOST_POLL_CREATE, once for a descriptor
 * @size: sizeof(struct vhost_poll_create)
 * @flags: none yet, must be 0
 * @cpu: the CPU it is bound to; must be online
 * @mode: enum vhost_poll_mode
 * @name: shown in the thread's name; may be empty
 *
 * Needs CAP_SYS_NICE: it takes a core.  What was checked here is not asked
 * again: the descriptor stands for up to a whole core from then on, whatever
 * @mode was, and is given only to whom may use one.
 */
struct vhost_poll_create {
	__u32	size;
	__u32	flags;
	__u32	cpu;
	__u32	mode;
	char	name[VHOST_POLL_NAME_LEN];
};

/**
 * struct vhost_poll_set_mode - VHOST_POLL_SET_MODE
 * @size: sizeof(struct vhost_poll_set_mode)
 * @flags: none yet, must be 0
 * @mode: enum vhost_poll_mode
 * @pad: 0
 *
 * Needs the descriptor and nothing else: see VHOST_POLL_CREATE.
 */
struct vhost_poll_set_mode {
	__u32	size;
	__u32	flags;
	__u32	mode;
	__u32	pad;
};

/**
 * struct vhost_poll_stats - VHOST_POLL_GET_STATS
 * @size: in: room; out: what the kernel filled
 * @flags: 0
 * @cpu: where it runs, or would if that CPU were online: see @state
 * @mode: how it waits now
 * @sources: vrings and devices attached
 * @state: 0 running, 1 its CPU went offline: it sleeps between events on
 *	whichever CPU it was moved to until its own comes back
 * @rounds: times it looked at all of its sources
 * @rounds_hit: of those, the ones that found something
 * @work: requests and completions served
 * @sleeps: times it slept
 * @sleeps_timed: of those, the ones that woke by the predicted completion
 * @wakeups: wake-ups by kicks and completions
 * @busy_ns: time in rounds that found something
 * @poll_ns: time in rounds that found nothing
 * @sleep_ns: time asleep
 * @idle_window_ns: how long it polls without work now before it sleeps
 * @hot: requests that may sleep, carried out by the polling thread without losing the
 *	rings
 * @handoffs: requests that slept or took too long there, so that another thread polls
 *	since
 */
struct vhost_poll_stats {
	__u32	size;
	__u32	flags;
	__u32	cpu;
	__u32	mode;
	__u32	sources;
	__u32	state;
	__u64	rounds;
	__u64	rounds_hit;
	__u64	work;
	__u64	sleeps;
	__u64	sleeps_timed;
	__u64	wakeups;
	__u64	busy_ns;
	__u64	poll_ns;
	__u64	sleep_ns;
	__u64	idle_window_ns;
	__u64	hot;
	__u64	handoffs;
};

#define VHOST_POLL_CREATE	_IOW(VHOST_POLL_IOC, 0xA0, struct vhost_poll_create)
#define VHOST_POLL_SET_MODE	_IOW(VHOST_POLL_IOC, 0xA1, struct vhost_poll_set_mode)
#define VHOST_POLL_GET_STATS	_IOWR(VHOST_POLL_IOC, 0xA2, struct vhost_poll_stats)

#endif /* _UAPI_LINUX_VHOST_POLL_H */
