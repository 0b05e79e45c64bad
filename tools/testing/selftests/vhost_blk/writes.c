// SPDX-License-Identifier: GPL-2.0
/* Writes in flight, and vrings that are stopped under them; see writes.h. */
#include "writes.h"

const char *disk_named(const char *name)
{
	backend_need_modules();
	return nullb_create(&(struct nullb){ .name = name, .irqmode = 2,
					     .completion_nsec = 200000 });
}

void offer_writes(struct rig *g, struct rig_req **req, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		rig_pattern(g->data + i * 4096, 4096, i);
		req[i] = rig_queue(g, 0, VIRTIO_BLK_T_OUT, i * 16,
				   g->data + i * 4096, 4096);
	}
	rig_kick(g, 0);
}

void expect_writes(const char *disk, struct rig_req **req, unsigned int n)
{
	u8 seen[4096];
	unsigned int i;

	for (i = 0; i < n; i++) {
		EXPECT(req[i]->done);
		EXPECT_EQ(*req[i]->status, VIRTIO_BLK_S_OK);
		backend_read(disk, i * 16 * 512, seen, sizeof(seen));
		EXPECT(rig_pattern_ok(seen, sizeof(seen), i));
	}
}

u16 stop_exactly(struct rig *g)
{
	struct vhost_blk_stats st;
	u16 base;

	EXPECT_EQ(vdev_stop(&g->dev, &g->ring[0], &base), 0);
	EXPECT_EQ(base, g->ring[0].vr.used->idx);
	rig_stats(g, 0, &st);
	EXPECT_EQ(st.inflight, 0);
	return base;
}

void resume_at(struct rig *g, u16 base)
{
	EXPECT_EQ(vblk_set_ring(g->dev.fd, &g->ring[0], base), 0);
	EXPECT_EQ(vblk_start(g->dev.fd, 0), 0);
	ring_kick_always(&g->ring[0]);
}
