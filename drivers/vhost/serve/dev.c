// SPDX-License-Identifier: GPL-2.0
/*
 * The character device: open, owner, features, memory table, vrings, start and stop.  All ioctls
 * run under the device's mutex, one at a time, except those in vserve_ioctl_unlocked().  See
 * linux/vhost_serve.h for the rest.
 */
#include <linux/cgroup.h>
#include <linux/compat.h>
#include <linux/file.h>
#include <linux/idr.h>
#include <linux/kthread.h>
#include <linux/memcontrol.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/sched/mm.h>
#include <linux/uaccess.h>

#include "serve.h"

/* See linux/vhost_serve.h for the ranges of numbers. */
#define VSERVE_SHARED_NR	0xB0
#define VSERVE_DEVICE_NR	0xC0

static DEFINE_IDA(vserve_ids);

/* Its works end devices for which release() does not wait: see vserve_release(). */
static struct workqueue_struct *vserve_late_wq;

static void vserve_put_cgroups(struct vserve_dev *dev)
{
	if (dev->css)
		css_put(dev->css);
	dev->css = NULL;
	mem_cgroup_put(dev->memcg);
	dev->memcg = NULL;
}

/*
 * Note the cgroups of the caller, which becomes the owner.  The owner pays for the block I/O of
 * workers and pollers, and for the memory that workers allocate.
 */
static void vserve_get_cgroups(struct vserve_dev *dev)
{
	vserve_put_cgroups(dev);
#ifdef CONFIG_BLK_CGROUP
	dev->css = task_get_css(current, io_cgrp_id);
	dev->in_cgroup = dev->css != blkcg_root_css;
#endif
	dev->memcg = get_mem_cgroup_from_mm(current->mm);
}

static u64 vserve_features_of(struct vserve_dev *dev)
{
	return VSERVE_FEATURES | dev->ops->features(dev);
}

/**
 * vserve_any_running - whether a vring runs, or still waits for its backend
 * @dev: its mutex is held
 */
bool vserve_any_running(struct vserve_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->vdev.nvqs; i++)
		if (dev->vrings[i]->running || dev->vrings[i]->stopping)
			return true;
	return false;
}
EXPORT_SYMBOL_GPL(vserve_any_running);

/* Begin with all vrings before the caller waits for the first, so that they wait together. */
static void vserve_begin_stop_all(struct vserve_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->vdev.nvqs; i++)
		vserve_vring_begin_stop(dev->vrings[i]);
}

static int vserve_stop_all(struct vserve_dev *dev)
{
	unsigned int i;
	int r = 0;

	vserve_begin_stop_all(dev);
	for (i = 0; i < dev->vdev.nvqs && !r; i++)
		r = vserve_vring_stop(dev->vrings[i]);
	return r;
}

/* Stop all vrings as well, but wait for the backend without a limit. */
static void vserve_finish_stop_all(struct vserve_dev *dev)
{
	unsigned int i;

	vserve_begin_stop_all(dev);
	for (i = 0; i < dev->vdev.nvqs; i++)
		vserve_vring_finish_stop(dev->vrings[i]);
}

/* Returns false if the caller should not wait any longer: see vserve_vring_await(). */
static bool vserve_await_all(struct vserve_dev *dev)
{
	unsigned int i;

	vserve_begin_stop_all(dev);
	for (i = 0; i < dev->vdev.nvqs; i++)
		if (!vserve_vring_await(dev->vrings[i]))
			return false;
	return true;
}

/**
 * vserve_set_table - carry out VHOST_SET_MEM_TABLE; vserve_ops.set_table calls this
 * @dev: the device; the caller is the owner, and holds the device's mutex
 * @argp: the argument of the ioctl
 */
long vserve_set_table(struct vserve_dev *dev, void __user *argp)
{
	long r = vhost_dev_ioctl(&dev->vdev, VHOST_SET_MEM_TABLE, argp);
	unsigned int i;

	for (i = 0; i < dev->vdev.nvqs; i++)
		vserve_vring_forget_regions(dev->vrings[i]);
	return r;
}
EXPORT_SYMBOL_GPL(vserve_set_table);

