/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM virtio_pvblk

#if !defined(_TRACE_VIRTIO_PVBLK_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_VIRTIO_PVBLK_H

#include <linux/blk-mq.h>
#include <linux/tracepoint.h>

struct pvblk_vq;

/* A request went into the ring. */
TRACE_EVENT(virtio_pvblk_submit,
	TP_PROTO(struct request *req, unsigned int inflight),
	TP_ARGS(req, inflight),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(unsigned int, queue)
		__field(int, tag)
		__field(unsigned int, op)
		__field(u64, sector)
		__field(unsigned int, bytes)
		__field(unsigned int, inflight)
	),
	TP_fast_assign(
		__entry->dev = req->q->disk ? disk_devt(req->q->disk) : 0;
		__entry->queue = req->mq_hctx->queue_num;
		__entry->tag = req->tag;
		__entry->op = (__force u32)req_op(req);
		__entry->sector = blk_rq_is_passthrough(req) ? 0 : blk_rq_pos(req);
		__entry->bytes = blk_rq_bytes(req);
		__entry->inflight = inflight;
	),
	TP_printk("%d:%d queue=%u tag=%d op=%u sector=%llu bytes=%u inflight=%u",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->queue,
		  __entry->tag, __entry->op, __entry->sector, __entry->bytes,
		  __entry->inflight)
);

/* A request came back with the device's status. */
TRACE_EVENT(virtio_pvblk_complete,
	TP_PROTO(struct request *req, u8 status),
	TP_ARGS(req, status),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(unsigned int, queue)
		__field(int, tag)
		__field(u8, status)
	),
	TP_fast_assign(
		__entry->dev = req->q->disk ? disk_devt(req->q->disk) : 0;
		__entry->queue = req->mq_hctx->queue_num;
		__entry->tag = req->tag;
		__entry->status = status;
	),
	TP_printk("%d:%d queue=%u tag=%d status=%u",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->queue,
		  __entry->tag, __entry->status)
);

DECLARE_EVENT_CLASS(virtio_pvblk_queue,
	TP_PROTO(const struct pvblk_vq *vq),
	TP_ARGS(vq),
	TP_STRUCT__entry(
		__string(device, dev_name(&vq->dev->vdev->dev))
		__field(unsigned int, queue)
		__field(unsigned int, inflight)
		__field(u64, wait_ns)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->queue = vq->index;
		__entry->inflight = READ_ONCE(vq->q.inflight);
		__entry->wait_ns = READ_ONCE(vq->q.policy.wait_ns);
	),
	TP_printk("%s queue=%u inflight=%u wait_ns=%llu", __get_str(device),
		  __entry->queue, __entry->inflight, __entry->wait_ns)
);

/* The device interrupted. */
DEFINE_EVENT(virtio_pvblk_queue, virtio_pvblk_interrupt,
	TP_PROTO(const struct pvblk_vq *vq), TP_ARGS(vq));

/* The device was kicked. */
DEFINE_EVENT(virtio_pvblk_queue, virtio_pvblk_kick,
	TP_PROTO(const struct pvblk_vq *vq), TP_ARGS(vq));

#endif /* _TRACE_VIRTIO_PVBLK_H */

#include <trace/define_trace.h>
