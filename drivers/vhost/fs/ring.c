// SPDX-License-Identifier: GPL-2.0
/*
 * The operations that vhost_serve calls (struct vserve_ops): they decode a chain of descriptors,
 * decide which thread carries the request out, and write the reply to the guest's memory.
 *
 * In its round the poller decodes a request and tries it without sleeping.  If it would have to
 * sleep, its thread carries the request out after the round, if the request is unlikely to sleep
 * (vhfs_is_hot()), and a worker does so otherwise.  Both start again with the decoded request, and
 * write the reply themselves, because they may sleep for the guest's pages.  The poller's round
 * writes the reply of a request that it carried out at once, in submit().  It writes those of
 * requests that were parked, and those for which the guest's memory was not there, in finish().
 */
#include <linux/slab.h>
#include <linux/vhost_serve_words.h>

#include "dev.h"

#define CREATE_TRACE_POINTS
#include <trace/events/vhost_fs.h>

/* Like iov_iter_init(), in place. */
static __always_inline void vhfs_set_iters(struct vhfs_req *req, const struct iovec *iov,
					   const struct vserve_chain *chain)
{
	req->src = (struct iov_iter) {
		.iter_type = ITER_IOVEC, .data_source = ITER_SOURCE,
		.__iov = iov, .nr_segs = chain->out, .count = chain->out_len,
	};
	req->dst = (struct iov_iter) {
		.iter_type = ITER_IOVEC, .data_source = ITER_DEST,
		.__iov = iov + chain->out, .nr_segs = chain->in, .count = chain->in_len,
	};
	req->out_room = min_t(size_t, chain->in_len, U32_MAX);
}

/* Iovecs of the request's own from the start. */
static int vhfs_copy_iov(struct vhfs_slot *slot,
			 const struct vserve_chain *chain, bool may_sleep)
{
	unsigned int nr = chain->out + chain->in;
	struct iovec *iov = slot->inline_iov;

	if (nr > ARRAY_SIZE(slot->inline_iov)) {
		iov = may_sleep ? kmalloc_array(nr, sizeof(*iov), GFP_KERNEL_ACCOUNT) :
				  vserve_alloc_quick(slot->base.vring->dev,
						     array_size(nr, sizeof(*iov)));
		if (!iov)
			return -ENOMEM;
		slot->iov = iov;
	}
	memcpy(iov, chain->iov, nr * sizeof(*iov));
	vhfs_set_iters(&slot->req, iov, chain);
	return 0;
}

/*
 * The chain's own iovecs belong to the ring.  The poller's round calls submit() right after take()
 * and answers most requests there, so it lends them until submit() returns.  The few requests that
 * live longer keep a copy.  A worker's take() has no submit() behind it, and copies at once.
 */
static int vhfs_take_iov(struct vhfs_slot *slot, const struct vserve_chain *chain, bool may_sleep)
{
	slot->lent = NULL;
	if (may_sleep || chain->out + chain->in > ARRAY_SIZE(slot->inline_iov))
		return vhfs_copy_iov(slot, chain, may_sleep);
	slot->lent = chain->iov;
	vhfs_set_iters(&slot->req, slot->lent, chain);
	return 0;
}

static void vhfs_keep_iov(struct vhfs_slot *slot)
{
	struct vhfs_req *req = &slot->req;
	const struct iovec *lent = slot->lent;

	if (!lent)
		return;
	/* All of them, because a copy of known size takes less than a count does. */
	memcpy(slot->inline_iov, lent, sizeof(slot->inline_iov));
	req->src.__iov = slot->inline_iov + (req->src.__iov - lent);
	req->dst.__iov = slot->inline_iov + (req->dst.__iov - lent);
	slot->lent = NULL;
}

static void vhfs_let_go(struct vhfs_slot *slot, bool may_sleep)
{
	struct vhfs_req *req = &slot->req;

	if (req->direct.handle)
		vhfs_handle_put(req->direct.handle, false);
	req->direct.handle = NULL;
	if (req->node)
		vhfs_node_put(req->node, may_sleep);
	req->node = NULL;
	/* Most requests have none of these. */
	if (!req->buf && !req->body && !slot->iov)
		return;
	vhfs_req_free(req);
	kfree(slot->iov);
	slot->iov = NULL;
}

/* INTERRUPT need not be answered, but can be. */
static bool vhfs_has_reply(const struct vhfs_req *req)
{
	if (req->out_room < sizeof(struct fuse_out_header))
		return false;
	return !req->op || !(req->op->flags & VHFS_OP_SILENT) ||
	       req->in.opcode == FUSE_INTERRUPT;
}

/* Does the guest learn of an error?  It does not expect to, without a reply. */
static bool vhfs_can_answer(const struct vhfs_req *req)
{
	if (!req->known)
		return false;
	return req->out_room >= sizeof(struct fuse_out_header) ||
	       (req->op && req->op->flags & VHFS_OP_SILENT);
}

/* Drivers have a buffer for the header, and one for the rest. */
static bool vhfs_copy_out(const void *from, size_t len, struct iov_iter *to)
{
	void __user *at;

	if (!len)
		return true;
	at = vserve_words_of(to, len);
	if (!at || !vserve_put_words(at, from, len))
		return copy_to_iter(from, len, to) == len;
	vserve_words_done(to, len);
	return true;
}

