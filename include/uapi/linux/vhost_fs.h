/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/vhost-fs: a virtio-fs device that the kernel serves.  Its guest mounts a
 * directory of the host.  The device has the base vhost ioctls (linux/vhost.h), and
 * those of linux/vhost_serve.h for vrings.  The ioctls here set the directory, and read
 * how it is used.
 *
 * A program calls VHOST_SET_OWNER, VHOST_FS_SET_EXPORT, VHOST_SET_FEATURES and
 * VHOST_SET_MEM_TABLE, in this order.  For each vring it then calls the base ioctls,
 * VHOST_SERVE_SET_VRING and VHOST_SERVE_START.  Vring 0 is the high priority queue, all
 * others are request queues (virtio 1.2, 5.11.2).  The VMM, and not this device, has the
 * configuration space (tag, number of queues).
 *
 * Each structure begins with its size: see linux/vhost_poll.h.
 */
#ifndef _UAPI_LINUX_VHOST_FS_H
#define _UAPI_LINUX_VHOST_FS_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define VHOST_FS_IOC	0xAF	/* VHOST_VIRTIO; 0xC0 to 0xCF are ours */

/* VHOST_FS_SET_EXPORT flags, of which at most one is NO_XATTR, MAP_XATTR or RAW_XATTR */
/* the guest can change nothing, whatever its own mount says */
#define VHOST_FS_EXPORT_READ_ONLY	(1U << 0)
/* all operations act as @squash_uid and @squash_gid, without capabilities */
#define VHOST_FS_EXPORT_SQUASH		(1U << 1)
/* the guest has no extended attributes, except POSIX ACLs */
#define VHOST_FS_EXPORT_NO_XATTR	(1U << 2)
/* the host stores the guest's security.* and trusted.* as user.virtiofs.* */
#define VHOST_FS_EXPORT_MAP_XATTR	(1U << 3)
/* the guest's security.* and trusted.* are those of the host's files */
#define VHOST_FS_EXPORT_RAW_XATTR	(1U << 4)
/* the guest keeps POSIX and flock locks itself, and the host does not see them */
#define VHOST_FS_EXPORT_LOCAL_LOCKS	(1U << 5)
/* no POSIX ACLs */
#define VHOST_FS_EXPORT_NO_ACL		(1U << 6)
/*
 * the guest may write its page cache back later, and keeps times and sizes itself.  Only this
 * guest may use the directory: other programs would read old data, and their writes could be
 * overwritten
 */
#define VHOST_FS_EXPORT_WRITEBACK	(1U << 7)
/*
 * the device also serves file systems that are mounted beneath the directory, now or later, and
 * marks them for guests that know FUSE_SUBMOUNTS.  Each keeps the flags of its mount.  If a file
 * system may be an interface of the kernel (proc, sysfs, ...), lookups of it fail with -EACCES
 */
#define VHOST_FS_EXPORT_SUBMOUNTS	(1U << 8)

/* How long the device lets a guest keep file data in its page cache. */
enum vhost_fs_cache {
	VHOST_FS_CACHE_AUTO	= 0,	/* until a file is opened again */
	VHOST_FS_CACHE_NONE	= 1,	/* not at all: each read and write is a request */
	VHOST_FS_CACHE_ALWAYS	= 2,	/* from open to open; only if the host changes no file */
};

/**
 * struct vhost_fs_export - VHOST_FS_SET_EXPORT: set the directory that is served, once
 * @size: sizeof(struct vhost_fs_export)
 * @flags: VHOST_FS_EXPORT_*
 * @fd: an open directory (O_PATH will do).  The id mapping of its mount applies.  The
 *	guest reaches file systems that are mounted beneath it only with
 *	VHOST_FS_EXPORT_SUBMOUNTS
 * @cache: enum vhost_fs_cache
 * @squash_uid: the user for VHOST_FS_EXPORT_SQUASH, in the caller's user namespace;
 *	0 without that flag
 * @squash_gid: the group, likewise
 * @entry_timeout_ms: how long the guest may cache a name, in milliseconds
 * @attr_timeout_ms: how long the guest may cache attributes, in milliseconds
 * @max_nodes: how many files and directories the guest may know at a time.  Beyond that
 *	lookups fail with ENFILE.  0 is the default (1,000,000)
 * @max_handles: how many files and directories the guest may have open.  Beyond that an
 *	open fails with EMFILE.  0 is the default (65,536)
 * @max_locks: how many owners of POSIX locks, and requests that wait for a lock, the guest
 *	may have.  It may lock four times as many ranges.  A request beyond one of these
 *	limits fails with ENOLCK.  0 is the default (16,384)
 * @max_dentries: how many of @max_nodes may pin an inode of the host; at least 4.  The
 *	kernel swaps nodes beyond that, if they are on ext4, xfs or tmpfs: it keeps a file
 *	handle in place of the inode.  If it cannot swap enough, lookups fail with ENFILE.
 *	0 is the default, a tenth of @max_nodes.  The default counts only nodes on ext4 and
 *	xfs, and no lookup fails because of it
 *
 * The caller needs CAP_SYS_ADMIN in the user namespace of the mount, as for a bind mount.
 * Operations act with the credentials that the caller has now.  The call fails with EBUSY
 * while a vring runs, or if there is an export already.  VHOST_RESET_OWNER takes the export
 * away.
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
#define VHOST_FS_INFO_EXPORT	(1U << 0)	/* an export is set */
#define VHOST_FS_INFO_SESSION	(1U << 1)	/* the guest has mounted it */

/*
 * struct vhost_fs_info - VHOST_FS_GET_INFO: read the export and how it is used
 * @size: in: the room for the structure; out: how many bytes the kernel filled
 * @flags: VHOST_FS_EXPORT_* in force
 * @state: VHOST_FS_INFO_*
 * @minor: the FUSE protocol that was negotiated is 7.@minor; 0 without a session
 * @features: virtio features that can be negotiated
 * @fuse_flags: FUSE_INIT flags that were negotiated
 * @max_nodes: @max_handles: @max_locks: @max_dentries: the limits in force
 * @max_write: bytes of the largest write
 * @nodes: @handles: @locks: how many are in use
 * @sessions: how often a guest has mounted the directory
 * @refused: requests that failed because of a limit
 * @dentries: of @nodes, those that pin an inode.  They may be more than @max_dentries, unless the
 *	owner set @max_dentries
 * @swapped_out: how often the kernel swapped a node's inode for a file handle
 * @swapped_in: how often it brought the inode of a swapped node back
 * @searches: how often it searched a directory for the inode of a swapped node, because the inode
 *	was no longer where the kernel had last seen it
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
