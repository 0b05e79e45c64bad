// SPDX-License-Identifier: GPL-2.0
/*
 * Turn the guest's buffers of a request into pages for the block layer.
 *
 * On demand
 * ---------
 * A request holds its pages from when it is taken until it is answered.
 *
 * The poller can only use the lockless page-table walk.  The kernel offers that walk to modules
 * with plain references (get_user_pages_fast_only), and not with FOLL_PIN.  A reference is enough
 * for shared memory and hugetlbfs, which VMMs share with a vhost device: such a page stays the one
 * behind its address.
 *
 * It is not enough for other memory.  Fork or swap may copy anonymous memory away from a page that
 * has only a reference.  For a page of a file system that is not pinned, reclaim takes the buffers
 * while this code makes the page dirty.  So there the walk uses FOLL_PIN.  The poller then walks
 * under mmap_lock, if the lock is free, and without faults.  It does not call
 * pin_user_pages_fast(), which would wait for the lock, because the owner could keep the lock.
 *
 * Pinned
 * ------
 * The pages of the whole memory table were pinned when the table was set, see pins.c.  They belong
 * to the pin table, which stays for as long as a request names it.  If the pin table does not vouch
 * for a page of a request, all pages of the request are held on demand.
 */
#include <linux/blkdev.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>

#include "blk.h"

/*
 * Allocate a vector.  The slot keeps it, so it is charged to the owner, whichever thread allocates
 * it.
 */
static struct bio_vec *vblk_alloc_bvec(struct vblk_dev *dev, unsigned int nr,
				       bool may_sleep)
{
	if (may_sleep)
		return kvmalloc_array(nr, sizeof(struct bio_vec), GFP_KERNEL_ACCOUNT);
	return vserve_alloc_quick(&dev->base, array_size(nr, sizeof(struct bio_vec)));
}

/**
 * vblk_drop_room - free the vector that a slot keeps
 * @req: the slot, whose request is over, or which has none yet
 */
void vblk_drop_room(struct vblk_req *req)
{
	vblk_vring_of(req)->kept -= req->max_bvec;
	kvfree(req->big_bvec);
	req->big_bvec = NULL;
	req->max_bvec = 0;
}

static int vblk_make_room(struct vblk_req *req, unsigned int nr, bool may_sleep)
{
	struct bio_vec *bvec;

	if (nr <= VBLK_INLINE_BVECS) {
		req->bvec = req->inline_bvec;
		return 0;
	}
	if (req->base.bytes > VBLK_MAX_BYTES && !may_sleep)
		return -EAGAIN;
	if (nr > req->max_bvec) {
		bvec = vblk_alloc_bvec(vblk_dev_of(vblk_vring_of(req)), nr, may_sleep);
		if (!bvec)
			return may_sleep ? -ENOMEM : -EAGAIN;
		vblk_drop_room(req);
		req->big_bvec = bvec;
		req->max_bvec = nr;
		vblk_vring_of(req)->kept += nr;
	}
	req->bvec = req->big_bvec;
	return 0;
}

/*
 * Add a page to a request.  Pages that follow each other in memory and in the request are one
 * vector, if they are of one folio.  So each vector of guest memory lies in one folio as long as
 * its pages are held: the kernel does not split a folio while it has a reference or a pin that its
 * mappings do not explain.
 */
static void vblk_add_page(struct vblk_req *req, struct page *page,
			  unsigned int offset, unsigned int len)
{
	struct bio_vec *last = req->bvec + req->nr_bvec - 1;

	if (req->nr_bvec && !offset &&
	    page_folio(page) == page_folio(last->bv_page) &&
	    page_to_phys(page) == page_to_phys(last->bv_page) +
				  last->bv_offset + last->bv_len) {
		last->bv_len += len;
		return;
	}
	bvec_set_page(&req->bvec[req->nr_bvec++], page, len, offset);
}

static void vblk_add_run(struct vblk_req *req, struct page **pages,
			 unsigned int nr, unsigned long addr, size_t len)
{
	unsigned int offset = offset_in_page(addr), i;

	for (i = 0; i < nr; i++) {
		unsigned int now = min_t(size_t, len, PAGE_SIZE - offset);

		vblk_add_page(req, pages[i], offset, now);
		len -= now;
		offset = 0;
	}
}

static unsigned int vblk_pages_of(unsigned long addr, size_t len)
{
	return (offset_in_page(addr) + len + PAGE_SIZE - 1) >> PAGE_SHIFT;
}

