// SPDX-License-Identifier: GPL-2.0
/*
 * VHOST_BLK_BACKEND_PINNED: the pages of a whole memory table are pinned when the owner sets the
 * table.  When the device uses the table no more, they are unpinned as soon as the last request
 * that names the table has ended.
 *
 * They count as the owner's locked memory.  A table that replaces another takes over the other's
 * count, so that the owner needs no room for both: the old one goes soon.
 *
 * The owner's mapping changes under the pins.  A balloon, free-page reporting and virtio-mem punch
 * pages out of the guest's memory.  Later there is a new page behind the address, and the pin holds
 * an orphan.  So the table follows the mapping:
 *
 * - A request may use an entry as long as the entry is trusted: nothing has unmapped its page since
 *   the page was looked up.  The data path tests that bit, and looks pages that are not trusted up
 *   on demand.
 * - An interval notifier for each region takes the trust away before the mapping changes.  The
 *   owner's system call returns after that, and the guest hears of it later still.  So a request
 *   that the guest makes then finds no trust.  A request that was taken before may go on with the
 *   old page: the guest gave away memory that a device was using, and no device could do better.
 * - The worker unpins pages that have lost their trust once no request can use them.  Requests hold
 *   no references, so the worker waits until those that name the table, and were taken before, are
 *   done.
 * - If a request has missed a page, the worker pins the page again, if it is mapped then.  A page
 *   that is not mapped stays so: the balloon may have it.
 *
 * States of an entry, and the tasks that change them:
 *
 *   0 --worker--> page|TRUSTED --notifier--> page --worker--> page|OLD --worker--> 0
 *
 * The notifier only clears the one bit, atomically, and the worker leaves trusted entries alone.
 * The worker pins pages between mmu_interval_read_begin() and mmu_interval_read_retry().  It calls
 * the latter, and stores the entries, under seq_lock.  The notifier sets its sequence number under
 * seq_lock, and clears the bits afterwards.  So the notifier sees an entry, or the worker does not
 * store it.
 *
 * A change that keeps the page behind its address loses no trust: protection (fork copies pinned
 * pages for the child), NUMA hints, soft-dirty bits.  Some others turn out to be no change later,
 * as a migration that fails because of the pin.  Then the page is pinned again when a request asks
 * for it.
 */
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <linux/vhost_iotlb.h>
#include <linux/vmalloc.h>

#include "blk.h"

/* How long until the worker looks after entries that were hit or missed. */
#define VBLK_PINS_DELAY		(HZ / 10)
/* How often the worker looks whether old requests are done. */
#define VBLK_PINS_RECHECK	max(HZ / 100, 1)
/*
 * How many chunks the worker pins again at a time.  The guest has a say in how often the worker
 * tries, and in the worst case it makes an attempt for each page of a chunk.
 */
#define VBLK_PINS_AT_ONCE	16
/* How often the worker tries to pin pages whose mapping changes meanwhile. */
#define VBLK_PINS_TRIES		3

static unsigned long vblk_chunks_of(const struct vblk_pin_region *region)
{
	return DIV_ROUND_UP(region->nr_pages, VBLK_PIN_CHUNK);
}

static unsigned long vblk_chunk_end(const struct vblk_pin_region *region,
				    unsigned long chunk)
{
	return min((chunk + 1) * VBLK_PIN_CHUNK, region->nr_pages);
}

static struct page *vblk_page_of(unsigned long entry)
{
	return (struct page *)(entry & ~(VBLK_PIN_TRUSTED | VBLK_PIN_OLD));
}

static void vblk_pins_wake(struct vblk_pins *pins, unsigned long delay)
{
	/* Not a queue of the host's: the work may wait for a page fault that the owner serves. */
	queue_delayed_work(pins->dev->base.ring_wq, &pins->work, delay);
}

/* Take the trust of a chunk's entries away.  Returns whether any of them was trusted. */
static bool vblk_distrust_chunk(struct vblk_pin_region *region, unsigned long at,
				unsigned long end)
{
	unsigned long chunk = at / VBLK_PIN_CHUNK;
	bool any = false;

	for (; at < end; at++) {
		if (!(READ_ONCE(region->entries[at]) & VBLK_PIN_TRUSTED))
			continue;
		clear_bit(0, &region->entries[at]);
		any = true;
	}
	if (any) {
		/* The worker clears the chunk's bit, and then looks at the entries. */
		smp_mb__before_atomic();
		set_bit(chunk, region->hit);
	}
	return any;
}

