// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/vhost-blk: the ioctls that only this device has; vhost_serve has those of all devices.  All
 * but the one for counters run under the device's mutex.
 */
#include <linux/compat.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "blk.h"

#define CREATE_TRACE_POINTS
#include <trace/events/vhost_blk.h>

/* How many requests of one device may be with workers at the same time. */
#define VBLK_WORKERS	64

static u64 vblk_features(struct vserve_dev *vdev)
{
	struct vblk_dev *dev = to_vblk_dev(vdev);
	struct vhost_blk_info info = {};

	if (dev->backend)
		vblk_backend_info(dev->backend, &info);
	return info.features;
}

static bool vblk_wants_pins(struct vblk_dev *dev, struct vblk_backend *be)
{
	return dev->base.vdev.umem && be && be->flags & VHOST_BLK_BACKEND_PINNED;
}

/*
 * Set a memory table.  After an error, too, the pins of the old table must not serve the new one.
 */
static long vblk_set_table(struct vserve_dev *vdev, void __user *argp)
{
	struct vblk_dev *dev = to_vblk_dev(vdev);
	struct vblk_pins *pins = NULL;
	long r;

	r = vserve_set_table(vdev, argp);
	if (r)
		return r;
	if (vblk_wants_pins(dev, dev->backend))
		pins = vblk_pin_table(dev);
	if (IS_ERR(pins)) {
		r = PTR_ERR(pins);
		pins = NULL;
	}
	vblk_set_pins(dev, pins);
	/*
	 * Free the old table now: its pages count as locked until then, and the owner may try again
	 * at once.
	 */
	if (!vserve_any_running(vdev))
		vblk_pins_settle(dev);
	return r;
}

static void vblk_use_backend(struct vblk_dev *dev, struct vblk_backend *be)
{
	vblk_backend_put(dev->backend);
	dev->backend = be;
	WRITE_ONCE(dev->engine_id, be ? be->engine_id : VHOST_BLK_ENGINE_AUTO);
}

/*
 * Set the backend, which changes only while no request can use it.
 *
 * A vring uses the backend from its start until a stop has succeeded.  If a stop timed out, or if
 * its caller was killed, the vring goes on stopping, with requests that the backend still has.  A
 * stop in progress holds the device's mutex, so this waits for it.  No ioctl can follow the close
 * of the file.
 */
static long vblk_set_backend(struct vblk_dev *dev, void __user *argp)
{
	struct vblk_backend *be = NULL;
	struct vhost_blk_backend arg;
	struct vblk_pins *pins = NULL;
	long r;

	r = vhost_poll_get_arg(&arg, sizeof(arg), argp,
			       offsetofend(struct vhost_blk_backend, engine));
	if (r)
		return r;
	/* Ask this first, because to open a disk is to write back and drop its page cache. */
	if (vserve_any_running(&dev->base))
		return -EBUSY;
	/* A worker may still hold the old backend, and all that was claimed with its descriptor. */
	vserve_flush_requests(&dev->base);
	vblk_pins_settle(dev);
	if (arg.fd != -1) {
		be = vblk_backend_open(dev, &arg);
		if (IS_ERR(be))
			return PTR_ERR(be);
	}

	/* The pins belong to the memory table, and serve any backend. */
	if (vblk_wants_pins(dev, be)) {
		pins = dev->pins ?: vblk_pin_table(dev);
		if (IS_ERR(pins)) {
			vblk_backend_put(be);
			return PTR_ERR(pins);
		}
	}
	if (pins != dev->pins)
		vblk_set_pins(dev, pins);
	vblk_pins_settle(dev);
	vblk_use_backend(dev, be);
	return 0;
}

static long vblk_get_info(struct vblk_dev *dev, void __user *argp)
{
	struct vhost_blk_info info = {};
	u32 size;
	long r;

	r = vhost_poll_arg_size(&size, argp,
				offsetofend(struct vhost_blk_info, capacity));
	if (r)
		return r;
	if (!dev->backend)
		return -ENODEV;
	vblk_backend_info(dev->backend, &info);
	info.features |= VSERVE_FEATURES;
	info.size = min_t(u32, size, sizeof(info));
	return vhost_poll_put_arg(argp, size, &info, sizeof(info));
}

static long vblk_set_cache(struct vblk_dev *dev, void __user *argp)
{
	struct vhost_blk_cache arg;
	long r;

	r = vhost_poll_get_arg(&arg, sizeof(arg), argp,
			       offsetofend(struct vhost_blk_cache, writeback));
	if (r)
		return r;
	if (arg.writeback > 1)
		return -EINVAL;
	WRITE_ONCE(dev->writeback, arg.writeback);
	return 0;
}

/*
 * Handle @cmd, which comes without its size.  The size is in the argument: see linux/vhost_poll.h.
 */
static long vblk_ioctl(struct vserve_dev *vdev, unsigned int cmd,
		       unsigned long arg)
{
	struct vblk_dev *dev = to_vblk_dev(vdev);
	void __user *argp = (void __user *)arg;
	long r;

	if (cmd == (VHOST_BLK_GET_INFO & ~IOCSIZE_MASK))
		return vblk_get_info(dev, argp);
	r = vhost_dev_check_owner(&vdev->vdev);
	if (r)
		return r;
	switch (cmd) {
	case VHOST_BLK_SET_BACKEND & ~IOCSIZE_MASK:
		return vblk_set_backend(dev, argp);
	case VHOST_BLK_SET_CACHE & ~IOCSIZE_MASK:
		return vblk_set_cache(dev, argp);
	default:
		return -ENOTTY;
	}
}

