// SPDX-License-Identifier: GPL-2.0
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "hot.h"
#include "module.h"

#define LIMIT	"/sys/module/vhost_poll/parameters/max_run_us"

struct vhost_serve_stats ring_stats(struct fs *f, u32 index)
{
	struct vhost_serve_stats s = { .size = sizeof(s), .index = index };

	EXPECT(!ioctl(f->fd, VHOST_SERVE_GET_STATS, &s));
	return s;
}

struct vhost_poll_stats poller_stats(struct fs *f)
{
	struct vhost_poll_stats s = { .size = sizeof(s) };

	EXPECT(!ioctl(f->poller, VHOST_POLL_GET_STATS, &s));
	return s;
}

void hot_set_limit(unsigned int us)
{
	FILE *file = fopen(LIMIT, "w");

	EXPECT(file);
	EXPECT(fprintf(file, "%u", us) > 0);
	EXPECT(!fclose(file));
}

void make_and_remove(struct fs *f, unsigned int i)
{
	struct fuse_entry_out e;
	char name[32];
	u64 fh;

	snprintf(name, sizeof(name), "file%u", i);
	EXPECT_EQ(fs_create(f, FUSE_ROOT_ID, name, O_RDWR, 0644, &e, &fh), 0);
	EXPECT_EQ(fs_write(f, e.nodeid, fh, 0, "data", 4), 4);
	EXPECT_EQ(fs_release(f, e.nodeid, fh), 0);
	EXPECT_EQ(fs_rename(f, FUSE_ROOT_ID, name, FUSE_ROOT_ID, "moved", 0), 0);
	EXPECT_EQ(fs_remove(f, FUSE_UNLINK, FUSE_ROOT_ID, "moved"), 0);
	EXPECT_EQ(fs_mkdir(f, FUSE_ROOT_ID, name, 0755, &e), 0);
	EXPECT_EQ(fs_remove(f, FUSE_RMDIR, FUSE_ROOT_ID, name), 0);
}

static bool there_is_a_spare(struct fs *f)
{
	struct vhost_serve_stats before = ring_stats(f, 1);

	make_and_remove(f, 0);
	return ring_stats(f, 1).punted == before.punted;
}

/* Workers get the requests until there is a thread to take over. */
void until_there_is_a_spare(struct fs *f)
{
	EVENTUALLY(there_is_a_spare(f));
}

void hot_begin(struct fs *f, const char *kind)
{
	fs_make_dir(f, kind);
	fs_open(f, NULL);
	/* An emulator may take longer than any limit for a real machine. */
	hot_set_limit(0);
	until_there_is_a_spare(f);
}

void hot_cleanup(void)
{
	fs_cleanup();
	if (module_loaded("vhost_poll"))
		hot_set_limit(USUAL_LIMIT);
}
