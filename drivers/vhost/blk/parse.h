/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reading a virtio-blk request from descriptors that a guest wrote.  None of these functions
 * touches guest memory: the caller has copied the header and the ranges once, and the functions
 * look only at the copies.
 */
#ifndef _VHOST_BLK_PARSE_H
#define _VHOST_BLK_PARSE_H

#include <linux/uio.h>
#include <uapi/linux/virtio_blk.h>

#define VBLK_MAX_RANGES		16	/* of one discard or write-zeroes */

/* A run of guest memory in a chain: @skip bytes into @iov, for @len bytes. */
struct vblk_span {
	const struct iovec *iov;
	size_t skip;
	size_t len;
};

/*
 * struct vblk_chain - the parts of a chain
 * @out: the bytes that the guest gives, the header first
 * @in: the bytes that the guest takes, without the status
 * @status: the place of the status, which is the last byte that the guest takes
 */
struct vblk_chain {
	struct vblk_span out;
	struct vblk_span in;
	void __user *status;
};

/* The limits of a request, from the backend and the negotiated features. */
struct vblk_limits {
	u64 capacity;			/* in sectors */
	u32 block_sectors;		/* logical block, in sectors */
	u32 max_bytes;			/* of one read or write */
	u32 max_discard_sectors;	/* 0: not offered */
	u32 max_write_zeroes_sectors;	/* 0: not offered */
	u32 max_discard_ranges;
	bool may_unmap;			/* write-zeroes may free blocks */
	bool read_only;
};

/* A discard or write-zeroes range in host byte order. */
struct vblk_range {
	u64 sector;
	u32 sectors;
	u32 flags;
};

bool vblk_split_chain(const struct iovec *iov, unsigned int out,
		      unsigned int in, struct vblk_chain *chain);
void vblk_span_advance(struct vblk_span *span, size_t bytes);
u8 vblk_check_rw(const struct vblk_limits *lim, u64 sector, size_t bytes,
		 bool write);
u8 vblk_check_ranges(const struct vblk_limits *lim, u32 type, size_t bytes);
u8 vblk_check_range(const struct vblk_limits *lim, u32 type,
		    const struct vblk_range *range);

#endif
