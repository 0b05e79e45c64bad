/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A guest's side of /dev/vhost-fs, without a guest: FUSE requests put on its
 * rings, and what comes back.  What goes wrong in the rig fails the test.
 */
#ifndef VHOST_FS_FSRIG_H
#define VHOST_FS_FSRIG_H

#include <linux/vhost_fs.h>
#include <linux/vhost_poll.h>

#include "fuse7.h"
#include "ktap.h"
#include "ring.h"

#define FS_QUEUES	3	/* high priority, and two for requests */
#define FS_ROOM		1048576
#define FS_WAIT_MS	30000
#define FS_SLOTS	8
#define FS_MAX_SLOTS	32

/*
 * Requests and replies lie in guest memory; a slot is for one in flight.  The rig makes FS_SLOTS
 * of them; a program that wants more gives them memory itself.
 */
struct fs_slot {
	u8 *in;
	u8 *data;
	u8 *out;
	u32 used;
	bool done;
};

struct fs {
	char dir[256];
	const char *kind;
	const struct fs *beside;	/* another guest, whose poller serves this one, too */
	struct vhost_fs_export export;
	struct ring_mem mem;
	int fd;
	int poller;
	struct ring ring[FS_QUEUES];
	struct fs_slot slot[FS_MAX_SLOTS];
	u64 unique;
	u32 uid;
	u32 gid;
	/* of the last call */
	u8 *reply;
	u32 reply_len;
};

/*
 * The rig puts this on the ring unchecked.  @out_room of 0 leaves no room at all.  Without
 * @data the rig sends the slot's data.
 */
struct fs_raw {
	const void *in;
	u32 in_len;
	const void *data;
	u32 data_len;
	u32 out_room;
	unsigned int queue;
};

/* A directory on a file system of @kind: tmpfs, or what mkfs knows. */
void fs_make_dir(struct fs *f, const char *kind);
/* One that is there already, and stays. */
void fs_use_dir(struct fs *f, const char *dir);
/* Serves f->dir as @export says (or by default); INIT was done, or not. */
void fs_open(struct fs *f, const struct vhost_fs_export *export);
void fs_open_cold(struct fs *f, const struct vhost_fs_export *export);
/* The guest's memory with its rings and slots, for a device that is none of ours. */
void fs_make_memory(struct fs *f);
int fs_try(struct fs *f, const struct vhost_fs_export *export);
/* Gives up the ownership and keeps the session; an owner, the same or another, goes on. */
void fs_hand_over(struct fs *f, u16 base[FS_QUEUES]);
void fs_take_over(struct fs *f, const u16 base[FS_QUEUES]);
void fs_close(struct fs *f);
void fs_cleanup(void);
void fs_info(struct fs *f, struct vhost_fs_info *info);

/* A request's header, with the next number. */
void fs_header(struct fs *f, struct fuse_in_header *ih, u32 opcode, u64 node,
	       u32 len);
/* Put it on the ring in a slot; have the device see it; both; wait for it.  Used bytes. */
void fs_add(struct fs *f, unsigned int slot, const struct fs_raw *raw);
void fs_publish(struct fs *f, unsigned int queue);
void fs_send(struct fs *f, unsigned int slot, const struct fs_raw *raw);
u32 fs_wait(struct fs *f, unsigned int slot, unsigned int queue);
bool fs_poll(struct fs *f, unsigned int slot, unsigned int queue);
u32 fs_play(struct fs *f, const struct fs_raw *raw);
int fs_answer(struct fs *f, unsigned int slot);

/* A request with its arguments, strings and so on in pieces; 0 or -errno. */
int fs_call(struct fs *f, u32 opcode, u64 node, const void *arg, u32 len,
	    u32 room);
int fs_call_name(struct fs *f, u32 opcode, u64 node, const void *arg, u32 len,
		 const char *name, const char *name2, u32 room);
int fs_call_data(struct fs *f, u32 opcode, u64 node, const void *arg, u32 len,
		 const void *data, u32 data_len, u32 room);

int fs_init(struct fs *f, u64 flags, struct fuse_init_out *out);
int fs_lookup(struct fs *f, u64 dir, const char *name, struct fuse_entry_out *e);
/* The node of a path beneath the root; fails the test if there is none. */
u64 fs_node(struct fs *f, const char *path);
void fs_forget(struct fs *f, u64 node, u64 count);
int fs_getattr(struct fs *f, u64 node, struct fuse_attr *attr);
int fs_open_node(struct fs *f, u64 node, u32 flags, u64 *fh);
int fs_open_dir(struct fs *f, u64 node, u64 *fh);
int fs_create(struct fs *f, u64 dir, const char *name, u32 flags, u32 mode,
	      struct fuse_entry_out *e, u64 *fh);
int fs_release(struct fs *f, u64 node, u64 fh);
int fs_read(struct fs *f, u64 node, u64 fh, u64 at, u32 len, void *buf);
int fs_write(struct fs *f, u64 node, u64 fh, u64 at, const void *buf, u32 len);
int fs_write_flags(struct fs *f, u64 node, u64 fh, u64 at, const void *buf,
		   u32 len, u32 flags, u32 write_flags);
int fs_mkdir(struct fs *f, u64 dir, const char *name, u32 mode,
	     struct fuse_entry_out *e);
int fs_rename(struct fs *f, u64 dir, const char *name, u64 to, const char *new,
	      u32 flags);
int fs_remove(struct fs *f, u32 opcode, u64 dir, const char *name);
int fs_setattr(struct fs *f, u64 node, const struct fuse_setattr_in *arg);
int fs_setxattr(struct fs *f, u64 node, const char *name, const void *value,
		u32 len);
int fs_getxattr(struct fs *f, u64 node, const char *name, void *value, u32 len);

/* The host's side: a path in the directory, and what is there. */
const char *fs_path(struct fs *f, const char *name);
void fs_host_write(struct fs *f, const char *name, const void *buf, size_t len);
bool fs_host_is(struct fs *f, const char *name, const void *buf, size_t len);
bool fs_host_there(struct fs *f, const char *name);

#endif /* VHOST_FS_FSRIG_H */
