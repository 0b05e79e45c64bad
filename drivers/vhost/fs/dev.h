/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The structures of a device, a vring and a request, which embed those of vhost_serve.  main.c,
 * ring.c and the tracepoints use this header.  The other files know nothing of rings.
 */
#ifndef _VHOST_FS_DEV_H
#define _VHOST_FS_DEV_H

#include <linux/vhost_serve.h>

#include "fs.h"

/* Most chains of a guest have no more buffers. */
#define VHFS_INLINE_IOV	8

/*
 * How many pages the direct I/O of a vring may pin.
 *
 * A guest can offer one page again and again, and each pin takes 1,024 references to it.  With this
 * limit all VHOST_SERVE_MAX_VRINGS vrings of a device take a sixteenth of the references that a
 * page can have.  Beyond the limit workers wait for the I/O, and there are few workers.
 */
#define VHFS_MAX_HELD	2048

/* struct vhfs_dev - an open /dev/vhost-fs; @ex is protected by the device's mutex */
struct vhfs_dev {
	struct vserve_dev base;
	struct vhfs_export *ex;
};

/*
 * struct vhfs_vring - @held: pages that direct I/O pins, see VHFS_MAX_HELD; under the vring's mutex
 */
struct vhfs_vring {
	struct vserve_vring base;
	unsigned int held;
};

/*
 * struct vhfs_slot - a request and its place in the guest's memory
 * @answered: the reply is in the guest's memory, and the request holds nothing any more
 * @held: how many of the vring's @held are for this request
 * @len: the length of the reply, once @answered
 * @lent: the ring's iovecs of the chain, until submit() has returned; NULL: the request has its own
 * @iov: its own iovecs, allocated; NULL: they are in @inline_iov, or lent
 */
struct vhfs_slot {
	struct vserve_req base;
	struct vhfs_req req;
	bool answered;
	unsigned int held;
	u32 len;
	const struct iovec *lent;
	struct iovec *iov;
	struct iovec inline_iov[VHFS_INLINE_IOV];
};

static inline struct vhfs_dev *to_vhfs_dev(struct vserve_dev *dev)
{
	return container_of(dev, struct vhfs_dev, base);
}

static inline struct vhfs_vring *to_vhfs_vring(struct vserve_vring *vring)
{
	return container_of(vring, struct vhfs_vring, base);
}

static inline struct vhfs_slot *to_vhfs_slot(struct vserve_req *base)
{
	return container_of(base, struct vhfs_slot, base);
}

/* ring.c */
int vhfs_take(struct vserve_req *base, const struct vserve_chain *chain,
	      bool may_sleep);
void vhfs_submit(struct vserve_req *base);
void vhfs_work(struct vserve_req *base);
int vhfs_finish(struct vserve_req *base, bool may_sleep);

#endif
