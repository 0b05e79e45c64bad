// SPDX-License-Identifier: GPL-2.0
/*
 * Completions on their way to the used ring: a backend or a worker ends a request here.
 *
 * vserve_req_end(), in any context, pushes the request to vring->done.  If the poller itself calls
 * it in its round (for polled completions, and backends that are done at once), it pushes the
 * request to vring->reaped, which no other task touches then.  The holder of the vring's mutex (the
 * poller in its round, a worker, or the drain) takes the requests from both lists, and has the
 * device let go of the guest's memory.  used.c does the rest.
 */
#include <linux/eventfd.h>
#include <linux/export.h>
#include <linux/ktime.h>

#include <kunit/visibility.h>

#include "serve.h"

#define CREATE_TRACE_POINTS
#include <trace/events/vhost_serve.h>

/**
 * vserve_malformed - count and trace an error of the guest's driver
 * @vring: the vring; its mutex is held
 * @why: the error
 */
void vserve_malformed(struct vserve_vring *vring, enum vserve_malformed why)
{
	lockdep_assert_held(&vring->vq.mutex);
	vring->stats.malformed++;
	trace_vhost_serve_malformed(vring, why);
}
EXPORT_SYMBOL_GPL(vserve_malformed);

/**
 * vserve_break - mark a ring as broken, so that nothing is taken from it until it is restarted
 * @vring: the vring; its mutex is held
 */
void vserve_break(struct vserve_vring *vring)
{
	lockdep_assert_held(&vring->vq.mutex);
	if (vring->broken)
		return;
	vring->broken = true;
	if (vring->vq.error_ctx)
		eventfd_signal(vring->vq.error_ctx);
}
EXPORT_SYMBOL_GPL(vserve_break);

/**
 * vserve_req_end - end a request, which a backend, a worker or the poller's thread has done
 * @req: the request; the caller must not touch it afterwards
 * @status: how the request ended; only the device knows the meaning
 *
 * Any context may call this.
 */
void vserve_req_end(struct vserve_req *req, u8 status)
{
	struct vserve_vring *vring = req->vring;
	bool first;

	req->status = status;
	/*
	 * In a round only this task uses vring->reaped.  An interrupt in this task could come in
	 * the middle of the add, so it uses vring->done.
	 *
	 * The time at which the round began is good enough.  The round found polled completions at
	 * its beginning, and no prediction uses the time of requests that an engine ends within
	 * submit().
	 */
	if (in_task() && READ_ONCE(vring->reaper) == current) {
		req->done_ns = vring->now;
		__llist_add(&req->done, &vring->reaped);
		return;
	}
	req->done_ns = ktime_get_ns();

	/* The vring stays until a grace period has passed, but the slot may be reused at once. */
	rcu_read_lock();
	first = llist_add(&req->done, &vring->done);
	if (first) {
		vhost_poll_wake(&vring->src);
		/* llist_add() is a full barrier.  It pairs with the one in wait_event(). */
		if (READ_ONCE(vring->stopping))
			wake_up(&vring->drain);
	}
	rcu_read_unlock();
}
EXPORT_SYMBOL_GPL(vserve_req_end);

/**
 * vserve_req_again - have a worker do a request from the start, because the backend would sleep
 * @req: the request; the caller must not touch it afterwards
 *
 * Any context may call this.
 */
void vserve_req_again(struct vserve_req *req)
{
	req->again = VSERVE_AGAIN_WORKER;
	vserve_req_end(req, 0);
}
EXPORT_SYMBOL_GPL(vserve_req_again);

/**
 * vserve_req_resume - end the backend's part of a request, and have work() do the rest
 * @req: the request; the caller must not touch it afterwards
 *
 * The poller's thread or a worker calls work(), because the rest may sleep.  Any context may call
 * this function.
 */
void vserve_req_resume(struct vserve_req *req)
{
	req->again = VSERVE_AGAIN_HOT;
	vserve_req_end(req, 0);
}
EXPORT_SYMBOL_GPL(vserve_req_resume);

