/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a ring is played against: /dev/vhost-blk, driven by its ioctls as pvio
 * would, or any vhost-user-blk or vhost-user-fs socket, driven as QEMU would.
 * Functions return 0 or a file descriptor, and -errno on failure.
 */
#ifndef VHOST_BLK_DEVICE_H
#define VHOST_BLK_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/vhost_blk.h>
#include <linux/vhost_poll.h>

#include "ring.h"

#define FEATURE(bit)	(1ULL << (bit))

struct vdev;

struct vdev_ops {
	int (*start)(struct vdev *d, struct ring *r);
	/* *base: where the device would go on */
	int (*stop)(struct vdev *d, struct ring *r, u16 *base);
};

struct vdev {
	const struct vdev_ops *ops;
	int fd;
	struct ring_mem *mem;
	u64 offered;
	u64 features;
	u64 capacity;
	u32 num_queues;
	/* vhost_blk: which poller and hardware context each vring gets */
	int poller[VHOST_SERVE_MAX_VRINGS];
	u32 hctx[VHOST_SERVE_MAX_VRINGS];
	u32 weight[VHOST_SERVE_MAX_VRINGS];
	/* vhost-user */
	bool reply_ack;
	int pid;
};

/* A poller on @cpu, as a file descriptor. */
int poller_open(unsigned int cpu, unsigned int mode, const char *name);
int poller_set_mode(int fd, unsigned int mode);
int poller_stats(int fd, struct vhost_poll_stats *st);

/* The steps of a vhost_blk device one by one, for tests of the steps ... */
int vblk_set_backend(int fd, int backend, u32 flags, u32 engine);
int vblk_info(int fd, struct vhost_blk_info *info);
int vblk_set_features(int fd, u64 features);
int vblk_set_mem(int fd, const struct ring_mem *mem);
int vblk_set_ring_addr(int fd, const struct ring *r);
int vblk_set_ring(int fd, const struct ring *r, u16 base);
int vblk_set_vring(int fd, unsigned int index, int poller, u32 hctx,
		   u32 weight);
int vblk_get_base(int fd, unsigned int index, u16 *base);
int vblk_stats(int fd, unsigned int index, struct vhost_blk_stats *st);
int vblk_start(int fd, unsigned int index);
int vblk_stop(int fd, unsigned int index);

/* ... and in order.  @want is masked by what the device offers. */
int vdev_open_kernel(struct vdev *d, struct ring_mem *mem, int backend,
		     u32 flags, u32 engine, u64 want);
int vdev_open_user(struct vdev *d, struct ring_mem *mem, const char *path,
		   u64 want);
int vdev_open_user_fs(struct vdev *d, struct ring_mem *mem, const char *path,
		      u64 want);
void vdev_close(struct vdev *d);

static inline int vdev_start(struct vdev *d, struct ring *r)
{
	r->event_idx = d->features & FEATURE(VIRTIO_RING_F_EVENT_IDX);
	return d->ops->start(d, r);
}

static inline int vdev_stop(struct vdev *d, struct ring *r, u16 *base)
{
	return d->ops->stop(d, r, base);
}

#define VDEV_FEATURES	(FEATURE(VIRTIO_F_VERSION_1) |			\
			 FEATURE(VIRTIO_RING_F_INDIRECT_DESC) |		\
			 FEATURE(VIRTIO_RING_F_EVENT_IDX) |		\
			 FEATURE(VIRTIO_BLK_F_SIZE_MAX) |		\
			 FEATURE(VIRTIO_BLK_F_SEG_MAX) |		\
			 FEATURE(VIRTIO_BLK_F_RO) |			\
			 FEATURE(VIRTIO_BLK_F_BLK_SIZE) |		\
			 FEATURE(VIRTIO_BLK_F_FLUSH) |			\
			 FEATURE(VIRTIO_BLK_F_TOPOLOGY) |		\
			 FEATURE(VIRTIO_BLK_F_CONFIG_WCE) |		\
			 FEATURE(VIRTIO_BLK_F_MQ) |			\
			 FEATURE(VIRTIO_BLK_F_DISCARD) |		\
			 FEATURE(VIRTIO_BLK_F_WRITE_ZEROES))

#endif /* VHOST_BLK_DEVICE_H */
