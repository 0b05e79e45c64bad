/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vhost_fs: a directory of the host, served to a guest over virtio-fs.
 *
 * A request takes this path through the files.  ring.c, which vhost_serve calls, has decode.c turn
 * the guest's bytes into a struct vhfs_req.  dispatch.c finds the operation in its table and calls
 * it.  The operation is in the file of its concern: init.c, lookup.c, forget.c, create.c, rename.c,
 * attr.c, file.c, io.c, direct.c, dir.c, xattr.c or lock.c.  At the end ring.c writes the reply.
 *
 * export.c has the directory that is served, mount.c the file systems mounted beneath it, node.c
 * the nodes that a guest knows, swap.c the nodes that pin nothing, reach.c their way back, handle.c
 * the files that the guest has open, ids.c the tables of nodes and handles by id, and cred.c the
 * credentials of a request.  main.c is the character device.
 *
 * Confinement
 * -----------
 * Operations see dentries and inodes, never paths.  A node comes from a lookup of one component in
 * a directory that is a node.  The mount of the directory that is served is a private clone without
 * children.  No symbolic link is followed, and only regular files and directories are opened.
 * Before a request uses a node, vhfs_node_check() makes sure that the node is still beneath the
 * root, so that a rename on the host leads no guest out.
 *
 * An export with submounts crosses into the file systems that the host has mounted beneath the
 * directory.  It goes by the host's own mounts, which are not nodev and nosuid as the clone is.
 * Such a node has to be beneath the root of its own mount, and that mount beneath the root of the
 * export.
 *
 * Locks, the outer one first
 * --------------------------
 * - the device's mutex (vhost_dev.mutex): the export comes and goes
 * - handle->pos_lock: the position of an open directory
 * - i_rwsem and all other locks of the VFS
 * - vhfs_export.mounts_lock: the mounts of nodes
 * - vhfs_table.lock: nodes by inode, by file handle and by id, and the session's number
 * - node->lock: a node's counts, and its dentry or file handle
 *
 * Lifetime
 * --------
 * An export outlives its requests, because vrings are stopped before it goes.  A request holds its
 * node and its handle from vhfs_run() until it ends.  A READ in the poller's round holds only the
 * handle, which holds the node: see vhfs_handle_get_known().  A FORGET or RELEASE meanwhile takes
 * the id away, and not the object.  The poller's round never frees a node or a handle.  If it may
 * have the last reference, vhfs_node_put() and vhfs_handle_put() leave the object to the export's
 * reaper.
 */
#ifndef _VHOST_FS_FS_H
#define _VHOST_FS_FS_H

#include <linux/blk_types.h>
#include <linux/cred.h>
#include <linux/errseq.h>
#include <linux/filelock.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <linux/hashtable.h>
#include <linux/jiffies.h>
#include <linux/llist.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <linux/path.h>
#include <linux/rhashtable.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/uio.h>
#include <linux/workqueue.h>
#include <uapi/linux/vhost_fs.h>

#include "ids.h"

struct kstat;
struct vhfs_req;

#define VHFS_MAX_WRITE		((u32)SZ_1M)	/* bytes of one READ or WRITE */
#define VHFS_MAX_REPLY		((u32)SZ_64K)	/* bytes of a reply that is put together here */
#define VHFS_MAX_EXT		4096U		/* bytes of a request's extensions */
#define VHFS_NO_GROUP		((u32)-1)

/* More than this would keep the poller's thread too long, because other guests wait for it. */
#define VHFS_HOT_COPY		((u32)SZ_128K)	/* bytes to copy */
#define VHFS_HOT_DIRENTS	((u32)SZ_16K)	/* bytes of entries to gather */
#define VHFS_HOT_SIZE		((loff_t)SZ_1M)	/* bytes of a file to free */
#define VHFS_HOT_LEVELS		256U		/* directories to go up */

/* An operation may return these, too.  Errors are negative. */
#define VHFS_PUNT	1	/* nothing was done, and a worker has to carry it out */
#define VHFS_PARKED	2	/* vhfs_req_done() or vhfs_req_resume() will be called */

/* The kinds of strings in a request.  decode.c checks each by its kind. */
enum vhfs_name {
	VHFS_NAME_NONE,
	VHFS_NAME_ONE,		/* one component, not . or .. */
	VHFS_NAME_LOOKUP,	/* one component, . and .. too */
	VHFS_NAME_TARGET,	/* the target of a symbolic link */
	VHFS_NAME_XATTR,
	VHFS_NAME_UNUSED,	/* any string: the operation needs no name */
};

