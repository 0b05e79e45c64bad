// SPDX-License-Identifier: GPL-2.0
/*
 * Late closes: FLUSH and RELEASE, with RELEASEDIR, that no task waits for any more.
 *
 * The rule
 * --------
 * A request for a lock is not sent before the late closes of the mount are answered.
 *
 * FLUSH drops an owner's POSIX locks of a file, and RELEASE drops flock and the locks of an open
 * file description.  The core makes the number of an owner from the address of the process's table
 * of files, or of the open file, so the number comes again with the address.  The server may carry
 * out a late close at any time.  If it has granted a lock to the next owner of that number before,
 * it drops this lock, and the new owner does not learn of it.
 *
 * - A close is on dev->closes from before the core's request ends until the server has answered it
 *   or the device was reset.  The core frees the table of files, or the open file, only after the
 *   end of its request.  So a task that has the same address finds the close on the list.
 * - The task waits for the closes that are on the list when it asks, not for later ones: their
 *   owners were there when it asked, so they have other numbers than its own.
 * - It waits for the closes of all files, because the list cannot tell files apart.  The server
 *   may give a file another node number once the core has forgotten the first one, and the core
 *   may do so while the close is late.  RELEASE does not name all owners whose locks it drops.
 * - Requests that unlock, or only look at locks, do not wait.
 *
 * The wait ends with the server's answers, at a signal, or when the device is given up.  The
 * request would wait for the same server anyway.
 *
 * Two cases are not covered:
 *
 * - Processes may share a table of files (clone() with CLONE_FILES).  If one of them waits for a
 *   lock at the server, while another closes the same file and is killed, the late close may come
 *   after the grant.
 * - If readahead is in flight when a file is closed, the core sends RELEASE once it has ended, in
 *   the background, and the file's address may be another one's by then.  This concerns locks of
 *   open file descriptions (F_OFD_SETLK), and flock at a server that goes by the owner's number.
 *   FUSE has that in all file systems.
 *
 * A close of a kernel thread is late from the beginning.  If a kernel thread drops the last
 * reference to a file, as at the end of asynchronous I/O, the work of delayed_fput() closes it, in
 * turn with files of all other file systems.  That work must not wait for the server.
 *
 * A lock of the next mount does not wait for closes of this one, see pvfs_closes_forget().
 */
#include "pvfs.h"

#include <linux/slab.h>

/* A close in the background. */
struct pvfs_late_close {
	struct fuse_args args;
	struct pvfs_close close;
	union {
		struct fuse_flush_in flush;
		struct fuse_release_in release;
	};
};

/**
 * pvfs_close_enter - put a close on the list of late ones
 * @dev: the device
 * @close: the close, on the list until pvfs_close_leave()
 */
void pvfs_close_enter(struct pvfs_dev *dev, struct pvfs_close *close)
{
	spin_lock(&dev->close_lock);
	close->seq = ++dev->close_seq;
	list_add_tail(&close->node, &dev->closes);
	spin_unlock(&dev->close_lock);
}

/**
 * pvfs_close_leave - take a close off the list, because it is answered or was not late
 * @dev: the device
 * @close: the close, on the list
 */
void pvfs_close_leave(struct pvfs_dev *dev, struct pvfs_close *close)
{
	spin_lock(&dev->close_lock);
	list_del_init(&close->node);
	spin_unlock(&dev->close_lock);
	wake_up_all(&dev->close_waitq);
}

static bool pvfs_no_close_is_sent(struct pvfs_dev *dev)
{
	struct pvfs_close *close;
	bool none = true;

	spin_lock(&dev->close_lock);
	list_for_each_entry(close, &dev->closes, node) {
		if (close->background) {
			none = false;
			break;
		}
	}
	spin_unlock(&dev->close_lock);
	return none;
}

/**
 * pvfs_closes_finish - at umount, wait for closes in the background
 * @dev: the device; DESTROY is not sent yet
 *
 * The end of the connection waits for all requests, also for these, and without a limit.
 */
void pvfs_closes_finish(struct pvfs_dev *dev)
{
	if (wait_event_timeout(dev->close_waitq, pvfs_no_close_is_sent(dev),
			       PVFS_EXIT_SECONDS * HZ))
		return;
	pr_err("pvfs: %s does not answer FLUSH or RELEASE, and is given up\n", dev->tag);
	queue_work(pvfs_fail_wq, &dev->fail_work);
}

