// SPDX-License-Identifier: GPL-2.0
/*
 * The counters of a vring, which the holder of the vring's mutex writes.
 *
 * A task that reads them takes neither that mutex nor the device's.  The poller leaves a vring
 * alone while its mutex is taken, and a worker may hold the mutex in a page fault.  STOP may hold
 * the device's mutex while a backend does not answer.  Each counter only grows, but two of them may
 * be of different moments.
 */
#include <linux/export.h>
#include <linux/nospec.h>
#include <linux/uaccess.h>

#include "serve.h"

/**
 * vserve_vring_of - find a vring by its index
 * @dev: the device; the caller may hold its mutex
 * @index: the index, from user space
 *
 * Return: the vring, or NULL if it was never set up.
 */
struct vserve_vring *vserve_vring_of(struct vserve_dev *dev, u32 index)
{
	/* Pairs with the release in vserve_add_vring(). */
	if (index >= smp_load_acquire(&dev->vdev.nvqs))
		return NULL;
	return dev->vrings[array_index_nospec(index, VHOST_SERVE_MAX_VRINGS)];
}
EXPORT_SYMBOL_GPL(vserve_vring_of);

/**
 * vserve_read_stats - read the counters that all devices have
 * @vring: the vring; the caller needs no lock
 * @out: to be filled, except for @size and @index
 */
void vserve_read_stats(struct vserve_vring *vring,
		       struct vhost_serve_stats *out)
{
	const struct vserve_counters *c = &vring->stats;
	u64 hot_punted = READ_ONCE(vring->hot_punted);
	unsigned int i;

	/*
	 * If the caller has seen a used index before, it finds the requests up to there counted.
	 * Pairs with the smp_wmb() in vserve_put_used().
	 */
	smp_rmb();
	out->poller_cpu = READ_ONCE(vring->poller_cpu);
	out->inflight = READ_ONCE(vring->nr_inflight);
	out->requests = READ_ONCE(c->requests);
	out->malformed = READ_ONCE(c->malformed);
	out->punted = READ_ONCE(c->punted) + hot_punted;
	out->hot = READ_ONCE(c->hot) - hot_punted;
	out->kicks = atomic64_read(&vring->kicks);
	out->calls = READ_ONCE(c->calls);
	for (i = 0; i < VHOST_SERVE_HIST_BUCKETS; i++)
		out->latency[i] = READ_ONCE(c->latency[i]);
}
EXPORT_SYMBOL_GPL(vserve_read_stats);

/**
 * vserve_get_stats - carry out VHOST_SERVE_GET_STATS
 * @dev: the device
 * @argp: the caller's struct vhost_serve_stats
 *
 * Return: 0, or an error.
 */
long vserve_get_stats(struct vserve_dev *dev, void __user *argp)
{
	struct vhost_serve_stats out = { .poller_cpu = VSERVE_NO_CPU };
	struct vserve_vring *vring;
	u32 size, index;
	long r;

	r = vhost_poll_arg_size(&size, argp,
				offsetofend(struct vhost_serve_stats, index));
	if (r)
		return r;
	if (get_user(index, &((struct vhost_serve_stats __user *)argp)->index))
		return -EFAULT;
	if (index >= VHOST_SERVE_MAX_VRINGS)
		return -ENOBUFS;
	out.size = min_t(u32, size, sizeof(out));
	out.index = index;
	vring = vserve_vring_of(dev, index);
	if (vring)
		vserve_read_stats(vring, &out);
	return vhost_poll_put_arg(argp, size, &out, sizeof(out));
}
