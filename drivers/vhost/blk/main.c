// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/vhost-blk: the character device.  Everything here but the counters runs
 * under the device's mutex, in the order the user calls it; see blk.h for the rest.
 */
#include <linux/cgroup.h>
#include <linux/compat.h>
#include <linux/file.h>
#include <linux/idr.h>
#include <linux/memcontrol.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/sched/mm.h>
#include <linux/uaccess.h>

#include "blk.h"

/* Requests of one device that may be with workers at the same time. */
#define DEVICE_WORKERS	64

#define RING_FEATURES	(BIT_ULL(VIRTIO_RING_F_INDIRECT_DESC) |	\
			 BIT_ULL(VIRTIO_RING_F_EVENT_IDX) |	\
			 BIT_ULL(VIRTIO_F_ANY_LAYOUT) |		\
			 BIT_ULL(VIRTIO_F_VERSION_1))

static DEFINE_IDA(ids);

static void put_cgroups(struct vblk_dev *dev)
{
	if (dev->css)
		css_put(dev->css);
	dev->css = NULL;
	mem_cgroup_put(dev->memcg);
	dev->memcg = NULL;
}

/* Block I/O of workers and pollers, and memory of workers, is the owner's. */
static void get_cgroups(struct vblk_dev *dev)
{
	put_cgroups(dev);
#ifdef CONFIG_BLK_CGROUP
	dev->css = task_get_css(current, io_cgrp_id);
	dev->in_cgroup = dev->css != blkcg_root_css;
#endif
	dev->memcg = get_mem_cgroup_from_mm(current->mm);
}

static u64 features_of(struct vblk_dev *dev)
{
	struct vhost_blk_info info = {};

	if (dev->backend)
		vblk_backend_info(dev->backend, &info);
	return RING_FEATURES | info.features;
}

static bool any_running(struct vblk_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->vdev.nvqs; i++)
		if (dev->vrings[i]->running)
			return true;
	return false;
}

static void stop_all(struct vblk_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->vdev.nvqs; i++)
		vblk_vring_stop(dev->vrings[i]);
}

static bool wants_pins(struct vblk_dev *dev, struct vblk_backend *be)
{
	return dev->vdev.umem && be && be->flags & VHOST_BLK_BACKEND_PINNED;
}

static void set_pins(struct vblk_dev *dev, struct vblk_pins *pins)
{
	vblk_pins_put(dev->pins);
	dev->pins = pins;
}

/* Pins of the old table must not serve the new one, whatever fails. */
static long set_table(struct vblk_dev *dev, void __user *argp)
{
	struct vblk_pins *pins = NULL;
	long r;

	r = vblk_rebind_begin(dev);
	if (r)
		return r;
	r = vhost_dev_ioctl(&dev->vdev, VHOST_SET_MEM_TABLE, argp);
	if (r) {
		vblk_rebind_cancel(dev);
		return r;
	}
	if (wants_pins(dev, dev->backend))
		pins = vblk_pin_table(&dev->vdev);
	if (IS_ERR(pins)) {
		r = PTR_ERR(pins);
		pins = NULL;
	}
	set_pins(dev, pins);
	vblk_rebind_end(dev);
	return r;
}

static long set_features(struct vblk_dev *dev, u64 __user *argp)
{
	u64 features;
	unsigned int i;

	if (copy_from_user(&features, argp, sizeof(features)))
		return -EFAULT;
	if (features & ~features_of(dev))
		return -EOPNOTSUPP;
	if (any_running(dev))
		return -EBUSY;
	dev->features = features;
	for (i = 0; i < dev->vdev.nvqs; i++) {
		struct vhost_virtqueue *vq = dev->vqs[i];

		mutex_lock(&vq->mutex);
		vq->acked_features = features;
		mutex_unlock(&vq->mutex);
	}
	return 0;
}

