// SPDX-License-Identifier: GPL-2.0
//! A disk, as a [`Service`]: `/dev/vhost-blk` serves it.

use std::io;
use std::os::fd::RawFd;

use vhost::vhost_user::VhostUserProtocolFeatures;

use crate::config;
use crate::disk::Disk;
use crate::error::{Context, Result};
use crate::host;
use crate::kernel::{BlkDevice, Node, Opener, Placement, DEV_BLK};
use crate::service::Service;
use crate::uapi::{self, BlkInfo, BlkStats};

/// How a disk is presented and served.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Vrings the front end may use.
    pub queues: u16,
    /// Size of the vrings it will be told to use; see [`config::space`].
    pub queue_size: u32,
    /// Pollers, one descriptor each; vring i goes to number i modulo their count.
    pub pollers: Vec<RawFd>,
    /// Hardware contexts, in turn; empty: the kernel chooses.
    pub hctx: Vec<u32>,
    /// Share of a poller's round; 0 is the default.
    pub weight: u32,
    /// Whether a write is done before it is on the medium, and the guest flushes.
    pub writeback: bool,
}

/// A disk that is served by devices of type `D`.
pub struct Blk<D> {
    disk: Disk,
    settings: Settings,
    opener: Opener<D>,
    size: u64,
    info: BlkInfo,
    /// The block size that a front end has asked for last.
    told: Option<u32>,
}

impl<D: BlkDevice> Blk<D> {
    /// Serves `disk` with devices from `opener`.
    pub fn new(disk: Disk, settings: Settings, opener: Opener<D>) -> Self {
        Self {
            disk,
            settings,
            opener,
            size: 0,
            info: BlkInfo::default(),
            told: None,
        }
    }

    /// What the kernel says of the disk.
    pub fn info(&self) -> &BlkInfo {
        &self.info
    }
}

impl<D: BlkDevice> Service for Blk<D> {
    type Device = D;
    type Stats = BlkStats;
    type Info = BlkInfo;

    const KIND: &'static str = "disk";
    const INFO_KEY: &'static str = "backend";

    fn name(&self) -> String {
        self.disk.path.display().to_string()
    }

    fn open(&mut self) -> Result<D> {
        let dev = (self.opener)().map_err(|e| host::explain_node(DEV_BLK, &e))?;
        dev.set_backend(&self.disk.backend())
            .map_err(|e| self.disk.explain_backend(&e))?;
        self.size = self.disk.size().context(self.name())?;
        self.info = dev.info().context(self.name())?;
        Ok(dev)
    }

    fn place(&self, dev: &D, index: u32) -> Result<()> {
        let turn = |list: &[u32]| list.get(index as usize % list.len().max(1)).copied();
        let placement = Placement {
            index,
            poller: Placement::poller_of(&self.settings.pollers, index),
            hctx: turn(&self.settings.hctx).unwrap_or(uapi::HCTX_AUTO),
            weight: self.settings.weight,
        };
        dev.place_vring(&placement)
            .map_err(|e| explain_placement(&placement, &e).into())
    }

    fn queues(&self) -> u16 {
        self.settings.queues
    }

    fn is_pinned(&self) -> bool {
        self.disk.backend().flags & uapi::BACKEND_PINNED != 0
    }

    fn features(&self, vhost: u64) -> u64 {
        config::offered(vhost, &self.info, self.settings.writeback)
    }

    fn tolerated(&self) -> u64 {
        config::tolerated(self.settings.writeback)
    }

    fn for_kernel(&self, acked: u64, vhost: u64) -> u64 {
        config::for_kernel(acked, vhost, &self.info)
    }

    /// The channel is for the news of a size.
    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::BACKEND_REQ
    }

    fn config(&mut self, dev: &D) -> Result<Vec<u8>> {
        self.info = dev
            .info()
            .context("cannot read the state of the kernel device")?;
        self.told = Some(self.info.blk_size);
        let s = &self.settings;
        Ok(config::space(&self.info, s.queues, s.queue_size, s.writeback).to_vec())
    }

    /// Requests of less than a block would fail, but for image files, of which the kernel serves
    /// any sector.
    fn outgrown(&self) -> Option<String> {
        let now = self.info.blk_size;
        let told = self.told.filter(|&told| told < now)?;
        (self.info.engine != uapi::ENGINE_FILE).then(|| {
            format!(
                "the guest knows {} as a disk with blocks of {told} bytes, and they are {now} \
                 bytes now; restart the VM",
                self.name()
            )
        })
    }

    fn new_size(&mut self, dev: Option<&D>) -> Result<Option<u64>> {
        let size = self.disk.size().context(self.name())?;
        if size == self.size {
            return Ok(None);
        }
        // The kernel looks at the size with each request; the rest is for the guest.
        if let Some(dev) = dev {
            self.info = dev
                .info()
                .context("cannot read the state of the kernel device")?;
        }
        self.size = size;
        Ok(Some(size))
    }

    fn device_info(&self, dev: &D) -> io::Result<BlkInfo> {
        dev.info()
    }

    fn stats(&self, dev: &D, index: u32) -> io::Result<BlkStats> {
        dev.stats(index)
    }

    fn waits(&self, dev: &D, index: u32) -> io::Result<bool> {
        Ok(dev.stats(index)?.inflight != 0)
    }
}

fn explain_placement(p: &Placement, e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::EOPNOTSUPP) => format!(
            "vring {} cannot submit to hardware context {} from its poller's CPU: this kernel has \
             no block-layer patch, so give a --poll-cpu of that context \
             (/sys/block/DISK/mq/{}/cpu_list), or leave out --hctx",
            p.index, p.hctx, p.hctx
        ),
        Some(libc::EINVAL) => {
            format!(
                "--hctx {}: the disk has no such hardware context (/sys/block/DISK/mq lists \
                 them), or its engine uses none (see --engine)",
                p.hctx
            )
        }
        _ => format!("cannot give vring {} a poller: {e}", p.index),
    }
}

/// For [`Blk::new`]: the real device.
pub fn kernel_opener() -> Opener<Node> {
    std::sync::Arc::new(Node::blk)
}
