// SPDX-License-Identifier: GPL-2.0
//! Features of a virtio device, and the configuration space of virtio-blk.

use crate::uapi::BlkInfo;

/// `VIRTIO_BLK_F_FLUSH`
pub const F_FLUSH: u64 = 1 << 9;
/// `VIRTIO_BLK_F_CONFIG_WCE`
pub const F_CONFIG_WCE: u64 = 1 << 11;
/// `VIRTIO_BLK_F_DISCARD`
pub const F_DISCARD: u64 = 1 << 13;
/// `VIRTIO_BLK_F_WRITE_ZEROES`
pub const F_WRITE_ZEROES: u64 = 1 << 14;
/// `VIRTIO_BLK_F_MQ`
pub const F_MQ: u64 = 1 << 12;
/// `VIRTIO_RING_F_EVENT_IDX`
pub const F_EVENT_IDX: u64 = 1 << 29;
/// `VHOST_USER_F_PROTOCOL_FEATURES`: between the front end and us only.
pub const F_PROTOCOL: u64 = 1 << 30;
/// `VIRTIO_F_VERSION_1`
pub const F_VERSION_1: u64 = 1 << 32;

/// Bits that belong to virtio-blk itself.
const BLK_BITS: u64 = (1 << 24) - 1;
/// Bits of the transport the kernel device and we can do: NOTIFY_ON_EMPTY,
/// ANY_LAYOUT, INDIRECT_DESC, EVENT_IDX, VERSION_1. Not LOG_ALL (no migration),
/// not ACCESS_PLATFORM (no IOTLB), not RING_PACKED (vhost has none).
const RING_BITS: u64 = 1 << 24 | 1 << 27 | 1 << 28 | F_EVENT_IDX | 1 << 32;

/// Length of the part of the configuration space that means something.
pub const LEN: usize = 60;

/// Of what `vhost` offers, the transport's part; and the protocol's own bit.
pub fn ring(vhost: u64) -> u64 {
    (vhost & RING_BITS) | F_PROTOCOL
}

/// What the front end of a disk is offered, given what `vhost` offers and the backend
/// allows.
///
/// Never CONFIG_WCE: QEMU does not repeat the guest's choice to the next session.
/// Without FLUSH the kernel writes through.
pub fn offered(vhost: u64, info: &BlkInfo, writeback: bool) -> u64 {
    let flush = if writeback { F_FLUSH } else { 0 };
    let blk = BLK_BITS & !(F_CONFIG_WCE | F_FLUSH) | flush;
    (info.features & blk) | F_MQ | ring(vhost)
}

/// The features that a guest keeps when its disk loses them.
///
/// The kernel answers all of it in any case: a flush of a disk without a cache does nothing, and
/// a discard that the disk cannot do ends in UNSUPP. Not FLUSH if the guest is to have no cache:
/// the kernel would then not write through.
pub fn tolerated(writeback: bool) -> u64 {
    let flush = if writeback { F_FLUSH } else { 0 };
    flush | F_DISCARD | F_WRITE_ZEROES
}

/// Of the features the guest acknowledged, those the kernel has heard of.
pub fn for_kernel(acked: u64, vhost: u64, info: &BlkInfo) -> u64 {
    let known = vhost | info.features;
    acked & !F_PROTOCOL & (known | !F_MQ)
}

/// `struct virtio_blk_config`, little-endian.
///
/// A request has a header and a status besides its data, and must fit into the
/// ring for guests without indirect descriptors; so a ring of `queue_size` limits
/// the number of segments.
pub fn space(info: &BlkInfo, queues: u16, queue_size: u32, writeback: bool) -> [u8; LEN] {
    let seg_max = info.seg_max.clamp(1, queue_size.saturating_sub(2).max(1));
    let mut c = [0u8; LEN];
    let mut put = |at: usize, bytes: &[u8]| c[at..at + bytes.len()].copy_from_slice(bytes);

    put(0, &info.capacity.to_le_bytes());
    put(8, &info.size_max.to_le_bytes());
    put(12, &seg_max.to_le_bytes());
    // 16: geometry, not offered
    put(20, &info.blk_size.to_le_bytes());
    put(24, &[info.physical_block_exp, info.alignment_offset]);
    put(26, &info.min_io_size.to_le_bytes());
    put(28, &info.opt_io_size.to_le_bytes());
    put(32, &[writeback.into()]);
    put(34, &queues.to_le_bytes());
    put(36, &info.max_discard_sectors.to_le_bytes());
    put(40, &info.max_discard_seg.to_le_bytes());
    put(44, &info.discard_sector_alignment.to_le_bytes());
    put(48, &info.max_write_zeroes_sectors.to_le_bytes());
    put(52, &info.max_write_zeroes_seg.to_le_bytes());
    put(56, &[info.write_zeroes_may_unmap]);
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_offers_what_is_not_complete() {
        let info = BlkInfo {
            features: u64::MAX,
            ..Default::default()
        };
        let f = offered(u64::MAX, &info, true);
        for bit in [11, 26, 33, 34, 40] {
            assert_eq!(f & (1 << bit), 0, "bit {bit}");
        }
        for bit in [9, 12, 28, 29, 30, 32] {
            assert_ne!(f & (1 << bit), 0, "bit {bit}");
        }
        assert_eq!(offered(u64::MAX, &info, false), f & !F_FLUSH);
    }

    #[test]
    fn kernel_never_sees_protocol_bits() {
        let info = BlkInfo {
            features: F_FLUSH,
            ..Default::default()
        };
        assert_eq!(
            for_kernel(F_PROTOCOL | F_MQ | F_FLUSH, 1 << 32, &info),
            F_FLUSH
        );
        assert_eq!(for_kernel(F_MQ, F_MQ, &info), F_MQ);
    }

    #[test]
    fn segments_fit_the_ring() {
        let info = BlkInfo {
            seg_max: 1000,
            capacity: 0x0102,
            ..Default::default()
        };
        let c = space(&info, 3, 128, true);
        assert_eq!(c[..2], [2, 1]);
        assert_eq!(c[12], 126);
        assert_eq!(c[32], 1);
        assert_eq!(c[34], 3);
        assert_eq!(space(&info, 1, 2, false)[12], 1);
    }
}
