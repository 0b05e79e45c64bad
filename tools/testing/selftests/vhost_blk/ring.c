// SPDX-License-Identifier: GPL-2.0
/*
 * Split virtqueues from the driver's side; see ring.h.
 *
 * Ordering with the device, all through C11-style atomics on the shared
 * indices: a release store publishes avail->idx after the descriptors and the
 * ring entry; an acquire load of used->idx comes before the used entry and the
 * data.  The two Dekker-like spots (publish / look whether a kick is wanted,
 * ask for an interrupt / look whether something is used) need a full barrier.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "ring.h"

#define RING_ALIGN	4096

int ring_mem_init(struct ring_mem *mem, size_t size)
{
	memset(mem, 0, sizeof(*mem));
	mem->fd = memfd_create("guest", MFD_CLOEXEC);
	if (mem->fd < 0)
		return -errno;
	if (ftruncate(mem->fd, size) < 0)
		goto err;

	mem->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
			 mem->fd, 0);
	if (mem->base == MAP_FAILED)
		goto err;
	mem->size = size;
	mem->gpa = RING_GPA_BASE;
	return 0;
err:
	size = errno;
	close(mem->fd);
	return -(int)size;
}

int ring_mem_init_private(struct ring_mem *mem, size_t size)
{
	memset(mem, 0, sizeof(*mem));
	mem->fd = -1;
	mem->base = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem->base == MAP_FAILED)
		return -errno;
	mem->size = size;
	mem->gpa = RING_GPA_BASE;
	return 0;
}

void ring_mem_free(struct ring_mem *mem)
{
	munmap(mem->base, mem->size);
	if (mem->fd >= 0)
		close(mem->fd);
}

void *ring_mem_alloc(struct ring_mem *mem, size_t len, size_t align)
{
	size_t at = (mem->brk + align - 1) & ~(align - 1);

	if (at > mem->size || len > mem->size - at)
		return NULL;
	mem->brk = at + len;
	return mem->base + at;
}

int ring_init(struct ring *r, struct ring_mem *mem, unsigned int index,
	      unsigned int num, unsigned int table_len)
{
	void *p;

	memset(r, 0, sizeof(*r));
	r->mem = mem;
	r->index = index;
	r->num = num;
	r->kick = -1;
	r->call = -1;

	p = ring_mem_alloc(mem, vring_size(num, RING_ALIGN), RING_ALIGN);
	if (!p)
		return -ENOMEM;
	vring_init(&r->vr, num, p, RING_ALIGN);

	if (table_len) {
		r->tables = ring_mem_alloc(mem, (size_t)num * table_len *
					   sizeof(*r->tables), 16);
		if (!r->tables)
			return -ENOMEM;
		r->table_len = table_len;
		r->indirect = true;
	}

	r->next = calloc(num, sizeof(*r->next));
	r->chain_len = calloc(num, sizeof(*r->chain_len));
	r->token = calloc(num, sizeof(*r->token));
	r->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!r->next || !r->chain_len || !r->token || r->kick < 0 ||
	    r->call < 0) {
		ring_free(r);
		return -ENOMEM;
	}

	ring_reset(r, 0);
	return 0;
}

void ring_free(struct ring *r)
{
	if (r->kick >= 0)
		close(r->kick);
	if (r->call >= 0)
		close(r->call);
	free(r->next);
	free(r->chain_len);
	free(r->token);
	memset(r, 0, sizeof(*r));
	r->kick = -1;
	r->call = -1;
}

void ring_reset(struct ring *r, u16 base)
{
	unsigned int i;

	for (i = 0; i < r->num; i++) {
		r->next[i] = i + 1;
		r->token[i] = NULL;
	}
	r->free_head = 0;
	r->num_free = r->num;
	r->avail_idx = base;
	r->kicked_idx = base;
	r->used_idx = base;

	memset(r->vr.desc, 0, r->num * sizeof(*r->vr.desc));
	r->vr.avail->flags = 0;
	__atomic_store_n(&r->vr.avail->idx, base, __ATOMIC_SEQ_CST);
	r->vr.used->flags = 0;
	__atomic_store_n(&r->vr.used->idx, base, __ATOMIC_SEQ_CST);
	vring_used_event(&r->vr) = base;
	vring_avail_event(&r->vr) = base;
}

static void fill_desc(struct vring_desc *d, const struct ring_seg *seg,
		      int next)
{
	d->addr = seg->gpa;
	d->len = seg->len;
	d->flags = (seg->device_writes ? VRING_DESC_F_WRITE : 0) |
		   (next >= 0 ? VRING_DESC_F_NEXT : 0);
	d->next = next >= 0 ? next : 0;
}

static void offer(struct ring *r, u16 head, unsigned int used,
		  void *token)
{
	r->token[head] = token;
	r->chain_len[head] = used;
	r->num_free -= used;
	r->vr.avail->ring[r->avail_idx & (r->num - 1)] = head;
	r->avail_idx++;
}

int ring_add(struct ring *r, const struct ring_seg *seg, unsigned int n,
	     void *token)
{
	u16 head = r->free_head, at = head;
	unsigned int i;

	if (!n || n > r->num_free)
		return -ENOSPC;

	for (i = 0; i < n; i++) {
		fill_desc(&r->vr.desc[at], &seg[i],
			  i + 1 < n ? r->next[at] : -1);
		at = r->next[at];
	}
	r->free_head = at;
	offer(r, head, n, token);
	return head;
}

int ring_add_indirect(struct ring *r, const struct ring_seg *seg,
		      unsigned int n, void *token)
{
	u16 head = r->free_head;
	struct vring_desc *table;
	unsigned int i;

	if (!n || !r->num_free || n > r->table_len)
		return -ENOSPC;

	table = r->tables + (size_t)head * r->table_len;
	for (i = 0; i < n; i++)
		fill_desc(&table[i], &seg[i], i + 1 < n ? (int)i + 1 : -1);

	r->vr.desc[head].addr = ring_gpa(r->mem, table);
	r->vr.desc[head].len = n * sizeof(*table);
	r->vr.desc[head].flags = VRING_DESC_F_INDIRECT;
	r->vr.desc[head].next = 0;
	r->free_head = r->next[head];
	offer(r, head, 1, token);
	return head;
}

void ring_publish(struct ring *r)
{
	__atomic_store_n(&r->vr.avail->idx, r->avail_idx, __ATOMIC_RELEASE);
}

void ring_kick_always(struct ring *r)
{
	u64 one = 1;

	r->kicks++;
	r->kicked_idx = r->avail_idx;
	if (write(r->kick, &one, sizeof(one)) != sizeof(one) && errno != EAGAIN)
		abort();
}

bool ring_kick(struct ring *r)
{
	u16 old = r->kicked_idx;
	u16 event;

	r->kicked_idx = r->avail_idx;
	/* avail->idx must be out before the device's wish is read */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (r->event_idx) {
		event = __atomic_load_n(&vring_avail_event(&r->vr),
					__ATOMIC_RELAXED);
		if (!vring_need_event(event, r->avail_idx, old))
			return false;
	} else if (__atomic_load_n(&r->vr.used->flags, __ATOMIC_RELAXED) &
		   VRING_USED_F_NO_NOTIFY) {
		return false;
	}
	ring_kick_always(r);
	return true;
}

