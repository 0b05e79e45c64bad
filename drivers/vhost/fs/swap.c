// SPDX-License-Identifier: GPL-2.0
/*
 * Nodes beyond a cap hold a file handle in place of a dentry.
 *
 * A dentry pins its inode.  A guest that walks a big tree and forgets nothing would pin all of it
 * in the host's memory, where no shrinker can take it back.  So once max_dentries nodes hold a
 * dentry, a work, the swapper, swaps some of them.  If a request names a swapped node, a worker
 * brings the node back.  If a request finds a name of the node's inode, it brings the node back by
 * that name.
 *
 * Which nodes are swapped
 * -----------------------
 * If the swapper took the node that was not used for the longest time, a guest that goes round more
 * files than the cap again and again would find each of them swapped.  So most live nodes are
 * settled: all but a sixteenth of the cap.  A node that becomes live after that is fresh, and the
 * swapper takes fresh nodes in the order in which they came.  For each fresh node it also looks at
 * one settled node, like the hand of a clock.  If the settled node was not used since the hand last
 * came by, the swapper takes it instead, and the next node that becomes live settles in its place.
 * So files that are used stay, and files that are used no more make room in two rounds of the hand.
 *
 * The rule
 * --------
 * A node is live, or it is swapped:
 *
 * - A live node has a dentry and an inode, and is in table->by_inode.
 * - A swapped node has a struct vhfs_fid, which is in table->by_fid.  It has no pointer to the
 *   inode: nothing pins the inode any more, and another inode may get its address.  Requests find
 *   the node by the name that the file system itself has for the inode: mostly number and
 *   generation.
 * - A node changes from one to the other under both table->lock and node->lock.  Either of them is
 *   enough to look.
 * - The swapper swaps a node only if all references are the table's and its own.  So a request that
 *   holds a node, and has seen it live, uses its dentry and inode without a lock until it puts the
 *   node.  An open file keeps its node live, too, but not its node's dentry (vhfs_better_name()).
 * - One inode is one node.  A request that adds a node looks into by_fid under table->lock
 *   (vhfs_is_swapped()), because the node may have been swapped since the request found it in
 *   neither table.
 * - A FORGET takes the node out of the table that it is in.  A request that holds the node may
 *   bring it back all the same, and then no table has it.
 *
 * How nodes come back
 * -------------------
 * A file handle leads to an inode wherever that is, and a guest must reach nothing outside of its
 * directory.  So a node comes back only with a dentry that is connected, not removed, and beneath
 * the root of the node's mount.  reach.c finds such a dentry.  If it finds none, the guest gets
 * ESTALE.  The file may exist even so: outside of the root, or under a name that the host has not
 * looked up since the file was moved.  A guest that looks that name up has its node back.
 * vhfs_node_check() comes after this, as for any node, so a rename in between is no way out.
 *
 * The guest never sees a file handle, and cannot send one.
 */
#include <linux/exportfs.h>
#include <linux/magic.h>
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "fs.h"

/* The swapper releases the lock after it has looked at this many pairs of nodes. */
#define VHFS_SWAP_BATCH	8

/* After the swapper has found nothing to swap, it does not begin again for this long. */
#define VHFS_VAIN_TIME	(HZ / 10)

/*
 * struct vhfs_fid - a file handle, and where its inode was last seen
 * @node: the node that has this as node->fid
 * @type: @words: of the inode's file handle, which is the key, and names no directory
 * @dir_type: @dir_words: of the file handle of the inode's directory
 * @name_len: of the inode's name in that directory
 * @is_dir: the inode is a directory
 * @lost: a search for the inode has failed; under node->lock
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
 * vhfs_can_swap - whether the nodes of a mount can be swapped
 * @ex: the export
 * @mnt: the mount
 *
 * The file system has to find an inode again that it has dropped from memory, and the directories
 * above it.  Its file handle must mean one inode for ever.  A guest can have the file system asked
 * for an inode that is gone, and that must do no harm.  So the function lists the file systems
 * whose code was read.
 *
 * Two others are left out.  btrfs has one handle for all nested subvolumes of a snapshot.  f2fs
 * gives the number of a removed inode to blocks of other kinds, too.  If it is asked for such an
 * inode, it takes the block for a corrupted inode, has fsck look for it, and logs that without a
 * limit.
 */
