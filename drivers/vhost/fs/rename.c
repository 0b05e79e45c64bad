// SPDX-License-Identifier: GPL-2.0
/*
 * Operations that remove or move a name: UNLINK, RMDIR, RENAME, RENAME2.  create.c has those that
 * make one.
 */
#include <linux/filelock.h>
#include <linux/namei.h>

#include "fs.h"

static struct dentry *vhfs_look_at(struct vhfs_req *req, struct dentry *dir,
				   unsigned int i)
{
	return lookup_one(vhfs_idmap(req), req->names[i], dir,
			  req->name_len[i]);
}

static int vhfs_may_remove(struct vhfs_req *req, struct dentry *dentry)
{
	return vhfs_is_mountpoint(req->node->mount, dentry) ? -EBUSY : 0;
}

/*
 * Unlink a name in the directory, which is locked.  @inode is set to the file's inode, and the
 * caller puts it after it has dropped all locks, because that may free the file.
 */
static int vhfs_unlink_locked(struct vhfs_req *req, struct inode **inode,
			      struct inode **delegated)
{
	struct dentry *dentry = vhfs_look_at(req, vhfs_dentry(req), 0);
	int r = -ENOENT;

	if (IS_ERR(dentry))
		return PTR_ERR(dentry);
	if (d_is_positive(dentry)) {
		*inode = d_inode(dentry);
		ihold(*inode);
		r = vhfs_may_remove(req, dentry);
		if (!r && vhfs_too_big(req, *inode))
			r = VHFS_PUNT;
		if (!r)
			r = vfs_unlink(vhfs_idmap(req), vhfs_inode(req), dentry,
				       delegated);
	}
	dput(dentry);
	return r;
}

int vhfs_unlink(struct vhfs_req *req)
{
	struct inode *dir = vhfs_inode(req);
	struct inode *delegated, *inode;
	int r;

	r = mnt_want_write(vhfs_mnt(req));
	if (r)
		return r;
	do {
		delegated = NULL;
		inode = NULL;
		inode_lock_nested(dir, I_MUTEX_PARENT);
		r = vhfs_unlink_locked(req, &inode, &delegated);
		inode_unlock(dir);
		iput(inode);
		if (!delegated)
			break;
		r = break_deleg_wait(&delegated);
	} while (!r);
	mnt_drop_write(vhfs_mnt(req));
	return r;
}

int vhfs_rmdir(struct vhfs_req *req)
{
	struct inode *dir = vhfs_inode(req);
	struct dentry *dentry;
	int r;

	r = mnt_want_write(vhfs_mnt(req));
	if (r)
		return r;
	inode_lock_nested(dir, I_MUTEX_PARENT);
	dentry = vhfs_look_at(req, vhfs_dentry(req), 0);
	r = PTR_ERR_OR_ZERO(dentry);
	if (r)
		goto unlock;
	r = d_is_positive(dentry) ? vhfs_may_remove(req, dentry) : -ENOENT;
	if (!r)
		r = vfs_rmdir(vhfs_idmap(req), dir, dentry);
	dput(dentry);
unlock:
	inode_unlock(dir);
	mnt_drop_write(vhfs_mnt(req));
	return r;
}

static int vhfs_may_rename(struct vhfs_req *req, const struct renamedata *rd,
			   const struct dentry *trap)
{
	const struct vhfs_mount *mount = req->node->mount;

	if (d_is_negative(rd->old_dentry))
		return -ENOENT;
	if (rd->flags & RENAME_NOREPLACE && d_is_positive(rd->new_dentry))
		return -EEXIST;
	if (rd->flags & RENAME_EXCHANGE && d_is_negative(rd->new_dentry))
		return -ENOENT;
	/*
	 * A directory cannot move into one that lies beneath it, and cannot replace one that lies
	 * above it.
	 */
	if (rd->old_dentry == trap)
		return -EINVAL;
	if (rd->new_dentry == trap)
		return rd->flags & RENAME_EXCHANGE ? -EINVAL : -ENOTEMPTY;
	if (vhfs_is_mountpoint(mount, rd->old_dentry) ||
	    vhfs_is_mountpoint(mount, rd->new_dentry))
		return -EBUSY;
	return 0;
}

