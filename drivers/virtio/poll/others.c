// SPDX-License-Identifier: GPL-2.0
/*
 * Whether other tasks want the CPU.
 *
 * Beside other tasks a SCHED_IDLE thread gets next to no CPU time, so answers would lie in the
 * ring.  A task that polls for its own answer must not keep other tasks waiting, either.
 *
 * For less than two ticks
 * -----------------------
 * A preempt notifier runs when a task takes the CPU from the thread.  It turns on the callbacks of
 * the queues with requests in flight.  They stay on until all that was in flight is answered or the
 * thread runs again.  The notifier leaves them off
 *
 * - for the first task after an answer, because that is most likely the task that waited for it;
 * - for the task that submitted last: it waits for answers, so it will not run for long;
 * - for kernel threads and io_uring's workers: they run for some microseconds, mostly for the
 *   sake of I/O.
 *
 * If a task submits a request beside such a task and then sleeps, the notifier does not see it,
 * because the thread does not run in between.  So the submitter turns callbacks on as well if it
 * knows that others run before the thread does.  It knows that
 *
 * - when a queue is the first of its CPU, so that the thread is not ready to run yet:
 *   single_task_running() says then whether the submitter is alone (vpoll_others_first());
 * - when the thread is away, and the submitter has slept since it submitted last.  The thread was
 *   ready all that time, so it would have run if no other task had run before it.  Such a task has
 *   slept by now, or is still ready, because the submitter took the CPU from it;
 * - while other tasks come often.
 *
 * No rule looks at how long a task runs, because a task that computes before it submits is not one
 * of the other tasks.  One case is left.  The thread is ready, but is not away: it found an answer,
 * and the task that waited took the CPU.  If another task becomes ready before that one submits
 * again and sleeps, the submitter does not see it.  The scheduler exports only whether one or more
 * tasks are ready, and the thread is one of them.  So a burst of the other task makes one request
 * wait.  It makes no second one wait, because that is submitted after the thread has run.
 *
 * Starved: for two ticks and more
 * -------------------------------
 * A timer, two ticks long, runs as long as the list of queues is not empty.  If the thread
 * did not poll once between two runs of the timer, the timer leaves all queues of the list to
 * interrupts.  During the back-off that follows, no queue is put on the list.  The back-off doubles
 * each time, up to 1.6 seconds.
 *
 * The timer is deferrable, because on an idle CPU no task can starve the thread, and the timer
 * must not wake that CPU.  On a nohz_full CPU it is not deferrable: the tick may be off there
 * while a task runs, and a deferrable timer would wait for that task.
 *
 * While nothing is in flight no task waits for an answer, so a task that computes between one I/O
 * and the next does not starve its own poller.
 *
 * A retry beside a task that computes all the time could strand a request.  The thread has the CPU
 * for a moment now and then.  If it finds an answer there, the next request is the case that is
 * left, above.  Callbacks for the requests of a retry are no help, because interrupts keep the
 * thread from running, and so from showing that it could (virtio-poll.rst has the two attempts).
 *
 * So the poller finds out during the back-off, while interrupts are on anyway.  In the last 50 ms
 * the timer samples which task is at work.  If a task computes there (virtio_poll_computes_note()),
 * the next back-off follows instead of a retry.  The tasks that interrupts wake do not look like
 * such a task: a task that waits for I/O sleeps between two samples, or submitted last.  If the CPU
 * was idle, or had no I/O for 50 ms after the back-off, the samples say nothing, and the poller
 * retries.
 *
 * The host's other tasks
 * ----------------------
 * The guest sees them as steal time.  In adaptive mode the policy looks at the share of steal time
 * in the last 100 ms or more: before each wait that it would poll through, and in the timer for
 * queues that stay with the thread.  A poll of a ring does not read steal time.  The tick accounts
 * it, and the tick runs while the thread does.
 */
#include "poll.h"

#include <linux/jiffies.h>
#include <linux/kernel_stat.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/stat.h>

#define VPOLL_STARVED_MIN	msecs_to_jiffies(50)
#define VPOLL_STARVED_SHIFT	5	/* up to 1.6 s */
#define VPOLL_STARVED_FORGET	(4 * HZ)
/* Tasks come often if two come within this time. */
#define VPOLL_OFTEN_NS		max(5 * NSEC_PER_MSEC, 2 * TICK_NSEC)
/* A task that has not submitted or polled for this long counts as another task. */
#define VPOLL_USER_FORGET	msecs_to_jiffies(100)

