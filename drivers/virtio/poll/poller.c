// SPDX-License-Identifier: GPL-2.0
/*
 * The pollers: one kthread for each CPU, of class SCHED_IDLE.
 *
 * A poller runs in the time in which its CPU would otherwise halt, and anything that
 * wakes there preempts it.  So with one vCPU the application loses nothing, and while
 * I/O is outstanding the vCPU does not halt.  The other candidates, and why they lost,
 * are in Documentation/driver-api/virtio-poll.rst.
 *
 * A CPU that submits to a queue, or takes answers from it, puts the queue on its list, unless
 * something else polls it.  The queue leaves the list when nothing is in flight, when the
 * wait has become too long (adaptive), when the host steals the CPU's time (adaptive), when the
 * mode says so, when other tasks starve its poller (others.c), or when it moves.
 *
 * A queue moves after VPOLL_FOLLOW submissions in a row from CPUs other than the poller's.
 * Otherwise that CPU would go on polling for I/O that other CPUs submit.  The thread drops the
 * queue (q->moving) and turns callbacks on; then the next task that submits attaches it to its
 * own CPU.  If an interrupt comes first, its work does not attach the queue.  A queue does not
 * move to a CPU whose poller other tasks have starved.
 */
#include "poll.h"

#include <linux/delay.h>
#include <linux/irq.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/isolation.h>
#include <linux/smpboot.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <uapi/linux/sched.h>
#include <uapi/linux/sched/types.h>

#define CREATE_TRACE_POINTS
#include <trace/events/virtio_poll.h>

/* A queue moves only after this many submissions, because a move may cost an interrupt. */
#define VPOLL_FOLLOW	64

DEFINE_PER_CPU(struct virtio_poller, vpoll_pollers);
DEFINE_PER_CPU(struct task_struct *, vpoll_tasks);

static u64 vpoll_max_ns(const struct virtio_poll_queue *q)
{
	return (u64)min(READ_ONCE(q->settings->max_us), VIRTIO_POLL_MAX_US) * NSEC_PER_USEC;
}

/*
 * Decide whether this CPU's poller polls through the wait that begins.
 *
 * The caller calls this once for each wait, because the policy counts the calls: after some waits
 * that it left to interrupts it has the poller try again (virtio_poll_policy_polls()).
 */
static bool vpoll_decide(struct virtio_poll_queue *q)
{
	enum virtio_poll_mode mode = READ_ONCE(q->settings->mode);

	if (mode == VIRTIO_POLL_IRQ || !vpoll_cpu_has_time(this_cpu_ptr(&vpoll_pollers)))
		return false;
	if (mode == VIRTIO_POLL_BUSY)
		return true;
	if (!virtio_poll_policy_polls(&q->policy, vpoll_max_ns(q)))
		return false;
	if (!virtio_poll_cpu_stolen(local_clock()))
		return true;
	q->stats.stolen++;
	return false;
}

/*
 * Returns false if the device had answered before callbacks were on.  The device need not interrupt
 * for that answer, so the caller has to start the driver's work.
 */
static bool vpoll_callbacks_on(struct virtio_poll_queue *q)
{
	q->callbacks = true;
	return virtqueue_enable_cb(q->vq);
}

static void vpoll_cover(struct virtio_poll_queue *q)
{
	if (!q->callbacks && !vpoll_callbacks_on(q))
		q->ops->later(q);
}

/*
 * Turn callbacks on because other tasks run on the poller's CPU before its thread does.  The
 * statistics count this as starvation.
 */
static void vpoll_cover_beside_others(struct virtio_poll_queue *q)
{
	if (q->callbacks)
		return;
	q->stats.irq_fallbacks++;
	q->stats.starved++;
	trace_virtio_poll_starved(q);
	vpoll_cover(q);
}

