// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a virtio-fs device: probe, removal, suspend, and giving it up.
 *
 * The queues are up from probe to removal, but not while the device is suspended.
 *
 * The driver gives the device up if the device breaks its ring, asks for a reset, or does not
 * answer.  The driver then resets it, ends the requests in flight with -EIO, and ends each later
 * one with -ENOTCONN.  After umount, the next mount restarts the device.
 *
 * A mount may outlive its device, because the connection holds a reference to struct pvfs_dev.
 */
#include "pvfs.h"

#include <linux/module.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/virtio_renegotiate.h>
#include <linux/virtio_ring.h>

/* See Locking in pvfs.h. */
static DEFINE_MUTEX(pvfs_devs_mutex);
static LIST_HEAD(pvfs_devs);

static void pvfs_dev_free(struct kref *ref)
{
	struct pvfs_dev *dev = container_of(ref, struct pvfs_dev, ref);
	unsigned int i;

	pvfs_locks_free(dev);
	pvfs_hiprio_free(dev);
	for (i = 0; dev->queues && i < dev->nr_queues; i++)
		pvfs_queue_free(&dev->queues[i]);
	kfree(dev->queues);
	kfree(dev->map);
	kfree(dev);
}

void pvfs_dev_put(struct pvfs_dev *dev)
{
	kref_put(&dev->ref, pvfs_dev_free);
}

static struct pvfs_dev *pvfs_dev_find_locked(const char *tag)
{
	struct pvfs_dev *dev;

	list_for_each_entry(dev, &pvfs_devs, node)
		if (!strcmp(dev->tag, tag))
			return dev;
	return NULL;
}

/**
 * pvfs_dev_find - find the device that has a tag
 * @tag: the tag
 *
 * Return: the device with a reference for the caller, or NULL.
 */
struct pvfs_dev *pvfs_dev_find(const char *tag)
{
	struct pvfs_dev *dev;

	mutex_lock(&pvfs_devs_mutex);
	dev = pvfs_dev_find_locked(tag);
	if (dev)
		kref_get(&dev->ref);
	mutex_unlock(&pvfs_devs_mutex);
	return dev;
}

/* Reserve the tag.  A mount that takes dev->lock before probe does gets -ENODEV. */
static int pvfs_dev_list(struct pvfs_dev *dev)
{
	int err = 0;

	mutex_lock(&pvfs_devs_mutex);
	if (pvfs_dev_find_locked(dev->tag)) {
		dev_err(&dev->vdev->dev, "the tag %s belongs to another device; give each device its own tag in the VMM\n",
			dev->tag);
		err = -EEXIST;
	} else {
		list_add_tail(&dev->node, &pvfs_devs);
	}
	mutex_unlock(&pvfs_devs_mutex);
	return err;
}

static void pvfs_dev_unlist(struct pvfs_dev *dev)
{
	mutex_lock(&pvfs_devs_mutex);
	list_del_init(&dev->node);
	mutex_unlock(&pvfs_devs_mutex);
}

static bool pvfs_dev_live(struct pvfs_dev *dev)
{
	lockdep_assert_held(&dev->lock);
	return dev->up && dev->queues[0].live;
}

/*
 * Reset a device, so that it owns no memory.  The status of a device that is gone reads as all
 * ones, and its transport would wait for the reset for ever.  So the driver takes bus mastering
 * from such a device instead.  Then the device does not write to freed memory if it comes back.
 */
static void pvfs_reset(struct virtio_device *vdev)
{
	struct device *parent = vdev->dev.parent;

	if (vdev->config->get_status(vdev) != 0xff)
		virtio_reset_device(vdev);
	else if (parent && dev_is_pci(parent))
		pci_clear_master(to_pci_dev(parent));
}

/*
 * Give a device bus mastering, which pvfs_reset() may have taken from it.  The device was reset, so
 * it has forgotten all addresses that this driver, or an earlier one, gave it.
 */
static void pvfs_allow_dma(struct virtio_device *vdev)
{
	struct device *parent = vdev->dev.parent;

	if (parent && dev_is_pci(parent))
		pci_set_master(to_pci_dev(parent));
}

/*
 * Refuse new requests, and end those in flight.  After the grace period no caller polls, and no
 * task is about to kick.  After the reset the device does not write to the memory of requests.
 */
