// SPDX-License-Identifier: GPL-2.0
/*
 * When to interrupt the guest.  This code looks neither at a clock nor at a ring: callers pass
 * times and events in, and it returns decisions.
 *
 * A guest that takes interrupts pays for each of them: an exit, mostly, and its handler.  A poller
 * answers faster than that.  Without moderation nearly every answer would interrupt the guest, even
 * while it is still submitting the next requests.  So the first answer after an interrupt opens a
 * window.  The guest is interrupted for all answers of the window
 *
 * - when the ring was quiet for half the time that the guest takes for an interrupt: no request
 *   came in, and none was answered;
 * - when the window has lasted that time.  So an answer that was held waits for the guest at most
 *   twice as long as one that was not, unless the poller's thread carries out requests of other
 *   rings that may sleep;
 * - when the poller goes to sleep, when its thread is about to carry out requests of the ring that
 *   may sleep, or when a worker serves the ring.
 *
 * The poller measures how long the guest takes for one interrupt in CALLS_SAMPLE: from the
 * interrupt until the guest's driver asks for the next one, as the ring's event index tells.
 * Before the first measurement, and without an event index, no interrupt is held back.
 *
 * A guest that waits for a single request gains nothing, because its windows see no other event.
 * After CALLS_TRIES such windows in a row the next CALLS_SKIP interrupts are not held back.  Each
 * time that this happens again the number doubles.  Once a window has seen an event, it begins
 * anew.
 */
#include <linux/minmax.h>
#include <linux/time64.h>
#include <kunit/visibility.h>

#include "serve.h"

#define CALLS_SAMPLE		16
/*
 * So many windows in a row may see no event.  The last window of a burst sees none either, because
 * the guest has no more to submit.
 */
#define CALLS_TRIES		3
#define CALLS_SKIP		16
#define CALLS_SKIP_SHIFT	6	/* it doubles this often at most */
/* A vCPU that the host does not run takes longer than this, and must not delay all answers. */
#define CALLS_TOOK_MAX		NSEC_PER_MSEC
/* A driver that has not asked for interrupts again by then may never do so. */
#define CALLS_SAMPLE_MAX	(4 * CALLS_TOOK_MAX)

/**
 * vserve_calls_event - note that a request came in, or was answered
 * @c: the state of the vring
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
 * vserve_calls_hold - decide whether to hold the guest's interrupt back
 * @c: the state of a vring with answers that the guest is to be interrupted for
 * @now: when this round began
 *
 * Return: true if the caller is to ask again in the next round, false if it is to interrupt the
 * guest.
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
 * vserve_calls_end - end the window, because the guest is interrupted or does not want to be
 * @c: the state of the vring
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
 * @c: the state of the vring
 *
 * Return: true if the caller is to measure how long the guest takes for it.
 */
bool vserve_calls_count(struct vserve_calls *c)
{
	return !c->asked_ns && !(c->sent++ % CALLS_SAMPLE);
}
EXPORT_SYMBOL_IF_KUNIT(vserve_calls_count);

/**
 * vserve_calls_learn - learn how long the guest takes for an interrupt
 * @c: the state of the vring, with @asked_ns set
 * @now: ktime_get_ns()
 * @seen: the guest's driver has seen the interrupt
 */
void vserve_calls_learn(struct vserve_calls *c, u64 now, bool seen)
{
	u64 took = now - c->asked_ns;

	if (!seen && took < CALLS_SAMPLE_MAX)
		return;
	c->asked_ns = 0;
	/* No round has looked in time, or the driver did not ask for the next interrupt. */
	if (took >= CALLS_SAMPLE_MAX)
		return;
	took = clamp(took, 1, CALLS_TOOK_MAX);
	if (!c->took_ns)
		c->took_ns = took;
	else
		c->took_ns += ((s64)min(took, 4 * c->took_ns) - (s64)c->took_ns) / 8;
}
EXPORT_SYMBOL_IF_KUNIT(vserve_calls_learn);
