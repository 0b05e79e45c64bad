// SPDX-License-Identifier: GPL-2.0
/*
 * From a file handle to a dentry that is beneath the root of its mount.
 *
 * exportfs finds an inode by its handle.  If the dcache has no name of the inode, exportfs searches
 * the parent directory for it, from the beginning, and does the same for each directory above.
 * Nothing bounds these searches.  A guest that names a removed file again and again would keep its
 * workers searching.  So this file never has exportfs search.  A swapped node has the handle of the
 * directory that its inode was last seen in, and its name there (struct vhfs_way):
 *
 * - A worker looks a file up by this name.  If the name is gone, or is another inode's, the worker
 *   takes any name of the file that the dcache has beneath the root.
 * - A directory has one dentry, which has to be connected up to the root: vhfs_climb().  The worker
 *   finds each directory on the way up by its place, if the guest knows it by a swapped node.
 *
 * This fails if the host has renamed the inode and dropped the new name, or if the guest has
 * forgotten a directory above.  Only then the worker searches directories itself.  A request looks
 * at VHFS_SEARCH_ENTRIES entries at most, as many as a few READDIRs.  After a search for a node has
 * failed, no worker searches for it again until the guest has found it by a name, or moved it.
 * Without searches, each rename on the host would cost an NFS server in the guest its file handles.
 *
 * All of this happens in a worker and with the worker's rights, because the guest was told of the
 * node when it was allowed to be.
 */
#include <linux/cred.h>
#include <linux/exportfs.h>
#include <linux/file.h>
#include <linux/namei.h>
#include <linux/slab.h>

#include "fs.h"

#define VHFS_SEARCH_ENTRIES	65536U

/*
 * The most directories on the way up that are not in the dcache.  The longest path has about half
 * as many.
 */
#define VHFS_CLIMB_LEVELS	4096U

/*
 * struct vhfs_trip - one way back
 * @self: the way of the node that comes back
 * @up: the way of a directory above it
 * @left: how many entries of directories may still be looked at
 * @searched: an entry was looked at
 * @found: the name that a search has found
 */
struct vhfs_trip {
	struct vhfs_way self;
	struct vhfs_way up;
	u32 left;
	bool searched;
	struct vhfs_text found;
};

struct vhfs_search {
	struct dir_context ctx;
	struct vhfs_trip *trip;
	u64 ino;
	bool found;
};

/**
 * vhfs_encode - ask the file system for its name of an inode
 * @key: to be filled
 * @mount: the mount in which the inode is seen
 * @inode: the inode
 *
 * Return: false, and a key of 0 words, if the file system has no name for the inode.
 */
bool vhfs_encode(struct vhfs_fid_key *key, struct vhfs_mount *mount, struct inode *inode)
{
	int words = VHFS_FID_WORDS;
	int type = exportfs_encode_inode_fh(inode, (struct fid *)key->raw, &words, NULL, 0);

	key->mount = mount;
	key->known = true;
	key->type = FILEID_ROOT;
	key->words = 0;
	if (type <= FILEID_ROOT || type >= FILEID_INVALID || words <= 0 || words > VHFS_FID_WORDS)
		return false;
	key->type = type;
	key->words = words;
	return true;
}

/* Whether an inode has the key.  Some file systems take a generation of 0 for any, so ask again. */
static bool vhfs_is_named(const struct vhfs_fid_key *key, struct inode *inode)
{
	struct vhfs_fid_key now;

	return vhfs_encode(&now, key->mount, inode) && now.type == key->type &&
	       now.words == key->words && !memcmp(now.raw, key->raw, key->words * sizeof(u32));
}

/*
 * Whether a dentry is beneath the root of the mount.  One that is not connected is beneath nothing.
 * exportfs calls this for each name of a file.
 */
static int vhfs_is_beneath(void *context, struct dentry *dentry)
{
	const struct vhfs_mount *mount = context;

	return !d_unhashed(dentry) && is_subdir(dentry, mount->mnt->mnt_root);
}

/*
 * Replace errors that mean that the inode is not there by -ESTALE.  Other errors, of the disk or
 * for want of memory, may pass.
 */
static int vhfs_stale_or(int error)
{
	switch (error) {
	case -ENOENT:
	case -EACCES:
	case -ENOTDIR:
	case -EINVAL:
	case -ELOOP:
	case -ENAMETOOLONG:
		return -ESTALE;
	default:
		return error;
	}
}

/*
 * Find a dentry by its key.  With @beneath it is connected, and beneath the root; without, it may
 * be any dentry of the inode.
 */
static struct dentry *vhfs_decode_key(const struct vhfs_fid_key *key, bool beneath)
{
	struct vfsmount *mnt = key->mount->mnt;
	struct dentry *dentry;

	/* exportfs_decode_fh() would return ESTALE for EIO and EINTR, too. */
	dentry = exportfs_decode_fh_raw(mnt, (struct fid *)key->raw, key->words, key->type, 0,
					beneath ? vhfs_is_beneath : NULL, key->mount);
	if (!dentry)
		return ERR_PTR(-ESTALE);
	if (IS_ERR(dentry))
		return ERR_PTR(vhfs_stale_or(PTR_ERR(dentry)));
	if (vhfs_is_named(key, d_inode(dentry)))
		return dentry;
	dput(dentry);
	return ERR_PTR(-ESTALE);
}

