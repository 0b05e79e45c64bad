// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that the poller's thread carries out itself once its round is over, although they may
 * sleep: see work() in linux/vhost_serve.h, and drivers/vhost/poll/crew.c.
 */
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/fsnotify.h>
#include <linux/magic.h>

#include "serve.h"

/*
 * Whether a file system is on a disk of this host, or in its memory.  Other file systems with a
 * disk wait for a daemon or for other machines (fuseblk, gfs2, ocfs2), or write zeroes up to where
 * a file grows (vfat).
 */
static bool vserve_is_local(const struct super_block *sb)
{
	switch (sb->s_magic) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

/**
 * vserve_fs_allows_hot - whether the poller's thread may carry out operations of a file system
 * @sb: the file system
 * @changes: the operation changes something, and would wait for the thaw if @sb were frozen
 *
 * The operations may sleep.
 *
 * Return: false if an operation may wait for an unknown time, because the file system is not local,
 * is frozen, or has a fanotify listener that the kernel asks for permission.
 */
bool vserve_fs_allows_hot(struct super_block *sb, bool changes)
{
	if (!vserve_is_local(sb) ||
	    fsnotify_sb_has_priority_watchers(sb, FSNOTIFY_PRIO_CONTENT))
		return false;
	return !changes || READ_ONCE(sb->s_writers.frozen) == SB_UNFROZEN;
}
EXPORT_SYMBOL_GPL(vserve_fs_allows_hot);

/**
 * vserve_read_is_watched - whether a task of the host may watch reads of a file
 * @file: the file
 *
 * Return: true if a thread that reads has to allocate an event, and may sleep for it.  A module
 * cannot tell whether a fanotify listener has marked the mount, so the function does not see such a
 * mark.
 */
bool vserve_read_is_watched(const struct file *file)
{
#ifdef CONFIG_FSNOTIFY
	const struct inode *inode = file_inode(file);

	if (!fsnotify_sb_has_watchers(inode->i_sb))
		return false;
	return inode->i_fsnotify_mask & FS_ACCESS ||
	       file->f_path.dentry->d_flags & DCACHE_FSNOTIFY_PARENT_WATCHED ||
	       rcu_access_pointer(fsnotify_sb_info(inode->i_sb)->sb_marks);
#else
	return false;
#endif
}
EXPORT_SYMBOL_GPL(vserve_read_is_watched);

/**
 * vserve_fs_queues_direct - whether direct I/O on a file system ends by the disk's completion
 * @sb: the file system
 *
 * Return: false if the data may be copied.  That is so for a file system in memory, and for btrfs.
 * btrfs copies the data that it writes, for its checksums.  It copies the data that it reads if
 * they are compressed or not aligned to its blocks, and waits for the disk then.
 */
bool vserve_fs_queues_direct(const struct super_block *sb)
{
	switch (sb->s_magic) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}
EXPORT_SYMBOL_GPL(vserve_fs_queues_direct);

/**
 * vserve_to_poller - have the poller's thread carry out a request after its round
 * @req: the request, after vserve_req_start(), in a round of the poller
 */
void vserve_to_poller(struct vserve_req *req)
{
	struct vserve_vring *vring = req->vring;

	lockdep_assert_held(&vring->vq.mutex);
	/* No backend has the request, so the poller must not wait for it before a retry. */
	req->in_worker = true;
	vring->nr_in_workers++;
	req->hot = true;
	req->next = NULL;
	*vring->hot_last = req;
	vring->hot_last = &req->next;
	vring->src.waiting = true;
}

/**
 * vserve_req_hot - have the poller's thread carry out a request after its round
 * @req: the request, on no list; the vring's mutex is held, in submit() or flush()
 *
 * This is for a work() that may sleep, and mostly does not.
 */
void vserve_req_hot(struct vserve_req *req)
{
	struct vserve_vring *vring = req->vring;

	if (vring->ops->punt)
		vring->ops->punt(req, false);
	vserve_req_start(req);
	vring->stats.hot++;
	vserve_to_poller(req);
}
EXPORT_SYMBOL_GPL(vserve_req_hot);

/**
 * vserve_pop_hot - take the first request of vserve_req_hot() off the list
 * @vring: a vring that has one
 *
 * Return: the request.
 */
struct vserve_req *vserve_pop_hot(struct vserve_vring *vring)
{
	struct vserve_req *req = vring->hot;

	vring->hot = req->next;
	if (!vring->hot) {
		vring->hot_last = &vring->hot;
		vring->src.waiting = false;
	}
	return req;
}

/**
 * vserve_punt_hot - give a hot request to a worker after all
 * @request: from vserve_pop_hot()
 */
void vserve_punt_hot(void *request)
{
	struct vserve_req *req = request;
	struct vserve_vring *vring = req->vring;

	req->hot = false;
	WRITE_ONCE(vring->hot_punted, vring->hot_punted + 1);
	vserve_queue_work(req);
}

/**
 * vserve_run_hot - carry out a hot request in this thread, which uses the owner's mm
 * @request: from vserve_pop_hot(); no mutex is held
 *
 * After work() the vring may be gone, see vhost_poll_settle().
 */
void vserve_run_hot(void *request)
{
	struct vserve_req *req = request;
	struct vserve_vring *vring = req->vring;
	struct mem_cgroup *memcg = vserve_charge_owner(vring->dev);

	vring->ops->work(req);
	vserve_charge_end(memcg);
}