static long vserve_set_features(struct vserve_dev *dev, u64 __user *argp)
{
	u64 features;
	unsigned int i;

	if (copy_from_user(&features, argp, sizeof(features)))
		return -EFAULT;
	if (features & ~(vserve_features_of(dev) | dev->ops->tolerated))
		return -EOPNOTSUPP;
	if (vserve_any_running(dev))
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

/*
 * vhost initialises virtqueues only together with their device, in vhost_dev_init().  So lend it a
 * device of its own for one virtqueue.  Then set the fields that the virtqueue would have if it had
 * belonged to @dev from the start.
 */
static int vserve_init_vq(struct vserve_dev *dev, struct vhost_virtqueue *vq)
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

static int vserve_add_vring(struct vserve_dev *dev)
{
	unsigned int index = dev->vdev.nvqs;
	struct vserve_vring *vring;
	int r;

	vring = kvzalloc(dev->ops->vring_size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!vring)
		return -ENOMEM;
	vserve_vring_init(vring, dev, index);
	r = vserve_init_vq(dev, &vring->vq);
	if (r) {
		kvfree(vring);
		return r;
	}
	dev->vrings[index] = vring;
	dev->vqs[index] = &vring->vq;
	/* Pairs with the acquire in vserve_vring_of(). */
	smp_store_release(&dev->vdev.nvqs, index + 1);
	return 0;
}

/*
 * Make a vring when the owner first sets it up.  A vring is large, because it has room for the
 * longest iovec, and most guests use few vrings.  vhost finds a vring by its index in an array, so
 * make those before it, too.
 */
static int vserve_make_vring(struct vserve_dev *dev, unsigned long index)
{
	int r = index < VHOST_SERVE_MAX_VRINGS ? 0 : -ENOBUFS;

	while (!r && dev->vdev.nvqs <= index)
		r = vserve_add_vring(dev);
	return r;
}

static long vserve_set_vring(struct vserve_dev *dev, void __user *argp)
{
	struct vhost_serve_vring arg;
	struct vserve_vring *vring;
	long r;

	r = vhost_poll_get_arg(&arg, sizeof(arg), argp,
			       offsetofend(struct vhost_serve_vring, weight));
	if (r)
		return r;
	if (arg.weight > 1000 || arg.pad)
		return -EINVAL;
	r = vserve_make_vring(dev, arg.index);
	if (r)
		return r;
	vring = vserve_vring_of(dev, arg.index);
	return vserve_vring_set(vring, arg.poller_fd, arg.target, arg.weight);
}

static long vserve_start(struct vserve_dev *dev, unsigned long index)
{
	int r = vserve_make_vring(dev, index);

	return r ?: vserve_vring_start(vserve_vring_of(dev, index));
}

static long vserve_stop(struct vserve_dev *dev, unsigned long index)
{
	struct vserve_vring *vring;

	if (index >= VHOST_SERVE_MAX_VRINGS)
		return -ENOBUFS;
	vring = vserve_vring_of(dev, index);
	return vring ? vserve_vring_stop(vring) : 0;
}

static long vserve_go_on(struct vserve_dev *dev, unsigned long index)
{
	struct vserve_vring *vring;

	if (index >= VHOST_SERVE_MAX_VRINGS)
		return -ENOBUFS;
	vring = vserve_vring_of(dev, index);
	return vring ? vserve_vring_go_on(vring) : -EINVAL;
}

/**
 * vserve_flush_requests - wait until no worker uses anything of a request
 * @dev: its mutex is held, and no vring runs or stops
 */
void vserve_flush_requests(struct vserve_dev *dev)
{
	if (dev->workers)
		vserve_workers_flush(dev->workers);
	flush_workqueue(dev->wq);
	flush_workqueue(dev->end_wq);
}
EXPORT_SYMBOL_GPL(vserve_flush_requests);

/*
 * Drop all that belongs to the owner.  The caller has stopped all vrings.  If @keep is set, the
 * device keeps the disk or directory that it serves, for the next owner.
 */
static void vserve_forget(struct vserve_dev *dev, bool keep)
{
	unsigned int i;

	for (i = 0; i < dev->vdev.nvqs; i++)
		vserve_vring_drop_poller(dev->vrings[i]);
	/* End the workers first: they use what forget() drops, and are in the owner's cgroups. */
	vserve_flush_requests(dev);
	vserve_workers_end(dev->workers);
	dev->workers = NULL;
	if (dev->ops->forget && !keep)
		dev->ops->forget(dev);
	vserve_put_cgroups(dev);
}

/* VHOST_RESET_OWNER, and with @keep VHOST_SERVE_HAND_OVER */
static long vserve_reset_owner(struct vserve_dev *dev, bool keep)
{
	struct vhost_iotlb *umem;
	long r;

	if (keep && !(dev->ops->flags & VSERVE_KEEPS))
		return -EOPNOTSUPP;
	r = vhost_dev_check_owner(&dev->vdev);
	if (r)
		return r;
	r = vserve_stop_all(dev);
	if (r)
		return r;
	umem = vhost_dev_reset_owner_prepare();
	if (!umem)
		return -ENOMEM;
	vserve_forget(dev, keep);
	vhost_dev_stop(&dev->vdev);
	vhost_dev_reset_owner(&dev->vdev, umem);
	dev->features = 0;
	return 0;
}

/* GET_VRING_BASE stops the vring, because the index that it returns must not change any more. */
static int vserve_before_vring_ioctl(struct vserve_dev *dev, unsigned int cmd,
				     void __user *argp)
{
	u32 index;
	int r;

	if (get_user(index, (u32 __user *)argp))
		return -EFAULT;
	r = vserve_make_vring(dev, index);
	if (!r && cmd == VHOST_GET_VRING_BASE)
		r = vserve_vring_stop(vserve_vring_of(dev, index));
	return r;
}

/* Refuse all flags.  The only one asks for a dirty log, and this module keeps none. */
static long vserve_check_vring_addr(struct vserve_dev *dev, void __user *argp)
{
	struct vhost_vring_addr addr;

	if (copy_from_user(&addr, argp, sizeof(addr)))
		return -EFAULT;
	return addr.flags ? -EOPNOTSUPP : 0;
}

static long vserve_table(struct vserve_dev *dev, void __user *argp)
{
	if (dev->ops->set_table)
		return dev->ops->set_table(dev, argp);
	return vserve_set_table(dev, argp);
}

static long vserve_set_owner(struct vserve_dev *dev, void __user *argp)
{
	struct vserve_workers *workers;
	long r;

	if (vhost_dev_has_owner(&dev->vdev))
		return -EBUSY;
	workers = vserve_workers_begin(dev);
	if (IS_ERR(workers))
		return PTR_ERR(workers);
	r = vhost_dev_ioctl(&dev->vdev, VHOST_SET_OWNER, argp);
	if (r) {
		vserve_workers_end(workers);
		return r;
	}
	dev->workers = workers;
	vserve_get_cgroups(dev);
	return 0;
}

static long vserve_base_ioctl(struct vserve_dev *dev, unsigned int cmd,
			      void __user *argp)
{
	long r;

	if (cmd == VHOST_SET_MEM_TABLE) {
		r = vhost_dev_check_owner(&dev->vdev);
		return r ?: vserve_table(dev, argp);
	}
	if (cmd == VHOST_SET_OWNER)
		return vserve_set_owner(dev, argp);
	r = vhost_dev_ioctl(&dev->vdev, cmd, argp);
	if (r != -ENOIOCTLCMD)
		return r;
	if (cmd == VHOST_SET_VRING_ADDR) {
		r = vserve_check_vring_addr(dev, argp);
		if (r)
			return r;
	}
	r = vserve_before_vring_ioctl(dev, cmd, argp);
	if (r)
		return r;
	r = vhost_vring_ioctl(&dev->vdev, cmd, argp);
	return r == -ENOIOCTLCMD ? -ENOTTY : r;
}

/* @cmd comes without its size, because the argument has the size: see linux/vhost_poll.h. */
static long vserve_shared_ioctl(struct vserve_dev *dev, unsigned int cmd,
				unsigned long arg)
{
	void __user *argp = (void __user *)arg;
	long r;

	r = vhost_dev_check_owner(&dev->vdev);
	if (r)
		return r;
	switch (cmd) {
	case VHOST_SERVE_SET_VRING & ~IOCSIZE_MASK:
		return vserve_set_vring(dev, argp);
	case VHOST_SERVE_START:
		return vserve_start(dev, arg);
	case VHOST_SERVE_STOP:
		return vserve_stop(dev, arg);
	case VHOST_SERVE_GO_ON:
		return vserve_go_on(dev, arg);
	case VHOST_SERVE_HAND_OVER:
		return vserve_reset_owner(dev, true);
	default:
		return -ENOTTY;
	}
}

static long vserve_ioctl_locked(struct vserve_dev *dev, unsigned int cmd,
				unsigned long arg)
{
	void __user *argp = (void __user *)arg;
	u64 features;

	switch (cmd) {
	case VHOST_GET_FEATURES:
		features = vserve_features_of(dev);
		return copy_to_user(argp, &features, sizeof(features)) ?
			-EFAULT : 0;
	case VHOST_SET_FEATURES:
		return vserve_set_features(dev, argp);
	case VHOST_RESET_OWNER:
		return vserve_reset_owner(dev, false);
	default:
		if (_IOC_TYPE(cmd) != VHOST_VIRTIO)
			return -ENOTTY;
		if (_IOC_NR(cmd) >= VSERVE_DEVICE_NR)
			return dev->ops->ioctl(dev, cmd & ~IOCSIZE_MASK, arg);
		/*
		 * Keep unknown commands of this range from vhost, which would read an index from
		 * the argument before it refuses them.
		 */
		if (_IOC_NR(cmd) >= VSERVE_SHARED_NR)
			return vserve_shared_ioctl(dev, cmd & ~IOCSIZE_MASK,
						   arg);
		return vserve_base_ioctl(dev, cmd, argp);
	}
}

/*
 * Wake the pollers of all vrings.  A poller that wanted to arm a vring while an ioctl held the
 * vring's mutex has not armed it: see vserve_held_elsewhere().
 */
static void vserve_wake_pollers(struct vserve_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->vdev.nvqs; i++)
		vhost_poll_wake(&dev->vrings[i]->src);
}

