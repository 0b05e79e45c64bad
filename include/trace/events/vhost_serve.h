/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM vhost_serve

#if !defined(_TRACE_VHOST_SERVE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_VHOST_SERVE_H

#include <linux/tracepoint.h>

struct vserve_vring;

DECLARE_EVENT_CLASS(vhost_serve_vring,
	TP_PROTO(const struct vserve_vring *vring, unsigned int value),
	TP_ARGS(vring, value),
	TP_STRUCT__entry(
		__string(name,	vring->ops->name)
		__field(int,	dev)
		__field(u32,	vring)
		__field(u32,	value)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->dev = vring->dev->id;
		__entry->vring = vring->index;
		__entry->value = value;
	),
	TP_printk("%s-%d vring=%u count=%u", __get_str(name), __entry->dev,
		  __entry->vring, __entry->value)
);

/* the used ring was moved on by so many */
DEFINE_EVENT(vhost_serve_vring, vhost_serve_used,
	TP_PROTO(const struct vserve_vring *vring, unsigned int value),
	TP_ARGS(vring, value));

/* the guest is interrupted; the value is the used index */
DEFINE_EVENT_PRINT(vhost_serve_vring, vhost_serve_notify,
	TP_PROTO(const struct vserve_vring *vring, unsigned int value),
	TP_ARGS(vring, value),
	TP_printk("%s-%d vring=%u used=%u", __get_str(name), __entry->dev,
		  __entry->vring, __entry->value));

TRACE_DEFINE_ENUM(VSERVE_BAD_CHAIN);
TRACE_DEFINE_ENUM(VSERVE_NO_STATUS);
TRACE_DEFINE_ENUM(VSERVE_HEAD_TWICE);
TRACE_DEFINE_ENUM(VSERVE_NO_USED_RING);

/* the guest did what a driver must not; the value is enum vserve_malformed */
DEFINE_EVENT_PRINT(vhost_serve_vring, vhost_serve_malformed,
	TP_PROTO(const struct vserve_vring *vring, unsigned int value),
	TP_ARGS(vring, value),
	TP_printk("%s-%d vring=%u what=%s", __get_str(name), __entry->dev,
		  __entry->vring,
		  __print_symbolic(__entry->value,
				   { VSERVE_BAD_CHAIN, "bad chain" },
				   { VSERVE_NO_STATUS, "no status" },
				   { VSERVE_HEAD_TWICE, "head twice" },
				   { VSERVE_NO_USED_RING, "no used ring" })));

/* a vring goes to its worker (1), or comes back to its poller (0) */
DEFINE_EVENT_PRINT(vhost_serve_vring, vhost_serve_mode,
	TP_PROTO(const struct vserve_vring *vring, unsigned int value),
	TP_ARGS(vring, value),
	TP_printk("%s-%d vring=%u worker=%u", __get_str(name), __entry->dev,
		  __entry->vring, __entry->value));

/* a worker begins with a request; the value is its head */
DEFINE_EVENT_PRINT(vhost_serve_vring, vhost_serve_work,
	TP_PROTO(const struct vserve_vring *vring, unsigned int value),
	TP_ARGS(vring, value),
	TP_printk("%s-%d vring=%u head=%u", __get_str(name), __entry->dev,
		  __entry->vring, __entry->value));

#endif /* _TRACE_VHOST_SERVE_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
