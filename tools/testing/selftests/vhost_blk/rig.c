// SPDX-License-Identifier: GPL-2.0
/* A device under test; see rig.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rig.h"

#define RIG_MEM		(16UL << 20)
#define RIG_REQS	4096
#define RIG_TABLE	260

unsigned int last_cpu(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN) - 1;
}

void sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

static void open_pollers(struct rig *g, const struct rig_opts *o)
{
	unsigned int i, cpu = o->first_cpu ? 0 : last_cpu();

	if (o->share_poller) {
		for (i = 0; i < g->queues; i++)
			g->dev.poller[i] = o->share_poller;
		return;
	}
	g->npoll = o->poller_each ? g->queues : 1;
	for (i = 0; i < g->npoll; i++) {
		g->poller[i] = poller_open((cpu + i) % (last_cpu() + 1),
					   o->mode, "test");
		EXPECT(g->poller[i] >= 0);
	}
	for (i = 0; i < g->queues; i++)
		g->dev.poller[i] = g->poller[i % g->npoll];
}

static void open_rings(struct rig *g, const struct rig_opts *o)
{
	unsigned int i, size = o->ring_size ? o->ring_size : 256;

	for (i = 0; i < g->queues; i++) {
		/* a long ring is for its length, not for long chains */
		EXPECT(!ring_init(&g->ring[i], &g->mem, i, size,
				  size <= 256 ? RIG_TABLE : 0));
		ring_reset(&g->ring[i], o->base);
		if (!o->stopped)
			EXPECT_EQ(vdev_start(&g->dev, &g->ring[i]), 0);
	}
}

static void open_reqs(struct rig *g)
{
	unsigned int i;

	g->data = ring_mem_alloc(&g->mem, RIG_DATA, 4096);
	g->req = calloc(RIG_REQS, sizeof(*g->req));
	EXPECT(g->data && g->req);
	for (i = 0; i < RIG_REQS; i++) {
		u8 *p = ring_mem_alloc(&g->mem, 32, 32);

		EXPECT(p);
		g->req[i].hdr = (void *)p;
		g->req[i].status = p + sizeof(struct virtio_blk_outhdr);
	}
}

static int open_memory(struct rig *g, const struct rig_opts *o)
{
	size_t size = RIG_MEM + g->queues * (2UL << 20);

	return o->private_memory ? ring_mem_init_private(&g->mem, size) :
				   ring_mem_init(&g->mem, size);
}

int rig_try(struct rig *g, const char *path, const struct rig_opts *opts)
{
	static const struct rig_opts usual = {
		.mode = VHOST_POLL_MODE_BUSY,
	};
	const struct rig_opts *o = opts ? opts : &usual;
	unsigned int queues = o->queues ? o->queues : 1;
	int fd, ret;

	backend_need_modules();
	memset(g, 0, sizeof(*g));
	g->queues = queues;
	fd = o->fd ? o->fd : open(path, (o->read_only_fd ? O_RDONLY : O_RDWR) | O_CLOEXEC |
					o->open_flags);
	EXPECT(fd >= 0);
	EXPECT(!open_memory(g, o));
	g->mem.split = o->split;
	g->mem.hole = o->hole;
	ret = vdev_open_kernel(&g->dev, &g->mem, fd, o->flags, o->engine,
			       VDEV_FEATURES & ~o->without);
	if (!o->fd)
		close(fd);
	if (ret) {
		ring_mem_free(&g->mem);
		return ret;
	}
	open_pollers(g, o);
	open_reqs(g);
	open_rings(g, o);
	return 0;
}

void rig_open(struct rig *g, const char *path, const struct rig_opts *opts)
{
	EXPECT_EQ(rig_try(g, path, opts), 0);
}

void rig_close(struct rig *g)
{
	unsigned int i;

	vdev_close(&g->dev);
	for (i = 0; i < g->npoll; i++)
		close(g->poller[i]);
	for (i = 0; i < g->queues; i++)
		ring_free(&g->ring[i]);
	ring_mem_free(&g->mem);
	free(g->req);
}

