// SPDX-License-Identifier: GPL-2.0
/*
 * Does wrong on request, so that the lab can show that it notices:
 *
 *	echo NAME >/sys/kernel/debug/lab_trigger
 *
 * For throw-away virtual machines only.
 */
#include <linux/compiler.h>
#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#define STALL_SECONDS	12

static DEFINE_MUTEX(lock_a);
static DEFINE_MUTEX(lock_b);
static DEFINE_SPINLOCK(atomic_lock);
static DECLARE_COMPLETION(never);
static struct dentry *control;

static noinline void do_warn(void)
{
	WARN(1, "lab_trigger: as requested\n");
}

static noinline void do_oops(void)
{
	int *nowhere = NULL;

	OPTIMIZER_HIDE_VAR(nowhere);
	WRITE_ONCE(*nowhere, 1);
}

static noinline void do_panic(void)
{
	panic("lab_trigger: as requested");
}

/* Both orders of two locks, one after the other: harmless, and wrong. */
static noinline void do_lockdep(void)
{
	mutex_lock(&lock_a);
	mutex_lock(&lock_b);
	mutex_unlock(&lock_b);
	mutex_unlock(&lock_a);

	mutex_lock(&lock_b);
	mutex_lock(&lock_a);
	mutex_unlock(&lock_a);
	mutex_unlock(&lock_b);
}

static noinline void do_atomic_sleep(void)
{
	spin_lock(&atomic_lock);
	msleep(20);
	spin_unlock(&atomic_lock);
}

static noinline void do_kasan(void)
{
	char *gone = kmalloc(64, GFP_KERNEL);

	if (!gone)
		return;
	kfree(gone);
	OPTIMIZER_HIDE_VAR(gone);
	WRITE_ONCE(gone[8], 1);
}

static noinline void do_double_free(void)
{
	char *twice = kmalloc(64, GFP_KERNEL);

	kfree(twice);
	OPTIMIZER_HIDE_VAR(twice);
	kfree(twice);
}

static noinline void do_kmemleak(void)
{
	for (int i = 0; i < 4; i++) {
		char *lost = kmalloc(2000, GFP_KERNEL);

		OPTIMIZER_HIDE_VAR(lost);
	}
}

static noinline void do_hung_task(void)
{
	wait_for_completion(&never);
	barrier();	/* no tail call: the trace shall name us */
}

static noinline void do_end_hang(void)
{
	complete_all(&never);
}

static noinline void do_rcu_stall(void)
{
	unsigned long end = jiffies + STALL_SECONDS * HZ;

	preempt_disable();
	rcu_read_lock();
	while (time_before(jiffies, end))
		cpu_relax();
	rcu_read_unlock();
	preempt_enable();
}

static const struct {
	const char *name;
	void (*action)(void);
} triggers[] = {
	{ "warn", do_warn },
	{ "oops", do_oops },
	{ "panic", do_panic },
	{ "lockdep", do_lockdep },
	{ "atomic_sleep", do_atomic_sleep },
	{ "kasan", do_kasan },
	{ "double_free", do_double_free },
	{ "kmemleak", do_kmemleak },
	{ "hung_task", do_hung_task },
	{ "end_hang", do_end_hang },
	{ "rcu_stall", do_rcu_stall },
};

static ssize_t control_write(struct file *file, const char __user *from, size_t count, loff_t *pos)
{
	char name[32] = "";
	size_t len = min(count, sizeof(name) - 1);

	if (copy_from_user(name, from, len))
		return -EFAULT;
	for (size_t i = 0; i < ARRAY_SIZE(triggers); i++) {
		if (!sysfs_streq(name, triggers[i].name))
			continue;
		triggers[i].action();
		return count;
	}
	return -EINVAL;
}

static const struct file_operations control_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = control_write,
};

static int __init lab_trigger_init(void)
{
	control = debugfs_create_file("lab_trigger", 0200, NULL, NULL, &control_fops);
	return PTR_ERR_OR_ZERO(control);
}
module_init(lab_trigger_init);

static void __exit lab_trigger_exit(void)
{
	debugfs_remove(control);
}
module_exit(lab_trigger_exit);

MODULE_DESCRIPTION("Does wrong on request, to test the lab");
MODULE_LICENSE("GPL");
