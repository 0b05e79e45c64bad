// SPDX-License-Identifier: GPL-2.0
/*
 * The driver restarts a device that has stopped.
 *
 * The rule
 * --------
 * A device has stopped if its status lacks DRIVER_OK or has NEEDS_RESET.  Such a device has
 * forgotten its rings, and never answers the requests that it had.  A device stops if its bus
 * mastering is taken away for a while, or if it finds an error of its own.
 *
 * The driver reads the status when a request is late.  So it never restarts a device that is only
 * slow, and it restarts a device that keeps stopping at most once in io_timeout.
 *
 * The driver resets the device, sets up its rings, and gives the unanswered requests back to the
 * block layer, which sends them again.  After the reset the device does not touch old requests any
 * more, so no old write lands after a new one.  The device may carry out a write twice.  That is
 * harmless, because the submitter has not seen the write end, and so has not written the same place
 * again.
 *
 * While the device has no rings
 * -----------------------------
 * - No request arrives, because the queue is quiesced.  None is in flight, so neither a poller
 *   nor bio_poll() reads a ring.
 * - No timeout handler runs, because the restart disables the work that calls it.  The handler
 *   would read a ring, and would change rq_flags of requests while the restart gives these back.
 *   It may be running now: many requests are late together, so the work that asked for the restart
 *   goes on to the next request.  To wait for the work is not enough, because the timer may start
 *   it again.
 * - No task changes the cache mode, because the restart holds mode_mutex.  The device would forget
 *   the change.  pvblk_cache_restart() sets the mode afterwards.
 * - Removal, suspend and a failing probe do not take the rings down.  They first disable the
 *   restart's work and wait for it.
 * - The system does not shut down.  At shutdown virtio's core resets the device without a lock, and
 *   without asking the driver.  After that the driver must not set the device to work again,
 *   because it could write into the next kernel's memory.  So a reboot notifier disables the
 *   restart's work and waits for it.
 *
 * Tasks that wait for the restart
 * -------------------------------
 * Memory reclaim, CPU hotplug, and changes of limits or cache mode may wait for requests of this
 * disk, and so for the restart.  Therefore the restart allocates without I/O, its workqueue has a
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
 * A device that is gone (its status reads as all ones) has not stopped.  Nor has a device without
 * bus mastering, because that was taken from it on purpose.
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

/* The timer may have run out while its work was disabled, so queue the work now. */
static void pvblk_enable_timeouts(struct request_queue *q)
{
	enable_work(&q->timeout_work);
	kblockd_schedule_work(&q->timeout_work);
}

/* Set the device up again.  It has no rings, and its queue is quiesced. */
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

	dev_warn(&dev->vdev->dev, "the device stopped; resetting it and sending its requests again\n");
	blk_mq_quiesce_queue(q);
	disable_work_sync(&q->timeout_work);
	there = pvblk_reset(dev->vdev);
	for (i = 0; i < dev->nr_vqs; i++)
		pvblk_take_back(&dev->vqs[i], &again, &dev->vqs[i].stats.restarted);
	pvblk_send_later(&again);
	/* Do not start a device that pvblk_reset() found gone: it has lost bus mastering. */
	there &= pvblk_take_down(dev);
	err = there ? pvblk_start_anew(dev) : -ENODEV;
	if (err) {
		dev_err(&dev->vdev->dev, "cannot restart the device: error %d; all I/O fails until you unbind the device and bind it again\n",
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
 * unregister_reboot_notifier() undoes this.
 */
void pvblk_restart_until_shutdown(struct pvblk_dev *dev)
{
	dev->shutdown_nb.notifier_call = pvblk_shutdown;
	/* This notifier is to run last, because others still write to their disks (md does). */
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
	/* Check this after the status, because a shutdown breaks the rings before the reset. */
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
