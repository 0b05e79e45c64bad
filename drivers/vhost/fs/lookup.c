// SPDX-License-Identifier: GPL-2.0
/*
 * LOOKUP of one name in a directory that the guest knows.  This file also fills the entry (struct
 * fuse_entry_out) with which LOOKUP and the operations that make a name are answered.
 *
 * If a file system is mounted on the name, the guest gets the root of that file system if the
 * export has submounts, and the directory that the mount hides if not (see mount.c).  A symbolic
 * link is a node like others, and the host does not follow it.
 */
#include <linux/namei.h>
#include <linux/stat.h>
#include <linux/vhost_serve.h>

#include "fs.h"

static void vhfs_set_timeouts(const struct vhfs_export *ex,
			      struct fuse_entry_out *out)
{
	out->entry_valid = ex->entry_valid.sec;
	out->entry_valid_nsec = ex->entry_valid.nsec;
	out->attr_valid = ex->attr_valid.sec;
	out->attr_valid_nsec = ex->attr_valid.nsec;
}

static int vhfs_stat_entry(struct vhfs_req *req, const struct vhfs_place *at,
			   struct fuse_entry_out *out)
{
	struct path path = { .mnt = at->mount->mnt, .dentry = at->dentry };
	struct kstat stat;
	int r;

	r = vfs_getattr(&path, &stat, STATX_BASIC_STATS, AT_STATX_SYNC_AS_STAT);
	if (r)
		return r;
	vhfs_fill_attr(at, &stat, &out->attr);
	/*
	 * FUSE makes the root of a mount itself, with a generation of 0, and takes another one for
	 * a sign that the node is stale.
	 */
	if (!vhfs_is_mount_root(at->mount, at->dentry))
		out->generation = req->ex->generation;
	vhfs_set_timeouts(req->ex, out);
	return 0;
}

/**
 * vhfs_fill_entry - tell the guest of a name
 * @req: the request that has looked the name up, or made it
 * @at: the name, positive, held
 * @out: the entry, all zero
 *
 * When this returns 0, the guest has one lookup of the node more to forget.
 *
 * Return: 0, an error, or VHFS_PUNT.
 */
int vhfs_fill_entry(struct vhfs_req *req, const struct vhfs_place *at,
		    struct fuse_entry_out *out)
{
	int r = vhfs_node_know(req, at, &out->nodeid);

	if (r)
		return r;
	r = vhfs_stat_entry(req, at, out);
	if (r)
		vhfs_node_unknow(req, out->nodeid);
	return r;
}

/* A guest that exports by NFS looks up "." to find a node of which it has only the number. */
static int vhfs_lookup_self(struct vhfs_req *req)
{
	struct fuse_entry_out *out = vhfs_reply(req, struct fuse_entry_out);
	const struct vhfs_place self = vhfs_place(req, vhfs_dentry(req));
	int r = vhfs_node_again(req, req->node);

	if (r)
		return r;
	out->nodeid = req->node->id.nr;
	r = vhfs_stat_entry(req, &self, out);
	if (r)
		vhfs_node_unknow(req, out->nodeid);
	return r;
}

static int vhfs_lookup_parent(struct vhfs_req *req)
{
	struct vhfs_place above;
	int r;

	if (req->node == req->ex->root_node)
		return vhfs_lookup_self(req);
	r = vhfs_go_up(req->node, &above);
	if (r)
		return r;
	/*
	 * The poller's thread may wait for the file system of the node, but maybe not for the one
	 * above.
	 */
	if (req->hot && !vserve_fs_allows_hot(above.dentry->d_sb, false))
		r = VHFS_PUNT;
	else
		r = vhfs_fill_entry(req, &above, vhfs_reply(req, struct fuse_entry_out));
	vhfs_place_put(&above);
	return r;
}

/*
 * Look a name up in the dcache alone, as a path walk does under RCU.  The checks are those of
 * lookup_one_unlocked().
 */
static struct dentry *vhfs_lookup_cached(struct vhfs_req *req)
{
	struct dentry *dir = vhfs_dentry(req), *dentry;
	struct qstr name = QSTR_INIT(req->names[0], req->name_len[0]);
	int r;

	/* File systems that hash or compare names themselves may want to sleep. */
	if (!req->node->mount->quick_getattr ||
	    dir->d_flags & (DCACHE_OP_HASH | DCACHE_OP_COMPARE))
		return NULL;
	rcu_read_lock();
	r = inode_permission(vhfs_idmap(req), vhfs_inode(req),
			     MAY_EXEC | MAY_NOT_BLOCK);
	rcu_read_unlock();
	if (r)
		return NULL;
	name.hash = full_name_hash(dir, name.name, name.len);
	dentry = d_lookup(dir, &name);
	if (!dentry)
		return NULL;
	if (d_is_positive(dentry) && !(dentry->d_flags & DCACHE_OP_REVALIDATE))
		return dentry;
	/*
	 * A negative dentry has no inode, so this does not sleep.  A positive one that has to be
	 * revalidated frees its inode only if the file was unlinked since d_lookup().
	 */
	dput(dentry);
	return NULL;
}

/* Answer with the name, or with the root of the file system that is mounted on it. */
static int vhfs_answer_name(struct vhfs_req *req, struct dentry *dentry)
{
	struct vhfs_place at = vhfs_place(req, dentry);
	int r = vhfs_cross(req, &at);

	if (r)
		return r;
	r = vhfs_fill_entry(req, &at, vhfs_reply(req, struct fuse_entry_out));
	vhfs_place_put(&at);
	return r;
}

static int vhfs_lookup_quick(struct vhfs_req *req)
{
	struct dentry *dentry = vhfs_lookup_cached(req);
	int r;

	if (!dentry)
		return VHFS_PUNT;
	r = vhfs_answer_name(req, dentry);
	/* This frees an inode only if the file was unlinked since d_lookup(). */
	dput(dentry);
	return r;
}

static int vhfs_lookup_slow(struct vhfs_req *req)
{
	struct dentry *dentry;
	int r;

	dentry = lookup_one_unlocked(vhfs_idmap(req), req->names[0],
				     vhfs_dentry(req), req->name_len[0]);
	if (IS_ERR(dentry))
		return PTR_ERR(dentry);
	if (d_is_negative(dentry))
		r = -ENOENT;
	else
		r = vhfs_answer_name(req, dentry);
	dput(dentry);
	return r;
}

int vhfs_lookup(struct vhfs_req *req)
{
	const char *name = req->names[0];

	if (!is_dot_dotdot(name, req->name_len[0]))
		return req->may_sleep ? vhfs_lookup_slow(req) :
					vhfs_lookup_quick(req);
	if (!req->may_sleep)
		return VHFS_PUNT;
	return name[1] ? vhfs_lookup_parent(req) : vhfs_lookup_self(req);
}
