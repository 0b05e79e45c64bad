// SPDX-License-Identifier: GPL-2.0
/*
 * Decode a FUSE request: this file copies each byte that the guest wrote once, and checks the copy.
 * dispatch.c carries the request out.
 */
#include <linux/limits.h>
#include <linux/nospec.h>
#include <linux/slab.h>
#include <linux/vhost_serve.h>
#include <linux/vhost_serve_words.h>
#include <linux/xattr.h>

#include "fs.h"

/* The most bytes that may follow the fixed arguments: SETXATTR has a name and a value there. */
#define MAX_REST	(XATTR_SIZE_MAX + XATTR_NAME_MAX + 1)

/*
 * The quick way to copy the header or the fixed arguments.  Drivers put each of them in a buffer of
 * its own, or both in one.
 */
static __always_inline bool vhfs_fetch_words(struct vhfs_req *req, void *to, size_t len)
{
	const void __user *from = vserve_words_of(&req->src, len);

	if (!from || !vserve_get_words(to, from, len))
		return false;
	vserve_words_done(&req->src, len);
	return true;
}

/* The quick way to copy names and what follows them.  Most are short, and lie in one buffer. */
static bool vhfs_fetch_bytes(struct vhfs_req *req, void *to, size_t len)
{
	const void __user *from = vserve_bytes_of(&req->src, len);

	if (!from || !vserve_get_bytes(to, from, len))
		return false;
	vserve_words_done(&req->src, len);
	return true;
}

/*
 * The poller copies with page faults off, so a short copy does not say that the guest's memory is
 * bad.  A worker copies again.
 */
static int vhfs_fetch_any(struct vhfs_req *req, void *to, size_t len)
{
	if (copy_from_iter(to, len, &req->src) == len)
		return 0;
	return req->may_sleep ? -EFAULT : VHFS_PUNT;
}

static noinline int vhfs_fetch_slow(struct vhfs_req *req, void *to, size_t len)
{
	if (iov_iter_count(&req->src) < len)
		return -EINVAL;
	return vhfs_fetch_any(req, to, len);
}

static __always_inline int vhfs_fetch(struct vhfs_req *req, void *to, size_t len)
{
	return !len || vhfs_fetch_words(req, to, len) ? 0 : vhfs_fetch_slow(req, to, len);
}

static int vhfs_get_header(struct vhfs_req *req)
{
	size_t given = iov_iter_count(&req->src);
	int r;

	/* The size is a constant, so that the compiler unrolls the copy. */
	r = vhfs_fetch(req, &req->in, sizeof(req->in));
	if (r)
		return r;
	req->known = true;
	if (req->in.len < sizeof(req->in) || req->in.len > given)
		return -EINVAL;
	return 0;
}

/*
 * Check that the guest has room for the reply.  Otherwise the operation would be carried out, and
 * the guest could not be told.
 */
static int vhfs_check_room(const struct vhfs_req *req)
{
	const struct vhfs_op *op = req->op;
	size_t want = sizeof(struct fuse_out_header);

	if (op->flags & VHFS_OP_SILENT)
		return 0;
	if (!(op->flags & VHFS_OP_REPLY_VARIES))
		want += op->out;
	return req->out_room < want ? -EINVAL : 0;
}

/* A guest that negotiated FUSE_SETXATTR_EXT sends longer arguments with SETXATTR. */
static size_t vhfs_fixed_size(const struct vhfs_req *req, size_t given)
{
	const struct vhfs_op *op = req->op;

	if (req->in.opcode == FUSE_SETXATTR &&
	    !(req->ex->session.flags & FUSE_SETXATTR_EXT))
		return FUSE_COMPAT_SETXATTR_IN_SIZE;
	if (op->flags & VHFS_OP_ARGS_VARY)
		return clamp_t(size_t, given, op->in_min, op->in);
	return op->in;
}

