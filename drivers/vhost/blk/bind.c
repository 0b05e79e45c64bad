// SPDX-License-Identifier: GPL-2.0
/*
 * Bindings: what the requests of a vring hold of the device, and how the
 * device's backend and pins are replaced while vrings run.
 *
 * In two steps, so that it happens for all vrings or for none: what can fail
 * is done before the first of them changes over.
 *
 * A backend that was replaced may have answered writes that are not on its
 * medium.  The guest knows nothing of the change, and its next flush is to
 * cover them: dev->replaced has these backends until they were flushed after
 * their last request.  dev->flush_lock guards it and dev->backend, and is held
 * while they are flushed.  dev->flush_owed says, without the lock, whether there
 * is anything to flush but the backend: it is true before a new backend can be
 * seen, and false only after the last one was flushed.
 */
#include "blk.h"

static int vblk_flush_one(struct vblk_backend *be)
{
	return be->read_only ? 0 : be->engine->flush(be);
}

/* With flush_lock: there will be nothing more to flush. */
static void vblk_drop_replaced(struct vblk_backend *be)
{
	list_del(&be->replaced);
	vblk_backend_put(be);
}

/* With flush_lock: what is left. */
static void vblk_settle(struct vblk_dev *dev)
{
	WRITE_ONCE(dev->flush_owed,
		   dev->flush_failed || !list_empty(&dev->replaced));
}

static int vblk_flush_all(struct vblk_dev *dev)
{
	struct vblk_backend *be, *next;
	int r = 0, one;

	mutex_lock(&dev->flush_lock);
	if (dev->backend)
		r = vblk_flush_one(dev->backend);
	list_for_each_entry_safe(be, next, &dev->replaced, replaced) {
		bool last = !atomic_read(&be->binds);

		one = vblk_flush_one(be);
		r = r ?: one;
		if (last)
			vblk_drop_replaced(be);
	}
	if (dev->flush_failed)
		r = r ?: -EIO;
	dev->flush_failed = false;
	vblk_settle(dev);
	mutex_unlock(&dev->flush_lock);
	return r;
}

/*
 * The guest may have seen answers from all backends so far, so it is not enough to flush that
 * of @req, unless it is the only one.
 */
static bool vblk_one_is_enough(const struct vblk_req *req)
{
	struct vblk_dev *dev = vblk_dev_of(vblk_vring_of(req));

	/* Pairs with the release in vblk_replace_backend(). */
	return req->bind->backend == smp_load_acquire(&dev->backend) &&
	       !READ_ONCE(dev->flush_owed);
}

/**
 * vblk_submit_flush - begin a flush in the poller
 * @req: VIRTIO_BLK_T_FLUSH; the vring's mutex is held
 *
 * Return: false if a worker has to do it, by vblk_flush().
 */
bool vblk_submit_flush(struct vblk_req *req)
{
	const struct vblk_backend *be = req->bind->backend;

	return be->engine->submit_flush && !be->read_only && vblk_one_is_enough(req) &&
	       be->engine->submit_flush(req);
}

/**
 * vblk_flush - what was answered before is on the medium after
 * @req: VIRTIO_BLK_T_FLUSH, in a worker
 */
int vblk_flush(struct vblk_req *req)
{
	if (vblk_one_is_enough(req))
		return vblk_flush_one(req->bind->backend);
	return vblk_flush_all(vblk_dev_of(vblk_vring_of(req)));
}

/* What nobody uses any more; the guest's next flush says if it failed. */
static void vblk_flush_unused(struct vblk_dev *dev)
{
	struct vblk_backend *be, *next;

	mutex_lock(&dev->flush_lock);
	list_for_each_entry_safe(be, next, &dev->replaced, replaced) {
		if (atomic_read(&be->binds))
			continue;
		if (vblk_flush_one(be))
			dev->flush_failed = true;
		vblk_drop_replaced(be);
	}
	vblk_settle(dev);
	mutex_unlock(&dev->flush_lock);
}

static void vblk_free_bind(struct work_struct *work)
{
	struct vblk_bind *bind = container_of(work, struct vblk_bind,
					      free_work);
	struct vblk_backend *be = bind->backend;

	if (be && atomic_dec_and_test(&be->binds))
		vblk_flush_unused(bind->dev);
	vblk_backend_put(be);
	vblk_pins_put(bind->pins);
	kfree(bind);
}

/**
 * vblk_bind_put - a request needs its binding no more
 * @bind: under the vring's mutex; the last user of a replaced one frees it
 */
void vblk_bind_put(struct vblk_bind *bind)
{
	if (--bind->users)
		return;
	/* Letting go of pages and files takes locks the poller must not. */
	queue_work(bind->dev->base.wq, &bind->free_work);
}

