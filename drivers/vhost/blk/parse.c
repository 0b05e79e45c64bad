// SPDX-License-Identifier: GPL-2.0
/*
 * Check virtio-blk requests that a guest wrote, and split their descriptors into header, data and
 * status.  parse.h has the rule; parse_test.c tests this without a guest.
 */
#include <kunit/visibility.h>
#include <linux/module.h>
#include <linux/blk_types.h>

#include "parse.h"

/* Whether a range lies within the disk.  No step can wrap, whatever the guest wrote. */
static bool vblk_within(u64 sector, u64 sectors, u64 capacity)
{
	return sector <= capacity && sectors <= capacity - sector;
}

/**
 * vblk_split_chain - find header, data and status of a chain
 * @iov: @out readable buffers, then @in writable ones
 * @out: number of readable buffers
 * @in: number of writable buffers
 * @chain: to be filled
 *
 * The guest may split the bytes into buffers as it likes (virtio 1.2, 2.7.4).  Only their order
 * counts.
 *
 * Return: false if there is no place for a status.
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
 * vblk_check_rw - check that the backend allows a read or write
 * @lim: what the backend allows
 * @sector: the first sector
 * @bytes: the number of bytes
 * @write: it is a write
 *
 * Return: a virtio-blk status.
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

/* The guest was told of this limit. */
static u32 vblk_max_ranges(const struct vblk_limits *lim, u32 type)
{
	return type == VIRTIO_BLK_T_DISCARD ? lim->max_discard_ranges : 1;
}

/**
 * vblk_check_ranges - check that a discard or write-zeroes has ranges, and not too many
 * @lim: what the backend allows
 * @type: VIRTIO_BLK_T_DISCARD or VIRTIO_BLK_T_WRITE_ZEROES
 * @bytes: the length of the data
 *
 * Return: a virtio-blk status.
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
 * vblk_check_range - check that a range may be discarded or zeroed
 * @lim: what the backend allows
 * @type: VIRTIO_BLK_T_DISCARD or VIRTIO_BLK_T_WRITE_ZEROES
 * @range: the host's copy of the range
 *
 * Return: a virtio-blk status.
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
