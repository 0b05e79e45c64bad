// SPDX-License-Identifier: GPL-2.0
/*
 * A round serves a vring once: it takes new requests and answers finished ones.  The poller runs
 * it, or the vring's worker, or the drain, which takes nothing and repeats the rest until no
 * request is left.
 *
 * States of the service, under vq->mutex:
 *
 *   stopped --START--> running (poller) <--> with_worker --STOP--> draining
 *
 * The poller sets with_worker when it hands the vring over.  The worker clears it when it is done,
 * and then wakes the poller.  vring.c has START and STOP.
 */
#include <linux/blkdev.h>
#include <linux/delay.h>
#include <linux/freezer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/uaccess.h>

#include "ring.h"
#include "serve.h"
#include <trace/events/vhost_serve.h>

static void vserve_wake_poller(struct vserve_vring *vring)
{
	vhost_poll_wake(&vring->src);
}

/**
 * vserve_handle_kick - wake the poller, because the guest has kicked
 * @work: the work of vhost's poll
 *
 * vhost calls this in the eventfd's wake-up, with interrupts off, so it only wakes the poller.
 */
void vserve_handle_kick(struct vhost_work *work)
{
	struct vhost_poll *poll = container_of(work, struct vhost_poll, work);
	struct vserve_vring *vring = container_of(poll->vq, struct vserve_vring, vq);

	atomic64_inc(&vring->kicks);
	vserve_wake_poller(vring);
}

/* Have the worker do the next round. */
static void vserve_give_to_worker(struct vserve_vring *vring)
{
	if (vring->with_worker || vring->stopping)
		return;
	WRITE_ONCE(vring->with_worker, true);
	/*
	 * The worker wakes the poller when it is done.  The poller has nothing to try again before
	 * that.
	 */
	vring->src.retry_ns = 0;
	trace_vhost_serve_mode(vring, true);
	queue_work(vring->dev->ring_wq, &vring->work);
}

/*
 * Whether the poller has tried for long enough to submit a request that the backend refused.
 *
 * If the backend has requests of this vring in flight, it will take more once these are done.
 * Otherwise another user of the disk has all tags, or the queue is frozen.
 */
static bool vserve_waited_enough(struct vserve_vring *vring, struct vserve_req *req)
{
	u64 limit = vserve_backend_busy(vring) ? VSERVE_PENDING_NS :
					      VSERVE_PENDING_IDLE_NS;

	return req->aside_ns && vring->now - req->aside_ns > limit;
}

static void vserve_flush(struct vserve_vring *vring)
{
	if (vring->ops->flush)
		vring->ops->flush(vring);
}

/* Submit the requests again that were set aside because the backend was full. */
static void vserve_retry_pending(struct vserve_vring *vring)
{
	struct vserve_req *req, *next;
	LIST_HEAD(again);

	if (list_empty(&vring->pending) || freezing(current))
		return;
	list_splice_init(&vring->pending, &again);
	list_for_each_entry_safe(req, next, &again, node) {
		list_del(&req->node);
		if (vserve_waited_enough(vring, req))
			vserve_req_punt(req);
		else
			vring->ops->submit(req);
		/* The backend has refused the request again, so the others stay behind it. */
		if (!list_empty(&vring->pending))
			break;
	}
	vserve_flush(vring);
	list_splice_tail(&again, &vring->pending);
}

/* Leave the submission to the poller, which submits on its own CPU. */
static void vserve_leave_to_poller(struct vserve_req *req)
{
	req->state = VSERVE_PENDING;
	list_add_tail(&req->node, &req->vring->pending);
}

static int vserve_take_some(struct vserve_vring *vring, unsigned int budget,
			    bool may_sleep)
{
	unsigned long descs_max = vserve_share_of(vring, VSERVE_ROUND_DESCS);
	unsigned long bytes_max = vserve_share_of(vring, READ_ONCE(vring->dev->round_bytes));
	unsigned long bytes = 0;
	unsigned int nr = 0;
	struct vserve_req *req;
	int err = 0;

	/* vserve_arm() turns notifications on, and they are off while a thread takes chains. */
	if (!(vring->vq.used_flags & VRING_USED_F_NO_NOTIFY))
		vhost_disable_notify(vring->vq.dev, &vring->vq);
	vring->round_descs = 0;
	vring->to_come = budget;
	while (nr < budget && bytes < bytes_max &&
	       !vring->full && vring->round_descs < descs_max) {
		req = vserve_take(vring, may_sleep, &err);
		if (err)
			break;
		nr++;
		vring->to_come--;
		if (!req)
			continue;
		bytes += req->bytes;
		if (may_sleep)
			vserve_leave_to_poller(req);
		else
			vring->ops->submit(req);
	}
	vring->to_come = 0;
	if (err == -EPIPE)
		vserve_break(vring);
	if (err == -EAGAIN)
		vserve_give_to_worker(vring);
	return nr;
}

