// SPDX-License-Identifier: GPL-2.0
/*
 * The option cache=: which file data FUSE's core keeps in this guest, and for how long it caches
 * names and attributes.  The core decides by flags and times in the server's replies, and this file
 * changes these on their way to the core.
 *
 * With cache=none every file is opened for direct I/O, with writes in parallel, and the core is
 * told that shared mappings of such files work all the same: they go through the page cache,
 * which the core writes back and drops as reads and writes of the same file come by, and writes
 * back when the mapping or the file is closed.  Names and attributes are not touched: the server
 * says for how long they hold.  (There is no cache=mmap, because that is what it would be.)
 *
 * With cache=always only this guest uses the directory, so what it knows stays true.  Files and
 * directories keep their pages from open to open, names and attributes hold for a day, and a
 * changed mtime, which can only be this guest's own, drops nothing.  If the server agrees, the
 * core keeps what is written, too, and writes it back later.  The server has to agree, because
 * the core then reads through handles that were opened to write, and says itself where the end
 * of a file is.  Otherwise it writes through.
 */
#include "pvfs.h"

#include <linux/highmem.h>

/* For how long names and attributes hold with cache=always, in seconds. */
#define PVFS_ALWAYS	(24 * 60 * 60)

static const char *const pvfs_cache_names[] = {
	[PVFS_CACHE_NONE] = "none",
	[PVFS_CACHE_AUTO] = "auto",
	[PVFS_CACHE_ALWAYS] = "always",
};

/**
 * pvfs_cache_name - a mode as the mount option has it
 * @cache: the mode
 */
const char *pvfs_cache_name(enum pvfs_cache cache)
{
	return pvfs_cache_names[cache];
}

/**
 * pvfs_cache_ask - change what a request offers to the server
 * @dev: the device
 * @req: the request
 * @args: its arguments, as the server will see them
 */
void pvfs_cache_ask(struct pvfs_dev *dev, struct fuse_req *req, void *args)
{
	struct fuse_init_in *init = args;

	if (likely(req->args->opcode != FUSE_INIT))
		return;
	/* If the core did not open files, it would keep their data. */
	if (dev->cache == PVFS_CACHE_NONE)
		init->flags &= ~(FUSE_NO_OPEN_SUPPORT | FUSE_WRITEBACK_CACHE);
}

static void pvfs_none_open(struct fuse_open_out *open)
{
	open->open_flags |= FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
	open->open_flags &= ~(FOPEN_KEEP_CACHE | FOPEN_PASSTHROUGH);
}

static void pvfs_none_init(struct fuse_init_out *init)
{
	/* A server that knows nothing of the second word leaves it undefined. */
	if (!(init->flags & FUSE_INIT_EXT))
		init->flags2 = 0;
	init->flags |= FUSE_INIT_EXT;
	init->flags2 |= FUSE_DIRECT_IO_ALLOW_MMAP >> 32;
	init->flags &= ~FUSE_WRITEBACK_CACHE;
}

static void pvfs_none_told(struct fuse_args *args)
{
	switch (args->opcode) {
	case FUSE_OPEN:
		pvfs_none_open(args->out_args[0].value);
		break;
	case FUSE_CREATE:
	case FUSE_TMPFILE:
		pvfs_none_open(args->out_args[1].value);
		break;
	case FUSE_INIT:
		pvfs_none_init(args->out_args[0].value);
		break;
	}
}

static void pvfs_always_open(struct fuse_open_out *open)
{
	open->open_flags |= FOPEN_KEEP_CACHE;
	open->open_flags &= ~(FOPEN_DIRECT_IO | FOPEN_PASSTHROUGH);
}

static void pvfs_always_opendir(struct fuse_open_out *open)
{
	open->open_flags |= FOPEN_KEEP_CACHE | FOPEN_CACHE_DIR;
}

static void pvfs_always_entry(struct fuse_entry_out *entry)
{
	/* No file has this name.  The server says for how long that holds. */
	if (!entry->nodeid)
		return;
	entry->entry_valid = PVFS_ALWAYS;
	entry->attr_valid = PVFS_ALWAYS;
}

