// SPDX-License-Identifier: GPL-2.0
/*
 * The front-end side of vhost-user, as much of it as a block device or a file
 * system needs: what QEMU says to qemu-storage-daemon, to virtiofsd or to pvio.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <linux/vhost_types.h>

#include "device.h"

enum {
	VU_GET_FEATURES = 1,
	VU_SET_FEATURES = 2,
	VU_SET_OWNER = 3,
	VU_SET_MEM_TABLE = 5,
	VU_SET_VRING_NUM = 8,
	VU_SET_VRING_ADDR = 9,
	VU_SET_VRING_BASE = 10,
	VU_GET_VRING_BASE = 11,
	VU_SET_VRING_KICK = 12,
	VU_SET_VRING_CALL = 13,
	VU_GET_PROTOCOL_FEATURES = 15,
	VU_SET_PROTOCOL_FEATURES = 16,
	VU_GET_QUEUE_NUM = 17,
	VU_SET_VRING_ENABLE = 18,
	VU_GET_CONFIG = 24,
};

#define VU_VERSION		1
#define VU_REPLY		FEATURE(2)
#define VU_NEED_REPLY		FEATURE(3)

#define VU_F_PROTOCOL_FEATURES	FEATURE(30)
#define VU_PROTOCOL_MQ		FEATURE(0)
#define VU_PROTOCOL_REPLY_ACK	FEATURE(3)
#define VU_PROTOCOL_CONFIG	FEATURE(9)

struct vu_region {
	u64 gpa;
	u64 size;
	u64 user_addr;
	u64 offset;
};

struct vu_memory {
	u32 nregions;
	u32 pad;
	struct vu_region region;
};

#pragma pack(push, 1)
struct vu_config {
	u32 offset;
	u32 size;
	u32 flags;
	struct virtio_blk_config config;
};

struct vu_msg {
	u32 request;
	u32 flags;
	u32 size;
	union {
		u64 u64;
		struct vhost_vring_state state;
		struct vhost_vring_addr addr;
		struct vu_memory memory;
		struct vu_config config;
	} u;
};

#pragma pack(pop)

#define VU_HDR	offsetof(struct vu_msg, u)

static int vu_send(int sock, struct vu_msg *m, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { .iov_base = m, .iov_len = VU_HDR + m->size };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (fd >= 0) {
		mh.msg_control = control;
		mh.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	if (sendmsg(sock, &mh, MSG_NOSIGNAL) != (ssize_t)(VU_HDR + m->size))
		return errno ? -errno : -EPIPE;
	return 0;
}

static int vu_read(int sock, void *buf, size_t len)
{
	ssize_t n = recv(sock, buf, len, MSG_WAITALL);

	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -ECONNRESET;
}

static int vu_recv(int sock, struct vu_msg *m, u32 request)
{
	int ret = vu_read(sock, m, VU_HDR);

	if (ret)
		return ret;
	if (m->request != request || !(m->flags & VU_REPLY) ||
	    m->size > sizeof(m->u))
		return -EPROTO;
	return vu_read(sock, &m->u, m->size);
}

/* Send; wait for the acknowledgment where the back end can give one. */
static int vu_set(struct vdev *d, struct vu_msg *m, int fd)
{
	u32 request = m->request;
	int ret;

	m->flags = VU_VERSION | (d->reply_ack ? VU_NEED_REPLY : 0);
	ret = vu_send(d->fd, m, fd);
	if (ret || !d->reply_ack)
		return ret;
	ret = vu_recv(d->fd, m, request);
	if (ret)
		return ret;
	return m->u.u64 ? -EINVAL : 0;
}

static int vu_set_u64(struct vdev *d, u32 request, u64 v, int fd)
{
	struct vu_msg m = { .request = request, .size = 8, .u.u64 = v };

	return vu_set(d, &m, fd);
}

static int vu_set_owner(struct vdev *d)
{
	struct vu_msg m = { .request = VU_SET_OWNER };

	return vu_set(d, &m, -1);
}

static int vu_set_state(struct vdev *d, u32 request, u32 index,
			u32 num)
{
	struct vu_msg m = {
		.request = request, .size = sizeof(m.u.state),
		.u.state = { .index = index, .num = num },
	};

	return vu_set(d, &m, -1);
}

static int vu_ask(struct vdev *d, struct vu_msg *m)
{
	u32 request = m->request;
	int ret;

	m->flags = VU_VERSION;
	ret = vu_send(d->fd, m, -1);
	return ret ? ret : vu_recv(d->fd, m, request);
}

static int vu_get_u64(struct vdev *d, u32 request, u64 *v)
{
	struct vu_msg m = { .request = request };
	int ret = vu_ask(d, &m);

	*v = m.u.u64;
	return ret;
}

static int vu_set_addr(struct vdev *d, const struct ring *r)
{
	struct vu_msg m = {
		.request = VU_SET_VRING_ADDR, .size = sizeof(m.u.addr),
		.u.addr = {
			.index = r->index,
			.desc_user_addr = (uintptr_t)r->vr.desc,
			.avail_user_addr = (uintptr_t)r->vr.avail,
			.used_user_addr = (uintptr_t)r->vr.used,
		},
	};

	return vu_set(d, &m, -1);
}

