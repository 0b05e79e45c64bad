// SPDX-License-Identifier: GPL-2.0
//! The kernel's side: `/dev/vhost-blk` and `/dev/vhost-fs` behind traits, and
//! `/dev/vhost-poll`.
//!
//! [`Vhost`] is the boundary: above it is the protocol, which unit tests drive against
//! a device made of memory; below it are ioctls and nothing else. [`BlkDevice`] and
//! [`FsDevice`] add what a disk and a directory have each for themselves.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use nix::fcntl::{fcntl, FcntlArg};
use nix::sys::resource::{getrlimit, Resource};
use vhost::vhost_kern::vhost_binding::{
    vhost_memory_region, vhost_vring_addr, vhost_vring_file, vhost_vring_state, VhostMemory,
    VHOST_GET_FEATURES, VHOST_GET_VRING_BASE, VHOST_RESET_OWNER, VHOST_SET_FEATURES,
    VHOST_SET_MEM_TABLE, VHOST_SET_OWNER, VHOST_SET_VRING_ADDR, VHOST_SET_VRING_BASE,
    VHOST_SET_VRING_CALL, VHOST_SET_VRING_ERR, VHOST_SET_VRING_KICK, VHOST_SET_VRING_NUM,
};
use vmm_sys_util::ioctl::{
    ioctl, ioctl_with_mut_ref, ioctl_with_ptr, ioctl_with_ref, ioctl_with_val,
};

use crate::host;
use crate::uapi::{
    self, BlkBackend, BlkInfo, BlkStats, BlkVring, FsExport, FsInfo, PollCreate, PollStats,
    ServeStats,
};

/// Path of the block device's control node.
pub const DEV_BLK: &str = "/dev/vhost-blk";
/// Path of the directory's control node.
pub const DEV_FS: &str = "/dev/vhost-fs";
/// Path of the poller's control node.
pub const DEV_POLL: &str = "/dev/vhost-poll";

/// One of the three descriptors of a vring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VringFd {
    /// The guest says: there is something in the available ring.
    Kick,
    /// The device says: there is something in the used ring.
    Call,
    /// The device says: this ring is broken.
    Err,
}

/// The poller of a vring, and where the vring submits to.
#[derive(Debug, Clone, Copy)]
pub struct Placement {
    /// The vring.
    pub index: u32,
    /// A `/dev/vhost-poll` descriptor.
    pub poller: RawFd,
    /// Hardware context, or [`uapi::HCTX_AUTO`].
    pub hctx: u32,
    /// Share of the poller's round; 0 is the default.
    pub weight: u32,
}

impl Placement {
    /// The poller of vring `index`, where vrings are dealt out in turn.
    pub fn poller_of(pollers: &[RawFd], index: u32) -> RawFd {
        let turn = index as usize % pollers.len().max(1);
        pollers.get(turn).copied().unwrap_or(-1)
    }
}

/// What the bridge asks of any device in the kernel that serves vrings.
#[allow(missing_docs)] // named after the ioctls, which the headers explain
pub trait Vhost: Send {
    fn features(&self) -> io::Result<u64>;
    fn set_features(&self, features: u64) -> io::Result<()>;
    fn set_mem_table(&self, regions: &[vhost_memory_region]) -> io::Result<()>;
    fn set_vring_num(&self, index: u32, num: u32) -> io::Result<()>;
    fn set_vring_addr(&self, addr: &vhost_vring_addr) -> io::Result<()>;
    fn set_vring_base(&self, index: u32, base: u32) -> io::Result<()>;
    fn vring_base(&self, index: u32) -> io::Result<u32>;
    fn set_vring_fd(&self, which: VringFd, index: u32, fd: Option<RawFd>) -> io::Result<()>;
    fn place_vring(&self, placement: &Placement) -> io::Result<()>;
    fn start(&self, index: u32) -> io::Result<()>;
    fn stop(&self, index: u32) -> io::Result<()>;
    fn go_on(&self, index: u32) -> io::Result<()>;
    fn reset_owner(&self) -> io::Result<()>;
    fn hand_over(&self) -> io::Result<()>;
    fn descriptor(&self) -> RawFd;
}

/// A block device.
#[allow(missing_docs)]
pub trait BlkDevice: Vhost {
    fn set_backend(&self, backend: &BlkBackend) -> io::Result<()>;
    fn info(&self) -> io::Result<BlkInfo>;
    fn stats(&self, index: u32) -> io::Result<BlkStats>;
}

