// SPDX-License-Identifier: GPL-2.0
/* The disk's queue limits, as the device's configuration space has them. */
#include "pvblk.h"

#define PVBLK_MAX_DISCARD_SEGMENTS	256U

#define CONFIG_AT(field)	offsetof(struct virtio_blk_config, field)

/* Read a field of the configuration, which is valid only if FEATURE is negotiated. */
static u32 pvblk_read32(struct virtio_device *vdev, unsigned int feature, unsigned int offset,
			u32 fallback)
{
	return virtio_has_feature(vdev, feature) ? virtio_cread32(vdev, offset) : fallback;
}

static u16 pvblk_read16(struct virtio_device *vdev, unsigned int feature, unsigned int offset)
{
	return virtio_has_feature(vdev, feature) ? virtio_cread16(vdev, offset) : 0;
}

static u8 pvblk_read8(struct virtio_device *vdev, unsigned int feature, unsigned int offset)
{
	return virtio_has_feature(vdev, feature) ? virtio_cread8(vdev, offset) : 0;
}

static void pvblk_read_segments(struct virtio_device *vdev, unsigned int ring_size,
				struct queue_limits *lim)
{
	unsigned int segs = pvblk_read32(vdev, VIRTIO_BLK_F_SEG_MAX, CONFIG_AT(seg_max), 1);
	u32 size = pvblk_read32(vdev, VIRTIO_BLK_F_SIZE_MAX, CONFIG_AT(size_max), U32_MAX);
	size_t dma = virtio_max_dma_size(vdev);

	/*
	 * A chain, indirect or not, must not be longer than the ring (virtio 1.2, 2.7.5.3.1).  Two
	 * of its entries are the header and the status.
	 */
	segs = min(segs, max(ring_size, 3U) - 2);
	lim->max_segments = clamp(segs, 1U, (unsigned int)USHRT_MAX);
	lim->max_segment_size = min_t(size_t, size ?: U32_MAX, dma);
	lim->max_hw_sectors = UINT_MAX;
}

static void pvblk_read_topology(struct virtio_device *vdev, struct queue_limits *lim)
{
	const int f = VIRTIO_BLK_F_TOPOLOGY;
	u32 bs = pvblk_read32(vdev, VIRTIO_BLK_F_BLK_SIZE, CONFIG_AT(blk_size), SECTOR_SIZE);
	u8 exp = pvblk_read8(vdev, f, CONFIG_AT(physical_block_exp));

	/* This is not checked, because the block layer refuses an invalid size. */
	lim->logical_block_size = bs;
	if (exp && exp < 16)
		lim->physical_block_size = bs << exp;
	lim->alignment_offset = bs * pvblk_read8(vdev, f, CONFIG_AT(alignment_offset));
	lim->io_min = bs * pvblk_read16(vdev, f, CONFIG_AT(min_io_size));
	lim->io_opt = bs * pvblk_read32(vdev, f, CONFIG_AT(opt_io_size), 0);
}

/*
 * The block layer has one number of segments and one granularity for discard and secure erase.  If
 * the device has both operations, the driver takes the smaller values.
 */
static int pvblk_read_discard(struct virtio_device *vdev, struct queue_limits *lim)
{
	u32 segs = 0, granularity = 0;

	if (virtio_has_feature(vdev, VIRTIO_BLK_F_DISCARD)) {
		u32 max = pvblk_read32(vdev, VIRTIO_BLK_F_DISCARD,
				       CONFIG_AT(max_discard_sectors), 0);

		lim->max_hw_discard_sectors = max ?: UINT_MAX;
		segs = pvblk_read32(vdev, VIRTIO_BLK_F_DISCARD, CONFIG_AT(max_discard_seg), 0);
		granularity = pvblk_read32(vdev, VIRTIO_BLK_F_DISCARD,
					   CONFIG_AT(discard_sector_alignment), 0);
	}

	if (virtio_has_feature(vdev, VIRTIO_BLK_F_SECURE_ERASE)) {
		const int f = VIRTIO_BLK_F_SECURE_ERASE;
		u32 max = pvblk_read32(vdev, f, CONFIG_AT(max_secure_erase_sectors), 0);
		u32 max_seg = pvblk_read32(vdev, f, CONFIG_AT(max_secure_erase_seg), 0);
		u32 align = pvblk_read32(vdev, f, CONFIG_AT(secure_erase_sector_alignment), 0);

		if (!max || !max_seg || !align) {
			dev_err(&vdev->dev, "the device offers secure erase, but one of its limits is 0; turn secure erase off in the VMM\n");
			return -EINVAL;
		}
		lim->max_secure_erase_sectors = max;
		segs = min_not_zero(segs, max_seg);
		granularity = min_not_zero(granularity, align);
	}

	if (!lim->max_hw_discard_sectors && !lim->max_secure_erase_sectors)
		return 0;
	lim->max_discard_segments = min_t(u32, segs ?: lim->max_segments,
					  PVBLK_MAX_DISCARD_SEGMENTS);
	if (granularity && granularity <= U32_MAX >> SECTOR_SHIFT)
		lim->discard_granularity = granularity << SECTOR_SHIFT;
	else
		lim->discard_granularity = lim->logical_block_size;
	return 0;
}

/**
 * pvblk_read_limits - fill the limits of a disk
 * @vdev: the device, features negotiated
 * @ring_size: the size of its smallest ring
 * @lim: the limits to fill
 *
 * Return: 0, or -EINVAL if the device contradicts itself.
 */
int pvblk_read_limits(struct virtio_device *vdev, unsigned int ring_size,
		      struct queue_limits *lim)
{
	pvblk_read_segments(vdev, ring_size, lim);
	/* The block layer would refuse this, too, but with a warning. */
	if (lim->max_segment_size < PAGE_SIZE) {
		dev_err(&vdev->dev, "the device's segment limit (size_max) of %u bytes is less than a page; raise it in the VMM\n",
			lim->max_segment_size);
		return -EINVAL;
	}
	pvblk_read_topology(vdev, lim);
	if (virtio_has_feature(vdev, VIRTIO_BLK_F_WRITE_ZEROES)) {
		u32 max = pvblk_read32(vdev, VIRTIO_BLK_F_WRITE_ZEROES,
				       CONFIG_AT(max_write_zeroes_sectors), 0);

		lim->max_write_zeroes_sectors = max ?: UINT_MAX;
	}
	if (pvblk_cache_mode(vdev))
		lim->features |= BLK_FEAT_WRITE_CACHE;
	return pvblk_read_discard(vdev, lim);
}
