// SPDX-License-Identifier: GPL-2.0
/*
 * What fits into one command, and neighbours that go along with each other.
 *
 * In a round, a request that continues the one before it (same direction,
 * next sector) joins its command as long as the queue's limits allow.  The
 * first one leads; the engine gets the leader.
 */
#include <linux/blkdev.h>
#include <linux/math64.h>

#include "blk.h"

/**
 * vblk_count_segs - segments of a vector as the block layer will count them
 * @lim: the queue's limits
 * @bvec: the vector
 * @nr: its length
 */
unsigned int vblk_count_segs(const struct queue_limits *lim,
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

			/* room is one less than there is, so that it fits */
			now = min_t(unsigned long, left - 1, room) + 1;
			now = min(now, lim->max_segment_size);
			segs++;
			at += now;
			left -= now;
		}
	}
	return segs;
}

static bool gap(const struct bio_vec *a, const struct bio_vec *b,
		unsigned long boundary)
{
	return ((a->bv_offset + a->bv_len) & boundary) ||
	       (b->bv_offset & boundary);
}

/**
 * vblk_aligned - can the backend address these buffers in one command?
 * @req: its pages are known
 */
bool vblk_aligned(const struct vblk_req *req)
{
	struct vblk_backend *be = req->bind->backend;
	unsigned int mask = SECTOR_SIZE - 1, len_mask, i;
	unsigned long boundary = 0;

	if (be->bdev) {
		mask = bdev_dma_alignment(be->bdev);
		len_mask = mask;
		boundary = queue_virt_boundary(bdev_get_queue(be->bdev));
	} else if (be->file->f_flags & O_DIRECT) {
		/* Its file system wants whole blocks in each. */
		len_mask = (req->bind->limits.block_sectors << SECTOR_SHIFT) - 1;
	} else {
		return true;
	}
	for (i = 0; i < req->nr_bvec; i++) {
		const struct bio_vec *bvec = &req->bvec[i];

		if (bvec->bv_offset & mask || bvec->bv_len & len_mask)
			return false;
		if (i && boundary && gap(bvec - 1, bvec, boundary))
			return false;
		/* Nobody splits in the middle of a sector. */
		if (bvec->bv_len & (SECTOR_SIZE - 1) && be->bdev &&
		    req->nr_bvec > queue_max_segments(bdev_get_queue(be->bdev)))
			return false;
	}
	return true;
}

static bool crosses_chunk(const struct queue_limits *lim, u64 sector, u32 bytes)
{
	u32 into;

	if (!lim->chunk_sectors)
		return false;
	div_u64_rem(sector, lim->chunk_sectors, &into);
	return bytes >> SECTOR_SHIFT > lim->chunk_sectors - into;
}

/**
 * vblk_fits - is this one command to the queue, with nothing to split?
 * @req: its segments are counted
 */
bool vblk_fits(const struct vblk_req *req)
{
	struct block_device *bdev = req->bind->backend->bdev;
	const struct queue_limits *lim = &bdev_get_queue(bdev)->limits;

	return req->nr_segs <= lim->max_segments &&
	       req->bytes >> SECTOR_SHIFT <= lim->max_sectors &&
	       !crosses_chunk(lim, bdev->bd_start_sect + req->sector,
			      req->bytes);
}

static bool can_join(const struct vblk_req *lead, const struct vblk_req *req)
{
	const struct vblk_backend *be = req->bind->backend;
	const struct vblk_req *last = lead->tail;
	const struct queue_limits *lim;
	unsigned long boundary;

	if (be->engine_id != VHOST_BLK_ENGINE_MQ || lead->bind != req->bind ||
	    lead->type != req->type || lead->fua != req->fua ||
	    last->sector + (last->bytes >> SECTOR_SHIFT) != req->sector)
		return false;

	lim = &bdev_get_queue(be->bdev)->limits;
	boundary = lim->virt_boundary_mask;
	if (lim->chunk_sectors || lead->cmd_reqs >= VBLK_MAX_MERGE ||
	    lead->cmd_segs + req->nr_segs > lim->max_segments ||
	    (lead->cmd_bytes + req->bytes) >> SECTOR_SHIFT > lim->max_sectors)
		return false;
	return !boundary ||
	       !gap(&last->bvec[last->nr_bvec - 1], &req->bvec[0], boundary);
}

/**
 * vblk_batch_add - give a read or write to its engine, maybe with the next one
 * @vring: in a round
 * @req: ready
 */
void vblk_batch_add(struct vblk_vring *vring, struct vblk_req *req)
{
	struct vblk_req *lead = vring->leader;

	if (lead && can_join(lead, req)) {
		lead->tail->next = req;
		lead->tail = req;
		lead->cmd_bytes += req->bytes;
		lead->cmd_segs += req->nr_segs;
		lead->cmd_reqs++;
		return;
	}
	vblk_batch_flush(vring);
	req->next = NULL;
	req->tail = req;
	req->cmd_bytes = req->bytes;
	req->cmd_segs = req->nr_segs;
	req->cmd_reqs = 1;
	vring->leader = req;
}

static void set_aside(struct vblk_vring *vring, struct vblk_req *lead)
{
	struct vblk_req *next;

	for (; lead; lead = next) {
		next = lead->next;
		lead->next = NULL;
		lead->state = VBLK_PENDING;
		lead->aside_ns = lead->aside_ns ?: vring->now;
		list_add_tail(&lead->node, &vring->pending);
	}
}

/* As if the backend had it: its pages are let go of on the way back. */
static void fail(struct vblk_req *lead)
{
	struct vblk_req *next;

	for (; lead; lead = next) {
		next = lead->next;
		vblk_req_start(lead);
		vblk_req_end(lead, VIRTIO_BLK_S_IOERR);
	}
}

/**
 * vblk_batch_flush - submit the command put together so far
 * @vring: in a round
 */
void vblk_batch_flush(struct vblk_vring *vring)
{
	struct vblk_req *lead = vring->leader, *req;
	unsigned int reqs;
	int r;

	if (!lead)
		return;
	vring->leader = NULL;
	for (req = lead; req; req = req->next)
		vblk_req_start(req);
	/* It may be over when submit() returns. */
	reqs = lead->cmd_reqs;
	r = lead->bind->backend->engine->submit(lead);
	if (!r) {
		vring->stats.commands++;
		vring->stats.merged += reqs - 1;
		return;
	}

	for (req = lead; req; req = req->next) {
		list_del(&req->node);
		vring->nr_inflight--;
		req->state = VBLK_TAKEN;
	}
	if (r == -EAGAIN)
		set_aside(vring, lead);
	else if (r == -EBUSY)
		for (req = lead; req; req = lead) {
			lead = req->next;
			req->next = NULL;
			vblk_req_punt(req);
		}
	else
		fail(lead);
}
