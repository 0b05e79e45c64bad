// SPDX-License-Identifier: GPL-2.0
/*
 * Callers poll for the replies that they wait for.
 *
 * virtio_poll.h has the rule of ownership; a caller that polls is a waiter there.
 *
 * A caller stops polling when its reply is found, by itself or by another CPU.  The task that finds
 * it takes the caller off the count under the lock, and calls pvfs_watch() before it drops the
 * lock.  A caller that has to stop before that (see pvfs_must_leave()) takes itself off, and calls
 * pvfs_watch(), too.
 *
 * A caller polls with preemption off, so it keeps its CPU, but for interrupts and for the time that
 * the host takes from its vCPU.  So no reply waits for a task that has lost its CPU.  While it
 * polls, other tasks on its CPU wait.  Therefore it leaves as soon as there are any, and sleeps.
 * The CPU's thread polls on once the CPU is idle.
 */
#include "pvfs.h"

#include <linux/moduleparam.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>

struct virtio_poll_settings pvfs_poll_settings = {
	.mode = VIRTIO_POLL_ADAPTIVE,
	.max_us = 200,
};

module_param_named(poll_max_us, pvfs_poll_settings.max_us, uint, 0644);
MODULE_PARM_DESC(poll_max_us, "Longest expected wait to poll through (microseconds, default 200; 0: never poll)");

static u64 pvfs_poll_max_ns(void)
{
	return (u64)min(READ_ONCE(pvfs_poll_settings.max_us), PVFS_POLL_MAX_US) * NSEC_PER_USEC;
}

/* Whether this CPU, or the task, has something better to do. */
static bool pvfs_must_leave(struct pvfs_queue *q)
{
	return virtio_poll_cpu_wanted(&q->poll) || signal_pending(current);
}

/**
 * pvfs_watch - see that the replies to what is in flight are noticed
 * @q: the queue, locked and live
 *
 * It takes nothing from the ring: the caller may hold what ending a request needs.
 */
void pvfs_watch(struct pvfs_queue *q)
{
	struct task_struct *thread;

	if (!q->poll.inflight)
		return;
	thread = virtio_poll_watch(&q->poll);
	if (thread)
		wake_up_process(thread);
}

/* The CPU has nothing better to do: virtio_poll's thread polls. */
static void pvfs_poll_idle(struct virtio_poll_queue *poll)
{
	struct pvfs_queue *q = container_of(poll, struct pvfs_queue, poll);
	LIST_HEAD(done);

	spin_lock(&poll->lock);
	if (!q->live)
		virtio_poll_drop(poll);
	else if (virtio_poll_begin(poll))
		virtio_poll_end(poll, pvfs_collect(q, &done, true));
	spin_unlock(&poll->lock);
	/* These wake tasks that sleep, no more. */
	pvfs_end_list(&done);
}

static void pvfs_poll_later(struct virtio_poll_queue *poll)
{
	struct pvfs_queue *q = container_of(poll, struct pvfs_queue, poll);

	queue_work(pvfs_wq, &q->work);
}

const struct virtio_poll_ops pvfs_poll_ops = {
	.poll = pvfs_poll_idle,
	.later = pvfs_poll_later,
};

/**
 * pvfs_wait_begin - decide whether the caller polls for its reply
 * @q: the queue, locked and live; preemption is off
 * @slot: the caller's request, in the ring
 * @wait: of the caller
 *
 * Return: whether it does.
 */
bool pvfs_wait_begin(struct pvfs_queue *q, struct pvfs_slot *slot, struct pvfs_wait *wait)
{
	struct virtio_poll_policy *policy;
	u64 max_ns = pvfs_poll_max_ns();
	u64 budget = 0;

	if (slot->class == PVFS_NEVER)
		return false;
	policy = &q->policy[slot->class];
	if (!pvfs_must_leave(q) && virtio_poll_policy_polls(policy, max_ns))
		budget = virtio_poll_policy_budget(policy, max_ns);
	/* The queue's own policy counts it as stolen, if it would have polled. */
	if (budget && virtio_poll_cpu_stolen(slot->start))
		budget = 0;
	if (!budget) {
		q->stats.unpolled++;
		return false;
	}
	wait->start = slot->start;
	wait->budget = budget;
	slot->wait = wait;
	virtio_poll_waiter_add(&q->poll);
	return true;
}

