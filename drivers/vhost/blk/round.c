// SPDX-License-Identifier: GPL-2.0
/*
 * A round of a vring: in the poller, in its worker, and until nothing is left.
 *
 * States of the service, under vq->mutex:
 *
 *   stopped --START--> running (poller) <--> with_worker --STOP--> draining
 *
 * with_worker is set by the poller when it hands over and cleared by the
 * worker when it is done, which then wakes the poller.  START and STOP are
 * vring.c's.
 */
#include <linux/blkdev.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/uaccess.h>

#include "blk.h"
#include <trace/events/vhost_blk.h>

/* Have the poller look at a vring; from any context. */
static void wake_poller(struct vblk_vring *vring)
{
	vhost_poll_wake(&vring->src);
}

/**
 * vblk_handle_kick - the guest kicked
 * @work: of vhost's poll
 *
 * From the eventfd's wake-up, interrupts off: nothing but a wake-up here.
 */
void vblk_handle_kick(struct vhost_work *work)
{
	struct vhost_poll *poll = container_of(work, struct vhost_poll, work);
	struct vblk_vring *vring = container_of(poll->vq, struct vblk_vring, vq);

	atomic64_inc(&vring->kicks);
	wake_poller(vring);
}

/* Have the worker do the next round. */
static void give_to_worker(struct vblk_vring *vring)
{
	if (vring->with_worker || vring->stopping)
		return;
	WRITE_ONCE(vring->with_worker, true);
	/* It wakes the poller when it is done, which has nothing to try before. */
	vring->src.retry_ns = 0;
	trace_vhost_blk_mode(vring, true);
	queue_work(vring->dev->ring_wq, &vring->work);
}

/*
 * While the engine has requests of ours in flight a retry will succeed; else
 * somebody else has all tags, or the queue is frozen.
 */
static bool waited_enough(struct vblk_vring *vring, struct vblk_req *req)
{
	u64 limit = vblk_engine_busy(vring) ? VBLK_PENDING_NS :
					      VBLK_PENDING_IDLE_NS;

	return req->aside_ns && vring->now - req->aside_ns > limit;
}

/* What was set aside because the backend was full. */
static void retry_pending(struct vblk_vring *vring)
{
	struct vblk_req *req, *next;
	LIST_HEAD(again);

	if (list_empty(&vring->pending))
		return;
	list_splice_init(&vring->pending, &again);
	list_for_each_entry_safe(req, next, &again, node) {
		list_del(&req->node);
		if (waited_enough(vring, req))
			vblk_req_punt(req);
		else
			vblk_batch_add(vring, req);
		/* Refused again: keep the order of the others. */
		if (!list_empty(&vring->pending))
			break;
	}
	vblk_batch_flush(vring);
	list_splice_tail(&again, &vring->pending);
}

static void dispatch(struct vblk_vring *vring, struct vblk_req *req,
		     bool in_worker)
{
	if (!vblk_is_rw(req)) {
		vblk_req_punt(req);
	} else if (in_worker) {
		/* Submission is left to the poller's CPU. */
		req->state = VBLK_PENDING;
		list_add_tail(&req->node, &vring->pending);
	} else {
		vblk_batch_add(vring, req);
	}
}

/* Bytes and descriptors go by weight as requests do, or they would level it. */
static unsigned long share_of(const struct vblk_vring *vring,
			      unsigned long whole)
{
	return max(whole * vring->src.weight / VBLK_WEIGHT, 1UL);
}

static int take_some(struct vblk_vring *vring, unsigned int budget,
		     bool may_sleep)
{
	unsigned long descs_max = share_of(vring, VBLK_ROUND_DESCS);
	unsigned long bytes_max = share_of(vring, VBLK_ROUND_BYTES);
	unsigned long bytes = 0;
	unsigned int nr = 0;
	struct vblk_req *req;
	int err = 0;

	/* Whoever turned them on. */
	vhost_disable_notify(vring->vq.dev, &vring->vq);
	vring->round_descs = 0;
	vring->to_come = budget;
	while (nr < budget && bytes < bytes_max &&
	       !vblk_full(vring) && vring->round_descs < descs_max) {
		req = vblk_take(vring, may_sleep, &err);
		if (err)
			break;
		nr++;
		vring->to_come--;
		if (!req)
			continue;
		bytes += req->bytes;
		dispatch(vring, req, may_sleep);
	}
	vring->to_come = 0;
	if (err == -EPIPE)
		vblk_break(vring);
	if (err == -EAGAIN)
		give_to_worker(vring);
	return nr;
}

static unsigned int available(struct vblk_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;

	if (vhost_vq_avail_empty(vring->vq.dev, vq))
		return 0;
	/* An index that could not be read, or jumped: the take will say. */
	return max_t(u16, vq->avail_idx - vq->last_avail_idx, 1);
}

