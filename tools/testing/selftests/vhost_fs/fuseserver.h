/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A file system of one file whose server can be stopped, as that of a network can.
 */
#ifndef VHOST_FS_FUSESERVER_H
#define VHOST_FS_FUSESERVER_H

#include <sys/types.h>

#define FUSESERVER_FILE	"file"
#define FUSESERVER_DATA	"hello"

/* Mounts it at @path.  Returns its server, a child, which is asked for each attribute. */
pid_t fuseserver_mount(const char *path);

#endif /* VHOST_FS_FUSESERVER_H */
