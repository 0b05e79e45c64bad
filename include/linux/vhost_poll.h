/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interface of /dev/vhost-poll for vhost devices whose vrings a poller serves.
 *
 * Lifetime.  vhost_poller_get() takes a reference on the poller's file, so a
 * poller outlives every source attached to it.  A source belongs to its owner,
 * which attaches it, and detaches it before it frees it.  When vhost_poll_detach()
 * returns, no thread is in @poll, @arm or @disarm of the source, and the poller calls
 * none of its callbacks any more.  But a @run may still be under way: see
 * vhost_poll_settle().  vhost_poll_detach() may sleep.  A callback must not call it,
 * nor a task that holds a lock for which a callback waits.  (A callback that only tries
 * the lock does no harm.)
 *
 * Threads.  The thread that polls calls @poll, @arm, @disarm, @pop, @punt and @deliver,
 * one at a time, with source->mm in use (kthread_use_mm()) if it is set.  They must not
 * sleep for I/O, for memory, or for a lock whose holder does so.  @run may sleep, because
 * another thread then goes on polling.
 *
 * Any context, an interrupt too, may call vhost_poll_wake() as long as the memory of the
 * source is there, whether the source is attached or not.
 *
 * The threads are freezable, see drivers/vhost/poll/poller.c.  While freezing(current) is
 * true, @poll takes no new requests.
 *
 * Sleep.  A poller that is about to sleep first sets a flag, then calls @arm of each
 * source, and sleeps only if all of them return false.  A producer of work first
 * makes the work visible, then calls vhost_poll_wake(), which looks at the flag.  Both
 * have a full barrier between their two steps, so either @arm sees the work, or
 * vhost_poll_wake() sees the flag.
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
 * struct vhost_poll_ops - the callbacks of a source
 * @poll: serve up to @budget requests and completions, and return how many.  *@now is
 *	ktime_get_ns() of a moment ago, so that not each source reads the clock for itself, or 0
 *	if the poller does not know it.  A source that did more than look sets it to 0
 * @arm: turn notifications on before the poller sleeps.  If it returns true, there is work
 *	already, and the poller does not sleep.  Requests that are only in flight are not
 *	work, whether @polled or not
 * @disarm: turn notifications off again.  The poller calls it after each @arm, whatever that
 *	returned, and once at attach
 * @pop: take the next waiting request off a source that has set @waiting.  The poller passes
 *	the request to @run or to @punt
 * @run: carry the request out; may sleep.  If it sleeps, or takes too long, another thread
 *	goes on with all other callbacks.  So @run must not touch fields that belong to the
 *	callbacks.  Once the request is over, it must touch nothing of the source, because
 *	the source may be detached by then.  The owner calls vhost_poll_settle() before it
 *	frees the source, or attaches it to another poller
 * @punt: have a worker carry the request out
 * @deliver: optional: answer up to @budget requests that @run has carried out, and return how
 *	many, so that the guest need not wait for the next round
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
 * @mm: the memory that the callbacks touch, or NULL.  The poller holds it with
 *	mmget_not_zero(), and skips the source once the mm has no users any more
 * @weight: share of a round, 1 to 1000
 * @inflight: requests in flight, which the backend or a worker has
 * @oldest_ns: when the oldest of them was submitted (ktime_get_ns()); 0 if there is none
 * @service_ns: how long a request usually takes, see vhost_poll_learn()
 * @polled: the owner does not call vhost_poll_wake() when a request in flight is done, so
 *	the poller has to look, and never sleeps without a timer
 * @retry_ns: when to call @poll again at the latest, even without work; 0: not needed
 * @waiting: the source has requests for @pop.  @arm must return true for them
 *
 * Only the callbacks write @inflight and the fields after it.  The poller reads them after
 * @poll, to predict the next completion.
 */
struct vhost_poll_source {
	const struct vhost_poll_ops *ops;
	struct mm_struct *mm;
	u32 weight;
	/* private: only vhost_poll writes it; tasks that wake the poller read it */
	struct vhost_poller __rcu *poller;

	/* public: rounds write these, so they are not in a cache line that other tasks read */
	unsigned int inflight ____cacheline_aligned_in_smp;
	u64 oldest_ns;
	u64 service_ns;
	u64 retry_ns;
	bool polled;
	bool waiting;

	/* private: only the polling thread uses these */
	unsigned int backoff;
	unsigned int slept;
	unsigned int strikes;
	unsigned int good;
	struct list_head node;
	unsigned long state;
};

/**
 * vhost_poll_learn - learn from a completed request how long requests usually take
 * @src: the source of the request; only its callbacks may call this
 * @took: nanoseconds for which the backend had the request
 *
 * A request that took more than twice the usual time counts as one that took twice
 * that time, because the host may have been busy, or the disk may have retried.
 */
static inline void vhost_poll_learn(struct vhost_poll_source *src, s64 took)
{
	s64 mean = src->service_ns;

	/* The request ended within the round, so no poller had to wait for it. */
	if (took <= 0)
		return;
	if (mean)
		took = mean + (min(took, 2 * mean) - mean) / 8;
	src->service_ns = took;
}

/*
 * The arguments of ioctls of pollers, and of the devices that they serve, begin with
 * their size: see uapi/linux/vhost_poll.h.  The number of an ioctl has that size as
 * well.  The kernel ignores it there, so that a structure can grow and old programs
 * go on working.
 */
static inline int vhost_poll_arg_size(u32 *size, const void __user *uarg,
				      u32 min)
{
	if (get_user(*size, (const u32 __user *)uarg))
		return -EFAULT;
	if (*size < min)
		return -EINVAL;
	/* No structure is so large, and the kernel would have to look through all of it. */
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

/* Copy to user space.  Fields of a newer version, which this kernel does not know, are set to 0. */
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
