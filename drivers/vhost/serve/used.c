// SPDX-License-Identifier: GPL-2.0
/*
 * Write answers to the used ring, and interrupt the guest.  Only the holder of the vring's mutex
 * does so, so there is one writer at a time.
 */
#include <linux/eventfd.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/sched.h>

#include "ring.h"
#include "serve.h"
#include <trace/events/vhost_serve.h>

/*
 * Whether the guest wants an interrupt.  This is like vhost_notify(), but it changes nothing.  If
 * the guest's wish cannot be read, the guest gets an interrupt.
 */
static bool vserve_wants_call(struct vhost_virtqueue *vq)
{
	__virtio16 event;

	/*
	 * The used index is written before the guest's wish is read.  Pairs with the guest's
	 * barrier: it writes its wish before it reads the index.
	 */
	smp_mb();
	if (!vhost_has_feature(vq, VIRTIO_RING_F_EVENT_IDX)) {
		if (!vserve_get_u16(&event, (const __virtio16 __user *)&vq->avail->flags))
			return true;
		return !(event & cpu_to_vhost16(vq, VRING_AVAIL_F_NO_INTERRUPT));
	}
	if (!vq->signalled_used_valid ||
	    !vserve_get_u16(&event, (const __virtio16 __user *)&vq->avail->ring[vq->num]))
		return true;
	return vring_need_event(vhost16_to_cpu(vq, event), vq->last_used_idx,
				vq->signalled_used);
}

/* The guest has been told of all answers up to here, or does not want to be. */
static void vserve_told(struct vserve_vring *vring)
{
	vring->vq.signalled_used = vring->vq.last_used_idx;
	vring->vq.signalled_used_valid = true;
	vserve_calls_end(&vring->calls);
}

static void vserve_call(struct vserve_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;

	vserve_told(vring);
	if (vhost_has_feature(vq, VIRTIO_RING_F_EVENT_IDX) && vserve_calls_count(&vring->calls)) {
		vring->calls.asked_ns = ktime_get_ns();
		vring->calls.asked_idx = vq->last_used_idx;
	}
	vring->stats.calls++;
	trace_vhost_serve_notify(vring, vq->last_used_idx);
	eventfd_signal(vq->call_ctx.ctx);
}

/*
 * Whether the guest is to be interrupted for answers that it has not been told of.
 *
 * Without an eventfd nothing can interrupt the guest.  When the owner sets one again, the ioctl has
 * the poller look, and the poller interrupts the guest.
 */
static bool vserve_call_is_due(struct vserve_vring *vring)
{
	if (!vring->calls.due)
		return false;
	if (!vring->vq.call_ctx.ctx) {
		vring->calls.window_ns = 0;
		vring->vq.signalled_used_valid = false;
		return false;
	}
	if (vserve_wants_call(&vring->vq))
		return true;
	vserve_told(vring);
	return false;
}

/**
 * vserve_signal - interrupt the guest for answers that it has not been told of, if it wants that
 * @vring: the vring; its mutex is held
 */
void vserve_signal(struct vserve_vring *vring)
{
	if (vserve_call_is_due(vring))
		vserve_call(vring);
}

/**
 * vserve_signal_soon - interrupt the guest, now or after more answers
 * @vring: the vring; its mutex is held; the poller polls it again in its next round, or calls arm()
 *	before it sleeps
 */
void vserve_signal_soon(struct vserve_vring *vring)
{
	if (!vserve_call_is_due(vring))
		return;
	/* Another task is about to take this CPU, for as long as it likes, so do not wait. */
	if (need_resched() || !vserve_calls_hold(&vring->calls, vring->now))
		vserve_call(vring);
}

/**
 * vserve_measure_guest - see whether the guest has handled the interrupt that is measured
 * @vring: the vring; its mutex is held; calls.asked_ns is set
 *
 * The guest's driver writes a newer event index once it has handled the interrupt.
 */
void vserve_measure_guest(struct vserve_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;
	__virtio16 event;
	bool seen;

	if (!vserve_get_u16(&event, (const __virtio16 __user *)&vq->avail->ring[vq->num])) {
		vring->calls.asked_ns = 0;
		return;
	}
	seen = (s16)(vhost16_to_cpu(vq, event) - vring->calls.asked_idx) >= 0;
	vserve_calls_learn(&vring->calls, ktime_get_ns(), seen);
}

/* How many elements fit up to the end of the used ring.  More of them go to its beginning. */
static unsigned int vserve_used_room(const struct vhost_virtqueue *vq)
{
	return vq->num - (vq->last_used_idx & (vq->num - 1));
}

