// SPDX-License-Identifier: GPL-2.0
/*
 * The engine that calls submit_bio(): for stacked and bio-based devices, for disks with a scheduler
 * or a cgroup policy, and for requests that the block layer has to split.  The poller submits with
 * REQ_NOWAIT, if the device and its limits honour that.  Otherwise, and after -EAGAIN, a worker
 * submits.
 */
#include <linux/bio.h>
#include <linux/blk-cgroup.h>
#include <linux/blkdev.h>

#include "blk.h"
#include <trace/events/vhost_blk.h>

static void vblk_bio_done(struct bio *bio)
{
	struct vblk_req *req = container_of(bio, struct vblk_req, bio);
	bool nowait = bio->bi_opf & REQ_NOWAIT;
	blk_status_t status = bio->bi_status;

	bio_uninit(bio);
	/*
	 * A stacked device may lose REQ_NOWAIT while it is used, when a table below is loaded (for
	 * a snapshot), and cannot be asked beforehand.  So a worker submits the request again.
	 */
	if (nowait && (status == BLK_STS_AGAIN || status == BLK_STS_NOTSUPP))
		vserve_req_again(&req->base);
	else if (status)
		vblk_req_fail(req, blk_status_to_errno(status));
	else
		vblk_req_end(req, VIRTIO_BLK_S_OK);
}

static void vblk_bio_init(struct vblk_req *req, blk_opf_t opf)
{
	struct bio *bio = &req->bio;

	bio_init(bio, NULL, req->bvec, req->nr_bvec, opf);
	bio->bi_bdev = vblk_backend_of(req)->bdev;
#ifdef CONFIG_BLK_CGROUP
	if (req->base.vring->dev->css)
		bio_associate_blkg_from_css(bio, req->base.vring->dev->css);
	else
		bio_associate_blkg(bio);
#endif
	bio->bi_end_io = vblk_bio_done;
}

static void vblk_bio_set(struct vblk_req *req, blk_opf_t flags)
{
	struct bio *bio = &req->bio;
	blk_opf_t opf = REQ_OP_READ;

	if (vblk_is_write(req))
		opf = REQ_OP_WRITE | REQ_SYNC | REQ_IDLE;
	if (req->fua && vblk_is_write(req))
		opf |= REQ_FUA;
	vblk_bio_init(req, opf | flags);
	bio->bi_vcnt = req->nr_bvec;
	bio->bi_iter.bi_size = req->base.bytes;
	bio->bi_iter.bi_sector = req->sector;
}

static int vblk_bio_submit(struct vblk_req *req)
{
	struct vblk_backend *be = vblk_backend_of(req);

	/* io.cost and io.latency make bios wait even with REQ_NOWAIT. */
	if (!be->nowait ||
	    vblk_has_limits(req->base.vring->dev, bdev_get_queue(be->bdev)))
		return -EBUSY;
	/* The block layer does not split a bio with REQ_NOWAIT. */
	if (!vblk_fits(req))
		return -EBUSY;
	vblk_bio_set(req, REQ_NOWAIT);
	trace_vhost_blk_submit(req, VHOST_BLK_ENGINE_BIO, VHOST_BLK_HCTX_AUTO);
	submit_bio(&req->bio);
	return 0;
}

/**
 * vblk_bio_is_hot - vblk_engine.is_hot
 * @req: a read or write, mostly one that has to be split
 *
 * The thread sleeps if the disk has no tag for a part of the request, and a stacked device may
 * sleep for other reasons.  Then a spare thread of the poller goes on with the rings.
 *
 * Return: true if the poller's thread may submit the request after its round.
 */
bool vblk_bio_is_hot(const struct vblk_req *req)
{
	const struct vblk_backend *be = vblk_backend_of(req);

	return be->nowait && req->base.bytes <= VBLK_HOT_BYTES &&
	       !vblk_has_limits(req->base.vring->dev, bdev_get_queue(be->bdev));
}

/**
 * vblk_bio_submit_wait - vblk_engine.submit_wait
 * @req: a read or write
 */
void vblk_bio_submit_wait(struct vblk_req *req)
{
	vblk_bio_set(req, 0);
	trace_vhost_blk_submit(req, VHOST_BLK_ENGINE_BIO, VHOST_BLK_HCTX_AUTO);
	submit_bio(&req->bio);
}

/**
 * vblk_bio_submit_flush - vblk_engine.submit_flush
 * @req: a flush, not in flight
 *
 * Only flushes of blk-mq are sure not to sleep.  A stacked device allocates bios for the disks
 * below, and md waits for a flush that is under way.
 *
 * Return: false if a worker has to flush.
 */
bool vblk_bio_submit_flush(struct vblk_req *req)
{
	const struct vblk_backend *be = vblk_backend_of(req);
	struct request_queue *q = bdev_get_queue(be->bdev);

	if (!be->nowait || !queue_is_mq(q) || vblk_has_limits(req->base.vring->dev, q))
		return false;
	vserve_req_start(&req->base);
	/*
	 * REQ_SYNC | REQ_IDLE, because writeback throttling makes other writes wait even with
	 * REQ_NOWAIT.
	 */
	vblk_bio_init(req, REQ_OP_WRITE | REQ_PREFLUSH | REQ_SYNC | REQ_IDLE | REQ_NOWAIT);
	trace_vhost_blk_submit(req, be->engine_id, VHOST_BLK_HCTX_AUTO);
	submit_bio(&req->bio);
	return true;
}

/**
 * vblk_bio_flush - vblk_engine.flush
 * @be: the backend
 */
int vblk_bio_flush(struct vblk_backend *be)
{
	return blkdev_issue_flush(be->bdev);
}

/**
 * vblk_bio_discard - vblk_engine.discard
 * @req: a discard
 * @range: one of its ranges
 */
int vblk_bio_discard(struct vblk_req *req, const struct vblk_range *range)
{
	return blkdev_issue_discard(vblk_backend_of(req)->bdev, range->sector,
				    range->sectors, GFP_KERNEL);
}

/**
 * vblk_bio_write_zeroes - vblk_engine.write_zeroes
 * @req: a write-zeroes
 * @range: one of its ranges
 */
int vblk_bio_write_zeroes(struct vblk_req *req, const struct vblk_range *range)
{
	bool unmap = range->flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;

	return blkdev_issue_zeroout(vblk_backend_of(req)->bdev, range->sector,
				    range->sectors, GFP_KERNEL,
				    unmap ? 0 : BLKDEV_ZERO_NOUNMAP);
}

const struct vblk_engine vblk_engine_bio = {
	.submit		= vblk_bio_submit,
	.submit_wait	= vblk_bio_submit_wait,
	.is_hot		= vblk_bio_is_hot,
	.submit_flush	= vblk_bio_submit_flush,
	.flush		= vblk_bio_flush,
	.discard	= vblk_bio_discard,
	.write_zeroes	= vblk_bio_write_zeroes,
};
