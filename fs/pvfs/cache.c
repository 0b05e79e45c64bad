// SPDX-License-Identifier: GPL-2.0
/*
 * The option cache=: which file data the core keeps in this guest, and for how long it caches names
 * and attributes.  The core decides that by flags and times in the server's replies.  This file
 * changes the flags and times on their way to the core.
 *
 * cache=none
 * ----------
 * The core opens every file for direct I/O, with writes in parallel.  Shared mappings of such files
 * work all the same, because they go through the page cache.  The core writes their pages back
 * before it reads or writes the same part of the file, and drops them if it writes.  It also writes
 * them back when the mapping or the file is closed.  For names and attributes this mode changes
 * nothing, so the server says for how long they hold.
 *
 * pvfs has no cache=mmap, because that would be the same mode.
 *
 * cache=auto
 * ----------
 * The replies stay as they are, so the server decides with each open.
 *
 * cache=always
 * ------------
 * Only this guest uses the directory, so the data in its caches stay true.  The core keeps the
 * pages of files and directories from one open to the next, and names and attributes for a day.  It
 * does not drop pages because of a changed mtime, because only this guest can have changed it.
 *
 * If the server agrees, the core also keeps written data, and writes them back later.  The server
 * has to agree, because the core then reads through handles that were opened for writing, and
 * decides itself where a file ends.  If the server does not agree, the core writes through.
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
 * pvfs_cache_name - the name of a mode, as in the mount option
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
 * @args: the arguments of the request, as the server will see them
 */
void pvfs_cache_ask(struct pvfs_dev *dev, struct fuse_req *req, void *args)
{
	struct fuse_init_in *init = args;

	if (likely(req->args->opcode != FUSE_INIT))
		return;
	/* If the core sent no OPEN, no reply would forbid it to keep the data of the file. */
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
	/* A server that does not know the second word of flags leaves it undefined. */
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
	/* No file has this name, and the server says for how long that holds. */
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
 * The reply to READDIRPLUS has an entry before each name.  The device can still write to the page,
 * so the driver reads each length once, and checks it against the rest of the page.
 */
static void pvfs_always_entries(struct fuse_args *args)
{
	struct fuse_args_pages *ap = container_of(args, typeof(*ap), args);
	size_t left = min_t(size_t, args->out_args[0].size, PAGE_SIZE);
	struct fuse_direntplus *entry;
	size_t len;
	void *at;

	/* The core of 6.12 has this layout.  With another one, the server's times hold. */
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
 * Whether the server wrote only a part of the pages that the core wrote back, as it may if its disk
 * is full.  The core looks only at the error of such a write, so it would lose the rest in silence.
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
	 * The core does not write data back before it sends LSEEK.  So the server would take data
	 * that it does not have yet for a hole.  After this error the core takes the whole file for
	 * data.
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