static long set_backend(struct vblk_dev *dev, void __user *argp)
{
	struct vblk_backend *be = NULL;
	struct vhost_blk_backend arg;
	struct vblk_pins *pins;
	long r;

	r = vhost_poll_get_arg(&arg, sizeof(arg), argp,
			       offsetofend(struct vhost_blk_backend, engine));
	if (r)
		return r;
	if (arg.fd != -1) {
		be = vblk_backend_open(dev, &arg);
		if (IS_ERR(be))
			return PTR_ERR(be);
	}

	r = vblk_rebind_begin(dev);
	if (r)
		goto put;
	/* Those of the table there is do for any backend. */
	pins = wants_pins(dev, be) ? dev->pins : NULL;
	if (pins)
		kref_get(&pins->ref);
	else if (wants_pins(dev, be))
		pins = vblk_pin_table(&dev->vdev);
	if (IS_ERR(pins)) {
		r = PTR_ERR(pins);
		goto cancel;
	}
	vblk_replace_backend(dev, be);
	set_pins(dev, pins);
	vblk_rebind_end(dev);
	return 0;
cancel:
	vblk_rebind_cancel(dev);
put:
	vblk_backend_put(be);
	return r;
}

static long get_info(struct vblk_dev *dev, void __user *argp)
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
	info.features |= RING_FEATURES;
	info.size = min_t(u32, size, sizeof(info));
	return vhost_poll_put_arg(argp, size, &info, sizeof(info));
}

static struct vblk_vring *vring_of(struct vblk_dev *dev, unsigned long index)
{
	if (index >= dev->vdev.nvqs)
		return NULL;
	return dev->vrings[array_index_nospec(index, VHOST_BLK_MAX_VRINGS)];
}

/*
 * vhost_dev_init() is all there is to initialise a virtqueue, so it gets a
 * device for it; what it would know of ours, were it there from the start, is
 * set after.
 */
static int init_vq(struct vblk_dev *dev, struct vhost_virtqueue *vq)
{
	struct vhost_dev *lent = kzalloc(sizeof(*lent), GFP_KERNEL_ACCOUNT);

	if (!lent)
		return -ENOMEM;
	vhost_dev_init(lent, &vq, 1, UIO_MAXIOV, 0, 0, false, NULL);
	kfree(lent);
	vq->dev = &dev->vdev;
	vq->poll.dev = &dev->vdev;
	vq->umem = dev->vdev.umem;
	vq->acked_features = dev->features;
	return 0;
}

static int add_vring(struct vblk_dev *dev)
{
	unsigned int index = dev->vdev.nvqs;
	struct vblk_vring *vring;
	int r;

	vring = kvzalloc(sizeof(*vring), GFP_KERNEL_ACCOUNT);
	if (!vring)
		return -ENOMEM;
	vblk_vring_init(vring, dev, index);
	r = init_vq(dev, &vring->vq);
	if (r) {
		kvfree(vring);
		return r;
	}
	dev->vrings[index] = vring;
	dev->vqs[index] = &vring->vq;
	/* Pairs with the acquire in vblk_get_stats(). */
	smp_store_release(&dev->vdev.nvqs, index + 1);
	return 0;
}

/*
 * A vring is made when it is first set up, as it has room for the longest
 * iovec and most guests have few of them.  vhost knows them by their number,
 * so those before it are made, too.
 */
static int make_vring(struct vblk_dev *dev, unsigned long index)
{
	int r = index < VHOST_BLK_MAX_VRINGS ? 0 : -ENOBUFS;

	while (!r && dev->vdev.nvqs <= index)
		r = add_vring(dev);
	return r;
}

static long set_vring(struct vblk_dev *dev, void __user *argp)
{
	struct vhost_blk_vring arg;
	struct vblk_vring *vring;
	long r;

	r = vhost_poll_get_arg(&arg, sizeof(arg), argp,
			       offsetofend(struct vhost_blk_vring, weight));
	if (r)
		return r;
	if (arg.weight > 1000 || arg.pad)
		return -EINVAL;
	r = make_vring(dev, arg.index);
	if (r)
		return r;
	vring = vring_of(dev, arg.index);
	return vblk_vring_set(vring, arg.poller_fd, arg.hctx, arg.weight);
}

static long set_cache(struct vblk_dev *dev, void __user *argp)
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

static long start(struct vblk_dev *dev, unsigned long index)
{
	int r = make_vring(dev, index);

	return r ?: vblk_vring_start(vring_of(dev, index));
}

static long stop(struct vblk_dev *dev, unsigned long index)
{
	struct vblk_vring *vring = vring_of(dev, index);

	if (index >= VHOST_BLK_MAX_VRINGS)
		return -ENOBUFS;
	if (vring)
		vblk_vring_stop(vring);
	return 0;
}

