// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of a vring.  They are written under its mutex and read without, and
 * without the device's: who watches must neither make the poller look elsewhere,
 * nor wait for a worker that holds the one in a page fault, nor for a backend that
 * the other is held to drain.  Each only grows, but they may be of different moments.
 */
#include <linux/log2.h>
#include <linux/nospec.h>
#include <linux/uaccess.h>

#include "blk.h"

/**
 * vblk_count_done - count a request that goes back to the guest
 * @req: with its status; not in the used ring yet, so that a guest's counts and
 *	ours agree once it is
 */
void vblk_count_done(struct vblk_req *req)
{
	struct vblk_counters *c = &req->vring->stats;
	u64 took = max(req->vring->now, req->taken_ns + 1) - req->taken_ns;

	c->latency[min(ilog2(took), VHOST_BLK_HIST_BUCKETS - 1)]++;
	if (req->status == VIRTIO_BLK_S_UNSUPP)
		c->unsupp++;
	else if (req->status != VIRTIO_BLK_S_OK)
		c->errors++;

	switch (req->type) {
	case VIRTIO_BLK_T_IN:
		c->reads++;
		if (req->status == VIRTIO_BLK_S_OK)
			c->read_bytes += req->bytes;
		break;
	case VIRTIO_BLK_T_OUT:
		c->writes++;
		if (req->status == VIRTIO_BLK_S_OK)
			c->write_bytes += req->bytes;
		break;
	case VIRTIO_BLK_T_FLUSH:
		c->flushes++;
		break;
	case VIRTIO_BLK_T_DISCARD:
		c->discards++;
		break;
	case VIRTIO_BLK_T_WRITE_ZEROES:
		c->write_zeroes++;
		break;
	case VIRTIO_BLK_T_GET_ID:
		c->get_ids++;
		break;
	}
}

static void fill(struct vblk_vring *vring, struct vhost_blk_stats *out)
{
	const struct vblk_counters *c = &vring->stats;
	unsigned int i;

	/*
	 * Whoever saw a used index before finds what is behind it counted; pairs
	 * with the smp_wmb() of vhost_add_used_n().
	 */
	smp_rmb();
	out->poller_cpu = READ_ONCE(vring->poller_cpu);
	if (out->engine == VHOST_BLK_ENGINE_MQ)
		out->hctx = READ_ONCE(vring->hctx_used);
	out->kicks = atomic64_read(&vring->kicks);
	out->inflight = READ_ONCE(vring->nr_inflight);
	out->reads = READ_ONCE(c->reads);
	out->writes = READ_ONCE(c->writes);
	out->flushes = READ_ONCE(c->flushes);
	out->discards = READ_ONCE(c->discards);
	out->write_zeroes = READ_ONCE(c->write_zeroes);
	out->get_ids = READ_ONCE(c->get_ids);
	out->unsupp = READ_ONCE(c->unsupp);
	out->errors = READ_ONCE(c->errors);
	out->malformed = READ_ONCE(c->malformed);
	out->read_bytes = READ_ONCE(c->read_bytes);
	out->write_bytes = READ_ONCE(c->write_bytes);
	out->merged = READ_ONCE(c->merged);
	out->commands = READ_ONCE(c->commands);
	out->punted = READ_ONCE(c->punted);
	out->calls = READ_ONCE(c->calls);
	for (i = 0; i < VHOST_BLK_HIST_BUCKETS; i++)
		out->latency[i] = READ_ONCE(c->latency[i]);
}

/**
 * vblk_get_stats - VHOST_BLK_GET_STATS
 * @dev: the device
 * @argp: struct vhost_blk_stats
 */
long vblk_get_stats(struct vblk_dev *dev, void __user *argp)
{
	struct vhost_blk_stats out = {
		.hctx = VHOST_BLK_HCTX_AUTO, .poller_cpu = VBLK_NO_CPU,
	};
	u32 size, index;
	long r;

	r = vhost_poll_arg_size(&size, argp,
				offsetofend(struct vhost_blk_stats, index));
	if (r)
		return r;
	if (get_user(index, &((struct vhost_blk_stats __user *)argp)->index))
		return -EFAULT;
	if (index >= VHOST_BLK_MAX_VRINGS)
		return -ENOBUFS;
	out.size = min_t(u32, size, sizeof(out));
	out.index = index;
	out.engine = READ_ONCE(dev->engine_id);
	/* One that was never set up has done nothing; pairs with add_vring(). */
	if (index < smp_load_acquire(&dev->vdev.nvqs))
		fill(dev->vrings[array_index_nospec(index,
						    VHOST_BLK_MAX_VRINGS)],
		     &out);
	return vhost_poll_put_arg(argp, size, &out, sizeof(out));
}
