// SPDX-License-Identifier: GPL-2.0
/*
 * Who looks at the ring.
 *
 * One kthread for each CPU, of class SCHED_IDLE: it runs in the time in which
 * its CPU would otherwise halt, and anything that wakes there preempts it.  So
 * with one vCPU the application loses nothing, and while I/O is outstanding the
 * vCPU does not halt.  The other candidates, and why they lost, are in
 * Documentation/block/virtio-pvblk.rst.
 *
 * A queue is put on the list of the CPU that submits (or reaps) while nobody
 * looks, and leaves it when nothing is in flight, when the wait has become too
 * long (adaptive), when the mode says so, or when it is crowded out.
 *
 * Crowded out
 * -----------
 * Where the CPU is busy with other tasks, a SCHED_IDLE thread gets next to
 * nothing, and completions would lie in the ring.  So a timer, one tick long,
 * runs as long as the list is not empty; when the thread did not get a single
 * look between two ticks, all queues of the list are handed to interrupts, and
 * none comes on this CPU for a while, which doubles each time up to 1.6 seconds.
 * The timer is deferrable: on an idle CPU there is nothing to find out, and it
 * must not wake it.  (Not where the tick may be off beside a task that runs,
 * nohz_full: a deferrable timer would wait for that task.)  Where nothing is in
 * flight nobody is kept waiting: a task that computes between one I/O and the next
 * does not crowd out its own poller.
 *
 * All of struct pvblk_poller is touched on its own CPU only, by the thread, the
 * timer, submitters and reaping softirqs alike, with bottom halves off where it is
 * more than a look whether there is anything to do; so it needs no lock.
 */
#include "pvblk.h"

#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/isolation.h>
#include <linux/smpboot.h>
#include <linux/timer.h>
#include <uapi/linux/sched.h>
#include <uapi/linux/sched/types.h>

#include <trace/events/virtio_pvblk.h>

#define PVBLK_CROWDED_MIN	msecs_to_jiffies(50)
#define PVBLK_CROWDED_SHIFT	5	/* up to 1.6 s */
#define PVBLK_CROWDED_FORGET	(4 * HZ)

struct pvblk_poller {
	struct list_head queues;
	struct timer_list timer;
	unsigned long looks;		/* of the thread, each at one queue */
	unsigned long seen;		/* looks at the last tick */
	unsigned long crowded_until;	/* jiffies; 0: not crowded */
	unsigned long crowded_last;	/* jiffies, when it was found so */
	unsigned int crowded_shift;	/* how often in a row */
	bool parked;			/* its CPU is going away */
};

static DEFINE_PER_CPU(struct pvblk_poller, pvblk_pollers);
static DEFINE_PER_CPU(struct task_struct *, pvblk_tasks);

static u64 poll_max_ns(const struct pvblk_vq *vq)
{
	return (u64)READ_ONCE(vq->dev->poll_max_us) * NSEC_PER_USEC;
}

/* Whether this CPU has time for its poller. */
static bool cpu_can_poll(struct pvblk_poller *p)
{
	if (p->parked || (p->crowded_until && time_before(jiffies, p->crowded_until)))
		return false;
	p->crowded_until = 0;
	return true;
}

/* For a wait that begins: it is counted. */
static bool decide_to_poll(struct pvblk_vq *vq)
{
	enum pvblk_mode mode = READ_ONCE(vq->dev->mode);

	if (mode == PVBLK_IRQ || !cpu_can_poll(this_cpu_ptr(&pvblk_pollers)))
		return false;
	return mode == PVBLK_BUSY || pvblk_policy_polls(&vq->policy, poll_max_ns(vq));
}

/*
 * Callbacks stay as they are: the thread turns them off once it really runs,
 * so a queue that tries again after having been crowded out stays covered.
 */
static struct task_struct *attach(struct pvblk_vq *vq)
{
	struct pvblk_poller *p = this_cpu_ptr(&pvblk_pollers);
	bool first = list_empty(&p->queues);

	WRITE_ONCE(vq->poller, p);
	vq->poll_start = 0;
	list_add_tail(&vq->node, &p->queues);
	trace_virtio_pvblk_poll(vq);
	if (!timer_pending(&p->timer)) {
		p->seen = p->looks - 1;
		mod_timer(&p->timer, jiffies + 1);
	}
	return first ? this_cpu_read(pvblk_tasks) : NULL;
}

/* On the CPU of vq->poller only. */
static void detach(struct pvblk_vq *vq)
{
	list_del(&vq->node);
	/* pvblk_release_rings() waits for this */
	WRITE_ONCE(vq->poller, NULL);
}

/**
 * pvblk_watch - see to it that somebody looks at a queue with requests in flight
 * @vq: the queue, locked
 *
 * Return: a thread to wake once the lock is dropped, or NULL.
 */
struct task_struct *pvblk_watch(struct pvblk_vq *vq)
{
	lockdep_assert_held(&vq->lock);
	if (vq->iopoll)
		return NULL;
	if (!vq->wait_start && READ_ONCE(vq->dev->mode) == PVBLK_ADAPTIVE)
		vq->wait_start = local_clock();
	if (vq->poller)
		return NULL;

