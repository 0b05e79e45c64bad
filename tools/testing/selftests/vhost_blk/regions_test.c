// SPDX-License-Identifier: GPL-2.0
/*
 * Guest memory in two regions, as most guests have it: below 4 GiB and above.  Each part of a
 * request may lie in either.
 */
#include <linux/vhost.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>

#include "rig.h"

#define SPLIT_DATA	(RIG_DATA / 2)		/* rings and tables lie above */
#define SPLIT_END	(12UL << 20)		/* rings and tables lie below */
#define HOLE		0x40000000ULL
#define ROUNDS		64

/* Where the parts of a request lie; a bit says "in the upper region". */
#define HDR	1
#define DATA	2
#define STATUS	4
#define PLACES	8

/* Room in either region that nothing else uses, for a number. */
static u8 *place(struct rig *g, bool upper, unsigned int nr)
{
	u8 *at = upper ? g->mem.base + g->mem.split : g->data;

	return at + nr * 8192;
}

/* A request whose parts lie as @where says, 4096 bytes of data included. */
static u8 one(struct rig *g, unsigned int where, bool indirect, u32 type, u64 sector)
{
	struct virtio_blk_outhdr *hdr = (void *)place(g, where & HDR, 1);
	u8 *status = place(g, where & STATUS, 2);
	struct rig_req *req = rig_req_new(g, type, sector);
	struct ring_seg seg[3];

	*hdr = *req->hdr;
	*status = NO_STATUS;
	seg[0] = ring_seg(&g->mem, hdr, sizeof(*hdr), false);
	seg[1] = ring_seg(&g->mem, place(g, where & DATA, 3), 4096, type == VIRTIO_BLK_T_IN);
	seg[2] = ring_seg(&g->mem, status, 1, true);
	rig_queue_segs(g, 0, req, seg, 3, indirect);
	rig_kick(g, 0);
	rig_wait(g, 0);
	return *status;
}

static void write_and_read(struct rig *g, unsigned int where, bool indirect, u64 seed)
{
	u64 sector = seed % 128 * 8;
	u8 *data = place(g, where & DATA, 3);

	rig_pattern(data, 4096, seed);
	EXPECT_EQ(one(g, where, indirect, VIRTIO_BLK_T_OUT, sector), VIRTIO_BLK_S_OK);
	memset(data, 0, 4096);
	EXPECT_EQ(one(g, where, indirect, VIRTIO_BLK_T_IN, sector), VIRTIO_BLK_S_OK);
	EXPECT(rig_pattern_ok(data, 4096, seed));
}

static void parts_in_both(size_t split, u64 hole)
{
	unsigned int i, where;
	struct rig g;

	rig_open(&g, file_create(1), &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .split = split, .hole = hole });
	/* The same place again and again, and then another one each time. */
	for (where = 0; where < PLACES; where++)
		for (i = 0; i < 8; i++)
			write_and_read(&g, where, i & 1, where * 8 + i);
	for (i = 0; i < ROUNDS; i++)
		write_and_read(&g, i * 5 % PLACES, i / PLACES & 1, i);
	EXPECT_EQ(rig_malformed(&g, 0), 0);
	rig_close(&g);
}

static void parts_of_a_request_lie_in_either(void)
{
	parts_in_both(SPLIT_DATA, HOLE);
	parts_in_both(SPLIT_END, HOLE);
}

static void regions_that_touch(void)
{
	parts_in_both(SPLIT_DATA, 0);
}

/* From the last bytes of the lower region to the first ones of the upper. */
static u8 across(struct rig *g, u32 type, size_t before)
{
	return rig_io(g, 0, type, 8, g->mem.base + g->mem.split - before, 4096);
}

static void a_buffer_lies_across_both(void)
{
	size_t before;
	struct rig g;

	rig_open(&g, file_create(1), &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .split = SPLIT_DATA });
	for (before = 512; before < 4096; before += 512) {
		u8 *data = g.mem.base + g.mem.split - before;

		rig_pattern(data, 4096, before);
		EXPECT_EQ(across(&g, VIRTIO_BLK_T_OUT, before), VIRTIO_BLK_S_OK);
		memset(data, 0, 4096);
		EXPECT_EQ(across(&g, VIRTIO_BLK_T_IN, before), VIRTIO_BLK_S_OK);
		EXPECT(rig_pattern_ok(data, 4096, before));
	}
	EXPECT_EQ(rig_malformed(&g, 0), 0);
	rig_close(&g);
}

/* Its end lies where the guest has no memory, though the owner has some there. */
static void a_buffer_that_ends_in_the_hole_is_an_error(void)
{
	struct rig g;

	rig_open(&g, file_create(1), &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .split = SPLIT_DATA, .hole = HOLE });
	rig_pattern(place(&g, true, 0), 4096, 1);
	write_and_read(&g, DATA, false, 1);
	EXPECT_EQ(across(&g, VIRTIO_BLK_T_IN, 512), VIRTIO_BLK_S_IOERR);
	EXPECT_EQ(across(&g, VIRTIO_BLK_T_IN, 4095), VIRTIO_BLK_S_IOERR);
	EXPECT(rig_pattern_ok(place(&g, true, 0), 4096, 1));
	EXPECT_EQ(rig_malformed(&g, 0), 2);
	write_and_read(&g, HDR, false, 2);
	rig_close(&g);
}

#define SHIFTS	4

/* The upper region begins at the same guest address, and further on in this process. */
static void move_upper(struct rig *g, unsigned int shift)
{
	const struct ring_mem *mem = &g->mem;
	size_t upper = mem->size - mem->split - SHIFTS * 65536;
	struct {
		struct vhost_memory head;
		struct vhost_memory_region region[2];
	} m = {
		.head.nregions = 2,
		.region = {
			{ mem->gpa, mem->split, (uintptr_t)mem->base, 0 },
			{ ring_gpa(mem, mem->base + mem->split), upper,
			  (uintptr_t)mem->base + mem->split + shift * 65536, 0 },
		},
	};

	EXPECT_EQ(ioctl(g->dev.fd, VHOST_SET_MEM_TABLE, &m), 0);
}

static void expect_data_at(struct rig *g, unsigned int shift, u64 seed)
{
	u8 *data = place(g, true, 3) + shift * 65536;

	rig_pattern(data, 4096, seed);
	EXPECT_EQ(one(g, DATA, false, VIRTIO_BLK_T_OUT, 8), VIRTIO_BLK_S_OK);
	memset(data, 0, 4096);
	EXPECT_EQ(one(g, DATA, false, VIRTIO_BLK_T_IN, 8), VIRTIO_BLK_S_OK);
	EXPECT(rig_pattern_ok(data, 4096, seed));
}

/* A table may lie in the kernel where one before the last did. */
static void a_new_table_holds_at_once(void)
{
	unsigned int i;
	struct rig g;

	rig_open(&g, file_create(1), &(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .split = SPLIT_END, .hole = HOLE });
	for (i = 0; i < ROUNDS; i++) {
		move_upper(&g, i % SHIFTS);
		expect_data_at(&g, i % SHIFTS, i);
		if (i & 1)
			move_upper(&g, (i + 2) % SHIFTS);
	}
	rig_close(&g);
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(parts_of_a_request_lie_in_either),
		TEST(regions_that_touch),
		TEST(a_buffer_lies_across_both),
		TEST(a_buffer_that_ends_in_the_hole_is_an_error),
		TEST(a_new_table_holds_at_once),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests), backend_cleanup);
}
