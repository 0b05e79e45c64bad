// SPDX-License-Identifier: GPL-2.0
/*
 * The data path: it puts requests into a ring and takes replies out of it.
 *
 * If the ring has no room for a request, or if other requests wait for room already, the sender
 * appends its request to fiq->pending, the core's list of pending requests.  From there the core
 * can still take it away at a fatal signal.
 *
 * No request stays on this list for good:
 *
 * - The sender appends under the lock of its queue.  Then it sends requests from the head of the
 *   list to its own ring, and after that to the other rings, as long as these have room.
 * - Each task that takes replies from a ring sends requests from the list to that ring, too.
 *
 * So if the list is not empty, its last sender has found every ring full.  The task that takes the
 * next reply, from any ring, looks at the list again.  That reply comes, because requests that wait
 * for locks do not fill a ring (see locks.c).
 */
#include "pvfs.h"

#include <linux/sched/clock.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

/* The queue of this CPU.  If the caller moves to another CPU, it may still use this queue. */
static struct pvfs_queue *pvfs_this_queue(struct pvfs_dev *dev)
{
	return &dev->queues[dev->map[raw_smp_processor_id()]];
}

/**
 * pvfs_fiq - find the core's queue of the mount
 * @q: the queue, locked
 *
 * Preemption is off, because the caller holds the lock.  Therefore the connection stays until the
 * caller drops it: the core frees the connection only after an RCU grace period.
 *
 * Return: the queue, or NULL if there is no mount.
 */
struct fuse_iqueue *pvfs_fiq(struct pvfs_queue *q)
{
	struct fuse_conn *fc = READ_ONCE(q->dev->fc);

	return fc ? &fc->iq : NULL;
}

static void pvfs_slot_free(struct pvfs_queue *q, struct pvfs_slot *slot)
{
	if (slot->iopoll)
		pvfs_iopoll_answered(q);
	slot->iopoll = false;
	kfree(slot->big);
	slot->big = NULL;
	slot->req = NULL;
	slot->wait = NULL;
	q->lock_waits -= slot->lock == PVFS_LOCK_WAITS;
	slot->lock = PVFS_LOCK_NONE;
	list_move(&slot->node, &q->free);
}

static int pvfs_slot_add(struct pvfs_queue *q, struct pvfs_slot *slot)
{
	struct scatterlist *sgs[2];
	unsigned int n, lists;
	int err;

	n = pvfs_request_map(q, slot, sgs, &lists);
	if (!n)
		return -EIO;
	/* Check this first, because virtqueue_add_sgs() kicks a device whose ring is full. */
	if (q->poll.vq->num_free < n)
		return q->poll.inflight ? -ENOSPC : -EIO;
	err = virtqueue_add_sgs(q->poll.vq, sgs, 1, lists - 1, slot, GFP_ATOMIC);
	/* -ENOMEM: no bounce buffer is left.  The replies to requests in flight free some. */
	return err == -ENOMEM && q->poll.inflight ? -ENOSPC : err;
}

/*
 * Put a request into the ring.  If that succeeds, the slot owns NEED->big.  Another task may end
 * the request as soon as the caller drops the lock.
 */
static struct pvfs_slot *pvfs_add(struct pvfs_queue *q, struct fuse_req *req,
				  const struct pvfs_need *need)
{
	struct pvfs_slot *slot = list_first_entry_or_null(&q->free, struct pvfs_slot, node);
	int err;

	if (!slot)
		return ERR_PTR(-ENOSPC);
	slot->lock = pvfs_lock_way(q, req);
	pvfs_request_fill(q, slot, req, need);
	err = pvfs_slot_add(q, slot);
	if (unlikely(err)) {
		slot->big = NULL;
		slot->req = NULL;
		slot->lock = PVFS_LOCK_NONE;
		return ERR_PTR(err);
	}
	list_move_tail(&slot->node, &q->busy);
	q->poll.inflight++;
	q->lock_waits += slot->lock == PVFS_LOCK_WAITS;
	q->unmeasured += slot->class == PVFS_NEVER;
	q->stats.requests++;
	pvfs_iopoll_sent(q, slot);
	slot->start = local_clock();
	clear_bit(FR_PENDING, &req->flags);
	set_bit(FR_SENT, &req->flags);
	/*
	 * Pairs with the barrier in request_wait_answer().  Either this task sees FR_INTERRUPTED,
	 * or the task that waits sees FR_SENT and calls ->send_interrupt().
	 */
	smp_mb__after_atomic();
	if (unlikely(slot->lock == PVFS_LOCK_WAITS && test_bit(FR_INTERRUPTED, &req->flags))) {
		slot->interrupt = true;
		pvfs_hiprio_interrupt(q->dev);
	}
	return slot;
}

