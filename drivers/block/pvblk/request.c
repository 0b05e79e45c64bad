// SPDX-License-Identifier: GPL-2.0
/*
 * This file turns a struct request into a virtio-blk request: a header, the data's scatterlist, and
 * a status byte.  It touches no ring and takes no lock; queue.c does both.
 */
#include "pvblk.h"

#include <trace/events/virtio_pvblk.h>

blk_status_t pvblk_status(u8 status)
{
	switch (status) {
	case VIRTIO_BLK_S_OK:
		return BLK_STS_OK;
	case VIRTIO_BLK_S_UNSUPP:
		return BLK_STS_NOTSUPP;
	default:
		return BLK_STS_IOERR;
	}
}

/*
 * Discard, write zeroes and secure erase have their ranges as data.  The request itself has room
 * for one range, the common case.  For more ranges the driver allocates memory.
 */
static blk_status_t pvblk_prep_ranges(struct request *req, u32 flags)
{
	struct pvblk_req *r = blk_mq_rq_to_pdu(req);
	struct virtio_blk_discard_write_zeroes *range = &r->range;
	unsigned int n = 0, segs = blk_rq_nr_discard_segments(req);
	struct bio *bio;

	/* If only one segment is allowed, the block layer has merged neighbours into one range. */
	if (segs <= 1 || queue_max_discard_segments(req->q) == 1) {
		range->flags = cpu_to_le32(flags);
		range->num_sectors = cpu_to_le32(blk_rq_sectors(req));
		range->sector = cpu_to_le64(blk_rq_pos(req));
		bvec_set_virt(&req->special_vec, range, sizeof(*range));
		req->rq_flags |= RQF_SPECIAL_PAYLOAD;
		return BLK_STS_OK;
	}

	range = kmalloc_array(segs, sizeof(*range), GFP_ATOMIC);
	if (!range)
		return BLK_STS_RESOURCE;
	__rq_for_each_bio(bio, req) {
		/* A request must not count as done if the device got only a part of it. */
		if (WARN_ON_ONCE(n == segs)) {
			kfree(range);
			return BLK_STS_IOERR;
		}
		range[n].flags = cpu_to_le32(flags);
		range[n].num_sectors = cpu_to_le32(bio->bi_iter.bi_size >> SECTOR_SHIFT);
		range[n].sector = cpu_to_le64(bio->bi_iter.bi_sector);
		n++;
	}
	bvec_set_virt(&req->special_vec, range, n * sizeof(*range));
	req->rq_flags |= RQF_SPECIAL_PAYLOAD;
	return BLK_STS_OK;
}

static void pvblk_free_ranges(struct request *req)
{
	struct pvblk_req *r = blk_mq_rq_to_pdu(req);
	void *range;

	if (!(req->rq_flags & RQF_SPECIAL_PAYLOAD))
		return;
	range = bvec_virt(&req->special_vec);
	if (range != &r->range)
		kfree(range);
	req->rq_flags &= ~RQF_SPECIAL_PAYLOAD;
}

static blk_status_t pvblk_prep_header(struct pvblk_dev *dev, struct request *req)
{
	struct pvblk_req *r = blk_mq_rq_to_pdu(req);
	blk_status_t status = BLK_STS_OK;
	u64 sector = 0;
	u32 type;

	switch (req_op(req)) {
	case REQ_OP_READ:
		type = VIRTIO_BLK_T_IN;
		sector = blk_rq_pos(req);
		break;
	case REQ_OP_WRITE:
		type = VIRTIO_BLK_T_OUT;
		sector = blk_rq_pos(req);
		break;
	case REQ_OP_FLUSH:
		type = VIRTIO_BLK_T_FLUSH;
		break;
	case REQ_OP_DISCARD:
		type = VIRTIO_BLK_T_DISCARD;
		status = pvblk_prep_ranges(req, 0);
		break;
	case REQ_OP_SECURE_ERASE:
		type = VIRTIO_BLK_T_SECURE_ERASE;
		status = pvblk_prep_ranges(req, 0);
		break;
	case REQ_OP_WRITE_ZEROES:
		type = VIRTIO_BLK_T_WRITE_ZEROES;
		status = pvblk_prep_ranges(req, req->cmd_flags & REQ_NOUNMAP ? 0 :
					   VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP);
		break;
	case REQ_OP_DRV_IN:
		/* Only pvblk_get_id() sends these. */
		type = VIRTIO_BLK_T_GET_ID;
		break;
	default:
		return BLK_STS_NOTSUPP;
	}

	r->hdr.type = cpu_to_virtio32(dev->vdev, type);
	r->hdr.ioprio = cpu_to_virtio32(dev->vdev, req_get_ioprio(req));
	r->hdr.sector = cpu_to_virtio64(dev->vdev, sector);
	return status;
}