static int vu_set_mem(struct vdev *d)
{
	struct vu_msg m = {
		.request = VU_SET_MEM_TABLE, .size = sizeof(m.u.memory),
		.u.memory = {
			.nregions = 1,
			.region = {
				.gpa = d->mem->gpa,
				.size = d->mem->size,
				.user_addr = (uintptr_t)d->mem->base,
			},
		},
	};

	return vu_set(d, &m, d->mem->fd);
}

static int vu_get_config(struct vdev *d, struct virtio_blk_config *config)
{
	/* what every back end has, up to num_queues */
	const u32 size = offsetof(struct virtio_blk_config,
				       max_discard_sectors);
	struct vu_msg m = {
		.request = VU_GET_CONFIG, .size = 12 + size,
		.u.config.size = size,
	};
	int ret = vu_ask(d, &m);

	if (ret)
		return ret;
	if (m.size < 12 + size)
		return -EPROTO;
	memset(config, 0, sizeof(*config));
	memcpy(config, &m.u.config.config, size);
	return 0;
}

static int user_start(struct vdev *d, struct ring *r)
{
	int ret;

	ret = vu_set_state(d, VU_SET_VRING_NUM, r->index, r->num);
	if (ret)
		return ret;
	ret = vu_set_state(d, VU_SET_VRING_BASE, r->index, r->avail_idx);
	if (ret)
		return ret;
	ret = vu_set_addr(d, r);
	if (ret)
		return ret;
	ret = vu_set_u64(d, VU_SET_VRING_CALL, r->index, r->call);
	if (ret)
		return ret;
	ret = vu_set_u64(d, VU_SET_VRING_KICK, r->index, r->kick);
	if (ret)
		return ret;
	return vu_set_state(d, VU_SET_VRING_ENABLE, r->index, 1);
}

static int user_stop(struct vdev *d, struct ring *r, u16 *base)
{
	struct vu_msg m = {
		.request = VU_GET_VRING_BASE, .size = sizeof(m.u.state),
		.u.state.index = r->index,
	};
	int ret = vu_ask(d, &m);

	*base = m.u.state.num;
	return ret;
}

static const struct vdev_ops user_ops = {
	.start = user_start,
	.stop = user_stop,
};

static int vu_connect(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd, ret;

	if (strlen(path) >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	memcpy(sa.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}

/* @disk: where to put what the back end says of its disk; NULL if it has none. */
static int vu_negotiate(struct vdev *d, u64 want, struct virtio_blk_config *disk)
{
	u64 protocol, queues = 1;
	int ret;

	ret = vu_get_u64(d, VU_GET_FEATURES, &d->offered);
	if (ret)
		return ret;
	if (!(d->offered & VU_F_PROTOCOL_FEATURES))
		return -EPROTO;
	ret = vu_get_u64(d, VU_GET_PROTOCOL_FEATURES, &protocol);
	if (ret)
		return ret;
	if (disk && !(protocol & VU_PROTOCOL_CONFIG))
		return -EPROTO;
	protocol &= VU_PROTOCOL_MQ | VU_PROTOCOL_REPLY_ACK |
		    (disk ? VU_PROTOCOL_CONFIG : 0);
	ret = vu_set_u64(d, VU_SET_PROTOCOL_FEATURES, protocol, -1);
	if (ret)
		return ret;
	d->reply_ack = protocol & VU_PROTOCOL_REPLY_ACK;

	if (protocol & VU_PROTOCOL_MQ) {
		ret = vu_get_u64(d, VU_GET_QUEUE_NUM, &queues);
		if (ret)
			return ret;
	}
	d->num_queues = queues;

	ret = vu_set_owner(d);
	if (ret)
		return ret;
	ret = disk ? vu_get_config(d, disk) : 0;
	if (ret)
		return ret;
	d->features = (want | VU_F_PROTOCOL_FEATURES) & d->offered;
	ret = vu_set_u64(d, VU_SET_FEATURES, d->features, -1);
	return ret ? ret : vu_set_mem(d);
}

static int vu_open(struct vdev *d, struct ring_mem *mem, const char *path,
		   u64 want, struct virtio_blk_config *disk)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int ret;

	memset(d, 0, sizeof(*d));
	d->ops = &user_ops;
	d->mem = mem;
	d->fd = vu_connect(path);
	if (d->fd < 0)
		return d->fd;
	if (!getsockopt(d->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		d->pid = cred.pid;
	ret = vu_negotiate(d, want, disk);
	if (ret)
		close(d->fd);
	return ret;
}

int vdev_open_user(struct vdev *d, struct ring_mem *mem, const char *path,
		   u64 want)
{
	struct virtio_blk_config config;
	int ret = vu_open(d, mem, path, want, &config);

	if (!ret)
		d->capacity = config.capacity;
	return ret;
}

int vdev_open_user_fs(struct vdev *d, struct ring_mem *mem, const char *path,
		      u64 want)
{
	return vu_open(d, mem, path, want, NULL);
}