/* Properties of an operation. */
#define VHFS_OP_POLLER		BIT(0)	/* the poller may try it */
#define VHFS_OP_SILENT		BIT(1)	/* the guest gets no reply */
#define VHFS_OP_NO_NODE		BIT(2)	/* its node is not looked up for it */
#define VHFS_OP_DIR		BIT(3)	/* its node has to be a directory */
#define VHFS_OP_BEFORE_INIT	BIT(4)	/* it needs no session */
#define VHFS_OP_CHANGES		BIT(5)	/* it fails on a read-only export */
#define VHFS_OP_AS_CALLER	BIT(6)	/* files that it makes belong to the caller */
#define VHFS_OP_DATA_IN		BIT(7)	/* the guest's data follow its arguments */
#define VHFS_OP_DATA_OUT	BIT(8)	/* it writes its data to the guest's pages */
#define VHFS_OP_ARGS_VARY	BIT(9)	/* arguments may be shorter than @in */
#define VHFS_OP_REPLY_VARIES	BIT(10)	/* the guest may have less room than @out */
#define VHFS_OP_PLAIN		BIT(11)	/* it needs no credentials */
#define VHFS_OP_TAIL		BIT(12)	/* bytes of any kind follow its strings */
#define VHFS_OP_HOT		BIT(13)	/* it may sleep, and mostly does not */
#define VHFS_OP_ROOM		BIT(14)	/* it may make a file that the guest is told of */
#define VHFS_OP_CLOSES		BIT(15)	/* its node may be forgotten, or swapped */
#define VHFS_OP_ANYWHERE	BIT(16)	/* it has an open file, which may have left the export */

/**
 * struct vhfs_op - one line of the table of operations
 * @run: the function that carries it out
 * @flags: VHFS_OP_*
 * @in: size of its fixed arguments, in bytes
 * @in_min: the least size of these, with VHFS_OP_ARGS_VARY
 * @out: size of its fixed reply, in bytes
 * @names: the kinds of the strings behind the fixed arguments
 */
struct vhfs_op {
	int (*run)(struct vhfs_req *req);
	u32 flags;
	u16 in;
	u16 in_min;
	u16 out;
	u8 names[2];
};

/* One more than the highest opcode that is served. */
#define VHFS_OPS	(FUSE_STATX + 1)

/*
 * struct vhfs_direct - direct I/O that no thread waits for, see direct.c
 * @iocb: the I/O
 * @handle: the open file, put at the end of the request; NULL: no I/O is queued
 * @users: the submitter and the completion, each until it is done with @iocb
 * @res: how the I/O ended: bytes, or an error
 */
struct vhfs_direct {
	struct kiocb iocb;
	struct vhfs_handle *handle;
	atomic_t users;
	long res;
};

/*
 * struct vhfs_req - one request
 * @ex: the export
 * @ring: the vring that the request came by; for ring.c
 * @op: the operation; NULL until the request is decoded
 * @buf: a copy of the strings and the tail, if they do not fit into @fixed
 * @names: @name_len: the strings, in @buf or @fixed
 * @may_sleep: a worker has the request, or the poller's thread after its round
 * @hot: the poller's thread has it after its round; see vserve_req_hot()
 * @no_room: no more nodes may be live; set for operations with VHFS_OP_ROOM
 * @threadless: it is direct I/O that no thread waits for
 * @known: @in could be read
 * @tail: @tail_len: the bytes behind the strings
 * @group: the caller's supplementary group, or VHFS_NO_GROUP
 * @session: the number of the session in which the request was decoded
 * @out_room: how many bytes the guest has for the reply, the header included
 * @node: the node that in.nodeid names; NULL with VHFS_OP_CLOSES if the guest has forgotten it.
 *	FORGET has one only if the poller's thread or a worker frees the node
 * @handle: the open file, without @node, while the poller's round carries out a READ
 * @reply_len: how many bytes of @reply go to the guest
 * @body: @body_len: the bytes behind @reply, allocated with kvmalloc()
 * @data_len: how many bytes an operation has put into @dst itself, behind the header
 * @error: 0 or negative
 * @start_ns: when the request was taken from the ring
 * @direct: for READ and WRITE
 * @src: the memory that the guest gives, from the first byte that was not read yet
 * @dst: the memory that the guest takes, from its first byte
 * @in: the guest's header, read once
 * @fixed: the fixed arguments, with zeroes where the guest gave none
 * @reply: the fixed reply
 */