/*
 * Whether the preempt notifier wanted callbacks, but found the lock taken (q->owed).  The caller
 * turns them on.
 *
 * The notifier sets q->owed on the poller's CPU, without the lock.  The caller may be on another
 * CPU, so it writes false only after it has read true.  Otherwise it could overwrite a true that
 * came in between.  Then nothing would cover the queue: the caller may have read p->away before
 * the notifier set it, because that read may overtake the caller's own write.
 *
 * If the caller reads false, the true that may follow stays.  The notifier starts the driver's
 * work after it, and that work sees it under the lock.  So neither side needs a barrier.
 *
 * virtio_poll_begin() and vpoll_detach() write false at any time, because they run on the poller's
 * CPU with preemption off.
 */
static bool vpoll_take_owed(struct virtio_poll_queue *q)
{
	if (likely(!READ_ONCE(q->owed)))
		return false;
	WRITE_ONCE(q->owed, false);
	return true;
}

/*
 * Turn callbacks on if the thread may not run soon; an interrupt or the thread turns them off.
 *
 * While it is away, a request that is alone is not covered if it comes from the thread's own
 * CPU, by a task that has not slept since it submitted last (SLEPT).  That task is about to
 * sleep, and the thread may be next.  A device that answers before the thread runs would
 * interrupt for this request, and so for the next one.  A task that has slept is different:
 * the thread could have run in the meantime, but did not, so another task had the CPU.
 */
static void vpoll_cover_if_needed(struct virtio_poll_queue *q, bool slept)
{
	struct virtio_poller *p = q->poller;

	if (vpoll_take_owed(q) || vpoll_needs_cover(p))
		vpoll_cover(q);
	else if (READ_ONCE(p->away) &&
		 (slept || q->inflight > 1 || p != this_cpu_ptr(&vpoll_pollers)))
		vpoll_cover_beside_others(q);
}

static struct task_struct *vpoll_attach(struct virtio_poll_queue *q)
{
	struct virtio_poller *p = this_cpu_ptr(&vpoll_pollers);
	bool first = list_empty(&p->queues);

	WRITE_ONCE(q->poller, p);
	q->strangers = 0;
	q->poll_start = 0;
	list_add_tail(&q->node, &p->queues);
	trace_virtio_poll_attach(q);
	/*
	 * A value that differs from p->polls keeps the timer from taking the thread for starved
	 * when it runs next.  So the thread has one whole period of the timer to begin.
	 */
	if (first)
		p->seen = p->polls - 1;
	/* This is two ticks, because a timer never fires early. */
	if (!timer_pending(&p->timer))
		mod_timer(&p->timer, jiffies + 1);
	if (vpoll_others_first(p))
		WRITE_ONCE(p->away, true);
	if (vpoll_needs_cover(p))
		vpoll_cover(q);
	else if (p->away)
		vpoll_cover_beside_others(q);
	return first ? this_cpu_read(vpoll_tasks) : NULL;
}

/* The caller runs on the CPU of q->poller, because only that CPU changes the poller's list. */
static void vpoll_detach(struct virtio_poll_queue *q)
{
	list_del(&q->node);
	WRITE_ONCE(q->owed, false);
	/* Pairs with the acquire in virtio_poll_release(). */
	smp_store_release(&q->poller, NULL);
}

static void vpoll_callbacks_off(struct virtio_poll_queue *q)
{
	if (!q->callbacks)
		return;
	q->callbacks = false;
	virtqueue_disable_cb(q->vq);
}

/**
 * virtio_poll_interrupted - the driver is about to read the ring after an interrupt
 * @q: the queue, locked
 *
 * The function turns callbacks off, unless a poller has the queue and its thread may not run soon.
 * The work that ->later starts calls this, too, so there may have been no interrupt.
 */
void virtio_poll_interrupted(struct virtio_poll_queue *q)
{
	struct virtio_poller *p = q->poller;

	lockdep_assert_held(&q->lock);
	if (!p || !(vpoll_needs_cover(p) || READ_ONCE(p->away)))
		vpoll_callbacks_off(q);
}
EXPORT_SYMBOL_GPL(virtio_poll_interrupted);

/*
 * Whether the present context is a task that submits its own request.  Workers of workqueues are
 * not: the work that an interrupt starts, and kblockd, may run on a CPU that no submitter uses.
 */
static bool vpoll_in_submitter(void)
{
	return in_task() && !(current->flags & PF_WQ_WORKER);
}

