// SPDX-License-Identifier: GPL-2.0
/* The gendisk of a device: its name, its size, its geometry, its serial number. */
#include "name.h"
#include "pvblk.h"

#include <linux/hdreg.h>
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/string_helpers.h>

/*
 * Names.  virtio_blk numbers its disks from vda, does not know the disks of this driver, and fails
 * if a name is taken.  So this driver begins at vdaa, where virtio_blk hardly has a disk.  If this
 * driver has all disks of a guest (claim=all, and no virtio_blk), the user can set first_index=0 to
 * have vda again.
 */
static unsigned int first_index = 26;
module_param(first_index, uint, 0444);
MODULE_PARM_DESC(first_index, "Number of the first disk's name (0: vda, 1: vdb; default 26: vdaa)");

static int pvblk_major;
static DEFINE_IDA(pvblk_ida);

int pvblk_index_get(void)
{
	return ida_alloc_range(&pvblk_ida, first_index,
			       (1 << (MINORBITS - PVBLK_PART_BITS)) - 1, GFP_KERNEL);
}

void pvblk_index_put(int index)
{
	ida_free(&pvblk_ida, index);
}

/*
 * LVM and parted know virtio disks by the name of their major in /proc/devices.  They leave disks
 * with other names alone.  So the driver uses the name that virtio_blk has.
 */
#define PVBLK_MAJOR_NAME	"virtblk"

int pvblk_disk_module_init(void)
{
	pvblk_major = register_blkdev(0, PVBLK_MAJOR_NAME);
	return min(pvblk_major, 0);
}

void pvblk_disk_module_exit(void)
{
	unregister_blkdev(pvblk_major, PVBLK_MAJOR_NAME);
	ida_destroy(&pvblk_ida);
}

static void pvblk_update_capacity(struct pvblk_dev *dev, bool resize)
{
	unsigned int bs = queue_logical_block_size(dev->disk->queue);
	char size2[10], size10[10];
	u64 capacity, blocks;

	virtio_cread(dev->vdev, struct virtio_blk_config, capacity, &capacity);
	if (resize && capacity == get_capacity(dev->disk))
		return;
	/* Check this after the read, because a device that is gone reads as all ones. */
	if (dev->vdev->config->get_status(dev->vdev) == 0xff)
		return;
	/* The message counts whole blocks only, but a rest at the end is part of the disk. */
	blocks = div_u64(capacity, bs >> SECTOR_SHIFT);
	string_get_size(blocks, bs, STRING_UNITS_2, size2, sizeof(size2));
	string_get_size(blocks, bs, STRING_UNITS_10, size10, sizeof(size10));
	dev_notice(&dev->vdev->dev, "[%s] %s%llu %u-byte logical blocks (%s/%s)\n",
		   dev->disk->disk_name, resize ? "new size: " : "", blocks, bs,
		   size10, size2);
	set_capacity_and_notify(dev->disk, capacity);
}

void pvblk_config_work(struct work_struct *work)
{
	pvblk_update_capacity(container_of(work, struct pvblk_dev, config_work), true);
}

/**
 * pvblk_get_id - ask the device for its serial number
 * @disk: the disk
 * @id: VIRTIO_BLK_ID_BYTES of room; the string is not terminated if it fills them
 *
 * Return: 0 or -errno: -EOPNOTSUPP or -EIO if the device has none.
 */
int pvblk_get_id(struct gendisk *disk, char *id)
{
	struct pvblk_req *r;
	struct request *req;
	int err;

	req = blk_mq_alloc_request(disk->queue, REQ_OP_DRV_IN, 0);
	if (IS_ERR(req))
		return PTR_ERR(req);
	err = blk_rq_map_kern(disk->queue, req, id, VIRTIO_BLK_ID_BYTES, GFP_KERNEL);
	if (!err) {
		r = blk_mq_rq_to_pdu(req);
		/* Set this now, because the request may fail before it reaches the device. */
		r->status = VIRTIO_BLK_S_IOERR;
		err = blk_status_to_errno(blk_execute_rq(req, false));
		if (!err)
			err = blk_status_to_errno(pvblk_status(r->status));
	}
	blk_mq_free_request(req);
	return err;
}

/* Old partitioning tools and boot loaders ask for the geometry. */
static int pvblk_getgeo(struct block_device *bdev, struct hd_geometry *geo)
{
	struct pvblk_dev *dev = bdev->bd_disk->private_data;
	struct virtio_device *vdev;
	int err = 0;

	mutex_lock(&dev->vdev_mutex);
	vdev = dev->vdev;
	if (!vdev) {
		err = -ENXIO;
	} else if (virtio_has_feature(vdev, VIRTIO_BLK_F_GEOMETRY)) {
		virtio_cread(vdev, struct virtio_blk_config, geometry.cylinders, &geo->cylinders);
		virtio_cread(vdev, struct virtio_blk_config, geometry.heads, &geo->heads);
		virtio_cread(vdev, struct virtio_blk_config, geometry.sectors, &geo->sectors);
	} else {
		geo->heads = 64;
		geo->sectors = 32;
		geo->cylinders = get_capacity(bdev->bd_disk) / (64 * 32);
	}
	mutex_unlock(&dev->vdev_mutex);
	return err;
}

