// SPDX-License-Identifier: GPL-2.0
/*
 * Locks: GETLK, SETLK, SETLKW and INTERRUPT, for POSIX locks and flock.
 *
 * The host has the locks, so two guests and the host see each other's.  The guest has a number for
 * the owner of a POSIX lock, and a struct vhfs_owner stands for that owner in the host's lists.
 *
 * No thread sleeps for a lock.  A request that has to wait is parked, as a struct vhfs_wait with a
 * work item.  From then on only the work tries to take the lock:
 *
 * - For a POSIX lock of a local file system, the VFS queues the request behind the lock that is in
 *   its way.  When that lock goes, the VFS calls lm_notify(), which runs the work, as lockd does.
 * - For flock, and on file systems that have locks of their own, the VFS offers nothing like it.
 *   The work tries again after 1 to 100 ms, and at once when a lock of the same export goes.
 *
 * A task cancels a wait by marking it and running the work.  The work takes a wait off locks->waits
 * before it ends the wait.  A task that cancels finds the wait there, under locks->lock, so it does
 * not run the work after the end.
 */
#include <linux/filelock.h>
#include <linux/hash.h>
#include <linux/module.h>
#include <linux/rhashtable.h>
#include <linux/slab.h>

#include "fs.h"

/*
 * Approximate bounds on locked ranges: of one owner, and of an export for each lock that it may
 * have.  They are needed because the kernel charges these ranges to no cgroup.
 */
#define MAX_RANGES	16384
#define RANGES_PER_LOCK	4
#define RETRY_MIN_MS	1U
#define RETRY_MAX_MS	100U
/* If a flock lock goes, this many of the requests that wait for one try at once. */
#define FLOCK_WAKES	8
/* To find those, at most this many of all requests that wait are looked at. */
#define FLOCK_LOOKS	256
#define TRIES_BITS	3

/*
 * struct vhfs_locks - the locks of an export
 * @ex: the export
 * @refs: the export, and each owner: a task that looks at the host's locks (F_GETLK) may hold an
 *	owner for longer than the export lives
 * @lock: protects @owners and @waits
 * @owners: owners, by the guest's number
 * @waits: requests that wait for a lock
 * @tries: by the inode's address.  The VFS walks all locks of a file with a spin lock held, and a
 *	guest can have many.  So one worker has the locks of a file walked, and the others sleep
 * @interrupts: one INTERRUPT at a time walks @waits, for the same reason
 * @nr: owners and waits
 * @ranges: POSIX locks in the host's lists, and the copies of them that requests have
 * @claims: owners that have, or had, locks by a handle, counted for each handle
 */
struct vhfs_locks {
	struct vhfs_export *ex;
	refcount_t refs;
	spinlock_t lock;		/* owners, waits */
	struct rhashtable owners;
	struct list_head waits;
	struct mutex tries[1 << TRIES_BITS];	/* walks of a file's locks */
	struct mutex interrupts;		/* walks of waits by INTERRUPT */
	atomic_t nr;
	atomic_long_t ranges;
	atomic_long_t claims;
};

/*
 * struct vhfs_owner - an owner of POSIX locks in the guest
 * @id: the guest's number
 * @locks: the export's locks
 * @refs: locks in the host's lists, claims, and requests
 * @pid: the number in the guest of the task that took the last lock
 */
struct vhfs_owner {
	u64 id;
	struct rhash_head hash;
	struct vhfs_locks *locks;
	refcount_t refs;
	u32 pid;
	struct rcu_head rcu;
};

/* struct vhfs_claim - it says that an owner has, or had, locks by a handle */
struct vhfs_claim {
	struct list_head node;
	struct vhfs_owner *owner;
};

/*
 * struct vhfs_wait - a request that waits for a lock
 * @fl: the lock
 * @node: on locks->waits
 * @delay: how long the work waits before it tries the next time, in ms
 * @error: the error with which the wait is to end, if it is not 0
 */