/* vserve_put_words() would copy the header in a loop. */
static __always_inline bool vhfs_put_header(struct fuse_out_header __user *to,
					    const struct fuse_out_header *oh)
{
	if (should_fail_usercopy())
		return false;
	if (can_do_masked_user_access())
		to = masked_user_access_begin(to);
	else if (!user_write_access_begin(to, sizeof(*to)))
		return false;
	unsafe_put_user(oh->len, &to->len, fault);
	unsafe_put_user(oh->error, &to->error, fault);
	unsafe_put_user(oh->unique, &to->unique, fault);
	user_write_access_end();
	return true;
fault:
	user_write_access_end();
	return false;
}

/*
 * Linux has a buffer for the header, and one for the rest.  Returns false if the guest has others,
 * or if its memory cannot be written in place.
 */
static __always_inline bool vhfs_reply_in_place(const struct vhfs_req *req,
						const struct fuse_out_header *oh)
{
	const struct iovec *iov = req->dst.__iov;
	size_t len = oh->error ? 0 : req->reply_len;

	if (iov->iov_len != sizeof(*oh) || !vserve_is_words(iov->iov_base, sizeof(*oh)))
		return false;
	if (len && (iov[1].iov_len < len || !vserve_is_words(iov[1].iov_base, len)))
		return false;
	return vhfs_put_header(iov->iov_base, oh) &&
	       (!len || vserve_put_words(iov[1].iov_base, req->reply, len));
}

static __always_inline struct fuse_out_header vhfs_header(const struct vhfs_req *req)
{
	struct fuse_out_header oh = {
		.len = sizeof(oh),
		.error = likely(!req->error) ? 0 : vhfs_wire_error(req->error),
		.unique = req->in.unique,
	};

	if (!oh.error)
		oh.len += req->reply_len + req->body_len + req->data_len;
	return oh;
}

/*
 * Returns false if the guest's memory is not there.  Makes the header anew, because a pointer to
 * the caller's would keep that in memory.
 */
static noinline bool vhfs_copy_reply(const struct vhfs_req *req)
{
	const struct fuse_out_header oh = vhfs_header(req);
	struct iov_iter to = req->dst;

	if (!vhfs_copy_out(&oh, sizeof(oh), &to))
		return false;
	return oh.error || (vhfs_copy_out(req->reply, req->reply_len, &to) &&
			    vhfs_copy_out(req->body, req->body_len, &to));
}

/* Returns how many bytes the guest has, or -EFAULT. */
static int vhfs_write_reply(struct vhfs_req *req)
{
	struct fuse_out_header oh;

	if (!vhfs_has_reply(req))
		return 0;
	oh = vhfs_header(req);
	/* decode.c and the operations see to it that it fits. */
	if (unlikely(oh.len > req->out_room)) {
		req->error = -EIO;
		oh = vhfs_header(req);
	}
	if (!req->body_len && vhfs_reply_in_place(req, &oh))
		return oh.len;
	return vhfs_copy_reply(req) ? oh.len : -EFAULT;
}

/* Without @may_sleep, -EFAULT: the guest's memory is not there, and nothing was let go of. */
static int vhfs_answer(struct vhfs_slot *slot, bool may_sleep)
{
	int len = vhfs_write_reply(&slot->req);

	if (len < 0 && !may_sleep)
		return -EFAULT;
	slot->len = max(len, 0);
	vhfs_let_go(slot, may_sleep);
	slot->answered = true;
	return 0;
}

/*
 * There is no memory for the chain's iovecs.  They are used while they last, which is until
 * take() returns, to tell the guest.  It would take a used length of 0 for success.
 */
static int vhfs_refuse(struct vhfs_slot *slot, const struct vserve_chain *chain)
{
	struct vhfs_req *req = &slot->req;
	int r;

	vhfs_set_iters(req, chain->iov, chain);
	r = vhfs_decode(req);
	vhfs_req_free(req);
	if (r && !vhfs_can_answer(req))
		return r;
	req->error = r ?: -ENOMEM;
	slot->len = max(vhfs_write_reply(req), 0);
	slot->answered = true;
	vserve_req_finish(&slot->base, 0);
	return 0;
}

/**
 * vhfs_take - decode the request of a chain
 * @base: its slot
 * @chain: in the owner's address space
 * @may_sleep: in the vring's worker
 */