bool vhfs_can_swap(const struct vhfs_export *ex, const struct vfsmount *mnt)
{
	const struct super_block *sb = mnt->mnt_sb;
	const struct export_operations *op = sb->s_export_op;

	if (!exportfs_can_decode_fh(op) || !op->get_parent)
		return false;
	switch (sb->s_magic) {
	/* tmpfs drops no inode, so the host gains nothing unless the owner asked for a limit. */
	case TMPFS_MAGIC:
		return ex->strict;
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

/*
 * Encode the directory of a dentry, and its name there.  If a rename comes in between, the inode is
 * not in that place, and the node comes back by a search.
 */
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

	/*
	 * If this fails, the node stays live and no request fails, so do not take the owner's last
	 * memory.
	 */
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

/*
 * Make a file handle, and its @key, for @node.  @dentry is a name of the node's inode, held by the
 * caller.
 */
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

/* Whether the file was removed, so that it has no name by which the node could come back. */
static bool vhfs_is_removed(const struct vhfs_node *node)
{
	return d_unhashed(node->dentry) || IS_DEADDIR(node->inode) || !node->inode->i_nlink;
}

/* The caller holds both locks.  Returns the node's dentry, which the caller puts, or an error. */
static struct dentry *vhfs_make_swapped(struct vhfs_table *table, struct vhfs_node *node,
					struct vhfs_fid *fid, const struct vhfs_fid_key *key)
{
	struct dentry *dentry = node->dentry;
	int r;

	/*
	 * This fails with -EEXIST if the file system has given two inodes one handle, which is its
	 * fault.
	 */
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
 * vhfs_swap_list - put a node on a list, where the swapper comes by
 * @table: the table; its lock is held
 * @node: the node, live, and on no list
 */
void vhfs_swap_list(struct vhfs_table *table, struct vhfs_node *node)
{
	node->settled = table->nr_settled < vhfs_max_settled(node->ex);
	table->nr_settled += node->settled;
	WRITE_ONCE(table->nr_listed, table->nr_listed + 1);
	list_add_tail(&node->live, node->settled ? &table->settled : &table->fresh);
}

/**
 * vhfs_swap_unlist - undo vhfs_swap_list(), if the node is on a list
 * @table: the table; its lock is held
 * @node: the node, which is swapped, is removed, or stays live for good
 */
void vhfs_swap_unlist(struct vhfs_table *table, struct vhfs_node *node)
{
	if (list_empty(&node->live))
		return;
	list_del_init(&node->live);
	table->nr_settled -= node->settled;
	WRITE_ONCE(table->nr_listed, table->nr_listed - 1);
}

/* Take a node off its list, so that it stays live and the swapper does not come by again. */
static int vhfs_keep(struct vhfs_table *table, struct vhfs_node *node)
{
	spin_lock(&table->lock);
	vhfs_swap_unlist(table, node);
	spin_unlock(&table->lock);
	return 0;
}

/*
 * Swap a node, which the swapper holds.  Returns 1 if it was swapped, 0 if it was not, or an error
 * that other nodes would meet, too.
 */
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
	/*
	 * The file system cannot find an inode that is not hashed.  Look now, because tmpfs hashes
	 * an inode when it is asked for the handle.
	 */
	if (inode_unhashed(node->inode)) {
		kfree(fid);
		return vhfs_keep(table, node);
	}
	spin_lock(&table->lock);
	spin_lock(&node->lock);
	/* Only the table and the swapper have references. */
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

/*
 * Take a reference to a node for the swapper, if the node is cold: no request or open file holds
 * it.  With @chance a node that was used since the swapper last came by is not cold.
 */
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

/*
 * Turn the hand until it finds a cold node, or for a batch.  Returns the node, held by the swapper,
 * or NULL.  @looked is set to how many pairs of nodes it has looked at.
 */
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

/*
 * Whether requests have to wait for the swapper.  While it is at work, a sixteenth more nodes than
 * max_dentries may be live.
 */
static bool vhfs_is_full(const struct vhfs_export *ex)
{
	return vhfs_nr_counted(ex) >= ex->cfg.max_dentries + ex->cfg.max_dentries / 16;
}

/*
 * Whether the swapper is done.  It ends some way below the cap, so that it does not run for each
 * request.
 */
static bool vhfs_has_room(const struct vhfs_export *ex)
{
	return vhfs_nr_counted(ex) < ex->cfg.max_dentries - ex->cfg.max_dentries / 32;
}

/*
 * Swap nodes until there is room.  Returns false if the swapper gives up before.  It does so after
 * two turns without success, because open files and requests then use every node that could be
 * swapped.  If memory is short, it gives up sooner.
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
 * @work: the swapper of an export
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
 * vhfs_make_room - find room for one more live node, or have the swapper make it
 * @req: the request that wants room, and has done nothing yet
 *
 * If the swapper has fallen behind, a worker waits for it here.  After -ENFILE the caller counts a
 * refusal.
 *
 * Return: 0, VHFS_PUNT if a worker has to wait, or -ENFILE if the owner's limit is reached.
 */
int vhfs_make_room(struct vhfs_req *req)
{
	struct vhfs_export *ex = req->ex;

	if (!vhfs_in_vain(ex))
		queue_work(ex->swap_wq, &ex->swapper);
	if (!vhfs_is_full(ex))
		return 0;
	if (!req->may_sleep || req->hot)
		return VHFS_PUNT;
	flush_work(&ex->swapper);
	return ex->strict && vhfs_is_full(ex) ? -ENFILE : 0;
}

/* The caller holds both locks.  @old is set to the node's file handle, which the caller frees. */
static int vhfs_make_live(struct vhfs_table *table, struct vhfs_node *node, struct dentry *dentry,
			  struct vhfs_fid **old)
{
	int r;

	/* Set node->seq first, so that no reader takes the old value for the new inode's. */
	WRITE_ONCE(node->seq, VHFS_SEQ_NEVER);
	/* Pairs with the acquire in vhfs_handle_get_known(). */
	smp_store_release(&node->inode, d_inode(dentry));
	/* A node without lookups was forgotten, and is in no table. */
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
 * vhfs_swap_in - make a swapped node live
 * @node: the node, held
 * @dentry: a name of its inode, in its mount, beneath the root; held by the caller
 *
 * If another request was faster, the node keeps the dentry of that one.
 *
 * Return: 0, -ESTALE or -ENOMEM.
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
 * vhfs_copy_way - copy where a swapped node was last seen
 * @node: the node, held
 * @way: to be filled
 *
 * The caller needs a copy, because it sleeps, and another request may free node->fid meanwhile.
 *
 * Return: false if the node is live.
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

/*
 * Note that a search for the node has failed.  The node may have been live meanwhile and swapped
 * again.  Then it is not searched for, although a search may succeed.
 */
static void vhfs_fid_lose(struct vhfs_node *node)
{
	spin_lock(&node->lock);
	if (node->fid)
		node->fid->lost = true;
	spin_unlock(&node->lock);
}

/**
 * vhfs_bring_back - bring back a swapped node that a request names
 * @req: the request that names the node, and has done nothing yet
 * @node: the node, held
 *
 * Only a worker does this, because it may have to wait for the disk.
 *
 * Return: 0, an error, or VHFS_PUNT.
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

/* The caller is under RCU, or holds table->lock. */
static struct vhfs_node *vhfs_find_swapped(struct vhfs_table *table,
					   const struct vhfs_fid_key *key)
{
	struct vhfs_fid *fid = rhashtable_lookup(&table->by_fid, key, vhfs_by_fid);

	return fid ? fid->node : NULL;
}

/**
 * vhfs_is_swapped - whether an inode may have a swapped node
 * @table: the table; its lock is held
 * @key: from vhfs_name_inode()
 *
 * Return: true also if vhfs_name_inode() did not ask the file system, because no node was swapped
 * then.
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
 * vhfs_name_inode - get the key of an inode, if any node is swapped
 * @key: to be filled
 * @at: a name of the inode
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
 * vhfs_find_swapped_get - find the swapped node of an inode
 * @table: the export's table
 * @key: from vhfs_name_inode()
 *
 * Return: the node, which the caller puts, or NULL.  The node may be live by now.
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

/*
 * Give @fid to a swapped node, in place of the one that it has.  Returns the one that the caller is
 * to free: the old one, or @fid if the node is not swapped any more.
 */
static struct vhfs_fid *vhfs_replace_fid(struct vhfs_table *table, struct vhfs_node *node,
					 struct vhfs_fid *fid)
{
	struct vhfs_fid *old = fid;

	spin_lock(&table->lock);
	spin_lock(&node->lock);
	/* A node without lookups is in no table. */
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
 * vhfs_swap_moved - tell the swapped node of an inode where the inode is now
 * @at: a name of the inode, held by the caller
 *
 * If the node is live, or if there is no node, nothing happens.  The caller may hold locks of the
 * VFS.
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
 * vhfs_fid_remove - remove a swapped node from by_fid
 * @table: the table; its lock is held
 * @node: the node, swapped, and in by_fid
 */
void vhfs_fid_remove(struct vhfs_table *table, struct vhfs_node *node)
{
	rhashtable_remove_fast(&table->by_fid, &node->fid->hash, vhfs_by_fid);
	WRITE_ONCE(table->nr_swapped, table->nr_swapped - 1);
}

/**
 * vhfs_fid_free - free the file handle of a node that goes, if it has one
 * @node: the node, in no table
 */
void vhfs_fid_free(struct vhfs_node *node)
{
	if (node->fid)
		kfree_rcu(node->fid, rcu);
}

/**
 * vhfs_swap_init - set up the swapper's lists and by_fid
 * @table: the export's table
 */
int vhfs_swap_init(struct vhfs_table *table)
{
	INIT_LIST_HEAD(&table->settled);
	INIT_LIST_HEAD(&table->fresh);
	return rhashtable_init(&table->by_fid, &vhfs_by_fid);
}

/**
 * vhfs_swap_destroy - undo vhfs_swap_init()
 * @table: the table; no node but the root is left
 */
void vhfs_swap_destroy(struct vhfs_table *table)
{
	rhashtable_destroy(&table->by_fid);
}
