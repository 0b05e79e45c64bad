// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a vring: set up, start and stop; round.c is what it does.
 *
 * STOP first detaches the poller, then ends the worker, then drains in
 * stop_work, which has the owner's mm as the worker has, whoever called STOP:
 * the owner, or the task that closed the file last.
 */
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/topology.h>

#include "serve.h"

static void vserve_free_reqs(struct vserve_vring *vring)
{
	kvfree(vring->reqs);
	vring->reqs = NULL;
	vring->nr_reqs = 0;
}

static int vserve_alloc_reqs(struct vserve_vring *vring)
{
	int node = cpu_to_node(vhost_poller_cpu(vring->poller));
	unsigned int nr = vring->vq.num, i;

	vring->reqs = kvcalloc_node(nr, vring->ops->req_size,
				    GFP_KERNEL_ACCOUNT, node);
	if (!vring->reqs)
		return -ENOMEM;
	vring->nr_reqs = nr;
	for (i = 0; i < nr; i++) {
		struct vserve_req *req = vserve_slot(vring, i);

		req->vring = vring;
		req->head = i;
		INIT_WORK(&req->work, vserve_req_work);
	}
	return 0;
}

static int vserve_attach(struct vserve_vring *vring)
{
	vring->src.ops = &vserve_round_ops;
	vring->src.mm = vring->mm;
	return vhost_poll_attach(vring->poller, &vring->src);
}

/*
 * The caller that stops the vring later settles with the new poller only, so a thread of the
 * old one that sleeps in a request is waited for here.
 */
static void vserve_detach(struct vserve_vring *vring)
{
	vhost_poll_detach(&vring->src);
	mutex_lock(&vring->vq.mutex);
	vserve_signal(vring);
	mutex_unlock(&vring->vq.mutex);
	vhost_poll_settle(vring->poller, &vring->src);
}

static int vserve_check_target(struct vserve_vring *vring,
			       const struct vhost_poller *poller, u32 target)
{
	if (vring->ops->check_target)
		return vring->ops->check_target(vring, poller, target);
	return target == VHOST_SERVE_TARGET_AUTO ? 0 : -EOPNOTSUPP;
}

/**
 * vserve_vring_set - who serves a vring, and where it submits to
 * @vring: the device's mutex is held
 * @poller_fd: a poller
 * @target: for the device, or VHOST_SERVE_TARGET_AUTO
 * @weight: its share
 */
int vserve_vring_set(struct vserve_vring *vring, int poller_fd, u32 target,
		     u32 weight)
{
	struct vhost_poller *poller = vhost_poller_get(poller_fd);
	struct vhost_poller *old = vring->poller;
	int r;

	lockdep_assert_held(&vring->dev->vdev.mutex);
	if (IS_ERR(poller))
		return PTR_ERR(poller);
	r = vserve_check_target(vring, poller, target);
	if (r) {
		vhost_poller_put(poller);
		return r;
	}

	if (vring->running)
		vserve_detach(vring);
	mutex_lock(&vring->vq.mutex);
	vring->poller = poller;
	WRITE_ONCE(vring->poller_cpu, vhost_poller_cpu(poller));
	vring->target = target;
	vring->src.weight = weight ?: VSERVE_WEIGHT;
	mutex_unlock(&vring->vq.mutex);
	if (old)
		vhost_poller_put(old);
	return vring->running ? vserve_attach(vring) : 0;
}

/**
 * vserve_vring_drop_poller - the vring has no poller any more
 * @vring: stopped; the device's mutex is held
 */
void vserve_vring_drop_poller(struct vserve_vring *vring)
{
	if (vring->poller)
		vhost_poller_put(vring->poller);
	vring->poller = NULL;
	WRITE_ONCE(vring->poller_cpu, VSERVE_NO_CPU);
}