struct vhfs_req {
	struct vhfs_export *ex;
	const void *ring;
	const struct vhfs_op *op;
	char *buf;
	const char *names[2];
	u8 name_len[2];
	bool may_sleep;
	bool hot;
	bool no_room;
	bool threadless;
	bool known;
	const void *tail;
	u32 tail_len;
	u32 group;
	u32 session;
	u32 out_room;
	struct vhfs_node *node;
	struct vhfs_handle *handle;
	u32 reply_len;
	u32 body_len;
	void *body;
	u32 data_len;
	int error;
	u64 start_ns;
	struct vhfs_direct direct;
	/*
	 * vhfs_take() zeroes all fields before this.  The others are written before they are read.
	 */
	struct iov_iter src;
	struct iov_iter dst;
	struct fuse_in_header in;
	u64 fixed[12];
	u64 reply[38];
};

static __always_inline const void *vhfs_fixed(const struct vhfs_req *req,
					      size_t size)
{
	BUILD_BUG_ON(size > sizeof(req->fixed));
	return req->fixed;
}

static __always_inline void *vhfs_reply_room(struct vhfs_req *req, size_t size)
{
	BUILD_BUG_ON(size > sizeof(req->reply));
	req->reply_len = size;
	memset(req->reply, 0, size);
	return req->reply;
}

/* The fixed arguments of a request, as @type. */
#define vhfs_args(req, type)	((const type *)vhfs_fixed(req, sizeof(type)))

/* The fixed reply of a request, as @type, set to zero. */
#define vhfs_reply(req, type)	((type *)vhfs_reply_room(req, sizeof(type)))

/*
 * struct vhfs_mount - a mount in which the guest knows nodes
 * @ex: the export
 * @mnt: the mount that operations use: the private clone for the directory that is served, and the
 *	host's own mount for a file system mounted beneath it
 * @host: the mount in the host's tree of mounts; NULL: nothing that is mounted beneath it is served
 * @parent: the mount in which it was found; NULL for the directory that is served
 * @refs: nodes, mounts whose parent it is, and requests; not counted for the directory that is
 *	served, because that is there as long as the export
 * @reached: the tick in which vhfs_mount_is_in_place() last looked, and what it found
 * @wb_err: which write errors of the file system the guest knows of; as for an open file
 * @quick_getattr: the file system's getattr does not sleep
 * @can_swap: its nodes can be swapped, see swap.c
 */
struct vhfs_mount {
	struct vhfs_export *ex;
	struct vfsmount *mnt;
	struct vfsmount *host;
	struct vhfs_mount *parent;
	struct hlist_node hash;
	refcount_t refs;
	unsigned long reached;
	errseq_t wb_err;
	bool quick_getattr;
	bool can_swap;
};

static inline bool vhfs_is_mount_root(const struct vhfs_mount *mount,
				      const struct dentry *dentry)
{
	return dentry == mount->mnt->mnt_root;
}

/*
 * struct vhfs_place - a dentry, and the mount in which a request sees it
 * @held: the place owns references to both, until vhfs_place_put()
 */
struct vhfs_place {
	struct vhfs_mount *mount;
	struct dentry *dentry;
	bool held;
};

/* A reader of a sequence lock never gets this value: it gets even ones only. */
#define VHFS_SEQ_NEVER	1U

/* The longest file handle that is kept.  Those of local file systems have up to 10 words. */
#define VHFS_FID_WORDS	16

/*
 * struct vhfs_fid_key - the name that a file system has for an inode
 * @mount: the mount in which the inode is seen
 * @known: the file system was asked
 * @type: @words: of the file handle; 0 words: the file system has none
 * @raw: the file handle
 */
struct vhfs_fid_key {
	struct vhfs_mount *mount;
	bool known;
	u8 type;
	u8 words;
	u32 raw[VHFS_FID_WORDS];
};

struct vhfs_text {
	u8 len;
	char text[NAME_MAX + 1];
};

/*
 * struct vhfs_way - where a swapped node was last seen
 * @key: the key of the node's inode
 * @dir: the key of the directory
 * @name: the name in that directory
 * @is_dir: the inode is a directory
 * @lost: a search for the inode has failed
 */
struct vhfs_way {
	struct vhfs_fid_key key;
	struct vhfs_fid_key dir;
	struct vhfs_text name;
	bool is_dir;
	bool lost;
};

