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
 * wait has become too long (adaptive), when the mode says so, or when it is crowded out.
 *
 * Crowded out
 * -----------
 * Where the CPU is busy with other tasks, a SCHED_IDLE thread gets next to nothing, and
 * answers would lie in the ring.  So a timer, one tick long, runs as long as the list is
 * not empty; when the thread did not poll once between two ticks, all queues of the list
 * are left to interrupts, and none comes on this CPU for a while, which doubles each time
 * up to 1.6 seconds.  The timer is deferrable: on an idle CPU there is nothing to find
 * out, and it must not wake it.  (Not where the tick may be off beside a task that runs,
 * nohz_full: a deferrable timer would wait for that task.)  Where nothing is in flight
 * no one is kept waiting: a task that computes between one I/O and the next does not
 * crowd out its own poller.
 *
 * All of struct virtio_poller is touched on its own CPU only, by the thread, the timer,
 * submitters and drivers' softirqs alike, with bottom halves off where it changes; so it
 * needs no lock.
 */
#include <linux/virtio_poll.h>

#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/isolation.h>
#include <linux/sched/stat.h>
#include <linux/smpboot.h>
#include <linux/timer.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <uapi/linux/sched.h>
#include <uapi/linux/sched/types.h>

#define CREATE_TRACE_POINTS
#include <trace/events/virtio_poll.h>

#define VPOLL_CROWDED_MIN	msecs_to_jiffies(50)
#define VPOLL_CROWDED_SHIFT	5	/* up to 1.6 s */
#define VPOLL_CROWDED_FORGET	(4 * HZ)

struct virtio_poller {
	struct list_head queues;
	struct timer_list timer;
	unsigned long polls;		/* of the thread, each of one queue */
	unsigned long seen;		/* polls at the last tick */
	unsigned long crowded_until;	/* jiffies; 0: not crowded */
	unsigned long crowded_last;	/* jiffies, when it was found so */
	unsigned int crowded_shift;	/* how often in a row */
	bool proved;			/* the thread has run since it was last crowded out */
	bool wanted;			/* by other tasks, see virtio_poll_cpu_wanted() */
	const struct task_struct *caller;	/* polled last by itself; only compared */
	bool parked;			/* its CPU is going away */
};

static DEFINE_PER_CPU(struct virtio_poller, vpoll_pollers);
static DEFINE_PER_CPU(struct task_struct *, vpoll_tasks);

static u64 vpoll_max_ns(const struct virtio_poll_queue *q)
{
	return (u64)min(READ_ONCE(q->settings->max_us), VIRTIO_POLL_MAX_US) * NSEC_PER_USEC;
}

/* Whether this CPU has time for its poller. */
static bool vpoll_cpu_has_time(struct virtio_poller *p)
{
	if (p->parked || (p->crowded_until && time_before(jiffies, p->crowded_until)))
		return false;
	p->crowded_until = 0;
	return true;
}

/**
 * virtio_poll_cpu_wanted - whether a task that polls should leave its CPU to others
 * @q: the queue that it polls, or is about to
 *
 * Preemption is off.
 *
 * The CPU's thread is one of the others if it has another queue to poll: the tasks that
 * wait for that one sleep, and nothing else shows that they are there.
 *
 * single_task_running() says whether the task is alone on its CPU.  It is not while this
 * CPU's thread is runnable, so the function has to tell the thread from other tasks.  If
 * the thread is not runnable, the others are other tasks.  If it is, p->wanted decides.
 * It is set when a task asks for the CPU or crowds the thread out, and when a tick finds a
 * task at work that does not poll (vpoll_sample()).  It is cleared when the thread runs: a
 * SCHED_IDLE thread mostly runs where nothing else wants to.  It does run a little beside
 * others, and then the next tick corrects it.
 *
 * Return: true if it should.
 */
bool virtio_poll_cpu_wanted(struct virtio_poll_queue *q)
{
	struct virtio_poller *p = this_cpu_ptr(&vpoll_pollers);

	if (need_resched()) {
		p->wanted = true;
		return true;
	}
	if (!list_empty(&p->queues) &&
	    !(READ_ONCE(q->poller) == p && list_is_singular(&p->queues)))
		return true;
	if (single_task_running())
		return false;
	return p->wanted || !READ_ONCE(this_cpu_read(vpoll_tasks)->on_rq);
}
EXPORT_SYMBOL_GPL(virtio_poll_cpu_wanted);

