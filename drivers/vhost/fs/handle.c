// SPDX-License-Identifier: GPL-2.0
/*
 * Handles: the files and directories that the guest has open.  The guest names a handle by a
 * number.  A handle belongs to a node.  If a request names a handle and a node, both must have the
 * same inode.
 *
 * A request that closes a handle must name the node by which the guest opened it, even if the guest
 * has forgotten that node.  The guest may send the FORGET by another vring than the RELEASE before
 * it, and the FORGET may then be carried out first.
 */
#include <linux/file.h>
#include <linux/slab.h>

#include "fs.h"

/*
 * __fput_sync() closes the file now.  fput() would leave that for later.  Until then the file would
 * keep its locks, exec would fail with ETXTBSY, and umount with EBUSY.
 */
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
 * vhfs_reap_handles - free the handles whose last reference the poller dropped
 * @ex: the export
 *
 * To close a file may sleep, so the poller leaves that to the export's reaper.
 */
void vhfs_reap_handles(struct vhfs_export *ex)
{
	struct vhfs_handle *handle, *next;

	llist_for_each_entry_safe(handle, next,
				  llist_del_all(&ex->reap_handles), reap)
		vhfs_handle_free(handle);
}

/**
 * vhfs_handle_put - drop a reference to a handle
 * @handle: the handle, or NULL
 * @may_sleep: free the handle here if this was the last reference; otherwise the export's reaper
 *	does, because the poller must not sleep, nor be kept for long
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
 * vhfs_handle_new - allocate a handle
 * @req: the request that will open the file
 *
 * The caller does this before it makes a file, so if there is no room for the handle, no file is
 * left behind.
 *
 * Return: the handle, ERR_PTR(-EMFILE) if the guest has too many, or ERR_PTR(-ENOMEM).
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
 * vhfs_handle_opens - tell a handle which node's file it will hold
 * @handle: from vhfs_handle_new()
 * @id: the id of the node
 * @dentry: the file's dentry
 * @flags: the flags with which the guest opens the file
 */
void vhfs_handle_opens(struct vhfs_handle *handle, u64 id, struct dentry *dentry, u32 flags)
{
	handle->sync = flags & (O_DSYNC | __O_SYNC);
	handle->node_id = id;
	handle->node = vhfs_node_opened(handle->ex, id, dentry);
}

/**
 * vhfs_handle_drop - free a handle that was not needed
 * @handle: from vhfs_handle_new()
 */
void vhfs_handle_drop(struct vhfs_handle *handle)
{
	vhfs_handle_put(handle, true);
}

/*
 * Take the handle's id away.  Returns true to one caller only, and that caller puts the reference
 * that the guest had.
 */
static bool vhfs_handle_unlink(struct vhfs_handle *handle)
{
	return vhfs_id_remove(&handle->ex->table.handles, &handle->id);
}

/**
 * vhfs_handle_set - give the guest a handle for an open file
 * @req: the request that opened the file
 * @handle: from vhfs_handle_new()
 * @file: the file, which belongs to the handle from here on, even after an error
 *
 * After an error the handle is gone.  After success the caller still has its own reference, and
 * puts it when it has read the handle's id.  The guest may guess the id and close the handle before
 * that.
 *
 * Return: 0, or an error.
 */
int vhfs_handle_set(struct vhfs_req *req, struct vhfs_handle *handle,
		    struct file *file)
{
	struct vhfs_table *table = &req->ex->table;
	int r;

	handle->file = file;
	handle->id.nr = atomic64_inc_return(&table->last_handle);
	refcount_inc(&handle->refs);
	/* From here on other requests can find the handle. */
	r = vhfs_id_add(&table->handles, &handle->id);
	if (r) {
		refcount_dec(&handle->refs);
		goto drop;
	}
	/*
	 * Read the session after the handle is in the table.  vhfs_table_clear() changes the
	 * session before it looks for handles, so it finds this handle, or this function sees the
	 * new session.
	 */
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
	struct vhfs_handle *handle = NULL;
	struct vhfs_id *found;