/* Back to just opened: what belongs to the owner goes with it. */
static void forget(struct vblk_dev *dev)
{
	unsigned int i;

	stop_all(dev);
	for (i = 0; i < dev->vdev.nvqs; i++)
		vblk_vring_drop_poller(dev->vrings[i]);
	/*
	 * The bindings, so that ours is the last reference: what was claimed
	 * with the backend's descriptor can be claimed again right after.
	 */
	flush_workqueue(dev->wq);
	vblk_forget_replaced(dev);
	set_pins(dev, NULL);
	vblk_backend_put(dev->backend);
	dev->backend = NULL;
	WRITE_ONCE(dev->engine_id, VHOST_BLK_ENGINE_AUTO);
	put_cgroups(dev);
}

static long reset_owner(struct vblk_dev *dev)
{
	struct vhost_iotlb *umem;
	long r;

	r = vhost_dev_check_owner(&dev->vdev);
	if (r)
		return r;
	umem = vhost_dev_reset_owner_prepare();
	if (!umem)
		return -ENOMEM;
	forget(dev);
	vhost_dev_stop(&dev->vdev);
	vhost_dev_reset_owner(&dev->vdev, umem);
	dev->features = 0;
	return 0;
}

/* GET_VRING_BASE ends the service: the index it returns is the last one. */
static int before_vring_ioctl(struct vblk_dev *dev, unsigned int cmd,
			      void __user *argp)
{
	u32 index;
	int r;

	if (get_user(index, (u32 __user *)argp))
		return -EFAULT;
	r = make_vring(dev, index);
	if (!r && cmd == VHOST_GET_VRING_BASE)
		vblk_vring_stop(vring_of(dev, index));
	return r;
}

/* There is no dirty log: a used ring that asks for one is not accepted. */
static long check_vring_addr(struct vblk_dev *dev, void __user *argp)
{
	struct vhost_vring_addr addr;

	if (copy_from_user(&addr, argp, sizeof(addr)))
		return -EFAULT;
	return addr.flags ? -EOPNOTSUPP : 0;
}

static long base_ioctl(struct vblk_dev *dev, unsigned int cmd,
		       void __user *argp)
{
	long r;

	if (cmd == VHOST_SET_MEM_TABLE) {
		r = vhost_dev_check_owner(&dev->vdev);
		return r ?: set_table(dev, argp);
	}
	r = vhost_dev_ioctl(&dev->vdev, cmd, argp);
	if (!r && cmd == VHOST_SET_OWNER)
		get_cgroups(dev);
	if (r != -ENOIOCTLCMD)
		return r;
	if (cmd == VHOST_SET_VRING_ADDR) {
		r = check_vring_addr(dev, argp);
		if (r)
			return r;
	}
	r = before_vring_ioctl(dev, cmd, argp);
	if (r)
		return r;
	r = vhost_vring_ioctl(&dev->vdev, cmd, argp);
	return r == -ENOIOCTLCMD ? -ENOTTY : r;
}

/* By @cmd without its size, which is in the argument: see linux/vhost_poll.h */
static long own_ioctl(struct vblk_dev *dev, unsigned int cmd,
		      unsigned long arg)
{
	void __user *argp = (void __user *)arg;
	long r;

	if (cmd == (VHOST_BLK_GET_INFO & ~IOCSIZE_MASK))
		return get_info(dev, argp);
	r = vhost_dev_check_owner(&dev->vdev);
	if (r)
		return r;
	switch (cmd) {
	case VHOST_BLK_SET_BACKEND & ~IOCSIZE_MASK:
		return set_backend(dev, argp);
	case VHOST_BLK_SET_VRING & ~IOCSIZE_MASK:
		return set_vring(dev, argp);
	case VHOST_BLK_SET_CACHE & ~IOCSIZE_MASK:
		return set_cache(dev, argp);
	case VHOST_BLK_START:
		return start(dev, arg);
	case VHOST_BLK_STOP:
		return stop(dev, arg);
	default:
		return -ENOTTY;
	}
}