/*
 * Have a work end a request, because its end may sleep, or may take locks that this task holds.
 *
 * For most requests this is @work.  But the end of a direct read into user memory dirties pages.
 * For that it may sleep until the end of another request unlocks a page, and @work may have to end
 * that request.  So @block_work ends such reads.  It runs on another workqueue, because otherwise
 * it could occupy the rescuer that @work needs.
 */
static void pvfs_end_later(struct pvfs_queue *q, struct fuse_req *req)
{
	lockdep_assert_held(&q->poll.lock);
	if (req->args->may_block) {
		list_add_tail(&req->list, &q->blocking);
		queue_work(pvfs_block_wq, &q->block_work);
	} else {
		list_add_tail(&req->list, &q->ended);
		queue_work(pvfs_wq, &q->work);
	}
}

/* Send the first pending request.  Returns false if there is none, or no room or memory for it. */
static bool pvfs_dispatch_one(struct pvfs_queue *q, struct fuse_iqueue *fiq)
{
	struct pvfs_need need;
	struct pvfs_slot *slot;
	struct fuse_req *req;
	int err;

	req = list_first_entry_or_null(&fiq->pending, struct fuse_req, list);
	if (!req)
		return false;
	/*
	 * The task that takes the next reply frees a slot, and tries again.  It also tries again if
	 * memory is short below.
	 */
	if (list_empty(&q->free) && q->poll.inflight)
		return false;
	err = pvfs_request_measure(req, &need, GFP_ATOMIC | __GFP_NOWARN);
	if (err && q->poll.inflight)
		return false;
	slot = err ? ERR_PTR(err) : pvfs_add(q, req, &need);
	if (slot == ERR_PTR(-ENOSPC)) {
		kfree(need.big);
		return false;
	}
	list_del_init(&req->list);
	if (IS_ERR(slot)) {
		kfree(need.big);
		clear_bit(FR_PENDING, &req->flags);
		req->out.h.error = PTR_ERR(slot);
		pvfs_end_later(q, req);
	}
	return true;
}

static void pvfs_dispatch(struct pvfs_queue *q, struct fuse_iqueue *fiq)
{
	lockdep_assert_held(&q->poll.lock);
	if (list_empty(&fiq->pending))
		return;
	spin_lock(&fiq->lock);
	while (pvfs_dispatch_one(q, fiq))
		;
	spin_unlock(&fiq->lock);
	/* To kick under the lock is slow, but this path is rare. */
	virtqueue_kick(q->poll.vq);
}

/**
 * pvfs_dispatch_all - send pending requests to any ring that has room
 * @dev: the device
 *
 * A sender's own ring may be full of requests that take long, while other rings are idle.
 */
void pvfs_dispatch_all(struct pvfs_dev *dev)
{
	struct fuse_iqueue *fiq;
	struct pvfs_queue *q;
	unsigned int i;

	for (i = 0; i < dev->nr_queues; i++) {
		q = &dev->queues[i];
		spin_lock_bh(&q->poll.lock);
		fiq = q->live ? pvfs_fiq(q) : NULL;
		if (fiq) {
			pvfs_dispatch(q, fiq);
			pvfs_watch(q);
		}
		spin_unlock_bh(&q->poll.lock);
	}
}