/*
 * Count the submissions in a row from CPUs other than that of the poller that has the queue.  After
 * VPOLL_FOLLOW of them the queue moves.
 */
static void vpoll_follow(struct virtio_poll_queue *q)
{
	struct virtio_poller *p = this_cpu_ptr(&vpoll_pollers);

	if (!vpoll_in_submitter())
		return;
	if (q->poller == p)
		q->strangers = 0;
	else if (++q->strangers >= VPOLL_FOLLOW && vpoll_cpu_has_time(p))
		WRITE_ONCE(q->moving, true);
}

/**
 * virtio_poll_watch - give a queue with requests in flight an owner
 * @q: the queue, locked, with requests in flight
 *
 * The driver calls this after it has submitted requests or taken answers, before it drops the lock.
 * The top of virtio_poll.h has the rule of ownership.
 *
 * Return: the thread to wake, or NULL.  The caller wakes the thread before it enables bottom
 * halves, because nothing polls the queue until the thread runs.  The caller may drop the lock
 * first.
 */
struct task_struct *virtio_poll_watch(struct virtio_poll_queue *q)
{
	bool slept;

	lockdep_assert_held(&q->lock);
	if (q->waiters)
		return NULL;
	vpoll_note_user(this_cpu_ptr(&vpoll_pollers));
	slept = vpoll_note_submitter(this_cpu_ptr(&vpoll_pollers));
	if (!q->wait_start && READ_ONCE(q->settings->mode) == VIRTIO_POLL_ADAPTIVE)
		q->wait_start = local_clock();
	if (q->poller) {
		vpoll_follow(q);
		vpoll_cover_if_needed(q, slept);
		return NULL;
	}

	/*
	 * If the present wait was left to an interrupt, no poller takes the queue before that
	 * interrupt has come.  A queue that moves is an exception: the next task that submits
	 * attaches it at once.
	 */
	if (q->callbacks && q->inflight > 1 && !q->moving)
		return NULL;
	/*
	 * Only a task that submits attaches a queue that moves, because the queue is to follow the
	 * submitters.  An interrupt's work and kblockd may run on other CPUs than these.
	 */
	if (!q->moving || vpoll_in_submitter()) {
		WRITE_ONCE(q->moving, false);
		if (vpoll_decide(q))
			return vpoll_attach(q);
	}
	vpoll_cover(q);
	return NULL;
}
EXPORT_SYMBOL_GPL(virtio_poll_watch);

/**
 * virtio_poll_answered - answers have come in
 * @q: the queue, locked; @q->inflight does not count them any more
 * @polled: true if a poller found them, false if work that an interrupt started did
 */
void virtio_poll_answered(struct virtio_poll_queue *q, bool polled)
{
	u64 now;

	lockdep_assert_held(&q->lock);
	WRITE_ONCE(q->empty, false);
	if (!q->inflight)
		WRITE_ONCE(q->moving, false);
	/*
	 * Callbacks are on because the thread might not have run soon.  All requests that were in
	 * flight then are answered, so the device need not interrupt any more.  The submitter of
	 * the next request turns callbacks on if needed (vpoll_cover_if_needed()).
	 */
	if (q->callbacks && !q->inflight && q->poller && !vpoll_needs_cover(q->poller))
		vpoll_callbacks_off(q);
	/*
	 * If no start was noted and no request is in flight, no wait has ended here and none
	 * begins.  That is so if a task polled and no other request was in flight: that task's
	 * driver measures the wait itself.
	 */
	if (READ_ONCE(q->settings->mode) != VIRTIO_POLL_ADAPTIVE ||
	    (!q->wait_start && !q->inflight)) {
		q->wait_start = 0;
		WRITE_ONCE(q->poll_start, 0);
		return;
	}
	now = local_clock();
	/* The clocks of two CPUs may differ a little. */
	if (q->wait_start && (s64)(now - q->wait_start) > 0)
		virtio_poll_policy_learn(&q->policy, now - q->wait_start, vpoll_max_ns(q),
					 polled);
	q->wait_start = q->inflight ? now : 0;
	WRITE_ONCE(q->poll_start, q->wait_start);
}
EXPORT_SYMBOL_GPL(virtio_poll_answered);

