// SPDX-License-Identifier: GPL-2.0
/*
 * The module and the life of a device: probe, remove, freeze (suspend) and restore.  The data
 * path is in request.c and queue.c; virtio_poll has the threads that poll.
 */
#include "pvblk.h"

#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pci.h>
#include <linux/reboot.h>
#include <linux/virtio_ring.h>

#define CREATE_TRACE_POINTS
#include <trace/events/virtio_pvblk.h>

static unsigned int num_request_queues;
module_param(num_request_queues, uint, 0644);
MODULE_PARM_DESC(num_request_queues, "Maximum number of queues per device (default 0: one per CPU, plus poll_queues)");

static unsigned int poll_queues;
module_param(poll_queues, uint, 0644);
MODULE_PARM_DESC(poll_queues, "Number of queues per device that only io_uring's IOPOLL uses (default 0)");

static unsigned int queue_depth;
module_param(queue_depth, uint, 0444);
MODULE_PARM_DESC(queue_depth, "Maximum number of requests in flight per queue (default 0: as many as fit into the ring)");

static char *mode = "adaptive";
module_param(mode, charp, 0444);
MODULE_PARM_DESC(mode, "Polling mode of new disks: adaptive (default), busy or irq");

static unsigned int poll_max_us = 200;
module_param(poll_max_us, uint, 0644);
MODULE_PARM_DESC(poll_max_us, "Adaptive mode of new disks: poll for an answer if it is expected within this time (microseconds, default 200)");

static enum virtio_poll_mode pvblk_default_mode;

/*
 * This runs works that requests wait for, so it has a rescuer.  A suspend does not freeze it,
 * because the suspend itself waits for these works.
 */
struct workqueue_struct *pvblk_wq;

/*
 * The driver wants a queue for each CPU, and the queues for IOPOLL in addition.  If the device has
 * fewer, IOPOLL gets its queues first, but leaves at least one for other requests.
 */
static int pvblk_count_queues(struct pvblk_dev *dev)
{
	unsigned int n, poll;
	u16 offered = 1;

	virtio_cread_feature(dev->vdev, VIRTIO_BLK_F_MQ, struct virtio_blk_config,
			     num_queues, &offered);
	if (!offered) {
		dev_err(&dev->vdev->dev, "the device offers multiqueue but reports 0 queues; set at least 1 in the VMM\n");
		return -EINVAL;
	}
	poll = min(poll_queues, nr_cpu_ids);
	n = min3((unsigned int)offered, nr_cpu_ids + poll, num_request_queues ?: UINT_MAX);
	poll = min(poll, n - 1);
	dev->nr_queues[HCTX_TYPE_DEFAULT] = n - poll;
	dev->nr_queues[HCTX_TYPE_READ] = 0;
	dev->nr_queues[HCTX_TYPE_POLL] = poll;
	return n;
}

static int pvblk_alloc_vqs(struct pvblk_dev *dev)
{
	int n = pvblk_count_queues(dev);
	unsigned int i;

	if (n < 0)
		return n;
	dev->vqs = kcalloc(n, sizeof(*dev->vqs), GFP_KERNEL);
	if (!dev->vqs)
		return -ENOMEM;
	dev->nr_vqs = n;
	for (i = 0; i < n; i++) {
		struct pvblk_vq *vq = &dev->vqs[i];

		virtio_poll_init(&vq->q, &pvblk_poll_ops, &dev->poll);
		INIT_WORK(&vq->reap, pvblk_reap_work);
		vq->dev = dev;
		vq->index = i;
		vq->iopoll = i >= dev->nr_queues[HCTX_TYPE_DEFAULT];
		snprintf(vq->name, sizeof(vq->name), vq->iopoll ? "req_poll.%u" : "req.%u", i);
	}
	dev_info(&dev->vdev->dev, "%u queues, %u for IOPOLL\n", n, dev->nr_queues[HCTX_TYPE_POLL]);
	return 0;
}

/* Cancel the works that interrupts have queued.  No interrupt comes any more. */
static void pvblk_cancel_reaps(struct pvblk_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->nr_vqs; i++)
		cancel_work_sync(&dev->vqs[i].reap);
}

