// SPDX-License-Identifier: GPL-2.0
/*
 * FORGET and BATCH_FORGET, and the choice of the thread that frees what the guest forgets.
 *
 * The last reference to a node may free a removed file with all its blocks.  The poller's round
 * leaves that to the reaper.  If the reaper is slow, a worker does it.  If the file is small, the
 * poller's thread does it after the round, because to wake the reaper costs more.
 */
#include "fs.h"

/*
 * Does the reaper need long, as for the blocks of a huge file, or on a frozen file system?  Then a
 * worker frees the nodes that the guest forgets.  No limit counts nodes that wait for the reaper.
 */
static bool vhfs_reaper_is_late(const struct vhfs_export *ex)
{
	unsigned long since = READ_ONCE(ex->reap_since);

	return unlikely(since) && time_after(jiffies, since + HZ);
}

/*
 * Does the last reference to the node free a removed file, and nothing that takes long?  A
 * directory may be big.  If the parent was removed, too, it would be freed next, and so on upwards.
 */
static bool vhfs_frees_a_file(const struct vhfs_node *node)
{
	const struct dentry *parent;
	bool stays;

	if (!vhfs_is_live(node) || !S_ISREG(node->inode->i_mode) || node->inode->i_nlink ||
	    vhfs_is_big(node->inode))
		return false;
	rcu_read_lock();
	parent = READ_ONCE(node->dentry->d_parent);
	stays = !d_unhashed(parent) || IS_ROOT(parent);
	rcu_read_unlock();
	return stays;
}

/* Whether the poller's thread frees the node after the round.  The request holds the node. */
static bool vhfs_forget_is_hot(const struct vhfs_req *req, u64 count)
{
	const struct vhfs_node *node = req->node;

	/* One reference is the table's, the other one is the request's. */
	return READ_ONCE(node->lookups) <= count && READ_ONCE(node->refs) == 2 &&
	       vhfs_frees_a_file(node) && vhfs_is_hot(req);
}

/* Forget the node that the request holds. */
static void vhfs_forget_held(struct vhfs_req *req, u64 count, bool may_free)
{
	struct vhfs_node *node = req->node;

	req->node = NULL;
	/* The request's reference is still there, so this is not the last one. */
	if (vhfs_node_count_down(node, count))
		vhfs_node_put(node, false);
	vhfs_node_put(node, may_free);
}

static int vhfs_forget_in_round(struct vhfs_req *req, u64 count)
{
	const u64 id = req->in.nodeid;

	if (vhfs_reaper_is_late(req->ex))
		return VHFS_PUNT;
	if (id != FUSE_ROOT_ID && vhfs_node_may_free(req->ex, id, count))
		req->node = vhfs_node_get(req->ex, id);
	if (req->node && vhfs_forget_is_hot(req, count))
		return VHFS_PUNT;
	if (req->node)
		vhfs_forget_held(req, count, false);
	else
		vhfs_node_forget(req->ex, id, count, false);
	return 0;
}

int vhfs_forget(struct vhfs_req *req)
{
	const struct fuse_forget_in *arg = vhfs_args(req, struct fuse_forget_in);

	if (!req->may_sleep)
		return vhfs_forget_in_round(req, arg->nlookup);
	if (req->node)
		/* The file may have become a big one. */
		vhfs_forget_held(req, arg->nlookup, !req->hot || vhfs_frees_a_file(req->node));
	else
		vhfs_node_forget(req->ex, req->in.nodeid, arg->nlookup, true);
	return 0;
}

int vhfs_batch_forget(struct vhfs_req *req)
{
	const struct fuse_batch_forget_in *arg =
		vhfs_args(req, struct fuse_batch_forget_in);
	const struct fuse_forget_one *one = req->tail;
	u32 i;

	if (arg->count > req->tail_len / sizeof(*one))
		return -EINVAL;
	for (i = 0; i < arg->count; i++)
		vhfs_node_forget(req->ex, one[i].nodeid, one[i].nlookup, req->may_sleep);
	return 0;
}
