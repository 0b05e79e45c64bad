// SPDX-License-Identifier: GPL-2.0
/*
 * The backend: the disk or image file that a device serves.  This file takes it from the owner's
 * descriptor, chooses its engine, and reads its limits.
 *
 * A backend does not change once it is made.  The device holds it until all vrings are stopped.  A
 * worker that submits a request holds it, too, because the request may end first.
 */
#include <linux/blk-integrity.h>
#include <linux/blkdev.h>
#include <linux/capability.h>
#include <linux/dcache.h>
#include <linux/file.h>
#include <linux/magic.h>
#include <linux/major.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/stat.h>

#include "blk.h"

/* The flags of the owner's open file that the backend's own has, too. */
#define OPEN_FLAGS	(O_ACCMODE | O_DIRECT | O_SYNC | O_LARGEFILE)

#define BACKEND_FLAGS	(VHOST_BLK_BACKEND_READ_ONLY |		\
			 VHOST_BLK_BACKEND_BYPASS_SCHEDULER |	\
			 VHOST_BLK_BACKEND_NO_POLL_QUEUES |	\
			 VHOST_BLK_BACKEND_PINNED |		\
			 VHOST_BLK_BACKEND_NO_DISCARD)

/* Without help by the hardware, to write zeroes means to write pages, so keep one request short. */
#define ZERO_PAGES_SECTORS	(16 * 1024 * 1024 / SECTOR_SIZE)
/* A file can punch a hole of any size, so this keeps a request to some seconds. */
#define FILE_RANGE_SECTORS	(1024 * 1024 * 1024 / SECTOR_SIZE)

static bool vblk_is_scsi(const struct gendisk *disk)
{
	switch (disk->major) {
	case SCSI_DISK0_MAJOR:
	case SCSI_DISK1_MAJOR ... SCSI_DISK7_MAJOR:
	case SCSI_DISK8_MAJOR ... SCSI_DISK15_MAJOR:
		return true;
	default:
		return false;
	}
}

static bool vblk_is_null_blk(const struct gendisk *disk)
{
	struct module *owner = disk->fops->owner;

	return owner && !strcmp(module_name(owner), "null_blk");
}

/*
 * Whether the driver of a disk may sleep for I/O when a request is submitted.
 *
 * If a driver has BLK_MQ_F_BLOCKING, it may sleep in queue_rq, and the task that submits calls it
 * even with REQ_NOWAIT.  The block layer does so for io_uring, too.  nbd and nvme-tcp sleep there
 * for a socket, and mmc, mtdblock and ubiblock for the flash.  SCSI sleeps for the clock of a
 * controller (ufs), and null_blk for memory, which does not take long.
 *
 * This cannot tell for a stacked disk (dm, md, the head of an nvme multipath), because the kernel
 * shows the disks below it to no module.
 */
static bool vblk_sleeps_for_io(struct block_device *bdev)
{
	const struct gendisk *disk = bdev->bd_disk;

	return vblk_mq_blocks(bdev) && !vblk_is_scsi(disk) && !vblk_is_null_blk(disk);
}

/*
 * Whether a disk needs to know the owner's cgroup.  A loop device does its I/O for the cgroup that
 * it finds in a request's bio.
 */
static bool vblk_asks_for_cgroup(const struct vblk_dev *dev,
				 const struct block_device *bdev)
{
	return dev->base.in_cgroup && bdev->bd_disk->major == LOOP_MAJOR;
}

static bool vblk_mq_serves(struct vblk_dev *dev, struct block_device *bdev,
			   u32 flags)
{
	struct request_queue *q = bdev_get_queue(bdev);

	if (!queue_is_mq(q) || vblk_sleeps_for_io(bdev) ||
	    blk_get_integrity(bdev->bd_disk) || vblk_has_limits(&dev->base, q) ||
	    vblk_asks_for_cgroup(dev, bdev))
		return false;
	return !q->elevator || flags & VHOST_BLK_BACKEND_BYPASS_SCHEDULER;
}