static unsigned int vserve_available(struct vserve_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;

	if (vserve_avail_empty(vring))
		return 0;
	/* If the index could not be read, or has jumped, vserve_get_chain() will say so. */
	return max_t(u16, vq->avail_idx - vq->last_avail_idx, 1);
}

static int vserve_take_now(struct vserve_vring *vring, unsigned int nr)
{
	int done = vserve_take_some(vring, nr, false);

	vserve_flush(vring);
	return done;
}

static int vserve_take_plugged(struct vserve_vring *vring, unsigned int nr)
{
	struct blk_plug plug;
	int done;

	blk_start_plug(&plug);
	done = vserve_take_now(vring, nr);
	blk_finish_plug(&plug);
	return done;
}

static int vserve_take_round(struct vserve_vring *vring, int budget)
{
	unsigned int nr;

	if (!vring->running || vring->broken || !list_empty(&vring->pending) ||
	    vring->full || freezing(current))
		return 0;
	/*
	 * The poller's thread carries out first what earlier rounds have left to it.  Otherwise the
	 * vring would get more than its share.
	 */
	if (vring->hot)
		return 0;
	nr = min_t(unsigned int, vserve_available(vring), budget);
	if (!nr)
		return 0;

	return vring->ops->flags & VSERVE_PLUG ? vserve_take_plugged(vring, nr) :
						 vserve_take_now(vring, nr);
}

/* When the oldest request in flight was submitted, or 0 if there is no request. */
static u64 vserve_oldest_ns(struct vserve_vring *vring)
{
	const struct vserve_req *req, *polled;

	req = list_first_entry_or_null(&vring->inflight, struct vserve_req, node);
	polled = list_first_entry_or_null(&vring->polled, struct vserve_req, node);
	if (req && polled)
		return min(req->submit_ns, polled->submit_ns);
	req = req ?: polled;
	return req ? req->submit_ns : 0;
}

/**
 * vserve_publish - tell the poller what is outstanding, for the prediction in its adaptive mode
 * @vring: the vring; its mutex is held
 */
void vserve_publish(struct vserve_vring *vring)
{
	vring->src.inflight = vring->nr_inflight;
	vring->src.oldest_ns = vring->nr_inflight ? vserve_oldest_ns(vring) : 0;
	vring->src.polled = vring->nr_polled != 0;
	/*
	 * The block layer does not tell the poller when another user frees a tag, so the poller
	 * tries again at this time.
	 */
	vring->src.retry_ns = 0;
	if (!list_empty(&vring->pending) && !vring->with_worker)
		vring->src.retry_ns = vring->now + VSERVE_RETRY_NS;
}

/* After a round in which NR requests came in or were answered, interrupt the guest, now or soon. */
static void vserve_round_signal(struct vserve_vring *vring, int nr)
{
	if (nr)
		vserve_calls_event(&vring->calls, vring->now);
	/*
	 * The poller's thread carries out vring->hot next, or the worker goes on.  Either may take
	 * long.
	 */
	if (vring->hot || vring->with_worker)
		vserve_signal(vring);
	else
		vserve_signal_soon(vring);
}

/* Whether a round has nothing to do, except for new chains. */
static __always_inline bool vserve_is_idle(const struct vserve_vring *vring)
{
	return !vring->nr_polled && !vserve_has_done(vring) && list_empty(&vring->pending) &&
	       !(vring->calls.due && vring->vq.call_ctx.ctx);
}

/*
 * Whether the poller knows how many requests are in flight after the worker has answered some, and
 * does not try again for an ioctl that has released the vring by now.
 */
static bool vserve_is_published(const struct vserve_vring *vring)
{
	return vring->src.inflight == vring->nr_inflight && !vring->src.retry_ns;
}

/*
 * Whether a vring seems to have nothing to do.
 *
 * Most rings have nothing in most rounds, and to lock and unlock each of them would be most of a
 * round.  So the poller looks first, without the mutex.  The fields that it reads may change
 * meanwhile, and so may the ring's address.  If the poller misses something that way, the next
 * round finds it, and no poller sleeps before vserve_arm() has looked with the mutex held.
 */
static bool vserve_looks_idle(struct vserve_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;
	bool idle;

	pagefault_disable();
	/* Stale values are harmless: they cost a round, or the next round finds the work. */
	idle = data_race(vring->running && !vring->broken && vserve_avail_unchanged(vq) &&
			 !vring->calls.asked_ns && vserve_is_idle(vring) &&
			 vserve_is_published(vring));
	pagefault_enable();
	return idle;
}

