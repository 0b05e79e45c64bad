// SPDX-License-Identifier: GPL-2.0
/*
 * Nodes: the inodes that a guest knows, by the number that it knows them by.
 *
 * Two names of one inode in one mount are one node, because the guest's page cache would hold the
 * file twice otherwise.  A node counts how often the guest was told of it, and goes when the
 * guest's FORGETs have counted that down; a guest cannot count down further.  It pins a dentry,
 * which is one of the inode's names.  If that name was removed and the guest looks up another one,
 * the node takes that one.  Beyond a cap nodes are swapped, and pin nothing: the head of swap.c has
 * the rule.
 */
#include <linux/dcache.h>
#include <linux/hash.h>
#include <linux/slab.h>

#include "fs.h"

/* A part of struct vhfs_node: what it is found by. */
struct vhfs_key {
	struct inode *inode;
	struct vhfs_mount *mount;
};

static_assert(offsetof(struct vhfs_node, mount) ==
	      offsetof(struct vhfs_node, inode) + offsetof(struct vhfs_key, mount));

/* Two addresses need no jhash().  A guest can choose neither of them. */
static u32 vhfs_key_hash(const void *data, u32 len, u32 seed)
{
	const struct vhfs_key *key = data;

	return hash_64(((u64)(uintptr_t)key->inode ^ seed) * GOLDEN_RATIO_64 ^
		       (uintptr_t)key->mount, 32);
}

/* Returns 0 if they are the same. */
static int vhfs_key_differs(struct rhashtable_compare_arg *arg, const void *obj)
{
	const struct vhfs_key *key = arg->key;
	const struct vhfs_node *node = obj;

	return node->inode != key->inode || node->mount != key->mount;
}

static const struct rhashtable_params vhfs_by_inode = {
	.key_len	= sizeof(struct vhfs_key),
	.hashfn		= vhfs_key_hash,
	.obj_cmpfn	= vhfs_key_differs,
	.key_offset	= offsetof(struct vhfs_node, inode),
	.head_offset	= offsetof(struct vhfs_node, hash),
	.automatic_shrinking = true,
};

static bool vhfs_is_root(const struct vhfs_node *node)
{
	return node->id == FUSE_ROOT_ID;
}

static void vhfs_node_free(struct vhfs_node *node)
{
	dput(node->dentry);
	vhfs_fid_free(node);
	vhfs_mount_put(node->mount);
	kfree_rcu(node, rcu);
}

/**
 * vhfs_reap_nodes - let go of nodes that the poller could not
 * @ex: the export
 */
void vhfs_reap_nodes(struct vhfs_export *ex)
{
	struct vhfs_node *node, *next;

	llist_for_each_entry_safe(node, next, llist_del_all(&ex->reap_nodes),
				  reap)
		vhfs_node_free(node);
}

/**
 * vhfs_node_put - the end of vhfs_node_get()
 * @node: or NULL
 * @may_sleep: not in the poller: the last reference may be the inode's, too
 */
void vhfs_node_put(struct vhfs_node *node, bool may_sleep)
{
	struct vhfs_export *ex;
	bool last;

	if (!node)
		return;
	ex = node->ex;
	spin_lock(&node->lock);
	last = !--node->refs;
	spin_unlock(&node->lock);
	if (!last)
		return;
	if (may_sleep)
		vhfs_node_free(node);
	else if (llist_add(&node->reap, &ex->reap_nodes))
		queue_work(ex->reap_wq, &ex->reaper);
}

/* Under node->lock.  Most often the bit is set, and other CPUs may keep what they have read. */
static void vhfs_node_used(struct vhfs_node *node)
{
	if (!node->used)
		node->used = true;
}

/**
 * vhfs_node_hold - hold a node that was found
 * @node: under RCU
 *
 * Returns false if it is about to go.  The caller puts it, else.
 */
bool vhfs_node_hold(struct vhfs_node *node)
{
	bool there;

	spin_lock(&node->lock);
	/* Without lookups it is about to go. */
	there = node->lookups;
	if (there)
		node->refs++;
	vhfs_node_used(node);
	spin_unlock(&node->lock);
	return there;
}

/**
 * vhfs_node_get - the node a guest means
 * @ex: the export
 * @id: from the guest
 *
 * Returns NULL if there is none by that number.
 */
