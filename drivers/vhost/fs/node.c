// SPDX-License-Identifier: GPL-2.0
/*
 * Nodes: the inodes that a guest knows.  The guest names a node by a number.
 *
 * Two names of one inode in one mount are one node.  Otherwise the guest's page cache would hold
 * the file twice.  A node counts how often the guest was told of it, and goes away when the guest's
 * FORGETs have counted that down; a guest cannot count down further.
 *
 * A node pins a dentry, which is one of the inode's names.  If that name was removed and the guest
 * looks up another one, the node takes the other one.  Beyond a cap nodes are swapped, and pin
 * nothing: the head of swap.c has the rule.
 */
#include <linux/dcache.h>
#include <linux/hash.h>
#include <linux/slab.h>

#include "fs.h"

/* The key by which a node is found.  It is also a part of struct vhfs_node. */
struct vhfs_key {
	struct inode *inode;
	struct vhfs_mount *mount;
};

static_assert(offsetof(struct vhfs_node, mount) ==
	      offsetof(struct vhfs_node, inode) + offsetof(struct vhfs_key, mount));

/* A guest can choose neither of the two addresses, so they do not need jhash(). */
static u32 vhfs_key_hash(const void *data, u32 len, u32 seed)
{
	const struct vhfs_key *key = data;

	return hash_64(((u64)(uintptr_t)key->inode ^ seed) * GOLDEN_RATIO_64 ^
		       (uintptr_t)key->mount, 32);
}

/* Returns 0 if the node has the key. */
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
	.min_size	= VHFS_MIN_BUCKETS,
	.automatic_shrinking = true,
};

static bool vhfs_is_root(const struct vhfs_node *node)
{
	return node->id.nr == FUSE_ROOT_ID;
}

static void vhfs_node_free(struct vhfs_node *node)
{
	dput(node->dentry);
	vhfs_fid_free(node);
	vhfs_mount_put(node->mount);
	kfree_rcu(node, rcu);
}

/**
 * vhfs_reap_nodes - free the nodes whose last reference the poller dropped
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
 * vhfs_node_put - drop a reference to a node
 * @node: the node, or NULL
 * @may_sleep: free the node here if this was the last reference; otherwise the export's reaper
 *	does, because the node may hold the last reference to its inode
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

/* The caller holds node->lock.  Most often the bit is set already, and then this writes nothing. */
static void vhfs_node_used(struct vhfs_node *node)
{
	if (!node->used)
		node->used = true;
}

static __always_inline bool vhfs_node_hold_for(struct vhfs_node *node, bool open)
{
	bool there;

	spin_lock(&node->lock);
	/* A node without lookups is about to be freed. */
	there = node->lookups;
	if (there) {
		node->refs++;
		node->opens += open;
	}
	vhfs_node_used(node);
	spin_unlock(&node->lock);
	return there;
}

/**
 * vhfs_node_hold - take a reference to a node that was found in a table
 * @node: the node; the caller has been under RCU since it found it
 *
 * Return: false if the node is about to be freed; otherwise the caller puts it.
 */
bool vhfs_node_hold(struct vhfs_node *node)
{
	return vhfs_node_hold_for(node, false);
}

/* The caller is under RCU. */
static struct vhfs_node *vhfs_node_by_id(struct vhfs_export *ex, u64 nr)
{
	struct vhfs_id *id = vhfs_id_find(&ex->table.nodes, nr);

	return id ? container_of(id, struct vhfs_node, id) : NULL;
}

/* With @open, the caller holds the node for an open file. */
static __always_inline struct vhfs_node *vhfs_node_find(struct vhfs_export *ex, u64 id, bool open)
{
	struct vhfs_node *node;

	rcu_read_lock();
	node = vhfs_node_by_id(ex, id);
	if (node && !vhfs_node_hold_for(node, open))
		node = NULL;
	rcu_read_unlock();
	return node;
}

/**
 * vhfs_node_get - find the node that a guest names
 * @ex: the export
 * @id: the node's id, from the guest
 *
 * Return: the node, which the caller puts, or NULL if no node has that id.
 */
struct vhfs_node *vhfs_node_get(struct vhfs_export *ex, u64 id)
{
	return vhfs_node_find(ex, id, false);
}

