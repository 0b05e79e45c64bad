// SPDX-License-Identifier: GPL-2.0
/*
 * Requests: every type and every framing the virtio specification allows does
 * what it says to the backing device, which is looked at directly.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rig.h"

#define DISK_MB		64
#define DISK_SECTORS	(DISK_MB * 2048ULL)

static const char *usual_disk(void)
{
	backend_need_modules();
	return nullb_create(&(struct nullb){ .name = "io", .discard = true });
}

static void read_and_write_reach_the_backend(void)
{
	static const u32 sizes[] = {
		512, 1024, 1536, 4096, 4608, 65536, 131072, 262144
	};
	const char *disk = usual_disk();
	u8 *seen = malloc(262144);
	struct rig g;
	unsigned int i;

	rig_open(&g, disk, NULL);
	EXPECT_EQ(g.dev.capacity, DISK_SECTORS);
	for (i = 0; i < KTAP_COUNT(sizes); i++) {
		u64 sector = 1000 * i + 3;

		rig_pattern(g.data, sizes[i], i);
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, sector, g.data,
				 sizes[i]), VIRTIO_BLK_S_OK);
		backend_read(disk, sector * 512, seen, sizes[i]);
		EXPECT(rig_pattern_ok(seen, sizes[i], i));

		rig_pattern(seen, sizes[i], i + 100);
		backend_write(disk, sector * 512, seen, sizes[i]);
		memset(g.data, 0, sizes[i]);
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_IN, sector, g.data,
				 sizes[i]), VIRTIO_BLK_S_OK);
		EXPECT(rig_pattern_ok(g.data, sizes[i], i + 100));
	}
	rig_close(&g);
}

/* The used length of a request with @out bytes to read and @in to write. */
static u32 used_len(struct rig *g, u32 type, u64 sector, u32 out, u32 in)
{
	struct rig_req *req = rig_req_new(g, type, sector);
	struct ring_seg seg[4];
	unsigned int n = 0;

	seg[n++] = ring_seg(&g->mem, req->hdr, sizeof(*req->hdr), false);
	if (out)
		seg[n++] = ring_seg(&g->mem, g->data, out, false);
	if (in)
		seg[n++] = ring_seg(&g->mem, g->data, in, true);
	seg[n++] = ring_seg(&g->mem, req->status, 1, true);
	rig_queue_segs(g, 0, req, seg, n, false);
	rig_kick(g, 0);
	rig_wait(g, 0);
	EXPECT(*req->status != NO_STATUS);
	return req->used_len;
}

/* All that was written, from the first byte on, and with no gap in it. */
static void used_length_counts_what_was_written(void)
{
	struct rig g;

	rig_open(&g, usual_disk(), NULL);
	EXPECT_EQ(used_len(&g, VIRTIO_BLK_T_IN, 0, 0, 4096), 4097);
	EXPECT_EQ(used_len(&g, VIRTIO_BLK_T_IN, DISK_SECTORS, 0, 4096), 0);
	EXPECT_EQ(used_len(&g, VIRTIO_BLK_T_OUT, 0, 4096, 0), 1);
	EXPECT_EQ(used_len(&g, VIRTIO_BLK_T_OUT, DISK_SECTORS, 4096, 0), 1);
	EXPECT_EQ(used_len(&g, VIRTIO_BLK_T_FLUSH, 0, 0, 0), 1);
	EXPECT_EQ(used_len(&g, VIRTIO_BLK_T_FLUSH, 0, 0, 512), 0);
	EXPECT_EQ(used_len(&g, VIRTIO_BLK_T_GET_ID, 0, 0, 20), 21);
	EXPECT_EQ(used_len(&g, VIRTIO_BLK_T_GET_ID, 0, 0, 7), 8);
	EXPECT_EQ(used_len(&g, VIRTIO_BLK_T_GET_ID, 0, 0, 64), 20);
	EXPECT_EQ(used_len(&g, 0x7777, 0, 0, 0), 1);
	rig_close(&g);
}

/* Cut @len bytes at @p into pieces of @piece; returns how many. */
static unsigned int cut(struct rig *g, struct ring_seg *seg, void *p, u32 len,
			u32 piece, bool in)
{
	unsigned int n = 0;
	u32 at;

	for (at = 0; at < len; at += piece)
		seg[n++] = ring_seg(&g->mem, (u8 *)p + at,
				    len - at < piece ? len - at : piece, in);
	return n;
}

