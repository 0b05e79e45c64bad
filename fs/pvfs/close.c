// SPDX-License-Identifier: GPL-2.0
/*
 * Late closes: FLUSH, RELEASE and RELEASEDIR that no task waits for any more.
 *
 * The rule
 * --------
 * The driver sends a request for a lock only after the server has answered the late closes of the
 * mount.
 *
 * The reason
 * ----------
 * FLUSH drops the POSIX locks that an owner has on a file.  RELEASE drops flock locks, and the
 * locks of an open file description.  The core computes the number of an owner from the address of
 * the process's table of files, or from that of the open file.  So when the kernel uses an address
 * again, the number comes again, too.
 *
 * The server may carry out a late close at any time.  If it has granted a lock to the next owner
 * with the same number before that, it then drops this lock, and the new owner does not learn of
 * it.
 *
 * The list
 * --------
 * - The driver puts a close on dev->closes before it ends the core's request.  It takes the close
 *   off when the server has answered it, or the device was reset.  The kernel frees the table of
 *   files, or the open file, only after the end of the core's request.  So a task that has the same
 *   address finds the close on the list.
 * - A task that asks for a lock waits for the closes that are on the list at that time, but not for
 *   later ones.  The owners of later ones exist at that time, so their numbers differ from the
 *   task's own.
 * - The task waits for the closes of all files, because the list cannot tell files apart.  The core
 *   may forget a file while its close is late, and then the server may give the file another node
 *   number.  The task waits for the closes of all owners, because RELEASE does not name all owners
 *   whose locks it drops.
 * - Requests that unlock, or that only look at locks, do not wait.
 *
 * The wait ends when the server has answered, when a signal comes, or when the driver gives the
 * device up.  The request for the lock would wait for the same server anyway.
 *
 * Two cases are not covered
 * -------------------------
 * - Processes may share a table of files (clone() with CLONE_FILES).  Suppose that one of them
 *   waits for a lock at the server, while another one closes the same file and is killed.  Then the
 *   server may carry out the late close after it has granted the lock.
 * - If readahead is in flight when a file is closed, the core sends RELEASE in the background once
 *   the readahead has ended.  By that time another open file may have the address.  This concerns
 *   locks of open file descriptions (F_OFD_SETLK), and flock if the server goes by the number of
 *   the owner.  All file systems on FUSE have this problem.
 *
 * Kernel threads
 * --------------
 * A close by a kernel thread is late from the beginning.  If a kernel thread drops the last
 * reference to a file, for instance at the end of asynchronous I/O, the work of delayed_fput()
 * closes the file.  The same work closes files of all other file systems, so it must not wait for
 * the server.
 *
 * The next mount
 * --------------
 * A request for a lock on the next mount does not wait for late closes of this one, see
 * pvfs_closes_forget().
 */
#include "pvfs.h"

#include <linux/slab.h>

/* A close that the driver sends in the background. */
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
 * pvfs_close_leave - take a close off the list, because it is answered or did not become late
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
 * pvfs_closes_finish - at umount, wait for closes in the background, or give the device up
 * @dev: the device; DESTROY is not sent yet
 *
 * Without this limit, the end of the connection would wait for them for ever (fuse_conn_destroy()).
 */
void pvfs_closes_finish(struct pvfs_dev *dev)
{
	if (wait_event_timeout(dev->close_waitq, pvfs_no_close_is_sent(dev),
			       PVFS_EXIT_SECONDS * HZ))
		return;
	pr_err("pvfs: %s: the server did not answer FLUSH or RELEASE for %u seconds at umount; giving up the device, check the server on the host\n",
	       dev->tag, PVFS_EXIT_SECONDS);
	queue_work(pvfs_fail_wq, &dev->fail_work);
}

/**
 * pvfs_closes_forget - at umount, empty the list of late closes
 * @dev: the device
 *
 * No task has a file of the mount open, or asks for a lock.
 *
 * A late FLUSH may outlive the mount.  It does no harm to the next mount, because each connection
 * computes the numbers of its owners with a key of its own.  A late RELEASE does not outlive the
 * mount, see pvfs_abandoned_await().
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

	/* A close that concerns this task is on the list already, so this check needs no lock. */
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
 * @gfp: how to allocate.  If that fails, the server keeps the file open, or the locks, until the
 *	mount ends
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
 * Return: true if the function has sent the close, so the caller does not.
 */
bool pvfs_close_of_thread(struct pvfs_dev *dev, const struct fuse_req *req)
{
	/* A kernel thread may also send background requests, such as the copy that is made here. */
	if (likely(!(current->flags & PF_KTHREAD)) || test_bit(FR_BACKGROUND, &req->flags))
		return false;
	pvfs_close_later(get_fuse_mount_super(dev->sb), req->args, GFP_KERNEL | __GFP_NOFAIL);
	return true;
}

/**
 * pvfs_closes_init - set up the list of late closes, at probe
 * @dev: the device
 */
void pvfs_closes_init(struct pvfs_dev *dev)
{
	spin_lock_init(&dev->close_lock);
	INIT_LIST_HEAD(&dev->closes);
	init_waitqueue_head(&dev->close_waitq);
}
