// SPDX-License-Identifier: GPL-2.0
/*
 * The table of operations, and the steps that all of them share.  This file looks up the request's
 * node, checks it, takes on the credentials that the request acts with (cred.c), and calls the
 * operation's function.  It also decides which requests the poller's thread may carry out.
 */
#include <linux/vhost_serve.h>

#include "fs.h"

/* clang-format off */
#define NAME1	{ VHFS_NAME_ONE }
#define NAME2	{ VHFS_NAME_ONE, VHFS_NAME_ONE }
#define XNAME	{ VHFS_NAME_XATTR }

#define P	VHFS_OP_POLLER
#define HOT	VHFS_OP_HOT
#define SILENT	VHFS_OP_SILENT
#define NO_NODE	VHFS_OP_NO_NODE
#define DIR	VHFS_OP_DIR
#define EARLY	VHFS_OP_BEFORE_INIT
#define CHANGES	VHFS_OP_CHANGES
#define MAKES	(VHFS_OP_CHANGES | VHFS_OP_AS_CALLER | VHFS_OP_DIR | VHFS_OP_HOT)
#define ROOM	VHFS_OP_ROOM
#define VARIES	VHFS_OP_REPLY_VARIES
#define PLAIN	VHFS_OP_PLAIN
#define CLOSES	(VHFS_OP_PLAIN | VHFS_OP_CLOSES)

#define OP(what, function, its_flags, its_in, its_out, ...)		\
	[FUSE_##what] = { .run = vhfs_##function, .flags = its_flags,	\
			  .in = its_in, .out = its_out, __VA_ARGS__ }
#define IN(type)	sizeof(struct fuse_##type##_in)
#define OUT(type)	sizeof(struct fuse_##type##_out)
#define OPENED		(OUT(entry) + OUT(open))

const struct vhfs_op vhfs_ops[VHFS_OPS] = {
	OP(INIT,	init,	EARLY | NO_NODE | PLAIN | VARIES |
	   VHFS_OP_ARGS_VARY, IN(init), OUT(init),
	   .in_min = offsetof(struct fuse_init_in, flags2)),
	OP(DESTROY,	destroy, EARLY | NO_NODE | PLAIN, 0, 0),
	OP(FORGET,	forget,	P | HOT | SILENT | NO_NODE | PLAIN, IN(forget), 0),
	OP(BATCH_FORGET, batch_forget, SILENT | NO_NODE | PLAIN | VHFS_OP_TAIL,
	   IN(batch_forget), 0),
	OP(INTERRUPT,	interrupt, SILENT | NO_NODE | PLAIN, IN(interrupt), 0),

	OP(LOOKUP,	lookup,	P | HOT | DIR, 0, OUT(entry),
	   .names = { VHFS_NAME_LOOKUP }),
	OP(GETATTR,	getattr, P | HOT, IN(getattr), OUT(attr)),
	OP(STATX,	statx,	HOT, IN(statx), OUT(statx)),
	OP(SETATTR,	setattr, HOT | CHANGES, IN(setattr), OUT(attr)),
	OP(READLINK,	readlink, HOT | VARIES, 0, 0),
	OP(ACCESS,	access,	HOT, IN(access), 0),
	OP(STATFS,	statfs,	HOT, 0, OUT(statfs)),
	OP(SYNCFS,	syncfs,	0, IN(syncfs), 0),

	OP(MKNOD,	mknod,	MAKES | ROOM, IN(mknod), OUT(entry), .names = NAME1),
	OP(MKDIR,	mkdir,	MAKES | ROOM, IN(mkdir), OUT(entry), .names = NAME1),
	OP(SYMLINK,	symlink, MAKES | ROOM, 0, OUT(entry),
	   .names = { VHFS_NAME_ONE, VHFS_NAME_TARGET }),
	OP(LINK,	link,	MAKES, IN(link), OUT(entry), .names = NAME1),
	OP(CREATE,	create,	MAKES | ROOM, IN(create), OPENED, .names = NAME1),
	/* Linux sends "/" as the name, because a temporary file has none. */
	OP(TMPFILE,	tmpfile, MAKES | ROOM, IN(create), OPENED,
	   .names = { VHFS_NAME_UNUSED }),

	OP(UNLINK,	unlink,	HOT | CHANGES | DIR, 0, 0, .names = NAME1),
	OP(RMDIR,	rmdir,	HOT | CHANGES | DIR, 0, 0, .names = NAME1),
	OP(RENAME,	rename,	MAKES, IN(rename), 0, .names = NAME2),
	OP(RENAME2,	rename2, MAKES, IN(rename2), 0, .names = NAME2),

	OP(OPEN,	open,	HOT, IN(open), OUT(open)),
	OP(OPENDIR,	opendir, HOT | DIR, IN(open), OUT(open)),
	OP(RELEASE,	release, HOT | CLOSES, IN(release), 0),
	OP(RELEASEDIR,	release, HOT | CLOSES, IN(release), 0),
	OP(FLUSH,	flush,	HOT | VHFS_OP_ANYWHERE, IN(flush), 0),
	OP(FSYNC,	fsync,	0, IN(fsync), 0),
	OP(FSYNCDIR,	fsync,	0, IN(fsync), 0),
	OP(FALLOCATE,	fallocate, CHANGES, IN(fallocate), 0),
	OP(LSEEK,	lseek,	0, IN(lseek), OUT(lseek)),
	OP(COPY_FILE_RANGE, copy_file_range, CHANGES, IN(copy_file_range),
	   OUT(write)),

	OP(READ,	read,	P | HOT | VARIES | VHFS_OP_DATA_OUT, IN(read), 0),
	OP(WRITE,	write,	HOT | CHANGES | VHFS_OP_DATA_IN, IN(write), OUT(write)),

	OP(READDIR,	readdir, HOT | DIR | VARIES, IN(read), 0),
	OP(READDIRPLUS, readdirplus, HOT | DIR | VARIES, IN(read), 0),

	OP(SETXATTR,	setxattr, HOT | CHANGES | VHFS_OP_TAIL, IN(setxattr), 0,
	   .names = XNAME),
	OP(GETXATTR,	getxattr, HOT | VARIES, IN(getxattr), 0, .names = XNAME),
	OP(LISTXATTR,	listxattr, HOT | VARIES, IN(getxattr), 0),
	OP(REMOVEXATTR, removexattr, HOT | CHANGES, 0, 0, .names = XNAME),

	OP(GETLK,	getlk,	0, IN(lk), OUT(lk)),
	OP(SETLK,	setlk,	0, IN(lk), 0),
	OP(SETLKW,	setlkw,	0, IN(lk), 0),
};