/**
 * vhfs_is_deep - whether a node is a long way below the root of its mount
 * @node: the node, held
 *
 * A guest can make directories of any depth.  The poller's thread does not go all the way up,
 * because other guests wait for it.  If a rename moves one of the directories meanwhile, any answer
 * will do.
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
 * Check a node that is a long way below the root.  If is_subdir() meets a rename, it holds
 * rename_lock all the way up, and meanwhile every task of the host that renames or checks spins.
 * So one worker of an export climbs at a time, and its others sleep.  Exports share no mutex here,
 * because the worker that holds it may be out of its owner's CPU quota.  So an owner of many
 * exports can have as many workers take turns at rename_lock, as tasks that call getcwd() can.
 */
static int vhfs_node_climb(const struct vhfs_req *req, struct vhfs_node *node, unsigned int seq)
{
	struct mutex *climb = &req->ex->climb_lock;
	int r;

	if (!req->may_sleep || req->hot)
		return VHFS_PUNT;
	mutex_lock(climb);
	r = vhfs_node_climbed(node, seq);
	mutex_unlock(climb);
	return r;
}

/**
 * vhfs_node_is_beneath - whether a node was found beneath the root, and nothing has moved since
 * @node: the node; it is not freed while this runs, but its dentry may change
 *
 * Return: false if vhfs_node_check() has to look.
 */
bool vhfs_node_is_beneath(const struct vhfs_node *node)
{
	return READ_ONCE(node->seq) == read_seqbegin(&rename_lock) &&
	       vhfs_mount_is_reached(node->mount);
}

/**
 * vhfs_node_check - check that a node is beneath the root of the export
 * @req: the request that names the node, and has done nothing yet
 * @node: the node, held
 *
 * A rename between directories changes the sequence of rename_lock.  So a node that was found
 * beneath the root at one value of the sequence is still there while the value is the same.  The
 * root of a submount has to be in its place, too.
 *
 * Return: 0, -ESTALE if the node or its mount was moved away, or VHFS_PUNT.  The poller's thread
 * gets VHFS_PUNT if the node is a long way below the root, because other guests wait for that
 * thread.
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
 * vhfs_node_use - make a node ready for an operation that names it
 * @req: the request that names the node, and has done nothing yet
 * @node: the node, held
 *
 * Each node goes through this, or through vhfs_check_node(), before an operation reads its dentry
 * or its inode.
 *
 * Return: 0, an error, or VHFS_PUNT if a worker has to bring the node back or to check it.
 */
int vhfs_node_use(struct vhfs_req *req, struct vhfs_node *node)
{
	int r = vhfs_is_live(node) ? 0 : vhfs_bring_back(req, node);

	return r ?: vhfs_node_check(req, node);
}

/**
 * vhfs_node_opened - count an open file of a node
 * @ex: the export
 * @id: the id of the node
 * @dentry: the file's dentry
 *
 * Return: the node, for vhfs_node_closed(), or NULL if the guest has forgotten it already.
 */
struct vhfs_node *vhfs_node_opened(struct vhfs_export *ex, u64 id, struct dentry *dentry)
{
	struct vhfs_node *node = vhfs_node_find(ex, id, true);

	if (!node)
		return NULL;
	/*
	 * The node may have been swapped since the request found it.  If vhfs_swap_in() fails, a
	 * later request brings the node back.
	 */
	if (!vhfs_is_live(node))
		vhfs_swap_in(node, dentry);
	return node;
}

/**
 * vhfs_node_closed - undo vhfs_node_opened()
 * @node: the node, or NULL
 *
 * The caller may sleep.
 */
void vhfs_node_closed(struct vhfs_node *node)
{
	if (!node)
		return;
	spin_lock(&node->lock);
	node->opens--;
	/* READs by vhfs_handle_get_known() have not marked the node as used. */
	vhfs_node_used(node);
	spin_unlock(&node->lock);
	/* The swapper may be able to swap this node now, so it need not wait until vain_until. */
	if (vhfs_in_vain(node->ex))
		WRITE_ONCE(node->ex->vain_until, jiffies);
	vhfs_node_put(node, true);
}

