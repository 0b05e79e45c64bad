// SPDX-License-Identifier: GPL-2.0
/*
 * Callers poll for the replies that they wait for.
 *
 * The top of virtio_poll.h has the rule of ownership.  It calls a caller that polls a waiter.
 *
 * A caller stops polling when the caller itself, or a task on another CPU, takes its reply from the
 * ring.  The task that takes the reply lowers the count of waiters under the lock, and calls
 * pvfs_watch() before it drops the lock.  A caller that has to stop earlier (see pvfs_must_leave())
 * does both itself.
 *
 * A caller polls with preemption off.  So only interrupts, and the host, take the CPU from it, and
 * no reply waits because the caller was preempted.  But other tasks of this CPU wait while the
 * caller polls.  Therefore the caller stops as soon as another task wants the CPU, and sleeps.
 * virtio_poll's thread takes over once the CPU is idle.
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
MODULE_PARM_DESC(poll_max_us, "Poll for a reply if it is expected within this time (microseconds, default 200; 0: never poll)");

static u64 pvfs_poll_max_ns(void)
{
	return (u64)min(READ_ONCE(pvfs_poll_settings.max_us), PVFS_POLL_MAX_US) * NSEC_PER_USEC;
}

/*
 * Whether the caller has to stop polling: other tasks, or virtio_poll's thread for another queue,
 * need this CPU, or a signal is pending for the caller.
 */
static bool pvfs_must_leave(struct pvfs_queue *q)
{
	return virtio_poll_cpu_wanted(&q->poll) || signal_pending(current);
}

/**
 * pvfs_watch - give a queue with requests in flight an owner (see virtio_poll.h)
 * @q: the queue, locked and live
 *
 * The function takes no replies from the ring, because to end their requests may need a lock that
 * the caller holds (see pvfs_end_later()).
 */
void pvfs_watch(struct pvfs_queue *q)
{
	struct task_struct *thread;

	if (!q->poll.inflight)
		return;
	pvfs_lease_update(q);
	thread = virtio_poll_watch(&q->poll);
	if (thread)
		wake_up_process(thread);
}

/* virtio_poll's thread calls this to poll the ring once, in time in which its CPU would be idle. */
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
	/* To end these requests is to wake the tasks that sleep for them, and does not block. */
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
 * @wait: the caller's state while it polls
 *
 * Return: true if the caller is to poll.  Then it calls pvfs_wait_poll().
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
	/* virtio_poll counts this in stats.stolen, if the queue's own policy would have polled. */
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

/*
 * The caller stops polling before its reply is there.  The function takes it off the count of
 * waiters, and another owner of the queue finds the reply.  OVER: the caller has polled for its
 * whole budget, so the policy learns that the wait was too long.
 */
static void pvfs_leave(struct pvfs_queue *q, struct pvfs_slot *slot, bool over)
{
	slot->wait = NULL;
	virtio_poll_waiter_del(&q->poll);
	q->stats.slept++;
	if (over)
		virtio_poll_policy_gave_up(&q->policy[slot->class], pvfs_poll_max_ns());
}

/*
 * Whether pvfs_poll_once() would find nothing to do.
 *
 * The caller asks without the lock.  If a reply comes, if the queue stops, or if a work gets a
 * request to end just after this has looked, the caller sees that the next time, because it polls
 * in a loop.
 */
static bool pvfs_nothing_new(struct pvfs_queue *q)
{
	return READ_ONCE(q->live) && virtio_poll_unchanged(&q->poll) &&
	       list_empty(&q->ended) && list_empty(&q->blocking);
}

/*
 * Poll the ring once for the caller.
 *
 * LEAVE: the caller has to stop, so it does not count as a waiter after this, whether its reply was
 * found or not.  OVER: the reason is that its budget is used up.
 *
 * Returns whether the caller may poll again.
 */
static bool pvfs_poll_once(struct pvfs_queue *q, struct pvfs_slot *slot, struct pvfs_wait *wait,
			   bool leave, bool over)
{
	LIST_HEAD(done);

	if (!leave && pvfs_nothing_new(q))
		return true;
	/*
	 * A caller that may poll again only tries the lock.  The lock's holder takes replies
	 * itself, or holds the lock for a short time to send a request.
	 */
	if (leave)
		spin_lock_bh(&q->poll.lock);
	else if (!spin_trylock_bh(&q->poll.lock))
		return true;
	leave |= !q->live;
	if (q->live && !wait->done) {
		virtio_poll_mark(&q->poll);
		pvfs_collect(q, &done, true);
	}
	/* Works end the requests on these lists, and may need this CPU, so the caller leaves. */
	leave |= !list_empty(&q->ended) || !list_empty(&q->blocking);
	if (leave && !wait->done)
		pvfs_leave(q, slot, over);
	if (q->live)
		pvfs_watch(q);
	spin_unlock_bh(&q->poll.lock);
	/* To end these requests is to wake the tasks that sleep for them, and does not block. */
	pvfs_end_list(&done);
	return !leave;
}

static bool pvfs_wait_done(struct pvfs_wait *wait)
{
	/*
	 * Pairs with the release in pvfs_slot_done().  A caller that sees true also sees the reply
	 * in its request.
	 */
	return smp_load_acquire(&wait->done);
}

/**
 * pvfs_wait_poll - poll for a reply
 * @q: the queue
 * @slot: the caller's request
 * @wait: the caller's state, as given to pvfs_wait_begin()
 *
 * Preemption has been off since pvfs_wait_begin().  There is no cpu_relax(), because hosts with
 * pause-loop exiting take the CPU away from a loop with PAUSE.
 *
 * Return: true if the reply is there and the caller is to end the request.  False if the caller has
 * stopped polling: the task that takes the reply from the ring ends the request, or has it ended by
 * a work.
 */
bool pvfs_wait_poll(struct pvfs_queue *q, struct pvfs_slot *slot, struct pvfs_wait *wait)
{
	bool over, more = true;

	while (more && !pvfs_wait_done(wait)) {
		over = (s64)(local_clock() - wait->start) >= (s64)wait->budget;
		more = pvfs_poll_once(q, slot, wait, over || pvfs_must_leave(q), over);
	}
	/* After pvfs_leave() no other task can find @wait, so it does not change any more. */
	return pvfs_wait_done(wait);
}

/**
 * pvfs_wait_over - have the policy learn how long a request took
 * @q: the queue, locked
 * @slot: the request's slot; its reply has been taken from the ring
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
