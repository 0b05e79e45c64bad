/* SPDX-License-Identifier: GPL-2.0 */
/*
 * virtio_pvblk: a driver for virtio-blk devices that polls for completions.
 *
 * virtio_poll's threads poll the rings (virtio_poll.h), except those of queues for io_uring's
 * IOPOLL.  The task that waits for a request polls these.
 *
 * Locking
 * -------
 * vq->q.lock protects the ring and all of its queue.  Two queues share no lock.  The driver takes
 *   it with bottom halves off, and never in hard interrupts, so the driver itself never runs with
 *   interrupts off.  If a guest has interrupts off when one comes in (a tick), the host needs
 *   another exit to find the moment at which it can deliver that interrupt.
 * dev->vdev_mutex protects dev->vdev against removal, because a task may still have the disk open.
 * dev->cache_mutex lets one task at a time change the cache mode, see cache.c.  Its holder may wait
 *   for requests.
 * dev->mode_mutex protects the mode that the driver tells the device, and dev->cached.  Its holder
 *   must not wait for requests.  A restart takes this mutex, and requests wait for the restart.
 * Order: dev->cache_mutex, dev->mode_mutex, the queue's limits lock.
 * dev->poll needs no lock.  Pollers read it afresh for each wait and each poll.
 * dev->suspended needs no lock.  While the device is suspended and restored, the tasks that could
 *   bind or unbind it are frozen.
 * dev->removing and dev->dead need no lock, because they go from false to true only once.  If the
 *   submitter of a request misses that, the timeout handler of the request looks again.
 */
#ifndef _PVBLK_H
#define _PVBLK_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/scatterlist.h>
#include <linux/virtio.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_poll.h>
#include <linux/workqueue.h>

/* So many segments fit into the scatterlist that is part of a request: up to 64 KiB of pages. */
#define PVBLK_INLINE_SG		16
#define PVBLK_PART_BITS		4
#define PVBLK_VQ_NAME_LEN	16

/* The driver writes these under vq->q.lock.  virtio_poll has the counters of polling. */
struct pvblk_stats {
	u64 submitted;
	u64 completed;
	u64 kicks_sent;
	u64 kicks_saved;	/* kicks that the device had said it does not need */
	u64 timeouts;
	u64 restarted;		/* requests sent again to a device that had stopped */
};

struct pvblk_vq {
	struct virtio_poll_queue q;	/* without a ring while suspended, or if not restored */
	struct pvblk_dev *dev;
	struct blk_mq_hw_ctx *hctx;
	unsigned int index;
	bool iopoll;			/* for IOPOLL: has no callback and no poller */
	bool stopped;			/* the driver stopped @hctx, because the ring was full */
	unsigned long answered;		/* jiffies when the last completions were found */
	struct work_struct reap;
	struct pvblk_stats stats;
	char name[PVBLK_VQ_NAME_LEN];
} ____cacheline_aligned_in_smp;

struct pvblk_dev {
	struct mutex vdev_mutex;	/* see the top of this file */
	struct mutex cache_mutex;	/* see the top of this file */
	struct mutex mode_mutex;	/* see the top of this file */
	struct virtio_device *vdev;	/* NULL once removed */
	struct gendisk *disk;
	struct blk_mq_tag_set tag_set;
	int index;			/* of the disk name and minors */

	struct virtio_poll_settings poll;
	bool removing;
	bool suspended;			/* its disk is quiesced, and it has no rings */
	bool cached;			/* whether the device is to cache after a reset */
	bool dead;			/* every request fails from now on */

	unsigned int ring_size;		/* the size for which tags and limits were made */
	unsigned int nr_vqs;
	unsigned int nr_queues[HCTX_MAX_TYPES];
	struct pvblk_vq *vqs;

	struct work_struct config_work;
	struct work_struct fail_work;
	struct work_struct restart_work;	/* see restart.c */
	struct notifier_block shutdown_nb;	/* see restart.c */
};

/* The driver's part of a request.  The block layer allocates it with the request. */
struct pvblk_req {
	struct virtio_blk_outhdr hdr;
	struct virtio_blk_discard_write_zeroes range;
	struct sg_table table;
	u8 status;			/* written by the device */
	struct scatterlist sg[PVBLK_INLINE_SG];
	/*
	 * The driver writes these two while the device has the request.  So they must not share a
	 * cache line with the status.  If DMA is not coherent, the CPU could write the line back
	 * and so overwrite the status.
	 */
	bool swallowed;			/* fault injection swallowed the completion */
	u8 removal_waits;		/* how often the request was late during removal */
};

/* Requests that pvblk_collect() took from a ring; pvblk_finish() completes them. */
struct pvblk_done {
	struct rq_list list;
	struct io_comp_batch *batch;	/* the batch to complete them in; NULL: one by one */
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
extern struct workqueue_struct *pvblk_wq;
bool pvblk_reset(struct virtio_device *vdev);
bool pvblk_reset_bare(struct virtio_device *vdev);
unsigned int pvblk_ring_size(struct pvblk_dev *dev);
int pvblk_bring_up(struct pvblk_dev *dev);
bool pvblk_take_down(struct pvblk_dev *dev);

/* claim.c: which devices the driver takes */
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
void pvblk_cache_restore(struct pvblk_dev *dev);
int pvblk_cache_restart(struct pvblk_dev *dev);

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
extern const struct virtio_poll_ops pvblk_poll_ops;
void pvblk_vq_callback(struct virtqueue *virtqueue);
void pvblk_reap_work(struct work_struct *work);
int pvblk_iopoll(struct blk_mq_hw_ctx *hctx, struct io_comp_batch *iob);
void pvblk_take_back(struct pvblk_vq *vq, struct rq_list *left, u64 *counter);
void pvblk_fail_work(struct work_struct *work);

/* restart.c: a device that has stopped */

/* virtio's core marks the rings of a device as broken if it goes, or if the system shuts down. */
static inline bool pvblk_device_broken(struct pvblk_dev *dev)
{
	struct virtqueue *vq = dev->vqs[0].q.vq;

	/* The ring is NULL if the device was not restored after a suspend. */
	return vq && virtqueue_is_broken(vq);
}

bool pvblk_has_stopped(struct virtio_device *vdev);
void pvblk_restart_work(struct work_struct *work);
void pvblk_restart_until_shutdown(struct pvblk_dev *dev);

/* sysfs.c */
extern const struct attribute_group *pvblk_groups[];
extern const char *const pvblk_mode_names[];

#endif /* _PVBLK_H */
