// SPDX-License-Identifier: GPL-2.0
/*
 * From a backend's completion to the used ring.
 *
 * end_io, in whatever context, pushes to vring->done; called by the poller
 * itself in its round (polled completions, and engines that are done at once), to
 * vring->reaped, which is nobody else's.  Whoever has the vring's mutex (the
 * poller in its round, or a worker) takes the lists, lets go of the guest's pages,
 * writes statuses and used entries, and signals.  There is one writer of each used
 * ring at a time.
 */
#include <linux/eventfd.h>
#include <linux/ktime.h>

#include "blk.h"
#include <trace/events/vhost_blk.h>

#define USED_BATCH	64

/**
 * vblk_malformed - the guest did what a driver must not
 * @vring: its mutex is held
 * @why: what
 */
void vblk_malformed(struct vblk_vring *vring, enum vblk_malformed why)
{
	lockdep_assert_held(&vring->vq.mutex);
	vring->stats.malformed++;
	trace_vhost_blk_malformed(vring, why);
}

/**
 * vblk_break - take nothing from a ring any more, until it is restarted
 * @vring: its mutex is held
 */
void vblk_break(struct vblk_vring *vring)
{
	lockdep_assert_held(&vring->vq.mutex);
	if (vring->broken)
		return;
	vring->broken = true;
	if (vring->vq.error_ctx)
		eventfd_signal(vring->vq.error_ctx);
}

/**
 * vblk_req_start - a request goes to a backend or worker
 * @req: in no list; the vring's mutex is held
 */
void vblk_req_start(struct vblk_req *req)
{
	struct vblk_vring *vring = req->vring;

	lockdep_assert_held(&vring->vq.mutex);
	req->state = VBLK_INFLIGHT;
	req->submit_ns = vring->now;
	list_add_tail(&req->node, &vring->inflight);
	vring->nr_inflight++;
}

/**
 * vblk_req_end - a request is done; from any context
 * @req: not to be touched after
 * @status: a virtio-blk status
 */
void vblk_req_end(struct vblk_req *req, u8 status)
{
	struct vblk_vring *vring = req->vring;
	bool first;

	req->status = status;
	/*
	 * Nobody else is at the list then, but an interrupt in this task, which
	 * could come in the middle of the add.  The round's time will do: what
	 * was polled for was found at its beginning, and nobody waits for what
	 * an engine does within submit().
	 */
	if (in_task() && READ_ONCE(vring->reaper) == current) {
		req->done_ns = vring->now;
		trace_vhost_blk_backend_done(req);
		__llist_add(&req->done, &vring->reaped);
		return;
	}
	req->done_ns = ktime_get_ns();
	trace_vhost_blk_backend_done(req);

	/* The vring stays until after a grace period, the request may not. */
	rcu_read_lock();
	first = llist_add(&req->done, &vring->done);
	if (first) {
		vhost_poll_wake(&vring->src);
		/* Pairs with the barrier in wait_event(): llist_add() is one. */
		if (READ_ONCE(vring->stopping))
			wake_up(&vring->drain);
	}
	rcu_read_unlock();
}

/**
 * vblk_req_again - the backend would have slept; a worker is to do it
 * @req: not to be touched after
 */
void vblk_req_again(struct vblk_req *req)
{
	req->again = true;
	vblk_req_end(req, VIRTIO_BLK_S_IOERR);
}

static void to_finished(struct vblk_req *req)
{
	vblk_count_done(req);
	req->state = VBLK_FINISHED;
	list_add_tail(&req->node, &req->vring->finished);
}

/**
 * vblk_req_finish - a request is ready for the used ring
 * @req: in no list, and holds no pages; the vring's mutex is held
 * @status: a virtio-blk status
 */
void vblk_req_finish(struct vblk_req *req, u8 status)
{
	lockdep_assert_held(&req->vring->vq.mutex);
	req->status = status;
	req->done_ns = req->vring->now;
	to_finished(req);
}

static u8 do_ranges(struct vblk_req *req)
{
	const struct vblk_engine *engine = req->bind->backend->engine;
	unsigned int i;
	int r = 0;

	for (i = 0; i < req->nr_ranges && !r; i++) {
		if (!req->ranges[i].sectors)
			continue;
		if (req->type == VIRTIO_BLK_T_DISCARD)
			r = engine->discard(req, &req->ranges[i]);
		else
			r = engine->write_zeroes(req, &req->ranges[i]);
	}
	/* A discard is advice (virtio 1.2, 5.2.6.2): not having done it is fine. */
	if (r == -EOPNOTSUPP && req->type == VIRTIO_BLK_T_DISCARD)
		r = 0;
	if (!r && req->type == VIRTIO_BLK_T_WRITE_ZEROES && req->fua)
		r = engine->flush(req->bind->backend);
	return r ? VIRTIO_BLK_S_IOERR : VIRTIO_BLK_S_OK;
}

