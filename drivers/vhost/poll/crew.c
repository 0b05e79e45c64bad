// SPDX-License-Identifier: GPL-2.0
/*
 * The threads of a poller, and how one takes the sources over from another.
 *
 * A source may have requests that can sleep (@run of struct vhost_poll_ops): mostly operations on
 * names, and writes into the page cache.  Nearly all of them do not sleep.  So the poller's thread
 * carries them out itself, which saves a task switch.  If one sleeps after all, the scheduler calls
 * the thread's preempt notifier in the middle of the switch to another task.  There the thread
 * passes the poller on: it wakes a spare thread, which goes on with the sources at once.  The
 * thread that sleeps finishes its request as a worker would, and becomes a spare.
 *
 * The same happens to a thread that computes for too long, or that spins for a lock which a running
 * task holds.  A timer of the CPU finds such a thread: it is at the same request in two ticks.
 *
 * Role.  One thread at a time has the role: it polls, and it alone touches the fields of struct
 * vhost_poller and of the sources that belong to the poller.  The role passes on only between
 * crew_begin() and crew_end(), while @armed is set,
 *
 *   - in crew_sched_out(), when the thread goes to sleep: interrupts are off and the run queue's
 *     lock is held;
 *   - in crew_watch(), an interrupt of the thread's own CPU.
 *
 * These functions only store to memory, and queue an irq_work that wakes the successor.  The
 * successor is the spare in @next.  Only the thread with the role chooses it, beforehand, and this
 * thread begins no request without one.
 *
 * The store to @go, a release, hands over all that the old thread wrote before.  The successor's
 * load of @go is the acquire.  A thread that was merely preempted is runnable, and keeps the role.
 *
 * Bounds.  A poller has VHOST_POLL_CREW_MAX threads at most.  Requests of one owner (by its mm)
 * keep VHOST_POLL_CREW_OWNER of them at most.  Requests beyond these bounds go to workers of the
 * device.
 *
 * Back-off.  After a request of a source that took too long, the next CREW_BACKOFF requests of that
 * source go to workers, too.  The same happens after CREW_SLEPT requests in a row that slept, or
 * after more of them if some in between did not sleep: a request that sleeps counts as much as
 * CREW_SLEEP_COST that do not.  The back-off doubles each time that this happens again, up to
 * CREW_STRIKES times, and halves after each CREW_GOOD good requests.  It is short at first, because
 * one long request may be the fault of an interrupt, or of a hypervisor below this host.
 *
 * Lifetime.  @recruit adds threads, and they end with the poller.  A thread that lost the role
 * still carries out its request after the source was detached.  So the owner of the source waits
 * for the request by means of its own, and then, in vhost_poll_settle(), until the thread has left
 * the owner's code.  Until then the thread's @src names the source.
 */
#include <linux/err.h>
#include <linux/freezer.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <linux/wait.h>

#include <trace/events/vhost_poll.h>

#include "poll.h"

/* So many requests of a source of weight 100 run before the poller polls its ring again. */
#define CREW_BATCH	8
/* See Back-off. */
#define CREW_BACKOFF	16
#define CREW_STRIKES	4	/* the back-off doubles at most this often */
#define CREW_SLEPT	16
#define CREW_SLEEP_COST	2
#define CREW_GOOD	64
/* A faster tick would take the CPU from the rings. */
#define CREW_TICK_MIN_US	50U
/* With ticks this close, a lower max_run_us takes effect soon. */
#define CREW_TICK_MAX_US	100000U
/* If a thread cannot be created, the poller waits this long before the next attempt. */
#define CREW_RETRY	HZ

#ifdef CONFIG_PREEMPT_NOTIFIERS

/* Pass the role to p->next.  The head of this file says what may be done here. */
static void crew_hand_off(struct poller_hand *hand, bool overran)
{
	struct vhost_poller *p = hand->p;
	struct poller_hand *next = p->next;

	WRITE_ONCE(hand->armed, false);
	WRITE_ONCE(hand->lost, true);
	hand->mm = p->mm;
	p->mm = NULL;
	p->next = NULL;
	p->before = hand;
	p->overran = overran;
	atomic_inc(&p->nr_blocked);
	/* Pairs with the acquire in vhost_crew_wait(). */
	smp_store_release(&next->go, true);
	irq_work_queue(&next->wake);
}

static void crew_sched_out(struct preempt_notifier *notifier,
			   struct task_struct *to)
{
	struct poller_hand *hand =
		container_of(notifier, struct poller_hand, notifier);

