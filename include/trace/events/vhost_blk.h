/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM vhost_blk

#if !defined(_TRACE_VHOST_BLK_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_VHOST_BLK_H

#include <linux/tracepoint.h>

struct vblk_req;

/* Type and place are from the guest's header; bytes are known once mapped. */
DECLARE_EVENT_CLASS(vhost_blk_req,
	TP_PROTO(const struct vblk_req *req, u8 status),
	TP_ARGS(req, status),
	TP_STRUCT__entry(
		__field(int,	dev)
		__field(u32,	vring)
		__field(u16,	head)
		__field(u32,	type)
		__field(u64,	sector)
		__field(u32,	bytes)
		__field(u8,	status)
	),
	TP_fast_assign(
		__entry->dev = req->base.vring->dev->id;
		__entry->vring = req->base.vring->index;
		__entry->head = req->base.head;
		__entry->type = req->type;
		__entry->sector = req->sector;
		__entry->bytes = req->base.bytes;
		__entry->status = status;
	),
	TP_printk("dev=%d vring=%u head=%u type=%u sector=%llu bytes=%u status=%u",
		  __entry->dev, __entry->vring, __entry->head, __entry->type,
		  __entry->sector, __entry->bytes, __entry->status)
);

/* a request was taken from the available ring */
DEFINE_EVENT(vhost_blk_req, vhost_blk_arrive,
	TP_PROTO(const struct vblk_req *req, u8 status), TP_ARGS(req, status));

/* the backend, or a worker, is done with it */
DEFINE_EVENT(vhost_blk_req, vhost_blk_backend_done,
	TP_PROTO(const struct vblk_req *req, u8 status), TP_ARGS(req, status));

/* it goes back to the guest with this status, whether the backend answered it or vhost_blk did */
DEFINE_EVENT(vhost_blk_req, vhost_blk_finish,
	TP_PROTO(const struct vblk_req *req, u8 status), TP_ARGS(req, status));

/* a command goes to the backend; engine is enum vhost_blk_engine */
TRACE_EVENT(vhost_blk_submit,
	TP_PROTO(const struct vblk_req *req, u32 engine, u32 hctx),
	TP_ARGS(req, engine, hctx),
	TP_STRUCT__entry(
		__field(int,	dev)
		__field(u32,	vring)
		__field(u16,	head)
		__field(u32,	type)
		__field(u64,	sector)
		__field(u32,	bytes)
		__field(u16,	reqs)
		__field(u32,	engine)
		__field(u32,	hctx)
	),
	TP_fast_assign(
		__entry->dev = req->base.vring->dev->id;
		__entry->vring = req->base.vring->index;
		__entry->head = req->base.head;
		__entry->type = req->type;
		__entry->sector = req->sector;
		__entry->bytes = req->cmd_bytes;
		__entry->reqs = req->cmd_reqs;
		__entry->engine = engine;
		__entry->hctx = hctx;
	),
	TP_printk("dev=%d vring=%u head=%u type=%u sector=%llu bytes=%u reqs=%u engine=%u hctx=%d",
		  __entry->dev, __entry->vring, __entry->head, __entry->type,
		  __entry->sector, __entry->bytes, __entry->reqs,
		  __entry->engine, (int)__entry->hctx)
);

#endif /* _TRACE_VHOST_BLK_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