struct vhfs_wait {
	struct file_lock fl;
	struct vhfs_locks *locks;
	struct vhfs_req *req;
	struct vhfs_handle *handle;
	struct list_head node;
	struct delayed_work work;
	unsigned int delay;
	int error;
};

static const struct rhashtable_params vhfs_owners = {
	.key_len	= sizeof(u64),
	.key_offset	= offsetof(struct vhfs_owner, id),
	.head_offset	= offsetof(struct vhfs_owner, hash),
	.automatic_shrinking = true,
};

static bool vhfs_charge_lock(struct vhfs_locks *locks)
{
	if (atomic_inc_return(&locks->nr) <= locks->ex->cfg.max_locks)
		return true;
	atomic_dec(&locks->nr);
	atomic64_inc(&locks->ex->refused);
	return false;
}

static void vhfs_locks_put(struct vhfs_locks *locks)
{
	if (!refcount_dec_and_test(&locks->refs))
		return;
	rhashtable_destroy(&locks->owners);
	kfree(locks);
}

static void vhfs_owner_put(struct vhfs_owner *owner)
{
	struct vhfs_locks *locks = owner->locks;

	if (!refcount_dec_and_test(&owner->refs))
		return;
	/*
	 * Until the owner is out of the table, vhfs_owner_get() finds it, gets no reference, and
	 * tries again.
	 */
	spin_lock(&locks->lock);
	rhashtable_remove_fast(&locks->owners, &owner->hash, vhfs_owners);
	spin_unlock(&locks->lock);
	atomic_dec(&locks->nr);
	kfree_rcu(owner, rcu);
	vhfs_locks_put(locks);
	module_put(THIS_MODULE);
}

static struct vhfs_owner *vhfs_owner_find(struct vhfs_locks *locks, u64 id)
{
	struct vhfs_owner *owner;

	rcu_read_lock();
	owner = rhashtable_lookup(&locks->owners, &id, vhfs_owners);
	if (owner && !refcount_inc_not_zero(&owner->refs))
		owner = NULL;
	rcu_read_unlock();
	return owner;
}

static struct vhfs_owner *vhfs_owner_new(struct vhfs_locks *locks, u64 id)
{
	struct vhfs_owner *owner;
	int r = -ENOLCK;

	if (!vhfs_charge_lock(locks))
		return ERR_PTR(r);
	owner = kzalloc(sizeof(*owner), GFP_KERNEL_ACCOUNT);
	if (!owner)
		goto uncharge;
	owner->id = id;
	owner->locks = locks;
	refcount_set(&owner->refs, 1);
	spin_lock(&locks->lock);
	r = rhashtable_lookup_insert_fast(&locks->owners, &owner->hash,
					  vhfs_owners);
	spin_unlock(&locks->lock);
	if (!r) {
		refcount_inc(&locks->refs);
		__module_get(THIS_MODULE);
		return owner;
	}
	kfree(owner);
uncharge:
	atomic_dec(&locks->nr);
	return ERR_PTR(r);
}

static struct vhfs_owner *vhfs_owner_get(struct vhfs_locks *locks, u64 id)
{
	struct vhfs_owner *owner;

	do {
		owner = vhfs_owner_find(locks, id);
		if (!owner)
			owner = vhfs_owner_new(locks, id);
		cond_resched();
	} while (owner == ERR_PTR(-EEXIST));
	return owner;
}

/*
 * The VFS calls the first function for each copy that it makes of a lock, to put it into its lists
 * or to split it.  It calls the second one when it frees a copy.
 */
static fl_owner_t vhfs_lm_get_owner(fl_owner_t fl_owner)
{
	struct vhfs_owner *owner = fl_owner;

	refcount_inc(&owner->refs);
	atomic_long_inc(&owner->locks->ranges);
	return owner;
}

static void vhfs_lm_put_owner(fl_owner_t fl_owner)
{
	struct vhfs_owner *owner = fl_owner;

	/* Count first, because the export's locks may be freed with the owner. */
	atomic_long_dec(&owner->locks->ranges);
	vhfs_owner_put(owner);
}