/* These do not take the mutex, because another ioctl may hold it while it waits for a backend. */
static long vserve_ioctl_unlocked(struct vserve_dev *dev, unsigned int cmd,
				  unsigned long arg)
{
	if (cmd == (VHOST_SERVE_GET_STATS & ~IOCSIZE_MASK))
		return vserve_get_stats(dev, (void __user *)arg);
	if (_IOC_TYPE(cmd) == VHOST_VIRTIO &&
	    _IOC_NR(cmd) >= VSERVE_DEVICE_NR && dev->ops->ioctl_unlocked)
		return dev->ops->ioctl_unlocked(dev, cmd, arg);
	return -ENOIOCTLCMD;
}

/**
 * vserve_ioctl - unlocked_ioctl() of a device
 * @file: the device's file
 * @cmd: a command of vhost, of uapi/linux/vhost_serve.h, or of the device's own range
 * @arg: its argument
 */
long vserve_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct vserve_dev *dev = file->private_data;
	long r;

	r = vserve_ioctl_unlocked(dev, cmd & ~IOCSIZE_MASK, arg);
	if (r != -ENOIOCTLCMD)
		return r;
	mutex_lock(&dev->vdev.mutex);
	r = vserve_ioctl_locked(dev, cmd, arg);
	vserve_wake_pollers(dev);
	mutex_unlock(&dev->vdev.mutex);
	return r;
}
EXPORT_SYMBOL_GPL(vserve_ioctl);

