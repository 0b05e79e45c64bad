// SPDX-License-Identifier: GPL-2.0
/*
 * READ and WRITE.  Data are copied once, between the host's page cache (or the disk) and the
 * guest's pages.  These pages are memory of the owner's process, so the thread that copies uses the
 * owner's mm.
 *
 * In its round the poller reads only data that are in the page cache.  After the round the poller's
 * thread, or a worker, carries out the other requests: see vhfs_is_hot().
 */
#include <linux/blkdev.h>
#include <linux/cacheflush.h>
#include <linux/fsnotify.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/shmem_fs.h>
#include <linux/timekeeping.h>
#include <linux/vhost_serve.h>
#include <linux/vhost_serve_words.h>

#include "fs.h"

/* Relatime changes an access time that is older than this. */
#define DAY	(24 * 60 * 60)

/*
 * Set @iter to where the data go, behind the header of the reply.  Returns false if the offset
 * cannot be one of a file.
 */
static bool vhfs_read_iter(const struct vhfs_req *req,
			   const struct fuse_read_in *arg,
			   struct iov_iter *iter)
{
	*iter = req->dst;
	if (vserve_words_of(iter, sizeof(struct fuse_out_header)))
		vserve_words_done(iter, sizeof(struct fuse_out_header));
	else
		iov_iter_advance(iter, sizeof(struct fuse_out_header));
	iov_iter_truncate(iter, min(arg->size, VHFS_MAX_WRITE));
	return (s64)arg->offset >= 0 &&
	       arg->offset <= LLONG_MAX - VHFS_MAX_WRITE;
}

/*
 * Whether touch_atime() changes the access time.  With relatime, the default, it does so only if
 * the file has changed since the last access, or if that was a day ago.
 */
static bool vhfs_atime_is_due(const struct file *file)
{
	struct inode *inode = file_inode(file);
	const struct vfsmount *mnt = file->f_path.mnt;
	struct timespec64 atime, mtime, ctime;

	if (IS_NOATIME(inode) || mnt->mnt_flags & MNT_NOATIME || file->f_flags & O_NOATIME)
		return false;
	if (!(mnt->mnt_flags & MNT_RELATIME))
		return true;
	atime = inode_get_atime(inode);
	mtime = inode_get_mtime(inode);
	ctime = inode_get_ctime(inode);
	return timespec64_compare(&mtime, &atime) >= 0 ||
	       timespec64_compare(&ctime, &atime) >= 0 ||
	       ktime_get_real_seconds() - atime.tv_sec >= DAY;
}

/* Whether the read may wait for a journal, because the file system writes the access time down. */
static bool vhfs_atime_waits(const struct file *file)
{
	struct inode *inode = file_inode(file);

	if (!inode->i_op->update_time && !inode->i_sb->s_op->dirty_inode)
		return false;
	return vhfs_atime_is_due(file);
}

static bool vhfs_may_read_in_round(const struct file *file, size_t len)
{
	if (!S_ISREG(file_inode(file)->i_mode) || len > VHFS_HOT_COPY ||
	    vserve_read_is_watched(file))
		return false;
	/*
	 * A fanotify listener may have to permit the read, which takes long, and an update of the
	 * access time may wait for a journal.
	 */
	return !FMODE_FSNOTIFY_PERM(file->f_mode) && !vhfs_atime_waits(file);
}

/* Copy part of a page to the guest.  Most READs have one buffer for the data, which is quicker. */
static bool vhfs_copy_bytes(struct page *page, size_t offset, size_t len, struct iov_iter *iter)
{
	void __user *at = vserve_buffer_of(iter, len);
	void *from;
	bool done;

	if (!at)
		return copy_page_to_iter(page, offset, len, iter) == len;
	from = kmap_local_page(page);
	done = vserve_put_bytes(at, from + offset, len);
	kunmap_local(from);
	if (done)
		vserve_words_done(iter, len);
	return done;
}

/*
 * Copy part of a page of tmpfs.  Returns 0 at the end of the file, and -EAGAIN where tmpfs might
 * sleep.
 */
static ssize_t vhfs_copy_page(const struct inode *inode, struct folio *folio, loff_t pos,
			      struct iov_iter *iter)
{
	struct page *page = folio_file_page(folio, pos >> PAGE_SHIFT);
	size_t offset = offset_in_page(pos), len;
	loff_t size;