/* clang-format on */

/*
 * The first call, in the poller's round, finds the node, and later calls keep it.  They must,
 * because the file system of that node decides which thread carries the request out
 * (vhfs_is_hot()).  Only a request that closes may go on without a node.  A worker carries it out,
 * and looks again.
 */
static __always_inline int vhfs_find_node(struct vhfs_req *req)
{
	if (req->op->flags & VHFS_OP_NO_NODE)
		return 0;
	if (!req->node)
		req->node = vhfs_node_get(req->ex, req->in.nodeid);
	return req->node || req->op->flags & VHFS_OP_CLOSES ? 0 : -ESTALE;
}

static __always_inline int vhfs_check_node(struct vhfs_req *req)
{
	int r;

	/* The guest may close a file that has left the export. */
	if (req->op->flags & (VHFS_OP_NO_NODE | VHFS_OP_CLOSES))
		return 0;
	r = vhfs_is_live(req->node) ? 0 : vhfs_bring_back(req, req->node);
	if (r)
		return r;
	/* An automount point is a directory in which nothing can be looked up. */
	if (req->op->flags & VHFS_OP_DIR && !d_can_lookup(req->node->dentry))
		return -ENOTDIR;
	return req->op->flags & VHFS_OP_ANYWHERE ? 0 : vhfs_node_check(req, req->node);
}

/*
 * Whether the file has to lose its set-id bits, because the guest says so
 * (FUSE_HANDLE_KILLPRIV_V2).
 */
static bool vhfs_kills(const struct vhfs_req *req)
{
	switch (req->in.opcode) {
	case FUSE_WRITE:
		return vhfs_args(req, struct fuse_write_in)->write_flags &
		       FUSE_WRITE_KILL_SUIDGID;
	case FUSE_OPEN:
		return vhfs_args(req, struct fuse_open_in)->open_flags &
		       FUSE_OPEN_KILL_SUIDGID;
	case FUSE_CREATE:
		return vhfs_args(req, struct fuse_create_in)->open_flags &
		       FUSE_OPEN_KILL_SUIDGID;
	case FUSE_SETATTR:
		return vhfs_args(req, struct fuse_setattr_in)->valid &
		       FATTR_KILL_SUIDGID;
	case FUSE_SETXATTR:
		return vhfs_args(req, struct fuse_setxattr_in)->setxattr_flags &
		       FUSE_SETXATTR_ACL_KILL_SGID;
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
		/* These requests have no flag for it, and yet the guest leaves it to the server. */
		return req->in.uid;
	default:
		return false;
	}
}