static u8 run_segs(struct rig *g, struct rig_req *req,
		   const struct ring_seg *seg, unsigned int n, bool indirect)
{
	rig_queue_segs(g, 0, req, seg, n, indirect);
	rig_kick(g, 0);
	rig_wait(g, 0);
	return *req->status;
}

static void framed_write(struct rig *g, const char *disk, u32 hdr_piece,
			 u32 piece, bool indirect)
{
	struct rig_req *req = rig_req_new(g, VIRTIO_BLK_T_OUT, 64);
	struct ring_seg seg[256];
	unsigned int n;
	u8 seen[4096];

	rig_pattern(g->data, sizeof(seen), piece + hdr_piece);
	n = cut(g, seg, req->hdr, sizeof(*req->hdr), hdr_piece, false);
	n += cut(g, seg + n, g->data, sizeof(seen), piece, false);
	seg[n++] = ring_seg(&g->mem, req->status, 1, true);
	EXPECT_EQ(run_segs(g, req, seg, n, indirect), VIRTIO_BLK_S_OK);
	backend_read(disk, 64 * 512, seen, sizeof(seen));
	EXPECT(rig_pattern_ok(seen, sizeof(seen), piece + hdr_piece));
}

static void framed_read(struct rig *g, const char *disk, u32 hdr_piece,
			u32 piece, bool indirect)
{
	struct rig_req *req = rig_req_new(g, VIRTIO_BLK_T_IN, 64);
	struct ring_seg seg[256];
	unsigned int n;
	u8 bytes[4096];

	rig_pattern(bytes, sizeof(bytes), piece * 7 + hdr_piece);
	backend_write(disk, 64 * 512, bytes, sizeof(bytes));
	memset(g->data, 0, sizeof(bytes));
	n = cut(g, seg, req->hdr, sizeof(*req->hdr), hdr_piece, false);
	n += cut(g, seg + n, g->data, sizeof(bytes), piece, true);
	seg[n++] = ring_seg(&g->mem, req->status, 1, true);
	EXPECT_EQ(run_segs(g, req, seg, n, indirect), VIRTIO_BLK_S_OK);
	EXPECT(!memcmp(bytes, g->data, sizeof(bytes)));
}

static void all_framings(bool indirect)
{
	static const u32 hdr_pieces[] = { 16, 8, 5, 1 };
	/* whole, in blocks, and in ways no DMA engine would like */
	static const u32 pieces[] = { 4096, 512, 2048, 1000, 100, 33 };
	const char *disk = usual_disk();
	unsigned int i, j;
	struct rig g;

	rig_open(&g, disk, NULL);
	for (i = 0; i < KTAP_COUNT(hdr_pieces); i++) {
		for (j = 0; j < KTAP_COUNT(pieces); j++) {
			framed_write(&g, disk, hdr_pieces[i], pieces[j],
				     indirect);
			framed_read(&g, disk, hdr_pieces[i], pieces[j],
				    indirect);
		}
	}
	rig_close(&g);
}

static void any_framing_in_the_ring(void)
{
	all_framings(false);
}

static void any_framing_in_an_indirect_table(void)
{
	all_framings(true);
}

/* Only @next says what comes after what (virtio 1.2, 2.7.5.3). */
static void a_table_may_be_in_any_order(void)
{
	const char *disk = usual_disk();
	struct vring_desc *table, t;
	struct ring_seg seg[4];
	struct rig_req *req;
	struct rig g;
	u8 seen[1024];

	rig_open(&g, disk, NULL);
	req = rig_req_new(&g, VIRTIO_BLK_T_OUT, 8);
	rig_pattern(g.data, sizeof(seen), 1);
	seg[0] = ring_seg(&g.mem, req->hdr, 16, false);
	seg[1] = ring_seg(&g.mem, g.data, 512, false);
	seg[2] = ring_seg(&g.mem, g.data + 512, 512, false);
	seg[3] = ring_seg(&g.mem, req->status, 1, true);
	rig_queue_segs(&g, 0, req, seg, 4, true);
	table = g.ring[0].tables;
	/* the halves of the data change places, and still follow each other */
	t = table[1];
	table[1] = table[2];
	table[2] = t;
	table[0].next = 2;
	table[2].next = 1;
	table[1].next = 3;
	rig_kick(&g, 0);
	rig_wait(&g, 0);
	EXPECT_EQ(*req->status, VIRTIO_BLK_S_OK);
	backend_read(disk, 8 * 512, seen, sizeof(seen));
	EXPECT(rig_pattern_ok(seen, sizeof(seen), 1));
	rig_close(&g);
}

