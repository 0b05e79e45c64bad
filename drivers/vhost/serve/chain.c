// SPDX-License-Identifier: GPL-2.0
/*
 * Read a chain of descriptors that begins at a head, and put its buffers into vq->iov.
 *
 * This code does not use vhost_get_vq_desc(), because a guest can make that read without a useful
 * bound: a ring full of tables of 65,536 empty descriptors each is one chain to it.  Here a chain
 * has VSERVE_MAX_CHAIN descriptors at most, wherever they are, and a round counts those that it
 * reads.  This code also follows @next in an indirect table, which need not be in order (virtio
 * 1.2, 2.7.5.3).
 *
 * Guest addresses are looked up in vq->umem, which only changes under the vring's mutex.
 */
#include <linux/align.h>
#include <linux/export.h>
#include <linux/fault-inject-usercopy.h>
#include <linux/uaccess.h>
#include <linux/vhost_iotlb.h>

#include "ring.h"
#include "serve.h"

/*
 * struct vserve_reader - a chain that is being read
 * @data: the mapping of the last buffer; most buffers of a chain are in one mapping
 * @table: the mapping of the last descriptor of a table
 * @iovs: @len: the buffers that were found, in elements of vq->iov, and their bytes
 * @out: @out_len: those of them that the device reads; set once @writes is
 * @nr: how many descriptors were read
 * @writes: the reader has come to the buffers that the device writes
 * @seek: only find @last; see vserve_last_byte()
 * @last: the last byte that the device may write
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
 * struct vserve_table - the descriptors of a ring or of an indirect table
 * @at: the place in the owner's memory; NULL: a table that lies in several regions
 * @addr: the guest's address of a table
 * @num: how many descriptors there are
 * @indirect: it is a table, and not the ring
 */
struct vserve_table {
	const struct vring_desc __user *at;
	u64 addr;
	u32 num;
	bool indirect;
};

/* A descriptor, in the CPU's byte order. */
struct vserve_desc {
	u64 addr;
	u32 len;
	u16 flags;
	u16 next;
};

/*
 * Convert a descriptor that was read as two words.  The second one has length, flags and next, in
 * the order of struct vring_desc.
 */
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

/* vserve_read_simply() looks in the two regions that were looked up last. */
static void vserve_remember(struct vserve_vring *vring, const struct vhost_iotlb_map *map)
{
	struct vserve_region *regions = vring->regions, new = {
		.last = map->last, .room = map->last - map->start, .shift = map->addr - map->start,
	};

	if (map->perm != VHOST_ACCESS_RW)
		return;
	if (vring->regions_of != vring->vq.umem) {
		vring->regions_of = vring->vq.umem;
		regions[1] = new;
	} else if (new.last != regions[0].last) {
		regions[1] = regions[0];
	}
	regions[0] = new;
}

static const struct vhost_iotlb_map *
vserve_find(struct vserve_reader *rd, const struct vhost_iotlb_map **last, u64 addr)
{
	const struct vhost_iotlb_map *map = *last;

	if (map && addr >= map->start && addr <= map->last)
		return map;
	map = vhost_iotlb_itree_first(rd->vq->umem, addr, addr);
	if (map)
		vserve_remember(container_of(rd->vq, struct vserve_vring, vq), map);
	*last = map;
	return map;
}

static void __user *vserve_user_addr(const struct vhost_iotlb_map *map, u64 addr)
{
	return (void __user *)(unsigned long)(map->addr + addr - map->start);
}

/* How many of @len bytes at @addr lie in @map, computed so that nothing can wrap. */
static size_t vserve_part_of(const struct vhost_iotlb_map *map, u64 addr, size_t len)
{
	return min_t(u64, len - 1, map->last - addr) + 1;
}

/* Add a buffer, or the part of it that lies in one region.  Returns its length, or an error. */
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

/*
 * Remember the last byte of a buffer that the device may write, because it is the last one so far.
 */
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
	/* The buffers that the device reads come first (virtio 1.2, 2.7.4.2). */
	if (!write && rd->writes)
		return -EINVAL;
	if (!desc->len)
		return 0;
	if (write && !rd->writes)
		vserve_begin_writes(rd);
	return vserve_add_buffer(rd, desc->addr, desc->len, write);
}

/* Read a descriptor of a table that lies across two regions. */
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

static int vserve_read_desc(struct vserve_reader *rd, const struct vserve_table *table, u32 i,
			    struct vserve_desc *desc)
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
	return 0;
}

static int vserve_read_table(struct vserve_reader *rd, const struct vserve_desc *desc);

static int vserve_read_descs(struct vserve_reader *rd, const struct vserve_table *table, u32 i)
{
	struct vserve_desc desc;
	int r;

	do {
		r = vserve_read_desc(rd, table, i, &desc);
		if (r)
			return r;
		if (desc.flags & VRING_DESC_F_INDIRECT)
			return table->indirect ? -EINVAL : vserve_read_table(rd, &desc);
		r = vserve_add_desc(rd, &desc);
		i = desc.next;
	} while (!r && desc.flags & VRING_DESC_F_NEXT);
	return r;
}

