// SPDX-License-Identifier: GPL-2.0
/*
 * The data path: it puts requests into the ring and takes completions out of it.
 *
 * A task that submits takes the queue's lock, adds the request, and makes sure that a poller or an
 * interrupt will find its completion (pvblk_watch()).  Then it drops the lock, and kicks the device
 * if the device asked for it.
 *
 * A task or softirq that finds finished requests takes them from the ring under the lock, and
 * completes them without it.
 */
#include "pvblk.h"

#include <linux/blk-mq-virtio.h>
#include <linux/fault-inject.h>
#include <linux/sched.h>

#include <trace/events/virtio_pvblk.h>

static int pvblk_add_request(struct pvblk_vq *vq, struct request *req)
{
	struct pvblk_req *r = blk_mq_rq_to_pdu(req);
	struct scatterlist hdr, status, *sgs[3];
	unsigned int out = 0, in = 0;
	int err;

	sg_init_one(&hdr, &r->hdr, sizeof(r->hdr));
	sgs[out++] = &hdr;
	if (r->table.nents) {
		if (rq_data_dir(req) == WRITE)
			sgs[out++] = r->table.sgl;
		else
			sgs[out + in++] = r->table.sgl;
	}
	sg_init_one(&status, &r->status, sizeof(r->status));
	sgs[out + in++] = &status;

	err = virtqueue_add_sgs(vq->q.vq, sgs, out, in, r, GFP_ATOMIC);
	if (unlikely(err))
		return err;
	vq->q.inflight++;
	vq->stats.submitted++;
	trace_virtio_pvblk_submit(req, vq->q.inflight);
	return 0;
}

/* Whether the caller is to kick the device after it has dropped the lock. */
static bool pvblk_kick_prepare(struct pvblk_vq *vq)
{
	bool kick = virtqueue_kick_prepare(vq->q.vq);

	if (kick) {
		vq->stats.kicks_sent++;
		trace_virtio_pvblk_kick(vq);
	} else {
		vq->stats.kicks_saved++;
	}
	return kick;
}

/*
 * Kick the device and wake the thread, without the lock.  The device comes first, because it takes
 * longer.  The caller has kept bottom halves off since it took the lock.  Nothing polls the queue
 * until the thread is woken, so no softirq may delay that.
 */
static void pvblk_queue_tell(struct pvblk_vq *vq, bool kick, struct task_struct *wake)
{
	if (kick)
		virtqueue_notify(vq->q.vq);
	if (wake)
		wake_up_process(wake);
}

/* The ring did not take a request.  Returns the status for the block layer. */
static blk_status_t pvblk_add_failed(struct pvblk_vq *vq, int err)
{
	/*
	 * A completion restarts a stopped queue, so stop it only if requests are in flight.  In
	 * other cases the block layer tries again after a while.
	 */
	if (err == -ENOSPC && vq->q.inflight) {
		vq->stopped = true;
		blk_mq_stop_hw_queue(vq->hctx);
		return BLK_STS_DEV_RESOURCE;
	}
	return err == -ENOSPC || err == -ENOMEM ? BLK_STS_RESOURCE : BLK_STS_IOERR;
}

static struct task_struct *pvblk_watch(struct pvblk_vq *vq)
{
	return vq->iopoll ? NULL : virtio_poll_watch(&vq->q);
}

static blk_status_t pvblk_queue_rq(struct blk_mq_hw_ctx *hctx,
				   const struct blk_mq_queue_data *bd)
{
	struct pvblk_vq *vq = pvblk_hctx_vq(hctx);
	struct task_struct *wake = NULL;
	struct request *req = bd->rq;
	blk_status_t status;
	bool kick = false;
	int err;

	status = pvblk_prep(vq->dev, req);
	if (unlikely(status))
		return status;

	local_bh_disable();
	spin_lock(&vq->q.lock);
	err = pvblk_add_request(vq, req);
	if (unlikely(err))
		status = pvblk_add_failed(vq, err);
	else
		wake = pvblk_watch(vq);
	if (bd->last || err)
		kick = pvblk_kick_prepare(vq);
	spin_unlock(&vq->q.lock);
	pvblk_queue_tell(vq, kick, wake);
	local_bh_enable();
	if (unlikely(err))
		pvblk_unprep(req);
	return status;
}

