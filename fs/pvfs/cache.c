// SPDX-License-Identifier: GPL-2.0
/*
 * Which file data the core keeps in this guest.
 *
 * The core decides by what the server says in its replies to INIT and OPEN, and
 * those pass through here.  With cache=none every file is opened for direct I/O, with
 * writes in parallel, and the core is told that shared mappings of such files work
 * all the same: they go through the page cache, which the core writes back and drops
 * as reads and writes of the same file come by.  Names and attributes are not
 * touched: the server says for how long they hold.
 */
#include "pvfs.h"

/**
 * pvfs_cache_ask - change what a request offers to the server
 * @dev: the device
 * @req: the request
 * @args: its arguments, as the server will see them
 */
void pvfs_cache_ask(struct pvfs_dev *dev, struct fuse_req *req, void *args)
{
	struct fuse_init_in *init = args;

	if (likely(req->args->opcode != FUSE_INIT) || dev->cache != PVFS_CACHE_NONE)
		return;
	/* Without opening files the core would keep their data. */
	init->flags &= ~(FUSE_NO_OPEN_SUPPORT | FUSE_WRITEBACK_CACHE);
}

static void pvfs_cache_open(struct fuse_open_out *open)
{
	open->open_flags |= FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
	open->open_flags &= ~(FOPEN_KEEP_CACHE | FOPEN_PASSTHROUGH);
}

static void pvfs_cache_init(struct fuse_init_out *init)
{
	/* A server that knows nothing of the second word leaves it undefined. */
	if (!(init->flags & FUSE_INIT_EXT))
		init->flags2 = 0;
	init->flags |= FUSE_INIT_EXT;
	init->flags2 |= FUSE_DIRECT_IO_ALLOW_MMAP >> 32;
	init->flags &= ~FUSE_WRITEBACK_CACHE;
}

/**
 * pvfs_cache_told - change what a server's reply says to the core
 * @dev: the device
 * @req: the request, without error
 */
void pvfs_cache_told(struct pvfs_dev *dev, struct fuse_req *req)
{
	struct fuse_args *args = req->args;

	if (dev->cache != PVFS_CACHE_NONE)
		return;
	switch (args->opcode) {
	case FUSE_OPEN:
		pvfs_cache_open(args->out_args[0].value);
		break;
	case FUSE_CREATE:
	case FUSE_TMPFILE:
		pvfs_cache_open(args->out_args[1].value);
		break;
	case FUSE_INIT:
		pvfs_cache_init(args->out_args[0].value);
		break;
	}
}
