// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of parse.h: how vhost_blk reads a request from the descriptors of a guest. */
#include <kunit/test.h>
#include <linux/blk_types.h>
#include <linux/module.h>

#include "parse.h"

/* The tested functions do not read the buffers, so the tests can use any address. */
static struct iovec buf(unsigned long addr, size_t len)
{
	return (struct iovec){ .iov_base = (void __user *)addr, .iov_len = len };
}

static const struct vblk_limits limits = {
	.capacity = 1000,
	.block_sectors = 1,
	.max_bytes = 1 << 20,
	.max_discard_sectors = 100,
	.max_write_zeroes_sectors = 50,
	.max_discard_ranges = 2,
};

static void status_is_last_writable_byte(struct kunit *test)
{
	struct iovec iov[] = { buf(0x1000, 16), buf(0x2000, 512), buf(0x3000, 1) };
	struct vblk_chain chain;

	KUNIT_ASSERT_TRUE(test, vblk_split_chain(iov, 1, 2, &chain));
	KUNIT_EXPECT_EQ(test, (unsigned long)chain.status, 0x3000UL);
	KUNIT_EXPECT_EQ(test, chain.in.len, 512);
	KUNIT_EXPECT_EQ(test, chain.out.len, 16);
}

static void status_shares_a_buffer_with_data(struct kunit *test)
{
	struct iovec iov[] = { buf(0x1000, 16), buf(0x2000, 513) };
	struct vblk_chain chain;

	KUNIT_ASSERT_TRUE(test, vblk_split_chain(iov, 1, 1, &chain));
	KUNIT_EXPECT_EQ(test, (unsigned long)chain.status, 0x2200UL);
	KUNIT_EXPECT_EQ(test, chain.in.len, 512);
}

static void status_skips_empty_buffers(struct kunit *test)
{
	struct iovec iov[] = { buf(0x1000, 16), buf(0x2000, 1), buf(0x3000, 0) };
	struct vblk_chain chain;

	KUNIT_ASSERT_TRUE(test, vblk_split_chain(iov, 1, 2, &chain));
	KUNIT_EXPECT_EQ(test, (unsigned long)chain.status, 0x2000UL);
	KUNIT_EXPECT_EQ(test, chain.in.len, 0);
}

static void no_place_for_a_status_is_refused(struct kunit *test)
{
	struct iovec iov[] = { buf(0x1000, 16), buf(0x2000, 0) };
	struct vblk_chain chain;

	KUNIT_EXPECT_FALSE(test, vblk_split_chain(iov, 2, 0, &chain));
	KUNIT_EXPECT_FALSE(test, vblk_split_chain(iov, 1, 1, &chain));
	KUNIT_EXPECT_FALSE(test, vblk_split_chain(iov, 0, 0, &chain));
}

static void span_advances_over_split_headers(struct kunit *test)
{
	struct iovec iov[] = { buf(0x1000, 3), buf(0x2000, 13), buf(0x3000, 512) };
	struct vblk_span span = { .iov = iov, .len = 528 };

	vblk_span_advance(&span, 2);
	KUNIT_EXPECT_PTR_EQ(test, span.iov, (const struct iovec *)&iov[0]);
	KUNIT_EXPECT_EQ(test, span.skip, 2);
	vblk_span_advance(&span, 14);
	KUNIT_EXPECT_PTR_EQ(test, span.iov, (const struct iovec *)&iov[2]);
	KUNIT_EXPECT_EQ(test, span.skip, 0);
	KUNIT_EXPECT_EQ(test, span.len, 512);
	vblk_span_advance(&span, 512);
	KUNIT_EXPECT_EQ(test, span.len, 0);
}

static u8 rw(u64 sector, size_t bytes)
{
	return vblk_check_rw(&limits, sector, bytes, true);
}

static void range_checks_do_not_wrap(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, rw(0, 512), VIRTIO_BLK_S_OK);
	KUNIT_EXPECT_EQ(test, rw(999, 512), VIRTIO_BLK_S_OK);
	KUNIT_EXPECT_EQ(test, rw(1000, 0), VIRTIO_BLK_S_OK);
	KUNIT_EXPECT_EQ(test, rw(999, 1024), VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, rw(1000, 512), VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, rw(U64_MAX, 512), VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, rw(U64_MAX, 1024), VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, rw(U64_MAX >> 9, 512), VIRTIO_BLK_S_IOERR);
}