/* Whether a queue stays on its poller's list, or the reason why it leaves. */
enum vpoll_why {
	VPOLL_STAYS,
	VPOLL_IDLE,
	VPOLL_TOO_LONG,
	VPOLL_UNWANTED,
	VPOLL_STARVED,
	VPOLL_STOLEN,
	VPOLL_PARKED,
	VPOLL_MOVES,
};

/*
 * Decide whether a queue stays with its poller.  The thread has polled the ring and found no
 * answer, and requests are in flight.
 *
 * START is the time when this round of polling began.  The budget limits how long the thread polls,
 * not how old a request may be.
 */
static enum vpoll_why vpoll_judge(const struct virtio_poll_queue *q, u64 start, u64 now)
{
	enum virtio_poll_mode mode = READ_ONCE(q->settings->mode);

	if (mode == VIRTIO_POLL_BUSY)
		return VPOLL_STAYS;
	if (mode == VIRTIO_POLL_IRQ)
		return VPOLL_UNWANTED;
	if ((s64)(now - start) < (s64)virtio_poll_policy_budget(&q->policy, vpoll_max_ns(q)))
		return VPOLL_STAYS;
	return VPOLL_TOO_LONG;
}

/*
 * Take a queue off its poller's list.  If requests are in flight and no task polls for itself, turn
 * callbacks on, so that the device's interrupts own the queue.
 */
static void vpoll_let_go(struct virtio_poll_queue *q, enum vpoll_why why)
{
	vpoll_detach(q);
	if (!q->inflight || q->waiters)
		return;
	q->stats.irq_fallbacks++;
	if (why == VPOLL_TOO_LONG)
		virtio_poll_policy_gave_up(&q->policy, vpoll_max_ns(q));
	if (why == VPOLL_STARVED) {
		q->stats.starved++;
		trace_virtio_poll_starved(q);
	} else {
		q->stats.stolen += why == VPOLL_STOLEN;
		trace_virtio_poll_fallback(q);
	}
	if (!vpoll_callbacks_on(q))
		q->ops->later(q);
}

/*
 * Turn callbacks of one queue on, because another task takes the CPU from the thread.
 *
 * The preempt notifier calls this while the scheduler holds the run queue's lock.  So this
 * function must not spin for the queue's lock, and must not wake a task.  In two cases it queues
 * an irq_work, which starts the driver's work once the scheduler has dropped its lock:
 *
 * - The device has answered before callbacks were on.  The driver's work takes the answer.
 * - Another context holds the queue's lock.  Then the driver's work turns callbacks on, unless the
 *   lock's holder does so first (see vpoll_take_owed()).
 *
 * While a task polls for its own answer, callbacks stay off.  When the task stops, it calls
 * virtio_poll_watch(), which turns them on if p->away is set.  The caller keeps p->away set only
 * if requests are in flight, so those of such a task count as well.
 *
 * Returns whether requests are in flight.  If the lock is taken, that may be so, and this is true.
 */
static bool vpoll_leave_to_interrupts(struct virtio_poll_queue *q)
{
	bool inflight;

	if (!spin_trylock(&q->lock)) {
		WRITE_ONCE(q->owed, true);
		irq_work_queue(&q->late);
		return true;
	}
	inflight = q->inflight;
	if (inflight && !q->waiters && !q->callbacks) {
		q->stats.irq_fallbacks++;
		q->stats.starved++;
		trace_virtio_poll_starved(q);
		if (!vpoll_callbacks_on(q))
			irq_work_queue(&q->late);
	}
	spin_unlock(&q->lock);
	return inflight;
}

/*
 * Turn callbacks of all the poller's queues on, because another task takes the CPU from the thread.
 * Returns whether requests are in flight.
 *
 * The caller has set p->away.  A task that submits from another CPU holds the queue's lock.  If
 * this function gets the lock after that task, it finds the request.  If it gets the lock first,
 * the task finds p->away set.
 */
