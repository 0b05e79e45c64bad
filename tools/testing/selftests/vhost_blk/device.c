// SPDX-License-Identifier: GPL-2.0
/* /dev/vhost-blk and /dev/vhost-poll by their ioctls; see device.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <linux/vhost.h>

#include "device.h"

static int do_ioctl(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) < 0 ? -errno : 0;
}

int poller_open(unsigned int cpu, unsigned int mode, const char *name)
{
	struct vhost_poll_create c = {
		.size = sizeof(c), .cpu = cpu, .mode = mode,
	};
	int fd, ret;

	fd = open("/dev/vhost-poll", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	snprintf(c.name, sizeof(c.name), "%s", name);
	ret = do_ioctl(fd, VHOST_POLL_CREATE, &c);
	if (ret) {
		close(fd);
		return ret;
	}
	return fd;
}

int poller_set_mode(int fd, unsigned int mode)
{
	struct vhost_poll_set_mode m = { .size = sizeof(m), .mode = mode };

	return do_ioctl(fd, VHOST_POLL_SET_MODE, &m);
}

int poller_stats(int fd, struct vhost_poll_stats *st)
{
	memset(st, 0, sizeof(*st));
	st->size = sizeof(*st);
	return do_ioctl(fd, VHOST_POLL_GET_STATS, st);
}

int vblk_set_backend(int fd, int backend, u32 flags, u32 engine)
{
	struct vhost_blk_backend b = {
		.size = sizeof(b), .flags = flags, .fd = backend,
		.engine = engine, .serial = "ring-player",
	};

	return do_ioctl(fd, VHOST_BLK_SET_BACKEND, &b);
}

int vblk_info(int fd, struct vhost_blk_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return do_ioctl(fd, VHOST_BLK_GET_INFO, info);
}

int vblk_set_features(int fd, u64 features)
{
	return do_ioctl(fd, VHOST_SET_FEATURES, &features);
}

int vblk_set_mem(int fd, const struct ring_mem *mem)
{
	size_t low = mem->split ? mem->split : mem->size;
	struct {
		struct vhost_memory head;
		struct vhost_memory_region region[2];
	} m = {
		.head.nregions = mem->split ? 2 : 1,
		.region = {
			{ ring_gpa(mem, mem->base), low, (uintptr_t)mem->base, 0 },
			{ ring_gpa(mem, mem->base + low), mem->size - low,
			  (uintptr_t)mem->base + low, 0 },
		},
	};

	return do_ioctl(fd, VHOST_SET_MEM_TABLE, &m);
}

int vblk_set_ring_addr(int fd, const struct ring *r)
{
	struct vhost_vring_addr a = {
		.index = r->index,
		.desc_user_addr = (uintptr_t)r->vr.desc,
		.avail_user_addr = (uintptr_t)r->vr.avail,
		.used_user_addr = (uintptr_t)r->vr.used,
	};

	return do_ioctl(fd, VHOST_SET_VRING_ADDR, &a);
}

int vblk_set_ring(int fd, const struct ring *r, u16 base)
{
	struct vhost_vring_state s = { .index = r->index, .num = r->num };
	struct vhost_vring_file f = { .index = r->index, .fd = r->kick };
	int ret;

	ret = do_ioctl(fd, VHOST_SET_VRING_NUM, &s);
	if (ret)
		return ret;
	s.num = base;
	ret = do_ioctl(fd, VHOST_SET_VRING_BASE, &s);
	if (ret)
		return ret;
	ret = vblk_set_ring_addr(fd, r);
	if (ret)
		return ret;
	ret = do_ioctl(fd, VHOST_SET_VRING_KICK, &f);
	if (ret)
		return ret;
	f.fd = r->call;
	return do_ioctl(fd, VHOST_SET_VRING_CALL, &f);
}

int vblk_set_vring(int fd, unsigned int index, int poller, u32 hctx,
		   u32 weight)
{
	struct vhost_serve_vring v = {
		.size = sizeof(v), .index = index, .poller_fd = poller,
		.target = hctx, .weight = weight,
	};

	return do_ioctl(fd, VHOST_SERVE_SET_VRING, &v);
}

int vblk_get_base(int fd, unsigned int index, u16 *base)
{
	struct vhost_vring_state s = { .index = index };
	int ret;

	ret = do_ioctl(fd, VHOST_GET_VRING_BASE, &s);
	*base = s.num;
	return ret;
}

int vblk_stats(int fd, unsigned int index, struct vhost_blk_stats *st)
{
	memset(st, 0, sizeof(*st));
	st->size = sizeof(*st);
	st->index = index;
	return do_ioctl(fd, VHOST_BLK_GET_STATS, st);
}

int vblk_start(int fd, unsigned int index)
{
	return ioctl(fd, VHOST_SERVE_START, (unsigned long)index) < 0 ? -errno : 0;
}

int vblk_stop(int fd, unsigned int index)
{
	return ioctl(fd, VHOST_SERVE_STOP, (unsigned long)index) < 0 ? -errno : 0;
}

static int kernel_start(struct vdev *d, struct ring *r)
{
	int ret;

	ret = vblk_set_ring(d->fd, r, r->avail_idx);
	if (ret)
		return ret;
	ret = vblk_set_vring(d->fd, r->index, d->poller[r->index],
			     d->hctx[r->index], d->weight[r->index]);
	if (ret)
		return ret;
	return vblk_start(d->fd, r->index);
}

static int kernel_stop(struct vdev *d, struct ring *r, u16 *base)
{
	int ret = vblk_stop(d->fd, r->index);

	return ret ? ret : vblk_get_base(d->fd, r->index, base);
}

static const struct vdev_ops kernel_ops = {
	.start = kernel_start,
	.stop = kernel_stop,
};

int vdev_open_kernel(struct vdev *d, struct ring_mem *mem, int backend,
		     u32 flags, u32 engine, u64 want)
{
	struct vhost_blk_info info;
	unsigned int i;
	int ret;

	memset(d, 0, sizeof(*d));
	d->ops = &kernel_ops;
	d->mem = mem;
	d->num_queues = VHOST_SERVE_MAX_VRINGS;
	for (i = 0; i < VHOST_SERVE_MAX_VRINGS; i++) {
		d->poller[i] = -1;
		d->hctx[i] = VHOST_BLK_HCTX_AUTO;
	}

	d->fd = open("/dev/vhost-blk", O_RDWR | O_CLOEXEC);
	if (d->fd < 0)
		return -errno;
	ret = do_ioctl(d->fd, VHOST_SET_OWNER, NULL);
	if (ret)
		goto err;
	ret = vblk_set_backend(d->fd, backend, flags, engine);
	if (ret)
		goto err;
	ret = vblk_info(d->fd, &info);
	if (ret)
		goto err;
	d->capacity = info.capacity;
	ret = do_ioctl(d->fd, VHOST_GET_FEATURES, &d->offered);
	if (ret)
		goto err;
	d->features = want & d->offered;
	ret = vblk_set_features(d->fd, d->features);
	if (ret)
		goto err;
	ret = vblk_set_mem(d->fd, mem);
	if (ret)
		goto err;
	return 0;
err:
	close(d->fd);
	return ret;
}

void vdev_close(struct vdev *d)
{
	close(d->fd);
	d->fd = -1;
}
