// SPDX-License-Identifier: GPL-2.0
/* See fsrig.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/vhost.h>
#include <linux/vhost_serve.h>
#include <linux/virtio_config.h>

#include "fsrig.h"
#include "module.h"

#define BASE		"/tmp/vhost_fs"
#define RING_SIZE	512
#define FEATURE(bit)	(1ULL << (bit))

static int do_ioctl(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) < 0 ? -errno : 0;
}

static void need_modules(void)
{
	static const char *const names[] = {
		"vhost_iotlb", "vhost", "vhost_poll", "vhost_serve", "vhost_fs",
	};
	unsigned int i;

	for (i = 0; i < KTAP_COUNT(names); i++)
		if (!module_loaded(names[i]))
			load_module(names[i]);
	if (!module_loaded("vhost_fs"))
		ktap_skip("there is no module vhost_fs");
}

void fs_cleanup(void)
{
	int gone;

	do {
		gone = umount2(BASE, MNT_DETACH);
	} while (!gone);
	if (system("rm -rf " BASE " " BASE ".img"))
		ktap_msg("%s is left behind", BASE);
}

static void mount_disk(const char *kind)
{
	char command[512];

	snprintf(command, sizeof(command), "mkfs.%s -q " BASE ".img", kind);
	if (system("modprobe -q loop"))
		ktap_msg("modprobe loop failed");
	if (system("truncate -s 320M " BASE ".img") || system(command) ||
	    system("mount -o loop " BASE ".img " BASE))
		ktap_skip("that file system cannot be made here");
}

void fs_make_dir(struct fs *f, const char *kind)
{
	need_modules();
	fs_cleanup();
	memset(f, 0, sizeof(*f));
	f->kind = kind;
	EXPECT(!mkdir(BASE, 0755));
	if (!strcmp(kind, "tmpfs"))
		EXPECT(!mount("t", BASE, "tmpfs", 0, "mode=755"));
	else
		mount_disk(kind);
	snprintf(f->dir, sizeof(f->dir), BASE "/export");
	EXPECT(!mkdir(f->dir, 0755));
	umask(0);
	fs_host_write(f, "../secret", "secret", 6);
}

void fs_use_dir(struct fs *f, const char *dir)
{
	memset(f, 0, sizeof(*f));
	EXPECT(snprintf(f->dir, sizeof(f->dir), "%s", dir) < sizeof(f->dir));
	umask(0);
}

static int open_poller(void)
{
	struct vhost_poll_create c = {
		.size = sizeof(c), .mode = VHOST_POLL_MODE_BUSY,
		.cpu = sysconf(_SC_NPROCESSORS_ONLN) - 1, .name = "fs",
	};
	int fd = open("/dev/vhost-poll", O_RDWR | O_CLOEXEC);

	EXPECT(fd >= 0);
	EXPECT_EQ(do_ioctl(fd, VHOST_POLL_CREATE, &c), 0);
	return fd;
}

static void set_memory(struct fs *f)
{
	struct {
		struct vhost_memory m;
		struct vhost_memory_region r;
	} table = {
		.m.nregions = 1,
		.r.guest_phys_addr = f->mem.gpa,
		.r.memory_size = f->mem.size,
		.r.userspace_addr = (u64)(uintptr_t)f->mem.base,
	};

	EXPECT_EQ(do_ioctl(f->fd, VHOST_SET_MEM_TABLE, &table), 0);
}

static void start_ring(struct fs *f, struct ring *r, u16 base)
{
	struct vhost_vring_state state = { .index = r->index, .num = r->num };
	struct vhost_vring_file file = { .index = r->index };
	struct vhost_vring_addr addr = {
		.index = r->index,
		.desc_user_addr = (u64)(uintptr_t)r->vr.desc,
		.avail_user_addr = (u64)(uintptr_t)r->vr.avail,
		.used_user_addr = (u64)(uintptr_t)r->vr.used,
	};
	struct vhost_serve_vring v = {
		.size = sizeof(v), .index = r->index, .poller_fd = f->poller,
		.target = VHOST_SERVE_TARGET_AUTO,
	};

	EXPECT_EQ(do_ioctl(f->fd, VHOST_SET_VRING_NUM, &state), 0);
	state.num = base;
	EXPECT_EQ(do_ioctl(f->fd, VHOST_SET_VRING_BASE, &state), 0);
	EXPECT_EQ(do_ioctl(f->fd, VHOST_SET_VRING_ADDR, &addr), 0);
	file.fd = r->kick;
	EXPECT_EQ(do_ioctl(f->fd, VHOST_SET_VRING_KICK, &file), 0);
	file.fd = r->call;
	EXPECT_EQ(do_ioctl(f->fd, VHOST_SET_VRING_CALL, &file), 0);
	EXPECT_EQ(do_ioctl(f->fd, VHOST_SERVE_SET_VRING, &v), 0);
	EXPECT(ioctl(f->fd, VHOST_SERVE_START, (long)r->index) == 0);
}

static void open_slots(struct fs *f)
{
	unsigned int i;

	for (i = 0; i < FS_SLOTS; i++) {
		f->slot[i].in = ring_mem_alloc(&f->mem, 128 << 10, 4096);
		f->slot[i].data = ring_mem_alloc(&f->mem, FS_ROOM, 4096);
		f->slot[i].out = ring_mem_alloc(&f->mem, FS_ROOM + 8192, 4096);
		EXPECT(f->slot[i].in && f->slot[i].data && f->slot[i].out);
		/* The data of a reply begin on a page, as in a guest. */
		f->slot[i].out += 4096 - sizeof(struct fuse_out_header);
	}
}

