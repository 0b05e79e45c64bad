// SPDX-License-Identifier: GPL-2.0
/*
 * When a poller sleeps, and for how long.  In adaptive mode it learns three things.
 *
 * Arrival.  After the last piece of work a poller goes on polling for a window.  If it then sleeps,
 * and work comes soon after, the window was too short, and it grows to cover the gap.  If work
 * comes late, polling could not have paid off, and the window shrinks.  If that goes on, it shrinks
 * to nothing, and from then on the poller behaves as in event mode.  "Soon" is within max_window.
 * There are two such windows, with and without requests outstanding.  A guest that waits for a
 * completion before it sends the next request sends none while any is outstanding, and other guests
 * do.
 *
 * Completion.  While requests are outstanding and none arrives, the next event is a completion, and
 * owners know how long the backend takes.  The poller sleeps until a margin before that event.  The
 * margin is the cost of a wake-up on this machine plus the error of forecasts.  The poller learns
 * it as one number: the margin grows if the completion was there at the wake-up, and shrinks by
 * part of the time that the poller polled between the wake-up and the completion.  A polled backend
 * needs the margin, too.  The poller sees its completion no sooner than it looks, so an owner that
 * saw only late ones would learn too long a service time.
 *
 * Wake-ups by the backend.  Forecasts may be off by so much that the margin leaves no time to
 * sleep.  If the backend wakes the poller for each completion, the poller then sleeps until that
 * happens.  It does so only if the wake-up costs little beside the service, and if the next
 * completion is not about to come.  So it also learns the time from such a call until it runs.
 */
#include <kunit/visibility.h>
#include <linux/export.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/time64.h>
#include <uapi/linux/vhost_poll.h>

#include "policy.h"

/* A shorter window than this is not worth reading the clock for. */
#define WINDOW_MIN	(2ULL * NSEC_PER_USEC)

#define MARGIN_FIRST	(10ULL * NSEC_PER_USEC)
#define MARGIN_MIN	(2ULL * NSEC_PER_USEC)
#define MARGIN_MAX	(500ULL * NSEC_PER_USEC)

/* A shorter sleep than this costs more than it saves. */
#define SLEEP_MIN	(20ULL * NSEC_PER_USEC)

/*
 * The poller sleeps only if the wait for a completion is this many margins long.  In a shorter one
 * it could sleep for so small a part that it is not worth the risk of being late.
 */
#define SLEEP_MARGINS	2

/* The poller always polls for an answer that comes within this time. */
#define POLLED_FOR	(SLEEP_MIN + SLEEP_MARGINS * MARGIN_FIRST)

/* A wake-up by the backend may cost at most a tenth of a service that cannot be foreseen. */
#define TOLD_PART	10

/* Each wake-up counts for an eighth of the average. */
#define TOLD_SHIFT	3

/* An owner may name any service time if its backend lost a request, so there is a limit. */
#define SERVICE_MAX	(1ULL * NSEC_PER_SEC)

/* While a polled backend is late, the poller sleeps this long between two looks. */
#define NAP_MIN		(20ULL * NSEC_PER_USEC)
#define NAP_MAX		(1ULL * NSEC_PER_MSEC)

void vhost_poll_policy_init(struct vhost_poll_policy *pol, u64 max_window,
			    u64 now)
{
	*pol = (struct vhost_poll_policy) {
		.max_window	= max_window,
		.margin		= MARGIN_FIRST,
		.last_work	= now,
	};
}
EXPORT_SYMBOL_IF_KUNIT(vhost_poll_policy_init);

/* Returns the new window, after work that came @gap after the work before it. */
static u64 vhost_window_learn(u64 window, u64 gap, u64 max)
{
	if (gap > max) {
		window /= 4;
		return window < WINDOW_MIN ? 0 : window;
	}
	return clamp(2 * gap, max(window, WINDOW_MIN), max);
}

static void vhost_margin_grow(struct vhost_poll_policy *pol)
{
	pol->margin = min(pol->margin + pol->margin / 2, MARGIN_MAX);
}

static void vhost_margin_shrink(struct vhost_poll_policy *pol, u64 by)
{
	pol->margin = max(pol->margin - min(by, pol->margin), MARGIN_MIN);
}

/*
 * Whether the poller should sleep until the backend wakes it.  That is so if even a whole service
 * is too short to sleep by a forecast, and if the wake-up costs little.  If several requests are in
 * flight, one completes after each service / @inflight, and that must be long enough for a sleep.
 */
static bool vhost_rather_told(const struct vhost_poll_policy *pol, u64 service,
			      unsigned int inflight)
{
	return pol->told && service > POLLED_FOR &&
	       service < SLEEP_MIN + SLEEP_MARGINS * pol->margin &&
	       service >= TOLD_PART * pol->told &&
	       div_u64(service, inflight) >= SLEEP_MIN + pol->told;
}

/**
 * vhost_poll_predict - when to look for the completion of one source's requests
 * @pol: the poller's policy
 * @now: the time
 * @inflight: how many of its requests the backend has, at least one
 * @oldest: when the oldest of them was given to it
 * @service: how long one takes; 0 if that is not known
 * @polled: the backend does not tell when one is done
 *
 * Return: a time to sleep until, VHOST_POLL_SPIN if it is due, or
 * VHOST_POLL_FOREVER if it is so late that waiting to be told is better.
 */
