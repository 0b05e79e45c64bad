/* SPDX-License-Identifier: GPL-2.0 */
/*
 * When polling for a completion pays off.  Nothing in here touches a device, a
 * clock or a lock, so that it can be tested by itself (policy_test.c).
 *
 * A queue learns its *wait*: the time from when it began to wait (its first
 * request went out, or its last completion came in) to the completion that
 * ended the wait.
 *
 * A wait that an interrupt ended is longer than the same wait polled through, by
 * the interrupt's own way, which may be longer than the device takes.  If it is
 * short enough all the same, polling pays.  If it is not, only trying can tell:
 * each 16th wait is polled through, of twice as many each time that was in vain,
 * up to 1,024, and of half as many each time it paid.  The result of such a try
 * replaces what was known.  Where some waits are short and more are not, polling
 * begins and ends again with each lucky try; that costs at most a few times
 * @max_ns in 16 waits that are longer, and the CPU would have idled then.
 *
 * A vCPU that polls on an overcommitted host competes with what else its core is to run, which may
 * be the device's own thread.  The guest sees this as stolen time.  If more than an eighth of a
 * period was stolen, polling stops for a while.  A vCPU that halts has little stolen from it, so
 * only polling can tell whether the core is free again: it is resumed after the back-off, which
 * is twice as long each time that it was too early.
 */
#ifndef _LINUX_VIRTIO_POLL_POLICY_H
#define _LINUX_VIRTIO_POLL_POLICY_H

#include <linux/minmax.h>
#include <linux/time64.h>
#include <linux/types.h>

/* A new wait counts for an eighth of what is known. */
#define VIRTIO_POLL_LEARN_SHIFT	3
#define VIRTIO_POLL_TRY_AFTER		16	/* waits, of which the last is polled */
#define VIRTIO_POLL_TRY_SHIFT		6	/* at most so often doubled */

/**
 * struct virtio_poll_policy - what a queue knows about its device
 * @wait_ns: the smoothed wait, 0 while nothing is known
 * @slept: waits left to interrupts since polling paid, or was tried
 * @try_shift: how often more it was tried in vain than it paid
 */
struct virtio_poll_policy {
	u64 wait_ns;
	unsigned int slept;
	unsigned int try_shift;
};

/**
 * virtio_poll_policy_pays - whether the next wait is expected to be short enough
 * @p: the queue's knowledge
 * @max_ns: the longest wait that is polled through
 *
 * A queue that knows nothing yet polls: its first wait, and the first after
 * virtio_poll_forget(), is as short as it can be.
 */
static inline bool virtio_poll_policy_pays(const struct virtio_poll_policy *p, u64 max_ns)
{
	return max_ns && p->wait_ns <= max_ns;
}

/**
 * virtio_poll_policy_gave_up - a wait was polled through in part, and was longer
 * @p: the queue's knowledge
 * @max_ns: the longest wait that is polled through
 */
static inline void virtio_poll_policy_gave_up(struct virtio_poll_policy *p, u64 max_ns)
{
	/* Otherwise it was no try, but a wait of another kind than usual. */
	if (!virtio_poll_policy_pays(p, max_ns) && p->try_shift < VIRTIO_POLL_TRY_SHIFT)
		p->try_shift++;
}

/**
 * virtio_poll_policy_learn - a wait has ended
 * @p: the queue's knowledge
 * @ns: how long it took
 * @max_ns: the longest wait that is polled through
 * @polled: whether a poller saw its end, or an interrupt
 *
 * One wait of a second (a host that was paused) must not switch polling off
 * for the next forty, so what is far out of reach counts as four times @max_ns.
 */
static inline void virtio_poll_policy_learn(struct virtio_poll_policy *p, u64 ns, u64 max_ns,
					    bool polled)
{
	bool try = !virtio_poll_policy_pays(p, max_ns);
	bool paid = polled && ns <= max_ns;

	ns = clamp(ns, 1ULL, max(4 * max_ns, 1ULL));
	if (polled && !paid)
		virtio_poll_policy_gave_up(p, max_ns);
	if (paid)
		p->slept = 0;
	if (paid && try && p->try_shift)
		p->try_shift--;
	if (!p->wait_ns || (paid && try))
		p->wait_ns = ns;
	else if (ns >= p->wait_ns)
		p->wait_ns += (ns - p->wait_ns) >> VIRTIO_POLL_LEARN_SHIFT;
	else
		p->wait_ns -= max((p->wait_ns - ns) >> VIRTIO_POLL_LEARN_SHIFT, 1ULL);
}

/**
 * virtio_poll_policy_polls - whether to poll through the wait that begins
 * @p: the queue's knowledge
 * @max_ns: the longest wait that is polled through
 *
 * Counts waits: to be called once for each.
 *
 * Return: true if it is expected to pay, or if it is to be tried.
 */
static inline bool virtio_poll_policy_polls(struct virtio_poll_policy *p, u64 max_ns)
{
	if (virtio_poll_policy_pays(p, max_ns))
		return true;
	if (!max_ns || ++p->slept < VIRTIO_POLL_TRY_AFTER << p->try_shift)
		return false;
	p->slept = 0;
	return true;
}