static void pvfs_always_attr(struct fuse_attr_out *attr)
{
	attr->attr_valid = PVFS_ALWAYS;
}

static void pvfs_always_statx(struct fuse_statx_out *statx)
{
	statx->attr_valid = PVFS_ALWAYS;
}

/*
 * READDIRPLUS has an entry before each name.  The device can still write to the page: each
 * length is read once, and bounded by what is left of the page.
 */
static void pvfs_always_entries(struct fuse_args *args)
{
	struct fuse_args_pages *ap = container_of(args, typeof(*ap), args);
	size_t left = min_t(size_t, args->out_args[0].size, PAGE_SIZE);
	struct fuse_direntplus *entry;
	size_t len;
	void *at;

	/* The core does it so in 6.12.  With another layout the server's times hold. */
	if (!ap->uses_folios || ap->folio_descs[0].offset)
		return;
	at = kmap_local_folio(ap->folios[0], 0);
	entry = at;
	while (left >= FUSE_NAME_OFFSET_DIRENTPLUS) {
		len = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS +
					(size_t)READ_ONCE(entry->dirent.namelen));
		if (len > left)
			break;
		pvfs_always_entry(&entry->entry_out);
		entry = (void *)entry + len;
		left -= len;
	}
	kunmap_local(at);
}

static void pvfs_always_init(struct fuse_init_out *init)
{
	init->flags &= ~FUSE_AUTO_INVAL_DATA;
	init->flags |= FUSE_EXPLICIT_INVAL_DATA;
}

static void pvfs_always_told(struct fuse_args *args)
{
	switch (args->opcode) {
	case FUSE_OPEN:
		pvfs_always_open(args->out_args[0].value);
		break;
	case FUSE_OPENDIR:
		pvfs_always_opendir(args->out_args[0].value);
		break;
	case FUSE_CREATE:
	case FUSE_TMPFILE:
		pvfs_always_open(args->out_args[1].value);
		fallthrough;
	case FUSE_LOOKUP:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_SYMLINK:
	case FUSE_LINK:
		pvfs_always_entry(args->out_args[0].value);
		break;
	case FUSE_READDIRPLUS:
		pvfs_always_entries(args);
		break;
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		pvfs_always_attr(args->out_args[0].value);
		break;
	case FUSE_STATX:
		pvfs_always_statx(args->out_args[0].value);
		break;
	case FUSE_INIT:
		pvfs_always_init(args->out_args[0].value);
		break;
	}
}

/*
 * When the core writes pages back, it looks only at the error.  A server whose disk is full may say
 * that it wrote a part of them, and the core would lose the rest in silence.
 */
static bool pvfs_wrote_back_less(const struct fuse_args *args)
{
	const struct fuse_write_in *in = args->in_args[0].value;
	const struct fuse_write_out *out = args->out_args[0].value;

	return in->write_flags & FUSE_WRITE_CACHE && out->size < in->size;
}

static void pvfs_note_writeback(struct pvfs_dev *dev, const struct fuse_init_out *init)
{
	WRITE_ONCE(dev->writeback, init->flags & FUSE_WRITEBACK_CACHE);
}

/**
 * pvfs_cache_told - change what a server's reply says to the core
 * @dev: the device
 * @req: the request, with its result
 */
void pvfs_cache_told(struct pvfs_dev *dev, struct fuse_req *req)
{
	struct fuse_args *args = req->args;

	/*
	 * The core does not write back before it sends LSEEK, so it would take data that the server
	 * does not have yet for a hole.  After this error it takes all of a file for data.
	 */
	if (args->opcode == FUSE_LSEEK && dev->writeback)
		req->out.h.error = -ENOSYS;
	if (req->out.h.error)
		return;
	if (args->opcode == FUSE_WRITE && pvfs_wrote_back_less(args)) {
		req->out.h.error = -EIO;
		return;
	}
	if (dev->cache == PVFS_CACHE_NONE)
		pvfs_none_told(args);
	else if (dev->cache == PVFS_CACHE_ALWAYS)
		pvfs_always_told(args);
	if (args->opcode == FUSE_INIT)
		pvfs_note_writeback(dev, args->out_args[0].value);
}