/*
 * struct vhfs_node - an inode that the guest knows, live or swapped: see swap.c
 * @id: its number, which is never used again in the life of the export
 * @inode: @mount: the key: all names of an inode in one mount are one node; swapped nodes have no
 *	inode
 * @used: the guest has used it since the swapper came by
 * @dentry: one of the inode's names, or the last one that it had; NULL: swapped
 * @live: on table->settled or ->fresh, unless the node stays live for good
 * @settled: on table->settled
 * @fid: the file handle of a swapped node
 * @lookups: how often the guest was told of it; the guest's FORGETs count down
 * @refs: requests, open files, and one for the table while @lookups is not 0
 * @opens: how many of @refs are open files
 * @seq: the value of rename_lock when @dentry was last seen beneath the root of @mount
 * @ex: the export
 * @reap: on the list of the export's reaper
 *
 * vhfs_handle_get_known() reads @inode, @lookups and @seq without the lock.
 */
struct vhfs_node {
	struct vhfs_id id;
	struct inode *inode;
	struct vhfs_mount *mount;	/* right behind @inode, see struct vhfs_key */
	struct rhash_head hash;
	spinlock_t lock;		/* dentry, inode, fid, lookups, refs, opens, used */
	u32 opens : 31;
	bool used : 1;
	bool settled;			/* table->lock */
	struct dentry *dentry;
	struct list_head live;
	struct vhfs_fid *fid;
	u64 lookups;
	unsigned int refs;
	unsigned int seq;
	struct vhfs_export *ex;
	struct llist_node reap;
	struct rcu_head rcu;
};

/*
 * struct vhfs_handle - an open file or directory
 * @id: the number by which the guest names it
 * @ex: the export
 * @node: the file's node, or NULL if the guest had forgotten that before the file was open
 * @node_id: the node by which the guest has opened it, and has to close it
 * @file: the host's file
 * @refs: requests, and one while the guest has it open
 * @pos_lock: held by the request that reads a directory, because that has one position
 * @claims: the owners of POSIX locks that were taken by this handle; see lock.c
 * @flocked: a flock lock may be held by it
 * @sync: O_DSYNC and __O_SYNC of the guest's descriptor, which stay as they are
 * @reap: on the list of the export's reaper
 */
struct vhfs_handle {
	struct vhfs_id id;
	struct vhfs_export *ex;
	struct vhfs_node *node;
	u64 node_id;
	struct file *file;
	refcount_t refs;
	struct mutex pos_lock;		/* the position of a directory */
	spinlock_t claim_lock;		/* claims */
	struct list_head claims;
	bool flocked;
	u32 sync;
	struct llist_node reap;
	struct rcu_head rcu;
};

struct vhfs_creds;
struct vhfs_fid;
struct vhfs_locks;

/*
 * struct vhfs_table - the nodes and handles of an export
 * @lock: both indices of nodes, the lists, and @session
 * @session: a number that each INIT and DESTROY changes; a request that was decoded in an earlier
 *	session adds nothing to a later one
 * @nodes: nodes by id
 * @by_inode: live nodes
 * @by_fid: swapped nodes
 * @settled: @fresh: live nodes that can be swapped.  The swapper comes by the first ones next, and
 *	prefers @fresh
 * @nr_settled: nodes on @settled
 * @nr_listed: nodes on both lists
 * @nr_swapped: nodes in @by_fid
 * @swapped_out: @swapped_in: how often a node was swapped, or became live again
 * @next_node: the id of the next new node
 * @handles: handles by id
 * @last_handle: the id of the newest handle; no id is given twice
 * @nr_nodes: nodes of both kinds
 * @nr_handles: handles
 */
struct vhfs_table {
	spinlock_t lock;		/* all up to next_node */
	u32 session;
	struct rhashtable nodes;
	struct rhashtable by_inode;
	struct rhashtable by_fid;
	struct list_head settled;
	struct list_head fresh;
	u32 nr_settled;
	u32 nr_listed;
	int nr_swapped;
	u64 swapped_out;
	u64 swapped_in;
	u64 next_node;
	struct rhashtable handles;
	atomic64_t last_handle;
	atomic_t nr_nodes;
	atomic_t nr_handles;
};

/* struct vhfs_session - what INIT has negotiated; only INIT and DESTROY write it */
struct vhfs_session {
	bool up;
	u32 minor;
	u64 flags;
};

/* How long the guest may keep a name or attributes, as replies have it. */
struct vhfs_timeout {
	u64 sec;
	u32 nsec;
};

