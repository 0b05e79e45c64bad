/* SPDX-License-Identifier: GPL-2.0 */
/*
 * virtio_pvblk: a driver for virtio-blk devices that polls for completions.
 *
 * Who looks at a used ring
 * ------------------------
 * As long as a queue has requests in flight, at least one of these holds:
 *
 * - a poller has it (vq->poller): the SCHED_IDLE kthread of one CPU looks at it
 *   whenever that CPU has nothing better to do (poller.c);
 * - its callbacks are on (vq->callbacks): the device will interrupt, and the
 *   interrupt queues vq->reap;
 * - vq->reap is queued or running, and will see to one of the first two.
 *
 * Whoever takes one away puts another in its place under vq->lock.  A queue
 * with nothing in flight needs none of them.  Queues for io_uring's IOPOLL are
 * outside all this: the task that waits looks.
 *
 * Locking
 * -------
 * vq->lock: the ring and everything of its queue.  Taken with bottom halves
 *   off and never from hard interrupts, so the driver itself never runs with
 *   interrupts off; for a guest that matters, because an interrupt that comes
 *   in meanwhile (a tick) costs the host another exit to find the moment when
 *   it can be delivered.  Two queues share no lock.
 * A poller's list of queues: no lock; changed only on its own CPU with bottom
 *   halves off.  Nested inside vq->lock when a queue is added or removed.
 * dev->vdev_mutex: dev->vdev against removal, for openers that outlive it.
 * dev->cache_mutex: changes of the cache mode and of dev->cached, see cache.c.
 * dev->mode, dev->poll_max_us: no lock; read afresh for each wait and each look.
 * dev->suspended: no lock; the tasks that could bind or unbind are frozen while the
 *   device is frozen and restored.
 * dev->removing, dev->dead: no lock, they go from false to true once.  A request
 *   that has missed it times out, and looks again.
 */
#ifndef _PVBLK_H
#define _PVBLK_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/virtio.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/workqueue.h>

#include "policy.h"

/* Segments whose scatterlist is part of the request: up to 64 KiB of pages. */
#define PVBLK_INLINE_SG		16
#define PVBLK_PART_BITS		4
#define PVBLK_VQ_NAME_LEN	16
#define PVBLK_POLL_MAX_US	1000000U

struct pvblk_poller;

enum pvblk_mode {
	PVBLK_IRQ,		/* as virtio_blk: interrupts only */
	PVBLK_ADAPTIVE,		/* poll while the waits are short */
	PVBLK_BUSY,		/* poll while anything is in flight */
};

/* All written under vq->lock, except interrupts. */
struct pvblk_stats {
	u64 submitted;
	u64 completed;
	u64 polls;		/* looks at the ring by a poller or IOPOLL */
	u64 hits;		/* ... that found something */
	u64 sleeps;		/* a wait was handed over to interrupts */
	u64 crowded;		/* ... because the CPU was busy with others */
	u64 interrupts;		/* written only by the queue's interrupt */
	u64 kicks_sent;
	u64 kicks_saved;	/* the device said it needs none */
	u64 timeouts;
};

struct pvblk_vq {
	spinlock_t lock;		/* see the top of this file */
	struct virtqueue *vq;		/* NULL while suspended, or not restored */
	struct pvblk_dev *dev;
	struct blk_mq_hw_ctx *hctx;
	unsigned int index;
	unsigned int inflight;
	bool iopoll;			/* no callback, no poller */
	bool callbacks;			/* the device may interrupt */
	bool stopped;			/* the ring was full; hctx is stopped */

	struct pvblk_poller *poller;	/* who has it on its list */
	struct list_head node;		/* on that list */

	unsigned long answered;		/* jiffies, of the last completions */
	struct pvblk_policy policy;
	u64 wait_start;			/* local_clock(); 0: not measured */
	u64 poll_start;			/* same, of this round of polling */

	struct work_struct reap;
	struct pvblk_stats stats;
	char name[PVBLK_VQ_NAME_LEN];
} ____cacheline_aligned_in_smp;

struct pvblk_dev {
	struct mutex vdev_mutex;	/* see the top of this file */
	struct mutex cache_mutex;
	struct virtio_device *vdev;	/* NULL once removed */
	struct gendisk *disk;
	struct blk_mq_tag_set tag_set;
	int index;			/* of the disk name and minors */