/*
 * The block layer calls this for quiesced queues, too, because a plug counts requests that the
 * driver has refused as queued.  A quiesced queue may have no ring.  But a queue with requests in
 * flight has one, and keeps it until this function returns (pvblk_release_rings()).  If no request
 * is in flight, the device needs no kick.
 */
static void pvblk_commit_rqs(struct blk_mq_hw_ctx *hctx)
{
	struct pvblk_vq *vq = pvblk_hctx_vq(hctx);
	bool kick = false;

	spin_lock_bh(&vq->q.lock);
	if (vq->q.inflight)
		kick = pvblk_kick_prepare(vq);
	spin_unlock_bh(&vq->q.lock);
	if (kick)
		virtqueue_notify(vq->q.vq);
}

/* Submit a plug's requests for one queue.  This takes the lock once, and kicks at most once. */
static void pvblk_submit_list(struct pvblk_vq *vq, struct rq_list *list)
{
	struct task_struct *wake = NULL;
	struct rq_list refused = {};
	struct request *req;
	bool kick;

	/* If pvblk_prep() has refused all of them, the device may be dead and have no ring. */
	if (rq_list_empty(list))
		return;
	local_bh_disable();
	spin_lock(&vq->q.lock);
	while ((req = rq_list_pop(list))) {
		if (unlikely(pvblk_add_request(vq, req)))
			rq_list_add_tail(&refused, req);
	}
	if (vq->q.inflight)
		wake = pvblk_watch(vq);
	kick = pvblk_kick_prepare(vq);
	spin_unlock(&vq->q.lock);
	pvblk_queue_tell(vq, kick, wake);
	local_bh_enable();
	/* The block layer sends these again through .queue_rq, which tells errors apart. */
	while ((req = rq_list_pop(&refused))) {
		pvblk_unprep(req);
		blk_mq_requeue_request(req, true);
	}
}

static void pvblk_queue_rqs(struct rq_list *rqlist)
{
	struct rq_list batch = {}, rest = {};
	struct pvblk_vq *vq = NULL;
	struct request *req;

	while ((req = rq_list_pop(rqlist))) {
		struct pvblk_vq *this = pvblk_hctx_vq(req->mq_hctx);

		if (vq && vq != this)
			pvblk_submit_list(vq, &batch);
		vq = this;
		if (pvblk_prep(vq->dev, req) == BLK_STS_OK)
			rq_list_add_tail(&batch, req);
		else
			rq_list_add_tail(&rest, req);
	}
	if (vq)
		pvblk_submit_list(vq, &batch);
	*rqlist = rest;
}

/*
 * Take finished requests from the ring, and list them.  The loop does not look at the ring when no
 * request is in flight, because the queue may then have no ring.
 */
static unsigned int pvblk_queue_collect(struct pvblk_vq *vq, struct rq_list *done)
{
	unsigned int len, n = 0;
	struct pvblk_req *r;

	while (vq->q.inflight > n && (r = virtqueue_get_buf(vq->q.vq, &len))) {
		struct request *req = blk_mq_rq_from_pdu(r);

		n++;
		if (unlikely(blk_should_fake_timeout(req->q)))
			r->swallowed = true;
		else
			rq_list_add_tail(done, req);
	}
	vq->q.inflight -= n;
	vq->stats.completed += n;
	return n;
}

/*
 * Start a queue that the driver stopped because its ring was full.  Returns the batch to complete
 * requests in: IOB, or NULL (one by one) if a request waits for room, or may wait.
 *
 * The request that found the ring full may not be on the dispatch list yet.  Then the start of the
 * queue finds nothing to run.  The block layer covers that case by BLK_MQ_S_SCHED_RESTART: if the
 * bit is set, it runs the queue when it frees a request.  But it reads the bit only if it frees a
 * single request, and not if it frees a batch.  So the driver completes requests one by one when it
 * starts the queue.
 *
 * It goes on to do so as long as the bit is set.  The dispatcher that set the bit may be late, and
 * another dispatcher may have taken the requests that the first start found.
 */
