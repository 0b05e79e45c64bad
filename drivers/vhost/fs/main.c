// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/vhost-fs: the ioctls that only this device has; vhost_serve has those of all devices.  All
 * of them run under the device's mutex.
 */
#include <linux/compat.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "dev.h"

/*
 * How many requests of one device may be with workers at the same time.  Those that wait for a lock
 * do not count: no worker waits for them, see lock.c.
 */
#define VHFS_WORKERS	128

static u64 vhfs_features(struct vserve_dev *vdev)
{
	return 0;
}

static long vhfs_set_export(struct vhfs_dev *dev, void __user *argp)
{
	struct vhost_fs_export arg;
	struct vhfs_export *ex;
	long r;

	r = vhost_poll_get_arg(&arg, sizeof(arg), argp,
			       offsetofend(struct vhost_fs_export, max_dentries));
	if (r)
		return r;
	if (dev->ex)
		return -EBUSY;
	ex = vhfs_export_open(&arg);
	if (IS_ERR(ex))
		return PTR_ERR(ex);
	dev->ex = ex;
	return 0;
}

static long vhfs_get_info(struct vhfs_dev *dev, void __user *argp)
{
	struct vhost_fs_info info = {};
	u32 size;
	long r;

	r = vhost_poll_arg_size(&size, argp,
				offsetofend(struct vhost_fs_info, features));
	if (r)
		return r;
	if (dev->ex)
		vhfs_export_info(dev->ex, &info);
	info.size = min_t(u32, size, sizeof(info));
	return vhost_poll_put_arg(argp, size, &info, sizeof(info));
}

/*
 * Handle @cmd, which comes without its size.  The size is in the argument: see linux/vhost_poll.h.
 */
static long vhfs_ioctl(struct vserve_dev *vdev, unsigned int cmd,
		       unsigned long arg)
{
	struct vhfs_dev *dev = to_vhfs_dev(vdev);
	void __user *argp = (void __user *)arg;
	long r;

	if (cmd == (VHOST_FS_GET_INFO & ~IOCSIZE_MASK))
		return vhfs_get_info(dev, argp);
	if (cmd != (VHOST_FS_SET_EXPORT & ~IOCSIZE_MASK))
		return -ENOTTY;
	r = vhost_dev_check_owner(&vdev->vdev);
	return r ?: vhfs_set_export(dev, argp);
}

static void vhfs_forget_owner(struct vserve_dev *vdev)
{
	struct vhfs_dev *dev = to_vhfs_dev(vdev);

	if (dev->ex)
		vhfs_export_close(dev->ex);
	dev->ex = NULL;
}

static int vhfs_start(struct vserve_vring *vring)
{
	vring->dev->copies = true;
	return to_vhfs_dev(vring->dev)->ex ? 0 : -ENODEV;
}

/* Requests that wait for locks may never get them, and the vring would not drain. */
static void vhfs_quiesce(struct vserve_vring *vring)
{
	vhfs_locks_cancel(to_vhfs_dev(vring->dev)->ex->locks, vring);
}

/* The guest has written no request that could be answered. */
static int vhfs_bad_chain(struct vserve_vring *vring, unsigned int head)
{
	return 0;
}

static const struct vserve_ops vhfs_serve_ops = {
	.owner		= THIS_MODULE,
	.name		= "vhost_fs",
	.dev_size	= sizeof(struct vhfs_dev),
	.vring_size	= sizeof(struct vhfs_vring),
	.req_size	= sizeof(struct vhfs_slot),
	.max_workers	= VHFS_WORKERS,
	.flags		= VSERVE_WORK_MM | VSERVE_KEEPS,
	.features	= vhfs_features,
	.ioctl		= vhfs_ioctl,
	.forget		= vhfs_forget_owner,
	.start		= vhfs_start,
	.quiesce	= vhfs_quiesce,
	.take		= vhfs_take,
	.submit		= vhfs_submit,
	.work		= vhfs_work,
	.finish		= vhfs_finish,
	.bad_chain	= vhfs_bad_chain,
};

static int vhost_fs_open(struct inode *inode, struct file *file)
{
	return vserve_open(file, &vhfs_serve_ops);
}

static const struct file_operations vhost_fs_fops = {
	.owner		= THIS_MODULE,
	.open		= vhost_fs_open,
	.release	= vserve_release,
	.unlocked_ioctl	= vserve_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.llseek		= noop_llseek,
};

static struct miscdevice vhost_fs_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "vhost-fs",
	.fops	= &vhost_fs_fops,
	.mode	= 0600,
};

module_misc_device(vhost_fs_misc);

MODULE_DESCRIPTION("virtio-fs served by the host kernel");
MODULE_LICENSE("GPL");
