// SPDX-License-Identifier: GPL-2.0
/*
 * The pages of a whole memory table, pinned when it is set, and given back when
 * its last binding goes.  They count as the owner's locked memory.
 */
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/vhost_iotlb.h>

#include "blk.h"

static void free_pins(struct kref *ref)
{
	struct vblk_pins *pins = container_of(ref, struct vblk_pins, ref);
	unsigned int i;

	for (i = 0; i < pins->nr_regions; i++) {
		struct vblk_pin_region *region = &pins->regions[i];

		if (!region->pages)
			continue;
		unpin_user_pages_dirty_lock(region->pages, region->nr_pages,
					    true);
		kvfree(region->pages);
	}
	account_locked_vm(pins->mm, pins->accounted, false);
	mmdrop(pins->mm);
	kvfree(pins);
}

/**
 * vblk_pins_put - a user less of a pin table; may sleep
 * @pins: may be NULL
 */
void vblk_pins_put(struct vblk_pins *pins)
{
	if (pins)
		kref_put(&pins->ref, free_pins);
}

static int pin_region(struct vblk_pins *pins, const struct vhost_iotlb_map *map)
{
	struct vblk_pin_region *region = &pins->regions[pins->nr_regions];
	unsigned long nr = (offset_in_page(map->addr) + map->size +
			    PAGE_SIZE - 1) >> PAGE_SHIFT;
	unsigned long done = 0;
	int r;

	r = account_locked_vm(pins->mm, nr, true);
	if (r)
		return r;
	pins->accounted += nr;
	/* The size is the owner's word; an absurd one is no reason to warn. */
	region->pages = kvmalloc_array(nr, sizeof(*region->pages),
				       GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!region->pages)
		return -ENOMEM;
	region->start = map->addr & PAGE_MASK;
	pins->nr_regions++;

	while (done < nr) {
		r = pin_user_pages_fast(region->start + done * PAGE_SIZE,
					min(nr - done, 1024UL),
					FOLL_WRITE | FOLL_LONGTERM,
					region->pages + done);
		if (r <= 0)
			return r ?: -EFAULT;
		done += r;
		region->nr_pages = done;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

/**
 * vblk_pin_table - pin all memory of the device's table
 * @vdev: its mutex is held, by its owner
 */
struct vblk_pins *vblk_pin_table(struct vhost_dev *vdev)
{
	struct vhost_iotlb_map *map;
	struct vblk_pins *pins;
	unsigned int nr = 0;
	int r;

	list_for_each_entry(map, &vdev->umem->list, link)
		nr++;
	pins = kvzalloc(struct_size(pins, regions, nr), GFP_KERNEL_ACCOUNT);
	if (!pins)
		return ERR_PTR(-ENOMEM);
	kref_init(&pins->ref);
	pins->mm = vdev->mm;
	mmgrab(pins->mm);

	list_for_each_entry(map, &vdev->umem->list, link) {
		r = pin_region(pins, map);
		if (r) {
			vblk_pins_put(pins);
			return ERR_PTR(r);
		}
	}
	return pins;
}
