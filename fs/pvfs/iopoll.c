// SPDX-License-Identifier: GPL-2.0
/*
 * Tasks that poll for asynchronous direct I/O: io_uring with IORING_SETUP_IOPOLL.
 *
 * The core offers this if it has ->iopoll (a patch, see patches/).  Then args->iopoll of a request
 * is the iocb whose task polls for the reply.  This file calls such a request a polled one.
 *
 * A task that polls is not bound to its requests.  It may migrate, sleep, or never poll at all.
 * Its requests may be in several rings, or in none yet.  They count for max_background, so
 * other tasks may wait until they have ended.  Hence these rules:
 *
 * Finding the ring
 * ----------------
 * The task that puts a polled request into a ring notes the ring in iocb->private.  The iocb stays
 * until all its requests have ended.  A poller looks into that ring.  It looks into each ring that
 * has polled requests if the iocb's requests went to several rings (PVFS_RINGS), or if no polled
 * request is in the noted ring (the iocb's requests wait for room, or another poller has just ended
 * them).
 *
 * Taking replies and ending requests
 * ----------------------------------
 * A poller takes all replies that it finds, like any other task that holds the lock.  After it has
 * dropped the lock, it ends requests in this order:
 *
 * - First it ends those whose end does not sleep: requests that callers wait for, and polled ones
 *   without args->may_block, its own or those of other pollers.  It does so before it turns
 *   preemption on, because none of them may wait until a preempted poller runs again.
 * - Then it ends polled reads of its own open file whose end may sleep (args->may_block).  It may
 *   sleep, because io_uring holds no spin lock.  These reads come last, because a page that the end
 *   of one waits for may be locked until a request of the first kind has ended.
 *
 * The poller leaves all others to works: polled reads of other open files whose end may sleep,
 * because their tasks must not wait while this poller sleeps, all reads whose end may sleep while
 * tasks wait for room, and background requests that are not polled, because their end may wait for
 * much more (see pvfs_end_later()).  So a poller that sleeps or is preempted delays only tasks that
 * share its open file, and tasks that begin to wait for room at that moment.
 *
 * Any other task may take the reply to a polled request, too, and has a work end the request.
 *
 * The lease
 * ---------
 * A queue with requests in flight needs an owner (see virtio_poll.h).  While all of its requests
 * are polled ones, or those of callers that poll for themselves, the pollers own it by a lease.
 * virtio_poll counts the lease as one more waiter, so callbacks are off, and no thread polls the
 * queue.
 *
 * pvfs_watch() takes the lease, or gives it up, before the lock is dropped:
 *
 * - If another request comes in, or a caller stops polling, the lease ends at once, and the queue
 *   gets an owner of the usual kind.  So no other request waits because a poller sleeps.
 * - There is no lease while room is short (pvfs_room_is_short()), because other tasks wait until
 *   replies have been taken, and may be waiting outside of the ring.  If the request that takes
 *   the last room in the background goes to another ring, this ring's lease ends at the next poll
 *   that finds a reply, or by the timer.
 * - A timer looks every two ticks whether any task has polled, and whether room is short.  If none
 *   has, or if it is, the lease is over, and the timer stops.  q->work takes the replies then, and
 *   gives the queue an owner of the usual kind.  The next task that polls, or sends a polled
 *   request, ends such a lease, too, and a new one begins, with a timer.
 *
 * While @lease is true, @timed or @over is, so the timer or q->work ends the lease in any case.  So
 * if no task polls any more, a reply waits for two to four ticks.  If tasks go on sending polled
 * requests without polling, they extend that until the ring is full.
 *
 * The task that sends must begin a new lease.  io_uring polls only if the oldest I/O of its ring
 * has not completed.  So with several requests in flight it might find all of them ended by the
 * usual owners, and never poll again.
 *
 * A request for a lock that is not free stays in the ring (see locks.c).  Until its reply comes,
 * the queue has no lease.
 *
 * The timer's callback, a softirq, only tries the lock, because the lock's holder may hold it while
 * it waits for locks that softirqs must not wait for.
 *
 * When the device goes
 * --------------------
 * pvfs_queue_stop() clears q->live, and pvfs_queue_empty() ends all requests.  A poller reads the
 * ring only after it has seen q->live true with preemption off (see Locking in pvfs.h).
 */
#include "pvfs.h"

#include <linux/jiffies.h>

/* In iocb->private instead of the number of a ring: the iocb's requests went to several. */
#define PVFS_RINGS	ULONG_MAX

/* How often the timer looks, in ticks.  A timer never fires early, so one tick might be too few. */
#define PVFS_LEASE	2

