// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a vring: set-up, start and stop.  round.c serves it in between.
 *
 * STOP first detaches the poller, then waits for the worker, and then has stop_work drain the
 * vring.  stop_work uses the owner's mm, as the worker does, because STOP may come from the owner
 * or from the task that closes the file last.
 *
 * A backend may never answer.  STOP waits for stop_timeout seconds, or until its caller is killed,
 * and then returns an error.  The vring goes on stopping.  The backend still reads and writes the
 * guest's memory, so mm, slots and backend stay.  START, SET_VRING, SET_FEATURES and all that vhost
 * refuses to a running vring are refused.  The next STOP waits again, and frees everything once the
 * last answer is there.
 */
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/sched/mm.h>
#include <linux/topology.h>

#include "serve.h"

/* This is longer than the 30 seconds after which the driver of a disk tries again. */
static unsigned int vserve_stop_timeout = 60;
module_param_named(stop_timeout, vserve_stop_timeout, uint, 0644);
MODULE_PARM_DESC(stop_timeout,
		 "Seconds to wait for the backend's answers when a vring stops (default 60; 0: no limit)");

static void vserve_free_reqs(struct vserve_vring *vring)
{
	kvfree(vring->reqs);
	vring->reqs = NULL;
	vring->nr_reqs = 0;
}

static int vserve_alloc_reqs(struct vserve_vring *vring)
{
	int node = cpu_to_node(vhost_poller_cpu(vring->poller));
	unsigned int nr = vring->vq.num, i;

	vring->reqs = kvcalloc_node(nr, vring->ops->req_size,
				    GFP_KERNEL_ACCOUNT | __GFP_NOWARN, node);
	if (!vring->reqs)
		return -ENOMEM;
	vring->nr_reqs = nr;
	for (i = 0; i < nr; i++) {
		struct vserve_req *req = vserve_slot(vring, i);

		req->vring = vring;
		req->head = i;
		INIT_WORK(&req->work, vserve_req_work);
	}
	return 0;
}

static int vserve_attach(struct vserve_vring *vring)
{
	vring->src.ops = &vserve_round_ops;
	vring->src.mm = vring->mm;
	return vhost_poll_attach(vring->poller, &vring->src);
}

/* How long a stop, or a change of the poller, waits for a backend. */
static long vserve_stop_jiffies(void)
{
	unsigned int seconds = READ_ONCE(vserve_stop_timeout);

	return seconds ? seconds * (long)HZ : MAX_SCHEDULE_TIMEOUT;
}

/*
 * Detach a vring from its poller.
 *
 * The task that stops the vring later waits only for threads of the poller that the vring has then.
 * So wait here for a thread of this poller that sleeps in a request.  Returns false if the thread
 * still sleeps after the time limit.
 */
static bool vserve_detach(struct vserve_vring *vring)
{
	vhost_poll_detach(&vring->src);
	mutex_lock(&vring->vq.mutex);
	vserve_signal(vring);
	mutex_unlock(&vring->vq.mutex);
	return vhost_poll_settle(vring->poller, &vring->src, vserve_stop_jiffies());
}

static int vserve_check_target(struct vserve_vring *vring,
			       const struct vhost_poller *poller, u32 target)
{
	if (vring->ops->check_target)
		return vring->ops->check_target(vring, poller, target);
	return target == VHOST_SERVE_TARGET_AUTO ? 0 : -EOPNOTSUPP;
}

/**
 * vserve_vring_set - set the poller of a vring, and the target of its requests
 * @vring: the vring; the device's mutex is held
 * @poller_fd: the file descriptor of a poller
 * @target: the device's own number of a target, or VHOST_SERVE_TARGET_AUTO
 * @weight: the vring's share of the poller; 0: the default
 *
 * Return: 0, or an error; -ETIMEDOUT if a thread of the old poller still sleeps in a request.
 */
int vserve_vring_set(struct vserve_vring *vring, int poller_fd, u32 target,
		     u32 weight)
{
	struct vhost_poller *poller = vhost_poller_get(poller_fd);
	struct vhost_poller *old = vring->poller;
	int r;

	lockdep_assert_held(&vring->dev->vdev.mutex);
	if (IS_ERR(poller))
		return PTR_ERR(poller);
	/*
	 * A vring that stops keeps its poller, because vserve_end_stop() waits for threads of that
	 * one.
	 */
	r = vring->stopping ? -EBUSY :
			      vserve_check_target(vring, poller, target);
	if (r) {
		vhost_poller_put(poller);
		return r;
	}

	if (vring->running && !vserve_detach(vring)) {
		vhost_poller_put(poller);
		/* The vring stays with the old poller. */
		return vserve_attach(vring) ?: -ETIMEDOUT;
	}
	mutex_lock(&vring->vq.mutex);
	vring->poller = poller;
	WRITE_ONCE(vring->poller_cpu, vhost_poller_cpu(poller));
	vring->target = target;
	vring->src.weight = weight ?: VSERVE_WEIGHT;
	mutex_unlock(&vring->vq.mutex);
	if (old)
		vhost_poller_put(old);
	return vring->running ? vserve_attach(vring) : 0;
}

