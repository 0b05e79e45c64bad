// SPDX-License-Identifier: GPL-2.0
/*
 * The thread of a poller: rounds over its sources, sleep and wake-up, attach and detach.
 * A poller may have several threads, and one of them has the role, i.e. it polls.  Here "the
 * thread" is that one; crew.c has the others, and how the role passes from one to another.
 *
 * Ownership.  Only the thread uses the list of sources, the mm in use, the policy and
 * the counters.  So a round takes no lock and no atomic operation, except for those of
 * a source's callbacks.  A caller that attaches or detaches leaves a request in @request,
 * one at a time under @control, and waits for the thread, which looks there between two
 * rounds.  So no callback of the source runs when vhost_poll_detach() returns, except for
 * a @run in which a thread went to sleep and lost the role.
 *
 * Sleep and wake-up.  The thread sets @asleep, then arms its sources, then
 * sleeps until @asleep is 0 again.  A producer of work makes the work visible,
 * then looks at @asleep.  Both have a full barrier between their two steps, so
 * that at least one of them sees the other's store: either arming finds the
 * work, or the producer finds @asleep set, and clears it.  The thread therefore arms
 * with @asleep set, but as a running task, because arming may fault and schedule.
 *
 * The mm.  Callbacks run with their source's mm in use.  The thread has a reference to
 * the mm while it polls, and none while it sleeps, so that a poller that sleeps does not
 * keep the memory of an owner that has exited.  It drops references with mmput_async(),
 * because the rings of other guests would wait while it takes down an address space.
 *
 * Suspend and hibernation.  Once kernel threads are frozen, hibernation takes a snapshot,
 * and later goes on from it.  A file system must not change after the snapshot, so the
 * threads of a poller are freezable.  The kernel freezes user space first: by then no guest
 * runs, and no task of user space attaches, detaches or stops.
 *
 *   - The thread freezes between two rounds, in poller_freeze().  It is not in a source's code
 *     there, holds no lock and no mm, and is not @armed, so the role cannot pass from it.
 *     It does not freeze in its sleep: the freezer wakes it, and poller_wait() returns.
 *   - Before it freezes, it goes on with its rounds until no source has requests in flight,
 *     because a worker may wait for a direct write whose end this thread carries out.
 *     It does so for FREEZE_LIMIT_NS at most: a backend may not answer, and workers, which
 *     freeze as well, keep requests until the thaw.  Sources take nothing new meanwhile, and
 *     the requests that wait for @run go to workers.
 *   - A spare thread freezes in its sleep, in vhost_crew_wait().  If it is given the role while
 *     it is frozen, it takes the role when it is thawed.
 *   - A thread that sleeps in @run cannot freeze.  If its request does not end within the
 *     limit of the freezer (20 s), the kernel gives the suspend up, and all goes on.
 *
 * Frozen threads can be moved to another CPU, so CPUs can go offline meanwhile.
 * A kernel task that is not frozen may detach a source or end a poller.  It waits for the thaw.
 */
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/freezer.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/topology.h>

#define CREATE_TRACE_POINTS
#include <trace/events/vhost_poll.h>

#include "poll.h"

/* Bits of vhost_poll_source.state, which only the thread uses. */
#define SOURCE_ARMED	BIT(0)	/* the thread has called @arm, and not yet @disarm */
#define SOURCE_GONE	BIT(1)	/* the source's mm has no users any more */

#define WEIGHT_MAX	1000

/* The budget of a source of weight 100 in a round. */
#define BUDGET_100	64

/* How long requests in flight may delay the freezing of the thread, which has 20 s in all. */
#define FREEZE_LIMIT_NS	NSEC_PER_SEC

static void poller_drop_mm(struct vhost_poller *p)
{
	struct mm_struct *mm = p->mm;

	if (!mm)
		return;
	p->mm = NULL;
	kthread_unuse_mm(mm);
	mmput_async(mm);
}

