// SPDX-License-Identifier: GPL-2.0
/*
 * FORGET and BATCH_FORGET, and the choice of the thread that frees what the guest forgets.
 *
 * The last reference to a node may free a removed file with all its blocks.  The poller's round
 * leaves that to the reaper.  If the reaper is slow, a worker does it.
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

int vhfs_forget(struct vhfs_req *req)
{
	const struct fuse_forget_in *arg = vhfs_args(req, struct fuse_forget_in);

	if (!req->may_sleep && vhfs_reaper_is_late(req->ex))
		return VHFS_PUNT;
	vhfs_node_forget(req->ex, req->in.nodeid, arg->nlookup, req->may_sleep);
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
