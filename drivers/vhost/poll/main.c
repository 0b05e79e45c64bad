// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/vhost-poll: its ioctls create a poller, set the mode, and read the statistics.  The poller
 * lives as long as the descriptor; poller.c has its thread.
 */
#include <linux/capability.h>
#include <linux/cpumask.h>
#include <linux/ctype.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "poll.h"

/* The sizes of the first version.  No user space has smaller structures. */
#define CREATE_SIZE_VER0	32
#define SET_MODE_SIZE_VER0	16
#define STATS_SIZE_VER0		104

unsigned int vhost_poll_max_window_us = 200;
module_param_named(max_window_us, vhost_poll_max_window_us, uint, 0644);
MODULE_PARM_DESC(max_window_us,
		 "Adaptive mode: keep polling for up to this time after the last request (microseconds, default 200)");

unsigned int vhost_poll_max_run_us = 250;
module_param_named(max_run_us, vhost_poll_max_run_us, uint, 0644);
MODULE_PARM_DESC(max_run_us,
		 "Hand the rings to another thread when one request has run for this time, or at the latest for twice this time (microseconds, minimum 50, default 250; 0: never)");

/* One CREATE at a time, so that a descriptor gets one poller. */
static DEFINE_MUTEX(create_lock);

/* The poller of @file, or NULL before VHOST_POLL_CREATE. */
static struct vhost_poller *vhost_file_poller(struct file *file)
{
	/* Pairs with the release in vhost_poll_create(). */
	return smp_load_acquire(&file->private_data);
}

static int vhost_check_name(const char *name)
{
	size_t len = strnlen(name, VHOST_POLL_NAME_LEN);

	if (len == VHOST_POLL_NAME_LEN)
		return -EINVAL;
	while (len--) {
		if (!isascii(name[len]) || !isgraph(name[len]))
			return -EINVAL;
	}
	return 0;
}

static int vhost_check_create(const struct vhost_poll_create *arg)
{
	if (arg->flags || arg->mode > VHOST_POLL_MODE_EVENT)
		return -EINVAL;
	if (arg->cpu >= nr_cpu_ids || !cpu_possible(arg->cpu))
		return -EINVAL;
	return vhost_check_name(arg->name);
}

static long vhost_poll_create(struct file *file, void __user *uarg)
{
	struct vhost_poll_create arg;
	struct vhost_poller *p;
	int ret;

	BUILD_BUG_ON(sizeof(arg) != CREATE_SIZE_VER0);
	if (!capable(CAP_SYS_NICE))
		return -EPERM;
	ret = vhost_poll_get_arg(&arg, sizeof(arg), uarg, CREATE_SIZE_VER0);
	if (ret)
		return ret;
	ret = vhost_check_create(&arg);
	if (ret)
		return ret;

	guard(mutex)(&create_lock);
	if (vhost_file_poller(file))
		return -EBUSY;
	p = vhost_poller_create(file, &arg);
	if (IS_ERR(p))
		return PTR_ERR(p);
	/* Pairs with the acquire in vhost_file_poller(). */
	smp_store_release(&file->private_data, p);
	return 0;
}

/* This needs no capability.  CREATE needed one, and now the descriptor is the permission. */
static long vhost_poll_set_mode(struct file *file, void __user *uarg)
{
	struct vhost_poller *p = vhost_file_poller(file);
	struct vhost_poll_set_mode arg;
	int ret;

	BUILD_BUG_ON(sizeof(arg) != SET_MODE_SIZE_VER0);
	ret = vhost_poll_get_arg(&arg, sizeof(arg), uarg, SET_MODE_SIZE_VER0);
	if (ret)
		return ret;
	if (arg.flags || arg.pad || arg.mode > VHOST_POLL_MODE_EVENT)
		return -EINVAL;
	if (!p)
		return -ENXIO;
	vhost_poller_set_mode(p, arg.mode);
	return 0;
}