static bool poller_switch_mm(struct vhost_poller *p,
			     struct vhost_poll_source *src)
{
	if (src->state & SOURCE_GONE)
		return false;
	poller_drop_mm(p);
	p->round_ns = 0;
	if (!src->mm)
		return true;
	/* An mm without users never gets one again, so do not ask again. */
	if (!mmget_not_zero(src->mm)) {
		src->state |= SOURCE_GONE;
		return false;
	}
	p->mm = src->mm;
	kthread_use_mm(p->mm);
	return true;
}

/* Returns whether callbacks of @src may be called now. */
static inline bool poller_enter(struct vhost_poller *p,
				struct vhost_poll_source *src)
{
	return likely(p->mm == src->mm) || poller_switch_mm(p, src);
}

static int vhost_source_budget(const struct vhost_poll_source *src)
{
	return max(1U, READ_ONCE(src->weight) * BUDGET_100 / 100);
}

/*
 * Returns a pointer to @round_ns, which is 0 if the thread has lost its CPU since it read the
 * clock.  A thread that was preempted knows that only from its counters of context switches.
 */
static u64 *poller_round_clock(struct vhost_poller *p)
{
	unsigned long switches = current->nvcsw + current->nivcsw;

	if (p->switches != switches) {
		p->switches = switches;
		p->round_ns = 0;
	}
	return &p->round_ns;
}

/* Returns false if the thread lost the role, and must not touch the poller any more. */
static bool poller_round(struct vhost_poller *p, unsigned int *work)
{
	struct vhost_poll_source *src;
	int n;

	list_for_each_entry(src, &p->sources, node) {
		if (!poller_enter(p, src))
			continue;
		n = src->ops->poll(src, vhost_source_budget(src), poller_round_clock(p));
		if (n > 0)
			*work += n;
		if (!src->waiting)
			continue;
		p->round_ns = 0;
		if (!vhost_crew_run(p, src, work))
			return false;
		if (src->ops->deliver)
			*work += src->ops->deliver(src, vhost_source_budget(src));
	}
	return true;
}

/*
 * Sum up the requests in flight, and find out when to look next.  Without @all, leave out the
 * sources that wake the poller when a request is done.
 */
static void poller_outlook(struct vhost_poller *p, bool all, u64 now,
			   struct vhost_poll_outlook *out)
{
	struct vhost_poll_source *src;

	out->inflight = 0;
	out->wake_at = VHOST_POLL_FOREVER;
	list_for_each_entry(src, &p->sources, node) {
		if (src->state & SOURCE_GONE)
			continue;
		if (src->retry_ns)
			out->wake_at = min(out->wake_at,
					   max(src->retry_ns, now));
		if (!src->inflight || !(all || src->polled))
			continue;
		out->inflight += src->inflight;
		out->wake_at = min(out->wake_at,
				   vhost_poll_predict(&p->policy, now,
						      src->inflight,
						      src->oldest_ns,
						      src->service_ns,
						      src->polled));
	}
}

/* Have all sources turn notifications on.  Returns true if one of them has work after all. */
static bool poller_arm(struct vhost_poller *p)
{
	struct vhost_poll_source *src;

	list_for_each_entry(src, &p->sources, node) {
		if (!poller_enter(p, src))
			continue;
		src->state |= SOURCE_ARMED;
		if (src->ops->arm(src))
			return true;
	}
	return false;
}

static void poller_disarm(struct vhost_poller *p)
{
	struct vhost_poll_source *src;

	list_for_each_entry(src, &p->sources, node) {
		if (!(src->state & SOURCE_ARMED))
			continue;
		src->state &= ~SOURCE_ARMED;
		if (poller_enter(p, src))
			src->ops->disarm(src);
	}
}

/* Sleep until @until at the latest.  Returns true if the timer ended the wait. */
static bool poller_wait(struct vhost_poller *p, u64 until)
{
	ktime_t expires = ns_to_ktime(until);
	bool timed = false;

	for (;;) {
		/* In TASK_IDLE the thread counts neither as load nor as a hung task. */
		set_current_state(TASK_IDLE);
		if (!READ_ONCE(p->asleep) || kthread_should_stop() || timed ||
		    freezing(current))
			break;
		if (until == VHOST_POLL_FOREVER)
			schedule();
		else
			timed = !schedule_hrtimeout_range(&expires, 0,
							  HRTIMER_MODE_ABS);
	}
	__set_current_state(TASK_RUNNING);
	return timed;
}

