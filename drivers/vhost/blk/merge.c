// SPDX-License-Identifier: GPL-2.0
/*
 * Merging of neighbouring requests into one command of the disk.
 *
 * In a round, a request that continues the one before it (same direction, next sector) joins its
 * command as long as the queue's limits allow.  The first request leads, and the engine submits the
 * leader for all of them.
 */
#include <linux/blkdev.h>
#include <linux/math64.h>

#include "blk.h"

/* Count the segments of a vector as the block layer will count them. */
static unsigned int vblk_count_segs(const struct queue_limits *lim,
				    const struct bio_vec *bvec, unsigned int nr)
{
	unsigned int segs = 0;

	for (; nr--; bvec++) {
		phys_addr_t at = page_to_phys(bvec->bv_page) + bvec->bv_offset;
		unsigned int left = bvec->bv_len;

		while (left) {
			unsigned long room = lim->seg_boundary_mask -
				(lim->seg_boundary_mask & at);
			unsigned int now;

			/* room is one byte less than there is, so that it cannot overflow */
			now = min_t(unsigned long, left - 1, room) + 1;
			now = min(now, lim->max_segment_size);
			segs++;
			at += now;
			left -= now;
		}
	}
	return segs;
}

/**
 * vblk_set_segs - count the segments of a request, by the limits that its disk has now
 * @req: the request; its pages are known
 */
void vblk_set_segs(struct vblk_req *req)
{
	struct block_device *bdev = vblk_backend_of(req)->bdev;

	if (bdev)
		req->nr_segs = vblk_count_segs(&bdev_get_queue(bdev)->limits, req->bvec,
					       req->nr_bvec);
}

static bool vblk_gap(const struct bio_vec *a, const struct bio_vec *b,
		     unsigned long boundary)
{
	return ((a->bv_offset + a->bv_len) & boundary) ||
	       (b->bv_offset & boundary);
}

/**
 * vblk_aligned - whether the backend can address the buffers of a request in one command
 * @req: the request; its pages are known
 */
bool vblk_aligned(const struct vblk_req *req)
{
	struct vblk_backend *be = vblk_backend_of(req);
	unsigned int mask = SECTOR_SIZE - 1, len_mask, i;
	unsigned long boundary = 0;

	if (be->bdev) {
		mask = bdev_dma_alignment(be->bdev);
		len_mask = mask;
		boundary = queue_virt_boundary(bdev_get_queue(be->bdev));
	} else if (vblk_file_is_direct(req)) {
		/* The file system wants whole blocks in each buffer. */
		mask = be->direct_mem_mask;
		len_mask = be->direct_block - 1;
	} else {
		return true;
	}
	for (i = 0; i < req->nr_bvec; i++) {
		const struct bio_vec *bvec = &req->bvec[i];

		if (bvec->bv_offset & mask || bvec->bv_len & len_mask)
			return false;
		if (i && boundary && vblk_gap(bvec - 1, bvec, boundary))
			return false;
		/* The block layer cannot split a request in the middle of a sector. */
		if (bvec->bv_len & (SECTOR_SIZE - 1) && be->bdev &&
		    req->nr_bvec > queue_max_segments(bdev_get_queue(be->bdev)))
			return false;
	}
	return true;
}

static bool vblk_crosses_chunk(const struct queue_limits *lim, u64 sector, u32 bytes)
{
	u32 into;

	if (!lim->chunk_sectors)
		return false;
	div_u64_rem(sector, lim->chunk_sectors, &into);
	return bytes >> SECTOR_SHIFT > lim->chunk_sectors - into;
}

/**
 * vblk_fits - whether the queue takes a request as one command, with nothing to split
 * @req: the request; its segments are counted
 */
bool vblk_fits(const struct vblk_req *req)
{
	struct block_device *bdev = vblk_backend_of(req)->bdev;
	const struct queue_limits *lim = &bdev_get_queue(bdev)->limits;

	return req->nr_segs <= lim->max_segments &&
	       req->base.bytes >> SECTOR_SHIFT <= lim->max_sectors &&
	       !vblk_crosses_chunk(lim, bdev->bd_start_sect + req->sector,
			      req->base.bytes);
}

static bool vblk_can_join(const struct vblk_req *lead, const struct vblk_req *req)
{
	const struct vblk_backend *be = vblk_backend_of(req);
	const struct vblk_req *last = lead->tail;
	const struct queue_limits *lim;
	unsigned long boundary;

	if (be->engine_id != VHOST_BLK_ENGINE_MQ ||
	    lead->type != req->type || lead->fua != req->fua ||
	    last->sector + (last->base.bytes >> SECTOR_SHIFT) != req->sector)
		return false;

	lim = &bdev_get_queue(be->bdev)->limits;
	boundary = lim->virt_boundary_mask;
	if (lim->chunk_sectors || lead->cmd_reqs >= VBLK_MAX_MERGE ||
	    lead->cmd_segs + req->nr_segs > lim->max_segments ||
	    (lead->cmd_bytes + req->base.bytes) >> SECTOR_SHIFT > lim->max_sectors)
		return false;
	return !boundary ||
	       !vblk_gap(&last->bvec[last->nr_bvec - 1], &req->bvec[0], boundary);
}