static void vserve_to_finished(struct vserve_req *req)
{
	struct vserve_vring *vring = req->vring;

	req->state = VSERVE_FINISHED;
	req->done.next = NULL;
	*vring->finished_last = &req->done;
	vring->finished_last = &req->done.next;
}

/**
 * vserve_req_finish - make a request ready for the used ring
 * @req: the request, on no list, without memory of the guest; the vring's mutex is held
 * @status: how the request ended; only the device knows the meaning
 */
void vserve_req_finish(struct vserve_req *req, u8 status)
{
	lockdep_assert_held(&req->vring->vq.mutex);
	req->status = status;
	req->done_ns = req->vring->now;
	vserve_to_finished(req);
}
EXPORT_SYMBOL_GPL(vserve_req_finish);

static void vserve_do_work(struct vserve_req *req, struct vserve_vring *vring)
{
	struct mm_struct *mm = vring->mm;

	if (!(vring->ops->flags & VSERVE_WORK_MM)) {
		vring->ops->work(req);
		return;
	}
	/* The request may end, and the vring may stop and drop its mm, before work() returns. */
	mmget(mm);
	kthread_use_mm(mm);
	vring->ops->work(req);
	kthread_unuse_mm(mm);
	mmput(mm);
}

/**
 * vserve_req_do - carry out a request in a worker of the device
 * @req: the request; when this returns, it may be over, and its slot may have the next one
 */
void vserve_req_do(struct vserve_req *req)
{
	struct vserve_vring *vring = req->vring;
	struct mem_cgroup *memcg = vserve_charge_owner(vring->dev);

	trace_vhost_serve_work(vring, req->head);
	if (req->released) {
		/* A poller could not release the memory.  The request itself is done. */
		vring->ops->release(req, true);
		vserve_req_end(req, req->status);
	} else {
		vserve_do_work(req, vring);
	}
	vserve_charge_end(memcg);
}

/**
 * vserve_req_work - carry out a request in a workqueue
 * @work: the work of the request
 */
void vserve_req_work(struct work_struct *work)
{
	struct vserve_req *req = container_of(work, struct vserve_req, work);
	struct vserve_workers *w = req->resumed ? NULL : req->vring->dev->workers;

	vserve_req_do(req);
	/* The request may be over, but the workers stay until the workqueue is flushed. */
	if (w)
		vserve_workers_wq_done(w);
}

static void vserve_to_worker(struct vserve_req *req)
{
	req->hot = false;
	req->in_worker = true;
	req->vring->nr_in_workers++;
	vserve_queue_work(req);
}

static void vserve_punt(struct vserve_req *req, bool again)
{
	struct vserve_vring *vring = req->vring;

	if (vring->ops->punt)
		vring->ops->punt(req, again);
	vserve_req_start(req);
	vring->stats.punted++;
	vserve_to_worker(req);
}

/**
 * vserve_req_punt - have a worker carry out a request
 * @req: the request, on no list; the vring's mutex is held
 */
void vserve_req_punt(struct vserve_req *req)
{
	lockdep_assert_held(&req->vring->vq.mutex);
	vserve_punt(req, false);
}
EXPORT_SYMBOL_GPL(vserve_req_punt);

static void vserve_release_later(struct vserve_req *req)
{
	struct vserve_vring *vring = req->vring;

	req->released = true;
	req->state = VSERVE_INFLIGHT;
	list_add_tail(&req->node, &vring->inflight);
	vring->nr_inflight++;
	vserve_to_worker(req);
}

static bool vserve_let_go(struct vserve_req *req, bool may_sleep)
{
	const struct vserve_ops *ops = req->vring->ops;

	return req->released || !ops->release || ops->release(req, may_sleep);
}

/*
 * Have work() do the rest of a request.  Only the poller may put it on vring->hot, because the
 * poller takes requests from there without the mutex.  With @may_sleep the caller is a worker of
 * the vring, or the drain of a stop, so a worker gets the request.
 */
