// SPDX-License-Identifier: GPL-2.0
/*
 * Nodes beyond a cap hold a file handle in place of a dentry.
 *
 * A dentry pins its inode.  A guest that walks a big tree and forgets nothing would pin all of
 * it in the host's memory, where no shrinker can take it back.  So once max_dentries nodes hold
 * one, a work, the swapper, swaps some of them.  A request that names a swapped node brings the
 * node back, in a worker.  A request that finds a name of its inode brings it back by that name.
 *
 * Which ones.  A guest that goes round more files than the cap again and again would find each of
 * them swapped, if the one went that was not used for the longest time.  So most live nodes are
 * settled, up to a sixteenth below the cap.  A node that is live anew is fresh, and fresh nodes go
 * in the order in which they came.  For each fresh one the swapper looks at one settled node,
 * like the hand of a clock: if it was not used since the hand last came by, it goes instead, and
 * the next node settles in its place.  So files that are used stay, and those that are used no
 * more make room in two rounds of the hand.
 *
 * The rule.  A node is live, or it is swapped:
 *
 * - A live node has a dentry and an inode, and is in table->by_inode.
 * - A swapped node has a struct vhfs_fid, which is in table->by_fid.  It has no pointer to the
 *   inode: nothing pins the inode any more, and another inode may get its address.  It is found
 *   by the name that the file system itself has for the inode: mostly number and generation.
 * - It goes from one to the other under table->lock and node->lock, both.  Either of them is
 *   enough to look.
 * - The swapper swaps only nodes without references but the table's and its own.
 *   So a request that holds a node, and has seen it live, uses its dentry and inode without a
 *   lock until it puts the node; so does an open file.
 * - One inode is one node.  A request that adds a node looks into by_fid under table->lock
 *   (vhfs_is_swapped()), because the node may have been swapped since the request found it in
 *   neither table.
 * - A FORGET takes the node out of the table that it is in.  A request that holds it may bring
 *   it back all the same, and then no table has it.
 *
 * Coming back.  A file handle leads to an inode wherever that is, and a guest must reach nothing
 * outside of its directory.  So a node comes back only with a dentry that is connected, still
 * there, and beneath the root of the node's mount; reach.c finds one.  If it finds none, the node
 * is ESTALE: the file may exist, outside of the root, or under a name that the host has not looked
 * up since it was moved.  A guest that looks that name up has its node back.  vhfs_node_check()
 * comes after this, as for any node, so a rename in between is no way out.
 *
 * A guest gives no file handles and gets none.
 */
#include <linux/exportfs.h>
#include <linux/magic.h>
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "fs.h"

/* The swapper gives the lock back after it has looked at so many pairs of nodes. */
#define VHFS_SWAP_BATCH	8

/* After it has found nothing to swap it does not begin again for so long. */
#define VHFS_VAIN_TIME	(HZ / 10)

/*
 * struct vhfs_fid - a file handle, and where its inode was last seen
 * @node: has it as node->fid
 * @type: @words: of the file handle that is the key: it names the inode alone
 * @dir_type: @dir_words: of that of the directory
 * @name_len: of the name there
 * @is_dir: the inode is a directory
 * @lost: a search for it has failed; under node->lock
 * @raw: both handles and the name, one behind the other
 */
struct vhfs_fid {
	struct rhash_head hash;
	struct vhfs_node *node;
	struct rcu_head rcu;
	u8 type;
	u8 words;
	u8 dir_type;
	u8 dir_words;
	u8 name_len;
	bool is_dir;
	bool lost;
	u32 raw[];
};

static u32 vhfs_hash_name(const struct vhfs_mount *mount, const u32 *raw, u8 words, u32 seed)
{
	return jhash2(raw, words, seed ^ hash_ptr(mount, 32));
}

static u32 vhfs_hash_key(const void *data, u32 len, u32 seed)
{
	const struct vhfs_fid_key *key = data;

	return vhfs_hash_name(key->mount, key->raw, key->words, seed);
}

static u32 vhfs_hash_fid(const void *data, u32 len, u32 seed)
{
	const struct vhfs_fid *fid = data;

	return vhfs_hash_name(fid->node->mount, fid->raw, fid->words, seed);
}