void rig_info(struct rig *g, struct vhost_blk_info *info)
{
	EXPECT_EQ(vblk_info(g->dev.fd, info), 0);
}

void rig_stats(struct rig *g, unsigned int queue, struct vhost_blk_stats *st)
{
	EXPECT_EQ(vblk_stats(g->dev.fd, queue, st), 0);
}

u64 rig_malformed(struct rig *g, unsigned int queue)
{
	struct vhost_blk_stats st;

	rig_stats(g, queue, &st);
	return st.malformed;
}

struct rig_req *rig_req_new(struct rig *g, u32 type, u64 sector)
{
	struct rig_req *req = &g->req[g->nreq++ % RIG_REQS];

	req->hdr->type = type;
	req->hdr->ioprio = 0;
	req->hdr->sector = sector;
	*req->status = NO_STATUS;
	req->done = false;
	return req;
}

struct rig_req *rig_queue_segs(struct rig *g, unsigned int queue,
			       struct rig_req *req, const struct ring_seg *seg,
			       unsigned int n, bool indirect)
{
	struct ring *r = &g->ring[queue];
	int ret;

	ret = indirect ? ring_add_indirect(r, seg, n, req) :
			 ring_add(r, seg, n, req);
	EXPECT(ret >= 0);
	return req;
}

struct rig_req *rig_queue(struct rig *g, unsigned int queue, u32 type,
			  u64 sector, void *data, u32 len)
{
	struct rig_req *req = rig_req_new(g, type, sector);
	bool in = type == VIRTIO_BLK_T_IN || type == VIRTIO_BLK_T_GET_ID;
	struct ring_seg seg[3];
	unsigned int n = 0;

	seg[n++] = ring_seg(&g->mem, req->hdr, sizeof(*req->hdr), false);
	if (len)
		seg[n++] = ring_seg(&g->mem, data, len, in);
	seg[n++] = ring_seg(&g->mem, req->status, 1, true);
	return rig_queue_segs(g, queue, req, seg, n, false);
}

void rig_kick(struct rig *g, unsigned int queue)
{
	ring_publish(&g->ring[queue]);
	ring_kick(&g->ring[queue]);
}

unsigned int rig_reap(struct rig *g, unsigned int queue)
{
	struct rig_req *req;
	unsigned int n = 0;
	u32 len;

	while ((req = ring_pop(&g->ring[queue], &len))) {
		req->used_len = len;
		req->done = true;
		n++;
	}
	return n;
}

void rig_wait(struct rig *g, unsigned int queue)
{
	struct ring *r = &g->ring[queue];

	while (ring_inflight(r)) {
		EXPECT_EQ(ring_wait(r, RIG_TIMEOUT_MS), 0);
		rig_reap(g, queue);
	}
}

u8 rig_io(struct rig *g, unsigned int queue, u32 type, u64 sector, void *data,
	  u32 len)
{
	struct rig_req *req = rig_queue(g, queue, type, sector, data, len);

	rig_kick(g, queue);
	rig_wait(g, queue);
	return *req->status;
}

void rig_pattern(void *buf, size_t len, u64 seed)
{
	u64 *p = buf;
	size_t i;

	for (i = 0; i < len / 8; i++)
		p[i] = (seed + i) * 0x9e3779b97f4a7c15ULL ^ seed;
}

bool rig_pattern_ok(const void *buf, size_t len, u64 seed)
{
	const u64 *p = buf;
	size_t i;

	for (i = 0; i < len / 8; i++)
		if (p[i] != ((seed + i) * 0x9e3779b97f4a7c15ULL ^ seed))
			return false;
	return true;
}

void rig_check_works(struct rig *g, unsigned int queue, u64 sector)
{
	static u64 seed;
	u8 *a = g->data, *b = g->data + 8192;

	rig_pattern(a, 8192, ++seed + sector);
	memset(b, 0, 8192);
	EXPECT_EQ(rig_io(g, queue, VIRTIO_BLK_T_OUT, sector, a, 8192), 0);
	EXPECT_EQ(rig_io(g, queue, VIRTIO_BLK_T_IN, sector, b, 8192), 0);
	EXPECT(!memcmp(a, b, 8192));
}