static int vserve_activate(struct vserve_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;
	int r;

	mutex_lock(&vq->mutex);
	r = -EFAULT;
	if (!vhost_vq_is_setup(vq) || vq->log_used)
		goto out;
	r = vserve_alloc_reqs(vring);
	if (r)
		goto out;
	vhost_vq_set_backend(vq, vring);
	r = vhost_vq_init_access(vq);
	if (r) {
		vhost_vq_set_backend(vq, NULL);
		vserve_free_reqs(vring);
		goto out;
	}
	vhost_disable_notify(vq->dev, vq);
	/* Else the poller goes by what was outstanding when it was stopped. */
	vserve_publish(vring);
	vring->calls = (struct vserve_calls) {};
	vring->broken = false;
	vring->full = false;
	vring->stopping = false;
	vring->running = true;
out:
	mutex_unlock(&vq->mutex);
	return r;
}

/**
 * vserve_vring_start - serve a vring
 * @vring: the device's mutex is held, by its owner
 */
int vserve_vring_start(struct vserve_vring *vring)
{
	const struct vserve_ops *ops = vring->ops;
	int r;

	lockdep_assert_held(&vring->dev->vdev.mutex);
	if (vring->running)
		return -EBUSY;
	if (!vring->poller)
		return -ENXIO;
	vring->mm = vring->dev->vdev.mm;
	if (!mmget_not_zero(vring->mm))
		return -ESRCH;
	r = ops->start ? ops->start(vring) : 0;
	if (r)
		goto put_mm;
	r = vserve_activate(vring);
	if (r)
		goto stop;
	r = vserve_attach(vring);
	if (!r)
		return 0;
	vserve_vring_stop(vring);
	return r;
stop:
	if (ops->stop)
		ops->stop(vring);
put_mm:
	mmput(vring->mm);
	vring->mm = NULL;
	return r;
}

/**
 * vserve_vring_stop - end the service; returns when nothing is in flight
 * @vring: running or not; the device's mutex is held
 */
void vserve_vring_stop(struct vserve_vring *vring)
{
	lockdep_assert_held(&vring->dev->vdev.mutex);
	if (!vring->running)
		return;
	vhost_poll_detach(&vring->src);

	mutex_lock(&vring->vq.mutex);
	vring->running = false;
	vring->stopping = true;
	mutex_unlock(&vring->vq.mutex);
	flush_work(&vring->work);
	if (vring->ops->quiesce)
		vring->ops->quiesce(vring);
	queue_work(vring->dev->ring_wq, &vring->stop_work);
	flush_work(&vring->stop_work);
	/* The last request may have ended in a thread that is still on its way out. */
	vhost_poll_settle(vring->poller, &vring->src);

	if (vring->ops->stop)
		vring->ops->stop(vring);
	mutex_lock(&vring->vq.mutex);
	vhost_vq_set_backend(&vring->vq, NULL);
	vring->vq.used_flags = 0;
	vserve_free_reqs(vring);
	mutex_unlock(&vring->vq.mutex);
	mmput(vring->mm);
	vring->mm = NULL;
}

/**
 * vserve_vring_init - a vring that is about to be set up first
 * @vring: zeroed
 * @dev: the device
 * @index: which one
 */
void vserve_vring_init(struct vserve_vring *vring, struct vserve_dev *dev,
		       unsigned int index)
{
	vring->dev = dev;
	vring->ops = dev->ops;
	vring->index = index;
	vring->poller_cpu = VSERVE_NO_CPU;
	vring->target = VHOST_SERVE_TARGET_AUTO;
	vring->src.weight = VSERVE_WEIGHT;
	vring->vq.handle_kick = vserve_handle_kick;
	init_llist_head(&vring->done);
	init_llist_head(&vring->reaped);
	vring->hot_last = &vring->hot;
	INIT_LIST_HEAD(&vring->pending);
	INIT_LIST_HEAD(&vring->inflight);
	INIT_LIST_HEAD(&vring->polled);
	INIT_LIST_HEAD(&vring->finished);
	INIT_WORK(&vring->work, vserve_worker);
	INIT_WORK(&vring->stop_work, vserve_drain);
	init_waitqueue_head(&vring->drain);
	atomic64_set(&vring->kicks, 0);
	if (vring->ops->init_vring)
		vring->ops->init_vring(vring);
}