/* The VFS calls this, with its spin locks held, when the lock in the way is gone. */
static void vhfs_lm_notify(struct file_lock *fl)
{
	struct vhfs_wait *wait = container_of(fl, struct vhfs_wait, fl);

	mod_delayed_work(wait->locks->ex->wq, &wait->work, 0);
}

static const struct lock_manager_operations vhfs_lock_ops = {
	.lm_mod_owner	= THIS_MODULE,
	.lm_get_owner	= vhfs_lm_get_owner,
	.lm_put_owner	= vhfs_lm_put_owner,
	.lm_notify	= vhfs_lm_notify,
};

static s64 vhfs_max_ranges(const struct vhfs_locks *locks)
{
	return (s64)locks->ex->cfg.max_locks * RANGES_PER_LOCK;
}

static struct vhfs_claim *vhfs_find_claim(const struct vhfs_handle *handle,
					  const struct vhfs_owner *owner)
{
	struct vhfs_claim *claim;

	lockdep_assert_held(&handle->claim_lock);
	list_for_each_entry(claim, &handle->claims, node)
		if (!owner || claim->owner == owner)
			return claim;
	return NULL;
}

/*
 * Note that an owner has locks by a handle, so that they go with the handle if the guest does not
 * release them.
 */
static int vhfs_claim(struct vhfs_handle *handle, struct vhfs_owner *owner)
{
	struct vhfs_locks *locks = owner->locks;
	struct vhfs_claim *new;
	bool found;

	/* An owner that has a claim keeps its locks, without memory and beyond the limit. */
	spin_lock(&handle->claim_lock);
	found = vhfs_find_claim(handle, owner);
	spin_unlock(&handle->claim_lock);
	if (found)
		return 0;
	if (atomic_long_inc_return(&locks->claims) > vhfs_max_ranges(locks)) {
		atomic64_inc(&locks->ex->refused);
		goto uncount;
	}
	new = kmalloc(sizeof(*new), GFP_KERNEL_ACCOUNT);
	if (!new)
		goto uncount;
	new->owner = owner;
	spin_lock(&handle->claim_lock);
	/* Another request of the owner may have been here. */
	found = vhfs_find_claim(handle, owner);
	if (!found) {
		refcount_inc(&owner->refs);
		list_add(&new->node, &handle->claims);
	}
	spin_unlock(&handle->claim_lock);
	if (found) {
		atomic_long_dec(&locks->claims);
		kfree(new);
	}
	return 0;
uncount:
	atomic_long_dec(&locks->claims);
	return -ENOLCK;
}

static struct vhfs_claim *vhfs_take_claim(struct vhfs_handle *handle,
					  struct vhfs_owner *owner)
{
	struct vhfs_claim *claim;

	spin_lock(&handle->claim_lock);
	claim = vhfs_find_claim(handle, owner);
	if (claim)
		list_del(&claim->node);
	spin_unlock(&handle->claim_lock);
	return claim;
}

static void vhfs_drop_claim(struct vhfs_claim *claim)
{
	if (!claim)
		return;
	atomic_long_dec(&claim->owner->locks->claims);
	vhfs_owner_put(claim->owner);
	kfree(claim);
}

/*
 * Begin to walk the locks of a file.  Returns the mutex for vhfs_end_walk(), or NULL if the file
 * system has locks of its own: its server may take long, or never answer.
 */
static struct mutex *vhfs_begin_walk(const struct vhfs_handle *handle, bool is_flock)
{
	const struct file_operations *f_op = handle->file->f_op;
	struct inode *inode = file_inode(handle->file);
	struct mutex *tries = &handle->ex->locks->tries[hash_ptr(inode, TRIES_BITS)];

	if (is_flock ? f_op->flock : f_op->lock)
		return NULL;
	mutex_lock(tries);
	return tries;
}

static void vhfs_end_walk(struct mutex *tries)
{
	if (tries)
		mutex_unlock(tries);
}

static void vhfs_remove_posix(const struct vhfs_handle *handle, struct vhfs_owner *owner)
{
	struct mutex *tries = vhfs_begin_walk(handle, false);

	locks_remove_posix(handle->file, owner);
	vhfs_end_walk(tries);
}