/*
 * Whether @dentry is to replace the node's dentry.
 *
 * Requests use node->dentry without a lock.  So it may be replaced only while no request has a
 * reference: there are those of the table and of open files, and node->lock keeps requests from
 * taking others.  A node that is deep keeps its dentry.  The poller may wait for node->lock, and to
 * go up from there would take long.
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
 * Count that the guest is told of a node once more.  Returns false if the node is about to be
 * freed, or if it was swapped and so does not have @inode.
 *
 * If @dentry replaces the node's dentry, @old is set to the latter, and to NULL otherwise.  The
 * caller puts it later, because callers are under RCU here, and dput() may sleep.
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
	/*
	 * The poller replaces no dentry, because dput() of the old one may free its directory, and
	 * sleep.
	 */
	found = node && vhfs_count_lookup(node, key.inode,
					  req->may_sleep ? at->dentry : NULL, &old);
	if (found)
		*id = node->id.nr;
	rcu_read_unlock();
	/* The caller's dentry still holds the inode. */
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
 * vhfs_node_hash - make a node live, so that it is found by its inode
 * @table: the table; its lock is held
 * @node: the node, with its inode, in no hash table
 *
 * Return: 0, or an error: -EEXIST if the inode has a live node.
 */
int vhfs_node_hash(struct vhfs_table *table, struct vhfs_node *node)
{
	int r = rhashtable_lookup_insert_fast(&table->by_inode, &node->hash, vhfs_by_inode);

	/* A mount keeps its root in memory, so nothing is gained if that is swapped. */
	if (!r && node->mount->can_swap && !vhfs_is_mount_root(node->mount, node->dentry))
		vhfs_swap_list(table, node);
	return r;
}

/**
 * vhfs_node_unhash - undo vhfs_node_hash()
 * @table: the table; its lock is held
 * @node: the node, live until now
 */
void vhfs_node_unhash(struct vhfs_table *table, struct vhfs_node *node)
{
	rhashtable_remove_fast(&table->by_inode, &node->hash, vhfs_by_inode);
	vhfs_swap_unlist(table, node);
}

/* The caller holds table->lock. */
static int vhfs_node_hash_both(struct vhfs_table *table, struct vhfs_node *node)
{
	int r = vhfs_node_hash(table, node);

	if (r)
		return r;
	r = vhfs_id_add(&table->nodes, &node->id);
	if (!r)
		return 0;
	/* Another request may have found the node by its inode, and must not give it a dentry. */
	spin_lock(&node->lock);
	WRITE_ONCE(node->lookups, 0);
	spin_unlock(&node->lock);
	vhfs_node_unhash(table, node);
	return r;
}

/*
 * Add a node to both indices.  Returns -EEXIST if another request was faster.  @id is written
 * before, because the guest may guess the id of a node in the table, and forget the node.
 */
static int vhfs_node_add(struct vhfs_req *req, struct vhfs_node *node,
			 const struct vhfs_fid_key *key, u64 *id)
{
	struct vhfs_table *table = &node->ex->table;
	int r = -EIO;

	spin_lock(&table->lock);
	node->id.nr = table->next_node++;
	*id = node->id.nr;
	if (table->session == req->session)
		r = vhfs_is_swapped(table, key) ? -EEXIST : vhfs_node_hash_both(table, node);
	spin_unlock(&table->lock);
	return r;
}

static int vhfs_know_new(struct vhfs_req *req, const struct vhfs_place *at,
			 const struct vhfs_fid_key *key, u64 *id)
{
	struct vhfs_node *node = vhfs_node_new(req->ex, at);
	int r;

	if (!node)
		return -ENOMEM;
	r = vhfs_node_add(req, node, key, id);
	/*
	 * The caller holds the dentry, too, so this does not drop its last reference, unless
	 * another request has given the node a dentry meanwhile.
	 */
	if (r)
		vhfs_node_put(node, !req->hot);
	return r;
}

/* Count one more node.  Returns false if the guest has as many as it may. */
static bool vhfs_charge_node(struct vhfs_export *ex)
{
	if (atomic_inc_return(&ex->table.nr_nodes) <= ex->cfg.max_nodes)
		return true;
	atomic_dec(&ex->table.nr_nodes);
	atomic64_inc(&ex->refused);
	return false;
}

/**
 * vhfs_may_make - whether there is room for a new node
 * @req: the request that would make a node; its operation has VHFS_OP_ROOM
 *
 * An operation asks before it makes a file, so no file is left behind that the guest cannot be told
 * of.
 */
bool vhfs_may_make(struct vhfs_req *req)
{
	struct vhfs_export *ex = req->ex;

	if (!req->no_room && atomic_read(&ex->table.nr_nodes) < ex->cfg.max_nodes)
		return true;
	atomic64_inc(&ex->refused);
	return false;
}

