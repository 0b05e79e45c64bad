/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM vhost_poll

#if !defined(_TRACE_VHOST_POLL_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_VHOST_POLL_H

#include <linux/tracepoint.h>
#include <uapi/linux/vhost_poll.h>

#define vhost_poll_show_mode(mode)				\
	__print_symbolic(mode,					\
		{ VHOST_POLL_MODE_ADAPTIVE,	"adaptive" },	\
		{ VHOST_POLL_MODE_BUSY,		"busy" },	\
		{ VHOST_POLL_MODE_EVENT,	"event" })

/* How a poller waits from now on; away: its CPU is offline, so by events. */
TRACE_EVENT(vhost_poll_mode,
	TP_PROTO(unsigned int cpu, unsigned int mode, bool away),
	TP_ARGS(cpu, mode, away),
	TP_STRUCT__entry(
		__field(unsigned int,	cpu)
		__field(unsigned int,	mode)
		__field(bool,		away)
	),
	TP_fast_assign(
		__entry->cpu	= cpu;
		__entry->mode	= mode;
		__entry->away	= away;
	),
	TP_printk("poller=%u mode=%s%s", __entry->cpu,
		  vhost_poll_show_mode(__entry->mode),
		  __entry->away ? " away" : "")
);

/* Goes to sleep; sleep_ns is 0 where there is no timer. */
TRACE_EVENT(vhost_poll_sleep,
	TP_PROTO(unsigned int cpu, unsigned int inflight, u64 sleep_ns),
	TP_ARGS(cpu, inflight, sleep_ns),
	TP_STRUCT__entry(
		__field(unsigned int,	cpu)
		__field(unsigned int,	inflight)
		__field(u64,		sleep_ns)
	),
	TP_fast_assign(
		__entry->cpu		= cpu;
		__entry->inflight	= inflight;
		__entry->sleep_ns	= sleep_ns;
	),
	TP_printk("poller=%u inflight=%u for_ns=%llu", __entry->cpu,
		  __entry->inflight, __entry->sleep_ns)
);

TRACE_EVENT(vhost_poll_wake,
	TP_PROTO(unsigned int cpu, bool timed, u64 slept_ns),
	TP_ARGS(cpu, timed, slept_ns),
	TP_STRUCT__entry(
		__field(unsigned int,	cpu)
		__field(bool,		timed)
		__field(u64,		slept_ns)
	),
	TP_fast_assign(
		__entry->cpu		= cpu;
		__entry->timed		= timed;
		__entry->slept_ns	= slept_ns;
	),
	TP_printk("poller=%u by=%s slept_ns=%llu", __entry->cpu,
		  __entry->timed ? "timer" : "event", __entry->slept_ns)
);

/* A request slept or took too long in the polling thread; another one polls from now on. */
TRACE_EVENT(vhost_poll_handoff,
	TP_PROTO(unsigned int cpu, pid_t from, pid_t to),
	TP_ARGS(cpu, from, to),
	TP_STRUCT__entry(
		__field(unsigned int,	cpu)
		__field(pid_t,		from)
		__field(pid_t,		to)
	),
	TP_fast_assign(
		__entry->cpu	= cpu;
		__entry->from	= from;
		__entry->to	= to;
	),
	TP_printk("poller=%u from=%d to=%d", __entry->cpu, __entry->from,
		  __entry->to)
);

#endif /* _TRACE_VHOST_POLL_H */

#include <trace/define_trace.h>