static int take_round(struct vblk_vring *vring, int budget)
{
	unsigned int nr;
	struct blk_plug plug;
	int done;

	if (!vring->running || vring->broken || !list_empty(&vring->pending) ||
	    vblk_full(vring))
		return 0;
	nr = min_t(unsigned int, available(vring), budget);
	if (!nr)
		return 0;

	blk_start_plug(&plug);
	done = take_some(vring, nr, false);
	vblk_batch_flush(vring);
	blk_finish_plug(&plug);
	return done;
}

/**
 * vblk_publish - what is outstanding, for the adaptive mode's prediction
 * @vring: its mutex is held
 */
void vblk_publish(struct vblk_vring *vring)
{
	struct vblk_req *oldest;

	oldest = list_first_entry_or_null(&vring->inflight, struct vblk_req,
					  node);
	vring->src.inflight = vring->nr_inflight;
	vring->src.oldest_ns = oldest ? oldest->submit_ns : 0;
	vring->src.polled = vring->nr_polled != 0;
	/* Nobody tells when somebody else's tag is free. */
	vring->src.retry_ns = 0;
	if (!list_empty(&vring->pending) && !vring->with_worker)
		vring->src.retry_ns = vring->now + VBLK_RETRY_NS;
}

static int round_locked(struct vblk_vring *vring, int budget)
{
	bool idle = !vring->nr_polled && llist_empty(&vring->done) &&
		    list_empty(&vring->pending) && list_empty(&vring->finished);
	int nr = 0, r;

	/* A broken ring is not even looked at: each look would report it. */
	if (idle && (!vring->running || vring->broken ||
		     vhost_vq_avail_empty(vring->vq.dev, &vring->vq))) {
		/*
		 * The worker may have answered what the poller still waits for, or
		 * an ioctl let go of the vring.
		 */
		if (vring->src.inflight != vring->nr_inflight ||
		    vring->src.retry_ns)
			vblk_publish(vring);
		return 0;
	}

	vring->now = ktime_get_ns();
	WRITE_ONCE(vring->reaper, current);
	if (vring->nr_polled)
		vblk_mq_reap(vring);
	r = vblk_complete(vring, false);
	if (r < 0)
		goto hand_over;
	nr += r;
	retry_pending(vring);
	nr += take_round(vring, budget);
	/* What was answered at once, or completed synchronously. */
	r = vblk_complete(vring, false);
	if (r < 0)
		goto hand_over;
	nr += r;
	goto out;
hand_over:
	give_to_worker(vring);
out:
	WRITE_ONCE(vring->reaper, NULL);
	vblk_publish(vring);
	return nr;
}

static struct vblk_vring *to_vring(struct vhost_poll_source *src)
{
	return container_of(src, struct vblk_vring, src);
}

/*
 * The owner may have set log_used after check_vring_addr() had looked at its
 * flags.  Writing a log is no matter of copies that fail: it sleeps.
 */
static bool try_lock(struct vblk_vring *vring)
{
	if (!mutex_trylock(&vring->vq.mutex))
		return false;
	if (unlikely(vring->vq.log_used))
		vring->vq.log_used = false;
	return true;
}

/*
 * In between page faults are off, and that something cannot be reached is no error
 * yet: the worker tries it again.  vhost would tell the VMM.
 */
static struct eventfd_ctx *faults_off(struct vblk_vring *vring)
{
	struct eventfd_ctx *error = vring->vq.error_ctx;

	vring->vq.error_ctx = NULL;
	pagefault_disable();
	return error;
}

static void faults_on(struct vblk_vring *vring, struct eventfd_ctx *error)
{
	pagefault_enable();
	vring->vq.error_ctx = error;
}

static int vring_poll(struct vhost_poll_source *src, int budget)
{
	struct vblk_vring *vring = to_vring(src);
	struct eventfd_ctx *error;
	int nr = 0;

	if (READ_ONCE(vring->with_worker) || !try_lock(vring))
		return 0;
	if (!vring->with_worker) {
		error = faults_off(vring);
		nr = round_locked(vring, budget);
		faults_on(vring, error);
	}
	mutex_unlock(&vring->vq.mutex);
	return nr;
}

/*
 * vhost_enable_notify() cannot say that its write faulted.  Read back what
 * the guest sees; if it is not what we meant, the worker brings the page in.
 */
static bool armed(struct vhost_virtqueue *vq)
{
	__virtio16 seen;

	if (vhost_has_feature(vq, VIRTIO_RING_F_EVENT_IDX))
		return !get_user(seen, (__virtio16 __user *)
				 &vq->used->ring[vq->num]) &&
		       vhost16_to_cpu(vq, seen) == vq->avail_idx;
	return !get_user(seen, &vq->used->flags) &&
	       !(vhost16_to_cpu(vq, seen) & VRING_USED_F_NO_NOTIFY);
}