/**
 * pvfs_closes_forget - at umount, empty the list of late closes
 * @dev: the device
 *
 * No task has a file of the mount or asks for a lock.  A late FLUSH may outlive the mount.  It does
 * no harm to the next one, because that makes the numbers of its owners with another key.  A late
 * RELEASE does not outlive the mount, see pvfs_abandoned_await().
 */
void pvfs_closes_forget(struct pvfs_dev *dev)
{
	struct pvfs_close *close, *next;

	spin_lock(&dev->close_lock);
	list_for_each_entry_safe(close, next, &dev->closes, node)
		list_del_init(&close->node);
	spin_unlock(&dev->close_lock);
}

static bool pvfs_closes_over(struct pvfs_dev *dev, u64 seq)
{
	struct pvfs_close *first;
	bool over;

	spin_lock(&dev->close_lock);
	first = list_first_entry_or_null(&dev->closes, struct pvfs_close, node);
	over = !first || first->seq > seq;
	spin_unlock(&dev->close_lock);
	return over;
}

/**
 * pvfs_closes_await - wait for late closes, by the rule of this file
 * @dev: the device
 * @req: a request to lock or unlock, which has not been sent
 *
 * Return: 0, or -EINTR if a signal came.
 */
int pvfs_closes_await(struct pvfs_dev *dev, const struct fuse_req *req)
{
	const struct fuse_lk_in *in = req->args->in_args[0].value;
	u64 seq;

	/* A close that concerns this task is on the list already, so this look needs no lock. */
	if (likely(list_empty(&dev->closes)) || in->lk.type == F_UNLCK)
		return 0;
	spin_lock(&dev->close_lock);
	seq = dev->close_seq;
	spin_unlock(&dev->close_lock);
	return wait_event_interruptible(dev->close_waitq, pvfs_closes_over(dev, seq)) ? -EINTR : 0;
}

static void pvfs_late_close_end(struct fuse_mount *fm, struct fuse_args *args, int error)
{
	struct pvfs_late_close *late = container_of(args, struct pvfs_late_close, args);

	pvfs_close_leave(fm->fc->iq.priv, &late->close);
	kfree(late);
}

/**
 * pvfs_close_later - send a close in the background
 * @fm: the main mount
 * @from: arguments of FLUSH, RELEASE or RELEASEDIR
 * @gfp: how to allocate.  If there is no memory, the server keeps the file open, or the locks,
 *	until the mount ends
 */
void pvfs_close_later(struct fuse_mount *fm, const struct fuse_args *from, gfp_t gfp)
{
	struct pvfs_late_close *late = kzalloc(sizeof(*late), gfp);

	if (!late)
		return;
	memcpy(&late->flush, from->in_args[0].value, from->in_args[0].size);
	late->args = (struct fuse_args){
		.opcode = from->opcode,
		.nodeid = from->nodeid,
		.in_numargs = 1,
		.in_args[0] = { .size = from->in_args[0].size, .value = &late->flush },
		.force = true,
		.nocreds = true,
		.end = pvfs_late_close_end,
	};
	late->close.background = true;
	pvfs_close_enter(fm->fc->iq.priv, &late->close);
	if (fuse_simple_background(fm, &late->args, gfp))
		pvfs_late_close_end(fm, &late->args, -ENOTCONN);
}

/**
 * pvfs_close_of_thread - send a close in the background if a kernel thread has asked for it
 * @dev: the device
 * @req: RELEASE or RELEASEDIR
 *
 * Return: whether it was.
 */
bool pvfs_close_of_thread(struct pvfs_dev *dev, const struct fuse_req *req)
{
	/* Background requests, such as our own copy, may come from kernel threads, too. */
	if (likely(!(current->flags & PF_KTHREAD)) || test_bit(FR_BACKGROUND, &req->flags))
		return false;
	pvfs_close_later(get_fuse_mount_super(dev->sb), req->args, GFP_KERNEL | __GFP_NOFAIL);
	return true;
}

/**
 * pvfs_closes_init - at probe
 * @dev: the device
 */
void pvfs_closes_init(struct pvfs_dev *dev)
{
	spin_lock_init(&dev->close_lock);
	INIT_LIST_HEAD(&dev->closes);
	init_waitqueue_head(&dev->close_waitq);
}