/*
 * Make the swapped node of an inode live, and tell the guest of it.  Returns -ENOENT if there is no
 * such node.
 */
static int vhfs_know_swapped(struct vhfs_req *req, const struct vhfs_place *at,
			     const struct vhfs_fid_key *key, u64 *id)
{
	struct vhfs_node *node = vhfs_find_swapped_get(&req->ex->table, key);
	struct dentry *old;
	int r;

	if (!node)
		return -ENOENT;
	r = vhfs_swap_in(node, at->dentry);
	/* The reference keeps the node live, but a FORGET may have come first. */
	if (!r && !vhfs_count_lookup(node, d_inode(at->dentry), NULL, &old))
		r = -EEXIST;
	*id = node->id.nr;
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
 * Tell the guest of a swapped node, because no more nodes may be live.  When there is room again, a
 * request that names the node finds the inode at @at.  CREATE needs a live node, because it opens
 * the file at once, so operations with VHFS_OP_ROOM fail.
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
	*id = node->id.nr;
	vhfs_node_put(node, !req->hot);
	return r;
}

/* Operations that may make a file have asked before they took a lock (vhfs_ask_for_room()). */
static int vhfs_room_to_know(struct vhfs_req *req)
{
	if (req->op->flags & VHFS_OP_ROOM)
		return req->no_room ? -ENFILE : 0;
	return vhfs_find_room(req);
}

/*
 * Tell the guest of an inode for which no live node was found.  Returns -EEXIST if it has one by
 * now.
 */
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
 * vhfs_node_know - tell the guest of an inode
 * @req: the request whose reply tells of it
 * @at: a name of the inode, positive, held by the caller
 * @id: set to the node's id
 *
 * The poller's round neither makes a node nor brings one back, because the memory for it would not
 * be charged to the owner.  A worker does.
 *
 * Return: 0, an error, or VHFS_PUNT: in the poller's round if the node is new or was swapped, and
 * in the poller's thread after the round if the swapper has fallen behind.
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
 * vhfs_node_again - tell the guest once more of a node that it knows
 * @req: the request whose reply tells of it
 * @node: the node, held
 */
int vhfs_node_again(struct vhfs_req *req, struct vhfs_node *node)
{
	struct dentry *old;

	return vhfs_count_lookup(node, node->inode, NULL, &old) ? 0 : -ESTALE;
}

/* Take @count off a node's lookups, if some are left after that.  Returns whether it did. */
static bool vhfs_lookups_left(struct vhfs_node *node, u64 count)
{
	bool left;

	spin_lock(&node->lock);
	left = count < node->lookups;
	if (left)
		WRITE_ONCE(node->lookups, node->lookups - count);
	spin_unlock(&node->lock);
	return left;
}

/* The caller holds table->lock. */
static void vhfs_node_erase(struct vhfs_table *table, struct vhfs_node *node)
{
	vhfs_id_remove(&table->nodes, &node->id);
	if (node->dentry)
		vhfs_node_unhash(table, node);
	else
		vhfs_fid_remove(table, node);
	atomic_dec(&table->nr_nodes);
}

/*
 * Take @count off a node's lookups, and remove the node from both indices if none is left.  The
 * caller is under RCU, or holds the node.
 */