/*
 * struct vhfs_export - a directory that is served, and what its guest knows of it
 * @root: the private mount and its root
 * @cfg: the configuration from user space, with defaults filled in
 * @entry_valid: @attr_valid: the timeouts of @cfg, as replies have them
 * @creds: the credentials of the task that set the export up, without those that must not act here;
 *	see cred.c
 * @user_ns: the user namespace of the ids that the guest uses
 * @top: @root, as a mount of nodes
 * @mounts: the mounts beneath @top in which the guest knows nodes
 * @pid: the owner's, for the host's lists of locks
 * @generation: of all nodes.  The numbers of nodes begin anew in each export.  Without it, a handle
 *	that the guest gave away by NFS would name another file after that
 * @wq: works that wait for locks
 * @reap_wq: @reaper: frees what the poller has put on @reap_nodes and @reap_handles
 * @reap_since: jiffies when @reaper began to free what it frees now; 0: it frees nothing
 * @swap_wq: @swapper: swaps nodes beyond max_dentries
 * @vain_until: no node could be swapped; the swapper begins again at this time, or if a file is
 *	closed
 * @strict: max_dentries was given.  Then it is a limit for all live nodes, and requests beyond it
 *	fail.  Otherwise it counts nodes on file systems that can swap (nr_listed), and no request
 *	fails
 * @memcg: the owner's, which the swapper's memory is charged to
 * @refused: how many requests failed because of a limit
 * @searches: how many directories were searched for a swapped node
 * @sessions: how many sessions the guest has begun
 */
struct vhfs_export {
	struct path root;
	struct vhost_fs_export cfg;
	struct vhfs_timeout entry_valid;
	struct vhfs_timeout attr_valid;
	struct vhfs_creds *creds;
	struct user_namespace *user_ns;
	struct vhfs_mount *top;
	struct mutex mounts_lock;	/* mounts */
	DECLARE_HASHTABLE(mounts, 6);
	pid_t pid;
	struct vhfs_session session;
	struct mutex session_lock;	/* INIT and DESTROY, one at a time */
	struct mutex climb_lock;	/* a worker that goes far up a tree */
	struct vhfs_table table;
	u32 generation;
	struct vhfs_node *root_node;
	struct vhfs_locks *locks;
	struct workqueue_struct *wq;
	struct workqueue_struct *reap_wq;
	struct workqueue_struct *swap_wq;
	struct work_struct reaper;
	unsigned long reap_since;
	struct work_struct swapper;
	unsigned long vain_until;
	bool strict;
	struct mem_cgroup *memcg;
	struct llist_head reap_nodes;
	struct llist_head reap_handles;
	atomic64_t refused;
	atomic64_t searches;
	atomic64_t sessions;
};

static inline struct vfsmount *vhfs_mnt(const struct vhfs_req *req)
{
	return req->node->mount->mnt;
}

static inline struct mnt_idmap *vhfs_idmap(const struct vhfs_req *req)
{
	return mnt_idmap(vhfs_mnt(req));
}

/*
 * The file system that a request touches.  A request without a node touches none, and gets the
 * root's.
 */
static inline struct super_block *vhfs_sb(const struct vhfs_req *req)
{
	return req->node ? vhfs_mnt(req)->mnt_sb : req->ex->root.mnt->mnt_sb;
}

static inline bool vhfs_read_only(const struct vhfs_export *ex)
{
	return ex->cfg.flags & VHOST_FS_EXPORT_READ_ONLY;
}

/*
 * Whether the guest writes its page cache back later.  Until then only the guest knows the size,
 * the times and the data of a file.
 */
static inline bool vhfs_writes_back(const struct vhfs_export *ex)
{
	return ex->session.flags & FUSE_WRITEBACK_CACHE;
}

/*
 * Whether it takes long to free a file's blocks and pages.  The file may have blocks and pages
 * beyond its size.  Extended attributes do not count: if freeing those takes long after all, the
 * crew has another thread poll.
 */
static inline bool vhfs_is_big(const struct inode *inode)
{
	return S_ISREG(inode->i_mode) &&
	       (i_size_read(inode) > VHFS_HOT_SIZE ||
		READ_ONCE(inode->i_blocks) > VHFS_HOT_SIZE >> SECTOR_SHIFT ||
		READ_ONCE(inode->i_mapping->nrpages) >
			VHFS_HOT_SIZE >> PAGE_SHIFT);
}

/* Whether the poller's thread has no time to let go of the file, and only a worker should. */
static inline bool vhfs_too_big(const struct vhfs_req *req,
				const struct inode *inode)
{
	return req->hot && vhfs_is_big(inode);
}

