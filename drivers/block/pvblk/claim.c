// SPDX-License-Identifier: GPL-2.0
/*
 * Which devices the driver takes.  virtio_blk has the same device ID, so the ID decides nothing
 * here.  The user decides in one of these ways:
 *
 * - With the module parameter claim=all the driver matches every block device.  Of the two drivers,
 *   the one that was registered first gets the unbound devices.
 * - With claim=NAME,... the module takes the named devices when it is loaded, if no driver has
 *   them.  It does not take devices that come later, because the bus matches a driver by its IDs
 *   only.
 * - The driver attributes `take` and `give` move a device from virtio_blk to this driver and back
 *   at run time, unless its disk is in use.
 * - If the bus has driver_override (a patch, see patches/), the bus gives this driver each device
 *   whose driver_override names it, and no other driver gets that device.
 *
 * The driver does not match devices that it is not to have.  If its probe() refused such a device,
 * virtio's core would set the FAILED status, and the other driver could not use the device.  See
 * pvblk_reset_after_probe().
 */
#include "pvblk.h"

#include <linux/device.h>
#include <linux/device/bus.h>
#include <linux/file.h>
#include <linux/module.h>

#define OURS	(&pvblk_driver.driver)

static char *claim;
module_param(claim, charp, 0444);
MODULE_PARM_DESC(claim, "Devices to bind when the module loads: all, or a comma-separated list of names (virtio3, or the parent's 0000:00:05.0); default none");

/* This matches nothing, or with claim=all every block device. */
struct virtio_device_id pvblk_id_table[2];

static bool pvblk_in_list(const char *list, const char *name)
{
	size_t len = strlen(name);
	const char *p;

	for (p = list; (p = strstr(p, name)); p++) {
		if ((p == list || p[-1] == ',') && (!p[len] || p[len] == ','))
			return true;
	}
	return false;
}

static bool pvblk_is_block(struct device *d)
{
	return dev_to_virtio(d)->id.device == VIRTIO_ID_BLOCK;
}

/* The device that a task moves from one driver to another.  pvblk_move_mutex protects it. */
static struct device *pvblk_moving;

/*
 * Whether the driver has the device, moves it, or may claim it next.  If a probe of any other
 * device fails, that is the concern of the driver that probed it.
 */
static bool pvblk_is_our_concern(struct device *d)
{
	return d->driver == OURS || d == READ_ONCE(pvblk_moving) || pvblk_id_table[0].device;
}

/*
 * Reset a device whose probe has failed.  virtio's core has set FAILED, and some VMMs do not let
 * any driver have such a device.  Queues may still be enabled, and then no driver can set them up
 * again.  The caller holds the device's lock, so the device cannot go meanwhile.
 */
static void pvblk_clear_failure(struct virtio_device *vdev)
{
	if (pvblk_reset_bare(vdev))
		virtio_add_status(vdev, VIRTIO_CONFIG_S_ACKNOWLEDGE);
}

/*
 * A probe has failed: this driver's own, or that of the other driver, which does not reset the
 * device.
 */
static int pvblk_reset_after_probe(struct notifier_block *nb, unsigned long action, void *data)
{
	struct device *d = data;

	if (action == BUS_NOTIFY_DRIVER_NOT_BOUND && pvblk_is_block(d) && pvblk_is_our_concern(d))
		pvblk_clear_failure(dev_to_virtio(d));
	return NOTIFY_DONE;
}

static struct notifier_block pvblk_probe_nb = { .notifier_call = pvblk_reset_after_probe };

/*
 * If an earlier probe of the other driver failed, it may have left queues enabled.  Then the first
 * probe of this driver fails, too, and pvblk_reset_after_probe() resets the device for a second
 * probe.
 */
static int pvblk_attach(struct device_driver *drv, struct device *d)
{
	int err = device_driver_attach(drv, d);

	if (err == -ENOENT && drv == OURS)
		err = device_driver_attach(drv, d);
	return err;
}

/*
 * When the module registers the driver, the bus probes the devices whose driver_override names the
 * driver.  The notifier is not registered at that time, because only a registered driver knows its
 * bus.  So if such a probe failed, probe the device again.  If that fails, too, the notifier resets
 * the device.
 */
