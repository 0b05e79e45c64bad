// SPDX-License-Identifier: GPL-2.0
/*
 * Workers of requests: kernel threads of the device, in the cgroups of its owner.
 *
 * A thread of a workqueue serves all unbound workqueues, so its CPU time is the root cgroup's.  The
 * threads here serve one device.  cgroup_attach_task_all(), which covers version 2 too, moves each
 * of them into the cgroups of the owner before it takes its first job.  So cpu.max, cpu.weight and
 * the cpuset of the owner hold for them.
 *
 * They are no threads of the owner's process (vhost_task_create()), because a storage path must
 * not depend on that process: SIGKILL, an exec or SIGSTOP of the owner, a debugger or a freezer
 * would interrupt a request, or stop the thread that is to begin it.  A kthread gets no signal, and
 * a frozen cgroup leaves it alone.  The exit, exec or fork of the owner changes nothing here.
 *
 * A job is a request for vserve_req_do().  vserve_workers_queue() gives it to
 *
 *   1. a thread that is idle, or
 *   2. the freezable workqueue of the device, while fewer jobs than the limit are being done, or
 *   3. the list of jobs.  Each thread and each work that has done a job looks there.
 *
 * A thread that has done a job takes the next one from the list.  A work that has done a job gives
 * the next one to the workqueue, unless the limit of jobs is being done without it.  So a job is on
 * the list only while as many jobs as the limit are being done, and no job ever waits for a thread
 * that does not exist yet.  A new thread takes a job from the list even then.  So while threads are
 * being made, up to 2 * limit - 1 jobs are being done for a while.
 *
 * In case 2 vserve_tend() makes a thread, up to the limit, and the new thread looks at the list
 * first.  That may take long or fail (it needs memory and cgroup_mutex), and only CPU time goes
 * uncharged meanwhile: that of one job for each thread that is missing, and of those that follow
 * it in the workqueue until the thread is there.  A guest cannot stretch that time by using up the
 * owner's quota, because a new thread needs none of it before it waits for jobs.
 *
 * vserve_tend() is a work, also for the first thread, because the task that moves a thread holds
 * cgroup_mutex and needs the right to do so.  A task of the owner could lack that right, and its
 * cgroup could be out of quota while all others wait for the mutex.
 *
 * All of this happens under workers->lock.  A thread is given a job only while it is on
 * workers->idle, and it takes itself off that list, under the lock, before it leaves.  So no job is
 * given to a thread that is going.
 *
 * Growth: each move takes cgroup_threadgroup_rwsem, which holds up all forks of the host for a
 * moment, and the guest decides how many jobs there are.  So a thread leaves only after a minute
 * without a job, which bounds the moves to the limit in a minute.  If a thread cannot be made, the
 * next try is a minute later.  The first thread never leaves: the others find the cgroups by it,
 * and a cgroup with a thread in it cannot go.
 *
 * A thread needs CPU time to exit after it has left, kthread_stop() waits for that, and the owner's
 * quota may delay it.  So vserve_tend() reaps a thread only once its exit_state is set, because new
 * threads would have to wait otherwise.  A thread that has left and not exited stays on
 * workers->threads, and the next vserve_tend() or vserve_workers_end() reaps it.
 *
 * Life: the owner makes the workers in VHOST_SET_OWNER, and they end in vserve_forget(), with
 * VHOST_RESET_OWNER, VHOST_SERVE_HAND_OVER or the close of the file.  All vrings have stopped then,
 * so there is no job.  vserve_workers_end() waits for each thread, so none is left in this module
 * when the device lets go of it.  If the device is passed on while it still belongs to an owner
 * that died, the threads stay in that owner's cgroup until the file is closed.
 *
 * If the file is closed and a disk does not answer, the threads live on.  Once the owner is gone as
 * well, vserve_workers_give_back() has them moved to the cgroups of a kernel thread, so that the
 * owner's cgroup can go.  vserve_tend() moves them, because only vserve_tend() adds and removes
 * threads until vserve_workers_end() cancels it, and because a kernel thread runs it.  If
 * vserve_workers_end() comes first, the threads end where they are.
 *
 * Suspend and hibernation: jobs change disks and file systems, so none may run when the kernel
 * takes its snapshot.  A freezable kthread would also freeze with a cgroup of version 1, with jobs
 * behind it, so these are not freezable.  Instead the PM notifier, which the kernel calls before
 * user space freezes, closes all workers: jobs that have not begun go to the freezable workqueue,
 * as all later ones do until the host is awake.  vserve_guard(), on a freezable workqueue, waits
 * for jobs that have begun, and the freezer waits for it.
 *
 * A job finds what a work finds: no mm, no files, the credentials of the kernel.  A request may be
 * queued again while the thread that has ended it is still on its way out of vserve_req_do(), which
 * therefore does not touch a request that is over.
 */