static struct io_comp_batch *pvblk_queue_restart(struct pvblk_vq *vq, struct io_comp_batch *iob)
{
	if (likely(!vq->stopped))
		return test_bit(BLK_MQ_S_SCHED_RESTART, &vq->hctx->state) ? NULL : iob;
	vq->stopped = false;
	blk_mq_start_stopped_hw_queue(vq->hctx, true);
	return NULL;
}

/* The device answers nothing any more, so let fail_work fail all requests. */
static void pvblk_fail_all(struct pvblk_dev *dev)
{
	if (!READ_ONCE(dev->dead))
		queue_work(pvblk_wq, &dev->fail_work);
}

/*
 * Take finished requests from a ring, under its lock, for pvblk_finish().  POLLED: the caller is a
 * poller, and not a work that an interrupt queued.  Returns how many requests there were.
 */
static unsigned int pvblk_collect(struct pvblk_vq *vq, struct pvblk_done *done, bool polled)
{
	unsigned int n;

	lockdep_assert_held(&vq->q.lock);
	n = pvblk_queue_collect(vq, &done->list);
	if (n) {
		WRITE_ONCE(vq->answered, jiffies);
		if (!vq->iopoll)
			virtio_poll_answered(&vq->q, polled);
		done->batch = pvblk_queue_restart(vq, done->batch);
	}
	/* Check this after good answers, too, because no interrupt reports a broken ring. */
	if (unlikely(vq->q.inflight && virtqueue_is_broken(vq->q.vq)))
		pvblk_fail_all(vq->dev);
	return n;
}

/*
 * Complete what pvblk_collect() found, without the queue's lock.  If it found nothing, the queue
 * may be gone.
 */
static void pvblk_finish(struct pvblk_done *done)
{
	pvblk_complete_list(&done->list, done->batch);
	if (done->own.complete)
		done->own.complete(&done->own);
}

static void pvblk_poll(struct virtio_poll_queue *q)
{
	struct pvblk_vq *vq = container_of(q, struct pvblk_vq, q);
	struct pvblk_done done = PVBLK_DONE(done);

	spin_lock(&q->lock);
	if (virtio_poll_begin(q))
		virtio_poll_end(q, pvblk_collect(vq, &done, true));
	spin_unlock(&q->lock);
	pvblk_finish(&done);
}

static void pvblk_later(struct virtio_poll_queue *q)
{
	struct pvblk_vq *vq = container_of(q, struct pvblk_vq, q);

	queue_work(system_bh_highpri_wq, &vq->reap);
}

const struct virtio_poll_ops pvblk_poll_ops = {
	.poll = pvblk_poll,
	.later = pvblk_later,
};

/*
 * The interrupt handler.  It leaves the ring to the work, because it must not take the queue's lock
 * (see Locking in pvblk.h).  With EVENT_IDX the device does not interrupt again before the work has
 * read the ring.  Without it, another interrupt finds the work queued already.
 */
void pvblk_vq_callback(struct virtqueue *virtqueue)
{
	struct pvblk_dev *dev = virtqueue->vdev->priv;
	struct pvblk_vq *vq = &dev->vqs[virtqueue->index];

	WRITE_ONCE(vq->q.stats.interrupts, vq->q.stats.interrupts + 1);
	trace_virtio_pvblk_interrupt(vq);
	queue_work(system_bh_highpri_wq, &vq->reap);
}

/* A softirq runs this after an interrupt, or if the device answered before callbacks were on. */
void pvblk_reap_work(struct work_struct *work)
{
	struct pvblk_vq *vq = container_of(work, struct pvblk_vq, reap);
	struct pvblk_done done = PVBLK_DONE(done);
	struct task_struct *wake = NULL;

	spin_lock_bh(&vq->q.lock);
	virtio_poll_interrupted(&vq->q);
	pvblk_collect(vq, &done, false);
	/* This queues the work again if the device answers before callbacks are on. */
	if (vq->q.inflight)
		wake = pvblk_watch(vq);
	spin_unlock_bh(&vq->q.lock);

	pvblk_finish(&done);
	if (wake)
		wake_up_process(wake);
}

/**
 * pvblk_iopoll - poll a queue for IOPOLL
 * @hctx: the hardware context of the queue
 * @iob: a batch that the caller completes, or NULL
 *
 * The block layer calls this in the task that waits for a REQ_POLLED request.
 *
 * Return: how many requests the device has finished.
 */
