/* SPDX-License-Identifier: GPL-2.0 */
/* A guest that means harm: what the parts of hostile_test share. */
#ifndef VHOST_BLK_HOSTILE_H
#define VHOST_BLK_HOSTILE_H

#include "rig.h"

#define HOSTILE_RING	128

/* Where a malformed descriptor points. */
enum hostile_addr {
	A_HDR,		/* the request header */
	A_DATA,		/* room for data */
	A_STAT,		/* the status byte */
	A_TABLE,	/* the indirect table */
	A_ZERO,		/* guest address 0, not memory */
	A_WILD,		/* far from any memory */
	A_BELOW,	/* 8 bytes before the memory */
	A_TOP,		/* the last 8 bytes of the memory */
	A_PAST,		/* just past the memory */
	A_MAX,		/* the last 8 bytes of all addresses */
	A_DESC,		/* the descriptor table itself */
	A_AVAIL,
	A_USED,
	A_ADDRS,
};

struct hostile_desc {
	u8 addr;
	u32 len;
	u16 flags;
	u16 next;
};

/* How it has to end.  What is not served touches neither data nor disk. */
enum hostile_end {
	E_UNSAID,	/* nobody thought of it: the test fails */
	E_OK,
	E_IOERR,
	E_UNSUPP,
	E_BAD,		/* cannot be read, but answered where its status is */
	E_DROPPED,	/* given back without a status, as it has no room for one */
	E_IGNORED,	/* not a request, and the ring goes on */
	E_BROKEN,	/* the ring makes no sense any more */
	E_SERVED,	/* OK, and what the ring is after that is the guest's fault */
};

#define HOSTILE_DESCS	8

/* One malformed layout, written by hand. */
struct hostile_case {
	const char *name;
	struct hostile_desc d[HOSTILE_DESCS];
	struct hostile_desc table[HOSTILE_DESCS];
	u32 type;
	u64 sector;
	enum hostile_end end;
	/* chains used, and found malformed, besides the one that @end is about */
	u8 used;
	u8 malformed;
	/* where the status is to be found, if it is not where A_STAT is */
	u8 status_in;
	u16 status_at;
	/* what is offered instead of descriptor 0, once */
	const u16 *heads;
	u16 nheads;
	/* added to avail->idx beyond what was offered */
	u16 jump;
};

extern const struct hostile_case hostile_cases[];
extern const unsigned int hostile_ncases;

/* A device under attack, and another one that must not notice. */
struct hostile {
	struct rig g;
	struct rig other;
	struct virtio_blk_outhdr *hdr;
	u8 *status;
	struct vring_desc *table;
	u8 *data;
	const char *disk;
	/* signalled when the ring is broken */
	int err;
	bool broken;
	u64 malformed;
	u64 seed;
	u64 layouts;
};

void hostile_open(struct hostile *h, u32 engine, u32 flags);
void hostile_close(struct hostile *h);
u64 hostile_rnd(struct hostile *h, u64 below);
u64 hostile_gpa(struct hostile *h, unsigned int addr);

/* An empty ring, running, from index 0. */
void hostile_fresh(struct hostile *h);
/* Until the poller has looked at the ring and has nothing more to do. */
void hostile_settle(struct hostile *h);
void hostile_stop(struct hostile *h);
/* Both devices do honest work. */
void hostile_check(struct hostile *h);

void hostile_play(struct hostile *h, const struct hostile_case *c);
void hostile_random(struct hostile *h);

#endif /* VHOST_BLK_HOSTILE_H */