#include <linux/cgroup.h>
#include <linux/completion.h>
#include <linux/suspend.h>

#include "serve.h"

/* A thread leaves if it had no job for so long. */
#define WORKERS_IDLE	(60 * HZ)
/* If a thread could not be made, none is made for so long. */
#define WORKERS_RETRY	(60 * HZ)

/*
 * @started: it runs, so the kernel does not choose its CPUs any more
 * @node: on workers->threads until it is reaped
 * @idle: on workers->idle, or in no list
 * @req: the job that it was given; a release stores it, and an acquire of the thread loads it
 * @left: it takes no job any more, and is to be reaped once it has exited
 */
struct vserve_thread {
	struct vserve_workers *workers;
	struct task_struct *task;
	struct completion started;
	struct list_head node;
	struct list_head idle;
	struct vserve_req *req;
	bool left;
};

/*
 * @node: on vserve_all
 * @wq: does the jobs of case 2
 * @owner: whose cgroups the first thread joins; in vserve_workers_begin() only
 * @threads: written by vserve_workers_begin(), vserve_tend() and vserve_workers_end() only
 * @first: never leaves
 * @given_back: vserve_tend() has done what @give_back asks for
 * @err: why vserve_tend() could not make a thread the last time
 * @idle: that wait for a job
 * @jobs: that wait; only while @nr_busy and @nr_wq are @max together
 * @nr: threads that have joined and did not leave
 * @nr_busy: of these, those that were given a job
 * @nr_wq: jobs that @wq has
 * @wanted: threads that vserve_tend() is to make
 * @retry: jiffies before which no thread is wanted
 * @give_back: vserve_tend() is to move the threads out of the owner's cgroups
 * @closed: no thread begins with a job
 * @ended: no thread is made, and none leaves on its own
 * @settled: @nr_busy is 0
 */
struct vserve_workers {
	struct list_head node;
	struct workqueue_struct *wq;
	struct task_struct *owner;
	struct list_head threads;
	struct vserve_thread *first;
	bool given_back;
	int err;
	spinlock_t lock;	/* protects what follows, up to @ended */
	struct list_head idle;
	struct list_head jobs;
	unsigned int nr;
	unsigned int nr_busy;
	unsigned int nr_wq;
	unsigned int max;
	unsigned int wanted;
	unsigned long retry;
	bool give_back;
	bool closed;
	bool ended;
	wait_queue_head_t settled;
	struct work_struct tend;
	char name[TASK_COMM_LEN];
};

/* Those of all devices, and whether the host is about to sleep. */
static LIST_HEAD(vserve_all);
static bool vserve_asleep;
static DEFINE_SPINLOCK(vserve_all_lock);	/* outside workers->lock */

/* Makes threads and reaps them.  It holds up no request, so it need not freeze. */
static struct workqueue_struct *vserve_tend_wq;
/* Freezes only when vserve_guard() is done. */
static struct workqueue_struct *vserve_guard_wq;
static DECLARE_WAIT_QUEUE_HEAD(vserve_guard_wait);