static void data_may_share_a_descriptor_with_header_and_status(void)
{
	const char *disk = usual_disk();
	struct virtio_blk_outhdr *hdr;
	struct ring_seg seg[2];
	struct rig_req *req;
	struct rig g;
	u8 seen[1024];

	rig_open(&g, disk, NULL);
	/* write: header and data in one, status alone */
	req = rig_req_new(&g, VIRTIO_BLK_T_OUT, 8);
	hdr = (void *)g.data;
	*hdr = *req->hdr;
	rig_pattern(g.data + 16, 1024, 1);
	seg[0] = ring_seg(&g.mem, g.data, 16 + 1024, false);
	seg[1] = ring_seg(&g.mem, req->status, 1, true);
	EXPECT_EQ(run_segs(&g, req, seg, 2, false), VIRTIO_BLK_S_OK);
	backend_read(disk, 8 * 512, seen, sizeof(seen));
	EXPECT(rig_pattern_ok(seen, sizeof(seen), 1));

	/* read: data and status in one */
	req = rig_req_new(&g, VIRTIO_BLK_T_IN, 8);
	memset(g.data, 0xee, 2048);
	seg[0] = ring_seg(&g.mem, req->hdr, 16, false);
	seg[1] = ring_seg(&g.mem, g.data, 1024 + 1, true);
	rig_queue_segs(&g, 0, req, seg, 2, false);
	rig_kick(&g, 0);
	rig_wait(&g, 0);
	EXPECT_EQ(g.data[1024], VIRTIO_BLK_S_OK);
	EXPECT(rig_pattern_ok(g.data, 1024, 1));
	EXPECT_EQ(g.data[1025], 0xee);
	rig_close(&g);
}

/* 1 KiB in two pieces, with nothing before, between and behind them. */
static u8 io_with_empty_pieces(struct rig *g, u32 type, bool indirect)
{
	struct rig_req *req = rig_req_new(g, type, 8);
	bool in = type == VIRTIO_BLK_T_IN;
	const struct ring_seg seg[] = {
		ring_seg(&g->mem, req->hdr, 16, false),
		ring_seg(&g->mem, g->data, 0, false),
		ring_seg(&g->mem, g->data + 4096, 0, in),
		ring_seg(&g->mem, g->data, 512, in),
		ring_seg(&g->mem, g->data + 8192, 0, in),
		ring_seg(&g->mem, g->data + 512, 512, in),
		ring_seg(&g->mem, g->data, 0, true),
		ring_seg(&g->mem, req->status, 1, true),
		ring_seg(&g->mem, g->data, 0, true),
	};

	return run_segs(g, req, seg, KTAP_COUNT(seg), indirect);
}

/* They are no bytes, and only bytes count (virtio 1.2, 2.7.4). */
static void empty_descriptors_and_empty_requests_are_fine(void)
{
	const char *disk = usual_disk();
	u8 seen[1024];
	struct rig g;
	int i;

	rig_open(&g, disk, NULL);
	for (i = 0; i < 2; i++) {
		rig_pattern(g.data, 1024, i + 1);
		EXPECT_EQ(io_with_empty_pieces(&g, VIRTIO_BLK_T_OUT, i),
			  VIRTIO_BLK_S_OK);
		backend_read(disk, 8 * 512, seen, sizeof(seen));
		EXPECT(rig_pattern_ok(seen, 1024, i + 1));
		memset(g.data, 0, 1024);
		EXPECT_EQ(io_with_empty_pieces(&g, VIRTIO_BLK_T_IN, i),
			  VIRTIO_BLK_S_OK);
		EXPECT(rig_pattern_ok(g.data, 1024, i + 1));
	}

	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_IN, 0, NULL, 0),
		  VIRTIO_BLK_S_OK);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, 0, NULL, 0),
		  VIRTIO_BLK_S_OK);
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void a_request_of_many_segments_is_one_command(void)
{
	struct vhost_blk_stats before, after;
	const char *disk = usual_disk();
	struct vhost_blk_info info;
	struct ring_seg seg[258];
	struct rig_req *req;
	unsigned int i, n;
	struct rig g;
	u8 seen[512];

	rig_open(&g, disk, NULL);
	rig_info(&g, &info);
	n = info.seg_max < 126 ? info.seg_max : 126;
	EXPECT(n >= 1);
	req = rig_req_new(&g, VIRTIO_BLK_T_OUT, 128);
	seg[0] = ring_seg(&g.mem, req->hdr, 16, false);
	/* every second one of 512 bytes: no two touch */
	for (i = 0; i < n; i++) {
		rig_pattern(g.data + i * 1024, 512, i);
		seg[i + 1] = ring_seg(&g.mem, g.data + i * 1024, 512, false);
	}
	seg[n + 1] = ring_seg(&g.mem, req->status, 1, true);
	rig_stats(&g, 0, &before);
	EXPECT_EQ(run_segs(&g, req, seg, n + 2, true), VIRTIO_BLK_S_OK);
	rig_stats(&g, 0, &after);
	EXPECT_EQ(after.commands - before.commands, 1);
	for (i = 0; i < n; i++) {
		backend_read(disk, (128 + i) * 512, seen, 512);
		EXPECT(rig_pattern_ok(seen, 512, i));
	}
	rig_close(&g);
}