static int vserve_round_locked(struct vserve_vring *vring, int budget, u64 now)
{
	int nr, taken, r;

	if (unlikely(vring->calls.asked_ns))
		vserve_measure_guest(vring);

	/* Do not even look at a broken ring, because each look would report it. */
	if ((!vring->running || vring->broken || vserve_avail_empty(vring)) &&
	    vserve_is_idle(vring)) {
		if (!vserve_is_published(vring))
			vserve_publish(vring);
		return 0;
	}

	/* A worker may have read the clock later than the poller. */
	vring->now = max(vring->now, now ?: ktime_get_ns());
	WRITE_ONCE(vring->reaper, current);
	if (vring->nr_polled)
		vring->ops->reap(vring);
	nr = vserve_has_done(vring) ? vserve_complete(vring, budget, false) : 0;
	if (nr < 0)
		goto hand_over;
	vserve_retry_pending(vring);
	taken = vserve_take_round(vring, budget);
	/*
	 * The take may have answered requests at once, and a backend may have completed some
	 * synchronously.  With a backlog the round has completed as many bytes as it may.
	 */
	r = budget > nr && !vring->backlog && vserve_has_done(vring) ?
		vserve_complete(vring, budget - nr, false) : 0;
	nr += taken;
	if (r < 0)
		goto hand_over;
	nr += r;
	goto out;
hand_over:
	nr = max(nr, 0);
	vserve_give_to_worker(vring);
out:
	vserve_round_signal(vring, nr);
	WRITE_ONCE(vring->reaper, NULL);
	vserve_publish(vring);
	return nr;
}

/*
 * Answer requests that the poller's thread has carried out since its round.  Take nothing from the
 * ring, so that the ring gets no more of the poller's time than others.
 */
static int vserve_deliver_locked(struct vserve_vring *vring, int budget)
{
	struct llist_node *last = READ_ONCE(vring->done.first);
	int nr;

	/* With a backlog the round has completed as many bytes as it may. */
	if (!last || vring->backlog)
		return 0;
	/* The thread read the clock when the last request was done.  That was just now. */
	vring->now = max(vring->now, llist_entry(last, struct vserve_req, done)->done_ns);
	nr = vserve_complete(vring, budget, false);
	if (nr < 0)
		vserve_give_to_worker(vring);
	nr = max(nr, 0);
	vserve_round_signal(vring, nr);
	vserve_publish(vring);
	return nr;
}

static struct vserve_vring *vserve_to_vring(struct vhost_poll_source *src)
{
	return container_of(src, struct vserve_vring, src);
}

/*
 * Try to lock a vring, and turn its dirty log off.  The owner may have changed the flags after
 * vserve_check_vring_addr() had read them, so log_used may be set.  A write to the log may sleep,
 * while other copies only fail when page faults are off.
 */
static bool vserve_try_lock(struct vserve_vring *vring)
{
	if (!mutex_trylock(&vring->vq.mutex))
		return false;
	if (unlikely(vring->vq.log_used))
		vring->vq.log_used = false;
	return true;
}

/*
 * Turn page faults off, until vserve_faults_on().  Memory that cannot be reached is no error yet,
 * because the worker tries again.  vhost would signal an error to the VMM, so take its eventfd
 * away.
 */
static struct eventfd_ctx *vserve_faults_off(struct vserve_vring *vring)
{
	struct eventfd_ctx *error = vring->vq.error_ctx;

	vring->vq.error_ctx = NULL;
	pagefault_disable();
	return error;
}

static void vserve_faults_on(struct vserve_vring *vring, struct eventfd_ctx *error)
{
	pagefault_enable();
	vring->vq.error_ctx = error;
}

/* Lock a vring for the poller and turn page faults off, unless a worker has the vring. */
static bool vserve_round_begin(struct vserve_vring *vring, struct eventfd_ctx **error)
{
	if (!vserve_try_lock(vring))
		return false;
	if (vring->with_worker) {
		mutex_unlock(&vring->vq.mutex);
		return false;
	}
	*error = vserve_faults_off(vring);
	return true;
}

static void vserve_round_end(struct vserve_vring *vring, struct eventfd_ctx *error)
{
	vserve_faults_on(vring, error);
	mutex_unlock(&vring->vq.mutex);
}

static noinline int vserve_round(struct vserve_vring *vring, int budget, u64 now)
{
	struct eventfd_ctx *error;
	int nr;

	if (!vserve_round_begin(vring, &error))
		return 0;
	nr = vserve_round_locked(vring, budget, now);
	vserve_round_end(vring, error);
	return nr;
}

