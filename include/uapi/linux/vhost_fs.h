/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/vhost-fs: a virtio-fs device served by the kernel.  A directory of the
 * host is what its guest mounts.  The base vhost ioctls (linux/vhost.h) apply
 * as everywhere, the vrings have those of linux/vhost_serve.h; these add the
 * directory.
 *
 * The order is: VHOST_SET_OWNER, VHOST_FS_SET_EXPORT, VHOST_SET_FEATURES,
 * VHOST_SET_MEM_TABLE, then for each vring its base ioctls, the choice of its
 * poller, and its start.  Vring 0 is the high priority queue, all others are
 * request queues (virtio 1.2, 5.11.2).  The configuration space (tag, number
 * of queues) is the VMM's.
 *
 * Structures carry their size as in linux/vhost_poll.h.
 */
#ifndef _UAPI_LINUX_VHOST_FS_H
#define _UAPI_LINUX_VHOST_FS_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define VHOST_FS_IOC	0xAF	/* VHOST_VIRTIO; 0xC0 to 0xCF are ours */

/* VHOST_FS_SET_EXPORT flags */
/* the guest changes nothing, whatever its own mount says */
#define VHOST_FS_EXPORT_READ_ONLY	(1U << 0)
/* all is done as @squash_uid and @squash_gid, without capabilities */
#define VHOST_FS_EXPORT_SQUASH		(1U << 1)
/* no extended attributes but POSIX ACLs */
#define VHOST_FS_EXPORT_NO_XATTR	(1U << 2)
/* the guest's security.* and trusted.* are the host's user.virtiofs.* */
#define VHOST_FS_EXPORT_MAP_XATTR	(1U << 3)
/* the guest's security.* and trusted.* are the host's own; not with MAP_XATTR */
#define VHOST_FS_EXPORT_RAW_XATTR	(1U << 4)
/* POSIX and flock locks are the guest's own affair, the host does not see them */
#define VHOST_FS_EXPORT_LOCAL_LOCKS	(1U << 5)
/* no POSIX ACLs */
#define VHOST_FS_EXPORT_NO_ACL		(1U << 6)
/*
 * the guest may write its page cache back later, and keeps times and sizes itself: only the
 * guest uses the directory, because others would see, and overwrite, what is old
 */
#define VHOST_FS_EXPORT_WRITEBACK	(1U << 7)
/*
 * file systems mounted beneath the directory, now or later, are served, too, and marked for guests
 * that know FUSE_SUBMOUNTS.  Each keeps its mount's flags.  Lookups of what may be an interface of
 * the kernel (proc, sysfs, ...) fail with -EACCES
 */
#define VHOST_FS_EXPORT_SUBMOUNTS	(1U << 8)

/* How long the device lets a guest keep file data in its page cache. */
enum vhost_fs_cache {
	VHOST_FS_CACHE_AUTO	= 0,	/* until a file is opened again */
	VHOST_FS_CACHE_NONE	= 1,	/* nothing: reads and writes go to the host */
	VHOST_FS_CACHE_ALWAYS	= 2,	/* all: the host does not change it */
};

/**
 * struct vhost_fs_export - VHOST_FS_SET_EXPORT: what is served, once
 * @size: sizeof(struct vhost_fs_export)
 * @flags: VHOST_FS_EXPORT_*
 * @fd: an open directory (O_PATH will do).  Its mount's id mapping holds.  What
 *	is mounted beneath it is reachable with VHOST_FS_EXPORT_SUBMOUNTS only
 * @cache: enum vhost_fs_cache
 * @squash_uid: with VHOST_FS_EXPORT_SQUASH, of the caller's user namespace, else 0
 * @squash_gid: likewise
 * @entry_timeout_ms: how long the guest may believe a name
 * @attr_timeout_ms: and attributes
 * @max_nodes: files and directories the guest may know at a time; beyond that
 *	lookups fail with ENFILE.  0 is the default (1,000,000)
 * @max_handles: files and directories it may have open; beyond that EMFILE.
 *	0 is the default (65,536)
 * @max_locks: owners of POSIX locks and requests that wait for a lock; beyond
 *	that ENOLCK, as beyond four times as many locked ranges.  0 is the default (16,384)
 * @max_dentries: how many of @max_nodes may pin an inode of the host.  Beyond that the kernel
 *	keeps a file handle in place of it, on ext4, xfs and tmpfs; if too few can be swapped
 *	so, lookups fail with ENFILE.  4 is the smallest.  0 is the default: a tenth of
 *	@max_nodes.  It counts only nodes on ext4 and xfs, and no lookup fails
 *
 * Needs CAP_SYS_ADMIN in the user namespace of the mount, as a bind mount does.
 * The credentials of the caller are those the export is served with.  Fails
 * with EBUSY while a vring runs or if there is an export; VHOST_RESET_OWNER
 * takes it away.
 */
struct vhost_fs_export {
	__u32	size;
	__u32	flags;
	__s32	fd;
	__u32	cache;
	__u32	squash_uid;
	__u32	squash_gid;
	__u32	entry_timeout_ms;
	__u32	attr_timeout_ms;
	__u32	max_nodes;
	__u32	max_handles;
	__u32	max_locks;
	__u32	max_dentries;
};

/* VHOST_FS_GET_INFO state */
#define VHOST_FS_INFO_EXPORT	(1U << 0)	/* there is one */
#define VHOST_FS_INFO_SESSION	(1U << 1)	/* the guest has mounted it */

/*
 * struct vhost_fs_info - VHOST_FS_GET_INFO: what is served, and its use
 * @size: in: room; out: what the kernel filled
 * @flags: VHOST_FS_EXPORT_* in force
 * @state: VHOST_FS_INFO_*
 * @minor: of the FUSE protocol (7.@minor), as negotiated; 0 without a session
 * @features: virtio features that can be negotiated
 * @fuse_flags: FUSE_INIT flags, as negotiated
 * @max_nodes: @max_handles: @max_locks: limits
 * @max_write: bytes of the largest write
 * @nodes: @handles: @locks: in use
 * @sessions: how often a guest has mounted it
 * @refused: requests that failed for a limit
 * @dentries: nodes that pin an inode, of @nodes.  May be more than @max_dentries, unless the owner
 *	gave that
 * @swapped_out: how often a node's inode was swapped for a file handle
 * @swapped_in: and how often it came back
 * @searches: how often a directory was searched for one that was not where it had been
 */
struct vhost_fs_info {
	__u32	size;
	__u32	flags;
	__u32	state;
	__u32	minor;
	__u64	features;
	__u64	fuse_flags;
	__u32	max_nodes;
	__u32	max_handles;
	__u32	max_locks;
	__u32	max_write;
	__u64	nodes;
	__u64	handles;
	__u64	locks;
	__u64	sessions;
	__u64	refused;
	__u32	max_dentries;
	__u32	pad;
	__u64	dentries;
	__u64	swapped_out;
	__u64	swapped_in;
	__u64	searches;
};

#define VHOST_FS_SET_EXPORT	_IOW(VHOST_FS_IOC, 0xC0, struct vhost_fs_export)
#define VHOST_FS_GET_INFO	_IOWR(VHOST_FS_IOC, 0xC1, struct vhost_fs_info)

#endif /* _UAPI_LINUX_VHOST_FS_H */
