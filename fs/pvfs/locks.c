// SPDX-License-Identifier: GPL-2.0
/*
 * Waiting for locks of the host: more tasks may do it than a ring has slots.
 *
 * The rule
 * --------
 * The operation that frees a resource must not need a unit of it.  The server answers FUSE_SETLKW
 * once the lock is free, and until then the request keeps its slot and its descriptors.  The unlock
 * needs a slot, too.  If waiters had all of them, the driver could not send the unlock, and any
 * user could stop the mount.
 *
 * - Waits have at most half of a ring's slots, so they have half of its descriptors at most.  All
 *   other requests are answered without the help of this guest.  The largest of them fits into the
 *   other half, see pvfs_limit_pages().  So the ring has room for it sooner or later.
 * - The driver sends a request beyond that as FUSE_SETLK, which the server answers at once.  If the
 *   answer is -EAGAIN, the driver parks the request, and park_work sends it again.  It sends a few
 *   requests each PVFS_PARK_PAUSE, in turn.  As soon as a wait ends, a parked request waits in its
 *   place.
 *
 * It would be simpler to leave parked requests alone until a wait ends, but two locks could
 * deadlock then.  All waits are for the first lock, and the task that holds it wants the second
 * one.  Its request would be parked for good, although the second lock is free.  So each request
 * asks again and again, until it has the lock.
 *
 * This costs fairness, because the server does not know about parked requests, and a server that
 * finds deadlocks (-EDEADLK) does not find those of parked requests.  Such tasks wait until they
 * are killed, as with a server that does not look for deadlocks.
 *
 * To the core a parked request is a pending one: on a list under fiq->lock, with FR_PENDING, so
 * that a fatal signal can take it away.  The core does not tell the transport about
 * other signals before a request is sent, so park_work looks for FR_INTERRUPTED.
 * The end of the connection drops parked requests, see pvfs_queue_drop_pending().
 */
#include "pvfs.h"

/* How many parked requests ask at once, and how long it is until the next of them do. */
#define PVFS_PARK_ROUND	16
#define PVFS_PARK_PAUSE	(HZ / 20)

/**
 * pvfs_lock_way - how to send a request
 * @q: the queue, locked
 * @req: the request
 */
enum pvfs_lock pvfs_lock_way(const struct pvfs_queue *q, const struct fuse_req *req)
{
	if (likely(!pvfs_can_interrupt(req)))
		return PVFS_LOCK_NONE;
	return q->lock_waits < q->max_lock_waits ? PVFS_LOCK_WAITS : PVFS_LOCK_ASKS;
}

/* False: a signal has come, and ends the request. */
static bool pvfs_park(struct pvfs_dev *dev, struct fuse_iqueue *fiq, struct fuse_req *req)
{
	bool parked;

	spin_lock(&fiq->lock);
	/* park_work finds a signal that comes after this look. */
	parked = !test_bit(FR_INTERRUPTED, &req->flags);
	if (parked) {
		set_bit(FR_PENDING, &req->flags);
		list_add_tail(&req->list, &dev->parked);
	}
	spin_unlock(&fiq->lock);
	if (parked)
		queue_delayed_work(pvfs_wq, &dev->park_work, PVFS_PARK_PAUSE);
	return parked;
}

/* Put up to @n parked requests on fiq->pending; the caller dispatches. */
static void pvfs_unpark(struct pvfs_dev *dev, struct fuse_iqueue *fiq, unsigned int n)
{
	struct fuse_req *req, *next;

	lockdep_assert_held(&fiq->lock);
	list_for_each_entry_safe(req, next, &dev->parked, list) {
		if (!n--)
			break;
		list_move_tail(&req->list, &fiq->pending);
	}
}

/**
 * pvfs_lock_done - park a request for a lock, if it has to ask again
 * @q: the queue, locked; the caller dispatches, or the queue is stopped
 * @req: the request, which has its result and no slot any more
 * @lock: how it was sent
 *
 * Return: true if it asks again later; false if it is to be ended.
 */
bool pvfs_lock_done(struct pvfs_queue *q, struct fuse_req *req, enum pvfs_lock lock)
{
	struct fuse_iqueue *fiq = &req->fm->fc->iq;

	if (lock == PVFS_LOCK_WAITS) {
		spin_lock(&fiq->lock);
		pvfs_unpark(q->dev, fiq, 1);
		spin_unlock(&fiq->lock);
		return false;
	}
	if (req->out.h.error != -EAGAIN)
		return false;
	if (pvfs_park(q->dev, fiq, req))
		return true;
	req->out.h.error = -EINTR;
	return false;
}

/* Move requests whose tasks have got a signal to @over. */
static void pvfs_take_interrupted(struct pvfs_dev *dev, struct fuse_iqueue *fiq,
				  struct list_head *over)
{
	struct fuse_req *req, *next;

	lockdep_assert_held(&fiq->lock);
	list_for_each_entry_safe(req, next, &dev->parked, list) {
		if (!test_bit(FR_INTERRUPTED, &req->flags))
			continue;
		clear_bit(FR_PENDING, &req->flags);
		req->out.h.error = -EINTR;
		list_move_tail(&req->list, over);
	}
}

static void pvfs_park_work(struct work_struct *work)
{
	struct pvfs_dev *dev = container_of(to_delayed_work(work), struct pvfs_dev, park_work);
	struct fuse_conn *fc;
	LIST_HEAD(over);

	/* The connection is freed after an RCU grace period. */
	rcu_read_lock();
	fc = READ_ONCE(dev->fc);
	if (fc) {
		spin_lock(&fc->iq.lock);
		pvfs_take_interrupted(dev, &fc->iq, &over);
		pvfs_unpark(dev, &fc->iq, PVFS_PARK_ROUND);
		if (!list_empty(&dev->parked))
			queue_delayed_work(pvfs_wq, &dev->park_work, PVFS_PARK_PAUSE);
		spin_unlock(&fc->iq.lock);
	}
	rcu_read_unlock();
	pvfs_end_list(&over);
	pvfs_dispatch_all(dev);
}

/**
 * pvfs_locks_init - at probe
 * @dev: the device
 */
void pvfs_locks_init(struct pvfs_dev *dev)
{
	INIT_LIST_HEAD(&dev->parked);
	INIT_DELAYED_WORK(&dev->park_work, pvfs_park_work);
}

/**
 * pvfs_locks_free - the device goes
 * @dev: the device, which has no connection any more
 */
void pvfs_locks_free(struct pvfs_dev *dev)
{
	cancel_delayed_work_sync(&dev->park_work);
}