static void vblk_put_pages(struct page **pages, int nr)
{
	while (nr > 0)
		put_page(pages[--nr]);
}

static bool vblk_wants_pin(const struct folio *folio)
{
	if (folio_test_anon(folio))
		return true;
	return !folio_test_swapbacked(folio) && !folio_test_hugetlb(folio);
}

static bool vblk_any_wants_pin(struct page **pages, int nr)
{
	while (nr-- > 0)
		if (vblk_wants_pin(page_folio(pages[nr])))
			return true;
	return false;
}

/* Hold pages by references.  Returns -EXDEV if a reference is not enough for one of them. */
static int vblk_hold_get(unsigned long start, int nr, unsigned int flags,
			 struct page **pages, bool may_sleep)
{
	int got;

	if (may_sleep)
		got = get_user_pages_fast(start, nr, flags, pages);
	else
		got = get_user_pages_fast_only(start, nr, flags, pages);
	if (got == nr && !vblk_any_wants_pin(pages, nr))
		return nr;
	vblk_put_pages(pages, got);
	if (got == nr)
		return -EXDEV;
	return may_sleep ? -EFAULT : -EAGAIN;
}

static int vblk_pin_present(unsigned long start, int nr, unsigned int flags,
			    struct page **pages)
{
	struct mm_struct *mm = current->mm;
	int got;

	if (!mmap_read_trylock(mm))
		return -EAGAIN;
	got = pin_user_pages(start, nr, flags | FOLL_NOFAULT, pages);
	mmap_read_unlock(mm);
	return got;
}

static int vblk_hold_pin(unsigned long start, int nr, unsigned int flags,
			 struct page **pages, bool may_sleep)
{
	int got;

	if (may_sleep)
		got = pin_user_pages_fast(start, nr, flags, pages);
	else
		got = vblk_pin_present(start, nr, flags, pages);
	if (got == nr)
		return nr;
	if (got > 0)
		unpin_user_pages(pages, got);
	return may_sleep ? -EFAULT : -EAGAIN;
}

static int vblk_map_run(struct vblk_req *req, unsigned long addr, size_t len,
			bool may_sleep)
{
	unsigned int flags = vblk_is_write(req) ? 0 : FOLL_WRITE;
	struct page **pages = vblk_vring_of(req)->pages;

	while (len) {
		int nr = min_t(unsigned int, vblk_pages_of(addr, len),
			       VBLK_PAGE_BATCH);
		size_t now = min_t(size_t, len,
				   nr * PAGE_SIZE - offset_in_page(addr));
		int r;

		if (req->base.hold == VBLK_HOLD_GET)
			r = vblk_hold_get(addr & PAGE_MASK, nr, flags, pages,
					  may_sleep);
		else
			r = vblk_hold_pin(addr & PAGE_MASK, nr, flags, pages,
					  may_sleep);
		if (r < 0)
			return r;
		vblk_add_run(req, pages, nr, addr, now);
		addr += now;
		len -= now;
	}
	return 0;
}

/*
 * Map a part of a request from the pin table.  Returns -ENOENT if the owner's mapping has changed
 * there, so that the page has to be looked up.
 */
static int vblk_map_entries(struct vblk_req *req, struct vblk_pin_region *region,
			    unsigned long addr, size_t len)
{
	unsigned long at = (addr - region->start) >> PAGE_SHIFT;
	unsigned int offset = offset_in_page(addr);

	while (len) {
		unsigned int now = min_t(size_t, len, PAGE_SIZE - offset);
		struct page *page = vblk_pin_page(region, at);

		if (!page) {
			vblk_pins_want(region, at);
			return -ENOENT;
		}
		vblk_add_page(req, page, offset, now);
		at++;
		len -= now;
		offset = 0;
	}
	return 0;
}

static int vblk_map_pinned(struct vblk_req *req, struct vblk_pins *pins, unsigned long addr,
			   size_t len)
{
	unsigned int i;

	for (i = 0; i < pins->nr_regions; i++) {
		struct vblk_pin_region *region = &pins->regions[i];
		unsigned long at = (addr - region->start) >> PAGE_SHIFT;

		if (addr >= region->start && at < region->nr_pages &&
		    vblk_pages_of(addr, len) <= region->nr_pages - at)
			return vblk_map_entries(req, region, addr, len);
	}
	/* The ring uses a new memory table before the pins do. */
	return -ENOENT;
}

