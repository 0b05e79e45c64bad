/* SPDX-License-Identifier: GPL-2.0 */
/* Writes in flight, and vrings that are stopped under them. */
#ifndef VHOST_BLK_WRITES_H
#define VHOST_BLK_WRITES_H

#include "rig.h"

/* A null_blk that answers after a moment. */
const char *disk_named(const char *name);
/* Offers N writes of 4096 bytes, with holes between them, so that they stay apart. */
void offer_writes(struct rig *g, struct rig_req **req, unsigned int n);
/* They are done, and the disk has what they wrote. */
void expect_writes(const char *disk, struct rig_req **req, unsigned int n);
/* A stopped vring has given back all it took, and says where it stands. */
u16 stop_exactly(struct rig *g);
void resume_at(struct rig *g, u16 base);

#endif /* VHOST_BLK_WRITES_H */