static void pvfs_stop(struct pvfs_dev *dev)
{
	unsigned int i;

	lockdep_assert_held(&dev->lock);
	if (!pvfs_dev_live(dev))
		return;
	pvfs_hiprio_stop(dev);
	for (i = 0; i < dev->nr_queues; i++)
		pvfs_queue_stop(&dev->queues[i]);
	synchronize_rcu();
	pvfs_reset(dev->vdev);
	pvfs_hiprio_empty(dev);
	for (i = 0; i < dev->nr_queues; i++) {
		pvfs_queue_empty(&dev->queues[i]);
		virtio_poll_release(&dev->queues[i].poll);
	}
	if (!dev->fc)
		return;
	pvfs_queue_drop_pending(&dev->queues[0], &dev->fc->iq);
	/* Let the core end its unsent background requests, and wake tasks that wait to send. */
	fuse_abort_conn(dev->fc);
}

static void pvfs_del_vqs(struct pvfs_dev *dev)
{
	unsigned int i;

	/*
	 * virtio_pci clears the affinity hint of an interrupt that belongs to one queue, but not of
	 * one that queues share.  free_irq() warns if a hint is left.
	 */
	for (i = 0; i < dev->nr_queues; i++)
		virtqueue_set_affinity(dev->queues[i].poll.vq, NULL);
	dev->vdev->config->del_vqs(dev->vdev);
	dev->up = false;
}

static void pvfs_down(struct pvfs_dev *dev)
{
	pvfs_stop(dev);
	if (dev->up)
		pvfs_del_vqs(dev);
	else	/* The device failed to resume. */
		pvfs_reset(dev->vdev);
}

static void pvfs_fail_work(struct work_struct *work)
{
	struct pvfs_dev *dev = container_of(work, struct pvfs_dev, fail_work);

	mutex_lock(&dev->lock);
	if (pvfs_dev_live(dev)) {
		dev_err(&dev->vdev->dev, "resetting the device; all requests fail until %s is unmounted and mounted again\n",
			dev->tag);
		pvfs_stop(dev);
		dev->given_up = true;
	}
	mutex_unlock(&dev->lock);
}

static int pvfs_find_vqs(struct pvfs_dev *dev)
{
	unsigned int i, n = dev->nr_queues + 1;
	struct virtqueue_info *info;
	struct virtqueue **vqs;
	int err = -ENOMEM;

	info = kcalloc(n, sizeof(*info), GFP_KERNEL);
	vqs = kcalloc(n, sizeof(*vqs), GFP_KERNEL);
	if (!info || !vqs)
		goto out;
	/* The hiprio queue has no callback, see hiprio.c. */
	info[PVFS_HIPRIO].name = "hiprio";
	for (i = 1; i < n; i++) {
		info[i].name = dev->queues[i - 1].name;
		info[i].callback = pvfs_queue_callback;
	}
	/* NULL: the kernel does not spread the interrupts, pvfs_map_cpus() says why. */
	err = virtio_find_vqs(dev->vdev, n, vqs, info, NULL);
	if (err)
		goto out;
	dev->hiprio.vq = vqs[PVFS_HIPRIO];
	for (i = 1; i < n; i++)
		virtio_poll_ring(&dev->queues[i - 1].poll, vqs[i]);
	virtio_poll_bear_stray_interrupts(dev->vdev);
	dev->up = true;
out:
	kfree(vqs);
	kfree(info);
	return err;
}

/*
 * Give each CPU a queue, and direct the interrupt of each queue to one of the queue's CPUs.
 *
 * The kernel could spread the interrupts over the CPUs itself (struct irq_affinity).  But then it
 * would shut the interrupt of a queue down when the last of the queue's CPUs goes offline.  Block
 * drivers want that, because they have drained the queue before.  A request of pvfs may be in
 * flight for hours, if it waits for a lock.  So pvfs sets the affinity, and the kernel moves the
 * interrupt to another CPU.  When a CPU of the queue comes back, the interrupt stays where it is,
 * which costs only speed.
 *
 * If queues share an interrupt, it goes to the CPUs of the last one.
 */