bool vpoll_interrupts_on(struct virtio_poller *p)
{
	struct virtio_poll_queue *q;
	bool any = false;

	list_for_each_entry(q, &p->queues, node)
		any |= vpoll_leave_to_interrupts(q);
	return any;
}

/**
 * virtio_poll_begin - prepare a ring that the CPU's thread is about to poll
 * @q: the queue, locked
 *
 * Return: true if the driver is to poll the ring and to call virtio_poll_end().  False if the
 * thread has dropped the queue, because tasks poll it themselves or because it moves to another
 * CPU.
 */
bool virtio_poll_begin(struct virtio_poll_queue *q)
{
	lockdep_assert_held(&q->lock);
	if (q->waiters) {
		vpoll_detach(q);
		return false;
	}
	if (q->moving) {
		vpoll_let_go(q, VPOLL_MOVES);
		return false;
	}
	/*
	 * The thread runs and reads the ring next, so the queue needs no callbacks.  Before the
	 * thread runs they have to stay on, because other tasks may keep it from its CPU
	 * (vpoll_cover_if_needed()).
	 */
	WRITE_ONCE(q->owed, false);
	vpoll_callbacks_off(q);
	virtio_poll_mark(q);
	return true;
}
EXPORT_SYMBOL_GPL(virtio_poll_begin);

/**
 * virtio_poll_end - decide whether a queue stays with the poller that has just polled its ring
 * @q: the queue, locked
 * @found: how many answers the driver took from the ring
 *
 * After a poll that found answers the queue stays, even if no request is left in flight.  The
 * completion may wake a task, which preempts the thread and submits the next request before the
 * thread polls again.
 */
void virtio_poll_end(struct virtio_poll_queue *q, unsigned int found)
{
	enum vpoll_why why;
	u64 now;

	lockdep_assert_held(&q->lock);
	q->stats.polls++;
	if (found) {
		q->stats.found++;
		q->stats.answers += found;
		q->poller->delivered = true;
		return;
	}
	now = local_clock();
	if (!q->poll_start)
		q->poll_start = now;
	why = q->inflight ? vpoll_judge(q, q->poll_start, now) : VPOLL_IDLE;
	if (why != VPOLL_STAYS)
		vpoll_let_go(q, why);
}
EXPORT_SYMBOL_GPL(virtio_poll_end);

/**
 * virtio_poll_drop - take a queue that the driver has stopped off its poller's list
 * @q: the queue, locked
 *
 * The driver's ->poll calls this instead of virtio_poll_begin().  Callbacks stay as they are,
 * because a stopped queue waits for no answers.
 */
void virtio_poll_drop(struct virtio_poll_queue *q)
{
	lockdep_assert_held(&q->lock);
	vpoll_detach(q);
}
EXPORT_SYMBOL_GPL(virtio_poll_drop);

/**
 * virtio_poll_waiter_add - count the calling task as one that polls for its own answer
 * @q: the queue, locked; preemption stays off until virtio_poll_waiter_del().  A driver whose task
 *	may be preempted calls virtio_poll_waiter_del() from a timer or a work if the task does not
 *	come back.
 */
void virtio_poll_waiter_add(struct virtio_poll_queue *q)
{
	struct virtio_poller *p = this_cpu_ptr(&vpoll_pollers);

	lockdep_assert_held(&q->lock);
	WRITE_ONCE(q->waiters, q->waiters + 1);
	vpoll_note_user(p);
	vpoll_callbacks_off(q);
	/*
	 * Only the CPU of a poller changes its list, so another CPU's thread drops the queue
	 * itself.
	 */
	if (q->poller == p)
		vpoll_detach(q);
}
EXPORT_SYMBOL_GPL(virtio_poll_waiter_add);

/**
 * virtio_poll_waiter_del - take a task that polled for its own answer off the count
 * @q: the queue, locked
 *
 * The caller calls virtio_poll_watch() before it drops the lock, if requests are in flight.
 */
void virtio_poll_waiter_del(struct virtio_poll_queue *q)
{
	lockdep_assert_held(&q->lock);
	WRITE_ONCE(q->waiters, q->waiters - 1);
}
EXPORT_SYMBOL_GPL(virtio_poll_waiter_del);