/*
 * Ask for one set of vectors, as the interrupt core does by default.  But without this callback the
 * core takes cpu_hotplug_lock.  While a CPU goes offline, a task holds that lock and waits for
 * requests, which may wait for a restart.  The restart must not wait for that lock in turn.
 */
static void pvblk_one_set(struct irq_affinity *desc, unsigned int vectors)
{
	desc->nr_sets = 1;
	desc->set_size[0] = vectors;
}

static int pvblk_find_vqs(struct pvblk_dev *dev)
{
	struct irq_affinity desc = { .calc_sets = pvblk_one_set };
	struct virtqueue_info *info;
	struct virtqueue **vqs;
	unsigned int i;
	int err = -ENOMEM;

	info = kcalloc(dev->nr_vqs, sizeof(*info), GFP_KERNEL);
	vqs = kcalloc(dev->nr_vqs, sizeof(*vqs), GFP_KERNEL);
	if (!info || !vqs)
		goto out;
	for (i = 0; i < dev->nr_vqs; i++) {
		info[i].name = dev->vqs[i].name;
		info[i].callback = dev->vqs[i].iopoll ? NULL : pvblk_vq_callback;
	}
	err = virtio_find_vqs(dev->vdev, dev->nr_vqs, vqs, info, &desc);
	if (err) {
		pvblk_cancel_reaps(dev);
		goto out;
	}
	for (i = 0; i < dev->nr_vqs; i++) {
		struct pvblk_vq *vq = &dev->vqs[i];

		virtio_poll_ring(&vq->q, vqs[i]);
		vq->answered = jiffies;
	}
	virtio_poll_bear_stray_interrupts(dev->vdev);
out:
	kfree(vqs);
	kfree(info);
	return err;
}

/**
 * pvblk_ring_size - how many entries every ring of a device has at least
 * @dev: the device, with its queues
 *
 * The rings of a device may differ in size, but the disk has one set of limits, and its queues have
 * one depth.
 *
 * Return: the size of the smallest ring.
 */
unsigned int pvblk_ring_size(struct pvblk_dev *dev)
{
	unsigned int i, size = virtqueue_get_vring_size(dev->vqs[0].q.vq);

	for (i = 1; i < dev->nr_vqs; i++)
		size = min(size, virtqueue_get_vring_size(dev->vqs[i].q.vq));
	return size;
}

/**
 * pvblk_reset - reset a device, so that it owns no memory
 * @vdev: the device
 *
 * The status of a device that is gone reads as all ones, which is no valid status.  Its transport
 * would wait for the reset for ever.  So the driver takes bus mastering from such a device instead.
 * Then the device does not write to freed memory if it comes back.
 *
 * Return: whether the device is there.
 */
bool pvblk_reset(struct virtio_device *vdev)
{
	struct device *parent = vdev->dev.parent;

	if (vdev->config->get_status(vdev) != 0xff) {
		virtio_reset_device(vdev);
		return true;
	}
	if (parent && dev_is_pci(parent))
		pci_clear_master(to_pci_dev(parent));
	return false;
}

/* Give a device bus mastering again, which pvblk_reset() may have taken.  Nothing else does. */
static void pvblk_allow_dma(struct virtio_device *vdev)
{
	struct device *parent = vdev->dev.parent;

	if (parent && dev_is_pci(parent))
		pci_set_master(to_pci_dev(parent));
}

/**
 * pvblk_reset_bare - reset a device that has no rings
 * @vdev: the device
 *
 * At each reset virtio_pci looks into the admin queue, but it freed that queue with the rings.  The
 * driver that had the device before may have accepted an admin queue, so this function clears the
 * feature first.
 *
 * Return: whether the device is there.
 */
bool pvblk_reset_bare(struct virtio_device *vdev)
{
	__virtio_clear_bit(vdev, VIRTIO_F_ADMIN_VQ);
	return pvblk_reset(vdev);
}

/*
 * Wait until no task uses the device's rings.  The device is reset, no request is in flight, and
 * none can come.  But a task may still be about to kick for a request that has ended long ago.  It
 * kicks within the section that blk_mq_wait_quiesce_done() waits for.
 */
