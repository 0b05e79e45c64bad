// SPDX-License-Identifier: GPL-2.0
/*
 * Operations that make a name: MKNOD, MKDIR, SYMLINK, LINK, CREATE, TMPFILE.  They run with the uid
 * and gid of the guest's task, see cred.c.
 *
 * vhfs_make_begin() keeps the file system from being frozen, locks the directory, and looks the
 * name up.  Then the operation makes the name, and vhfs_make_end() undoes the first two.
 */
#include <linux/file.h>
#include <linux/filelock.h>
#include <linux/fs_struct.h>
#include <linux/kdev_t.h>
#include <linux/namei.h>

#include "fs.h"

/*
 * Have this thread use the umask of the guest's task.  The VFS takes the umask from the thread, and
 * ignores it where a directory has a default ACL.  So the VFS has to apply it, and not this code.
 *
 * All kernel threads share one fs_struct, so a worker or a poller's thread gets its own first.
 */
static int vhfs_umask_begin(const struct vhfs_req *req, u32 umask, int *old)
{
	struct fs_struct *fs = current->fs;
	int r;

	/* If this thread is the only user, no other task can add one. */
	if (READ_ONCE(fs->users) > 1) {
		r = unshare_fs_struct();
		if (r)
			return r;
	}
	*old = current->fs->umask;
	/* Without FUSE_DONT_MASK the guest has applied its umask itself. */
	current->fs->umask = req->ex->session.flags & FUSE_DONT_MASK ?
		umask & 0777 : 0;
	return 0;
}

static void vhfs_umask_end(int old)
{
	current->fs->umask = old;
}

/* Lock the directory, and return the dentry of names[0] in it. */
static struct dentry *vhfs_make_begin(struct vhfs_req *req)
{
	struct inode *dir = vhfs_inode(req);
	struct dentry *dentry;
	int r = mnt_want_write(vhfs_mnt(req));

	if (r)
		return ERR_PTR(r);
	inode_lock_nested(dir, I_MUTEX_PARENT);
	dentry = lookup_one(vhfs_idmap(req), req->names[0],
			    vhfs_dentry(req), req->name_len[0]);
	if (!IS_ERR(dentry))
		return dentry;
	inode_unlock(dir);
	mnt_drop_write(vhfs_mnt(req));
	return dentry;
}

static void vhfs_make_end(struct vhfs_req *req)
{
	inode_unlock(vhfs_inode(req));
	mnt_drop_write(vhfs_mnt(req));
}

/*
 * Find the dentry of the name that was made.  Some file systems make a directory and leave the
 * dentry as it was.  Then the name is looked up once more, and @again is set, because the name may
 * be another file's by now.
 */
static struct dentry *vhfs_find_made(struct vhfs_req *req,
				     struct dentry *dentry, bool *again)
{
	*again = d_is_negative(dentry) || d_unhashed(dentry);
	if (!*again)
		return dentry;
	dput(dentry);
	return lookup_one_positive_unlocked(vhfs_idmap(req), req->names[0],
					    vhfs_dentry(req), req->name_len[0]);
}

/* Fill the reply for @dentry, and put @dentry.  @r says whether it was made. */
static int vhfs_answer_made(struct vhfs_req *req, struct dentry *dentry, int r)
{
	struct vhfs_place at;
	bool again;

	if (r)
		goto put;
	dentry = vhfs_find_made(req, dentry, &again);
	if (IS_ERR(dentry))
		return PTR_ERR(dentry);
	/*
	 * Do not cross into a mount on the new name: the host has mounted it after the name was
	 * made.
	 */
	at = vhfs_place(req, dentry);
	r = vhfs_fill_entry(req, &at, vhfs_reply(req, struct fuse_entry_out));
put:
	dput(dentry);
	return r;
}