static int vpoll_should_run(unsigned int cpu)
{
	return !list_empty(&per_cpu(vpoll_pollers, cpu).queues);
}

/*
 * Whether ->poll would find nothing to do.  The thread asks without the queue's lock (see the top
 * of virtio_poll.h).  If a value changes just after it was read, the thread sees that in its next
 * poll.
 */
static bool vpoll_nothing_new(struct virtio_poll_queue *q)
{
	u64 start = READ_ONCE(q->poll_start);

	if (!virtio_poll_unchanged(q))
		return false;
	if (READ_ONCE(q->callbacks) || READ_ONCE(q->waiters) || !READ_ONCE(q->inflight) ||
	    READ_ONCE(q->moving))
		return false;
	if (!start || vpoll_judge(q, start, local_clock()) != VPOLL_STAYS)
		return false;
	q->stats.polls++;
	return true;
}

/*
 * Poll the next queue once.  The smpboot thread calls this in a loop as long as the list has
 * queues.
 *
 * There is no cpu_relax(), because a host with pause-loop exiting takes the CPU away from a loop
 * with PAUSE, and that is an exit.
 */
static void vpoll_run(unsigned int cpu)
{
	struct virtio_poller *p = &per_cpu(vpoll_pollers, cpu);
	struct virtio_poll_queue *q;

	local_bh_disable();
	p->wanted = false;
	WRITE_ONCE(p->starved, false);
	WRITE_ONCE(p->away, false);
	p->delivered = false;
	p->polls++;
	q = list_first_entry_or_null(&p->queues, struct virtio_poll_queue, node);
	if (q) {
		/* Rotating a list of one would only cost the list's checks in each poll. */
		if (!list_is_singular(&p->queues))
			list_rotate_left(&p->queues);
		if (!vpoll_nothing_new(q))
			q->ops->poll(q);
	}
	local_bh_enable();
	cond_resched_tasks_rcu_qs();
}

static bool vpoll_anything_in_flight(struct virtio_poller *p)
{
	struct virtio_poll_queue *q;

	list_for_each_entry(q, &p->queues, node)
		if (READ_ONCE(q->inflight) && !READ_ONCE(q->waiters))
			return true;
	return false;
}

/*
 * Take a queue off the list, because the thread did not poll for two ticks.  WAITING says whether
 * any queue of the poller has a request that waits.
 *
 * The timer only tries the queue's lock (see the top of virtio_poll.h).  If the lock is taken, the
 * queue stays on the list until the timer runs again.  In that case, if WAITING, the timer starts
 * the driver's work, which takes the answers from the ring and turns callbacks on.
 */
static void vpoll_tick(struct virtio_poll_queue *q, bool waiting)
{
	if (!spin_trylock(&q->lock)) {
		if (waiting)
			q->ops->later(q);
		return;
	}
	if (waiting)
		vpoll_let_go(q, VPOLL_STARVED);
	else if (!q->inflight || q->waiters)
		vpoll_let_go(q, VPOLL_IDLE);
	spin_unlock(&q->lock);
}

/*
 * Leave a queue to interrupts, because the host gives this CPU to other tasks of the host too
 * often.  If the queue's lock is taken, the timer tries again when it runs next.
 */
static void vpoll_leave_to_host(struct virtio_poll_queue *q)
{
	if (READ_ONCE(q->settings->mode) != VIRTIO_POLL_ADAPTIVE || !spin_trylock(&q->lock))
		return;
	vpoll_let_go(q, VPOLL_STOLEN);
	spin_unlock(&q->lock);
}