static void lengths_are_whole_blocks(struct kunit *test)
{
	struct vblk_limits lim = limits;

	KUNIT_EXPECT_EQ(test, rw(0, 511), VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, rw(0, (1 << 20) + 512), VIRTIO_BLK_S_IOERR);
	lim.block_sectors = 8;
	KUNIT_EXPECT_EQ(test, vblk_check_rw(&lim, 8, 4096, true),
			VIRTIO_BLK_S_OK);
	KUNIT_EXPECT_EQ(test, vblk_check_rw(&lim, 1, 4096, true),
			VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, vblk_check_rw(&lim, 8, 512, true),
			VIRTIO_BLK_S_IOERR);
}

static void read_only_refuses_changes_only(struct kunit *test)
{
	struct vblk_limits lim = limits;

	lim.read_only = true;
	KUNIT_EXPECT_EQ(test, vblk_check_rw(&lim, 0, 512, false),
			VIRTIO_BLK_S_OK);
	KUNIT_EXPECT_EQ(test, vblk_check_rw(&lim, 0, 512, true),
			VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, vblk_check_ranges(&lim, VIRTIO_BLK_T_DISCARD, 16),
			VIRTIO_BLK_S_IOERR);
}

static void payload_is_a_bounded_list(struct kunit *test)
{
	struct vblk_limits lim = limits;
	u32 type = VIRTIO_BLK_T_DISCARD;

	KUNIT_EXPECT_EQ(test, vblk_check_ranges(&lim, type, 32), VIRTIO_BLK_S_OK);
	KUNIT_EXPECT_EQ(test, vblk_check_ranges(&lim, type, 0), VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, vblk_check_ranges(&lim, type, 17), VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, vblk_check_ranges(&lim, type, 48), VIRTIO_BLK_S_IOERR);
	lim.max_discard_sectors = 0;
	KUNIT_EXPECT_EQ(test, vblk_check_ranges(&lim, type, 16), VIRTIO_BLK_S_UNSUPP);
	/* A request to write zeroes has one range, because the device offers no more. */
	type = VIRTIO_BLK_T_WRITE_ZEROES;
	KUNIT_EXPECT_EQ(test, vblk_check_ranges(&lim, type, 16), VIRTIO_BLK_S_OK);
	KUNIT_EXPECT_EQ(test, vblk_check_ranges(&lim, type, 32), VIRTIO_BLK_S_IOERR);
}

static u8 range(u32 type, u64 sector, u32 sectors, u32 flags)
{
	struct vblk_range r = { sector, sectors, flags };

	return vblk_check_range(&limits, type, &r);
}

static void ranges_are_checked(struct kunit *test)
{
	u32 d = VIRTIO_BLK_T_DISCARD, w = VIRTIO_BLK_T_WRITE_ZEROES;

	KUNIT_EXPECT_EQ(test, range(d, 0, 100, 0), VIRTIO_BLK_S_OK);
	KUNIT_EXPECT_EQ(test, range(d, 0, 101, 0), VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, range(w, 0, 51, 0), VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, range(d, 950, 51, 0), VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, range(d, U64_MAX, 2, 0), VIRTIO_BLK_S_IOERR);
	KUNIT_EXPECT_EQ(test, range(d, 0, 1, 1), VIRTIO_BLK_S_UNSUPP);
	KUNIT_EXPECT_EQ(test, range(w, 0, 1, 1), VIRTIO_BLK_S_OK);
	KUNIT_EXPECT_EQ(test, range(w, 0, 1, 2), VIRTIO_BLK_S_UNSUPP);
}

static struct kunit_case parse_cases[] = {
	KUNIT_CASE(status_is_last_writable_byte),
	KUNIT_CASE(status_shares_a_buffer_with_data),
	KUNIT_CASE(status_skips_empty_buffers),
	KUNIT_CASE(no_place_for_a_status_is_refused),
	KUNIT_CASE(span_advances_over_split_headers),
	KUNIT_CASE(range_checks_do_not_wrap),
	KUNIT_CASE(lengths_are_whole_blocks),
	KUNIT_CASE(read_only_refuses_changes_only),
	KUNIT_CASE(payload_is_a_bounded_list),
	KUNIT_CASE(ranges_are_checked),
	{}
};

static struct kunit_suite parse_suite = {
	.name = "vhost_blk_parse",
	.test_cases = parse_cases,
};

kunit_test_suite(parse_suite);

MODULE_IMPORT_NS(EXPORTED_FOR_KUNIT_TESTING);
MODULE_DESCRIPTION("KUnit tests of vhost_blk's request parser");
MODULE_LICENSE("GPL");