u64 vhost_poll_predict(const struct vhost_poll_policy *pol, u64 now,
		       unsigned int inflight, u64 oldest, u64 service,
		       bool polled)
{
	u64 age = now > oldest ? now - oldest : 0;
	u64 wait, late;

	service = min(service, SERVICE_MAX);
	wait = service > age ? service - age : 0;
	late = age > service ? age - service : 0;

	if (wait >= SLEEP_MIN + SLEEP_MARGINS * pol->margin)
		return now + wait - pol->margin;
	if (!polled && vhost_rather_told(pol, service, inflight))
		return VHOST_POLL_FOREVER;
	if (late <= service / 8 + SLEEP_MIN)
		return VHOST_POLL_SPIN;
	if (!polled)
		return VHOST_POLL_FOREVER;
	/* The poller notices the completion at most an eighth later than it could. */
	return now + clamp(late / 8, NAP_MIN, NAP_MAX);
}
EXPORT_SYMBOL_IF_KUNIT(vhost_poll_predict);

/**
 * vhost_poll_decide - after a round without work: go on, or sleep
 * @pol: the poller's policy
 * @mode: enum vhost_poll_mode
 * @now: the time
 * @out: what is outstanding; in event mode only what is polled
 *
 * Return: VHOST_POLL_SPIN, VHOST_POLL_FOREVER, or a time to sleep until.
 */
u64 vhost_poll_decide(struct vhost_poll_policy *pol, unsigned int mode, u64 now,
		      const struct vhost_poll_outlook *out)
{
	bool adaptive = mode == VHOST_POLL_MODE_ADAPTIVE;
	u64 idle = now > pol->last_work ? now - pol->last_work : 0;
	u64 window = 0;

	if (adaptive)
		window = out->inflight ? pol->overlap_window :
					 pol->idle_window;

	if (mode == VHOST_POLL_MODE_BUSY || idle < window ||
	    out->wake_at == VHOST_POLL_SPIN) {
		pol->spun = true;
		return VHOST_POLL_SPIN;
	}
	return out->wake_at;
}
EXPORT_SYMBOL_IF_KUNIT(vhost_poll_decide);

static void vhost_told_learn(struct vhost_poll_policy *pol, u64 took)
{
	took = max(took, 1ULL);
	if (!pol->told)
		pol->told = took;
	else if (took >= pol->told)
		pol->told += (took - pol->told) >> TOLD_SHIFT;
	else
		pol->told -= (pol->told - took) >> TOLD_SHIFT;
}

/* Shrink a large margin a little, so that the poller tries again to sleep by a forecast. */
static void vhost_margin_forget(struct vhost_poll_policy *pol)
{
	if (pol->margin > MARGIN_FIRST)
		vhost_margin_shrink(pol, pol->margin / 64);
}

/**
 * vhost_poll_policy_slept - the poller slept as decided
 * @pol: the poller's policy
 * @until: what vhost_poll_decide() returned
 * @inflight: what was outstanding then
 * @told: when the poller was told to wake up; 0 if the timer woke it
 * @now: the time
 */
void vhost_poll_policy_slept(struct vhost_poll_policy *pol, u64 until,
			     unsigned int inflight, u64 told, u64 now)
{
	if (told)
		vhost_told_learn(pol, now > told ? now - told : 0);
	if (!inflight)
		pol->slept = VHOST_POLL_SLEPT_IDLE;
	else if (until == VHOST_POLL_FOREVER)
		pol->slept = VHOST_POLL_SLEPT_BLIND;
	else
		pol->slept = told ? VHOST_POLL_SLEPT_EARLY :
				    VHOST_POLL_SLEPT_TIMED;
	pol->inflight = inflight;
	pol->woke = now;
	pol->spun = false;
}
EXPORT_SYMBOL_IF_KUNIT(vhost_poll_policy_slept);

/**
 * vhost_poll_policy_work - there was work; learn from how it was waited for
 * @pol: the poller's policy
 * @inflight: what is outstanding now, if the poller slept since the last work
 * @now: the time
 */
void vhost_poll_policy_work(struct vhost_poll_policy *pol,
			    unsigned int inflight, u64 now)
{
	u64 gap = now > pol->last_work ? now - pol->last_work : 0;
	u64 awake = now > pol->woke ? now - pol->woke : 0;

	switch (pol->slept) {
	case VHOST_POLL_AWAKE:
		if (pol->spun)
			vhost_margin_forget(pol);
		break;
	case VHOST_POLL_SLEPT_IDLE:
		pol->idle_window = vhost_window_learn(pol->idle_window, gap,
						      pol->max_window);
		break;
	case VHOST_POLL_SLEPT_EARLY:
		if (inflight < pol->inflight)
			vhost_margin_grow(pol);
		else
			pol->overlap_window = vhost_window_learn(pol->overlap_window,
								 gap,
								 pol->max_window);
		break;
	case VHOST_POLL_SLEPT_TIMED:
		pol->overlap_window = vhost_window_learn(pol->overlap_window, U64_MAX,
							 pol->max_window);
		if (pol->spun)
			vhost_margin_shrink(pol, awake / 4);
		else
			vhost_margin_grow(pol);
		break;
	case VHOST_POLL_SLEPT_BLIND:
		/* A completion woke the poller, so no request arrived all that time. */
		if (inflight < pol->inflight)
			gap = U64_MAX;
		pol->overlap_window = vhost_window_learn(pol->overlap_window, gap,
							 pol->max_window);
		vhost_margin_forget(pol);
		break;
	}
	pol->slept = VHOST_POLL_AWAKE;
	pol->spun = false;
	pol->last_work = now;
}
EXPORT_SYMBOL_IF_KUNIT(vhost_poll_policy_work);