static void vserve_free_dev(struct vserve_dev *dev)
{
	unsigned int i;

	if (dev->wq)
		destroy_workqueue(dev->wq);
	if (dev->end_wq)
		destroy_workqueue(dev->end_wq);
	if (dev->ring_wq)
		destroy_workqueue(dev->ring_wq);
	for (i = 0; i < dev->vdev.nvqs; i++)
		kvfree(dev->vrings[i]);
	if (dev->id >= 0)
		ida_free(&vserve_ids, dev->id);
	if (dev->opened && dev->ops->free)
		dev->ops->free(dev);
	kfree(dev);
}

static struct vserve_dev *vserve_alloc_dev(const struct vserve_ops *ops)
{
	struct vserve_dev *dev = kzalloc(ops->dev_size, GFP_KERNEL_ACCOUNT);

	if (!dev)
		return NULL;
	dev->ops = ops;
	dev->id = ida_alloc(&vserve_ids, GFP_KERNEL);
	if (dev->id < 0)
		goto free;
	/*
	 * @wq is freezable, because its works change disks and file systems, and must not do so
	 * after a hibernation has taken its snapshot.  The head of drivers/vhost/poll/poller.c says
	 * how pollers freeze.  The workers of workers.c take no more jobs before @wq freezes.
	 *
	 * @end_wq is not freezable, because a work of @wq may have to wait for one of its works
	 * before @wq can freeze.  @ring_wq is not freezable, because its works may wait for a
	 * backend, or for a page fault that the owner handles, and user space freezes first.  They
	 * do no I/O themselves.
	 *
	 * No queue has WQ_MEM_RECLAIM.  A queue with that flag gets a thread when the device is
	 * opened, and no cgroup is charged for this thread.  Works of @wq, and those of @end_wq
	 * that sync a write, call file systems, which flush queues of their own that lack the flag.
	 * Works of @ring_wq bring the guest's pages in, so they need memory themselves, and then
	 * wait for @wq.
	 */
	dev->wq = alloc_workqueue("%s-%d", WQ_UNBOUND | WQ_FREEZABLE,
				  ops->max_workers, ops->name, dev->id);
	if (!dev->wq)
		goto free;
	dev->end_wq = alloc_workqueue("%s-%d-ends", WQ_UNBOUND, 0, ops->name, dev->id);
	if (!dev->end_wq)
		goto free;
	dev->ring_wq = alloc_workqueue("%s-%d-rings", WQ_UNBOUND,
				       VHOST_SERVE_MAX_VRINGS + VSERVE_RING_WORKS,
				       ops->name, dev->id);
	if (!dev->ring_wq)
		goto free;
	return dev;
free:
	vserve_free_dev(dev);
	return NULL;
}

