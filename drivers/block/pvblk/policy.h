/* SPDX-License-Identifier: GPL-2.0 */
/*
 * When polling for a completion pays off.  Nothing in here touches a device, a
 * clock or a lock, so that it can be tested by itself (virtio_pvblk_test.c).
 *
 * What is learned is the *wait*: the time from when a queue began to wait (its
 * first request went out, or its last completion came in) to the completion
 * that ended the wait.  It is learned however the completion was noticed, so a
 * queue that sleeps notices when its device has become fast again.
 */
#ifndef _PVBLK_POLICY_H
#define _PVBLK_POLICY_H

#include <linux/minmax.h>
#include <linux/types.h>

/* A new wait counts for an eighth of what is known. */
#define PVBLK_LEARN_SHIFT	3

/**
 * struct pvblk_policy - what a queue knows about its device
 * @wait_ns: the smoothed wait, 0 while nothing is known
 */
struct pvblk_policy {
	u64 wait_ns;
};

/**
 * pvblk_policy_learn - a wait has ended
 * @p: the queue's knowledge
 * @ns: how long it took
 * @max_ns: the longest wait that is polled through
 *
 * One wait of a second (a host that was paused) must not switch polling off
 * for the next forty, so what is far out of reach counts as four times @max_ns.
 */
static inline void pvblk_policy_learn(struct pvblk_policy *p, u64 ns, u64 max_ns)
{
	ns = clamp(ns, 1ULL, max(4 * max_ns, 1ULL));
	if (!p->wait_ns)
		p->wait_ns = ns;
	else if (ns >= p->wait_ns)
		p->wait_ns += (ns - p->wait_ns) >> PVBLK_LEARN_SHIFT;
	else
		p->wait_ns -= max((p->wait_ns - ns) >> PVBLK_LEARN_SHIFT, 1ULL);
}

/**
 * pvblk_policy_pays - whether the next wait is expected to be short enough
 * @p: the queue's knowledge
 * @max_ns: the longest wait that is polled through
 *
 * A queue that knows nothing yet polls: the first I/O after loading or after
 * the administrator's change is as fast as it can be.
 */
static inline bool pvblk_policy_pays(const struct pvblk_policy *p, u64 max_ns)
{
	return p->wait_ns <= max_ns;
}

/**
 * pvblk_policy_budget - how long to poll before giving up
 * @p: the queue's knowledge
 * @max_ns: the longest wait that is polled through
 *
 * Four times the usual wait covers the usual spread; a wait that outlasts it
 * is of another kind (a flush, a busy host) and is left to an interrupt.
 */
static inline u64 pvblk_policy_budget(const struct pvblk_policy *p, u64 max_ns)
{
	if (!p->wait_ns)
		return max_ns;
	return min(4 * p->wait_ns, max_ns);
}

/**
 * pvblk_disk_name - the name of the disk with a given index
 * @index: 0 is vda, 25 is vdz, 26 is vdaa
 * @buf: where to write it
 * @size: room in @buf
 *
 * Return: 0, or -EINVAL if it does not fit.
 */
static inline int pvblk_disk_name(unsigned int index, char *buf, size_t size)
{
	char tail[8];
	int n = 0, len = 0;

	/* Bijective base 26, last letter first: there is no digit for zero. */
	for (index++; index; index = (index - 1) / 26)
		tail[n++] = 'a' + (index - 1) % 26;

	if (size < n + 3)
		return -EINVAL;
	buf[len++] = 'v';
	buf[len++] = 'd';
	while (n)
		buf[len++] = tail[--n];
	buf[len] = '\0';
	return 0;
}

#endif /* _PVBLK_POLICY_H */
