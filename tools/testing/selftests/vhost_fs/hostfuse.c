// SPDX-License-Identifier: GPL-2.0
/* See hostfuse.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hostfuse.h"

#define FILE_NODE	2
#define MAX_WRITE	65536

struct request {
	struct fuse_in_header ih;
	u8 arg[MAX_WRITE + 4096];
};

struct answer {
	struct fuse_out_header oh;
	union {
		struct fuse_init_out init;
		struct fuse_entry_out entry;
		struct fuse_attr_out attr;
		struct fuse_open_out open;
		struct fuse_write_out write;
	};
};

static struct hostfuse *state;

static struct fuse_attr attr_of(u64 node)
{
	if (node == FILE_NODE)
		return (struct fuse_attr){ .ino = node, .mode = S_IFREG | 0644, .nlink = 1,
					   .size = state->size };
	return (struct fuse_attr){ .ino = node, .mode = S_IFDIR | 0755, .nlink = 2 };
}

static void do_write(const struct fuse_write_in *arg, struct answer *a)
{
	a->write.size = arg->size;
	if (state->max_write && state->max_write < arg->size)
		a->write.size = state->max_write;
	if (arg->offset + a->write.size > state->size)
		state->size = arg->offset + a->write.size;
	state->writes++;
}

static void do_setattr(const struct fuse_setattr_in *arg)
{
	if (!(arg->valid & FATTR_SIZE))
		return;
	state->size = arg->size;
	state->resizes++;
}

static void do_open(const struct fuse_open_in *arg)
{
	if (state->init_flags & FUSE_ATOMIC_O_TRUNC && arg->flags & O_TRUNC)
		state->size = 0;
}

/* Returns how long the answer is behind its header, or -errno. */
static int serve(const struct request *req, struct answer *a)
{
	const void *arg = req->arg;

	switch (req->ih.opcode) {
	case FUSE_INIT:
		a->init = (struct fuse_init_out){
			.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION,
			.flags = FUSE_POSIX_LOCKS | FUSE_BIG_WRITES | state->init_flags,
			.max_write = MAX_WRITE,
		};
		return sizeof(a->init);
	case FUSE_LOOKUP:
		if (strcmp(arg, "one"))
			return -ENOENT;
		a->entry = (struct fuse_entry_out){ .nodeid = FILE_NODE,
						    .attr = attr_of(FILE_NODE) };
		return sizeof(a->entry);
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		if (req->ih.opcode == FUSE_SETATTR)
			do_setattr(arg);
		a->attr = (struct fuse_attr_out){ .attr = attr_of(req->ih.nodeid) };
		return sizeof(a->attr);
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		if (req->ih.opcode == FUSE_OPEN)
			do_open(arg);
		a->open = (struct fuse_open_out){};
		return sizeof(a->open);
	case FUSE_WRITE:
		a->write = (struct fuse_write_out){};
		do_write(arg, a);
		return sizeof(a->write);
	case FUSE_SETLK:
		state->holder = ((const struct fuse_lk_in *)arg)->owner;
		return 0;
	case FUSE_FLUSH:
		if (((const struct fuse_flush_in *)arg)->lock_owner == state->holder)
			state->holder = 0;
		return 0;
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
		return 0;
	default:
		return -ENOSYS;
	}
}

static bool has_no_answer(u32 opcode)
{
	return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT;
}

static void run_server(int fd)
{
	static struct request req;
	struct answer a;
	int r;

	for (;;) {
		r = read(fd, &req, sizeof(req));
		/* ENOENT: the request has gone while it was read. */
		if (r < 0 && (errno == EINTR || errno == ENOENT))
			continue;
		/* It was unmounted. */
		if (r < 0)
			_exit(0);
		if (has_no_answer(req.ih.opcode))
			continue;
		r = serve(&req, &a);
		a.oh = (struct fuse_out_header){
			.len = sizeof(a.oh) + (r > 0 ? r : 0), .error = r < 0 ? r : 0,
			.unique = req.ih.unique,
		};
		if (write(fd, &a, a.oh.len) < 0 && errno != ENOENT)
			_exit(1);
	}
}

/*
 * The server is a process of its own, so that it still answers when the test ends and its
 * files are closed.
 */
struct hostfuse *hostfuse_mount_with(const char *path, u32 init_flags)
{
	char options[128];
	pid_t pid;
	int fd;

	if (system("modprobe -q fuse"))
		ktap_msg("modprobe fuse failed");
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		ktap_skip("no /dev/fuse");
	state = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	EXPECT(state != MAP_FAILED);
	state->init_flags = init_flags;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other",
		 fd);
	EXPECT(!mount("hostfuse", path, "fuse", MS_NODEV | MS_NOSUID, options));
	pid = fork();
	EXPECT(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_server(fd);
	}
	/* The server does not write to it, or both would. */
	state->pid = pid;
	close(fd);
	return state;
}

struct hostfuse *hostfuse_mount(const char *path)
{
	return hostfuse_mount_with(path, 0);
}