/* Whether the poller leaves all queues to interrupts, because other tasks have starved it. */
bool vpoll_backs_off(const struct virtio_poller *p)
{
	return p->starved_until && time_before(jiffies, p->starved_until);
}

/*
 * When the timer samples next in a back-off.  Only samples near the end matter.  A timer may run
 * late by an eighth of its time, so it is set to run that much earlier, and then again.
 */
unsigned long vpoll_next_sample(const struct virtio_poller *p)
{
	unsigned long first = p->starved_until - VPOLL_STARVED_MIN;
	long left = first - jiffies;

	first -= max(left, 0L) / 8;
	return time_after(first, jiffies + 1) ? first : jiffies + 1;
}

/*
 * Whether this CPU has time for its poller.  When a back-off ends beside a task that computes,
 * the next back-off begins instead of a retry.
 */
bool vpoll_cpu_has_time(struct virtio_poller *p)
{
	if (p->parked || vpoll_backs_off(p))
		return false;
	if (likely(!p->starved_until))
		return true;
	if (virtio_poll_computes_lately(&p->computes, local_clock())) {
		vpoll_back_off(p);
		mod_timer(&p->timer, vpoll_next_sample(p));
		return false;
	}
	p->starved_until = 0;
	return true;
}

/**
 * virtio_poll_cpu_wanted - whether a task that polls should leave its CPU to others
 * @q: the queue that the task polls, or is about to poll
 *
 * Preemption is off.
 *
 * If the CPU's thread has another queue to poll, it counts as another task.  The tasks that wait
 * for answers of that queue sleep, so only the thread shows that they need the CPU.
 *
 * single_task_running() says whether the task is alone on its CPU.  It is not while this
 * CPU's thread is runnable, so the function has to tell the thread from other tasks.  If
 * the thread is not runnable, the others are other tasks.  If it is, p->wanted decides.
 * It is set when a task takes the CPU or starves the thread, and when a tick finds a
 * task at work that does not poll (vpoll_sample()).  It is cleared when the thread runs: a
 * SCHED_IDLE thread mostly runs when no other task wants the CPU.  It does run a little beside
 * others, and then the next tick sets @wanted again.
 *
 * Return: true if the task should stop polling.
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

/**
 * virtio_poll_cpu_stolen - whether the host takes so much of this CPU that it should not poll
 * @now: local_clock(), which the caller has read already
 *
 * Bottom halves are off.  Each call is an observation of the CPU's steal time.  Callers ignore it
 * in busy mode.
 *
 * Return: true if a wait that begins should be left to an interrupt.
 */
bool virtio_poll_cpu_stolen(u64 now)
{
	return virtio_poll_steal_too_much(&this_cpu_ptr(&vpoll_pollers)->steal, now,
					  kcpustat_this_cpu->cpustat[CPUTIME_STEAL]);
}
EXPORT_SYMBOL_GPL(virtio_poll_cpu_stolen);

/*
 * Remember the task that submits or polls.  Kernel threads work for other tasks, and in a
 * softirq current is only the task that was interrupted.
 */
void vpoll_note_user(struct virtio_poller *p)
{
	if (!in_task() || current->flags & PF_KTHREAD)
		return;
	p->user = current;
	p->user_seen = jiffies;
}

static bool vpoll_is_user(const struct virtio_poller *p, const struct task_struct *task)
{
	return task == p->user && time_before(jiffies, p->user_seen + VPOLL_USER_FORGET);
}

/*
 * Remember the task that submits, and how often it has slept.  Returns whether it has slept since
 * it submitted last on this CPU.  The answer is true as well if another task submitted last,
 * because the tasks have changed in between.  In an interrupt the answer is false, because the
 * interrupted task may be any task.
 */
bool vpoll_note_submitter(struct virtio_poller *p)
{
	bool slept;

	if (!in_task())
		return false;
	slept = p->submitter != current || p->submitter_slept != current->nvcsw;
	p->submitter = current;
	p->submitter_slept = current->nvcsw;
	return slept;
}

/*
 * Whether other tasks may keep the thread from running soon, so that its queues need interrupts
 * until it runs.  Without them the first answer after each back-off would lie in the ring until the
 * timer notices.
 */