/* To a thread that is in no list.  Under the lock, because the thread may leave otherwise. */
static void vserve_give(struct vserve_thread *thread, struct vserve_req *req)
{
	lockdep_assert_held(&thread->workers->lock);
	thread->workers->nr_busy++;
	/* Pairs with the acquire in vserve_await_job(). */
	smp_store_release(&thread->req, req);
	wake_up_process(thread->task);
}

static void vserve_to_wq(struct vserve_workers *w, struct vserve_req *req)
{
	lockdep_assert_held(&w->lock);
	w->nr_wq++;
	queue_work(w->wq, &req->work);
}

/* The workqueue takes this job.  The next one is to find a thread. */
static void vserve_want(struct vserve_workers *w)
{
	lockdep_assert_held(&w->lock);
	if (w->ended || w->nr + w->wanted >= w->max || time_before(jiffies, w->retry))
		return;
	w->wanted++;
	queue_work(vserve_tend_wq, &w->tend);
}

static bool vserve_is_full(const struct vserve_workers *w)
{
	lockdep_assert_held(&w->lock);
	return w->nr_busy + w->nr_wq >= w->max;
}

/* Takes the first job off the list, or returns NULL. */
static struct vserve_req *vserve_next_job(struct vserve_workers *w)
{
	struct vserve_req *req = list_first_entry_or_null(&w->jobs, struct vserve_req, job);

	lockdep_assert_held(&w->lock);
	if (req)
		list_del(&req->job);
	return req;
}

/**
 * vserve_workers_queue - have a worker do a request
 * @w: the workers of its device
 * @req: in no list of the workers
 */
void vserve_workers_queue(struct vserve_workers *w, struct vserve_req *req)
{
	struct vserve_thread *thread;

	spin_lock(&w->lock);
	thread = list_first_entry_or_null(&w->idle, struct vserve_thread, idle);
	if (w->closed) {
		vserve_to_wq(w, req);
	} else if (thread) {
		list_del_init(&thread->idle);
		vserve_give(thread, req);
	} else if (vserve_is_full(w)) {
		list_add_tail(&req->job, &w->jobs);
	} else {
		vserve_want(w);
		vserve_to_wq(w, req);
	}
	spin_unlock(&w->lock);
}

/**
 * vserve_workers_wq_done - the workqueue has done a job
 * @w: the workers that gave it the job
 */
void vserve_workers_wq_done(struct vserve_workers *w)
{
	struct vserve_req *req;

	spin_lock(&w->lock);
	w->nr_wq--;
	req = vserve_is_full(w) ? NULL : vserve_next_job(w);
	if (req)
		vserve_to_wq(w, req);
	spin_unlock(&w->lock);
}

/* The thread has done its job: it takes the next one, or is idle. */
static void vserve_job_done(struct vserve_thread *thread)
{
	struct vserve_workers *w = thread->workers;
	bool settled = false, closed;

	spin_lock(&w->lock);
	closed = w->closed;
	thread->req = vserve_next_job(w);
	if (!thread->req) {
		/* The last one to be idle is the first to get a job, so that others may leave. */
		list_add(&thread->idle, &w->idle);
		settled = !--w->nr_busy;
	}
	spin_unlock(&w->lock);
	if (settled)
		wake_up_all(&w->settled);
	if (settled && closed)
		wake_up_all(&vserve_guard_wait);
}

/* Returns true if the thread, which had no job for long, has left. */
static bool vserve_leave(struct vserve_thread *thread)
{
	struct vserve_workers *w = thread->workers;

	spin_lock(&w->lock);
	if (!list_empty(&thread->idle) && thread != w->first && !w->ended) {
		list_del_init(&thread->idle);
		w->nr--;
		thread->left = true;
		queue_work(vserve_tend_wq, &w->tend);
	}
	spin_unlock(&w->lock);
	return thread->left;
}