/**
 * virtio_poll_policy_budget - how long to poll before giving up
 * @p: the queue's knowledge
 * @max_ns: the longest wait that is polled through
 *
 * Four times the usual wait covers the usual spread; a wait that outlasts it
 * is of another kind (a flush, a busy host) and is left to an interrupt.
 */
static inline u64 virtio_poll_policy_budget(const struct virtio_poll_policy *p, u64 max_ns)
{
	if (!p->wait_ns)
		return max_ns;
	return min(4 * p->wait_ns, max_ns);
}

#define VIRTIO_POLL_STEAL_PERIOD_NS	(100 * NSEC_PER_MSEC)
#define VIRTIO_POLL_STEAL_PART		8	/* of a period: more than this part is too much */
#define VIRTIO_POLL_STEAL_BACK_OFF_NS	(200 * NSEC_PER_MSEC)
#define VIRTIO_POLL_STEAL_SHIFT		5	/* at most so often doubled: 6.4 s */

/**
 * struct virtio_poll_steal - what a CPU knows about the time that the host takes from it
 * @since: when the present period began; 0: none has
 * @stolen: what had been stolen by then
 * @until: when the back-off ends; 0: the CPU does not back off
 * @shift: how often the back-off has been doubled
 *
 * All times are in nanoseconds.
 */
struct virtio_poll_steal {
	u64 since;
	u64 stolen;
	u64 until;
	unsigned int shift;
};

/**
 * virtio_poll_steal_too_much - whether polling is to be left, because the core is wanted elsewhere
 * @s: the CPU's knowledge
 * @now: the CPU's clock
 * @stolen: what the host has stolen from this CPU since it booted
 *
 * To be called before a wait is polled through, and from time to time while polling lasts.
 *
 * When a back-off ends, the time that was stolen during it decides whether the next one follows at
 * once.  It takes a period of polling to shorten the next one.
 *
 * Return: true if the wait that begins should be left to an interrupt.
 */
static inline bool virtio_poll_steal_too_much(struct virtio_poll_steal *s, u64 now, u64 stolen)
{
	u64 period = now - s->since;
	bool first = !s->since;
	bool resumes = s->until;
	u64 part = stolen - s->stolen;

	if (resumes && now < s->until)
		return true;
	if (!first && period < VIRTIO_POLL_STEAL_PERIOD_NS)
		return false;
	s->since = now;
	s->stolen = stolen;
	s->until = 0;
	if (first)
		return false;
	if (part > period / VIRTIO_POLL_STEAL_PART) {
		s->until = now + (VIRTIO_POLL_STEAL_BACK_OFF_NS << s->shift);
		if (s->shift < VIRTIO_POLL_STEAL_SHIFT)
			s->shift++;
		return true;
	}
	if (!resumes && s->shift)
		s->shift--;
	return false;
}

#define VIRTIO_POLL_COMPUTES_SAMPLES	3
#define VIRTIO_POLL_COMPUTES_LATELY_NS	(50 * NSEC_PER_MSEC)

/**
 * struct virtio_poll_computes - the task that the samples of a CPU found at work
 * @task: it; only compared
 * @slept: how often it had given the CPU up by itself
 * @samples: how many found it with this @slept
 * @seen: when a sample last showed that it computes, in nanoseconds; 0: none did
 */
struct virtio_poll_computes {
	const void *task;
	unsigned long slept;
	unsigned int samples;
	u64 seen;
};

/**
 * virtio_poll_computes_note - a sample finds a task at work
 * @c: the CPU's knowledge
 * @task: a task that does not wait for I/O of this CPU
 * @slept: how often it has given the CPU up by itself
 * @now: the CPU's clock
 *
 * A task computes if VIRTIO_POLL_COMPUTES_SAMPLES found it, and it has not slept in between,
 * because it has wanted the CPU all that time.  One sample does not tell, because it finds any
 * task by chance.  Two do not tell, because a burst lasts longer when the host takes the CPU
 * meanwhile.
 */
static inline void virtio_poll_computes_note(struct virtio_poll_computes *c, const void *task,
					     unsigned long slept, u64 now)
{
	if (c->task != task || c->slept != slept) {
		c->task = task;
		c->slept = slept;
		c->samples = 0;
	}
	if (++c->samples >= VIRTIO_POLL_COMPUTES_SAMPLES)
		c->seen = now;
}

/**
 * virtio_poll_computes_lately - whether a task computed not long ago
 * @c: the CPU's knowledge
 * @now: the CPU's clock
 *
 * Return: true if a sample of the last VIRTIO_POLL_COMPUTES_LATELY_NS showed it.
 */
static inline bool virtio_poll_computes_lately(const struct virtio_poll_computes *c, u64 now)
{
	return c->seen && now - c->seen < VIRTIO_POLL_COMPUTES_LATELY_NS;
}

#endif /* _LINUX_VIRTIO_POLL_POLICY_H */
