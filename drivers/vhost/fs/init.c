// SPDX-License-Identifier: GPL-2.0
/*
 * INIT and DESTROY: they begin and end the session of a guest.
 *
 * The guest offers features in INIT, and the answer has those of them that are implemented here.
 * An INIT within a session begins a new one, because the guest has rebooted without DESTROY, and
 * does not know the nodes and files of the old session.
 */
#include "fs.h"

#define READ_AHEAD_MAX	(4U << 20)

/* Each of these features has code, or a test, here. */
#define SESSION_FLAGS							\
	(FUSE_ASYNC_READ | FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS |	\
	 FUSE_ATOMIC_O_TRUNC | FUSE_EXPORT_SUPPORT | FUSE_BIG_WRITES |	\
	 FUSE_DONT_MASK | FUSE_AUTO_INVAL_DATA | FUSE_DO_READDIRPLUS |	\
	 FUSE_READDIRPLUS_AUTO | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS | \
	 FUSE_POSIX_ACL | FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS |	\
	 FUSE_HANDLE_KILLPRIV_V2 | FUSE_SETXATTR_EXT | FUSE_INIT_EXT |	\
	 FUSE_CREATE_SUPP_GROUP | FUSE_DIRECT_IO_ALLOW_MMAP)

static u64 vhfs_offered(const struct fuse_init_in *arg)
{
	u64 flags = arg->flags;

	if (flags & FUSE_INIT_EXT)
		flags |= (u64)arg->flags2 << 32;
	return flags;
}

static u64 vhfs_negotiate(const struct vhfs_export *ex,
			  const struct fuse_init_in *arg)
{
	u64 served = SESSION_FLAGS;
	u64 flags;

	if (ex->cfg.flags & VHOST_FS_EXPORT_WRITEBACK)
		served |= FUSE_WRITEBACK_CACHE;
	if (ex->cfg.flags & VHOST_FS_EXPORT_SUBMOUNTS)
		served |= FUSE_SUBMOUNTS;
	flags = vhfs_offered(arg) & served;
	if (ex->cfg.flags & VHOST_FS_EXPORT_LOCAL_LOCKS)
		flags &= ~(FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS);
	if (ex->cfg.flags & VHOST_FS_EXPORT_NO_ACL ||
	    !IS_ENABLED(CONFIG_FS_POSIX_ACL) ||
	    !(ex->root.dentry->d_sb->s_flags & SB_POSIXACL))
		flags &= ~FUSE_POSIX_ACL;
	return flags;
}

static void vhfs_answer_init(struct vhfs_req *req, u64 flags)
{
	const struct fuse_init_in *arg = vhfs_args(req, struct fuse_init_in);
	struct fuse_init_out *out = vhfs_reply(req, struct fuse_init_out);

	out->major = FUSE_KERNEL_VERSION;
	out->minor = FUSE_KERNEL_MINOR_VERSION;
	out->max_readahead = min(arg->max_readahead, READ_AHEAD_MAX);
	out->flags = flags;
	out->flags2 = flags >> 32;
	/*
	 * With the default of 12 a guest's readers would starve.  The ring bounds these requests
	 * anyway.
	 */
	out->max_background = U16_MAX;
	out->congestion_threshold = U16_MAX / 4 * 3;
	out->max_write = VHFS_MAX_WRITE;
	out->max_pages = VHFS_MAX_WRITE / PAGE_SIZE;
	out->time_gran = req->ex->root.dentry->d_sb->s_time_gran;
	/* Guests before 7.5 and 7.23 have less room for the reply, and expect a shorter one. */
	req->reply_len = min_t(u32, req->reply_len,
			       req->out_room - sizeof(struct fuse_out_header));
}

/* The caller holds session_lock. */
static void vhfs_drop_session(struct vhfs_export *ex)
{
	WRITE_ONCE(ex->session.up, false);
	/*
	 * Change the session's number first.  A request that begins to wait for a lock after this
	 * sees it, and vhfs_locks_cancel() finds the others.
	 */
	vhfs_table_clear(ex);
	vhfs_locks_cancel(ex->locks, NULL);
}

int vhfs_init(struct vhfs_req *req)
{
	const struct fuse_init_in *arg = vhfs_args(req, struct fuse_init_in);
	struct vhfs_export *ex = req->ex;
	u64 flags;

	if (arg->major < FUSE_KERNEL_VERSION)
		return -EPROTO;
	/*
	 * A guest with a newer major version sends INIT again, with the server's (see
	 * uapi/linux/fuse.h).
	 */
	if (arg->major > FUSE_KERNEL_VERSION) {
		vhfs_answer_init(req, 0);
		return 0;
	}
	/*
	 * virtio-fs came with 7.31.  Older versions were never tried, and those before 7.27 are
	 * refused.
	 */
	if (arg->minor < 27)
		return -EPROTO;

	flags = vhfs_negotiate(ex, arg);
	mutex_lock(&ex->session_lock);
	vhfs_drop_session(ex);
	ex->session.minor = min_t(u32, arg->minor, FUSE_KERNEL_MINOR_VERSION);
	ex->session.flags = flags;
	/* Pairs with the acquire in vhfs_decode(). */
	smp_store_release(&ex->session.up, true);
	mutex_unlock(&ex->session_lock);
	atomic64_inc(&ex->sessions);
	vhfs_answer_init(req, flags);
	return 0;
}

/**
 * vhfs_end_session - end the session, because the guest is gone or says that it goes
 * @ex: the export; requests may be running
 */
void vhfs_end_session(struct vhfs_export *ex)
{
	mutex_lock(&ex->session_lock);
	vhfs_drop_session(ex);
	mutex_unlock(&ex->session_lock);
}

int vhfs_destroy(struct vhfs_req *req)
{
	vhfs_end_session(req->ex);
	return 0;
}
