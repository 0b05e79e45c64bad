/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A player of split virtqueues: the driver side of a virtio device without a
 * guest.  The rings and the data live in a memfd that the device maps, under
 * guest addresses that differ from the ones they have in this process, so that
 * a device which confuses the two is found out.
 *
 * One thread owns a ring.  Only the memory is shared with the device.
 */
#ifndef VHOST_BLK_RING_H
#define VHOST_BLK_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/types.h>
#include <linux/virtio_ring.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;

#define RING_GPA_BASE	0x100000000ULL
#define RING_MAX_SEGS	1024

/*
 * Guest memory, given out from the bottom, never given back.  It is one region, or two if @split is
 * not 0: what lies @split bytes above @base and higher has guest addresses that are @hole larger.
 */
struct ring_mem {
	int fd;
	u8 *base;
	size_t size;
	size_t brk;
	u64 gpa;
	size_t split;
	u64 hole;
};

/* One piece of a request as the device sees it. */
struct ring_seg {
	u64 gpa;
	u32 len;
	bool device_writes;
};

struct ring {
	struct ring_mem *mem;
	unsigned int index;
	unsigned int num;
	struct vring vr;
	bool event_idx;
	bool indirect;
	int kick;
	int call;
	/* what is ours alone: never read back from shared memory */
	u16 avail_idx;
	u16 kicked_idx;
	u16 used_idx;
	u16 free_head;
	u16 num_free;
	u16 *next;
	u16 *chain_len;
	void **token;
	struct vring_desc *tables;
	unsigned int table_len;
	u64 kicks;
	u64 waits;
};

int ring_mem_init(struct ring_mem *mem, size_t size);
/* The same with memory of this process alone, as of a VMM that shares none. */
int ring_mem_init_private(struct ring_mem *mem, size_t size);
void ring_mem_free(struct ring_mem *mem);
void *ring_mem_alloc(struct ring_mem *mem, size_t len, size_t align);

static inline u64 ring_gpa(const struct ring_mem *mem, const void *p)
{
	u64 at = (const u8 *)p - mem->base;

	return mem->gpa + at + (mem->split && at >= mem->split ? mem->hole : 0);
}

static inline struct ring_seg ring_seg(const struct ring_mem *mem, const void *p,
				       u32 len, bool device_writes)
{
	return (struct ring_seg){ ring_gpa(mem, p), len, device_writes };
}

/* @table_len: descriptors in each indirect table; 0 for a ring without. */
int ring_init(struct ring *r, struct ring_mem *mem, unsigned int index,
	      unsigned int num, unsigned int table_len);
void ring_free(struct ring *r);
/* Forget everything in flight and start again at @base. */
void ring_reset(struct ring *r, u16 base);

/*
 * Put a chain on the ring: not seen by the device before ring_publish().
 * Returns the head, -ENOSPC where there is no room.
 */
int ring_add(struct ring *r, const struct ring_seg *seg, unsigned int n,
	     void *token);
int ring_add_indirect(struct ring *r, const struct ring_seg *seg,
		      unsigned int n, void *token);
void ring_publish(struct ring *r);
/* Kick if the device asks for it; true if it did. */
bool ring_kick(struct ring *r);
void ring_kick_always(struct ring *r);

/* The next completed chain's token, NULL if there is none. */
void *ring_pop(struct ring *r, u32 *len);
/* Whether the device has given something back that was not popped. */
bool ring_has_used(const struct ring *r);
/* Ask for an interrupt for the next completion, or for none at all. */
void ring_enable_call(struct ring *r);
void ring_disable_call(struct ring *r);
/* Sleep until something is used; 0, or -ETIMEDOUT. */
int ring_wait(struct ring *r, int timeout_ms);

static inline unsigned int ring_inflight(const struct ring *r)
{
	return (u16)(r->avail_idx - r->used_idx);
}

#endif /* VHOST_BLK_RING_H */
