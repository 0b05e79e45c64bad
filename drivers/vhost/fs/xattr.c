// SPDX-License-Identifier: GPL-2.0
/*
 * Extended attributes: GETXATTR, SETXATTR, LISTXATTR, REMOVEXATTR.
 *
 * Under user.* the guest has the attributes of the host's files.  POSIX ACLs go by the VFS's calls
 * for them.  The flags of the export say what happens to security.* and trusted.*:
 *
 * - By default they do not exist for the guest.
 * - With MAP_XATTR the host stores them under another name (user.virtiofs.security.*).
 * - With RAW_XATTR they are those of the host's files.
 *
 * The guest can use no other names.
 */
#include <linux/fs.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <linux/slab.h>
#include <linux/xattr.h>

#include "fs.h"

#define MAP_PREFIX	"user.virtiofs."
#define MAP_PREFIX_LEN	(sizeof(MAP_PREFIX) - 1)

static bool vhfs_has_prefix(const char *name, const char *prefix)
{
	return !strncmp(name, prefix, strlen(prefix));
}

static bool vhfs_is_acl(const char *name)
{
	return is_posix_acl_xattr(name);
}

static bool vhfs_is_privileged(const char *name)
{
	return vhfs_has_prefix(name, XATTR_SECURITY_PREFIX) ||
	       vhfs_has_prefix(name, XATTR_TRUSTED_PREFIX);
}

static bool vhfs_has_acls(const struct vhfs_req *req)
{
	return req->ex->session.flags & FUSE_POSIX_ACL;
}

/*
 * The error for a guest that has no attributes.  After ENOSYS it does not ask for attributes any
 * more; without that it would ask for security.capability with each exec.  But ACLs go by the same
 * requests, so a guest that has ACLs gets another error.
 */
static int vhfs_no_xattr(const struct vhfs_req *req)
{
	return vhfs_has_acls(req) ? -EOPNOTSUPP : -ENOSYS;
}

/*
 * Find the host's name for the guest's.  @room has space for it.
 *
 * File capabilities are not mapped.  The host takes them away when a file is written, and it does
 * so only under their own name.
 */
static const char *vhfs_host_name(const struct vhfs_req *req, char *room)
{
	const char *name = req->names[0];
	u32 flags = req->ex->cfg.flags;

	if (flags & VHOST_FS_EXPORT_NO_XATTR)
		return ERR_PTR(vhfs_no_xattr(req));
	/* The mapped attributes are stored under these names. */
	if (vhfs_has_prefix(name, MAP_PREFIX) &&
	    flags & VHOST_FS_EXPORT_MAP_XATTR)
		return ERR_PTR(-EPERM);
	if (vhfs_has_prefix(name, XATTR_USER_PREFIX))
		return name;
	if (!vhfs_is_privileged(name))
		return ERR_PTR(-EOPNOTSUPP);
	if (flags & VHOST_FS_EXPORT_RAW_XATTR)
		return name;
	if (!(flags & VHOST_FS_EXPORT_MAP_XATTR) ||
	    !strcmp(name, XATTR_NAME_CAPS))
		return ERR_PTR(-EOPNOTSUPP);
	if (snprintf(room, XATTR_NAME_MAX + 1, MAP_PREFIX "%s", name) >
	    XATTR_NAME_MAX)
		return ERR_PTR(-ERANGE);
	return room;
}

static int vhfs_set_acl(struct vhfs_req *req, const void *value, size_t size)
{
	struct posix_acl *acl = NULL;
	int r;

	if (!vhfs_has_acls(req))
		return -EOPNOTSUPP;
	if (size) {
		acl = posix_acl_from_xattr(req->ex->user_ns, value, size);
		if (IS_ERR(acl))
			return PTR_ERR(acl);
	}
	r = vfs_set_acl(vhfs_idmap(req), vhfs_dentry(req), req->names[0],
			acl);
	posix_acl_release(acl);
	return r;
}

static int vhfs_do_setxattr(struct vhfs_req *req, const void *value,
			    size_t size, int flags)
{
	char room[XATTR_NAME_MAX + 1];
	const char *name;

	if (vhfs_is_acl(req->names[0]))
		return vhfs_set_acl(req, value, size);
	name = vhfs_host_name(req, room);
	if (IS_ERR(name))
		return PTR_ERR(name);
	return vfs_setxattr(vhfs_idmap(req), vhfs_dentry(req), name, value,
			    size, flags);
}

