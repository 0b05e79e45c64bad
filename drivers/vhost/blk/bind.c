// SPDX-License-Identifier: GPL-2.0
/*
 * Bindings.  The requests of a vring hold the device's pin table by the vring's binding, so that
 * VHOST_SET_MEM_TABLE can replace the table while vrings run.
 *
 * A replacement has two steps, so that it happens for all vrings or for none: the first does all
 * that can fail, and the second changes the vrings over.
 */
#include "blk.h"

static void vblk_free_bind(struct work_struct *work)
{
	struct vblk_bind *bind = container_of(work, struct vblk_bind,
					      free_work);

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
	/* Letting go of pages takes locks the poller must not. */
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

/**
 * vblk_bind_use - have new requests use the pins that the device has now
 * @vring: the device's mutex is held
 * @bind: from vblk_bind_alloc(), or NULL: there are no new requests
 */
void vblk_bind_use(struct vblk_vring *vring, struct vblk_bind *bind)
{
	struct vblk_bind *old;

	lockdep_assert_held(&vring->base.dev->vdev.mutex);
	if (bind)
		bind->pins = vblk_pins_get(bind->dev->pins);
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
 * vblk_rebind_begin - the pins are about to be replaced
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
 * vblk_rebind_end - the pins were replaced; cannot fail
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
}
