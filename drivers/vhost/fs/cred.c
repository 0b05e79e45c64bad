// SPDX-License-Identifier: GPL-2.0
/*
 * The credentials with which a request acts.
 *
 * Opener: a request acts with the credentials of the task that set the export up.  The guest's
 * virtiofs has checked permissions before it sends a request (default_permissions).  A new file
 * belongs to the guest's task that makes it: fsuid, fsgid and one supplementary group come from the
 * request, and the capabilities remain the opener's.
 *
 * Squash: a request acts with one uid and gid and no capabilities, and the host checks permissions.
 *
 * No request has CAP_SYS_RESOURCE, because quotas would not bind a guest otherwise.  (ext4 reserves
 * blocks for a uid as well, so an opener that is root uses them.)  A request that has to clear
 * set-id bits lacks CAP_FSETID ("kill").
 */
#include <linux/capability.h>
#include <linux/hash.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uidgid.h>

#include "fs.h"

/*
 * An export remembers the credentials of up to 2^CALLERS_BITS callers.  If more users of the guest
 * are at work, their requests allocate credentials.
 */
#define CALLERS_BITS	6

/* struct vhfs_caller - the credentials of a caller, the last one that used this slot */
struct vhfs_caller {
	const struct cred *cred;
	u32 uid;
	u32 gid;
	u32 group;
	bool kill;
};

/*
 * struct vhfs_creds - the credentials of an export
 * @base: the export's own ones, without and with "kill"
 * @squash: callers do not matter
 * @lock: protects @callers
 * @callers: credentials of callers, by a hash
 */
struct vhfs_creds {
	const struct cred *base[2];
	bool squash;
	struct mutex lock;		/* callers */
	struct vhfs_caller callers[1 << CALLERS_BITS];
};

/*
 * Copy credentials.  prepare_creds() copies those of the task, so the task takes @from on for it.
 */
static struct cred *vhfs_copy_cred(const struct cred *from)
{
	const struct cred *old = override_creds(from);
	struct cred *new = prepare_creds();

	revert_creds(old);
	return new;
}

static void vhfs_drop_cap(struct cred *cred, int cap)
{
	cap_lower(cred->cap_effective, cap);
	cap_lower(cred->cap_permitted, cap);
	cap_lower(cred->cap_inheritable, cap);
	cap_lower(cred->cap_ambient, cap);
}

static int vhfs_set_group(struct cred *cred, kgid_t group)
{
	struct group_info *groups = groups_alloc(gid_valid(group) ? 1 : 0);

	if (!groups)
		return -ENOMEM;
	if (gid_valid(group))
		groups->gid[0] = group;
	set_groups(cred, groups);
	put_group_info(groups);
	return 0;
}

/*
 * Whether an opener may drop groups.  A group may be what keeps its members out of a file, so only
 * a privileged opener may.  In a user namespace setgroups(2) asks for more than CAP_SETGID, and a
 * module cannot check that.
 */
static bool vhfs_may_set_groups(const struct cred *cred)
{
	return cred->user_ns == &init_user_ns && cap_raised(cred->cap_effective, CAP_SETGID);
}

/* Whether the opener could do this by setresuid(2), setresgid(2) and setgroups(2). */
static bool vhfs_may_squash(const struct cred *cred, kuid_t uid, kgid_t gid)
{
	if (!uid_eq(uid, cred->euid) && !ns_capable(cred->user_ns, CAP_SETUID))
		return false;
	if (!gid_eq(gid, cred->egid) && !ns_capable(cred->user_ns, CAP_SETGID))
		return false;
	return !cred->group_info->ngroups || vhfs_may_set_groups(cred);
}

static int vhfs_squash_cred(struct cred *cred,
			    const struct vhost_fs_export *cfg)
{
	kuid_t uid = make_kuid(cred->user_ns, cfg->squash_uid);
	kgid_t gid = make_kgid(cred->user_ns, cfg->squash_gid);

	if (!uid_valid(uid) || !gid_valid(gid))
		return -EINVAL;
	if (!vhfs_may_squash(cred, uid, gid))
		return -EPERM;
	cred->uid = uid;
	cred->suid = uid;
	cred->euid = uid;
	cred->fsuid = uid;
	cred->gid = gid;
	cred->sgid = gid;
	cred->egid = gid;
	cred->fsgid = gid;
	cap_clear(cred->cap_effective);
	cap_clear(cred->cap_permitted);
	cap_clear(cred->cap_inheritable);
	cap_clear(cred->cap_ambient);
	return vhfs_set_group(cred, INVALID_GID);
}

static const struct cred *vhfs_make_base(const struct vhost_fs_export *cfg,
					 bool kill)
{
	struct cred *cred = vhfs_copy_cred(current_cred());
	int r = 0;

	if (!cred)
		return ERR_PTR(-ENOMEM);
	if (cfg->flags & VHOST_FS_EXPORT_SQUASH)
		r = vhfs_squash_cred(cred, cfg);
	if (r) {
		abort_creds(cred);
		return ERR_PTR(r);
	}
	vhfs_drop_cap(cred, CAP_SYS_RESOURCE);
	if (kill)
		vhfs_drop_cap(cred, CAP_FSETID);
	return cred;
}

static void vhfs_put_callers(struct vhfs_creds *creds)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(creds->callers); i++)
		if (creds->callers[i].cred)
			put_cred(creds->callers[i].cred);
}

/**
 * vhfs_creds_open - make the credentials of an export from those of the caller
 * @cfg: the configuration; it says whether the export squashes
 *
 * Return: the credentials, or an error.
 */