/**
 * pvblk_prep - make a request ready for the ring and start it
 * @dev: the device
 * @req: the request
 *
 * Return: BLK_STS_OK, and then pvblk_unprep() or a completion must follow; or the reason why the
 * request is not ready.
 */
blk_status_t pvblk_prep(struct pvblk_dev *dev, struct request *req)
{
	struct pvblk_req *r = blk_mq_rq_to_pdu(req);
	blk_status_t status;
	unsigned int segs;

	if (unlikely(READ_ONCE(dev->dead)))
		return BLK_STS_IOERR;

	status = pvblk_prep_header(dev, req);
	if (unlikely(status))
		return status;

	/* Only removal uses this.  At other times, do not touch its cache line. */
	if (unlikely(READ_ONCE(dev->removing)))
		r->removal_waits = 0;
	/* If the device returns the request without a status, the request has failed. */
	r->status = VIRTIO_BLK_S_IOERR;
	r->table.nents = 0;
	segs = blk_rq_nr_phys_segments(req);
	if (segs) {
		r->table.sgl = r->sg;
		if (unlikely(sg_alloc_table_chained(&r->table, segs, r->sg, PVBLK_INLINE_SG))) {
			pvblk_free_ranges(req);
			return BLK_STS_RESOURCE;
		}
		r->table.nents = blk_rq_map_sg(req->q, req, r->table.sgl);
	}

	blk_mq_start_request(req);
	return BLK_STS_OK;
}

/**
 * pvblk_unprep - undo pvblk_prep()
 * @req: the request, not in the ring
 */
void pvblk_unprep(struct request *req)
{
	struct pvblk_req *r = blk_mq_rq_to_pdu(req);

	if (blk_rq_nr_phys_segments(req))
		sg_free_table_chained(&r->table, PVBLK_INLINE_SG);
	pvblk_free_ranges(req);
}

/*
 * Complete a request on this CPU.  If the block layer sends a completion to another CPU, it calls
 * this there (.complete).
 */
void pvblk_complete(struct request *req)
{
	struct pvblk_req *r = blk_mq_rq_to_pdu(req);

	pvblk_unprep(req);
	blk_mq_end_request(req, pvblk_status(r->status));
}

static void pvblk_complete_batch(struct io_comp_batch *iob)
{
	struct request *req;

	rq_list_for_each(&iob->req_list, req)
		pvblk_unprep(req);
	blk_mq_end_request_batch(iob);
}

/**
 * pvblk_complete_list - complete requests that were taken from a ring
 * @done: the requests; empty afterwards
 * @iob: the batch to add them to, which the caller completes; NULL: one by one
 *
 * The caller does not hold the queue's lock, so a task that a completion wakes can submit at once.
 * Bottom halves are off, so a softirq that is raised here runs as soon as the caller turns them on,
 * and does not wake ksoftirqd.
 */
void pvblk_complete_list(struct rq_list *done, struct io_comp_batch *iob)
{
	struct request *req;

	while ((req = rq_list_pop(done))) {
		struct pvblk_req *r = blk_mq_rq_to_pdu(req);
		bool error = r->status != VIRTIO_BLK_S_OK;

		trace_virtio_pvblk_complete(req, r->status);
		if (!blk_mq_complete_request_remote(req) &&
		    !blk_mq_add_to_batch(req, iob, error, pvblk_complete_batch))
			pvblk_complete(req);
	}
}