/// A directory.
#[allow(missing_docs)]
pub trait FsDevice: Vhost {
    fn set_export(&self, export: &FsExport) -> io::Result<()>;
    fn info(&self) -> io::Result<FsInfo>;
    fn stats(&self, index: u32) -> io::Result<ServeStats>;
}

/// Makes a fresh device for each front end.
pub type Opener<D> = Arc<dyn Fn() -> io::Result<D> + Send + Sync>;

/// `/dev/vhost-blk` or `/dev/vhost-fs`.
pub struct Node {
    file: File,
}

impl Node {
    /// `/dev/vhost-blk`
    pub fn blk() -> io::Result<Self> {
        Self::open(DEV_BLK)
    }

    /// `/dev/vhost-fs`
    pub fn fs() -> io::Result<Self> {
        Self::open(DEV_FS)
    }

    /// Opens the device and becomes its owner: from here on it reads and
    /// writes this process's memory, which is where guests are mapped.
    fn open(path: &str) -> io::Result<Self> {
        Self::own(above_sockets(&open_rw(path)?)?)
    }

    /// Becomes the owner of a device that a pvio before this one has handed over. Its number
    /// is above any socket's, see [`above_sockets`].
    pub fn inherit(device: OwnedFd) -> io::Result<Self> {
        Self::own(device.into())
    }

    fn own(file: File) -> io::Result<Self> {
        let dev = Self { file };
        // SAFETY: takes no argument; the descriptor is ours.
        check(unsafe { ioctl(&dev.file, VHOST_SET_OWNER()) })?;
        Ok(dev)
    }
}

/// Duplicates `file` to a descriptor number above any socket's.
///
/// When this process is killed, the kernel device must finish its requests
/// before the front end sees its socket close, because then the front end
/// reads the used index and goes on from there. The kernel closes the highest
/// descriptor first. Front ends bring one for each memory region, too: half of all
/// numbers are left to those.
fn above_sockets(file: &File) -> io::Result<File> {
    for min in [half_of_descriptors(), 192, 0] {
        if let Ok(fd) = fcntl(file, FcntlArg::F_DUPFD_CLOEXEC(min)) {
            // SAFETY: fcntl has just made this descriptor, and no other owns it.
            return Ok(unsafe { File::from_raw_fd(fd) });
        }
    }
    Err(io::Error::last_os_error())
}

fn half_of_descriptors() -> i32 {
    /// The kernel's table is as long as the highest number.
    const MOST: u64 = 65536;
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, 0));
    (limit / 2).min(MOST) as i32
}