static bool vhfs_node_remove(struct vhfs_node *node, u64 count)
{
	struct vhfs_table *table = &node->ex->table;
	bool gone = false;

	spin_lock(&table->lock);
	spin_lock(&node->lock);
	/* The guest may have been told of the node since, or another FORGET may have removed it. */
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

/**
 * vhfs_node_may_free - whether FORGET may free a removed file or directory
 * @ex: the export
 * @id: the node's id, from the guest
 * @count: how many lookups the guest forgets
 *
 * The caller holds nothing, so the answer may be out of date.  To take a reference costs more, and
 * most files that a guest forgets still have a name.
 */
bool vhfs_node_may_free(struct vhfs_export *ex, u64 id, u64 count)
{
	const struct vhfs_node *node;
	const struct inode *inode;
	bool may;

	rcu_read_lock();
	node = vhfs_node_by_id(ex, id);
	inode = node ? READ_ONCE(node->inode) : NULL;
	may = inode && !READ_ONCE(inode->i_nlink) && READ_ONCE(node->lookups) <= count;
	rcu_read_unlock();
	return may;
}

/**
 * vhfs_node_count_down - take lookups off a node, and remove it from both indices if none is left
 * @node: the node; the caller is under RCU, or holds the node
 * @count: how many lookups the guest forgets; the guest may send any number
 *
 * Return: whether the node was removed; then the caller puts the reference of the indices.
 */
bool vhfs_node_count_down(struct vhfs_node *node, u64 count)
{
	return !vhfs_lookups_left(node, count) && vhfs_node_remove(node, count);
}

/**
 * vhfs_node_forget - let the guest forget a node
 * @ex: the export
 * @id: the node's id; the guest may send any, and one that is not known is ignored
 * @count: how many lookups the guest forgets; the guest may send any number
 * @may_sleep: whether this thread may free the node; otherwise the reaper does it
 */
void vhfs_node_forget(struct vhfs_export *ex, u64 id, u64 count, bool may_sleep)
{
	struct vhfs_node *node;
	bool gone = false;

	if (id == FUSE_ROOT_ID || !count)
		return;
	rcu_read_lock();
	node = vhfs_node_by_id(ex, id);
	if (node)
		gone = vhfs_node_count_down(node, count);
	rcu_read_unlock();
	if (gone)
		vhfs_node_put(node, may_sleep);
}

/**
 * vhfs_node_unknow - undo vhfs_node_know(), because the guest will not be told
 * @req: the request that called vhfs_node_know()
 * @id: the id from there
 */
void vhfs_node_unknow(struct vhfs_req *req, u64 id)
{
	vhfs_node_forget(req->ex, id, 1, req->may_sleep && !req->hot);
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
	root->id.nr = FUSE_ROOT_ID;
	r = vhfs_id_add(&ex->table.nodes, &root->id);
	if (r)
		goto free;
	r = rhashtable_insert_fast(&ex->table.by_inode, &root->hash,
				   vhfs_by_inode);
	if (r)
		goto erase;
	ex->root_node = root;
	return 0;
erase:
	vhfs_id_remove(&ex->table.nodes, &root->id);
free:
	vhfs_node_free(root);
	return r;
}

/**
 * vhfs_table_init - set up the table of an export, with the root as its only node
 * @ex: the export; its root is set
 */
int vhfs_table_init(struct vhfs_export *ex)
{
	struct vhfs_table *table = &ex->table;
	int r;

	spin_lock_init(&table->lock);
	table->next_node = FUSE_ROOT_ID + 1;
	r = vhfs_ids_init(&table->nodes);
	if (r)
		return r;
	r = vhfs_ids_init(&table->handles);
	if (r)
		goto nodes;
	r = rhashtable_init(&table->by_inode, &vhfs_by_inode);
	if (r)
		goto handles;
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
handles:
	rhashtable_destroy(&table->handles);
nodes:
	rhashtable_destroy(&table->nodes);
	return r;
}

static void vhfs_node_clear(struct vhfs_export *ex, u64 id)
{
	vhfs_node_forget(ex, id, U64_MAX, true);
}

/**
 * vhfs_table_clear - forget all handles, and all nodes but the root
 * @ex: the export
 *
 * Requests may be running.  Those that were decoded before add nothing to the table after this.
 */
void vhfs_table_clear(struct vhfs_export *ex)
{
	struct vhfs_table *table = &ex->table;

	spin_lock(&table->lock);
	WRITE_ONCE(table->session, table->session + 1);
	spin_unlock(&table->lock);
	/* Pairs with the barrier in vhfs_handle_set(). */
	smp_mb();
	vhfs_handles_clear(ex);
	vhfs_ids_clear(ex, &table->nodes, 1, vhfs_node_clear);
}

/**
 * vhfs_table_destroy - undo vhfs_table_init()
 * @ex: the export, cleared, without requests
 */
void vhfs_table_destroy(struct vhfs_export *ex)
{
	struct vhfs_table *table = &ex->table;

	rhashtable_remove_fast(&table->by_inode, &ex->root_node->hash,
			       vhfs_by_inode);
	vhfs_id_remove(&table->nodes, &ex->root_node->id);
	vhfs_node_free(ex->root_node);
	vhfs_swap_destroy(table);
	rhashtable_destroy(&table->by_inode);
	rhashtable_destroy(&table->nodes);
	rhashtable_destroy(&table->handles);
}