	if (!folio_test_uptodate(folio) || folio_test_locked(folio) || PageHWPoison(page))
		return -EAGAIN;
	/* Read the size only now: a truncation changes the size first, and then removes pages. */
	size = i_size_read(inode);
	if (pos >= size)
		return 0;
	len = min_t(loff_t, size - pos, min(PAGE_SIZE - offset, iov_iter_count(iter)));
	if (mapping_writably_mapped(inode->i_mapping))
		flush_dcache_page(page);
	if (!offset)
		folio_mark_accessed(folio);
	return vhfs_copy_bytes(page, offset, len, iter) ? len : -EAGAIN;
}

static ssize_t vhfs_copy_cached(const struct inode *inode, loff_t pos, struct iov_iter *iter)
{
	struct folio *folio = filemap_get_folio(inode->i_mapping, pos >> PAGE_SHIFT);
	ssize_t r;

	/* The file has no page here, or the page is swapped out. */
	if (IS_ERR(folio))
		return pos < i_size_read(inode) ? -EAGAIN : 0;
	r = vhfs_copy_page(inode, folio, pos, iter);
	folio_put(folio);
	return r;
}

/*
 * tmpfs does not support NOWAIT: its read_iter() locks each page, and sleeps until a page is
 * swapped in.  So the poller copies from the page cache itself.  It makes the checks of
 * vfs_iocb_iter_read(), and reports the access as that function and shmem_file_read_iter() do.
 */
static ssize_t vhfs_read_shmem(struct file *file, loff_t pos, struct iov_iter *iter)
{
	const struct inode *inode = file->f_mapping->host;
	ssize_t done = 0, r;

	if (!(file->f_mode & FMODE_READ))
		return -EBADF;
	r = rw_verify_area(READ, file, &pos, iov_iter_count(iter));
	if (r)
		return r;
	do {
		r = vhfs_copy_cached(inode, pos + done, iter);
		if (r < 0)
			return r;
		done += r;
	} while (r && iov_iter_count(iter));
	if (vhfs_atime_is_due(file))
		file_accessed(file);
	fsnotify_access(file);
	return done;
}

/*
 * This is a function of its own so that READs of tmpfs have no kiocb on the stack, which the
 * compiler would zero.
 */
static noinline ssize_t vhfs_read_nowait(struct file *file, const struct fuse_read_in *arg,
					 struct iov_iter *iter)
{
	struct kiocb iocb;

	/* A direct read waits for the disk. */
	if (arg->flags & O_DIRECT || !(file->f_mode & FMODE_NOWAIT))
		return -EAGAIN;
	init_sync_kiocb(&iocb, file);
	iocb.ki_flags |= IOCB_NOWAIT | IOCB_NOIO;
	iocb.ki_pos = arg->offset;
	return vfs_iocb_iter_read(file, &iocb, iter);
}

/* Returns an error, mostly -EAGAIN, if the poller's round cannot read the data. */
static ssize_t vhfs_read_cached(struct file *file, const struct fuse_read_in *arg,
				struct iov_iter *iter)
{
	if (shmem_mapping(file->f_mapping))
		return vhfs_read_shmem(file, arg->offset, iter);
	return vhfs_read_nowait(file, arg, iter);
}

static int vhfs_read_in_round(struct vhfs_req *req, struct file *file, struct iov_iter *iter)
{
	const struct fuse_read_in *arg = vhfs_args(req, struct fuse_read_in);
	size_t len = iov_iter_count(iter);
	ssize_t r;

	if (!len || !vhfs_may_read_in_round(file, len))
		return VHFS_PUNT;
	r = vhfs_read_cached(file, arg, iter);
	if (r < 0)
		return VHFS_PUNT;
	/* A short read is right only at the end of the file. */
	if (r < len && arg->offset + r < i_size_read(file_inode(file)))
		return VHFS_PUNT;
	req->data_len = r;
	return 0;
}

/*
 * Whether the disk can take the I/O directly.  If it cannot, the I/O goes through the page cache.
 */
static bool vhfs_is_aligned_for_direct(struct file *file, loff_t pos,
				       const struct iov_iter *iter)
{
	struct block_device *bdev = file_inode(file)->i_sb->s_bdev;
	unsigned int mask = bdev ? bdev_logical_block_size(bdev) - 1 :
				   SECTOR_SIZE - 1;

	return file->f_mode & FMODE_CAN_ODIRECT &&
	       !((pos | iov_iter_count(iter)) & mask) &&
	       iov_iter_is_aligned(iter, mask, mask);
}

static ssize_t vhfs_do_part(struct vhfs_req *req, struct vhfs_handle *handle,
			    struct kiocb *iocb, struct iov_iter *iter)
{
	struct file *file = handle->file;

