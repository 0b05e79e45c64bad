// SPDX-License-Identifier: GPL-2.0
/*
 * The engine for blk-mq disks.  It allocates a struct request on a hardware context of the disk,
 * adds its bios, and issues it by blk_insert_cloned_request(), past scheduler and software queues,
 * as request-based device mapper does.
 *
 * If the kernel has blk_mq_alloc_request_on() (patches/), the context is any that the owner wants.
 * Otherwise it is the one that the CPU of the poller maps to.
 *
 * Contexts and maps belong to the driver.  It changes them while the queue is frozen
 * (blk_mq_update_nr_hw_queues()), and frees them when its device goes, open or not.  For both it
 * waits for the queue's usage counter, so this code looks at them only with a reference on that
 * counter: see vblk_queue_get().
 *
 * A polled request makes no interrupt.  Its vring asks for the completion in each round, and tells
 * the poller not to sleep without a timer (source->polled).
 */
#include <linux/blkdev.h>
#include <linux/module.h>

#include "blk.h"
#include <trace/events/vhost_blk.h>

#define MQ_BATCH	8U

/* The declaration of patches/0002.  Kernels without that patch have no such symbol. */
struct request *blk_mq_alloc_request_on(struct request_queue *q, blk_opf_t opf,
					blk_mq_req_flags_t flags,
					unsigned int hctx_idx);

static typeof(blk_mq_alloc_request_on) *alloc_on;

void vblk_mq_load(void)
{
	alloc_on = symbol_get(blk_mq_alloc_request_on);
}

void vblk_mq_unload(void)
{
	if (alloc_on)
		symbol_put_addr(alloc_on);
}

/**
 * vblk_mq_free_choice - whether any poller can submit to any hardware context
 *
 * Return: true if the kernel has blk_mq_alloc_request_on().
 */
bool vblk_mq_free_choice(void)
{
	return alloc_on;
}

/*
 * Take a reference to a queue.  Returns false if the queue is frozen now, or if its device is gone.
 */
static bool vblk_queue_get(struct request_queue *q)
{
	return percpu_ref_tryget_live(&q->q_usage_counter);
}

static void vblk_queue_put(struct request_queue *q)
{
	percpu_ref_put(&q->q_usage_counter);
}

/* The caller has a reference from vblk_queue_get(). */
static bool vblk_has_map(struct request_queue *q, enum hctx_type type)
{
	struct blk_mq_tag_set *set = q->tag_set;

	return type < set->nr_maps && set->map[type].nr_queues;
}

/* The caller has a reference from vblk_queue_get(). */
static struct blk_mq_queue_map *vblk_queue_map(struct request_queue *q,
					       enum hctx_type type)
{
	if (!vblk_has_map(q, type))
		type = HCTX_TYPE_DEFAULT;
	return &q->tag_set->map[type];
}

/**
 * vblk_mq_blocks - whether the driver of a disk says that it may sleep in queue_rq
 * @bdev: the disk
 *
 * The queue may be frozen, so this needs no reference.  The driver keeps its tag set until
 * del_gendisk() has marked the disk as dead, with open_mutex held.
 *
 * Return: true also when the disk is gone.
 */
bool vblk_mq_blocks(struct block_device *bdev)
{
	struct request_queue *q = bdev_get_queue(bdev);
	struct gendisk *disk = bdev->bd_disk;
	bool blocks;

	if (!queue_is_mq(q))
		return false;
	mutex_lock(&disk->open_mutex);
	blocks = test_bit(GD_DEAD, &disk->state) || q->tag_set->flags & BLK_MQ_F_BLOCKING;
	mutex_unlock(&disk->open_mutex);
	return blocks;
}

/**
 * vblk_mq_init - decide how requests of a backend are allocated
 * @be: the backend
 *
 * The driver may change its queues later.  Then requests with these flags still work, on contexts
 * that there are.
 */
void vblk_mq_init(struct vblk_backend *be)
{
	struct request_queue *q;

	if (be->engine_id != VHOST_BLK_ENGINE_MQ)
		return;
	q = bdev_get_queue(be->bdev);
	if (!vblk_queue_get(q))
		return;
	be->polled = vblk_has_map(q, HCTX_TYPE_POLL) &&
		     !(be->flags & VHOST_BLK_BACKEND_NO_POLL_QUEUES);
	be->read_queues = vblk_has_map(q, HCTX_TYPE_READ);
	vblk_queue_put(q);
}