static int pvblk_probe_again(struct device *d, void *unused)
{
	int err;

	if (!pvblk_is_block(d) || d->driver || !OURS->bus->match(d, OURS))
		return 0;
	err = pvblk_attach(OURS, d);
	/* If the probe failed because of FAILED alone, pvblk_attach() has not tried twice. */
	if (err)
		err = device_driver_attach(OURS, d);
	if (err)
		dev_warn(d, "virtio_pvblk cannot bind the device: error %d; it has no driver now\n",
			 err);
	return 0;
}

static int pvblk_claim_one(struct device *d, void *data)
{
	unsigned int *free = data;
	int err;

	if (!pvblk_is_block(d) || d->driver)
		return 0;
	if (!pvblk_in_list(claim, dev_name(d)) &&
	    !(d->parent && pvblk_in_list(claim, dev_name(d->parent))))
		return 0;
	++*free;
	err = pvblk_attach(OURS, d);
	if (err)
		dev_warn(d, "virtio_pvblk cannot bind the device: error %d; it has no driver now\n",
			 err);
	return 0;
}

static int pvblk_claim_named(void)
{
	unsigned int free = 0;
	int err = bus_for_each_dev(OURS->bus, NULL, &free, pvblk_claim_one);

	/* With "none" on the kernel's command line, a user undoes a claim= that is configured. */
	if (!err && !free && strcmp(claim, "none"))
		pr_notice("virtio_pvblk: claim=%s: the named devices do not exist or have a driver already; see pvblkctl list, and use pvblkctl take\n",
			  claim);
	return err;
}

/*
 * One task at a time moves a device, so that no other task takes or gives it after this one has
 * checked its driver.  A task that writes to `bind` of the bus does not take this mutex, and may
 * change the driver in between.  Therefore pvblk_open_exclusively() checks whose disk it is.
 */
static DEFINE_MUTEX(pvblk_move_mutex);

/*
 * While a device changes its driver, the task that moves it has the disk open exclusively.  To open
 * it fails with -EBUSY if the disk is mounted, used for swap, a member of an array, or open
 * elsewhere.
 */
struct pvblk_exclusive {
	struct file *file;
	bool ours;		/* whether the disk should be one of this driver */
	int err;
};

static int pvblk_open_exclusively(struct device *d, void *data)
{
	struct pvblk_exclusive *c = data;
	struct gendisk *disk;
	struct file *file;
	bool ours;

	if (!d->class || strcmp(d->class->name, "block"))
		return 0;
	file = bdev_file_open_by_dev(d->devt, BLK_OPEN_READ, c, NULL);
	if (IS_ERR(file)) {
		c->err = PTR_ERR(file);
		return 1;
	}
	c->file = file;
	disk = file_bdev(file)->bd_disk;
	ours = disk->fops == &pvblk_fops;
	/* Not every user of a disk opens it exclusively. */
	if (disk_openers(disk) > 1 || ours != c->ours)
		c->err = -EBUSY;
	else	/* Check the next name now, because later the disk would go and come back. */
		c->err = ours ? pvblk_their_name_check(disk) : pvblk_name_check(disk);
	return 1;
}

static int pvblk_release_device(struct device *d, bool ours)
{
	struct pvblk_exclusive c = { .ours = ours };

	device_for_each_child(d, &c, pvblk_open_exclusively);
	if (!c.err)
		device_release_driver(d);
	/*
	 * Close the file at once, because until then the next disk could not have the name of this
	 * one.  A program such as udev may open the disk just now, not exclusively.  Then the name
	 * stays taken until that program closes the disk.
	 */
	if (c.file)
		__fput_sync(c.file);
	return c.err;
}

/* Another driver for a device, with a reference to its module. */
struct pvblk_other {
	struct device *device;
	struct device_driver *driver;
};

/* Get the driver that has the device, even if the bus does not match the two any more. */
static void pvblk_get_present(struct pvblk_other *o)
{
	device_lock(o->device);
	if (o->device->driver && try_module_get(o->device->driver->owner))
		o->driver = o->device->driver;
	device_unlock(o->device);
}