/**
 * vserve_vring_drop_poller - take the poller away from a vring
 * @vring: the vring, stopped; the device's mutex is held
 */
void vserve_vring_drop_poller(struct vserve_vring *vring)
{
	if (vring->poller)
		vhost_poller_put(vring->poller);
	vring->poller = NULL;
	WRITE_ONCE(vring->poller_cpu, VSERVE_NO_CPU);
}

static int vserve_activate(struct vserve_vring *vring)
{
	struct vhost_virtqueue *vq = &vring->vq;
	int r;

	mutex_lock(&vq->mutex);
	r = -EFAULT;
	if (!vhost_vq_is_setup(vq) || vq->log_used)
		goto out;
	r = vserve_alloc_reqs(vring);
	if (r)
		goto out;
	vhost_vq_set_backend(vq, vring);
	r = vhost_vq_init_access(vq);
	if (r) {
		vhost_vq_set_backend(vq, NULL);
		vserve_free_reqs(vring);
		goto out;
	}
	vhost_disable_notify(vq->dev, vq);
	/* Otherwise the poller would go by what was outstanding when the vring was stopped. */
	vserve_publish(vring);
	vring->calls = (struct vserve_calls) {};
	vring->regions_of = NULL;
	vring->broken = false;
	vring->full = false;
	vring->running = true;
out:
	mutex_unlock(&vq->mutex);
	return r;
}

/*
 * Count the running vrings of a device, because they share what the poller may copy for the device
 * in a round.
 */
static void vserve_count_running(struct vserve_dev *dev, int more)
{
	unsigned int bytes = VSERVE_ROUND_BYTES;

	dev->nr_running += more;
	if (dev->copies && dev->nr_running)
		bytes = max(VSERVE_COPY_BYTES / dev->nr_running, VSERVE_COPY_MIN);
	WRITE_ONCE(dev->round_bytes, bytes);
}

/**
 * vserve_vring_start - begin to serve a vring
 * @vring: the vring; its owner calls, with the device's mutex held
 *
 * Return: 0, or an error.
 */
int vserve_vring_start(struct vserve_vring *vring)
{
	const struct vserve_ops *ops = vring->ops;
	int r;

	lockdep_assert_held(&vring->dev->vdev.mutex);
	if (vring->running || vring->stopping)
		return -EBUSY;
	if (!vring->poller)
		return -ENXIO;
	vring->mm = vring->dev->vdev.mm;
	if (!mmget_not_zero(vring->mm))
		return -ESRCH;
	r = ops->start ? ops->start(vring) : 0;
	if (r)
		goto put_mm;
	r = vserve_activate(vring);
	if (r)
		goto stop;
	vserve_count_running(vring->dev, 1);
	r = vserve_attach(vring);
	if (!r)
		return 0;
	vserve_vring_stop(vring);
	return r;
stop:
	if (ops->stop)
		ops->stop(vring);
put_mm:
	mmput(vring->mm);
	vring->mm = NULL;
	return r;
}

static bool vserve_is_drained(struct vserve_vring *vring)
{
	/* Pairs with the release in vserve_drain(). */
	return smp_load_acquire(&vring->drained);
}

static void vserve_warn_of_backend(struct vserve_vring *vring)
{
	struct vserve_dev *dev = vring->dev;

	pr_warn_ratelimited("%s-%d: vring %u cannot stop: the backend did not answer %u requests within %u seconds (stop_timeout); check the disk or file system on the host\n",
			    dev->ops->name, dev->id, vring->index,
			    READ_ONCE(vring->nr_inflight), READ_ONCE(vserve_stop_timeout));
}

/**
 * vserve_vring_begin_stop - take no more requests, and begin to drain those that were taken
 * @vring: the vring, running or not; the device's mutex is held
 */
void vserve_vring_begin_stop(struct vserve_vring *vring)
{
	lockdep_assert_held(&vring->dev->vdev.mutex);
	if (!vring->running)
		return;
	vhost_poll_detach(&vring->src);

	mutex_lock(&vring->vq.mutex);
	vring->running = false;
	vring->drained = false;
	vring->overdue = false;
	vring->stopping = true;
	mutex_unlock(&vring->vq.mutex);
	flush_work(&vring->work);
	if (vring->ops->quiesce)
		vring->ops->quiesce(vring);
	queue_work(vring->dev->ring_wq, &vring->stop_work);
}