static void poller_sleep_begins(struct vhost_poller *p, u64 now)
{
	preempt_disable();
	write_seqcount_begin(&p->sleep_seq);
	p->sleep_since = now;
	write_seqcount_end(&p->sleep_seq);
	preempt_enable();
}

static void poller_sleep_ends(struct vhost_poller *p, u64 now)
{
	preempt_disable();
	write_seqcount_begin(&p->sleep_seq);
	p->sleep_ns += now - p->sleep_since;
	p->sleep_since = 0;
	write_seqcount_end(&p->sleep_seq);
	preempt_enable();
}

/* Returns the mode in force.  While the CPU is offline, the poller must not spin on another one. */
static u32 poller_mode(const struct vhost_poller *p)
{
	return READ_ONCE(p->away) ? VHOST_POLL_MODE_EVENT : READ_ONCE(p->mode);
}

/* Whether an ioctl or the hotplug code needs the thread.  No source knows of that. */
static bool poller_told(const struct vhost_poller *p, u32 mode)
{
	return READ_ONCE(p->request) || poller_mode(p) != mode;
}

static void poller_sleep(struct vhost_poller *p, u32 mode, u64 until,
			 unsigned int inflight)
{
	u64 start = p->clock;
	bool timed;

	p->round_ns = 0;
	WRITE_ONCE(p->asleep, 1);
	/* Pairs with the barrier in vhost_poller_kick(). */
	smp_mb();
	if (poller_arm(p) || poller_told(p, mode))
		goto out;

	poller_drop_mm(p);
	trace_vhost_poll_sleep(p->cpu, inflight,
			       until == VHOST_POLL_FOREVER ? 0 : until - start);
	poller_sleep_begins(p, start);
	timed = poller_wait(p, until);
	p->clock = ktime_get_ns();
	poller_sleep_ends(p, p->clock);
	trace_vhost_poll_wake(p->cpu, timed, p->clock - start);

	WRITE_ONCE(p->count.sleeps, p->count.sleeps + 1);
	if (timed)
		WRITE_ONCE(p->count.sleeps_timed, p->count.sleeps_timed + 1);
	else
		WRITE_ONCE(p->count.wakeups, p->count.wakeups + 1);
	p->policy.max_window = NSEC_PER_USEC *
			       READ_ONCE(vhost_poll_max_window_us);
	vhost_poll_policy_slept(&p->policy, until, inflight,
				timed ? 0 : READ_ONCE(p->told_at), p->clock);
out:
	WRITE_ONCE(p->asleep, 0);
	poller_disarm(p);
}

/* Sleep or poll on, after a round that found nothing. */
static void poller_idle(struct vhost_poller *p)
{
	struct vhost_poll_outlook out = { .wake_at = VHOST_POLL_FOREVER };
	u32 mode = poller_mode(p);
	u64 until;

	if (list_empty(&p->sources)) {
		poller_sleep(p, mode, VHOST_POLL_FOREVER, 0);
		return;
	}
	if (mode != VHOST_POLL_MODE_BUSY)
		poller_outlook(p, mode == VHOST_POLL_MODE_ADAPTIVE, p->clock,
			       &out);
	until = vhost_poll_decide(&p->policy, mode, p->clock, &out);
	if (until == VHOST_POLL_SPIN)
		cpu_relax();
	else
		poller_sleep(p, mode, until, out.inflight);
}

/* Have the policy learn, after a round that found something. */
static void poller_worked(struct vhost_poller *p)
{
	struct vhost_poll_outlook out = { .inflight = 0 };

	if (p->policy.slept != VHOST_POLL_AWAKE)
		poller_outlook(p, true, p->clock, &out);
	vhost_poll_policy_work(&p->policy, out.inflight, p->clock);
}