int vhfs_setxattr(struct vhfs_req *req)
{
	const struct fuse_setxattr_in *arg =
		vhfs_args(req, struct fuse_setxattr_in);
	int r;

	if (arg->size != req->tail_len || arg->flags & ~(XATTR_CREATE |
							 XATTR_REPLACE))
		return -EINVAL;
	if (arg->size > XATTR_SIZE_MAX)
		return -E2BIG;
	r = mnt_want_write(vhfs_mnt(req));
	if (r)
		return r;
	r = vhfs_do_setxattr(req, req->tail, arg->size, arg->flags);
	mnt_drop_write(vhfs_mnt(req));
	return r;
}

int vhfs_removexattr(struct vhfs_req *req)
{
	char room[XATTR_NAME_MAX + 1];
	const char *name = req->names[0];
	bool acl = vhfs_is_acl(name);
	int r;

	if (acl && !vhfs_has_acls(req))
		return -EOPNOTSUPP;
	if (!acl)
		name = vhfs_host_name(req, room);
	if (IS_ERR(name))
		return PTR_ERR(name);
	r = mnt_want_write(vhfs_mnt(req));
	if (r)
		return r;
	if (acl)
		r = vfs_remove_acl(vhfs_idmap(req), vhfs_dentry(req), name);
	else
		r = vfs_removexattr(vhfs_idmap(req), vhfs_dentry(req), name);
	mnt_drop_write(vhfs_mnt(req));
	return r;
}

/*
 * The id of an entry, in the guest's numbers, or ACL_UNDEFINED_ID.  posix_acl_to_xattr() does not
 * know the mount's id mapping.
 */
static u32 vhfs_acl_id(const struct vhfs_req *req, const struct posix_acl_entry *entry)
{
	struct user_namespace *fs_ns = i_user_ns(vhfs_inode(req));
	struct mnt_idmap *idmap = vhfs_idmap(req);
	vfsuid_t uid;
	vfsgid_t gid;

	switch (entry->e_tag) {
	case ACL_USER:
		uid = make_vfsuid(idmap, fs_ns, entry->e_uid);
		return from_kuid(req->ex->user_ns, vfsuid_into_kuid(uid));
	case ACL_GROUP:
		gid = make_vfsgid(idmap, fs_ns, entry->e_gid);
		return from_kgid(req->ex->user_ns, vfsgid_into_kgid(gid));
	default:
		return ACL_UNDEFINED_ID;
	}
}

/*
 * Put the guest's ids into an ACL for the guest.  The ids of the ACL itself must not change,
 * because it is the inode's own.
 *
 * An id without a mapping becomes the overflow id, as the owner of a file does.  That id belongs to
 * a user of the guest, who must not get the rights, so the entry loses them.
 */
static void vhfs_map_acl(const struct vhfs_req *req, const struct posix_acl *acl,
			 struct posix_acl_xattr_header *value)
{
	struct posix_acl_xattr_entry *entries = (void *)(value + 1);
	const struct posix_acl_entry *entry;
	unsigned int i;
	u32 id;

	for (i = 0; i < acl->a_count; i++) {
		entry = &acl->a_entries[i];
		id = vhfs_acl_id(req, entry);
		if (id == ACL_UNDEFINED_ID && entry->e_tag & (ACL_USER | ACL_GROUP)) {
			id = entry->e_tag == ACL_USER ? overflowuid : overflowgid;
			entries[i].e_perm = 0;
		}
		entries[i].e_id = cpu_to_le32(id);
	}
}

static ssize_t vhfs_get_acl(struct vhfs_req *req, void *value, size_t size)
{
	struct posix_acl *acl;
	ssize_t r;

	if (!vhfs_has_acls(req))
		return -EOPNOTSUPP;
	acl = vfs_get_acl(vhfs_idmap(req), vhfs_dentry(req), req->names[0]);
	/*
	 * The session has ACLs, but this file system has none.  If a Linux guest got -EOPNOTSUPP,
	 * it would fail each permission check.
	 */
	if (acl == ERR_PTR(-EOPNOTSUPP))
		return -ENODATA;
	if (IS_ERR(acl))
		return PTR_ERR(acl);
	if (!acl)
		return -ENODATA;
	r = posix_acl_to_xattr(req->ex->user_ns, acl, value, size);
	if (value && r > 0)
		vhfs_map_acl(req, acl, value);
	posix_acl_release(acl);
	return r;
}

