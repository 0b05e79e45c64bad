// SPDX-License-Identifier: GPL-2.0
/*
 * The device's write cache, and whether the block layer flushes it.
 *
 * As long as a write that the device reported as done may be in its cache, flushes have to reach
 * the device.  So the driver turns BLK_FEAT_WRITE_CACHE on before it tells the device to cache.  It
 * turns the feature off only after it has told the device not to cache, and has flushed it.  The
 * device promises nothing about requests that it had when it was told (virtio 1.2, 5.2.6.2).  So
 * the driver waits for these requests before it flushes.
 *
 * dev->cache_mutex lets one task at a time change the mode.
 */
#include "pvblk.h"

/**
 * pvblk_cache_mode - whether the device has a volatile write cache
 * @vdev: the device
 *
 * Return: true for write back.
 */
bool pvblk_cache_mode(struct virtio_device *vdev)
{
	u8 wce;

	/* A device without this field that knows flush has something to flush, so it caches. */
	if (virtio_cread_feature(vdev, VIRTIO_BLK_F_CONFIG_WCE,
				 struct virtio_blk_config, wce, &wce))
		return virtio_has_feature(vdev, VIRTIO_BLK_F_FLUSH);
	return wce;
}

static void pvblk_tell_device(struct pvblk_dev *dev, bool writeback)
{
	lockdep_assert_held(&dev->mode_mutex);
	virtio_cwrite8(dev->vdev, offsetof(struct virtio_blk_config, wce), writeback);
}

static bool pvblk_flushes(struct pvblk_dev *dev)
{
	return dev->disk->queue->limits.features & BLK_FEAT_WRITE_CACHE;
}

/* FREEZE: wait for the requests in flight, and change the limits while none is in flight. */
static int pvblk_set_flushes(struct pvblk_dev *dev, bool on, bool freeze)
{
	struct request_queue *q = dev->disk->queue;
	struct queue_limits lim;

	lockdep_assert_held(&dev->cache_mutex);
	lim = queue_limits_start_update(q);
	if (on)
		lim.features |= BLK_FEAT_WRITE_CACHE;
	else
		lim.features &= ~BLK_FEAT_WRITE_CACHE;
	if (freeze)
		return queue_limits_commit_update_frozen(q, &lim);
	return queue_limits_commit_update(q, &lim);
}

/*
 * Turn flushes off, unless the device caches again.  It may do so, because a restart may have set
 * its mode meanwhile.
 */
static int pvblk_turn_flushes_off(struct pvblk_dev *dev)
{
	struct request_queue *q = dev->disk->queue;
	int err = 0;

	/* The freeze waits for requests, so it comes before mode_mutex. */
	blk_mq_freeze_queue(q);
	mutex_lock(&dev->mode_mutex);
	if (!pvblk_cache_mode(dev->vdev))
		err = pvblk_set_flushes(dev, false, false);
	mutex_unlock(&dev->mode_mutex);
	blk_mq_unfreeze_queue(q);
	return err;
}

/* The device does not cache any more, so flush it and turn flushes off. */
static int pvblk_stop_flushing(struct pvblk_dev *dev)
{
	struct request_queue *q = dev->disk->queue;
	int err;

	lockdep_assert_held(&dev->cache_mutex);
	/*
	 * While root has turned flushes off (queue/write_cache), the block layer sends none, so the
	 * driver cannot flush the device, and the feature stays on.
	 */
	if (!pvblk_flushes(dev) || !bdev_write_cache(dev->disk->part0))
		return 0;
	blk_mq_freeze_queue(q);
	blk_mq_unfreeze_queue(q);
	err = blkdev_issue_flush(dev->disk->part0);
	return err ?: pvblk_turn_flushes_off(dev);
}

/* Returns whether the device caches now. */
static bool pvblk_change_mode(struct pvblk_dev *dev, bool writeback)
{
	mutex_lock(&dev->mode_mutex);
	pvblk_tell_device(dev, writeback);
	dev->cached = pvblk_cache_mode(dev->vdev);
	mutex_unlock(&dev->mode_mutex);
	return dev->cached;
}

/**
 * pvblk_cache_set - change the mode
 * @dev: the device, which offers VIRTIO_BLK_F_CONFIG_WCE
 * @writeback: whether it is to have a volatile write cache
 *
 * The device may keep its mode, so the driver reads it back.
 *
 * Return: 0, or -errno.  After an error the block layer goes on flushing.
 */
int pvblk_cache_set(struct pvblk_dev *dev, bool writeback)
{
	int err = 0;

	mutex_lock(&dev->cache_mutex);
	if (writeback)
		err = pvblk_set_flushes(dev, true, true);
	if (!err && !pvblk_change_mode(dev, writeback))
		err = pvblk_stop_flushing(dev);
	mutex_unlock(&dev->cache_mutex);
	return err;
}

/**
 * pvblk_cache_restore - give a device its mode from before a reset
 * @dev: the device; its queue is quiesced, and nothing is in flight
 *
 * The driver does not ask the device for that mode, because the device may have stopped before the
 * reset, and have forgotten its mode.
 *
 * If the device caches although it was told not to, the driver turns flushes on.
 */
void pvblk_cache_restore(struct pvblk_dev *dev)
{
	bool cached = dev->cached;

	mutex_lock(&dev->cache_mutex);
	if (virtio_has_feature(dev->vdev, VIRTIO_BLK_F_CONFIG_WCE))
		cached = pvblk_change_mode(dev, cached);
	/* Do not freeze the queue: a freeze would wait for requests that cannot run. */
	if (cached && !pvblk_flushes(dev) && pvblk_set_flushes(dev, true, false))
		dev_err(&dev->vdev->dev, "the device caches writes, but flushes cannot be turned on; synced data may be lost, unmount the disk and bind it again\n");
	mutex_unlock(&dev->cache_mutex);
}

/**
 * pvblk_cache_restart - set a mode in which the driver may send requests again
 * @dev: the device, reset; its queue is quiesced, and its mode_mutex held
 *
 * While flushes were off, the block layer dropped the flushes that belong to requests.  A device
 * with a write cache must not get these requests.  To turn flushes on now would be too late for
 * them.
 *
 * Return: 0, or -EIO if the device caches although the disk is not flushed.
 */
int pvblk_cache_restart(struct pvblk_dev *dev)
{
	bool flushes = pvblk_flushes(dev);

	lockdep_assert_held(&dev->mode_mutex);
	if (virtio_has_feature(dev->vdev, VIRTIO_BLK_F_CONFIG_WCE))
		pvblk_tell_device(dev, dev->cached && flushes);
	return pvblk_cache_mode(dev->vdev) && !flushes ? -EIO : 0;
}
