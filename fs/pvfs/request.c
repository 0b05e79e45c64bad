// SPDX-License-Identifier: GPL-2.0
/*
 * This file copies a request of FUSE's core into a slot, and a reply from a slot to the core.
 *
 * The buffer of a slot holds the header and the arguments that the device reads.  Behind them,
 * aligned, it holds the header and the arguments that the device writes.  So a request without
 * pages takes two descriptors.  The driver copies arguments, because the core has them on stacks,
 * which cannot be mapped for a device.
 *
 * The driver does not trust the device with lengths.  It copies a reply only as far as the device
 * says that it wrote, and only as far as the core asked for it.
 */
#include "pvfs.h"

#include <linux/highmem.h>
#include <linux/slab.h>

/* Pages that are adjacent in memory share a descriptor, up to this size. */
#define PVFS_SEGMENT_MAX	SZ_64K

/* The core has put the size of all that the device reads into the header, including pages. */
static unsigned int pvfs_in_size(const struct fuse_req *req)
{
	const struct fuse_args *args = req->args;

	return req->in.h.len - (args->in_pages ? args->in_args[args->in_numargs - 1].size : 0);
}

static unsigned int pvfs_out_size(struct fuse_req *req)
{
	struct fuse_args *args = req->args;

	if (!test_bit(FR_ISREPLY, &req->flags))
		return 0;
	return sizeof(struct fuse_out_header) +
	       fuse_len_args(args->out_numargs - args->out_pages, args->out_args);
}

/**
 * pvfs_request_measure - how much of a buffer a request takes
 * @req: the request
 * @need: takes the sizes.  The caller frees @need->big, unless a slot takes it over
 * @gfp: how to allocate a buffer, if the arguments do not fit into a slot
 *
 * Return: 0 or -ENOMEM.
 */
int pvfs_request_measure(struct fuse_req *req, struct pvfs_need *need, gfp_t gfp)
{
	size_t size;

	need->in_size = pvfs_in_size(req);
	need->out_size = pvfs_out_size(req);
	need->big = NULL;
	size = ALIGN(need->in_size, 8) + need->out_size;
	if (likely(size <= PVFS_BUF_SIZE))
		return 0;
	/* Zero the buffer, so that a short reply does not show old contents of this memory. */
	need->big = kzalloc(size, gfp);
	return need->big ? 0 : -ENOMEM;
}

static enum pvfs_class pvfs_data_class(unsigned int size)
{
	return size <= PVFS_SMALL_MAX ? PVFS_SMALL : PVFS_LARGE;
}

static enum pvfs_class pvfs_request_class(const struct fuse_req *req)
{
	const struct fuse_args *args = req->args;

	if (test_bit(FR_BACKGROUND, &req->flags) || !test_bit(FR_ISREPLY, &req->flags))
		return PVFS_NEVER;
	switch (args->opcode) {
	case FUSE_READ:
		return pvfs_data_class(args->out_args[args->out_numargs - 1].size);
	case FUSE_WRITE:
		return pvfs_data_class(args->in_args[args->in_numargs - 1].size);
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_SYNCFS:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
	case FUSE_IOCTL:
		return PVFS_SYNC;
	case FUSE_SETLKW:
		return PVFS_NEVER;
	default:
		return PVFS_META;
	}
}

/*
 * Whether a request may take long at a healthy server.  How long a wait for a lock takes depends on
 * other processes.  How long a request of PVFS_SYNC takes depends on the host's disk, and on how
 * much the caller asks for.
 */
static bool pvfs_class_is_patient(enum pvfs_class class, const struct fuse_req *req)
{
	return class == PVFS_SYNC || pvfs_can_interrupt(req);
}

/**
 * pvfs_is_patient - whether a request may take long at a healthy server
 * @req: the request, which has not been sent
 */
bool pvfs_is_patient(const struct fuse_req *req)
{
	return pvfs_class_is_patient(pvfs_request_class(req), req);
}

static void *pvfs_slot_in(struct pvfs_slot *slot)
{
	return slot->big ?: slot->buf;
}

static void *pvfs_slot_out(struct pvfs_slot *slot)
{
	return pvfs_slot_in(slot) + ALIGN(slot->in_size, 8);
}

/**
 * pvfs_request_fill - copy into a slot all that the device reads, except pages
 * @q: the queue, locked
 * @slot: a free slot of the queue; @slot->lock is set
 * @req: the request
 * @need: the sizes that pvfs_request_measure() found
 */