/* Whether the request gives a file another name, and makes no file that the caller has to own. */
static bool vhfs_only_names(const struct vhfs_req *req)
{
	switch (req->in.opcode) {
	case FUSE_LINK:
	case FUSE_RENAME:
		return true;
	case FUSE_RENAME2:
		return !(vhfs_args(req, struct fuse_rename2_in)->flags & RENAME_WHITEOUT);
	default:
		return false;
	}
}

/*
 * The credentials with which a request makes a name.
 *
 * The request acts as its caller, because on an id-mapped mount the VFS makes a name only for ids
 * that the mount maps.  The mount may map the caller's ids and not the opener's.  If the opener may
 * not act as the caller, the request acts as the opener, unless it makes a file.
 */
static const struct cred *vhfs_cred_maker(struct vhfs_req *req, bool kill)
{
	const struct cred *cred = vhfs_cred_caller(req, kill);

	if (IS_ERR(cred) && PTR_ERR(cred) != -ENOMEM && vhfs_only_names(req))
		return get_cred(vhfs_cred_base(req->ex->creds, kill));
	return cred;
}

static int vhfs_run_as(struct vhfs_req *req, const struct cred *cred)
{
	const struct cred *old = vhfs_act_as(cred);
	int r = req->op->run(req);

	vhfs_act_end(old);
	return r;
}

static int vhfs_run_as_caller(struct vhfs_req *req, const struct cred *cred)
{
	int r;

	if (IS_ERR(cred))
		return PTR_ERR(cred);
	r = vhfs_run_as(req, cred);
	put_cred(cred);
	return r;
}

/*
 * If the caller is not root, the request makes files without CAP_FSETID.  Then the VFS clears the
 * set-group-ID bit of a new file unless the caller is in the file's group, as on a local file
 * system.
 */
static int vhfs_run_with_rights(struct vhfs_req *req)
{
	bool kills = vhfs_kills(req);

	if (req->op->flags & VHFS_OP_AS_CALLER)
		return vhfs_run_as_caller(req, vhfs_cred_maker(req, kills || req->in.uid));
	/* The VFS keeps the group bit if the caller is in the file's group. */
	if (kills && req->in.opcode == FUSE_SETXATTR)
		return vhfs_run_as_caller(req, vhfs_cred_caller(req, true));
	/* The export holds these credentials until after the request. */
	return vhfs_run_as(req, vhfs_cred_base(req->ex->creds, kills));
}

/*
 * Look for room here, because a worker may have to wait for it, and holds no lock yet.  Without
 * room the request goes on: it may find a file that the guest knows already.  If it has to make a
 * file, vhfs_may_make() refuses.
 */
static int vhfs_ask_for_room(struct vhfs_req *req)
{
	int r;

	if (!(req->op->flags & VHFS_OP_ROOM))
		return 0;
	r = vhfs_find_room(req);
	req->no_room = r == -ENFILE;
	return req->no_room ? 0 : r;
}

/*
 * Carry out a request in the poller's round, with the export's own credentials.  A round carries
 * out no operation that changes or makes anything, so no request has to act as its caller here.
 * The export stays until after the round.  So the thread takes no reference to the credentials,
 * while override_creds() would.
 */
static __always_inline int vhfs_run_with_base(struct vhfs_req *req)
{
	const struct cred *old;
	int r;

	if (req->op->flags & VHFS_OP_PLAIN)
		return req->op->run(req);
	old = rcu_replace_pointer(current->cred, vhfs_cred_base(req->ex->creds, false), true);
	r = req->op->run(req);
	rcu_assign_pointer(current->cred, old);
	return r;
}

static __always_inline int vhfs_run_in_round(struct vhfs_req *req)
{
	int r = vhfs_find_node(req);

	if (r)
		return r;
	if (!(req->op->flags & VHFS_OP_POLLER))
		return VHFS_PUNT;
	return vhfs_check_node(req) ?: vhfs_run_with_base(req);
}