fn open_rw(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn check(ret: i32) -> io::Result<()> {
    if ret < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl Vhost for Node {
    fn features(&self) -> io::Result<u64> {
        let mut features = 0u64;
        // SAFETY: the kernel writes one u64.
        check(unsafe { ioctl_with_mut_ref(&self.file, VHOST_GET_FEATURES(), &mut features) })?;
        Ok(features)
    }

    fn set_features(&self, features: u64) -> io::Result<()> {
        // SAFETY: the kernel reads one u64.
        check(unsafe { ioctl_with_ref(&self.file, VHOST_SET_FEATURES(), &features) })
    }

    fn set_mem_table(&self, regions: &[vhost_memory_region]) -> io::Result<()> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let count = u16::try_from(regions.len()).map_err(|_| invalid())?;
        let mut table = VhostMemory::new(count);
        for (i, region) in regions.iter().enumerate() {
            table.set_region(i as u32, region).map_err(|_| invalid())?;
        }
        // SAFETY: the table lives until the call is over, and has room for
        // the number of regions it states.
        check(unsafe { ioctl_with_ptr(&self.file, VHOST_SET_MEM_TABLE(), table.as_ptr()) })
    }

    fn set_vring_num(&self, index: u32, num: u32) -> io::Result<()> {
        let state = vhost_vring_state { index, num };
        // SAFETY: the kernel reads one vhost_vring_state.
        check(unsafe { ioctl_with_ref(&self.file, VHOST_SET_VRING_NUM(), &state) })
    }

    fn set_vring_addr(&self, addr: &vhost_vring_addr) -> io::Result<()> {
        // SAFETY: the kernel reads one vhost_vring_addr.
        check(unsafe { ioctl_with_ref(&self.file, VHOST_SET_VRING_ADDR(), addr) })
    }

    fn set_vring_base(&self, index: u32, base: u32) -> io::Result<()> {
        let state = vhost_vring_state { index, num: base };
        // SAFETY: the kernel reads one vhost_vring_state.
        check(unsafe { ioctl_with_ref(&self.file, VHOST_SET_VRING_BASE(), &state) })
    }

    fn vring_base(&self, index: u32) -> io::Result<u32> {
        let mut state = vhost_vring_state { index, num: 0 };
        // SAFETY: the kernel reads and writes one vhost_vring_state.
        check(unsafe { ioctl_with_mut_ref(&self.file, VHOST_GET_VRING_BASE(), &mut state) })?;
        Ok(state.num)
    }

    fn set_vring_fd(&self, which: VringFd, index: u32, fd: Option<RawFd>) -> io::Result<()> {
        let request = match which {
            VringFd::Kick => VHOST_SET_VRING_KICK(),
            VringFd::Call => VHOST_SET_VRING_CALL(),
            VringFd::Err => VHOST_SET_VRING_ERR(),
        };
        let file = vhost_vring_file {
            index,
            fd: fd.unwrap_or(-1),
        };
        // SAFETY: the kernel reads one vhost_vring_file, and takes its own
        // reference on the descriptor in it.
        check(unsafe { ioctl_with_ref(&self.file, request, &file) })
    }

    fn place_vring(&self, placement: &Placement) -> io::Result<()> {
        let vring = BlkVring {
            size: size_of::<BlkVring>() as u32,
            index: placement.index,
            poller_fd: placement.poller,
            hctx: placement.hctx,
            weight: placement.weight,
            pad: 0,
        };
        // SAFETY: the kernel reads one vhost_serve_vring, whose size is in it.
        check(unsafe { ioctl_with_ref(&self.file, uapi::nr::VHOST_SERVE_SET_VRING(), &vring) })
    }

    fn start(&self, index: u32) -> io::Result<()> {
        // SAFETY: the argument is a number, not an address.
        check(unsafe {
            ioctl_with_val(&self.file, uapi::nr::VHOST_SERVE_START(), u64::from(index))
        })
    }

    fn stop(&self, index: u32) -> io::Result<()> {
        // SAFETY: the argument is a number, not an address.
        check(unsafe { ioctl_with_val(&self.file, uapi::nr::VHOST_SERVE_STOP(), u64::from(index)) })
    }

    fn go_on(&self, index: u32) -> io::Result<()> {
        // SAFETY: the argument is a number, not an address.
        check(unsafe {
            ioctl_with_val(&self.file, uapi::nr::VHOST_SERVE_GO_ON(), u64::from(index))
        })
    }

    fn reset_owner(&self) -> io::Result<()> {
        // SAFETY: there is no argument.
        check(unsafe { ioctl(&self.file, VHOST_RESET_OWNER()) })
    }

    fn hand_over(&self) -> io::Result<()> {
        // SAFETY: there is no argument.
        check(unsafe { ioctl(&self.file, uapi::nr::VHOST_SERVE_HAND_OVER()) })
    }

    fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl BlkDevice for Node {
    fn set_backend(&self, backend: &BlkBackend) -> io::Result<()> {
        // SAFETY: the kernel reads one vhost_blk_backend, whose size is in it.
        check(unsafe { ioctl_with_ref(&self.file, uapi::nr::VHOST_BLK_SET_BACKEND(), backend) })
    }

    fn info(&self) -> io::Result<BlkInfo> {
        let mut info = BlkInfo {
            size: size_of::<BlkInfo>() as u32,
            ..Default::default()
        };
        // SAFETY: the kernel writes no more than the size stated in it.
        check(unsafe {
            ioctl_with_mut_ref(&self.file, uapi::nr::VHOST_BLK_GET_INFO(), &mut info)
        })?;
        Ok(info)
    }

    fn stats(&self, index: u32) -> io::Result<BlkStats> {
        let mut stats = BlkStats {
            size: size_of::<BlkStats>() as u32,
            index,
            ..Default::default()
        };
        // SAFETY: the kernel writes no more than the size stated in it.
        check(unsafe {
            ioctl_with_mut_ref(&self.file, uapi::nr::VHOST_BLK_GET_STATS(), &mut stats)
        })?;
        Ok(stats)
    }
}

impl FsDevice for Node {
    fn set_export(&self, export: &FsExport) -> io::Result<()> {
        // SAFETY: the kernel reads one vhost_fs_export, whose size is in it.
        check(unsafe { ioctl_with_ref(&self.file, uapi::nr::VHOST_FS_SET_EXPORT(), export) })
    }

    fn info(&self) -> io::Result<FsInfo> {
        let mut info = FsInfo {
            size: size_of::<FsInfo>() as u32,
            ..Default::default()
        };
        // SAFETY: the kernel writes no more than the size stated in it.
        check(unsafe { ioctl_with_mut_ref(&self.file, uapi::nr::VHOST_FS_GET_INFO(), &mut info) })?;
        Ok(info)
    }

    fn stats(&self, index: u32) -> io::Result<ServeStats> {
        let mut stats = ServeStats {
            size: size_of::<ServeStats>() as u32,
            index,
            ..Default::default()
        };
        // SAFETY: the kernel writes no more than the size stated in it.
        check(unsafe {
            ioctl_with_mut_ref(&self.file, uapi::nr::VHOST_SERVE_GET_STATS(), &mut stats)
        })?;
        Ok(stats)
    }
}

/// How a poller waits for work; the numbers are the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PollMode {
    /// polls while that pays off, and sleeps otherwise
    Adaptive = 0,
    /// never sleeps
    Busy = 1,
    /// sleeps at once; each notification by the guest wakes it
    Event = 2,
}

fn explain_cpu(cpu: u32, e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::EPERM) => {
            format!("no permission to poll from CPU {cpu}: run pvio as root, or with CAP_SYS_NICE")
        }
        Some(libc::ENODEV) => format!("CPU {cpu} is offline: choose another --poll-cpu"),
        _ => format!("cannot make a poller on CPU {cpu}: {e}"),
    }
}

