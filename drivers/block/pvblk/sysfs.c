// SPDX-License-Identifier: GPL-2.0
/*
 * The attributes of a disk in sysfs: `serial` and `cache_type`, in the same place and form as with
 * virtio_blk, and the group `pvblk`.  The group has mode, poll_max_us, and a file for each counter
 * with one number for each queue.  Documentation/ABI/testing/sysfs-block-virtio-pvblk describes
 * them.
 */
#include "pvblk.h"

#include <linux/sysfs.h>

const char *const pvblk_mode_names[] = {
	[VIRTIO_POLL_IRQ] = "irq",
	[VIRTIO_POLL_ADAPTIVE] = "adaptive",
	[VIRTIO_POLL_BUSY] = "busy",
};

static const char *const pvblk_cache_types[] = { "write through", "write back" };

static struct pvblk_dev *pvblk_of(struct device *d)
{
	return dev_to_disk(d)->private_data;
}

static ssize_t serial_show(struct device *d, struct device_attribute *attr, char *buf)
{
	/* blk_rq_map_kern() needs memory that DMA can reach, and BUF is such memory. */
	int err = pvblk_get_id(dev_to_disk(d), buf);

	buf[VIRTIO_BLK_ID_BYTES] = '\0';
	if (!err)
		return strlen(buf);
	/* If the device knows no serial number, the file is empty. */
	return err == -EIO || err == -EOPNOTSUPP ? 0 : err;
}
static DEVICE_ATTR_RO(serial);

static ssize_t cache_type_show(struct device *d, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", pvblk_cache_types[pvblk_cache_mode(pvblk_of(d)->vdev)]);
}

static ssize_t cache_type_store(struct device *d, struct device_attribute *attr,
				const char *buf, size_t count)
{
	struct pvblk_dev *dev = pvblk_of(d);
	int wce = sysfs_match_string(pvblk_cache_types, buf);

	if (wce < 0)
		return wce;
	/* Check this here as well, because root may have made the file writable. */
	if (!virtio_has_feature(dev->vdev, VIRTIO_BLK_F_CONFIG_WCE))
		return -EOPNOTSUPP;
	return pvblk_cache_set(dev, wce) ?: count;
}
static DEVICE_ATTR_RW(cache_type);

static struct attribute *pvblk_disk_attrs[] = {
	&dev_attr_serial.attr,
	&dev_attr_cache_type.attr,
	NULL,
};

static umode_t pvblk_disk_attr_mode(struct kobject *kobj, struct attribute *a, int n)
{
	struct pvblk_dev *dev = pvblk_of(kobj_to_dev(kobj));

	if (a == &dev_attr_cache_type.attr &&
	    !virtio_has_feature(dev->vdev, VIRTIO_BLK_F_CONFIG_WCE))
		return 0444;
	return a->mode;
}

static const struct attribute_group pvblk_disk_group = {
	.attrs = pvblk_disk_attrs,
	.is_visible = pvblk_disk_attr_mode,
};

static ssize_t mode_show(struct device *d, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", pvblk_mode_names[READ_ONCE(pvblk_of(d)->poll.mode)]);
}

/* Forget the waits that the policies have learned under another mode or limit. */
static void pvblk_forget(struct pvblk_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->nr_vqs; i++)
		virtio_poll_forget(&dev->vqs[i].q);
}

/* Pollers read the mode afresh for each wait, so requests need not stop for a change. */
static ssize_t mode_store(struct device *d, struct device_attribute *attr,
			  const char *buf, size_t count)
{
	int m = sysfs_match_string(pvblk_mode_names, buf);

	if (m < 0)
		return m;
	WRITE_ONCE(pvblk_of(d)->poll.mode, m);
	pvblk_forget(pvblk_of(d));
	return count;
}
static DEVICE_ATTR_RW(mode);

static ssize_t poll_max_us_show(struct device *d, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(pvblk_of(d)->poll.max_us));
}

static ssize_t poll_max_us_store(struct device *d, struct device_attribute *attr,
				 const char *buf, size_t count)
{
	unsigned int us;
	int err = kstrtouint(buf, 0, &us);

	if (err)
		return err;
	if (us > VIRTIO_POLL_MAX_US)
		return -ERANGE;
	WRITE_ONCE(pvblk_of(d)->poll.max_us, us);
	pvblk_forget(pvblk_of(d));
	return count;
}
static DEVICE_ATTR_RW(poll_max_us);

/* Each number is right by itself, but together they are no snapshot, because this takes no lock. */
#define PVBLK_SHOW(name, expr)							\
static ssize_t name##_show(struct device *d, struct device_attribute *attr,	\
			   char *buf)						\
{										\
	struct pvblk_dev *dev = pvblk_of(d);					\
	unsigned int i;								\
	int len = 0;								\
										\
	for (i = 0; i < dev->nr_vqs; i++) {					\
		struct pvblk_vq *vq = &dev->vqs[i];				\
										\
		len += sysfs_emit_at(buf, len, i ? " %llu" : "%llu",		\
				     (u64)READ_ONCE(expr));			\
	}									\
	return len + sysfs_emit_at(buf, len, "\n");				\
}										\
static DEVICE_ATTR_RO(name)

PVBLK_SHOW(submitted, vq->stats.submitted);
PVBLK_SHOW(completed, vq->stats.completed);
PVBLK_SHOW(polls, vq->q.stats.polls);
PVBLK_SHOW(found, vq->q.stats.found);
PVBLK_SHOW(irq_fallbacks, vq->q.stats.irq_fallbacks);
PVBLK_SHOW(starved, vq->q.stats.starved);
PVBLK_SHOW(stolen, vq->q.stats.stolen);
PVBLK_SHOW(interrupts, vq->q.stats.interrupts);
PVBLK_SHOW(kicks_sent, vq->stats.kicks_sent);
PVBLK_SHOW(kicks_saved, vq->stats.kicks_saved);
PVBLK_SHOW(timeouts, vq->stats.timeouts);
PVBLK_SHOW(restarted, vq->stats.restarted);
PVBLK_SHOW(inflight, vq->q.inflight);
PVBLK_SHOW(wait_ns, vq->q.policy.wait_ns);

static struct attribute *pvblk_attrs[] = {
	&dev_attr_mode.attr,
	&dev_attr_poll_max_us.attr,
	&dev_attr_submitted.attr,
	&dev_attr_completed.attr,
	&dev_attr_polls.attr,
	&dev_attr_found.attr,
	&dev_attr_irq_fallbacks.attr,
	&dev_attr_starved.attr,
	&dev_attr_stolen.attr,
	&dev_attr_interrupts.attr,
	&dev_attr_kicks_sent.attr,
	&dev_attr_kicks_saved.attr,
	&dev_attr_timeouts.attr,
	&dev_attr_restarted.attr,
	&dev_attr_inflight.attr,
	&dev_attr_wait_ns.attr,
	NULL,
};

static const struct attribute_group pvblk_group = {
	.name = "pvblk",
	.attrs = pvblk_attrs,
};

const struct attribute_group *pvblk_groups[] = {
	&pvblk_disk_group,
	&pvblk_group,
	NULL,
};
