// SPDX-License-Identifier: GPL-2.0
/*
 * Make a request of a disk from a chain of descriptors: copy the header once, check the copy, and
 * look up the guest's pages.
 *
 * In the poller everything here runs with page faults disabled.  If a step would have to sleep, for
 * a page, memory or a lock, it fails with -EAGAIN, and the vring's worker takes the chain again.
 */
#include <linux/vhost_serve_words.h>

#include "blk.h"

#include <trace/events/vhost_blk.h>

/**
 * vblk_bad_chain - vserve_ops.bad_chain: tell the guest that a chain cannot be read
 * @vring: the vring; its mutex is held
 * @head: the head of the chain
 *
 * If the chain has a place for a status, the request has failed.  Otherwise the ring is broken.  It
 * would be worse to give the chain back without a status: drivers (virtio_blk is one) do not look
 * at the length, and would take the byte that is there for the status.
 *
 * Return: 0, or -EFAULT if there is no place for a status.
 */
int vblk_bad_chain(struct vserve_vring *vring, unsigned int head)
{
	u8 __user *status = vserve_last_byte(vring, head);

	if (!status || put_user(VIRTIO_BLK_S_IOERR, status))
		return -EFAULT;
	return 0;
}

/* Copy at the front of a span, and move past it. */
static __always_inline int vblk_copy_front(struct vblk_span *span, void *ours,
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

/*
 * Copy from a span.  The quick way is for drivers that put the header, and the ranges, in one
 * buffer.
 */
static int vblk_copy_span(void *to, struct vblk_span *span, size_t bytes)
{
	const void __user *from = span->iov->iov_base + span->skip;

	if (span->iov->iov_len - span->skip >= bytes && vserve_is_words(from, bytes) &&
	    vserve_get_words(to, from, bytes)) {
		vblk_span_advance(span, bytes);
		return 0;
	}
	return vblk_copy_front(span, to, bytes, false);
}

static int vblk_prep_rw(struct vblk_req *req, const struct vblk_limits *lim,
			struct vblk_chain *chain, bool may_sleep)
{
	bool write = vblk_is_write(req);
	struct vblk_span data = write ? chain->out : chain->in;
	u8 status;

	status = vblk_check_rw(lim, req->sector, data.len, write);
	/* The data are on the wrong side, so the guest means something else than this code does. */
	if ((write ? chain->in.len : chain->out.len))
		status = VIRTIO_BLK_S_IOERR;
	if (status != VIRTIO_BLK_S_OK || !data.len) {
		vserve_req_finish(&req->base, status);
		return 0;
	}
	req->base.bytes = data.len;
	return vblk_map_data(req, data, may_sleep);
}

static int vblk_prep_ranges(struct vblk_req *req, const struct vblk_limits *lim,
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
		if (vblk_copy_span(&raw, &chain->out, sizeof(raw)))
			return -EFAULT;
		req->ranges[i].sector = le64_to_cpu(raw.sector);
		req->ranges[i].sectors = le32_to_cpu(raw.num_sectors);
		req->ranges[i].flags = le32_to_cpu(raw.flags);
		status = vblk_check_range(lim, req->type, &req->ranges[i]);
		if (status != VIRTIO_BLK_S_OK)
			goto out;
		/*
		 * The guest was told in write_zeroes_may_unmap that the backend frees nothing, but
		 * drivers (virtio_blk is one) set the flag without a look at it.
		 */
		if (!lim->may_unmap)
			req->ranges[i].flags &= ~VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;
	}
	return 0;
out:
	vserve_req_finish(&req->base, status);
	return 0;
}

static int vblk_prep_id(struct vblk_req *req, struct vblk_chain *chain)
{
	u8 *serial = vblk_backend_of(req)->serial;
	size_t len = min_t(size_t, chain->in.len, VHOST_BLK_SERIAL_LEN);

	if (vblk_copy_front(&chain->in, serial, len, true))
		return -EFAULT;
	vserve_req_finish(&req->base, VIRTIO_BLK_S_OK);
	return 0;
}

/*
 * Find out what a request asks for.  After this it is finished (answered at once), or is ready for
 * an engine.
 */