static void neighbours_of_one_round_merge(void)
{
	struct vhost_blk_stats before, after;
	const char *disk = usual_disk();
	struct rig_req *req[8];
	unsigned int i;
	struct rig g;
	u8 *seen = malloc(32768);

	rig_open(&g, disk, NULL);
	rig_stats(&g, 0, &before);
	rig_pattern(g.data, 32768, 5);
	for (i = 0; i < 8; i++)
		req[i] = rig_queue(&g, 0, VIRTIO_BLK_T_OUT, i * 8,
				   g.data + i * 4096, 4096);
	rig_kick(&g, 0);
	rig_wait(&g, 0);
	for (i = 0; i < 8; i++)
		EXPECT_EQ(*req[i]->status, VIRTIO_BLK_S_OK);
	rig_stats(&g, 0, &after);
	EXPECT_EQ(after.writes - before.writes, 8);
	EXPECT_EQ(after.write_bytes - before.write_bytes, 32768);
	EXPECT(after.commands - before.commands < 8);
	EXPECT_EQ(after.merged - before.merged + after.commands -
		  before.commands, 8);
	backend_read(disk, 0, seen, 32768);
	EXPECT(rig_pattern_ok(seen, 32768, 5));
	rig_close(&g);
}

static void lengths_that_are_no_sectors_are_refused(void)
{
	static const u32 sizes[] = { 1, 511, 513, 4095 };
	unsigned int i;
	struct rig g;

	rig_open(&g, usual_disk(), NULL);
	for (i = 0; i < KTAP_COUNT(sizes); i++) {
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_IN, 0, g.data, sizes[i]),
			  VIRTIO_BLK_S_IOERR);
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, 0, g.data, sizes[i]),
			  VIRTIO_BLK_S_IOERR);
	}
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void nothing_beyond_the_end_is_reached(void)
{
	static const u64 sectors[] = {
		DISK_SECTORS, DISK_SECTORS - 7, DISK_SECTORS + 8,
		1ULL << 55, ~0ULL, ~0ULL - 7, 1ULL << 63
	};
	unsigned int i;
	struct rig g;

	rig_open(&g, usual_disk(), NULL);
	for (i = 0; i < KTAP_COUNT(sectors); i++) {
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_IN, sectors[i], g.data,
				 4096), VIRTIO_BLK_S_IOERR);
		EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, sectors[i], g.data,
				 4096), VIRTIO_BLK_S_IOERR);
	}
	rig_check_works(&g, 0, DISK_SECTORS - 16);
	rig_close(&g);
}

static void unknown_types_are_unsupported(void)
{
	static const u32 types[] = {
		2, 3, 5, 7, 9, 10, 12, 14, 15, 26, 100, 0x80000000U,
		0x80000001U, 0xffffffffU
	};
	struct vhost_blk_stats st;
	unsigned int i;
	struct rig g;

	rig_open(&g, usual_disk(), NULL);
	for (i = 0; i < KTAP_COUNT(types); i++) {
		EXPECT_EQ(rig_io(&g, 0, types[i], 0, g.data, 512),
			  VIRTIO_BLK_S_UNSUPP);
		EXPECT_EQ(rig_io(&g, 0, types[i], 0, NULL, 0),
			  VIRTIO_BLK_S_UNSUPP);
	}
	rig_stats(&g, 0, &st);
	EXPECT_EQ(st.unsupp, 2 * KTAP_COUNT(types));
	rig_check_works(&g, 0, 0);
	rig_close(&g);
}

