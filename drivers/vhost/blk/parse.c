// SPDX-License-Identifier: GPL-2.0
/*
 * This file checks virtio-blk requests that a guest wrote, and splits their descriptors into
 * header, data and status.  parse.h has the rule; parse_test.c tests it without a guest.
 */
#include <kunit/visibility.h>
#include <linux/module.h>
#include <linux/blk_types.h>

#include "parse.h"

/* In steps that cannot wrap, whatever the guest wrote. */
static bool vblk_within(u64 sector, u64 sectors, u64 capacity)
{
	return sector <= capacity && sectors <= capacity - sector;
}

/**
 * vblk_split_chain - find header, data and status of a chain
 * @iov: @out readable buffers, then @in writable ones
 * @out: number of readable buffers
 * @in: number of writable buffers
 * @chain: filled
 *
 * The framing is the guest's own business (virtio 1.2, 2.7.4): only the order
 * of bytes counts.  Returns false if there is no place for a status.
 */
bool vblk_split_chain(const struct iovec *iov, unsigned int out,
		      unsigned int in, struct vblk_chain *chain)
{
	const struct iovec *last = iov + out + in - 1;

	chain->out = (struct vblk_span){ .iov = iov };
	chain->out.len = iov_length(iov, out);
	chain->in = (struct vblk_span){ .iov = iov + out };
	chain->in.len = iov_length(iov + out, in);
	if (!chain->in.len)
		return false;

	while (!last->iov_len)
		last--;
	chain->status = last->iov_base + last->iov_len - 1;
	chain->in.len--;
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(vblk_split_chain);

/**
 * vblk_span_advance - leave out the first bytes of a span
 * @span: the span
 * @bytes: at most its length
 */
void vblk_span_advance(struct vblk_span *span, size_t bytes)
{
	span->len -= bytes;
	bytes += span->skip;
	while (span->len && bytes >= span->iov->iov_len) {
		bytes -= span->iov->iov_len;
		span->iov++;
	}
	span->skip = bytes;
}
EXPORT_SYMBOL_IF_KUNIT(vblk_span_advance);

/**
 * vblk_check_rw - may this read or write be done?
 * @lim: what the backend allows
 * @sector: where
 * @bytes: how much
 * @write: it changes the medium
 *
 * Returns a virtio-blk status.
 */
u8 vblk_check_rw(const struct vblk_limits *lim, u64 sector, size_t bytes,
		 bool write)
{
	u64 sectors = bytes >> SECTOR_SHIFT;

	if (write && lim->read_only)
		return VIRTIO_BLK_S_IOERR;
	if (bytes & (SECTOR_SIZE - 1) || bytes > lim->max_bytes)
		return VIRTIO_BLK_S_IOERR;
	if ((sector | sectors) & (lim->block_sectors - 1))
		return VIRTIO_BLK_S_IOERR;
	if (!vblk_within(sector, sectors, lim->capacity))
		return VIRTIO_BLK_S_IOERR;
	return VIRTIO_BLK_S_OK;
}
EXPORT_SYMBOL_IF_KUNIT(vblk_check_rw);

static u32 vblk_max_range(const struct vblk_limits *lim, u32 type)
{
	return type == VIRTIO_BLK_T_DISCARD ? lim->max_discard_sectors :
					      lim->max_write_zeroes_sectors;
}

/* As the guest was told. */
static u32 vblk_max_ranges(const struct vblk_limits *lim, u32 type)
{
	return type == VIRTIO_BLK_T_DISCARD ? lim->max_discard_ranges : 1;
}

/**
 * vblk_check_ranges - is the payload of a discard or write-zeroes a list of
 *	ranges, and not too long?
 * @lim: what the backend allows
 * @type: VIRTIO_BLK_T_DISCARD or VIRTIO_BLK_T_WRITE_ZEROES
 * @bytes: length of the payload
 */
u8 vblk_check_ranges(const struct vblk_limits *lim, u32 type, size_t bytes)
{
	size_t one = sizeof(struct virtio_blk_discard_write_zeroes);

	if (!vblk_max_range(lim, type))
		return VIRTIO_BLK_S_UNSUPP;
	if (lim->read_only)
		return VIRTIO_BLK_S_IOERR;
	if (!bytes || bytes % one || bytes / one > vblk_max_ranges(lim, type))
		return VIRTIO_BLK_S_IOERR;
	return VIRTIO_BLK_S_OK;
}
EXPORT_SYMBOL_IF_KUNIT(vblk_check_ranges);

/**
 * vblk_check_range - may this range be discarded or zeroed?
 * @lim: what the backend allows
 * @type: VIRTIO_BLK_T_DISCARD or VIRTIO_BLK_T_WRITE_ZEROES
 * @range: our copy of it
 */
u8 vblk_check_range(const struct vblk_limits *lim, u32 type,
		    const struct vblk_range *range)
{
	u32 known = 0;

	if (type == VIRTIO_BLK_T_WRITE_ZEROES)
		known = VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;
	if (range->flags & ~known)
		return VIRTIO_BLK_S_UNSUPP;
	if (range->sectors > vblk_max_range(lim, type))
		return VIRTIO_BLK_S_IOERR;
	if ((range->sector | range->sectors) & (lim->block_sectors - 1))
		return VIRTIO_BLK_S_IOERR;
	if (!vblk_within(range->sector, range->sectors, lim->capacity))
		return VIRTIO_BLK_S_IOERR;
	return VIRTIO_BLK_S_OK;
}
EXPORT_SYMBOL_IF_KUNIT(vblk_check_range);