/* The kind of context that requests with @opf go to. */
static enum hctx_type vblk_type_of(const struct vblk_backend *be, blk_opf_t opf)
{
	if (opf & REQ_POLLED)
		return HCTX_TYPE_POLL;
	if ((opf & REQ_OP_MASK) == REQ_OP_READ && be->read_queues)
		return HCTX_TYPE_READ;
	return HCTX_TYPE_DEFAULT;
}

/**
 * vblk_mq_counts - count the contexts that a vring can be matched to
 * @be: the backend
 * @hctx: set to the number of all of them
 * @poll_hctx: set to how many of them are polled
 *
 * There are none while the queue is frozen, and when its device is gone.
 */
void vblk_mq_counts(struct vblk_backend *be, u32 *hctx, u32 *poll_hctx)
{
	struct blk_mq_tag_set *set;
	struct request_queue *q;

	*hctx = 0;
	*poll_hctx = 0;
	if (be->engine_id != VHOST_BLK_ENGINE_MQ)
		return;
	q = bdev_get_queue(be->bdev);
	if (!vblk_queue_get(q))
		return;
	set = q->tag_set;
	*hctx = set->nr_hw_queues;
	if (set->nr_maps > HCTX_TYPE_POLL)
		*poll_hctx = set->map[HCTX_TYPE_POLL].nr_queues;
	vblk_queue_put(q);
}

/* The context in @map that a vring's requests are meant for. */
static u32 vblk_hctx_in(const struct blk_mq_queue_map *map,
			const struct vblk_vring *vring)
{
	u32 wanted = vring->base.target;

	if (wanted >= map->queue_offset &&
	    wanted - map->queue_offset < map->nr_queues)
		return wanted;
	return map->queue_offset + vring->base.index % map->nr_queues;
}

/**
 * vblk_mq_check_hctx - check that a vring can be matched to a context
 * @vring: the vring; the device's mutex is held
 * @poller: the poller that is to serve it
 * @hctx: the context that the owner wants
 *
 * Return: 0, or an error.
 */
int vblk_mq_check_hctx(struct vserve_vring *vring,
		       const struct vhost_poller *poller, u32 hctx)
{
	unsigned int cpu = vhost_poller_cpu(poller);
	struct vblk_backend *be = to_vblk_dev(vring->dev)->backend;
	struct request_queue *q;
	int type, r = -EOPNOTSUPP;
	u32 all, polled;

	if (hctx == VHOST_BLK_HCTX_AUTO)
		return 0;
	if (!be)
		return -ENODEV;
	vblk_mq_counts(be, &all, &polled);
	if (hctx >= all)
		return -EINVAL;
	if (alloc_on)
		return 0;
	q = bdev_get_queue(be->bdev);
	if (!vblk_queue_get(q))
		return -ENODEV;
	for (type = 0; type < HCTX_MAX_TYPES && r; type++)
		if (vblk_queue_map(q, type)->mq_map[cpu] == hctx)
			r = 0;
	vblk_queue_put(q);
	return r;
}

/*
 * The block layer calls this for each bio, even if others of the command failed or are still in
 * flight.
 */
static void vblk_mq_done(struct bio *bio)
{
	struct vblk_req *req = container_of(bio, struct vblk_req, bio);

	if (unlikely(bio->bi_status))
		vblk_req_fail(req, blk_status_to_errno(bio->bi_status));
	else
		vblk_req_end(req, VIRTIO_BLK_S_OK);
}

/*
 * Set up one bio of a command.  It needs no blkg, because a disk with a policy has another engine.
 */
static void vblk_mq_set_bio(struct vblk_req *req, blk_opf_t opf, sector_t start)
{
	bio_init(&req->bio, NULL, req->bvec, req->nr_bvec, opf);
	req->bio.bi_bdev = vblk_backend_of(req)->bdev;
	req->bio.bi_vcnt = req->nr_bvec;
	req->bio.bi_iter.bi_size = req->base.bytes;
	req->bio.bi_iter.bi_sector = start + req->sector;
	req->bio.bi_next = req->base.next ? &vblk_next(req)->bio : NULL;
	req->bio.bi_end_io = vblk_mq_done;
}

static void vblk_set_request(struct request *rq, struct vblk_req *lead)
{
	sector_t start = vblk_backend_of(lead)->bdev->bd_start_sect;
	struct vblk_req *req;

	for (req = lead; req; req = vblk_next(req))
		vblk_mq_set_bio(req, rq->cmd_flags, start);
	rq->bio = &lead->bio;
	rq->biotail = &lead->tail->bio;
	rq->__sector = start + lead->sector;
	rq->__data_len = lead->cmd_bytes;
}

