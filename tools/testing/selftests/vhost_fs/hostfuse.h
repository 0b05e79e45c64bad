/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A FUSE file system of the host, to be exported: one file, "one", and a server for it that
 * notes what it is asked.
 */
#ifndef VHOST_FS_HOSTFUSE_H
#define VHOST_FS_HOSTFUSE_H

#include <stdatomic.h>

#include "fsrig.h"

/*
 * Shared with the server.
 * @holder: the owner of the last POSIX lock, or 0 if it was dropped; a FLUSH drops its owner's
 * @writes: requests that wrote to the file
 * @max_write: bytes of a WRITE that the server takes, or 0: all
 */
struct hostfuse {
	atomic_ullong holder;
	atomic_uint writes;
	atomic_uint max_write;
};

/* Mounts one on f->dir.  The server lives until the test does not. */
struct hostfuse *hostfuse_mount(struct fs *f);

#endif /* VHOST_FS_HOSTFUSE_H */