struct vhfs_node *vhfs_node_get(struct vhfs_export *ex, u64 id)
{
	struct vhfs_node *node;

	rcu_read_lock();
	node = vhfs_find_id(&ex->table.nodes, id);
	if (node && !vhfs_node_hold(node))
		node = NULL;
	rcu_read_unlock();
	return node;
}

/**
 * vhfs_is_deep - is a node a long way below the root of its mount?
 * @node: held
 *
 * A guest can make directories of any depth, and other guests wait for the poller's thread, which
 * therefore does not go up all the way.  If one is moved meanwhile, any answer will do.
 */
bool vhfs_is_deep(const struct vhfs_node *node)
{
	const struct dentry *root = node->mount->mnt->mnt_root, *at = node->dentry;
	unsigned int left = VHFS_HOT_LEVELS;

	rcu_read_lock();
	for (; left && at != root && !IS_ROOT(at); left--)
		at = READ_ONCE(at->d_parent);
	rcu_read_unlock();
	return !left;
}

static int vhfs_node_climbed(struct vhfs_node *node, unsigned int seq)
{
	if (!is_subdir(node->dentry, node->mount->mnt->mnt_root))
		return -ESTALE;
	WRITE_ONCE(node->seq, seq);
	return 0;
}

/*
 * A long way up.  is_subdir() holds rename_lock for all of it if it meets a rename, and all that
 * rename or climb on the host spin meanwhile.  So one worker of the host climbs at a time, and
 * the others sleep.
 */
static int vhfs_node_climb(const struct vhfs_req *req, struct vhfs_node *node, unsigned int seq)
{
	static DEFINE_MUTEX(climb);
	int r;

	if (!req->may_sleep || req->hot)
		return VHFS_PUNT;
	mutex_lock(&climb);
	r = vhfs_node_climbed(node, seq);
	mutex_unlock(&climb);
	return r;
}

/**
 * vhfs_node_is_beneath - was a node beneath the root of the export, and nothing moved since?
 * @node: it stays while this runs, and its dentry may change
 *
 * Returns false if vhfs_node_check() has to look.
 */
bool vhfs_node_is_beneath(const struct vhfs_node *node)
{
	return READ_ONCE(node->seq) == read_seqbegin(&rename_lock) &&
	       vhfs_mount_is_reached(node->mount);
}

/**
 * vhfs_node_check - is a node beneath the root of the export?
 * @req: that names it, and has done nothing yet
 * @node: held
 *
 * Nothing moves between directories without rename_lock, so a node that was seen
 * beneath the root at some state of that lock still is while the state is the same.
 * The root of a submount has to be there, too.
 *
 * Returns -ESTALE if it was moved away, or its mount was, and VHFS_PUNT in the poller's thread
 * if it is a long way up: other guests wait for that thread.
 */
int vhfs_node_check(const struct vhfs_req *req, struct vhfs_node *node)
{
	unsigned int seq = read_seqbegin(&rename_lock);

	if (!vhfs_mount_is_reached(node->mount))
		return -ESTALE;
	if (READ_ONCE(node->seq) == seq)
		return 0;
	if (vhfs_is_deep(node))
		return vhfs_node_climb(req, node, seq);
	return vhfs_node_climbed(node, seq);
}

/**
 * vhfs_node_use - make a node fit for an operation that names it
 * @req: that does, and has done nothing yet
 * @node: held
 *
 * Each node goes through this, or through vhfs_check_node(), before an operation reads its dentry
 * or its inode.  Returns VHFS_PUNT if a worker has to bring it back.
 */
int vhfs_node_use(struct vhfs_req *req, struct vhfs_node *node)
{
	int r = vhfs_is_live(node) ? 0 : vhfs_bring_back(req, node);

	return r ?: vhfs_node_check(req, node);
}

/**
 * vhfs_node_opened - a file of a node is open
 * @ex: the export
 * @id: the node's
 * @dentry: of the file
 *
 * Returns the node for vhfs_node_closed(), or NULL if the guest has forgotten it already.
 */
struct vhfs_node *vhfs_node_opened(struct vhfs_export *ex, u64 id, struct dentry *dentry)
{
	struct vhfs_node *node = vhfs_node_get(ex, id);