int fs_try(struct fs *f, const struct vhost_fs_export *export)
{
	int dir, r;

	if (export)
		f->export = *export;
	f->export.size = sizeof(f->export);
	dir = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	EXPECT(dir >= 0);
	f->export.fd = dir;
	f->fd = open("/dev/vhost-fs", O_RDWR | O_CLOEXEC);
	EXPECT(f->fd >= 0);
	EXPECT_EQ(do_ioctl(f->fd, VHOST_SET_OWNER, NULL), 0);
	r = do_ioctl(f->fd, VHOST_FS_SET_EXPORT, &f->export);
	close(dir);
	if (r)
		close(f->fd);
	return r;
}

/* What an owner sets before it starts the vrings. */
static void set_up_device(struct fs *f)
{
	u64 features = FEATURE(VIRTIO_F_VERSION_1) |
		       FEATURE(VIRTIO_RING_F_EVENT_IDX);

	EXPECT_EQ(do_ioctl(f->fd, VHOST_SET_FEATURES, &features), 0);
	set_memory(f);
	f->poller = f->beside ? fcntl(f->beside->poller, F_DUPFD_CLOEXEC, 0) : open_poller();
	EXPECT(f->poller >= 0);
}

void fs_make_memory(struct fs *f)
{
	unsigned int i;

	EXPECT(!ring_mem_init(&f->mem, 24 << 20));
	for (i = 0; i < FS_QUEUES; i++) {
		EXPECT(!ring_init(&f->ring[i], &f->mem, i, RING_SIZE, 0));
		f->ring[i].event_idx = true;
	}
	open_slots(f);
}

void fs_open_cold(struct fs *f, const struct vhost_fs_export *export)
{
	unsigned int i;

	EXPECT_EQ(fs_try(f, export), 0);
	fs_make_memory(f);
	set_up_device(f);
	for (i = 0; i < FS_QUEUES; i++)
		start_ring(f, &f->ring[i], 0);
}

void fs_hand_over(struct fs *f, u16 base[FS_QUEUES])
{
	struct vhost_vring_state state = {};
	unsigned int i;

	for (i = 0; i < FS_QUEUES; i++) {
		state.index = i;
		EXPECT_EQ(do_ioctl(f->fd, VHOST_GET_VRING_BASE, &state), 0);
		base[i] = state.num;
	}
	EXPECT_EQ(do_ioctl(f->fd, VHOST_SERVE_HAND_OVER, NULL), 0);
	close(f->poller);
}

void fs_take_over(struct fs *f, const u16 base[FS_QUEUES])
{
	unsigned int i;

	EXPECT_EQ(do_ioctl(f->fd, VHOST_SET_OWNER, NULL), 0);
	set_up_device(f);
	for (i = 0; i < FS_QUEUES; i++)
		start_ring(f, &f->ring[i], base[i]);
}

void fs_open(struct fs *f, const struct vhost_fs_export *export)
{
	fs_open_cold(f, export);
	EXPECT_EQ(fs_init(f, ~0ULL, NULL), 0);
}