static void pvfs_map_cpus(struct pvfs_dev *dev)
{
	unsigned int i, cpu;
	cpumask_var_t mask;

	for_each_possible_cpu(cpu)
		dev->map[cpu] = cpu % dev->nr_queues;
	/* Without a mask the interrupt may go to any CPU, which costs only speed. */
	if (dev->nr_queues == 1 || !alloc_cpumask_var(&mask, GFP_KERNEL))
		return;
	for (i = 0; i < dev->nr_queues; i++) {
		cpumask_clear(mask);
		for_each_possible_cpu(cpu)
			if (dev->map[cpu] == i)
				cpumask_set_cpu(cpu, mask);
		virtqueue_set_affinity(dev->queues[i].poll.vq, mask);
	}
	free_cpumask_var(mask);
}

/* Find the size of the smallest ring, because a request may go into any of them. */
static int pvfs_size_rings(struct pvfs_dev *dev)
{
	unsigned int i;
	int err;

	dev->ring_size = UINT_MAX;
	for (i = 0; i < dev->nr_queues; i++)
		dev->ring_size = min(dev->ring_size,
				     virtqueue_get_vring_size(dev->queues[i].poll.vq));
	if (dev->ring_size < PVFS_RING_MIN) {
		dev_err(&dev->vdev->dev, "the device's rings have %u entries, but pvfs needs %u; raise the queue size in the VMM\n",
			dev->ring_size, PVFS_RING_MIN);
		return -EINVAL;
	}
	for (i = 0; i < dev->nr_queues; i++) {
		err = pvfs_queue_alloc(&dev->queues[i]);
		if (err)
			return err;
	}
	return 0;
}

static int pvfs_up(struct pvfs_dev *dev)
{
	unsigned int i;
	int err;

	err = pvfs_find_vqs(dev);
	if (err)
		return err;
	pvfs_map_cpus(dev);
	err = pvfs_size_rings(dev);
	if (err) {
		pvfs_reset(dev->vdev);
		pvfs_del_vqs(dev);
		return err;
	}
	virtio_device_ready(dev->vdev);
	pvfs_hiprio_start(dev);
	for (i = 0; i < dev->nr_queues; i++)
		pvfs_queue_start(&dev->queues[i]);
	dev->given_up = false;
	return 0;
}

/**
 * pvfs_dev_revive - start a device anew if it was given up
 * @dev: the device; dev->lock is held
 *
 * Return: 0 if the device can be used, -EBUSY if it was given up and is still mounted, another
 * error if it is gone or does not start.
 */
int pvfs_dev_revive(struct pvfs_dev *dev)
{
	struct virtio_device *vdev = dev->vdev;
	int err;

	if (pvfs_dev_live(dev))
		return 0;
	/* A device that was not given up is being probed or removed, or it failed to resume. */
	if (!vdev || !dev->given_up || vdev->config->get_status(vdev) == 0xff)
		return -ENODEV;
	if (dev->fc)
		return -EBUSY;
	pvfs_down(dev);
	virtio_reset_device(vdev);
	pvfs_allow_dma(vdev);
	err = virtio_renegotiate(vdev);
	if (!err)
		err = pvfs_up(dev);
	if (err)
		dev_err(&vdev->dev, "cannot restart the device: error %d; mount it again, or restart the VM\n",
			err);
	return err;
}

static int pvfs_read_config(struct pvfs_dev *dev)
{
	u32 queues;

	virtio_cread_bytes(dev->vdev, offsetof(struct virtio_fs_config, tag), dev->tag,
			   PVFS_TAG_LEN);
	virtio_cread_le(dev->vdev, struct virtio_fs_config, num_request_queues, &queues);
	/* A line break in the tag would spoil the files in sysfs, and the table of mounts. */
	if (!dev->tag[0] || strchr(dev->tag, '\n')) {
		dev_err(&dev->vdev->dev, "the device's tag is empty or has a line break; set another tag in the VMM\n");
		return -EINVAL;
	}
	if (!queues) {
		dev_err(&dev->vdev->dev, "the device has no request queue; give it at least one in the VMM\n");
		return -EINVAL;
	}
	dev->nr_queues = min(queues, nr_cpu_ids);
	return 0;
}

static int pvfs_alloc_queues(struct pvfs_dev *dev)
{
	unsigned int i;

	dev->map = kcalloc(nr_cpu_ids, sizeof(*dev->map), GFP_KERNEL);
	dev->queues = kcalloc(dev->nr_queues, sizeof(*dev->queues), GFP_KERNEL);
	if (!dev->map || !dev->queues) {
		kfree(dev->queues);
		dev->queues = NULL;
		return -ENOMEM;
	}
	for (i = 0; i < dev->nr_queues; i++) {
		dev->queues[i].dev = dev;
		dev->queues[i].index = i;
		pvfs_queue_init(&dev->queues[i]);
	}
	return pvfs_hiprio_init(dev);
}

