/* SPDX-License-Identifier: GPL-2.0 */
/*
 * In-kernel side of /dev/vhost-poll: what a vhost device needs to have its
 * vrings served by a poller.
 *
 * Lifetime.  vhost_poller_get() takes a reference on the poller's file, so a
 * poller outlives every source attached to it.  A source belongs to its owner,
 * which attaches it, and detaches it before freeing it.  vhost_poll_detach()
 * returns when no @poll, @arm or @disarm of the source runs and no callback will be
 * called again; a @run may still be under way, see vhost_poll_settle().  It may
 * sleep and must not be called from a callback, nor with a lock held that a
 * callback waits for (as against: tries).
 *
 * Threads.  @poll, @arm, @disarm, @pop, @punt and @deliver of a source run in the thread that
 * polls, one at a time, with source->mm in use (kthread_use_mm()) where it is set.
 * They must not sleep on I/O, on memory, or on a lock whose holder does so.  @run may
 * sleep: another thread polls from there on.
 *
 * vhost_poll_wake() may be called from anywhere, interrupts included, and for as long
 * as the memory of the source is there, attached or not.
 *
 * The threads are freezable, see drivers/vhost/poll/poller.c.  While freezing(current) is true
 * @poll takes no new requests.
 *
 * Sleep.  A poller about to sleep first says so, then calls @arm for each
 * source, and sleeps only if all of them return false.  A producer of work
 * first makes it visible, then calls vhost_poll_wake().  There is a full
 * barrier between the two steps on both sides, so either @arm sees the work or
 * vhost_poll_wake() sees the sleeper.
 */
#ifndef _LINUX_VHOST_POLL_H
#define _LINUX_VHOST_POLL_H

#include <linux/cache.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/types.h>
#include <linux/uaccess.h>

struct vhost_poller;
struct vhost_poll_source;
struct mm_struct;

/**
 * struct vhost_poll_ops - what a poller asks of a source
 * @poll: serve up to @budget requests and completions; returns how many.  *@now is
 *	ktime_get_ns() of a moment ago, so that not each source reads the clock for itself, or 0
 *	if that is not known.  A source that did more than look sets it to 0
 * @arm: turn notifications on before the poller sleeps; returns true if there
 *	is work already, in which case the poller does not sleep.  Requests that
 *	are merely in flight are not work, whether @polled or not
 * @disarm: turn them off again; follows every @arm, whatever it returned, and
 *	is called once at attach
 * @pop: of a source that sets @waiting: take its next waiting request, which one of the
 *	next two gets
 * @run: carry the request out.  It may sleep.  If it does, or takes too long, all other
 *	callbacks go on in another thread.  So it must not touch what belongs to the
 *	callbacks, and nothing of the source after the request, because the source may
 *	be detached by then.  The owner calls vhost_poll_settle() before the source
 *	goes, or another poller gets it
 * @punt: have a worker carry it out
 * @deliver: optional: answer up to @budget requests that @run has carried out, so that the
 *	guest need not wait for the next round; returns how many
 */
struct vhost_poll_ops {
	int (*poll)(struct vhost_poll_source *src, int budget, u64 *now);
	bool (*arm)(struct vhost_poll_source *src);
	void (*disarm)(struct vhost_poll_source *src);
	void *(*pop)(struct vhost_poll_source *src);
	void (*run)(void *request);
	void (*punt)(void *request);
	int (*deliver)(struct vhost_poll_source *src, int budget);
};

/**
 * struct vhost_poll_source - one vring as its poller sees it
 * @ops: set by the owner
 * @mm: whose memory the callbacks touch; the poller holds it with
 *	mmget_not_zero() and leaves out a source whose owner is gone
 * @weight: 1 to 1000, share of a round
 * @inflight: requests given to the backend and not yet back
 * @oldest_ns: when the oldest of them was given (ktime_get_ns(), or 0)
 * @service_ns: what the owner learned of how long one takes
 * @polled: the owner does not call vhost_poll_wake() when a request in flight is done, so
 *	the poller has to look.  It never sleeps without a timer then
 * @retry_ns: when to call @poll again at the latest, work or not; 0: not needed
 * @waiting: there are requests for @pop.  @arm has to say that they are work
 *
 * From @inflight on, fields are written by the callbacks only.  The poller reads
 * them after @poll, to foresee the next completion.
 */
struct vhost_poll_source {
	const struct vhost_poll_ops *ops;
	struct mm_struct *mm;
	u32 weight;
	/* private: vhost_poll's own; read by tasks that wake the poller */
	struct vhost_poller __rcu *poller;

	/* public: written in each round, so not in a line that others read */
	unsigned int inflight ____cacheline_aligned_in_smp;
	u64 oldest_ns;
	u64 service_ns;
	u64 retry_ns;
	bool polled;
	bool waiting;

	/* private: vhost_poll's own */
	unsigned int backoff;
	unsigned int slept;
	unsigned int strikes;
	unsigned int good;
	struct list_head node;
	unsigned long state;
};

/**
 * vhost_poll_learn - a request is back from the backend
 * @src: whose; for its callbacks only
 * @took: nanoseconds since it was given to the backend
 *
 * A forecast is of the usual: a request that took ten times as long (the host
 * was busy, the disk retried) counts as one that took twice the usual.
 */
static inline void vhost_poll_learn(struct vhost_poll_source *src, s64 took)
{
	s64 mean = src->service_ns;

	/* Nobody waits for what is done within the round. */
	if (took <= 0)
		return;
	if (mean)
		took = mean + (min(took, 2 * mean) - mean) / 8;
	src->service_ns = took;
}

/*
 * Arguments of the ioctls of pollers and of the devices they serve begin with
 * their size, see uapi/linux/vhost_poll.h.  The size in the ioctl's number is
 * the one user space was compiled with, too, but it is not looked at, so that
 * a structure can grow without a change of the number.
 */
static inline int vhost_poll_arg_size(u32 *size, const void __user *uarg,
				      u32 min)
{
	if (get_user(*size, (const u32 __user *)uarg))
		return -EFAULT;
	if (*size < min)
		return -EINVAL;
	/* Nobody has that much news; looking for it would take its time. */
	if (*size > PAGE_SIZE)
		return -E2BIG;
	return 0;
}

static inline int vhost_poll_get_arg(void *arg, size_t ksize,
				     const void __user *uarg, u32 min)
{
	u32 size;
	int r = vhost_poll_arg_size(&size, uarg, min);

	return r ?: copy_struct_from_user(arg, ksize, uarg, size);
}

/* The other way; what is newer to user space than to us is zero. */
static inline int vhost_poll_put_arg(void __user *uarg, u32 size,
				     const void *arg, u32 ksize)
{
	u32 both = min(size, ksize);

	if (copy_to_user(uarg, arg, both) ||
	    clear_user(uarg + both, size - both))
		return -EFAULT;
	return 0;
}

struct vhost_poller *vhost_poller_get(int fd);
void vhost_poller_put(struct vhost_poller *poller);
unsigned int vhost_poller_cpu(const struct vhost_poller *poller);

int vhost_poll_attach(struct vhost_poller *poller, struct vhost_poll_source *src);
void vhost_poll_detach(struct vhost_poll_source *src);
bool vhost_poll_settle(struct vhost_poller *poller,
		       const struct vhost_poll_source *src, long timeout);
void vhost_poll_wake(struct vhost_poll_source *src);

#endif /* _LINUX_VHOST_POLL_H */