static void vblk_distrust(struct vblk_pin_region *region,
			  const struct mmu_notifier_range *range)
{
	unsigned long end = region->start + region->nr_pages * PAGE_SIZE;
	unsigned long at, last;
	bool any = false;

	at = (max(range->start, region->start) - region->start) >> PAGE_SHIFT;
	last = (min(range->end, end) - region->start + PAGE_SIZE - 1) >>
	       PAGE_SHIFT;
	while (at < last) {
		unsigned long to = min(last, vblk_chunk_end(region,
							    at / VBLK_PIN_CHUNK));

		any |= vblk_distrust_chunk(region, at, to);
		at = to;
		if (mmu_notifier_range_blockable(range))
			cond_resched();
	}
	if (any)
		vblk_pins_wake(region->pins, VBLK_PINS_DELAY);
}

static bool vblk_changes_pages(const struct mmu_notifier_range *range)
{
	switch (range->event) {
	case MMU_NOTIFY_PROTECTION_VMA:
	case MMU_NOTIFY_PROTECTION_PAGE:
	case MMU_NOTIFY_SOFT_DIRTY:
		return false;
	case MMU_NOTIFY_RELEASE:
		/*
		 * A vring that runs holds the mm.  The mm is released, so no vring runs, and no
		 * request is left.
		 */
		return false;
	default:
		return true;
	}
}

static bool vblk_pins_invalidate(struct mmu_interval_notifier *notifier,
				 const struct mmu_notifier_range *range,
				 unsigned long seq)
{
	struct vblk_pin_region *region =
		container_of(notifier, struct vblk_pin_region, notifier);

	if (!vblk_changes_pages(range))
		return true;
	spin_lock(&region->pins->seq_lock);
	mmu_interval_set_seq(notifier, seq);
	spin_unlock(&region->pins->seq_lock);
	vblk_distrust(region, range);
	return true;
}

static const struct mmu_interval_notifier_ops vblk_pins_notifier_ops = {
	.invalidate = vblk_pins_invalidate,
};

/* Store the pages of a batch.  Returns false if the mapping has changed since @seq. */
static bool vblk_store_entries(struct vblk_pin_region *region, unsigned long at,
			       int nr, unsigned long seq)
{
	struct vblk_pins *pins = region->pins;
	int i;

	spin_lock(&pins->seq_lock);
	if (mmu_interval_read_retry(&region->notifier, seq)) {
		spin_unlock(&pins->seq_lock);
		return false;
	}
	for (i = 0; i < nr; i++)
		/* The data path reads entries without a lock. */
		smp_store_release(&region->entries[at + i],
				  (unsigned long)pins->batch[i] |
				  VBLK_PIN_TRUSTED);
	spin_unlock(&pins->seq_lock);
	return true;
}

/*
 * Pin up to a chunk of pages, whose entries are 0.  Returns how many of them are dealt with.  If
 * the mapping of some changes again and again, requests have to look these up.
 */
static int vblk_pin_some(struct vblk_pin_region *region, unsigned long at, int nr,
			 unsigned int flags)
{
	struct vblk_pins *pins = region->pins;
	unsigned int tries;
	unsigned long seq;
	int got = 0;

	lockdep_assert_held(&pins->lock);
	for (tries = 0; tries < VBLK_PINS_TRIES; tries++) {
		seq = mmu_interval_read_begin(&region->notifier);
		got = pin_user_pages_fast(region->start + at * PAGE_SIZE, nr,
					  FOLL_WRITE | FOLL_LONGTERM | flags,
					  pins->batch);
		if (got <= 0 || vblk_store_entries(region, at, got, seq))
			break;
		unpin_user_pages(pins->batch, got);
	}
	return got;
}

