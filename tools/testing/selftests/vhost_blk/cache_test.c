// SPDX-License-Identifier: GPL-2.0
/*
 * The backend: what a guest was told is on the medium is, and there may be another
 * backend while no vring runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rig.h"

static unsigned long flushes_of(const char *disk)
{
	unsigned long v[17] = { 0 };
	char path[128];
	unsigned int i;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/block/%s/stat", disk + 5);
	f = fopen(path, "r");
	EXPECT(f);
	for (i = 0; i < 17; i++)
		if (fscanf(f, "%lu", &v[i]) != 1)
			break;
	fclose(f);
	return v[15];
}

static const char *cached_disk(const char *name)
{
	backend_need_modules();
	return nullb_create(&(struct nullb){ .name = name, .cache_mb = 4 });
}

static void flush_reaches_the_backend(void)
{
	const char *disk = cached_disk("wc");
	unsigned long before;
	struct rig g;

	rig_open(&g, disk, NULL);
	EXPECT(g.dev.offered & FEATURE(VIRTIO_BLK_F_FLUSH));
	rig_check_works(&g, 0, 0);
	before = flushes_of(disk);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_FLUSH, 0, NULL, 0),
		  VIRTIO_BLK_S_OK);
	EXPECT(flushes_of(disk) > before);
	rig_close(&g);
}

static bool writes_are_made_durable(struct rig *g, const char *disk, u32 mode)
{
	struct vhost_blk_cache c = { .size = sizeof(c), .writeback = mode };
	unsigned long before = flushes_of(disk);

	EXPECT(!ioctl(g->dev.fd, VHOST_BLK_SET_CACHE, &c));
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_OUT, 0, g->data, 4096),
		  VIRTIO_BLK_S_OK);
	return flushes_of(disk) > before;
}

static void writethrough_makes_each_write_durable(void)
{
	const char *disk = cached_disk("wc");
	struct rig g;

	/* without FUA a durable write is a write and a flush, counted */
	nullb_set("wc", "power", "0");
	nullb_set("wc", "fua", "0");
	EXPECT_EQ(nullb_set("wc", "power", "1"), 0);
	rig_open(&g, disk, NULL);
	EXPECT(!writes_are_made_durable(&g, disk, 1));
	EXPECT(writes_are_made_durable(&g, disk, 0));
	EXPECT(!writes_are_made_durable(&g, disk, 1));
	rig_close(&g);
}

static void write_and_flush(struct rig *g)
{
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_OUT, 0, g->data, 4096), VIRTIO_BLK_S_OK);
	EXPECT_EQ(rig_io(g, 0, VIRTIO_BLK_T_FLUSH, 0, NULL, 0), VIRTIO_BLK_S_OK);
}

/* The owner flushes the backend that was there before. */
static void a_flush_goes_to_the_backend_there_is(void)
{
	const char *one = cached_disk("one"), *two = cached_disk("two");
	int old = open(one, O_RDWR | O_CLOEXEC), new = open(two, O_RDWR | O_CLOEXEC);
	unsigned long of_one, of_two;
	struct rig g;
	u16 base;

	EXPECT(old >= 0 && new >= 0);
	rig_open(&g, one, NULL);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, 0, g.data, 4096), VIRTIO_BLK_S_OK);
	EXPECT_EQ(vdev_stop(&g.dev, &g.ring[0], &base), 0);
	of_one = flushes_of(one);
	of_two = flushes_of(two);
	EXPECT_EQ(vblk_set_backend(g.dev.fd, new, 0, 0), 0);
	EXPECT_EQ(flushes_of(one), of_one);
	EXPECT(!fsync(old));
	EXPECT(flushes_of(one) > of_one);
	of_one = flushes_of(one);

	EXPECT_EQ(vblk_start(g.dev.fd, 0), 0);
	write_and_flush(&g);
	EXPECT(flushes_of(two) > of_two);
	EXPECT_EQ(flushes_of(one), of_one);
	rig_close(&g);
	close(old);
	close(new);
}

#define SLOTS	64