int vhfs_take(struct vserve_req *base, const struct vserve_chain *chain,
	      bool may_sleep)
{
	struct vhfs_slot *slot = to_vhfs_slot(base);
	struct vhfs_req *req = &slot->req;
	int r;

	memset(req, 0, offsetof(struct vhfs_req, src));
	slot->answered = false;
	req->ex = to_vhfs_dev(base->vring->dev)->ex;
	req->ring = base->vring;
	req->may_sleep = may_sleep;
	req->start_ns = base->taken_ns;
	r = vhfs_take_iov(slot, chain, may_sleep);
	if (r)
		return may_sleep ? vhfs_refuse(slot, chain) : r;
	r = vhfs_decode(req);
	if (r == VHFS_PUNT || (r && !vhfs_can_answer(req))) {
		vhfs_let_go(slot, may_sleep);
		return r < 0 ? r : -EAGAIN;
	}
	if (r) {
		vhfs_keep_iov(slot);
		req->error = r;
		vserve_req_finish(base, 0);
		return 0;
	}
	if (req->op->flags & VHFS_OP_DATA_IN)
		base->bytes = iov_iter_count(&req->src);
	if (req->op->flags & VHFS_OP_DATA_OUT)
		base->bytes = min(req->out_room, VHFS_MAX_WRITE);
	return 0;
}

/*
 * Direct I/O needs no thread unless the vring already holds too many of the guest's pages.
 * vhfs_finish() gives them back.
 */
static bool vhfs_hold_for_direct(struct vhfs_slot *slot)
{
	struct vhfs_vring *vring = to_vhfs_vring(slot->base.vring);
	const struct vhfs_req *req = &slot->req;
	unsigned int pages;

	if (!vhfs_direct_needs_no_thread(req))
		return false;
	pages = iov_iter_npages(req->in.opcode == FUSE_WRITE ? &req->src : &req->dst, INT_MAX);
	if (pages > VHFS_MAX_HELD - vring->held)
		return false;
	vring->held += pages;
	slot->held = pages;
	return true;
}

/**
 * vhfs_submit - carry out a request in the poller, or have a worker do it
 * @base: decoded
 */
void vhfs_submit(struct vserve_req *base)
{
	struct vhfs_slot *slot = to_vhfs_slot(base);
	struct vhfs_req *req = &slot->req;
	int r;

	req->may_sleep = false;
	r = vhfs_run(req);
	if (r == VHFS_PUNT) {
		vhfs_keep_iov(slot);
		req->threadless = vhfs_hold_for_direct(slot);
		if (vhfs_is_hot(req))
			vserve_req_hot(base);
		else
			vserve_req_punt(base);
		return;
	}
	req->error = r;
	/* vhfs_finish() tries again, and then a worker, which brings the guest's memory in. */
	if (vhfs_answer(slot, false))
		vhfs_keep_iov(slot);
	vserve_req_finish(base, 0);
}

/**
 * vhfs_work - carry out a request where it may sleep, with its owner's mm
 * @base: decoded
 */
void vhfs_work(struct vserve_req *base)
{
	struct vhfs_slot *slot = to_vhfs_slot(base);
	struct vhfs_req *req = &slot->req;
	bool hot = base->hot;
	int r;

	if (vhfs_direct_resume(req))
		return;
	/* The file system may have been frozen while the request waited for its turn. */
	if (hot && !vhfs_is_hot(req)) {
		vserve_req_again(base);
		return;
	}
	/* The poller may have begun a reply before it had to give up. */
	req->reply_len = 0;
	req->data_len = 0;
	req->may_sleep = true;
	req->hot = hot;
	r = vhfs_run(req);
	/* It may have ended, and be another one, by now. */
	if (r == VHFS_PARKED)
		return;
	if (r == VHFS_PUNT) {
		vserve_req_again(base);
		return;
	}
	req->error = r;
	slot->len = max(vhfs_write_reply(req), 0);
	/* The reaper drops the last reference to a removed file: to free it may take long. */
	vhfs_let_go(slot, !hot);
	slot->answered = true;
	vserve_req_end(base, 0);
}

/**
 * vhfs_req_done - a parked request ends; from any context
 * @req: not to be touched after
 * @error: 0 or negative
 */
void vhfs_req_done(struct vhfs_req *req, int error)
{
	struct vhfs_slot *slot = container_of(req, struct vhfs_slot, req);

	req->error = error;
	vserve_req_end(&slot->base, 0);
}

/**
 * vhfs_req_resume - work() is to go on with a parked request; from any context
 * @req: not to be touched after
 */
void vhfs_req_resume(struct vhfs_req *req)
{
	struct vhfs_slot *slot = container_of(req, struct vhfs_slot, req);

	vserve_req_resume(&slot->base);
}

/**
 * vhfs_ring_stops - does the ring of a request stop?
 * @req: about to be parked
 */
bool vhfs_ring_stops(const struct vhfs_req *req)
{
	const struct vserve_vring *vring = req->ring;

	return READ_ONCE(vring->stopping);
}

/**
 * vhfs_finish - write the reply, if that was not done, and let go of the rest
 * @base: done
 * @may_sleep: in the vring's worker
 *
 * Where there is nowhere to write a reply the guest has taken its memory away, and
 * gets a length of 0.
 */
int vhfs_finish(struct vserve_req *base, bool may_sleep)
{
	struct vhfs_slot *slot = to_vhfs_slot(base);
	struct vhfs_req *req = &slot->req;

	if (!slot->answered && vhfs_answer(slot, may_sleep))
		return -EFAULT;
	to_vhfs_vring(base->vring)->held -= slot->held;
	slot->held = 0;
	trace_vhost_fs_done(base->vring, req, base->done_ns);
	return slot->len;
}