/* Unpin the entries of a chunk that have @bits, or all entries if @bits is 0. */
static void vblk_unpin_chunk(struct vblk_pin_region *region, unsigned long chunk,
			     unsigned long bits)
{
	unsigned long at, end = vblk_chunk_end(region, chunk);
	struct vblk_pins *pins = region->pins;
	unsigned int nr = 0;

	for (at = chunk * VBLK_PIN_CHUNK; at < end; at++) {
		unsigned long entry = READ_ONCE(region->entries[at]);

		if (!entry || (entry & bits) != bits)
			continue;
		WRITE_ONCE(region->entries[at], 0);
		pins->batch[nr++] = vblk_page_of(entry);
	}
	unpin_user_pages_dirty_lock(pins->batch, nr, true);
	cond_resched();
}

static bool vblk_mark_old_of(struct vblk_pin_region *region, unsigned long chunk)
{
	unsigned long at, end = vblk_chunk_end(region, chunk);
	bool any = false;

	for (at = chunk * VBLK_PIN_CHUNK; at < end; at++) {
		unsigned long entry = READ_ONCE(region->entries[at]);

		if (!entry || entry & VBLK_PIN_TRUSTED)
			continue;
		WRITE_ONCE(region->entries[at], entry | VBLK_PIN_OLD);
		any = true;
	}
	return any;
}

static bool vblk_mark_old(struct vblk_pins *pins)
{
	unsigned long chunk;
	bool any = false;
	unsigned int i;

	for (i = 0; i < pins->nr_regions; i++) {
		struct vblk_pin_region *region = &pins->regions[i];

		for_each_set_bit(chunk, region->hit, vblk_chunks_of(region)) {
			clear_bit(chunk, region->hit);
			/* Pairs with the barrier in vblk_distrust_chunk(). */
			smp_mb__after_atomic();
			if (vblk_mark_old_of(region, chunk)) {
				__set_bit(chunk, region->old);
				any = true;
			}
			cond_resched();
		}
	}
	return any;
}

static void vblk_unpin_old(struct vblk_pins *pins)
{
	unsigned long chunk;
	unsigned int i;

	for (i = 0; i < pins->nr_regions; i++) {
		struct vblk_pin_region *region = &pins->regions[i];

		for_each_set_bit(chunk, region->old, vblk_chunks_of(region)) {
			__clear_bit(chunk, region->old);
			vblk_unpin_chunk(region, chunk, VBLK_PIN_OLD);
		}
	}
}

static unsigned int vblk_nr_vrings(struct vblk_dev *dev)
{
	/* Pairs with the release in vserve_add_vring(). */
	return smp_load_acquire(&dev->base.vdev.nvqs);
}

/* Wait for rounds that run, and so hold their vring's mutex. */
static void vblk_end_rounds(struct vblk_dev *dev)
{
	unsigned int i;

	for (i = 0; i < vblk_nr_vrings(dev); i++) {
		mutex_lock(&dev->base.vrings[i]->vq.mutex);
		mutex_unlock(&dev->base.vrings[i]->vq.mutex);
	}
}

/*
 * Set the time up to which requests may use entries that were just marked.
 *
 * A round that looked at an entry before it was marked holds its vring's mutex, or has released it.
 * So its requests were taken no later than now.  Rounds that begin after this find the marks.
 */
static void vblk_set_cutoff(struct vblk_pins *pins)
{
	vblk_end_rounds(pins->dev);
	pins->cutoff = ktime_get_ns();
}

static bool vblk_vring_uses(struct vserve_vring *vring, const struct vblk_pins *pins, u64 cutoff)
{
	struct vserve_req *req;
	bool found = false;
	unsigned int i;

	mutex_lock(&vring->vq.mutex);
	for (i = 0; i < vring->nr_reqs && !found; i++) {
		req = vserve_slot(vring, i);
		/* Pairs with the release in vblk_unhold_guest(). */
		found = smp_load_acquire(&req->hold) == VBLK_HOLD_TABLE &&
			to_vblk_req(req)->pins == pins && req->taken_ns <= cutoff;
	}
	mutex_unlock(&vring->vq.mutex);
	return found;
}

/* Whether a request that was taken up to @cutoff uses the table. */
static bool vblk_any_uses(const struct vblk_pins *pins, u64 cutoff)
{
	struct vblk_dev *dev = pins->dev;
	unsigned int i;

	for (i = 0; i < vblk_nr_vrings(dev); i++)
		if (vblk_vring_uses(dev->base.vrings[i], pins, cutoff))
			return true;
	return false;
}

/*
 * Pin the pages of a chunk again.  This must not fault a page in, because a page that the guest has
 * given away must not come back.
 */
