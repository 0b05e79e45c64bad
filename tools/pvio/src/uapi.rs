// SPDX-License-Identifier: GPL-2.0
//! `linux/vhost_poll.h`, `linux/vhost_serve.h`, `linux/vhost_blk.h` and
//! `linux/vhost_fs.h`, field by field.
//!
//! The headers explain the fields; here is only what the compiler needs. The
//! kernel takes shorter structures than its own and refuses longer ones whose
//! surplus is not zero, so that either side may be the newer one.

use std::mem::size_of;
use std::os::raw::c_int;

use serde::Serialize;
use vmm_sys_util::{ioctl_io_nr, ioctl_iow_nr, ioctl_iowr_nr};

/// The ioctl type both devices share with vhost.
pub const IOC: u32 = 0xAF;
/// Vrings a device can have.
pub const MAX_VRINGS: u32 = 64;
/// Length of the serial number, as virtio-blk has it.
pub const SERIAL_LEN: usize = 20;
/// Buckets of [`BlkStats::latency`].
pub const HIST_BUCKETS: usize = 32;
/// Let the kernel choose the hardware context.
pub const HCTX_AUTO: u32 = u32::MAX;

/// Refuse writes.
pub const BACKEND_READ_ONLY: u32 = 1 << 0;
/// Engine mq even if the backend has an I/O scheduler.
pub const BACKEND_BYPASS_SCHEDULER: u32 = 1 << 1;
/// Leave the backend's poll queues alone.
pub const BACKEND_NO_POLL_QUEUES: u32 = 1 << 2;
/// Pin the guest's memory when its table is set.
pub const BACKEND_PINNED: u32 = 1 << 3;
/// The guest frees no blocks.
pub const BACKEND_NO_DISCARD: u32 = 1 << 4;

/// `VHOST_BLK_ENGINE_FILE`
pub const ENGINE_FILE: u32 = 3;

/// The guest changes nothing.
pub const FS_EXPORT_READ_ONLY: u32 = 1 << 0;
/// Everything is done as one user, without capabilities.
pub const FS_EXPORT_SQUASH: u32 = 1 << 1;
/// No extended attributes but POSIX ACLs.
pub const FS_EXPORT_NO_XATTR: u32 = 1 << 2;
/// The guest's privileged attributes are the host's `user.virtiofs.*`.
pub const FS_EXPORT_MAP_XATTR: u32 = 1 << 3;
/// The guest's privileged attributes are the host's own.
pub const FS_EXPORT_RAW_XATTR: u32 = 1 << 4;
/// The host does not see the guest's locks.
pub const FS_EXPORT_LOCAL_LOCKS: u32 = 1 << 5;
/// No POSIX ACLs.
pub const FS_EXPORT_NO_ACL: u32 = 1 << 6;
/// The guest may write back what it caches: only the guest uses the directory.
pub const FS_EXPORT_WRITEBACK: u32 = 1 << 7;
/// File systems mounted beneath the directory are served, too, and marked for the guest.
pub const FS_EXPORT_SUBMOUNTS: u32 = 1 << 8;
/// The guest caches a file until it is opened again.
pub const FS_CACHE_AUTO: u32 = 0;
/// The guest caches nothing.
pub const FS_CACHE_NONE: u32 = 1;
/// The guest caches everything.
pub const FS_CACHE_ALWAYS: u32 = 2;

/// `struct vhost_poll_create`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct PollCreate {
    pub size: u32,
    pub flags: u32,
    pub cpu: u32,
    pub mode: u32,
    pub name: [u8; 16],
}

/// `struct vhost_blk_backend`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct BlkBackend {
    pub size: u32,
    pub flags: u32,
    pub fd: c_int,
    pub engine: u32,
    pub serial: [u8; SERIAL_LEN],
    pub pad: u32,
}

/// `struct vhost_blk_info`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct BlkInfo {
    #[serde(skip)]
    pub size: u32,
    pub flags: u32,
    pub engine: u32,
    pub nr_hctx: u32,
    pub nr_poll_hctx: u32,
    pub free_choice: u32,
    pub features: u64,
    pub capacity: u64,
    pub size_max: u32,
    pub seg_max: u32,
    pub blk_size: u32,
    pub physical_block_exp: u8,
    pub alignment_offset: u8,
    pub min_io_size: u16,
    pub opt_io_size: u32,
    pub max_discard_sectors: u32,
    pub max_discard_seg: u32,
    pub discard_sector_alignment: u32,
    pub max_write_zeroes_sectors: u32,
    pub max_write_zeroes_seg: u32,
    pub write_zeroes_may_unmap: u8,
    #[serde(skip)]
    pub pad: [u8; 7],
}

/// `struct vhost_serve_vring`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct BlkVring {
    pub size: u32,
    pub index: u32,
    pub poller_fd: c_int,
    pub hctx: u32,
    pub weight: u32,
    pub pad: u32,
}

