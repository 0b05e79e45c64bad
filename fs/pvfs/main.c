// SPDX-License-Identifier: GPL-2.0
/* The module: it registers a file system type (mount.c) and a virtio driver (device.c). */
#include "pvfs.h"

#include <linux/module.h>

/*
 * Runs the works that interrupts queue.  Writeback waits for these works, so the workqueue has a
 * rescuer.
 */
struct workqueue_struct *pvfs_wq;

/* Runs the works that end direct reads.  They may wait for works of pvfs_wq (pvfs_end_later()). */
struct workqueue_struct *pvfs_block_wq;

/*
 * Runs the works that find a server silent, and those that give up a device.  The latter wait for a
 * reset, which may never end, so they must not occupy the rescuer of another workqueue.
 */
struct workqueue_struct *pvfs_fail_wq;

static int __init pvfs_init(void)
{
	int err;

	pvfs_wq = alloc_workqueue("pvfs", WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	if (!pvfs_wq)
		return -ENOMEM;
	err = -ENOMEM;
	pvfs_block_wq = alloc_workqueue("pvfs-block", WQ_MEM_RECLAIM, 0);
	if (!pvfs_block_wq)
		goto wq;
	pvfs_fail_wq = alloc_workqueue("pvfs-fail", WQ_MEM_RECLAIM, 0);
	if (!pvfs_fail_wq)
		goto block_wq;
	err = register_virtio_driver(&pvfs_driver);
	if (err)
		goto fail_wq;
	err = register_filesystem(&pvfs_type);
	if (err)
		goto driver;
	return 0;

driver:
	unregister_virtio_driver(&pvfs_driver);
fail_wq:
	destroy_workqueue(pvfs_fail_wq);
block_wq:
	destroy_workqueue(pvfs_block_wq);
wq:
	destroy_workqueue(pvfs_wq);
	return err;
}

static void __exit pvfs_exit(void)
{
	unregister_filesystem(&pvfs_type);
	unregister_virtio_driver(&pvfs_driver);
	destroy_workqueue(pvfs_fail_wq);
	destroy_workqueue(pvfs_block_wq);
	destroy_workqueue(pvfs_wq);
}

module_init(pvfs_init);
module_exit(pvfs_exit);

/*
 * The module has no MODULE_DEVICE_TABLE, because udev must not load it for devices that virtiofs
 * drives.
 */
MODULE_DESCRIPTION("Polling file system for virtio-fs devices");
MODULE_ALIAS_FS("pvfs");
MODULE_LICENSE("GPL");