/*
 * Close a file for an owner, as close(2) does.  FUSE notes no POSIX locks in the inode: its server
 * drops them when flush() names the owner, by the pointer that the lock had.
 */
static int vhfs_close_as(const struct vhfs_handle *handle, struct vhfs_owner *owner)
{
	struct file *file = handle->file;
	int r = 0;

	if (file->f_op->flush)
		r = file->f_op->flush(file, owner);
	if (owner)
		vhfs_remove_posix(handle, owner);
	return r;
}

/**
 * vhfs_flush_owner - close a file for an owner
 * @handle: the file; all of the owner's locks on the inode go
 * @id: the guest's number of the owner
 *
 * Return: 0, or an error of the file system, which may have data to write.
 */
int vhfs_flush_owner(struct vhfs_handle *handle, u64 id)
{
	struct vhfs_owner *owner = vhfs_owner_find(handle->ex->locks, id);
	int r = vhfs_close_as(handle, owner);

	if (owner) {
		vhfs_drop_claim(vhfs_take_claim(handle, owner));
		vhfs_owner_put(owner);
	}
	return r;
}

/**
 * vhfs_unlock_all - release the locks of a handle that goes
 * @handle: the handle; no other task uses it any more
 *
 * This does not call flush(), which waits for a FUSE server.  It also runs when the device is
 * closed, and the task that closes the device may be that server.  A FUSE server drops the locks
 * when the file is released.
 */
void vhfs_unlock_all(struct vhfs_handle *handle)
{
	struct vhfs_claim *claim;

	while ((claim = vhfs_take_claim(handle, NULL))) {
		vhfs_remove_posix(handle, claim->owner);
		vhfs_drop_claim(claim);
	}
}

/**
 * vhfs_flock_freed - have requests try again, because a flock lock of this export went
 * @ex: the export
 * @inode: the inode that the lock was on
 *
 * The first requests that wait for such a lock try at once, and the others after their delay.  Each
 * try looks at all flock locks of the file, and a guest can have many locks and many requests.
 */
void vhfs_flock_freed(struct vhfs_export *ex, const struct inode *inode)
{
	struct vhfs_locks *locks = ex->locks;
	unsigned int wakes = 0, looks = 0;
	struct vhfs_wait *wait;

	spin_lock(&locks->lock);
	list_for_each_entry(wait, &locks->waits, node) {
		if (++looks > FLOCK_LOOKS)
			break;
		if (file_inode(wait->handle->file) != inode || wait->fl.fl_lmops)
			continue;
		mod_delayed_work(ex->wq, &wait->work, 0);
		if (++wakes == FLOCK_WAKES)
			break;
	}
	spin_unlock(&locks->lock);
}

static bool vhfs_is_flock(const struct vhfs_req *req)
{
	return vhfs_args(req, struct fuse_lk_in)->lk_flags & FUSE_LK_FLOCK;
}

static int vhfs_check_lock(const struct vhfs_req *req, const struct file *file)
{
	const struct fuse_lk_in *arg = vhfs_args(req, struct fuse_lk_in);

	if (arg->lk_flags & ~FUSE_LK_FLOCK)
		return -EINVAL;
	if (vhfs_is_flock(req))
		return arg->lk.type > F_UNLCK ? -EINVAL : 0;
	switch (arg->lk.type) {
	case F_UNLCK:
		break;
	case F_RDLCK:
		if (!(file->f_mode & FMODE_READ))
			return -EBADF;
		break;
	case F_WRLCK:
		if (!(file->f_mode & FMODE_WRITE))
			return -EBADF;
		break;
	default:
		return -EINVAL;
	}
	if (arg->lk.start > OFFSET_MAX || arg->lk.end > OFFSET_MAX ||
	    arg->lk.end < arg->lk.start)
		return -EINVAL;
	return S_ISREG(file_inode(file)->i_mode) ? 0 : -EINVAL;
}