static void get_id_gives_the_serial(void)
{
	struct ring_seg seg[4];
	struct rig_req *req;
	char want[20] = "ring-player";
	struct rig g;

	rig_open(&g, usual_disk(), NULL);
	memset(g.data, 0xee, 64);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_GET_ID, 0, g.data, 20),
		  VIRTIO_BLK_S_OK);
	EXPECT(!memcmp(g.data, want, 20));
	EXPECT_EQ(g.data[20], 0xee);

	memset(g.data, 0xee, 64);
	req = rig_req_new(&g, VIRTIO_BLK_T_GET_ID, 0);
	seg[0] = ring_seg(&g.mem, req->hdr, 16, false);
	seg[1] = ring_seg(&g.mem, g.data, 7, true);
	seg[2] = ring_seg(&g.mem, g.data + 7, 13, true);
	seg[3] = ring_seg(&g.mem, req->status, 1, true);
	EXPECT_EQ(run_segs(&g, req, seg, 4, false), VIRTIO_BLK_S_OK);
	EXPECT(!memcmp(g.data, want, 20));
	EXPECT_EQ(g.data[20], 0xee);
	rig_close(&g);
}

static void read_only(const struct rig_opts *o)
{
	const char *disk = usual_disk();
	struct rig g;
	u8 seen[4096];

	rig_pattern(seen, sizeof(seen), 9);
	backend_write(disk, 0, seen, sizeof(seen));
	rig_open(&g, disk, o);
	EXPECT(g.dev.offered & FEATURE(VIRTIO_BLK_F_RO));
	memset(g.data, 0, 4096);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, 0, g.data, 4096),
		  VIRTIO_BLK_S_IOERR);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_IN, 0, g.data, 4096),
		  VIRTIO_BLK_S_OK);
	EXPECT(rig_pattern_ok(g.data, 4096, 9));
	backend_read(disk, 0, seen, sizeof(seen));
	EXPECT(rig_pattern_ok(seen, sizeof(seen), 9));
	rig_close(&g);
}

static void read_only_by_flag_refuses_writes(void)
{
	read_only(&(struct rig_opts){ .flags = VHOST_BLK_BACKEND_READ_ONLY });
}

static void read_only_by_descriptor_refuses_writes(void)
{
	read_only(&(struct rig_opts){ .read_only_fd = true });
}

static u8 range_io(struct rig *g, u32 type, u64 sector, u32 num, u32 flags)
{
	struct virtio_blk_discard_write_zeroes *d = (void *)g->data;

	*d = (struct virtio_blk_discard_write_zeroes){ sector, num, flags };
	return rig_io(g, 0, type, 0, d, sizeof(*d));
}

/* Sectors 0 to 63 hold a pattern; of them 16 to 31 are now zero, no others. */
static void expect_hole(const char *disk, const u8 *whole)
{
	static const u8 zero[16 * 512];
	u8 seen[64 * 512];

	backend_read(disk, 0, seen, sizeof(seen));
	EXPECT(!memcmp(seen, whole, 16 * 512));
	EXPECT(!memcmp(seen + 16 * 512, zero, sizeof(zero)));
	EXPECT(!memcmp(seen + 32 * 512, whole + 32 * 512, 32 * 512));
}

static void write_zeroes_zeroes_exactly_its_range(void)
{
	const char *disk = usual_disk();
	u8 whole[64 * 512];
	unsigned int unmap;
	struct rig g;

	rig_open(&g, disk, NULL);
	EXPECT(g.dev.offered & FEATURE(VIRTIO_BLK_F_WRITE_ZEROES));
	for (unmap = 0; unmap < 2; unmap++) {
		rig_pattern(whole, sizeof(whole), 3 + unmap);
		backend_write(disk, 0, whole, sizeof(whole));
		EXPECT_EQ(range_io(&g, VIRTIO_BLK_T_WRITE_ZEROES, 16, 16,
				   unmap), VIRTIO_BLK_S_OK);
		expect_hole(disk, whole);
	}
	rig_close(&g);
}

