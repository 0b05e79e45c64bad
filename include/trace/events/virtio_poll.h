/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM virtio_poll

#if !defined(_TRACE_VIRTIO_POLL_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_VIRTIO_POLL_H

#include <linux/tracepoint.h>
#include <linux/virtio.h>
#include <linux/virtio_poll.h>

DECLARE_EVENT_CLASS(virtio_poll_queue,
	TP_PROTO(const struct virtio_poll_queue *q),
	TP_ARGS(q),
	TP_STRUCT__entry(
		__string(device, dev_name(&q->vq->vdev->dev))
		__field(unsigned int, queue)
		__field(unsigned int, inflight)
		__field(bool, callbacks)
		__field(u64, wait_ns)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->queue = q->vq->index;
		__entry->inflight = READ_ONCE(q->inflight);
		__entry->callbacks = READ_ONCE(q->callbacks);
		__entry->wait_ns = READ_ONCE(q->policy.wait_ns);
	),
	TP_printk("%s queue=%u inflight=%u callbacks=%d wait_ns=%llu", __get_str(device),
		  __entry->queue, __entry->inflight, __entry->callbacks, __entry->wait_ns)
);

/* A poller takes the queue on. */
DEFINE_EVENT(virtio_poll_queue, virtio_poll_attach,
	TP_PROTO(const struct virtio_poll_queue *q), TP_ARGS(q));

/* Interrupts take over: a long wait, steal time, the mode, a move, or its CPU goes. */
DEFINE_EVENT(virtio_poll_queue, virtio_poll_fallback,
	TP_PROTO(const struct virtio_poll_queue *q), TP_ARGS(q));

/*
 * Interrupts take it from the poller, because other tasks have the CPU.  If callbacks were off, its
 * requests have waited until now.
 */
DEFINE_EVENT(virtio_poll_queue, virtio_poll_starved,
	TP_PROTO(const struct virtio_poll_queue *q), TP_ARGS(q));

#endif /* _TRACE_VIRTIO_POLL_H */

#include <trace/define_trace.h>