/* A request in a worker of the device: everything that takes its time. */
static void do_work(struct vblk_req *req)
{
	struct vblk_backend *be = req->bind->backend;
	u8 status;

	if (req->released) {
		/* Came back only for its pages. */
		vblk_unmap_data(req, true);
		vblk_req_end(req, req->status);
		return;
	}
	if (vblk_is_rw(req)) {
		/* It may end, and the backend go, before that returns. */
		kref_get(&be->ref);
		be->engine->submit_wait(req);
		vblk_backend_put(be);
		return;
	}
	trace_vhost_blk_submit(req, be->engine_id, VHOST_BLK_HCTX_AUTO);
	if (req->type == VIRTIO_BLK_T_FLUSH)
		status = vblk_flush(req) ? VIRTIO_BLK_S_IOERR :
					   VIRTIO_BLK_S_OK;
	else
		status = do_ranges(req);
	vblk_req_end(req, status);
}

static void req_work(struct work_struct *work)
{
	struct vblk_req *req = container_of(work, struct vblk_req, work);
	struct mem_cgroup *memcg = vblk_charge_owner(req->vring->dev);

	do_work(req);
	vblk_charge_end(memcg);
}

static void to_worker(struct vblk_req *req)
{
	req->in_worker = true;
	req->vring->nr_in_workers++;
	req->vring->nr_ranging += vblk_is_ranges(req);
	INIT_WORK(&req->work, req_work);
	queue_work(req->vring->dev->wq, &req->work);
}

static void punt(struct vblk_req *req)
{
	/* What was to go along with it goes alone. */
	req->cmd_bytes = req->bytes;
	req->cmd_segs = req->nr_segs;
	req->cmd_reqs = 1;
	vblk_req_start(req);
	to_worker(req);
	req->vring->stats.punted++;
}

/**
 * vblk_req_punt - have a worker do a request
 * @req: in no list; the vring's mutex is held
 */
void vblk_req_punt(struct vblk_req *req)
{
	punt(req);
	req->vring->stats.commands++;
}

static void release_later(struct vblk_req *req)
{
	req->released = true;
	req->state = VBLK_INFLIGHT;
	list_add_tail(&req->node, &req->vring->inflight);
	req->vring->nr_inflight++;
	to_worker(req);
}

static void one_done(struct vblk_req *req, bool may_sleep)
{
	struct vblk_vring *vring = req->vring;

	list_del(&req->node);
	vring->nr_inflight--;
	vring->nr_in_workers -= req->in_worker;
	vring->nr_ranging -= req->in_worker && vblk_is_ranges(req);
	req->in_worker = false;
	if (req->polled)
		vring->nr_polled--;
	req->polled = false;

	if (req->again) {
		req->again = false;
		/* It was counted as a command already. */
		punt(req);
		return;
	}
	if (vblk_is_rw(req) && !req->released)
		vhost_poll_learn(&vring->src, req->done_ns - req->submit_ns);
	if (!vblk_unmap_data(req, may_sleep)) {
		release_later(req);
		return;
	}
	to_finished(req);
}

/* The list has the last one first. */
static void all_done(struct llist_node *list, bool may_sleep)
{
	struct vblk_req *req, *next;

	list = llist_reverse_order(list);
	llist_for_each_entry_safe(req, next, list, done)
		one_done(req, may_sleep);
}

/* Frees the slot. */
static void retire(struct vblk_req *req)
{
	struct vblk_bind *bind = req->bind;

	trace_vhost_blk_finish(req);
	list_del(&req->node);
	if (req->ranges != &req->range)
		kfree(req->ranges);
	req->ranges = NULL;
	req->bind = NULL;
	if (req->vring->large == req)
		req->vring->large = NULL;
	req->vring->held -= req->held;
	req->state = VBLK_FREE;
	vblk_bind_put(bind);
}

/*
 * As vhost_signal(), but it says whether it did.  The barrier is the one the
 * guest pairs when it turns interrupts on; not being able to read what the
 * guest wants means to signal.
 */