static void vhfs_fill_flock(const struct vhfs_req *req, struct file *file,
			    struct file_lock *fl)
{
	locks_init_lock(fl);
	fl->c.flc_flags = FL_FLOCK;
	fl->c.flc_owner = file;
	fl->c.flc_file = file;
	fl->c.flc_pid = req->ex->pid;
	fl->c.flc_type = vhfs_args(req, struct fuse_lk_in)->lk.type;
	fl->fl_end = OFFSET_MAX;
}

/* Fill a POSIX lock.  The lock gets the reference to @owner, and lm_put_owner() puts it. */
static void vhfs_fill_posix(const struct vhfs_req *req, struct file *file,
			    struct vhfs_owner *owner, struct file_lock *fl)
{
	const struct fuse_lk_in *arg = vhfs_args(req, struct fuse_lk_in);

	locks_init_lock(fl);
	fl->c.flc_flags = FL_POSIX;
	fl->c.flc_owner = owner;
	fl->c.flc_file = file;
	fl->c.flc_pid = req->ex->pid;
	fl->c.flc_type = arg->lk.type;
	fl->fl_start = arg->lk.start;
	fl->fl_end = arg->lk.end;
	fl->fl_lmops = &vhfs_lock_ops;
	atomic_long_inc(&owner->locks->ranges);
	owner->pid = arg->lk.pid;
}

/*
 * Whether an owner or its export has too many ranges.  Each range of an owner holds a reference to
 * it.
 *
 * To unlock a part of a range may make two of one.  To unlock all makes none, so that is always
 * allowed.  An export without room for locks can still unlock: for that it has as much room again.
 */
static bool vhfs_too_many_ranges(struct vhfs_owner *owner,
				 const struct fuse_lk_in *arg)
{
	struct vhfs_locks *locks = owner->locks;
	bool unlock = arg->lk.type == F_UNLCK;
	s64 max = vhfs_max_ranges(locks);

	if (unlock && !arg->lk.start && arg->lk.end == OFFSET_MAX)
		return false;
	if (refcount_read(&owner->refs) <= MAX_RANGES &&
	    atomic_long_read(&locks->ranges) < (unlock ? 2 * max : max))
		return false;
	atomic64_inc(&locks->ex->refused);
	return true;
}

static int vhfs_fill_lock(const struct vhfs_req *req,
			  struct vhfs_handle *handle, struct file_lock *fl)
{
	const struct fuse_lk_in *arg = vhfs_args(req, struct fuse_lk_in);
	struct vhfs_owner *owner;
	int r;

	if (vhfs_is_flock(req)) {
		vhfs_fill_flock(req, handle->file, fl);
		return 0;
	}
	owner = vhfs_owner_get(req->ex->locks, arg->owner);
	if (IS_ERR(owner))
		return PTR_ERR(owner);
	r = vhfs_too_many_ranges(owner, arg) ? -ENOLCK :
	    arg->lk.type == F_UNLCK ? 0 : vhfs_claim(handle, owner);
	if (r) {
		vhfs_owner_put(owner);
		return r;
	}
	vhfs_fill_posix(req, handle->file, owner, fl);
	return 0;
}

static int vhfs_try_flock(struct vhfs_handle *handle, struct file_lock *fl)
{
	struct file *file = handle->file;
	/* The request unlocks, or may turn an exclusive lock into a shared one. */
	bool frees = fl->c.flc_type != F_WRLCK && READ_ONCE(handle->flocked);
	int r;

	if (fl->c.flc_type != F_UNLCK)
		WRITE_ONCE(handle->flocked, true);
	/* Without FL_SLEEP the VFS does not wait. */
	if (file->f_op->flock)
		r = file->f_op->flock(file, F_SETLK, fl);
	else
		r = locks_lock_inode_wait(file_inode(file), fl);
	if (!r && frees)
		vhfs_flock_freed(handle->ex, file_inode(file));
	return r;
}