	if (!node)
		return NULL;
	spin_lock(&node->lock);
	node->opens++;
	spin_unlock(&node->lock);
	/* It may have been swapped since it was made.  If this fails a request brings it back. */
	if (!vhfs_is_live(node))
		vhfs_swap_in(node, dentry);
	return node;
}

/**
 * vhfs_node_closed - the end of vhfs_node_opened()
 * @node: or NULL; in a context that may sleep
 */
void vhfs_node_closed(struct vhfs_node *node)
{
	if (!node)
		return;
	spin_lock(&node->lock);
	node->opens--;
	/* Reads by the open file did not say so. */
	vhfs_node_used(node);
	spin_unlock(&node->lock);
	/* It may be the one that the swapper has looked for. */
	if (vhfs_in_vain(node->ex))
		WRITE_ONCE(node->ex->vain_until, jiffies);
	vhfs_node_put(node, true);
}

/*
 * Should @dentry be the node's name, in place of the one it has?  Requests use
 * node->dentry without a lock; so only where there is none, and under node->lock there
 * will be none: no reference but the table's and those of open files.  A deep name stays: the
 * poller may wait for node->lock, and to go up would take long.
 */
static bool vhfs_better_name(struct vhfs_node *node, struct dentry *dentry)
{
	if (node->dentry == dentry || node->refs > 1 + node->opens ||
	    vhfs_is_mount_root(node->mount, node->dentry))
		return false;
	return d_unhashed(node->dentry) ||
	       (!vhfs_is_deep(node) && !is_subdir(node->dentry, node->mount->mnt->mnt_root));
}

/*
 * The guest is told of a node once more.  Returns false if it is about to go, or was
 * swapped, and so does not have @inode.  @old is the name that @dentry took the place of,
 * or NULL, for the caller to put: dput() may sleep, and callers look nodes up under RCU.
 */
static bool vhfs_count_lookup(struct vhfs_node *node, const struct inode *inode,
			      struct dentry *dentry, struct dentry **old)
{
	bool there;

	*old = NULL;

	spin_lock(&node->lock);
	there = node->lookups && node->inode == inode;
	vhfs_node_used(node);
	if (there && !vhfs_is_root(node))
		WRITE_ONCE(node->lookups, node->lookups + 1);
	if (there && dentry && vhfs_better_name(node, dentry)) {
		*old = node->dentry;
		node->dentry = dget(dentry);
		WRITE_ONCE(node->seq, VHFS_SEQ_NEVER);
	}
	spin_unlock(&node->lock);
	return there;
}

static bool vhfs_know_again(struct vhfs_req *req, const struct vhfs_place *at,
			    u64 *id)
{
	struct vhfs_export *ex = req->ex;
	const struct vhfs_key key = { .inode = d_inode(at->dentry),
				      .mount = at->mount };
	struct dentry *old = NULL;
	struct vhfs_node *node;
	bool found;

	rcu_read_lock();
	node = rhashtable_lookup(&ex->table.by_inode, &key, vhfs_by_inode);
	/* Not in the poller: the old name may be the last to hold its directory. */
	found = node && vhfs_count_lookup(node, key.inode,
					  req->may_sleep ? at->dentry : NULL, &old);
	if (found)
		*id = node->id;
	rcu_read_unlock();
	/* Not the last of the inode: the caller's name has it, too. */
	dput(old);
	return found;
}

static struct vhfs_node *vhfs_node_new(struct vhfs_export *ex,
				       const struct vhfs_place *at)
{
	struct vhfs_node *node = kzalloc(sizeof(*node), GFP_KERNEL_ACCOUNT);

	if (!node)
		return NULL;
	spin_lock_init(&node->lock);
	node->ex = ex;
	node->inode = d_inode(at->dentry);
	node->mount = vhfs_mount_get(at->mount);
	node->dentry = dget(at->dentry);
	node->seq = VHFS_SEQ_NEVER;
	INIT_LIST_HEAD(&node->live);
	node->lookups = 1;
	node->refs = 1;
	return node;
}

/**
 * vhfs_node_hash - a node is live: it is found by its inode
 * @table: its lock is held
 * @node: with its inode, in no hash table
 */
