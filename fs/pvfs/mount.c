// SPDX-License-Identifier: GPL-2.0
/*
 * The file system type: options, superblock, and the connection's life.
 *
 * A device has at most one connection.  The connection holds a reference to the device, and has one
 * main superblock.
 *
 * If the server announces submounts (FUSE_ATTR_SUBMOUNT), the core makes a superblock of the same
 * connection for each of them, and mounts it when a task walks into it.  The superblock of a
 * submount uses the bdi of the main one to write its pages back, and that bdi goes with the main
 * one.  So each submount holds the main superblock, and the connection ends with the main one.
 */
#include "pvfs.h"

#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

/* The options in a file system context. */
struct pvfs_context {
	struct fuse_fs_context fuse;
	enum pvfs_cache cache;
	bool cache_given;
	unsigned int timeout;
	bool timeout_given;
};

enum { PVFS_OPT_CACHE, PVFS_OPT_DAX, PVFS_OPT_TIMEOUT };

static const struct constant_table pvfs_cache_values[] = {
	{ "none", PVFS_CACHE_NONE },
	{ "auto", PVFS_CACHE_AUTO },
	{ "always", PVFS_CACHE_ALWAYS },
	{}
};

static const struct constant_table pvfs_dax_values[] = {
	{ "never", FUSE_DAX_NEVER },
	{}
};

static const struct fs_parameter_spec pvfs_parameters[] = {
	fsparam_enum("cache", PVFS_OPT_CACHE, pvfs_cache_values),
	fsparam_enum("dax", PVFS_OPT_DAX, pvfs_dax_values),
	fsparam_u32("timeout", PVFS_OPT_TIMEOUT),
	{}
};

/* An option that stays the same is no error, because mount(8) repeats all options at a remount. */
static int pvfs_check_param(struct fs_context *fsc, struct fs_parameter *param, int opt,
			    const struct fs_parse_result *result)
{
	struct pvfs_dev *dev = get_fuse_conn_super(fsc->root->d_sb)->iq.priv;

	if (opt == PVFS_OPT_DAX || (opt == PVFS_OPT_CACHE && result->uint_32 == dev->cache) ||
	    (opt == PVFS_OPT_TIMEOUT && result->uint_32 == dev->timeout))
		return 0;
	return invalfc(fsc, "%s= cannot be changed by a remount; unmount first", param->key);
}

static int pvfs_parse_param(struct fs_context *fsc, struct fs_parameter *param)
{
	struct pvfs_context *ctx = fsc->fs_private;
	struct fs_parse_result result;
	int opt = fs_parse(fsc, pvfs_parameters, param, &result);

	if (opt < 0)
		return opt;
	if (fsc->purpose == FS_CONTEXT_FOR_RECONFIGURE)
		return pvfs_check_param(fsc, param, opt, &result);
	if (opt == PVFS_OPT_CACHE) {
		ctx->cache = result.uint_32;
		ctx->cache_given = true;
	} else if (opt == PVFS_OPT_TIMEOUT) {
		if (result.uint_32 > PVFS_TIMEOUT_MAX)
			return invalfc(fsc, "timeout= is at most %u seconds", PVFS_TIMEOUT_MAX);
		ctx->timeout = result.uint_32;
		ctx->timeout_given = true;
	}
	return 0;
}

/* Write data back before the mount becomes read-only, as the core does. */
static int pvfs_reconfigure(struct fs_context *fsc)
{
	sync_filesystem(fsc->root->d_sb);
	return 0;
}

static void pvfs_free_context(struct fs_context *fsc)
{
	kfree(fsc->fs_private);
}

static void pvfs_release(struct fuse_iqueue *fiq)
{
	pvfs_dev_put(fiq->priv);
}

static const struct fuse_iqueue_ops pvfs_iqueue_ops = {
	.send_forget	= pvfs_send_forget,
	.send_interrupt	= pvfs_send_interrupt,
	.send_req	= pvfs_send_req,
	.release	= pvfs_release,
#ifdef PVFS_IOPOLL
	.iopoll		= pvfs_iopoll,
#endif
};

/*
 * Limit the size of requests, so that two of the largest fit into a ring.  Then small ones come in
 * between, and a large one fits beside requests that wait for locks (see locks.c).  The driver
 * knows the size of the rings only once the device is up.
 */
