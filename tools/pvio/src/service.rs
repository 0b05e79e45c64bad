// SPDX-License-Identifier: GPL-2.0
//! What a kind of device has for itself: the boundary between a session and a disk or
//! a directory.

use std::io;

use serde::Serialize;
use vhost::vhost_user::VhostUserProtocolFeatures;

use crate::config;
use crate::error::Result;
use crate::kernel::Vhost;

/// Something that is served to front ends, one after another.
pub trait Service: Send {
    /// The kernel device: a fresh one for each front end.
    type Device: Vhost;
    /// Counters of a vring.
    type Stats: Serialize;

    /// The state of a device, as the kernel reports it.
    type Info: Serialize;

    /// What the counters' lines call it.
    const KIND: &'static str;
    /// Whether a device can go on after its process has executed another program.
    const HANDS_OVER: bool = false;
    /// The JSON key of that state.
    const INFO_KEY: &'static str;

    /// For messages: the path of what is served.
    fn name(&self) -> String;

    /// Opens a fresh kernel device that serves it.
    fn open(&mut self) -> Result<Self::Device>;

    /// Gives vring `index` of a fresh device its poller.
    fn place(&self, dev: &Self::Device, index: u32) -> Result<()>;

    /// Vrings the front end may use.
    fn queues(&self) -> u16;

    /// Whether the kernel pins all of the guest's memory.
    fn is_pinned(&self) -> bool;

    /// Virtio features the front end is offered, given what `vhost` offers.
    fn features(&self, vhost: u64) -> u64 {
        config::ring(vhost)
    }

    /// Virtio features that a guest may have without an offer, because what is served had them
    /// once, and because the kernel can answer what comes of them.
    fn tolerated(&self) -> u64 {
        0
    }

    /// Of the features the guest acknowledged, those the kernel has heard of.
    fn for_kernel(&self, acked: u64, vhost: u64) -> u64 {
        acked & !config::F_PROTOCOL & vhost
    }

    /// Protocol features beyond those of all sessions.
    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::empty()
    }

    /// The configuration space, where the front end has not its own.
    fn config(&mut self, _dev: &Self::Device) -> Result<Vec<u8>> {
        Err("the configuration space is the front end's own".into())
    }

    /// Why a guest that was told of an earlier configuration cannot go on with the device that
    /// was opened last.
    fn outgrown(&self) -> Option<String> {
        None
    }

    /// The size in bytes, if it is another one than last time.
    fn new_size(&mut self, _dev: Option<&Self::Device>) -> Result<Option<u64>> {
        Ok(None)
    }

    /// The state of a device now.
    fn device_info(&self, dev: &Self::Device) -> io::Result<Self::Info>;

    /// Counters of vring `index`.
    fn stats(&self, dev: &Self::Device, index: u32) -> io::Result<Self::Stats>;

    /// Whether requests of vring `index` have no answer yet.
    fn waits(&self, dev: &Self::Device, index: u32) -> io::Result<bool>;
}
