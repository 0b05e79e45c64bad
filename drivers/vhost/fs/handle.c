// SPDX-License-Identifier: GPL-2.0
/*
 * Handles: files and directories that the guest has open, by the number that it knows them by.  A
 * handle belongs to a node.  If a request names a handle and a node, both must have the same inode.
 *
 * A request that closes must name the node that the handle was opened by, even if the guest has
 * forgotten that: a FORGET comes by another vring than the RELEASE before it, and may be faster.
 */
#include <linux/file.h>
#include <linux/slab.h>

#include "fs.h"

/* Now, not when this thread gets to it: locks, ETXTBSY and umount wait for it. */
static void vhfs_close_file(struct vhfs_handle *handle)
{
	struct inode *inode = file_inode(handle->file);

	vhfs_unlock_all(handle);
	ihold(inode);
	__fput_sync(handle->file);
	if (handle->flocked)
		vhfs_flock_freed(handle->ex, inode);
	iput(inode);
}

static void vhfs_handle_free(struct vhfs_handle *handle)
{
	if (handle->file)
		vhfs_close_file(handle);
	vhfs_node_closed(handle->node);
	atomic_dec(&handle->ex->table.nr_handles);
	kfree_rcu(handle, rcu);
}

/**
 * vhfs_reap_handles - let go of handles that the poller could not
 * @ex: the export
 */
void vhfs_reap_handles(struct vhfs_export *ex)
{
	struct vhfs_handle *handle, *next;

	llist_for_each_entry_safe(handle, next,
				  llist_del_all(&ex->reap_handles), reap)
		vhfs_handle_free(handle);
}

/**
 * vhfs_handle_put - the end of vhfs_handle_get()
 * @handle: or NULL
 * @may_sleep: not in the poller
 */
void vhfs_handle_put(struct vhfs_handle *handle, bool may_sleep)
{
	struct vhfs_export *ex;

	if (!handle)
		return;
	ex = handle->ex;
	if (!refcount_dec_and_test(&handle->refs))
		return;
	if (may_sleep)
		vhfs_handle_free(handle);
	else if (llist_add(&handle->reap, &ex->reap_handles))
		queue_work(ex->reap_wq, &ex->reaper);
}

/**
 * vhfs_handle_new - room for one more open file
 * @req: that will open it
 *
 * Before the file is made, so that nothing is left behind where there is no room.
 */
struct vhfs_handle *vhfs_handle_new(struct vhfs_req *req)
{
	struct vhfs_export *ex = req->ex;
	struct vhfs_handle *handle;

	if (atomic_inc_return(&ex->table.nr_handles) > ex->cfg.max_handles) {
		atomic64_inc(&ex->refused);
		atomic_dec(&ex->table.nr_handles);
		return ERR_PTR(-EMFILE);
	}
	handle = kzalloc(sizeof(*handle), GFP_KERNEL_ACCOUNT);
	if (!handle) {
		atomic_dec(&ex->table.nr_handles);
		return ERR_PTR(-ENOMEM);
	}
	handle->ex = ex;
	refcount_set(&handle->refs, 1);
	mutex_init(&handle->pos_lock);
	spin_lock_init(&handle->claim_lock);
	INIT_LIST_HEAD(&handle->claims);
	return handle;
}

/**
 * vhfs_handle_opens - say whose file a handle will be
 * @handle: from vhfs_handle_new()
 * @id: the node's
 * @dentry: of the file
 * @flags: with which the guest opens it
 */
void vhfs_handle_opens(struct vhfs_handle *handle, u64 id, struct dentry *dentry, u32 flags)
{
	handle->sync = flags & (O_DSYNC | __O_SYNC);
	handle->node_id = id;
	handle->node = vhfs_node_opened(handle->ex, id, dentry);
}

/**
 * vhfs_handle_drop - it was not needed
 * @handle: from vhfs_handle_new()
 */
void vhfs_handle_drop(struct vhfs_handle *handle)
{
	vhfs_handle_put(handle, true);
}

/* The caller that takes the id away has the guest's reference to put. */
static bool vhfs_handle_unlink(struct vhfs_handle *handle)
{
	struct xarray *handles = &handle->ex->table.handles;
	bool ours;

	xa_lock(handles);
	ours = xa_load(handles, handle->id) == handle;
	if (ours)
		__xa_erase(handles, handle->id);
	xa_unlock(handles);
	return ours;
}

/**
 * vhfs_handle_set - the guest has a file open
 * @req: that opened it
 * @handle: from vhfs_handle_new()
 * @file: belongs to the handle from here on, whatever this returns
 *
 * On an error the handle is gone, too.  Else the caller puts it once it has read it,
 * because the guest may guess its number, and close it.
 */
int vhfs_handle_set(struct vhfs_req *req, struct vhfs_handle *handle,
		    struct file *file)
{
	struct vhfs_table *table = &req->ex->table;
	u32 id;
	int r;