static int vhfs_try_posix(struct vhfs_handle *handle, struct file_lock *fl)
{
	int r = vfs_lock_file(handle->file, F_SETLK, fl, NULL);

	if (r || fl->c.flc_type == F_UNLCK)
		return r;
	/*
	 * Claim once more.  If a FLUSH of the owner came before the lock was there, it took the
	 * claim away and left the lock, which would outlive the file.
	 */
	r = vhfs_claim(handle, fl->c.flc_owner);
	if (r)
		locks_remove_posix(handle->file, fl->c.flc_owner);
	return r;
}

/* Returns FILE_LOCK_DEFERRED if @fl asks for FL_SLEEP and the VFS has queued it. */
static int vhfs_try_lock(struct vhfs_handle *handle, struct file_lock *fl)
{
	bool is_flock = fl->c.flc_flags & FL_FLOCK;
	struct mutex *tries = vhfs_begin_walk(handle, is_flock);
	int r = is_flock ? vhfs_try_flock(handle, fl) : vhfs_try_posix(handle, fl);

	vhfs_end_walk(tries);
	return r;
}

/*
 * The pid for the reply to GETLK: that of the guest's process that took the lock, or 0 if the lock
 * is not of this export.
 */
static u32 vhfs_pid_of(const struct vhfs_locks *locks,
		       const struct file_lock *fl)
{
	const struct vhfs_owner *owner = fl->c.flc_owner;

	if (fl->fl_lmops != &vhfs_lock_ops || owner->locks != locks)
		return 0;
	return owner->pid;
}

static int vhfs_test_posix(const struct vhfs_handle *handle, struct file_lock *fl)
{
	struct mutex *tries = vhfs_begin_walk(handle, false);
	int r = vfs_test_lock(handle->file, fl);

	vhfs_end_walk(tries);
	return r;
}

static int vhfs_test_lock(struct vhfs_req *req, const struct vhfs_handle *handle)
{
	const struct fuse_lk_in *arg = vhfs_args(req, struct fuse_lk_in);
	struct vhfs_locks *locks = req->ex->locks;
	struct vhfs_owner *owner = vhfs_owner_find(locks, arg->owner);
	struct fuse_lk_out *out;
	struct file_lock fl;
	int r;

	locks_init_lock(&fl);
	fl.c.flc_flags = FL_POSIX;
	/* An owner without locks needs a value that differs from each owner that has one. */
	fl.c.flc_owner = owner ?: (void *)&fl;
	fl.c.flc_file = handle->file;
	fl.c.flc_type = arg->lk.type;
	fl.fl_start = arg->lk.start;
	fl.fl_end = arg->lk.end;
	r = vhfs_test_posix(handle, &fl);
	if (r)
		goto put;
	out = vhfs_reply(req, struct fuse_lk_out);
	out->lk.type = fl.c.flc_type;
	if (fl.c.flc_type != F_UNLCK) {
		out->lk.start = fl.fl_start;
		out->lk.end = fl.fl_end;
		out->lk.pid = vhfs_pid_of(locks, &fl);
	}
put:
	/* By now fl is a copy of the lock in the way, with the owner of that lock. */
	locks_release_private(&fl);
	if (owner)
		vhfs_owner_put(owner);
	return r;
}

int vhfs_getlk(struct vhfs_req *req)
{
	const struct fuse_lk_in *arg = vhfs_args(req, struct fuse_lk_in);
	struct vhfs_handle *handle = vhfs_handle_get(req, arg->fh);
	int r;

	if (IS_ERR(handle))
		return PTR_ERR(handle);
	/*
	 * GETLK works whatever access the file is open for.  It has no meaning for flock, or for a
	 * lock type that asks for nothing.
	 */
	if (vhfs_is_flock(req) || arg->lk.type >= F_UNLCK ||
	    arg->lk.start > OFFSET_MAX || arg->lk.end > OFFSET_MAX ||
	    arg->lk.end < arg->lk.start)
		r = -EINVAL;
	else
		r = vhfs_test_lock(req, handle);
	vhfs_handle_put(handle, true);
	return r;
}

