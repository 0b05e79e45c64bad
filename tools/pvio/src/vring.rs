// SPDX-License-Identifier: GPL-2.0
//! What a session knows of one vring.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::handover::KeptVring;
use crate::kernel::VringFd;

#[derive(Default, Clone)]
pub struct Vring {
    pub num: u32,
    pub addr: Option<RingAddr>,
    pub kick: bool,
    pub enabled: bool,
    pub running: bool,
    /// It ran, or was reset, on this connection: the kernel knows where it goes on.
    pub known: bool,
    /// Its descriptors, for a successor. The kernel has references of its own.
    pub fds: [Option<Arc<File>>; 3],
}

#[derive(Clone, Copy)]
pub struct RingAddr {
    pub desc: u64,
    pub avail: u64,
    pub used: u64,
}

impl Vring {
    pub fn keep(&self, index: u32, base: u32) -> KeptVring {
        let fd = |which: VringFd| self.fds[which as usize].as_ref().map(|f| f.as_raw_fd());
        KeptVring {
            index,
            num: self.num,
            base,
            known: self.known,
            addr: self.addr.map(|a| (a.desc, a.avail, a.used)),
            kick: fd(VringFd::Kick),
            call: fd(VringFd::Call),
            err: fd(VringFd::Err),
            enabled: self.enabled,
        }
    }
}