	/* What was left to an interrupt stays so until that has come. */
	if (vq->callbacks && vq->inflight > 1)
		return NULL;
	if (decide_to_poll(vq))
		return attach(vq);
	if (!vq->callbacks && !pvblk_callbacks_on(vq))
		queue_work(system_bh_highpri_wq, &vq->reap);
	return NULL;
}

/**
 * pvblk_wait_over - completions have come in
 * @vq: the queue, locked
 * @polled: seen by a poller, not after an interrupt
 */
void pvblk_wait_over(struct pvblk_vq *vq, bool polled)
{
	u64 now;

	lockdep_assert_held(&vq->lock);
	if (vq->iopoll)
		return;
	if (READ_ONCE(vq->dev->mode) != PVBLK_ADAPTIVE) {
		vq->wait_start = 0;
		return;
	}
	now = local_clock();
	/* The clocks of two CPUs may differ a little. */
	if (vq->wait_start && (s64)(now - vq->wait_start) > 0)
		pvblk_policy_learn(&vq->policy, now - vq->wait_start, poll_max_ns(vq), polled);
	vq->wait_start = vq->inflight ? now : 0;
	vq->poll_start = vq->wait_start;
}

/* Why a queue leaves the list. */
enum why { STAYS, IDLE, TOO_LONG, UNWANTED, CROWDED, PARKED };

/* The thread found nothing, but something is in flight: is the queue to stay? */
static enum why judge(struct pvblk_vq *vq)
{
	enum pvblk_mode mode = READ_ONCE(vq->dev->mode);
	u64 now;

	if (mode == PVBLK_BUSY)
		return STAYS;
	if (mode == PVBLK_IRQ)
		return UNWANTED;
	/* Counted from when the thread began to look, not from submission. */
	now = local_clock();
	if (!vq->poll_start)
		vq->poll_start = now;
	if ((s64)(now - vq->poll_start) < (s64)pvblk_policy_budget(&vq->policy, poll_max_ns(vq)))
		return STAYS;
	return TOO_LONG;
}

/* The thread got no look for a tick: leave all to interrupts, longer each time. */
static void back_off(struct pvblk_poller *p)
{
	if (time_after(jiffies, p->crowded_last + PVBLK_CROWDED_FORGET))
		p->crowded_shift = 0;
	p->crowded_last = jiffies;
	/* Zero stands for "not crowded". */
	p->crowded_until = (jiffies + (PVBLK_CROWDED_MIN << p->crowded_shift)) ?: 1;
	if (p->crowded_shift < PVBLK_CROWDED_SHIFT)
		p->crowded_shift++;
}

/* Off the list; what is in flight is left to interrupts. */
static void let_go(struct pvblk_vq *vq, enum why why)
{
	detach(vq);
	if (!vq->inflight)
		return;
	if (why != CROWDED) {
		if (why == TOO_LONG)
			pvblk_policy_gave_up(&vq->policy, poll_max_ns(vq));
		vq->stats.sleeps++;
		trace_virtio_pvblk_sleep(vq);
	}
	if (!pvblk_callbacks_on(vq))
		queue_work(system_bh_highpri_wq, &vq->reap);
}

static unsigned int look_once(struct pvblk_vq *vq, struct pvblk_done *done, bool thread)
{
	unsigned int n;

	/* Only now that it really runs, see attach(). */
	if (thread)
		pvblk_callbacks_off(vq);
	n = pvblk_look(vq, done, thread);
	vq->stats.polls++;
	vq->stats.hits += !!n;
	return n;
}

/*
 * Even with nothing left in flight the queue stays on the list after a hit: the
 * completion may wake a task, which preempts the thread and submits the next
 * request before that comes round again.
 */
static void thread_looks(struct pvblk_vq *vq)
{
	struct pvblk_done done = PVBLK_DONE(done);
	enum why why;

	spin_lock(&vq->lock);
	if (!look_once(vq, &done, true)) {
		why = vq->inflight ? judge(vq) : IDLE;
		if (why != STAYS)
			let_go(vq, why);
	}
	spin_unlock(&vq->lock);
	pvblk_finish(&done);
}

/* What the timer finds in flight was kept waiting, even if it has an answer. */
static void count_crowded(struct pvblk_vq *vq)
{
	if (!vq->inflight)
		return;
	vq->stats.crowded++;
	vq->stats.sleeps++;
	trace_virtio_pvblk_crowded(vq);
}

/* The thread did not look for a tick; WAITING says whether that kept anybody. */
static void timer_looks(struct pvblk_vq *vq, bool waiting)
{
	struct pvblk_done done = PVBLK_DONE(done);
	unsigned int n;

	spin_lock(&vq->lock);
	if (waiting)
		count_crowded(vq);
	n = look_once(vq, &done, false);
	if (waiting)
		let_go(vq, CROWDED);
	else if (!n && !vq->inflight)
		let_go(vq, IDLE);
	spin_unlock(&vq->lock);
	pvblk_finish(&done);
}

