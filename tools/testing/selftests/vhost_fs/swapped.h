/* SPDX-License-Identifier: GPL-2.0 */
/* A guest some of whose nodes are swapped. */
#ifndef VHOST_FS_SWAPPED_H
#define VHOST_FS_SWAPPED_H

#include "fsrig.h"

#define ROOT	FUSE_ROOT_ID
#define CAP	4	/* nodes that may be live */
#define FILLERS	40

/* The file system of begin(). */
extern const char *swap_kind;

bool drops_names(void);
struct fs *begin_as(const struct vhost_fs_export *export);
struct fs *begin_with(u32 flags, u32 max_dentries);
struct fs *begin(void);
void end(struct fs *f);
void host_drops(void);
void swap_all(struct fs *f);
u64 came_back(struct fs *f);
u64 searches(struct fs *f);
int reads(struct fs *f, u64 node, const char *text);
void host_file(struct fs *f, const char *name);
void host_move(struct fs *f, const char *from, const char *to);
u64 known_child(struct fs *f, u64 dir, const char *name);

#endif