int vhfs_node_hash(struct vhfs_table *table, struct vhfs_node *node)
{
	int r = rhashtable_lookup_insert_fast(&table->by_inode, &node->hash, vhfs_by_inode);

	/* The root of a mount is there as long as the mount: no use to swap it. */
	if (!r && node->mount->can_swap && !vhfs_is_mount_root(node->mount, node->dentry))
		vhfs_swap_list(table, node);
	return r;
}

/**
 * vhfs_node_unhash - the end of vhfs_node_hash()
 * @table: its lock is held
 * @node: that was live until now
 */
void vhfs_node_unhash(struct vhfs_table *table, struct vhfs_node *node)
{
	rhashtable_remove_fast(&table->by_inode, &node->hash, vhfs_by_inode);
	vhfs_swap_unlist(table, node);
}

/* Into both indices.  -EEXIST: another request has been faster. */
static int vhfs_node_add(struct vhfs_req *req, struct vhfs_node *node,
			 const struct vhfs_fid_key *key)
{
	struct vhfs_table *table = &node->ex->table;
	int r = -EIO;

	spin_lock(&table->lock);
	if (table->session == req->session)
		r = vhfs_is_swapped(table, key) ? -EEXIST : vhfs_node_hash(table, node);
	/* The place was reserved, so this allocates nothing. */
	if (!r)
		xa_store(&table->nodes, node->id, node, GFP_NOWAIT);
	spin_unlock(&table->lock);
	return r;
}

static int vhfs_know_new(struct vhfs_req *req, const struct vhfs_place *at,
			 const struct vhfs_fid_key *key, u64 *id)
{
	struct vhfs_table *table = &req->ex->table;
	struct vhfs_node *node = vhfs_node_new(req->ex, at);
	int r;

	if (!node)
		return -ENOMEM;
	spin_lock(&table->lock);
	node->id = table->next_node++;
	spin_unlock(&table->lock);
	r = xa_reserve(&table->nodes, node->id, GFP_KERNEL_ACCOUNT);
	if (r)
		goto free;
	/* Before: the guest may guess it, and forget the node. */
	*id = node->id;
	r = vhfs_node_add(req, node, key);
	if (r)
		goto release;
	return 0;
release:
	xa_release(&table->nodes, node->id);
free:
	/* The caller has the dentry, too: this is not the last reference. */
	vhfs_node_free(node);
	return r;
}

/* One more node, if the limit allows. */
static bool vhfs_charge_node(struct vhfs_export *ex)
{
	if (atomic_inc_return(&ex->table.nr_nodes) <= ex->cfg.max_nodes)
		return true;
	atomic_dec(&ex->table.nr_nodes);
	atomic64_inc(&ex->refused);
	return false;
}

/**
 * vhfs_may_make - is there room for a new node?
 * @req: that would make one, with VHFS_OP_ROOM
 *
 * Asked before something is made, so that nothing is left behind that the guest
 * cannot be told of.
 */
bool vhfs_may_make(struct vhfs_req *req)
{
	struct vhfs_export *ex = req->ex;

	if (!req->no_room && atomic_read(&ex->table.nr_nodes) < ex->cfg.max_nodes)
		return true;
	atomic64_inc(&ex->refused);
	return false;
}

/* Returns -ENOENT if no swapped node is of the inode. */
static int vhfs_know_swapped(struct vhfs_req *req, const struct vhfs_place *at,
			     const struct vhfs_fid_key *key, u64 *id)
{
	struct vhfs_node *node = vhfs_find_swapped_get(&req->ex->table, key);
	struct dentry *old;
	int r;

	if (!node)
		return -ENOENT;
	r = vhfs_swap_in(node, at->dentry);
	/* It is held, so it stays live, but a FORGET may have been faster. */
	if (!r && !vhfs_count_lookup(node, d_inode(at->dentry), NULL, &old))
		r = -EEXIST;
	*id = node->id;
	vhfs_node_put(node, !req->hot);
	return r;
}

static int vhfs_know_charged(struct vhfs_req *req, const struct vhfs_place *at,
			     const struct vhfs_fid_key *key, u64 *id)
{
	int r;

	if (!vhfs_charge_node(req->ex))
		return -ENFILE;
	r = vhfs_know_new(req, at, key, id);
	if (r)
		atomic_dec(&req->ex->table.nr_nodes);
	return r;
}