static noinline int vserve_read_table(struct vserve_reader *rd, const struct vserve_desc *desc)
{
	const struct vhost_iotlb_map *map = vserve_find(rd, &rd->table, desc->addr);
	struct vserve_table table = {
		.addr = desc->addr, .num = desc->len / sizeof(struct vring_desc), .indirect = true,
	};

	/* A table ends its chain (virtio 1.2, 2.7.5.3.1). */
	if (!desc->len || desc->len % sizeof(struct vring_desc) ||
	    desc->flags & VRING_DESC_F_NEXT)
		return -EINVAL;
	if (!map || !(map->perm & VHOST_ACCESS_RO))
		return -EFAULT;
	if (vserve_part_of(map, desc->addr, desc->len) == desc->len)
		table.at = vserve_user_addr(map, desc->addr);
	return vserve_read_descs(rd, &table, 0);
}

static int vserve_read_chain(struct vserve_reader *rd, u32 head)
{
	const struct vserve_table ring = { .at = rd->vq->desc, .num = rd->vq->num };

	return vserve_read_descs(rd, &ring, head);
}

/* Read any chain.  Returns 0, or an error. */
static noinline int vserve_read_slowly(struct vserve_vring *vring, u32 head,
				       struct vserve_chain *chain)
{
	struct vhost_virtqueue *vq = &vring->vq;
	struct vserve_reader rd = { .vq = vq };
	int r = vserve_read_chain(&rd, head);

	vring->round_descs += rd.nr;
	if (r)
		return r;
	if (!rd.writes)
		vserve_begin_writes(&rd);
	*chain = (struct vserve_chain) {
		.iov = vq->iov, .out = rd.out, .in = rd.iovs - rd.out,
		.out_len = rd.out_len, .in_len = rd.len - rd.out_len,
	};
	return 0;
}

/*
 * Whether @len bytes at @addr lie in the region.  If @len is 0 they do not, because the subtraction
 * makes it the largest number.
 */
static __always_inline bool vserve_region_has(const struct vserve_region *region, u64 addr, u32 len)
{
	/* For an address beyond either end, rest is larger than room. */
	u64 rest = region->last - addr;

	return rest <= region->room && (u64)len - 1 <= rest;
}

static __always_inline void __user *vserve_region_at(const struct vserve_region *region, u64 addr)
{
	return (void __user *)(unsigned long)(addr + region->shift);
}

/*
 * Find the table of @desc in the owner's memory.  The descriptor is the first one of its chain.
 * Returns NULL if vserve_read_slowly() has to look at the table.
 */
static const u64 __user *vserve_simple_table(const struct vserve_region *regions,
					     const struct vserve_desc *desc)
{
	const struct vserve_region *region = regions;
	const u64 __user *at;

	if (desc->flags & VRING_DESC_F_NEXT || desc->len % sizeof(struct vring_desc))
		return NULL;
	if (!vserve_region_has(region, desc->addr, desc->len) &&
	    !vserve_region_has(++region, desc->addr, desc->len))
		return NULL;
	at = vserve_region_at(region, desc->addr);
	return IS_ALIGNED((unsigned long)at, sizeof(*at)) ? at : NULL;
}

/* Begin to read descriptors from the owner's memory.  Returns false if that fails. */
static __always_inline bool vserve_descs_begin(const u64 __user **words, u32 num)
{
	if (should_fail_usercopy())
		return false;
	if (can_do_masked_user_access())
		*words = masked_user_access_begin(*words);
	else if (!user_read_access_begin(*words, num * sizeof(struct vring_desc)))
		return false;
	return true;
}

/* Fill @chain at its end.  Its elements end at @end, and have @len bytes. */
static __always_inline void vserve_fill_chain(struct vserve_vring *vring, const struct iovec *end,
					      size_t len, bool writes, struct vserve_chain *chain)
{
	unsigned int nr = end - vring->vq.iov;

	if (!writes) {
		chain->out = nr;
		chain->out_len = len;
	}
	chain->iov = vring->vq.iov;
	chain->in = nr - chain->out;
	chain->in_len = len - chain->out_len;
	vring->round_descs += nr;
}

/*
 * Read a chain whose buffers lie in two regions, one piece each, and whose descriptors are all in
 * the ring, or all in one table there.  The memory of most guests has two regions, one below 4 GiB
 * and one above, so nearly all chains are like that.  The poller reads each word once, and those of
 * a table in one user access.
 *
 * The access masks, or checks, only the address of the ring or table.  The check of each index
 * keeps the reads in the ring or table.  An index has 16 bits, so a CPU that speculates past the
 * check stays within 1 MiB of user space.
 *
 * Returns 0, or -EAGAIN if the chain is another one, or is wrong, or if memory is missing.  After
 * -EAGAIN the caller forgets what was read here, and reads the chain from its start.  The round
 * counts these descriptors all the same, because they took as long to read.
 */