static bool arm_locked(struct vblk_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;

	if (!llist_empty(&vring->done) || !list_empty(&vring->finished))
		return true;
	/* With others in flight, their completion, or retry_ns, is when to try again. */
	if (!list_empty(&vring->pending))
		return !vblk_engine_busy(vring);
	if (!vring->running || vring->broken || vblk_full(vring))
		return false;
	if (!vhost_vq_avail_empty(vq->dev, vq) ||
	    vhost_enable_notify(vq->dev, vq))
		return true;
	/* An index that it could not read counts as none new there, here as one. */
	if (armed(vq))
		return !vhost_vq_avail_empty(vq->dev, vq);
	give_to_worker(vring);
	return true;
}

/*
 * An ioctl has it, and wakes us when it is done, which may be long after it let go
 * of this vring: look again soon, and do not spin until then.
 */
static bool held_elsewhere(struct vblk_vring *vring)
{
	u64 now = ktime_get_ns();

	if (vring->src.retry_ns > now)
		return false;
	vring->src.retry_ns = now + VBLK_RETRY_NS;
	return true;
}

static bool vring_arm(struct vhost_poll_source *src)
{
	struct vblk_vring *vring = to_vring(src);
	struct eventfd_ctx *error;
	bool work = false;

	/* The worker wakes us when it is done. */
	if (READ_ONCE(vring->with_worker))
		return false;
	if (!try_lock(vring))
		return held_elsewhere(vring);
	if (!vring->with_worker) {
		error = faults_off(vring);
		work = arm_locked(vring);
		faults_on(vring, error);
	}
	mutex_unlock(&vring->vq.mutex);
	return work;
}

static void vring_disarm(struct vhost_poll_source *src)
{
	struct vblk_vring *vring = to_vring(src);
	struct eventfd_ctx *error;

	/* If somebody else has it, take_some() turns them off before it takes. */
	if (!try_lock(vring))
		return;
	error = faults_off(vring);
	if (vring->running && !vring->broken)
		vhost_disable_notify(vring->vq.dev, &vring->vq);
	faults_on(vring, error);
	mutex_unlock(&vring->vq.mutex);
}

const struct vhost_poll_ops vblk_round_ops = {
	.poll	= vring_poll,
	.arm	= vring_arm,
	.disarm	= vring_disarm,
};

/*
 * Brings in what arm_locked() could not write.  If that cannot be written here
 * either there is no used ring, and the poller would be back at once.
 */
static void touch_ring(struct vblk_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;

	if (!vring->running || vring->broken)
		return;
	/* So that it does write: it would not, were they on already. */
	vhost_disable_notify(vq->dev, vq);
	if (!vhost_enable_notify(vq->dev, vq) && !armed(vq)) {
		vblk_malformed(vring, VBLK_NO_USED_RING);
		vblk_break(vring);
	}
	vhost_disable_notify(vq->dev, vq);
}

/**
 * vblk_worker - a round with page faults allowed, once
 * @work: of the vring
 */
void vblk_worker(struct work_struct *work)
{
	struct vblk_vring *vring = container_of(work, struct vblk_vring, work);
	struct mem_cgroup *memcg = vblk_charge_owner(vring->dev);

	kthread_use_mm(vring->mm);
	mutex_lock(&vring->vq.mutex);
	vring->now = ktime_get_ns();
	touch_ring(vring);
	vblk_complete(vring, true);
	if (vring->running && !vring->broken && list_empty(&vring->pending))
		take_some(vring, 16, true);
	vblk_complete(vring, true);
	WRITE_ONCE(vring->with_worker, false);
	trace_vhost_blk_mode(vring, false);
	mutex_unlock(&vring->vq.mutex);
	kthread_unuse_mm(vring->mm);
	vblk_charge_end(memcg);
	wake_poller(vring);
}

static void punt_pending(struct vblk_vring *vring)
{
	struct vblk_req *req, *next;

	list_for_each_entry_safe(req, next, &vring->pending, node) {
		list_del(&req->node);
		vblk_req_punt(req);
	}
}

/* Returns true when nothing is left. */
static bool drain_some(struct vblk_vring *vring)
{
	bool empty;

	mutex_lock(&vring->vq.mutex);
	vring->now = ktime_get_ns();
	punt_pending(vring);
	if (vring->nr_polled)
		vblk_mq_reap(vring);
	vblk_complete(vring, true);
	empty = !vring->nr_inflight && list_empty(&vring->pending);
	mutex_unlock(&vring->vq.mutex);
	return empty;
}

/**
 * vblk_drain - until nothing is in flight any more
 * @work: of the vring, which is stopping and has no poller
 */
void vblk_drain(struct work_struct *work)
{
	struct vblk_vring *vring = container_of(work, struct vblk_vring,
						stop_work);

	kthread_use_mm(vring->mm);
	while (!drain_some(vring)) {
		if (READ_ONCE(vring->nr_polled))
			usleep_range(20, 50);
		else
			wait_event(vring->drain, !llist_empty(&vring->done));
	}
	kthread_unuse_mm(vring->mm);
}