static void vblk_repin_chunk(struct vblk_pin_region *region, unsigned long chunk)
{
	unsigned long at = chunk * VBLK_PIN_CHUNK;
	unsigned long end = vblk_chunk_end(region, chunk);

	while (at < end) {
		unsigned long to = at;
		int got;

		while (to < end && !READ_ONCE(region->entries[to]))
			to++;
		if (to == at) {
			at++;
			continue;
		}
		got = vblk_pin_some(region, at, to - at, FOLL_NOFAULT);
		at += max(got, 1);
		cond_resched();
	}
}

/* Pin chunks again that requests have missed.  Returns whether there are more. */
static bool vblk_repin_wanted(struct vblk_pins *pins)
{
	unsigned int left = VBLK_PINS_AT_ONCE, i;
	unsigned long chunk;

	for (i = 0; i < pins->nr_regions; i++) {
		struct vblk_pin_region *region = &pins->regions[i];

		for_each_set_bit(chunk, region->wanted, vblk_chunks_of(region)) {
			if (!left--)
				return true;
			clear_bit(chunk, region->wanted);
			vblk_repin_chunk(region, chunk);
		}
	}
	return false;
}

static bool vblk_repin(struct vblk_pins *pins)
{
	struct mem_cgroup *memcg;
	bool more;

	/* A vring that runs holds the mm, too. */
	if (!mmget_not_zero(pins->mm))
		return false;
	memcg = vserve_charge_owner(&pins->dev->base);
	kthread_use_mm(pins->mm);
	more = vblk_repin_wanted(pins);
	kthread_unuse_mm(pins->mm);
	vserve_charge_end(memcg);
	mmput(pins->mm);
	return more;
}

static void vblk_free_region(struct vblk_pin_region *region)
{
	unsigned long chunk;

	for (chunk = 0; region->entries && chunk < vblk_chunks_of(region); chunk++)
		vblk_unpin_chunk(region, chunk, 0);
	kvfree(region->entries);
	kvfree(region->hit);
	kvfree(region->old);
	kvfree(region->wanted);
}

/* The notifiers do not see the table any more, and no request finds it. */
static void vblk_free_pins(struct vblk_pins *pins)
{
	unsigned int i;

	for (i = 0; i < pins->nr_regions; i++)
		vblk_free_region(&pins->regions[i]);
	account_locked_vm(pins->mm, pins->accounted, false);
	mmdrop(pins->mm);
	kvfree(pins);
}

static void vblk_replaced_work(struct work_struct *work)
{
	struct vblk_dev *dev = container_of(to_delayed_work(work), struct vblk_dev, replaced_work);
	struct vblk_pins *pins, *next;

	mutex_lock(&dev->replaced_lock);
	list_for_each_entry_safe(pins, next, &dev->replaced, link) {
		if (vblk_any_uses(pins, U64_MAX))
			continue;
		list_del(&pins->link);
		vblk_free_pins(pins);
	}
	if (!list_empty(&dev->replaced))
		queue_delayed_work(dev->base.ring_wq, &dev->replaced_work, VBLK_PINS_RECHECK);
	mutex_unlock(&dev->replaced_lock);
}

static void vblk_pins_work(struct work_struct *work)
{
	struct vblk_pins *pins = container_of(to_delayed_work(work),
					      struct vblk_pins, work);
	bool more = false;

	mutex_lock(&pins->lock);
	if (!pins->waiting && vblk_mark_old(pins)) {
		vblk_set_cutoff(pins);
		pins->waiting = true;
	}
	if (pins->waiting && !vblk_any_uses(pins, pins->cutoff)) {
		vblk_unpin_old(pins);
		pins->waiting = false;
		/* More entries may have been hit in the meantime. */
		more = true;
	}
	more |= vblk_repin(pins);
	if (pins->waiting)
		vblk_pins_wake(pins, VBLK_PINS_RECHECK);
	else if (more)
		vblk_pins_wake(pins, VBLK_PINS_DELAY);
	mutex_unlock(&pins->lock);
}

/**
 * vblk_pins_want - have an entry pinned again, because a request has missed it
 * @region: a region of the table
 * @at: the index of the entry
 *
 * A round calls this.  The worker then pins the entry and those around it.
 */