/* For a wait that begins: it is counted. */
static bool vpoll_decide(struct virtio_poll_queue *q)
{
	enum virtio_poll_mode mode = READ_ONCE(q->settings->mode);

	if (mode == VIRTIO_POLL_IRQ || !vpoll_cpu_has_time(this_cpu_ptr(&vpoll_pollers)))
		return false;
	return mode == VIRTIO_POLL_BUSY ||
	       virtio_poll_policy_polls(&q->policy, vpoll_max_ns(q));
}

/* Returns false if an answer came first: the device need not interrupt for it. */
static bool vpoll_callbacks_on(struct virtio_poll_queue *q)
{
	q->callbacks = true;
	return virtqueue_enable_cb(q->vq);
}

/*
 * Callbacks of a queue that a poller has stay as they are, and the thread turns them off
 * once it really runs.  Where it may not run, because other tasks crowded it out the last
 * time, they are turned on: else the first answer after each try would lie in the ring until
 * the timer notices.
 */
static void vpoll_cover(struct virtio_poll_queue *q)
{
	if (!READ_ONCE(q->poller->proved) && !q->callbacks && !vpoll_callbacks_on(q))
		q->ops->later(q);
}

static struct task_struct *vpoll_attach(struct virtio_poll_queue *q)
{
	struct virtio_poller *p = this_cpu_ptr(&vpoll_pollers);
	bool first = list_empty(&p->queues);

	WRITE_ONCE(q->poller, p);
	q->poll_start = 0;
	list_add_tail(&q->node, &p->queues);
	trace_virtio_poll_attach(q);
	/* The thread has a whole tick to begin. */
	if (first)
		p->seen = p->polls - 1;
	if (!timer_pending(&p->timer))
		mod_timer(&p->timer, jiffies + 1);
	vpoll_cover(q);
	return first ? this_cpu_read(vpoll_tasks) : NULL;
}