static int vhfs_cmp_fid(struct rhashtable_compare_arg *arg, const void *obj)
{
	const struct vhfs_fid_key *key = arg->key;
	const struct vhfs_fid *fid = obj;

	return fid->node->mount != key->mount || fid->type != key->type ||
	       fid->words != key->words ||
	       memcmp(fid->raw, key->raw, key->words * sizeof(u32));
}

static const struct rhashtable_params vhfs_by_fid = {
	.head_offset	= offsetof(struct vhfs_fid, hash),
	.hashfn		= vhfs_hash_key,
	.obj_hashfn	= vhfs_hash_fid,
	.obj_cmpfn	= vhfs_cmp_fid,
	.automatic_shrinking = true,
};

/**
 * vhfs_can_swap - can nodes of a mount be swapped?
 * @ex: the export
 * @mnt: the mount
 *
 * The file system has to find an inode again that it has dropped from memory, and the directories
 * above it, and its file handle must mean one inode for ever.  A guest can have it asked for an
 * inode that is gone, which must do no harm.  So these are the ones that were read.  btrfs has one
 * handle for all nested subvolumes of a snapshot.  f2fs gives the number of a removed inode to
 * blocks of other kinds, too: it takes such a block for a corrupted inode, has fsck look for it,
 * and logs that without a limit.
 */