/**
 * vserve_open - open() of a device
 * @file: the file that is being opened; its private_data points to the device from now on
 * @ops: the operations of the device
 */
int vserve_open(struct file *file, const struct vserve_ops *ops)
{
	struct vserve_dev *dev = vserve_alloc_dev(ops);
	int r;

	if (!dev)
		return -ENOMEM;
	r = ops->open ? ops->open(dev) : 0;
	if (r) {
		vserve_free_dev(dev);
		return r;
	}
	dev->opened = true;
	vhost_dev_init(&dev->vdev, dev->vqs, 0, UIO_MAXIOV, 0, 0, false, NULL);
	file->private_data = dev;
	return 0;
}
EXPORT_SYMBOL_GPL(vserve_open);

/* End a device whose file is closed.  This waits until all vrings have stopped. */
static void vserve_end_dev(struct vserve_dev *dev)
{
	mutex_lock(&dev->vdev.mutex);
	vserve_finish_stop_all(dev);
	vserve_forget(dev, false);
	mutex_unlock(&dev->vdev.mutex);
	vhost_dev_stop(&dev->vdev);
	vhost_dev_cleanup(&dev->vdev);
	/* Wait for completions and kicks that are about to wake the poller of a vring. */
	synchronize_rcu();
	vserve_free_dev(dev);
}