/* Map a span of a request: from the table @pins, if there is one, and on demand otherwise. */
static int vblk_map_span(struct vblk_req *req, struct vblk_pins *pins, struct vblk_span span,
			 bool may_sleep)
{
	while (span.len) {
		unsigned long addr = (unsigned long)span.iov->iov_base +
				     span.skip;
		size_t len = min(span.len, span.iov->iov_len - span.skip);
		int r = 0;

		if (len && pins)
			r = vblk_map_pinned(req, pins, addr, len);
		else if (len)
			r = vblk_map_run(req, addr, len, may_sleep);
		if (r)
			return r;
		span.len -= len;
		span.skip = 0;
		span.iov++;
	}
	return 0;
}

/*
 * Release the pages of vectors.  Each page has a reference, or a pin, of its own, and all pages of
 * a vector are of one folio, see vblk_add_page().  put_page() would do more for a page of a DAX
 * file, but these are pinned.
 */
static void vblk_unhold(struct bio_vec *bvec, unsigned int nr, u8 hold)
{
	for (; nr--; bvec++) {
		unsigned int n = vblk_pages_of(bvec->bv_offset, bvec->bv_len);

		if (hold == VBLK_HOLD_PIN)
			unpin_user_page_range_dirty_lock(bvec->bv_page, n, false);
		else
			folio_put_refs(page_folio(bvec->bv_page), n);
	}
}

static void vblk_unhold_guest(struct vblk_req *req)
{
	if (req->base.hold == VBLK_HOLD_GET || req->base.hold == VBLK_HOLD_PIN) {
		if (req->nr_guest)
			vblk_unhold(req->guest, req->nr_guest, req->base.hold);
		else
			vblk_unhold(req->bvec, req->nr_bvec, req->base.hold);
	}
	/* The worker of the pin table reads this before it unpins old pages. */
	smp_store_release(&req->base.hold, VBLK_HOLD_NONE);
}

static void vblk_free_bounce(struct vblk_req *req)
{
	unsigned int i;

	if (!req->nr_guest)
		return;
	for (i = 0; i < req->nr_bvec; i++)
		__free_page(req->bvec[i].bv_page);
	kvfree(req->bvec);
	req->bvec = req->guest;
	req->nr_bvec = req->nr_guest;
	req->nr_guest = 0;
}

/*
 * Copy a request through pages of the kernel, because the device cannot address the guest's
 * buffers, or only in more than one command.  Only unusual guests need this, so only workers do it.
 * A guest can have as many such requests as it likes, so their number is limited.
 */
static int vblk_bounce(struct vblk_req *req)
{
	unsigned int nr = DIV_ROUND_UP(req->base.bytes, PAGE_SIZE), i;
	size_t left = req->base.bytes;
	struct bio_vec *bvec;
	struct iov_iter from;

	if (req->base.bytes > VBLK_MAX_BYTES)
		return -ENOMEM;
	bvec = kvmalloc_array(nr, sizeof(*bvec), GFP_KERNEL_ACCOUNT);
	if (!bvec)
		return -ENOMEM;
	iov_iter_bvec(&from, ITER_SOURCE, req->bvec, req->nr_bvec, req->base.bytes);
	for (i = 0; i < nr; i++) {
		size_t now = min_t(size_t, left, PAGE_SIZE);
		struct page *page = alloc_page(GFP_KERNEL_ACCOUNT);

		if (!page)
			goto no_memory;
		bvec_set_page(&bvec[i], page, now, 0);
		left -= now;
		/* The copy is from pages to pages, so it never fails. */
		if (!vblk_is_write(req) ||
		    copy_from_iter(page_address(page), now, &from) != now)
			memset(page_address(page), 0, now);
	}
	req->guest = req->bvec;
	req->nr_guest = req->nr_bvec;
	req->bvec = bvec;
	req->nr_bvec = nr;
	req->bounced = req->base.bytes;
	vblk_vring_of(req)->bounced += req->bounced;
	return 0;

no_memory:
	while (i--)
		__free_page(bvec[i].bv_page);
	kvfree(bvec);
	return -ENOMEM;
}

static void vblk_bounce_back(struct vblk_req *req)
{
	struct iov_iter to;
	unsigned int i;

	iov_iter_bvec(&to, ITER_DEST, req->guest, req->nr_guest, req->base.bytes);
	for (i = 0; i < req->nr_bvec; i++)
		if (!copy_to_iter(page_address(req->bvec[i].bv_page),
				  req->bvec[i].bv_len, &to))
			return;
}