static void vserve_resume(struct vserve_req *req, bool may_sleep)
{
	req->resumed = true;
	vserve_req_start(req);
	if (may_sleep)
		vserve_to_worker(req);
	else
		vserve_to_poller(req);
}

static void vserve_one_done(struct vserve_req *req, bool may_sleep)
{
	struct vserve_vring *vring = req->vring;

	list_del(&req->node);
	vring->nr_inflight--;
	vring->nr_in_workers -= req->in_worker;
	req->in_worker = false;
	vserve_req_unpolled(req);

	if (req->again == VSERVE_AGAIN_WORKER) {
		req->again = VSERVE_AGAIN_NOT;
		vserve_punt(req, true);
		return;
	}
	if (req->timed && !req->released)
		vhost_poll_learn(&vring->src, req->done_ns - req->submit_ns);
	if (req->again == VSERVE_AGAIN_HOT) {
		req->again = VSERVE_AGAIN_NOT;
		/* The backend has no part in the rest, so no prediction may use its time. */
		req->timed = false;
		vserve_resume(req, may_sleep);
		return;
	}
	if (vserve_let_go(req, may_sleep))
		vserve_to_finished(req);
	else
		vserve_release_later(req);
}

/* Take a whole list, and return it with the oldest request first. */
static struct llist_node *vserve_collect(struct vserve_vring *vring)
{
	if (!llist_empty(&vring->reaped))
		return llist_reverse_order(__llist_del_all(&vring->reaped));
	/* If the list is empty, do not take its cache line from vserve_req_end() by a write. */
	if (!llist_empty(&vring->done))
		return llist_reverse_order(llist_del_all(&vring->done));
	return NULL;
}

/*
 * Process up to @budget completions.  The others stay in the backlog for the next round, and
 * vserve_has_done() sees them there.
 *
 * Releasing a request takes longer the more pages it has.  So the poller, which has other rings
 * to serve, also stops after VSERVE_ROUND_BYTES.  The request that reaches the limit is still
 * released, so that each round makes progress.  Workers and the drain have no such limit, because
 * the drain waits only for requests outside the backlog.
 */
static void vserve_some_done(struct vserve_vring *vring, unsigned int budget,
			     bool may_sleep)
{
	unsigned long left = may_sleep ? ULONG_MAX : vserve_share_of(vring, VSERVE_ROUND_BYTES);
	struct llist_node *node;
	struct vserve_req *req;

	while (budget-- && left) {
		node = vring->backlog ?: vserve_collect(vring);
		if (!node)
			return;
		vring->backlog = node->next;
		req = llist_entry(node, struct vserve_req, done);
		/* If req->released is set, a worker has released the memory already. */
		if (!may_sleep && !req->released)
			left -= min_t(unsigned long, left, req->bytes);
		vserve_one_done(req, may_sleep);
	}
}

/**
 * vserve_complete - give requests that are done back to the guest
 * @vring: the vring; its mutex is held, and its owner's mm is in use
 * @budget: complete at most so many requests, or fewer if the byte limit comes first;
 *	vserve_has_done() says whether there are more
 * @may_sleep: page faults are allowed
 *
 * The caller interrupts the guest.
 *
 * Return: how many were given back, or -EAGAIN if the worker has to do it.
 */
int vserve_complete(struct vserve_vring *vring, unsigned int budget,
		    bool may_sleep)
{
	unsigned int nr = 0;
	int r = 0;

	lockdep_assert_held(&vring->vq.mutex);
	vserve_some_done(vring, budget, may_sleep);
	while (vring->finished && nr < budget) {
		r = vserve_put_finished(vring, budget - nr, may_sleep);
		if (r < 0)
			break;
		nr += r;
	}
	return r < 0 ? r : nr;
}
EXPORT_SYMBOL_IF_KUNIT(vserve_complete);