static long vhost_poll_get_stats(struct file *file, void __user *uarg)
{
	struct vhost_poller *p = vhost_file_poller(file);
	struct vhost_poll_stats __user *ustats = uarg;
	struct vhost_poll_stats stats = {};
	u32 size, flags;
	int ret;

	BUILD_BUG_ON(offsetofend(struct vhost_poll_stats, idle_window_ns) !=
		     STATS_SIZE_VER0);
	ret = vhost_poll_arg_size(&size, uarg, STATS_SIZE_VER0);
	if (ret)
		return ret;
	if (get_user(flags, &ustats->flags))
		return -EFAULT;
	if (flags)
		return -EINVAL;
	if (!p)
		return -ENXIO;

	vhost_poller_stats(p, &stats);
	stats.size = min_t(u32, size, sizeof(stats));
	return vhost_poll_put_arg(uarg, size, &stats, sizeof(stats));
}

static long vhost_poll_ioctl(struct file *file, unsigned int cmd,
			     unsigned long arg)
{
	void __user *uarg = (void __user *)arg;

	switch (cmd & ~IOCSIZE_MASK) {
	case VHOST_POLL_CREATE & ~IOCSIZE_MASK:
		return vhost_poll_create(file, uarg);
	case VHOST_POLL_SET_MODE & ~IOCSIZE_MASK:
		return vhost_poll_set_mode(file, uarg);
	case VHOST_POLL_GET_STATS & ~IOCSIZE_MASK:
		return vhost_poll_get_stats(file, uarg);
	default:
		return -ENOTTY;
	}
}

static int vhost_poll_open(struct inode *inode, struct file *file)
{
	/* The misc core left its own pointer there, which is no poller. */
	file->private_data = NULL;
	return nonseekable_open(inode, file);
}

static int vhost_poll_release(struct inode *inode, struct file *file)
{
	struct vhost_poller *p = vhost_file_poller(file);

	if (p)
		vhost_poller_destroy(p);
	return 0;
}

static const struct file_operations vhost_poll_fops = {
	.owner		= THIS_MODULE,
	.open		= vhost_poll_open,
	.release	= vhost_poll_release,
	.unlocked_ioctl	= vhost_poll_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

/**
 * vhost_poller_get - the poller behind a descriptor
 * @fd: of the calling process
 *
 * Return: the poller with a reference for vhost_poller_put(), or an ERR_PTR():
 * -EBADF, -EINVAL if it is something else, -ENXIO before VHOST_POLL_CREATE.
 */
struct vhost_poller *vhost_poller_get(int fd)
{
	struct file *file = fget(fd);
	struct vhost_poller *p;

	if (!file)
		return ERR_PTR(-EBADF);
	if (file->f_op != &vhost_poll_fops) {
		fput(file);
		return ERR_PTR(-EINVAL);
	}
	p = vhost_file_poller(file);
	if (!p) {
		fput(file);
		return ERR_PTR(-ENXIO);
	}
	return p;
}
EXPORT_SYMBOL_GPL(vhost_poller_get);

/**
 * vhost_poller_put - give back what vhost_poller_get() returned
 * @poller: the poller, to which the caller has attached no source any more
 */
void vhost_poller_put(struct vhost_poller *poller)
{
	fput(poller->file);
}
EXPORT_SYMBOL_GPL(vhost_poller_put);

static struct miscdevice vhost_poll_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "vhost-poll",
	.fops	= &vhost_poll_fops,
	.mode	= 0600,
};

static int __init vhost_poll_init(void)
{
	int ret;

	ret = vhost_poll_hotplug_init();
	if (ret)
		return ret;
	ret = misc_register(&vhost_poll_misc);
	if (ret)
		vhost_poll_hotplug_exit();
	return ret;
}
module_init(vhost_poll_init);

static void __exit vhost_poll_exit(void)
{
	misc_deregister(&vhost_poll_misc);
	vhost_poll_hotplug_exit();
	/* Wait for vhost_poller_free_rcu(), because its code is in this module. */
	rcu_barrier();
}
module_exit(vhost_poll_exit);

MODULE_DESCRIPTION("Polling threads for in-kernel virtio devices");
MODULE_LICENSE("GPL");