/* Whether a file system is in memory, so that writes and syncs do not wait for a disk. */
static inline bool vhfs_in_memory(const struct super_block *sb)
{
	return sb->s_magic == TMPFS_MAGIC || sb->s_magic == RAMFS_MAGIC;
}

/* export.c */
struct vhfs_export *vhfs_export_open(const struct vhost_fs_export *cfg);
void vhfs_export_close(struct vhfs_export *ex);
void vhfs_export_info(struct vhfs_export *ex, struct vhost_fs_info *info);

/* mount.c */
int vhfs_top_open(struct vhfs_export *ex, const struct path *host);
void vhfs_top_close(struct vhfs_export *ex);
struct vhfs_mount *vhfs_mount_get(struct vhfs_mount *mount);
void vhfs_mount_put(struct vhfs_mount *mount);
bool vhfs_mount_is_in_place(struct vhfs_mount *mount);
bool vhfs_is_mountpoint(const struct vhfs_mount *mount, struct dentry *dentry);
int vhfs_cross(struct vhfs_req *req, struct vhfs_place *at);
int vhfs_go_up(const struct vhfs_node *node, struct vhfs_place *at);
void vhfs_place_put(struct vhfs_place *at);

/* Whether a mount, held by the caller, is still beneath the directory that is served. */
static inline bool vhfs_mount_is_reached(struct vhfs_mount *mount)
{
	return !mount->parent || vhfs_mount_is_in_place(mount);
}

/* decode.c */
int vhfs_decode(struct vhfs_req *req);
void vhfs_req_free(struct vhfs_req *req);

/* dispatch.c */
extern const struct vhfs_op vhfs_ops[VHFS_OPS];
int vhfs_run(struct vhfs_req *req);
bool vhfs_is_hot(const struct vhfs_req *req);
int vhfs_wire_error(int error);

/* ring.c */
void vhfs_req_done(struct vhfs_req *req, int error);
void vhfs_req_resume(struct vhfs_req *req);
bool vhfs_ring_stops(const struct vhfs_req *req);

/* init.c */
int vhfs_init(struct vhfs_req *req);
int vhfs_destroy(struct vhfs_req *req);
void vhfs_end_session(struct vhfs_export *ex);

/* node.c */
int vhfs_table_init(struct vhfs_export *ex);
void vhfs_table_clear(struct vhfs_export *ex);
void vhfs_table_destroy(struct vhfs_export *ex);
struct vhfs_node *vhfs_node_get(struct vhfs_export *ex, u64 id);
void vhfs_node_put(struct vhfs_node *node, bool may_sleep);
int vhfs_node_use(struct vhfs_req *req, struct vhfs_node *node);
bool vhfs_is_deep(const struct vhfs_node *node);
bool vhfs_node_is_beneath(const struct vhfs_node *node);
int vhfs_node_check(const struct vhfs_req *req, struct vhfs_node *node);
struct vhfs_node *vhfs_node_opened(struct vhfs_export *ex, u64 id, struct dentry *dentry);
bool vhfs_node_hold(struct vhfs_node *node);
int vhfs_node_hash(struct vhfs_table *table, struct vhfs_node *node);
void vhfs_node_unhash(struct vhfs_table *table, struct vhfs_node *node);
void vhfs_node_closed(struct vhfs_node *node);
bool vhfs_may_make(struct vhfs_req *req);
int vhfs_node_know(struct vhfs_req *req, const struct vhfs_place *at, u64 *id);
int vhfs_node_again(struct vhfs_req *req, struct vhfs_node *node);
bool vhfs_node_may_free(struct vhfs_export *ex, u64 id, u64 count);
bool vhfs_node_count_down(struct vhfs_node *node, u64 count);
void vhfs_node_forget(struct vhfs_export *ex, u64 id, u64 count, bool may_sleep);
void vhfs_node_unknow(struct vhfs_req *req, u64 id);
void vhfs_reap_nodes(struct vhfs_export *ex);

/* forget.c */
int vhfs_forget(struct vhfs_req *req);
int vhfs_batch_forget(struct vhfs_req *req);

/* swap.c */

/* How many nodes have a dentry. */
static inline u32 vhfs_nr_live(const struct vhfs_export *ex)
{
	const struct vhfs_table *table = &ex->table;
	int nr = atomic_read(&table->nr_nodes) - READ_ONCE(table->nr_swapped);

	return max(nr, 0);
}