static int pvfs_append(struct pvfs_queue *q, struct fuse_iqueue *fiq, struct fuse_req *req)
{
	int err = 0;

	spin_lock(&fiq->lock);
	if (fiq->connected)
		list_add_tail(&req->list, &fiq->pending);
	else
		err = -ENOTCONN;
	spin_unlock(&fiq->lock);
	if (!err) {
		q->stats.queued++;
		pvfs_dispatch(q, fiq);
	}
	return err;
}

/* End an unsent request.  A background request's sender holds bg_lock, so a work ends that. */
static void pvfs_end_unsent(struct pvfs_queue *q, struct fuse_req *req, int err)
{
	clear_bit(FR_PENDING, &req->flags);
	req->out.h.error = err;
	if (!test_bit(FR_BACKGROUND, &req->flags)) {
		fuse_request_end(req);
		return;
	}
	spin_lock_bh(&q->poll.lock);
	pvfs_end_later(q, req);
	spin_unlock_bh(&q->poll.lock);
}

/*
 * Put a request into the ring, or on the list of pending requests.  Returns the slot, or NULL if
 * the request is pending; then the caller still owns NEED->big.
 */
static struct pvfs_slot *pvfs_publish(struct pvfs_queue *q, struct fuse_iqueue *fiq,
				      struct fuse_req *req, const struct pvfs_need *need)
{
	struct pvfs_slot *slot = ERR_PTR(-ENOSPC);

	if (unlikely(!q->live))
		return ERR_PTR(-ENOTCONN);
	if (likely(list_empty(&fiq->pending)))
		slot = pvfs_add(q, req, need);
	if (likely(slot != ERR_PTR(-ENOSPC)))
		return slot;
	return ERR_PTR(pvfs_append(q, fiq, req));
}

/* Whether the caller is to kick the device after it has dropped the lock. */
static bool pvfs_kick_prepare(struct pvfs_queue *q)
{
	bool kick = virtqueue_kick_prepare(q->poll.vq);

	q->stats.kicks += kick;
	q->stats.kicks_saved += !kick;
	return kick;
}

#define PVFS_SENT	1

/*
 * Send a FORGET on the hiprio queue, and a close by a kernel thread in the background.  Before a
 * request for a lock is sent, wait for late closes.
 *
 * Returns 0 if the caller is to send the request, PVFS_SENT if the caller is to end it without an
 * error because it went another way, or the error with which the caller is to end it.
 */
static int pvfs_before_send(struct pvfs_dev *dev, struct fuse_req *req)
{
	switch (req->args->opcode) {
	case FUSE_FORGET:
		pvfs_forget(req);
		return PVFS_SENT;
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
		return pvfs_close_of_thread(dev, req) ? PVFS_SENT : 0;
	case FUSE_SETLK:
	case FUSE_SETLKW:
		return pvfs_closes_await(dev, req);
	default:
		return 0;
	}
}

/* Wait here if the core would not let this task go when it is killed, see abandon.c. */
static void pvfs_wait_here(struct pvfs_dev *dev, struct fuse_req *req, struct pvfs_slot *slot)
{
	if (unlikely(current->flags & PF_EXITING))
		pvfs_wait_at_exit(dev, req);
	else if (unlikely(!slot) && !pvfs_can_interrupt(req))
		pvfs_wait_killable(dev, req);
}