/* Tell the swapped nodes of the names that have moved where these are now. */
static void vhfs_note_rename(struct vhfs_req *req, const struct renamedata *rd)
{
	const struct vhfs_place old = vhfs_place(req, rd->old_dentry);
	const struct vhfs_place new = vhfs_place(req, rd->new_dentry);

	vhfs_swap_moved(&old);
	if (rd->flags & RENAME_EXCHANGE)
		vhfs_swap_moved(&new);
}

static int vhfs_rename_locked(struct vhfs_req *req, struct dentry *new_dir,
			      const struct dentry *trap, unsigned int flags,
			      struct inode **delegated)
{
	struct renamedata rd = {
		.old_mnt_idmap	= vhfs_idmap(req),
		.old_dir	= vhfs_inode(req),
		.new_mnt_idmap	= vhfs_idmap(req),
		.new_dir	= d_inode(new_dir),
		.delegated_inode = delegated,
		.flags		= flags,
	};
	int r;

	rd.old_dentry = vhfs_look_at(req, vhfs_dentry(req), 0);
	if (IS_ERR(rd.old_dentry))
		return PTR_ERR(rd.old_dentry);
	rd.new_dentry = vhfs_look_at(req, new_dir, 1);
	r = PTR_ERR_OR_ZERO(rd.new_dentry);
	if (r)
		goto put;
	r = vhfs_may_rename(req, &rd, trap);
	if (!r && d_is_positive(rd.new_dentry) &&
	    vhfs_too_big(req, d_inode(rd.new_dentry)))
		r = VHFS_PUNT;
	if (!r)
		r = vfs_rename(&rd);
	if (!r)
		vhfs_note_rename(req, &rd);
	dput(rd.new_dentry);
put:
	dput(rd.old_dentry);
	return r;
}

static int vhfs_rename_to(struct vhfs_req *req, struct dentry *new_dir,
			  unsigned int flags)
{
	struct dentry *old_dir = vhfs_dentry(req), *trap;
	struct inode *delegated;
	int r;

	r = mnt_want_write(vhfs_mnt(req));
	if (r)
		return r;
	do {
		delegated = NULL;
		trap = lock_rename(new_dir, old_dir);
		/*
		 * The directories are in different trees, because one was removed, or moved away.
		 */
		r = PTR_ERR_OR_ZERO(trap);
		if (r)
			break;
		r = vhfs_rename_locked(req, new_dir, trap, flags, &delegated);
		unlock_rename(new_dir, old_dir);
		if (!delegated)
			break;
		r = break_deleg_wait(&delegated);
	} while (!r);
	mnt_drop_write(vhfs_mnt(req));
	return r;
}

static int vhfs_do_rename(struct vhfs_req *req, u64 newdir, unsigned int flags)
{
	struct vhfs_node *node = vhfs_node_get(req->ex, newdir);
	int r;

	if (!node)
		return -ESTALE;
	r = vhfs_node_use(req, node);
	if (!r && !d_can_lookup(node->dentry))
		r = -ENOTDIR;
	if (!r && node->mount->mnt != vhfs_mnt(req))
		r = -EXDEV;
	/* lock_rename() goes up from both directories. */
	if (!r && req->hot && (vhfs_is_deep(node) || vhfs_is_deep(req->node)))
		r = VHFS_PUNT;
	if (!r)
		r = vhfs_rename_to(req, node->dentry, flags);
	vhfs_node_put(node, !req->hot);
	return r;
}

int vhfs_rename(struct vhfs_req *req)
{
	return vhfs_do_rename(req, vhfs_args(req, struct fuse_rename_in)->newdir,
			      0);
}

int vhfs_rename2(struct vhfs_req *req)
{
	const struct fuse_rename2_in *arg =
		vhfs_args(req, struct fuse_rename2_in);

	if (arg->flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
		return -EINVAL;
	if (arg->flags & RENAME_EXCHANGE &&
	    arg->flags & (RENAME_NOREPLACE | RENAME_WHITEOUT))
		return -EINVAL;
	return vhfs_do_rename(req, arg->newdir, arg->flags);
}
