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
	/* When the thread runs, it clears these three. */
	bool wanted;			/* other tasks want the CPU */
	bool starved;			/* other tasks kept the thread from its CPU for two ticks */
	bool away;			/* other tasks run on the CPU before the thread does */
	bool frequent;			/* other tasks preempt the thread often */
	u64 preempted;			/* local_clock() when another task preempted it last */
	unsigned long starved_until;	/* jiffies when the back-off ends; 0: not starved */
	unsigned long starved_last;	/* jiffies when the timer last found it starved */
	unsigned int starved_shift;	/* the next back-off is the shortest one << this */
	struct virtio_poll_computes computes;	/* the task that the ticks find at work */
	const struct task_struct *user;	/* submitted last, or polled for itself; only compared */
	unsigned long user_seen;	/* jiffies when @user did so */
	const struct task_struct *submitter;	/* submitted last; only compared */
	unsigned long submitter_slept;	/* @submitter's nvcsw when it submitted */
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
bool vpoll_backs_off(const struct virtio_poller *p);
unsigned long vpoll_next_sample(const struct virtio_poller *p);
void vpoll_sample(struct virtio_poller *p, u64 now);
#ifdef CONFIG_PREEMPT_NOTIFIERS
void vpoll_notifier_add(struct virtio_poller *p);
void vpoll_notifier_del(struct virtio_poller *p);
void vpoll_notifiers_begin(void);
void vpoll_notifiers_end(void);
#else	/* Without preempt notifiers only the timer finds other tasks. */
static inline void vpoll_notifier_add(struct virtio_poller *p) {}
static inline void vpoll_notifier_del(struct virtio_poller *p) {}
static inline void vpoll_notifiers_begin(void) {}
static inline void vpoll_notifiers_end(void) {}
#endif

#endif
