/* SPDX-License-Identifier: GPL-2.0 */
/*
 * /dev/vhost-poll-selftest: each open file is one source, driven by ioctls,
 * that checks how its poller treats it.
 */
#ifndef VHOST_POLL_SELFTEST_H
#define VHOST_POLL_SELFTEST_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * struct selftest_attach - attach to a poller
 * @poller_fd: which
 * @weight: as in struct vhost_poll_source
 * @user: where each poll reads a number in the caller's memory, or 0
 * @expect: what it must find there
 */
struct selftest_attach {
	__s32	poller_fd;
	__u32	weight;
	__u64	user;
	__u64	expect;
};

/* A request to a pretended backend, which answers after @delay_ns. */
struct selftest_submit {
	__u64	delay_ns;
	__u32	polled;
	__u32	pad;
};

/**
 * struct selftest_state - what happened so far
 * @pending: work added and not served
 * @added: by VPS_WORK and ticks
 * @served: of that
 * @completed: requests that came back from the pretended backend
 * @polls: callbacks by kind
 * @arms: likewise
 * @disarms: likewise
 * @max_budget: largest ever given
 * @violations: of what linux/vhost_poll.h promises
 */
struct selftest_state {
	__u64	pending;
	__u64	added;
	__u64	served;
	__u64	completed;
	__u64	polls;
	__u64	arms;
	__u64	disarms;
	__u32	max_budget;
	__u32	violations;
};

#define VPS_ATTACH	_IOW(0xAF, 0xE0, struct selftest_attach)
#define VPS_DETACH	_IO(0xAF, 0xE1)
/* Add work and wake the poller. */
#define VPS_WORK	_IOW(0xAF, 0xE2, __u64)
/* Add one piece of work from a timer interrupt every so many ns; 0 stops. */
#define VPS_TICK	_IOW(0xAF, 0xE3, __u64)
#define VPS_SUBMIT	_IOW(0xAF, 0xE4, struct selftest_submit)
#define VPS_STATE	_IOR(0xAF, 0xE5, struct selftest_state)
/* Ask for another look so many ns after each; 0: no more. */
#define VPS_RETRY	_IOW(0xAF, 0xE6, __u64)

#endif /* VHOST_POLL_SELFTEST_H */