static void poller_account(struct vhost_poller *p, unsigned int work)
{
	struct vhost_poll_counters *c = &p->count;
	u64 now = ktime_get_ns();
	u64 spent = now - p->clock;

	p->clock = now;
	p->round_ns = now;
	WRITE_ONCE(c->rounds, c->rounds + 1);
	if (!work) {
		WRITE_ONCE(c->poll_ns, c->poll_ns + spent);
		return;
	}
	WRITE_ONCE(c->busy_ns, c->busy_ns + spent);
	WRITE_ONCE(c->rounds_hit, c->rounds_hit + 1);
	WRITE_ONCE(c->work, c->work + work);
}

/* Put a source behind one of the same mm, if there is one, so that a round switches mms rarely. */
static void poller_add(struct vhost_poller *p, struct vhost_poll_source *new)
{
	struct list_head *after = p->sources.prev;
	struct vhost_poll_source *src;

	list_for_each_entry(src, &p->sources, node) {
		if (src->mm == new->mm)
			after = &src->node;
	}
	new->state = 0;
	list_add(&new->node, after);
	WRITE_ONCE(p->nr_sources, p->nr_sources + 1);
	rcu_assign_pointer(new->poller, p);
	if (poller_enter(p, new))
		new->ops->disarm(new);
}

static void poller_del(struct vhost_poller *p, struct vhost_poll_source *src)
{
	RCU_INIT_POINTER(src->poller, NULL);
	list_del_init(&src->node);
	WRITE_ONCE(p->nr_sources, p->nr_sources - 1);
	/* Drop the mm at once, because the source's owner may wait for the last user of it. */
	if (p->mm == src->mm)
		poller_drop_mm(p);
}

static void poller_serve_request(struct vhost_poller *p)
{
	/* Pairs with the release in poller_ask(). */
	struct vhost_poll_request *req = smp_load_acquire(&p->request);

	p->round_ns = 0;
	if (req->attach)
		poller_add(p, req->src);
	else
		poller_del(p, req->src);
	WRITE_ONCE(p->request, NULL);
	complete(&req->done);
}

static bool poller_has_inflight(const struct vhost_poller *p)
{
	const struct vhost_poll_source *src;

	list_for_each_entry(src, &p->sources, node) {
		if (src->inflight && !(src->state & SOURCE_GONE))
			return true;
	}
	return false;
}

/*
 * Freeze, between two rounds, and return true after the thaw.  Returns false if the thread lost
 * the role.  That happens only if the freezer gives up meanwhile, because the thread then carries
 * out requests that may sleep again.
 */
static bool poller_freeze(struct vhost_poller *p)
{
	u64 limit = ktime_get_ns() + FREEZE_LIMIT_NS;
	unsigned int work = 0;

	p->round_ns = 0;
	while (freezing(current) && poller_has_inflight(p) && ktime_get_ns() < limit) {
		if (!poller_round(p, &work))
			return false;
		cond_resched_tasks_rcu_qs();
	}
	poller_drop_mm(p);
	try_to_freeze();
	p->clock = ktime_get_ns();
	return true;
}

/* Poll until the poller ends, or this thread loses the role. */
static void poller_poll(struct vhost_poller *p)
{
	unsigned int work;

	while (!kthread_should_stop()) {
		if (unlikely(freezing(current)) && !poller_freeze(p))
			return;
		if (unlikely(READ_ONCE(p->request)))
			poller_serve_request(p);
		work = 0;
		if (!poller_round(p, &work))
			return;
		poller_account(p, work);
		if (work)
			poller_worked(p);
		else
			poller_idle(p);
		/* Let other threads of this CPU run, and every flavour of RCU proceed. */
		cond_resched_tasks_rcu_qs();
	}
	poller_drop_mm(p);
}

/* The function of each thread of a poller.  A thread polls whenever it has the role. */
int vhost_poller_thread(void *data)
{
	struct poller_hand *hand = data;

	set_freezable();
	while (vhost_crew_wait(hand))
		poller_poll(hand->p);
	return 0;
}