int pvblk_iopoll(struct blk_mq_hw_ctx *hctx, struct io_comp_batch *iob)
{
	struct pvblk_vq *vq = pvblk_hctx_vq(hctx);
	struct pvblk_done done = { .batch = iob };
	unsigned int n;

	local_bh_disable();
	spin_lock(&vq->q.lock);
	n = pvblk_collect(vq, &done, true);
	vq->q.stats.polls++;
	vq->q.stats.found += !!n;
	spin_unlock(&vq->q.lock);
	pvblk_finish(&done);
	local_bh_enable();
	return n;
}

/*
 * Look for the completion of a late request, because an interrupt or a poller may have missed it.
 * Returns true if the ring had it before, but fault injection swallowed it.
 */
static bool pvblk_collect_late(struct pvblk_vq *vq, struct pvblk_req *r)
{
	struct pvblk_done done = PVBLK_DONE(done);
	bool swallowed;

	local_bh_disable();
	spin_lock(&vq->q.lock);
	swallowed = r->swallowed;
	r->swallowed = false;
	if (!swallowed && !READ_ONCE(vq->dev->dead))
		pvblk_collect(vq, &done, false);
	spin_unlock(&vq->q.lock);
	pvblk_finish(&done);
	local_bh_enable();
	return swallowed;
}

static void pvblk_count_timeout(struct pvblk_vq *vq)
{
	spin_lock_bh(&vq->q.lock);
	vq->stats.timeouts++;
	spin_unlock_bh(&vq->q.lock);
}

/* A removal waits for a late request this many times io_timeout: ten minutes if that is 30 s. */
#define PVBLK_REMOVAL_WAITS	20

/*
 * Whether the device has answered nothing for as long as a request may take.  A single late request
 * does not show that, because the device may have answered others meanwhile.
 */
static bool pvblk_is_silent(struct pvblk_dev *dev)
{
	unsigned int i, limit = dev->disk->queue->rq_timeout;

	for (i = 0; i < dev->nr_vqs; i++)
		if (time_before(jiffies, READ_ONCE(dev->vqs[i].answered) + limit))
			return false;
	return true;
}

/*
 * Whether removal is to stop waiting for a late request.  There is a limit even if the device
 * answers other requests, because it may have lost this one.
 */
static bool pvblk_is_given_up(struct pvblk_dev *dev, struct pvblk_req *r)
{
	return pvblk_is_silent(dev) || ++r->removal_waits > PVBLK_REMOVAL_WAITS;
}

/*
 * A request is late.  The driver cannot abort a virtio-blk request, because the device owns the
 * buffers until it answers or is reset.  So the driver polls the ring, kicks the device again
 * because a kick may have been lost, and goes on waiting, as virtio_blk does.
 *
 * It resets the device in these cases only:
 *
 * - The ring is broken.  Pollers and interrupts find that earlier, in pvblk_collect().  This
 *   handler finds a broken ring that neither of them reads.
 * - The device is being removed, and is silent or has lost the request.  Otherwise removal would
 *   hang.
 * - The device has stopped.  Then the driver restarts it, see restart.c.
 *
 * Removal waits for a device that is only slow, because removal writes out cached data.
 */
static enum blk_eh_timer_return pvblk_timeout(struct request *req)
{
	struct pvblk_vq *vq = pvblk_hctx_vq(req->mq_hctx);
	struct pvblk_req *r = blk_mq_rq_to_pdu(req);
	struct pvblk_dev *dev = vq->dev;

	if (pvblk_collect_late(vq, r)) {
		pvblk_complete(req);
		return BLK_EH_DONE;
	}
	/* The block layer holds a reference, so this is still the same request. */
	if (blk_mq_rq_state(req) != MQ_RQ_IN_FLIGHT)
		return BLK_EH_DONE;
	pvblk_count_timeout(vq);
	if (virtqueue_is_broken(vq->q.vq) ||
	    (READ_ONCE(dev->removing) && pvblk_is_given_up(dev, r))) {
		pvblk_fail_all(dev);
		return BLK_EH_RESET_TIMER;
	}
	if (!READ_ONCE(dev->removing) && pvblk_has_stopped(dev->vdev)) {
		queue_work(pvblk_wq, &dev->restart_work);
		return BLK_EH_RESET_TIMER;
	}
	dev_warn_ratelimited(&dev->vdev->dev, "queue %u: the device did not answer request %d within io_timeout; still waiting, check the disk on the host\n",
			     vq->index, req->tag);
	if (!READ_ONCE(dev->dead))
		virtqueue_notify(vq->q.vq);
	return BLK_EH_RESET_TIMER;
}

