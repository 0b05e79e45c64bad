// SPDX-License-Identifier: GPL-2.0
/*
 * READDIR and READDIRPLUS: they list a directory.
 *
 * The directory is locked while the file system copies its entries to a buffer.  READDIRPLUS looks
 * the names up after that, without the lock.  A handle has one position, so requests for the same
 * handle take turns (pos_lock).
 */
#include <linux/fs.h>
#include <linux/namei.h>
#include <linux/slab.h>

#include "fs.h"

/*
 * struct vhfs_dirents - the entries that a request has gathered
 * @buf: @size: the buffer
 * @used: how many bytes of it whole entries take
 * @last: the last entry; the next one says where it ends
 * @plus: each entry has a struct fuse_entry_out before it
 * @full: the buffer had no room for an entry
 * @root_ino: for the root of a mount: its inode number, which ".." gets there; 0 otherwise
 */
struct vhfs_dirents {
	struct dir_context ctx;
	void *buf;
	u32 size;
	u32 used;
	struct fuse_dirent *last;
	bool plus;
	bool full;
	u64 root_ino;
};

static u32 vhfs_record_size(const struct vhfs_dirents *de, u32 len)
{
	u32 head = de->plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;

	return FUSE_REC_ALIGN(head + len);
}

static bool vhfs_is_dots(const char *name, u32 len)
{
	return len == 2 && name[0] == '.' && name[1] == '.';
}

static bool vhfs_add_dirent(struct dir_context *ctx, const char *name, int len,
			    loff_t pos, u64 ino, unsigned int type)
{
	struct vhfs_dirents *de = container_of(ctx, struct vhfs_dirents, ctx);
	struct fuse_dirent *dirent;
	u32 size;

	if (de->last)
		de->last->off = pos;
	/* No guest can send such a name. */
	if (len <= 0 || len > NAME_MAX)
		return true;
	size = vhfs_record_size(de, len);
	if (de->size - de->used < size) {
		de->full = true;
		return false;
	}
	dirent = de->buf + de->used;
	memset(dirent, 0, size);
	if (de->plus)
		dirent = &((struct fuse_direntplus *)dirent)->dirent;
	/* The guest must not learn what is above the root of a mount. */
	dirent->ino = de->root_ino && vhfs_is_dots(name, len) ?
		de->root_ino : ino;
	dirent->type = type;
	dirent->namelen = len;
	memcpy(dirent->name, name, len);
	de->used += size;
	de->last = dirent;
	return true;
}

/*
 * Gather entries until the buffer is full or the directory ends.  A file system may stop in the
 * middle: it has come to the end only if it adds no more.  If an error comes after some entries,
 * the guest gets these, goes on where the last one ends, and gets the error then.
 */
static int vhfs_gather_all(struct file *dir, struct vhfs_dirents *de)
{
	u32 before;
	int r;

	do {
		before = de->used;
		r = iterate_dir(dir, &de->ctx);
		if (!de->full && de->last)
			de->last->off = de->ctx.pos;
	} while (!r && !de->full && de->used != before);
	return de->used ? 0 : r;
}

static int vhfs_gather(struct vhfs_handle *handle, u64 pos,
		       struct vhfs_dirents *de)
{
	struct file *dir = handle->file;
	loff_t at;
	int r = 0;

	mutex_lock(&handle->pos_lock);
	/*
	 * Seek even if the position is at the beginning, because btrfs then looks for the last
	 * name.
	 */
	if (!pos || dir->f_pos != pos) {
		at = vfs_llseek(dir, pos, SEEK_SET);
		r = at < 0 ? at : 0;
	}
	if (!r)
		r = vhfs_gather_all(dir, de);
	mutex_unlock(&handle->pos_lock);
	if (!r && de->full && !de->used)
		return -EINVAL;
	return r;
}

/* Look up an entry of READDIRPLUS.  If that fails the guest gets the entry without attributes. */
static int vhfs_look_up_entry(struct vhfs_req *req, struct fuse_direntplus *plus)
{
	const struct fuse_dirent *dirent = &plus->dirent;
	struct dentry *dentry;
	struct vhfs_place at;
	int r;

	if (is_dot_dotdot(dirent->name, dirent->namelen))
		return 0;
	dentry = lookup_one_positive_unlocked(vhfs_idmap(req), dirent->name,
					      vhfs_dentry(req),
					      dirent->namelen);
	if (IS_ERR(dentry))
		return PTR_ERR(dentry);
	at = vhfs_place(req, dentry);
	/*
	 * If crossing fails the entry has no attributes.  The guest then sends LOOKUP, and a worker
	 * answers it.
	 */
	r = vhfs_cross(req, &at);
	if (r)
		goto put;
	r = vhfs_fill_entry(req, &at, &plus->entry_out);
	if (r)
		memset(&plus->entry_out, 0, sizeof(plus->entry_out));
	vhfs_place_put(&at);
put:
	dput(dentry);
	return r;
}

static void vhfs_look_up_all(struct vhfs_req *req,
			     const struct vhfs_dirents *de)
{
	struct fuse_direntplus *plus;
	u32 at;

	for (at = 0; at < de->used; at += FUSE_DIRENTPLUS_SIZE(plus)) {
		plus = de->buf + at;
		/*
		 * No more nodes may be live.  Stop, because each further entry may wait to find
		 * that out.
		 */
		if (vhfs_look_up_entry(req, plus) == -ENFILE)
			break;
	}
}

static int vhfs_do_readdir(struct vhfs_req *req, bool plus)
{
	const struct fuse_read_in *arg = vhfs_args(req, struct fuse_read_in);
	u32 room = req->out_room - sizeof(struct fuse_out_header);
	struct vhfs_dirents de = {
		.ctx.actor	= vhfs_add_dirent,
		.size		= min3(arg->size, room, VHFS_MAX_REPLY),
		.plus		= plus,
	};
	struct vhfs_handle *handle;
	int r;

	if ((s64)arg->offset < 0 || !de.size)
		return -EINVAL;
	if (vhfs_is_mount_root(req->node->mount, vhfs_dentry(req)))
		de.root_ino = vhfs_inode(req)->i_ino;
	handle = vhfs_handle_get(req, arg->fh);
	if (IS_ERR(handle))
		return PTR_ERR(handle);
	de.buf = kvmalloc(de.size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	r = -ENOMEM;
	if (!de.buf)
		goto put;
	req->body = de.buf;
	r = vhfs_gather(handle, arg->offset, &de);
	if (r)
		goto put;
	if (plus)
		vhfs_look_up_all(req, &de);
	req->body_len = de.used;
put:
	vhfs_handle_put(handle, !req->hot);
	return r;
}

int vhfs_readdir(struct vhfs_req *req)
{
	return vhfs_do_readdir(req, false);
}

int vhfs_readdirplus(struct vhfs_req *req)
{
	return vhfs_do_readdir(req, true);
}
