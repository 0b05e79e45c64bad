// SPDX-License-Identifier: GPL-2.0
/* A guest some of whose nodes are swapped. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "swapped.h"

const char *swap_kind;

/* tmpfs never drops a name, so each comes back wherever it was moved to. */
bool drops_names(void)
{
	return strcmp(swap_kind, "tmpfs");
}

struct fs *begin_as(const struct vhost_fs_export *export)
{
	static struct fs f;
	char name[16];
	unsigned int i;

	fs_make_dir(&f, swap_kind);
	EXPECT(!mount(NULL, "/tmp/vhost_fs", NULL, MS_PRIVATE, NULL));
	for (i = 0; i < FILLERS; i++) {
		snprintf(name, sizeof(name), "filler%u", i);
		fs_host_write(&f, name, "", 0);
	}
	fs_open(&f, export);
	return &f;
}

struct fs *begin_with(u32 flags, u32 max_dentries)
{
	struct vhost_fs_export export = { .flags = flags, .max_dentries = max_dentries };

	return begin_as(&export);
}

struct fs *begin(void)
{
	return begin_with(0, CAP);
}

void end(struct fs *f)
{
	fs_close(f);
}

/* The host forgets what nothing pins. */
void host_drops(void)
{
	unsigned int i;
	int fd;

	sync();
	for (i = 0; i < 2; i++) {
		fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
		EXPECT(fd >= 0);
		EXPECT_EQ(write(fd, "3", 1), 1);
		close(fd);
	}
}

/* Now no node is live but fillers; they are forgotten again. */
void swap_all(struct fs *f)
{
	struct vhost_fs_info info;
	struct fuse_entry_out e;
	u64 filler[FILLERS];
	char name[16];
	unsigned int i;

	for (i = 0; i < FILLERS; i++) {
		snprintf(name, sizeof(name), "filler%u", i);
		EXPECT_EQ(fs_lookup(f, ROOT, name, &e), 0);
		filler[i] = e.nodeid;
	}
	fs_info(f, &info);
	EXPECT(info.dentries <= CAP);
	for (i = 0; i < FILLERS; i++)
		fs_forget(f, filler[i], 1);
	fs_info(f, &info);
	EXPECT_EQ(info.dentries, 0);
}

u64 came_back(struct fs *f)
{
	struct vhost_fs_info info;

	fs_info(f, &info);
	return info.swapped_in;
}

u64 searches(struct fs *f)
{
	struct vhost_fs_info info;

	fs_info(f, &info);
	return info.searches;
}

/* 0, and it is @text, or the error. */
int reads(struct fs *f, u64 node, const char *text)
{
	char buf[64] = "";
	u64 fh;
	int r = fs_open_node(f, node, O_RDONLY, &fh);

	if (r)
		return r;
	EXPECT_EQ(fs_read(f, node, fh, 0, sizeof(buf), buf), (int)strlen(text));
	EXPECT(!strcmp(buf, text));
	EXPECT_EQ(fs_release(f, node, fh), 0);
	return 0;
}

void host_file(struct fs *f, const char *name)
{
	fs_host_write(f, name, name, strlen(name));
}

void host_move(struct fs *f, const char *from, const char *to)
{
	EXPECT(!rename(fs_path(f, from), fs_path(f, to)));
}

u64 known_child(struct fs *f, u64 dir, const char *name)
{
	struct fuse_entry_out e;

	EXPECT_EQ(fs_lookup(f, dir, name, &e), 0);
	return e.nodeid;
}