static struct dentry *vhfs_look_for(const struct vhfs_trip *trip, struct dentry *dir,
				    const struct vhfs_text *name)
{
	struct vfsmount *mnt = trip->self.key.mount->mnt;
	struct dentry *dentry;

	if (!d_can_lookup(dir))
		return ERR_PTR(-ESTALE);
	dentry = lookup_one_unlocked(mnt_idmap(mnt), name->text, dir, name->len);
	return IS_ERR(dentry) ? ERR_PTR(vhfs_stale_or(PTR_ERR(dentry))) : dentry;
}

static bool vhfs_search_entry(struct dir_context *ctx, const char *name, int len, loff_t pos,
			      u64 ino, unsigned int type)
{
	struct vhfs_search *search = container_of(ctx, struct vhfs_search, ctx);
	struct vhfs_trip *trip = search->trip;

	if (!trip->left)
		return false;
	trip->left--;
	if (ino != search->ino || len > NAME_MAX || is_dot_dotdot(name, len))
		return true;
	memcpy(trip->found.text, name, len);
	trip->found.text[len] = '\0';
	trip->found.len = len;
	search->found = true;
	return false;
}

/*
 * Go through a directory.  A file system may stop in the middle: it has come to the end only if it
 * finds no more.
 */
static int vhfs_search_file(struct file *file, struct vhfs_search *search)
{
	u32 before;
	int r;

	do {
		before = search->trip->left;
		r = iterate_dir(file, &search->ctx);
	} while (!r && !search->found && search->trip->left && search->trip->left != before);
	if (search->found)
		return 0;
	return r < 0 ? vhfs_stale_or(r) : -ESTALE;
}

/* Search @dir for the name of @inode, and copy it to trip->found. */
static int vhfs_search(struct vhfs_trip *trip, struct dentry *dir, const struct inode *inode)
{
	struct vhfs_mount *mount = trip->self.key.mount;
	struct path path = { .mnt = mount->mnt, .dentry = dir };
	struct vhfs_search search = {
		.ctx.actor = vhfs_search_entry, .trip = trip, .ino = inode->i_ino,
	};
	struct file *file;
	int r;

	if (!trip->left)
		return -ESTALE;
	file = dentry_open(&path, O_RDONLY | O_DIRECTORY | O_NOATIME | O_LARGEFILE,
			   current_cred());
	if (IS_ERR(file))
		return vhfs_stale_or(PTR_ERR(file));
	trip->searched = true;
	atomic64_inc(&mount->ex->searches);
	r = vhfs_search_file(file, &search);
	__fput_sync(file);
	return r;
}

/*
 * Look @child up in @dir, and put @dir.  If @child is a directory without a parent, the lookup
 * itself makes @dir its parent: see d_splice_alias().
 */
static int vhfs_hang_in(const struct vhfs_trip *trip, struct dentry *child, struct dentry *dir,
			const struct vhfs_text *name)
{
	struct dentry *there = vhfs_look_for(trip, dir, name);
	int r = PTR_ERR_OR_ZERO(there);

	if (!r)
		dput(there);
	dput(dir);
	return r ?: IS_ROOT(child) ? -ESTALE : 0;
}

/*
 * Find the parent of @child by the place of its node.  Only a swapped node can help, because a live
 * one would have a parent.
 */
static int vhfs_hang_by_place(struct vhfs_trip *trip, struct dentry *child)
{
	struct vhfs_mount *mount = trip->self.key.mount;
	struct vhfs_fid_key key;
	struct vhfs_node *node;
	struct dentry *dir;
	bool swapped;

	if (!vhfs_encode(&key, mount, d_inode(child)))
		return -ESTALE;
	node = vhfs_find_swapped_get(&mount->ex->table, &key);
	swapped = node && vhfs_copy_way(node, &trip->up);
	vhfs_node_put(node, true);
	if (!swapped)
		return -ESTALE;
	dir = vhfs_decode_key(&trip->up.dir, false);
	if (IS_ERR(dir))
		return PTR_ERR(dir);
	return vhfs_hang_in(trip, child, dir, &trip->up.name);
}

static int vhfs_hang_by_search(struct vhfs_trip *trip, struct dentry *child)
{
	struct inode *inode = d_inode(child);
	struct dentry *dir;
	int r;

	if (!trip->left)
		return -ESTALE;
	inode_lock(inode);
	dir = inode->i_sb->s_export_op->get_parent(child);
	inode_unlock(inode);
	if (IS_ERR(dir))
		return vhfs_stale_or(PTR_ERR(dir));
	r = vhfs_search(trip, dir, inode);
	if (!r)
		return vhfs_hang_in(trip, child, dir, &trip->found);
	dput(dir);
	return r;
}