/* A READ needs its node only if the round cannot carry it out: vhfs_is_hot() looks at the node. */
static int vhfs_run_read_in_round(struct vhfs_req *req)
{
	int r;

	req->handle = vhfs_handle_get_known(req, vhfs_args(req, struct fuse_read_in)->fh);
	if (!req->handle)
		return vhfs_run_in_round(req);
	r = vhfs_run_with_base(req);
	req->handle = NULL;
	return r == VHFS_PUNT ? vhfs_find_node(req) ?: r : r;
}

/**
 * vhfs_run - carry out a request
 * @req: the request, decoded
 *
 * Return: 0, an error, VHFS_PARKED, or VHFS_PUNT.  After VHFS_PUNT nothing was done, and a worker
 * has to carry the request out.  A worker does not get VHFS_PUNT.
 */
int vhfs_run(struct vhfs_req *req)
{
	int r;

	if (!req->may_sleep)
		return req->in.opcode == FUSE_READ ? vhfs_run_read_in_round(req) :
						     vhfs_run_in_round(req);
	r = vhfs_find_node(req);
	if (r)
		return r;
	if (req->op->flags & VHFS_OP_CHANGES && vhfs_read_only(req->ex))
		return -EROFS;
	r = vhfs_check_node(req);
	if (!r)
		r = vhfs_ask_for_room(req);
	if (r)
		return r;
	if (req->op->flags & VHFS_OP_PLAIN)
		return req->op->run(req);
	return vhfs_run_with_rights(req);
}

static bool vhfs_write_is_hot(const struct vhfs_req *req)
{
	u32 flags = vhfs_args(req, struct fuse_write_in)->flags;
	struct super_block *sb = vhfs_sb(req);

	if (req->threadless)
		return true;
	/* The thread would wait until the data are on the disk. */
	if (flags & (O_DIRECT | O_DSYNC | __O_SYNC) && !vhfs_in_memory(sb))
		return false;
	return iov_iter_count(&req->src) <= VHFS_HOT_COPY;
}

static bool vhfs_data_is_hot(const struct vhfs_req *req)
{
	switch (req->in.opcode) {
	case FUSE_READ:
		/* If the page cache had the data, the round would have read them. */
		return req->threadless;
	case FUSE_WRITE:
		return vhfs_write_is_hot(req);
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		return vhfs_args(req, struct fuse_read_in)->size <=
		       VHFS_HOT_DIRENTS;
	default:
		return true;
	}
}

/* Whether the request would wait if the file system were frozen. */
static bool vhfs_waits_for_thaw(const struct vhfs_req *req)
{
	/* FORGET is hot only if it frees a removed file. */
	return req->op->flags & VHFS_OP_CHANGES || req->in.opcode == FUSE_FORGET ||
	       (req->in.opcode == FUSE_OPEN &&
		vhfs_args(req, struct fuse_open_in)->flags & O_TRUNC);
}

/**
 * vhfs_is_hot - whether the poller's thread may carry out a request after its round
 * @req: the request, which the poller could not carry out in its round
 */
bool vhfs_is_hot(const struct vhfs_req *req)
{
	/* To bring a swapped node back may take long. */
	if (req->node && !vhfs_is_live(req->node))
		return false;
	/*
	 * Without a node this thread does not know which file system the file is on.  A FORGET
	 * without a node is here because the reaper is slow, so it frees something that takes long.
	 */
	if (!req->node && (req->op->flags & VHFS_OP_CLOSES || req->in.opcode == FUSE_FORGET))
		return false;
	return req->op->flags & VHFS_OP_HOT && vhfs_data_is_hot(req) &&
	       vserve_fs_allows_hot(vhfs_sb(req), vhfs_waits_for_thaw(req));
}

/**
 * vhfs_wire_error - translate an error for the guest
 * @error: 0, or negative
 *
 * Errors from 512 on are the kernel's own, and the guest must not get them.
 */
int vhfs_wire_error(int error)
{
	if (error > -512)
		return min(error, 0);
	switch (error) {
	case -ERESTARTSYS:
	case -ERESTARTNOINTR:
	case -ERESTARTNOHAND:
	case -ERESTART_RESTARTBLOCK:
		return -EINTR;
	case -ENOTSUPP:
		return -EOPNOTSUPP;
	case -EOPENSTALE:
		return -ESTALE;
	case -EJUKEBOX:
		return -EAGAIN;
	default:
		return -EIO;
	}
}
