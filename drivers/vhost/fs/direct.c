// SPDX-License-Identifier: GPL-2.0
/*
 * READ and WRITE with O_DIRECT, of files on a disk: the disk's completion ends the request.
 *
 * The poller's thread submits the I/O after its round, because the file system may have to sleep
 * for a lock or for the address of a block.  Mostly it does not.  It does wait for the disk where a
 * write extends the file, or is not aligned to the file system's blocks.  Once the I/O is queued
 * the request is parked, and holds its open file.  The completion comes in any context, and the
 * poller writes the reply in a later round.
 *
 * The end of a write may sleep, because the page cache has to drop its copy of the data.  By
 * default a kernel worker does that on the CPU that submitted, and there it waits until the poller
 * gives up the CPU.  With IOCB_DIO_CALLER_COMP the file system leaves that part to vhost_fs: the
 * poller's thread calls iocb->dio_complete() after its next round.  iomap does so for writes into
 * blocks that have data.  Writes into a hole or into preallocated blocks still end in that kernel
 * worker.
 *
 * Two parties use the iocb: the submitter, until the file system has returned, and the completion.
 * The later one ends the request.  The earlier one must not touch the request any more.
 *
 * If an inotify or fanotify listener watches the file system, it has to be told of a change after
 * the change was made, and only a context that may sleep can tell it.  So a worker waits for the
 * I/O there.
 */
#include <linux/fsnotify.h>
#include <linux/vhost_serve.h>

#include "fs.h"

/* Whether the I/O is done, except for the part that may sleep. */
static bool vhfs_direct_is_deferred(const struct vhfs_req *req)
{
	const struct kiocb *iocb = &req->direct.iocb;

	return iocb->ki_flags & IOCB_DIO_CALLER_COMP && iocb->dio_complete;
}

static bool vhfs_asks_for_direct(const struct vhfs_req *req)
{
	switch (req->in.opcode) {
	case FUSE_READ:
		return vhfs_args(req, struct fuse_read_in)->flags & O_DIRECT;
	case FUSE_WRITE:
		return vhfs_args(req, struct fuse_write_in)->flags & O_DIRECT;
	default:
		return false;
	}
}

/**
 * vhfs_direct_needs_no_thread - whether a request may be direct I/O that no thread waits for
 * @req: the request, decoded
 */
bool vhfs_direct_needs_no_thread(const struct vhfs_req *req)
{
	struct super_block *sb = vhfs_sb(req);

	return vhfs_asks_for_direct(req) &&
	       vserve_fs_queues_direct(sb) &&
	       vserve_fs_allows_hot(sb, false) &&
	       !fsnotify_sb_has_watchers(sb);
}

/*
 * End a request.  If the file system leaves a part of a write's end to vhost_fs, the caller may
 * sleep.
 */
static void vhfs_direct_end(struct vhfs_req *req)
{
	struct kiocb *iocb = &req->direct.iocb;
	long res = req->direct.res;

	if (vhfs_direct_is_deferred(req))
		res = iocb->dio_complete(iocb->private);
	res = vhfs_io_result(req, res, res);
	if (res >= 0 && req->in.opcode == FUSE_WRITE)
		vhfs_reply(req, struct fuse_write_out)->size = res;
	else if (res >= 0)
		req->data_len = res;
	vhfs_req_done(req, min(res, 0L));
}

static void vhfs_direct_complete(struct kiocb *iocb, long res)
{
	struct vhfs_req *req = container_of(iocb, struct vhfs_req, direct.iocb);

	req->direct.res = res;
	/*
	 * vfs_iocb_iter_write() does this itself unless the I/O was queued.  The claim must not
	 * wait for the ring, which may be held up, because a task that freezes the file system
	 * waits for the claim.  If the file system is frozen then, dio_complete() may sleep.
	 */
	if (iocb->ki_flags & IOCB_WRITE)
		kiocb_end_write(iocb);
	if (!atomic_dec_and_test(&req->direct.users))
		return;
	if (vhfs_direct_is_deferred(req))
		vhfs_req_resume(req);
	else
		vhfs_direct_end(req);
}

/**
 * vhfs_direct_resume - end a direct write in the poller's thread, or in a worker
 * @req: the request, in work()
 *
 * Return: false if the request is no such write, and is yet to be carried out.
 */
bool vhfs_direct_resume(struct vhfs_req *req)
{
	if (!req->direct.handle || !vhfs_direct_is_deferred(req))
		return false;
	vhfs_direct_end(req);
	return true;
}

/**
 * vhfs_direct_io - submit direct I/O
 * @req: the READ or WRITE
 * @handle: the open file
 * @iocb: its position and flags; if something was done at once the position moves on
 * @iter: the guest's memory
 *
 * Return: -EIOCBQUEUED if the I/O was queued.  Then the request is parked, or has ended, and puts
 * @handle itself.  Otherwise nothing was queued, and this is the result of the read or write.
 */
ssize_t vhfs_direct_io(struct vhfs_req *req, struct vhfs_handle *handle, struct kiocb *iocb,
		       struct iov_iter *iter)
{
	struct vhfs_direct *d = &req->direct;
	ssize_t r;

	d->iocb = *iocb;
	d->iocb.ki_complete = vhfs_direct_complete;
	if (iocb->ki_flags & IOCB_WRITE)
		d->iocb.ki_flags |= IOCB_DIO_CALLER_COMP;
	d->handle = handle;
	atomic_set(&d->users, 2);
	if (iocb->ki_flags & IOCB_WRITE)
		r = vfs_iocb_iter_write(handle->file, &d->iocb, iter);
	else
		r = vfs_iocb_iter_read(handle->file, &d->iocb, iter);
	if (r == -EIOCBQUEUED) {
		if (atomic_dec_and_test(&d->users))
			vhfs_direct_end(req);
		return r;
	}
	d->handle = NULL;
	iocb->ki_pos = d->iocb.ki_pos;
	return r;
}