/* Find the parent of a directory that has none in the dcache.  Another task may find it first. */
static struct dentry *vhfs_hang(struct vhfs_trip *trip, struct dentry *child)
{
	int r = vhfs_hang_by_place(trip, child);

	if (r == -ESTALE && IS_ROOT(child))
		r = vhfs_hang_by_search(trip, child);
	if (!IS_ROOT(child))
		return dget_parent(child);
	return ERR_PTR(r ?: -ESTALE);
}

/*
 * Connect a directory.  All dentries on the way up hold each other, so the loop ends at one that is
 * connected.
 */
static int vhfs_climb(struct vhfs_trip *trip, struct dentry *dentry)
{
	struct dentry *at = dget(dentry), *above;
	unsigned int left = VHFS_CLIMB_LEVELS;
	int r = 0;

	for (; !r && left && at->d_flags & DCACHE_DISCONNECTED; left--) {
		above = IS_ROOT(at) ? vhfs_hang(trip, at) : dget_parent(at);
		r = PTR_ERR_OR_ZERO(above);
		if (!r) {
			dput(at);
			at = above;
		}
	}
	dput(at);
	return left ? r : -ESTALE;
}

static struct dentry *vhfs_reach_dir(struct vhfs_trip *trip, const struct vhfs_fid_key *key)
{
	struct dentry *dentry = vhfs_decode_key(key, false), *dir;
	int r;

	if (IS_ERR(dentry))
		return dentry;
	r = d_is_dir(dentry) ? vhfs_climb(trip, dentry) : -ESTALE;
	/*
	 * Decode the key again, because exportfs then clears DCACHE_DISCONNECTED.  It has nothing
	 * left to search for.
	 */
	dir = r ? ERR_PTR(r) : vhfs_decode_key(key, true);
	dput(dentry);
	return dir;
}

static struct dentry *vhfs_reach_name(const struct vhfs_trip *trip, struct dentry *dir,
				      const struct vhfs_text *name)
{
	const struct vhfs_fid_key *key = &trip->self.key;
	struct dentry *dentry = vhfs_look_for(trip, dir, name);

	if (IS_ERR(dentry))
		return dentry;
	if (d_is_positive(dentry) && vhfs_is_named(key, d_inode(dentry)) &&
	    vhfs_is_beneath(key->mount, dentry))
		return dentry;
	dput(dentry);
	return ERR_PTR(-ESTALE);
}

static struct dentry *vhfs_reach_by_search(struct vhfs_trip *trip, struct dentry *dir)
{
	struct dentry *any;
	int r;

	if (!trip->left)
		return ERR_PTR(-ESTALE);
	any = vhfs_decode_key(&trip->self.key, false);
	if (IS_ERR(any))
		return any;
	/* A removed file has no name to be found. */
	r = d_inode(any)->i_nlink ? vhfs_search(trip, dir, d_inode(any)) : -ESTALE;
	dput(any);
	return r ? ERR_PTR(r) : vhfs_reach_name(trip, dir, &trip->found);
}

/* Reach a file by its last name, then by any name in the dcache, then by a search. */
static struct dentry *vhfs_reach_file(struct vhfs_trip *trip)
{
	struct dentry *dir = vhfs_reach_dir(trip, &trip->self.dir);
	struct dentry *dentry = dir;

	if (!IS_ERR(dir))
		dentry = vhfs_reach_name(trip, dir, &trip->self.name);
	/* exportfs cannot search the directory here, because the handle does not name it. */
	if (dentry == ERR_PTR(-ESTALE))
		dentry = vhfs_decode_key(&trip->self.key, true);
	if (dentry == ERR_PTR(-ESTALE) && !IS_ERR(dir))
		dentry = vhfs_reach_by_search(trip, dir);
	if (!IS_ERR(dir))
		dput(dir);
	return dentry;
}

/**
 * vhfs_reach - find a dentry for a swapped node
 * @node: the node, held
 * @lost: set to true if a search for the node has failed
 *
 * Only a worker calls this.
 *
 * Return: the dentry, which the caller puts; NULL if the node is live by now; or an error, -ESTALE
 * if the node cannot come back now.
 */
struct dentry *vhfs_reach(struct vhfs_node *node, bool *lost)
{
	struct vhfs_trip *trip = kmalloc(sizeof(*trip), GFP_KERNEL_ACCOUNT);
	struct dentry *dentry = NULL;
	const struct cred *old;

	if (!trip)
		return ERR_PTR(-ENOMEM);
	if (!vhfs_copy_way(node, &trip->self))
		goto free;
	trip->searched = false;
	trip->left = trip->self.lost ? 0 : VHFS_SEARCH_ENTRIES;
	/*
	 * An operation that names a second node is acting as the caller already, so take the
	 * worker's rights.
	 */
	old = vhfs_act_as(current_real_cred());
	dentry = trip->self.is_dir ? vhfs_reach_dir(trip, &trip->self.key) : vhfs_reach_file(trip);
	vhfs_act_end(old);
	*lost = trip->searched && dentry == ERR_PTR(-ESTALE);
free:
	kfree(trip);
	return dentry;
}
