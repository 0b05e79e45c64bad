// SPDX-License-Identifier: GPL-2.0
/*
 * A source for vhost_poll without a ring: work comes from ioctls and from a
 * timer interrupt, and every callback checks what it was promised.
 *
 * @control orders attach and detach.  The fields below @callbacks are the
 * poller's thread's, and read from outside without a lock.
 */
#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vhost_poll.h>

#include "vhost_poll_selftest.h"

/* Faster than this, a timer leaves an emulated CPU no time for anything else. */
#define TICK_MIN_NS	50000

#define IN_CALLBACK	0
#define ARMED		1

struct selftest {
	struct vhost_poll_source src;
	struct vhost_poller *poller;	/* attached to, with a reference */
	struct mutex control;		/* attach, detach, timers */
	bool attached;
	u64 __user *user;
	u64 expect;

	atomic64_t pending;
	atomic64_t added;
	atomic_t violations;
	struct hrtimer tick;
	ktime_t period;
	u64 retry;

	/* A request of the pretended backend: submit -> in flight -> done. */
	u64 delay_ns;
	bool submit_polled;
	int submit;
	int done;
	u64 due;
	struct hrtimer backend;

	unsigned long callbacks;
	u64 served;
	u64 completed;
	u64 polls;
	u64 arms;
	u64 disarms;
	u32 max_budget;
};

static struct selftest *from_source(struct vhost_poll_source *src)
{
	return container_of(src, struct selftest, src);
}

static void check(struct selftest *t, bool good)
{
	if (!good)
		atomic_inc(&t->violations);
}

static void callback_begins(struct selftest *t)
{
	check(t, !test_and_set_bit(IN_CALLBACK, &t->callbacks));
	check(t, READ_ONCE(t->attached));
	check(t, current->flags & PF_KTHREAD);
	check(t, !t->src.mm || current->mm == t->src.mm);
	check(t, preemptible());
}

static void callback_ends(struct selftest *t)
{
	clear_bit(IN_CALLBACK, &t->callbacks);
}

static void check_user_memory(struct selftest *t)
{
	unsigned long left;
	u64 value;

	if (!t->user)
		return;
	pagefault_disable();
	left = __copy_from_user_inatomic(&value, t->user, sizeof(value));
	pagefault_enable();
	/* Not resident is possible; wrong is not. */
	check(t, left || value == t->expect);
}

static int backend_start(struct selftest *t)
{
	/* Pairs with the release in selftest_submit(). */
	if (!smp_load_acquire(&t->submit) || t->src.inflight)
		return 0;
	WRITE_ONCE(t->submit, 0);
	t->src.inflight = 1;
	t->src.oldest_ns = ktime_get_ns();
	t->src.service_ns = t->delay_ns;
	t->src.polled = t->submit_polled;
	t->due = t->src.oldest_ns + t->delay_ns;
	if (!t->submit_polled)
		hrtimer_start(&t->backend, ns_to_ktime(t->delay_ns),
			      HRTIMER_MODE_REL);
	return 1;
}

static int backend_reap(struct selftest *t)
{
	if (!t->src.inflight)
		return 0;
	if (t->src.polled ? ktime_get_ns() < t->due : !xchg(&t->done, 0))
		return 0;
	t->src.inflight = 0;
	t->src.oldest_ns = 0;
	WRITE_ONCE(t->completed, t->completed + 1);
	return 1;
}

static int selftest_poll(struct vhost_poll_source *src, int budget, u64 *now)
{
	struct selftest *t = from_source(src);
	s64 n;

	callback_begins(t);
	check(t, !test_bit(ARMED, &t->callbacks));
	check(t, budget > 0);
	check(t, *now <= ktime_get_ns());
	*now = 0;
	check_user_memory(t);
	WRITE_ONCE(t->polls, t->polls + 1);
	if (budget > t->max_budget)
		WRITE_ONCE(t->max_budget, budget);
	n = min_t(s64, budget, atomic64_read(&t->pending));
	if (n > 0) {
		atomic64_sub(n, &t->pending);
		WRITE_ONCE(t->served, t->served + n);
	}
	n += backend_reap(t);
	n += backend_start(t);
	src->retry_ns = READ_ONCE(t->retry) ?
			ktime_get_ns() + READ_ONCE(t->retry) : 0;
	callback_ends(t);
	return n;
}

