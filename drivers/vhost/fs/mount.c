// SPDX-License-Identifier: GPL-2.0
/*
 * The mounts of an export: the mount of the directory that is served, and, with
 * VHOST_FS_EXPORT_SUBMOUNTS, those of the file systems that the host has mounted beneath it.
 *
 * A lookup crosses into a mount if the host's tree has one on the name (vhfs_cross()).  It triggers
 * no automount: a file system that is not mounted yet is not there.  The node that the guest gets
 * holds the mount, as an open file would.  So umount(8) says that the mount is busy until the guest
 * has forgotten all nodes in it, or its session has ended.  Each node acts by its own mount, so
 * that the flags and the id mapping of that mount hold.
 *
 * A mount is known together with the one that it was found in.  That pair never changes.  If the
 * host moves a mount, or unmounts it lazily, the mount is not in its parent any more, and its nodes
 * are ESTALE (vhfs_mount_is_reached()).  If the host has moved it to another place of the export, a
 * lookup there begins a new pair, with new nodes.
 */
#include <linux/dcache.h>
#include <linux/jiffies.h>
#include <linux/namei.h>
#include <linux/slab.h>
#include <linux/vhost_serve.h>

#include "fs.h"

/* Whether getattr of a file system takes spin locks at most, according to the code of 6.12. */
static bool vhfs_getattr_is_quick(const struct super_block *sb)
{
	switch (sb->s_magic) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
	case EXT4_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

/*
 * Whether the files of a file system are data, and no interface of the kernel.  A guest must not
 * get such an interface because a directory tree, that of a container for example, happens to have
 * one.  File systems that are not known are refused.  An owner can still export such a file system
 * by itself.
 */
static bool vhfs_is_storage(const struct super_block *sb)
{
	if (sb->s_type->fs_flags & FS_REQUIRES_DEV)
		return true;
	switch (sb->s_magic) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
		/* devtmpfs has the magic number of one of these. */
		return strcmp(sb->s_type->name, "devtmpfs");
	case AFS_FS_MAGIC:
	case CEPH_SUPER_MAGIC:
	case CIFS_SUPER_MAGIC:
	case FUSE_SUPER_MAGIC:
	case NFS_SUPER_MAGIC:
	case OVERLAYFS_SUPER_MAGIC:
	case SMB2_SUPER_MAGIC:
	case V9FS_MAGIC:
		return true;
	default:
		return false;
	}
}

static struct vhfs_mount *vhfs_mount_new(struct vhfs_export *ex, struct vfsmount *mnt)
{
	struct vhfs_mount *mount = kzalloc(sizeof(*mount), GFP_KERNEL_ACCOUNT);

	if (!mount)
		return NULL;
	mount->ex = ex;
	mount->mnt = mnt;
	mount->wb_err = errseq_sample(&mnt->mnt_sb->s_wb_err);
	mount->quick_getattr = vhfs_getattr_is_quick(mnt->mnt_sb);
	mount->can_swap = vhfs_can_swap(ex, mnt);
	refcount_set(&mount->refs, 1);
	return mount;
}

/**
 * vhfs_top_open - set up the mount of the directory that is served
 * @ex: the export; its root is set
 * @host: the directory, in the mount that the owner named
 *
 * The export holds the host's mount only if submounts are served.
 *
 * Return: 0, or -ENOMEM.
 */
int vhfs_top_open(struct vhfs_export *ex, const struct path *host)
{
	ex->top = vhfs_mount_new(ex, ex->root.mnt);
	if (!ex->top)
		return -ENOMEM;
	if (ex->cfg.flags & VHOST_FS_EXPORT_SUBMOUNTS)
		ex->top->host = mntget(host->mnt);
	return 0;
}

/**
 * vhfs_top_close - undo vhfs_top_open()
 * @ex: the export; no node is left
 */
void vhfs_top_close(struct vhfs_export *ex)
{
	if (ex->top)
		mntput(ex->top->host);
	kfree(ex->top);
}

/**
 * vhfs_mount_get - take a reference to a mount
 * @mount: the mount; the caller already has a reference
 */
struct vhfs_mount *vhfs_mount_get(struct vhfs_mount *mount)
{
	if (mount->parent)
		refcount_inc(&mount->refs);
	return mount;
}

/**
 * vhfs_mount_put - drop a reference to a mount
 * @mount: the mount
 *
 * This may drop the last reference, so it may sleep.
 */