/* Returns false if the thread is to end. */
static bool vserve_await_job(struct vserve_thread *thread)
{
	long left = WORKERS_IDLE;

	for (;;) {
		/* The task that sets one of these wakes the thread after that. */
		set_current_state(TASK_IDLE);
		if (READ_ONCE(thread->req) || READ_ONCE(thread->workers->ended) ||
		    kthread_should_stop())
			break;
		left = schedule_timeout(left);
		if (left)
			continue;
		if (vserve_leave(thread))
			return false;
		left = WORKERS_IDLE;
	}
	__set_current_state(TASK_RUNNING);
	/* Pairs with the release in vserve_give(). */
	return smp_load_acquire(&thread->req);
}

/* It may return before kthread_stop(), which waits until the thread has left this module. */
static int vserve_thread_fn(void *data)
{
	struct vserve_thread *thread = data;

	complete(&thread->started);
	while (vserve_await_job(thread)) {
		vserve_req_do(thread->req);
		vserve_job_done(thread);
		cond_resched();
	}
	return 0;
}

static void vserve_reap(struct vserve_thread *thread)
{
	list_del(&thread->node);
	kthread_stop_put(thread->task);
	kfree(thread);
}

static struct vserve_thread *vserve_new_thread(struct vserve_workers *w)
{
	struct vserve_thread *thread = kzalloc(sizeof(*thread), GFP_KERNEL);
	struct task_struct *task;

	if (!thread)
		return ERR_PTR(-ENOMEM);
	thread->workers = w;
	init_completion(&thread->started);
	INIT_LIST_HEAD(&thread->idle);
	task = kthread_create(vserve_thread_fn, thread, "%s", w->name);
	if (IS_ERR(task)) {
		kfree(thread);
		return ERR_CAST(task);
	}
	thread->task = get_task_struct(task);
	list_add(&thread->node, &w->threads);
	wake_up_process(task);
	wait_for_completion(&thread->started);
	return thread;
}

/* A new thread has joined the cgroups: it takes a job that waits, or is idle. */
static void vserve_join(struct vserve_thread *thread)
{
	struct vserve_workers *w = thread->workers;
	struct vserve_req *req;

	spin_lock(&w->lock);
	w->nr++;
	req = vserve_next_job(w);
	if (req)
		vserve_give(thread, req);
	else
		list_add(&thread->idle, &w->idle);
	spin_unlock(&w->lock);
}

static int vserve_add_thread(struct vserve_workers *w)
{
	struct vserve_thread *thread = vserve_new_thread(w);
	int r;

	if (IS_ERR(thread))
		return PTR_ERR(thread);
	r = cgroup_attach_task_all(w->first ? w->first->task : w->owner, thread->task);
	if (r) {
		vserve_reap(thread);
		return r;
	}
	/* Before the thread may leave. */
	if (!w->first)
		w->first = thread;
	vserve_join(thread);
	return 0;
}

/* Returns true if the thread has left, and kthread_stop() does not wait for it any more. */
static bool vserve_has_exited(struct vserve_thread *thread)
{
	bool left;

	spin_lock(&thread->workers->lock);
	left = thread->left;
	spin_unlock(&thread->workers->lock);
	return left && READ_ONCE(thread->task->exit_state);
}

/* Returns true if one more thread is to be made. */
static bool vserve_take_want(struct vserve_workers *w)
{
	bool want;

	spin_lock(&w->lock);
	want = w->wanted && w->nr < w->max && !w->closed && !w->ended;
	w->wanted = want ? w->wanted - 1 : 0;
	spin_unlock(&w->lock);
	return want;
}

/*
 * No thread could be made, so the workqueue goes on without it for a while.  If there is none at
 * all, vserve_workers_begin() returns the error, and no work is done.
 */
static void vserve_tend_failed(struct vserve_workers *w, int err)
{
	if (w->first)
		pr_warn_ratelimited("%s: cannot create a worker in the owner's cgroup (%pe); other threads do the work, and the cgroup is not charged for it\n",
				    w->name, ERR_PTR(err));
	spin_lock(&w->lock);
	w->wanted = 0;
	w->retry = jiffies + WORKERS_RETRY;
	spin_unlock(&w->lock);
}