static void pvfs_lease_begin(struct pvfs_queue *q)
{
	struct pvfs_iopoll *io = &q->iopoll;

	io->lease = true;
	virtio_poll_waiter_add(&q->poll);
	if (io->timed)
		return;
	io->timed = true;
	io->seen = READ_ONCE(io->polls);
	mod_timer(&io->timer, jiffies + PVFS_LEASE);
}

/* The caller holds the lock, and gives the queue another owner before it drops it. */
static void pvfs_lease_end(struct pvfs_queue *q)
{
	q->iopoll.lease = false;
	virtio_poll_waiter_del(&q->poll);
}

/*
 * Whether tasks wait for room: in a ring, because all rings are full, or for requests in the
 * background (max_background).  The core sets @blocked before it sends the request that takes the
 * last room.
 */
static bool pvfs_room_is_short(struct pvfs_queue *q)
{
	struct fuse_iqueue *fiq = pvfs_fiq(q);

	return fiq && (!list_empty(&fiq->pending) ||
		       READ_ONCE(container_of(fiq, struct fuse_conn, iq)->blocked));
}

/**
 * pvfs_lease_update - take the lease of a queue for its pollers, or give it up
 * @q: the queue, locked and live, with requests in flight
 *
 * The caller calls virtio_poll_watch() next.
 */
void pvfs_lease_update(struct pvfs_queue *q)
{
	struct pvfs_iopoll *io = &q->iopoll;
	/* Each waiter has one request in flight, and the lease, which is a waiter, has none. */
	unsigned int others = q->poll.inflight - io->inflight - (q->poll.waiters - io->lease);
	bool lease = io->inflight && !others && !io->over && !pvfs_room_is_short(q);

	/* Otherwise nothing would end the lease if no task polled any more. */
	lockdep_assert(!io->lease || io->timed || io->over);
	if (lease == io->lease)
		return;
	if (lease)
		pvfs_lease_begin(q);
	else
		pvfs_lease_end(q);
}

static void pvfs_lease_timer(struct timer_list *t)
{
	struct pvfs_queue *q = from_timer(q, t, iopoll.timer);
	struct pvfs_iopoll *io = &q->iopoll;

	if (!spin_trylock(&q->poll.lock)) {
		mod_timer(&io->timer, jiffies + 1);
		return;
	}
	io->timed = false;
	if (io->lease && io->seen != READ_ONCE(io->polls) && !pvfs_room_is_short(q)) {
		io->timed = true;
		io->seen = READ_ONCE(io->polls);
		mod_timer(&io->timer, jiffies + PVFS_LEASE);
	} else if (io->lease) {
		WRITE_ONCE(io->over, true);
		queue_work(pvfs_wq, &q->work);
	}
	spin_unlock(&q->poll.lock);
}

/**
 * pvfs_lease_expire - give up a lease if it is over
 * @q: the queue, locked and live
 *
 * The caller is q->work, or a task that polls or sends before q->work has run.  If no caller polls
 * the queue, it calls pvfs_watch() before it drops the lock.
 */
void pvfs_lease_expire(struct pvfs_queue *q)
{
	if (q->iopoll.lease && q->iopoll.over)
		pvfs_lease_end(q);
}

/* The timer of a lease that is over has stopped, so pvfs_watch() has to begin a new one. */
static void pvfs_lease_renew(struct pvfs_queue *q)
{
	pvfs_lease_expire(q);
	WRITE_ONCE(q->iopoll.over, false);
}

/**
 * pvfs_iopoll_sent - note that a request went into a ring
 * @q: the queue, locked; the caller calls pvfs_watch() before it drops the lock, unless a thread of
 *	virtio_poll polls the queue: then there is no lease
 * @slot: the request's slot
 */
void pvfs_iopoll_sent(struct pvfs_queue *q, struct pvfs_slot *slot)
{
	struct kiocb *iocb = slot->req->args->iopoll;
	unsigned long ring = q->index + 1UL;
	unsigned long noted;

	slot->iopoll = iocb;
	if (likely(!iocb))
		return;
	WRITE_ONCE(q->iopoll.inflight, q->iopoll.inflight + 1);
	if (q->iopoll.over)
		pvfs_lease_renew(q);
	/*
	 * Pollers read this without a lock.  0 means that no request was sent yet.  If a task that
	 * found room for a pending request writes at the same time, one of the two rings may be
	 * forgotten.  Then the poller does not look there, and the lease of that ring runs out.
	 */
	noted = (unsigned long)READ_ONCE(iocb->private);
	if (unlikely(noted && noted != ring))
		ring = PVFS_RINGS;
	WRITE_ONCE(iocb->private, (void *)ring);
}

/**
 * pvfs_iopoll_answered - note that a polled request is not in the ring any more
 * @q: the queue, locked
 *
 * If this was the last one, the lease ends here, because a queue that stops has no pvfs_watch().
 */
