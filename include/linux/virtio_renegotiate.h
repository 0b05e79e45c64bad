/* SPDX-License-Identifier: GPL-2.0 */
/* Feature negotiation for drivers that restart a device; virtio's core has it at suspend only. */
#ifndef _LINUX_VIRTIO_RENEGOTIATE_H
#define _LINUX_VIRTIO_RENEGOTIATE_H

#include <linux/virtio.h>
#include <linux/virtio_config.h>

/**
 * virtio_renegotiate - agree on the features again
 * @vdev: a device that was reset, and so forgot them; it has no rings
 *
 * As the core does before it probes.  The features stay what they were.
 *
 * Return: 0, -EIO if the device refuses the features, or the error of finalize_features().
 */
static inline int virtio_renegotiate(struct virtio_device *vdev)
{
	int err;

	virtio_add_status(vdev, VIRTIO_CONFIG_S_ACKNOWLEDGE);
	virtio_add_status(vdev, VIRTIO_CONFIG_S_DRIVER);
	err = vdev->config->finalize_features(vdev);
	if (err || !virtio_has_feature(vdev, VIRTIO_F_VERSION_1))
		return err;
	virtio_add_status(vdev, VIRTIO_CONFIG_S_FEATURES_OK);
	return vdev->config->get_status(vdev) & VIRTIO_CONFIG_S_FEATURES_OK ? 0 : -EIO;
}

#endif /* _LINUX_VIRTIO_RENEGOTIATE_H */
