// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that the poller's thread carries out itself once its round is over, although
 * they may sleep: see work() in linux/vhost_serve.h, and drivers/vhost/poll/crew.c.
 */
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/fsnotify.h>
#include <linux/magic.h>

#include "serve.h"

/*
 * On a disk of this host, or in its memory.  Others with a disk wait for a daemon or for
 * other machines (fuseblk, gfs2, ocfs2), or write zeroes up to where a file grows (vfat).
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
 * vserve_fs_allows_hot - may the poller's thread run operations on a file system that can
 *	sleep?
 * @sb: the file system
 * @changes: the operation changes something, so a frozen file system has it wait for the
 *	thaw
 *
 * Return: false where one may wait for an unknown time: if it is not local, if a fanotify
 * listener is asked for permission, or if it is frozen.
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
 * vserve_read_is_watched - may someone on the host watch reads of a file?
 * @file: the file
 *
 * Return: true if a reader has to allocate an event, which may sleep.  A module cannot tell whether
 * a fanotify listener has marked the mount, so the function does not see such a mark.
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
 * vserve_fs_queues_direct - does direct I/O on a file system end by the disk's completion?
 * @sb: the file system
 *
 * Return: false where the data may be copied: if the file system is in memory, or is btrfs.
 * btrfs copies what it writes for its checksums, and what it reads if that is compressed or
 * not aligned to its blocks, and waits for the disk then.
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
 * vserve_to_poller - have the poller's thread do a request, after its round
 * @req: after vserve_req_start(), in a round of the poller
 */
void vserve_to_poller(struct vserve_req *req)
{
	struct vserve_vring *vring = req->vring;

	lockdep_assert_held(&vring->vq.mutex);
	/* It is no backend's, so nothing waits for it to come back. */
	req->in_worker = true;
	vring->nr_in_workers++;
	req->hot = true;
	req->next = NULL;
	*vring->hot_last = req;
	vring->hot_last = &req->next;
	vring->src.waiting = true;
}

/**
 * vserve_req_hot - have the poller's thread do a request, after its round
 * @req: in no list; the vring's mutex is held, in submit() or flush()
 *
 * For work() that may sleep, and mostly does not.
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
 * @vring: there is one
 *
 * Returns the request.
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
 * vserve_punt_hot - a worker gets a hot request after all
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
 * vserve_run_hot - do a hot request in this thread, which has the owner's mm in use
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