struct vhfs_creds *vhfs_creds_open(const struct vhost_fs_export *cfg)
{
	struct vhfs_creds *creds = kzalloc(sizeof(*creds), GFP_KERNEL_ACCOUNT);
	const struct cred *cred;
	unsigned int i;

	if (!creds)
		return ERR_PTR(-ENOMEM);
	mutex_init(&creds->lock);
	creds->squash = cfg->flags & VHOST_FS_EXPORT_SQUASH;
	for (i = 0; i < ARRAY_SIZE(creds->base); i++) {
		cred = vhfs_make_base(cfg, i);
		if (IS_ERR(cred)) {
			vhfs_creds_close(creds);
			return ERR_CAST(cred);
		}
		creds->base[i] = cred;
	}
	return creds;
}

/**
 * vhfs_creds_close - free the credentials of an export
 * @creds: the credentials, not in use any more
 */
void vhfs_creds_close(struct vhfs_creds *creds)
{
	unsigned int i;

	vhfs_put_callers(creds);
	for (i = 0; i < ARRAY_SIZE(creds->base); i++)
		if (creds->base[i])
			put_cred(creds->base[i]);
	kfree(creds);
}

/**
 * vhfs_cred_base - get the export's own credentials
 * @creds: the export's credentials
 * @kill: get those without CAP_FSETID
 */
const struct cred *vhfs_cred_base(struct vhfs_creds *creds, bool kill)
{
	return creds->base[kill];
}

static const struct cred *vhfs_make_caller(struct vhfs_req *req, bool kill)
{
	const struct cred *base = req->ex->creds->base[kill];
	kuid_t uid = make_kuid(base->user_ns, req->in.uid);
	kgid_t gid = make_kgid(base->user_ns, req->in.gid);
	kgid_t group = INVALID_GID;
	struct cred *cred;

	if (!uid_valid(uid) || !gid_valid(gid))
		return ERR_PTR(-EOVERFLOW);
	if (req->group != VHFS_NO_GROUP) {
		group = make_kgid(base->user_ns, req->group);
		if (!gid_valid(group))
			return ERR_PTR(-EOVERFLOW);
	}
	/* Ask for the capabilities that setfsuid(2) and setgroups(2) would ask of the opener. */
	if (!uid_eq(uid, base->fsuid) && !cap_raised(base->cap_effective, CAP_SETUID))
		return ERR_PTR(-EPERM);
	if ((!gid_eq(gid, base->fsgid) || gid_valid(group)) &&
	    !cap_raised(base->cap_effective, CAP_SETGID))
		return ERR_PTR(-EPERM);
	cred = vhfs_copy_cred(base);
	if (!cred)
		return ERR_PTR(-ENOMEM);
	/* An opener that may not set groups keeps its own, and the caller's group is left out. */
	if (vhfs_may_set_groups(base) && vhfs_set_group(cred, group)) {
		abort_creds(cred);
		return ERR_PTR(-ENOMEM);
	}
	cred->fsuid = uid;
	cred->fsgid = gid;
	return cred;
}

static bool vhfs_is_caller(const struct vhfs_caller *slot,
			   const struct vhfs_req *req, bool kill)
{
	return slot->cred && slot->uid == req->in.uid &&
	       slot->gid == req->in.gid && slot->group == req->group &&
	       slot->kill == kill;
}

/* Hash all that vhfs_is_caller() compares, so that groups of one user seldom share a slot. */
static struct vhfs_caller *vhfs_caller_slot(struct vhfs_creds *creds, const struct vhfs_req *req,
					    bool kill)
{
	u32 hash = hash_32(req->in.gid, 32) ^ hash_32(req->group + kill, 32);

	return &creds->callers[hash_32(req->in.uid ^ hash, CALLERS_BITS)];
}

/**
 * vhfs_cred_caller - get the credentials with which files are made for a request's caller
 * @req: the request, decoded
 * @kill: get credentials without CAP_FSETID
 *
 * Any thread may call this: a task holds the mutex for no longer than it takes to copy a few words.
 *
 * Return: the credentials, which the caller puts, or an error.
 */
const struct cred *vhfs_cred_caller(struct vhfs_req *req, bool kill)
{
	struct vhfs_creds *creds = req->ex->creds;
	const struct cred *cred, *old;
	struct vhfs_caller *slot;

	if (creds->squash)
		return get_cred(creds->base[kill]);
	slot = vhfs_caller_slot(creds, req, kill);
	mutex_lock(&creds->lock);
	if (vhfs_is_caller(slot, req, kill)) {
		cred = get_cred(slot->cred);
		mutex_unlock(&creds->lock);
		return cred;
	}
	mutex_unlock(&creds->lock);

	cred = vhfs_make_caller(req, kill);
	if (IS_ERR(cred))
		return cred;
	mutex_lock(&creds->lock);
	old = slot->cred;
	*slot = (struct vhfs_caller){ .cred = get_cred(cred),
				      .uid = req->in.uid, .gid = req->in.gid,
				      .group = req->group, .kill = kill };
	mutex_unlock(&creds->lock);
	if (old)
		put_cred(old);
	return cred;
}

/**
 * vhfs_act_as - have this thread act with other credentials
 * @cred: the credentials, held by the caller until vhfs_act_end()
 *
 * Return: the thread's credentials, for vhfs_act_end().
 */
const struct cred *vhfs_act_as(const struct cred *cred)
{
	return override_creds(cred);
}

/**
 * vhfs_act_end - undo vhfs_act_as()
 * @old: from vhfs_act_as()
 */
void vhfs_act_end(const struct cred *old)
{
	revert_creds(old);
}