static void pvblk_release_rings(struct pvblk_dev *dev)
{
	unsigned int i;

	blk_mq_wait_quiesce_done(&dev->tag_set);
	for (i = 0; i < dev->nr_vqs; i++)
		virtio_poll_release(&dev->vqs[i].q);
}

/**
 * pvblk_take_down - reset a device and free its rings
 * @dev: the device; no request is in flight, and none can come
 *
 * The reset comes first, because an interrupt handler may use the rings until then.
 *
 * Return: whether the device is there.
 */
bool pvblk_take_down(struct pvblk_dev *dev)
{
	/* A device that was suspended, or that failed to resume, has no rings. */
	bool there, rings = dev->vqs[0].q.vq;
	unsigned int i;

	cancel_work_sync(&dev->fail_work);
	if (rings)
		there = pvblk_reset(dev->vdev);
	else
		there = pvblk_reset_bare(dev->vdev);
	pvblk_release_rings(dev);
	if (rings)
		dev->vdev->config->del_vqs(dev->vdev);
	pvblk_cancel_reaps(dev);
	for (i = 0; i < dev->nr_vqs; i++)
		dev->vqs[i].q.vq = NULL;
	return there;
}

/**
 * pvblk_bring_up - set up a device that was reset for requests
 * @dev: the device, with its features; its queue is quiesced
 *
 * Return: 0, or -errno.  After an error the device has no rings.
 */
int pvblk_bring_up(struct pvblk_dev *dev)
{
	int err = pvblk_find_vqs(dev);

	if (err)
		return err;
	if (pvblk_ring_size(dev) < dev->ring_size) {
		dev_err(&dev->vdev->dev, "the device's rings became smaller than %u entries; restore its queue size in the VMM\n",
			dev->ring_size);
		pvblk_take_down(dev);
		return -EINVAL;
	}
	virtio_device_ready(dev->vdev);
	/* The configuration may have changed during the reset without an interrupt, so read it. */
	schedule_work(&dev->config_work);
	return 0;
}

static int pvblk_alloc_tags(struct pvblk_dev *dev)
{
	struct blk_mq_tag_set *set = &dev->tag_set;
	unsigned int depth = pvblk_ring_size(dev);

	dev->ring_size = depth;
	/* Without indirect descriptors a request takes at least two entries, mostly three. */
	if (!virtio_has_feature(dev->vdev, VIRTIO_RING_F_INDIRECT_DESC)) {
		if (depth < 3) {
			dev_err(&dev->vdev->dev, "the device's rings have %u entries, but a request needs 3; raise the queue size in the VMM\n",
				depth);
			return -EINVAL;
		}
		depth /= 2;
	}
	if (queue_depth)
		depth = min(depth, queue_depth);

	set->ops = &pvblk_mq_ops;
	set->queue_depth = max(depth, 1U);
	set->numa_node = NUMA_NO_NODE;
	/*
	 * For a disk with one queue the block layer would choose an I/O scheduler.  The host has
	 * its own scheduler, and with one here the block layer could not submit batches.
	 */
	set->flags = BLK_MQ_F_SHOULD_MERGE | BLK_MQ_F_NO_SCHED_BY_DEFAULT;
	set->cmd_size = sizeof(struct pvblk_req);
	set->driver_data = dev;
	set->nr_hw_queues = dev->nr_vqs;
	set->nr_maps = dev->nr_queues[HCTX_TYPE_POLL] ? HCTX_MAX_TYPES : 1;
	return blk_mq_alloc_tag_set(set);
}

/* Make the tags and the disk, and show it to users.  If that fails, the caller frees both. */
static int pvblk_make_disk(struct pvblk_dev *dev)
{
	int err;

	err = pvblk_alloc_tags(dev);
	if (!err)
		err = pvblk_disk_alloc(dev);
	if (err)
		return err;
	virtio_device_ready(dev->vdev);
	return device_add_disk(&dev->vdev->dev, dev->disk, pvblk_groups);
}

/*
 * Refuse the admin queue, which virtio's core accepts on behalf of each driver.  virtio_pci frees
 * that queue with the rings, but looks into it at each reset, and at a resume virtio's core resets
 * the device once more.
 */