/* How many nodes count for max_dentries. */
static inline u32 vhfs_nr_counted(const struct vhfs_export *ex)
{
	return ex->strict ? vhfs_nr_live(ex) : READ_ONCE(ex->table.nr_listed);
}

static inline bool vhfs_is_live(const struct vhfs_node *node)
{
	/* Pairs with the release in vhfs_make_live(). */
	return smp_load_acquire(&node->dentry);
}

static inline bool vhfs_in_vain(const struct vhfs_export *ex)
{
	return time_before(jiffies, READ_ONCE(ex->vain_until));
}

bool vhfs_can_swap(const struct vhfs_export *ex, const struct vfsmount *mnt);
void vhfs_swapper(struct work_struct *work);
int vhfs_make_room(struct vhfs_req *req);
void vhfs_swap_list(struct vhfs_table *table, struct vhfs_node *node);
void vhfs_swap_unlist(struct vhfs_table *table, struct vhfs_node *node);
int vhfs_swap_in(struct vhfs_node *node, struct dentry *dentry);
int vhfs_bring_back(struct vhfs_req *req, struct vhfs_node *node);
void vhfs_swap_moved(const struct vhfs_place *at);
bool vhfs_copy_way(struct vhfs_node *node, struct vhfs_way *way);
void vhfs_name_inode(struct vhfs_fid_key *key, const struct vhfs_place *at);
bool vhfs_is_swapped(struct vhfs_table *table, const struct vhfs_fid_key *key);
struct vhfs_node *vhfs_find_swapped_get(struct vhfs_table *table, const struct vhfs_fid_key *key);
void vhfs_fid_remove(struct vhfs_table *table, struct vhfs_node *node);
void vhfs_fid_free(struct vhfs_node *node);
int vhfs_swap_init(struct vhfs_table *table);
void vhfs_swap_destroy(struct vhfs_table *table);

/* reach.c */
bool vhfs_encode(struct vhfs_fid_key *key, struct vhfs_mount *mount, struct inode *inode);
struct dentry *vhfs_reach(struct vhfs_node *node, bool *lost);

/* Find room for one more live node; see vhfs_make_room(). */
static inline int vhfs_find_room(struct vhfs_req *req)
{
	const struct vhfs_export *ex = req->ex;

	return likely(vhfs_nr_counted(ex) < ex->cfg.max_dentries) ? 0 : vhfs_make_room(req);
}

static inline struct dentry *vhfs_dentry(const struct vhfs_req *req)
{
	return req->node->dentry;
}

static inline struct inode *vhfs_inode(const struct vhfs_req *req)
{
	return req->node->inode;
}

static inline struct path vhfs_path(const struct vhfs_req *req)
{
	return (struct path){ .mnt = vhfs_mnt(req),
			      .dentry = req->node->dentry };
}

/* The place of @dentry, in the mount of a request's node. */
static inline struct vhfs_place vhfs_place(const struct vhfs_req *req,
					   struct dentry *dentry)
{
	return (struct vhfs_place){ .mount = req->node->mount,
				    .dentry = dentry };
}

/* handle.c */

/*
 * Whether the poller's thread would have to search locks to close a file.  The VFS looks at all
 * locks of the inode, whichever handle took them.  There may be many, so a worker does it.
 */
static inline bool vhfs_locks_to_search(const struct vhfs_req *req,
					const struct vhfs_handle *handle)
{
	struct file_lock_context *ctx =
		locks_inode_context(file_inode(handle->file));

	return req->hot && ctx && (!list_empty_careful(&ctx->flc_posix) ||
				   !list_empty_careful(&ctx->flc_flock));
}

struct vhfs_handle *vhfs_handle_new(struct vhfs_req *req);
void vhfs_handle_opens(struct vhfs_handle *handle, u64 id, struct dentry *dentry, u32 flags);
int vhfs_handle_set(struct vhfs_req *req, struct vhfs_handle *handle,
		    struct file *file);
void vhfs_handle_drop(struct vhfs_handle *handle);
struct vhfs_handle *vhfs_handle_get(struct vhfs_req *req, u64 id);
struct vhfs_handle *vhfs_handle_get_known(const struct vhfs_req *req, u64 id);
void vhfs_handle_put(struct vhfs_handle *handle, bool may_sleep);
int vhfs_handle_close(struct vhfs_req *req, u64 id);
void vhfs_handles_clear(struct vhfs_export *ex);
void vhfs_reap_handles(struct vhfs_export *ex);