/* Not written to page by page, where the file system can do without. */
static void write_zeroes_of_a_file_keeps_its_blocks(void)
{
	struct stat before, after;
	const char *file;
	struct rig g;
	u8 seen[4096];
	int fd;

	backend_need_modules();
	file = file_create(8);
	rig_open(&g, file, NULL);
	rig_pattern(g.data, RIG_DATA, 5);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, 0, g.data, RIG_DATA), 0);
	fd = open(file, O_RDWR);
	EXPECT(fd >= 0 && !fstat(fd, &before));
	EXPECT_EQ(range_io(&g, VIRTIO_BLK_T_WRITE_ZEROES, 3,
			   RIG_DATA / 512 - 16, 0), VIRTIO_BLK_S_OK);
	/* The range was told from there. */
	rig_pattern(g.data, RIG_DATA, 5);
	EXPECT(!fstat(fd, &after));
	EXPECT_EQ(after.st_blocks, before.st_blocks);
	EXPECT_EQ(lseek(fd, 4096, SEEK_DATA), RIG_DATA - 8192);

	/* to the byte, at both ends */
	EXPECT_EQ(pread(fd, seen, sizeof(seen), 0), sizeof(seen));
	EXPECT(!memcmp(seen, g.data, 3 * 512));
	EXPECT(!seen[3 * 512] && !memcmp(seen + 3 * 512, seen + 3 * 512 + 1,
					 sizeof(seen) - 3 * 512 - 1));
	EXPECT_EQ(pread(fd, seen, sizeof(seen), RIG_DATA - 8192), sizeof(seen));
	EXPECT(!seen[0] && !memcmp(seen, seen + 1, 3 * 512 - 1));
	EXPECT(!memcmp(seen + 3 * 512, g.data + RIG_DATA - 8192 + 3 * 512,
		       sizeof(seen) - 3 * 512));
	close(fd);
	rig_close(&g);
}

static void discard_frees_exactly_its_range(void)
{
	const char *disk = usual_disk();
	struct vhost_blk_info info;
	u8 whole[64 * 512];
	struct rig g;

	rig_open(&g, disk, NULL);
	EXPECT(g.dev.offered & FEATURE(VIRTIO_BLK_F_DISCARD));
	rig_info(&g, &info);
	EXPECT(info.max_discard_sectors && info.max_discard_seg);
	rig_pattern(whole, sizeof(whole), 4);
	backend_write(disk, 0, whole, sizeof(whole));
	EXPECT_EQ(range_io(&g, VIRTIO_BLK_T_DISCARD, 16, 16, 0),
		  VIRTIO_BLK_S_OK);
	expect_hole(disk, whole);
	rig_close(&g);
}

/* The owner forbids discards.  Drivers set the flag of write-zeroes all the same. */
static void an_owner_may_have_all_blocks_kept(void)
{
	struct rig_opts o = { .flags = VHOST_BLK_BACKEND_NO_DISCARD };
	u64 discard = FEATURE(VIRTIO_BLK_F_DISCARD);
	struct stat before, after;
	struct vhost_blk_info info;
	const char *file;
	struct rig g;

	backend_need_modules();
	file = file_create(8);
	o.stopped = true;
	rig_open(&g, file, &o);
	rig_info(&g, &info);
	EXPECT_EQ(info.flags & o.flags, o.flags);
	EXPECT_EQ(info.max_discard_sectors, 0);
	EXPECT_EQ(info.write_zeroes_may_unmap, 0);
	EXPECT_EQ((info.features | g.dev.offered) & discard, 0);
	/* A guest that could discard before keeps the feature, and each of its discards fails. */
	EXPECT_EQ(vblk_set_features(g.dev.fd, g.dev.features | discard), 0);
	EXPECT_EQ(vdev_start(&g.dev, &g.ring[0]), 0);
	rig_pattern(g.data, RIG_DATA, 5);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_OUT, 0, g.data, RIG_DATA), 0);
	EXPECT(!stat(file, &before));
	EXPECT_EQ(range_io(&g, VIRTIO_BLK_T_DISCARD, 0, 2048, 0), VIRTIO_BLK_S_UNSUPP);
	EXPECT_EQ(range_io(&g, VIRTIO_BLK_T_WRITE_ZEROES, 0, 2048, 1), VIRTIO_BLK_S_OK);
	EXPECT(!stat(file, &after));
	EXPECT_EQ(after.st_blocks, before.st_blocks);
	rig_close(&g);
}