/*
 * No more nodes may be live.  The guest can be told of a swapped one all the same, and finds it
 * where @at is when there is room again.  Not if it is about to be opened: that needs it live.
 */
static int vhfs_know_at_cap(struct vhfs_req *req, const struct vhfs_place *at,
			    const struct vhfs_fid_key *key, u64 *id)
{
	struct vhfs_node *node = NULL;
	int r = -ENFILE;

	if (!(req->op->flags & VHFS_OP_ROOM))
		node = vhfs_find_swapped_get(&req->ex->table, key);
	if (!node) {
		atomic64_inc(&req->ex->refused);
		return r;
	}
	spin_lock(&node->lock);
	r = node->lookups ? 0 : -EEXIST;
	if (!r)
		WRITE_ONCE(node->lookups, node->lookups + 1);
	spin_unlock(&node->lock);
	vhfs_swap_moved(at);
	*id = node->id;
	vhfs_node_put(node, !req->hot);
	return r;
}

/* Operations that may make something have asked before. */
static int vhfs_room_to_know(struct vhfs_req *req)
{
	if (req->op->flags & VHFS_OP_ROOM)
		return req->no_room ? -ENFILE : 0;
	return vhfs_find_room(req);
}

/* No live node is of the inode.  Returns -EEXIST if one is after all. */
static int vhfs_know_more(struct vhfs_req *req, const struct vhfs_place *at, u64 *id)
{
	struct vhfs_fid_key key;
	int r = vhfs_room_to_know(req);

	if (r && r != -ENFILE)
		return r;
	vhfs_name_inode(&key, at);
	if (r)
		return vhfs_know_at_cap(req, at, &key, id);
	r = vhfs_know_swapped(req, at, &key, id);
	return r == -ENOENT ? vhfs_know_charged(req, at, &key, id) : r;
}

/**
 * vhfs_node_know - the guest is told of an inode
 * @req: that tells it
 * @at: positive, held by the caller
 * @id: the node's, when this returns 0
 *
 * Returns VHFS_PUNT in the poller if it is a new one, or was swapped: a worker's memory
 * is the owner's.  Returns VHFS_PUNT in the poller's thread if the swapper has fallen behind.
 */
int vhfs_node_know(struct vhfs_req *req, const struct vhfs_place *at, u64 *id)
{
	int r;

	do {
		if (vhfs_know_again(req, at, id))
			return 0;
		if (!req->may_sleep)
			return VHFS_PUNT;
		r = vhfs_know_more(req, at, id);
	} while (r == -EEXIST);
	return r;
}

/**
 * vhfs_node_again - the guest is told of a node it knows
 * @req: that tells it
 * @node: held
 */
int vhfs_node_again(struct vhfs_req *req, struct vhfs_node *node)
{
	struct dentry *old;

	return vhfs_count_lookup(node, node->inode, NULL, &old) ? 0 : -ESTALE;
}

/* Returns true if the guest knows of the node still. */
static bool vhfs_count_down(struct vhfs_node *node, u64 count)
{
	bool left;

	spin_lock(&node->lock);
	left = count < node->lookups;
	if (left)
		WRITE_ONCE(node->lookups, node->lookups - count);
	spin_unlock(&node->lock);
	return left;
}

/* Under table->lock. */
static void vhfs_node_erase(struct vhfs_table *table, struct vhfs_node *node)
{
	xa_erase(&table->nodes, node->id);
	if (node->dentry)
		vhfs_node_unhash(table, node);
	else
		vhfs_fid_remove(table, node);
	atomic_dec(&table->nr_nodes);
}

/* Out of both indices, if the guest knows it no more.  Under RCU. */
static bool vhfs_node_remove(struct vhfs_node *node, u64 count)
{
	struct vhfs_table *table = &node->ex->table;
	bool gone = false;

	spin_lock(&table->lock);
	spin_lock(&node->lock);
	/* Not if it was told of in between, or removed by another FORGET. */
	if (node->lookups > count) {
		WRITE_ONCE(node->lookups, node->lookups - count);
	} else if (node->lookups) {
		WRITE_ONCE(node->lookups, 0);
		gone = true;
	}
	spin_unlock(&node->lock);
	if (gone)
		vhfs_node_erase(table, node);
	spin_unlock(&table->lock);
	return gone;
}