/* cred.c */
struct vhfs_creds *vhfs_creds_open(const struct vhost_fs_export *cfg);
void vhfs_creds_close(struct vhfs_creds *creds);
const struct cred *vhfs_cred_base(struct vhfs_creds *creds, bool kill);
const struct cred *vhfs_cred_caller(struct vhfs_req *req, bool kill);
const struct cred *vhfs_act_as(const struct cred *cred);
void vhfs_act_end(const struct cred *old);

/* lookup.c */
int vhfs_lookup(struct vhfs_req *req);
int vhfs_fill_entry(struct vhfs_req *req, const struct vhfs_place *at,
		    struct fuse_entry_out *out);

/* create.c */
int vhfs_mknod(struct vhfs_req *req);
int vhfs_mkdir(struct vhfs_req *req);
int vhfs_symlink(struct vhfs_req *req);
int vhfs_link(struct vhfs_req *req);
int vhfs_create(struct vhfs_req *req);
int vhfs_tmpfile(struct vhfs_req *req);

/* rename.c */
int vhfs_unlink(struct vhfs_req *req);
int vhfs_rmdir(struct vhfs_req *req);
int vhfs_rename(struct vhfs_req *req);
int vhfs_rename2(struct vhfs_req *req);

/* attr.c */
void vhfs_fill_attr(const struct vhfs_place *at, const struct kstat *stat,
		    struct fuse_attr *attr);
int vhfs_getattr(struct vhfs_req *req);
int vhfs_statx(struct vhfs_req *req);
int vhfs_setattr(struct vhfs_req *req);
int vhfs_truncate(struct vhfs_req *req, const struct path *path,
		  struct file *file, loff_t size, unsigned int more);
int vhfs_access(struct vhfs_req *req);
int vhfs_statfs(struct vhfs_req *req);
int vhfs_readlink(struct vhfs_req *req);
int vhfs_syncfs(struct vhfs_req *req);

/* file.c */
int vhfs_open_flags(const struct vhfs_export *ex, u32 flags);
u32 vhfs_fopen_flags(const struct vhfs_export *ex, const struct inode *inode);
int vhfs_open_node(struct vhfs_req *req, struct vhfs_handle *handle,
		   const struct path *path, u32 flags, bool made,
		   struct fuse_open_out *out);
int vhfs_open(struct vhfs_req *req);
int vhfs_opendir(struct vhfs_req *req);
int vhfs_flush(struct vhfs_req *req);
int vhfs_release(struct vhfs_req *req);
int vhfs_fsync(struct vhfs_req *req);
int vhfs_fallocate(struct vhfs_req *req);
int vhfs_lseek(struct vhfs_req *req);
int vhfs_copy_file_range(struct vhfs_req *req);

/* io.c */
int vhfs_read(struct vhfs_req *req);
int vhfs_write(struct vhfs_req *req);
ssize_t vhfs_io_result(const struct vhfs_req *req, ssize_t done, ssize_t r);

/* direct.c */
bool vhfs_direct_needs_no_thread(const struct vhfs_req *req);
bool vhfs_direct_resume(struct vhfs_req *req);
ssize_t vhfs_direct_io(struct vhfs_req *req, struct vhfs_handle *handle, struct kiocb *iocb,
		       struct iov_iter *iter);

/* dir.c */
int vhfs_readdir(struct vhfs_req *req);
int vhfs_readdirplus(struct vhfs_req *req);

/* xattr.c */
int vhfs_setxattr(struct vhfs_req *req);
int vhfs_getxattr(struct vhfs_req *req);
int vhfs_listxattr(struct vhfs_req *req);
int vhfs_removexattr(struct vhfs_req *req);

/* lock.c */
struct vhfs_locks *vhfs_locks_open(struct vhfs_export *ex);
void vhfs_locks_close(struct vhfs_locks *locks);
unsigned int vhfs_locks_used(struct vhfs_locks *locks);
void vhfs_locks_cancel(struct vhfs_locks *locks, const void *ring);
int vhfs_flush_owner(struct vhfs_handle *handle, u64 id);
void vhfs_unlock_all(struct vhfs_handle *handle);
void vhfs_flock_freed(struct vhfs_export *ex, const struct inode *inode);
int vhfs_getlk(struct vhfs_req *req);
int vhfs_setlk(struct vhfs_req *req);
int vhfs_setlkw(struct vhfs_req *req);
int vhfs_interrupt(struct vhfs_req *req);

#endif
