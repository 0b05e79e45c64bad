// SPDX-License-Identifier: GPL-2.0
/*
 * This file reads a chain of descriptors that begins at a head, and puts its buffers into vq->iov.
 *
 * It does not use vhost_get_vq_desc(), because a guest can make that read without a useful bound:
 * a ring full of tables of 65,536 empty descriptors each is one chain to it.  Here a chain has
 * VSERVE_MAX_CHAIN descriptors at most, wherever they are, and a round counts those that it reads.
 * This file also follows @next in an indirect table, which need not be in order (virtio 1.2,
 * 2.7.5.3).
 *
 * Guest addresses are looked up in vq->umem, which only changes under the
 * vring's mutex.
 */
#include <linux/export.h>
#include <linux/uaccess.h>
#include <linux/vhost_iotlb.h>

#include "ring.h"
#include "serve.h"

/*
 * struct vserve_reader - a chain being read
 * @data: the mapping of the last buffer; most are in one
 * @table: the mapping of the last descriptor of a table
 * @out: @in: buffers found, in elements of vq->iov
 * @out_len: @in_len: their bytes
 * @nr: descriptors read
 * @seek: only find @last, the last byte to be written; see vserve_last_byte()
 */
struct vserve_reader {
	struct vhost_virtqueue *vq;
	const struct vhost_iotlb_map *data;
	const struct vhost_iotlb_map *table;
	unsigned int out;
	unsigned int in;
	size_t out_len;
	size_t in_len;
	unsigned int nr;
	bool seek;
	void __user *last;
};

/* A descriptor as it was read, in the CPU's byte order. */
struct vserve_desc {
	u64 addr;
	u32 len;
	u16 flags;
	u16 next;
};

static void vserve_desc_to_cpu(struct vhost_virtqueue *vq, struct vserve_desc *desc,
			       const struct vring_desc *raw)
{
	bool le = vhost_is_little_endian(vq);

	desc->addr = __virtio64_to_cpu(le, raw->addr);
	desc->len = __virtio32_to_cpu(le, raw->len);
	desc->flags = __virtio16_to_cpu(le, raw->flags);
	desc->next = __virtio16_to_cpu(le, raw->next);
}

static const struct vhost_iotlb_map *
vserve_find(struct vserve_reader *rd, const struct vhost_iotlb_map **last, u64 addr)
{
	const struct vhost_iotlb_map *map = *last;

	if (!map || addr < map->start || addr > map->last)
		*last = vhost_iotlb_itree_first(rd->vq->umem, addr, addr);
	return *last;
}

static void __user *vserve_user_addr(const struct vhost_iotlb_map *map, u64 addr)
{
	return (void __user *)(unsigned long)(map->addr + addr - map->start);
}

/* Of @len bytes at @addr, those in @map; in a form that cannot wrap. */
static size_t vserve_part_of(const struct vhost_iotlb_map *map, u64 addr, size_t len)
{
	return min_t(u64, len - 1, map->last - addr) + 1;
}

/* One part of a buffer, or all of it, in one region.  Returns its length, or an error. */
static ssize_t vserve_add_part(struct vserve_reader *rd, u64 addr, size_t len, int access)
{
	const struct vhost_iotlb_map *map = vserve_find(rd, &rd->data, addr);
	unsigned int at = rd->out + rd->in;

	if (!map)
		return -EFAULT;
	if (!(map->perm & access))
		return -EPERM;
	if (at == ARRAY_SIZE(rd->vq->iov))
		return -ENOBUFS;
	len = vserve_part_of(map, addr, len);
	rd->vq->iov[at].iov_base = vserve_user_addr(map, addr);
	rd->vq->iov[at].iov_len = len;
	if (access == VHOST_ACCESS_WO)
		rd->in++;
	else
		rd->out++;
	return len;
}

static noinline int vserve_add_buffer(struct vserve_reader *rd, u64 addr, size_t len, bool write)
{
	int access = write ? VHOST_ACCESS_WO : VHOST_ACCESS_RO;
	ssize_t now;

	if (write)
		rd->in_len += len;
	else
		rd->out_len += len;
	for (; len; addr += now, len -= now) {
		now = vserve_add_part(rd, addr, len, access);
		if (now < 0)
			return now;
	}
	return 0;
}

/* Of what may be written this is the last so far, wherever it is. */
static void vserve_seek_last(struct vserve_reader *rd, const struct vserve_desc *desc)
{
	const struct vhost_iotlb_map *map;
	u64 addr;

	if (!desc->len)
		return;
	addr = desc->addr + desc->len - 1;
	map = vserve_find(rd, &rd->data, addr);
	rd->last = map && map->perm & VHOST_ACCESS_WO ?
		vserve_user_addr(map, addr) : NULL;
}

/*
 * A buffer in one mapping, as nearly all are.  Returns false if it is not, or if anything is wrong
 * with it: vserve_add_buffer() finds out then.
 */
static __always_inline bool vserve_add_whole(struct vserve_reader *rd,
					     const struct vserve_desc *desc, bool write)
{
	const struct vhost_iotlb_map *map = vserve_find(rd, &rd->data, desc->addr);
	unsigned int at = rd->out + rd->in;

	if (!map || !(map->perm & (write ? VHOST_ACCESS_WO : VHOST_ACCESS_RO)) ||
	    at == ARRAY_SIZE(rd->vq->iov) ||
	    !desc->len || desc->len - 1 > map->last - desc->addr)
		return false;
	rd->vq->iov[at].iov_base = vserve_user_addr(map, desc->addr);
	rd->vq->iov[at].iov_len = desc->len;
	if (write) {
		rd->in++;
		rd->in_len += desc->len;
	} else {
		rd->out++;
		rd->out_len += desc->len;
	}
	return true;
}

