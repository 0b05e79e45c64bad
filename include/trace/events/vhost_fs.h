/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM vhost_fs

#if !defined(_TRACE_VHOST_FS_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_VHOST_FS_H

#include <linux/tracepoint.h>

struct vhfs_req;
struct vserve_vring;

/* a request goes back to the guest; opcodes are those of linux/fuse.h */
TRACE_EVENT(vhost_fs_done,
	TP_PROTO(const struct vserve_vring *vring, const struct vhfs_req *req,
		 u64 done_ns),
	TP_ARGS(vring, req, done_ns),
	TP_STRUCT__entry(
		__field(int,	dev)
		__field(u32,	vring)
		__field(u32,	opcode)
		__field(u64,	unique)
		__field(u64,	node)
		__field(int,	error)
		__field(u64,	ns)
		__field(bool,	worker)
	),
	TP_fast_assign(
		__entry->dev = vring->dev->id;
		__entry->vring = vring->index;
		__entry->opcode = req->in.opcode;
		__entry->unique = req->in.unique;
		__entry->node = req->in.nodeid;
		__entry->error = req->error;
		__entry->ns = done_ns - req->start_ns;
		__entry->worker = req->may_sleep && !req->hot;
	),
	TP_printk("dev=%d vring=%u opcode=%u unique=%llu node=%llu error=%d ns=%llu worker=%d",
		  __entry->dev, __entry->vring, __entry->opcode,
		  __entry->unique, __entry->node, __entry->error, __entry->ns,
		  __entry->worker)
);

#endif /* _TRACE_VHOST_FS_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