static unsigned int vblk_count_pages(struct vblk_span span)
{
	unsigned int nr = 0;

	while (span.len) {
		size_t len = min(span.len, span.iov->iov_len - span.skip);

		nr += vblk_pages_of((unsigned long)span.iov->iov_base + span.skip,
				    len);
		span.len -= len;
		span.skip = 0;
		span.iov++;
	}
	return nr;
}

/*
 * Begin a large request, if the device has none.
 *
 * The vrings of a device have different mutexes, so dev->large is exchanged atomically.  A vring
 * that finds a large request there says in dev->large_awaited that it waits, and looks again.  The
 * end of the large request clears dev->large, and then looks whether a vring waits.  So it sees the
 * vring that waits, or that vring sees that it need not.
 */
static int vblk_begin_large(struct vblk_req *req)
{
	struct vblk_vring *vring = vblk_vring_of(req);
	struct vblk_dev *dev = vblk_dev_of(vring);

	if (cmpxchg(&dev->large, NULL, vring)) {
		vring->awaits_large = true;
		/* Pairs with the barrier in vblk_end_large(). */
		smp_store_mb(dev->large_awaited, true);
		if (cmpxchg(&dev->large, NULL, vring))
			return -EBUSY;
		vring->awaits_large = false;
	}
	vring->large = req;
	return 0;
}

static void vblk_end_large(struct vblk_vring *vring)
{
	struct vblk_dev *dev = vblk_dev_of(vring);

	vring->large = NULL;
	/* Orders the request's end before this, and this before the look whether a vring waits. */
	smp_store_mb(dev->large, NULL);
	if (READ_ONCE(dev->large_awaited))
		queue_work(dev->base.ring_wq, &dev->large_work);
}

/**
 * vblk_go_on_with_large - have vrings go on that wait for the end of a large request
 * @work: of the device; vblk_forget() waits for it
 *
 * If another vring was faster, they wait again.
 */
void vblk_go_on_with_large(struct work_struct *work)
{
	struct vblk_dev *dev = container_of(work, struct vblk_dev, large_work);
	unsigned int i, nr;

	/* A vring that begins to wait after this finds dev->large NULL, or has this run again. */
	smp_store_mb(dev->large_awaited, false);
	/* Pairs with the release in vserve_add_vring(). */
	nr = smp_load_acquire(&dev->base.vdev.nvqs);
	for (i = 0; i < nr; i++) {
		struct vblk_vring *vring = to_vblk_vring(dev->base.vrings[i]);
		bool awaits;

		mutex_lock(&vring->base.vq.mutex);
		awaits = vring->awaits_large;
		vring->awaits_large = false;
		vblk_update_full(vring);
		mutex_unlock(&vring->base.vq.mutex);
		if (awaits)
			vhost_poll_wake(&vring->base.src);
	}
}

static u32 vblk_count_held(enum vblk_hold hold, unsigned int nr)
{
	switch (hold) {
	case VBLK_HOLD_GET:
		return nr;
	case VBLK_HOLD_PIN:
		return nr * VBLK_PIN_HOLDS;
	default:
		return 0;
	}
}

/*
 * Begin to hold the pages of a request in a way, and count them before the first one is held.
 * Returns -EBUSY if the request has to wait until others have ended.
 */
static int vblk_begin_hold(struct vblk_req *req, enum vblk_hold hold, unsigned int nr)
{
	struct vblk_vring *vring = vblk_vring_of(req);
	u32 held = vblk_count_held(hold, nr);
	int r = 0;

	if (vring->held && vring->held + held > VBLK_MAX_HELD) {
		vring->refused = held;
		return -EBUSY;
	}
	if (held > VBLK_MAX_HELD || req->base.bytes > VBLK_MAX_BYTES)
		r = vblk_begin_large(req);
	if (r)
		return r;
	req->base.hold = hold;
	req->held = held;
	vring->held += held;
	return 0;
}

/**
 * vblk_uncount_held - count the pages of a request no more
 * @req: the request, which has no pages any more
 */
void vblk_uncount_held(struct vblk_req *req)
{
	struct vblk_vring *vring = vblk_vring_of(req);

	vring->held -= req->held;
	req->held = 0;
	if (vring->large == req)
		vblk_end_large(vring);
}