static int vhfs_check_component(const char *name, size_t len, bool dots)
{
	if (!len)
		return -EINVAL;
	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	if (memchr(name, '/', len))
		return -EINVAL;
	if (!dots && is_dot_dotdot(name, len))
		return -EINVAL;
	return 0;
}

static int vhfs_check_string(enum vhfs_name kind, const char *name, size_t len)
{
	switch (kind) {
	case VHFS_NAME_ONE:
		return vhfs_check_component(name, len, false);
	case VHFS_NAME_LOOKUP:
		return vhfs_check_component(name, len, true);
	case VHFS_NAME_TARGET:
		if (!len)
			return -ENOENT;
		return len >= PATH_MAX ? -ENAMETOOLONG : 0;
	case VHFS_NAME_XATTR:
		return !len || len > XATTR_NAME_MAX ? -ERANGE : 0;
	case VHFS_NAME_UNUSED:
		return 0;
	default:
		return -EINVAL;
	}
}

/*
 * Split @rest bytes at @at into strings, each with its terminating zero, and the tail behind them.
 */
static int vhfs_split_strings(struct vhfs_req *req, const char *at, size_t rest)
{
	unsigned int i;
	int r;

	for (i = 0; i < ARRAY_SIZE(req->names); i++) {
		enum vhfs_name kind = req->op->names[i];
		size_t len;

		if (kind == VHFS_NAME_NONE)
			break;
		len = strnlen(at, rest);
		if (len == rest)
			return -EINVAL;
		r = vhfs_check_string(kind, at, len);
		if (r)
			return r;
		req->names[i] = at;
		req->name_len[i] = min_t(size_t, len, NAME_MAX);
		at += len + 1;
		rest -= len + 1;
	}
	if (rest && !(req->op->flags & VHFS_OP_TAIL))
		return -EINVAL;
	req->tail = at;
	req->tail_len = rest;
	return 0;
}

/*
 * Most names fit behind the fixed arguments in req->fixed, so that nothing is allocated for them.
 */
static char *vhfs_room_for_rest(struct vhfs_req *req, size_t size)
{
	const struct vserve_vring *vring = req->ring;
	size_t used = round_up(req->op->in, sizeof(u64));

	if (size <= sizeof(req->fixed) - used)
		return (char *)req->fixed + used;
	req->buf = req->may_sleep ? kvmalloc(size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN) :
				    vserve_alloc_quick(vring->dev, size);
	return req->buf;
}

static int vhfs_fetch_rest(struct vhfs_req *req, char *to, size_t len)
{
	if (iov_iter_count(&req->src) < len)
		return -EINVAL;
	if (!len || vhfs_fetch_bytes(req, to, len))
		return 0;
	return vhfs_fetch_any(req, to, len);
}

static noinline int vhfs_get_rest(struct vhfs_req *req, size_t rest)
{
	char *to;
	int r;

	if (rest > MAX_REST)
		return -EINVAL;
	/* The poller would copy for too long, and can allocate little. */
	if (!req->may_sleep && rest >= PAGE_SIZE)
		return VHFS_PUNT;
	to = vhfs_room_for_rest(req, rest + 1);
	if (!to)
		return req->may_sleep ? -ENOMEM : VHFS_PUNT;
	r = vhfs_fetch_rest(req, to, rest);
	if (r)
		return r;
	to[rest] = 0;
	return vhfs_split_strings(req, to, rest);
}

/* A guest sends one supplementary group at most (FUSE_CREATE_SUPP_GROUP). */
static int vhfs_get_groups(struct vhfs_req *req, const void *ext, size_t len)
{
	const struct fuse_supp_groups *groups = ext;

	if (len < sizeof(*groups) || groups->nr_groups > 1 ||
	    len < struct_size(groups, groups, groups->nr_groups))
		return -EINVAL;
	if (groups->nr_groups)
		req->group = groups->groups[0];
	return 0;
}