static int vblk_choose_engine(struct vblk_dev *dev, struct vblk_backend *be,
			      u32 wanted)
{
	if (wanted == VHOST_BLK_ENGINE_AUTO) {
		if (!be->bdev)
			wanted = VHOST_BLK_ENGINE_FILE;
		else if (vblk_mq_serves(dev, be->bdev, be->flags))
			wanted = VHOST_BLK_ENGINE_MQ;
		else
			wanted = VHOST_BLK_ENGINE_BIO;
	}
	be->engine_id = wanted;
	switch (wanted) {
	case VHOST_BLK_ENGINE_MQ:
		be->engine = &vblk_engine_mq;
		return be->bdev && vblk_mq_serves(dev, be->bdev, be->flags) ?
			0 : -EOPNOTSUPP;
	case VHOST_BLK_ENGINE_BIO:
		be->engine = &vblk_engine_bio;
		return be->bdev ? 0 : -EOPNOTSUPP;
	case VHOST_BLK_ENGINE_FILE:
		be->engine = &vblk_engine_file;
		/* This goes through the page cache.  The engines that bypass it are off. */
		be->bdev = NULL;
		return 0;
	default:
		return -EINVAL;
	}
}

static int vblk_open_bdev(struct vblk_backend *be)
{
	struct block_device *bdev = I_BDEV(be->file->f_mapping->host);
	int r;

	if (bdev_is_zoned(bdev))
		return -EOPNOTSUPP;
	be->bdev = bdev;
	if (bdev_read_only(bdev))
		be->read_only = true;
	be->nowait = bdev_nowait(bdev) && !vblk_sleeps_for_io(bdev);
	/*
	 * Requests bypass the host's page cache of the device, so write the cache back and drop it.
	 * Pages that could not be written are lost.  The caller gets that error now, because the
	 * kernel forgets it here.
	 */
	r = sync_blockdev(bdev);
	invalidate_bdev(bdev);
	return r;
}

static void vblk_set_direct(struct vblk_backend *be, unsigned int mem_mask,
			    unsigned int block)
{
	/* The drivers of a guest align their buffers to sectors at least. */
	be->direct_mem_mask = mem_mask | (SECTOR_SIZE - 1);
	be->direct_block = max_t(unsigned int, block, SECTOR_SIZE);
}

/*
 * Whether the file system refuses direct I/O that does not follow statx().
 *
 * XFS may keep the file on another device than its own (realtime), and bcachefs has blocks of its
 * own.  Others report more than they need: f2fs, and ext4 for encrypted files, have the page cache
 * serve I/O that follows the disk's blocks and not theirs.
 */
static bool vblk_means_statx(const struct super_block *sb)
{
	return sb->s_magic == XFS_SUPER_MAGIC || sb->s_magic == BCACHEFS_SUPER_MAGIC;
}

/* Find the blocks of direct I/O, in memory and in the file. */
static void vblk_find_direct(struct vblk_backend *be)
{
	struct inode *inode = file_inode(be->file);
	struct block_device *bdev;
	struct kstat st;

	vblk_set_direct(be, 0, SECTOR_SIZE);
	if (!(be->file->f_flags & O_DIRECT))
		return;
	if (S_ISBLK(inode->i_mode)) {
		bdev = I_BDEV(be->file->f_mapping->host);
	} else {
		/* overlayfs has no disk, so ask the inode that has the data. */
		inode = d_real_inode(be->file->f_path.dentry);
		bdev = inode->i_sb->s_bdev;
		be->any_sector = true;
	}
	if (bdev)
		vblk_set_direct(be, bdev_dma_alignment(bdev), bdev_logical_block_size(bdev));
	if (vblk_means_statx(inode->i_sb) &&
	    !vfs_getattr(&be->file->f_path, &st, STATX_DIOALIGN, AT_STATX_SYNC_AS_STAT) &&
	    st.result_mask & STATX_DIOALIGN && st.dio_mem_align)
		vblk_set_direct(be, st.dio_mem_align - 1, st.dio_offset_align);
	/*
	 * The kernel writes the page cache back in blocks of the file system.  If these are larger
	 * than those of direct I/O, a direct write to another part of such a block at the same time
	 * would be lost.
	 */
	if (i_blocksize(inode) > be->direct_block && be->direct_block > SECTOR_SIZE)
		be->any_sector = false;
}