static int pvblk_validate(struct virtio_device *vdev)
{
	__virtio_clear_bit(vdev, VIRTIO_F_ADMIN_VQ);
	return 0;
}

static int pvblk_probe(struct virtio_device *vdev)
{
	struct pvblk_dev *dev;
	int err;

	if (!vdev->config->get) {
		dev_err(&vdev->dev, "the device's transport gives no access to its configuration, so the driver cannot use it\n");
		return -EINVAL;
	}

	dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	if (!dev)
		return -ENOMEM;
	mutex_init(&dev->vdev_mutex);
	mutex_init(&dev->cache_mutex);
	mutex_init(&dev->mode_mutex);
	INIT_WORK(&dev->config_work, pvblk_config_work);
	INIT_WORK(&dev->fail_work, pvblk_fail_work);
	INIT_WORK(&dev->restart_work, pvblk_restart_work);
	dev->vdev = vdev;
	dev->poll.mode = pvblk_default_mode;
	dev->poll.max_us = min(poll_max_us, VIRTIO_POLL_MAX_US);
	vdev->priv = dev;
	pvblk_allow_dma(vdev);

	dev->index = pvblk_index_get();
	if (dev->index < 0) {
		err = dev->index;
		goto free_dev;
	}
	err = pvblk_alloc_vqs(dev);
	if (err)
		goto put_index;
	err = pvblk_find_vqs(dev);
	if (err)
		goto free_vqs;
	pvblk_restart_until_shutdown(dev);
	err = pvblk_make_disk(dev);
	if (!err) {
		/*
		 * Restart the device now if it has stopped, because virtio's core sets DRIVER_OK
		 * next, and that would hide it.
		 */
		queue_work(pvblk_wq, &dev->restart_work);
		flush_work(&dev->restart_work);
		return 0;
	}

	unregister_reboot_notifier(&dev->shutdown_nb);
	disable_work_sync(&dev->restart_work);
	flush_work(&dev->config_work);
	pvblk_take_down(dev);
	/* The disk was never added, so put_disk() does not call ->free_disk(). */
	if (dev->disk)
		put_disk(dev->disk);
	if (dev->tag_set.tags)
		blk_mq_free_tag_set(&dev->tag_set);
free_vqs:
	kfree(dev->vqs);
put_index:
	pvblk_index_put(dev->index);
free_dev:
	kfree(dev);
	return err;
}

static void pvblk_remove(struct virtio_device *vdev)
{
	struct pvblk_dev *dev = vdev->priv;

	/* From now on pvblk_timeout() fails the requests of a silent device. */
	WRITE_ONCE(dev->removing, true);
	unregister_reboot_notifier(&dev->shutdown_nb);
	disable_work_sync(&dev->restart_work);
	flush_work(&dev->config_work);
	/* The device was pulled out, so it answers nothing. */
	if (pvblk_device_broken(dev))
		queue_work(pvblk_wq, &dev->fail_work);
	/* The device did not resume.  Requests have waited since then, so let them fail. */
	if (dev->suspended) {
		WRITE_ONCE(dev->dead, true);
		blk_mq_unquiesce_queue(dev->disk->queue);
	}

	del_gendisk(dev->disk);

	mutex_lock(&dev->vdev_mutex);
	pvblk_take_down(dev);
	blk_mq_free_tag_set(&dev->tag_set);
	dev->vdev = NULL;
	mutex_unlock(&dev->vdev_mutex);

	put_disk(dev->disk);
}

static void pvblk_config_changed(struct virtio_device *vdev)
{
	struct pvblk_dev *dev = vdev->priv;

	/* Use a workqueue that is not freezable, because pvblk_freeze() waits for the work. */
	schedule_work(&dev->config_work);
}

#ifdef CONFIG_PM_SLEEP
/* A suspend freezes tasks before devices, so find the completions of IOPOLL tasks for them. */
static void pvblk_collect_for_iopoll(struct pvblk_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->nr_vqs; i++)
		if (dev->vqs[i].iopoll)
			pvblk_iopoll(dev->vqs[i].hctx, NULL);
}

/*
 * Wait for the requests in flight, and make new ones wait.  There is a time limit, because a device
 * that does not answer must not hang the suspend of the whole system.
 */
