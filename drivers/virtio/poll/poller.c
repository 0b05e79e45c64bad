// SPDX-License-Identifier: GPL-2.0
/*
 * The pollers: one kthread for each CPU, of class SCHED_IDLE.
 *
 * A poller runs in the time in which its CPU would otherwise halt, and anything that
 * wakes there preempts it.  So with one vCPU the application loses nothing, and while
 * I/O is outstanding the vCPU does not halt.  The other candidates, and why they lost,
 * are in Documentation/driver-api/virtio-poll.rst.
 *
 * A queue is put on the list of the CPU that submits, or that takes answers from it,
 * while nothing else polls it.  It leaves the list when nothing is in flight, when the
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
#include <linux/jiffies.h>
#include <linux/module.h>
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

/* Submissions from other CPUs before a queue moves: a move may cost an interrupt. */
#define VPOLL_FOLLOW	64

DEFINE_PER_CPU(struct virtio_poller, vpoll_pollers);
DEFINE_PER_CPU(struct task_struct *, vpoll_tasks);

static u64 vpoll_max_ns(const struct virtio_poll_queue *q)
{
	return (u64)min(READ_ONCE(q->settings->max_us), VIRTIO_POLL_MAX_US) * NSEC_PER_USEC;
}

/* For a wait that begins: it is counted. */
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

/* Returns false if an answer came first: the device need not interrupt for it. */
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

/* Other tasks will have the CPU of the thread before it does. */
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
	/* The thread has a whole run of the timer to begin. */
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

/* On the CPU of q->poller only. */
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
 * Turns callbacks off, unless a poller has the queue and its thread may not run soon.  There may
 * have been no interrupt: ->later calls this, too.
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
 * Whether a task submits for itself.  The work that an interrupt starts does not, nor does
 * kblockd, which runs on any CPU.
 */
static bool vpoll_in_submitter(void)
{
	return in_task() && !(current->flags & PF_WQ_WORKER);
}

/* While a poller has the queue: count what other CPUs submit. */
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
 * virtio_poll_watch - see to it that the answers to what is in flight are noticed
 * @q: the queue, locked, with requests in flight
 *
 * Return: the thread to wake, or NULL.  The caller wakes it before it enables bottom
 * halves, because until then nothing polls the queue; it need not hold the lock.
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
	 * A wait that was left to an interrupt stays so until it has come.  A queue that moves
	 * does not wait for it: the next task that submits attaches the queue.
	 */
	if (q->callbacks && q->inflight > 1 && !q->moving)
		return NULL;
	/* The CPU of an interrupt or of kblockd is not where the requests come from. */
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
 * @polled: whether a poller saw them, not something that an interrupt started
 */
void virtio_poll_answered(struct virtio_poll_queue *q, bool polled)
{
	u64 now;

	lockdep_assert_held(&q->lock);
	WRITE_ONCE(q->empty, false);
	if (!q->inflight)
		WRITE_ONCE(q->moving, false);
	/* All that was in flight when another task took the CPU.  See vpoll_cover_if_needed(). */
	if (q->callbacks && !q->inflight && q->poller && !vpoll_needs_cover(q->poller))
		vpoll_callbacks_off(q);
	/* No wait has ended or begins: a task that polled was alone, and measures by itself. */
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

/* The verdict on a queue: it stays on the list, or why it leaves. */
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
 * The thread found nothing, but something is in flight: is the queue to stay?  START is when
 * the thread began to poll, because polling is what has a budget, and not the request.
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

/* The queue leaves the list.  Requests in flight are left to interrupts. */
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
 * The scheduler holds the run queue's lock, so nothing may be waited for, or woken.  Where an
 * answer came first, an irq_work starts the driver's work; and where the queue's lock is taken:
 * that work covers the queue, unless the lock's holder did (see vpoll_take_owed()).
 *
 * A task that polls needs no interrupts.  When it stops, it turns them on if p->away is set, so
 * what is in flight counts beside such a task, too.
 *
 * Returns whether anything is in flight, as far as is known.
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
 * Another task has the CPU of the thread.  Returns whether anything is in flight.
 *
 * Each queue's lock is taken, so a task that submits from another CPU sees p->away, or its request
 * is seen here.
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
 * virtio_poll_begin - the CPU's thread is about to poll a ring
 * @q: the queue, locked
 *
 * Return: false if it need not, because tasks poll or the queue moves: then the queue has
 * been dropped.
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
	/* Only now that the thread really runs, see vpoll_cover_if_needed(). */
	WRITE_ONCE(q->owed, false);
	vpoll_callbacks_off(q);
	virtio_poll_mark(q);
	return true;
}
EXPORT_SYMBOL_GPL(virtio_poll_begin);

