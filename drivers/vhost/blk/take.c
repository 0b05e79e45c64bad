// SPDX-License-Identifier: GPL-2.0
/*
 * From the available ring to a request: a chain is taken, its header copied
 * once, checked, and the guest's pages looked up.
 *
 * In the poller everything here runs with page faults disabled.  Where that
 * is not enough the chain is put back (nothing happened to it yet) and the
 * vring goes to its worker, which takes it again from the start, with faults
 * allowed.  What fails there, fails for good.
 */
#include <linux/sched/signal.h>

#include "blk.h"

#define CREATE_TRACE_POINTS
#include <trace/events/vhost_blk.h>

/*
 * The chain at last_avail_idx cannot be read.  If there is a place for its
 * status it has failed, and the ring goes on.  Else the ring is broken, as in
 * QEMU: to give it back without a word would be worse, as drivers (virtio_blk
 * is one) do not look at the length, and take what was in the status for ours.
 */
static int skip_chain(struct vblk_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;
	struct vring_used_elem elem;
	u8 __user *status;
	__virtio16 head;
	u16 at;

	vblk_malformed(vring, VBLK_BAD_CHAIN);
	if (vq->avail_idx == vq->last_avail_idx)
		return -EPIPE;
	/* More than there can be: that was no index, and nothing to skip to. */
	if ((u16)(vq->avail_idx - vq->last_avail_idx) > vq->num)
		return -EPIPE;
	at = vq->last_avail_idx & (vq->num - 1);
	if (get_user(head, (__virtio16 __user *)&vq->avail->ring[at]))
		return -EPIPE;

	at = vhost16_to_cpu(vq, head);
	/* Not a request, or one that has its answer coming. */
	if (at >= vq->num || vring->reqs[at].state != VBLK_FREE) {
		vq->last_avail_idx++;
		return 0;
	}
	status = vblk_find_status(vring, at);
	if (!status || put_user(VIRTIO_BLK_S_IOERR, status))
		return -EPIPE;
	vq->last_avail_idx++;
	elem.id = cpu_to_vhost32(vq, at);
	elem.len = 0;
	return vblk_put_used(vring, &elem, 1) ? -EPIPE : 0;
}

/* The chain was read: no driver waits for a status that it has no room for. */
static int drop_chain(struct vblk_vring *vring, u16 head)
{
	struct vring_used_elem elem = {
		.id = cpu_to_vhost32(&vring->vq, head),
	};

	vblk_malformed(vring, VBLK_NO_STATUS);
	return vblk_put_used(vring, &elem, 1) ? -EPIPE : 0;
}

/* Copies at the front of a span, and moves past it. */
static __always_inline int copy_front(struct vblk_span *span, void *ours,
				      size_t bytes, bool to_guest)
{
	while (bytes) {
		void __user *guests;
		size_t now;

		while (span->skip == span->iov->iov_len) {
			span->iov++;
			span->skip = 0;
		}
		guests = span->iov->iov_base + span->skip;
		now = min(bytes, span->iov->iov_len - span->skip);
		if (to_guest ? copy_to_user(guests, ours, now) :
			       copy_from_user(ours, guests, now))
			return -EFAULT;
		ours += now;
		bytes -= now;
		vblk_span_advance(span, now);
	}
	return 0;
}

static int copy_span(void *to, struct vblk_span *span, size_t bytes)
{
	return copy_front(span, to, bytes, false);
}

static int prep_rw(struct vblk_req *req, const struct vblk_limits *lim,
		   struct vblk_chain *chain, bool may_sleep)
{
	bool write = vblk_is_write(req);
	struct vblk_span data = write ? chain->out : chain->in;
	u8 status;

	status = vblk_check_rw(lim, req->sector, data.len, write);
	/* Data on the wrong side: the guest means something else than we do. */
	if ((write ? chain->in.len : chain->out.len))
		status = VIRTIO_BLK_S_IOERR;
	if (status != VIRTIO_BLK_S_OK || !data.len) {
		vblk_req_finish(req, status);
		return 0;
	}
	req->bytes = data.len;
	return vblk_map_data(req, data, may_sleep);
}

static int prep_ranges(struct vblk_req *req, const struct vblk_limits *lim,
		       struct vblk_chain *chain, bool may_sleep)
{
	struct virtio_blk_discard_write_zeroes raw;
	unsigned int i, nr = chain->out.len / sizeof(raw);
	u8 status;

	status = vblk_check_ranges(lim, req->type, chain->out.len);
	if (status != VIRTIO_BLK_S_OK)
		goto out;

	req->ranges = &req->range;
	if (nr > 1) {
		req->ranges = kmalloc_array(nr, sizeof(*req->ranges),
					    may_sleep ? GFP_KERNEL : GFP_NOWAIT);
		if (!req->ranges)
			return may_sleep ? -ENOMEM : -EAGAIN;
	}
	req->nr_ranges = nr;
	for (i = 0; i < nr; i++) {
		if (copy_span(&raw, &chain->out, sizeof(raw)))
			return -EFAULT;
		req->ranges[i].sector = le64_to_cpu(raw.sector);
		req->ranges[i].sectors = le32_to_cpu(raw.num_sectors);
		req->ranges[i].flags = le32_to_cpu(raw.flags);
		status = vblk_check_range(lim, req->type, &req->ranges[i]);
		if (status != VIRTIO_BLK_S_OK)
			goto out;
	}
	return 0;
out:
	vblk_req_finish(req, status);
	return 0;
}

