// SPDX-License-Identifier: GPL-2.0
/*
 * A device that has stopped is started anew.
 *
 * The rule
 * --------
 * A device that is there, but without DRIVER_OK in its status or with NEEDS_RESET, has stopped:
 * it forgot its rings, and what it has of requests is never answered.  A device does that if its
 * bus mastering was taken away for a while, or if it found an error of its own.  The status is
 * read when a request is late, so a device that is only slow is never taken for one that stopped,
 * and one that stops again and again is started once in io_timeout at most.
 *
 * Such a device is reset, has its rings set up anew, and each request that it left unanswered is
 * given back to the block layer, which sends it again.  After the reset the device does nothing
 * any more of what it had, so no old write comes after a new one.  A write that it had done before
 * is done twice; nobody can have written the same place meanwhile, because its end was not told.
 *
 * While it has no rings:
 * - No request comes, because the queue is quiesced, and none is in flight, so no poller and no
 *   caller of bio_poll() turns to a ring.
 * - No timeout comes: the requests are given back before, so a later one finds none in flight,
 *   and flush_work() waits for one that is at work.
 * - The cache mode stays, because mode_mutex is held: a device that is told meanwhile would
 *   forget it.  See pvblk_cache_restart() for what it has afterwards.
 * - The device stays: removal, suspend and a probe that fails turn the work off, and wait for it,
 *   before they take the rings down.
 *
 * Everything may wait for a disk that is being restarted: memory that is reclaimed, a CPU that
 * goes offline, and who changes limits or the cache mode and waits for requests.  So no memory is
 * allocated by way of I/O here, the workqueue has a rescuer, and none of the locks of these is
 * taken: cpu_hotplug_lock (pvblk_one_set()), the queue's limits lock, cache_mutex.
 */
#include "pvblk.h"

#include <linux/pci.h>
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
 * One that is gone (its status reads as all ones) has not, nor one that may not reach memory:
 * that was taken from it on purpose.
 */
bool pvblk_has_stopped(struct virtio_device *vdev)
{
	u8 status = vdev->config->get_status(vdev);

	return status != 0xff && pvblk_is_bus_master(vdev) &&
	       (!(status & VIRTIO_CONFIG_S_DRIVER_OK) || status & VIRTIO_CONFIG_S_NEEDS_RESET);
}

/* The device was reset: requests that it answered before end, the others go to AGAIN. */
static void pvblk_take_back(struct pvblk_vq *vq, struct rq_list *again)
{
	struct pvblk_done done = {};
	struct pvblk_req *r;

	local_bh_disable();
	spin_lock(&vq->q.lock);
	pvblk_queue_collect(vq, &done.list);
	while ((r = virtqueue_detach_unused_buf(vq->q.vq))) {
		rq_list_add_tail(again, blk_mq_rq_from_pdu(r));
		vq->q.inflight--;
		vq->stats.restarted++;
	}
	/* The policy is not to learn how long this took. */
	vq->q.wait_start = 0;
	pvblk_queue_restart(vq, NULL);
	spin_unlock(&vq->q.lock);
	pvblk_finish(&done);
	local_bh_enable();
}

/* They are not in flight after that; they are sent once the queue is not quiesced. */
static void pvblk_send_later(struct rq_list *again)
{
	struct request *req;

	while ((req = rq_list_pop(again))) {
		pvblk_unprep(req);
		blk_mq_requeue_request(req, false);
	}
}

/* It has no rings; its queue is quiesced. */
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

	dev_warn(&dev->vdev->dev, "the device has stopped: reset it, and send its requests again\n");
	blk_mq_quiesce_queue(q);
	there = pvblk_reset(dev->vdev);
	for (i = 0; i < dev->nr_vqs; i++)
		pvblk_take_back(&dev->vqs[i], &again);
	pvblk_send_later(&again);
	flush_work(&q->timeout_work);
	/* One that was gone for a moment has lost its bus mastering, see pvblk_reset(). */
	there &= pvblk_take_down(dev);
	err = there ? pvblk_start_anew(dev) : -ENODEV;
	if (err) {
		dev_err(&dev->vdev->dev, "the device cannot be restarted: error %d\n", err);
		WRITE_ONCE(dev->dead, true);
	}
	blk_mq_unquiesce_queue(q);
	blk_mq_kick_requeue_list(q);
}

/* Queued by pvblk_timeout(). */
void pvblk_restart_work(struct work_struct *work)
{
	struct pvblk_dev *dev = container_of(work, struct pvblk_dev, restart_work);

	unsigned int noio;

	if (READ_ONCE(dev->dead) || !pvblk_has_stopped(dev->vdev))
		return;
	noio = memalloc_noio_save();
	mutex_lock(&dev->mode_mutex);
	pvblk_restart(dev);
	mutex_unlock(&dev->mode_mutex);
	memalloc_noio_restore(noio);
}
