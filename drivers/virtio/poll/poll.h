/* SPDX-License-Identifier: GPL-2.0 */
/* The state of a CPU's poller, which poller.c and others.c share, and their calls of each other. */
#ifndef _VIRTIO_POLL_INTERNAL_H
#define _VIRTIO_POLL_INTERNAL_H

#include <linux/list.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/timer.h>
#include <linux/virtio_poll.h>

struct task_struct;

/*
 * The poller of a CPU.  It is written on that CPU only, so it needs no lock: @queues with
 * bottom halves off, the rest with preemption off at least.  Submitters on other CPUs read
 * @starved, @away, @frequent and @preempted.
 */
struct virtio_poller {
	struct list_head queues;
	struct timer_list timer;
	unsigned long polls;		/* of the thread, each of one queue */
	unsigned long seen;		/* polls at the last tick */
	bool delivered;			/* the thread found an answer when it polled last */
	bool parked;			/* the CPU is going away */

	/* Other tasks, see others.c. */
	bool wanted;			/* they want the CPU; the thread has not run since */
	bool starved;			/* they starved it; the thread has not run since */
	bool away;			/* others have the CPU before it does; likewise */
	bool frequent;			/* they preempt the thread, or a task that polls, often */
	u64 preempted;			/* local_clock() when they did so last */
	unsigned long starved_until;	/* jiffies; 0: not starved */
	unsigned long starved_last;	/* jiffies, when it was found so */
	unsigned int starved_shift;	/* how often in a row */
	const struct task_struct *user;	/* submitted last, or polled by itself; only compared */
	unsigned long user_seen;	/* jiffies, when it did */
	const struct task_struct *submitter;	/* submitted last; only compared */
	unsigned long submitter_slept;	/* how often it had slept by then */
	struct virtio_poll_steal steal;	/* with bottom halves off */
#ifdef CONFIG_PREEMPT_NOTIFIERS
	struct preempt_notifier notifier;	/* of the thread */
#endif
};

DECLARE_PER_CPU(struct virtio_poller, vpoll_pollers);
DECLARE_PER_CPU(struct task_struct *, vpoll_tasks);

/* poller.c */
bool vpoll_interrupts_on(struct virtio_poller *p);

/* others.c: whether other tasks want the CPU */
bool vpoll_cpu_has_time(struct virtio_poller *p);
void vpoll_note_user(struct virtio_poller *p);
bool vpoll_note_submitter(struct virtio_poller *p);
bool vpoll_others_first(struct virtio_poller *p);
bool vpoll_needs_cover(struct virtio_poller *p);
void vpoll_back_off(struct virtio_poller *p);
void vpoll_sample(struct virtio_poller *p);
#ifdef CONFIG_PREEMPT_NOTIFIERS
void vpoll_notifier_add(struct virtio_poller *p);
void vpoll_notifier_del(struct virtio_poller *p);
void vpoll_notifiers_begin(void);
void vpoll_notifiers_end(void);
#else	/* The timer alone finds other tasks. */
static inline void vpoll_notifier_add(struct virtio_poller *p) {}
static inline void vpoll_notifier_del(struct virtio_poller *p) {}
static inline void vpoll_notifiers_begin(void) {}
static inline void vpoll_notifiers_end(void) {}
#endif

#endif