static bool wants_call(struct vhost_virtqueue *vq)
{
	bool valid = vq->signalled_used_valid;
	u16 old = vq->signalled_used;
	__virtio16 event;

	/* Used index before the guest's wish, as the guest orders them. */
	smp_mb();
	if (!vhost_has_feature(vq, VIRTIO_RING_F_EVENT_IDX)) {
		if (get_user(event, &vq->avail->flags))
			return true;
		return !(event & cpu_to_vhost16(vq, VRING_AVAIL_F_NO_INTERRUPT));
	}
	vq->signalled_used = vq->last_used_idx;
	vq->signalled_used_valid = true;
	if (!valid ||
	    get_user(event, (__virtio16 __user *)&vq->avail->ring[vq->num]))
		return true;
	return vring_need_event(vhost16_to_cpu(vq, event), vq->last_used_idx,
				old);
}

static void signal_guest(struct vblk_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;

	if (!vq->call_ctx.ctx || !wants_call(vq))
		return;
	vring->stats.calls++;
	trace_vhost_blk_notify(vring, vq->last_used_idx);
	eventfd_signal(vq->call_ctx.ctx);
}

/**
 * vblk_put_used - give heads back to the guest
 * @vring: its mutex is held
 * @heads: what to give back
 * @count: how many
 *
 * If it fails nothing was given back: the index the guest looks at is the
 * last thing written, and ours is taken back.
 */
int vblk_put_used(struct vblk_vring *vring, struct vring_used_elem *heads,
		  unsigned int count)
{
	struct vhost_virtqueue *vq = &vring->vq;
	u16 before = vq->last_used_idx;

	lockdep_assert_held(&vq->mutex);
	if (vhost_add_used_n(vq, heads, count)) {
		vq->last_used_idx = before;
		vq->signalled_used_valid = false;
		return -EFAULT;
	}
	trace_vhost_blk_used(vring, count);
	signal_guest(vring);
	return 0;
}

/*
 * What was written, without gaps, from the first writable byte on (virtio 1.2,
 * 2.7.8.2): the driver may trust in it.  The status is behind all data.
 */
static u32 used_len(const struct vblk_req *req)
{
	u32 data = 0;

	if (req->status == VIRTIO_BLK_S_OK && req->type == VIRTIO_BLK_T_IN)
		data = req->in_bytes;
	else if (req->status == VIRTIO_BLK_S_OK &&
		 req->type == VIRTIO_BLK_T_GET_ID)
		data = min_t(u32, req->in_bytes, VHOST_BLK_SERIAL_LEN);
	return data == req->in_bytes ? data + 1 : data;
}

/* Up to USED_BATCH finished requests; returns how many, or an error. */
static int put_finished(struct vblk_vring *vring, bool may_sleep)
{
	struct vring_used_elem heads[USED_BATCH];
	struct vhost_virtqueue *vq = &vring->vq;
	unsigned int nr = 0, lost = 0, i;
	struct vblk_req *req, *next;
	int r = 0;

	list_for_each_entry_safe(req, next, &vring->finished, node) {
		if (put_user(req->status, (u8 __user *)req->status_addr)) {
			if (!may_sleep)
				break;
			/*
			 * The guest, or its VMM, took the memory away.  Whatever
			 * is there now must not be taken for our answer.
			 */
			vblk_malformed(vring, VBLK_NO_STATUS);
			vblk_break(vring);
			retire(req);
			lost++;
			continue;
		}
		heads[nr].id = cpu_to_vhost32(vq, req->head);
		heads[nr].len = cpu_to_vhost32(vq, used_len(req));
		if (++nr == USED_BATCH)
			break;
	}
	if (nr)
		r = vblk_put_used(vring, heads, nr);
	if (!nr && lost)
		return lost;
	if (!nr || (r && !may_sleep))
		return -EAGAIN;
	if (r) {
		/* There is no ring to answer in: forget them, never hang. */
		vblk_malformed(vring, VBLK_NO_USED_RING);
		vblk_break(vring);
	}

	i = 0;
	list_for_each_entry_safe(req, next, &vring->finished, node) {
		retire(req);
		if (++i == nr)
			break;
	}
	return nr;
}

/**
 * vblk_complete - give back whatever is done
 * @vring: its mutex is held, its owner's mm is in use
 * @may_sleep: page faults are allowed
 *
 * Returns how many, or -EAGAIN if it needs the worker.
 */
int vblk_complete(struct vblk_vring *vring, bool may_sleep)
{
	int nr = 0, r;

	lockdep_assert_held(&vring->vq.mutex);
	if (!llist_empty(&vring->reaped))
		all_done(__llist_del_all(&vring->reaped), may_sleep);
	/* Not to take the line from end_io for nothing, twice a round. */
	if (!llist_empty(&vring->done))
		all_done(llist_del_all(&vring->done), may_sleep);

	while (!list_empty(&vring->finished)) {
		r = put_finished(vring, may_sleep);
		if (r < 0)
			return r;
		nr += r;
	}
	return nr;
}
