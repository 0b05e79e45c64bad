// SPDX-License-Identifier: GPL-2.0
/*
 * An export: the directory that a device serves, in a private clone of its mount, with the guest's
 * limits.  VHOST_FS_SET_EXPORT makes it.
 */
#include <linux/file.h>
#include <linux/memcontrol.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "fs.h"

#define DEFAULT_NODES	1000000
#define DEFAULT_HANDLES	65536
#define DEFAULT_LOCKS	16384

/*
 * A request names up to two nodes, and may find a third one.  All of them are live at the same
 * time.
 */
#define MIN_DENTRIES	4U

/* By default one of this many nodes may be live. */
#define NODES_PER_DENTRY 10

/*
 * How many works of one export run at the same time: requests that wait for locks, and the swapper.
 */
#define EXPORT_WORKERS	16

#define KNOWN_FLAGS							\
	(VHOST_FS_EXPORT_READ_ONLY | VHOST_FS_EXPORT_SQUASH |		\
	 VHOST_FS_EXPORT_NO_XATTR | VHOST_FS_EXPORT_MAP_XATTR |		\
	 VHOST_FS_EXPORT_RAW_XATTR | VHOST_FS_EXPORT_LOCAL_LOCKS |	\
	 VHOST_FS_EXPORT_NO_ACL | VHOST_FS_EXPORT_WRITEBACK |		\
	 VHOST_FS_EXPORT_SUBMOUNTS)

static int vhfs_check_config(const struct vhost_fs_export *cfg)
{
	u32 xattr = cfg->flags & (VHOST_FS_EXPORT_NO_XATTR |
				  VHOST_FS_EXPORT_MAP_XATTR |
				  VHOST_FS_EXPORT_RAW_XATTR);

	if (cfg->flags & ~KNOWN_FLAGS || hweight32(xattr) > 1)
		return -EINVAL;
	if (cfg->cache > VHOST_FS_CACHE_ALWAYS)
		return -EINVAL;
	if (!(cfg->flags & VHOST_FS_EXPORT_SQUASH) &&
	    (cfg->squash_uid || cfg->squash_gid))
		return -EINVAL;
	/* The counters are of type atomic_t. */
	if (cfg->max_nodes > INT_MAX / 2 || cfg->max_handles > INT_MAX / 2 ||
	    cfg->max_locks > INT_MAX / 2 || cfg->max_dentries > INT_MAX / 2)
		return -EINVAL;
	return cfg->max_dentries && cfg->max_dentries < MIN_DENTRIES ? -EINVAL : 0;
}

static struct vhfs_timeout vhfs_timeout(u32 ms)
{
	return (struct vhfs_timeout) {
		.sec = ms / MSEC_PER_SEC, .nsec = ms % MSEC_PER_SEC * NSEC_PER_MSEC,
	};
}

static void vhfs_set_config(struct vhfs_export *ex,
			    const struct vhost_fs_export *cfg)
{
	ex->cfg = *cfg;
	ex->entry_valid = vhfs_timeout(cfg->entry_timeout_ms);
	ex->attr_valid = vhfs_timeout(cfg->attr_timeout_ms);
	ex->cfg.max_nodes = cfg->max_nodes ?: DEFAULT_NODES;
	ex->cfg.max_handles = cfg->max_handles ?: DEFAULT_HANDLES;
	ex->cfg.max_locks = cfg->max_locks ?: DEFAULT_LOCKS;
	ex->cfg.max_dentries = cfg->max_dentries ?:
			       max(ex->cfg.max_nodes / NODES_PER_DENTRY, MIN_DENTRIES);
	ex->strict = cfg->max_dentries;
}

static void vhfs_close_root(struct vhfs_export *ex)
{
	vhfs_top_close(ex);
	dput(ex->root.dentry);
	kern_unmount(ex->root.mnt);
}