/*
 * Whether the task that closes the file last does not belong to the owner.
 *
 * release() does not let such a task wait for the backend.  A kernel thread closes files for the
 * whole host, one after the other.  It gets the device's file if io_uring had the last reference,
 * or if that was in transit in a socket.  A process that got the descriptor from the owner need not
 * wait either, because it is not the one that reuses the owner's memory.
 *
 * An exiting task has no mm any more, so the function can only check whether the owner is gone.  A
 * task that executes another program gets a new mm before it closes the device.  It waits as the
 * owner does, because the new program may look at the rings at once.
 */
static bool vserve_is_foreign_close(const struct vserve_dev *dev)
{
	const struct mm_struct *mm = dev->vdev.mm;

	if (!mm)
		return false;
	if (current->mm == mm)
		return false;
	return IS_ENABLED(CONFIG_MEMCG) && !vserve_owner_is_gone(mm);
}

/*
 * End the device once its backend has answered, however long that takes.  The workers stay in the
 * owner's cgroups as long as the owner lives, because otherwise it could escape its limits by a
 * close.
 */
static void vserve_do_end_late(struct vserve_dev *dev)
{
	struct module *owner = dev->ops->owner;

	mutex_lock(&dev->vdev.mutex);
	if (!vserve_await_all(dev))
		vserve_workers_give_back(dev->workers);
	mutex_unlock(&dev->vdev.mutex);
	vserve_end_dev(dev);
	/* The caller holds a reference to this module until it is done. */
	module_put(owner);
}

static int vserve_late_thread(void *dev)
{
	vserve_do_end_late(dev);
	module_put_and_kthread_exit(0);
}

/*
 * Create a thread that ends the device.  Each device gets its own thread, because a workqueue runs
 * a limited number of works at a time, and a backend may never answer.  A work creates the thread,
 * because the task that closes the device may be killed, and a killed task cannot create one.
 */
static void vserve_late_work(struct work_struct *work)
{
	struct vserve_dev *dev = container_of(work, struct vserve_dev, late_work);
	struct task_struct *thread;

	thread = kthread_run(vserve_late_thread, dev, "%s-%d-late", dev->ops->name, dev->id);
	if (!IS_ERR(thread))
		return;
	vserve_do_end_late(dev);
	/* vserve_exit() waits for this work, so the module stays until the work has returned. */
	module_put(THIS_MODULE);
}

static void vserve_end_late(struct vserve_dev *dev)
{
	/* The file holds a reference to the device's module until release() returns. */
	__module_get(dev->ops->owner);
	__module_get(THIS_MODULE);
	INIT_WORK(&dev->late_work, vserve_late_work);
	queue_work(vserve_late_wq, &dev->late_work);
}

/**
 * vserve_release - release() of a device
 * @inode: the device's inode
 * @file: the file that is closed
 */
int vserve_release(struct inode *inode, struct file *file)
{
	struct vserve_dev *dev = file->private_data;
	bool foreign, late;

	mutex_lock(&dev->vdev.mutex);
	foreign = current->flags & PF_KTHREAD || vserve_is_foreign_close(dev);
	late = current->flags & PF_KTHREAD ||
	       (vserve_any_running(dev) && (foreign || !vserve_await_all(dev)));
	/* The owner is gone or is being killed, and its cgroups must not wait for the backend. */
	if (late && !foreign)
		vserve_workers_give_back(dev->workers);
	mutex_unlock(&dev->vdev.mutex);
	if (late)
		vserve_end_late(dev);
	else
		vserve_end_dev(dev);
	return 0;
}
EXPORT_SYMBOL_GPL(vserve_release);

static int __init vserve_init(void)
{
	int r = vserve_workers_init();

	if (r)
		return r;
	vserve_late_wq = alloc_workqueue("vhost_serve", WQ_UNBOUND, 0);
	if (vserve_late_wq)
		return 0;
	vserve_workers_exit();
	return -ENOMEM;
}
module_init(vserve_init);

static void __exit vserve_exit(void)
{
	/* Destroy this queue first, because its works end workers. */
	destroy_workqueue(vserve_late_wq);
	vserve_workers_exit();
}
module_exit(vserve_exit);

MODULE_DESCRIPTION("Serves the rings of KVM guests for vhost_blk and vhost_fs");
MODULE_LICENSE("GPL");