/* Threads that are made after this follow the first one. */
static void vserve_give_back(struct vserve_workers *w)
{
	struct vserve_thread *thread;
	bool give_back;
	int r;

	spin_lock(&w->lock);
	give_back = w->give_back;
	spin_unlock(&w->lock);
	if (!give_back || w->given_back)
		return;
	w->given_back = true;
	list_for_each_entry(thread, &w->threads, node) {
		r = cgroup_attach_task_all(current, thread->task);
		if (r)
			pr_warn_ratelimited("%s: cannot move a worker out of the former owner's cgroup (%pe); the cgroup cannot be removed until the backend answers\n",
					    w->name, ERR_PTR(r));
	}
}

static void vserve_tend(struct work_struct *work)
{
	struct vserve_workers *w = container_of(work, struct vserve_workers, tend);
	struct vserve_thread *thread, *next;

	list_for_each_entry_safe(thread, next, &w->threads, node)
		if (vserve_has_exited(thread))
			vserve_reap(thread);
	vserve_give_back(w);
	while (vserve_take_want(w)) {
		w->err = vserve_add_thread(w);
		if (w->err)
			vserve_tend_failed(w, w->err);
	}
}

static bool vserve_is_settled(struct vserve_workers *w)
{
	bool settled;

	spin_lock(&w->lock);
	settled = !w->nr_busy;
	spin_unlock(&w->lock);
	return settled;
}

/**
 * vserve_workers_flush - wait until no thread does a job
 * @w: the workers; no request is queued to them meanwhile
 */
void vserve_workers_flush(struct vserve_workers *w)
{
	wait_event(w->settled, vserve_is_settled(w));
}

/* Is no thread of any device in a job that has begun before the host is to sleep? */
static bool vserve_all_settled(void)
{
	struct vserve_workers *w;
	bool settled = true;

	spin_lock(&vserve_all_lock);
	if (vserve_asleep)
		list_for_each_entry(w, &vserve_all, node)
			settled = settled && vserve_is_settled(w);
	spin_unlock(&vserve_all_lock);
	return settled;
}

/* It is idle, because the kernel would report it as hung if a disk takes two minutes. */
static void vserve_guard(struct work_struct *work)
{
	wait_event_idle(vserve_guard_wait, vserve_all_settled());
}

static DECLARE_WORK(vserve_guard_work, vserve_guard);

/* The host is about to sleep: the workqueue does all that has not begun. */
static void vserve_close(struct vserve_workers *w)
{
	struct vserve_req *req, *next;

	spin_lock(&w->lock);
	w->closed = true;
	list_for_each_entry_safe(req, next, &w->jobs, job) {
		list_del(&req->job);
		vserve_to_wq(w, req);
	}
	spin_unlock(&w->lock);
}

static void vserve_reopen(struct vserve_workers *w)
{
	spin_lock(&w->lock);
	w->closed = false;
	spin_unlock(&w->lock);
}

static int vserve_pm_notify(struct notifier_block *nb, unsigned long action, void *unused)
{
	bool asleep = action == PM_HIBERNATION_PREPARE || action == PM_SUSPEND_PREPARE ||
		      action == PM_RESTORE_PREPARE;
	struct vserve_workers *w;

	spin_lock(&vserve_all_lock);
	vserve_asleep = asleep;
	list_for_each_entry(w, &vserve_all, node) {
		if (asleep)
			vserve_close(w);
		else
			vserve_reopen(w);
	}
	spin_unlock(&vserve_all_lock);
	if (asleep)
		queue_work(vserve_guard_wq, &vserve_guard_work);
	else
		wake_up_all(&vserve_guard_wait);
	return NOTIFY_DONE;
}

static struct notifier_block vserve_pm_nb = { .notifier_call = vserve_pm_notify };

static struct vserve_workers *vserve_alloc_workers(struct vserve_dev *dev)
{
	struct vserve_workers *w = kzalloc(sizeof(*w), GFP_KERNEL_ACCOUNT);

