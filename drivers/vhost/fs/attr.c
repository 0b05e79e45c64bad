// SPDX-License-Identifier: GPL-2.0
/*
 * Operations on a node's attributes and on its file system: GETATTR, STATX, SETATTR, ACCESS,
 * STATFS, READLINK, SYNCFS.
 */
#include <linux/filelock.h>
#include <linux/kdev_t.h>
#include <linux/namei.h>
#include <linux/stat.h>
#include <linux/statfs.h>

#include "fs.h"

/*
 * The flags of a name's attributes.  On the root of a submount the guest makes a mount of its own,
 * so that the files beneath have another device number.
 */
static u32 vhfs_attr_flags(const struct vhfs_place *at)
{
	const struct vhfs_mount *mount = at->mount;

	if (!mount->parent || !vhfs_is_mount_root(mount, at->dentry) || !d_is_dir(at->dentry))
		return 0;
	return mount->ex->session.flags & FUSE_SUBMOUNTS ? FUSE_ATTR_SUBMOUNT : 0;
}

/* The initial namespace maps each id to itself, so skip the search through its map. */
static u32 vhfs_tell_uid(const struct vhfs_export *ex, kuid_t uid)
{
	if (ex->user_ns == &init_user_ns && uid_valid(uid))
		return __kuid_val(uid);
	return from_kuid_munged(ex->user_ns, uid);
}

static u32 vhfs_tell_gid(const struct vhfs_export *ex, kgid_t gid)
{
	if (ex->user_ns == &init_user_ns && gid_valid(gid))
		return __kgid_val(gid);
	return from_kgid_munged(ex->user_ns, gid);
}

/**
 * vhfs_fill_attr - convert attributes for the guest
 * @at: the file
 * @stat: its attributes, from vfs_getattr()
 * @attr: to be filled
 */
void vhfs_fill_attr(const struct vhfs_place *at, const struct kstat *stat,
		    struct fuse_attr *attr)
{
	const struct vhfs_export *ex = at->mount->ex;

	attr->ino = stat->ino;
	attr->size = stat->size;
	attr->blocks = stat->blocks;
	attr->atime = stat->atime.tv_sec;
	attr->atimensec = stat->atime.tv_nsec;
	attr->mtime = stat->mtime.tv_sec;
	attr->mtimensec = stat->mtime.tv_nsec;
	attr->ctime = stat->ctime.tv_sec;
	attr->ctimensec = stat->ctime.tv_nsec;
	attr->mode = stat->mode;
	attr->nlink = stat->nlink;
	attr->uid = vhfs_tell_uid(ex, stat->uid);
	attr->gid = vhfs_tell_gid(ex, stat->gid);
	attr->rdev = new_encode_dev(stat->rdev);
	attr->blksize = stat->blksize;
	attr->flags = vhfs_attr_flags(at);
}

static int vhfs_answer_attr(struct vhfs_req *req)
{
	struct fuse_attr_out *out = vhfs_reply(req, struct fuse_attr_out);
	const struct vhfs_place self = vhfs_place(req, vhfs_dentry(req));
	struct path path = vhfs_path(req);
	struct kstat stat;
	int r;

	r = vfs_getattr(&path, &stat, STATX_BASIC_STATS, AT_STATX_SYNC_AS_STAT);
	if (r)
		return r;
	vhfs_fill_attr(&self, &stat, &out->attr);
	out->attr_valid = req->ex->attr_valid.sec;
	out->attr_valid_nsec = req->ex->attr_valid.nsec;
	return 0;
}

/* The request may name a handle, too.  That has the same inode, so it makes no difference. */
int vhfs_getattr(struct vhfs_req *req)
{
	if (!req->may_sleep && !req->node->mount->quick_getattr)
		return VHFS_PUNT;
	return vhfs_answer_attr(req);
}

static void vhfs_fill_time(const struct timespec64 *from,
			   struct fuse_sx_time *to)
{
	to->tv_sec = from->tv_sec;
	to->tv_nsec = from->tv_nsec;
}

static void vhfs_fill_statx(const struct vhfs_export *ex,
			    const struct kstat *stat, struct fuse_statx *out)
{
	out->mask = stat->result_mask & (STATX_BASIC_STATS | STATX_BTIME);
	out->blksize = stat->blksize;
	out->attributes = stat->attributes;
	out->attributes_mask = stat->attributes_mask;
	out->nlink = stat->nlink;
	out->uid = vhfs_tell_uid(ex, stat->uid);
	out->gid = vhfs_tell_gid(ex, stat->gid);
	out->mode = stat->mode;
	out->ino = stat->ino;
	out->size = stat->size;
	out->blocks = stat->blocks;
	vhfs_fill_time(&stat->atime, &out->atime);
	vhfs_fill_time(&stat->btime, &out->btime);
	vhfs_fill_time(&stat->ctime, &out->ctime);
	vhfs_fill_time(&stat->mtime, &out->mtime);
	out->rdev_major = MAJOR(stat->rdev);
	out->rdev_minor = MINOR(stat->rdev);
	out->dev_major = MAJOR(stat->dev);
	out->dev_minor = MINOR(stat->dev);
}