static void offer_writes(struct rig *g, u64 seed)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++) {
		rig_pattern(g->data + i * 4096, 4096, seed + i);
		/* holes between them, so that they stay apart */
		rig_queue(g, 0, VIRTIO_BLK_T_OUT, i * 16, g->data + i * 4096, 4096);
	}
	rig_kick(g, 0);
}

static void expect_writes(const char *disk, u64 seed)
{
	u8 seen[4096];
	unsigned int i;

	for (i = 0; i < SLOTS; i++) {
		backend_read(disk, i * 16 * 512, seen, sizeof(seen));
		EXPECT(rig_pattern_ok(seen, sizeof(seen), seed + i));
	}
}

static const char *slow_disk(const char *name)
{
	backend_need_modules();
	return nullb_create(&(struct nullb){
		.name = name, .irqmode = 2, .completion_nsec = 200000,
	});
}

static int set_backend(struct rig *g, int fd)
{
	return vblk_set_backend(g->dev.fd, fd, 0, 0);
}

static void another_backend_is_refused_under_io(void)
{
	const char *one = slow_disk("one"), *two = slow_disk("two");
	int fd = open(two, O_RDWR | O_CLOEXEC);
	unsigned int i;
	struct rig g;

	EXPECT(fd >= 0);
	rig_open(&g, one, &(struct rig_opts){ .queues = 2 });
	for (i = 0; i < 10; i++) {
		offer_writes(&g, i * SLOTS);
		EXPECT_EQ(set_backend(&g, fd), -EBUSY);
		EXPECT_EQ(set_backend(&g, -1), -EBUSY);
		rig_wait(&g, 0);
		expect_writes(one, i * SLOTS);
	}
	/* one that runs is enough, idle or not */
	EXPECT_EQ(vblk_stop(g.dev.fd, 0), 0);
	EXPECT_EQ(set_backend(&g, fd), -EBUSY);
	rig_check_works(&g, 1, 0);
	EXPECT_EQ(vblk_stop(g.dev.fd, 1), 0);
	EXPECT_EQ(set_backend(&g, fd), 0);
	close(fd);
	rig_close(&g);
}

static void the_backend_is_replaced_between_stop_and_start(void)
{
	const char *disk[2];
	unsigned int i;
	struct rig g;
	int fd[2];

	disk[0] = slow_disk("one");
	disk[1] = slow_disk("two");
	for (i = 0; i < 2; i++)
		fd[i] = open(disk[i], O_RDWR | O_CLOEXEC);
	rig_open(&g, disk[0], NULL);
	for (i = 1; i <= 10; i++) {
		EXPECT_EQ(vblk_stop(g.dev.fd, 0), 0);
		offer_writes(&g, i * SLOTS);
		EXPECT_EQ(set_backend(&g, -1), 0);
		EXPECT_EQ(set_backend(&g, fd[!(i & 1)]), 0);
		EXPECT_EQ(set_backend(&g, fd[i & 1]), 0);
		EXPECT_EQ(vblk_start(g.dev.fd, 0), 0);
		ring_kick_always(&g.ring[0]);
		rig_wait(&g, 0);
		expect_writes(disk[i & 1], i * SLOTS);
	}
	EXPECT_EQ(vblk_stop(g.dev.fd, 0), 0);
	EXPECT_EQ(set_backend(&g, -1), 0);
	EXPECT_EQ(vblk_start(g.dev.fd, 0), 0);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_IN, 0, g.data, 4096),
		  VIRTIO_BLK_S_IOERR);
	EXPECT_EQ(set_backend(&g, fd[0]), -EBUSY);
	EXPECT_EQ(vblk_stop(g.dev.fd, 0), 0);
	EXPECT_EQ(set_backend(&g, fd[0]), 0);
	EXPECT_EQ(vblk_start(g.dev.fd, 0), 0);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
	for (i = 0; i < 2; i++)
		close(fd[i]);
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(flush_reaches_the_backend),
		TEST(writethrough_makes_each_write_durable),
		TEST(a_flush_goes_to_the_backend_there_is),
		TEST(another_backend_is_refused_under_io),
		TEST(the_backend_is_replaced_between_stop_and_start),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests),
			 backend_cleanup);
}