static int vserve_poll(struct vhost_poll_source *src, int budget, u64 *now)
{
	struct vserve_vring *vring = vserve_to_vring(src);
	int nr;

	if (READ_ONCE(vring->with_worker) || vserve_looks_idle(vring))
		return 0;
	nr = vserve_round(vring, budget, *now);
	*now = 0;
	return nr;
}

/* The poller calls this only while its thread has the role, so the vring is still there. */
static int vserve_deliver(struct vhost_poll_source *src, int budget)
{
	struct vserve_vring *vring = vserve_to_vring(src);
	struct eventfd_ctx *error;
	int nr;

	if (llist_empty(&vring->done) || !vserve_round_begin(vring, &error))
		return 0;
	nr = vserve_deliver_locked(vring, budget);
	vserve_round_end(vring, error);
	return nr;
}

/*
 * Whether the guest sees that notifications are on.  vhost_enable_notify() does not report that its
 * write faulted, so read back what the guest sees.  If that is wrong, the worker brings the page
 * in.
 */
static bool vserve_is_armed(struct vhost_virtqueue *vq)
{
	__virtio16 seen;

	if (vhost_has_feature(vq, VIRTIO_RING_F_EVENT_IDX))
		return !get_user(seen, (__virtio16 __user *)
				 &vq->used->ring[vq->num]) &&
		       vhost16_to_cpu(vq, seen) == vq->avail_idx;
	return !get_user(seen, &vq->used->flags) &&
	       !(vhost16_to_cpu(vq, seen) & VRING_USED_F_NO_NOTIFY);
}

static bool vserve_arm_locked(struct vserve_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;

	if (vserve_has_done(vring) || vring->hot)
		return true;
	vserve_signal(vring);
	/*
	 * If other requests are in flight, the poller tries again when one completes, or at
	 * retry_ns.
	 */
	if (!list_empty(&vring->pending))
		return !vserve_backend_busy(vring);
	if (!vring->running || vring->broken || vring->full)
		return false;
	if (!vserve_avail_empty(vring) ||
	    vhost_enable_notify(vq->dev, vq))
		return true;
	/*
	 * If the index cannot be read, vhost_enable_notify() says that no chain is new, and
	 * vserve_avail_empty() says that one is.
	 */
	if (vserve_is_armed(vq))
		return !vserve_avail_empty(vring);
	vserve_give_to_worker(vring);
	return true;
}

/*
 * An ioctl has the mutex.  It wakes the poller when it is done, which may be long after it has
 * released this vring.  So the poller looks again soon, and does not spin until then.  Returns
 * whether it is to look again at once.
 */
static bool vserve_held_elsewhere(struct vserve_vring *vring)
{
	u64 now = ktime_get_ns();

	if (vring->src.retry_ns > now)
		return false;
	vring->src.retry_ns = now + VSERVE_RETRY_NS;
	return true;
}

static bool vserve_arm(struct vhost_poll_source *src)
{
	struct vserve_vring *vring = vserve_to_vring(src);
	struct eventfd_ctx *error;
	bool work = false;

	/* The worker wakes the poller when it is done. */
	if (READ_ONCE(vring->with_worker))
		return false;
	if (!vserve_try_lock(vring))
		return vserve_held_elsewhere(vring);
	if (!vring->with_worker) {
		error = vserve_faults_off(vring);
		work = vserve_arm_locked(vring);
		vserve_faults_on(vring, error);
		/* A poller that sleeps does not see when the guest asks for the next interrupt. */
		if (!work)
			vring->calls.asked_ns = 0;
	}
	mutex_unlock(&vring->vq.mutex);
	return work;
}

static void vserve_disarm(struct vhost_poll_source *src)
{
	struct vserve_vring *vring = vserve_to_vring(src);
	struct eventfd_ctx *error;

	/*
	 * A worker or an ioctl has the mutex.  vserve_take_some() turns notifications off before it
	 * takes.
	 */
	if (!vserve_try_lock(vring))
		return;
	error = vserve_faults_off(vring);
	if (vring->running && !vring->broken)
		vhost_disable_notify(vring->vq.dev, &vring->vq);
	vserve_faults_on(vring, error);
	mutex_unlock(&vring->vq.mutex);
}

static void *vserve_pop(struct vhost_poll_source *src)
{
	return vserve_pop_hot(vserve_to_vring(src));
}