/*
 * Open the owner's file once more, for the backend alone.
 *
 * The owner, and each process that it shares its open file with, can change the flags of that file
 * while the poller copies in its round.  The round would then wait for a journal or for the disk.
 * They also take errors of writeback away by fsync(), of which the guest's flush has to tell.
 *
 * The kernel asks for no permission again, because the owner has the rights of its descriptor.  The
 * file system may refuse all the same, and a FUSE file system asks its server, which may take long.
 */
static struct file *vblk_open_own(struct file *owners)
{
	unsigned int flags = READ_ONCE(owners->f_flags);
	struct file *file;

	file = dentry_open(&owners->f_path, flags & OPEN_FLAGS, owners->f_cred);
	if (IS_ERR(file))
		return file;
	/* Nobody has been told of errors that the owner has not seen yet. */
	file->f_wb_err = READ_ONCE(owners->f_wb_err);
	/*
	 * The poller reads in its round only if no access time has to be updated.  Keep it so even
	 * if the owner of the inode or of the mount changes that during a read.  Set this after the
	 * open, because a FUSE server may not have the right to open a file with it.
	 */
	if (flags & O_NOATIME || IS_NOATIME(file_inode(file)) ||
	    file->f_path.mnt->mnt_flags & MNT_NOATIME)
		file->f_flags |= O_NOATIME;
	return file;
}

/*
 * Take the owner's open file, and set the one to be used.  The engines of disks do not use an open
 * file, so for them it is the same: to open a disk can have effects (partitions, a changed medium).
 */
static int vblk_take_file(struct vblk_backend *be, const struct vhost_blk_backend *arg)
{
	struct file *file;
	umode_t mode;

	be->owners = fget(arg->fd);
	if (!be->owners)
		return -EBADF;
	if (!(be->owners->f_mode & FMODE_READ))
		return -EBADF;
	mode = file_inode(be->owners)->i_mode;
	if ((!S_ISBLK(mode) && !S_ISREG(mode)) || be->owners->f_flags & O_APPEND)
		return -EINVAL;
	if (S_ISREG(mode) || arg->engine == VHOST_BLK_ENGINE_FILE)
		file = vblk_open_own(be->owners);
	else
		file = get_file(be->owners);
	if (IS_ERR(file))
		return PTR_ERR(file);
	be->file = file;
	if (!(file->f_mode & FMODE_WRITE))
		be->read_only = true;
	return 0;
}

static int vblk_open_file(struct vblk_dev *dev, struct vblk_backend *be,
			  const struct vhost_blk_backend *arg)
{
	int r = vblk_take_file(be, arg);

	if (!r && S_ISBLK(file_inode(be->file)->i_mode))
		r = vblk_open_bdev(be);
	if (r)
		return r;
	vblk_find_direct(be);
	return vblk_choose_engine(dev, be, arg->engine);
}

static void vblk_free_backend(struct kref *ref)
{
	struct vblk_backend *be = container_of(ref, struct vblk_backend, ref);

	if (be->file)
		fput(be->file);
	/* The owner's locks, and its exclusive claim on a disk, end last. */
	if (be->owners)
		fput(be->owners);
	kfree(be);
}

/**
 * vblk_backend_put - drop a reference to a backend
 * @be: the backend, or NULL
 */
void vblk_backend_put(struct vblk_backend *be)
{
	if (be)
		kref_put(&be->ref, vblk_free_backend);
}

/**
 * vblk_backend_open - make a backend
 * @dev: the device that is to serve it
 * @arg: the configuration from user space, checked here
 *
 * Return: the backend, or an error.
 */