static void pvfs_send_now(struct pvfs_queue *q, struct fuse_iqueue *fiq, struct fuse_req *req)
{
	bool sync = !test_bit(FR_BACKGROUND, &req->flags);
	struct pvfs_wait wait = {};
	struct pvfs_need need;
	struct pvfs_slot *slot;
	bool polls = false;
	bool kick = false;
	int err;

	err = pvfs_request_measure(req, &need, sync ? GFP_KERNEL : GFP_ATOMIC);
	if (err) {
		pvfs_end_unsent(q, req, err);
		return;
	}
	/* Preemption stays off until kick and poll are over, see Locking in pvfs.h and wait.c. */
	preempt_disable();
	spin_lock_bh(&q->poll.lock);
	slot = pvfs_publish(q, fiq, req, &need);
	if (!IS_ERR(slot)) {
		if (slot && sync)
			polls = pvfs_wait_begin(q, slot, &wait);
		pvfs_watch(q);
		kick = pvfs_kick_prepare(q);
	}
	spin_unlock_bh(&q->poll.lock);
	if (kick) {
		virtqueue_notify(q->poll.vq);
		/* Begin the budget anew, so that the exit to the host does not use it up. */
		wait.start = local_clock();
	}
	if (unlikely(!slot))
		pvfs_dispatch_all(q->dev);
	if (polls && !pvfs_wait_poll(q, slot, &wait))
		polls = false;
	preempt_enable();
	if (polls)
		pvfs_request_end(req);
	else if (sync && !IS_ERR(slot))
		pvfs_wait_here(q->dev, req, slot);
	if (IS_ERR_OR_NULL(slot))
		kfree(need.big);
	if (IS_ERR(slot))
		pvfs_end_unsent(q, req, PTR_ERR(slot));
}

/**
 * pvfs_send_req - send a request
 * @fiq: the core's queue of the connection
 * @req: the request
 *
 * If a task waits for the request, the core calls this in that task, with no spin lock held, and
 * the task polls here for its reply.  If the request is finished when the function returns, the
 * task does not sleep in the core.  For a background request the core calls this with bg_lock held.
 */
void pvfs_send_req(struct fuse_iqueue *fiq, struct fuse_req *req)
{
	struct pvfs_dev *dev = fiq->priv;
	int err = pvfs_before_send(dev, req);
	struct pvfs_queue *q = pvfs_this_queue(dev);

	if (likely(!err))
		pvfs_send_now(q, fiq, req);
	else
		pvfs_end_unsent(q, req, err == PVFS_SENT ? 0 : err);
}

/* The device is done with an abandoned request.  @work ends it, because that may sleep. */
static void pvfs_slot_late(struct pvfs_queue *q, struct pvfs_slot *slot, unsigned int written)
{
	q->poll.inflight--;
	q->unmeasured--;
	slot->written = written;
	list_move_tail(&slot->node, &q->late);
	queue_work(pvfs_wq, &q->work);
}

/*
 * Free the slot of a request that has its result, and find the task that ends the request.  If a
 * caller polls for it, that caller does.  Otherwise the task that calls this ends it (DONE), or a
 * work does.
 */
static void pvfs_slot_done(struct pvfs_queue *q, struct pvfs_slot *slot, struct list_head *done)
{
	struct pvfs_wait *wait = slot->wait;
	struct fuse_req *req = slot->req;
	enum pvfs_lock lock = slot->lock;
	bool iopoll = slot->iopoll;

	pvfs_slot_free(q, slot);
	q->poll.inflight--;
	q->unmeasured -= slot->class == PVFS_NEVER;
	clear_bit(FR_SENT, &req->flags);
	if (unlikely(lock) && pvfs_lock_done(q, req, lock))
		return;
	if (wait) {
		virtio_poll_waiter_del(&q->poll);
		q->stats.polled++;
		/*
		 * Pairs with the acquire in pvfs_wait_done().  From here on the caller may end the
		 * request and return, so @wait, which is on its stack, may be gone.
		 */
		smp_store_release(&wait->done, true);
	} else if (!test_bit(FR_ASYNC, &req->flags) && !test_bit(FR_BACKGROUND, &req->flags)) {
		list_add_tail(&req->list, done);
	} else if (!iopoll || !pvfs_iopoll_takes(q, req, done)) {
		pvfs_end_later(q, req);
	}
}

static void pvfs_slot_answered(struct pvfs_queue *q, struct pvfs_slot *slot,
			       unsigned int written, struct list_head *done)
{
	if (unlikely(slot->abandoned)) {
		pvfs_slot_late(q, slot, written);
		return;
	}
	pvfs_request_reply(q, slot, written);
	pvfs_slot_done(q, slot, done);
}

