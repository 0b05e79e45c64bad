// SPDX-License-Identifier: GPL-2.0
/*
 * Waiting for locks of the host: more tasks may wait than a ring has slots.
 *
 * The rule
 * --------
 * An operation that frees a resource must not need a unit of that resource.
 *
 * Here the resource is the slots of a ring and its descriptors.  The server answers FUSE_SETLKW
 * once the lock is free, and until then the request keeps its slot and its descriptors.  The unlock
 * needs a slot, too.  If requests that wait for locks had all slots, the driver could not send the
 * unlock, and any user could stop the mount.
 *
 * - Requests that wait for locks have at most half of a ring's slots, and so at most half of its
 *   descriptors.  The server answers all other requests without the help of this guest, and the
 *   largest of them fits into the other half (pvfs_limit_pages()).  So the ring has room for such a
 *   request sooner or later.
 * - The driver sends further requests for locks as FUSE_SETLK, which the server answers at once.
 *   If the answer is -EAGAIN, the driver parks the request, and park_work sends it again later.
 *   park_work sends a few parked requests every PVFS_PARK_PAUSE, in turn.  When a request that
 *   waited at the server ends, a parked one takes its place there.
 *
 * Parked requests ask again
 * -------------------------
 * It would be simpler to leave parked requests alone until a wait at the server ends.  But then two
 * locks could deadlock.  Suppose that all requests at the server wait for the first lock, and that
 * the task that holds it wants the second one.  Its request would be parked for good, although the
 * second lock is free.  So each parked request asks again and again, until it has the lock.
 *
 * This costs fairness, because the server does not know about parked requests.  It also does not
 * find a deadlock of parked requests, even if it finds deadlocks otherwise (-EDEADLK).  Tasks in
 * such a deadlock wait until they are killed, as with a server that never looks for deadlocks.
 *
 * Signals
 * -------
 * For the core a parked request is pending: it has FR_PENDING, and is on a list under fiq->lock.
 * So the core can take it away at a fatal signal.  The core does not tell the transport about other
 * signals before a request is sent, so park_work looks for FR_INTERRUPTED.
 *
 * When the device stops, pvfs_queue_drop_pending() ends parked requests.
 */
#include "pvfs.h"

/* How many parked requests park_work sends at once, and how long it waits between two rounds. */
#define PVFS_PARK_ROUND	16
#define PVFS_PARK_PAUSE	(HZ / 20)

/**
 * pvfs_lock_way - decide how to send a request
 * @q: the queue, locked
 * @req: the request
 */
enum pvfs_lock pvfs_lock_way(const struct pvfs_queue *q, const struct fuse_req *req)
{
	if (likely(!pvfs_can_interrupt(req)))
		return PVFS_LOCK_NONE;
	return q->lock_waits < q->max_lock_waits ? PVFS_LOCK_WAITS : PVFS_LOCK_ASKS;
}

/* Park a request.  Returns false if a signal has come.  Then the caller ends the request. */
static bool pvfs_park(struct pvfs_dev *dev, struct fuse_iqueue *fiq, struct fuse_req *req)
{
	bool parked;

	spin_lock(&fiq->lock);
	/* park_work finds a signal that comes after this check. */
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

/* Move up to N parked requests to fiq->pending.  The caller sends them from there. */
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
 * @q: the queue, locked; the caller sends pending requests next, unless the queue is stopped
 * @req: the request, which has its result and no slot any more
 * @lock: how the driver sent the request
 *
 * If the request has waited at the server, a parked one may wait there now, so the function makes
 * that one pending.
 *
 * Return: true if the request is parked; false if the caller is to end it.
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

/* Move the parked requests whose tasks have got a signal to the list OVER. */
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

	/* RCU keeps the connection, because the core frees it only after a grace period. */
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
 * pvfs_locks_init - set up the list of parked requests, at probe
 * @dev: the device
 */
void pvfs_locks_init(struct pvfs_dev *dev)
{
	INIT_LIST_HEAD(&dev->parked);
	INIT_DELAYED_WORK(&dev->park_work, pvfs_park_work);
}

/**
 * pvfs_locks_free - stop park_work, because the device goes
 * @dev: the device, which has no connection any more
 */
void pvfs_locks_free(struct pvfs_dev *dev)
{
	cancel_delayed_work_sync(&dev->park_work);
}