static __always_inline int vserve_add_desc(struct vserve_reader *rd, const struct vserve_desc *desc)
{
	bool write = desc->flags & VRING_DESC_F_WRITE;

	if (unlikely(rd->seek)) {
		if (write)
			vserve_seek_last(rd, desc);
		return 0;
	}
	/* What the device reads comes first (virtio 1.2, 2.7.4.2). */
	if (!write && rd->in)
		return -EINVAL;
	if (likely(vserve_add_whole(rd, desc, write)))
		return 0;
	return vserve_add_buffer(rd, desc->addr, desc->len, write);
}

/* A descriptor of a table across two regions. */
static int vserve_read_split_desc(struct vserve_reader *rd, u64 addr, struct vring_desc *raw)
{
	size_t len = sizeof(*raw);
	void *to = raw;

	while (len) {
		const struct vhost_iotlb_map *map = vserve_find(rd, &rd->table, addr);
		size_t now;

		if (!map || !(map->perm & VHOST_ACCESS_RO))
			return -EFAULT;
		now = vserve_part_of(map, addr, len);
		if (copy_from_user(to, vserve_user_addr(map, addr), now))
			return -EFAULT;
		to += now;
		addr += now;
		len -= now;
	}
	return 0;
}

static int vserve_read_table_desc(struct vserve_reader *rd, u64 addr, struct vserve_desc *desc)
{
	const struct vhost_iotlb_map *map = vserve_find(rd, &rd->table, addr);
	struct vring_desc raw;
	int r = 0;

	if (!map || !(map->perm & VHOST_ACCESS_RO))
		return -EFAULT;
	if (unlikely(vserve_part_of(map, addr, sizeof(raw)) != sizeof(raw)))
		r = vserve_read_split_desc(rd, addr, &raw);
	else if (!vserve_get_raw_desc(&raw, vserve_user_addr(map, addr)))
		r = -EFAULT;
	if (r)
		return r;
	vserve_desc_to_cpu(rd->vq, desc, &raw);
	return 0;
}

static noinline int vserve_read_table(struct vserve_reader *rd, const struct vserve_desc *table)
{
	struct vserve_desc desc;
	u64 i = 0;
	int r;

	/* It is the end of its chain (virtio 1.2, 2.7.5.3.1). */
	if (table->len % sizeof(struct vring_desc) || table->flags & VRING_DESC_F_NEXT)
		return -EINVAL;
	do {
		if (i >= table->len / sizeof(struct vring_desc))
			return -EINVAL;
		if (++rd->nr > VSERVE_MAX_CHAIN)
			return -E2BIG;
		r = vserve_read_table_desc(rd, table->addr + i * sizeof(struct vring_desc), &desc);
		if (r)
			return r;
		if (desc.flags & VRING_DESC_F_INDIRECT)
			return -EINVAL;
		r = vserve_add_desc(rd, &desc);
		if (r)
			return r;
		i = desc.next;
	} while (desc.flags & VRING_DESC_F_NEXT);
	return 0;
}

static int vserve_read_chain(struct vserve_reader *rd, unsigned int i)
{
	struct vserve_desc desc;
	struct vring_desc raw;
	int r;

	do {
		if (i >= rd->vq->num)
			return -EINVAL;
		if (++rd->nr > VSERVE_MAX_CHAIN)
			return -E2BIG;
		if (!vserve_get_raw_desc(&raw, rd->vq->desc + i))
			return -EFAULT;
		vserve_desc_to_cpu(rd->vq, &desc, &raw);
		if (desc.flags & VRING_DESC_F_INDIRECT)
			return vserve_read_table(rd, &desc);
		r = vserve_add_desc(rd, &desc);
		if (r)
			return r;
		i = desc.next;
	} while (desc.flags & VRING_DESC_F_NEXT);
	return 0;
}

/**
 * vserve_get_chain - read the next chain of the ring into vq->iov
 * @vring: its mutex is held
 * @chain: filled
 *
 * Returns the head, and the ring is one further; or vq->num if there is none;
 * or an error, with the ring where it was.
 */
int vserve_get_chain(struct vserve_vring *vring, struct vserve_chain *chain)
{
	struct vhost_virtqueue *vq = &vring->vq;
	struct vserve_reader rd = { .vq = vq };
	u16 head, ahead;
	int r;

	if (vserve_avail_empty(vring))
		return vq->num;
	/* That is also what it says of an index that it cannot read, or use. */
	ahead = vq->avail_idx - vq->last_avail_idx;
	if (!ahead || ahead > vq->num || !vserve_get_head(vring, &head))
		return -EFAULT;
	r = vserve_read_chain(&rd, head);
	vring->round_descs += rd.nr;
	if (r)
		return r;
	vq->last_avail_idx++;
	chain->iov = vq->iov;
	chain->out = rd.out;
	chain->in = rd.in;
	chain->out_len = rd.out_len;
	chain->in_len = rd.in_len;
	return head;
}

/**
 * vserve_last_byte - the last byte that the device may write of a chain
 * @vring: its mutex is held, page faults are allowed
 * @head: of the chain
 *
 * For chains that cannot be read: their data may lie where there is no memory,
 * and the place of the answer where there is.
 *
 * Returns NULL if that cannot be told, as it cannot where a chain has no end.
 */
void __user *vserve_last_byte(struct vserve_vring *vring, unsigned int head)
{
	struct vserve_reader rd = { .vq = &vring->vq, .seek = true };
	int r = vserve_read_chain(&rd, head);

	vring->round_descs += rd.nr;
	return r ? NULL : rd.last;
}
EXPORT_SYMBOL_GPL(vserve_last_byte);