	if (hand->armed && !task_is_runnable(current))
		crew_hand_off(hand, false);
}

static u64 crew_tick_ns(void)
{
	unsigned int us = READ_ONCE(vhost_poll_max_run_us);

	if (!us)
		return 0;
	return clamp(us, CREW_TICK_MIN_US, CREW_TICK_MAX_US) *
	       (u64)NSEC_PER_USEC;
}

/*
 * A tick of the timer, on the CPU that started it.  The timer stops if the thread with the role is
 * on another CPU, because it moved or has just taken over there.  That thread starts the timer
 * again on its own CPU.  A preempted thread keeps the role, so the timer goes on for it.
 */
static enum hrtimer_restart crew_watch(struct hrtimer *timer)
{
	struct vhost_poller *p = container_of(timer, struct vhost_poller,
					      watch);
	struct poller_hand *hand = READ_ONCE(p->hand);
	u64 tick = crew_tick_ns();

	WRITE_ONCE(p->ticks, p->ticks + 1);
	if (!tick || !READ_ONCE(hand->armed) ||
	    task_cpu(hand->task) != smp_processor_id())
		goto stop;
	if (hand->task == current) {
		if (p->seen == p->seq) {
			crew_hand_off(hand, true);
			goto stop;
		}
		p->seen = p->seq;
	}
	/* Count from now on, because after a late tick the next one must not come sooner. */
	hrtimer_set_expires(timer, ktime_add_ns(ktime_get(), tick));
	return HRTIMER_RESTART;
stop:
	WRITE_ONCE(p->watching, false);
	return HRTIMER_NORESTART;
}

/* Start the timer on this CPU unless it runs.  Only the thread with the role calls this. */
static void crew_watch_begin(struct vhost_poller *p)
{
	u64 tick = crew_tick_ns();

	/* The timer is active, too, while a tick runs on a CPU that this thread has left. */
	if (!tick || hrtimer_active(&p->watch))
		return;
	p->seen = p->seq - 1;
	WRITE_ONCE(p->watching, true);
	hrtimer_start(&p->watch, ns_to_ktime(tick),
		      HRTIMER_MODE_REL_PINNED_HARD);
}

/*
 * Another task had the CPU, so do not count that time as the request's.  Start the timer again if
 * it has stopped: the thread may have moved to this CPU, and the timer did not find it there.
 */
static void crew_sched_in(struct preempt_notifier *notifier, int cpu)
{
	struct poller_hand *hand =
		container_of(notifier, struct poller_hand, notifier);
	struct vhost_poller *p = hand->p;

	if (!hand->armed)
		return;
	WRITE_ONCE(p->seen, p->seq - 1);
	if (!READ_ONCE(p->watching))
		crew_watch_begin(p);
}

static struct preempt_ops crew_preempt_ops = {
	.sched_in	= crew_sched_in,
	.sched_out	= crew_sched_out,
};

static void crew_listen(struct poller_hand *hand)
{
	preempt_notifier_init(&hand->notifier, &crew_preempt_ops);
	preempt_notifier_register(&hand->notifier);
	hand->listens = true;
}

static void crew_listen_end(struct poller_hand *hand)
{
	if (hand->listens)
		preempt_notifier_unregister(&hand->notifier);
}

#else /* Without notifiers no thread knows when it sleeps.  Workers do all that may sleep. */

#define preempt_notifier_inc()	do { } while (0)
#define preempt_notifier_dec()	do { } while (0)

static void crew_listen(struct poller_hand *hand)
{
}

static void crew_listen_end(struct poller_hand *hand)
{
}

static enum hrtimer_restart crew_watch(struct hrtimer *timer)
{
	return HRTIMER_NORESTART;
}

static void crew_watch_begin(struct vhost_poller *p)
{
}

#endif

static void crew_wake(struct irq_work *work)
{
	struct poller_hand *hand = container_of(work, struct poller_hand, wake);

	wake_up_process(hand->task);
}

static struct poller_hand *crew_new_hand(struct vhost_poller *p)
{
	struct poller_hand *hand;

	hand = kzalloc_node(sizeof(*hand), GFP_KERNEL_ACCOUNT,
			    cpu_to_node(p->cpu));
	if (!hand)
		return ERR_PTR(-ENOMEM);
	hand->p = p;
	hand->wake = IRQ_WORK_INIT_HARD(crew_wake);
	hand->task = kthread_create_on_node(vhost_poller_thread, hand,
					    cpu_to_node(p->cpu),
					    "vhost-poll/%u-%s", p->cpu,
					    p->name);
	if (IS_ERR(hand->task)) {
		struct task_struct *error = hand->task;

		kfree(hand);
		return ERR_CAST(error);
	}
	get_task_struct(hand->task);
	/* This also keeps user space from moving the thread. */
	kthread_bind(hand->task, p->cpu);
	return hand;
}