static void pvfs_limit_pages(struct fuse_conn *fc, struct pvfs_dev *dev)
{
	fc->max_pages_limit = min(fc->max_pages_limit, dev->ring_size / 2 - PVFS_SG_HEADERS);
	/* This limit counts if the server's reply to INIT names none. */
	fc->max_pages = min(fc->max_pages, fc->max_pages_limit);
}

static void pvfs_fuse_defaults(struct fuse_fs_context *fuse)
{
	fuse->rootmode = S_IFDIR;
	fuse->default_permissions = 1;
	fuse->allow_other = 1;
	fuse->max_read = UINT_MAX;
	fuse->blksize = 512;
	fuse->destroy = true;
	fuse->no_control = true;
	/* The umount -f of the core would leave requests in the ring, see umount.c. */
	fuse->no_force_umount = true;
	fuse->dax_mode = FUSE_DAX_NEVER;
}

/* Show the options that differ from the defaults. */
static int pvfs_show_options(struct seq_file *m, struct dentry *root)
{
	struct pvfs_dev *dev = get_fuse_conn_super(root->d_sb)->iq.priv;

	if (dev->cache != PVFS_CACHE_NONE)
		seq_printf(m, ",cache=%s", pvfs_cache_name(dev->cache));
	if (dev->timeout)
		seq_printf(m, ",timeout=%u", dev->timeout);
	return dev->core_ops->show_options(m, root);
}

/*
 * Give a superblock the driver's operations.  They are in DEV, which the connection holds until
 * pvfs_kill_sb() has ended for the last superblock.  No task calls them after that.
 */
static void pvfs_take_super_ops(struct super_block *sb, struct pvfs_dev *dev)
{
	lockdep_assert_held(&dev->lock);
	/* Fill them only once, because a submount of an earlier mount may still use them. */
	if (!dev->core_ops) {
		dev->super_ops = *sb->s_op;
		dev->super_ops.umount_begin = pvfs_umount_begin;
		dev->super_ops.show_options = pvfs_show_options;
		dev->core_ops = sb->s_op;
	}
	sb->s_op = &dev->super_ops;
}

/* The caller holds dev->lock, so the device does not go, and gets no other connection. */
static int pvfs_fill_super_locked(struct super_block *sb, struct pvfs_context *ctx)
{
	struct fuse_mount *fm = get_fuse_mount_super(sb);
	struct pvfs_dev *dev = fm->fc->iq.priv;
	int err;

	/*
	 * pvfs_await_dev() has revived the device before.  But then sget_fc() may have waited for
	 * the umount of an earlier mount, and that umount may have given the device up.  Only then
	 * does the mount reset the device here, where sync(2) waits for it.
	 */
	err = pvfs_dev_revive(dev);
	if (err)
		return err;
	pvfs_limit_pages(fm->fc, dev);
	pvfs_fuse_defaults(&ctx->fuse);
	err = fuse_fill_super_common(sb, &ctx->fuse);
	if (err)
		return err;
	pvfs_take_super_ops(sb, dev);
	WRITE_ONCE(dev->cache, ctx->cache);
	WRITE_ONCE(dev->writeback, false);
	WRITE_ONCE(dev->exit_replies, 0);
	WRITE_ONCE(dev->exit_task, 0);
	WRITE_ONCE(dev->fc, fm->fc);
	pvfs_timeout_start(dev, ctx->timeout);
	fuse_send_init(fm);
	return 0;
}

static int pvfs_fill_super(struct super_block *sb, struct fs_context *fsc)
{
	struct pvfs_dev *dev = get_fuse_conn_super(sb)->iq.priv;
	int err;

	if (mutex_lock_killable(&dev->lock))
		return -EINTR;
	err = pvfs_fill_super_locked(sb, fsc->fs_private);
	mutex_unlock(&dev->lock);
	return err;
}

/*
 * The last superblock goes, and no file is open.  FORGETs, late closes and abandoned requests may
 * still be in flight.
 */