	if (!w)
		return NULL;
	spin_lock_init(&w->lock);
	INIT_LIST_HEAD(&w->threads);
	INIT_LIST_HEAD(&w->idle);
	INIT_LIST_HEAD(&w->jobs);
	INIT_WORK(&w->tend, vserve_tend);
	init_waitqueue_head(&w->settled);
	w->wq = dev->wq;
	w->max = dev->ops->max_workers;
	w->retry = jiffies;
	snprintf(w->name, sizeof(w->name), "%s-%d-w", dev->ops->name, dev->id);
	return w;
}

/**
 * vserve_workers_begin - the workers of a device, with one thread
 * @dev: the device; the caller is about to own it
 *
 * Return: the workers or an error.
 */
struct vserve_workers *vserve_workers_begin(struct vserve_dev *dev)
{
	struct vserve_workers *w = vserve_alloc_workers(dev);
	int r;

	if (!w)
		return ERR_PTR(-ENOMEM);
	w->owner = current;
	w->wanted = 1;
	queue_work(vserve_tend_wq, &w->tend);
	flush_work(&w->tend);
	w->owner = NULL;
	if (w->err) {
		r = w->err;
		kfree(w);
		return ERR_PTR(r);
	}
	spin_lock(&vserve_all_lock);
	w->closed = vserve_asleep;
	list_add(&w->node, &vserve_all);
	spin_unlock(&vserve_all_lock);
	return w;
}

/**
 * vserve_workers_give_back - the owner is gone, and the workers still have requests
 * @w: the workers; NULL is allowed.  vserve_workers_end() is not called before this returns
 */
void vserve_workers_give_back(struct vserve_workers *w)
{
	if (!w)
		return;
	spin_lock(&w->lock);
	w->give_back = true;
	spin_unlock(&w->lock);
	queue_work(vserve_tend_wq, &w->tend);
}

/**
 * vserve_workers_end - no request needs the workers any more
 * @w: the workers; NULL is allowed
 */
void vserve_workers_end(struct vserve_workers *w)
{
	struct vserve_thread *thread, *next;

	if (!w)
		return;
	spin_lock(&vserve_all_lock);
	list_del(&w->node);
	spin_unlock(&vserve_all_lock);
	spin_lock(&w->lock);
	WRITE_ONCE(w->ended, true);
	spin_unlock(&w->lock);
	cancel_work_sync(&w->tend);
	/* All at once, because a cgroup with a small quota lets each of them run late. */
	list_for_each_entry(thread, &w->threads, node)
		wake_up_process(thread->task);
	list_for_each_entry_safe(thread, next, &w->threads, node)
		vserve_reap(thread);
	kfree(w);
}

/**
 * vserve_workers_init - prepare for the first device
 *
 * Return: 0 or an error.
 */
int __init vserve_workers_init(void)
{
	unsigned int sleep;
	int r = -ENOMEM;

	vserve_tend_wq = alloc_workqueue("vhost_serve-tend", WQ_UNBOUND, 0);
	if (!vserve_tend_wq)
		return r;
	vserve_guard_wq = alloc_workqueue("vhost_serve-guard", WQ_UNBOUND | WQ_FREEZABLE, 0);
	if (!vserve_guard_wq)
		goto tend;
	/*
	 * A host that is going to sleep would not tell this notifier any more.  /dev/snapshot
	 * (uswsusp) takes this lock for its steps only.  If the module is loaded between two of
	 * them, the notifier misses that hibernation, and threads do not stop for it.
	 */
	sleep = lock_system_sleep();
	r = register_pm_notifier(&vserve_pm_nb);
	unlock_system_sleep(sleep);
	if (!r)
		return 0;
	destroy_workqueue(vserve_guard_wq);
tend:
	destroy_workqueue(vserve_tend_wq);
	return r;
}

/**
 * vserve_workers_exit - undo vserve_workers_init()
 */
void vserve_workers_exit(void)
{
	unregister_pm_notifier(&vserve_pm_nb);
	destroy_workqueue(vserve_guard_wq);
	destroy_workqueue(vserve_tend_wq);
}
