// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a request: the backend or a worker is done with it, and this file writes the status
 * that the guest sees, logs an error, counts, and releases the guest's pages.
 */
#include "blk.h"
#include <trace/events/vhost_blk.h>

/**
 * vblk_req_end - end a request; from any context
 * @req: the request, which the caller must not touch any more
 * @status: a virtio-blk status
 */
void vblk_req_end(struct vblk_req *req, u8 status)
{
	trace_vhost_blk_backend_done(req, status);
	vserve_req_end(&req->base, status);
}

static const char *vblk_op_name(const struct vblk_req *req)
{
	switch (req->type) {
	case VIRTIO_BLK_T_IN:
		return "read";
	case VIRTIO_BLK_T_OUT:
		return "write";
	case VIRTIO_BLK_T_FLUSH:
		return "flush";
	case VIRTIO_BLK_T_DISCARD:
		return "discard";
	default:
		return "write zeroes";
	}
}

/**
 * vblk_req_fail - end a request that the backend has failed; from any context
 * @req: the request, which the caller must not touch any more
 * @error: the error, for the operator; the guest only learns that there was one
 */
void vblk_req_fail(struct vblk_req *req, int error)
{
	const struct vserve_vring *vring = req->base.vring;

	/* Requests of other kinds have no sector, or several. */
	if (vblk_is_rw(req))
		pr_warn_ratelimited("%s-%d: vring %u: %s at sector %llu (%u bytes) failed: error %d\n",
				    vring->ops->name, vring->dev->id, vring->index,
				    vblk_op_name(req), req->sector, req->base.bytes, error);
	else
		pr_warn_ratelimited("%s-%d: vring %u: %s failed: error %d\n", vring->ops->name,
				    vring->dev->id, vring->index, vblk_op_name(req), error);
	vblk_req_end(req, VIRTIO_BLK_S_IOERR);
}

/**
 * vblk_update_full - decide whether the vring may take more requests
 * @vring: the vring; its mutex is held
 *
 * While it may not, requests in flight come back, and vblk_finish() calls this again.  If another
 * vring has a large request, vblk_go_on_with_large() does.
 */
void vblk_update_full(struct vblk_vring *vring)
{
	vring->base.full = vring->large || vring->awaits_large ||
			   vring->held >= VBLK_MAX_HELD ||
			   (vring->held && vring->held + vring->refused > VBLK_MAX_HELD) ||
			   vring->nr_ranging >= VBLK_MAX_RANGING ||
			   vring->bounced > VBLK_BOUNCE_BYTES;
}

static int vblk_do_ranges(struct vblk_req *req)
{
	const struct vblk_engine *engine = vblk_backend_of(req)->engine;
	struct vblk_limits lim = vblk_vring_of(req)->limits;
	unsigned int i;
	int r = 0;

	vblk_backend_now(vblk_backend_of(req), &lim);

	for (i = 0; i < req->nr_ranges && !r; i++) {
		if (!req->ranges[i].sectors)
			continue;
		/* The disk may have shrunk since the request was taken. */
		if (lim.read_only ||
		    vblk_check_range(&lim, req->type, &req->ranges[i]))
			return -EIO;
		if (req->type == VIRTIO_BLK_T_DISCARD)
			r = engine->discard(req, &req->ranges[i]);
		else
			r = engine->write_zeroes(req, &req->ranges[i]);
	}
	/*
	 * A discard is advice (virtio 1.2, 5.2.6.2), so it is no error if the backend cannot do it.
	 */
	if (r == -EOPNOTSUPP && req->type == VIRTIO_BLK_T_DISCARD)
		r = 0;
	if (!r && req->type == VIRTIO_BLK_T_WRITE_ZEROES && req->fua)
		r = engine->flush(vblk_backend_of(req));
	return r;
}

static int vblk_do_flush(struct vblk_req *req)
{
	struct vblk_backend *be = vblk_backend_of(req);

	return be->read_only ? 0 : be->engine->flush(be);
}

/**
 * vblk_work - vserve_ops.work: carry out requests that may take long
 * @vreq: the request
 */
void vblk_work(struct vserve_req *vreq)
{
	struct vblk_req *req = to_vblk_req(vreq);
	struct vblk_backend *be = vblk_backend_of(req);
	int r;

	if (req->resumes) {
		be->engine->resume(req);
		return;
	}
	if (vblk_is_rw(req) && !vblk_still_allowed(req)) {
		vblk_req_end(req, VIRTIO_BLK_S_IOERR);
		return;
	}
	if (vblk_is_rw(req)) {
		/*
		 * The request may end, and the device may drop the backend, before submit_wait()
		 * returns.
		 */
		kref_get(&be->ref);
		be->engine->submit_wait(req);
		vblk_backend_put(be);
		return;
	}
	trace_vhost_blk_submit(req, be->engine_id, VHOST_BLK_HCTX_AUTO);
	r = req->type == VIRTIO_BLK_T_FLUSH ? vblk_do_flush(req) : vblk_do_ranges(req);
	if (r)
		vblk_req_fail(req, r);
	else
		vblk_req_end(req, VIRTIO_BLK_S_OK);
}

/*
 * How many bytes the device has written without a gap from the first writable one on (virtio 1.2,
 * 2.7.8.2).  The driver may rely on that many.  The status comes after all data.
 */
static u32 vblk_used_len(const struct vblk_req *req)
{
	u32 data = 0;

	if (req->base.status == VIRTIO_BLK_S_OK && req->type == VIRTIO_BLK_T_IN)
		data = req->in_bytes;
	else if (req->base.status == VIRTIO_BLK_S_OK &&
		 req->type == VIRTIO_BLK_T_GET_ID)
		data = min_t(u32, req->in_bytes, VHOST_BLK_SERIAL_LEN);
	return data == req->in_bytes ? data + 1 : data;
}

/* Free all that a request holds, except for its slot. */
static void vblk_retire(struct vblk_req *req)
{
	struct vblk_vring *vring = vblk_vring_of(req);

	trace_vhost_blk_finish(req, req->base.status);
	if (req->ranges != &req->range)
		kfree(req->ranges);
	req->ranges = NULL;
	vblk_uncount_held(req);
	vring->bounced -= req->bounced;
	vring->nr_ranging -= req->ranging;
	if (unlikely(vring->kept > VBLK_MAX_KEPT) &&
	    req->max_bvec > VBLK_MAX_KEPT / vring->base.nr_reqs)
		vblk_drop_room(req);
	vblk_update_full(vring);
}

/**
 * vblk_finish - vserve_ops.finish: write the status, count, and free what the request holds
 * @vreq: the request
 * @may_sleep: page faults are allowed
 *
 * Return: the used length, or -EFAULT.
 */
int vblk_finish(struct vserve_req *vreq, bool may_sleep)
{
	struct vblk_req *req = to_vblk_req(vreq);
	int r = vblk_used_len(req);

	if (put_user(vreq->status, (u8 __user *)req->status_addr)) {
		if (!may_sleep)
			return -EFAULT;
		r = -EFAULT;
	}
	vblk_count_done(req);
	vblk_retire(req);
	return r;
}