static long vblk_ioctl_unlocked(struct vserve_dev *vdev, unsigned int cmd,
				unsigned long arg)
{
	if (cmd == (VHOST_BLK_GET_STATS & ~IOCSIZE_MASK))
		return vblk_get_stats(to_vblk_dev(vdev), (void __user *)arg);
	return -ENOIOCTLCMD;
}

/*
 * Free the owner's resources, because the owner goes.  The workers that submitted are gone, so this
 * drops the last reference to the backend.  The next owner can claim at once what was claimed with
 * the backend's descriptor.
 */
static void vblk_forget(struct vserve_dev *vdev)
{
	struct vblk_dev *dev = to_vblk_dev(vdev);

	cancel_work_sync(&dev->large_work);
	vblk_set_pins(dev, NULL);
	vblk_pins_settle(dev);
	vblk_use_backend(dev, NULL);
	dev->writeback = true;
}

static void vblk_init_vring(struct vserve_vring *vring)
{
	to_vblk_vring(vring)->hctx_used = VHOST_BLK_HCTX_AUTO;
}

/* Whether the poller's round copies data from the page cache; see engine_file.c. */
static bool vblk_copies(const struct vblk_backend *be)
{
	return be->engine_id == VHOST_BLK_ENGINE_FILE && !(be->file->f_flags & O_DIRECT);
}

static int vblk_start(struct vserve_vring *vvring)
{
	struct vblk_vring *vring = to_vblk_vring(vvring);
	struct vblk_dev *dev = vblk_dev_of(vring);

	vring->backend = dev->backend;
	vvring->dev->copies = vring->backend && vblk_copies(vring->backend);
	vring->limits = (struct vblk_limits){};
	if (vring->backend)
		vblk_backend_limits(vring->backend, vvring->vq.acked_features,
				    &vring->limits);
	vring->pin = false;
	vring->awaits_large = false;
	vring->refused = 0;
	return 0;
}

static void vblk_stop(struct vserve_vring *vvring)
{
	struct vblk_vring *vring = to_vblk_vring(vvring);
	unsigned int i;

	for (i = 0; i < vvring->nr_reqs; i++)
		vblk_drop_room(to_vblk_req(vserve_slot(vvring, i)));
	vring->backend = NULL;
}

static int vblk_open(struct vserve_dev *vdev)
{
	struct vblk_dev *dev = to_vblk_dev(vdev);

	vblk_pins_init(dev);
	INIT_WORK(&dev->large_work, vblk_go_on_with_large);
	dev->writeback = true;
	return 0;
}

static const struct vserve_ops vblk_ops = {
	.owner		= THIS_MODULE,
	.name		= "vhost_blk",
	.dev_size	= sizeof(struct vblk_dev),
	.vring_size	= sizeof(struct vblk_vring),
	.req_size	= sizeof(struct vblk_req),
	.max_workers	= VBLK_WORKERS,
	.flags		= VSERVE_PLUG,
	/*
	 * A guest that came from a backend with a cache goes on sending flushes.  A guest that
	 * could discard is told, request by request, that it no longer can.
	 */
	.tolerated	= VBLK_CACHE_FEATURES | BIT_ULL(VIRTIO_BLK_F_DISCARD) |
			  BIT_ULL(VIRTIO_BLK_F_WRITE_ZEROES),
	.open		= vblk_open,
	.features	= vblk_features,
	.ioctl		= vblk_ioctl,
	.ioctl_unlocked	= vblk_ioctl_unlocked,
	.set_table	= vblk_set_table,
	.forget		= vblk_forget,
	.init_vring	= vblk_init_vring,
	.check_target	= vblk_mq_check_hctx,
	.start		= vblk_start,
	.stop		= vblk_stop,
	.take		= vblk_take,
	.submit		= vblk_submit,
	.flush		= vblk_flush_batch,
	.reap		= vblk_mq_reap,
	.punt		= vblk_punt,
	.work		= vblk_work,
	.release	= vblk_unmap_data,
	.finish		= vblk_finish,
	.bad_chain	= vblk_bad_chain,
};

static int vhost_blk_open(struct inode *inode, struct file *file)
{
	return vserve_open(file, &vblk_ops);
}

static const struct file_operations vhost_blk_fops = {
	.owner		= THIS_MODULE,
	.open		= vhost_blk_open,
	.release	= vserve_release,
	.unlocked_ioctl	= vserve_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.llseek		= noop_llseek,
};

static struct miscdevice vhost_blk_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "vhost-blk",
	.fops	= &vhost_blk_fops,
	.mode	= 0600,
};

static int __init vhost_blk_init(void)
{
	int r;

	vblk_mq_load();
	r = misc_register(&vhost_blk_misc);
	if (r)
		vblk_mq_unload();
	return r;
}

static void __exit vhost_blk_exit(void)
{
	misc_deregister(&vhost_blk_misc);
	vblk_mq_unload();
}

module_init(vhost_blk_init);
module_exit(vhost_blk_exit);

MODULE_DESCRIPTION("virtio-blk served by the host kernel");
MODULE_LICENSE("GPL");