/* Free all that requests have used, because nothing is in flight any more. */
static void vserve_end_stop(struct vserve_vring *vring)
{
	flush_work(&vring->stop_work);
	/* The thread in which the last request has ended may not have left the vring yet. */
	vhost_poll_settle(vring->poller, &vring->src, MAX_SCHEDULE_TIMEOUT);

	if (vring->ops->stop)
		vring->ops->stop(vring);
	mutex_lock(&vring->vq.mutex);
	vhost_vq_set_backend(&vring->vq, NULL);
	vring->vq.used_flags = 0;
	vserve_free_reqs(vring);
	vring->stopping = false;
	mutex_unlock(&vring->vq.mutex);
	mmput(vring->mm);
	vring->mm = NULL;
	vserve_count_running(vring->dev, -1);
}

/**
 * vserve_vring_stop - stop serving a vring
 * @vring: the vring, running, stopping or not; the device's mutex is held
 *
 * Return: 0 when nothing is in flight any more, -ETIMEDOUT if the backend did not answer in time,
 * or -EINTR if the caller is being killed.  After an error the vring goes on stopping.
 */
int vserve_vring_stop(struct vserve_vring *vring)
{
	long left;

	vserve_vring_begin_stop(vring);
	if (!vring->stopping)
		return 0;
	left = wait_event_killable_timeout(vring->drain, vserve_is_drained(vring),
					   vserve_stop_jiffies());
	if (left < 0)
		return -EINTR;
	if (!left) {
		vring->overdue = true;
		vserve_warn_of_backend(vring);
		return -ETIMEDOUT;
	}
	vserve_end_stop(vring);
	return 0;
}

/**
 * vserve_vring_go_on - take a stop back that has failed with -ETIMEDOUT or -EINTR
 * @vring: the vring; its owner calls, with the device's mutex held
 *
 * The poller gets the requests back that the backend has not answered.
 *
 * Return: 0, -EINVAL if no stop is under way, or an error of the poller.  After an error of the
 * poller the vring goes on stopping.
 */
int vserve_vring_go_on(struct vserve_vring *vring)
{
	int r;

	lockdep_assert_held(&vring->dev->vdev.mutex);
	if (!vring->stopping)
		return -EINVAL;
	WRITE_ONCE(vring->goes_on, true);
	wake_up_all(&vring->drain);
	flush_work(&vring->stop_work);

	mutex_lock(&vring->vq.mutex);
	vring->goes_on = false;
	vring->stopping = false;
	vring->running = true;
	vserve_publish(vring);
	mutex_unlock(&vring->vq.mutex);
	r = vserve_attach(vring);
	if (r)
		vserve_vring_begin_stop(vring);
	return r;
}

/**
 * vserve_vring_await - wait for a vring to drain, for a task that cannot be refused
 * @vring: the vring, after vserve_vring_begin_stop(); the device's mutex is held
 *
 * As long as the owner lives, it may map something else where requests are yet to write.  So the
 * wait has a limit only once the owner is gone, or the caller is being killed: if that is a thread
 * of the owner, the owner cannot go before it.
 *
 * Return: true when the vring is drained, or false if the backend did not answer in time and the
 * wait has that limit.
 */
bool vserve_vring_await(struct vserve_vring *vring)
{
	while (vring->stopping && !vserve_is_drained(vring)) {
		if (vring->overdue && (fatal_signal_pending(current) ||
				       vserve_owner_is_gone(vring->mm)))
			return false;
		if (wait_event_idle_timeout(vring->drain, vserve_is_drained(vring),
					    vserve_stop_jiffies()))
			break;
		vring->overdue = true;
		vserve_warn_of_backend(vring);
	}
	return true;
}

/**
 * vserve_vring_finish_stop - wait until a vring has stopped, however long that takes
 * @vring: the vring, after vserve_vring_begin_stop(); the device's mutex is held
 */
void vserve_vring_finish_stop(struct vserve_vring *vring)
{
	if (!vring->stopping)
		return;
	wait_event_idle(vring->drain, vserve_is_drained(vring));
	vserve_end_stop(vring);
}

/**
 * vserve_vring_init - set up a new vring
 * @vring: the vring, all zero
 * @dev: the device
 * @index: the index of the vring
 */
void vserve_vring_init(struct vserve_vring *vring, struct vserve_dev *dev,
		       unsigned int index)
{
	vring->dev = dev;
	vring->ops = dev->ops;
	vring->index = index;
	vring->poller_cpu = VSERVE_NO_CPU;
	vring->target = VHOST_SERVE_TARGET_AUTO;
	vring->src.weight = VSERVE_WEIGHT;
	vring->vq.handle_kick = vserve_handle_kick;
	init_llist_head(&vring->done);
	init_llist_head(&vring->reaped);
	vring->hot_last = &vring->hot;
	INIT_LIST_HEAD(&vring->pending);
	INIT_LIST_HEAD(&vring->inflight);
	INIT_LIST_HEAD(&vring->polled);
	vring->finished_last = &vring->finished;
	INIT_WORK(&vring->work, vserve_worker);
	INIT_WORK(&vring->stop_work, vserve_drain);
	init_waitqueue_head(&vring->drain);
	atomic64_set(&vring->kicks, 0);
	if (vring->ops->init_vring)
		vring->ops->init_vring(vring);
}
