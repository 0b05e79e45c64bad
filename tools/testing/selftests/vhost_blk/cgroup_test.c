// SPDX-License-Identifier: GPL-2.0
/*
 * What a device does is its owner's: I/O and memory of its workers count in
 * the owner's cgroup, and its limits hold for the device.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <linux/vhost.h>

#include "cgroup.h"
#include "rig.h"
#include "trace.h"

#define DEVICES		32
#define MEMORY		"48M"

static void an_open_device_takes_little_memory(void)
{
	unsigned int i;
	int fd;

	backend_need_modules();
	cgroup_enter();
	EXPECT_EQ(cgroup_set("memory.max", MEMORY), 0);
	cgroup_set("memory.swap.max", "0");
	for (i = 0; i < DEVICES; i++) {
		fd = open("/dev/vhost-blk", O_RDWR | O_CLOEXEC);
		EXPECT(fd >= 0);
		EXPECT_EQ(ioctl(fd, VHOST_SET_OWNER, NULL), 0);
	}
	ktap_msg("%llu bytes for %u devices and this process",
		 (unsigned long long)cgroup_memory(), DEVICES);
}

#define RANGE	4096	/* sectors */

static void range_ok(struct rig *g, u32 type)
{
	struct virtio_blk_discard_write_zeroes *d = (void *)g->data;

	*d = (struct virtio_blk_discard_write_zeroes){ 0, RANGE, 0 };
	EXPECT_EQ(rig_io(g, 0, type, 0, d, sizeof(*d)), VIRTIO_BLK_S_OK);
}

/* None of them is done by the poller. */
static void discards_and_zeroes_are_the_owners(void)
{
	const char *disk;
	struct rig g;
	u64 before;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "cg", .discard = true });
	cgroup_enter();
	rig_open(&g, disk, NULL);
	/* the disk cannot zero, so these are writes */
	before = cgroup_io(disk, "wbytes");
	range_ok(&g, VIRTIO_BLK_T_WRITE_ZEROES);
	EXPECT_EQ(cgroup_io(disk, "wbytes") - before, RANGE * 512);
	/* after: io.stat has no line for a disk with nothing but discards */
	before = cgroup_io(disk, "dbytes");
	range_ok(&g, VIRTIO_BLK_T_DISCARD);
	EXPECT_EQ(cgroup_io(disk, "dbytes") - before, RANGE * 512);
	rig_close(&g);
}

#define FILE_MB	4

static void memory_of_workers_is_the_owners(void)
{
	const char *file;
	struct rig g;
	u64 before;

	backend_need_modules();
	file = file_create(FILE_MB);
	cgroup_enter();
	rig_open(&g, file, NULL);
	/* the guest's own memory, before what its writes need in the file */
	rig_pattern(g.data, FILE_MB << 20, 1);
	before = cgroup_memory();
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, 0, g.data, FILE_MB << 20),
		  VIRTIO_BLK_S_OK);
	/* less what each CPU has in stock */
	EXPECT(cgroup_memory() - before >= (FILE_MB - 1) << 20);
	rig_close(&g);
}

/* A read of @len bytes by each of the 256 slots, at once. */
static void read_by_all_slots(struct rig *g, u32 len)
{
	struct ring_seg seg[3];
	struct rig_req *req;
	unsigned int i;

	for (i = 0; i < 256; i++) {
		req = rig_req_new(g, VIRTIO_BLK_T_IN, 0);
		seg[0] = ring_seg(&g->mem, req->hdr, sizeof(*req->hdr), false);
		seg[1] = ring_seg(&g->mem, g->data, len, true);
		seg[2] = ring_seg(&g->mem, req->status, 1, true);
		rig_queue_segs(g, 0, req, seg, 3, true);
	}
	rig_kick(g, 0);
	rig_wait(g, 0);
	EXPECT_EQ(*req->status, VIRTIO_BLK_S_OK);
}

/*
 * The driver chooses the slots.  Each of them has had a large request here, and together they
 * would keep 4 MiB for the vectors of these.
 */
static void slots_keep_little_of_large_requests(void)
{
	const char *disk;
	struct rig g;
	u64 before, after;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "cg" });
	cgroup_enter();
	rig_open(&g, disk, NULL);
	rig_pattern(g.data, RIG_DATA, 1);
	/* The guest's own memory, for headers and tables. */
	read_by_all_slots(&g, 4096);
	before = cgroup_memory();
	read_by_all_slots(&g, RIG_DATA);
	after = cgroup_memory();
	ktap_msg("%lld bytes more", (long long)(after - before));
	EXPECT(after < before + (2 << 20));
	rig_close(&g);
}