static void pvfs_conn_destroy(struct fuse_mount *fm)
{
	struct pvfs_dev *dev = fm->fc->iq.priv;
	unsigned int i;

	for (i = 0; i < dev->nr_queues; i++)
		pvfs_abandoned_unmount(&dev->queues[i]);
	pvfs_closes_finish(dev);
	pvfs_closes_forget(dev);
	pvfs_hiprio_drain(dev);
	fuse_conn_destroy(fm);
	pvfs_abandoned_await(dev);
	/* Stop the timeout last, because DESTROY may wait for a server that does not answer. */
	pvfs_timeout_stop(dev);
	mutex_lock(&dev->lock);
	WRITE_ONCE(dev->fc, NULL);
	mutex_unlock(&dev->lock);
}

static void pvfs_kill_sb(struct super_block *sb)
{
	struct fuse_mount *fm = get_fuse_mount_super(sb);
	struct pvfs_dev *dev = fm->fc->iq.priv;
	/* A superblock of a mount that failed early has no root, and does not hold the main one. */
	bool filled = sb->s_root;
	struct super_block *main = READ_ONCE(dev->sb);

	if (filled && fuse_mount_remove(fm))
		pvfs_conn_destroy(fm);
	kill_anon_super(sb);
	/* Until here another mount of the device finds this superblock, and waits for its end. */
	cmpxchg(&dev->sb, sb, NULL);
	fuse_mount_destroy(fm);
	/* Drop the main superblock last, because the device may go with it. */
	if (filled && main != sb)
		deactivate_super(main);
}

static struct pvfs_dev *pvfs_context_dev(struct fs_context *fsc)
{
	struct fuse_mount *fm = fsc->s_fs_info;

	return fm->fc->iq.priv;
}

/* sget_fc() must not find the superblock of a submount, whose root is not that of the device. */
static int pvfs_same_device(struct super_block *sb, struct fs_context *fsc)
{
	return READ_ONCE(pvfs_context_dev(fsc)->sb) == sb;
}

/* sget_fc() has held sb_lock since pvfs_same_device() found no superblock, so there is none now. */
static int pvfs_set_super(struct super_block *sb, struct fs_context *fsc)
{
	struct pvfs_dev *dev = pvfs_context_dev(fsc);
	int err = set_anon_super_fc(sb, fsc);

	if (!err)
		WRITE_ONCE(dev->sb, sb);
	return err;
}

/* Make a connection, which takes over the caller's reference to the device. */
static struct fuse_mount *pvfs_conn_new(struct fs_context *fsc, struct pvfs_dev *dev)
{
	struct fuse_conn *fc = kzalloc(sizeof(*fc), GFP_KERNEL);
	struct fuse_mount *fm = kzalloc(sizeof(*fm), GFP_KERNEL);

	if (!fc || !fm) {
		kfree(fc);
		kfree(fm);
		pvfs_dev_put(dev);
		return NULL;
	}
	fuse_conn_init(fc, fm, fsc->user_ns, &pvfs_iqueue_ops, dev);
	fc->release = fuse_free_conn;
	fc->delete_stale = true;
	fc->auto_submounts = true;
	fc->sync_fs = true;
	fc->use_pages_for_kvec_io = true;
	/*
	 * The core tells poll(2) that files are always ready, as they are on the host.  It must not
	 * ask the server: the device cannot send FUSE_NOTIFY_POLL, and io_uring polls before each
	 * I/O on a file without FMODE_NOWAIT.
	 */
	fc->no_poll = true;
	return fm;
}

/* A second mount shares the superblock, so it cannot have other options. */
static int pvfs_same_options(struct fs_context *fsc, struct pvfs_dev *dev)
{
	struct pvfs_context *ctx = fsc->fs_private;

	if (ctx->cache_given && dev->cache != ctx->cache) {
		errorfc(fsc, "%s is already mounted with cache=%s; use that, or unmount it first",
			dev->tag, pvfs_cache_name(dev->cache));
		return -EBUSY;
	}
	if (ctx->timeout_given && dev->timeout != ctx->timeout) {
		errorfc(fsc, "%s is already mounted with timeout=%u; use that, or unmount it first",
			dev->tag, dev->timeout);
		return -EBUSY;
	}
	return 0;
}

