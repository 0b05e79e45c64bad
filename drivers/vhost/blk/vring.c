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

#include "blk.h"

static void free_reqs(struct vblk_vring *vring)
{
	unsigned int i;

	for (i = 0; i < vring->nr_reqs; i++)
		kvfree(vring->reqs[i].big_bvec);
	kvfree(vring->reqs);
	kvfree(vring->large_bvec);
	vring->large_bvec = NULL;
	vring->max_large_bvec = 0;
	vring->reqs = NULL;
	vring->nr_reqs = 0;
}

static int alloc_reqs(struct vblk_vring *vring)
{
	int node = cpu_to_node(vhost_poller_cpu(vring->poller));
	unsigned int nr = vring->vq.num, i;

	vring->reqs = kvcalloc_node(nr, sizeof(*vring->reqs),
				    GFP_KERNEL_ACCOUNT, node);
	if (!vring->reqs)
		return -ENOMEM;
	vring->nr_reqs = nr;
	for (i = 0; i < nr; i++) {
		vring->reqs[i].vring = vring;
		vring->reqs[i].head = i;
	}
	return 0;
}

static int attach(struct vblk_vring *vring)
{
	vring->src.ops = &vblk_round_ops;
	vring->src.mm = vring->mm;
	return vhost_poll_attach(vring->poller, &vring->src);
}

/**
 * vblk_vring_set - who serves a vring, and which context it submits to
 * @vring: the device's mutex is held
 * @poller_fd: a poller
 * @hctx: a hardware context, or VHOST_BLK_HCTX_AUTO
 * @weight: its share
 */
int vblk_vring_set(struct vblk_vring *vring, int poller_fd, u32 hctx,
		   u32 weight)
{
	struct vhost_poller *poller = vhost_poller_get(poller_fd);
	struct vhost_poller *old = vring->poller;
	int r;

	lockdep_assert_held(&vring->dev->vdev.mutex);
	if (IS_ERR(poller))
		return PTR_ERR(poller);
	r = vblk_mq_check_hctx(vring, poller, hctx);
	if (r) {
		vhost_poller_put(poller);
		return r;
	}

	if (vring->running)
		vhost_poll_detach(&vring->src);
	mutex_lock(&vring->vq.mutex);
	vring->poller = poller;
	WRITE_ONCE(vring->poller_cpu, vhost_poller_cpu(poller));
	vring->hctx_wanted = hctx;
	vring->src.weight = weight ?: VBLK_WEIGHT;
	mutex_unlock(&vring->vq.mutex);
	if (old)
		vhost_poller_put(old);
	return vring->running ? attach(vring) : 0;
}

/**
 * vblk_vring_drop_poller - the vring is not served by anybody any more
 * @vring: stopped; the device's mutex is held
 */
void vblk_vring_drop_poller(struct vblk_vring *vring)
{
	if (vring->poller)
		vhost_poller_put(vring->poller);
	vring->poller = NULL;
	WRITE_ONCE(vring->poller_cpu, VBLK_NO_CPU);
}

static int activate(struct vblk_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;
	int r;

	mutex_lock(&vq->mutex);
	r = -EFAULT;
	if (!vhost_vq_is_setup(vq) || vq->log_used)
		goto out;
	r = alloc_reqs(vring);
	if (r)
		goto out;
	vhost_vq_set_backend(vq, vring);
	r = vhost_vq_init_access(vq);
	if (r) {
		vhost_vq_set_backend(vq, NULL);
		free_reqs(vring);
		goto out;
	}
	vhost_disable_notify(vq->dev, vq);
	/* Else the poller goes by what was outstanding when it was stopped. */
	vblk_publish(vring);
	vring->broken = false;
	vring->pin = false;
	vring->stopping = false;
	vring->running = true;
out:
	mutex_unlock(&vq->mutex);
	return r;
}

/**
 * vblk_vring_start - serve a vring
 * @vring: the device's mutex is held, by its owner
 */
int vblk_vring_start(struct vblk_vring *vring)
{
	struct vblk_bind *bind;
	int r;

	lockdep_assert_held(&vring->dev->vdev.mutex);
	if (vring->running)
		return -EBUSY;
	if (!vring->poller)
		return -ENXIO;
	bind = vblk_bind_alloc(vring->dev);
	if (!bind)
		return -ENOMEM;
	vring->mm = vring->dev->vdev.mm;
	if (!mmget_not_zero(vring->mm)) {
		r = -ESRCH;
		goto free;
	}
	vblk_bind_use(vring, bind);
	r = activate(vring);
	if (r)
		goto put;
	r = attach(vring);
	if (!r)
		return 0;
	vblk_vring_stop(vring);
	return r;
put:
	vblk_bind_use(vring, NULL);
	mmput(vring->mm);
	return r;
free:
	kfree(bind);
	return r;
}

/**
 * vblk_vring_stop - end the service; returns when nothing is in flight
 * @vring: running or not; the device's mutex is held
 */
void vblk_vring_stop(struct vblk_vring *vring)
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
	queue_work(vring->dev->ring_wq, &vring->stop_work);
	flush_work(&vring->stop_work);

	mutex_lock(&vring->vq.mutex);
	vhost_vq_set_backend(&vring->vq, NULL);
	vring->vq.used_flags = 0;
	free_reqs(vring);
	mutex_unlock(&vring->vq.mutex);
	vblk_bind_use(vring, NULL);
	mmput(vring->mm);
	vring->mm = NULL;
}

/**
 * vblk_vring_init - a vring that is about to be set up first
 * @vring: zeroed
 * @dev: the device
 * @index: which one
 */
void vblk_vring_init(struct vblk_vring *vring, struct vblk_dev *dev,
		     unsigned int index)
{
	vring->dev = dev;
	vring->index = index;
	vring->poller_cpu = VBLK_NO_CPU;
	vring->hctx_wanted = VHOST_BLK_HCTX_AUTO;
	vring->hctx_used = VHOST_BLK_HCTX_AUTO;
	vring->src.weight = VBLK_WEIGHT;
	vring->vq.handle_kick = vblk_handle_kick;
	init_llist_head(&vring->done);
	init_llist_head(&vring->reaped);
	INIT_LIST_HEAD(&vring->pending);
	INIT_LIST_HEAD(&vring->inflight);
	INIT_LIST_HEAD(&vring->finished);
	INIT_WORK(&vring->work, vblk_worker);
	INIT_WORK(&vring->stop_work, vblk_drain);
	init_waitqueue_head(&vring->drain);
	atomic64_set(&vring->kicks, 0);
}
