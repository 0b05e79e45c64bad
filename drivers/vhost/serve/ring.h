/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The words of a ring that guest and host share: the indices, and what is at an index.
 *
 * vhost has functions for these.  Each of them first asks whether the device has an IOTLB, which
 * ours never has.  They read through __get_user(), a call with a speculation barrier, and vq_err()
 * signals the VMM for each failure.  The poller looks at each ring in each of its rounds, so this
 * header reads and writes the words in place.  vhost checked that the rings lie in user space when
 * the owner set their addresses.
 *
 * The owner or the guest may take the memory away at any time, so each access may fail.
 */
#ifndef _VHOST_SERVE_RING_H
#define _VHOST_SERVE_RING_H

#include <linux/fault-inject-usercopy.h>
#include <linux/uaccess.h>
#include <linux/vhost_serve.h>

/* Read a word of the ring.  Returns false if it cannot be read. */
static inline bool vserve_get_u16(__virtio16 *to, const __virtio16 __user *from)
{
	if (can_do_masked_user_access())
		from = masked_user_access_begin(from);
	else if (!user_read_access_begin(from, sizeof(*from)))
		return false;
	unsafe_get_user(*to, from, fault);
	user_read_access_end();
	return true;
fault:
	user_read_access_end();
	return false;
}

/* Write a word of the ring.  Returns false if it cannot be written. */
static inline bool vserve_put_u16(__virtio16 __user *to, __virtio16 word)
{
	if (can_do_masked_user_access())
		to = masked_user_access_begin(to);
	else if (!user_write_access_begin(to, sizeof(*to)))
		return false;
	unsafe_put_user(word, to, fault);
	user_write_access_end();
	return true;
fault:
	user_write_access_end();
	return false;
}

/**
 * vserve_avail_empty - whether the guest has published no chain that was not taken yet
 * @vring: the vring; its mutex is held
 *
 * An index that cannot be read, or that has jumped, counts as a chain.  vserve_get_chain() finds
 * out.
 */
static inline bool vserve_avail_empty(struct vserve_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;
	__virtio16 raw;
	u16 idx;

	if (vq->avail_idx != vq->last_avail_idx)
		return false;
	if (!vserve_get_u16(&raw, &vq->avail->idx))
		return false;
	idx = vhost16_to_cpu(vq, raw);
	if ((u16)(idx - vq->last_avail_idx) > vq->num)
		return false;
	if (idx == vq->avail_idx)
		return true;
	vq->avail_idx = idx;
	/*
	 * Read the index before the words that it points at.  Pairs with the guest's barrier
	 * between its writes of the two.
	 */
	smp_rmb();
	return false;
}

/*
 * Like vserve_avail_empty(), but without the mutex.  This changes nothing, and true is only a hint.
 */
static inline bool vserve_avail_unchanged(struct vhost_virtqueue *vq)
{
	u16 last = READ_ONCE(vq->last_avail_idx);
	__virtio16 raw;

	return READ_ONCE(vq->avail_idx) == last && vserve_get_u16(&raw, &vq->avail->idx) &&
	       raw == cpu_to_vhost16(vq, last);
}

/* Read the head of the chain at last_avail_idx.  Returns false if it cannot be read. */
static inline bool vserve_get_head(struct vserve_vring *vring, u16 *head)
{
	struct vhost_virtqueue *vq = &vring->vq;
	__virtio16 raw;

	if (!vserve_get_u16(&raw, (const __virtio16 __user *)
			    &vq->avail->ring[vq->last_avail_idx & (vq->num - 1)]))
		return false;
	*head = vhost16_to_cpu(vq, raw);
	return true;
}

/**
 * vserve_put_elems - write elements to the used ring, which the guest does not see yet
 * @vring: the vring; its mutex is held
 * @elems: the elements
 * @nr: how many there are, up to the end of the ring at most
 *
 * Return: false if one of them cannot be written.
 */
static inline bool vserve_put_elems(struct vserve_vring *vring,
				    const struct vring_used_elem *elems, unsigned int nr)
{
	struct vhost_virtqueue *vq = &vring->vq;
	struct vring_used_elem __user *at =
		(struct vring_used_elem __user *)vq->used->ring +
		(vq->last_used_idx & (vq->num - 1));

	if (should_fail_usercopy())
		return false;
	if (can_do_masked_user_access())
		at = masked_user_access_begin(at);
	else if (!user_write_access_begin(at, nr * sizeof(*at)))
		return false;
	for (; nr; nr--, at++, elems++) {
		unsafe_put_user(elems->id, &at->id, fault);
		unsafe_put_user(elems->len, &at->len, fault);
	}
	user_write_access_end();
	return true;
fault:
	user_write_access_end();
	return false;
}

#endif