/* Ids and counts are the guest's word: those that cannot be are ignored. */
static void vhfs_forget_one(struct vhfs_export *ex, u64 id, u64 count,
			    bool may_sleep)
{
	struct vhfs_node *node;
	bool gone = false;

	if (id == FUSE_ROOT_ID || !count)
		return;
	rcu_read_lock();
	node = vhfs_find_id(&ex->table.nodes, id);
	if (node && !vhfs_count_down(node, count))
		gone = vhfs_node_remove(node, count);
	rcu_read_unlock();
	if (gone)
		vhfs_node_put(node, may_sleep);
}

/**
 * vhfs_node_unknow - the guest will not be told, after all
 * @req: that called vhfs_node_know()
 * @id: from there
 */
void vhfs_node_unknow(struct vhfs_req *req, u64 id)
{
	vhfs_forget_one(req->ex, id, 1, req->may_sleep && !req->hot);
}

int vhfs_forget(struct vhfs_req *req)
{
	const struct fuse_forget_in *arg = vhfs_args(req, struct fuse_forget_in);

	vhfs_forget_one(req->ex, req->in.nodeid, arg->nlookup, req->may_sleep);
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
		vhfs_forget_one(req->ex, one[i].nodeid, one[i].nlookup,
				req->may_sleep);
	return 0;
}

static int vhfs_add_root(struct vhfs_export *ex)
{
	const struct vhfs_place at = { .mount = ex->top,
				       .dentry = ex->root.dentry };
	struct vhfs_node *root;
	int r;

	root = vhfs_node_new(ex, &at);
	if (!root)
		return -ENOMEM;
	root->id = FUSE_ROOT_ID;
	r = xa_err(xa_store(&ex->table.nodes, root->id, root, GFP_KERNEL));
	if (r)
		goto free;
	r = rhashtable_insert_fast(&ex->table.by_inode, &root->hash,
				   vhfs_by_inode);
	if (r)
		goto erase;
	ex->root_node = root;
	return 0;
erase:
	xa_erase(&ex->table.nodes, root->id);
free:
	vhfs_node_free(root);
	return r;
}

/**
 * vhfs_table_init - no nodes but the root, no handles
 * @ex: its root is set
 */
int vhfs_table_init(struct vhfs_export *ex)
{
	struct vhfs_table *table = &ex->table;
	int r;

	spin_lock_init(&table->lock);
	xa_init(&table->nodes);
	xa_init_flags(&table->handles, XA_FLAGS_ALLOC1);
	table->next_node = FUSE_ROOT_ID + 1;
	r = rhashtable_init(&table->by_inode, &vhfs_by_inode);
	if (r)
		return r;
	r = vhfs_swap_init(table);
	if (r)
		goto by_inode;
	r = vhfs_add_root(ex);
	if (r)
		goto swap;
	return 0;
swap:
	vhfs_swap_destroy(table);
by_inode:
	rhashtable_destroy(&table->by_inode);
	return r;
}

/**
 * vhfs_table_clear - the guest knows nothing any more, but the root
 * @ex: requests may be running; those of before add nothing after this
 */
void vhfs_table_clear(struct vhfs_export *ex)
{
	struct vhfs_table *table = &ex->table;
	struct vhfs_node *node;
	unsigned long id;

	spin_lock(&table->lock);
	WRITE_ONCE(table->session, table->session + 1);
	spin_unlock(&table->lock);
	vhfs_handles_clear(ex);
	xa_for_each(&table->nodes, id, node) {
		vhfs_forget_one(ex, id, U64_MAX, true);
		cond_resched();
	}
}

/**
 * vhfs_table_destroy - the end of vhfs_table_init()
 * @ex: cleared, without requests
 */
void vhfs_table_destroy(struct vhfs_export *ex)
{
	struct vhfs_table *table = &ex->table;

	rhashtable_remove_fast(&table->by_inode, &ex->root_node->hash,
			       vhfs_by_inode);
	xa_erase(&table->nodes, FUSE_ROOT_ID);
	vhfs_node_free(ex->root_node);
	vhfs_swap_destroy(table);
	rhashtable_destroy(&table->by_inode);
	xa_destroy(&table->nodes);
	xa_destroy(&table->handles);
}
