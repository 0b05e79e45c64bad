/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tables of nodes and of handles by the ids that the guest knows.
 *
 * Ids count up, and none is used again, so an xarray would allocate and free its own nodes all the
 * time.  Hash tables do not.
 */
#ifndef _VHOST_FS_IDS_H
#define _VHOST_FS_IDS_H

#include <linux/hash.h>
#include <linux/rhashtable.h>

struct vhfs_export;

/* struct vhfs_id - the id of a node or a handle, and its place in the table */
struct vhfs_id {
	u64 nr;
	struct rhash_head hash;
};

/*
 * The guest chooses no id, but it chooses which ids stay.  The table uses the low bits of the hash.
 * After one multiplication alone, ids at equal distances would share a few buckets.
 */
static inline u32 vhfs_id_hash(const void *key, u32 len, u32 seed)
{
	u64 hash = (*(const u64 *)key ^ seed) * GOLDEN_RATIO_64;

	return hash_64(hash ^ hash >> 32, 32);
}

/* Returns 0 if the object has the id that is looked for. */
static inline int vhfs_id_differs(struct rhashtable_compare_arg *arg, const void *object)
{
	const struct vhfs_id *id = object;

	return id->nr != *(const u64 *)arg->key;
}

/*
 * A table is resized by a work of the kernel's.  A guest that makes and removes a few files at a
 * time would keep that work busy if the table shrank to a few buckets.
 */
#define VHFS_MIN_BUCKETS	256

static const struct rhashtable_params vhfs_id_params = {
	.key_len	= sizeof(u64),
	.key_offset	= offsetof(struct vhfs_id, nr),
	.head_offset	= offsetof(struct vhfs_id, hash),
	.hashfn		= vhfs_id_hash,
	.obj_cmpfn	= vhfs_id_differs,
	.min_size	= VHFS_MIN_BUCKETS,
	.automatic_shrinking = true,
};

/* The caller is under RCU, and takes a reference to the object before it leaves. */
static inline struct vhfs_id *vhfs_id_find(struct rhashtable *table, u64 nr)
{
	return rhashtable_lookup(table, &nr, vhfs_id_params);
}

static inline int vhfs_id_add(struct rhashtable *table, struct vhfs_id *id)
{
	return rhashtable_insert_fast(table, &id->hash, vhfs_id_params) ? -ENOMEM : 0;
}

/* Returns true to one caller only. */
static inline bool vhfs_id_remove(struct rhashtable *table, struct vhfs_id *id)
{
	return !rhashtable_remove_fast(table, &id->hash, vhfs_id_params);
}

int vhfs_ids_init(struct rhashtable *table);
void vhfs_ids_clear(struct vhfs_export *ex, struct rhashtable *table, int left,
		    void (*clear)(struct vhfs_export *ex, u64 nr));

#endif /* _VHOST_FS_IDS_H */
