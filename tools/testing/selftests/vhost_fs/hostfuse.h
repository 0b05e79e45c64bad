/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A FUSE file system of the host, to be exported: one file, "one", and a server for it that
 * notes what it is asked, and that a test may stop, as the server of a network may stop.
 */
#ifndef VHOST_FS_HOSTFUSE_H
#define VHOST_FS_HOSTFUSE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "fsrig.h"

/*
 * Shared with the server.
 * @pid: the server, a child
 * @holder: the owner of the last POSIX lock, or 0 if it was dropped; a FLUSH drops its owner's
 * @size: of the file
 * @writes: requests that wrote to the file
 * @max_write: bytes of a WRITE that the server takes, or 0: all
 * @resizes: SETATTRs that set the size of the file
 * @init_flags: what the server offers in INIT beyond what it always does
 */
struct hostfuse {
	pid_t pid;
	atomic_ullong holder;
	atomic_ullong size;
	atomic_uint writes;
	atomic_uint max_write;
	atomic_uint resizes;
	u32 init_flags;
};

/* Mounts one at @path.  The server ends with the test. */
struct hostfuse *hostfuse_mount(const char *path);
/* One whose server offers @init_flags, too; it knows FUSE_ATOMIC_O_TRUNC. */
struct hostfuse *hostfuse_mount_with(const char *path, u32 init_flags);

#endif /* VHOST_FS_HOSTFUSE_H */