/**
 * pvfs_collect - take replies from a ring
 * @q: the queue, locked and live
 * @done: where to put requests that the caller is to end by pvfs_end_list()
 * @polled: whether the caller polls; false if it looks because of an interrupt, or to find out
 *	whether the server is silent
 *
 * The function does not put background requests on @done, nor requests that call a function at
 * their end.  Works end these, see pvfs_end_later().  Only if the caller polls by ->iopoll does it
 * put requests on @done that tasks poll for and whose end does not sleep, see iopoll.c.
 *
 * Return: how many replies there were.
 */
unsigned int pvfs_collect(struct pvfs_queue *q, struct list_head *done, bool polled)
{
	struct fuse_iqueue *fiq = pvfs_fiq(q);
	unsigned int written, n = 0;
	struct pvfs_slot *slot;
	u64 now = 0;

	lockdep_assert_held(&q->poll.lock);
	while (q->poll.inflight && (slot = virtqueue_get_buf(q->poll.vq, &written))) {
		if (!n++)
			now = local_clock();
		pvfs_wait_over(q, slot, now);
		pvfs_slot_answered(q, slot, written, done);
	}
	if (n) {
		virtio_poll_answered(&q->poll, polled);
		if (q->poll.inflight == q->unmeasured)
			q->poll.wait_start = 0;
		if (fiq)
			pvfs_dispatch(q, fiq);
	}
	/* The ring is broken, so the device answers nothing any more. */
	if (unlikely(q->poll.inflight && virtqueue_is_broken(q->poll.vq)))
		queue_work(pvfs_fail_wq, &q->dev->fail_work);
	return n;
}

/**
 * pvfs_queue_waits - whether a request waits for the server that should not take long
 * @q: the queue
 * @replies: a sum, to which the function adds the number of replies to this queue
 *
 * The function first takes the replies that are in the ring.  A caller that polls may not have
 * taken them, because the host may not run its vCPU.
 */
bool pvfs_queue_waits(struct pvfs_queue *q, u64 *replies)
{
	struct pvfs_slot *slot;
	bool waits = false;
	LIST_HEAD(done);

	spin_lock_bh(&q->poll.lock);
	if (q->live) {
		pvfs_collect(q, &done, false);
		pvfs_watch(q);
	}
	list_for_each_entry(slot, &q->busy, node) {
		waits = !slot->patient;
		if (waits)
			break;
	}
	*replies += q->stats.requests - q->poll.inflight;
	spin_unlock_bh(&q->poll.lock);
	pvfs_end_list(&done);
	return waits;
}

/**
 * pvfs_replies - how many replies the server has sent
 * @dev: the device
 *
 * If the number has not changed since an earlier call, the server has been silent since then.
 */
u64 pvfs_replies(struct pvfs_dev *dev)
{
	u64 replies = 0;
	unsigned int i;

	for (i = 0; i < dev->nr_queues; i++)
		pvfs_queue_waits(&dev->queues[i], &replies);
	return replies;
}

/**
 * pvfs_end_list - end requests that pvfs_collect() left to its caller
 * @done: the requests; no lock is held
 */
void pvfs_end_list(struct list_head *done)
{
	struct fuse_req *req, *next;

	list_for_each_entry_safe(req, next, done, list) {
		list_del_init(&req->list);
		pvfs_request_end(req);
	}
}

/* This work has taken the slots off q->late, so it ends their requests without the lock. */
static void pvfs_end_late(struct pvfs_queue *q, struct list_head *late)
{
	struct pvfs_slot *slot, *next;

	if (likely(list_empty(late)))
		return;
	list_for_each_entry(slot, late, node)
		pvfs_abandoned_end(q->dev, slot);
	spin_lock_bh(&q->poll.lock);
	list_for_each_entry_safe(slot, next, late, node)
		pvfs_slot_free(q, slot);
	/* A pending request may wait for one of these slots. */
	if (q->live && pvfs_fiq(q)) {
		pvfs_dispatch(q, pvfs_fiq(q));
		pvfs_watch(q);
	}
	spin_unlock_bh(&q->poll.lock);
}

