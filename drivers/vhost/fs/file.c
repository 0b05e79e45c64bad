// SPDX-License-Identifier: GPL-2.0
/*
 * Open files: OPEN, OPENDIR, RELEASE, FLUSH, FSYNC, FALLOCATE, LSEEK, COPY_FILE_RANGE.  READ and
 * WRITE are in io.c.
 *
 * The host's file is open without O_APPEND and O_DIRECT, because a guest can change these flags
 * while it has the file open.  Each READ and WRITE carries the flags that hold for it.
 *
 * The host's file is open without O_DSYNC and O_SYNC, too.  A guest writes its page cache back by
 * any handle, and these pages need not be synced.  A WRITE that has to be synced says so.
 * FALLOCATE and COPY_FILE_RANGE cannot, so the handle remembers the flags (vhfs_sync_range()).
 */
#include <linux/file.h>
#include <linux/filelock.h>
#include <linux/namei.h>

#include "fs.h"

/*
 * How many bytes one COPY_FILE_RANGE copies, so that it does not keep a worker for long.  The guest
 * asks for the rest.
 */
#define COPY_MAX	(64U << 20)

/**
 * vhfs_open_flags - the flags with which the host opens a file
 * @ex: the export
 * @flags: the guest's flags
 *
 * A guest that writes back reads the rest of a page before it changes a part of it, and uses the
 * handle that it writes with.  So that handle can read, too.
 */
int vhfs_open_flags(const struct vhfs_export *ex, u32 flags)
{
	int how = O_LARGEFILE;

	if (vhfs_writes_back(ex) && (flags & O_ACCMODE) == O_WRONLY)
		flags = O_RDWR;
	/*
	 * The clone is read-only, but a submount may not be, and reads must not change its access
	 * times.
	 */
	if (vhfs_read_only(ex))
		how |= O_NOATIME;
	return (flags & O_ACCMODE) | how;
}

/**
 * vhfs_fopen_flags - the flags that tell the guest what to cache
 * @ex: the export
 * @inode: the file's inode
 */
u32 vhfs_fopen_flags(const struct vhfs_export *ex, const struct inode *inode)
{
	bool dir = S_ISDIR(inode->i_mode);

	switch (ex->cfg.cache) {
	case VHOST_FS_CACHE_NONE:
		return dir ? 0 : FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
	case VHOST_FS_CACHE_ALWAYS:
		return dir ? FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR :
			     FOPEN_KEEP_CACHE | FOPEN_PARALLEL_DIRECT_WRITES;
	default:
		return dir ? 0 : FOPEN_PARALLEL_DIRECT_WRITES;
	}
}

/* Make the checks of open(2), because dentry_open() makes none of them. */
static int vhfs_may_open(struct vhfs_req *req, const struct path *path,
			 u32 flags)
{
	struct inode *inode = d_inode(path->dentry);
	struct mnt_idmap *idmap = mnt_idmap(path->mnt);
	int mask;

	/* 3 asks for neither read nor write access, and means something to a few drivers only. */
	if ((flags & O_ACCMODE) == O_ACCMODE)
		return -EINVAL;
	/* Check the access that the host's file gets, which may be more than the guest asks for. */
	mask = ACC_MODE(vhfs_open_flags(req->ex, flags));
	if (flags & O_TRUNC)
		mask |= MAY_WRITE;
	if (S_ISDIR(inode->i_mode))
		return mask & MAY_WRITE ? -EISDIR :
			inode_permission(idmap, inode, mask);
	if (S_ISLNK(inode->i_mode))
		return -ELOOP;
	/* The guest opens devices, FIFOs and sockets itself. */
	if (!S_ISREG(inode->i_mode))
		return -ENXIO;
	if (mask & MAY_WRITE && vhfs_read_only(req->ex))
		return -EROFS;
	/* A guest that writes back writes whole pages, which begin before the end of the file. */
	if (IS_APPEND(inode) && mask & MAY_WRITE &&
	    (!(flags & O_APPEND) || flags & O_TRUNC || vhfs_writes_back(req->ex)))
		return -EPERM;
	return inode_permission(idmap, inode, mask);
}

/*
 * Only the file's owner may ask for O_NOATIME, and dentry_open() does not check that.  For other
 * tasks the flag is left out, because it is no reason to fail.
 */
static int vhfs_noatime(const struct path *path, u32 flags)
{
	if (!inode_owner_or_capable(mnt_idmap(path->mnt), d_inode(path->dentry)))
		return 0;
	return flags & O_NOATIME;
}

