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

/* A request to attach or detach, which the thread serves; on the stack of the caller. */
struct vhost_poll_request {
	struct vhost_poll_source *src;
	bool attach;
	struct completion done;
};

/* How many threads one poller may have, and how many of these requests of one owner may keep. */
#define VHOST_POLL_CREW_MAX	16
#define VHOST_POLL_CREW_OWNER	4

/**
 * struct poller_hand - a thread of a poller, see crew.c
 * @p: the poller
 * @task: the thread
 * @wake: wakes the thread for a caller that holds locks of the scheduler
 * @notifier: is called when the thread goes to sleep
 * @src: the source whose request the thread carries out, or NULL
 * @owner: the mm of @src, only to be compared
 * @mm: the mm that the thread uses, with a reference, after it has lost the role
 * @spare: the thread may be chosen as successor; it sleeps, or is about to
 * @go: the thread has the role from now on
 * @listens: @notifier is registered
 * @armed: the thread is in @run, where the role may pass on.  The thread and interrupts
 *	of its CPU write this, and @lost
 * @lost: the role has passed on during the thread's request
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
 * Only the thread with the role writes these.  Any task may read them, with READ_ONCE(), and two
 * of them may be of different moments.
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
 * struct vhost_poller - a poller: the thread that polls, and spare threads
 * @file: the file of the descriptor, which owns the poller; owners of sources hold references
 *	to it
 * @task: the thread that has the role, see crew.c
 * @cpu: the CPU that the poller is bound to
 * @name: the name that user space gave
 * @elsewhere: the CPUs for the thread while @cpu is offline, and for threads that lost the role
 * @hotplug: in the list of cpuhp instances
 * @control: held by the task that attaches or detaches, so that there is one @request at a time
 * @rcu: frees the poller after a grace period, because vhost_poll_wake() may still use it
 * @hands: all threads; their number only grows
 * @nr_hands: how many there are
 * @recruit: the work that adds a thread
 * @recruit_after: the poller queues @recruit no earlier than this (jiffies)
 * @listens: this poller has turned preempt notifiers on
 * @nr_blocked: threads that lost the role and have not come back
 * @settled: wait queue of vhost_poll_settle()
 *
 * @mode: the mode that user space has set; written by an ioctl
 * @away: @cpu is offline; written by the cpuhp callbacks
 * @request: what the thread is to do between two rounds, or NULL
 * @asleep: the thread sleeps, or is about to: see vhost_poller_kick()
 * @told_at: about when a task last told the thread to wake up; several may do so at a time
 *
 * The other fields belong to the thread that has the role.
 * @hand: the thread's own
 * @next: the successor; the thread begins no request that may sleep without one
 * @before: the thread that had the role before, until crew_take_over() has read this
 * @at: the source whose request the thread carries out
 * @overran: @before lost the role because its request took too long
 * @seq: number of the request that the thread carries out
 * @seen: @seq at the last tick of @watch
 * @ticks: how often @watch has ticked
 * @watch: the timer that finds requests which take too long
 * @watching: @watch is running
 * @sources: attached sources; those of one mm are neighbours
 * @nr_sources: how many there are; any task may read it
 * @mm: the mm that the thread uses, with a reference of the thread
 * @clock: when the last round ended
 * @round_ns: @clock, if only looks that found nothing took time since then; otherwise 0
 * @switches: context switches of the thread until @round_ns was last used
 * @policy: what the poller has learned
 * @count: what the poller has done
 * @sleep_seq: guards @sleep_ns and @sleep_since against torn reads
 * @sleep_ns: time asleep up to the last wake-up
 * @sleep_since: when the sleep began, or 0 if the thread is awake
 */
struct vhost_poller {
	struct file *file;
	struct task_struct *task;
	unsigned int cpu;
	char name[VHOST_POLL_NAME_LEN];
	cpumask_var_t elsewhere;
	struct hlist_node hotplug;
	struct mutex control; /* held until the thread has served @request */
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