/**
 * pvblk_take_back - empty the ring of a device that was reset
 * @vq: the queue, which gets no new requests
 * @left: takes the requests that the device left unanswered
 * @counter: the counter of the queue that the function adds these to
 *
 * If the ring is not broken, requests that the device answered before the reset end with its
 * answer.
 */
void pvblk_take_back(struct pvblk_vq *vq, struct rq_list *left, u64 *counter)
{
	struct pvblk_done done = {};
	struct pvblk_req *r;

	local_bh_disable();
	spin_lock(&vq->q.lock);
	pvblk_queue_collect(vq, &done.list);
	while ((r = virtqueue_detach_unused_buf(vq->q.vq))) {
		rq_list_add_tail(left, blk_mq_rq_from_pdu(r));
		vq->q.inflight--;
		++*counter;
	}
	/* The policy must not learn how long this took, because the device had failed. */
	vq->q.wait_start = 0;
	pvblk_queue_restart(vq, NULL);
	spin_unlock(&vq->q.lock);
	pvblk_finish(&done);
	local_bh_enable();
}

static void pvblk_fail_queue(struct pvblk_vq *vq)
{
	struct rq_list left = {};
	struct request *req;

	pvblk_take_back(vq, &left, &vq->stats.completed);
	/* Set the status, because the device may have written one without returning the request. */
	rq_list_for_each(&left, req) {
		struct pvblk_req *r = blk_mq_rq_to_pdu(req);

		r->status = VIRTIO_BLK_S_IOERR;
	}
	local_bh_disable();
	pvblk_complete_list(&left, NULL);
	local_bh_enable();
}

/*
 * The device does not answer any more, so take all requests back from it and fail them.  After the
 * reset it owns no buffers.  It stays reset until a new probe brings it up again.
 */
void pvblk_fail_work(struct work_struct *work)
{
	struct pvblk_dev *dev = container_of(work, struct pvblk_dev, fail_work);
	struct request_queue *q = dev->disk->queue;
	unsigned int i;

	dev_err(&dev->vdev->dev, "the device is gone, does not answer, or broke its ring; all I/O fails until you unbind the device and bind it again\n");
	WRITE_ONCE(dev->dead, true);
	blk_mq_quiesce_queue(q);
	pvblk_reset(dev->vdev);
	for (i = 0; i < dev->nr_vqs; i++)
		pvblk_fail_queue(&dev->vqs[i]);
	blk_mq_unquiesce_queue(q);
}

static void pvblk_map_queues(struct blk_mq_tag_set *set)
{
	struct pvblk_dev *dev = set->driver_data;
	unsigned int i, first = 0;

	for (i = 0; i < set->nr_maps; i++) {
		struct blk_mq_queue_map *map = &set->map[i];

		map->nr_queues = dev->nr_queues[i];
		map->queue_offset = first;
		first += map->nr_queues;
		if (!map->nr_queues)
			continue;
		/* Polled queues have no interrupt, so there is no affinity to follow. */
		if (i == HCTX_TYPE_POLL)
			blk_mq_map_queues(map);
		else
			blk_mq_virtio_map_queues(map, dev->vdev, 0);
	}
}

static int pvblk_init_hctx(struct blk_mq_hw_ctx *hctx, void *data, unsigned int index)
{
	struct pvblk_dev *dev = data;

	dev->vqs[index].hctx = hctx;
	return 0;
}

const struct blk_mq_ops pvblk_mq_ops = {
	.queue_rq	= pvblk_queue_rq,
	.queue_rqs	= pvblk_queue_rqs,
	.commit_rqs	= pvblk_commit_rqs,
	.complete	= pvblk_complete,
	.timeout	= pvblk_timeout,
	.poll		= pvblk_iopoll,
	.map_queues	= pvblk_map_queues,
	.init_hctx	= pvblk_init_hctx,
};