bool vpoll_needs_cover(struct virtio_poller *p)
{
	/* The clocks of two CPUs may differ a little. */
	return READ_ONCE(p->starved) ||
	       (READ_ONCE(p->frequent) &&
		(s64)(local_clock() - READ_ONCE(p->preempted)) < (s64)VPOLL_OFTEN_NS);
}

/*
 * The thread did not poll for two ticks, or would not be able to, so leave new waits to interrupts,
 * longer each time.  The caller has the timer run on.
 */
void vpoll_back_off(struct virtio_poller *p)
{
	if (time_after(jiffies, p->starved_last + VPOLL_STARVED_FORGET))
		p->starved_shift = 0;
	p->starved_last = jiffies;
	p->wanted = true;
	WRITE_ONCE(p->starved, true);
	/* Zero stands for "not starved". */
	p->starved_until = (jiffies + (VPOLL_STARVED_MIN << p->starved_shift)) ?: 1;
	if (p->starved_shift < VPOLL_STARVED_SHIFT)
		p->starved_shift++;
}

static bool vpoll_is_other(const struct virtio_poller *p, const struct task_struct *task)
{
	return !vpoll_is_user(p, task) && !is_idle_task(task) &&
	       !(task->flags & (PF_KTHREAD | PF_IO_WORKER));
}

/*
 * Called in a tick while the thread is runnable or backs off, to find out whether the interrupted
 * task keeps the CPU from it.  The task that used a queue last (p->user) does not count, even if it
 * computes, because it most likely waits for answers.  So a task that polls here stops for that
 * task only when the scheduler asks it to.
 */
void vpoll_sample(struct virtio_poller *p, u64 now)
{
	if (vpoll_is_other(p, current))
		virtio_poll_computes_note(&p->computes, current, current->nvcsw, now);
	if (!vpoll_is_user(p, current) && current != this_cpu_read(vpoll_tasks) &&
	    !is_idle_task(current))
		p->wanted = true;
}

/*
 * Whether other tasks certainly run before the thread, which is about to be woken.  A task that
 * submits is about to sleep, so the tasks that are ready beside it count.  In an interrupt the
 * interrupted task counts, because the interrupt returns to it.
 *
 * While the thread is ready, the function cannot tell and returns false, because
 * single_task_running() counts the thread as well.
 */
bool vpoll_others_first(struct virtio_poller *p)
{
	if (READ_ONCE(this_cpu_read(vpoll_tasks)->on_rq))
		return false;
	return in_task() ? !single_task_running() : vpoll_is_other(p, current);
}

#ifdef CONFIG_PREEMPT_NOTIFIERS

/* The thread leaves its CPU to @next. */
static void vpoll_sched_out(struct preempt_notifier *notifier, struct task_struct *next)
{
	struct virtio_poller *p = container_of(notifier, struct virtio_poller, notifier);
	u64 now;

	if (!vpoll_is_other(p, next))
		return;
	if (p->delivered) {
		p->delivered = false;
		return;
	}
	/* Set p->away first, because an interrupt may come as soon as callbacks are on. */
	WRITE_ONCE(p->away, true);
	if (!vpoll_interrupts_on(p)) {
		WRITE_ONCE(p->away, false);
		return;
	}
	now = local_clock();
	p->wanted = true;
	WRITE_ONCE(p->frequent, now - p->preempted < VPOLL_OFTEN_NS);
	WRITE_ONCE(p->preempted, now);
}

/* The scheduler calls ->sched_in of each notifier without a check for NULL. */
static void vpoll_sched_in(struct preempt_notifier *notifier, int cpu)
{
}

static struct preempt_ops vpoll_preempt_ops = {
	.sched_in	= vpoll_sched_in,
	.sched_out	= vpoll_sched_out,
};

/* The thread calls this and vpoll_notifier_del(). */
void vpoll_notifier_add(struct virtio_poller *p)
{
	preempt_notifier_init(&p->notifier, &vpoll_preempt_ops);
	preempt_notifier_register(&p->notifier);
}

void vpoll_notifier_del(struct virtio_poller *p)
{
	preempt_notifier_unregister(&p->notifier);
}

void vpoll_notifiers_begin(void)
{
	preempt_notifier_inc();
}

void vpoll_notifiers_end(void)
{
	preempt_notifier_dec();
}

#endif
