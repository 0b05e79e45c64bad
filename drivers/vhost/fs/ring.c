// SPDX-License-Identifier: GPL-2.0
/*
 * The operations that vhost_serve calls (struct vserve_ops): they decode a chain of descriptors,
 * decide which thread carries the request out, and write the reply to the guest's memory.
 *
 * In its round the poller decodes a request and tries it without sleeping.  A request that would
 * have to sleep is carried out later: by the poller's thread after the round if the request is
 * unlikely to sleep (vhfs_is_hot()), and by a worker otherwise.  Both begin again with the decoded
 * request, and write the reply themselves, because they may sleep for the guest's pages.
 *
 * The poller's round writes the reply of a request that it has carried out, in submit().  In
 * finish() it writes the replies of requests that were parked, and those for which the guest's
 * memory was not there before.
 */
#include <linux/slab.h>
#include <linux/vhost_serve_words.h>

#include "dev.h"

#define CREATE_TRACE_POINTS
#include <trace/events/vhost_fs.h>

/* Like iov_iter_init(), but it writes to the request at once. */
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

/* Give the request its own copy of the chain's iovecs. */
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
 * Lend the request the chain's iovecs, which belong to the ring, or copy them.
 *
 * The poller's round calls submit() right after take(), and answers most requests there.  So it
 * lends the iovecs until submit() returns, and only the few requests that live longer get a copy.
 * A worker's take() has no submit() behind it, and copies at once.
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
	/* Copy the whole array, because a copy of known size takes fewer instructions. */
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
	if (!req->buf && !req->body && !slot->iov)
		return;
	vhfs_req_free(req);
	kfree(slot->iov);
	slot->iov = NULL;
}

/* Whether a reply is written.  INTERRUPT needs none, but gets one if the guest has room for it. */
static bool vhfs_has_reply(const struct vhfs_req *req)
{
	if (req->out_room < sizeof(struct fuse_out_header))
		return false;
	return !req->op || !(req->op->flags & VHFS_OP_SILENT) ||
	       req->in.opcode == FUSE_INTERRUPT;
}

/* Whether the guest can be told of an error, or does not expect to be because there is no reply. */
static bool vhfs_can_answer(const struct vhfs_req *req)
{
	if (!req->known)
		return false;
	return req->out_room >= sizeof(struct fuse_out_header) ||
	       (req->op && req->op->flags & VHFS_OP_SILENT);
}

/* Copy a part of the reply.  Most drivers have a buffer for the header, and one for the rest. */
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

/* Write the header.  vserve_put_words() would do that in a loop. */
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
 * Write the reply where Linux has its two buffers, one for the header and one for the rest.
 * Returns false if the guest has other buffers, or if its memory cannot be written in place.
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
 * Copy the reply to any buffers.  Returns false if the guest's memory is not there.
 *
 * This makes the header again.  With a pointer to the caller's header the compiler would have to
 * keep that in memory.
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

/* Write the reply.  Returns how many bytes the guest gets, or -EFAULT. */
static int vhfs_write_reply(struct vhfs_req *req)
{
	struct fuse_out_header oh;

	if (!vhfs_has_reply(req))
		return 0;
	oh = vhfs_header(req);
	/* decode.c and the operations make sure that the reply fits. */
	if (unlikely(oh.len > req->out_room)) {
		req->error = -EIO;
		oh = vhfs_header(req);
	}
	if (!req->body_len && vhfs_reply_in_place(req, &oh))
		return oh.len;
	return vhfs_copy_reply(req) ? oh.len : -EFAULT;
}

/*
 * Write the reply, and free what the request holds.  Returns -EFAULT, and frees nothing, if the
 * guest's memory is not there and @may_sleep is false.
 */
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
 * Tell the guest that there is no memory for the chain's iovecs.  Without a reply the guest would
 * take a used length of 0 for success.  The ring's own iovecs can be used until take() returns.
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
 * @base: the slot of the request
 * @chain: the chain, in the owner's address space
 * @may_sleep: the vring's worker calls
 *
 * Return: 0, or an error.  After an error in the poller's round the worker tries again.
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
 * Whether the request is direct I/O that no thread has to wait for.  If it is, this counts its
 * pages for the vring, unless the vring pins too many already.  vhfs_finish() takes them off again.
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
 * vhfs_submit - carry out a request in the poller's round, or leave it to another thread
 * @base: the request, decoded
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
	/*
	 * If the guest's memory is not there, vhfs_finish() tries again.  Then a worker brings the
	 * memory in.
	 */
	if (vhfs_answer(slot, false))
		vhfs_keep_iov(slot);
	vserve_req_finish(base, 0);
}

/**
 * vhfs_work - carry out a request where it may sleep, with the owner's mm
 * @base: the request, decoded
 *
 * A worker calls this, or the poller's thread after its round.
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
	/* The poller's round may have begun a reply before it gave up. */
	req->reply_len = 0;
	req->data_len = 0;
	req->may_sleep = true;
	req->hot = hot;
	r = vhfs_run(req);
	/* A parked request may have ended by now, and its slot may have another one. */
	if (r == VHFS_PARKED)
		return;
	if (r == VHFS_PUNT) {
		vserve_req_again(base);
		return;
	}
	req->error = r;
	slot->len = max(vhfs_write_reply(req), 0);
	/*
	 * The poller's thread leaves the last reference to the reaper, because to free a removed
	 * file may take long.
	 */
	vhfs_let_go(slot, !hot);
	slot->answered = true;
	vserve_req_end(base, 0);
}

/**
 * vhfs_req_done - end a parked request; from any context
 * @req: the request, which the caller must not touch any more
 * @error: 0 or negative
 */
void vhfs_req_done(struct vhfs_req *req, int error)
{
	struct vhfs_slot *slot = container_of(req, struct vhfs_slot, req);

	req->error = error;
	vserve_req_end(&slot->base, 0);
}

/**
 * vhfs_req_resume - have work() go on with a parked request; from any context
 * @req: the request, which the caller must not touch any more
 */
void vhfs_req_resume(struct vhfs_req *req)
{
	struct vhfs_slot *slot = container_of(req, struct vhfs_slot, req);

	vserve_req_resume(&slot->base);
}

/**
 * vhfs_ring_stops - whether the ring of a request stops
 * @req: the request, about to be parked
 */
bool vhfs_ring_stops(const struct vhfs_req *req)
{
	const struct vserve_vring *vring = req->ring;

	return READ_ONCE(vring->stopping);
}

/**
 * vhfs_finish - write the reply if that was not done yet, and free what the request holds
 * @base: the request, done
 * @may_sleep: the vring's worker calls
 *
 * Return: the length of the reply, or -EFAULT if the worker has to try again.  The length is 0 if
 * even the worker cannot write the reply, because the guest has taken its memory away.
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