	/* Ask again, because a listener may have been added since the request was taken. */
	if (iocb->ki_flags & IOCB_DIRECT && req->threadless && vhfs_direct_needs_no_thread(req))
		return vhfs_direct_io(req, handle, iocb, iter);
	if (iocb->ki_flags & IOCB_WRITE)
		return vfs_iocb_iter_write(file, iocb, iter);
	return vfs_iocb_iter_read(file, iocb, iter);
}

/*
 * Whether the guest looks only at the error of a reply, and not at its length.
 *
 * Linux does so when it reads or writes pages of its cache.  It takes a short READ for the end of
 * the file, and keeps zeroes for the rest.  After a short WRITE it takes all pages for written.
 * Linux does look at the length for a read(2) or write(2) that bypasses its cache, because the
 * program can ask again.  Such a READ has the program's lock owner, and such a WRITE lacks
 * FUSE_WRITE_CACHE.
 */
static bool vhfs_is_all_or_nothing(const struct vhfs_req *req)
{
	if (req->in.opcode == FUSE_READ)
		return !(vhfs_args(req, struct fuse_read_in)->read_flags & FUSE_READ_LOCKOWNER);
	return vhfs_args(req, struct fuse_write_in)->write_flags & FUSE_WRITE_CACHE;
}

/**
 * vhfs_io_result - decide which length or error the guest is told of
 * @req: the READ or WRITE
 * @done: how many bytes were moved in all
 * @r: how the last attempt ended: bytes, 0 at the end of the file, or an error
 *
 * Return: the number of bytes for the reply, or the error that takes its place.
 */
ssize_t vhfs_io_result(const struct vhfs_req *req, ssize_t done, ssize_t r)
{
	if (!vhfs_is_all_or_nothing(req))
		return done ?: r;
	if (r < 0)
		return r;
	/* The file system has stopped early without an error. */
	if (req->in.opcode == FUSE_WRITE && done < vhfs_args(req, struct fuse_write_in)->size)
		return -EIO;
	return done;
}

/*
 * Read or write all of @all, up to an error or the end of the file.  Returns -EIOCBQUEUED as
 * vhfs_direct_io() does.
 *
 * A short append is not continued, because another writer's data may be at the end by then.  The
 * program gets the length of the first part.
 */
static ssize_t vhfs_do_io(struct vhfs_req *req, struct vhfs_handle *handle,
			  struct kiocb *iocb, const struct iov_iter *all)
{
	const size_t want = iov_iter_count(all);
	struct iov_iter iter;
	ssize_t done = 0, r;

	do {
		/*
		 * Start from @all again, because the last attempt has cut @iter if it met a limit
		 * of the file's size.  This attempt then returns the error.
		 */
		iter = *all;
		iov_iter_advance(&iter, done);
		r = vhfs_do_part(req, handle, iocb, &iter);
		/*
		 * The file system may ask for more alignment than the disk.  A worker can then
		 * copy.
		 */
		if (r == -EINVAL && iocb->ki_flags & IOCB_DIRECT && !req->hot) {
			iocb->ki_flags &= ~IOCB_DIRECT;
			iter = *all;
			iov_iter_advance(&iter, done);
			r = vhfs_do_part(req, handle, iocb, &iter);
		}
		if (r > 0)
			done += r;
		/*
		 * Use the page cache for the rest.  If the rest were queued, its completion would
		 * end the request with the length of the rest alone.
		 */
		if (r > 0 && req->threadless)
			iocb->ki_flags &= ~IOCB_DIRECT;
	} while (r > 0 && done < want && !(iocb->ki_flags & IOCB_APPEND));
	/*
	 * The disk may have ended the request, and the ring may have freed its slot, so leave it
	 * alone.
	 */
	if (r == -EIOCBQUEUED)
		return r;
	return vhfs_io_result(req, done, r);
}

/*
 * Whether to leave the request to a worker.  The poller's thread was to queue direct I/O, and would
 * now have to copy, or to wait for the disk.  Nothing was done yet.
 */
static bool vhfs_is_not_for_poller(const struct vhfs_req *req, const struct kiocb *iocb)
{
	return req->hot && req->threadless &&
	       (!(iocb->ki_flags & IOCB_DIRECT) || !vhfs_direct_needs_no_thread(req));
}

static noinline int vhfs_read_slow(struct vhfs_req *req, struct vhfs_handle *handle,
				   struct iov_iter *iter)
{
	const struct fuse_read_in *arg = vhfs_args(req, struct fuse_read_in);
	struct file *file = handle->file;
	struct kiocb iocb;
	ssize_t r;