void vhfs_mount_put(struct vhfs_mount *mount)
{
	struct vhfs_mount *parent;

	for (; mount->parent; mount = parent) {
		struct mutex *lock = &mount->ex->mounts_lock;

		if (!refcount_dec_and_mutex_lock(&mount->refs, lock))
			return;
		hash_del(&mount->hash);
		mutex_unlock(lock);
		parent = mount->parent;
		mntput(mount->host);
		kfree(mount);
	}
}

static struct vhfs_mount *vhfs_mount_find(struct vhfs_mount *parent, struct vfsmount *mnt)
{
	struct vhfs_export *ex = parent->ex;
	struct vhfs_mount *mount;

	lockdep_assert_held(&ex->mounts_lock);
	hash_for_each_possible(ex->mounts, mount, hash, (unsigned long)mnt)
		if (mount->mnt == mnt && mount->parent == parent)
			return vhfs_mount_get(mount);
	return NULL;
}

static struct vhfs_mount *vhfs_mount_add(struct vhfs_mount *parent, struct vfsmount *mnt)
{
	struct vhfs_export *ex = parent->ex;
	struct vhfs_mount *mount = vhfs_mount_new(ex, mnt);

	lockdep_assert_held(&ex->mounts_lock);
	if (!mount)
		return ERR_PTR(-ENOMEM);
	mount->host = mntget(mnt);
	mount->parent = vhfs_mount_get(parent);
	hash_add(ex->mounts, &mount->hash, (unsigned long)mnt);
	return mount;
}

/* Get the mount of @mnt, as it was found in @parent. */
static struct vhfs_mount *vhfs_mount_know(struct vhfs_mount *parent, struct vfsmount *mnt)
{
	struct vhfs_export *ex = parent->ex;
	struct vhfs_mount *mount;

	mutex_lock(&ex->mounts_lock);
	mount = vhfs_mount_find(parent, mnt);
	if (!mount)
		mount = vhfs_mount_add(parent, mnt);
	/* The mount may have been away from its parent, and this request has just seen it there. */
	if (!IS_ERR(mount))
		WRITE_ONCE(mount->reached, 2 * jiffies | 1);
	mutex_unlock(&ex->mounts_lock);
	return mount;
}

static bool vhfs_mount_is_in_parent(const struct vhfs_mount *mount)
{
	const struct path self = { .mnt = mount->host,
				   .dentry = mount->mnt->mnt_root };
	const struct path parent = { .mnt = mount->parent->host,
				     .dentry = mount->parent->mnt->mnt_root };

	return path_is_under(&self, &parent);
}

static bool vhfs_mount_look(const struct vhfs_mount *mount)
{
	for (; mount->parent; mount = mount->parent)
		if (!vhfs_mount_is_in_parent(mount))
			return false;
	return true;
}

/**
 * vhfs_mount_is_in_place - whether a mount that has a parent is still where it was found
 * @mount: the mount, held
 *
 * All tasks of the host share one lock for the tree of mounts.  So this looks once in a tick,
 * whatever the answer.  mount->reached has the tick and, in its lowest bit, the answer.  Both are
 * in one word, because requests of several vrings come here at the same time.
 */
bool vhfs_mount_is_in_place(struct vhfs_mount *mount)
{
	unsigned long now = 2 * jiffies, known = READ_ONCE(mount->reached);

	if ((known & ~1UL) == now)
		return known & 1;
	known = now | vhfs_mount_look(mount);
	WRITE_ONCE(mount->reached, known);
	return known & 1;
}

/**
 * vhfs_is_mountpoint - whether a submount is on a name, so that the name cannot be removed or moved
 * @mount: the mount in which the request sees the name
 * @dentry: the name
 *
 * The VFS asks the same, but of the mount namespace of the thread, which is not the owner's.
 */
bool vhfs_is_mountpoint(const struct vhfs_mount *mount, struct dentry *dentry)
{
	const struct path path = { .mnt = mount->host, .dentry = dentry };

	return mount->host && path_is_mountpoint(&path);
}

