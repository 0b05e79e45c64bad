// SPDX-License-Identifier: GPL-2.0
/*
 * When to interrupt the guest.  Nothing in here looks at a clock or at a ring: times and
 * events come in, decisions go out.
 *
 * A guest that takes interrupts pays for each: an exit, mostly, and its handler.  A poller
 * answers faster than that, so without moderation nearly every answer would interrupt, also
 * while the guest is still submitting the next requests.  So the first answer after an
 * interrupt opens a window.  The guest is interrupted for all answers of the window
 *
 * - when the ring was quiet for half the time that the guest takes for an interrupt: no
 *   request came in, and none was answered;
 * - when the window has lasted that time.  So an answer that was held waits for the guest at
 *   most twice as long as one that was not, unless the poller's thread carries out requests of
 *   other rings that may sleep;
 * - when the poller goes to sleep, when its thread is about to carry out requests of the ring
 *   that may sleep, or when a worker serves the ring.
 *
 * How long the guest takes is measured: from the interrupt to the moment at which its driver
 * asks for the next one, as the ring's event index tells.  One interrupt in CALLS_SAMPLE is
 * looked at.  Until the first was, and without an event index, nothing is held.
 *
 * A guest that waits for a single request gains nothing: its windows see no other event.  After
 * CALLS_TRIES such windows in a row the next CALLS_SKIP interrupts are not held, twice as many
 * each time that it happens again, and from the start once a window saw an event.
 */
#include <linux/minmax.h>
#include <linux/time64.h>
#include <kunit/visibility.h>

#include "serve.h"

#define CALLS_SAMPLE		16
/* The last window of many, when the guest has no more to submit, sees nothing either. */
#define CALLS_TRIES		3
#define CALLS_SKIP		16
#define CALLS_SKIP_SHIFT	6	/* it doubles at most so often */
/* A vCPU that the host does not run takes longer, and must not delay all answers. */
#define CALLS_TOOK_MAX		NSEC_PER_MSEC
/* A driver that has not asked for interrupts again by then may never do so. */
#define CALLS_SAMPLE_MAX	(4 * CALLS_TOOK_MAX)

/**
 * vserve_calls_event - a request came in, or was answered
 * @c: of the vring
 * @now: when this round began
 */
void vserve_calls_event(struct vserve_calls *c, u64 now)
{
	if (likely(!c->window_ns))
		return;
	c->event_ns = now;
	c->paid = true;
}
EXPORT_SYMBOL_IF_KUNIT(vserve_calls_event);

/**
 * vserve_calls_hold - hold the guest's interrupt back?
 * @c: of the vring, with answers that the guest is to be interrupted for
 * @now: when this round began
 *
 * Return: true to ask again in the next round, false to interrupt.
 */
bool vserve_calls_hold(struct vserve_calls *c, u64 now)
{
	if (!c->window_ns) {
		if (!c->took_ns)
			return false;
		if (c->skip) {
			c->skip--;
			return false;
		}
		c->window_ns = now;
		c->event_ns = now;
		c->paid = false;
		return true;
	}
	return now - c->event_ns < c->took_ns / 2 && now - c->window_ns < c->took_ns;
}
EXPORT_SYMBOL_IF_KUNIT(vserve_calls_hold);

/**
 * vserve_calls_end - the guest is interrupted now, or does not want to be
 * @c: of the vring
 */
void vserve_calls_end(struct vserve_calls *c)
{
	c->due = false;
	if (likely(!c->window_ns))
		return;
	c->window_ns = 0;
	if (c->paid) {
		c->misses = 0;
		return;
	}
	if (++c->misses < CALLS_TRIES)
		return;
	c->skip = CALLS_SKIP << (c->misses - CALLS_TRIES);
	c->misses = min(c->misses, CALLS_TRIES + CALLS_SKIP_SHIFT - 1);
}
EXPORT_SYMBOL_IF_KUNIT(vserve_calls_end);

/**
 * vserve_calls_count - count an interrupt that is about to be sent
 * @c: of the vring
 *
 * Return: true if it is to be measured how long the guest takes for it.
 */
bool vserve_calls_count(struct vserve_calls *c)
{
	return !c->asked_ns && !(c->sent++ % CALLS_SAMPLE);
}
EXPORT_SYMBOL_IF_KUNIT(vserve_calls_count);

/**
 * vserve_calls_learn - the guest's driver has seen an interrupt, or not yet
 * @c: of the vring, with @asked_ns set
 * @now: ktime_get_ns()
 * @seen: whether it has
 */
void vserve_calls_learn(struct vserve_calls *c, u64 now, bool seen)
{
	u64 took = now - c->asked_ns;

	if (!seen && took < CALLS_SAMPLE_MAX)
		return;
	c->asked_ns = 0;
	/* Nothing looked in time, or the driver did not ask. */
	if (took >= CALLS_SAMPLE_MAX)
		return;
	took = clamp(took, 1, CALLS_TOOK_MAX);
	if (!c->took_ns)
		c->took_ns = took;
	else
		c->took_ns += ((s64)min(took, 4 * c->took_ns) - (s64)c->took_ns) / 8;
}
EXPORT_SYMBOL_IF_KUNIT(vserve_calls_learn);
