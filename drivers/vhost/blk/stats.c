// SPDX-License-Identifier: GPL-2.0
/* Counters of a vring, written under its mutex. */
#include <linux/log2.h>
#include <linux/nospec.h>
#include <linux/uaccess.h>

#include "blk.h"

/**
 * vblk_count_done - count a request that goes back to the guest
 * @req: with its status
 * @now: ktime_get_ns() of the round
 */
void vblk_count_done(struct vblk_req *req, u64 now)
{
	struct vblk_counters *c = &req->vring->stats;
	u64 took = max(now, req->taken_ns + 1) - req->taken_ns;

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

	if (vring->poller)
		out->poller_cpu = vhost_poller_cpu(vring->poller);
	out->kicks = atomic64_read(&vring->kicks);

	mutex_lock(&vring->vq.mutex);
	if (out->engine == VHOST_BLK_ENGINE_MQ)
		out->hctx = vring->hctx_used;
	out->inflight = vring->nr_inflight;
	out->reads = c->reads;
	out->writes = c->writes;
	out->flushes = c->flushes;
	out->discards = c->discards;
	out->write_zeroes = c->write_zeroes;
	out->get_ids = c->get_ids;
	out->unsupp = c->unsupp;
	out->errors = c->errors;
	out->malformed = c->malformed;
	out->read_bytes = c->read_bytes;
	out->write_bytes = c->write_bytes;
	out->merged = c->merged;
	out->commands = c->commands;
	out->punted = c->punted;
	out->calls = c->calls;
	memcpy(out->latency, c->latency, sizeof(out->latency));
	mutex_unlock(&vring->vq.mutex);
}

/**
 * vblk_get_stats - VHOST_BLK_GET_STATS
 * @dev: its mutex is held
 * @argp: struct vhost_blk_stats
 */
long vblk_get_stats(struct vblk_dev *dev, void __user *argp)
{
	struct vhost_blk_stats out = {
		.hctx = VHOST_BLK_HCTX_AUTO, .poller_cpu = ~0U,
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
	if (dev->backend)
		out.engine = dev->backend->engine_id;
	/* One that was never set up has done nothing. */
	if (index < dev->vdev.nvqs)
		fill(dev->vrings[array_index_nospec(index,
						    VHOST_BLK_MAX_VRINGS)],
		     &out);
	return vhost_poll_put_arg(argp, size, &out, sizeof(out));
}