static bool selftest_arm(struct vhost_poll_source *src)
{
	struct selftest *t = from_source(src);
	bool work;

	callback_begins(t);
	check(t, !test_and_set_bit(ARMED, &t->callbacks));
	check_user_memory(t);
	WRITE_ONCE(t->arms, t->arms + 1);
	work = atomic64_read(&t->pending) || READ_ONCE(t->done) ||
	       (READ_ONCE(t->submit) && !src->inflight);
	callback_ends(t);
	return work;
}

static void selftest_disarm(struct vhost_poll_source *src)
{
	struct selftest *t = from_source(src);

	callback_begins(t);
	clear_bit(ARMED, &t->callbacks);
	WRITE_ONCE(t->disarms, t->disarms + 1);
	callback_ends(t);
}

static const struct vhost_poll_ops selftest_ops = {
	.poll	= selftest_poll,
	.arm	= selftest_arm,
	.disarm	= selftest_disarm,
};

static void add_work(struct selftest *t, u64 n)
{
	atomic64_add(n, &t->added);
	atomic64_add(n, &t->pending);
	vhost_poll_wake(&t->src);
}

static enum hrtimer_restart tick_fires(struct hrtimer *timer)
{
	struct selftest *t = container_of(timer, struct selftest, tick);

	add_work(t, 1);
	hrtimer_forward_now(timer, t->period);
	return HRTIMER_RESTART;
}

static enum hrtimer_restart backend_fires(struct hrtimer *timer)
{
	struct selftest *t = container_of(timer, struct selftest, backend);

	WRITE_ONCE(t->done, 1);
	vhost_poll_wake(&t->src);
	return HRTIMER_NORESTART;
}

static int selftest_attach(struct selftest *t, void __user *uarg)
{
	struct selftest_attach arg;
	struct vhost_poller *poller;
	int ret;

	if (copy_from_user(&arg, uarg, sizeof(arg)))
		return -EFAULT;
	guard(mutex)(&t->control);
	if (t->attached)
		return vhost_poll_attach(t->poller, &t->src);

	poller = vhost_poller_get(arg.poller_fd);
	if (IS_ERR(poller))
		return PTR_ERR(poller);
	t->poller = poller;
	t->user = (u64 __user *)(unsigned long)arg.user;
	t->expect = arg.expect;
	t->src = (struct vhost_poll_source) {
		.ops	= &selftest_ops,
		.weight	= arg.weight,
	};
	if (arg.user) {
		t->src.mm = current->mm;
		mmgrab(t->src.mm);
	}
	WRITE_ONCE(t->attached, true);
	ret = vhost_poll_attach(poller, &t->src);
	if (!ret)
		return 0;

	WRITE_ONCE(t->attached, false);
	if (t->src.mm)
		mmdrop(t->src.mm);
	vhost_poller_put(poller);
	return ret;
}

static int selftest_detach(struct selftest *t)
{
	guard(mutex)(&t->control);
	if (!t->attached)
		return -ENOENT;
	vhost_poll_detach(&t->src);
	WRITE_ONCE(t->attached, false);
	clear_bit(ARMED, &t->callbacks);
	hrtimer_cancel(&t->backend);
	t->submit = 0;
	t->done = 0;
	if (t->src.mm)
		mmdrop(t->src.mm);
	vhost_poller_put(t->poller);
	return 0;
}

