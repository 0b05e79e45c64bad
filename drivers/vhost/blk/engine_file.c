// SPDX-License-Identifier: GPL-2.0
/*
 * The engine for image files, which calls the file's own read and write.  A request runs in one of
 * three places:
 *
 * - In its round the poller reads data that are in the page cache, and nothing else.  For other
 *   requests IOCB_NOWAIT does not keep a file system from waiting for a block's address, a lock, or
 *   a request of the disk.
 * - After its round the poller's thread writes into the page cache, and reads where an access time
 *   may have to be updated, because these mostly do not wait (vblk_file_is_hot()).  It also submits
 *   direct I/O, if the file system queues it; the disk's completion ends the request.
 * - Workers carry out all others: reads of data that are not cached, writes that wait for the disk,
 *   and copies of more than FILE_HOT_BYTES.
 *
 * With O_DIRECT, a request that does not consist of whole blocks of the disk goes through the page
 * cache, because the file system would refuse it.  The guest may know smaller blocks from before
 * its image was copied to this disk, and firmware may not ask.
 */
#include <linux/blk_types.h>
#include <linux/cred.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/sizes.h>
#include <linux/uio.h>

#include "blk.h"
#include <trace/events/vhost_blk.h>

/* The poller's thread copies no more than this, because other guests wait for it. */
#define FILE_HOT_BYTES		((u32)SZ_128K)
#define ZERO_PIECE_SECTORS	((u32)(SZ_1M / SECTOR_SIZE))

static struct file *vblk_file_of(const struct vblk_req *req)
{
	return vblk_backend_of(req)->file;
}

/**
 * vblk_file_is_direct - whether a request bypasses the page cache
 * @req: a read or write of the file engine
 */
bool vblk_file_is_direct(const struct vblk_req *req)
{
	const struct vblk_backend *be = vblk_backend_of(req);

	return be->file->f_flags & O_DIRECT &&
	       !(((req->sector << SECTOR_SHIFT) | req->base.bytes) & (be->direct_block - 1));
}

/* End a request.  @res is how the I/O ended: bytes, or an error. */
static void vblk_file_finish(struct vblk_req *req, long res)
{
	bool nowait = req->iocb.ki_flags & IOCB_NOWAIT;

	if (res == req->base.bytes)
		vblk_req_end(req, VIRTIO_BLK_S_OK);
	else if (nowait)
		vserve_req_again(&req->base);
	else
		vblk_req_fail(req, res < 0 ? res : -EIO);
}

/*
 * Whether the file system leaves it to this engine to end a direct write, because that may sleep.
 */
static bool vblk_file_is_deferred(const struct kiocb *iocb)
{
	return iocb->ki_flags & IOCB_DIO_CALLER_COMP && iocb->dio_complete;
}

/*
 * End a request whose I/O was queued, once both the backend and the submitter are done with the
 * iocb.
 */
static void vblk_file_resume(struct vblk_req *req)
{
	struct kiocb *iocb = &req->iocb;
	long res = req->iocb_res;

	if (vblk_file_is_deferred(iocb))
		res = iocb->dio_complete(iocb->private);
	vblk_file_finish(req, res);
}

/*
 * The completion of an I/O.  A file system looks at the iocb, and at the inode, after it has queued
 * the I/O.  So the request does not end before the completion and the submitter have both counted
 * iocb_users down.
 */
static void vblk_file_complete(struct kiocb *iocb, long res)
{
	struct vblk_req *req = container_of(iocb, struct vblk_req, iocb);

	req->iocb_res = res;
	/*
	 * vfs_iocb_iter_write() does this itself unless the I/O was queued.  The claim must not
	 * wait for the ring, which may be held up, because a task that freezes the file system
	 * waits for the claim.  If the file system is frozen then, dio_complete() may sleep.
	 */
	if (iocb->ki_flags & IOCB_WRITE)
		kiocb_end_write(iocb);
	if (!atomic_dec_and_test(&req->iocb_users))
		return;
	if (vblk_file_is_deferred(iocb)) {
		req->resumes = true;
		vserve_req_resume(&req->base);
	} else {
		vblk_file_resume(req);
	}
}