static bool vhfs_waits_by_notify(const struct vhfs_wait *wait)
{
	return wait->fl.c.flc_flags & FL_POSIX &&
	       !wait->handle->file->f_op->lock;
}

/* End a wait.  After this no other code finds it, and no work runs for it. */
static void vhfs_wait_end(struct vhfs_wait *wait, int r)
{
	struct vhfs_locks *locks = wait->locks;
	struct vhfs_req *req = wait->req;

	spin_lock(&locks->lock);
	list_del(&wait->node);
	spin_unlock(&locks->lock);
	/*
	 * Do this even if the lock was not queued, because lm_notify() may not have returned yet.
	 */
	locks_delete_block(&wait->fl);
	cancel_delayed_work(&wait->work);
	locks_release_private(&wait->fl);
	vhfs_handle_put(wait->handle, true);
	kfree(wait);
	atomic_dec(&locks->nr);
	vhfs_req_done(req, r);
}

static void vhfs_wait_work(struct work_struct *work)
{
	struct vhfs_wait *wait = container_of(to_delayed_work(work),
					      struct vhfs_wait, work);
	int r;

	/* Take the lock off the VFS's list of waiters, unless lm_notify() has done so. */
	locks_delete_block(&wait->fl);
	r = READ_ONCE(wait->error);
	if (r) {
		vhfs_wait_end(wait, r);
		return;
	}
	r = vhfs_try_lock(wait->handle, &wait->fl);
	/* lm_notify() runs this work again, and may have been called already. */
	if (r == FILE_LOCK_DEFERRED)
		return;
	if (r != -EAGAIN || vhfs_waits_by_notify(wait)) {
		vhfs_wait_end(wait, r);
		return;
	}
	queue_delayed_work(wait->locks->ex->wq, &wait->work,
			   msecs_to_jiffies(wait->delay));
	/* All waits of an export together try about 1,000 times a second. */
	wait->delay = min(2 * wait->delay,
			  max_t(unsigned int, RETRY_MAX_MS, atomic_read(&wait->locks->nr)));
}

/* The caller holds locks->lock, so the wait is still on the list. */
static void vhfs_wait_cancel(struct vhfs_wait *wait, int error)
{
	WRITE_ONCE(wait->error, error);
	mod_delayed_work(wait->locks->ex->wq, &wait->work, 0);
}

/* Park a request until it has the lock.  The wait takes over the references of @handle and @fl. */
static int vhfs_park(struct vhfs_req *req, struct vhfs_handle *handle,
		     const struct file_lock *fl)
{
	struct vhfs_locks *locks = req->ex->locks;
	struct vhfs_wait *wait;

	if (!vhfs_charge_lock(locks))
		return -ENOLCK;
	wait = kzalloc(sizeof(*wait), GFP_KERNEL_ACCOUNT);
	if (!wait) {
		atomic_dec(&locks->nr);
		return -ENOLCK;
	}
	locks_init_lock(&wait->fl);
	locks_copy_lock(&wait->fl, (struct file_lock *)fl);
	wait->locks = locks;
	wait->req = req;
	wait->handle = handle;
	wait->delay = RETRY_MIN_MS;
	INIT_DELAYED_WORK(&wait->work, vhfs_wait_work);
	if (vhfs_waits_by_notify(wait))
		wait->fl.c.flc_flags |= FL_SLEEP;
	spin_lock(&locks->lock);
	list_add_tail(&wait->node, &locks->waits);
	/* vhfs_locks_cancel() may have looked before the wait was on the list. */
	if (READ_ONCE(req->ex->table.session) != req->session)
		wait->error = -EIO;
	else if (vhfs_ring_stops(req))
		wait->error = -ENOLCK;
	mod_delayed_work(req->ex->wq, &wait->work, 0);
	spin_unlock(&locks->lock);
	return VHFS_PARKED;
}