static void see_alloc(const char *line, void *arg)
{
	if (strstr(line, "[vhost_blk]"))
		++*(unsigned int *)arg;
}

/* Large ones take all that may be kept, and small ones keep their vectors all the same. */
static void slots_keep_what_small_requests_need(void)
{
	unsigned int allocs = 0, i;
	const char *disk;
	struct rig g;

	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "kept" });
	rig_open(&g, disk, NULL);
	rig_pattern(g.data, RIG_DATA, 1);
	read_by_all_slots(&g, RIG_DATA);
	/* Slots with large vectors lose them until there is room for all small ones. */
	for (i = 0; i < 8; i++)
		read_by_all_slots(&g, 65536);
	trace_begin("kmem/kmalloc");
	/* A vector of 16 elements. */
	trace_filter("kmem/kmalloc", "bytes_req == 256");
	read_by_all_slots(&g, 65536);
	trace_end(see_alloc, &allocs);
	EXPECT_EQ(allocs, 0);
	rig_close(&g);
}

/*
 * A limit that is never reached.  Not where kmemleak and debugobjects watch: 6.12
 * leaks what it allocates for io.max when the disk goes (blk_throtl_exit() finds
 * the policy deactivated), and frees that of io.latency with its work queued.
 */
static void set_limit(const char *disk)
{
	char text[64];

	snprintf(text, sizeof(text), "%s wbps=100000000000",
		 cgroup_disk(disk));
	if (cgroup_set("io.max", text))
		ktap_skip("this kernel has no limits for disks");
}

static void need_sound_limits(void)
{
	if (!access("/sys/kernel/debug/kmemleak", F_OK))
		ktap_skip("6.12 leaks the limits of a disk that goes");
}

static u32 engine_of(struct rig *g)
{
	struct vhost_blk_info info;

	rig_info(g, &info);
	return info.engine;
}

static void limits_want_the_bio_engine(void)
{
	struct vhost_blk_stats st;
	const char *disk;
	struct rig g;

	need_sound_limits();
	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "cg" });
	cgroup_enter();
	rig_open(&g, disk, NULL);
	EXPECT_EQ(engine_of(&g), VHOST_BLK_ENGINE_MQ);
	rig_close(&g);
	set_limit(disk);
	rig_open(&g, disk, NULL);
	EXPECT_EQ(engine_of(&g), VHOST_BLK_ENGINE_BIO);
	rig_check_works(&g, 0, 0);
	/* Some policies have bios wait: by workers, all of them. */
	rig_stats(&g, 0, &st);
	EXPECT_EQ(st.punted, st.reads + st.writes + st.flushes);
	rig_close(&g);
	EXPECT_EQ(rig_try(&g, disk, &(struct rig_opts){
			.engine = VHOST_BLK_ENGINE_MQ }), -EOPNOTSUPP);
}

/* It does its I/O for the cgroup of a bio, and those of mq have none. */
static void a_loop_device_is_the_owners(void)
{
	const char *disk;
	struct rig g;

	backend_need_modules();
	disk = loop_create(16);
	rig_open(&g, disk, NULL);
	EXPECT_EQ(engine_of(&g), VHOST_BLK_ENGINE_MQ);
	rig_close(&g);
	cgroup_enter();
	rig_open(&g, disk, NULL);
	EXPECT_EQ(engine_of(&g), VHOST_BLK_ENGINE_BIO);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void limits_that_come_later_are_respected(void)
{
	const char *disk;
	struct rig g;
	u64 before;

	need_sound_limits();
	backend_need_modules();
	disk = nullb_create(&(struct nullb){ .name = "cg" });
	cgroup_enter();
	rig_open(&g, disk, NULL);
	EXPECT_EQ(engine_of(&g), VHOST_BLK_ENGINE_MQ);
	set_limit(disk);
	before = cgroup_io(disk, "wbytes");
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, 0, g.data, 65536),
		  VIRTIO_BLK_S_OK);
	EXPECT_EQ(cgroup_io(disk, "wbytes") - before, 65536);
	rig_close(&g);
}

static void cleanup(void)
{
	trace_cleanup();
	backend_cleanup();
	cgroup_cleanup();
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(an_open_device_takes_little_memory),
		TEST(discards_and_zeroes_are_the_owners),
		TEST(memory_of_workers_is_the_owners),
		TEST(slots_keep_little_of_large_requests),
		TEST(slots_keep_what_small_requests_need),
		TEST(a_loop_device_is_the_owners),
		TEST(limits_want_the_bio_engine),
		TEST(limits_that_come_later_are_respected),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), cleanup);
}