static bool pvblk_quiesce(struct pvblk_dev *dev)
{
	struct request_queue *q = dev->disk->queue;
	unsigned long end = jiffies + q->rq_timeout;
	int left;

	blk_freeze_queue_start(q);
	do {
		left = blk_mq_freeze_queue_wait_timeout(q, HZ / 20);
		if (!left)
			pvblk_collect_for_iopoll(dev);
	} while (!left && time_before(jiffies, end));
	/* Quiesce before the queue is unfrozen, so that no task dispatches a request in between. */
	if (left)
		blk_mq_quiesce_queue(q);
	blk_mq_unfreeze_queue(q);
	return left;
}

static int pvblk_freeze(struct virtio_device *vdev)
{
	struct pvblk_dev *dev = vdev->priv;

	/* The last resume did not get as far as pvblk_restore(), so the device has no rings. */
	if (dev->suspended)
		return 0;
	if (!pvblk_quiesce(dev)) {
		dev_err(&vdev->dev, "cannot suspend, because the device did not answer all requests within io_timeout; check the disk on the host\n");
		return -EBUSY;
	}

	disable_work_sync(&dev->restart_work);
	flush_work(&dev->config_work);
	pvblk_take_down(dev);
	dev->suspended = true;
	return 0;
}

static int pvblk_restore(struct virtio_device *vdev)
{
	struct pvblk_dev *dev = vdev->priv;
	int err;

	err = pvblk_bring_up(dev);
	if (!err)
		pvblk_cache_restore(dev);
	else	/* Without rings the device answers nothing.  Removal must not wait for it. */
		WRITE_ONCE(dev->dead, true);
	dev->suspended = false;
	enable_work(&dev->restart_work);
	blk_mq_unquiesce_queue(dev->disk->queue);
	return err;
}
#endif

/*
 * VIRTIO_BLK_F_ZONED is missing, because the driver does not support zones.  A host-managed zoned
 * device does not come up without this feature, so it stays with virtio_blk.
 */
static unsigned int pvblk_features[] = {
	VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_GEOMETRY,
	VIRTIO_BLK_F_RO, VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_FLUSH,
	VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_MQ,
	VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_F_SECURE_ERASE,
};

struct virtio_driver pvblk_driver = {
	.feature_table		= pvblk_features,
	.feature_table_size	= ARRAY_SIZE(pvblk_features),
	.driver.name		= "virtio_pvblk",
	.id_table		= pvblk_id_table,
	.validate		= pvblk_validate,
	.probe			= pvblk_probe,
	.remove			= pvblk_remove,
	.config_changed		= pvblk_config_changed,
#ifdef CONFIG_PM_SLEEP
	.freeze			= pvblk_freeze,
	.restore		= pvblk_restore,
#endif
};

static int __init pvblk_init(void)
{
	int err = match_string(pvblk_mode_names, VIRTIO_POLL_BUSY + 1, mode);

	if (err < 0) {
		pr_err("virtio_pvblk: mode=%s is unknown; use adaptive, busy or irq\n", mode);
		return -EINVAL;
	}
	pvblk_default_mode = err;

	pvblk_wq = alloc_workqueue("virtio_pvblk", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!pvblk_wq)
		return -ENOMEM;
	err = pvblk_disk_module_init();
	if (err)
		goto destroy_wq;
	err = register_virtio_driver(&pvblk_driver);
	if (err)
		goto exit_disk;
	err = pvblk_claim_init();
	if (err)
		goto unregister;
	return 0;

unregister:
	unregister_virtio_driver(&pvblk_driver);
exit_disk:
	pvblk_disk_module_exit();
destroy_wq:
	destroy_workqueue(pvblk_wq);
	return err;
}

static void __exit pvblk_exit(void)
{
	pvblk_claim_exit();
	unregister_virtio_driver(&pvblk_driver);
	pvblk_disk_module_exit();
	destroy_workqueue(pvblk_wq);
}

module_init(pvblk_init);
module_exit(pvblk_exit);

/*
 * The module has no MODULE_DEVICE_TABLE, because udev must not load it for devices that it will not
 * take.
 */
MODULE_DESCRIPTION("Polling driver for virtio block devices");
MODULE_LICENSE("GPL");