static int pvblk_get_matching(struct device_driver *drv, void *data)
{
	struct pvblk_other *o = data;

	if (drv == OURS || !drv->bus->match(o->device, drv) ||
	    !try_module_get(drv->owner))
		return 0;
	o->driver = drv;
	return 1;
}

/* Move a device.  If the new driver does not take it, give it back to the old one. */
static int pvblk_move_dev(struct device *d, struct device_driver *from, struct device_driver *to)
{
	int err = 0;

	if (from)
		err = pvblk_release_device(d, from == OURS);
	if (err)
		return err;
	WRITE_ONCE(pvblk_moving, d);
	err = pvblk_attach(to, d);
	if (err && from && pvblk_attach(from, d))
		dev_warn(d, "the disk has no driver now; write the device's name to /sys/bus/virtio/drivers/virtio_blk/bind\n");
	WRITE_ONCE(pvblk_moving, NULL);
	return err;
}

static struct device *pvblk_find_block(struct device_driver *drv, const char *buf)
{
	struct device *d;
	char name[32];

	if (strscpy(name, buf, sizeof(name)) < 0)
		return NULL;
	d = bus_find_device_by_name(drv->bus, NULL, strim(name));
	if (d && !pvblk_is_block(d)) {
		put_device(d);
		return NULL;
	}
	return d;
}

static ssize_t take_store(struct device_driver *drv, const char *buf, size_t count)
{
	struct pvblk_other o = { .device = pvblk_find_block(drv, buf) };
	int err = 0;

	if (!o.device)
		return -ENODEV;
	mutex_lock(&pvblk_move_mutex);
	pvblk_get_present(&o);
	if (o.driver != drv)
		err = pvblk_move_dev(o.device, o.driver, drv);
	mutex_unlock(&pvblk_move_mutex);
	if (o.driver)
		module_put(o.driver->owner);
	put_device(o.device);
	return err ?: count;
}
static DRIVER_ATTR_WO(take);

static ssize_t give_store(struct device_driver *drv, const char *buf, size_t count)
{
	struct pvblk_other o = { .device = pvblk_find_block(drv, buf) };
	int err = -ENODEV;

	if (!o.device)
		return err;
	mutex_lock(&pvblk_move_mutex);
	bus_for_each_drv(drv->bus, NULL, &o, pvblk_get_matching);
	if (o.device->driver == drv && o.driver)
		err = pvblk_move_dev(o.device, drv, o.driver);
	mutex_unlock(&pvblk_move_mutex);
	if (o.driver)
		module_put(o.driver->owner);
	put_device(o.device);
	return err ?: count;
}
static DRIVER_ATTR_WO(give);

static int pvblk_claim_devices(void)
{
	if (!claim)
		return 0;
	if (strcmp(claim, "all"))
		return pvblk_claim_named();
	pvblk_id_table[0] = (struct virtio_device_id){ VIRTIO_ID_BLOCK, VIRTIO_DEV_ANY_ID };
	return driver_attach(OURS);
}

/**
 * pvblk_claim_init - claim devices, and offer `take` and `give`
 *
 * The driver is registered, and its table of IDs matches nothing yet.
 *
 * Return: 0 or -errno.
 */
int pvblk_claim_init(void)
{
	int err = bus_register_notifier(OURS->bus, &pvblk_probe_nb);

	if (err)
		return err;
	bus_for_each_dev(OURS->bus, NULL, NULL, pvblk_probe_again);
	err = driver_create_file(OURS, &driver_attr_take);
	if (err)
		goto unregister;
	err = driver_create_file(OURS, &driver_attr_give);
	if (err)
		goto remove_take;
	err = pvblk_claim_devices();
	if (err)
		goto remove_give;
	return 0;

remove_give:
	driver_remove_file(OURS, &driver_attr_give);
remove_take:
	driver_remove_file(OURS, &driver_attr_take);
unregister:
	bus_unregister_notifier(OURS->bus, &pvblk_probe_nb);
	return err;
}

void pvblk_claim_exit(void)
{
	driver_remove_file(OURS, &driver_attr_give);
	driver_remove_file(OURS, &driver_attr_take);
	bus_unregister_notifier(OURS->bus, &pvblk_probe_nb);
}
