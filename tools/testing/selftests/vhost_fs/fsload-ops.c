// SPDX-License-Identifier: GPL-2.0
/* fsload's operations, by requests on a ring and by system calls. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fsload.h"

#define FILE_SIZE	(64 * LOAD_BLOCK)
#define NAME		"file"
#define NEW		"new"
#define DIR_NAME	"directory"
#define DIR_FILES	16

#define NO_REPLY	(~0U)

static void add(struct load *l, unsigned int slot, u32 opcode, u64 node, const void *arg,
		u32 len, u32 room)
{
	static u8 in[512];
	struct fs_raw raw = {
		.in = in, .in_len = sizeof(struct fuse_in_header) + len,
		.out_room = room == NO_REPLY ? 0 :
			    sizeof(struct fuse_out_header) + room,
		.queue = LOAD_QUEUE,
	};

	fs_header(&l->f, (void *)in, opcode, node, len);
	memcpy(in + sizeof(struct fuse_in_header), arg, len);
	fs_add(&l->f, slot, &raw);
}

static u64 place(u64 turn)
{
	return turn % (FILE_SIZE / LOAD_BLOCK) * LOAD_BLOCK;
}

static void send_getattr(struct load *l, unsigned int slot)
{
	struct fuse_getattr_in in = {};

	add(l, slot, FUSE_GETATTR, l->node, &in, sizeof(in), sizeof(struct fuse_attr_out));
}

static void host_getattr(struct load *l)
{
	struct stat st;

	EXPECT(!syscall(SYS_fstat, l->fd, &st));
}

static void send_lookup(struct load *l, unsigned int slot)
{
	add(l, slot, FUSE_LOOKUP, FUSE_ROOT_ID, NAME, sizeof(NAME),
	    sizeof(struct fuse_entry_out));
}

static void host_lookup(struct load *l)
{
	struct stat st;

	EXPECT(!syscall(SYS_newfstatat, l->root, NAME, &st, 0));
}

static void send_read(struct load *l, unsigned int slot)
{
	struct fuse_read_in in = {
		.fh = l->fh, .offset = place(l->begun), .size = LOAD_BLOCK,
	};

	add(l, slot, FUSE_READ, l->node, &in, sizeof(in), LOAD_BLOCK);
}

static void host_read(struct load *l)
{
	static char data[LOAD_BLOCK];

	EXPECT_EQ(pread(l->fd, data, LOAD_BLOCK, place(l->begun)), LOAD_BLOCK);
}

static void send_write(struct load *l, unsigned int slot)
{
	struct {
		struct fuse_in_header ih;
		struct fuse_write_in arg;
	} in = { .arg = { .fh = l->fh, .offset = place(l->begun), .size = LOAD_BLOCK } };
	struct fs_raw raw = {
		.in = &in, .in_len = sizeof(in), .data_len = LOAD_BLOCK,
		.out_room = sizeof(struct fuse_out_header) +
			    sizeof(struct fuse_write_out),
		.queue = LOAD_QUEUE,
	};

	fs_header(&l->f, &in.ih, FUSE_WRITE, l->node, sizeof(in.arg) + LOAD_BLOCK);
	fs_add(&l->f, slot, &raw);
}

static void host_write(struct load *l)
{
	static char data[LOAD_BLOCK];

	EXPECT_EQ(pwrite(l->fd, data, LOAD_BLOCK, place(l->begun)), LOAD_BLOCK);
}

/* A guest sends four requests when a program makes a file, closes and removes it. */
static void send_create(struct load *l, unsigned int slot)
{
	struct {
		struct fuse_create_in arg;
		char name[8];
	} in = { .arg = { .flags = O_RDWR, .mode = 0644 } };
	struct load_made *made = &l->made[slot];

	made->answered = 0;
	snprintf(made->name, sizeof(made->name), NEW "%u", slot % 100);
	memcpy(in.name, made->name, sizeof(in.name));
	add(l, slot, FUSE_CREATE, FUSE_ROOT_ID, &in, sizeof(in.arg) + strlen(in.name) + 1,
	    sizeof(struct fuse_entry_out) + sizeof(struct fuse_open_out));
}

static void send_release(struct load *l, unsigned int slot)
{
	struct fuse_entry_out *e = (void *)l->f.reply;
	struct fuse_open_out *open = (void *)(e + 1);
	struct fuse_release_in in = { .fh = open->fh };

	l->made[slot].node = e->nodeid;
	add(l, slot, FUSE_RELEASE, e->nodeid, &in, sizeof(in), 0);
}