static int vhfs_do_mknod(struct vhfs_req *req, struct dentry *dentry)
{
	const struct fuse_mknod_in *arg = vhfs_args(req, struct fuse_mknod_in);
	struct mnt_idmap *idmap = vhfs_idmap(req);
	umode_t mode = arg->mode & (S_IFMT | S_IALLUGO);

	if (d_is_positive(dentry))
		return -EEXIST;
	if (!vhfs_may_make(req))
		return -ENFILE;
	switch (mode & S_IFMT) {
	case S_IFREG:
		return vfs_create(idmap, vhfs_inode(req), dentry, mode, true);
	case S_IFCHR:
	case S_IFBLK:
		return vfs_mknod(idmap, vhfs_inode(req), dentry, mode,
				 new_decode_dev(arg->rdev));
	case S_IFIFO:
	case S_IFSOCK:
		return vfs_mknod(idmap, vhfs_inode(req), dentry, mode, 0);
	default:
		return -EINVAL;
	}
}

int vhfs_mknod(struct vhfs_req *req)
{
	const struct fuse_mknod_in *arg = vhfs_args(req, struct fuse_mknod_in);
	struct dentry *dentry;
	int umask, r;

	dentry = vhfs_make_begin(req);
	if (IS_ERR(dentry))
		return PTR_ERR(dentry);
	r = vhfs_umask_begin(req, arg->umask, &umask);
	if (!r) {
		r = vhfs_do_mknod(req, dentry);
		vhfs_umask_end(umask);
	}
	vhfs_make_end(req);
	return vhfs_answer_made(req, dentry, r);
}

int vhfs_mkdir(struct vhfs_req *req)
{
	const struct fuse_mkdir_in *arg = vhfs_args(req, struct fuse_mkdir_in);
	struct dentry *dentry;
	int umask, r;

	if (!vhfs_may_make(req))
		return -ENFILE;
	dentry = vhfs_make_begin(req);
	if (IS_ERR(dentry))
		return PTR_ERR(dentry);
	r = vhfs_umask_begin(req, arg->umask, &umask);
	if (!r) {
		r = vfs_mkdir(vhfs_idmap(req), vhfs_inode(req), dentry,
			      arg->mode & S_IALLUGO);
		vhfs_umask_end(umask);
	}
	vhfs_make_end(req);
	return vhfs_answer_made(req, dentry, r);
}

int vhfs_symlink(struct vhfs_req *req)
{
	struct dentry *dentry;
	int r;

	if (!vhfs_may_make(req))
		return -ENFILE;
	dentry = vhfs_make_begin(req);
	if (IS_ERR(dentry))
		return PTR_ERR(dentry);
	r = vfs_symlink(vhfs_idmap(req), vhfs_inode(req), dentry,
			req->names[1]);
	vhfs_make_end(req);
	return vhfs_answer_made(req, dentry, r);
}

static int vhfs_link_node(struct vhfs_req *req, struct vhfs_node *node)
{
	struct inode *delegated = NULL;
	struct dentry *dentry;
	int r;

again:
	dentry = vhfs_make_begin(req);
	if (IS_ERR(dentry))
		return PTR_ERR(dentry);
	r = vfs_link(node->dentry, vhfs_idmap(req), vhfs_inode(req), dentry,
		     &delegated);
	vhfs_make_end(req);
	/* Another task has a lease.  Wait for it to break, with no lock held, and try again. */
	if (delegated) {
		dput(dentry);
		r = break_deleg_wait(&delegated);
		if (r)
			return r;
		goto again;
	}
	return vhfs_answer_made(req, dentry, r);
}

/*
 * Whether the guest may make a link to a file.  linkat(2) asks this, and vfs_link() does not.
 *
 * A guest is bound as the host's users are with fs.protected_hardlinks=1.  It may link a file that
 * it owns, and any file if it has CAP_FOWNER over it, as a guest of the host's root has.  It may
 * link other files only if they are regular, if it could read and write them, and if they have no
 * set-id bit that the link would keep alive.
 */
static int vhfs_may_link(const struct vhfs_node *node)
{
	struct mnt_idmap *idmap = mnt_idmap(node->mount->mnt);
	struct inode *inode = node->inode;
	const umode_t gid = S_ISGID | 0010;
	umode_t mode = inode->i_mode;

	if (inode_owner_or_capable(idmap, inode))
		return 0;
	if (!S_ISREG(mode) || mode & S_ISUID || (mode & gid) == gid)
		return -EPERM;
	return inode_permission(idmap, inode, MAY_READ | MAY_WRITE) ? -EPERM : 0;
}

