/* SPDX-License-Identifier: GPL-2.0 */
/*
 * When a poller sleeps, and for how long.  Nothing in here looks at a clock or
 * at a ring: times and counts come in, decisions go out.
 */
#ifndef _VHOST_POLL_POLICY_H
#define _VHOST_POLL_POLICY_H

#include <linux/limits.h>
#include <linux/types.h>

/* Instead of a time to wake up at. */
#define VHOST_POLL_SPIN		0ULL
#define VHOST_POLL_FOREVER	U64_MAX

/**
 * struct vhost_poll_outlook - what is outstanding, over all sources
 * @inflight: requests that the backends have
 * @wake_at: when to look for the next of them: the least of
 *	vhost_poll_predict(), VHOST_POLL_FOREVER if there is none
 */
struct vhost_poll_outlook {
	unsigned int inflight;
	u64 wake_at;
};

enum vhost_poll_slept {
	VHOST_POLL_AWAKE,	/* did not sleep since the last work */
	VHOST_POLL_SLEPT_IDLE,	/* with nothing outstanding */
	VHOST_POLL_SLEPT_EARLY,	/* for a completion, and something else woke it */
	VHOST_POLL_SLEPT_TIMED,	/* for a completion, until the timer */
	VHOST_POLL_SLEPT_BLIND,	/* for a completion it cannot foresee */
};

/**
 * struct vhost_poll_policy - what one poller learned
 * @max_window: bound of the windows
 * @idle_window: how long to poll with nothing outstanding before sleeping
 * @overlap_window: how long to poll for new requests before sleeping for a
 *	completion
 * @margin: how long before the foreseen completion to wake up: what waking up
 *	takes, and what the forecast is off by
 * @told: what it takes from being told to wake up to running; 0 if not known
 * @last_work: when there was work last
 * @woke: when it woke up last
 * @inflight: outstanding when it went to sleep
 * @slept: how it slept since @last_work
 * @spun: it polled for nothing since @woke
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
