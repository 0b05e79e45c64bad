/* SPDX-License-Identifier: GPL-2.0 */
/*
 * When a poller sleeps, and for how long.  The policy looks neither at a clock nor at a
 * ring: the poller passes times and counts in, and the policy returns decisions.
 */
#ifndef _VHOST_POLL_POLICY_H
#define _VHOST_POLL_POLICY_H

#include <linux/limits.h>
#include <linux/types.h>

/* These stand for a time to wake up at: poll on, and sleep until an event. */
#define VHOST_POLL_SPIN		0ULL
#define VHOST_POLL_FOREVER	U64_MAX

/**
 * struct vhost_poll_outlook - what is outstanding, over all sources
 * @inflight: requests in flight
 * @wake_at: when to look next: the earliest of vhost_poll_predict() and of the times at which
 *	a source wants a retry; VHOST_POLL_FOREVER if there is none
 */
struct vhost_poll_outlook {
	unsigned int inflight;
	u64 wake_at;
};

/* How the poller slept. */
enum vhost_poll_slept {
	VHOST_POLL_AWAKE,	/* it did not sleep since the last work */
	VHOST_POLL_SLEPT_IDLE,	/* nothing was outstanding */
	VHOST_POLL_SLEPT_EARLY,	/* it set a timer, and an event woke it before */
	VHOST_POLL_SLEPT_TIMED,	/* the timer woke it */
	VHOST_POLL_SLEPT_BLIND,	/* for a completion that it cannot predict, without a timer */
};

/**
 * struct vhost_poll_policy - what one poller has learned
 * @max_window: upper limit of the windows
 * @idle_window: how long the poller polls after the last work before it sleeps, if nothing is
 *	outstanding
 * @overlap_window: how long it polls for new requests before it sleeps for a completion
 * @margin: how long before an expected completion it wakes up: the cost of a wake-up, and the
 *	error of the forecast
 * @told: how long it takes from a call to wake the poller until it runs; 0 if not known
 * @last_work: when the poller last had work
 * @woke: when it last woke up
 * @inflight: requests in flight when it went to sleep
 * @slept: how it slept since @last_work
 * @spun: it has polled for nothing since @woke
 */
struct vhost_poll_policy {
	u64 max_window;
	u64 idle_window;
	u64 overlap_window;
	u64 margin;
	u64 told;
	u64 last_work;
	u64 woke;
	unsigned int inflight;
	enum vhost_poll_slept slept;
	bool spun;
};

void vhost_poll_policy_init(struct vhost_poll_policy *pol, u64 max_window,
			    u64 now);
u64 vhost_poll_predict(const struct vhost_poll_policy *pol, u64 now,
		       unsigned int inflight, u64 oldest, u64 service,
		       bool polled);
u64 vhost_poll_decide(struct vhost_poll_policy *pol, unsigned int mode, u64 now,
		      const struct vhost_poll_outlook *out);
void vhost_poll_policy_slept(struct vhost_poll_policy *pol, u64 until,
			     unsigned int inflight, u64 told, u64 now);
void vhost_poll_policy_work(struct vhost_poll_policy *pol,
			    unsigned int inflight, u64 now);

#endif /* _VHOST_POLL_POLICY_H */