static int vblk_prepare(struct vblk_req *req, struct vblk_chain *chain,
			bool may_sleep)
{
	struct vhost_virtqueue *vq = &req->base.vring->vq;
	struct vblk_limits *lim = &vblk_vring_of(req)->limits;
	struct virtio_blk_outhdr hdr;

	if (chain->out.len < sizeof(hdr)) {
		vserve_req_finish(&req->base, VIRTIO_BLK_S_IOERR);
		return 0;
	}
	if (vblk_copy_span(&hdr, &chain->out, sizeof(hdr)))
		return -EFAULT;
	req->type = vhost32_to_cpu(vq, hdr.type);
	req->sector = vhost64_to_cpu(vq, hdr.sector);
	trace_vhost_blk_arrive(req, VIRTIO_BLK_S_OK);

	if (!vblk_backend_of(req)) {
		vserve_req_finish(&req->base, VIRTIO_BLK_S_IOERR);
		return 0;
	}
	vblk_backend_now(vblk_backend_of(req), lim);
	switch (req->type) {
	case VIRTIO_BLK_T_IN:
	case VIRTIO_BLK_T_OUT:
		return vblk_prep_rw(req, lim, chain, may_sleep);
	case VIRTIO_BLK_T_FLUSH:
		return 0;
	case VIRTIO_BLK_T_DISCARD:
	case VIRTIO_BLK_T_WRITE_ZEROES:
		return vblk_prep_ranges(req, lim, chain, may_sleep);
	case VIRTIO_BLK_T_GET_ID:
		return vblk_prep_id(req, chain);
	default:
		vserve_req_finish(&req->base, VIRTIO_BLK_S_UNSUPP);
		return 0;
	}
}

static void vblk_init_req(struct vblk_req *req, struct vblk_chain *chain)
{
	req->tail = req;
	req->status_addr = chain->status;
	req->in_bytes = min_t(size_t, chain->in.len, U32_MAX - 1);
	req->type = ~0U;
	req->sector = 0;
	req->base.hold = VBLK_HOLD_NONE;
	req->nr_bvec = 0;
	req->nr_guest = 0;
	req->held = 0;
	req->bounced = 0;
	req->ranging = false;
	req->resumes = false;
	req->nr_ranges = 0;
	req->bvec = req->inline_bvec;
	req->ranges = NULL;
}

/* Whether a write has to be on the medium before it is answered (virtio 1.2, 5.2.6.2). */
static bool vblk_write_through(struct vblk_vring *vring)
{
	if (vhost_has_feature(&vring->base.vq, VIRTIO_BLK_F_CONFIG_WCE))
		return !READ_ONCE(vblk_dev_of(vring)->writeback);
	return !vhost_has_feature(&vring->base.vq, VIRTIO_BLK_F_FLUSH);
}

static void vblk_undo(struct vblk_req *req)
{
	if (req->ranges != &req->range)
		kfree(req->ranges);
	req->ranges = NULL;
}

/**
 * vblk_take - vserve_ops.take: parse the request of a chain
 * @vreq: the slot
 * @vchain: the chain
 * @may_sleep: page faults are allowed
 *
 * Return: 0, -EAGAIN if the worker has to take the chain, -EBUSY if the chain has to wait until
 * others have ended, or -EINVAL if it has no place for a status.
 */
int vblk_take(struct vserve_req *vreq, const struct vserve_chain *vchain,
	      bool may_sleep)
{
	struct vblk_req *req = to_vblk_req(vreq);
	struct vblk_vring *vring = vblk_vring_of(req);
	struct vblk_chain chain;
	int r;

	/* A driver that gives no room for a status does not wait for one. */
	if (!vblk_split_chain(vchain->iov, vchain->out, vchain->in, &chain))
		return -EINVAL;
	vblk_init_req(req, &chain);
	req->fua = vblk_write_through(vring);
	r = vblk_prepare(req, &chain, may_sleep);
	if (r) {
		vblk_undo(req);
		vblk_update_full(vring);
		if (r == -EBUSY || !may_sleep)
			return r == -EBUSY ? -EBUSY : -EAGAIN;
		vserve_req_finish(vreq, VIRTIO_BLK_S_IOERR);
	} else if (vblk_is_ranges(req) && vreq->state == VSERVE_FREE) {
		req->ranging = true;
		vring->nr_ranging++;
	}
	vreq->timed = vblk_is_rw(req);
	vring->refused = 0;
	vblk_update_full(vring);
	return 0;
}