static int prep_id(struct vblk_req *req, struct vblk_chain *chain)
{
	u8 *serial = req->bind->backend->serial;
	size_t len = min_t(size_t, chain->in.len, VHOST_BLK_SERIAL_LEN);

	if (copy_front(&chain->in, serial, len, true))
		return -EFAULT;
	vblk_req_finish(req, VIRTIO_BLK_S_OK);
	return 0;
}

/*
 * Decides what a request is.  Afterwards it is finished (answered at once) or
 * ready for an engine.
 */
static int prepare(struct vblk_req *req, struct vblk_chain *chain,
		   bool may_sleep)
{
	struct vhost_virtqueue *vq = &req->vring->vq;
	struct vblk_limits *lim = &req->bind->limits;
	struct virtio_blk_outhdr hdr;

	if (chain->out.len < sizeof(hdr)) {
		vblk_req_finish(req, VIRTIO_BLK_S_IOERR);
		return 0;
	}
	if (copy_span(&hdr, &chain->out, sizeof(hdr)))
		return -EFAULT;
	req->type = vhost32_to_cpu(vq, hdr.type);
	req->sector = vhost64_to_cpu(vq, hdr.sector);
	trace_vhost_blk_arrive(req);

	if (!req->bind->backend) {
		vblk_req_finish(req, VIRTIO_BLK_S_IOERR);
		return 0;
	}
	vblk_backend_now(req->bind->backend, lim);
	switch (req->type) {
	case VIRTIO_BLK_T_IN:
	case VIRTIO_BLK_T_OUT:
		return prep_rw(req, lim, chain, may_sleep);
	case VIRTIO_BLK_T_FLUSH:
		return 0;
	case VIRTIO_BLK_T_DISCARD:
	case VIRTIO_BLK_T_WRITE_ZEROES:
		return prep_ranges(req, lim, chain, may_sleep);
	case VIRTIO_BLK_T_GET_ID:
		return prep_id(req, chain);
	default:
		vblk_req_finish(req, VIRTIO_BLK_S_UNSUPP);
		return 0;
	}
}

static void init_req(struct vblk_req *req, struct vblk_chain *chain)
{
	req->next = NULL;
	req->tail = req;
	req->taken_ns = req->vring->now;
	req->submit_ns = 0;
	req->aside_ns = 0;
	req->status_addr = chain->status;
	req->in_bytes = min_t(size_t, chain->in.len, U32_MAX - 1);
	req->type = ~0U;
	req->status = VIRTIO_BLK_S_OK;
	req->sector = 0;
	req->bytes = 0;
	req->hold = VBLK_HOLD_NONE;
	req->polled = false;
	req->again = false;
	req->released = false;
	req->nr_bvec = 0;
	req->nr_guest = 0;
	req->held = 0;
	req->nr_ranges = 0;
	req->bvec = req->inline_bvec;
	req->ranges = NULL;
	req->bind = req->vring->bind;
}

/* Is a write to be on the medium before it is answered? (virtio 1.2, 5.2.6.2) */
static bool write_through(struct vblk_vring *vring)
{
	if (vhost_has_feature(&vring->vq, VIRTIO_BLK_F_CONFIG_WCE))
		return !READ_ONCE(vring->dev->writeback);
	return !vhost_has_feature(&vring->vq, VIRTIO_BLK_F_FLUSH);
}

static void undo(struct vblk_req *req)
{
	if (req->ranges != &req->range)
		kfree(req->ranges);
	req->ranges = NULL;
}

/**
 * vblk_take - take the next request from the ring
 * @vring: its mutex is held, notifications are off
 * @may_sleep: page faults are allowed
 * @err: 0; -EAGAIN: this needs the worker; -EPIPE: the ring is broken
 *
 * Returns a request for an engine, or NULL: then *@err is set, or the chain
 * was dealt with and there may be more.
 */
struct vblk_req *vblk_take(struct vblk_vring *vring, bool may_sleep, int *err)
{
	struct vhost_virtqueue *vq = &vring->vq;
	struct vblk_chain chain;
	unsigned int out, in;
	struct vblk_req *req;
	int head, r;

	lockdep_assert_held(&vq->mutex);
	*err = 0;
	head = vblk_get_chain(vring, &out, &in);
	if (head < 0) {
		/* With faults disabled any error may be a fault. */
		*err = may_sleep ? skip_chain(vring) : -EAGAIN;
		return NULL;
	}
	if (head == vq->num) {
		*err = -ENOENT;
		return NULL;
	}

	req = &vring->reqs[head];
	/* Offered again while in flight: there is one answer for both. */
	if (req->state != VBLK_FREE) {
		vblk_malformed(vring, VBLK_HEAD_TWICE);
		return NULL;
	}
	if (!vblk_split_chain(vq->iov, out, in, &chain)) {
		if (!may_sleep) {
			vhost_discard_vq_desc(vq, 1);
			*err = -EAGAIN;
			return NULL;
		}
		*err = drop_chain(vring, head);
		return NULL;
	}

	init_req(req, &chain);
	req->fua = write_through(vring);
	req->bind->users++;
	r = prepare(req, &chain, may_sleep);
	if (!r && req->state != VBLK_FREE)
		return NULL;
	if (!r) {
		/* The same head may come again before this one is submitted. */
		req->state = VBLK_TAKEN;
		return req;
	}

	undo(req);
	if (!may_sleep) {
		req->bind->users--;
		vhost_discard_vq_desc(vq, 1);
		*err = -EAGAIN;
		return NULL;
	}
	vblk_req_finish(req, VIRTIO_BLK_S_IOERR);
	return NULL;
}
