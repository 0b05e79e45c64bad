/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _VHOST_POLL_POLL_H
#define _VHOST_POLL_POLL_H

#include <linux/cache.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/irq_work_types.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/seqlock.h>
#include <linux/vhost_poll.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <uapi/linux/vhost_poll.h>

#include "policy.h"

/* A request of a control path to the thread; on the caller's stack. */
struct vhost_poll_request {
	struct vhost_poll_source *src;
	bool attach;
	struct completion done;
};

/* Limits: threads of one poller, and threads that requests of one owner may keep. */
#define VHOST_POLL_CREW_MAX	16
#define VHOST_POLL_CREW_OWNER	4

/**
 * struct poller_hand - a thread of a poller, see crew.c
 * @p: the poller
 * @task: the thread
 * @wake: wakes it from where the scheduler's locks are held
 * @notifier: tells it that it is about to sleep
 * @src: whose request it carries out, or NULL
 * @owner: the mm of @src, only to be compared
 * @mm: in use by it, with a reference, after it lost the role
 * @spare: it may be chosen as successor; it sleeps, or is about to
 * @go: it has the role from now on
 * @listens: @notifier is registered
 * @armed: it is in @run, where the role may pass on.  Written by the thread and by
 *	interrupts of its CPU, as is @lost
 * @lost: the role passed on during its request
 */
struct poller_hand {
	struct vhost_poller *p;
	struct task_struct *task;
	struct irq_work wake;
#ifdef CONFIG_PREEMPT_NOTIFIERS
	struct preempt_notifier notifier;
#endif
	const struct vhost_poll_source *src;
	const struct mm_struct *owner;
	struct mm_struct *mm;
	bool spare;
	bool go;
	bool listens;
	bool armed;
	bool lost;
};

/*
 * Written by the thread with the role only, read by anyone: READ_ONCE() there, and no
 * promise that the numbers are of one moment.
 */
struct vhost_poll_counters {
	u64 rounds;
	u64 rounds_hit;
	u64 work;
	u64 sleeps;
	u64 sleeps_timed;
	u64 wakeups;
	u64 busy_ns;
	u64 poll_ns;
	u64 hot;
	u64 handoffs;
};

/**
 * struct vhost_poller - a thread that polls, and spare ones
 * @file: the descriptor, which owns this; sources hold references on it
 * @task: the thread that has the role, see crew.c
 * @cpu: where it belongs
 * @name: given by user space
 * @elsewhere: where it may run while @cpu is offline, and its threads that lost the role
 * @hotplug: in the list of cpuhp instances
 * @control: one asker at a time
 * @rcu: vhost_poll_wake() may still hold a pointer after release
 * @hands: all threads; they only become more
 * @nr_hands: how many
 * @recruit: adds one
 * @recruit_after: jiffies; not before
 * @listens: preempt notifiers are on for us
 * @nr_blocked: threads that lost the role and have not come back
 * @settled: for vhost_poll_settle()
 *
 * @mode: written by ioctl
 * @away: @cpu is offline; written by the cpuhp callbacks
 * @request: what the thread is asked to do between two rounds
 * @asleep: the thread is about to sleep, or sleeps: see vhost_poller_kick()
 * @told_at: when it was told to wake up last, about: several may tell it
 *
 * The rest belongs to the thread that has the role.
 * @hand: the thread's own
 * @next: the successor; no request that may sleep is begun without one
 * @before: the thread that the role came from, until crew_take_over() has read it
 * @at: the source whose request is carried out
 * @overran: @before lost the role because its request took too long
 * @seq: number of the request that is carried out
 * @seen: @seq at the last tick of @watch
 * @ticks: of @watch
 * @watch: the timer that finds requests which take too long
 * @watching: @watch is running
 * @sources: attached, those of one mm in a row
 * @nr_sources: how many; others may read it
 * @mm: in use by the thread, with a reference of its own
 * @clock: when the last round ended
 * @round_ns: @clock, if only looks that found nothing took time since then; otherwise 0
 * @switches: of the thread, when @round_ns was last used
 * @policy: what it learned
 * @count: what it did
 * @sleep_seq: guards @sleep_ns and @sleep_since against torn reads
 * @sleep_ns: time asleep up to the last wake-up
 * @sleep_since: since when it sleeps, or 0
 */
struct vhost_poller {
	struct file *file;
	struct task_struct *task;
	unsigned int cpu;
	char name[VHOST_POLL_NAME_LEN];
	cpumask_var_t elsewhere;
	struct hlist_node hotplug;
	struct mutex control; /* held while a request is served */
	struct rcu_head rcu;
	struct poller_hand *hands[VHOST_POLL_CREW_MAX];
	unsigned int nr_hands;
	struct work_struct recruit;
	unsigned long recruit_after;
	bool listens;
	atomic_t nr_blocked;
	wait_queue_head_t settled;

	u32 mode ____cacheline_aligned_in_smp;
	bool away;
	struct vhost_poll_request *request;
	int asleep;
	u64 told_at;

	struct list_head sources ____cacheline_aligned_in_smp;
	unsigned int nr_sources;
	struct mm_struct *mm;
	struct poller_hand *hand;
	struct poller_hand *next;
	struct poller_hand *before;
	struct vhost_poll_source *at;
	bool overran;
	bool watching;
	unsigned int seq;
	unsigned int seen;
	unsigned int ticks;
	struct hrtimer watch;
	u64 clock;
	u64 round_ns;
	unsigned long switches;
	struct vhost_poll_policy policy;
	struct vhost_poll_counters count;
	seqcount_t sleep_seq;
	u64 sleep_ns;
	u64 sleep_since;
};

extern unsigned int vhost_poll_max_window_us;
extern unsigned int vhost_poll_max_run_us;

/* poller.c */
struct vhost_poller *vhost_poller_create(struct file *file,
					 const struct vhost_poll_create *arg);
void vhost_poller_destroy(struct vhost_poller *p);
void vhost_poller_kick(struct vhost_poller *p);
void vhost_poller_set_mode(struct vhost_poller *p, u32 mode);
void vhost_poller_stats(struct vhost_poller *p, struct vhost_poll_stats *st);
int vhost_poller_thread(void *data);

/* crew.c */
int vhost_crew_init(struct vhost_poller *p);
void vhost_crew_start(struct vhost_poller *p);
void vhost_crew_stop(struct vhost_poller *p);
void vhost_crew_free(struct vhost_poller *p);
bool vhost_crew_wait(struct poller_hand *hand);
bool vhost_crew_run(struct vhost_poller *p, struct vhost_poll_source *src,
		    unsigned int *done);

/* hotplug.c */
int vhost_poll_hotplug_init(void);
void vhost_poll_hotplug_exit(void);
void vhost_poll_find_elsewhere(struct vhost_poller *p);
int vhost_poll_hotplug_add(struct vhost_poller *p);
void vhost_poll_hotplug_remove(struct vhost_poller *p);

#endif /* _VHOST_POLL_POLL_H */
