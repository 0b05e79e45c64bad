// SPDX-License-Identifier: GPL-2.0
/* Tables of nodes and of handles by id; see ids.h. */
#include <kunit/visibility.h>
#include <linux/sched.h>

#include "ids.h"

/**
 * vhfs_ids_init - make an empty table
 * @table: the table
 *
 * Return: 0 or a negative error number
 */
int vhfs_ids_init(struct rhashtable *table)
{
	return rhashtable_init(table, &vhfs_id_params);
}
EXPORT_SYMBOL_IF_KUNIT(vhfs_ids_init);

static void vhfs_ids_walk(struct vhfs_export *ex, struct rhashtable *table,
			  void (*clear)(struct vhfs_export *ex, u64 nr))
{
	struct rhashtable_iter iter;
	struct vhfs_id *id;
	u64 nr;

	rhashtable_walk_enter(table, &iter);
	rhashtable_walk_start(&iter);
	while ((id = rhashtable_walk_next(&iter))) {
		/* The table was resized, and the walk begins again. */
		if (IS_ERR(id))
			continue;
		nr = id->nr;
		rhashtable_walk_stop(&iter);
		clear(ex, nr);
		cond_resched();
		rhashtable_walk_start(&iter);
	}
	rhashtable_walk_stop(&iter);
	rhashtable_walk_exit(&iter);
}

/**
 * vhfs_ids_clear - have the objects of a table removed
 * @ex: the export; requests that run already may still add objects, but no new ones do
 * @table: the table
 * @left: how many objects stay
 * @clear: removes the object of an id, or lets it stay
 *
 * A walk misses objects that come after a removed one in its bucket.  Each walk removes at least
 * one object from each bucket, so walk until the table is empty.
 */
void vhfs_ids_clear(struct vhfs_export *ex, struct rhashtable *table, int left,
		    void (*clear)(struct vhfs_export *ex, u64 nr))
{
	while (atomic_read(&table->nelems) > left) {
		vhfs_ids_walk(ex, table, clear);
		cond_resched();
	}
}
EXPORT_SYMBOL_IF_KUNIT(vhfs_ids_clear);