void pvfs_request_fill(struct pvfs_queue *q, struct pvfs_slot *slot, struct fuse_req *req,
		       const struct pvfs_need *need)
{
	struct fuse_args *args = req->args;
	unsigned int i, n = args->in_numargs - args->in_pages;
	void *to;

	/*
	 * The number is unique among all queues, although they share no lock.  It is never 0.  It
	 * is even, because an INTERRUPT for the request has the next odd number.
	 */
	slot->unique = (++q->seq * (q->dev->nr_queues + 1) + q->index + 1) * 2;
	req->in.h.unique = slot->unique;
	slot->req = req;
	slot->wait = NULL;
	slot->interrupt = false;
	slot->class = pvfs_request_class(req);
	/* A request of PVFS_LOCK_ASKS is not patient, because the server answers it at once. */
	slot->patient = pvfs_class_is_patient(slot->class, req) && slot->lock != PVFS_LOCK_ASKS;
	slot->big = need->big;
	slot->in_size = need->in_size;
	slot->out_size = need->out_size;
	slot->out_pages = slot->out_size && args->out_pages ?
			  args->out_args[args->out_numargs - 1].size : 0;

	to = pvfs_slot_in(slot);
	memcpy(to, &req->in.h, sizeof(req->in.h));
	if (slot->lock == PVFS_LOCK_ASKS)
		((struct fuse_in_header *)to)->opcode = FUSE_SETLK;
	to += sizeof(req->in.h);
	for (i = 0; i < n; i++) {
		memcpy(to, args->in_args[i].value, args->in_args[i].size);
		to += args->in_args[i].size;
	}
	pvfs_cache_ask(q->dev, req, pvfs_slot_in(slot) + sizeof(req->in.h));
	/* Clear this, so that old bytes do not look like a reply if the device writes none. */
	if (slot->out_size)
		memset(pvfs_slot_out(slot), 0, sizeof(struct fuse_out_header));
}

/**
 * pvfs_page - a page of a request
 * @ap: the arguments of the request
 * @i: the index of the page
 * @offset: where in the page the data begin
 * @length: how many bytes of data are in the page
 */
struct page *pvfs_page(struct fuse_args_pages *ap, unsigned int i, unsigned int *offset,
		       unsigned int *length)
{
	if (ap->uses_folios) {
		*offset = ap->folio_descs[i].offset;
		*length = ap->folio_descs[i].length;
		return folio_page(ap->folios[i], 0);
	}
	*offset = ap->descs[i].offset;
	*length = ap->descs[i].length;
	return ap->pages[i];
}

/**
 * pvfs_page_count - how many pages a request has, if it has any
 * @ap: the arguments of the request
 */
unsigned int pvfs_page_count(const struct fuse_args_pages *ap)
{
	return ap->uses_folios ? ap->num_folios : ap->num_pages;
}

/* Add the first LEFT bytes of the pages to a list, after entry SG.  Returns the last entry used. */
static struct scatterlist *pvfs_map_pages(struct scatterlist *sg, struct fuse_args *args,
					  unsigned int left)
{
	struct fuse_args_pages *ap = container_of(args, typeof(*ap), args);
	unsigned int i, offset, length;
	phys_addr_t end = 0;

	for (i = 0; i < pvfs_page_count(ap) && left; i++) {
		struct page *page = pvfs_page(ap, i, &offset, &length);
		phys_addr_t start = page_to_phys(page) + offset;

		length = min(length, left);
		left -= length;
		if (end && start == end && sg->length + length <= PVFS_SEGMENT_MAX) {
			sg->length += length;
		} else {
			sg++;
			sg_unmark_end(sg);
			sg_set_page(sg, page, length, offset);
		}
		end = start + length;
	}
	return sg;
}

/**
 * pvfs_request_map - make scatter lists of a filled slot
 * @q: the queue, locked
 * @slot: the slot
 * @sgs: one list that the device reads, and one that it writes
 * @lists: how many of these two lists the request needs
 *
 * The lists are in memory of the queue, and last until the caller drops the queue's lock.
 *
 * Return: how many entries the lists have, or 0 if they would need more than the queue has.
 */
unsigned int pvfs_request_map(struct pvfs_queue *q, struct pvfs_slot *slot,
			      struct scatterlist *sgs[2], unsigned int *lists)
{
	struct fuse_args *args = slot->req->args;
	struct fuse_args_pages *ap = container_of(args, typeof(*ap), args);
	struct scatterlist *sg = q->sg;

	if ((args->in_pages || args->out_pages) &&
	    pvfs_page_count(ap) > q->nr_sg - PVFS_SG_HEADERS)
		return 0;
	sgs[0] = sg;
	*lists = 1;
	sg_unmark_end(sg);
	sg_set_buf(sg, pvfs_slot_in(slot), slot->in_size);
	if (args->in_pages)
		sg = pvfs_map_pages(sg, args, args->in_args[args->in_numargs - 1].size);
	sg_mark_end(sg);
	if (!slot->out_size)
		return sg + 1 - q->sg;

	sgs[1] = ++sg;
	*lists = 2;
	sg_unmark_end(sg);
	sg_set_buf(sg, pvfs_slot_out(slot), slot->out_size);
	if (slot->out_pages)
		sg = pvfs_map_pages(sg, args, slot->out_pages);
	sg_mark_end(sg);
	return sg + 1 - q->sg;
}