static __always_inline int vserve_read_simply(struct vserve_vring *vring, u32 i,
					      struct vserve_chain *chain)
{
	struct vhost_virtqueue *vq = &vring->vq;
	const u64 __user *words = (const u64 __user *)vq->desc, *from;
	/* Each descriptor takes one element of vq->iov. */
	struct iovec *iov = vq->iov, *end = iov + min(VSERVE_MAX_CHAIN, ARRAY_SIZE(vq->iov));
	struct vserve_region region = vring->regions[0];
	u32 num = vq->num, want = 0, kind, at = 0;
	struct vserve_desc desc;
	bool in_ring = true;
	size_t len = 0;
	u64 raw[2];

again:
	if (!vserve_descs_begin(&words, num))
		return -EAGAIN;
	do {
		/*
		 * Keep the two tests apart, because the compiler makes more than two branches of
		 * one.
		 */
		if (unlikely(i >= num))
			goto other;
		if (unlikely(iov == end))
			goto other;
		from = words + 2 * (size_t)i;
		unsafe_get_user(raw[0], from, other);
		unsafe_get_user(raw[1], from + 1, other);
		vserve_desc_to_cpu(vq, &desc, raw);
		kind = desc.flags & (VRING_DESC_F_INDIRECT | VRING_DESC_F_WRITE);
		if (kind != want) {
			if (kind == VRING_DESC_F_INDIRECT && in_ring && iov == vq->iov)
				goto table;
			if (want || kind != VRING_DESC_F_WRITE)
				goto other;
			want = kind;
			chain->out = iov - vq->iov;
			chain->out_len = len;
		}
		if (unlikely(!vserve_region_has(&region, desc.addr, desc.len))) {
			at ^= 1;
			region = vring->regions[at];
			if (!vserve_region_has(&region, desc.addr, desc.len))
				goto other;
		}
		iov->iov_base = vserve_region_at(&region, desc.addr);
		iov->iov_len = desc.len;
		iov++;
		len += desc.len;
		i = desc.next;
	} while (desc.flags & VRING_DESC_F_NEXT);
	user_read_access_end();
	vserve_fill_chain(vring, iov, len, want, chain);
	return 0;
table:
	user_read_access_end();
	/* The descriptor in the ring counts, too, for the chain and for the round. */
	end--;
	vring->round_descs++;
	words = vserve_simple_table(vring->regions, &desc);
	num = desc.len / sizeof(struct vring_desc);
	i = 0;
	in_ring = false;
	if (words)
		goto again;
	return -EAGAIN;
other:
	user_read_access_end();
	vring->round_descs += iov - vq->iov + 1;
	return -EAGAIN;
}

/* Returns false as long as no region is known, or if the ring is not aligned to words. */
static __always_inline bool vserve_may_be_simple(const struct vserve_vring *vring)
{
	return likely(vring->regions_of == vring->vq.umem &&
		      IS_ALIGNED((unsigned long)vring->vq.desc, sizeof(u64)));
}

/**
 * vserve_get_chain - read the next chain of the ring into vq->iov
 * @vring: the vring; its mutex is held
 * @chain: to be filled
 *
 * Return: the head, and then the ring is one further; vq->num if there is no chain; or an error,
 * and then the ring is where it was.
 */
int vserve_get_chain(struct vserve_vring *vring, struct vserve_chain *chain)
{
	struct vhost_virtqueue *vq = &vring->vq;
	u16 head, ahead;
	int r;

	if (vserve_avail_empty(vring))
		return vq->num;
	/* vserve_avail_empty() also returns false if it cannot read the index, or cannot use it. */
	ahead = vq->avail_idx - vq->last_avail_idx;
	if (!ahead || ahead > vq->num || !vserve_get_head(vring, &head))
		return -EFAULT;
	if (!vserve_may_be_simple(vring) || vserve_read_simply(vring, head, chain)) {
		r = vserve_read_slowly(vring, head, chain);
		if (r)
			return r;
	}
	vq->last_avail_idx++;
	return head;
}

/**
 * vserve_last_byte - find the last byte of a chain that the device may write
 * @vring: the vring; its mutex is held, and page faults are allowed
 * @head: the head of the chain
 *
 * This is for chains that cannot be read.  Their data may lie where there is no memory, and the
 * place of the answer where there is.
 *
 * Return: the byte, or NULL if it cannot be found, because the chain has no end for example.
 */
void __user *vserve_last_byte(struct vserve_vring *vring, unsigned int head)
{
	struct vserve_reader rd = { .vq = &vring->vq, .seek = true };
	int r = vserve_read_chain(&rd, head);

	vring->round_descs += rd.nr;
	return r ? NULL : rd.last;
}
EXPORT_SYMBOL_GPL(vserve_last_byte);
