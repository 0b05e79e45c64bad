// SPDX-License-Identifier: GPL-2.0
/* See fuseserver.h; without libfuse, because nothing else here needs it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <linux/fuse.h>

#include "fuseserver.h"
#include "ktap.h"

#define ROOT	FUSE_ROOT_ID
#define FILE_ID	2
#define LENGTH	(sizeof(FUSESERVER_DATA) - 1)

union reply {
	struct fuse_init_out init;
	struct fuse_attr_out attr;
	struct fuse_entry_out entry;
	struct fuse_open_out open;
	struct fuse_statfs_out statfs;
	char data[LENGTH];
};

static struct fuse_attr attr_of(u_int64_t node)
{
	if (node == ROOT)
		return (struct fuse_attr){ .ino = node, .mode = S_IFDIR | 0755, .nlink = 2 };
	return (struct fuse_attr){ .ino = node, .mode = S_IFREG | 0644, .nlink = 1,
				   .size = LENGTH };
}

/* The length of what follows the header, or a negative error; 0 is a reply of the header. */
static int answer(const struct fuse_in_header *ih, union reply *out)
{
	const void *arg = ih + 1;

	switch (ih->opcode) {
	case FUSE_INIT:
		out->init = (struct fuse_init_out){
			.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096,
		};
		return sizeof(out->init);
	case FUSE_LOOKUP:
		if (strcmp(arg, FUSESERVER_FILE))
			return -ENOENT;
		out->entry = (struct fuse_entry_out){
			.nodeid = FILE_ID, .attr = attr_of(FILE_ID),
		};
		return sizeof(out->entry);
	case FUSE_GETATTR:
		out->attr = (struct fuse_attr_out){ .attr = attr_of(ih->nodeid) };
		return sizeof(out->attr);
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		return sizeof(out->open);
	case FUSE_READ:
		memcpy(out->data, FUSESERVER_DATA, LENGTH);
		return LENGTH;
	case FUSE_STATFS:
		return sizeof(out->statfs);
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
		return 0;
	default:
		return -ENOSYS;
	}
}

static bool has_reply(const struct fuse_in_header *ih)
{
	return ih->opcode != FUSE_FORGET && ih->opcode != FUSE_BATCH_FORGET &&
	       ih->opcode != FUSE_INTERRUPT;
}

/* Until the file system is gone. */
static void serve(int fd)
{
	static char in[FUSE_MIN_READ_BUFFER + 4096];
	struct fuse_in_header *ih = (void *)in;

	while (read(fd, in, sizeof(in)) >= (ssize_t)sizeof(*ih)) {
		union reply out = {};
		struct fuse_out_header oh = { .unique = ih->unique };
		struct iovec iov[] = { { &oh, sizeof(oh) }, { &out, 0 } };
		int r;

		if (!has_reply(ih))
			continue;
		r = answer(ih, &out);
		oh.error = r < 0 ? r : 0;
		iov[1].iov_len = r < 0 ? 0 : r;
		oh.len = sizeof(oh) + iov[1].iov_len;
		/* Who asked may have given up meanwhile. */
		if (writev(fd, iov, 2) < 0 && errno != ENOENT)
			break;
	}
}

pid_t fuseserver_mount(const char *path)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[128];
	pid_t pid;

	if (fd < 0)
		ktap_skip("there is no /dev/fuse");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
		 fd);
	EXPECT(!mount("fuseserver", path, "fuse", 0, options));
	pid = fork();
	EXPECT(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fd);
		_exit(0);
	}
	close(fd);
	return pid;
}