bool ring_has_used(const struct ring *r)
{
	return __atomic_load_n(&r->vr.used->idx, __ATOMIC_ACQUIRE) !=
	       r->used_idx;
}

void *ring_pop(struct ring *r, u32 *len)
{
	struct vring_used_elem *e;
	u32 id;
	void *token;
	u16 tail;
	unsigned int i;

	if (!ring_has_used(r))
		return NULL;

	e = &r->vr.used->ring[r->used_idx & (r->num - 1)];
	id = e->id;
	if (len)
		*len = e->len;
	/* a device that gives back what it was not given is a failed test */
	if (id >= r->num || !r->token[id])
		abort();

	token = r->token[id];
	r->token[id] = NULL;
	for (i = 1, tail = id; i < r->chain_len[id]; i++)
		tail = r->next[tail];
	r->next[tail] = r->free_head;
	r->free_head = id;
	r->num_free += r->chain_len[id];
	r->used_idx++;
	return token;
}

void ring_enable_call(struct ring *r)
{
	r->vr.avail->flags = 0;
	vring_used_event(&r->vr) = r->used_idx;
	/* the wish must be out before used->idx is looked at again */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void ring_disable_call(struct ring *r)
{
	r->vr.avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
	vring_used_event(&r->vr) = r->used_idx - 1;
}

static s64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

int ring_wait(struct ring *r, int timeout_ms)
{
	struct pollfd pfd = { .fd = r->call, .events = POLLIN };
	s64 end = now_ms() + timeout_ms;
	u64 count;

	for (;;) {
		s64 left;

		ring_enable_call(r);
		if (ring_has_used(r))
			return 0;
		left = end - now_ms();
		if (left <= 0)
			return -ETIMEDOUT;
		r->waits++;
		if (poll(&pfd, 1, left) > 0 &&
		    read(r->call, &count, sizeof(count)) < 0 &&
		    errno != EAGAIN)
			return -errno;
	}
}