/*
 * Choose the context for requests of a type, and keep it in vring->chosen.  VHOST_BLK_HCTX_AUTO
 * means that the context of this CPU will do.
 *
 * This looks once a round and not once a request.  The context may have become another one by the
 * time it is used.  blk_mq_alloc_request_on() looks again, with a reference of its own.  With AUTO
 * another context costs only time.
 */
static int vblk_choose_hctx(struct vblk_vring *vring, struct vblk_backend *be,
			    enum hctx_type type)
{
	struct request_queue *q = bdev_get_queue(be->bdev);
	const struct blk_mq_queue_map *map;
	u32 hctx;

	if (!alloc_on || (vring->chosen.round == vring->base.now &&
			  vring->chosen.type == type))
		return 0;
	if (!vblk_queue_get(q))
		return blk_queue_dying(q) ? -ENODEV : -EWOULDBLOCK;
	map = vblk_queue_map(q, type);
	hctx = vblk_hctx_in(map, vring);
	if (hctx == map->mq_map[raw_smp_processor_id()])
		hctx = VHOST_BLK_HCTX_AUTO;
	vblk_queue_put(q);
	vring->chosen.round = vring->base.now;
	vring->chosen.type = type;
	vring->chosen.hctx = hctx;
	return 0;
}

/*
 * Have the block layer allocate several requests with one look at the tags.  The plug keeps those
 * that are not used at once.  A batch has to fit into one word of the tags' bitmap, and small
 * queues have small words, so this asks for a few and not for all that may come.
 */
static void vblk_want_batch(const struct vblk_req *lead)
{
	struct blk_plug *plug = current->plug;

	/* Neighbours that merge need one request for all of them. */
	if (plug && lead->cmd_reqs == 1)
		plug->nr_ios = min(lead->base.vring->to_come + 1, MQ_BATCH);
}

/*
 * Allocate a request on the context of this CPU.
 *
 * The block layer keeps batches by type, and REQ_OP_READ is a type of its own.  So without queues
 * for reads it gives nothing of a batch to a read.  Ask as for a write then, which goes to the same
 * context.  With a scheduler ask as for a read, because a scheduler looks at the type.
 */
static struct request *vblk_get_request_here(const struct vblk_req *lead,
					     blk_opf_t opf)
{
	struct vblk_backend *be = vblk_backend_of(lead);
	struct request_queue *q = bdev_get_queue(be->bdev);
	blk_opf_t as = opf;
	struct request *rq;

	if (vblk_type_of(be, opf) == HCTX_TYPE_DEFAULT && opf == REQ_OP_READ &&
	    !q->elevator)
		as = REQ_OP_WRITE;
	vblk_want_batch(lead);
	rq = blk_mq_alloc_request(q, as, BLK_MQ_REQ_NOWAIT);
	if (!IS_ERR(rq))
		rq->cmd_flags = opf;
	return rq;
}

static struct request *vblk_get_request(const struct vblk_req *lead, blk_opf_t opf)
{
	struct vblk_backend *be = vblk_backend_of(lead);
	struct vblk_vring *vring = vblk_vring_of(lead);
	struct request *rq;
	int r;

	r = vblk_choose_hctx(vring, be, vblk_type_of(be, opf));
	if (r)
		return ERR_PTR(r);
	if (!alloc_on || vring->chosen.hctx == VHOST_BLK_HCTX_AUTO)
		return vblk_get_request_here(lead, opf);
	rq = alloc_on(bdev_get_queue(be->bdev), opf, BLK_MQ_REQ_NOWAIT,
		      vring->chosen.hctx);
	if (!IS_ERR(rq) || rq == ERR_PTR(-EWOULDBLOCK) ||
	    rq == ERR_PTR(-ENODEV))
		return rq;
	/*
	 * Take any context.  No CPU of the wanted one is online, there are no poll queues any more,
	 * or a scheduler is to be bypassed, whose tags are not by context.
	 */
	return vblk_get_request_here(lead, opf);
}

static int vblk_mq_issue(struct vblk_vring *vring, struct vblk_req *lead,
			 struct request *rq)
{
	struct vblk_req *last = lead->tail;
	blk_status_t status;

	/*
	 * If the queue is stopped, even a bypassed scheduler gets the request.  It must not merge
	 * the request with another one, because the limits were checked for these bios only.
	 */
	rq->cmd_flags |= REQ_NOMERGE;
	vblk_set_request(rq, lead);
	vring->hctx_used = rq->mq_hctx->queue_num;
	trace_vhost_blk_submit(lead, VHOST_BLK_ENGINE_MQ, vring->hctx_used);
	/*
	 * Do this before the request is issued, because it may be done when that returns.  Poll for
	 * the last bio, because a driver may end the command in parts, from its beginning on.
	 */
	last->hctx = vring->hctx_used;
	if (blk_rq_is_poll(rq))
		vserve_req_polled(&last->base);