void fs_close(struct fs *f)
{
	unsigned int i;

	close(f->fd);
	close(f->poller);
	for (i = 0; i < FS_QUEUES; i++)
		ring_free(&f->ring[i]);
	ring_mem_free(&f->mem);
}

void fs_info(struct fs *f, struct vhost_fs_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	EXPECT_EQ(do_ioctl(f->fd, VHOST_FS_GET_INFO, info), 0);
}

void fs_add(struct fs *f, unsigned int slot, const struct fs_raw *raw)
{
	struct fs_slot *s = &f->slot[slot];
	struct ring_seg seg[5];
	unsigned int n = 0;
	u32 head = raw->in_len < 40 ? raw->in_len : 40;

	memcpy(s->in, raw->in, raw->in_len);
	memset(s->out, 0xa5, 64);
	s->done = false;
	/* In pieces, as virtiofs has it. */
	if (head)
		seg[n++] = ring_seg(&f->mem, s->in, head, false);
	if (raw->in_len > head)
		seg[n++] = ring_seg(&f->mem, s->in + head, raw->in_len - head,
				    false);
	if (raw->data_len) {
		if (raw->data)
			memcpy(s->data, raw->data, raw->data_len);
		seg[n++] = ring_seg(&f->mem, s->data, raw->data_len, false);
	}
	head = raw->out_room < 16 ? raw->out_room : 16;
	if (head)
		seg[n++] = ring_seg(&f->mem, s->out, head, true);
	if (raw->out_room > head)
		seg[n++] = ring_seg(&f->mem, s->out + head,
				    raw->out_room - head, true);
	EXPECT(ring_add(&f->ring[raw->queue], seg, n, s) >= 0);
}

void fs_publish(struct fs *f, unsigned int queue)
{
	ring_publish(&f->ring[queue]);
	ring_kick(&f->ring[queue]);
}

void fs_send(struct fs *f, unsigned int slot, const struct fs_raw *raw)
{
	fs_add(f, slot, raw);
	fs_publish(f, raw->queue);
}

bool fs_poll(struct fs *f, unsigned int slot, unsigned int queue)
{
	struct fs_slot *s;
	u32 len;

	while ((s = ring_pop(&f->ring[queue], &len))) {
		s->used = len;
		s->done = true;
	}
	return f->slot[slot].done;
}

u32 fs_wait(struct fs *f, unsigned int slot, unsigned int queue)
{
	while (!fs_poll(f, slot, queue))
		EXPECT_EQ(ring_wait(&f->ring[queue], FS_WAIT_MS), 0);
	return f->slot[slot].used;
}

u32 fs_play(struct fs *f, const struct fs_raw *raw)
{
	fs_send(f, 0, raw);
	return fs_wait(f, 0, raw->queue);
}

int fs_answer(struct fs *f, unsigned int slot)
{
	struct fuse_out_header *oh = (void *)f->slot[slot].out;

	EXPECT(f->slot[slot].used >= sizeof(*oh));
	EXPECT_EQ(oh->len, f->slot[slot].used);
	f->reply = f->slot[slot].out + sizeof(*oh);
	f->reply_len = oh->len - sizeof(*oh);
	return oh->error;
}

void fs_header(struct fs *f, struct fuse_in_header *ih, u32 opcode, u64 node,
	       u32 len)
{
	*ih = (struct fuse_in_header){
		.len = sizeof(*ih) + len, .opcode = opcode, .nodeid = node,
		.unique = f->unique += 2, .uid = f->uid, .gid = f->gid,
		.pid = 4711,
	};
}

int fs_call_data(struct fs *f, u32 opcode, u64 node, const void *arg, u32 len,
		 const void *data, u32 data_len, u32 room)
{
	static u8 in[140 << 10];
	struct fs_raw raw = {
		.in = in, .in_len = sizeof(struct fuse_in_header) + len,
		.data = data, .data_len = data_len,
		.out_room = sizeof(struct fuse_out_header) + room, .queue = 1,
	};
	struct fuse_out_header *oh = (void *)f->slot[0].out;

	fs_header(f, (void *)in, opcode, node, len + data_len);
	memcpy(in + sizeof(struct fuse_in_header), arg, len);
	fs_play(f, &raw);
	EXPECT_EQ(oh->unique, f->unique);
	return fs_answer(f, 0);
}

int fs_call(struct fs *f, u32 opcode, u64 node, const void *arg, u32 len,
	    u32 room)
{
	return fs_call_data(f, opcode, node, arg, len, NULL, 0, room);
}