	if (S_ISDIR(file_inode(file)->i_mode))
		return -EISDIR;
	init_sync_kiocb(&iocb, file);
	iocb.ki_pos = arg->offset;
	if (arg->flags & O_DIRECT && vhfs_is_aligned_for_direct(file, iocb.ki_pos, iter))
		iocb.ki_flags |= IOCB_DIRECT;
	if (vhfs_is_not_for_poller(req, &iocb))
		return VHFS_PUNT;
	r = vhfs_do_io(req, handle, &iocb, iter);
	if (r == -EIOCBQUEUED)
		return VHFS_PARKED;
	if (r == -EINVAL && req->hot)
		return VHFS_PUNT;
	if (r < 0)
		return r;
	req->data_len = r;
	return 0;
}

int vhfs_read(struct vhfs_req *req)
{
	const struct fuse_read_in *arg = vhfs_args(req, struct fuse_read_in);
	struct vhfs_handle *handle;
	struct iov_iter iter;
	int r;

	if (!vhfs_read_iter(req, arg, &iter)) {
		vhfs_handle_put(req->handle, false);
		return -EINVAL;
	}
	handle = req->handle ?: vhfs_handle_get(req, arg->fh);
	if (IS_ERR(handle))
		return PTR_ERR(handle);
	if (req->may_sleep)
		r = vhfs_read_slow(req, handle, &iter);
	else
		r = vhfs_read_in_round(req, handle->file, &iter);
	if (r != VHFS_PARKED)
		vhfs_handle_put(handle, req->may_sleep && !req->hot);
	return r;
}

/*
 * O_APPEND means the end of the file on the host, which may be elsewhere than the guest thinks.  It
 * does not apply to pages of the guest's cache, because each of them has its place.  A guest that
 * writes back knows the end better than the host, so the host never appends for it.
 */
static int vhfs_write_flags(const struct vhfs_req *req)
{
	const struct fuse_write_in *arg = vhfs_args(req, struct fuse_write_in);
	int flags = 0;

	if (arg->flags & O_APPEND && !(arg->write_flags & FUSE_WRITE_CACHE) &&
	    !vhfs_writes_back(req->ex))
		flags |= IOCB_APPEND;
	if (arg->flags & O_DSYNC)
		flags |= IOCB_DSYNC;
	if (arg->flags & __O_SYNC)
		flags |= IOCB_SYNC;
	return flags;
}

static int vhfs_do_write(struct vhfs_req *req, struct vhfs_handle *handle)
{
	const struct fuse_write_in *arg = vhfs_args(req, struct fuse_write_in);
	struct file *file = handle->file;
	struct iov_iter iter = req->src;
	struct kiocb iocb;
	ssize_t r;

	init_sync_kiocb(&iocb, file);
	iocb.ki_pos = arg->offset;
	iocb.ki_flags |= vhfs_write_flags(req) | IOCB_WRITE;
	if (IS_APPEND(file_inode(file)) && !(iocb.ki_flags & IOCB_APPEND))
		return -EPERM;
	if (arg->flags & O_DIRECT && vhfs_is_aligned_for_direct(file, iocb.ki_pos, &iter))
		iocb.ki_flags |= IOCB_DIRECT;
	if (vhfs_is_not_for_poller(req, &iocb))
		return VHFS_PUNT;
	r = vhfs_do_io(req, handle, &iocb, &iter);
	if (r == -EIOCBQUEUED)
		return VHFS_PARKED;
	if (r == -EINVAL && req->hot)
		return VHFS_PUNT;
	if (r < 0)
		return r;
	vhfs_reply(req, struct fuse_write_out)->size = r;
	return 0;
}

int vhfs_write(struct vhfs_req *req)
{
	const struct fuse_write_in *arg = vhfs_args(req, struct fuse_write_in);
	struct vhfs_handle *handle;
	int r;

	if (arg->size != iov_iter_count(&req->src) ||
	    arg->size > VHFS_MAX_WRITE)
		return -EINVAL;
	if ((s64)arg->offset < 0 || arg->offset > LLONG_MAX - VHFS_MAX_WRITE)
		return -EINVAL;
	handle = vhfs_handle_get(req, arg->fh);
	if (IS_ERR(handle))
		return PTR_ERR(handle);
	r = vhfs_do_write(req, handle);
	if (r != VHFS_PARKED)
		vhfs_handle_put(handle, !req->hot);
	return r;
}