void pvfs_iopoll_answered(struct pvfs_queue *q)
{
	WRITE_ONCE(q->iopoll.inflight, q->iopoll.inflight - 1);
	if (!q->iopoll.inflight && q->iopoll.lease)
		pvfs_lease_end(q);
}

/**
 * pvfs_iopoll_takes - have a poller end a polled request, if one takes the reply
 * @q: the queue, locked
 * @req: the polled request, with its result
 * @done: where to put a request whose end does not sleep
 *
 * Return: false if the caller has a work end the request.
 */
bool pvfs_iopoll_takes(struct pvfs_queue *q, struct fuse_req *req, struct list_head *done)
{
	struct pvfs_iopoller *poller = q->iopoll.poller;

	if (!poller)
		return false;
	if (!req->args->may_block)
		list_add_tail(&req->list, done);
	else if (req->args->iopoll->ki_filp == poller->file && !pvfs_room_is_short(q))
		list_add_tail(&req->list, &poller->may_block);
	else
		return false;
	q->stats.iopolled++;
	return true;
}

/*
 * Whether a poller would find nothing to do.  The poller asks without the lock, and polls in a
 * loop.  So it sees the next time if something changes just after this has looked.
 */
static bool pvfs_iopoll_nothing_new(struct pvfs_queue *q)
{
	return !READ_ONCE(q->live) ||
	       (virtio_poll_unchanged(&q->poll) && !READ_ONCE(q->iopoll.over));
}

static unsigned int pvfs_iopoll_collect(struct pvfs_queue *q, struct pvfs_iopoller *poller,
					struct list_head *done)
{
	u64 before = q->stats.iopolled;

	pvfs_lease_renew(q);
	virtio_poll_mark(&q->poll);
	q->iopoll.poller = poller;
	pvfs_collect(q, done, true);
	q->iopoll.poller = NULL;
	pvfs_watch(q);
	return q->stats.iopolled - before;
}

/* If the lock is taken, its holder takes the replies, or holds it for a short time. */
static unsigned int pvfs_iopoll_try(struct pvfs_queue *q, struct pvfs_iopoller *poller,
				    struct list_head *done)
{
	unsigned int n = 0;

	if (!spin_trylock_bh(&q->poll.lock))
		return 0;
	if (q->live)
		n = pvfs_iopoll_collect(q, poller, done);
	spin_unlock_bh(&q->poll.lock);
	return n;
}

static unsigned int pvfs_iopoll_queue(struct pvfs_queue *q, struct file *file)
{
	struct pvfs_iopoller poller = { .file = file };
	unsigned int n = 0;
	LIST_HEAD(done);

	INIT_LIST_HEAD(&poller.may_block);
	preempt_disable();
	/* Two pollers may count one poll only, which does not matter to the timer. */
	WRITE_ONCE(q->iopoll.polls, READ_ONCE(q->iopoll.polls) + 1);
	if (!pvfs_iopoll_nothing_new(q))
		n = pvfs_iopoll_try(q, &poller, &done);
	/* No other task ends these requests, so this one must not be preempted before. */
	pvfs_end_list(&done);
	preempt_enable();
	pvfs_end_list(&poller.may_block);
	return n;
}

/**
 * pvfs_iopoll - look once for the reply that a task waits for
 * @fiq: the core's queue of the connection
 * @iocb: the task's iocb
 * @flags: BLK_POLL_*; the function never polls in a loop, because io_uring does
 *
 * Return: how many polled requests this has ended.
 */
int pvfs_iopoll(struct fuse_iqueue *fiq, struct kiocb *iocb, unsigned int flags)
{
	struct pvfs_dev *dev = fiq->priv;
	unsigned long ring = (unsigned long)READ_ONCE(iocb->private);
	bool one = ring && ring != PVFS_RINGS;
	unsigned int i, n = 0;

	if (likely(one && READ_ONCE(dev->queues[ring - 1].iopoll.inflight)))
		return pvfs_iopoll_queue(&dev->queues[ring - 1], iocb->ki_filp);
	for (i = 0; i < dev->nr_queues; i++)
		if (READ_ONCE(dev->queues[i].iopoll.inflight))
			n += pvfs_iopoll_queue(&dev->queues[i], iocb->ki_filp);
	return n;
}

/**
 * pvfs_iopoll_init - set up a queue's lease, at probe
 * @q: the queue
 */
void pvfs_iopoll_init(struct pvfs_queue *q)
{
	timer_setup(&q->iopoll.timer, pvfs_lease_timer, 0);
}

/**
 * pvfs_iopoll_free - stop the timer for good
 * @q: the queue; nothing is in flight
 */
void pvfs_iopoll_free(struct pvfs_queue *q)
{
	timer_shutdown_sync(&q->iopoll.timer);
}