/* A reply may be shorter than the core asked for, if the size of its last argument may vary. */
static int pvfs_fit_last(const struct pvfs_slot *slot, struct fuse_args *args, unsigned int len)
{
	unsigned int asked = slot->out_size + slot->out_pages;
	struct fuse_arg *last;

	if (len == asked)
		return 0;
	if (len > asked || !args->out_argvar)
		return -EIO;
	last = &args->out_args[args->out_numargs - 1];
	if (asked - len > last->size)
		return -EIO;
	last->size -= asked - len;
	return 0;
}

static void pvfs_copy_out(struct fuse_args *args, const void *from)
{
	unsigned int i, n = args->out_numargs - args->out_pages;

	for (i = 0; i < n; i++) {
		memcpy(args->out_args[i].value, from, args->out_args[i].size);
		from += args->out_args[i].size;
	}
}

static bool pvfs_header_good(const struct pvfs_slot *slot, const struct fuse_out_header *oh,
			     unsigned int written)
{
	return written >= sizeof(*oh) && written <= slot->out_size + slot->out_pages &&
	       oh->len >= sizeof(*oh) && oh->len <= written && oh->unique == slot->unique &&
	       oh->error <= 0 && oh->error > -512 && (!oh->error || oh->len == sizeof(*oh));
}

/**
 * pvfs_request_reply - check a reply, and copy it from its slot to the request
 * @q: the queue, locked
 * @slot: the slot; the device has given it back
 * @written: how many bytes the device says that it wrote
 *
 * The function leaves the result in the request.  A malformed reply becomes -EIO.
 */
void pvfs_request_reply(struct pvfs_queue *q, struct pvfs_slot *slot, unsigned int written)
{
	struct fuse_req *req = slot->req;
	struct fuse_out_header oh = {};

	if (slot->out_size) {
		/* Copy the header once, because the device may change it at any time. */
		memcpy(&oh, pvfs_slot_out(slot), sizeof(oh));
		if (!pvfs_header_good(slot, &oh, written) ||
		    (!oh.error && pvfs_fit_last(slot, req->args, oh.len))) {
			q->stats.bad_replies++;
			oh.error = -EIO;
		}
		if (!oh.error)
			pvfs_copy_out(req->args, pvfs_slot_out(slot) + sizeof(oh));
	}
	req->out.h = oh;
	pvfs_cache_told(q->dev, req);
}

/**
 * pvfs_late_reply - look at the reply to an abandoned request
 * @slot: the request's slot, which the device has given back
 * @to: where to put the first argument of the reply
 * @size: the size of this argument
 *
 * Return: how many bytes of arguments the device wrote.  If these are @size or more, the function
 * has filled @to.  A negative number otherwise: the server's error, or -EIO if the device wrote no
 * valid reply.
 */
int pvfs_late_reply(struct pvfs_slot *slot, void *to, unsigned int size)
{
	struct fuse_out_header oh;
	int len;

	memcpy(&oh, pvfs_slot_out(slot), sizeof(oh));
	if (!pvfs_header_good(slot, &oh, slot->written))
		return -EIO;
	if (oh.error)
		return oh.error;
	len = oh.len - sizeof(oh);
	if (len >= size)
		memcpy(to, pvfs_slot_out(slot) + sizeof(oh), size);
	return len;
}

/* Zero the part of the pages that a read did not fill because the file ended. */
static void pvfs_zero_rest(struct fuse_args *args)
{
	struct fuse_args_pages *ap = container_of(args, typeof(*ap), args);
	unsigned int got = args->out_args[args->out_numargs - 1].size;
	unsigned int i, offset, length;

	for (i = 0; i < pvfs_page_count(ap); i++) {
		struct page *page = pvfs_page(ap, i, &offset, &length);

		if (got < length)
			memzero_page(page, offset + got, length - got);
		got -= min(got, length);
	}
}

/**
 * pvfs_sync_failed - have files report that a SYNCFS has failed
 * @fm: the mount
 * @err: the error; -ENOSYS says that the server does not know the request
 *
 * The server reports an error once, but sync(2) ignores it, and a killed task does not get it.  So
 * the driver notes it as the kernel notes an error of writing back.  Each file that is open then
 * reports it once, at its next syncfs(2).
 */
void pvfs_sync_failed(struct fuse_mount *fm, int err)
{
	if (err != -ENOSYS)
		errseq_set(&fm->sb->s_wb_err, err);
}

/**
 * pvfs_request_end - end a request that has its result
 * @req: the request, which may be gone on return
 */
void pvfs_request_end(struct fuse_req *req)
{
	struct fuse_args *args = req->args;

	if (args->out_pages && args->page_zeroing && !req->out.h.error)
		pvfs_zero_rest(args);
	if (unlikely(args->opcode == FUSE_SYNCFS && req->out.h.error))
		pvfs_sync_failed(req->fm, req->out.h.error);
	fuse_request_end(req);
}