	rcu_read_lock();
	found = vhfs_id_find(&ex->table.handles, id);
	if (found)
		handle = container_of(found, struct vhfs_handle, id);
	if (handle && !refcount_inc_not_zero(&handle->refs))
		handle = NULL;
	rcu_read_unlock();
	return handle;
}

/**
 * vhfs_handle_get - find the open file that a request names
 * @req: the request; it holds its node
 * @id: the handle's id, from the guest
 *
 * Return: the handle, which the caller puts, or ERR_PTR(-EBADF).
 */
struct vhfs_handle *vhfs_handle_get(struct vhfs_req *req, u64 id)
{
	struct vhfs_handle *handle = vhfs_handle_find(req->ex, id);

	if (!handle)
		return ERR_PTR(-EBADF);
	/* The same inode in another mount is another node, and may come with other rights. */
	if (file_inode(handle->file) == vhfs_inode(req) &&
	    handle->file->f_path.mnt == vhfs_mnt(req))
		return handle;
	vhfs_handle_put(handle, req->may_sleep && !req->hot);
	return ERR_PTR(-EBADF);
}

/**
 * vhfs_handle_get_known - find the open file that a READ names, and leave its node alone
 * @req: the READ, in the poller's round
 * @id: the handle's id, from the guest
 *
 * The READ names a node, too.  The function neither looks that node up nor takes a reference to it,
 * because the handle holds its node.  Other requests may give the node another dentry meanwhile
 * (vhfs_better_name()), so the READ must not use the node's dentry.
 *
 * Return: the handle, which the caller puts, or NULL.  NULL does not mean that the guest may not
 * read: the caller then finds the node, and calls vhfs_handle_get().
 */
struct vhfs_handle *vhfs_handle_get_known(const struct vhfs_req *req, u64 id)
{
	struct vhfs_handle *handle = vhfs_handle_find(req->ex, id);
	const struct vhfs_node *node;
	const struct inode *inode;

	if (!handle)
		return NULL;
	node = handle->node;
	/* Pairs with the release in vhfs_make_live(). */
	inode = node ? smp_load_acquire(&node->inode) : NULL;
	if (inode == file_inode(handle->file) && node->id.nr == req->in.nodeid &&
	    READ_ONCE(node->lookups) &&
	    handle->file->f_path.mnt == node->mount->mnt && vhfs_node_is_beneath(node))
		return handle;
	vhfs_handle_put(handle, false);
	return NULL;
}

/*
 * Whether closing may take too long for the poller's thread.  The VFS may have many locks of the
 * inode to search.  If the file is unlinked and big, it has much to free.
 */
static bool vhfs_close_is_long(const struct vhfs_req *req, const struct vhfs_handle *handle)
{
	const struct inode *inode = file_inode(handle->file);

	return vhfs_locks_to_search(req, handle) ||
	       (!inode->i_nlink && vhfs_too_big(req, inode));
}

/**
 * vhfs_handle_close - close a handle of the guest
 * @req: the RELEASE; its node may be NULL or swapped
 * @id: the handle's id, from the guest
 *
 * Return: 0, -EBADF, or VHFS_PUNT if a worker has to close it.
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
	/* Close the file before the guest gets its reply, even in the poller's thread. */
	if (vhfs_handle_unlink(handle))
		vhfs_handle_put(handle, true);
	vhfs_handle_put(handle, true);
	return 0;
}

static void vhfs_handle_clear(struct vhfs_export *ex, u64 id)
{
	/* A RELEASE that began before may free the handle, so take a reference. */
	struct vhfs_handle *handle = vhfs_handle_find(ex, id);

	if (!handle)
		return;
	if (vhfs_handle_unlink(handle))
		vhfs_handle_put(handle, true);
	vhfs_handle_put(handle, true);
}

/**
 * vhfs_handles_clear - close all handles
 * @ex: the export; the caller has changed its session number
 */
void vhfs_handles_clear(struct vhfs_export *ex)
{
	vhfs_ids_clear(ex, &ex->table.handles, 0, vhfs_handle_clear);
}