int vhfs_link(struct vhfs_req *req)
{
	const struct fuse_link_in *arg = vhfs_args(req, struct fuse_link_in);
	struct vhfs_node *node = vhfs_node_get(req->ex, arg->oldnodeid);
	int r;

	if (!node)
		return -ESTALE;
	r = vhfs_node_use(req, node);
	if (!r && node->mount->mnt != vhfs_mnt(req))
		r = -EXDEV;
	if (!r)
		r = vhfs_may_link(node);
	if (!r)
		r = vhfs_link_node(req, node);
	vhfs_node_put(node, !req->hot);
	return r;
}

/*
 * Make the file of a CREATE, or find it.  Returns 0, VHFS_PUNT or an error.  @made is set if the
 * file is new.
 */
static int vhfs_make_file(struct vhfs_req *req, struct dentry *dentry,
			  bool *made)
{
	const struct fuse_create_in *arg = vhfs_args(req, struct fuse_create_in);
	int umask, r;

	*made = false;
	if (d_is_positive(dentry)) {
		if (arg->flags & O_EXCL)
			return -EEXIST;
		return arg->flags & O_TRUNC &&
		       vhfs_too_big(req, d_inode(dentry)) ? VHFS_PUNT : 0;
	}
	if (!vhfs_may_make(req))
		return -ENFILE;
	r = vhfs_umask_begin(req, arg->umask, &umask);
	if (r)
		return r;
	r = vfs_create(vhfs_idmap(req), vhfs_inode(req), dentry,
		       S_IFREG | (arg->mode & S_IALLUGO), true);
	vhfs_umask_end(umask);
	*made = !r;
	return r;
}

/* The reply of CREATE and TMPFILE. */
struct vhfs_opened {
	struct fuse_entry_out entry;
	struct fuse_open_out open;
};

/*
 * Open the file, and fill the reply.  After success the guest has @handle; after an error it is
 * gone.
 */
static int vhfs_open_place(struct vhfs_req *req, struct vhfs_handle *handle,
			   const struct vhfs_place *at, bool made)
{
	const struct fuse_create_in *arg = vhfs_args(req, struct fuse_create_in);
	struct path path = { .mnt = at->mount->mnt, .dentry = at->dentry };
	struct vhfs_opened *out = vhfs_reply(req, struct vhfs_opened);
	struct fuse_entry_out *entry = &out->entry;
	int r;

	r = vhfs_fill_entry(req, at, entry);
	if (r) {
		vhfs_handle_drop(handle);
		return r;
	}
	vhfs_handle_opens(handle, entry->nodeid, at->dentry, arg->flags);
	r = vhfs_open_node(req, handle, &path, arg->flags, made, &out->open);
	if (r) {
		vhfs_node_unknow(req, entry->nodeid);
		return r;
	}
	/* O_TRUNC has emptied the file, maybe after its attributes were read. */
	if (!made && arg->flags & O_TRUNC) {
		entry->attr.size = 0;
		entry->attr.blocks = 0;
	}
	return 0;
}

/* Open the file of a CREATE.  If it is not new, another file may be mounted on it. */
static int vhfs_open_made(struct vhfs_req *req, struct vhfs_handle *handle,
			  struct dentry *dentry, bool made)
{
	const struct fuse_create_in *arg = vhfs_args(req, struct fuse_create_in);
	struct vhfs_place at = vhfs_place(req, dentry);
	int r = made ? 0 : vhfs_cross(req, &at);

	/* The mounted file is truncated, and not the one that it hides. */
	if (!r && at.held && arg->flags & O_TRUNC && vhfs_too_big(req, d_inode(at.dentry)))
		r = VHFS_PUNT;
	if (r)
		vhfs_handle_drop(handle);
	else
		r = vhfs_open_place(req, handle, &at, made);
	vhfs_place_put(&at);
	return r;
}