static int vhfs_split_ext(struct vhfs_req *req, const void *ext, size_t len)
{
	const struct fuse_ext_header *head;
	int r;

	for (; len; ext += head->size, len -= head->size) {
		head = ext;
		if (len < sizeof(*head) || head->size < sizeof(*head) ||
		    head->size > len || head->size % sizeof(u64))
			return -EINVAL;
		if (head->type != FUSE_EXT_GROUPS)
			continue;
		r = vhfs_get_groups(req, head + 1, head->size - sizeof(*head));
		if (r)
			return r;
	}
	return 0;
}

static noinline int vhfs_get_ext(struct vhfs_req *req, size_t len)
{
	void *ext;
	int r;

	if (len > VHFS_MAX_EXT)
		return -EINVAL;
	if (!req->may_sleep)
		return VHFS_PUNT;
	ext = kmalloc(len, GFP_KERNEL_ACCOUNT);
	if (!ext)
		return -ENOMEM;
	r = vhfs_fetch(req, ext, len);
	if (!r)
		r = vhfs_split_ext(req, ext, len);
	kfree(ext);
	return r;
}

static int vhfs_get_args(struct vhfs_req *req)
{
	size_t left = req->in.len - sizeof(req->in);
	size_t ext = req->in.total_extlen * sizeof(u64);
	size_t fixed;
	int r;

	if (ext > left)
		return -EINVAL;
	left -= ext;
	fixed = vhfs_fixed_size(req, left);
	if (left < fixed)
		return -EINVAL;
	r = vhfs_fetch(req, req->fixed, fixed);
	if (r)
		return r;
	if (unlikely(fixed < req->op->in))
		memset((char *)req->fixed + fixed, 0, req->op->in - fixed);
	left -= fixed;
	if (req->op->flags & VHFS_OP_DATA_IN) {
		if (ext)
			return -EINVAL;
		/*
		 * The data stay in the guest's memory until vhfs_write() passes them to the file
		 * system.
		 */
		iov_iter_truncate(&req->src, left);
		return 0;
	}
	/* Most requests have neither strings nor extensions. */
	if (left || req->op->names[0]) {
		r = vhfs_get_rest(req, left);
		if (r)
			return r;
	}
	return ext ? vhfs_get_ext(req, ext) : 0;
}

/* Find the line of the table for an opcode from the guest.  Returns NULL if no operation has it. */
static const struct vhfs_op *vhfs_find_op(u32 opcode)
{
	const struct vhfs_op *op;

	if (opcode >= VHFS_OPS)
		return NULL;
	op = &vhfs_ops[array_index_nospec(opcode, VHFS_OPS)];
	return op->run ? op : NULL;
}

/**
 * vhfs_decode - read a request from the guest's memory
 * @req: the request, of which @ex, @ring, @src, @dst, @out_room and @may_sleep are set; all other
 *	fields before src are zero
 *
 * Return: 0, an error, or VHFS_PUNT if a worker has to decode the request.  The guest can be told
 * of the error only if req->known is set.
 */
int vhfs_decode(struct vhfs_req *req)
{
	int r;

	req->group = VHFS_NO_GROUP;
	r = vhfs_get_header(req);
	if (r)
		return r;
	req->op = vhfs_find_op(req->in.opcode);
	if (!req->op)
		return -ENOSYS;
	r = vhfs_check_room(req);
	if (r)
		return r;
	/* Pairs with the release in vhfs_init(): if the session is up, its flags are set. */
	if (!smp_load_acquire(&req->ex->session.up) &&
	    !(req->op->flags & VHFS_OP_BEFORE_INIT))
		return -EIO;
	req->session = READ_ONCE(req->ex->table.session);
	return vhfs_get_args(req);
}

/**
 * vhfs_req_free - free what a request has allocated, but not the request
 * @req: the request, answered or about to be decoded again
 */
void vhfs_req_free(struct vhfs_req *req)
{
	kvfree(req->buf);
	kvfree(req->body);
	req->buf = NULL;
	req->body = NULL;
}