const struct vhost_poll_ops vserve_round_ops = {
	.poll	= vserve_poll,
	.arm	= vserve_arm,
	.disarm	= vserve_disarm,
	.pop	= vserve_pop,
	.run	= vserve_run_hot,
	.punt	= vserve_punt_hot,
	.deliver = vserve_deliver,
};

/*
 * Bring in the page that vserve_arm_locked() could not write.  If the worker cannot write it
 * either, there is no used ring, and the poller would hand the vring over again at once.
 */
static void vserve_touch_ring(struct vserve_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;

	if (!vring->running || vring->broken)
		return;
	/*
	 * Turn notifications off first: if they were on, vhost_enable_notify() would write nothing.
	 */
	vhost_disable_notify(vq->dev, vq);
	if (!vhost_enable_notify(vq->dev, vq) && !vserve_is_armed(vq)) {
		vserve_malformed(vring, VSERVE_NO_USED_RING);
		vserve_break(vring);
	}
	vhost_disable_notify(vq->dev, vq);
}

/**
 * vserve_worker - serve a vring once, with page faults allowed
 * @work: the vring's work
 */
void vserve_worker(struct work_struct *work)
{
	struct vserve_vring *vring = container_of(work, struct vserve_vring, work);
	struct mem_cgroup *memcg = vserve_charge_owner(vring->dev);

	kthread_use_mm(vring->mm);
	mutex_lock(&vring->vq.mutex);
	vring->now = ktime_get_ns();
	vserve_touch_ring(vring);
	vserve_complete(vring, UINT_MAX, true);
	/* Interrupt the guest now, because the worker may wait for pages of the next chains. */
	vserve_signal(vring);
	if (vring->running && !vring->broken && list_empty(&vring->pending))
		vserve_take_some(vring, 16, true);
	vserve_complete(vring, UINT_MAX, true);
	vserve_signal(vring);
	WRITE_ONCE(vring->with_worker, false);
	trace_vhost_serve_mode(vring, false);
	mutex_unlock(&vring->vq.mutex);
	kthread_unuse_mm(vring->mm);
	vserve_charge_end(memcg);
	vserve_wake_poller(vring);
}

static void vserve_punt_pending(struct vserve_vring *vring)
{
	struct vserve_req *req, *next;

	list_for_each_entry_safe(req, next, &vring->pending, node) {
		list_del(&req->node);
		vserve_req_punt(req);
	}
}

/*
 * Answer what is done, and leave requests that were not submitted yet to workers.  Returns true
 * when no request is left.
 */
static bool vserve_drain_some(struct vserve_vring *vring)
{
	bool empty;

	mutex_lock(&vring->vq.mutex);
	while (vring->hot)
		vserve_punt_hot(vserve_pop_hot(vring));
	vring->now = ktime_get_ns();
	vserve_punt_pending(vring);
	if (vring->nr_polled)
		vring->ops->reap(vring);
	vserve_complete(vring, UINT_MAX, true);
	vserve_signal(vring);
	empty = !vring->nr_inflight && list_empty(&vring->pending);
	mutex_unlock(&vring->vq.mutex);
	return empty;
}

/*
 * How long the drain pauses.  Nothing wakes it for requests that reap() asks for.  It pauses for
 * about as long as it has waited already.  So a stop takes twice as long at most, and a disk that
 * never answers costs next to nothing.
 */
#define DRAIN_PAUSE_MIN_US	20U
#define DRAIN_PAUSE_MAX_US	10000U

/**
 * vserve_drain - wait until nothing is in flight, or until vserve_vring_go_on() takes the stop back
 * @work: the drain of a vring that is stopping and has no poller
 */
void vserve_drain(struct work_struct *work)
{
	struct vserve_vring *vring = container_of(work, struct vserve_vring,
						stop_work);
	unsigned int pause_us = DRAIN_PAUSE_MIN_US;

	kthread_use_mm(vring->mm);
	while (!vserve_drain_some(vring) && !READ_ONCE(vring->goes_on)) {
		/*
		 * Sleep as an idle task does.  If a backend never answers, this worker is not the
		 * task that hangs.
		 */
		if (READ_ONCE(vring->nr_polled)) {
			usleep_idle_range(pause_us, 2 * pause_us);
			pause_us = min(2 * pause_us, DRAIN_PAUSE_MAX_US);
		} else {
			wait_event_idle(vring->drain,
					!llist_empty(&vring->done) || READ_ONCE(vring->goes_on));
		}
	}
	kthread_unuse_mm(vring->mm);
	if (READ_ONCE(vring->goes_on))
		return;
	/* Pairs with the acquire in vserve_is_drained(). */
	smp_store_release(&vring->drained, true);
	wake_up_all(&vring->drain);
}