/* Replace @at by what is mounted on it, which is @path.  The caller holds @path. */
static int vhfs_enter(struct vhfs_req *req, struct vhfs_place *at, const struct path *path)
{
	struct super_block *sb = path->mnt->mnt_sb;
	struct vhfs_mount *mount;

	if (!vhfs_is_storage(sb))
		return -EACCES;
	/*
	 * The directory that is served may not be an automount point either (vhfs_clone_mount()).
	 */
	if (d_is_dir(path->dentry) && !d_can_lookup(path->dentry))
		return -EACCES;
	/*
	 * The operation may change the submount's file system, and would wait if that were frozen.
	 */
	if (req->hot && !vserve_fs_allows_hot(sb, true))
		return VHFS_PUNT;
	mount = vhfs_mount_know(at->mount, path->mnt);
	if (IS_ERR(mount))
		return PTR_ERR(mount);
	*at = (struct vhfs_place){ .mount = mount, .dentry = dget(path->dentry),
				   .held = true };
	return 0;
}

/**
 * vhfs_cross - go from a name to the root of the file system that is mounted on it
 * @req: the request that looks the name up, and has done nothing yet
 * @at: the name; changed only if there is a submount, and this returns 0
 *
 * After 0 the caller calls vhfs_place_put().
 *
 * Return: 0; VHFS_PUNT if the thread may not sleep, or may not wait for the submount's file system;
 * or -EACCES if that file system is not served.
 */
int vhfs_cross(struct vhfs_req *req, struct vhfs_place *at)
{
	struct vfsmount *host = at->mount->host;
	struct path path;
	int r = 0;

	if (!host || !d_mountpoint(at->dentry))
		return 0;
	if (!req->may_sleep)
		return VHFS_PUNT;
	path = (struct path){ .mnt = mntget(host), .dentry = dget(at->dentry) };
	/* Mounts may be stacked, and the host sees the last one. */
	while (follow_down_one(&path))
		;
	/*
	 * Otherwise the name is a mount point only elsewhere: in another namespace, or in another
	 * bind mount.
	 */
	if (path.mnt != host)
		r = vhfs_enter(req, at, &path);
	path_put(&path);
	return r;
}

/* Go from the root of a mount to the name that it is mounted on in its parent. */
static int vhfs_cross_back(struct vhfs_place *at)
{
	struct vhfs_mount *parent = at->mount->parent;
	struct path path = { .mnt = mntget(at->mount->host), .dentry = dget(at->dentry) };
	int r = 0;

	/* If mounts are stacked, others may lie in between. */
	do {
		if (!follow_up(&path))
			r = -ESTALE;
	} while (!r && path.mnt != parent->host);
	if (!r && !is_subdir(path.dentry, parent->mnt->mnt_root))
		r = -ESTALE;
	if (!r) {
		vhfs_mount_get(parent);
		vhfs_place_put(at);
		*at = (struct vhfs_place){ .mount = parent, .dentry = dget(path.dentry),
					   .held = true };
	}
	path_put(&path);
	return r;
}

/**
 * vhfs_go_up - find the directory above another
 * @node: the directory, held and checked
 * @at: set to the directory above, if this returns 0; the caller then calls vhfs_place_put()
 *
 * Above the root of a submount is the directory that has the name on which the submount is mounted.
 * Above the root of the export is that root itself.
 *
 * Return: 0, or -ESTALE.
 */
int vhfs_go_up(const struct vhfs_node *node, struct vhfs_place *at)
{
	struct dentry *parent;
	bool crossed;
	int r;

	*at = (struct vhfs_place){ .mount = vhfs_mount_get(node->mount),
				   .dentry = dget(node->dentry), .held = true };
	while (vhfs_is_mount_root(at->mount, at->dentry)) {
		if (!at->mount->parent)
			return 0;
		r = vhfs_cross_back(at);
		if (r)
			goto end;
	}
	crossed = at->mount != node->mount;
	parent = dget_parent(at->dentry);
	dput(at->dentry);
	at->dentry = parent;
	/*
	 * The child was beneath the root, but a rename may have moved it since vhfs_node_check().
	 */
	if (!crossed && !read_seqretry(&rename_lock, READ_ONCE(node->seq)))
		return 0;
	if (is_subdir(parent, at->mount->mnt->mnt_root))
		return 0;
	r = -ESTALE;
end:
	vhfs_place_put(at);
	return r;
}

/**
 * vhfs_place_put - drop the references of a place
 * @at: the place, from vhfs_cross() or vhfs_go_up(), or one that holds nothing
 */
void vhfs_place_put(struct vhfs_place *at)
{
	if (!at->held)
		return;
	/* Put the dentry first, because the mount keeps the file system. */
	dput(at->dentry);
	vhfs_mount_put(at->mount);
}