static int vhfs_lock_by(struct vhfs_req *req, struct vhfs_handle *handle,
			bool may_wait)
{
	struct file_lock fl;
	int r = vhfs_check_lock(req, handle->file);

	if (r)
		return r;
	r = vhfs_fill_lock(req, handle, &fl);
	if (r)
		return r;
	r = vhfs_try_lock(handle, &fl);
	if (r == -EAGAIN && may_wait)
		r = vhfs_park(req, handle, &fl);
	locks_release_private(&fl);
	return r;
}

static int vhfs_do_setlk(struct vhfs_req *req, bool may_wait)
{
	const struct fuse_lk_in *arg = vhfs_args(req, struct fuse_lk_in);
	struct vhfs_handle *handle;
	int r;

	if (req->ex->cfg.flags & VHOST_FS_EXPORT_LOCAL_LOCKS)
		return -EOPNOTSUPP;
	handle = vhfs_handle_get(req, arg->fh);
	if (IS_ERR(handle))
		return PTR_ERR(handle);
	r = vhfs_lock_by(req, handle, may_wait);
	/* If the request is parked, the wait has the reference to the handle. */
	if (r != VHFS_PARKED)
		vhfs_handle_put(handle, true);
	return r;
}

int vhfs_setlk(struct vhfs_req *req)
{
	return vhfs_do_setlk(req, false);
}

int vhfs_setlkw(struct vhfs_req *req)
{
	return vhfs_do_setlk(req, true);
}

/*
 * INTERRUPT ends a wait for a lock, and nothing else.  The request may still be on its way in
 * another ring, so -EAGAIN asks the guest to send the INTERRUPT again.
 */
int vhfs_interrupt(struct vhfs_req *req)
{
	u64 unique = vhfs_args(req, struct fuse_interrupt_in)->unique;
	struct vhfs_locks *locks = req->ex->locks;
	struct vhfs_wait *wait;
	int r = -EAGAIN;

	mutex_lock(&locks->interrupts);
	spin_lock(&locks->lock);
	list_for_each_entry(wait, &locks->waits, node)
		if (wait->req->in.unique == unique) {
			vhfs_wait_cancel(wait, -EINTR);
			r = 0;
			break;
		}
	spin_unlock(&locks->lock);
	mutex_unlock(&locks->interrupts);
	return r;
}

/**
 * vhfs_locks_cancel - end all waits for a lock
 * @locks: the export's locks
 * @ring: end only the waits of this ring; NULL: end all
 *
 * When this returns the requests are about to be answered, and may not have been yet.
 */
void vhfs_locks_cancel(struct vhfs_locks *locks, const void *ring)
{
	struct vhfs_wait *wait;

	spin_lock(&locks->lock);
	list_for_each_entry(wait, &locks->waits, node)
		if (!ring || wait->req->ring == ring)
			vhfs_wait_cancel(wait, -ENOLCK);
	spin_unlock(&locks->lock);
}

/**
 * vhfs_locks_used - count owners and waits
 * @locks: the export's locks
 */
unsigned int vhfs_locks_used(struct vhfs_locks *locks)
{
	return atomic_read(&locks->nr);
}

/**
 * vhfs_locks_open - set up the locks of an export
 * @ex: the export
 *
 * Return: the locks, or NULL without memory.
 */
struct vhfs_locks *vhfs_locks_open(struct vhfs_export *ex)
{
	struct vhfs_locks *locks = kzalloc(sizeof(*locks), GFP_KERNEL_ACCOUNT);
	unsigned int i;

	if (!locks)
		return NULL;
	locks->ex = ex;
	refcount_set(&locks->refs, 1);
	spin_lock_init(&locks->lock);
	INIT_LIST_HEAD(&locks->waits);
	mutex_init(&locks->interrupts);
	for (i = 0; i < ARRAY_SIZE(locks->tries); i++)
		mutex_init(&locks->tries[i]);
	if (!rhashtable_init(&locks->owners, &vhfs_owners))
		return locks;
	kfree(locks);
	return NULL;
}

/**
 * vhfs_locks_close - undo vhfs_locks_open()
 * @locks: without locks and waits, because all handles are closed
 */
void vhfs_locks_close(struct vhfs_locks *locks)
{
	vhfs_locks_put(locks);
}