/* This runs after an interrupt, when virtio_poll asks for it, and to end requests. */
static void pvfs_queue_work(struct work_struct *work)
{
	struct pvfs_queue *q = container_of(work, struct pvfs_queue, work);
	unsigned int noio;
	LIST_HEAD(done);
	LIST_HEAD(late);

	spin_lock_bh(&q->poll.lock);
	if (q->live)
		pvfs_lease_expire(q);
	/* While callers poll, or a lease lasts, the tasks that poll take the replies. */
	if (q->live && !q->poll.waiters) {
		virtio_poll_interrupted(&q->poll);
		pvfs_collect(q, &done, false);
		pvfs_watch(q);
	}
	list_splice_tail_init(&q->ended, &done);
	list_splice_tail_init(&q->late, &late);
	spin_unlock_bh(&q->poll.lock);
	/*
	 * The end of a request may allocate memory.  For instance, the core sends RELEASE when the
	 * last readahead of a closed file ends.  Such an allocation must not start I/O, because
	 * reclaim could wait for replies that this work has to take.
	 */
	noio = memalloc_noio_save();
	pvfs_end_list(&done);
	pvfs_end_late(q, &late);
	memalloc_noio_restore(noio);
}

/* End direct reads into user memory, see pvfs_end_later(). */
static void pvfs_block_work(struct work_struct *work)
{
	struct pvfs_queue *q = container_of(work, struct pvfs_queue, block_work);
	unsigned int noio;
	LIST_HEAD(done);

	spin_lock_bh(&q->poll.lock);
	list_splice_tail_init(&q->blocking, &done);
	spin_unlock_bh(&q->poll.lock);
	/* The end of a request may allocate memory, as in pvfs_queue_work(). */
	noio = memalloc_noio_save();
	pvfs_end_list(&done);
	memalloc_noio_restore(noio);
}

/* The interrupt handler.  It leaves the ring to the work, because it must not take the lock. */
void pvfs_queue_callback(struct virtqueue *vq)
{
	struct pvfs_dev *dev = vq->vdev->priv;
	struct pvfs_queue *q = &dev->queues[vq->index - 1];

	WRITE_ONCE(q->poll.stats.interrupts, q->poll.stats.interrupts + 1);
	queue_work(pvfs_wq, &q->work);
}

/**
 * pvfs_queue_init - set up a queue that has no virtqueue yet
 * @q: the queue, zeroed; @q->dev and @q->index are set
 */
void pvfs_queue_init(struct pvfs_queue *q)
{
	virtio_poll_init(&q->poll, &pvfs_poll_ops, &pvfs_poll_settings);
	INIT_LIST_HEAD(&q->free);
	INIT_LIST_HEAD(&q->busy);
	INIT_LIST_HEAD(&q->ended);
	INIT_LIST_HEAD(&q->late);
	INIT_LIST_HEAD(&q->blocking);
	INIT_WORK(&q->work, pvfs_queue_work);
	INIT_WORK(&q->block_work, pvfs_block_work);
	pvfs_iopoll_init(q);
	snprintf(q->name, sizeof(q->name), "requests.%u", q->index);
}

/**
 * pvfs_queue_alloc - allocate slots and a scatter list for a ring
 * @q: the queue, with its virtqueue
 *
 * Return: 0 or -ENOMEM.  In both cases the caller calls pvfs_queue_free() in the end.
 */
int pvfs_queue_alloc(struct pvfs_queue *q)
{
	unsigned int ring = virtqueue_get_vring_size(q->poll.vq);
	unsigned int i, slots = min(ring / PVFS_SG_HEADERS, PVFS_SLOTS_MAX);

	if (q->sg)
		return 0;
	q->max_lock_waits = slots / 2;
	q->nr_sg = min(ring, PVFS_SG_HEADERS + FUSE_MAX_MAX_PAGES);
	q->sg = kcalloc(q->nr_sg, sizeof(*q->sg), GFP_KERNEL);
	if (!q->sg)
		return -ENOMEM;
	sg_init_table(q->sg, q->nr_sg);
	for (i = 0; i < slots; i++) {
		struct pvfs_slot *slot = kzalloc(PVFS_SLOT_SIZE, GFP_KERNEL);

		if (!slot)
			return -ENOMEM;
		list_add(&slot->node, &q->free);
	}
	return 0;
}