/**
 * vblk_bind_alloc - a binding to nothing yet
 * @dev: the device
 */
struct vblk_bind *vblk_bind_alloc(struct vblk_dev *dev)
{
	struct vblk_bind *bind = kzalloc(sizeof(*bind), GFP_KERNEL_ACCOUNT);

	if (!bind)
		return NULL;
	INIT_WORK(&bind->free_work, vblk_free_bind);
	/* The vring that is to use it. */
	bind->users = 1;
	bind->dev = dev;
	return bind;
}

static void vblk_fill(struct vblk_bind *bind, u64 features)
{
	struct vblk_dev *dev = bind->dev;

	bind->backend = dev->backend;
	if (bind->backend) {
		kref_get(&bind->backend->ref);
		atomic_inc(&bind->backend->binds);
		bind->backend->used = true;
		vblk_backend_limits(bind->backend, features, &bind->limits);
	}
	bind->pins = dev->pins;
	if (bind->pins)
		kref_get(&bind->pins->ref);
}

/**
 * vblk_bind_use - have new requests use what the device has now
 * @vring: the device's mutex is held
 * @bind: from vblk_bind_alloc(), or NULL: there are no new requests
 */
void vblk_bind_use(struct vblk_vring *vring, struct vblk_bind *bind)
{
	struct vblk_bind *old;

	lockdep_assert_held(&vring->base.dev->vdev.mutex);
	if (bind)
		vblk_fill(bind, vring->base.vq.acked_features);
	mutex_lock(&vring->base.vq.mutex);
	old = vring->bind;
	vring->bind = bind;
	if (old)
		vblk_bind_put(old);
	mutex_unlock(&vring->base.vq.mutex);
}

/**
 * vblk_rebind_cancel - nothing is replaced after all
 * @dev: after vblk_rebind_begin()
 */
void vblk_rebind_cancel(struct vblk_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->base.vdev.nvqs; i++) {
		struct vblk_vring *vring = to_vblk_vring(dev->base.vrings[i]);

		kfree(vring->next_bind);
		vring->next_bind = NULL;
	}
}

/**
 * vblk_rebind_begin - backend or pins are about to be replaced
 * @dev: its mutex is held until vblk_rebind_end() or vblk_rebind_cancel()
 */
int vblk_rebind_begin(struct vblk_dev *dev)
{
	unsigned int i;

	lockdep_assert_held(&dev->base.vdev.mutex);
	for (i = 0; i < dev->base.vdev.nvqs; i++) {
		struct vblk_vring *vring = to_vblk_vring(dev->base.vrings[i]);

		if (!vring->base.reqs)
			continue;
		vring->next_bind = vblk_bind_alloc(dev);
		if (!vring->next_bind) {
			vblk_rebind_cancel(dev);
			return -ENOMEM;
		}
	}
	return 0;
}

/**
 * vblk_rebind_end - backend or pins were replaced; cannot fail
 * @dev: after vblk_rebind_begin()
 */
void vblk_rebind_end(struct vblk_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->base.vdev.nvqs; i++) {
		struct vblk_vring *vring = to_vblk_vring(dev->base.vrings[i]);

		if (!vring->next_bind)
			continue;
		vblk_bind_use(vring, vring->next_bind);
		vring->next_bind = NULL;
		vhost_poll_wake(&vring->base.src);
	}
	vblk_flush_unused(dev);
}

/**
 * vblk_replace_backend - between vblk_rebind_begin() and vblk_rebind_end()
 * @dev: its mutex is held
 * @be: the new one, or NULL; the device's from now on
 */
void vblk_replace_backend(struct vblk_dev *dev, struct vblk_backend *be)
{
	struct vblk_backend *old = dev->backend;

	mutex_lock(&dev->flush_lock);
	if (old && old->used)
		list_add_tail(&old->replaced, &dev->replaced);
	vblk_settle(dev);
	/* Pairs with the acquire in vblk_flush(). */
	smp_store_release(&dev->backend, be);
	WRITE_ONCE(dev->engine_id, be ? be->engine_id : VHOST_BLK_ENGINE_AUTO);
	mutex_unlock(&dev->flush_lock);
	if (old && !old->used)
		vblk_backend_put(old);
}

/**
 * vblk_forget_replaced - the guest is gone, and its flushes with it
 * @dev: all vrings are stopped, and their bindings gone
 */
void vblk_forget_replaced(struct vblk_dev *dev)
{
	vblk_flush_unused(dev);
	mutex_lock(&dev->flush_lock);
	dev->flush_failed = false;
	vblk_settle(dev);
	mutex_unlock(&dev->flush_lock);
}