int vhfs_statx(struct vhfs_req *req)
{
	const struct fuse_statx_in *arg = vhfs_args(req, struct fuse_statx_in);
	struct fuse_statx_out *out;
	struct path path = vhfs_path(req);
	struct kstat stat;
	u32 sync = arg->sx_flags & AT_STATX_SYNC_TYPE;
	int r;

	if (sync == AT_STATX_SYNC_TYPE)
		return -EINVAL;
	r = vfs_getattr(&path, &stat,
			arg->sx_mask & (STATX_BASIC_STATS | STATX_BTIME), sync);
	if (r)
		return r;
	out = vhfs_reply(req, struct fuse_statx_out);
	vhfs_fill_statx(req->ex, &stat, &out->stat);
	out->attr_valid = req->ex->attr_valid.sec;
	out->attr_valid_nsec = req->ex->attr_valid.nsec;
	return 0;
}

/*
 * Make one change, with the inode locked.  If it needs a lease broken, wait for that without the
 * lock, and try again.
 */
static int vhfs_change(struct vhfs_req *req, const struct path *path,
		       const struct iattr *wanted, bool chown)
{
	struct mnt_idmap *idmap = mnt_idmap(path->mnt);
	struct inode *inode = d_inode(path->dentry);
	struct inode *delegated;
	struct iattr attr;
	int r;

	do {
		delegated = NULL;
		attr = *wanted;
		inode_lock(inode);
		/*
		 * chown(2) does the same.  notify_change() does not allow this together with
		 * ATTR_MODE.
		 */
		if (chown && !S_ISDIR(inode->i_mode))
			attr.ia_valid |= ATTR_KILL_SUID | ATTR_KILL_PRIV |
				setattr_should_drop_sgid(idmap, inode);
		r = notify_change(idmap, path->dentry, &attr, &delegated);
		inode_unlock(inode);
		if (!delegated)
			break;
		r = break_deleg_wait(&delegated);
	} while (!r);
	return r;
}

/**
 * vhfs_truncate - change the size of a file
 * @req: the request
 * @path: the file; the caller has write access to its mount
 * @file: the file, open for writing, or NULL
 * @size: the new size
 * @more: ATTR_* beside the size
 *
 * As with truncate(2), the file loses set-id bits and file capabilities if the caller lacks
 * CAP_FSETID.
 *
 * Return: 0, or an error.
 */
int vhfs_truncate(struct vhfs_req *req, const struct path *path,
		  struct file *file, loff_t size, unsigned int more)
{
	struct inode *inode = d_inode(path->dentry);
	struct iattr attr = {
		.ia_valid = ATTR_SIZE | ATTR_KILL_PRIV | more,
		.ia_size = size,
		.ia_file = file,
	};
	int kill;

	if (file)
		attr.ia_valid |= ATTR_FILE;
	inode_lock(inode);
	kill = setattr_should_drop_suidgid(mnt_idmap(path->mnt), inode);
	inode_unlock(inode);
	/* Without ATTR_FORCE only the file's owner could truncate a file with these bits. */
	if (kill)
		attr.ia_valid |= kill | ATTR_FORCE;
	return vhfs_change(req, path, &attr, false);
}

static int vhfs_may_truncate(struct vhfs_req *req, const struct path *path)
{
	struct inode *inode = d_inode(path->dentry);

	if (S_ISDIR(inode->i_mode))
		return -EISDIR;
	if (!S_ISREG(inode->i_mode))
		return -EINVAL;
	if (IS_APPEND(inode))
		return -EPERM;
	return inode_permission(mnt_idmap(path->mnt), inode, MAY_WRITE);
}

static int vhfs_truncate_node(struct vhfs_req *req, loff_t size)
{
	struct path path = vhfs_path(req);
	struct inode *inode = vhfs_inode(req);
	int r = vhfs_may_truncate(req, &path);

	if (r)
		return r;
	r = get_write_access(inode);
	if (r)
		return r;
	r = break_lease(inode, O_WRONLY);
	if (!r)
		r = vhfs_truncate(req, &path, NULL, size, 0);
	put_write_access(inode);
	return r;
}