/**
 * vhost_poller_kick - wake the thread if it sleeps
 * @p: the poller; the caller has already made the reason for the wake-up visible
 */
void vhost_poller_kick(struct vhost_poller *p)
{
	/* Pairs with the barrier in poller_sleep(). */
	smp_mb();
	if (!READ_ONCE(p->asleep))
		return;
	/* Store the time before the thread can run, even if another task wakes it. */
	WRITE_ONCE(p->told_at, ktime_get_ns());
	if (xchg(&p->asleep, 0))
		wake_up_process(READ_ONCE(p->task));
}

/**
 * vhost_poll_wake - tell a source's poller that there is work
 * @src: the source; the caller has put the work where @arm or @poll finds it
 *
 * Any context may call this.  While the poller is awake, it costs a barrier and a look
 * at a flag.
 */
void vhost_poll_wake(struct vhost_poll_source *src)
{
	struct vhost_poller *p;

	rcu_read_lock();
	p = rcu_dereference(src->poller);
	if (p)
		vhost_poller_kick(p);
	rcu_read_unlock();
}
EXPORT_SYMBOL_GPL(vhost_poll_wake);

static void poller_ask(struct vhost_poller *p, struct vhost_poll_source *src,
		       bool attach)
{
	struct vhost_poll_request req = { .src = src, .attach = attach };

	init_completion(&req.done);
	mutex_lock(&p->control);
	/* Pairs with the acquire in poller_serve_request(). */
	smp_store_release(&p->request, &req);
	vhost_poller_kick(p);
	wait_for_completion(&req.done);
	mutex_unlock(&p->control);
}

/**
 * vhost_poll_attach - have a source polled
 * @poller: the poller; the caller keeps a reference to it until after vhost_poll_detach()
 * @src: the source, with @ops, @mm and @weight set and all else 0; the caller keeps a
 *	reference (mmgrab()) to @mm as long
 *
 * This function may sleep.  The poller may call callbacks before this function returns.
 *
 * Return: 0, -EINVAL for a wrong source, -EBUSY for an attached one.
 */
int vhost_poll_attach(struct vhost_poller *poller, struct vhost_poll_source *src)
{
	if (!src->ops || !src->weight || src->weight > WEIGHT_MAX)
		return -EINVAL;
	if (rcu_access_pointer(src->poller))
		return -EBUSY;
	poller_ask(poller, src, true);
	return 0;
}
EXPORT_SYMBOL_GPL(vhost_poll_attach);

/**
 * vhost_poll_detach - end the polling of a source
 * @src: the source, attached or not
 *
 * This function may sleep.  Once it has returned, the poller calls no callback of @src any
 * more.  A thread that lost the role may still be in @run: see vhost_poll_settle().
 */
void vhost_poll_detach(struct vhost_poll_source *src)
{
	/* The owner does not attach and detach at the same time. */
	struct vhost_poller *p = rcu_dereference_protected(src->poller, true);

	if (p)
		poller_ask(p, src, false);
}
EXPORT_SYMBOL_GPL(vhost_poll_detach);

/**
 * vhost_poller_cpu - the CPU that a poller is bound to
 * @poller: the poller
 *
 * Return: the number of the CPU.  The poller runs on another one while that CPU is offline.
 */
unsigned int vhost_poller_cpu(const struct vhost_poller *poller)
{
	return poller->cpu;
}
EXPORT_SYMBOL_GPL(vhost_poller_cpu);

void vhost_poller_set_mode(struct vhost_poller *p, u32 mode)
{
	WRITE_ONCE(p->mode, mode);
	/* Wake the thread, because it may sleep as the old mode demands. */
	vhost_poller_kick(p);
	trace_vhost_poll_mode(p->cpu, mode, READ_ONCE(p->away));
}