static void vblk_batch_begin(struct vblk_req *req)
{
	req->base.next = NULL;
	req->tail = req;
	req->cmd_bytes = req->base.bytes;
	req->cmd_segs = req->nr_segs;
	req->cmd_reqs = 1;
}

/*
 * Fail the requests of a command as if the backend had them, so that their pages are freed on the
 * way back.
 */
static void vblk_fail(struct vserve_req *lead, int error)
{
	struct vserve_req *next;

	for (; lead; lead = next) {
		next = lead->next;
		vserve_req_start(lead);
		vblk_req_fail(to_vblk_req(lead), error);
	}
}

/**
 * vblk_still_allowed - whether a request may still be issued
 * @req: a read or write that has waited since it was taken
 *
 * The disk may have shrunk or become read-only in the meantime.
 */
bool vblk_still_allowed(struct vblk_req *req)
{
	struct vblk_limits lim = vblk_vring_of(req)->limits;

	vblk_backend_now(vblk_backend_of(req), &lim);
	return vblk_check_rw(&lim, req->sector, req->base.bytes,
			     vblk_is_write(req)) == VIRTIO_BLK_S_OK;
}

/* Submit a flush.  Returns false if a worker has to do it. */
static bool vblk_submit_flush(struct vblk_req *req)
{
	const struct vblk_backend *be = vblk_backend_of(req);

	return be->engine->submit_flush && !be->read_only && be->engine->submit_flush(req);
}

/**
 * vblk_submit - vserve_ops.submit: give a request to its engine
 * @vreq: the request, ready
 *
 * A read or write may wait for the next one, to be merged with it.  A flush goes to the engine at
 * once.
 */
void vblk_submit(struct vserve_req *vreq)
{
	struct vblk_req *req = to_vblk_req(vreq);
	struct vblk_vring *vring = vblk_vring_of(req);
	struct vblk_req *lead = vring->leader;

	if (!vblk_is_rw(req)) {
		if (req->type != VIRTIO_BLK_T_FLUSH || !vblk_submit_flush(req))
			vserve_req_punt(vreq);
		return;
	}
	if (unlikely(vreq->state == VSERVE_PENDING)) {
		if (!vblk_still_allowed(req)) {
			vserve_req_start(vreq);
			vblk_req_end(req, VIRTIO_BLK_S_IOERR);
			return;
		}
		vblk_set_segs(req);
	}
	if (lead && vblk_can_join(lead, req)) {
		lead->tail->base.next = vreq;
		lead->tail = req;
		lead->cmd_bytes += vreq->bytes;
		lead->cmd_segs += req->nr_segs;
		lead->cmd_reqs++;
		return;
	}
	vblk_flush_batch(&vring->base);
	vblk_batch_begin(req);
	vring->leader = req;
}

/**
 * vblk_punt - vserve_ops.punt: prepare a request for work(), which submits it alone
 * @vreq: the request; those that it was merged with go alone, too
 * @again: the request was counted as a command already
 */
void vblk_punt(struct vserve_req *vreq, bool again)
{
	struct vblk_req *req = to_vblk_req(vreq);

	vblk_batch_begin(req);
	if (!again)
		vblk_vring_of(req)->stats.commands++;
}

static void vblk_set_aside(struct vserve_req *lead)
{
	struct vserve_req *next;

	for (; lead; lead = next) {
		next = lead->next;
		lead->next = NULL;
		vserve_req_aside(lead);
	}
}

/*
 * Leave each request of a command to the poller's thread, after its round, or else to a worker.
 * They call submit_wait().
 */
static void vblk_hand_over_all(struct vserve_req *lead)
{
	const struct vblk_engine *engine = vblk_backend_of(to_vblk_req(lead))->engine;
	struct vserve_req *next;

	for (; lead; lead = next) {
		next = lead->next;
		if (engine->is_hot && engine->is_hot(to_vblk_req(lead)))
			vserve_req_hot(lead);
		else
			vserve_req_punt(lead);
	}
}

/**
 * vblk_flush_batch - vserve_ops.flush: submit the command that was put together so far
 * @vvring: the vring, in a round
 */
void vblk_flush_batch(struct vserve_vring *vvring)
{
	struct vblk_vring *vring = to_vblk_vring(vvring);
	struct vblk_req *lead = vring->leader;
	struct vserve_req *req;
	unsigned int reqs;
	int r;

	if (!lead)
		return;
	vring->leader = NULL;
	for (req = &lead->base; req; req = req->next)
		vserve_req_start(req);
	/* The command may be over when submit() returns. */
	reqs = lead->cmd_reqs;
	r = vblk_backend_of(lead)->engine->submit(lead);
	if (!r) {
		vring->stats.commands++;
		vring->stats.merged += reqs - 1;
		return;
	}

	for (req = &lead->base; req; req = req->next)
		vserve_req_unstart(req);
	if (r == -EAGAIN)
		vblk_set_aside(&lead->base);
	else if (r == -EBUSY)
		vblk_hand_over_all(&lead->base);
	else
		vblk_fail(&lead->base, r);
}