/* The guest may truncate a file that it has opened for writing, whatever the file's mode is now. */
static int vhfs_truncate_handle(struct vhfs_req *req, u64 fh, loff_t size)
{
	struct vhfs_handle *handle = vhfs_handle_get(req, fh);
	int r;

	if (IS_ERR(handle))
		return PTR_ERR(handle);
	if (!(handle->file->f_mode & FMODE_WRITE) ||
	    !S_ISREG(vhfs_inode(req)->i_mode))
		r = -EINVAL;
	else if (IS_APPEND(vhfs_inode(req)))
		r = -EPERM;
	else
		r = vhfs_truncate(req, &handle->file->f_path, handle->file,
				  size, ATTR_MTIME | ATTR_CTIME);
	vhfs_handle_put(handle, !req->hot);
	return r;
}

static int vhfs_set_size(struct vhfs_req *req,
			 const struct fuse_setattr_in *arg)
{
	if ((s64)arg->size < 0)
		return -EINVAL;
	if (arg->valid & FATTR_FH)
		return vhfs_truncate_handle(req, arg->fh, arg->size);
	return vhfs_truncate_node(req, arg->size);
}

static int vhfs_set_owner(struct vhfs_req *req,
			  const struct fuse_setattr_in *arg)
{
	struct path path = vhfs_path(req);
	struct iattr attr = { .ia_valid = ATTR_CTIME };
	kuid_t uid = make_kuid(req->ex->user_ns, arg->uid);
	kgid_t gid = make_kgid(req->ex->user_ns, arg->gid);

	if (arg->valid & FATTR_UID) {
		if (!uid_valid(uid))
			return -EINVAL;
		attr.ia_valid |= ATTR_UID;
		attr.ia_vfsuid = VFSUIDT_INIT(uid);
	}
	if (arg->valid & FATTR_GID) {
		if (!gid_valid(gid))
			return -EINVAL;
		attr.ia_valid |= ATTR_GID;
		attr.ia_vfsgid = VFSGIDT_INIT(gid);
	}
	return vhfs_change(req, &path, &attr, true);
}

static void vhfs_set_mode(struct vhfs_req *req,
			  const struct fuse_setattr_in *arg, struct iattr *attr)
{
	attr->ia_valid |= ATTR_MODE | ATTR_CTIME;
	attr->ia_mode = (arg->mode & S_IALLUGO) |
			(vhfs_inode(req)->i_mode & ~S_IALLUGO);
}

static int vhfs_set_times(const struct fuse_setattr_in *arg, struct iattr *attr)
{
	const u32 now = FATTR_ATIME_NOW | FATTR_MTIME_NOW;

	if (arg->valid & FATTR_ATIME) {
		attr->ia_valid |= ATTR_ATIME | ATTR_CTIME;
		if (!(arg->valid & FATTR_ATIME_NOW))
			attr->ia_valid |= ATTR_ATIME_SET;
		attr->ia_atime.tv_sec = arg->atime;
		attr->ia_atime.tv_nsec = arg->atimensec;
	}
	if (arg->valid & FATTR_MTIME) {
		attr->ia_valid |= ATTR_MTIME | ATTR_CTIME;
		if (!(arg->valid & FATTR_MTIME_NOW))
			attr->ia_valid |= ATTR_MTIME_SET;
		attr->ia_mtime.tv_sec = arg->mtime;
		attr->ia_mtime.tv_nsec = arg->mtimensec;
	}
	if (arg->atimensec >= NSEC_PER_SEC || arg->mtimensec >= NSEC_PER_SEC)
		return -EINVAL;
	/*
	 * A task that may write the file can set both times to now.  Only the file's owner can set
	 * others.
	 */
	if ((arg->valid & now) == now)
		attr->ia_valid |= ATTR_TOUCH;
	else if (arg->valid & (FATTR_ATIME | FATTR_MTIME))
		attr->ia_valid |= ATTR_TIMES_SET;
	return 0;
}

/*
 * Whether the times are those of a write or a truncation in the guest.  A guest that writes back
 * tells the host these times, because it knows them better.  The core's fuse_flush_times() sends
 * exactly these bits with FATTR_FH, and no system call does.  With a new size no system call asks
 * for a time of its own.
 *
 * A squashed guest may write and truncate files that it does not own.  The guest would report an
 * error of this request as one of its fsync(), close() or truncate(), which has been carried out.
 * So there is no error, and the file keeps the time of the change on the host.
 */
static bool vhfs_tells_times(const struct vhfs_req *req, const struct fuse_setattr_in *arg)
{
	const u32 times = FATTR_MTIME | FATTR_CTIME;
	const u32 more = FATTR_FH | FATTR_LOCKOWNER | FATTR_KILL_SUIDGID;

	if (!vhfs_writes_back(req->ex))
		return false;
	return arg->valid == (times | FATTR_FH) || (arg->valid & ~more) == (times | FATTR_SIZE);
}