void vhost_poller_stats(struct vhost_poller *p, struct vhost_poll_stats *st)
{
	const struct vhost_poll_counters *c = &p->count;
	unsigned int seq;
	u64 since, now;

	st->cpu = p->cpu;
	st->mode = READ_ONCE(p->mode);
	st->sources = READ_ONCE(p->nr_sources);
	st->state = READ_ONCE(p->away);
	st->rounds = READ_ONCE(c->rounds);
	st->rounds_hit = READ_ONCE(c->rounds_hit);
	st->work = READ_ONCE(c->work);
	st->sleeps = READ_ONCE(c->sleeps);
	st->sleeps_timed = READ_ONCE(c->sleeps_timed);
	st->wakeups = READ_ONCE(c->wakeups);
	st->busy_ns = READ_ONCE(c->busy_ns);
	st->poll_ns = READ_ONCE(c->poll_ns);
	st->idle_window_ns = READ_ONCE(p->policy.idle_window);
	st->hot = READ_ONCE(c->hot);
	st->handoffs = READ_ONCE(c->handoffs);
	do {
		seq = read_seqcount_begin(&p->sleep_seq);
		st->sleep_ns = p->sleep_ns;
		since = p->sleep_since;
		now = ktime_get_ns();
	} while (read_seqcount_retry(&p->sleep_seq, seq));
	if (since && now > since)
		st->sleep_ns += now - since;
}

static void vhost_poller_free(struct vhost_poller *p)
{
	free_cpumask_var(p->elsewhere);
	kfree(p);
}

static void vhost_poller_free_rcu(struct rcu_head *rcu)
{
	struct vhost_poller *p = container_of(rcu, struct vhost_poller, rcu);

	vhost_crew_free(p);
	vhost_poller_free(p);
}

static struct vhost_poller *vhost_poller_alloc(struct file *file,
					       const struct vhost_poll_create *arg)
{
	struct vhost_poller *p;

	p = kzalloc_node(sizeof(*p), GFP_KERNEL_ACCOUNT, cpu_to_node(arg->cpu));
	if (!p)
		return NULL;
	if (!zalloc_cpumask_var(&p->elsewhere, GFP_KERNEL_ACCOUNT)) {
		kfree(p);
		return NULL;
	}
	p->file = file;
	p->cpu = arg->cpu;
	p->mode = arg->mode;
	vhost_poll_find_elsewhere(p);
	p->away = true;
	strscpy(p->name, arg->name, sizeof(p->name));
	mutex_init(&p->control);
	seqcount_init(&p->sleep_seq);
	INIT_LIST_HEAD(&p->sources);
	vhost_poll_policy_init(&p->policy,
			       NSEC_PER_USEC * READ_ONCE(vhost_poll_max_window_us),
			       ktime_get_ns());
	return p;
}

/**
 * vhost_poller_create - make a poller, and start its first thread
 * @file: the file whose private data the caller sets to the poller
 * @arg: the configuration, which the caller has checked, except that the CPU may be offline
 *
 * Return: the poller, or an ERR_PTR(): -ENODEV if the CPU is offline.
 */
struct vhost_poller *vhost_poller_create(struct file *file,
					 const struct vhost_poll_create *arg)
{
	struct vhost_poller *p = vhost_poller_alloc(file, arg);
	int ret;

	if (!p)
		return ERR_PTR(-ENOMEM);

	ret = vhost_crew_init(p);
	if (ret)
		goto err_free;
	ret = vhost_poll_hotplug_add(p);
	if (ret)
		goto err_stop;
	if (READ_ONCE(p->away)) {
		ret = -ENODEV;
		goto err_hotplug;
	}
	vhost_crew_start(p);
	return p;

err_hotplug:
	vhost_poll_hotplug_remove(p);
err_stop:
	vhost_crew_stop(p);
	vhost_crew_free(p);
err_free:
	vhost_poller_free(p);
	return ERR_PTR(ret);
}

/* End the poller.  The last reference to its file is gone, so no source is attached. */
void vhost_poller_destroy(struct vhost_poller *p)
{
	vhost_poll_hotplug_remove(p);
	vhost_crew_stop(p);
	call_rcu(&p->rcu, vhost_poller_free_rcu);
}
