// SPDX-License-Identifier: GPL-2.0
/*
 * The counters of a disk's vring that vhost_serve does not have.  drivers/vhost/serve/stats.c has
 * the rules for reading them.
 */
#include <linux/uaccess.h>

#include "blk.h"

/**
 * vblk_count_done - count a request that goes back to the guest
 * @req: the request, with its status; not in the used ring yet
 */
void vblk_count_done(struct vblk_req *req)
{
	struct vblk_counters *c = &vblk_vring_of(req)->stats;

	if (req->base.status == VIRTIO_BLK_S_UNSUPP)
		c->unsupp++;
	else if (req->base.status != VIRTIO_BLK_S_OK)
		c->errors++;

	switch (req->type) {
	case VIRTIO_BLK_T_IN:
		c->reads++;
		if (req->base.status == VIRTIO_BLK_S_OK)
			c->read_bytes += req->base.bytes;
		break;
	case VIRTIO_BLK_T_OUT:
		c->writes++;
		if (req->base.status == VIRTIO_BLK_S_OK)
			c->write_bytes += req->base.bytes;
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

static void vblk_fill_stats(struct vblk_vring *vring,
			    struct vhost_blk_stats *out)
{
	const struct vblk_counters *c = &vring->stats;
	struct vhost_serve_stats ring;

	/*
	 * Call this first, because its barrier orders the counters after the used index that the
	 * guest saw.
	 */
	vserve_read_stats(&vring->base, &ring);
	out->poller_cpu = ring.poller_cpu;
	if (out->engine == VHOST_BLK_ENGINE_MQ)
		out->hctx = READ_ONCE(vring->hctx_used);
	out->kicks = ring.kicks;
	out->inflight = ring.inflight;
	out->malformed = ring.malformed;
	out->punted = ring.punted;
	out->hot = ring.hot;
	out->calls = ring.calls;
	BUILD_BUG_ON(sizeof(out->latency) != sizeof(ring.latency));
	memcpy(out->latency, ring.latency, sizeof(out->latency));
	out->reads = READ_ONCE(c->reads);
	out->writes = READ_ONCE(c->writes);
	out->flushes = READ_ONCE(c->flushes);
	out->discards = READ_ONCE(c->discards);
	out->write_zeroes = READ_ONCE(c->write_zeroes);
	out->get_ids = READ_ONCE(c->get_ids);
	out->unsupp = READ_ONCE(c->unsupp);
	out->errors = READ_ONCE(c->errors);
	out->read_bytes = READ_ONCE(c->read_bytes);
	out->write_bytes = READ_ONCE(c->write_bytes);
	out->merged = READ_ONCE(c->merged);
	out->commands = READ_ONCE(c->commands);
}

/**
 * vblk_get_stats - carry out VHOST_BLK_GET_STATS
 * @dev: the device
 * @argp: the caller's struct vhost_blk_stats
 *
 * Return: 0, or an error.
 */
long vblk_get_stats(struct vblk_dev *dev, void __user *argp)
{
	struct vhost_blk_stats out = {
		.hctx = VHOST_BLK_HCTX_AUTO, .poller_cpu = VSERVE_NO_CPU,
	};
	struct vserve_vring *vring;
	u32 size, index;
	long r;

	r = vhost_poll_arg_size(&size, argp,
				offsetofend(struct vhost_blk_stats, index));
	if (r)
		return r;
	if (get_user(index, &((struct vhost_blk_stats __user *)argp)->index))
		return -EFAULT;
	if (index >= VHOST_SERVE_MAX_VRINGS)
		return -ENOBUFS;
	out.size = min_t(u32, size, sizeof(out));
	out.index = index;
	out.engine = READ_ONCE(dev->engine_id);
	vring = vserve_vring_of(&dev->base, index);
	if (vring)
		vblk_fill_stats(to_vblk_vring(vring), &out);
	return vhost_poll_put_arg(argp, size, &out, sizeof(out));
}