static void vpoll_timer(struct timer_list *t)
{
	struct virtio_poller *p = from_timer(p, t, timer);
	struct virtio_poll_queue *q, *next;
	u64 now = local_clock();
	bool at_work;

	if (p->polls == p->seen) {
		bool waiting = vpoll_anything_in_flight(p);

		/* If a lock was taken at the last tick, the poller has backed off already. */
		if (waiting && vpoll_cpu_has_time(p))
			vpoll_back_off(p);
		list_for_each_entry_safe(q, next, &p->queues, node)
			vpoll_tick(q, waiting);
	}
	if (virtio_poll_cpu_stolen(now))
		list_for_each_entry_safe(q, next, &p->queues, node)
			vpoll_leave_to_host(q);
	if (p->parked)
		return;
	vpoll_sample(p, now);
	p->seen = p->polls;
	at_work = !list_empty(&p->queues) || READ_ONCE(this_cpu_read(vpoll_tasks)->on_rq);
	if (at_work)
		mod_timer(&p->timer, jiffies + 1);
	else if (vpoll_backs_off(p))
		mod_timer(&p->timer, vpoll_next_sample(p));
}

static void vpoll_setup(unsigned int cpu)
{
	const struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_IDLE,
	};
	int err = sched_setattr_nocheck(current, &attr);

	if (err)
		pr_warn("virtio_poll: cpu %u: cannot make the polling thread SCHED_IDLE: error %d; it takes CPU time from other tasks\n",
			cpu, err);
	vpoll_notifier_add(&per_cpu(vpoll_pollers, cpu));
}

/* The CPU goes offline, so the thread leaves its queues to interrupts. */
static void vpoll_park(unsigned int cpu)
{
	struct virtio_poller *p = &per_cpu(vpoll_pollers, cpu);
	struct virtio_poll_queue *q, *next;

	local_bh_disable();
	p->parked = true;
	list_for_each_entry_safe(q, next, &p->queues, node) {
		spin_lock(&q->lock);
		vpoll_let_go(q, VPOLL_PARKED);
		spin_unlock(&q->lock);
	}
	local_bh_enable();
	timer_delete_sync(&p->timer);
}

/* The module is unloaded.  No queue is left, because each driver with queues uses the module. */
static void vpoll_cleanup(unsigned int cpu, bool online)
{
	vpoll_park(cpu);
	vpoll_notifier_del(&per_cpu(vpoll_pollers, cpu));
}

static void vpoll_unpark(unsigned int cpu)
{
	per_cpu(vpoll_pollers, cpu).parked = false;
}

static struct smp_hotplug_thread vpoll_threads = {
	.store			= &vpoll_tasks,
	.setup			= vpoll_setup,
	.cleanup		= vpoll_cleanup,
	.park			= vpoll_park,
	.unpark			= vpoll_unpark,
	.thread_should_run	= vpoll_should_run,
	.thread_fn		= vpoll_run,
	.thread_comm		= "virtio-poll/%u",
};

static void vpoll_late(struct irq_work *work)
{
	struct virtio_poll_queue *q = container_of(work, struct virtio_poll_queue, late);

	q->ops->later(q);
}

/* See virtio_poll_init(). */
void __virtio_poll_init(struct virtio_poll_queue *q, const struct virtio_poll_ops *ops,
			const struct virtio_poll_settings *settings, struct lock_class_key *key)
{
	spin_lock_init(&q->lock);
	lockdep_set_class(&q->lock, key);
	init_irq_work(&q->late, vpoll_late);
	q->ops = ops;
	q->settings = settings;
}
EXPORT_SYMBOL_GPL(__virtio_poll_init);

/**
 * virtio_poll_ring - give a queue its ring
 * @q: the queue, which no other task knows yet, or locked
 * @vq: the ring, fresh
 */
void virtio_poll_ring(struct virtio_poll_queue *q, struct virtqueue *vq)
{
	q->vq = vq;
	q->used_idx = virtio_has_feature(vq->vdev, VIRTIO_F_RING_PACKED) ? NULL :
		      &virtqueue_get_vring(vq)->used->idx;
	q->empty = false;
	/* A fresh ring's callbacks are on, and pollers want them off. */
	virtqueue_disable_cb(vq);
	q->callbacks = false;
}
EXPORT_SYMBOL_GPL(virtio_poll_ring);

