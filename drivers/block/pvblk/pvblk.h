/* SPDX-License-Identifier: GPL-2.0 */
/*
 * virtio_pvblk: a driver for virtio-blk devices that polls for completions.
 *
 * virtio_poll's threads poll the rings (virtio_poll.h).  Queues for io_uring's IOPOLL are
 * outside that, because the task that waits polls them.
 *
 * Locking
 * -------
 * vq->q.lock: the ring and everything of its queue.  Taken with bottom halves
 *   off and never from hard interrupts, so the driver itself never runs with
 *   interrupts off; for a guest that matters, because an interrupt that comes
 *   in meanwhile (a tick) costs the host another exit to find the moment when
 *   it can be delivered.  Two queues share no lock.
 * dev->vdev_mutex: dev->vdev against removal, for openers that outlive it.
 * dev->cache_mutex: changes of the cache mode, one after the other; see cache.c.  Its holder
 *   may wait for requests.
 * dev->mode_mutex: what the device is told of its mode, and dev->cached.  Its holder waits for
 *   no request, because a restart, which requests wait for, takes it.  Inside cache_mutex, and
 *   outside the queue's limits lock.
 * dev->poll: no lock; read afresh for each wait and each poll.
 * dev->suspended: no lock; the tasks that could bind or unbind are frozen while the
 *   device is frozen and restored.
 * dev->removing, dev->dead: no lock, they go from false to true once.  If a request misses that,
 *   its timeout handler looks again.
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

/* Segments whose scatterlist is part of the request: up to 64 KiB of pages. */
#define PVBLK_INLINE_SG		16
#define PVBLK_PART_BITS		4
#define PVBLK_VQ_NAME_LEN	16

/* Written under vq->q.lock; the counters of polling are virtio_poll's. */
struct pvblk_stats {
	u64 submitted;
	u64 completed;
	u64 kicks_sent;
	u64 kicks_saved;	/* the device said it needs none */
	u64 timeouts;
	u64 restarted;		/* sent again to a device that had stopped */
};

struct pvblk_vq {
	struct virtio_poll_queue q;	/* no ring while suspended, or not restored */
	struct pvblk_dev *dev;
	struct blk_mq_hw_ctx *hctx;
	unsigned int index;
	bool iopoll;			/* no callback, no poller */
	bool stopped;			/* the ring was full; hctx is stopped */
	unsigned long answered;		/* jiffies, of the last completions */
	struct work_struct reap;
	struct pvblk_stats stats;
	char name[PVBLK_VQ_NAME_LEN];
} ____cacheline_aligned_in_smp;

struct pvblk_dev {
	struct mutex vdev_mutex;	/* see the top of this file */
	struct mutex cache_mutex;
	struct mutex mode_mutex;	/* these two likewise */
	struct virtio_device *vdev;	/* NULL once removed */
	struct gendisk *disk;
	struct blk_mq_tag_set tag_set;
	int index;			/* of the disk name and minors */

	struct virtio_poll_settings poll;
	bool removing;
	bool suspended;			/* quiesced, and without rings */
	bool cached;			/* the cache mode that a reset device is to have */
	bool dead;			/* every request fails from now on */

	unsigned int ring_size;		/* what tags and limits were made for */
	unsigned int nr_vqs;
	unsigned int nr_queues[HCTX_MAX_TYPES];
	struct pvblk_vq *vqs;

	struct work_struct config_work;
	struct work_struct fail_work;
	struct work_struct restart_work;	/* see restart.c */
	struct notifier_block shutdown_nb;	/* likewise */
};

/* The driver's part of a request.  The block layer allocates it with the request. */
struct pvblk_req {
	struct virtio_blk_outhdr hdr;
	struct virtio_blk_discard_write_zeroes range;
	struct sg_table table;
	u8 status;			/* written by the device */
	struct scatterlist sg[PVBLK_INLINE_SG];
	/*
	 * Written while the device has the request, so not on the line of its status: where
	 * DMA is not coherent, writing the line back would overwrite that.
	 */
	bool swallowed;			/* completion swallowed by fault injection */
	u8 removal_waits;		/* timeouts of the request during removal */
};

/* Requests that pvblk_collect() took from a ring; pvblk_finish() completes them. */
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
extern struct workqueue_struct *pvblk_wq;
bool pvblk_reset(struct virtio_device *vdev);
bool pvblk_reset_bare(struct virtio_device *vdev);
unsigned int pvblk_ring_size(struct pvblk_dev *dev);
int pvblk_bring_up(struct pvblk_dev *dev);
bool pvblk_take_down(struct pvblk_dev *dev);

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

/* The core breaks the rings of a device that goes, or that it shuts down. */
static inline bool pvblk_device_broken(struct pvblk_dev *dev)
{
	struct virtqueue *vq = dev->vqs[0].q.vq;

	/* NULL: it was not restored after a suspend. */
	return vq && virtqueue_is_broken(vq);
}

bool pvblk_has_stopped(struct virtio_device *vdev);
void pvblk_restart_work(struct work_struct *work);
void pvblk_restart_until_shutdown(struct pvblk_dev *dev);

/* sysfs.c */
extern const struct attribute_group *pvblk_groups[];
extern const char *const pvblk_mode_names[];

#endif /* _PVBLK_H */