struct vblk_backend *vblk_backend_open(struct vblk_dev *dev,
				       const struct vhost_blk_backend *arg)
{
	struct vblk_backend *be;
	int r;

	if (arg->flags & ~BACKEND_FLAGS || arg->pad)
		return ERR_PTR(-EINVAL);
	if (arg->flags & VHOST_BLK_BACKEND_BYPASS_SCHEDULER &&
	    !capable(CAP_SYS_ADMIN))
		return ERR_PTR(-EPERM);
	be = kzalloc(sizeof(*be), GFP_KERNEL_ACCOUNT);
	if (!be)
		return ERR_PTR(-ENOMEM);
	kref_init(&be->ref);
	be->flags = arg->flags;
	be->read_only = arg->flags & VHOST_BLK_BACKEND_READ_ONLY;
	memcpy(be->serial, arg->serial, sizeof(be->serial));

	r = vblk_open_file(dev, be, arg);
	if (r) {
		vblk_backend_put(be);
		return ERR_PTR(r);
	}
	vblk_mq_init(be);
	return be;
}

static u64 vblk_capacity(struct vblk_backend *be)
{
	if (be->bdev)
		return bdev_nr_sectors(be->bdev);
	return i_size_read(be->file->f_mapping->host) >> SECTOR_SHIFT;
}

static u32 vblk_block_bytes(struct vblk_backend *be)
{
	if (be->bdev)
		return bdev_logical_block_size(be->bdev);
	if (S_ISBLK(file_inode(be->file)->i_mode))
		return bdev_logical_block_size(I_BDEV(be->file->f_mapping->host));
	return be->direct_block;
}

/*
 * The size of the blocks of which requests consist.  The guest may know smaller ones than it is
 * told.
 */
static u32 vblk_request_bytes(struct vblk_backend *be)
{
	return be->any_sector ? SECTOR_SIZE : vblk_block_bytes(be);
}

static u32 vblk_discard_sectors(struct vblk_backend *be)
{
	if (be->read_only || be->flags & VHOST_BLK_BACKEND_NO_DISCARD)
		return 0;
	if (be->bdev)
		return bdev_max_discard_sectors(be->bdev);
	return be->file->f_op->fallocate ? FILE_RANGE_SECTORS : 0;
}

static u32 vblk_write_zeroes_sectors(struct vblk_backend *be)
{
	if (be->read_only)
		return 0;
	if (be->bdev)
		return bdev_write_zeroes_sectors(be->bdev) ?: ZERO_PAGES_SECTORS;
	/* Only an attempt would tell whether the file system supports FALLOC_FL_ZERO_RANGE. */
	return ZERO_PAGES_SECTORS;
}

/*
 * Whether the guest is told of a write cache.
 *
 * A guest that is told of none sends no flushes.  If there is a cache later, by sysfs or with
 * another backend, each write is made durable on its own: see vblk_write_through().
 */
static bool vblk_has_cache(struct vblk_backend *be)
{
	return !be->bdev || bdev_write_cache(be->bdev);
}

static u32 vblk_discard_segs(struct vblk_backend *be)
{
	unsigned int nr = 1;

	if (be->bdev)
		nr = bdev_get_queue(be->bdev)->limits.max_discard_segments;
	return clamp(nr, 1U, (unsigned int)VBLK_MAX_RANGES);
}

/* A file system frees only whole blocks of its own. */
static u32 vblk_discard_granularity(struct vblk_backend *be)
{
	struct inode *inode = be->file->f_mapping->host;

	if (be->bdev)
		return bdev_discard_granularity(be->bdev);
	if (S_ISBLK(file_inode(be->file)->i_mode))
		return bdev_discard_granularity(I_BDEV(inode));
	return i_blocksize(inode);
}

/**
 * vblk_backend_now - read the limits that a backend may change while it is used
 * @be: the backend
 * @lim: those of its fields are filled
 */
void vblk_backend_now(struct vblk_backend *be, struct vblk_limits *lim)
{
	lim->capacity = vblk_capacity(be);
	lim->read_only = be->read_only ||
			 (be->bdev && bdev_read_only(be->bdev));
	lim->block_sectors = vblk_request_bytes(be) >> SECTOR_SHIFT;
}

/**
 * vblk_backend_limits - read the limits of requests
 * @be: the backend
 * @features: the features that were negotiated with the guest
 * @lim: to be filled
 */
