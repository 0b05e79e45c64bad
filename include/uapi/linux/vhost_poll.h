/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/vhost-poll: a poller, i.e. a kernel thread that polls vrings from one CPU.
 *
 * A program opens the device, and creates the poller on the descriptor by
 * VHOST_POLL_CREATE.  It then passes the descriptor to devices (/dev/vhost-blk,
 * /dev/vhost-fs), whose vrings the poller is to serve.  A vring holds a reference
 * to the descriptor's file.  The thread ends with the last reference.
 *
 * Each structure begins with @size, the size that user space was compiled with, as
 * in openat2(2).  The kernel fills up a shorter structure with zeroes.  A longer one
 * must be zero beyond the fields that the kernel knows, or the ioctl fails with
 * -E2BIG; if the kernel writes the structure, it clears that part.  A structure of
 * more than a page fails with -E2BIG, too.  A structure that is shorter than the
 * first version of it fails with -EINVAL, and so does an unknown flag.
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
 * struct vhost_poll_create - VHOST_POLL_CREATE: create the poller, once for a descriptor
 * @size: sizeof(struct vhost_poll_create)
 * @flags: none yet, must be 0
 * @cpu: the CPU that the poller is bound to; must be online
 * @mode: enum vhost_poll_mode
 * @name: shown in the thread's name; may be empty
 *
 * The caller needs CAP_SYS_NICE, because a poller may take a whole core.  The kernel
 * checks this only here.  Any program that holds the descriptor can attach vrings,
 * and can set VHOST_POLL_MODE_BUSY, whatever @mode is.  So pass the descriptor only to
 * a program that may use that core.
 */
struct vhost_poll_create {
	__u32	size;
	__u32	flags;
	__u32	cpu;
	__u32	mode;
	char	name[VHOST_POLL_NAME_LEN];
};

/**
 * struct vhost_poll_set_mode - VHOST_POLL_SET_MODE: change how the poller waits
 * @size: sizeof(struct vhost_poll_set_mode)
 * @flags: none yet, must be 0
 * @mode: enum vhost_poll_mode
 * @pad: 0
 *
 * The caller needs no capability, because the descriptor is the permission: see struct
 * vhost_poll_create.
 */
struct vhost_poll_set_mode {
	__u32	size;
	__u32	flags;
	__u32	mode;
	__u32	pad;
};

/**
 * struct vhost_poll_stats - VHOST_POLL_GET_STATS: read the poller's counters
 * @size: in: the room for the structure; out: how many bytes the kernel filled
 * @flags: 0
 * @cpu: the CPU that the poller is bound to; see @state
 * @mode: the mode that was set last
 * @sources: attached vrings
 * @state: 0: the poller runs on @cpu; 1: @cpu is offline.  The poller then runs on
 *	another CPU, as in event mode, until @cpu is back
 * @rounds: rounds, in each of which the poller looked at all attached vrings
 * @rounds_hit: of @rounds, those that found work
 * @work: requests and completions served
 * @sleeps: times that the poller slept
 * @sleeps_timed: of @sleeps, those that a timer ended: the poller expected a
 *	completion, or was to try again
 * @wakeups: of @sleeps, those that an event ended: mostly a kick or a completion
 * @busy_ns: time in rounds that found work
 * @poll_ns: time in rounds that found none
 * @sleep_ns: time asleep
 * @idle_window_ns: how long the poller goes on polling now after the last work, before
 *	it sleeps
 * @hot: requests that may sleep, and after which the thread that carried them out still
 *	polls
 * @handoffs: requests that slept or took too long in the polling thread, so that another
 *	thread polls now
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
