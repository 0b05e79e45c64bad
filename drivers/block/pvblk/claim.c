// SPDX-License-Identifier: GPL-2.0
/*
 * Which devices are ours.  virtio_blk has the same device ID, and the bus has no
 * driver_override, so the ID decides nothing here:
 *
 * - the module parameter claim=all lets the driver match every block device,
 *   and whichever of the two drivers was registered first gets the unbound ones;
 * - claim=NAME,... takes the devices named, if nobody has them, when the module
 *   is loaded;
 * - the driver attributes `take` and `give` move a device over from virtio_blk
 *   and back at run time, unless its disk is in use.
 *
 * Refusing in probe() instead of not matching would not do: the core would set
 * the FAILED status, and the device is to be usable by the other driver.
 */
#include "pvblk.h"

#include <linux/device.h>
#include <linux/device/bus.h>
#include <linux/file.h>
#include <linux/module.h>

static char *claim;
module_param(claim, charp, 0444);
MODULE_PARM_DESC(claim, "Devices to take on loading: all, or names (virtio3 or, of its parent, 0000:00:05.0) with commas; default none");

bool pvblk_claim_all(void)
{
	return claim && !strcmp(claim, "all");
}

static bool in_list(const char *list, const char *name)
{
	size_t len = strlen(name);
	const char *p;

	for (p = list; (p = strstr(p, name)); p++) {
		if ((p == list || p[-1] == ',') && (!p[len] || p[len] == ','))
			return true;
	}
	return false;
}

static bool is_block(struct device *d)
{
	return dev_to_virtio(d)->id.device == VIRTIO_ID_BLOCK;
}

/*
 * The core has set FAILED, and a probe that failed late may have left queues enabled:
 * with that the other driver would not get the device to work.
 */
static void make_new(struct device *d)
{
	struct virtio_device *vdev = dev_to_virtio(d);

	device_lock(d);
	if (!d->driver) {
		pvblk_reset(vdev);
		virtio_add_status(vdev, VIRTIO_CONFIG_S_ACKNOWLEDGE);
	}
	device_unlock(d);
}

/* Take a device that nobody has. */
static int attach(struct device_driver *drv, struct device *d)
{
	int err = device_driver_attach(drv, d);

	if (err)
		make_new(d);
	return err;
}

static int claim_one(struct device *d, void *data)
{
	struct virtio_driver *drv = data;
	int err;

	if (!is_block(d) || d->driver)
		return 0;
	if (!in_list(claim, dev_name(d)) && !(d->parent && in_list(claim, dev_name(d->parent))))
		return 0;
	err = attach(&drv->driver, d);
	if (err)
		dev_warn(d, "virtio_pvblk could not take it: %d\n", err);
	return 0;
}

/*
 * One move at a time: between the look at whose a device is and the change of
 * its driver nobody else is to take or give it.  Nor is `bind` of the bus, which
 * does not ask us; therefore claim_disk() looks at the disk it has.
 */
static DEFINE_MUTEX(move_mutex);

/*
 * The disk of a device, claimed for us alone while its driver changes: what is
 * mounted, swapped on, a member of an array or open elsewhere makes this fail
 * with -EBUSY.  The claim ends with the disk.
 */
struct disk_claim {
	struct file *file;
	bool ours;		/* whether it is to be a disk of ours */
	int err;
};

static int claim_disk(struct device *d, void *data)
{
	struct disk_claim *c = data;
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
	/* Not everybody who uses a disk claims it. */
	if (disk_openers(disk) > 1 || ours != c->ours)
		c->err = -EBUSY;
	return 1;
}

/* Away from its driver, us or the other; then device_attach() or the like follows. */
static int release_device(struct device *d, bool ours)
{
	struct disk_claim c = { .ours = ours };

	device_for_each_child(d, &c, claim_disk);
	if (!c.err)
		device_release_driver(d);
	/* At once: until then the disk's name is taken, and the next would get another. */
	if (c.file)
		__fput_sync(c.file);
	return c.err;
}

static struct device *find_block(struct device_driver *drv, const char *buf)
{
	struct device *d;
	char name[32];

	if (strscpy(name, buf, sizeof(name)) < 0)
		return NULL;
	d = bus_find_device_by_name(drv->bus, NULL, strim(name));
	if (d && !is_block(d)) {
		put_device(d);
		return NULL;
	}
	return d;
}

static ssize_t take_store(struct device_driver *drv, const char *buf, size_t count)
{
	struct device *d = find_block(drv, buf);
	int err = 0;

	if (!d)
		return -ENODEV;
	mutex_lock(&move_mutex);
	if (d->driver == drv)
		goto out;
	if (d->driver)
		err = release_device(d, false);
	if (err)
		goto out;
	err = attach(drv, d);
	/* Better in the old hands than in none. */
	if (err && device_attach(d) < 0)
		dev_warn(d, "no driver wants it any more\n");
out:
	mutex_unlock(&move_mutex);
	put_device(d);
	return err ?: count;
}
static DRIVER_ATTR_WO(take);

static ssize_t give_store(struct device_driver *drv, const char *buf, size_t count)
{
	struct device *d = find_block(drv, buf);
	int err = -ENODEV;

	if (!d)
		return err;
	mutex_lock(&move_mutex);
	if (d->driver == drv)
		err = release_device(d, true);
	if (!err && device_attach(d) < 0)
		err = -ENODEV;
	/* With claim=all we get it again, unless virtio_blk was first. */
	if (!err && d->driver == drv)
		err = -ENODEV;
	mutex_unlock(&move_mutex);
	put_device(d);
	return err ?: count;
}
static DRIVER_ATTR_WO(give);

int pvblk_claim_init(struct virtio_driver *drv)
{
	int err = driver_create_file(&drv->driver, &driver_attr_take);

	if (err)
		return err;
	err = driver_create_file(&drv->driver, &driver_attr_give);
	if (err) {
		driver_remove_file(&drv->driver, &driver_attr_take);
		return err;
	}
	if (claim && !pvblk_claim_all())
		bus_for_each_dev(drv->driver.bus, NULL, drv, claim_one);
	return 0;
}

void pvblk_claim_exit(struct virtio_driver *drv)
{
	driver_remove_file(&drv->driver, &driver_attr_give);
	driver_remove_file(&drv->driver, &driver_attr_take);
}