static long ioctl_locked(struct vblk_dev *dev, unsigned int cmd,
			 unsigned long arg)
{
	void __user *argp = (void __user *)arg;
	u64 features;

	switch (cmd) {
	case VHOST_GET_FEATURES:
		features = features_of(dev);
		return copy_to_user(argp, &features, sizeof(features)) ?
			-EFAULT : 0;
	case VHOST_SET_FEATURES:
		return set_features(dev, argp);
	case VHOST_RESET_OWNER:
		return reset_owner(dev);
	default:
		/* Not known: vhost would read an index before it says so. */
		if (_IOC_TYPE(cmd) != VHOST_VIRTIO ||
		    _IOC_NR(cmd) > _IOC_NR(VHOST_BLK_STOP))
			return -ENOTTY;
		if (_IOC_NR(cmd) >= _IOC_NR(VHOST_BLK_SET_BACKEND))
			return own_ioctl(dev, cmd & ~IOCSIZE_MASK, arg);
		return base_ioctl(dev, cmd, argp);
	}
}

/* One that wanted to arm a vring while vhost had its mutex left it as it was. */
static void wake_pollers(struct vblk_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->vdev.nvqs; i++)
		vhost_poll_wake(&dev->vrings[i]->src);
}

static long vhost_blk_ioctl(struct file *file, unsigned int cmd,
			    unsigned long arg)
{
	struct vblk_dev *dev = file->private_data;
	long r;

	/* Others may hold the mutex for as long as a backend takes. */
	if ((cmd & ~IOCSIZE_MASK) == (VHOST_BLK_GET_STATS & ~IOCSIZE_MASK))
		return vblk_get_stats(dev, (void __user *)arg);
	mutex_lock(&dev->vdev.mutex);
	r = ioctl_locked(dev, cmd, arg);
	wake_pollers(dev);
	mutex_unlock(&dev->vdev.mutex);
	return r;
}

static void free_dev(struct vblk_dev *dev)
{
	unsigned int i;

	if (dev->wq)
		destroy_workqueue(dev->wq);
	if (dev->ring_wq)
		destroy_workqueue(dev->ring_wq);
	for (i = 0; i < dev->vdev.nvqs; i++)
		kvfree(dev->vrings[i]);
	if (dev->id >= 0)
		ida_free(&ids, dev->id);
	kfree(dev);
}

static struct vblk_dev *alloc_dev(void)
{
	struct vblk_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL_ACCOUNT);

	if (!dev)
		return NULL;
	dev->writeback = true;
	mutex_init(&dev->flush_lock);
	INIT_LIST_HEAD(&dev->replaced);
	dev->id = ida_alloc(&ids, GFP_KERNEL);
	if (dev->id < 0)
		goto free;
	dev->wq = alloc_workqueue("vhost_blk-%d", WQ_UNBOUND | WQ_MEM_RECLAIM,
				  DEVICE_WORKERS, dev->id);
	if (!dev->wq)
		goto free;
	dev->ring_wq = alloc_workqueue("vhost_blk-%d-rings",
				       WQ_UNBOUND | WQ_MEM_RECLAIM,
				       VHOST_BLK_MAX_VRINGS, dev->id);
	if (!dev->ring_wq)
		goto free;
	return dev;
free:
	free_dev(dev);
	return NULL;
}

static int vhost_blk_open(struct inode *inode, struct file *file)
{
	struct vblk_dev *dev = alloc_dev();

	if (!dev)
		return -ENOMEM;
	vhost_dev_init(&dev->vdev, dev->vqs, 0, UIO_MAXIOV, 0, 0, false, NULL);
	file->private_data = dev;
	return 0;
}

static int vhost_blk_release(struct inode *inode, struct file *file)
{
	struct vblk_dev *dev = file->private_data;

	mutex_lock(&dev->vdev.mutex);
	forget(dev);
	mutex_unlock(&dev->vdev.mutex);
	vhost_dev_stop(&dev->vdev);
	vhost_dev_cleanup(&dev->vdev);
	/* end_io and kicks that are about to wake the poller, see blk.h */
	synchronize_rcu();
	free_dev(dev);
	return 0;
}

static const struct file_operations vhost_blk_fops = {
	.owner		= THIS_MODULE,
	.open		= vhost_blk_open,
	.release	= vhost_blk_release,
	.unlocked_ioctl	= vhost_blk_ioctl,
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