void vblk_pins_want(struct vblk_pin_region *region, unsigned long at)
{
	unsigned long chunk = at / VBLK_PIN_CHUNK;

	if (!test_bit(chunk, region->wanted) &&
	    !test_and_set_bit(chunk, region->wanted))
		vblk_pins_wake(region->pins, VBLK_PINS_DELAY);
}

/*
 * Stop following the mapping.  No round finds the table any more.  Once its notifiers are gone,
 * nothing queues its work.
 */
static void vblk_unfollow(struct vblk_pins *pins)
{
	unsigned int i;

	for (i = 0; i < pins->nr_regions; i++)
		if (pins->regions[i].followed)
			mmu_interval_notifier_remove(&pins->regions[i].notifier);
	cancel_delayed_work_sync(&pins->work);
}

/**
 * vblk_set_pins - have new requests use another pin table
 * @dev: the device; its mutex is held; vrings may run
 * @pins: the table; NULL: none
 *
 * Requests in flight may use the old table, which is freed with the last of them.
 */
void vblk_set_pins(struct vblk_dev *dev, struct vblk_pins *pins)
{
	struct vblk_pins *old = dev->pins;

	lockdep_assert_held(&dev->base.vdev.mutex);
	/* Pairs with the READ_ONCE() in vblk_hold_span(). */
	smp_store_release(&dev->pins, pins);
	if (!old)
		return;
	/*
	 * Wait for rounds that found the old table.  After this no new request uses it, or queues
	 * its work.
	 */
	vblk_end_rounds(dev);
	vblk_unfollow(old);
	mutex_lock(&dev->replaced_lock);
	list_add_tail(&old->link, &dev->replaced);
	mutex_unlock(&dev->replaced_lock);
	mod_delayed_work(dev->base.ring_wq, &dev->replaced_work, 0);
}

/**
 * vblk_pins_settle - free the pin tables that were replaced, at once
 * @dev: the device; its mutex is held; no vring runs or stops, so no request uses these tables
 */
void vblk_pins_settle(struct vblk_dev *dev)
{
	struct vblk_pins *pins, *next;

	cancel_delayed_work_sync(&dev->replaced_work);
	list_for_each_entry_safe(pins, next, &dev->replaced, link)
		vblk_free_pins(pins);
	INIT_LIST_HEAD(&dev->replaced);
}

/**
 * vblk_pins_init - set up a device without pins
 * @dev: the device; no other task knows it yet
 */
void vblk_pins_init(struct vblk_dev *dev)
{
	mutex_init(&dev->replaced_lock);
	INIT_LIST_HEAD(&dev->replaced);
	INIT_DELAYED_WORK(&dev->replaced_work, vblk_replaced_work);
}

/* Allocate memory.  The owner chooses the size, so an absurd one must not make the kernel warn. */
static void *vblk_alloc_zeroed(unsigned long nr, size_t size)
{
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_NOWARN | __GFP_ZERO;
	size_t bytes = array_size(nr, size);

	/* For a terabyte of guest memory the entries take as much as kvmalloc() gives. */
	return bytes > INT_MAX ? __vmalloc(bytes, gfp) : kvmalloc(bytes, gfp);
}

static int vblk_alloc_region(struct vblk_pin_region *region)
{
	unsigned long longs = BITS_TO_LONGS(vblk_chunks_of(region));

	region->entries = vblk_alloc_zeroed(region->nr_pages, sizeof(long));
	region->hit = vblk_alloc_zeroed(longs, sizeof(long));
	region->old = vblk_alloc_zeroed(longs, sizeof(long));
	region->wanted = vblk_alloc_zeroed(longs, sizeof(long));
	if (!region->entries || !region->hit || !region->old || !region->wanted)
		return -ENOMEM;
	return 0;
}