/**
 * pvfs_queue_free - free what pvfs_queue_alloc() allocated
 * @q: the queue; nothing is in flight, and no task uses it any more
 */
void pvfs_queue_free(struct pvfs_queue *q)
{
	struct pvfs_slot *slot, *next;

	/* The timer may queue @work. */
	pvfs_iopoll_free(q);
	flush_work(&q->work);
	flush_work(&q->block_work);
	list_for_each_entry_safe(slot, next, &q->free, node)
		kfree(slot);
	kfree(q->sg);
}

/**
 * pvfs_queue_start - let requests in
 * @q: the queue, with a fresh ring
 */
void pvfs_queue_start(struct pvfs_queue *q)
{
	spin_lock_bh(&q->poll.lock);
	WRITE_ONCE(q->live, true);
	spin_unlock_bh(&q->poll.lock);
}

/**
 * pvfs_queue_stop - refuse requests from now on, and make callers stop polling
 * @q: the queue
 *
 * Tasks that have seen the queue live may use the ring until an RCU grace period has passed.
 */
void pvfs_queue_stop(struct pvfs_queue *q)
{
	spin_lock_bh(&q->poll.lock);
	WRITE_ONCE(q->live, false);
	spin_unlock_bh(&q->poll.lock);
}

/**
 * pvfs_queue_drop_pending - end requests that wait for room in a ring, and parked ones (locks.c)
 * @q: any queue of the device, whose works end the requests; all queues are stopped
 * @fiq: the core's queue of the connection
 *
 * fuse_abort_conn() would end these requests in one task, one after the other.  But the end of one
 * may wait for the end of another (see pvfs_end_later()).
 */
void pvfs_queue_drop_pending(struct pvfs_queue *q, struct fuse_iqueue *fiq)
{
	struct fuse_req *req, *next;

	spin_lock_bh(&q->poll.lock);
	spin_lock(&fiq->lock);
	list_splice_tail_init(&q->dev->parked, &fiq->pending);
	list_for_each_entry_safe(req, next, &fiq->pending, list) {
		list_del_init(&req->list);
		clear_bit(FR_PENDING, &req->flags);
		req->out.h.error = -ECONNABORTED;
		pvfs_end_later(q, req);
	}
	spin_unlock(&fiq->lock);
	spin_unlock_bh(&q->poll.lock);
}

/**
 * pvfs_queue_empty - end the requests that were in flight
 * @q: the queue, stopped; the device was reset
 *
 * If the ring is not broken, a request whose reply is in the ring ends with that reply.  All others
 * end with -EIO.
 */
void pvfs_queue_empty(struct pvfs_queue *q)
{
	struct pvfs_slot *slot;
	unsigned int written;
	LIST_HEAD(done);

	spin_lock_bh(&q->poll.lock);
	while (q->poll.inflight && (slot = virtqueue_get_buf(q->poll.vq, &written)))
		pvfs_slot_answered(q, slot, written, &done);
	while ((slot = virtqueue_detach_unused_buf(q->poll.vq))) {
		struct fuse_req *req = slot->req;

		if (slot->abandoned) {
			pvfs_slot_late(q, slot, 0);
			continue;
		}
		pvfs_slot_free(q, slot);
		q->poll.inflight--;
		q->unmeasured -= slot->class == PVFS_NEVER;
		clear_bit(FR_SENT, &req->flags);
		req->out.h.error = -EIO;
		pvfs_end_later(q, req);
	}
	spin_unlock_bh(&q->poll.lock);
	pvfs_end_list(&done);
}
