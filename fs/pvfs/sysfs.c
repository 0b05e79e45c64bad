// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/bus/virtio/devices/virtioN/pvfs/: the tag and options of the mount, counters with one number
 * for each queue, and counters of the hiprio queue.
 *
 * A task that reads a file takes no lock, because another one may hold dev->lock for as long as a
 * reset takes.  So while a mount comes or goes, a file may show a value of the previous mount.
 */
#include "pvfs.h"

#include <linux/device.h>
#include <linux/sysfs.h>

static struct pvfs_dev *pvfs_of(struct device *d)
{
	return dev_to_virtio(d)->priv;
}

static ssize_t tag_show(struct device *d, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", pvfs_of(d)->tag);
}
static DEVICE_ATTR_RO(tag);

static ssize_t cache_show(struct device *d, struct device_attribute *attr, char *buf)
{
	struct pvfs_dev *dev = pvfs_of(d);

	return sysfs_emit(buf, "%s\n",
			  READ_ONCE(dev->fc) ? pvfs_cache_name(READ_ONCE(dev->cache)) : "-");
}
static DEVICE_ATTR_RO(cache);

static ssize_t writeback_show(struct device *d, struct device_attribute *attr, char *buf)
{
	struct pvfs_dev *dev = pvfs_of(d);

	if (!READ_ONCE(dev->fc))
		return sysfs_emit(buf, "-\n");
	return sysfs_emit(buf, "%u\n", READ_ONCE(dev->writeback));
}
static DEVICE_ATTR_RO(writeback);

static ssize_t timeout_show(struct device *d, struct device_attribute *attr, char *buf)
{
	struct pvfs_dev *dev = pvfs_of(d);

	if (!READ_ONCE(dev->fc))
		return sysfs_emit(buf, "-\n");
	return sysfs_emit(buf, "%u\n", READ_ONCE(dev->timeout));
}
static DEVICE_ATTR_RO(timeout);

#define PVFS_SHOW(name, value)							\
static ssize_t name##_show(struct device *d, struct device_attribute *attr,	\
			   char *buf)						\
{										\
	struct pvfs_dev *dev = pvfs_of(d);					\
	unsigned int i;								\
	int n = 0;								\
										\
	for (i = 0; i < dev->nr_queues; i++) {					\
		struct pvfs_queue *q = &dev->queues[i];				\
										\
		n += sysfs_emit_at(buf, n, "%s%llu", i ? " " : "",		\
				   (unsigned long long)READ_ONCE(value));	\
	}									\
	return n + sysfs_emit_at(buf, n, "\n");					\
}										\
static DEVICE_ATTR_RO(name)

PVFS_SHOW(requests, q->stats.requests);
PVFS_SHOW(polled, q->stats.polled);
PVFS_SHOW(slept, q->stats.slept);
PVFS_SHOW(unpolled, q->stats.unpolled);
PVFS_SHOW(iopolled, q->stats.iopolled);
PVFS_SHOW(idle_polled, q->poll.stats.answers);
PVFS_SHOW(irq_fallbacks, q->poll.stats.irq_fallbacks);
PVFS_SHOW(starved, q->poll.stats.starved);
PVFS_SHOW(stolen, q->poll.stats.stolen);
PVFS_SHOW(interrupts, q->poll.stats.interrupts);
PVFS_SHOW(kicks, q->stats.kicks);
PVFS_SHOW(kicks_saved, q->stats.kicks_saved);
PVFS_SHOW(queued, q->stats.queued);
PVFS_SHOW(bad_replies, q->stats.bad_replies);
PVFS_SHOW(abandoned, q->stats.abandoned);
PVFS_SHOW(inflight, q->poll.inflight);

#define PVFS_SHOW_HIPRIO(name, value)						\
static ssize_t name##_show(struct device *d, struct device_attribute *attr,	\
			   char *buf)						\
{										\
	struct pvfs_hiprio *hp = &pvfs_of(d)->hiprio;				\
										\
	return sysfs_emit(buf, "%llu\n", READ_ONCE(value));			\
}										\
static DEVICE_ATTR_RO(name)

PVFS_SHOW_HIPRIO(forgets, hp->forgets);
PVFS_SHOW_HIPRIO(forget_messages, hp->forget_messages);
PVFS_SHOW_HIPRIO(interrupts_sent, hp->interrupts_sent);
PVFS_SHOW_HIPRIO(hiprio_kicks, hp->kicks);

static struct attribute *pvfs_attrs[] = {
	&dev_attr_tag.attr,
	&dev_attr_cache.attr,
	&dev_attr_writeback.attr,
	&dev_attr_timeout.attr,
	&dev_attr_requests.attr,
	&dev_attr_polled.attr,
	&dev_attr_slept.attr,
	&dev_attr_unpolled.attr,
	&dev_attr_iopolled.attr,
	&dev_attr_idle_polled.attr,
	&dev_attr_irq_fallbacks.attr,
	&dev_attr_starved.attr,
	&dev_attr_stolen.attr,
	&dev_attr_interrupts.attr,
	&dev_attr_kicks.attr,
	&dev_attr_kicks_saved.attr,
	&dev_attr_queued.attr,
	&dev_attr_bad_replies.attr,
	&dev_attr_abandoned.attr,
	&dev_attr_inflight.attr,
	&dev_attr_forgets.attr,
	&dev_attr_forget_messages.attr,
	&dev_attr_interrupts_sent.attr,
	&dev_attr_hiprio_kicks.attr,
	NULL,
};

static const struct attribute_group pvfs_group = {
	.name = "pvfs",
	.attrs = pvfs_attrs,
};

const struct attribute_group *pvfs_groups[] = {
	&pvfs_group,
	NULL,
};