static void bad_ranges_are_refused(void)
{
	const char *disk = usual_disk();
	u8 whole[64 * 512], seen[64 * 512];
	struct rig g;

	rig_pattern(whole, sizeof(whole), 6);
	backend_write(disk, 0, whole, sizeof(whole));
	rig_open(&g, disk, NULL);
	/* beyond the end, also by wrapping */
	EXPECT_EQ(range_io(&g, VIRTIO_BLK_T_WRITE_ZEROES, DISK_SECTORS, 1, 0),
		  VIRTIO_BLK_S_IOERR);
	EXPECT_EQ(range_io(&g, VIRTIO_BLK_T_WRITE_ZEROES, ~0ULL, 8, 0),
		  VIRTIO_BLK_S_IOERR);
	EXPECT_EQ(range_io(&g, VIRTIO_BLK_T_DISCARD, ~0ULL - 3, 8, 0),
		  VIRTIO_BLK_S_IOERR);
	EXPECT_EQ(range_io(&g, VIRTIO_BLK_T_DISCARD, 1, ~0U, 0),
		  VIRTIO_BLK_S_IOERR);
	/* flags: unknown ones, and unmap where it has no meaning */
	EXPECT_EQ(range_io(&g, VIRTIO_BLK_T_WRITE_ZEROES, 0, 8, 2),
		  VIRTIO_BLK_S_UNSUPP);
	EXPECT_EQ(range_io(&g, VIRTIO_BLK_T_DISCARD, 0, 8, 1),
		  VIRTIO_BLK_S_UNSUPP);
	/* more ranges than were offered */
	memset(g.data, 0, 32);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_WRITE_ZEROES, 0, g.data, 32),
		  VIRTIO_BLK_S_IOERR);
	/* half a range */
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_DISCARD, 0, g.data, 15),
		  VIRTIO_BLK_S_IOERR);
	EXPECT_EQ(rig_io(&g, 0, VIRTIO_BLK_T_WRITE_ZEROES, 0, g.data, 17),
		  VIRTIO_BLK_S_IOERR);
	backend_read(disk, 0, seen, sizeof(seen));
	EXPECT(!memcmp(whole, seen, sizeof(seen)));
	rig_close(&g);
}

static void a_bad_block_fails_its_request_alone(void)
{
	const char *disk = usual_disk();
	struct vhost_blk_stats st;
	struct rig_req *req[4];
	unsigned int i;
	struct rig g;

	EXPECT_EQ(nullb_set("io", "badblocks", "+800-807"), 0);
	rig_open(&g, disk, NULL);
	/* not neighbours, so that none shares a command with the bad one */
	for (i = 0; i < 4; i++)
		req[i] = rig_queue(&g, 0, VIRTIO_BLK_T_IN, 700 + 50 * i,
				   g.data + i * 4096, 4096);
	rig_kick(&g, 0);
	rig_wait(&g, 0);
	for (i = 0; i < 4; i++)
		EXPECT_EQ(*req[i]->status, i == 2 ? VIRTIO_BLK_S_IOERR :
			  VIRTIO_BLK_S_OK);
	rig_stats(&g, 0, &st);
	EXPECT_EQ(st.errors, 1);
	rig_close(&g);
}

#define LOAD_DEPTH	64

static u8 *slot_data(struct rig *g, unsigned int q, unsigned int i)
{
	return g->data + (q * LOAD_DEPTH + i) * 4096;
}

/* One request at depth 64 on each queue, each to a place of its own. */
static void load_round(struct rig *g, unsigned int n, bool in)
{
	struct rig_req *req[RIG_MAX_QUEUES][LOAD_DEPTH];
	unsigned int q, i;
	u64 block;

	for (q = 0; q < g->queues; q++) {
		for (i = 0; i < LOAD_DEPTH; i++) {
			block = (n * g->queues + q) * LOAD_DEPTH + i * 13 %
				LOAD_DEPTH;
			if (in)
				memset(slot_data(g, q, i), 0, 4096);
			else
				rig_pattern(slot_data(g, q, i), 4096, block);
			req[q][i] = rig_queue(g, q, in ? VIRTIO_BLK_T_IN :
					      VIRTIO_BLK_T_OUT, block * 8,
					      slot_data(g, q, i), 4096);
		}
		rig_kick(g, q);
	}
	for (q = 0; q < g->queues; q++) {
		rig_wait(g, q);
		for (i = 0; i < LOAD_DEPTH; i++) {
			block = (n * g->queues + q) * LOAD_DEPTH + i * 13 %
				LOAD_DEPTH;
			EXPECT_EQ(*req[q][i]->status, VIRTIO_BLK_S_OK);
			if (in)
				EXPECT(rig_pattern_ok(slot_data(g, q, i), 4096,
						      block));
		}
	}
}

/* Each request took its time once, whatever it was. */
static void expect_counted(struct rig *g, u64 requests)
{
	struct vhost_blk_stats st;
	unsigned int q, i;
	u64 sum;

	for (q = 0; q < g->queues; q++) {
		rig_stats(g, q, &st);
		for (i = 0, sum = 0; i < VHOST_SERVE_HIST_BUCKETS; i++)
			sum += st.latency[i];
		EXPECT_EQ(st.reads + st.writes, requests);
		EXPECT_EQ(sum, requests);
		EXPECT_EQ(st.errors, 0);
	}
}

