/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Polling of virtqueues in the guest, for drivers of any device.
 *
 * Ownership of a ring with requests in flight
 * -------------------------------------------
 * While a queue has requests in flight and its lock is free, it has at least one owner:
 *
 * - A poller has the queue (q->poller): the SCHED_IDLE thread of one CPU polls the ring whenever
 *   that CPU would otherwise be idle.
 * - Its callbacks are on (q->callbacks): the device will interrupt, and the driver's
 *   callback starts the same work as ->later.  While another task has the CPU of the poller
 *   that has the queue, both the poller and the callbacks may own it.
 * - The work that ->later started is pending or running.  It ends with virtio_poll_watch().
 * - The queue has waiters (q->waiters): each is a task that polls the ring for its own answer,
 *   with preemption off.  The task becomes a waiter before it drops the lock under which it put
 *   its request into the ring.  As long as a queue has waiters, callbacks are off, and a poller
 *   that has the queue drops it.  pvfs counts the tasks of io_uring that poll as one more waiter
 *   (fs/pvfs/iopoll.c).  They may be preempted, so a timer ends that if none of them has polled.
 *
 * Code that takes an owner away establishes another one before it drops the lock.  A queue
 * with nothing in flight needs no owner.
 *
 * Locking
 * -------
 * q->lock: the ring and all of struct virtio_poll_queue but @stats.interrupts and, while
 *   a thread has the queue, @stats.polls.  The driver takes it in process context or in
 *   softirqs, with bottom halves off, never in hard interrupts.  The layer's timer, a
 *   softirq, only ever tries it: a driver whose ring is used in process context may take
 *   locks inside that softirqs must not wait for.  The preempt notifier only tries it, too,
 *   because it runs under the run queue's lock, and the holder may be waking a task.
 *   The thread, and tasks of pvfs that poll, first compare the ring's index without the lock
 *   (virtio_poll_unchanged()).  While the index is that of the empty ring, they do not take the
 *   lock, because the host may preempt a vCPU that holds it, and all others would wait.
 * A CPU's list of queues: no lock.  It changes on that CPU only, with bottom halves off
 *   and the queue's lock held.
 */
#ifndef _LINUX_VIRTIO_POLL_H
#define _LINUX_VIRTIO_POLL_H

#include <linux/compiler.h>
#include <linux/irq_work.h>
#include <linux/list.h>
#include <linux/lockdep_types.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/virtio_poll_policy.h>
#include <uapi/linux/virtio_types.h>

/* The pollers treat a larger max_us as this one. */
#define VIRTIO_POLL_MAX_US	1000000U

struct task_struct;
struct virtio_device;
struct virtio_poller;
struct virtio_poll_queue;
struct virtqueue;

enum virtio_poll_mode {
	VIRTIO_POLL_IRQ,	/* never poll */
	VIRTIO_POLL_ADAPTIVE,	/* poll while the waits are short */
	VIRTIO_POLL_BUSY,	/* poll while anything is in flight */
};

/**
 * struct virtio_poll_ops - the functions of a driver that virtio_poll calls
 * @poll: poll the ring once.  The CPU's thread calls this with bottom halves off.  The function
 *	takes q->lock; if virtio_poll_begin() returns true, it takes the answers from the ring and
 *	calls virtio_poll_end(); then it drops the lock and completes the requests
 * @later: start a work that calls virtio_poll_interrupted(), takes the answers from the ring and,
 *	if requests are still in flight, calls virtio_poll_watch().  virtio_poll calls this with or
 *	without q->lock, also from a hard interrupt
 */
struct virtio_poll_ops {
	void (*poll)(struct virtio_poll_queue *q);
	void (*later)(struct virtio_poll_queue *q);
};

/**
 * struct virtio_poll_settings - how the queues of a device, or of a driver, are polled
 * @mode: whether the thread polls them
 * @max_us: in adaptive mode, the longest wait that is polled through, in microseconds
 *
 * Both may be written at any time.
 */
struct virtio_poll_settings {
	enum virtio_poll_mode mode;
	unsigned int max_us;
};

/* Written under the queue's lock, except interrupts. */
struct virtio_poll_stats {
	u64 polls;		/* of the ring, by a thread or virtio_pvblk's IOPOLL */
	u64 found;		/* ... that found something */
	u64 answers;		/* that a thread found */
	u64 irq_fallbacks;	/* waits that a poller left to interrupts */
	u64 starved;		/* ... because another task has its CPU, or will before it */
	u64 stolen;		/* waits that a thread left to interrupts, because of steal time */
	u64 interrupts;		/* written by the driver's callback only */
};