/**
 * vserve_put_used - give heads back to the guest
 * @vring: the vring; its mutex is held
 * @heads: the heads, with the used lengths
 * @count: how many there are; at most vserve_used_room()
 *
 * If this fails nothing was given back, because the guest looks at the index, which is written
 * last.
 *
 * Return: 0, or -EFAULT.
 */
int vserve_put_used(struct vserve_vring *vring, struct vring_used_elem *heads,
		    unsigned int count)
{
	struct vhost_virtqueue *vq = &vring->vq;
	u16 old = vq->last_used_idx, new = old + count;

	lockdep_assert_held(&vq->mutex);
	if (!vserve_put_elems(vring, heads, count))
		return -EFAULT;
	/*
	 * Write the elements before the index.  Pairs with the guest's barrier between its reads of
	 * the two.
	 */
	smp_wmb();
	if (!vserve_put_u16(&vq->used->idx, cpu_to_vhost16(vq, new)))
		return -EFAULT;
	vq->last_used_idx = new;
	/* After 65,536 answers without a signal, the distance to the last signal has wrapped. */
	if (unlikely((u16)(new - vq->signalled_used) < (u16)(new - old)))
		vq->signalled_used_valid = false;
	vring->calls.due = true;
	trace_vhost_serve_used(vring, count);
	return 0;
}

/* Free the slots of the first @nr finished requests, which are answered. */
static void vserve_retire(struct vserve_vring *vring, unsigned int nr)
{
	struct llist_node *node = vring->finished;

	for (; nr; nr--, node = node->next)
		llist_entry(node, struct vserve_req, done)->state = VSERVE_FREE;
	vring->finished = node;
	if (!node)
		vring->finished_last = &vring->finished;
}

/* Free the slot of the request at @link, which gets no answer. */
static void vserve_drop(struct vserve_vring *vring, struct llist_node **link)
{
	struct llist_node *node = *link;

	llist_entry(node, struct vserve_req, done)->state = VSERVE_FREE;
	*link = node->next;
	if (!*link)
		vring->finished_last = link;
}

static void vserve_count(struct vserve_req *req)
{
	struct vserve_counters *c = &req->vring->stats;
	u64 took = max(req->vring->now, req->taken_ns + 1) - req->taken_ns;

	c->latency[min(ilog2(took), VHOST_SERVE_HIST_BUCKETS - 1)]++;
	c->requests++;
}

/*
 * Have the device finish a request, and count it.  This comes before the guest sees the used index,
 * so that its counts and those of the vring agree.  Returns false if finish() needs page faults.
 */
static bool vserve_answer(struct vserve_req *req, bool may_sleep)
{
	int r;

	/* The request was finished before, but then the used ring could not be written. */
	if (req->answered)
		return true;
	r = req->vring->ops->finish(req, may_sleep);
	if (r < 0 && !may_sleep)
		return false;
	vserve_count(req);
	req->answered = r >= 0;
	req->len = r;
	return true;
}

/**
 * vserve_put_finished - give back some of the finished requests
 * @vring: the vring, with finished requests; its mutex is held
 * @budget: how many to give back at most
 * @may_sleep: page faults are allowed
 *
 * Return: how many were given back, or, if none was, how many were dropped; -EAGAIN if the worker
 * has to do it.
 */
int vserve_put_finished(struct vserve_vring *vring, unsigned int budget,
			bool may_sleep)
{
	struct vring_used_elem *heads = vring->heads;
	struct vhost_virtqueue *vq = &vring->vq;
	struct llist_node **link = &vring->finished;
	unsigned int nr = 0, lost = 0;
	struct vserve_req *req;
	int r = 0;

	budget = min3(budget, VSERVE_USED_BATCH, vserve_used_room(vq));
	while (*link) {
		req = llist_entry(*link, struct vserve_req, done);
		if (!vserve_answer(req, may_sleep))
			break;
		if (!req->answered) {
			/*
			 * The guest or its VMM has taken the memory away.  Give no answer, because
			 * the guest would take the data that are there now for one.
			 */
			vserve_malformed(vring, VSERVE_NO_STATUS);
			vserve_break(vring);
			vserve_drop(vring, link);
			lost++;
			continue;
		}
		heads[nr].id = cpu_to_vhost32(vq, req->head);
		heads[nr].len = cpu_to_vhost32(vq, req->len);
		link = &req->done.next;
		if (++nr == budget)
			break;
	}
	if (nr)
		r = vserve_put_used(vring, heads, nr);
	if (!nr && lost)
		return lost;
	if (!nr || (r && !may_sleep))
		return -EAGAIN;
	if (r) {
		/* There is no used ring to answer in.  Forget the requests rather than hang. */
		vserve_malformed(vring, VSERVE_NO_USED_RING);
		vserve_break(vring);
	}

	vserve_retire(vring, nr);
	return nr;
}