static void crew_add(struct vhost_poller *p, struct poller_hand *hand)
{
	p->hands[p->nr_hands] = hand;
	/* Pairs with the acquire in crew_size(): a reader of the new count finds the hand. */
	smp_store_release(&p->nr_hands, p->nr_hands + 1);
}

static unsigned int crew_size(const struct vhost_poller *p)
{
	/* Pairs with the release in crew_add(). */
	return smp_load_acquire(&p->nr_hands);
}

static struct poller_hand *crew_find_spare(struct vhost_poller *p)
{
	unsigned int i, nr = crew_size(p);

	for (i = 0; i < nr; i++) {
		/* Pairs with the release in crew_return(). */
		if (smp_load_acquire(&p->hands[i]->spare))
			return p->hands[i];
	}
	return NULL;
}

/*
 * Add a thread.  Once the poller runs, only this work writes @hands, and it never runs twice at a
 * time.  It first looks for a spare, because it may have been queued again while it made the last
 * thread.
 */
static void crew_recruit(struct work_struct *work)
{
	struct vhost_poller *p = container_of(work, struct vhost_poller,
					      recruit);
	struct poller_hand *hand;

	if (p->nr_hands == VHOST_POLL_CREW_MAX || crew_find_spare(p))
		return;
	hand = crew_new_hand(p);
	if (IS_ERR(hand)) {
		WRITE_ONCE(p->recruit_after, jiffies + CREW_RETRY);
		return;
	}
	if (!p->listens) {
		preempt_notifier_inc();
		p->listens = true;
	}
	hand->spare = true;
	crew_add(p, hand);
	wake_up_process(hand->task);
}

/**
 * vhost_crew_init - create the first thread, which has the role
 * @p: the poller, which is new
 *
 * Return: 0 or an error.  vhost_crew_start() lets the thread run.
 */
