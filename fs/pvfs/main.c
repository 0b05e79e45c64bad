// SPDX-License-Identifier: GPL-2.0
/* The module: a file system type and a driver.  Devices are in device.c, mounts in mount.c. */
#include "pvfs.h"

#include <linux/module.h>

/* For what interrupts leave to tasks; writeback waits for it, so it has a rescuer. */
struct workqueue_struct *pvfs_wq;

static int __init pvfs_init(void)
{
	int err;

	pvfs_wq = alloc_workqueue("pvfs", WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	if (!pvfs_wq)
		return -ENOMEM;
	err = register_virtio_driver(&pvfs_driver);
	if (err)
		goto wq;
	err = register_filesystem(&pvfs_type);
	if (err)
		goto driver;
	return 0;

driver:
	unregister_virtio_driver(&pvfs_driver);
wq:
	destroy_workqueue(pvfs_wq);
	return err;
}

static void __exit pvfs_exit(void)
{
	unregister_filesystem(&pvfs_type);
	unregister_virtio_driver(&pvfs_driver);
	destroy_workqueue(pvfs_wq);
}

module_init(pvfs_init);
module_exit(pvfs_exit);

/* No MODULE_DEVICE_TABLE: udev must not load it for devices that virtiofs has. */
MODULE_DESCRIPTION("virtio-fs whose callers poll");
MODULE_ALIAS_FS("pvfs");
MODULE_LICENSE("GPL");