/**
 * virtio_poll_end - the CPU's thread has polled a ring
 * @q: the queue, locked
 * @found: how many answers there were
 *
 * Even with nothing left in flight the queue stays with the poller after a poll that found
 * something: the completion may wake a task, which preempts the thread and submits the next
 * request before that comes round again.
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
 * virtio_poll_drop - the CPU's thread polls a queue no more
 * @q: the queue, locked; the driver has stopped it, so no interrupt need come
 *
 * For ->poll, instead of virtio_poll_begin().
 */
void virtio_poll_drop(struct virtio_poll_queue *q)
{
	lockdep_assert_held(&q->lock);
	vpoll_detach(q);
}
EXPORT_SYMBOL_GPL(virtio_poll_drop);

/**
 * virtio_poll_waiter_add - a task polls for its own answer from now on
 * @q: the queue, locked; preemption stays off until virtio_poll_waiter_del()
 */
void virtio_poll_waiter_add(struct virtio_poll_queue *q)
{
	struct virtio_poller *p = this_cpu_ptr(&vpoll_pollers);

	lockdep_assert_held(&q->lock);
	WRITE_ONCE(q->waiters, q->waiters + 1);
	vpoll_note_user(p);
	vpoll_callbacks_off(q);
	/* The thread of another CPU drops it by itself. */
	if (q->poller == p)
		vpoll_detach(q);
}
EXPORT_SYMBOL_GPL(virtio_poll_waiter_add);

/**
 * virtio_poll_waiter_del - a task polls no more
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

/* Whether ->poll would find nothing to do.  As virtio_poll_unchanged(), it takes no lock. */
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
 * Poll the next queue once; the smpboot loop around calls again as long as there are
 * any.  No cpu_relax(): a PAUSE in a loop makes hosts with pause-loop exiting take the
 * CPU away, which is an exit.
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
 * The thread did not poll for two ticks; WAITING says whether a request was kept waiting.  A
 * queue whose lock is taken leaves the list at the next tick (see the top of
 * virtio_poll.h), and what is in its ring is seen to before.
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
 * The host gives the CPU to others too often.  A queue whose lock is taken is looked at again in
 * the next run of the timer.
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

	if (p->polls == p->seen) {
		bool waiting = vpoll_anything_in_flight(p);

		/* After a tick that found a lock taken it has backed off already. */
		if (waiting && vpoll_cpu_has_time(p))
			vpoll_back_off(p);
		list_for_each_entry_safe(q, next, &p->queues, node)
			vpoll_tick(q, waiting);
	}
	if (virtio_poll_cpu_stolen(local_clock()))
		list_for_each_entry_safe(q, next, &p->queues, node)
			vpoll_leave_to_host(q);
	if (p->parked)
		return;
	vpoll_sample(p);
	if (list_empty(&p->queues) && !READ_ONCE(this_cpu_read(vpoll_tasks)->on_rq))
		return;
	p->seen = p->polls;
	mod_timer(&p->timer, jiffies + 1);
}

static void vpoll_setup(unsigned int cpu)
{
	const struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_IDLE,
	};

	if (sched_setattr_nocheck(current, &attr))
		pr_warn("virtio_poll: the thread of CPU %u could not get class SCHED_IDLE, and takes CPU time from other tasks\n",
			cpu);
	vpoll_notifier_add(&per_cpu(vpoll_pollers, cpu));
}

/* The CPU is going away: interrupts take over what its thread polls. */
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

/* The module goes; no queue is left. */
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
 * virtio_poll_release - wait until no thread knows a queue
 * @q: the queue; nothing is in flight, and no request can come
 *
 * The thread finds nothing in flight and lets go; if it gets no CPU time, the timer
 * does.  What ->later started may run after this, and must leave the ring alone.
 */
void virtio_poll_release(struct virtio_poll_queue *q)
{
	/* Pairs with the release in vpoll_detach(): @late has been queued, if it was to be. */
	while (smp_load_acquire(&q->poller))
		usleep_range(100, 1000);
	irq_work_sync(&q->late);
	/* The thread or the timer that let go may still hold the lock. */
	spin_lock_bh(&q->lock);
	/* An interrupt may come all the same. */
	q->callbacks = false;
	spin_unlock_bh(&q->lock);
}
EXPORT_SYMBOL_GPL(virtio_poll_release);

/**
 * virtio_poll_forget - forget what was learned with other settings
 * @q: the queue
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

/* Before the drivers, where all is built in. */
subsys_initcall(vpoll_init);
module_exit(vpoll_exit);

MODULE_DESCRIPTION("Polling of virtqueues in time that the CPU does not need");
MODULE_LICENSE("GPL");