bool vhfs_can_swap(const struct vhfs_export *ex, const struct vfsmount *mnt)
{
	const struct super_block *sb = mnt->mnt_sb;
	const struct export_operations *op = sb->s_export_op;

	if (!exportfs_can_decode_fh(op) || !op->get_parent)
		return false;
	switch (sb->s_magic) {
	/* It drops no inode, so the host gains nothing: only if the owner asked for a limit. */
	case TMPFS_MAGIC:
		return ex->strict;
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

/* A rename in between gives a place that nothing is at.  It costs the node a search. */
static bool vhfs_encode_place(struct vhfs_fid_key *dir, struct name_snapshot *name,
			      struct vhfs_mount *mount, struct dentry *dentry)
{
	struct dentry *parent = dget_parent(dentry);
	bool r = vhfs_encode(dir, mount, d_inode(parent));

	dput(parent);
	if (r)
		take_dentry_name_snapshot(name, dentry);
	return r;
}

static struct vhfs_fid *vhfs_fid_alloc(const struct vhfs_fid_key *key,
				       const struct vhfs_fid_key *dir, const struct qstr *name)
{
	u32 words = key->words + dir->words;
	struct vhfs_fid *fid;

	/* Nothing fails if this does, so it is not worth the owner's last memory. */
	fid = kmalloc(struct_size(fid, raw, words) + name->len,
		      GFP_KERNEL_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN);
	if (!fid)
		return NULL;
	fid->type = key->type;
	fid->words = key->words;
	fid->dir_type = dir->type;
	fid->dir_words = dir->words;
	fid->name_len = name->len;
	fid->lost = false;
	memcpy(fid->raw, key->raw, key->words * sizeof(u32));
	memcpy(fid->raw + key->words, dir->raw, dir->words * sizeof(u32));
	memcpy(fid->raw + words, name->name, name->len);
	return fid;
}

/* Of @dentry, which the caller holds, a name of the inode of @node. */
static struct vhfs_fid *vhfs_fid_new(struct vhfs_node *node, struct dentry *dentry,
				     struct vhfs_fid_key *key)
{
	struct name_snapshot name;
	struct vhfs_fid_key dir;
	struct vhfs_fid *fid;

	if (!vhfs_encode(key, node->mount, d_inode(dentry)) ||
	    !vhfs_encode_place(&dir, &name, node->mount, dentry))
		return ERR_PTR(-EOPNOTSUPP);
	fid = vhfs_fid_alloc(key, &dir, &name.name);
	release_dentry_name_snapshot(&name);
	if (!fid)
		return ERR_PTR(-ENOMEM);
	fid->node = node;
	fid->is_dir = d_is_dir(dentry);
	return fid;
}

/* A removed file has no name by which it could come back. */
static bool vhfs_is_removed(const struct vhfs_node *node)
{
	return d_unhashed(node->dentry) || IS_DEADDIR(node->inode) || !node->inode->i_nlink;
}

/* Under both locks.  Returns the dentry, for the caller to put, or an error. */
static struct dentry *vhfs_make_swapped(struct vhfs_table *table, struct vhfs_node *node,
					struct vhfs_fid *fid, const struct vhfs_fid_key *key)
{
	struct dentry *dentry = node->dentry;
	int r;

	/* Two inodes of one name would be a fault of the file system. */
	r = rhashtable_lookup_insert_key(&table->by_fid, key, &fid->hash, vhfs_by_fid);
	if (r)
		return ERR_PTR(r);
	vhfs_node_unhash(table, node);
	node->fid = fid;
	WRITE_ONCE(node->inode, NULL);
	WRITE_ONCE(node->dentry, NULL);
	WRITE_ONCE(table->nr_swapped, table->nr_swapped + 1);
	table->swapped_out++;
	return dentry;
}

static u32 vhfs_max_settled(const struct vhfs_export *ex)
{
	return ex->cfg.max_dentries - max(ex->cfg.max_dentries / 16, 1U);
}

/**
 * vhfs_swap_list - the swapper may come by a node
 * @table: its lock is held
 * @node: live, and in no list
 */
void vhfs_swap_list(struct vhfs_table *table, struct vhfs_node *node)
{
	node->settled = table->nr_settled < vhfs_max_settled(node->ex);
	table->nr_settled += node->settled;
	WRITE_ONCE(table->nr_listed, table->nr_listed + 1);
	list_add_tail(&node->live, node->settled ? &table->settled : &table->fresh);
}

/**
 * vhfs_swap_unlist - the end of vhfs_swap_list(), if there was one
 * @table: its lock is held
 * @node: that is swapped, or goes, or stays live for good
 */
void vhfs_swap_unlist(struct vhfs_table *table, struct vhfs_node *node)
{
	if (list_empty(&node->live))
		return;
	list_del_init(&node->live);
	table->nr_settled -= node->settled;
	WRITE_ONCE(table->nr_listed, table->nr_listed - 1);
}

/* It stays live, and the swapper does not come by again. */
static int vhfs_keep(struct vhfs_table *table, struct vhfs_node *node)
{
	spin_lock(&table->lock);
	vhfs_swap_unlist(table, node);
	spin_unlock(&table->lock);
	return 0;
}

/* @node: held by the swapper.  Returns how many went, 0 or 1, or an error that is none of it. */
static int vhfs_swap_out(struct vhfs_node *node)
{
	struct vhfs_table *table = &node->ex->table;
	struct dentry *dentry = NULL;
	struct vhfs_fid_key key;
	struct vhfs_fid *fid;

	if (vhfs_is_removed(node))
		return vhfs_keep(table, node);
	fid = vhfs_fid_new(node, node->dentry, &key);
	if (fid == ERR_PTR(-EOPNOTSUPP))
		return vhfs_keep(table, node);
	if (IS_ERR(fid))
		return PTR_ERR(fid);
	/* It cannot be found again.  tmpfs hashes an inode when it is asked for the handle. */
	if (inode_unhashed(node->inode)) {
		kfree(fid);
		return vhfs_keep(table, node);
	}
	spin_lock(&table->lock);
	spin_lock(&node->lock);
	/* The table's reference, and the swapper's. */
	if (node->lookups && node->refs == 2)
		dentry = vhfs_make_swapped(table, node, fid, &key);
	spin_unlock(&node->lock);
	spin_unlock(&table->lock);
	if (IS_ERR_OR_NULL(dentry)) {
		kfree(fid);
		return dentry == ERR_PTR(-EEXIST) ? vhfs_keep(table, node) : PTR_ERR(dentry);
	}
	dput(dentry);
	return 1;
}

/* Is the node cold?  Then the swapper holds it.  @chance: not if it was used meanwhile. */
static bool vhfs_hold_cold(struct vhfs_node *node, bool chance)
{
	bool cold;

	spin_lock(&node->lock);
	cold = node->lookups && node->refs == 1 && !(chance && node->used);
	if (cold)
		node->refs++;
	node->used = false;
	spin_unlock(&node->lock);
	return cold;
}

static struct vhfs_node *vhfs_first_cold(struct list_head *list, bool chance)
{
	struct vhfs_node *node = list_first_entry_or_null(list, struct vhfs_node, live);

	if (!node)
		return NULL;
	list_move_tail(&node->live, list);
	return vhfs_hold_cold(node, chance) ? node : NULL;
}

/* Turn the hand.  @looked: how often.  Returns a cold node, held, or NULL. */
static struct vhfs_node *vhfs_turn(struct vhfs_table *table, unsigned long *looked)
{
	struct vhfs_node *cold = NULL;
	unsigned int i;

	spin_lock(&table->lock);
	for (i = 0; i < VHFS_SWAP_BATCH && table->nr_listed && !cold; i++)
		cold = vhfs_first_cold(&table->settled, true) ?:
		       vhfs_first_cold(&table->fresh, false);
	spin_unlock(&table->lock);
	*looked = i;
	return cold;
}

/* While the swapper is at work, a sixteenth more than max_dentries may be live. */
static bool vhfs_is_full(const struct vhfs_export *ex)
{
	return vhfs_nr_counted(ex) >= ex->cfg.max_dentries + ex->cfg.max_dentries / 16;
}

/* It ends some way below the cap, so that it does not run for each request. */
static bool vhfs_has_room(const struct vhfs_export *ex)
{
	return vhfs_nr_counted(ex) < ex->cfg.max_dentries - ex->cfg.max_dentries / 32;
}

/*
 * Returns false if it swapped no node.  After two turns without success, open files and requests
 * use every node that could be swapped.  If memory is short, it gives up sooner.
 */
static bool vhfs_swap_some(struct vhfs_export *ex)
{
	unsigned long in_vain = 0, looked, listed;
	struct vhfs_node *node;
	int r;

	while (!vhfs_has_room(ex)) {
		node = vhfs_turn(&ex->table, &looked);
		r = node ? vhfs_swap_out(node) : 0;
		vhfs_node_put(node, true);
		listed = READ_ONCE(ex->table.nr_listed);
		in_vain = r > 0 ? 0 : in_vain + looked + (r < 0 ? listed / 8 : 0);
		if (!looked || in_vain > 2 * listed)
			return false;
		cond_resched();
	}
	return true;
}

/**
 * vhfs_swapper - swap nodes until there is room
 * @work: of the export
 */
void vhfs_swapper(struct work_struct *work)
{
	struct vhfs_export *ex = container_of(work, struct vhfs_export, swapper);
	struct mem_cgroup *before = set_active_memcg(ex->memcg);

	if (!vhfs_swap_some(ex))
		WRITE_ONCE(ex->vain_until, jiffies + VHFS_VAIN_TIME);
	set_active_memcg(before);
}

/**
 * vhfs_make_room - room for one more live node, where there may be none
 * @req: that wants it, and has done nothing yet
 *
 * A worker waits for the swapper if that has fallen behind.  The caller counts a refusal.
 *
 * Return: 0, VHFS_PUNT, or -ENFILE if the owner's limit is reached.
 */
int vhfs_make_room(struct vhfs_req *req)
{
	struct vhfs_export *ex = req->ex;

	if (!vhfs_in_vain(ex))
		queue_work(ex->wq, &ex->swapper);
	if (!vhfs_is_full(ex))
		return 0;
	if (!req->may_sleep || req->hot)
		return VHFS_PUNT;
	flush_work(&ex->swapper);
	return ex->strict && vhfs_is_full(ex) ? -ENFILE : 0;
}

/* Under both locks.  @old: of the node, for the caller to free. */
static int vhfs_make_live(struct vhfs_table *table, struct vhfs_node *node, struct dentry *dentry,
			  struct vhfs_fid **old)
{
	int r;

	/* First, so that no reader takes the old one for the new inode's. */
	WRITE_ONCE(node->seq, VHFS_SEQ_NEVER);
	WRITE_ONCE(node->inode, d_inode(dentry));
	/* Else it was forgotten, and is in no table. */
	if (node->lookups) {
		r = vhfs_node_hash(table, node);
		if (r) {
			WRITE_ONCE(node->inode, NULL);
			return r == -EEXIST ? -ESTALE : -ENOMEM;
		}
		vhfs_fid_remove(table, node);
	}
	*old = node->fid;
	node->fid = NULL;
	table->swapped_in++;
	/* Pairs with the acquire in vhfs_is_live(). */
	smp_store_release(&node->dentry, dentry);
	return 0;
}

/**
 * vhfs_swap_in - a swapped node is live again
 * @node: held
 * @dentry: of its inode, in its mount, beneath the root; held by the caller
 *
 * Another request may have been faster; its dentry is the node's then.
 */
int vhfs_swap_in(struct vhfs_node *node, struct dentry *dentry)
{
	struct vhfs_table *table = &node->ex->table;
	struct vhfs_fid *old = NULL;
	int r = 0;

	spin_lock(&table->lock);
	spin_lock(&node->lock);
	if (!node->dentry)
		r = vhfs_make_live(table, node, dentry, &old);
	if (old)
		dget(dentry);
	spin_unlock(&node->lock);
	spin_unlock(&table->lock);
	if (old)
		kfree_rcu(old, rcu);
	return r;
}

/**
 * vhfs_copy_way - where a swapped node was last seen
 * @node: held
 * @way: to be filled
 *
 * Returns false if it is live.  It is a copy because the caller sleeps, and a request that is
 * faster frees node->fid.
 */
bool vhfs_copy_way(struct vhfs_node *node, struct vhfs_way *way)
{
	const struct vhfs_fid *fid;

	spin_lock(&node->lock);
	fid = node->fid;
	if (fid) {
		const u32 *dir = fid->raw + fid->words;

		way->key = (struct vhfs_fid_key){ .mount = node->mount, .known = true,
						  .type = fid->type, .words = fid->words };
		way->dir = (struct vhfs_fid_key){ .mount = node->mount, .known = true,
						  .type = fid->dir_type, .words = fid->dir_words };
		way->is_dir = fid->is_dir;
		way->lost = fid->lost;
		way->name.len = fid->name_len;
		memcpy(way->key.raw, fid->raw, fid->words * sizeof(u32));
		memcpy(way->dir.raw, dir, fid->dir_words * sizeof(u32));
		memcpy(way->name.text, dir + fid->dir_words, fid->name_len);
		way->name.text[fid->name_len] = '\0';
	}
	spin_unlock(&node->lock);
	return fid;
}

/* If it was live meanwhile, and is swapped again, that costs it a search that it would have. */
static void vhfs_fid_lose(struct vhfs_node *node)
{
	spin_lock(&node->lock);
	if (node->fid)
		node->fid->lost = true;
	spin_unlock(&node->lock);
}

/**
 * vhfs_bring_back - bring a node back that a request names
 * @req: that does, and has done nothing yet
 * @node: held
 *
 * In a worker only: it may wait for the disk.
 */
int vhfs_bring_back(struct vhfs_req *req, struct vhfs_node *node)
{
	struct dentry *dentry;
	bool lost = false;
	int r;

	if (!req->may_sleep || req->hot)
		return VHFS_PUNT;
	r = vhfs_find_room(req);
	if (r == -ENFILE)
		atomic64_inc(&req->ex->refused);
	if (r)
		return r;
	dentry = vhfs_reach(node, &lost);
	if (lost)
		vhfs_fid_lose(node);
	if (IS_ERR_OR_NULL(dentry))
		return PTR_ERR_OR_ZERO(dentry);
	r = vhfs_swap_in(node, dentry);
	dput(dentry);
	return r;
}

/* Under RCU, or table->lock. */
static struct vhfs_node *vhfs_find_swapped(struct vhfs_table *table,
					   const struct vhfs_fid_key *key)
{
	struct vhfs_fid *fid = rhashtable_lookup(&table->by_fid, key, vhfs_by_fid);

	return fid ? fid->node : NULL;
}

/**
 * vhfs_is_swapped - may a swapped node be of an inode?
 * @table: its lock is held
 * @key: of vhfs_name_inode(); if that was not asked to name it, a node may
 */
bool vhfs_is_swapped(struct vhfs_table *table, const struct vhfs_fid_key *key)
{
	bool is;

	if (!table->nr_swapped || !key->mount->can_swap)
		return false;
	if (!key->known)
		return true;
	rcu_read_lock();
	is = key->words && vhfs_find_swapped(table, key);
	rcu_read_unlock();
	return is;
}

/**
 * vhfs_name_inode - the key of an inode, if any node is swapped
 * @key: to be filled
 * @at: the inode's
 */
void vhfs_name_inode(struct vhfs_fid_key *key, const struct vhfs_place *at)
{
	key->mount = at->mount;
	key->known = false;
	key->words = 0;
	if (READ_ONCE(at->mount->ex->table.nr_swapped) && at->mount->can_swap)
		vhfs_encode(key, at->mount, d_inode(at->dentry));
}

/**
 * vhfs_find_swapped_get - the swapped node of an inode
 * @table: the export's
 * @key: from vhfs_name_inode()
 *
 * Returns NULL if there is none; else it may be live by now.  The caller puts it.
 */
struct vhfs_node *vhfs_find_swapped_get(struct vhfs_table *table, const struct vhfs_fid_key *key)
{
	struct vhfs_node *node;

	if (!key->words)
		return NULL;
	rcu_read_lock();
	node = vhfs_find_swapped(table, key);
	if (node && !vhfs_node_hold(node))
		node = NULL;
	rcu_read_unlock();
	return node;
}

/* Returns the one that is not the node's any more, or never was. */
static struct vhfs_fid *vhfs_replace_fid(struct vhfs_table *table, struct vhfs_node *node,
					 struct vhfs_fid *fid)
{
	struct vhfs_fid *old = fid;

	spin_lock(&table->lock);
	spin_lock(&node->lock);
	/* Without lookups no table has it. */
	if (node->fid && node->lookups &&
	    !rhashtable_replace_fast(&table->by_fid, &node->fid->hash, &fid->hash, vhfs_by_fid)) {
		old = node->fid;
		node->fid = fid;
	}
	spin_unlock(&node->lock);
	spin_unlock(&table->lock);
	return old;
}

/**
 * vhfs_swap_moved - if the node of an inode is swapped, it knows where the inode is now
 * @at: a name of the inode, held by the caller
 *
 * The caller may hold locks of the VFS.
 */
void vhfs_swap_moved(const struct vhfs_place *at)
{
	struct vhfs_table *table = &at->mount->ex->table;
	struct vhfs_fid_key key;
	struct vhfs_node *node;
	struct vhfs_fid *fid;

	vhfs_name_inode(&key, at);
	node = vhfs_find_swapped_get(table, &key);
	if (!node)
		return;
	fid = vhfs_fid_new(node, at->dentry, &key);
	if (!IS_ERR(fid)) {
		fid = vhfs_replace_fid(table, node, fid);
		kfree_rcu(fid, rcu);
	}
	vhfs_node_put(node, false);
}

/**
 * vhfs_fid_remove - a node is not found by its file handle any more
 * @table: its lock is held
 * @node: swapped, and in by_fid
 */
void vhfs_fid_remove(struct vhfs_table *table, struct vhfs_node *node)
{
	rhashtable_remove_fast(&table->by_fid, &node->fid->hash, vhfs_by_fid);
	WRITE_ONCE(table->nr_swapped, table->nr_swapped - 1);
}

/**
 * vhfs_fid_free - the end of a node that was swapped
 * @node: in no table
 */
void vhfs_fid_free(struct vhfs_node *node)
{
	if (node->fid)
		kfree_rcu(node->fid, rcu);
}

/**
 * vhfs_swap_init - no node is swapped
 * @table: the export's
 */
int vhfs_swap_init(struct vhfs_table *table)
{
	INIT_LIST_HEAD(&table->settled);
	INIT_LIST_HEAD(&table->fresh);
	return rhashtable_init(&table->by_fid, &vhfs_by_fid);
}

/**
 * vhfs_swap_destroy - the end of vhfs_swap_init()
 * @table: no node but the root is left
 */
void vhfs_swap_destroy(struct vhfs_table *table)
{
	rhashtable_destroy(&table->by_fid);
}
