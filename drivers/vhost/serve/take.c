// SPDX-License-Identifier: GPL-2.0
/*
 * Take a chain from the available ring, give it a slot, and have the device parse it.
 *
 * In the poller everything here runs with page faults disabled.  If a step would have to sleep, for
 * a page, memory or a lock, the poller puts the chain back and leaves the vring to its worker.
 * Nothing has happened to the chain yet.  The worker takes it again from the start, and may sleep.
 * An error in the worker is final.
 */
#include "ring.h"
#include "serve.h"

/* Give a head back without an answer. */
static int vserve_give_back(struct vserve_vring *vring, u16 head)
{
	struct vring_used_elem elem = {
		.id = cpu_to_vhost32(&vring->vq, head),
	};

	if (vserve_put_used(vring, &elem, 1))
		return -EPIPE;
	vserve_signal(vring);
	return 0;
}

/*
 * Deal with the chain at last_avail_idx, which cannot be read.  If the device can tell the guest
 * so, the request has failed, and the ring goes on.  Otherwise the ring is broken, as in QEMU.
 */
static int vserve_skip_chain(struct vserve_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;
	u16 head;

	vserve_malformed(vring, VSERVE_BAD_CHAIN);
	if (vq->avail_idx == vq->last_avail_idx)
		return -EPIPE;
	/*
	 * The ring cannot have that many chains, so the index is wrong, and there is no next chain.
	 */
	if ((u16)(vq->avail_idx - vq->last_avail_idx) > vq->num)
		return -EPIPE;
	if (!vserve_get_head(vring, &head))
		return -EPIPE;
	/* The head is no request, or is one that is still to be answered. */
	if (head >= vq->num || vserve_slot(vring, head)->state != VSERVE_FREE) {
		vq->last_avail_idx++;
		return 0;
	}
	if (vring->ops->bad_chain(vring, head))
		return -EPIPE;
	vq->last_avail_idx++;
	return vserve_give_back(vring, head);
}

static void vserve_init_req(struct vserve_req *req)
{
	req->next = NULL;
	req->taken_ns = req->vring->now;
	req->submit_ns = 0;
	req->aside_ns = 0;
	req->bytes = 0;
	req->polled = false;
	req->timed = false;
	req->hot = false;
	req->again = VSERVE_AGAIN_NOT;
	req->resumed = false;
	req->released = false;
	req->answered = false;
}

/*
 * The device has not taken a chain.  It may not take it now (-EBUSY), or a worker has to.  In the
 * worker the chain has no place for an answer.  Returns the reason why there is no request.
 */
static int vserve_not_taken(struct vserve_vring *vring, u16 head, int r, bool may_sleep)
{
	if (r == -EBUSY || !may_sleep) {
		vhost_discard_vq_desc(&vring->vq, 1);
		return r == -EBUSY ? -EBUSY : -EAGAIN;
	}
	vserve_malformed(vring, VSERVE_NO_STATUS);
	return vserve_give_back(vring, head);
}

/**
 * vserve_take - take the next request from the ring
 * @vring: the vring; its mutex is held, and notifications are off
 * @may_sleep: page faults are allowed
 * @err: set to 0, or to the reason why there is no request: -ENOENT: the guest has published no
 *	more, -EAGAIN: the worker has to take it, -EBUSY: the device is full and takes it later,
 *	-EPIPE: the ring is broken
 *
 * Return: a request to submit, or NULL.  After NULL with *err 0 the chain was dealt with, and there
 * may be more.
 */
struct vserve_req *vserve_take(struct vserve_vring *vring, bool may_sleep,
			       int *err)
{
	struct vhost_virtqueue *vq = &vring->vq;
	struct vserve_chain chain;
	struct vserve_req *req;
	int head, r;

	lockdep_assert_held(&vq->mutex);
	*err = 0;
	head = vserve_get_chain(vring, &chain);
	if (head < 0) {
		/* With page faults disabled any error may be a fault. */
		*err = may_sleep ? vserve_skip_chain(vring) : -EAGAIN;
		return NULL;
	}
	if (head == vq->num) {
		*err = -ENOENT;
		return NULL;
	}

	req = vserve_slot(vring, head);
	/* The guest has offered the head again while it is in flight.  Both get one answer. */
	if (req->state != VSERVE_FREE) {
		vserve_malformed(vring, VSERVE_HEAD_TWICE);
		return NULL;
	}
	vserve_init_req(req);
	r = vring->ops->take(req, &chain, may_sleep);
	if (r) {
		*err = vserve_not_taken(vring, head, r, may_sleep);
		return NULL;
	}
	/* take() has finished the request at once. */
	if (req->state != VSERVE_FREE)
		return NULL;
	/* The guest may offer the same head again before this request is submitted. */
	req->state = VSERVE_TAKEN;
	return req;
}