static void parking_looks(struct pvblk_vq *vq)
{
	struct pvblk_done done = PVBLK_DONE(done);

	spin_lock(&vq->lock);
	look_once(vq, &done, false);
	let_go(vq, PARKED);
	spin_unlock(&vq->lock);
	pvblk_finish(&done);
}

static int thread_should_run(unsigned int cpu)
{
	return !list_empty(&per_cpu(pvblk_pollers, cpu).queues);
}

/*
 * One look at the next queue; the smpboot loop around calls again as long as
 * there are any.  No cpu_relax(): a PAUSE in a loop makes hosts with pause-loop
 * exiting take the CPU away, which is an exit.
 */
static void thread_fn(unsigned int cpu)
{
	struct pvblk_poller *p = &per_cpu(pvblk_pollers, cpu);
	struct pvblk_vq *vq;

	local_bh_disable();
	p->looks++;
	vq = list_first_entry_or_null(&p->queues, struct pvblk_vq, node);
	if (vq) {
		list_rotate_left(&p->queues);
		thread_looks(vq);
	}
	local_bh_enable();
	cond_resched_tasks_rcu_qs();
}

static bool anything_in_flight(struct pvblk_poller *p)
{
	struct pvblk_vq *vq;

	list_for_each_entry(vq, &p->queues, node)
		if (READ_ONCE(vq->inflight))
			return true;
	return false;
}

static void crowded_timer(struct timer_list *t)
{
	struct pvblk_poller *p = from_timer(p, t, timer);
	struct pvblk_vq *vq, *next;

	if (p->looks == p->seen) {
		bool waiting = anything_in_flight(p);

		if (waiting)
			back_off(p);
		list_for_each_entry_safe(vq, next, &p->queues, node)
			timer_looks(vq, waiting);
	}
	if (list_empty(&p->queues))
		return;
	p->seen = p->looks;
	mod_timer(&p->timer, jiffies + 1);
}

static void thread_setup(unsigned int cpu)
{
	const struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_IDLE,
	};

	if (sched_setattr_nocheck(current, &attr))
		pr_warn("virtio_pvblk: poller of CPU %u is not of class SCHED_IDLE\n", cpu);
}

/* The CPU is going away: interrupts take over what it polls. */
static void thread_park(unsigned int cpu)
{
	struct pvblk_poller *p = &per_cpu(pvblk_pollers, cpu);
	struct pvblk_vq *vq, *next;

	local_bh_disable();
	p->parked = true;
	list_for_each_entry_safe(vq, next, &p->queues, node)
		parking_looks(vq);
	local_bh_enable();
	timer_delete_sync(&p->timer);
}

static void thread_unpark(unsigned int cpu)
{
	per_cpu(pvblk_pollers, cpu).parked = false;
}

static struct smp_hotplug_thread pvblk_threads = {
	.store			= &pvblk_tasks,
	.setup			= thread_setup,
	.park			= thread_park,
	.unpark			= thread_unpark,
	.thread_should_run	= thread_should_run,
	.thread_fn		= thread_fn,
	.thread_comm		= "pvblk/%u",
};

/**
 * pvblk_release_rings - wait until nobody knows the device's rings
 * @dev: the device; reset, nothing in flight, and no request can come
 *
 * The thread finds nothing in flight and lets go; if it gets no CPU time, the
 * timer does it.  And a request may have been answered and be long gone before
 * the one who submitted it has come round to the kick: that happens within the
 * section that quiescing waits for.
 */
void pvblk_release_rings(struct pvblk_dev *dev)
{
	unsigned int i;

	blk_mq_wait_quiesce_done(&dev->tag_set);
	for (i = 0; i < dev->nr_vqs; i++) {
		struct pvblk_vq *vq = &dev->vqs[i];

		while (READ_ONCE(vq->poller))
			usleep_range(100, 1000);
		/* Whoever let go may still be about to unlock. */
		spin_lock_bh(&vq->lock);
		/* An interrupt may come all the same: reaping must leave the ring alone. */
		vq->callbacks = false;
		spin_unlock_bh(&vq->lock);
	}
}

int pvblk_pollers_init(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		struct pvblk_poller *p = &per_cpu(pvblk_pollers, cpu);

		INIT_LIST_HEAD(&p->queues);
		timer_setup(&p->timer, crowded_timer, TIMER_PINNED |
			    (housekeeping_test_cpu(cpu, HK_TYPE_TICK) ? TIMER_DEFERRABLE : 0));
	}
	return smpboot_register_percpu_thread(&pvblk_threads);
}

void pvblk_pollers_exit(void)
{
	unsigned int cpu;

	smpboot_unregister_percpu_thread(&pvblk_threads);
	for_each_possible_cpu(cpu)
		timer_delete_sync(&per_cpu(pvblk_pollers, cpu).timer);
}