static bool next_create(struct load *l, unsigned int slot)
{
	struct load_made *made = &l->made[slot];
	struct fuse_forget_in forget = { .nlookup = 1 };

	/* FORGET has no reply. */
	if (made->answered == 3)
		return false;
	EXPECT_EQ(fs_answer(&l->f, slot), 0);
	switch (made->answered++) {
	case 0:
		send_release(l, slot);
		break;
	case 1:
		add(l, slot, FUSE_UNLINK, FUSE_ROOT_ID, made->name, strlen(made->name) + 1, 0);
		break;
	case 2:
		add(l, slot, FUSE_FORGET, made->node, &forget, sizeof(forget), NO_REPLY);
		break;
	}
	return true;
}

/* As many files at a time as a ring has requests in flight. */
static void host_create(struct load *l)
{
	char name[8];
	int fd[FS_MAX_SLOTS];
	unsigned int i;

	for (i = 0; i < l->o.depth; i++) {
		snprintf(name, sizeof(name), NEW "%u", i % 100);
		fd[i] = openat(l->root, name, O_CREAT | O_RDWR, 0644);
		EXPECT(fd[i] >= 0);
	}
	for (i = 0; i < l->o.depth; i++)
		EXPECT(!close(fd[i]));
	for (i = 0; i < l->o.depth; i++) {
		snprintf(name, sizeof(name), NEW "%u", i % 100);
		EXPECT(!unlinkat(l->root, name, 0));
	}
}

/* The whole directory in one reply. */
static void send_readdirplus(struct load *l, unsigned int slot)
{
	struct fuse_read_in in = { .fh = l->dir_fh, .size = LOAD_BLOCK };

	add(l, slot, FUSE_READDIRPLUS, l->dir_node, &in, sizeof(in), LOAD_BLOCK);
}

struct dirent64 {
	u64 ino;
	s64 off;
	unsigned short reclen;
	unsigned char type;
	char name[];
};

static void host_readdirplus(struct load *l)
{
	static char data[LOAD_BLOCK];
	struct dirent64 *e;
	struct stat st;
	long len, at;

	EXPECT_EQ(lseek(l->dir, 0, SEEK_SET), 0);
	len = syscall(SYS_getdents64, l->dir, data, sizeof(data));
	EXPECT(len > DIR_FILES * (long)sizeof(*e));
	for (at = 0; at < len; at += e->reclen) {
		e = (void *)(data + at);
		if (e->name[0] != '.')
			EXPECT(!syscall(SYS_newfstatat, l->dir, e->name, &st,
					AT_SYMLINK_NOFOLLOW));
	}
}

static const struct load_op ops[] = {
	{ "getattr", 1, true, send_getattr, NULL, host_getattr, sizeof(struct fuse_attr_out) },
	{ "lookup", 1, true, send_lookup, NULL, host_lookup, sizeof(struct fuse_entry_out) },
	{ "read", 1, true, send_read, NULL, host_read, LOAD_BLOCK },
	{ "write", 1, true, send_write, NULL, host_write, sizeof(struct fuse_write_out) },
	{ "create", 4, true, send_create, next_create, host_create, 0 },
	{ "readdirplus", 1, false, send_readdirplus, NULL, host_readdirplus,
	  DIR_FILES * sizeof(struct fuse_direntplus) },
};

const struct load_op *load_find_op(const char *name)
{
	unsigned int i;

	for (i = 0; i < KTAP_COUNT(ops); i++)
		if (!strcmp(ops[i].name, name))
			return &ops[i];
	return NULL;
}

const char *load_op_names(void)
{
	static char names[128];
	unsigned int i, at = 0;

	for (i = 0; i < KTAP_COUNT(ops); i++)
		at += snprintf(names + at, sizeof(names) - at, "%s%s", i ? "|" : "",
			       ops[i].name);
	return names;
}

void load_make_files(struct load *l)
{
	static char data[FILE_SIZE];
	char name[64];
	unsigned int i;

	fs_host_write(&l->f, NAME, data, sizeof(data));
	if (mkdir(fs_path(&l->f, DIR_NAME), 0755))
		EXPECT_EQ(errno, EEXIST);
	for (i = 0; i < DIR_FILES; i++) {
		snprintf(name, sizeof(name), DIR_NAME "/file%u", i);
		fs_host_write(&l->f, name, "", 0);
	}
}

void load_open_host(struct load *l)
{
	l->root = open(l->f.dir, O_RDONLY | O_DIRECTORY);
	l->fd = open(fs_path(&l->f, NAME), O_RDWR);
	l->dir = open(fs_path(&l->f, DIR_NAME), O_RDONLY | O_DIRECTORY);
	EXPECT(l->root >= 0 && l->fd >= 0 && l->dir >= 0);
}

void load_open_ring(struct load *l)
{
	l->node = fs_node(&l->f, NAME);
	EXPECT_EQ(fs_open_node(&l->f, l->node, O_RDWR, &l->fh), 0);
	l->dir_node = fs_node(&l->f, DIR_NAME);
	EXPECT_EQ(fs_open_dir(&l->f, l->dir_node, &l->dir_fh), 0);
	ring_disable_call(&l->f.ring[LOAD_QUEUE]);
}