static void vblk_file_set_iocb(struct vblk_req *req, int flags)
{
	struct file *file = vblk_file_of(req);

	init_sync_kiocb(&req->iocb, file);
	req->iocb.ki_pos = (loff_t)req->sector << SECTOR_SHIFT;
	req->iocb.ki_flags |= flags;
	atomic_set(&req->iocb_users, 2);
	if (file->f_flags & O_DIRECT) {
		/*
		 * An iocb with ki_complete is not synchronous.  For a synchronous one overlayfs
		 * would set IOCB_DIRECT again.
		 */
		req->iocb.ki_complete = vblk_file_complete;
		/*
		 * Without IOCB_DIO_CALLER_COMP a kernel worker of this CPU ends a write, once the
		 * poller lets it run.  iomap honours the flag for writes into blocks that have
		 * data, and not for others.
		 */
		if (!vblk_file_is_direct(req))
			req->iocb.ki_flags &= ~IOCB_DIRECT;
		else if (flags & IOCB_WRITE)
			req->iocb.ki_flags |= IOCB_DIO_CALLER_COMP;
	}
	trace_vhost_blk_submit(req, VHOST_BLK_ENGINE_FILE, VHOST_BLK_HCTX_AUTO);
}

static void vblk_file_do_io(struct vblk_req *req)
{
	const struct cred *old = override_creds(vblk_file_of(req)->f_cred);
	bool write = vblk_is_write(req);
	struct iov_iter iter;
	ssize_t done = 0, r;

	iov_iter_bvec(&iter, write ? ITER_SOURCE : ITER_DEST, req->bvec,
		      req->nr_bvec, req->base.bytes);
	do {
		if (write)
			r = vfs_iocb_iter_write(vblk_file_of(req), &req->iocb, &iter);
		else
			r = vfs_iocb_iter_read(vblk_file_of(req), &req->iocb, &iter);
		if (r > 0)
			done += r;
	} while (r > 0 && iov_iter_count(&iter) && is_sync_kiocb(&req->iocb));
	revert_creds(old);
	/* If the I/O was queued, vblk_file_complete() is called, or was. */
	if (r != -EIOCBQUEUED)
		vblk_file_finish(req, r < 0 ? r : done);
	else if (atomic_dec_and_test(&req->iocb_users))
		vblk_file_resume(req);
}

/*
 * Whether the file system writes an access time down, and may wait for a journal.  The inode and
 * the mount may leave access times out, too, but that can change while the poller reads: see
 * vblk_open_own().
 */
static bool vblk_file_notes_atime(const struct file *file)
{
	const struct inode *inode = file_inode(file);

	return !(file->f_flags & O_NOATIME) &&
	       (inode->i_op->update_time || inode->i_sb->s_op->dirty_inode);
}

/*
 * Whether a read may wait.  If the file has FMODE_FSNOTIFY_PERM, the kernel may have to ask a
 * fanotify listener first, which takes long.
 */
static bool vblk_file_may_wait(const struct file *file)
{
	return !(file->f_mode & FMODE_NOWAIT) ||
	       FMODE_FSNOTIFY_PERM(file->f_mode) || vblk_file_notes_atime(file);
}

static int vblk_file_submit(struct vblk_req *req)
{
	const struct file *file = vblk_file_of(req);

	if (vblk_is_write(req) || file->f_flags & O_DIRECT ||
	    req->base.bytes > FILE_HOT_BYTES || vblk_file_may_wait(file) ||
	    vserve_read_is_watched(file))
		return -EBUSY;
	vblk_file_set_iocb(req, IOCB_NOWAIT | IOCB_NOIO);
	vblk_file_do_io(req);
	return 0;
}

/* Whether the poller's thread neither waits for the disk nor copies for too long. */
static bool vblk_file_is_quick(const struct vblk_req *req, const struct inode *inode)
{
	const struct file *file = vblk_file_of(req);
	bool write = vblk_is_write(req);

	if (file->f_flags & O_DIRECT)
		return req->base.bytes <= VBLK_HOT_BYTES && vblk_file_is_direct(req) &&
		       vserve_fs_queues_direct(inode->i_sb);
	if (write && (req->fua || file->f_flags & O_DSYNC || IS_SYNC(inode)))
		return false;
	return req->base.bytes <= FILE_HOT_BYTES;
}

/*
 * Whether the poller's thread may carry out a request after its round.  The inode that has the
 * pages decides, because that of a block device is not on the file's file system.
 */
static bool vblk_file_is_hot(const struct vblk_req *req)
{
	const struct inode *inode = vblk_file_of(req)->f_mapping->host;

	return vblk_file_is_quick(req, inode) &&
	       vserve_fs_allows_hot(inode->i_sb, vblk_is_write(req));
}