	enum pvblk_mode mode;
	unsigned int poll_max_us;
	bool removing;
	bool suspended;			/* quiesced, and without rings */
	bool cached;			/* the device's cache mode before that */
	bool dead;			/* every request fails from now on */

	unsigned int nr_vqs;
	unsigned int nr_queues[HCTX_MAX_TYPES];
	struct pvblk_vq *vqs;

	struct work_struct config_work;
	struct work_struct fail_work;
};

/* What a request carries; the block layer allocates it with the request. */
struct pvblk_req {
	struct virtio_blk_outhdr hdr;
	struct virtio_blk_discard_write_zeroes range;
	struct sg_table table;
	bool lost;			/* completion swallowed by fault injection */
	u8 late;			/* how often found so during removal */
	u8 status;			/* written by the device */
	struct scatterlist sg[PVBLK_INLINE_SG];
};

/* What a look at a ring found, to be completed once the queue's lock is dropped. */
struct pvblk_done {
	struct rq_list list;
	struct io_comp_batch *batch;	/* where to complete them, or NULL: one by one */
	struct io_comp_batch own;
};

#define PVBLK_DONE(name)	{ .batch = &(name).own }

static inline struct pvblk_vq *pvblk_hctx_vq(struct blk_mq_hw_ctx *hctx)
{
	struct pvblk_dev *dev = hctx->queue->queuedata;

	return &dev->vqs[hctx->queue_num];
}

/* main.c */
extern struct virtio_driver pvblk_driver;
bool pvblk_reset(struct virtio_device *vdev);
bool pvblk_reset_bare(struct virtio_device *vdev);
unsigned int pvblk_ring_size(struct pvblk_dev *dev);

/* claim.c: which devices are ours */
extern struct virtio_device_id pvblk_id_table[];
int pvblk_claim_init(void);
void pvblk_claim_exit(void);

/* disk.c: the disk and what the device's configuration says about it */
extern const struct block_device_operations pvblk_fops;
int pvblk_get_id(struct gendisk *disk, char *id);
int pvblk_name_check(struct gendisk *old);
int pvblk_their_name_check(struct gendisk *old);
int pvblk_disk_alloc(struct pvblk_dev *dev);
void pvblk_config_work(struct work_struct *work);
int pvblk_index_get(void);
void pvblk_index_put(int index);
int pvblk_disk_module_init(void);
void pvblk_disk_module_exit(void);

/* cache.c: the device's write cache */
bool pvblk_cache_mode(struct virtio_device *vdev);
int pvblk_cache_set(struct pvblk_dev *dev, bool writeback);
void pvblk_cache_save(struct pvblk_dev *dev);
void pvblk_cache_restore(struct pvblk_dev *dev);

/* limits.c */
int pvblk_read_limits(struct virtio_device *vdev, unsigned int ring_size,
		      struct queue_limits *lim);

/* request.c: between a struct request and buffers for the ring */
blk_status_t pvblk_prep(struct pvblk_dev *dev, struct request *req);
void pvblk_unprep(struct request *req);
void pvblk_complete(struct request *req);
void pvblk_complete_list(struct rq_list *done, struct io_comp_batch *iob);
blk_status_t pvblk_status(u8 status);

/* queue.c: into the ring and out of it */
extern const struct blk_mq_ops pvblk_mq_ops;
unsigned int pvblk_look(struct pvblk_vq *vq, struct pvblk_done *done, bool polled);
void pvblk_finish(struct pvblk_done *done);
bool pvblk_callbacks_on(struct pvblk_vq *vq);
void pvblk_callbacks_off(struct pvblk_vq *vq);
void pvblk_vq_callback(struct virtqueue *virtqueue);
void pvblk_reap_work(struct work_struct *work);
int pvblk_iopoll(struct blk_mq_hw_ctx *hctx, struct io_comp_batch *iob);
void pvblk_fail_work(struct work_struct *work);

/* poller.c: who looks at the ring */
struct task_struct *pvblk_watch(struct pvblk_vq *vq);
void pvblk_wait_over(struct pvblk_vq *vq, bool polled);
void pvblk_release_rings(struct pvblk_dev *dev);
int pvblk_pollers_init(void);
void pvblk_pollers_exit(void);

/* sysfs.c */
extern const struct attribute_group *pvblk_groups[];
extern const char *const pvblk_mode_names[];

#endif /* _PVBLK_H */