/*
 * Clone the directory's mount.  The clone has no children, and no other task can change or unmount
 * it.
 */
static int vhfs_clone_mount(struct vhfs_export *ex, const struct path *dir)
{
	struct vfsmount *mnt;
	int r;

	if (!d_is_dir(dir->dentry))
		return -ENOTDIR;
	if (!d_can_lookup(dir->dentry))
		return -EINVAL;
	mnt = clone_private_mount(dir);
	if (IS_ERR(mnt))
		return PTR_ERR(mnt);
	if (vhfs_read_only(ex))
		mnt->mnt_flags |= MNT_READONLY;
	/* Guests open their own devices, and the host runs no program from here. */
	mnt->mnt_flags |= MNT_NODEV | MNT_NOSUID;
	ex->root.mnt = mnt;
	ex->root.dentry = dget(dir->dentry);
	r = vhfs_top_open(ex, dir);
	if (r)
		vhfs_close_root(ex);
	return r;
}

static int vhfs_open_root(struct vhfs_export *ex)
{
	/* fget_raw() takes a descriptor that was opened with O_PATH, too. */
	struct file *dir = fget_raw(ex->cfg.fd);
	int r;

	if (!dir)
		return -EBADF;
	r = vhfs_clone_mount(ex, &dir->f_path);
	fput(dir);
	if (r)
		return r;
	/*
	 * The owner must have the rights to open the directory.  Each operation checks what is
	 * beneath.
	 */
	r = inode_permission(mnt_idmap(ex->root.mnt), d_inode(ex->root.dentry),
			     MAY_READ | MAY_EXEC);
	if (r)
		vhfs_close_root(ex);
	return r;
}

static void vhfs_reap(struct work_struct *work)
{
	struct vhfs_export *ex = container_of(work, struct vhfs_export, reaper);

	WRITE_ONCE(ex->reap_since, jiffies | 1);
	vhfs_reap_handles(ex);
	vhfs_reap_nodes(ex);
	WRITE_ONCE(ex->reap_since, 0);
}

static void vhfs_init_fields(struct vhfs_export *ex,
			     const struct vhost_fs_export *cfg)
{
	vhfs_set_config(ex, cfg);
	mutex_init(&ex->session_lock);
	mutex_init(&ex->climb_lock);
	mutex_init(&ex->mounts_lock);
	hash_init(ex->mounts);
	init_llist_head(&ex->reap_nodes);
	init_llist_head(&ex->reap_handles);
	INIT_WORK(&ex->reaper, vhfs_reap);
	INIT_WORK(&ex->swapper, vhfs_swapper);
	ex->vain_until = jiffies;
	ex->generation = get_random_u32() ?: 1;
	ex->memcg = get_mem_cgroup_from_mm(current->mm);
	ex->user_ns = get_user_ns(current_user_ns());
	ex->pid = current->tgid;
}

static void vhfs_free(struct vhfs_export *ex)
{
	mem_cgroup_put(ex->memcg);
	put_user_ns(ex->user_ns);
	kfree(ex);
}

/* Set up all that hangs on the root.  After an error only the root is left. */
static int vhfs_fill_export(struct vhfs_export *ex)
{
	int r;

	ex->creds = vhfs_creds_open(&ex->cfg);
	if (IS_ERR(ex->creds))
		return PTR_ERR(ex->creds);
	r = -ENOMEM;
	ex->wq = alloc_workqueue("vhost_fs", WQ_UNBOUND, EXPORT_WORKERS);
	if (!ex->wq)
		goto creds;
	/*
	 * To free a removed file changes the file system, so the reaper freezes with the workers
	 * (see vserve_alloc_dev()).  The swapper does not freeze, because a worker may wait for it.
	 * It has a queue of its own, because works for locks may wait for the server of a file
	 * system.
	 */
	ex->reap_wq = alloc_workqueue("vhost_fs-reap", WQ_UNBOUND | WQ_FREEZABLE, 1);
	if (!ex->reap_wq)
		goto wq;
	ex->swap_wq = alloc_workqueue("vhost_fs-swap", WQ_UNBOUND, 1);
	if (!ex->swap_wq)
		goto reap_wq;
	ex->locks = vhfs_locks_open(ex);
	if (!ex->locks)
		goto swap_wq;
	r = vhfs_table_init(ex);
	if (r)
		goto locks;
	return 0;
locks:
	vhfs_locks_close(ex->locks);
swap_wq:
	destroy_workqueue(ex->swap_wq);
reap_wq:
	destroy_workqueue(ex->reap_wq);
wq:
	destroy_workqueue(ex->wq);
creds:
	vhfs_creds_close(ex->creds);
	return r;
}