static int vhfs_open_trunc(struct vhfs_req *req, struct file *file)
{
	struct inode *inode = file_inode(file);
	int r = mnt_want_write(file->f_path.mnt);

	if (r)
		return r;
	r = get_write_access(inode);
	if (!r) {
		r = break_lease(inode, O_WRONLY);
		/*
		 * Without ATTR_OPEN, because the file was opened without O_TRUNC.  FUSE takes that
		 * flag to say that its server has truncated the file in OPEN.
		 */
		if (!r)
			r = vhfs_truncate(req, &file->f_path, NULL, 0, ATTR_MTIME | ATTR_CTIME);
		put_write_access(inode);
	}
	mnt_drop_write(file->f_path.mnt);
	return r;
}

static struct file *vhfs_open_path(struct vhfs_req *req,
				   const struct path *path, u32 flags, bool made)
{
	struct file *file;
	int r;

	if (made && !d_is_reg(path->dentry))
		return ERR_PTR(-ENXIO);
	/* The request may write a file that it has just made, whatever the file's mode is. */
	r = made ? 0 : vhfs_may_open(req, path, flags);
	if (r)
		return ERR_PTR(r);
	file = dentry_open(path, vhfs_open_flags(req->ex, flags) | vhfs_noatime(path, flags),
			   current_cred());
	if (IS_ERR(file) || made || !(flags & O_TRUNC))
		return file;
	r = vhfs_open_trunc(req, file);
	if (!r)
		return file;
	__fput_sync(file);
	return ERR_PTR(r);
}

/**
 * vhfs_open_node - open a file, and give the guest a handle for it
 * @req: the request
 * @handle: from vhfs_handle_new(); freed if this fails
 * @path: the file; this fails unless it is a regular file or a directory
 * @flags: the guest's flags
 * @made: this request has made the file
 * @out: the reply, all zero
 *
 * Return: 0, or an error.
 */
int vhfs_open_node(struct vhfs_req *req, struct vhfs_handle *handle,
		   const struct path *path, u32 flags, bool made,
		   struct fuse_open_out *out)
{
	struct file *file;
	int r;

	file = vhfs_open_path(req, path, flags, made);
	if (IS_ERR(file)) {
		vhfs_handle_drop(handle);
		return PTR_ERR(file);
	}
	r = vhfs_handle_set(req, handle, file);
	if (r)
		return r;
	out->fh = handle->id.nr;
	out->open_flags = vhfs_fopen_flags(req->ex, d_inode(path->dentry));
	vhfs_handle_put(handle, true);
	return 0;
}

int vhfs_open(struct vhfs_req *req)
{
	struct fuse_open_out *out = vhfs_reply(req, struct fuse_open_out);
	u32 flags = vhfs_args(req, struct fuse_open_in)->flags;
	struct path path = vhfs_path(req);
	struct vhfs_handle *handle;

	if (S_ISDIR(vhfs_inode(req)->i_mode))
		return -EISDIR;
	if (flags & O_TRUNC && vhfs_too_big(req, vhfs_inode(req)))
		return VHFS_PUNT;
	handle = vhfs_handle_new(req);
	if (IS_ERR(handle))
		return PTR_ERR(handle);
	vhfs_handle_opens(handle, req->node->id.nr, path.dentry, flags);
	return vhfs_open_node(req, handle, &path, flags, false, out);
}

int vhfs_opendir(struct vhfs_req *req)
{
	struct fuse_open_out *out = vhfs_reply(req, struct fuse_open_out);
	u32 flags = O_RDONLY | (vhfs_args(req, struct fuse_open_in)->flags & O_NOATIME);
	struct path path = vhfs_path(req);
	struct vhfs_handle *handle = vhfs_handle_new(req);

	if (IS_ERR(handle))
		return PTR_ERR(handle);
	vhfs_handle_opens(handle, req->node->id.nr, path.dentry, flags);
	return vhfs_open_node(req, handle, &path, flags, false, out);
}

int vhfs_release(struct vhfs_req *req)
{
	return vhfs_handle_close(req, vhfs_args(req, struct fuse_release_in)->fh);
}

/* The guest has closed one of its descriptors with close(2), so the owner's POSIX locks go. */
int vhfs_flush(struct vhfs_req *req)
{
	const struct fuse_flush_in *arg = vhfs_args(req, struct fuse_flush_in);
	struct vhfs_handle *handle = vhfs_handle_get(req, arg->fh);
	int r;

	if (IS_ERR(handle))
		return PTR_ERR(handle);
	if (vhfs_locks_to_search(req, handle)) {
		vhfs_handle_put(handle, false);
		return VHFS_PUNT;
	}
	r = vhfs_flush_owner(handle, arg->lock_owner);
	vhfs_handle_put(handle, !req->hot);
	return r;
}

int vhfs_fsync(struct vhfs_req *req)
{
	const struct fuse_fsync_in *arg = vhfs_args(req, struct fuse_fsync_in);
	struct vhfs_handle *handle = vhfs_handle_get(req, arg->fh);
	int r;

	if (IS_ERR(handle))
		return PTR_ERR(handle);
	r = vfs_fsync(handle->file, arg->fsync_flags & FUSE_FSYNC_FDATASYNC);
	vhfs_handle_put(handle, true);
	return r;
}

