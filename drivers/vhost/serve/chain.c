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
#include <linux/align.h>
#include <linux/export.h>
#include <linux/fault-inject-usercopy.h>
#include <linux/uaccess.h>
#include <linux/vhost_iotlb.h>

#include "ring.h"
#include "serve.h"

/*
 * struct vserve_reader - a chain being read
 * @data: the mapping of the last buffer; most are in one
 * @table: the mapping of the last descriptor of a table
 * @iovs: @len: buffers found, in elements of vq->iov, and their bytes
 * @out: @out_len: those of them that the device reads, once @writes
 * @nr: descriptors read
 * @writes: the chain has come to what the device writes
 * @seek: only find @last, the last byte to be written; see vserve_last_byte()
 */
struct vserve_reader {
	struct vhost_virtqueue *vq;
	const struct vhost_iotlb_map *data;
	const struct vhost_iotlb_map *table;
	unsigned int iovs;
	unsigned int out;
	size_t len;
	size_t out_len;
	unsigned int nr;
	bool writes;
	bool seek;
	void __user *last;
};

/*
 * struct vserve_table - where descriptors are
 * @at: in the owner's memory; NULL: a table that lies in several regions
 * @addr: of a table, as the guest has it
 * @num: how many there are
 * @indirect: a table, and not the ring
 */
struct vserve_table {
	const struct vring_desc __user *at;
	u64 addr;
	u32 num;
	bool indirect;
};

/* A descriptor as it was read, in the CPU's byte order. */
struct vserve_desc {
	u64 addr;
	u32 len;
	u16 flags;
	u16 next;
};

/* The guest wrote the second word as struct vring_desc has it: length, flags, next. */
static __always_inline void vserve_desc_to_cpu(struct vhost_virtqueue *vq,
					       struct vserve_desc *desc, const u64 *raw)
{
	u64 word;

	if (vhost_is_little_endian(vq)) {
		word = le64_to_cpu((__force __le64)raw[1]);
		desc->addr = le64_to_cpu((__force __le64)raw[0]);
		desc->len = word;
		desc->flags = word >> 32;
		desc->next = word >> 48;
	} else {
		word = be64_to_cpu((__force __be64)raw[1]);
		desc->addr = be64_to_cpu((__force __be64)raw[0]);
		desc->len = word >> 32;
		desc->flags = word >> 16;
		desc->next = word;
	}
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
	struct iovec *iov;

	if (!map)
		return -EFAULT;
	if (!(map->perm & access))
		return -EPERM;
	if (rd->iovs == ARRAY_SIZE(rd->vq->iov))
		return -ENOBUFS;
	iov = &rd->vq->iov[rd->iovs++];
	iov->iov_base = vserve_user_addr(map, addr);
	iov->iov_len = vserve_part_of(map, addr, len);
	return iov->iov_len;
}