static void verified_load(const struct rig_opts *o, unsigned int rounds)
{
	unsigned int i;
	struct rig g;

	rig_open(&g, usual_disk(), o);
	for (i = 0; i < rounds; i++)
		load_round(&g, i, false);
	for (i = 0; i < rounds; i++)
		load_round(&g, i, true);
	expect_counted(&g, 2 * rounds * LOAD_DEPTH);
	rig_close(&g);
	backend_cleanup();
}

static void every_mode_moves_data_right(void)
{
	unsigned int mode, queues;

	for (mode = 0; mode < 3; mode++)
		for (queues = 1; queues <= 4; queues *= 4)
			verified_load(&(struct rig_opts){
				.mode = mode, .queues = queues,
			}, 8);
}

static void every_ring_feature_moves_data_right(void)
{
	static const u64 without[] = {
		FEATURE(VIRTIO_RING_F_EVENT_IDX),
		FEATURE(VIRTIO_RING_F_INDIRECT_DESC),
		FEATURE(VIRTIO_RING_F_EVENT_IDX) |
		FEATURE(VIRTIO_RING_F_INDIRECT_DESC),
	};
	struct rig_opts o = { 0 };
	unsigned int i;

	for (i = 0; i < 3 * KTAP_COUNT(without); i++) {
		o.mode = i % 3;
		o.without = without[i / 3];
		verified_load(&o, 4);
	}
}

static void a_poller_of_its_own_for_every_queue_moves_data_right(void)
{
	verified_load(&(struct rig_opts){
		.mode = VHOST_POLL_MODE_ADAPTIVE, .queues = 2,
		.poller_each = true,
	}, 8);
}

static void pinned_memory_moves_data_right(void)
{
	verified_load(&(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .queues = 2,
		.flags = VHOST_BLK_BACKEND_PINNED,
	}, 8);
}

/* Its pages are pinned for each request: they may be copied away else. */
static void private_memory_moves_data_right(void)
{
	unsigned int mode;

	for (mode = 0; mode < 3; mode++)
		verified_load(&(struct rig_opts){
			.mode = mode, .queues = 2, .private_memory = true,
		}, 8);
}

static void indices_wrap_at_65536(void)
{
	verified_load(&(struct rig_opts){
		.mode = VHOST_POLL_MODE_BUSY, .base = 65500,
	}, 4);
	verified_load(&(struct rig_opts){
		.mode = VHOST_POLL_MODE_EVENT, .base = 65500,
	}, 4);
}

#define TEST(f) { .name = #f, .run = f }

int main(int argc, char **argv)
{
	static const struct ktap_test tests[] = {
		TEST(read_and_write_reach_the_backend),
		TEST(used_length_counts_what_was_written),
		TEST(any_framing_in_the_ring),
		TEST(any_framing_in_an_indirect_table),
		TEST(a_table_may_be_in_any_order),
		TEST(data_may_share_a_descriptor_with_header_and_status),
		TEST(empty_descriptors_and_empty_requests_are_fine),
		TEST(a_request_of_many_segments_is_one_command),
		TEST(neighbours_of_one_round_merge),
		TEST(lengths_that_are_no_sectors_are_refused),
		TEST(nothing_beyond_the_end_is_reached),
		TEST(unknown_types_are_unsupported),
		TEST(get_id_gives_the_serial),
		TEST(read_only_by_flag_refuses_writes),
		TEST(read_only_by_descriptor_refuses_writes),
		TEST(write_zeroes_zeroes_exactly_its_range),
		TEST(write_zeroes_of_a_file_keeps_its_blocks),
		TEST(discard_frees_exactly_its_range),
		TEST(an_owner_may_have_all_blocks_kept),
		TEST(bad_ranges_are_refused),
		TEST(a_bad_block_fails_its_request_alone),
		TEST(every_mode_moves_data_right),
		TEST(every_ring_feature_moves_data_right),
		TEST(a_poller_of_its_own_for_every_queue_moves_data_right),
		TEST(pinned_memory_moves_data_right),
		TEST(private_memory_moves_data_right),
		TEST(indices_wrap_at_65536),
	};

	return ktap_main(argc, argv, tests, KTAP_COUNT(tests),
			 backend_cleanup);
}