static int selftest_tick(struct selftest *t, u64 ns)
{
	if (ns && ns < TICK_MIN_NS)
		return -EINVAL;
	guard(mutex)(&t->control);
	hrtimer_cancel(&t->tick);
	if (!ns)
		return 0;
	t->period = ns_to_ktime(ns);
	hrtimer_start(&t->tick, t->period, HRTIMER_MODE_REL);
	return 0;
}

static int selftest_submit(struct selftest *t, void __user *uarg)
{
	struct selftest_submit arg;

	if (copy_from_user(&arg, uarg, sizeof(arg)))
		return -EFAULT;
	guard(mutex)(&t->control);
	if (READ_ONCE(t->submit))
		return -EBUSY;
	t->delay_ns = arg.delay_ns;
	t->submit_polled = arg.polled;
	/* Pairs with the acquire in backend_start(). */
	smp_store_release(&t->submit, 1);
	vhost_poll_wake(&t->src);
	return 0;
}

static int selftest_state(struct selftest *t, void __user *uarg)
{
	struct selftest_state st = {
		.pending	= atomic64_read(&t->pending),
		.added		= atomic64_read(&t->added),
		.served		= READ_ONCE(t->served),
		.completed	= READ_ONCE(t->completed),
		.polls		= READ_ONCE(t->polls),
		.arms		= READ_ONCE(t->arms),
		.disarms	= READ_ONCE(t->disarms),
		.max_budget	= READ_ONCE(t->max_budget),
		.violations	= atomic_read(&t->violations),
	};

	return copy_to_user(uarg, &st, sizeof(st)) ? -EFAULT : 0;
}

static long selftest_ioctl(struct file *file, unsigned int cmd,
			   unsigned long arg)
{
	struct selftest *t = file->private_data;
	void __user *uarg = (void __user *)arg;
	u64 number = 0;

	if ((cmd == VPS_WORK || cmd == VPS_TICK || cmd == VPS_RETRY) &&
	    get_user(number, (u64 __user *)uarg))
		return -EFAULT;

	switch (cmd) {
	case VPS_ATTACH:
		return selftest_attach(t, uarg);
	case VPS_DETACH:
		return selftest_detach(t);
	case VPS_WORK:
		add_work(t, number);
		return 0;
	case VPS_TICK:
		return selftest_tick(t, number);
	case VPS_RETRY:
		WRITE_ONCE(t->retry, number);
		vhost_poll_wake(&t->src);
		return 0;
	case VPS_SUBMIT:
		return selftest_submit(t, uarg);
	case VPS_STATE:
		return selftest_state(t, uarg);
	default:
		return -ENOTTY;
	}
}

static void timer_setup_for(struct hrtimer *timer,
			    enum hrtimer_restart (*fires)(struct hrtimer *timer))
{
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	timer->function = fires;
}

static int selftest_open(struct inode *inode, struct file *file)
{
	struct selftest *t = kzalloc(sizeof(*t), GFP_KERNEL);

	if (!t)
		return -ENOMEM;
	mutex_init(&t->control);
	timer_setup_for(&t->tick, tick_fires);
	timer_setup_for(&t->backend, backend_fires);
	file->private_data = t;
	return nonseekable_open(inode, file);
}

static int selftest_release(struct inode *inode, struct file *file)
{
	struct selftest *t = file->private_data;

	/* The tick goes on while it is being detached: that race is wanted. */
	selftest_detach(t);
	hrtimer_cancel(&t->tick);
	kfree(t);
	return 0;
}

static const struct file_operations selftest_fops = {
	.owner		= THIS_MODULE,
	.open		= selftest_open,
	.release	= selftest_release,
	.unlocked_ioctl	= selftest_ioctl,
};

static struct miscdevice selftest_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "vhost-poll-selftest",
	.fops	= &selftest_fops,
	.mode	= 0600,
};
module_misc_device(selftest_misc);

MODULE_DESCRIPTION("A source for the tests of vhost_poll");
MODULE_LICENSE("GPL");