void vblk_backend_limits(struct vblk_backend *be, u64 features,
			 struct vblk_limits *lim)
{
	vblk_backend_now(be, lim);
	lim->max_bytes = VBLK_LARGE_BYTES;
	lim->max_discard_ranges = vblk_discard_segs(be);
	lim->may_unmap = vblk_discard_sectors(be) != 0;
	lim->max_discard_sectors = 0;
	if (features & BIT_ULL(VIRTIO_BLK_F_DISCARD))
		lim->max_discard_sectors = vblk_discard_sectors(be);
	lim->max_write_zeroes_sectors = 0;
	if (features & BIT_ULL(VIRTIO_BLK_F_WRITE_ZEROES))
		lim->max_write_zeroes_sectors = vblk_write_zeroes_sectors(be);
}

static void vblk_topology(struct block_device *bdev, struct vhost_blk_info *info)
{
	unsigned int lbs = bdev_logical_block_size(bdev);

	unsigned int exp = ilog2(bdev_physical_block_size(bdev) / lbs);
	unsigned int offset = max(bdev_alignment_offset(bdev), 0) / lbs;

	/*
	 * The guest takes the offset within a physical block.  The kernel's may be that within a
	 * longer stripe.
	 */
	offset &= BIT(exp) - 1;
	if (offset <= U8_MAX) {
		info->physical_block_exp = exp;
		info->alignment_offset = offset;
	}
	info->min_io_size = min_t(unsigned int, bdev_io_min(bdev) / lbs, U16_MAX);
	info->opt_io_size = bdev_io_opt(bdev) / lbs;
}

/**
 * vblk_backend_info - tell what the guest may be told of a backend
 * @be: the backend
 * @info: to be filled; all zero before
 */
void vblk_backend_info(struct vblk_backend *be, struct vhost_blk_info *info)
{
	info->flags = be->flags;
	if (be->read_only)
		info->flags |= VHOST_BLK_BACKEND_READ_ONLY;
	info->engine = be->engine_id;
	vblk_mq_counts(be, &info->nr_hctx, &info->nr_poll_hctx);
	info->free_choice = vblk_mq_free_choice();
	info->capacity = vblk_capacity(be);
	info->blk_size = vblk_block_bytes(be);
	info->seg_max = VBLK_MAX_SEGS;
	info->size_max = VBLK_MAX_SEG_BYTES;
	info->max_discard_sectors = vblk_discard_sectors(be);
	info->max_discard_seg = vblk_discard_segs(be);
	info->discard_sector_alignment =
		max(vblk_discard_granularity(be), info->blk_size) >> SECTOR_SHIFT;
	info->max_write_zeroes_sectors = vblk_write_zeroes_sectors(be);
	info->max_write_zeroes_seg = 1;
	info->write_zeroes_may_unmap = info->max_discard_sectors != 0;
	if (be->bdev) {
		const struct queue_limits *lim = &bdev_get_queue(be->bdev)->limits;

		info->seg_max = clamp(lim->max_segments, 1, VBLK_MAX_SEGS);
		info->size_max = clamp(lim->max_segment_size,
				       (unsigned int)PAGE_SIZE,
				       (unsigned int)VBLK_MAX_SEG_BYTES);
		vblk_topology(be->bdev, info);
	}

	info->features = BIT_ULL(VIRTIO_BLK_F_SEG_MAX) |
			 BIT_ULL(VIRTIO_BLK_F_SIZE_MAX) |
			 BIT_ULL(VIRTIO_BLK_F_BLK_SIZE) |
			 BIT_ULL(VIRTIO_BLK_F_TOPOLOGY) |
			 BIT_ULL(VIRTIO_BLK_F_MQ);
	if (vblk_has_cache(be))
		info->features |= VBLK_CACHE_FEATURES;
	if (be->read_only)
		info->features |= BIT_ULL(VIRTIO_BLK_F_RO);
	if (info->max_discard_sectors)
		info->features |= BIT_ULL(VIRTIO_BLK_F_DISCARD);
	if (info->max_write_zeroes_sectors)
		info->features |= BIT_ULL(VIRTIO_BLK_F_WRITE_ZEROES);
}