	status = blk_insert_cloned_request(rq);
	if (likely(status == BLK_STS_OK))
		return 0;

	vserve_req_unpolled(&last->base);
	blk_mq_cleanup_rq(rq);
	blk_mq_free_request(rq);
	switch (status) {
	case BLK_STS_RESOURCE:
	case BLK_STS_DEV_RESOURCE:
	case BLK_STS_AGAIN:
		return -EAGAIN;
	default:
		return blk_status_to_errno(status);
	}
}

static int vblk_mq_submit(struct vblk_req *lead)
{
	struct vblk_backend *be = vblk_backend_of(lead);
	struct request_queue *q = bdev_get_queue(be->bdev);
	blk_opf_t opf = REQ_OP_READ;
	struct request *rq;

	/*
	 * A scheduler or limits may have come after the backend was opened, and hold from then on.
	 */
	if ((q->elevator &&
	     !(be->flags & VHOST_BLK_BACKEND_BYPASS_SCHEDULER)) ||
	    vblk_has_limits(lead->base.vring->dev, q))
		return -EBUSY;
	if (!vblk_fits(lead) || (lead->fua && vblk_is_write(lead) &&
				 bdev_write_cache(be->bdev) &&
				 !bdev_fua(be->bdev)))
		return -EBUSY;

	if (vblk_is_write(lead))
		opf = REQ_OP_WRITE | REQ_SYNC | REQ_IDLE;
	if (lead->fua && vblk_is_write(lead) && bdev_write_cache(be->bdev))
		opf |= REQ_FUA;
	if (be->polled)
		opf |= REQ_POLLED;
	rq = vblk_get_request(lead, opf);
	if (!IS_ERR(rq))
		return vblk_mq_issue(vblk_vring_of(lead), lead, rq);
	if (rq == ERR_PTR(-EWOULDBLOCK))
		return -EAGAIN;
	return PTR_ERR(rq);
}

/*
 * Ask the context of a request for completions.  The driver can take no context away while this
 * code has the reference, nor while the request is in flight.
 */
static void vblk_ask_context_of(const struct vblk_req *req)
{
	struct request_queue *q = bdev_get_queue(vblk_backend_of(req)->bdev);
	DEFINE_IO_COMP_BATCH(iob);
	struct blk_mq_hw_ctx *hctx;

	if (!percpu_ref_tryget(&q->q_usage_counter))
		return;
	hctx = xa_load(&q->hctx_table, req->hctx);
	if (hctx && hctx->type == HCTX_TYPE_POLL)
		q->mq_ops->poll(hctx, &iob);
	percpu_ref_put(&q->q_usage_counter);
	if (!rq_list_empty(&iob.req_list))
		iob.complete(&iob);
}

static bool vblk_same_context(const struct vblk_req *a, const struct vblk_req *b)
{
	return a->hctx == b->hctx;
}

/*
 * Ask the context of each polled request.  The context was replaced while requests were in flight,
 * and none of them has to wait for the others.
 */
static void vblk_ask_each(struct vserve_vring *vring)
{
	struct vblk_req *req, *last = NULL;

	list_for_each_entry(req, &vring->polled, base.node) {
		if (last && vblk_same_context(last, req))
			continue;
		vblk_ask_context_of(req);
		last = req;
	}
}

/**
 * vblk_mq_reap - ask the device for polled completions
 * @vring: a vring with polled requests in flight; its mutex is held
 *
 * Nearly always all of them are in one context.  Then the oldest and the newest are in the same.
 */
void vblk_mq_reap(struct vserve_vring *vring)
{
	struct vblk_req *oldest, *newest;

	lockdep_assert_held(&vring->vq.mutex);
	oldest = list_first_entry(&vring->polled, struct vblk_req, base.node);
	newest = list_last_entry(&vring->polled, struct vblk_req, base.node);
	if (vblk_same_context(oldest, newest))
		vblk_ask_context_of(oldest);
	else
		vblk_ask_each(vring);
}

const struct vblk_engine vblk_engine_mq = {
	.submit		= vblk_mq_submit,
	.submit_wait	= vblk_bio_submit_wait,
	.is_hot		= vblk_bio_is_hot,
	.submit_flush	= vblk_bio_submit_flush,
	.flush		= vblk_bio_flush,
	.discard	= vblk_bio_discard,
	.write_zeroes	= vblk_bio_write_zeroes,
};