/**
 * struct virtio_poll_queue - a virtqueue that is polled
 * @lock: see the top of this file
 * @vq: the ring; NULL while there is none
 * @ops: the driver's functions
 * @settings: how to poll
 * @inflight: requests in the ring; the driver counts them
 * @callbacks: whether the device may interrupt
 * @waiters: tasks that poll for their own answers, and pvfs's lease; written by
 *	virtio_poll_waiter_*() only
 * @poller: the poller that has it, or NULL
 * @node: on that poller's list
 * @late: calls ->later where the scheduler's locks are held
 * @owed: callbacks are to be turned on; the preempt notifier sets this if it finds @lock taken
 * @strangers: submissions in a row from other CPUs than the poller's
 * @moving: the queue moves: its poller is to drop it, or has dropped it, so that the poller of one
 *	of those CPUs takes it
 * @policy: what is known about its waits
 * @wait_start: local_clock() when the present wait began; 0: the wait is not measured.  The driver
 *	may clear this if the length of the wait says nothing about the device.
 * @poll_start: local_clock() when the present round of polling began; 0: not noted yet
 * @used_idx: where the device counts its answers; NULL: a packed ring has no such place
 * @empty_idx: the device's count at the last virtio_poll_mark()
 * @empty: no answer was taken from the ring since then
 * @stats: counters
 */
struct virtio_poll_queue {
	spinlock_t lock;	/* see the top of this file */
	struct virtqueue *vq;
	const struct virtio_poll_ops *ops;
	const struct virtio_poll_settings *settings;
	unsigned int inflight;
	bool callbacks;
	unsigned int waiters;
	struct virtio_poller *poller;
	struct list_head node;
	struct irq_work late;
	bool owed;
	unsigned int strangers;
	bool moving;
	struct virtio_poll_policy policy;
	u64 wait_start;
	u64 poll_start;
	const __virtio16 *used_idx;
	__virtio16 empty_idx;
	bool empty;
	struct virtio_poll_stats stats;
};

void __virtio_poll_init(struct virtio_poll_queue *q, const struct virtio_poll_ops *ops,
			const struct virtio_poll_settings *settings, struct lock_class_key *key);
void virtio_poll_ring(struct virtio_poll_queue *q, struct virtqueue *vq);
void virtio_poll_bear_stray_interrupts(struct virtio_device *vdev);
void virtio_poll_release(struct virtio_poll_queue *q);
void virtio_poll_forget(struct virtio_poll_queue *q);
bool virtio_poll_cpu_wanted(struct virtio_poll_queue *q);
bool virtio_poll_cpu_stolen(u64 now);
struct task_struct *virtio_poll_watch(struct virtio_poll_queue *q);
void virtio_poll_answered(struct virtio_poll_queue *q, bool polled);
void virtio_poll_interrupted(struct virtio_poll_queue *q);
bool virtio_poll_begin(struct virtio_poll_queue *q);
void virtio_poll_end(struct virtio_poll_queue *q, unsigned int found);
void virtio_poll_drop(struct virtio_poll_queue *q);
void virtio_poll_waiter_add(struct virtio_poll_queue *q);
void virtio_poll_waiter_del(struct virtio_poll_queue *q);

/**
 * virtio_poll_mark - remember the ring's index, before answers are taken
 * @q: the queue, locked
 *
 * An answer that arrives after the mark changes the index, so the next poll takes the lock.
 * virtio_poll_answered() makes the mark void.
 */
static inline void virtio_poll_mark(struct virtio_poll_queue *q)
{
	if (q->used_idx) {
		WRITE_ONCE(q->empty_idx, READ_ONCE(*q->used_idx));
		WRITE_ONCE(q->empty, true);
	}
}

/**
 * virtio_poll_unchanged - whether no answer came, and none was taken, since virtio_poll_mark()
 * @q: the queue, locked or not
 *
 * The device may write the index just after this has read it.  The caller polls in a loop, and
 * so finds that answer when it polls again.
 */
static inline bool virtio_poll_unchanged(const struct virtio_poll_queue *q)
{
	return READ_ONCE(q->empty) && READ_ONCE(*q->used_idx) == READ_ONCE(q->empty_idx);
}

/**
 * virtio_poll_init - initialize a queue that has no ring yet
 * @q: the queue, zeroed
 * @ops: the driver's functions
 * @settings: how to poll; they live as long as the queue
 *
 * The locks of each caller of this macro are a lockdep class of their own, because drivers take
 * these locks in different contexts, and take different other locks inside them.
 */
#define virtio_poll_init(q, ops, settings)				\
do {									\
	static struct lock_class_key __key;				\
									\
	__virtio_poll_init(q, ops, settings, &__key);			\
} while (0)

#endif /* _LINUX_VIRTIO_POLL_H */
