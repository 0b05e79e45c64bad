/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The FUSE protocol, and what the installed linux/fuse.h may be too old for; by
 * names of their own, because the header's version does not tell all of it.
 */
#ifndef VHOST_FS_FUSE7_H
#define VHOST_FS_FUSE7_H

#include <linux/fuse.h>

#define FUSE7_TMPFILE		51
#define FUSE7_STATX		52
#define FUSE7_EXT_GROUPS	32

struct fuse7_statx_in {
	uint32_t getattr_flags;
	uint32_t reserved;
	uint64_t fh;
	uint32_t sx_flags;
	uint32_t sx_mask;
};

struct fuse7_groups {
	uint32_t size;
	uint32_t type;
	uint32_t nr_groups;
	uint32_t group;
};

#endif /* VHOST_FS_FUSE7_H */