/* On the CPU of q->poller only. */
static void vpoll_detach(struct virtio_poll_queue *q)
{
	list_del(&q->node);
	/* virtio_poll_release() waits for this. */
	WRITE_ONCE(q->poller, NULL);
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
 * Turns callbacks off, unless a poller has the queue: its thread does when it runs, and
 * until then they may be its only other owner.
 */
void virtio_poll_interrupted(struct virtio_poll_queue *q)
{
	lockdep_assert_held(&q->lock);
	if (!q->poller)
		vpoll_callbacks_off(q);
}
EXPORT_SYMBOL_GPL(virtio_poll_interrupted);

/**
 * virtio_poll_watch - see to it that the answers to what is in flight are noticed
 * @q: the queue, locked, with requests in flight
 *
 * Return: the thread to wake, or NULL.  The caller wakes it before it enables bottom
 * halves, because until then nothing polls the queue; it need not hold the lock.
 */
struct task_struct *virtio_poll_watch(struct virtio_poll_queue *q)
{
	lockdep_assert_held(&q->lock);
	if (q->waiters)
		return NULL;
	if (!q->wait_start && READ_ONCE(q->settings->mode) == VIRTIO_POLL_ADAPTIVE)
		q->wait_start = local_clock();
	if (q->poller) {
		vpoll_cover(q);
		return NULL;
	}

	/* What was left to an interrupt stays so until that has come. */
	if (q->callbacks && q->inflight > 1)
		return NULL;
	if (vpoll_decide(q))
		return vpoll_attach(q);
	if (!q->callbacks && !vpoll_callbacks_on(q))
		q->ops->later(q);
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
	if (READ_ONCE(q->settings->mode) != VIRTIO_POLL_ADAPTIVE) {
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
	VPOLL_CROWDED,
	VPOLL_PARKED,
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

/* The thread did not poll for a tick: leave all to interrupts, longer each time. */
static void vpoll_back_off(struct virtio_poller *p)
{
	if (time_after(jiffies, p->crowded_last + VPOLL_CROWDED_FORGET))
		p->crowded_shift = 0;
	p->crowded_last = jiffies;
	p->proved = false;
	p->wanted = true;
	/* Zero stands for "not crowded". */
	p->crowded_until = (jiffies + (VPOLL_CROWDED_MIN << p->crowded_shift)) ?: 1;
	if (p->crowded_shift < VPOLL_CROWDED_SHIFT)
		p->crowded_shift++;
}

/* Off the list; what is in flight is left to interrupts. */
static void vpoll_let_go(struct virtio_poll_queue *q, enum vpoll_why why)
{
	vpoll_detach(q);
	if (!q->inflight || q->waiters)
		return;
	q->stats.sleeps++;
	if (why == VPOLL_TOO_LONG)
		virtio_poll_policy_gave_up(&q->policy, vpoll_max_ns(q));
	if (why == VPOLL_CROWDED) {
		q->stats.crowded++;
		trace_virtio_poll_crowded(q);
	} else {
		trace_virtio_poll_sleep(q);
	}
	if (!vpoll_callbacks_on(q))
		q->ops->later(q);
}

/**
 * virtio_poll_begin - the CPU's thread is about to poll a ring
 * @q: the queue, locked
 *
 * Return: false if it need not, because tasks poll: then the queue has been dropped.
 */
bool virtio_poll_begin(struct virtio_poll_queue *q)
{
	lockdep_assert_held(&q->lock);
	if (q->waiters) {
		vpoll_detach(q);
		return false;
	}
	/* Only now that the thread really runs, see vpoll_attach(). */
	vpoll_callbacks_off(q);
	/* Read before the ring is: what comes in between is taken, and makes this void. */
	if (q->used_idx) {
		q->empty_idx = READ_ONCE(*q->used_idx);
		WRITE_ONCE(q->empty, true);
	}
	return true;
}
EXPORT_SYMBOL_GPL(virtio_poll_begin);

/**
 * virtio_poll_end - the CPU's thread has polled a ring
 * @q: the queue, locked
 * @found: how many answers there were
 *
 * Even with nothing left in flight the queue stays with the poller after a hit: the
 * completion may wake a task, which preempts the thread and submits the next request
 * before that comes round again.
 */
void virtio_poll_end(struct virtio_poll_queue *q, unsigned int found)
{
	enum vpoll_why why;
	u64 now;

	lockdep_assert_held(&q->lock);
	q->stats.polls++;
	if (found) {
		q->stats.hits++;
		q->stats.found += found;
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
	p->caller = current;
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

/*
 * A look at the queue without its lock: is there nothing to do?  All that is read may change
 * meanwhile.  That is noticed by the next look, as it would be had it changed a moment later.
 */
static bool vpoll_nothing_new(struct virtio_poll_queue *q)
{
	u64 start = READ_ONCE(q->poll_start);

	if (!READ_ONCE(q->empty) || READ_ONCE(*q->used_idx) != q->empty_idx)
		return false;
	if (READ_ONCE(q->callbacks) || READ_ONCE(q->waiters) || !READ_ONCE(q->inflight))
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
	p->proved = true;
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
 * The thread did not poll for a tick; WAITING says whether a request was kept waiting.  A
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
		vpoll_let_go(q, VPOLL_CROWDED);
	else if (!q->inflight || q->waiters)
		vpoll_let_go(q, VPOLL_IDLE);
	spin_unlock(&q->lock);
}

/*
 * A tick, while the thread is runnable: does the task that it interrupts want the CPU for
 * itself?  One that also polls now and then looks so, too, when it computes.  Then its next
 * reply is left to the thread, which costs it two switches and says that it was wrong.
 */
static void vpoll_sample(struct virtio_poller *p)
{
	if (current != p->caller && current != this_cpu_read(vpoll_tasks) &&
	    !is_idle_task(current))
		p->wanted = true;
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
		pr_warn("virtio_poll: the poller of CPU %u is not of class SCHED_IDLE\n", cpu);
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

/* See virtio_poll_init(). */
void __virtio_poll_init(struct virtio_poll_queue *q, const struct virtio_poll_ops *ops,
			const struct virtio_poll_settings *settings, struct lock_class_key *key)
{
	spin_lock_init(&q->lock);
	lockdep_set_class(&q->lock, key);
	q->ops = ops;
	q->settings = settings;
}
EXPORT_SYMBOL_GPL(__virtio_poll_init);

/**
 * virtio_poll_ring - give a queue its ring
 * @q: the queue, of which no one else knows yet, or locked
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
	while (READ_ONCE(q->poller))
		usleep_range(100, 1000);
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

static int __init virtio_poll_module_init(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		struct virtio_poller *p = &per_cpu(vpoll_pollers, cpu);

		INIT_LIST_HEAD(&p->queues);
		p->proved = true;
		timer_setup(&p->timer, vpoll_timer, TIMER_PINNED |
			    (housekeeping_test_cpu(cpu, HK_TYPE_TICK) ? TIMER_DEFERRABLE : 0));
	}
	return smpboot_register_percpu_thread(&vpoll_threads);
}

static void __exit virtio_poll_module_exit(void)
{
	unsigned int cpu;

	smpboot_unregister_percpu_thread(&vpoll_threads);
	for_each_possible_cpu(cpu)
		timer_delete_sync(&per_cpu(vpoll_pollers, cpu).timer);
}

/* Before the drivers, where all is built in. */
subsys_initcall(virtio_poll_module_init);
module_exit(virtio_poll_module_exit);

MODULE_DESCRIPTION("Polling of virtqueues in time that the CPU does not need");
MODULE_LICENSE("GPL");
