/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _VHOST_POLL_POLL_H
#define _VHOST_POLL_POLL_H

#include <linux/cache.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/seqlock.h>
#include <linux/vhost_poll.h>
#include <uapi/linux/vhost_poll.h>

#include "policy.h"

/* What a control path asks of the thread; on the asker's stack. */
struct vhost_poll_request {
	struct vhost_poll_source *src;
	bool attach;
	struct completion done;
};

/*
 * Written by the thread only, read by anyone: READ_ONCE() there, and no
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
};

/**
 * struct vhost_poller - one thread
 * @file: the descriptor, which owns this; sources hold references on it
 * @task: the thread; a reference of ours keeps it for late wake-ups
 * @cpu: where it belongs
 * @name: given by user space
 * @elsewhere: where it may run while @cpu is offline
 * @hotplug: in the list of cpuhp instances
 * @control: one asker at a time
 * @rcu: vhost_poll_wake() may still hold a pointer after release
 *
 * @mode: written by ioctl
 * @away: @cpu is offline; written by the cpuhp callbacks
 * @request: what the thread is asked to do between two rounds
 * @asleep: the thread is about to sleep, or sleeps: see vhost_poller_kick()
 * @told_at: when it was told to wake up last, about: several may tell it
 *
 * The rest belongs to the thread.
 * @sources: attached, those of one mm in a row
 * @nr_sources: how many; others may read it
 * @mm: in use by the thread, with a reference of its own
 * @clock: when the last round ended
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

	u32 mode ____cacheline_aligned_in_smp;
	bool away;
	struct vhost_poll_request *request;
	int asleep;
	u64 told_at;

	struct list_head sources ____cacheline_aligned_in_smp;
	unsigned int nr_sources;
	struct mm_struct *mm;
	u64 clock;
	struct vhost_poll_policy policy;
	struct vhost_poll_counters count;
	seqcount_t sleep_seq;
	u64 sleep_ns;
	u64 sleep_since;
};

extern unsigned int vhost_poll_max_window_us;

/* poller.c */
struct vhost_poller *vhost_poller_create(struct file *file,
					 const struct vhost_poll_create *arg);
void vhost_poller_destroy(struct vhost_poller *p);
void vhost_poller_kick(struct vhost_poller *p);
void vhost_poller_set_mode(struct vhost_poller *p, u32 mode);
void vhost_poller_stats(struct vhost_poller *p, struct vhost_poll_stats *st);

/* hotplug.c */
int vhost_poll_hotplug_init(void);
void vhost_poll_hotplug_exit(void);
int vhost_poll_hotplug_add(struct vhost_poller *p);
void vhost_poll_hotplug_remove(struct vhost_poller *p);

#endif /* _VHOST_POLL_POLL_H */