/* Release the pages of a request that is not ready yet. */
static void vblk_undo_hold(struct vblk_req *req)
{
	vblk_unhold_guest(req);
	req->nr_bvec = 0;
	vblk_uncount_held(req);
}

static int vblk_hold_span(struct vblk_req *req, struct vblk_span span, unsigned int nr,
			  bool may_sleep)
{
	struct vblk_vring *vring = vblk_vring_of(req);
	/* Pairs with the release in vblk_set_pins(). */
	struct vblk_pins *pins = READ_ONCE(vblk_dev_of(vring)->pins);
	int r;

	if (pins) {
		req->pins = pins;
		r = vblk_begin_hold(req, VBLK_HOLD_TABLE, nr);
		if (r)
			return r;
		r = vblk_map_span(req, pins, span, may_sleep);
		if (r != -ENOENT)
			return r;
		vblk_undo_hold(req);
	}
	r = vblk_begin_hold(req, vring->pin ? VBLK_HOLD_PIN : VBLK_HOLD_GET, nr);
	if (r)
		return r;
	r = vblk_map_span(req, NULL, span, may_sleep);
	if (r != -EXDEV)
		return r;
	vring->pin = true;
	vblk_undo_hold(req);
	r = vblk_begin_hold(req, VBLK_HOLD_PIN, nr);
	return r ?: vblk_map_span(req, NULL, span, may_sleep);
}

/**
 * vblk_map_data - look up and hold the guest's pages of a request
 * @req: the request; its type and length are known
 * @span: the place of the data
 * @may_sleep: page faults are allowed
 *
 * Return: 0, -EAGAIN if only a worker can do it, -EBUSY if the request has to wait until others
 * have ended, or another error, which is final.
 */
int vblk_map_data(struct vblk_req *req, struct vblk_span span, bool may_sleep)
{
	unsigned int nr = vblk_count_pages(span);
	int r;

	r = vblk_make_room(req, nr, may_sleep);
	if (r)
		return r;
	r = vblk_hold_span(req, span, nr, may_sleep);
	if (!r && !vblk_aligned(req))
		r = may_sleep ? vblk_bounce(req) : -EAGAIN;
	if (r) {
		vblk_undo_hold(req);
		return r;
	}
	vblk_set_segs(req);
	return 0;
}

/*
 * Make the pages of a read dirty.  Returns false if that has to wait for a page's lock.
 *
 * A dirty folio of anonymous memory, of tmpfs or of hugetlbfs needs no lock, because it is dirty as
 * a whole.  Other file systems know which blocks of a folio are dirty, so they have to hear of each
 * read.  A vector of guest memory lies in one folio, see vblk_add_page().
 */
static bool vblk_dirty(struct bio_vec *bvec, unsigned int nr, bool may_sleep)
{
	for (; nr--; bvec++) {
		struct folio *folio = page_folio(bvec->bv_page);

		if (folio_test_dirty(folio) &&
		    (folio_test_swapbacked(folio) || folio_test_hugetlb(folio)))
			continue;
		if (may_sleep)
			folio_lock(folio);
		else if (!folio_trylock(folio))
			return false;
		folio_mark_dirty(folio);
		folio_unlock(folio);
	}
	return true;
}

/**
 * vblk_unmap_data - vserve_ops.release: release the pages of a request
 * @vreq: the request; the backend is done with it
 * @may_sleep: a worker calls
 *
 * Return: false if this takes long, or has to wait for a page's lock.
 */
bool vblk_unmap_data(struct vserve_req *vreq, bool may_sleep)
{
	struct vblk_req *req = to_vblk_req(vreq);
	struct bio_vec *guest = req->nr_guest ? req->guest : req->bvec;
	unsigned int nr = req->nr_guest ?: req->nr_bvec;

	if (req->base.hold == VBLK_HOLD_NONE)
		return true;
	/* To release this many pages, or to copy them, takes longer than a round may. */
	if (!may_sleep && (req->nr_guest || req->base.bytes > VBLK_MAX_BYTES))
		return false;
	if (req->type == VIRTIO_BLK_T_IN) {
		/*
		 * Copy first, because pages that were made dirty may be written back and be clean
		 * again.
		 */
		if (req->nr_guest && req->base.status == VIRTIO_BLK_S_OK)
			vblk_bounce_back(req);
		if (!vblk_dirty(guest, nr, may_sleep))
			return false;
	}
	vblk_free_bounce(req);
	vblk_unhold_guest(req);
	req->nr_bvec = 0;
	return true;
}