static int vblk_pin_pages(struct vblk_pin_region *region)
{
	unsigned long done = 0;
	int r;

	while (done < region->nr_pages) {
		r = vblk_pin_some(region, done, min(region->nr_pages - done,
						    (unsigned long)VBLK_PIN_CHUNK), 0);
		if (r <= 0)
			return r ?: -EFAULT;
		done += r;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

static unsigned long vblk_pages_of_map(const struct vhost_iotlb_map *map)
{
	return (offset_in_page(map->addr) + map->size + PAGE_SIZE - 1) >>
	       PAGE_SHIFT;
}

static int vblk_pin_region(struct vblk_pins *pins, const struct vhost_iotlb_map *map)
{
	struct vblk_pin_region *region = &pins->regions[pins->nr_regions];
	int r;

	region->pins = pins;
	region->start = map->addr & PAGE_MASK;
	region->nr_pages = vblk_pages_of_map(map);
	pins->nr_regions++;
	r = vblk_alloc_region(region);
	if (r)
		return r;
	r = mmu_interval_notifier_insert(&region->notifier, pins->mm,
					 region->start,
					 region->nr_pages * PAGE_SIZE,
					 &vblk_pins_notifier_ops);
	if (r)
		return r;
	region->followed = true;
	return vblk_pin_pages(region);
}

static struct vblk_pins *vblk_pins_alloc(struct vblk_dev *dev)
{
	struct vhost_iotlb_map *map;
	struct vblk_pins *pins;
	unsigned int nr = 0;

	list_for_each_entry(map, &dev->base.vdev.umem->list, link)
		nr++;
	pins = kvzalloc(struct_size(pins, regions, nr), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!pins)
		return NULL;
	mutex_init(&pins->lock);
	spin_lock_init(&pins->seq_lock);
	INIT_DELAYED_WORK(&pins->work, vblk_pins_work);
	pins->dev = dev;
	pins->mm = dev->base.vdev.mm;
	mmgrab(pins->mm);
	return pins;
}

static int vblk_pin_regions(struct vblk_pins *pins)
{
	struct vhost_iotlb_map *map;
	int r = 0;

	mutex_lock(&pins->lock);
	list_for_each_entry(map, &pins->dev->base.vdev.umem->list, link) {
		r = vblk_pin_region(pins, map);
		if (r)
			break;
	}
	mutex_unlock(&pins->lock);
	return r;
}

/*
 * Count the pages beyond those of the old table.  This checks the owner's limit before pages are
 * pinned.
 */
static int vblk_account_more(struct vblk_pins *pins, unsigned long total)
{
	struct vblk_pins *old = pins->dev->pins;
	unsigned long had = old ? old->accounted : 0;
	int r;

	if (total <= had)
		return 0;
	r = account_locked_vm(pins->mm, total - had, true);
	if (!r)
		pins->accounted = total - had;
	return r;
}

static void vblk_take_over_account(struct vblk_pins *pins, unsigned long total)
{
	struct vblk_pins *old = pins->dev->pins;

	if (old) {
		pins->accounted += old->accounted;
		old->accounted = 0;
	}
	account_locked_vm(pins->mm, pins->accounted - total, false);
	pins->accounted = total;
}

/*
 * Whether the addresses of the memory table have no tags (LAM, TBI).  The kernel ignores tags when
 * it pins pages, but not when it looks for the notifiers of a mapping that changes.
 */
static bool vblk_table_is_untagged(struct vblk_dev *dev)
{
	struct vhost_iotlb_map *map;

	list_for_each_entry(map, &dev->base.vdev.umem->list, link)
		if (untagged_addr(map->addr) != map->addr)
			return false;
	return true;
}

/**
 * vblk_pin_table - pin all memory of the device's memory table
 * @dev: the device; its owner calls, with its mutex held, and is about to replace the old pins
 *
 * Return: the pin table, or an error.
 */
struct vblk_pins *vblk_pin_table(struct vblk_dev *dev)
{
	struct vhost_iotlb_map *map;
	unsigned long total = 0;
	struct vblk_pins *pins;
	int r;

	lockdep_assert_held(&dev->base.vdev.mutex);
	if (!vblk_table_is_untagged(dev))
		return ERR_PTR(-EINVAL);
	pins = vblk_pins_alloc(dev);
	if (!pins)
		return ERR_PTR(-ENOMEM);
	list_for_each_entry(map, &dev->base.vdev.umem->list, link)
		total += vblk_pages_of_map(map);
	r = vblk_account_more(pins, total);
	if (!r)
		r = vblk_pin_regions(pins);
	if (r) {
		vblk_unfollow(pins);
		vblk_free_pins(pins);
		return ERR_PTR(r);
	}
	vblk_take_over_account(pins, total);
	return pins;
}