static void vblk_file_submit_wait(struct vblk_req *req)
{
	/* The file system may have been frozen while the request waited for its turn. */
	if (req->base.hot && !vblk_file_is_hot(req)) {
		vserve_req_again(&req->base);
		return;
	}
	if (vblk_is_write(req)) {
		vblk_file_set_iocb(req, IOCB_WRITE | (req->fua ? IOCB_DSYNC : 0));
	} else if (req->base.hot && !(vblk_file_of(req)->f_flags & O_DIRECT)) {
		/* A read whose data are not cached comes back, and then goes to a worker. */
		vblk_file_set_iocb(req, IOCB_NOWAIT | IOCB_NOIO);
	} else {
		vblk_file_set_iocb(req, 0);
	}
	vblk_file_do_io(req);
}

static int vblk_file_flush(struct vblk_backend *be)
{
	const struct cred *old = override_creds(be->file->f_cred);
	int r = vfs_fsync(be->file, 1);

	revert_creds(old);
	return r;
}

static int vblk_file_punch(struct vblk_req *req, const struct vblk_range *range, int mode)
{
	return vfs_fallocate(vblk_file_of(req), mode | FALLOC_FL_KEEP_SIZE,
			     (loff_t)range->sector << SECTOR_SHIFT,
			     (loff_t)range->sectors << SECTOR_SHIFT);
}

static int vblk_file_discard(struct vblk_req *req, const struct vblk_range *range)
{
	const struct cred *old = override_creds(vblk_file_of(req)->f_cred);
	int r = vblk_file_punch(req, range, FALLOC_FL_PUNCH_HOLE);

	revert_creds(old);
	return r;
}

/* Write zeroes a page at a time, for file systems that cannot do it in another way. */
static int vblk_write_zero_pages(struct vblk_req *req, const struct vblk_range *range)
{
	loff_t pos = (loff_t)range->sector << SECTOR_SHIFT;
	size_t left = (size_t)range->sectors << SECTOR_SHIFT;
	struct bio_vec bvec;
	struct iov_iter iter;
	ssize_t r;

	while (left) {
		size_t now = min_t(size_t, left, PAGE_SIZE);

		bvec_set_page(&bvec, ZERO_PAGE(0), now, 0);
		iov_iter_bvec(&iter, ITER_SOURCE, &bvec, 1, now);
		r = vfs_iter_write(vblk_file_of(req), &iter, &pos, 0);
		if (r <= 0)
			return r ?: -EIO;
		left -= r;
	}
	return 0;
}

/*
 * Write zeroes by a hole that is then allocated, for file systems that cannot zero a range (tmpfs).
 *
 * Each step holds the inode's lock, so this goes in pieces, and other tasks get the lock in
 * between.  A piece ends at a multiple of its size.  Otherwise two pieces would share a page, and
 * the kernel would write to that page rather than free it.
 */
static int vblk_punch_and_allocate(struct vblk_req *req,
				   const struct vblk_range *range)
{
	struct vblk_range piece = { .sector = range->sector };
	u32 left = range->sectors;
	int r;

	while (left) {
		piece.sectors = min_t(u32, left, ZERO_PIECE_SECTORS -
				      piece.sector % ZERO_PIECE_SECTORS);
		r = vblk_file_punch(req, &piece, FALLOC_FL_PUNCH_HOLE) ?:
		    vblk_file_punch(req, &piece, 0);
		if (r)
			return r;
		piece.sector += piece.sectors;
		left -= piece.sectors;
		cond_resched();
	}
	return 0;
}

static int vblk_write_zeroes(struct vblk_req *req, const struct vblk_range *range)
{
	int r = -EOPNOTSUPP;

	if (range->flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP)
		r = vblk_file_punch(req, range, FALLOC_FL_PUNCH_HOLE);
	if (r == -EOPNOTSUPP)
		r = vblk_file_punch(req, range, FALLOC_FL_ZERO_RANGE);
	/* In between, another file could get the blocks. */
	if (r == -EOPNOTSUPP && !(vblk_backend_of(req)->flags & VHOST_BLK_BACKEND_NO_DISCARD))
		r = vblk_punch_and_allocate(req, range);
	if (r == -EOPNOTSUPP)
		r = vblk_write_zero_pages(req, range);
	return r;
}

static int vblk_file_write_zeroes(struct vblk_req *req,
				  const struct vblk_range *range)
{
	const struct cred *old = override_creds(vblk_file_of(req)->f_cred);
	int r = vblk_write_zeroes(req, range);

	revert_creds(old);
	return r;
}

const struct vblk_engine vblk_engine_file = {
	.submit		= vblk_file_submit,
	.submit_wait	= vblk_file_submit_wait,
	.is_hot		= vblk_file_is_hot,
	.resume		= vblk_file_resume,
	.flush		= vblk_file_flush,
	.discard	= vblk_file_discard,
	.write_zeroes	= vblk_file_write_zeroes,
};