/**
 * virtio_poll_bear_stray_interrupts - do not let the kernel turn the device's interrupts off
 * @vdev: the device, with its rings
 *
 * Without an event index a device may interrupt although it was told not to, and some devices
 * always do.  If a poller has found the answer already, the kernel takes such an interrupt for one
 * that no handler wants, and after too many of these it turns the vector off for good.
 *
 * So this function turns that guard of the kernel off for MSI-X.  There the vectors belong to the
 * device alone (with vDPA to the function that it is a part of).  An interrupt line may be shared,
 * so it keeps the guard.  IRQ_NO_DEBUG would be the right flag, but drivers cannot set it, because
 * IRQF_MODIFY_MASK lacks it.  IRQ_IS_POLLED makes note_interrupt() return as early.
 */
void virtio_poll_bear_stray_interrupts(struct virtio_device *vdev)
{
	struct device *parent = vdev->dev.parent;
	int i, irq;

	if (virtio_has_feature(vdev, VIRTIO_RING_F_EVENT_IDX) || !parent ||
	    !dev_is_pci(parent) || !to_pci_dev(parent)->msix_enabled)
		return;
	for (i = 0; (irq = pci_irq_vector(to_pci_dev(parent), i)) > 0; i++)
		irq_set_status_flags(irq, IRQ_IS_POLLED);
}
EXPORT_SYMBOL_GPL(virtio_poll_bear_stray_interrupts);

/**
 * virtio_poll_release - wait until no poller has a queue
 * @q: the queue; no request is in flight, and the driver submits none
 *
 * The thread finds nothing in flight and takes the queue off its list.  If the thread gets no CPU
 * time, the timer does so.  The work that ->later started may still run after this function has
 * returned.  The driver sees to it that this work does not touch the ring.
 */
void virtio_poll_release(struct virtio_poll_queue *q)
{
	/*
	 * This pairs with the release in vpoll_detach().  The preempt notifier queues q->late only
	 * while the queue is on a poller's list.  So once q->poller is NULL, irq_work_sync() waits
	 * for the last one.
	 */
	while (smp_load_acquire(&q->poller))
		usleep_range(100, 1000);
	irq_work_sync(&q->late);
	/* The thread or the timer that took the queue off its list may still hold the lock. */
	spin_lock_bh(&q->lock);
	/*
	 * This only forgets that callbacks are on; the device is not told.  So an interrupt may
	 * still come.
	 */
	q->callbacks = false;
	spin_unlock_bh(&q->lock);
}
EXPORT_SYMBOL_GPL(virtio_poll_release);

/**
 * virtio_poll_forget - make a queue's policy forget the waits that it has learned
 * @q: the queue
 *
 * The driver calls this after it has changed the settings.
 */
void virtio_poll_forget(struct virtio_poll_queue *q)
{
	spin_lock_bh(&q->lock);
	q->policy = (struct virtio_poll_policy) {};
	spin_unlock_bh(&q->lock);
}
EXPORT_SYMBOL_GPL(virtio_poll_forget);

static int __init vpoll_init(void)
{
	unsigned int cpu;
	int err;

	for_each_possible_cpu(cpu) {
		struct virtio_poller *p = &per_cpu(vpoll_pollers, cpu);

		INIT_LIST_HEAD(&p->queues);
		timer_setup(&p->timer, vpoll_timer, TIMER_PINNED |
			    (housekeeping_test_cpu(cpu, HK_TYPE_TICK) ? TIMER_DEFERRABLE : 0));
	}
	vpoll_notifiers_begin();
	err = smpboot_register_percpu_thread(&vpoll_threads);
	if (err)
		vpoll_notifiers_end();
	return err;
}

static void __exit vpoll_exit(void)
{
	unsigned int cpu;

	smpboot_unregister_percpu_thread(&vpoll_threads);
	vpoll_notifiers_end();
	for_each_possible_cpu(cpu)
		timer_delete_sync(&per_cpu(vpoll_pollers, cpu).timer);
}

/* If this module and its drivers are built in, this module has to start before the drivers. */
subsys_initcall(vpoll_init);
module_exit(vpoll_exit);

MODULE_DESCRIPTION("Polls virtqueues while the CPU is idle");
MODULE_LICENSE("GPL");