/// `struct vhost_blk_stats`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[allow(missing_docs)]
pub struct BlkStats {
    #[serde(skip)]
    pub size: u32,
    pub index: u32,
    pub hctx: u32,
    pub engine: u32,
    pub poller_cpu: u32,
    pub inflight: u32,
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub write_zeroes: u64,
    pub get_ids: u64,
    pub unsupp: u64,
    pub errors: u64,
    pub malformed: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub merged: u64,
    pub commands: u64,
    pub punted: u64,
    pub kicks: u64,
    pub calls: u64,
    pub latency: [u64; HIST_BUCKETS],
    pub hot: u64,
}

/// `struct vhost_poll_stats`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[allow(missing_docs)]
pub struct PollStats {
    #[serde(skip)]
    pub size: u32,
    pub flags: u32,
    pub cpu: u32,
    pub mode: u32,
    pub sources: u32,
    pub state: u32,
    pub rounds: u64,
    pub rounds_hit: u64,
    pub work: u64,
    pub sleeps: u64,
    pub sleeps_timed: u64,
    pub wakeups: u64,
    pub busy_ns: u64,
    pub poll_ns: u64,
    pub sleep_ns: u64,
    pub idle_window_ns: u64,
    pub hot: u64,
    pub handoffs: u64,
}

/// `struct vhost_fs_export`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct FsExport {
    pub size: u32,
    pub flags: u32,
    pub fd: c_int,
    pub cache: u32,
    pub squash_uid: u32,
    pub squash_gid: u32,
    pub entry_timeout_ms: u32,
    pub attr_timeout_ms: u32,
    pub max_nodes: u32,
    pub max_handles: u32,
    pub max_locks: u32,
    pub max_dentries: u32,
}

/// `struct vhost_serve_stats`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[allow(missing_docs)]
pub struct ServeStats {
    #[serde(skip)]
    pub size: u32,
    pub index: u32,
    pub poller_cpu: u32,
    pub inflight: u32,
    pub requests: u64,
    pub malformed: u64,
    pub punted: u64,
    pub kicks: u64,
    pub calls: u64,
    pub latency: [u64; HIST_BUCKETS],
    pub hot: u64,
}

/// `struct vhost_fs_info`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[allow(missing_docs)]
pub struct FsInfo {
    #[serde(skip)]
    pub size: u32,
    pub flags: u32,
    pub state: u32,
    pub minor: u32,
    pub features: u64,
    pub fuse_flags: u64,
    pub max_nodes: u32,
    pub max_handles: u32,
    pub max_locks: u32,
    pub max_write: u32,
    pub nodes: u64,
    pub handles: u64,
    pub locks: u64,
    pub sessions: u64,
    pub refused: u64,
    pub max_dentries: u32,
    #[serde(skip)]
    pub pad: u32,
    pub dentries: u64,
    pub swapped_out: u64,
    pub swapped_in: u64,
    pub searches: u64,
}

// A size that drifts from the header's would change the ioctl's number.
const _: () = assert!(size_of::<PollCreate>() == 32);
const _: () = assert!(size_of::<BlkBackend>() == 40);
const _: () = assert!(size_of::<BlkInfo>() == 88);
const _: () = assert!(size_of::<BlkVring>() == 24);
const _: () = assert!(size_of::<BlkStats>() == 416);
const _: () = assert!(size_of::<PollStats>() == 120);
const _: () = assert!(size_of::<FsExport>() == 48);
const _: () = assert!(size_of::<FsInfo>() == 128);
const _: () = assert!(size_of::<ServeStats>() == 320);

/// The request numbers.
#[allow(missing_docs)]
pub mod nr {
    use super::*;

    ioctl_iow_nr!(VHOST_POLL_CREATE, IOC, 0xA0, PollCreate);
    ioctl_iowr_nr!(VHOST_POLL_GET_STATS, IOC, 0xA2, PollStats);
    ioctl_iow_nr!(VHOST_BLK_SET_BACKEND, IOC, 0xD0, BlkBackend);
    ioctl_iowr_nr!(VHOST_BLK_GET_INFO, IOC, 0xD1, BlkInfo);
    ioctl_iow_nr!(VHOST_SERVE_SET_VRING, IOC, 0xB0, BlkVring);
    ioctl_iowr_nr!(VHOST_BLK_GET_STATS, IOC, 0xD3, BlkStats);
    ioctl_io_nr!(VHOST_SERVE_START, IOC, 0xB1);
    ioctl_io_nr!(VHOST_SERVE_STOP, IOC, 0xB2);
    ioctl_iowr_nr!(VHOST_SERVE_GET_STATS, IOC, 0xB3, ServeStats);
    ioctl_io_nr!(VHOST_SERVE_HAND_OVER, IOC, 0xB4);
    ioctl_io_nr!(VHOST_SERVE_GO_ON, IOC, 0xB5);
    ioctl_iow_nr!(VHOST_FS_SET_EXPORT, IOC, 0xC0, FsExport);
    ioctl_iowr_nr!(VHOST_FS_GET_INFO, IOC, 0xC1, FsInfo);
}