static u32 put_string(char *to, const char *string)
{
	u32 len = strlen(string) + 1;

	memcpy(to, string, len);
	return len;
}

int fs_call_name(struct fs *f, u32 opcode, u64 node, const void *arg, u32 len,
		 const char *name, const char *name2, u32 room)
{
	static char buf[16384];
	u32 n = len;

	if (len)
		memcpy(buf, arg, len);
	n += put_string(buf + n, name);
	if (name2)
		n += put_string(buf + n, name2);
	return fs_call(f, opcode, node, buf, n, room);
}

int fs_init(struct fs *f, u64 flags, struct fuse_init_out *out)
{
	struct fuse_init_in in = {
		.major = 7, .minor = 41, .max_readahead = 1 << 20,
		.flags = flags, .flags2 = flags >> 32,
	};
	int r = fs_call(f, FUSE_INIT, 0, &in, sizeof(in), 64);

	if (!r && out)
		memcpy(out, f->reply, sizeof(*out));
	return r;
}

int fs_lookup(struct fs *f, u64 dir, const char *name, struct fuse_entry_out *e)
{
	int r = fs_call_name(f, FUSE_LOOKUP, dir, NULL, 0, name, NULL,
			     sizeof(struct fuse_entry_out));

	if (!r && e)
		memcpy(e, f->reply, sizeof(*e));
	return r;
}

u64 fs_node(struct fs *f, const char *path)
{
	struct fuse_entry_out e = { .nodeid = FUSE_ROOT_ID };
	char copy[512], *name, *save = NULL;

	snprintf(copy, sizeof(copy), "%s", path);
	for (name = strtok_r(copy, "/", &save); name;
	     name = strtok_r(NULL, "/", &save))
		EXPECT_EQ(fs_lookup(f, e.nodeid, name, &e), 0);
	return e.nodeid;
}

void fs_forget(struct fs *f, u64 node, u64 count)
{
	struct {
		struct fuse_in_header ih;
		struct fuse_forget_in arg;
	} in = { .arg.nlookup = count };
	struct fs_raw raw = { .in = &in, .in_len = sizeof(in) };

	fs_header(f, &in.ih, FUSE_FORGET, node, sizeof(in.arg));
	EXPECT_EQ(fs_play(f, &raw), 0);
}

int fs_getattr(struct fs *f, u64 node, struct fuse_attr *attr)
{
	struct fuse_getattr_in in = {};
	int r = fs_call(f, FUSE_GETATTR, node, &in, sizeof(in),
			sizeof(struct fuse_attr_out));

	if (!r && attr)
		*attr = ((struct fuse_attr_out *)f->reply)->attr;
	return r;
}

static int do_open(struct fs *f, u32 opcode, u64 node, u32 flags, u64 *fh)
{
	struct fuse_open_in in = { .flags = flags };
	int r = fs_call(f, opcode, node, &in, sizeof(in),
			sizeof(struct fuse_open_out));

	if (!r && fh)
		*fh = ((struct fuse_open_out *)f->reply)->fh;
	return r;
}

int fs_open_node(struct fs *f, u64 node, u32 flags, u64 *fh)
{
	return do_open(f, FUSE_OPEN, node, flags, fh);
}

int fs_open_dir(struct fs *f, u64 node, u64 *fh)
{
	return do_open(f, FUSE_OPENDIR, node, 0, fh);
}

int fs_create(struct fs *f, u64 dir, const char *name, u32 flags, u32 mode,
	      struct fuse_entry_out *e, u64 *fh)
{
	struct fuse_create_in in = { .flags = flags, .mode = mode };
	int r = fs_call_name(f, FUSE_CREATE, dir, &in, sizeof(in), name, NULL,
			     sizeof(*e) + sizeof(struct fuse_open_out));

	if (r)
		return r;
	if (e)
		memcpy(e, f->reply, sizeof(*e));
	if (fh)
		*fh = ((struct fuse_open_out *)(f->reply + sizeof(*e)))->fh;
	return 0;
}

int fs_release(struct fs *f, u64 node, u64 fh)
{
	struct fuse_release_in in = { .fh = fh };

	return fs_call(f, FUSE_RELEASE, node, &in, sizeof(in), 0);
}