/* The device was removed, and the last task has closed the disk. */
static void pvblk_free_disk(struct gendisk *disk)
{
	struct pvblk_dev *dev = disk->private_data;

	pvblk_index_put(dev->index);
	mutex_destroy(&dev->vdev_mutex);
	mutex_destroy(&dev->mode_mutex);
	mutex_destroy(&dev->cache_mutex);
	kfree(dev->vqs);
	kfree(dev);
}

const struct block_device_operations pvblk_fops = {
	.owner		= THIS_MODULE,
	.getgeo		= pvblk_getgeo,
	.free_disk	= pvblk_free_disk,
};

/*
 * Whether a disk other than MINE has a name.  device_add_disk() would fail as well, but with a
 * stack trace.  If the name is taken, the driver does not try the next one, because virtio_blk may
 * want the next name later, and would then fail.
 */
static int pvblk_check_name(const char *name, struct gendisk *mine)
{
	struct device *other;

	other = class_find_device_by_name(disk_to_dev(mine)->class, name);
	if (!other)
		return 0;
	put_device(other);
	if (other == disk_to_dev(mine))
		return 0;
	pr_err("virtio_pvblk: the name %s is taken; load the module with another first_index\n",
	       name);
	return -EEXIST;
}

/**
 * pvblk_name_check - whether the name of this driver's next disk is free
 * @old: the disk of the other driver, which goes first, so it may have the name now
 *
 * Return: 0, -EEXIST, or an error of pvblk_index_get() or pvblk_disk_name().
 */
int pvblk_name_check(struct gendisk *old)
{
	int index = pvblk_index_get();
	char name[DISK_NAME_LEN];
	int err;

	if (index < 0)
		return index;
	err = pvblk_disk_name(index, name, sizeof(name)) ?: pvblk_check_name(name, old);
	pvblk_index_put(index);
	return err;
}

/**
 * pvblk_their_name_check - whether the name of virtio_blk's next disk is free
 * @old: the disk of this driver, which goes first, so it may have the name now
 *
 * virtio_blk takes the first name that none of its own disks has, and fails if a disk of this
 * driver has it.
 *
 * Return: 0 or -EEXIST.
 */
int pvblk_their_name_check(struct gendisk *old)
{
	char name[DISK_NAME_LEN];
	struct device *other;
	struct gendisk *disk;
	bool ours;
	int i;

	for (i = 0; !pvblk_disk_name(i, name, sizeof(name)); i++) {
		other = class_find_device_by_name(disk_to_dev(old)->class, name);
		if (!other)
			return 0;
		disk = dev_to_disk(other);
		ours = disk->fops == &pvblk_fops;
		put_device(other);
		if (disk == old)
			return 0;
		if (ours)
			return -EEXIST;
	}
	return -EEXIST;
}

/**
 * pvblk_disk_alloc - make the disk, which users do not see yet
 * @dev: the device, with its queues and tags
 *
 * Once the disk has been added, the last put_disk() frees @dev.
 *
 * Return: 0 or -errno.
 */
int pvblk_disk_alloc(struct pvblk_dev *dev)
{
	struct queue_limits lim = {
		/* virtio_blk sets this, too, so nothing changes for users. */
		.features = BLK_FEAT_ROTATIONAL,
	};
	struct gendisk *disk;
	int err;

	err = pvblk_read_limits(dev->vdev, pvblk_ring_size(dev), &lim);
	if (err)
		return err;
	dev->cached = lim.features & BLK_FEAT_WRITE_CACHE;
	disk = blk_mq_alloc_disk(&dev->tag_set, &lim, dev);
	if (IS_ERR(disk))
		return PTR_ERR(disk);

	err = pvblk_disk_name(dev->index, disk->disk_name, DISK_NAME_LEN);
	if (!err)
		err = pvblk_check_name(disk->disk_name, disk);
	if (err) {
		put_disk(disk);
		return err;
	}
	disk->major = pvblk_major;
	disk->first_minor = dev->index << PVBLK_PART_BITS;
	disk->minors = 1 << PVBLK_PART_BITS;
	disk->fops = &pvblk_fops;
	disk->private_data = dev;
	dev->disk = disk;
	if (virtio_has_feature(dev->vdev, VIRTIO_BLK_F_RO))
		set_disk_ro(disk, true);
	pvblk_update_capacity(dev, false);
	return 0;
}