/*
 * Refuse two features.
 *
 * Indirect descriptors: each request would allocate a table.  So a request takes one entry of the
 * ring for each of its segments.
 *
 * An admin queue: virtio's core accepts it on behalf of each driver.  virtio_pci frees that queue
 * together with the rings, but looks into it at each reset.  pvfs_dev_revive() and a resume reset
 * the device after its rings were freed.
 */
static int pvfs_validate(struct virtio_device *vdev)
{
	__virtio_clear_bit(vdev, VIRTIO_RING_F_INDIRECT_DESC);
	__virtio_clear_bit(vdev, VIRTIO_F_ADMIN_VQ);
	return 0;
}

static int pvfs_probe(struct virtio_device *vdev)
{
	struct pvfs_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	int err;

	if (!dev)
		return -ENOMEM;
	kref_init(&dev->ref);
	mutex_init(&dev->lock);
	INIT_LIST_HEAD(&dev->node);
	pvfs_timeout_init(dev);
	pvfs_locks_init(dev);
	pvfs_closes_init(dev);
	INIT_WORK(&dev->fail_work, pvfs_fail_work);
	dev->vdev = vdev;
	vdev->priv = dev;
	/* virtio's core has reset the device. */
	pvfs_allow_dma(vdev);

	err = pvfs_read_config(dev);
	if (!err)
		err = pvfs_alloc_queues(dev);
	if (!err)
		err = pvfs_dev_list(dev);
	if (!err) {
		mutex_lock(&dev->lock);
		err = pvfs_up(dev);
		mutex_unlock(&dev->lock);
	}
	if (err) {
		pvfs_dev_unlist(dev);
		vdev->priv = NULL;
		pvfs_dev_put(dev);
	}
	return err;
}

static void pvfs_remove(struct virtio_device *vdev)
{
	struct pvfs_dev *dev = vdev->priv;

	pvfs_dev_unlist(dev);
	mutex_lock(&dev->lock);
	pvfs_down(dev);
	dev->vdev = NULL;
	mutex_unlock(&dev->lock);
	cancel_work_sync(&dev->fail_work);
	vdev->priv = NULL;
	pvfs_dev_put(dev);
}

/* Give the device up if it says that it needs a reset. */
static void pvfs_config_changed(struct virtio_device *vdev)
{
	struct pvfs_dev *dev = vdev->priv;

	if (vdev->config->get_status(vdev) & VIRTIO_CONFIG_S_NEEDS_RESET)
		queue_work(pvfs_fail_wq, &dev->fail_work);
}

#ifdef CONFIG_PM_SLEEP
/*
 * Refuse to suspend a device that is mounted.  After the resume the server would have to have the
 * same files open as before, and no server says that it keeps them.
 */
static int pvfs_freeze(struct virtio_device *vdev)
{
	struct pvfs_dev *dev = vdev->priv;
	int err = 0;

	mutex_lock(&dev->lock);
	if (dev->fc) {
		dev_err(&vdev->dev, "cannot suspend the device while %s is mounted; unmount it first\n",
			dev->tag);
		err = -EBUSY;
	} else {
		pvfs_down(dev);
	}
	mutex_unlock(&dev->lock);
	return err;
}

static int pvfs_restore(struct virtio_device *vdev)
{
	struct pvfs_dev *dev = vdev->priv;
	int err;

	mutex_lock(&dev->lock);
	err = pvfs_up(dev);
	mutex_unlock(&dev->lock);
	return err;
}
#endif

static const struct virtio_device_id pvfs_id_table[] = {
	{ VIRTIO_ID_FS, VIRTIO_DEV_ANY_ID },
	{}
};

struct virtio_driver pvfs_driver = {
	.driver.name		= "pvfs",
	.driver.dev_groups	= pvfs_groups,
	.id_table		= pvfs_id_table,
	.validate		= pvfs_validate,
	.probe			= pvfs_probe,
	.remove			= pvfs_remove,
	.config_changed		= pvfs_config_changed,
#ifdef CONFIG_PM_SLEEP
	.freeze			= pvfs_freeze,
	.restore		= pvfs_restore,
#endif
};