/*
 * Sync a range that FALLOCATE or COPY_FILE_RANGE has changed, if the guest's descriptor is O_DSYNC
 * or O_SYNC.
 */
static int vhfs_sync_range(const struct vhfs_handle *handle, loff_t start, loff_t len)
{
	if (!handle->sync || !len)
		return 0;
	return vfs_fsync_range(handle->file, start, start + len - 1, !(handle->sync & __O_SYNC));
}

int vhfs_fallocate(struct vhfs_req *req)
{
	const struct fuse_fallocate_in *arg =
		vhfs_args(req, struct fuse_fallocate_in);
	struct vhfs_handle *handle;
	int r;

	if ((s64)arg->offset < 0 || (s64)arg->length <= 0)
		return -EINVAL;
	handle = vhfs_handle_get(req, arg->fh);
	if (IS_ERR(handle))
		return PTR_ERR(handle);
	r = vfs_fallocate(handle->file, arg->mode, arg->offset, arg->length);
	if (!r)
		r = vhfs_sync_range(handle, arg->offset, arg->length);
	vhfs_handle_put(handle, true);
	return r;
}

/* LSEEK finds data and holes.  The guest itself knows its position. */
int vhfs_lseek(struct vhfs_req *req)
{
	const struct fuse_lseek_in *arg = vhfs_args(req, struct fuse_lseek_in);
	struct vhfs_handle *handle;
	loff_t r = -EINVAL;

	/*
	 * A guest does not write back before LSEEK, so the host would take data that are yet to be
	 * written for a hole.  After ENOSYS the guest answers itself, and takes everything for
	 * data.
	 */
	if (vhfs_writes_back(req->ex))
		return -ENOSYS;
	if (arg->whence != SEEK_DATA && arg->whence != SEEK_HOLE)
		return -EINVAL;
	handle = vhfs_handle_get(req, arg->fh);
	if (IS_ERR(handle))
		return PTR_ERR(handle);
	/* READDIR uses the position of a directory. */
	if (S_ISREG(vhfs_inode(req)->i_mode))
		r = vfs_llseek(handle->file, arg->offset, arg->whence);
	vhfs_handle_put(handle, true);
	if (r < 0)
		return r;
	vhfs_reply(req, struct fuse_lseek_out)->offset = r;
	return 0;
}

static ssize_t vhfs_copy(struct vhfs_handle *from, struct vhfs_handle *to,
			 const struct fuse_copy_file_range_in *arg)
{
	ssize_t r;
	int sync;

	/* vfs_copy_file_range() checks O_APPEND of the descriptor only, and the host's has none. */
	if (IS_APPEND(file_inode(to->file)))
		return -EPERM;
	r = vfs_copy_file_range(from->file, arg->off_in, to->file, arg->off_out,
				min_t(u64, arg->len, COPY_MAX), 0);
	if (r <= 0)
		return r;
	sync = vhfs_sync_range(to, arg->off_out, r);
	return sync ?: r;
}

static struct vhfs_handle *
vhfs_get_target(struct vhfs_req *req, const struct fuse_copy_file_range_in *arg)
{
	struct vhfs_node *node = vhfs_node_get(req->ex, arg->nodeid_out);
	struct vhfs_node *source = req->node;
	struct vhfs_handle *handle;
	int r;

	if (!node)
		return ERR_PTR(-ESTALE);
	r = vhfs_node_use(req, node);
	if (r) {
		handle = ERR_PTR(r);
	} else {
		req->node = node;
		handle = vhfs_handle_get(req, arg->fh_out);
		req->node = source;
	}
	vhfs_node_put(node, true);
	return handle;
}

int vhfs_copy_file_range(struct vhfs_req *req)
{
	const struct fuse_copy_file_range_in *arg =
		vhfs_args(req, struct fuse_copy_file_range_in);
	struct vhfs_handle *from, *to;
	ssize_t r;

	if (arg->flags)
		return -EINVAL;
	if ((s64)arg->off_in < 0 || (s64)arg->off_out < 0)
		return -EINVAL;
	from = vhfs_handle_get(req, arg->fh_in);
	if (IS_ERR(from))
		return PTR_ERR(from);
	to = vhfs_get_target(req, arg);
	r = PTR_ERR_OR_ZERO(to);
	if (r)
		goto put;
	r = vhfs_copy(from, to, arg);
	vhfs_handle_put(to, true);
put:
	vhfs_handle_put(from, true);
	if (r < 0)
		return r;
	vhfs_reply(req, struct fuse_write_out)->size = r;
	return 0;
}