static int vserve_add_buffer(struct vserve_reader *rd, u64 addr, size_t len, bool write)
{
	ssize_t now;

	rd->len += len;
	for (; len; addr += now, len -= now) {
		now = vserve_add_part(rd, addr, len, write ? VHOST_ACCESS_WO : VHOST_ACCESS_RO);
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

static void vserve_begin_writes(struct vserve_reader *rd)
{
	rd->writes = true;
	rd->out = rd->iovs;
	rd->out_len = rd->len;
}

static int vserve_add_desc(struct vserve_reader *rd, const struct vserve_desc *desc)
{
	bool write = desc->flags & VRING_DESC_F_WRITE;

	if (rd->seek) {
		if (write)
			vserve_seek_last(rd, desc);
		return 0;
	}
	/* What the device reads comes first (virtio 1.2, 2.7.4.2). */
	if (!write && rd->writes)
		return -EINVAL;
	if (!desc->len)
		return 0;
	if (write && !rd->writes)
		vserve_begin_writes(rd);
	return vserve_add_buffer(rd, desc->addr, desc->len, write);
}

/* A descriptor of a table across two regions. */
static int vserve_read_split_desc(struct vserve_reader *rd, u64 addr, u64 *raw)
{
	size_t len = sizeof(struct vring_desc);
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

/* One descriptor where words cannot be read in place. */
static noinline int vserve_read_apart(struct vserve_reader *rd, const struct vserve_table *table,
				      u32 i, struct vserve_desc *desc)
{
	u64 raw[2];
	int r = 0;

	if (i >= table->num)
		return -EINVAL;
	if (++rd->nr > VSERVE_MAX_CHAIN)
		return -E2BIG;
	if (!table->at)
		r = vserve_read_split_desc(rd, table->addr + (u64)i * sizeof(raw), raw);
	else if (copy_from_user(raw, table->at + i, sizeof(raw)))
		r = -EFAULT;
	if (r)
		return r;
	vserve_desc_to_cpu(rd->vq, desc, raw);
	return 1;
}

/* No flags of a descriptor. */
#define VSERVE_NO_KIND	U32_MAX

/*
 * struct vserve_run - descriptors that are read in one go
 * @last: @room: the last address of a region, and how many addresses come before it there
 * @shift: from there to the owner's memory
 * @want: of a descriptor's flags, those that say what kind it has to be
 */
struct vserve_run {
	u64 last;
	u64 room;
	u64 shift;
	u32 want;
};

/* Where there is no region, or not one for both directions, the first descriptor is odd. */
static __always_inline void vserve_run_init(struct vserve_run *run, const struct vserve_reader *rd)
{
	const struct vhost_iotlb_map *map = rd->data;

	*run = (struct vserve_run) { .want = VSERVE_NO_KIND };
	if (!map || map->perm != VHOST_ACCESS_RW)
		return;
	run->last = map->last;
	run->room = map->last - map->start;
	run->shift = map->addr - map->start;
	run->want = rd->writes ? VRING_DESC_F_WRITE : 0;
}

/* Fills @iov if the buffer lies in one piece in the region.  No length is the largest one here. */
static __always_inline bool vserve_run_fits(const struct vserve_run *run,
					    const struct vserve_desc *desc, struct iovec *iov)
{
	/* An address beyond either end leaves more than there is room for. */
	u64 rest = run->last - desc->addr;

	if (unlikely(rest > run->room || (u64)desc->len - 1 > rest))
		return false;
	iov->iov_base = (void __user *)(unsigned long)(desc->addr + run->shift);
	iov->iov_len = desc->len;
	return true;
}

/*
 * Reads descriptors from the one at @i on, as long as their buffers lie in one piece in rd->data,
 * which nearly all buffers of a guest do.  The poller reads each word once, and all of them in one
 * user access.
 *
 * The access masks, or checks, the table's address only.  The check of each index keeps what is
 * read in the table.  An index has 16 bits, so a CPU that speculates past the check stays within
 * 1 MiB of user space.
 *
 * Return: 0 at the end of the chain; 1: @odd was read, and the caller has to add it; an error.
 */
static __always_inline int vserve_read_run(struct vserve_reader *rd,
					   const struct vserve_table *table, u32 i,
					   struct vserve_desc *odd)
{
	const u64 __user *words = (const u64 __user *)table->at, *from;
	struct vhost_virtqueue *vq = rd->vq;
	struct iovec *iov = vq->iov + rd->iovs;
	/* Each descriptor takes one element of vq->iov at most; a chain that has used all ends. */
	u32 most = min_t(u32, VSERVE_MAX_CHAIN - rd->nr, ARRAY_SIZE(vq->iov) - rd->iovs);
	u32 left = most, num = table->num, kind;
	struct vserve_desc desc;
	struct vserve_run run;
	size_t len = rd->len;
	u64 raw[2];
	int r;

	vserve_run_init(&run, rd);
	if (should_fail_usercopy())
		return -EFAULT;
	if (can_do_masked_user_access())
		words = masked_user_access_begin(words);
	else if (!user_read_access_begin(words, num * sizeof(struct vring_desc)))
		return -EFAULT;
	do {
		r = i < num ? -E2BIG : -EINVAL;
		if (unlikely(i >= num || !left))
			break;
		left--;
		from = words + 2 * (size_t)i;
		unsafe_get_user(raw[0], from, fault);
		unsafe_get_user(raw[1], from + 1, fault);
		vserve_desc_to_cpu(vq, &desc, raw);
		r = 1;
		kind = desc.flags & (VRING_DESC_F_INDIRECT | VRING_DESC_F_WRITE);
		if (kind != run.want) {
			if (run.want || kind != VRING_DESC_F_WRITE || !desc.len)
				break;
			run.want = kind;
			rd->writes = true;
			rd->out = iov - vq->iov;
			rd->out_len = len;
		}
		if (!vserve_run_fits(&run, &desc, iov))
			break;
		iov++;
		len += desc.len;
		i = desc.next;
		r = 0;
	} while (desc.flags & VRING_DESC_F_NEXT);
	user_read_access_end();
	rd->iovs = iov - vq->iov;
	rd->len = len;
	rd->nr += most - left;
	if (unlikely(r > 0))
		vserve_desc_to_cpu(vq, odd, raw);
	return r;
fault:
	user_read_access_end();
	/* A guest can have tables that end in a fault, and they take as long to read. */
	rd->nr += most - left;
	return -EFAULT;
}

/* As vserve_read_run(), or of a single descriptor that words cannot be read of in place. */
static __always_inline int vserve_read_some(struct vserve_reader *rd,
					    const struct vserve_table *table, u32 i,
					    struct vserve_desc *odd)
{
	const unsigned long at = (unsigned long)table->at;

	return likely(at && IS_ALIGNED(at, sizeof(u64)) && !rd->seek) ?
		vserve_read_run(rd, table, i, odd) : vserve_read_apart(rd, table, i, odd);
}

static int vserve_read_table(struct vserve_reader *rd, const struct vserve_desc *desc);

/* Goes on with a chain whose descriptor @desc was read, and was not added. */
static noinline int vserve_read_on(struct vserve_reader *rd, const struct vserve_table *table,
				   struct vserve_desc *desc)
{
	int r;

	do {
		if (desc->flags & VRING_DESC_F_INDIRECT)
			return table->indirect ? -EINVAL : vserve_read_table(rd, desc);
		r = vserve_add_desc(rd, desc);
		if (r || !(desc->flags & VRING_DESC_F_NEXT))
			return r;
		r = vserve_read_some(rd, table, desc->next, desc);
	} while (r > 0);
	return r;
}

static __always_inline int vserve_read_descs(struct vserve_reader *rd,
					     const struct vserve_table *table, u32 i)
{
	struct vserve_desc desc;
	int r = vserve_read_some(rd, table, i, &desc);

	return r > 0 ? vserve_read_on(rd, table, &desc) : r;
}

static noinline int vserve_read_table(struct vserve_reader *rd, const struct vserve_desc *desc)
{
	const struct vhost_iotlb_map *map = vserve_find(rd, &rd->table, desc->addr);
	struct vserve_table table = {
		.addr = desc->addr, .num = desc->len / sizeof(struct vring_desc), .indirect = true,
	};

	/* It is the end of its chain (virtio 1.2, 2.7.5.3.1). */
	if (!desc->len || desc->len % sizeof(struct vring_desc) ||
	    desc->flags & VRING_DESC_F_NEXT)
		return -EINVAL;
	if (!map || !(map->perm & VHOST_ACCESS_RO))
		return -EFAULT;
	if (vserve_part_of(map, desc->addr, desc->len) == desc->len)
		table.at = vserve_user_addr(map, desc->addr);
	return vserve_read_descs(rd, &table, 0);
}

static __always_inline int vserve_read_chain(struct vserve_reader *rd, u32 head)
{
	const struct vserve_table ring = { .at = rd->vq->desc, .num = rd->vq->num };

	return vserve_read_descs(rd, &ring, head);
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
	const struct vhost_iotlb_map *map = vring->map_of == vq->umem ? vring->map : NULL;
	struct vserve_reader rd = { .vq = vq, .data = map, .table = map };
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
	vring->map = rd.data;
	vring->map_of = vq->umem;
	vq->last_avail_idx++;
	if (!rd.writes)
		vserve_begin_writes(&rd);
	chain->iov = vq->iov;
	chain->out = rd.out;
	chain->in = rd.iovs - rd.out;
	chain->out_len = rd.out_len;
	chain->in_len = rd.len - rd.out_len;
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