/// A kernel thread that polls vrings, kept for as long as this lives.
pub struct Poller {
    file: File,
}

impl Poller {
    /// Starts a poller on `cpu`; an error is a sentence for the user.
    pub fn create(cpu: u32, mode: PollMode, name: &str) -> crate::Result<Self> {
        let file = open_rw(DEV_POLL).map_err(|e| host::explain_node(DEV_POLL, &e))?;
        let poller = Self { file };
        let bound = poller.bind(cpu, mode, name);
        bound.map_err(|e| explain_cpu(cpu, &e))?;
        Ok(poller)
    }

    /// One that a pvio before this one has made. It does not matter to the kernel which program,
    /// or which address space, holds it.
    pub fn inherit(poller: OwnedFd) -> Self {
        Self {
            file: poller.into(),
        }
    }

    /// What it has done since it was made.
    pub fn stats(&self) -> io::Result<PollStats> {
        let mut stats = PollStats {
            size: size_of::<PollStats>() as u32,
            ..Default::default()
        };
        // SAFETY: the kernel writes no more than the size stated in it.
        check(unsafe {
            ioctl_with_mut_ref(&self.file, uapi::nr::VHOST_POLL_GET_STATS(), &mut stats)
        })?;
        Ok(stats)
    }

    fn bind(&self, cpu: u32, mode: PollMode, name: &str) -> io::Result<()> {
        let mut create = PollCreate {
            size: size_of::<PollCreate>() as u32,
            cpu,
            mode: mode as u32,
            ..Default::default()
        };
        // The kernel wants a terminated string of visible ASCII.
        let room = create.name.len() - 1;
        for (to, from) in create.name[..room].iter_mut().zip(name.bytes()) {
            *to = if from.is_ascii_graphic() { from } else { b'_' };
        }
        // SAFETY: the kernel reads one vhost_poll_create, whose size is in it.
        check(unsafe { ioctl_with_ref(&self.file, uapi::nr::VHOST_POLL_CREATE(), &create) })
    }
}

impl AsRawFd for Poller {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_above_all_that_front_ends_bring() {
        let null = open_rw("/dev/null").unwrap();
        let high = above_sockets(&null).unwrap();
        assert!(high.as_raw_fd() >= half_of_descriptors());
        let second = above_sockets(&null).unwrap();
        assert!(second.as_raw_fd() > high.as_raw_fd());
    }
}