static ssize_t vhfs_do_getxattr(struct vhfs_req *req, void *value, size_t size)
{
	char room[XATTR_NAME_MAX + 1];
	const char *name;

	if (vhfs_is_acl(req->names[0]))
		return vhfs_get_acl(req, value, size);
	name = vhfs_host_name(req, room);
	if (IS_ERR(name))
		return PTR_ERR(name);
	return vfs_getxattr(vhfs_idmap(req), vhfs_dentry(req), name, value,
			    size);
}

/* Allocate room for a value.  A @size of 0 does not come here: see vhfs_answer_size(). */
static int vhfs_alloc_value(struct vhfs_req *req, u32 size)
{
	if (size > req->out_room - sizeof(struct fuse_out_header))
		return -EINVAL;
	req->body = kvzalloc(size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	return req->body ? 0 : -ENOMEM;
}

static int vhfs_answer_size(struct vhfs_req *req, ssize_t size)
{
	if (size < 0)
		return size;
	if (req->out_room < sizeof(struct fuse_out_header) +
			    sizeof(struct fuse_getxattr_out))
		return -EINVAL;
	vhfs_reply(req, struct fuse_getxattr_out)->size = size;
	return 0;
}

int vhfs_getxattr(struct vhfs_req *req)
{
	const struct fuse_getxattr_in *arg =
		vhfs_args(req, struct fuse_getxattr_in);
	u32 size = min_t(u32, arg->size, XATTR_SIZE_MAX);
	ssize_t len;
	int r;

	if (!size)
		return vhfs_answer_size(req, vhfs_do_getxattr(req, NULL, 0));
	r = vhfs_alloc_value(req, size);
	if (r)
		return r;
	len = vhfs_do_getxattr(req, req->body, size);
	if (len < 0)
		return len;
	req->body_len = min_t(size_t, len, size);
	return 0;
}

/* Find the guest's name for one of the host's.  Returns NULL if the guest has no name for it. */
static const char *vhfs_guest_name(const struct vhfs_req *req, const char *name)
{
	u32 flags = req->ex->cfg.flags;

	if (vhfs_is_acl(name))
		return vhfs_has_acls(req) ? name : NULL;
	if (flags & VHOST_FS_EXPORT_NO_XATTR)
		return NULL;
	if (vhfs_has_prefix(name, MAP_PREFIX) &&
	    flags & VHOST_FS_EXPORT_MAP_XATTR)
		return name + MAP_PREFIX_LEN;
	if (vhfs_has_prefix(name, XATTR_USER_PREFIX))
		return name;
	if (vhfs_is_privileged(name) && flags & VHOST_FS_EXPORT_RAW_XATTR)
		return name;
	return NULL;
}

/*
 * Translate a list of names in place, because the guest's names are never longer.  Returns the new
 * length.
 */
static size_t vhfs_translate_list(const struct vhfs_req *req, char *list,
				  size_t len)
{
	char *from = list, *to = list, *end = list + len;
	const char *name;
	size_t step;

	while (from < end) {
		step = strnlen(from, end - from) + 1;
		name = vhfs_guest_name(req, from);
		if (name) {
			size_t keep = step - (name - from);

			memmove(to, name, keep);
			to += keep;
		}
		from += step;
	}
	return to - list;
}

/* Get all names of the host, because only then it is known how many of them the guest has. */
int vhfs_listxattr(struct vhfs_req *req)
{
	const struct fuse_getxattr_in *arg =
		vhfs_args(req, struct fuse_getxattr_in);
	u32 room = req->out_room - sizeof(struct fuse_out_header);
	ssize_t len;
	char *list;

	list = kvzalloc(XATTR_LIST_MAX + 1, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!list)
		return -ENOMEM;
	req->body = list;
	len = vfs_listxattr(vhfs_dentry(req), list, XATTR_LIST_MAX);
	if (len < 0)
		return len;
	len = vhfs_translate_list(req, list, len);
	if (!arg->size)
		return vhfs_answer_size(req, len);
	if (len > arg->size)
		return -ERANGE;
	if (len > room)
		return -EINVAL;
	req->body_len = len;
	return 0;
}
