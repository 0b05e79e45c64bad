// SPDX-License-Identifier: GPL-2.0
/*
 * timeout=: if the server falls silent, the mount's requests fail, and callers do not wait
 * for ever.
 *
 * The driver cannot take back a single request, because its buffers belong to the device until the
 * device answers or is reset.  So fail_work ends all requests together.  It does so only if no
 * reply at all has come, because a server that answers other requests still works on this one.
 *
 * Requests that may take long
 * ---------------------------
 * The timeout ignores requests that may take long (pvfs_is_patient()), because any user can send
 * one, and the driver must not give a healthy server up for it.  If the server dies while only
 * such requests wait, the timeout finds out at the next request of another kind.
 *
 * A request that waits for room in a ring does not show whether the server is silent, because all
 * requests in the ring may be of the kind that takes long.  In that case the driver sends a message
 * on the hiprio queue, which a healthy server takes at once.
 *
 * The work
 * --------
 * timeout_work runs every quarter of the limit, but not more often than each second.  It counts the
 * intervals from one run to the next in which a request waited all the time and no reply came.  It
 * does not count time, because the clock of a machine that was stopped jumps ahead, and such a jump
 * is only one interval.
 *
 * The work runs from the mount until DESTROY has ended, because umount may wait for the server as
 * well.  It ends earlier if it gives the device up.
 */
#include "pvfs.h"

#include <linux/jiffies.h>
#include <linux/rcupdate.h>
#include <linux/workqueue.h>

/* The time between two runs of timeout_work, in seconds. */
static unsigned int pvfs_timeout_interval(const struct pvfs_dev *dev)
{
	return max(dev->timeout / 4, 1U);
}

static void pvfs_timeout_later(struct pvfs_dev *dev)
{
	queue_delayed_work(pvfs_fail_wq, &dev->timeout_work, pvfs_timeout_interval(dev) * HZ);
}

/* Whether a request that should not take long waits for room in a ring. */
static bool pvfs_waits_for_room(struct pvfs_dev *dev)
{
	struct fuse_conn *fc;
	struct fuse_req *req;
	bool waits = false;

	/* RCU keeps the connection, because the core frees it only after a grace period. */
	rcu_read_lock();
	fc = READ_ONCE(dev->fc);
	if (fc) {
		spin_lock(&fc->iq.lock);
		list_for_each_entry(req, &fc->iq.pending, list) {
			waits = !pvfs_is_patient(req);
			if (waits)
				break;
		}
		spin_unlock(&fc->iq.lock);
	}
	rcu_read_unlock();
	return waits;
}

/* Whether the server has been silent since the last call, while a request waited all the time. */
static bool pvfs_is_silent(struct pvfs_dev *dev)
{
	u64 before = dev->replies;
	bool waited = dev->waited;
	unsigned int i;

	dev->replies = 0;
	dev->waited = false;
	for (i = 0; i < dev->nr_queues; i++)
		dev->waited |= pvfs_queue_waits(&dev->queues[i], &dev->replies);
	if (!dev->waited && pvfs_waits_for_room(dev)) {
		dev->waited = pvfs_hiprio_ask(dev);
		/*
		 * Messages count only in this case, because a server may take FORGETs but answer no
		 * request.
		 */
		dev->replies += pvfs_hiprio_taken(dev);
	}
	/* If no reply came, a request (or a message) that waited at the last call still waits. */
	return waited && dev->waited && dev->replies == before;
}

static void pvfs_timeout_work(struct work_struct *work)
{
	struct pvfs_dev *dev = container_of(to_delayed_work(work), struct pvfs_dev, timeout_work);

	if (pvfs_is_silent(dev))
		dev->silent += pvfs_timeout_interval(dev);
	else
		dev->silent = 0;
	if (dev->silent < dev->timeout) {
		pvfs_timeout_later(dev);
		return;
	}
	pr_err("pvfs: %s: the server has not answered for %u seconds (timeout=); giving up the device, data not yet written back are lost\n",
	       dev->tag, dev->timeout);
	queue_work(pvfs_fail_wq, &dev->fail_work);
}

/**
 * pvfs_timeout_init - set up timeout_work, at probe
 * @dev: the device
 */
void pvfs_timeout_init(struct pvfs_dev *dev)
{
	INIT_DELAYED_WORK(&dev->timeout_work, pvfs_timeout_work);
}

/**
 * pvfs_timeout_start - begin to watch the server of a mount
 * @dev: the device; dev->lock is held
 * @seconds: how long the server may be silent; 0: for ever
 */
void pvfs_timeout_start(struct pvfs_dev *dev, unsigned int seconds)
{
	lockdep_assert_held(&dev->lock);
	WRITE_ONCE(dev->timeout, seconds);
	dev->silent = 0;
	dev->waited = false;
	if (seconds)
		pvfs_timeout_later(dev);
}

/**
 * pvfs_timeout_stop - end the watch, once the mount has gone
 * @dev: the device; dev->lock is not held
 */
void pvfs_timeout_stop(struct pvfs_dev *dev)
{
	cancel_delayed_work_sync(&dev->timeout_work);
	/* Wait for the reset, which must not hit the next mount. */
	flush_work(&dev->fail_work);
}