int fs_read(struct fs *f, u64 node, u64 fh, u64 at, u32 len, void *buf)
{
	struct fuse_read_in in = { .fh = fh, .offset = at, .size = len };
	int r = fs_call(f, FUSE_READ, node, &in, sizeof(in), len);

	if (r)
		return r;
	if (buf)
		memcpy(buf, f->reply, f->reply_len);
	return f->reply_len;
}

int fs_write_flags(struct fs *f, u64 node, u64 fh, u64 at, const void *buf,
		   u32 len, u32 flags, u32 write_flags)
{
	struct fuse_write_in in = {
		.fh = fh, .offset = at, .size = len, .flags = flags,
		.write_flags = write_flags,
	};
	int r = fs_call_data(f, FUSE_WRITE, node, &in, sizeof(in), buf, len,
			     sizeof(struct fuse_write_out));

	return r ? r : (int)((struct fuse_write_out *)f->reply)->size;
}

int fs_write(struct fs *f, u64 node, u64 fh, u64 at, const void *buf, u32 len)
{
	return fs_write_flags(f, node, fh, at, buf, len, 0, 0);
}

int fs_mkdir(struct fs *f, u64 dir, const char *name, u32 mode,
	     struct fuse_entry_out *e)
{
	struct fuse_mkdir_in in = { .mode = mode };
	int r = fs_call_name(f, FUSE_MKDIR, dir, &in, sizeof(in), name, NULL,
			     sizeof(struct fuse_entry_out));

	if (!r && e)
		memcpy(e, f->reply, sizeof(*e));
	return r;
}

int fs_rename(struct fs *f, u64 dir, const char *name, u64 to, const char *new,
	      u32 flags)
{
	struct fuse_rename2_in in = { .newdir = to, .flags = flags };

	return fs_call_name(f, FUSE_RENAME2, dir, &in, sizeof(in), name, new, 0);
}

int fs_remove(struct fs *f, u32 opcode, u64 dir, const char *name)
{
	return fs_call_name(f, opcode, dir, NULL, 0, name, NULL, 0);
}

int fs_setattr(struct fs *f, u64 node, const struct fuse_setattr_in *arg)
{
	return fs_call(f, FUSE_SETATTR, node, arg, sizeof(*arg),
		       sizeof(struct fuse_attr_out));
}

int fs_setxattr(struct fs *f, u64 node, const char *name, const void *value,
		u32 len)
{
	static u8 buf[80 << 10];
	struct fuse_setxattr_in in = { .size = len };
	u32 n = sizeof(in);

	memcpy(buf, &in, n);
	n += put_string((char *)buf + n, name);
	memcpy(buf + n, value, len);
	return fs_call(f, FUSE_SETXATTR, node, buf, n + len, 0);
}

int fs_getxattr(struct fs *f, u64 node, const char *name, void *value, u32 len)
{
	struct fuse_getxattr_in in = { .size = len };
	u32 room = len ? len : sizeof(struct fuse_getxattr_out);
	int r = fs_call_name(f, FUSE_GETXATTR, node, &in, sizeof(in), name,
			     NULL, room);

	if (r)
		return r;
	if (!len)
		return ((struct fuse_getxattr_out *)f->reply)->size;
	memcpy(value, f->reply, f->reply_len);
	return f->reply_len;
}

const char *fs_path(struct fs *f, const char *name)
{
	static char path[4][600];
	static unsigned int i;

	i = (i + 1) % 4;
	snprintf(path[i], sizeof(path[i]), "%s/%s", f->dir, name);
	return path[i];
}

void fs_host_write(struct fs *f, const char *name, const void *buf, size_t len)
{
	int fd = open(fs_path(f, name), O_CREAT | O_TRUNC | O_RDWR, 0644);

	EXPECT(fd >= 0);
	EXPECT_EQ(write(fd, buf, len), len);
	close(fd);
}

bool fs_host_is(struct fs *f, const char *name, const void *buf, size_t len)
{
	int fd = open(fs_path(f, name), O_RDONLY);
	char *have = malloc(len + 1);
	ssize_t n;
	bool same;

	if (fd < 0)
		return false;
	n = read(fd, have, len + 1);
	same = n == (ssize_t)len && !memcmp(have, buf, len);
	close(fd);
	free(have);
	return same;
}

bool fs_host_there(struct fs *f, const char *name)
{
	struct stat st;

	return !lstat(fs_path(f, name), &st);
}