	handle->file = file;
	/* The id is known to the handle before others can find it. */
	r = xa_alloc_cyclic(&table->handles, &id, NULL, xa_limit_31b,
			    &table->next_handle, GFP_KERNEL_ACCOUNT);
	if (r < 0)
		goto drop;
	handle->id = id;
	refcount_inc(&handle->refs);
	xa_store(&table->handles, id, handle, GFP_KERNEL);
	/* Pairs with vhfs_table_clear(), which counts before it looks. */
	smp_mb();
	if (READ_ONCE(table->session) == req->session)
		return 0;
	r = -EIO;
	if (vhfs_handle_unlink(handle))
		vhfs_handle_put(handle, true);
drop:
	vhfs_handle_put(handle, true);
	return r;
}

static __always_inline struct vhfs_handle *vhfs_handle_find(struct vhfs_export *ex, u64 id)
{
	struct vhfs_handle *handle;

	rcu_read_lock();
	handle = vhfs_find_id(&ex->table.handles, id);
	if (handle && !refcount_inc_not_zero(&handle->refs))
		handle = NULL;
	rcu_read_unlock();
	return handle;
}

/**
 * vhfs_handle_get - the open file a request means
 * @req: with its node
 * @id: from the guest
 */
struct vhfs_handle *vhfs_handle_get(struct vhfs_req *req, u64 id)
{
	struct vhfs_handle *handle = vhfs_handle_find(req->ex, id);

	if (!handle)
		return ERR_PTR(-EBADF);
	/* The same inode in another mount is another node, with other rights, maybe. */
	if (file_inode(handle->file) == vhfs_inode(req) &&
	    handle->file->f_path.mnt == vhfs_mnt(req))
		return handle;
	vhfs_handle_put(handle, req->may_sleep && !req->hot);
	return ERR_PTR(-EBADF);
}

/**
 * vhfs_handle_get_known - the open file a request in the poller's round means, without its node
 * @req: that names a node, too
 * @id: from the guest
 *
 * An open file holds its node, so the node need not be looked up, nor held.  Another request may
 * give the node another dentry then (vhfs_better_name()), so the node's dentry is left alone.
 *
 * Returns NULL if that does not say whether the guest may: vhfs_handle_get() has to be asked.
 */
struct vhfs_handle *vhfs_handle_get_known(const struct vhfs_req *req, u64 id)
{
	struct vhfs_handle *handle = vhfs_handle_find(req->ex, id);
	const struct vhfs_node *node;

	if (!handle)
		return NULL;
	node = handle->node;
	if (node && node->id == req->in.nodeid && READ_ONCE(node->lookups) &&
	    READ_ONCE(node->inode) == file_inode(handle->file) &&
	    handle->file->f_path.mnt == node->mount->mnt && vhfs_node_is_beneath(node))
		return handle;
	vhfs_handle_put(handle, false);
	return NULL;
}

/* It may be the end of an unlinked file. */
static bool vhfs_close_is_long(const struct vhfs_req *req, const struct vhfs_handle *handle)
{
	const struct inode *inode = file_inode(handle->file);

	return vhfs_locks_to_search(req, handle) ||
	       (!inode->i_nlink && vhfs_too_big(req, inode));
}

/**
 * vhfs_handle_close - the guest closes a file
 * @req: RELEASE; its node may be NULL or swapped
 * @id: from the guest
 *
 * Return: 0, -EBADF, or VHFS_PUNT.
 */
int vhfs_handle_close(struct vhfs_req *req, u64 id)
{
	struct vhfs_handle *handle = vhfs_handle_find(req->ex, id);
	int r = 0;

	if (!handle)
		return -EBADF;
	if (handle->node_id != req->in.nodeid)
		r = -EBADF;
	else if (vhfs_close_is_long(req, handle))
		r = VHFS_PUNT;
	if (r) {
		vhfs_handle_put(handle, !req->hot);
		return r;
	}
	/* Closing is what was asked for, so it is done here, hot or not. */
	if (vhfs_handle_unlink(handle))
		vhfs_handle_put(handle, true);
	vhfs_handle_put(handle, true);
	return 0;
}

/**
 * vhfs_handles_clear - the guest has nothing open any more
 * @ex: the export; its session number was changed
 */
void vhfs_handles_clear(struct vhfs_export *ex)
{
	struct vhfs_handle *handle;
	unsigned long id;

	xa_for_each(&ex->table.handles, id, handle) {
		/* A RELEASE that began before may be faster, and free it. */
		handle = vhfs_handle_find(ex, id);
		if (!handle)
			continue;
		if (vhfs_handle_unlink(handle))
			vhfs_handle_put(handle, true);
		vhfs_handle_put(handle, true);
		cond_resched();
	}
}