static int pvfs_get_super(struct fs_context *fsc, struct fuse_mount *fm)
{
	struct super_block *sb;
	int err = 0;

	fsc->s_fs_info = fm;
	sb = sget_fc(fsc, pvfs_same_device, pvfs_set_super);
	if (fsc->s_fs_info)
		fuse_mount_destroy(fm);
	if (IS_ERR(sb))
		return PTR_ERR(sb);
	if (!sb->s_root) {
		err = pvfs_fill_super(sb, fsc);
		if (!err)
			sb->s_flags |= SB_ACTIVE;
	} else {
		err = pvfs_same_options(fsc, get_fuse_conn_super(sb)->iq.priv);
	}
	if (err) {
		deactivate_locked_super(sb);
		return err;
	}
	fsc->root = dget(sb->s_root);
	return 0;
}

/*
 * Wait for a device that is being reset, or restart one that was given up.  The mount does this
 * before it has a superblock, because sync(2) would wait for a superblock that is not ready.
 */
static int pvfs_await_dev(struct fs_context *fsc, struct pvfs_dev *dev)
{
	int err;

	if (mutex_lock_interruptible(&dev->lock))
		return -EINTR;
	err = pvfs_dev_revive(dev);
	mutex_unlock(&dev->lock);
	if (err == -EBUSY)
		errorfc(fsc, "%s has failed and is still mounted; unmount it first", dev->tag);
	else if (err)
		errorfc(fsc, "the device of %s is gone or cannot be restarted; see the kernel log",
			dev->tag);
	return err;
}

static int pvfs_get_tree(struct fs_context *fsc)
{
	struct pvfs_dev *dev;
	struct fuse_mount *fm;
	int err;

	if (!fsc->source)
		return invalfc(fsc, "no tag given; use mount -t pvfs TAG DIRECTORY");
	dev = pvfs_dev_find(fsc->source);
	if (!dev) {
		errorfc(fsc, "no pvfs device has tag %s; mount.pvfs can move it from virtiofs",
			fsc->source);
		return -ENODEV;
	}
	err = pvfs_await_dev(fsc, dev);
	if (err) {
		pvfs_dev_put(dev);
		return err;
	}
	fm = pvfs_conn_new(fsc, dev);
	return fm ? pvfs_get_super(fsc, fm) : -ENOMEM;
}

static const struct fs_context_operations pvfs_context_ops = {
	.free		= pvfs_free_context,
	.parse_param	= pvfs_parse_param,
	.get_tree	= pvfs_get_tree,
	.reconfigure	= pvfs_reconfigure,
};

/*
 * The core makes the superblock of the submount.  Then the driver has it hold the main superblock,
 * and gives it the operations of the main one, such as umount -f.  The main one is active, because
 * the task walks into the submount from the main one, or from one that holds it.
 */
static int pvfs_get_tree_submount(struct fs_context *fsc)
{
	struct pvfs_dev *dev;
	int err = fuse_init_fs_context_submount(fsc);

	if (!err)
		err = fsc->ops->get_tree(fsc);
	if (err)
		return err;
	dev = get_fuse_conn_super(fsc->root->d_sb)->iq.priv;
	atomic_inc(&dev->sb->s_active);
	fsc->root->d_sb->s_op = &dev->super_ops;
	return 0;
}

static const struct fs_context_operations pvfs_submount_ops = {
	.get_tree	= pvfs_get_tree_submount,
};

static int pvfs_init_fs_context(struct fs_context *fsc)
{
	struct pvfs_context *ctx;

	if (fsc->purpose == FS_CONTEXT_FOR_SUBMOUNT) {
		fsc->ops = &pvfs_submount_ops;
		return 0;
	}
	ctx = kzalloc(sizeof(*ctx), GFP_KERNEL);
	if (!ctx)
		return -ENOMEM;
	fsc->fs_private = ctx;
	fsc->ops = &pvfs_context_ops;
	return 0;
}

struct file_system_type pvfs_type = {
	.owner			= THIS_MODULE,
	.name			= "pvfs",
	.init_fs_context	= pvfs_init_fs_context,
	.parameters		= pvfs_parameters,
	.kill_sb		= pvfs_kill_sb,
	.fs_flags		= FS_ALLOW_IDMAP,
};