/*
 * Make the changes in steps.  File systems do not expect a size together with other changes, and
 * the VFS does not clear set-id bits together with a change of the mode.
 */
static int vhfs_set_all(struct vhfs_req *req, const struct fuse_setattr_in *arg)
{
	struct path path = vhfs_path(req);
	struct iattr attr = {};
	int r = vhfs_set_times(arg, &attr);

	if (r)
		return r;
	if (arg->valid & FATTR_SIZE) {
		r = vhfs_set_size(req, arg);
		if (r)
			return r;
	}
	if (arg->valid & (FATTR_UID | FATTR_GID)) {
		r = vhfs_set_owner(req, arg);
		if (r)
			return r;
	}
	if (arg->valid & FATTR_MODE)
		vhfs_set_mode(req, arg, &attr);
	if (attr.ia_valid)
		r = vhfs_change(req, &path, &attr, false);
	return r == -EPERM && vhfs_tells_times(req, arg) ? 0 : r;
}

int vhfs_setattr(struct vhfs_req *req)
{
	const struct fuse_setattr_in *arg =
		vhfs_args(req, struct fuse_setattr_in);
	int r;

	if (arg->valid & FATTR_SIZE && vhfs_too_big(req, vhfs_inode(req)))
		return VHFS_PUNT;
	r = mnt_want_write(vhfs_mnt(req));
	if (r)
		return r;
	r = vhfs_set_all(req, arg);
	mnt_drop_write(vhfs_mnt(req));
	return r ?: vhfs_answer_attr(req);
}

/* A guest with default_permissions, as virtiofs has it, does not send ACCESS. */
int vhfs_access(struct vhfs_req *req)
{
	u32 mask = vhfs_args(req, struct fuse_access_in)->mask;

	if (mask & ~(MAY_READ | MAY_WRITE | MAY_EXEC))
		return -EINVAL;
	if (mask & MAY_WRITE &&
	    (vhfs_read_only(req->ex) || __mnt_is_readonly(vhfs_mnt(req))) &&
	    !special_file(vhfs_inode(req)->i_mode))
		return -EROFS;
	return inode_permission(vhfs_idmap(req), vhfs_inode(req), mask);
}

int vhfs_statfs(struct vhfs_req *req)
{
	struct fuse_statfs_out *out = vhfs_reply(req, struct fuse_statfs_out);
	struct path path = vhfs_path(req);
	struct kstatfs st;
	int r = vfs_statfs(&path, &st);

	if (r)
		return r;
	out->st.blocks = st.f_blocks;
	out->st.bfree = st.f_bfree;
	out->st.bavail = st.f_bavail;
	out->st.files = st.f_files;
	out->st.ffree = st.f_ffree;
	out->st.bsize = st.f_bsize;
	out->st.namelen = min_t(u32, st.f_namelen, NAME_MAX);
	out->st.frsize = st.f_frsize ?: st.f_bsize;
	return 0;
}

int vhfs_readlink(struct vhfs_req *req)
{
	size_t room = req->out_room - sizeof(struct fuse_out_header);
	DEFINE_DELAYED_CALL(done);
	const char *target;
	size_t len;
	int r = 0;

	if (!d_is_symlink(vhfs_dentry(req)))
		return -EINVAL;
	/*
	 * Such a link is no text but a jump, as /proc/PID/exe is, and can only be followed in a
	 * path walk.
	 */
	if (vhfs_inode(req)->i_op->readlink)
		return -EOPNOTSUPP;
	target = vfs_get_link(vhfs_dentry(req), &done);
	if (IS_ERR(target))
		return PTR_ERR(target);
	/* If the guest has less room, the target is truncated, as by readlink(2). */
	len = min3(strlen(target), room, (size_t)PATH_MAX - 1);
	req->body = kvmemdup(target, len, GFP_KERNEL_ACCOUNT);
	if (req->body)
		req->body_len = len;
	else
		r = -ENOMEM;
	do_delayed_call(&done);
	return r;
}

/*
 * This does as syncfs(2) does for a file that the guest has open all the time.  If two requests
 * come at once, one of them gets the error, or both, as with syncfs(2).
 */
int vhfs_syncfs(struct vhfs_req *req)
{
	struct super_block *sb = vhfs_sb(req);
	int r, earlier;

	down_read(&sb->s_umount);
	r = sync_filesystem(sb);
	up_read(&sb->s_umount);
	earlier = errseq_check_and_advance(&sb->s_wb_err, &req->node->mount->wb_err);
	return r ?: earlier;
}