/**
 * vhfs_export_open - serve a directory
 * @cfg: the configuration from user space
 *
 * Operations act with the caller's credentials from now on.
 *
 * Return: the export, or an error.
 */
struct vhfs_export *vhfs_export_open(const struct vhost_fs_export *cfg)
{
	struct vhfs_export *ex;
	int r = vhfs_check_config(cfg);

	if (r)
		return ERR_PTR(r);
	ex = kzalloc(sizeof(*ex), GFP_KERNEL_ACCOUNT);
	if (!ex)
		return ERR_PTR(-ENOMEM);
	vhfs_init_fields(ex, cfg);
	r = vhfs_open_root(ex);
	if (r)
		goto free;
	r = vhfs_fill_export(ex);
	if (r)
		goto root;
	return ex;
root:
	vhfs_close_root(ex);
free:
	vhfs_free(ex);
	return ERR_PTR(r);
}

/**
 * vhfs_export_close - end an export
 * @ex: the export, without requests: those that waited for a lock were cancelled and answered
 *
 * When this returns nothing is left of the export.  Files are closed, locks are gone, and the file
 * system can be unmounted.
 */
void vhfs_export_close(struct vhfs_export *ex)
{
	vhfs_end_session(ex);
	cancel_work_sync(&ex->swapper);
	flush_work(&ex->reaper);
	vhfs_table_destroy(ex);
	vhfs_locks_close(ex->locks);
	destroy_workqueue(ex->swap_wq);
	destroy_workqueue(ex->reap_wq);
	destroy_workqueue(ex->wq);
	vhfs_creds_close(ex->creds);
	/* Nodes are freed after a grace period, but their dentries have been put by now. */
	vhfs_close_root(ex);
	vhfs_free(ex);
}

/**
 * vhfs_export_info - tell what is served and used
 * @ex: the export
 * @info: to be filled; the caller fills its features and size
 */
void vhfs_export_info(struct vhfs_export *ex, struct vhost_fs_info *info)
{
	info->flags = ex->cfg.flags;
	info->state = VHOST_FS_INFO_EXPORT;
	if (READ_ONCE(ex->session.up)) {
		info->state |= VHOST_FS_INFO_SESSION;
		info->minor = ex->session.minor;
		info->fuse_flags = ex->session.flags;
	}
	info->max_nodes = ex->cfg.max_nodes;
	info->max_handles = ex->cfg.max_handles;
	info->max_locks = ex->cfg.max_locks;
	info->max_write = VHFS_MAX_WRITE;
	info->nodes = atomic_read(&ex->table.nr_nodes);
	info->handles = atomic_read(&ex->table.nr_handles);
	info->locks = vhfs_locks_used(ex->locks);
	info->sessions = atomic64_read(&ex->sessions);
	info->refused = atomic64_read(&ex->refused);
	info->max_dentries = ex->cfg.max_dentries;
	info->dentries = vhfs_nr_live(ex);
	info->swapped_out = READ_ONCE(ex->table.swapped_out);
	info->swapped_in = READ_ONCE(ex->table.swapped_in);
	info->searches = atomic64_read(&ex->searches);
}