static int vhfs_create_with(struct vhfs_req *req, struct vhfs_handle *handle)
{
	struct dentry *dentry = vhfs_make_begin(req);
	bool again, made;
	int r;

	r = PTR_ERR_OR_ZERO(dentry);
	if (r)
		goto drop;
	r = vhfs_make_file(req, dentry, &made);
	vhfs_make_end(req);
	if (r)
		goto put;
	dentry = vhfs_find_made(req, dentry, &again);
	if (IS_ERR(dentry)) {
		r = PTR_ERR(dentry);
		goto drop;
	}
	/*
	 * If the name was looked up again, a rename may have put a device there, so check the file
	 * as one that is not new.
	 */
	r = vhfs_open_made(req, handle, dentry, made && !again);
	dput(dentry);
	return r;
put:
	dput(dentry);
drop:
	vhfs_handle_drop(handle);
	return r;
}

int vhfs_create(struct vhfs_req *req)
{
	const struct fuse_create_in *arg = vhfs_args(req, struct fuse_create_in);
	struct vhfs_handle *handle;

	if ((arg->flags & O_ACCMODE) == O_ACCMODE)
		return -EINVAL;
	handle = vhfs_handle_new(req);
	if (IS_ERR(handle))
		return PTR_ERR(handle);
	return vhfs_create_with(req, handle);
}

static struct file *vhfs_open_tmpfile(struct vhfs_req *req)
{
	const struct fuse_create_in *arg = vhfs_args(req, struct fuse_create_in);
	struct path dir = vhfs_path(req);
	struct file *file;
	int umask, r;

	r = mnt_want_write(dir.mnt);
	if (r)
		return ERR_PTR(r);
	r = vhfs_umask_begin(req, arg->umask, &umask);
	file = ERR_PTR(r);
	if (!r) {
		file = kernel_tmpfile_open(vhfs_idmap(req), &dir,
					   S_IFREG | (arg->mode & S_IALLUGO),
					   vhfs_open_flags(req->ex, arg->flags) |
						   (arg->flags & O_EXCL),
					   current_cred());
		vhfs_umask_end(umask);
	}
	mnt_drop_write(dir.mnt);
	return file;
}

static int vhfs_answer_tmpfile(struct vhfs_req *req, struct file *file,
			       struct vhfs_handle *handle)
{
	struct vhfs_opened *out = vhfs_reply(req, struct vhfs_opened);
	struct fuse_entry_out *entry = &out->entry;
	const struct vhfs_place at = vhfs_place(req, file->f_path.dentry);
	int r = vhfs_fill_entry(req, &at, entry);

	if (r) {
		__fput_sync(file);
		vhfs_handle_drop(handle);
		return r;
	}
	vhfs_handle_opens(handle, entry->nodeid, at.dentry,
			  vhfs_args(req, struct fuse_create_in)->flags);
	r = vhfs_handle_set(req, handle, file);
	if (r) {
		vhfs_node_unknow(req, entry->nodeid);
		return r;
	}
	out->open.fh = handle->id.nr;
	out->open.open_flags = vhfs_fopen_flags(req->ex, file_inode(file));
	vhfs_handle_put(handle, true);
	return 0;
}

int vhfs_tmpfile(struct vhfs_req *req)
{
	const struct fuse_create_in *arg = vhfs_args(req, struct fuse_create_in);
	struct vhfs_handle *handle;
	struct file *file;

	if (!(arg->flags & O_ACCMODE) ||
	    (arg->flags & O_ACCMODE) == O_ACCMODE)
		return -EINVAL;
	if (!vhfs_may_make(req))
		return -ENFILE;
	handle = vhfs_handle_new(req);
	if (IS_ERR(handle))
		return PTR_ERR(handle);
	file = vhfs_open_tmpfile(req);
	if (IS_ERR(file)) {
		vhfs_handle_drop(handle);
		return PTR_ERR(file);
	}
	return vhfs_answer_tmpfile(req, file, handle);
}
