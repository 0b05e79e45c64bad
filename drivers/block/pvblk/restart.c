// SPDX-License-Identifier: GPL-2.0
/*
 * A device that has stopped is started anew.
 *
 * The rule
 * --------
 * A device has stopped if its status lacks DRIVER_OK or has NEEDS_RESET.  It has forgotten its
 * rings, and never answers the requests that it had.  That happens when its bus mastering is
 * taken away for a while, or when it finds an error of its own.  The driver reads the status when
 * a request is late.  So a slow device is never restarted, and a device that keeps stopping is
 * restarted at most once in io_timeout.
 *
 * The driver resets the device, sets up its rings, and gives the unanswered requests back to the
 * block layer, which sends them again.  A reset device does not touch old requests any more, so no
 * old write lands after a new one.  The device may carry out a write twice.  That is harmless:
 * its submitter has not seen it end, so it has not written the same place again.
 *
 * While the device has no rings:
 * - No request arrives, because the queue is quiesced.  None is in flight, so neither a poller
 *   nor bio_poll() looks at a ring.
 * - No timeout handler runs, because the restart disables the work that calls it.  It would look
 *   at a ring, and while requests are given back, it would change their rq_flags as well.  Many
 *   requests are late together, so the handler that asked for the restart goes on to the next one
 *   meanwhile.  Waiting for it is not enough, because the timer may start the work again.
 * - Nothing changes the cache mode, because the restart holds mode_mutex; the device would
 *   forget the change.  pvblk_cache_restart() sets the mode afterwards.
 * - Removal, suspend and a failing probe do not take the rings down, because they disable the
 *   work and wait for it first.
 * - The system does not shut down.  At shutdown virtio's core resets the device, without a lock and
 *   without asking the driver, and nothing may set the device to work again, because it could write
 *   into the next kernel's memory.  So a reboot notifier disables the work and waits for it.
 *
 * Memory reclaim, CPU hotplug and changes of limits or cache mode may all wait for requests of
 * this disk, and so for the restart.  Therefore it allocates without I/O, its workqueue has a
 * rescuer, and it never takes cpu_hotplug_lock (see pvblk_one_set()), the limits lock or
 * cache_mutex.
 */
#include "pvblk.h"

#include <linux/pci.h>
#include <linux/reboot.h>
#include <linux/sched/mm.h>
#include <linux/virtio_renegotiate.h>

static bool pvblk_is_bus_master(struct virtio_device *vdev)
{
	struct device *parent = vdev->dev.parent;
	u16 command;

	if (!parent || !dev_is_pci(parent))
		return true;
	return !pci_read_config_word(to_pci_dev(parent), PCI_COMMAND, &command) &&
	       command & PCI_COMMAND_MASTER;
}

/**
 * pvblk_has_stopped - whether a device answers nothing until it is started anew
 * @vdev: the device
 *
 * A device that is gone (its status reads as all ones) has not.  Nor has one without bus mastering,
 * because that was taken from it on purpose.
 */
bool pvblk_has_stopped(struct virtio_device *vdev)
{
	u8 status = vdev->config->get_status(vdev);

	return status != 0xff && pvblk_is_bus_master(vdev) &&
	       (!(status & VIRTIO_CONFIG_S_DRIVER_OK) || status & VIRTIO_CONFIG_S_NEEDS_RESET);
}

/*
 * Give requests back to the block layer, which sends them again when the queue is unquiesced.  No
 * timeout handler runs meanwhile.
 */
static void pvblk_send_later(struct rq_list *again)
{
	struct request *req;

	while ((req = rq_list_pop(again))) {
		pvblk_unprep(req);
		blk_mq_requeue_request(req, false);
	}
}

/* A timer may have run out while the work was disabled, so queue the work now. */
static void pvblk_enable_timeouts(struct request_queue *q)
{
	enable_work(&q->timeout_work);
	kblockd_schedule_work(&q->timeout_work);
}

/* The device has no rings, and its queue is quiesced. */
static int pvblk_start_anew(struct pvblk_dev *dev)
{
	int err = virtio_renegotiate(dev->vdev);

	if (!err)
		err = pvblk_bring_up(dev);
	if (!err) {
		err = pvblk_cache_restart(dev);
		if (err)
			pvblk_take_down(dev);
	}
	return err;
}

static void pvblk_restart(struct pvblk_dev *dev)
{
	struct request_queue *q = dev->disk->queue;
	struct rq_list again = {};
	unsigned int i;
	bool there;
	int err;

	dev_warn(&dev->vdev->dev, "the device has stopped: resetting it, and sending its requests again\n");
	blk_mq_quiesce_queue(q);
	disable_work_sync(&q->timeout_work);
	there = pvblk_reset(dev->vdev);
	for (i = 0; i < dev->nr_vqs; i++)
		pvblk_take_back(&dev->vqs[i], &again, &dev->vqs[i].stats.restarted);
	pvblk_send_later(&again);
	/* pvblk_reset() has taken bus mastering from a device that was gone for a moment. */
	there &= pvblk_take_down(dev);
	err = there ? pvblk_start_anew(dev) : -ENODEV;
	if (err) {
		dev_err(&dev->vdev->dev, "cannot restart the device (error %d): all I/O fails until a driver is bound to it again\n",
			err);
		WRITE_ONCE(dev->dead, true);
	}
	pvblk_enable_timeouts(q);
	blk_mq_unquiesce_queue(q);
	blk_mq_kick_requeue_list(q);
}

static int pvblk_shutdown(struct notifier_block *nb, unsigned long action, void *data)
{
	struct pvblk_dev *dev = container_of(nb, struct pvblk_dev, shutdown_nb);

	disable_work_sync(&dev->restart_work);
	return NOTIFY_DONE;
}

/**
 * pvblk_restart_until_shutdown - let no restart run while the system shuts down
 * @dev: the device
 *
 * unregister_reboot_notifier() ends it.
 */
void pvblk_restart_until_shutdown(struct pvblk_dev *dev)
{
	dev->shutdown_nb.notifier_call = pvblk_shutdown;
	/* This notifier runs last, because others write to their disks (md does). */
	dev->shutdown_nb.priority = INT_MIN;
	register_reboot_notifier(&dev->shutdown_nb);
}

/* pvblk_timeout() and pvblk_probe() queue this. */
void pvblk_restart_work(struct work_struct *work)
{
	struct pvblk_dev *dev = container_of(work, struct pvblk_dev, restart_work);
	unsigned int noio;

	if (READ_ONCE(dev->dead) || !pvblk_has_stopped(dev->vdev))
		return;
	/* Looked at last, because a shutdown breaks the rings before it resets the device. */
	if (pvblk_device_broken(dev)) {
		queue_work(pvblk_wq, &dev->fail_work);
		return;
	}
	noio = memalloc_noio_save();
	mutex_lock(&dev->mode_mutex);
	pvblk_restart(dev);
	mutex_unlock(&dev->mode_mutex);
	memalloc_noio_restore(noio);
}