/* The caller is not counted any more; its request is one of many. */
static void pvfs_leave(struct pvfs_queue *q, struct pvfs_slot *slot, bool over)
{
	slot->wait = NULL;
	virtio_poll_waiter_del(&q->poll);
	q->stats.slept++;
	if (over)
		virtio_poll_policy_gave_up(&q->policy[slot->class], pvfs_poll_max_ns());
}

/*
 * Whether pvfs_poll_once() would find nothing to do.  It takes no lock, as
 * virtio_poll_unchanged(): a queue that stops, or a work that has something to end, is seen the
 * next time.
 */
static bool pvfs_nothing_new(struct pvfs_queue *q)
{
	return READ_ONCE(q->live) && virtio_poll_unchanged(&q->poll) &&
	       list_empty(&q->ended) && list_empty(&q->blocking);
}

/* Poll the ring once.  LEAVE: for the last time, whatever is found.  Returns whether to go on. */
static bool pvfs_poll_once(struct pvfs_queue *q, struct pvfs_slot *slot, struct pvfs_wait *wait,
			   bool leave, bool over)
{
	LIST_HEAD(done);

	if (!leave && pvfs_nothing_new(q))
		return true;
	/* The lock's holder polls, or has just sent a request: the caller does not wait for it. */
	if (leave)
		spin_lock_bh(&q->poll.lock);
	else if (!spin_trylock_bh(&q->poll.lock))
		return true;
	leave |= !q->live;
	if (q->live && !wait->done) {
		virtio_poll_mark(&q->poll);
		pvfs_collect(q, &done, true);
	}
	/* The works that end these want the CPU, too, and may be on it. */
	leave |= !list_empty(&q->ended) || !list_empty(&q->blocking);
	if (leave && !wait->done)
		pvfs_leave(q, slot, over);
	if (q->live)
		pvfs_watch(q);
	spin_unlock_bh(&q->poll.lock);
	/* These wake tasks that sleep, no more. */
	pvfs_end_list(&done);
	return !leave;
}

static bool pvfs_wait_done(struct pvfs_wait *wait)
{
	/* Pairs with the release in pvfs_slot_done(): the reply is in the request. */
	return smp_load_acquire(&wait->done);
}

/**
 * pvfs_wait_poll - poll for a reply
 * @q: the queue
 * @slot: the caller's request
 * @wait: of the caller, as given to pvfs_wait_begin()
 *
 * Preemption has been off since pvfs_wait_begin().  There is no cpu_relax(), because
 * hosts with pause-loop exiting take the CPU away from a loop with PAUSE.
 *
 * Return: true if the reply is there and the caller is to end the request; else that
 * happens elsewhere, or has happened.
 */
bool pvfs_wait_poll(struct pvfs_queue *q, struct pvfs_slot *slot, struct pvfs_wait *wait)
{
	bool over, more = true;

	while (more && !pvfs_wait_done(wait)) {
		over = (s64)(local_clock() - wait->start) >= (s64)wait->budget;
		more = pvfs_poll_once(q, slot, wait, over || pvfs_must_leave(q), over);
	}
	/* Once this caller has left, @wait does not change any more. */
	return pvfs_wait_done(wait);
}

/**
 * pvfs_wait_over - learn from a reply that has come
 * @q: the queue, locked
 * @slot: of the request
 * @now: local_clock()
 */
void pvfs_wait_over(struct pvfs_queue *q, struct pvfs_slot *slot, u64 now)
{
	/* The clocks of two CPUs may differ a little. */
	if (slot->class == PVFS_NEVER || (s64)(now - slot->start) <= 0)
		return;
	virtio_poll_policy_learn(&q->policy[slot->class], now - slot->start, pvfs_poll_max_ns(),
				 slot->wait);
}