int vhost_crew_init(struct vhost_poller *p)
{
	struct poller_hand *hand;

	init_waitqueue_head(&p->settled);
	atomic_set(&p->nr_blocked, 0);
	INIT_WORK(&p->recruit, crew_recruit);
	hrtimer_init(&p->watch, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	p->watch.function = crew_watch;
	p->recruit_after = jiffies;
	hand = crew_new_hand(p);
	if (IS_ERR(hand))
		return PTR_ERR(hand);
	hand->go = true;
	crew_add(p, hand);
	p->task = hand->task;
	return 0;
}

/**
 * vhost_crew_start - let the first thread run
 * @p: the poller, after vhost_crew_init()
 */
void vhost_crew_start(struct vhost_poller *p)
{
	wake_up_process(p->task);
}

/**
 * vhost_crew_stop - end all threads
 * @p: the poller; no source is attached to it, and no thread carries out a request any more
 */
void vhost_crew_stop(struct vhost_poller *p)
{
	unsigned int i;

	/* No thread queues it again, because only a thread with sources does so. */
	cancel_work_sync(&p->recruit);
	for (i = 0; i < p->nr_hands; i++)
		kthread_stop(p->hands[i]->task);
	hrtimer_cancel(&p->watch);
	for (i = 0; i < p->nr_hands; i++)
		irq_work_sync(&p->hands[i]->wake);
	if (p->listens)
		preempt_notifier_dec();
}

/**
 * vhost_crew_free - free what vhost_crew_init() made
 * @p: the poller, which has stopped, and which no late wake-up uses any more
 */
void vhost_crew_free(struct vhost_poller *p)
{
	unsigned int i;

	for (i = 0; i < p->nr_hands; i++) {
		put_task_struct(p->hands[i]->task);
		kfree(p->hands[i]);
	}
}

/* A thread that has lost the role drops the mm and the source that it took along. */
static void crew_return(struct poller_hand *hand)
{
	struct vhost_poller *p = hand->p;
	struct mm_struct *mm = hand->mm;

	/* Drop the mm first, because the owner may wait for the last user of its mm. */
	if (mm) {
		kthread_unuse_mm(mm);
		mmput_async(mm);
	}
	hand->mm = NULL;
	hand->lost = false;
	WRITE_ONCE(hand->owner, NULL);
	atomic_dec(&p->nr_blocked);
	/* Pairs with the acquire in crew_is_in(): this thread has left the owner's code. */
	smp_store_release(&hand->src, NULL);
	wake_up_all(&p->settled);
	/* Pairs with the acquire in crew_find_spare(). */
	smp_store_release(&hand->spare, true);
}

/* Choose the successor.  Only the thread with the role calls this. */
static bool crew_choose_next(struct vhost_poller *p)
{
	struct poller_hand *spare = crew_find_spare(p);

	if (spare) {
		spare->spare = false;
		/*
		 * This moves a sleeping thread without a wait.  It waits for one that has just
		 * become a spare and still runs.
		 */
		if (!READ_ONCE(p->away))
			set_cpus_allowed_ptr(spare->task, cpumask_of(p->cpu));
		p->next = spare;
		return true;
	}
	if (IS_ENABLED(CONFIG_PREEMPT_NOTIFIERS) &&
	    crew_size(p) < VHOST_POLL_CREW_MAX &&
	    time_after_eq(jiffies, READ_ONCE(p->recruit_after)))
		queue_work(system_unbound_wq, &p->recruit);
	return false;
}

/*
 * The hotplug callbacks move @task as well.  Repeat until @away did not change meanwhile,
 * so that the last state wins.
 */
static void crew_place(struct vhost_poller *p)
{
	bool away;

	do {
		/* Pairs with the barrier in vhost_poller_move(). */
		smp_mb();
		away = READ_ONCE(p->away);
		set_cpus_allowed_ptr(current, away ? p->elsewhere :
						     cpumask_of(p->cpu));
	} while (away != READ_ONCE(p->away));
}

/*
 * The thread that lost the role goes to another CPU, so that it does not take turns with the
 * one that polls.  It stays if it has migration disabled, because set_cpus_allowed_ptr()
 * would wait for it.
 */
static void crew_dismiss(struct vhost_poller *p, struct poller_hand *before)
{
#ifdef CONFIG_SMP
	if (READ_ONCE(before->task->migration_disabled))
		return;
#endif
	if (!READ_ONCE(p->away))
		set_cpus_allowed_ptr(before->task, p->elsewhere);
}

/* Back off if the source's requests keep the threads.  Workers get them for a while then. */
static void crew_learn(struct vhost_poller *p, struct vhost_poll_source *src)
{
	src->slept += CREW_SLEEP_COST;
	if (!p->overran && src->slept < CREW_SLEPT * CREW_SLEEP_COST)
		return;
	src->backoff = CREW_BACKOFF << src->strikes;
	src->strikes = min(src->strikes + 1, CREW_STRIKES);
	src->good = 0;
	src->slept = min(src->slept, (CREW_SLEPT - 1) * CREW_SLEEP_COST);
}

static void crew_take_over(struct poller_hand *hand)
{
	struct vhost_poller *p = hand->p;
	struct poller_hand *before = p->before;

	WRITE_ONCE(p->hand, hand);
	WRITE_ONCE(p->task, current);
	p->clock = ktime_get_ns();
	p->round_ns = 0;
	if (!before)
		return;
	p->before = NULL;
	crew_place(p);
	/* Do this first, because the next thread may be the same one, back already. */
	crew_dismiss(p, before);
	crew_choose_next(p);
	WRITE_ONCE(p->count.handoffs, p->count.handoffs + 1);
	trace_vhost_poll_handoff(p->cpu, before->task->pid, current->pid);
	/*
	 * Go on with the sources behind the one of the request.  That source is still attached,
	 * because only the thread with the role detaches sources.
	 */
	list_move(&p->sources, &p->at->node);
	crew_learn(p, p->at);
}

/**
 * vhost_crew_wait - sleep until this thread gets the role
 * @hand: the calling thread
 *
 * Return: true if it has the role now, false if it has to end.
 */
bool vhost_crew_wait(struct poller_hand *hand)
{
	if (hand->lost)
		crew_return(hand);
	for (;;) {
		/* A spare thread holds nothing, so it may be frozen here. */
		set_current_state(TASK_IDLE | TASK_FREEZABLE);
		if (kthread_should_stop())
			break;
		/* Pairs with the release in crew_hand_off(). */
		if (smp_load_acquire(&hand->go)) {
			__set_current_state(TASK_RUNNING);
			hand->go = false;
			crew_take_over(hand);
			return true;
		}
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	crew_listen_end(hand);
	return false;
}

static bool crew_owner_has_many(const struct vhost_poller *p,
				const struct vhost_poll_source *src)
{
	unsigned int i, nr = crew_size(p), blocked = 0;

	for (i = 0; i < nr; i++)
		blocked += READ_ONCE(p->hands[i]->src) &&
			   p->hands[i] != p->hand &&
			   READ_ONCE(p->hands[i]->owner) == src->mm;
	return blocked >= VHOST_POLL_CREW_OWNER;
}

/* Whether this thread may carry out a request of the source. */
static bool crew_may_run(struct vhost_poller *p, struct vhost_poll_source *src)
{
	/* The request might wait for a thread of the file system that is frozen already. */
	if (unlikely(freezing(current)))
		return false;
	if (src->backoff) {
		src->backoff--;
		return false;
	}
	if (unlikely(!p->next) && !crew_choose_next(p))
		return false;
	return likely(!atomic_read(&p->nr_blocked)) ||
	       !crew_owner_has_many(p, src);
}

/* From here to crew_end() this thread may lose the role. */
static void crew_begin(struct vhost_poller *p, struct vhost_poll_source *src)
{
	struct poller_hand *hand = p->hand;

	if (unlikely(!hand->listens))
		crew_listen(hand);
	p->at = src;
	p->seq++;
	WRITE_ONCE(hand->owner, src->mm);
	WRITE_ONCE(hand->src, src);
	barrier(); /* The stores above come before an interrupt, or the scheduler, sees @armed. */
	WRITE_ONCE(hand->armed, true);
	barrier(); /* Set @armed before @run can sleep, and before @watching is read. */
	if (unlikely(!READ_ONCE(p->watching)))
		crew_watch_begin(p);
}

/* Returns whether the thread still has the role; if not, it must not touch the poller. */
static bool crew_end(struct poller_hand *hand)
{
	barrier(); /* All of @run comes before @armed is cleared. */
	WRITE_ONCE(hand->armed, false);
	barrier(); /* From here on @lost does not change. */
	if (unlikely(READ_ONCE(hand->lost)))
		return false;
	WRITE_ONCE(hand->src, NULL);
	return true;
}

/**
 * vhost_crew_run - carry out requests of a source that may sleep
 * @p: the poller; the caller has the role
 * @src: the source, which has such requests
 * @done: the function adds the number of requests that it carried out or gave to workers
 *
 * Return: false if the thread lost the role, and must not touch the poller any more.
 */
bool vhost_crew_run(struct vhost_poller *p, struct vhost_poll_source *src,
		    unsigned int *done)
{
	unsigned int batch = max(1U, CREW_BATCH * READ_ONCE(src->weight) / 100);
	unsigned int begun = READ_ONCE(p->ticks), i;
	struct poller_hand *hand = p->hand;
	void *request;

	for (i = 0; i < batch && src->waiting; i++) {
		/* No single request took too long, but all of them together did. */
		if (READ_ONCE(p->ticks) - begun >= 2)
			break;
		request = src->ops->pop(src);
		if (!crew_may_run(p, src)) {
			src->ops->punt(request);
			continue;
		}
		crew_begin(p, src);
		src->ops->run(request);
		if (!crew_end(hand))
			return false;
		if (unlikely(src->slept))
			src->slept--;
		if (unlikely(src->strikes) && ++src->good == CREW_GOOD) {
			src->strikes--;
			src->good = 0;
		}
		WRITE_ONCE(p->count.hot, p->count.hot + 1);
	}
	*done += i;
	return true;
}

static bool crew_is_in(struct vhost_poller *p, const struct vhost_poll_source *src)
{
	unsigned int i, nr = crew_size(p);

	for (i = 0; i < nr; i++) {
		/* Pairs with the release in crew_return(). */
		if (smp_load_acquire(&p->hands[i]->src) == src)
			return true;
	}
	return false;
}

/**
 * vhost_poll_settle - wait until no thread is in a source's code
 * @poller: the poller that the source was attached to; the caller has a reference
 * @src: the source, which is detached
 * @timeout: in jiffies, or MAX_SCHEDULE_TIMEOUT
 *
 * A thread that slept in @run of the source may still be there.  A caller that gives no limit makes
 * sure that the request can end.  This function may sleep.
 *
 * Return: false if a thread is there still.
 */
bool vhost_poll_settle(struct vhost_poller *poller,
		       const struct vhost_poll_source *src, long timeout)
{
	return wait_event_idle_timeout(poller->settled, !crew_is_in(poller, src), timeout);
}
EXPORT_SYMBOL_GPL(vhost_poll_settle);
