// SPDX-License-Identifier: GPL-2.0
//! What one front end and one kernel device have to say to each other, whatever the
//! device serves: see [`Service`].
//!
//! A session lives as long as its process; a kernel device as long as a front
//! end's connection, so that nothing of one guest's state meets the next.
//!
//! A vring runs (the kernel's poller serves it) exactly while the front end
//! has given it a size, addresses, a kick descriptor and enabled it, and its
//! rings lie in the memory table. Every message changes what it has to and
//! then calls [`Session::settle`], which starts what became ready; whatever takes
//! something away stops the vring first. Stopping drains: when `stop()` returns,
//! all that was taken from the available ring is in the used ring.
//!
//! The kernel gives up a stop if the disk does not answer. Requests in flight may then
//! still read and write the guest's memory, and a VMM that went on would give that memory
//! to other uses of its guest: a late read would overwrite them, and a late write would
//! put them on the disk. So the front end waits as long as it is there. If it is gone,
//! the device and the guest's memory stay until all is answered ([`Session::let_go`]), and
//! no other front end is served before that.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use vhost::vhost_kern::vhost_binding::vhost_vring_addr;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    self, Backend, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
};
use vhost::VhostUserMemoryRegionBase;

use crate::channel;
use crate::config;
use crate::error::{Context, Error};
use crate::handover::{Front, KeptRegion};
use crate::host;
use crate::kernel::{Vhost, VringFd};
use crate::memory::{Memory, Region, HOW_TO_SHARE};
use crate::service::Service;
use crate::vring::{RingAddr, Vring};

/// Largest ring the virtio specification allows.
const MAX_QUEUE_SIZE: u32 = 32768;

/// Most bytes of guest memory that a front end may have mapped.
const MOST_MEMORY: u64 = 16 << 40;

/// What is served, and the front end that uses it, if there is one.
pub struct Session<S: Service> {
    service: S,
    dev: Option<S::Device>,
    vhost_features: u64,
    acked: u64,
    protocol: u64,
    memory: Memory,
    vrings: Vec<Vring>,
    channel: Option<OwnedFd>,
    front_end: Option<UnixStream>,
    peer: Option<i32>,
    peeked: Option<OwnedFd>,
    heard: Option<Instant>,
    /// A message is being read or handled.
    talks: bool,
    /// The session does not have all of its predecessor's state yet.
    takes_over: bool,
    served: bool,
    /// The front end has asked for the configuration: its guest may not run yet.
    asked: bool,
    missed_memory: bool,
    /// The front end before this one left without all answers, and they came after that.
    late: bool,
    /// A VMM whose guest did not run drops the news of a size, and does not ask later.
    missed_news: bool,
}

fn refuse(why: &str) -> Error {
    why.into()
}

impl<S: Service> Session<S> {
    /// Serves `service`. Opens the first device at once, so that what is wrong is said
    /// now and not to the first guest.
    pub fn new(service: S) -> crate::Result<Self> {
        let mut session = Self {
            vhost_features: 0,
            acked: 0,
            protocol: 0,
            memory: Memory::default(),
            vrings: vec![Vring::default(); service.queues().into()],
            channel: None,
            front_end: None,
            peer: None,
            peeked: None,
            heard: None,
            talks: false,
            takes_over: false,
            served: false,
            asked: false,
            missed_memory: false,
            late: false,
            missed_news: false,
            dev: None,
            service,
        };
        session.open()?;
        Ok(session)
    }

    fn open(&mut self) -> crate::Result<()> {
        let dev = self.service.open()?;
        self.vhost_features = dev.features().context(self.service.name())?;
        for index in 0..u32::from(self.service.queues()) {
            self.service.place(&dev, index)?;
        }
        self.dev = Some(dev);
        Ok(())
    }

    /// A front end has connected by `stream`; `peer` is its process.
    pub fn begin(&mut self, stream: &UnixStream, peer: Option<i32>) -> crate::Result<()> {
        if self.vrings.iter().any(|vring| vring.running) {
            self.stop_for_good()
                .map_err(|e| format!("refused a VMM, because the previous one is not done: {e}"))?;
            self.forget();
        }
        let stream = stream.try_clone().context("out of file descriptors")?;
        self.peer = peer;
        self.heard = Some(Instant::now());
        if self.dev.is_none() {
            self.open()?;
        }
        self.front_end = Some(stream);
        Ok(())
    }

    /// The front end is gone, or will be hung up on: finish what was taken and
    /// forget the guest. Must come before its socket is closed.
    pub fn end(&mut self) {
        self.front_end = None;
        self.channel = None;
        self.peeked = None;
        self.peer = None;
        self.heard = None;
        self.talks = false;
        self.served = false;
        self.asked = false;
        self.missed_memory = false;
        self.missed_news = false;
        if let Err(e) = self.stop_for_good() {
            say!("{}: {e}", self.service.name());
            self.late = e.raw_os_error() == Some(libc::ETIMEDOUT);
            if self.late {
                return;
            }
        }
        self.late = false;
        self.forget();
    }

    /// Whether a guest that left still has the kernel's device and its memory.
    pub fn is_held(&self) -> bool {
        self.late && self.vrings.iter().any(|vring| vring.running)
    }

    /// Lets go of what a guest that left had, if all its requests have been answered. Asks
    /// the counters first, because a stop waits for a minute, with the session locked.
    pub fn let_go(&mut self) {
        if self.is_held() && !self.waits() && self.stop_for_good().is_ok() {
            self.forget();
        }
    }

    fn waits(&self) -> bool {
        let Some(dev) = &self.dev else {
            return false;
        };
        let mut running = (0..).zip(&self.vrings).filter(|(_, vring)| vring.running);
        running.any(|(index, _)| self.service.waits(dev, index).unwrap_or(true))
    }

    /// Lets go of the kernel's device and of the guest's memory.
    fn forget(&mut self) {
        self.dev = None;
        self.memory = Memory::default();
        self.vrings.fill(Vring::default());
        self.acked = 0;
        self.protocol = 0;
    }

    /// A message is about to be handled; `channel` is what peeking found in it.
    pub fn hear(&mut self, channel: Option<OwnedFd>) {
        self.peeked = channel;
        self.heard = Some(Instant::now());
        self.talks = true;
    }

    /// It was handled.
    pub fn handled(&mut self) {
        self.talks = false;
    }

    /// Whether a message is being read or handled, or what a predecessor left is.
    pub fn talks(&self) -> bool {
        self.talks || self.takes_over
    }

    /// Set before there is a thread that could hand the session over again, and cleared once
    /// all that a predecessor left is in it.
    pub fn set_takes_over(&mut self, does: bool) {
        self.takes_over = does;
    }

    /// Stops, and leaves the device and all that is known of the front end to the program that
    /// this process executes next. Nothing may come after it in this process but that, because
    /// the device has no owner any more.
    ///
    /// `keep` puts into a safe place what the program has to know; it gets None if there is no
    /// front end. The device is given up only after that, so that a lack of descriptors or of
    /// memory does not cost the guest its session.
    ///
    /// Fails while a guest that left has the device: the successor would close it and serve the
    /// next VMM, and a late write of the old guest could hit the new one's data.
    pub fn hand_over<T>(
        &mut self,
        keep: impl FnOnce(Option<Front>) -> crate::Result<T>,
    ) -> crate::Result<T> {
        if self.is_held() {
            return Err(refuse(
                "the host has not answered all requests of a guest that has left: try again once \
                 it has",
            ));
        }
        let Some(stream) = &self.front_end else {
            return keep(None);
        };
        let connection = stream.as_raw_fd();
        let left = self.stop_all(false).and_then(|()| {
            let kept = keep(Some(self.front(connection)?))?;
            let given_up = self.dev()?.hand_over();
            given_up.context("the kernel does not hand the guest's session over")?;
            Ok(kept)
        });
        if left.is_err() {
            self.settle()?;
        }
        left
    }

    /// What [`Session::hand_over`] keeps; all vrings are stopped.
    fn front(&self, connection: RawFd) -> crate::Result<Front> {
        let dev = self.dev()?;
        let mut vrings = Vec::new();
        // All of them: one without a size may have a call descriptor, which the front end does
        // not send again.
        for (index, vring) in (0..).zip(&self.vrings) {
            let base = dev
                .vring_base(index)
                .context("cannot read the vring's index")?;
            vrings.push(vring.keep(index, base));
        }
        let region = |(r, file): (Region, &File)| KeptRegion {
            gpa: r.gpa,
            size: r.size,
            frontend: r.frontend,
            offset: r.offset,
            file: file.as_raw_fd(),
        };
        Ok(Front {
            connection,
            device: dev.descriptor(),
            features: self.acked,
            protocol: self.protocol,
            regions: self.memory.regions().map(region).collect(),
            vrings,
        })
    }

    /// A front end that was handed over is about to be played: the kernel's indices are what
    /// those of its vrings go on from that have run.
    pub fn expect(&mut self, front: &Front) {
        for kept in &front.vrings {
            if let Some(vring) = self.vrings.get_mut(kept.index as usize) {
                vring.known = kept.known;
            }
        }
    }

    /// Whether the session can be handed over now: a message that was half read would be lost,
    /// and a front end that is setting its device up is given the time to end.
    pub fn may_leave(&self) -> bool {
        !self.talks() && self.is_quiet()
    }

    /// Whether there is no front end in the middle of saying something.
    pub fn is_quiet(&self) -> bool {
        const PAUSE: Duration = Duration::from_millis(200);
        self.heard.is_none_or(|at| at.elapsed() > PAUSE)
    }

    /// What is served.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// The state of the device, if a front end has one.
    pub fn info(&self) -> Option<io::Result<S::Info>> {
        self.dev.as_ref().map(|dev| self.service.device_info(dev))
    }

    /// Counters of the vrings that a guest uses now.
    pub fn stats(&self) -> io::Result<Vec<S::Stats>> {
        let Some(dev) = &self.dev else {
            return Ok(Vec::new());
        };
        let running = (0..).zip(&self.vrings).filter(|(_, vring)| vring.running);
        running
            .map(|(index, _)| self.service.stats(dev, index))
            .collect()
    }

    /// Looks whether what is served has another size than before, and tells the guest.
    /// Returns the new one in bytes.
    pub fn check_size(&mut self) -> crate::Result<Option<u64>> {
        let size = self.service.new_size(self.dev.as_ref())?;
        // In the middle of a handshake it would be dropped again.
        let again = self.missed_news && self.is_quiet();
        if again {
            self.missed_news = false;
        }
        if size.is_some() || again {
            self.tell_size()?;
        }
        Ok(size)
    }

    fn tell_size(&self) -> crate::Result<()> {
        let Some(channel) = &self.channel else {
            return Ok(());
        };
        channel::config_changed(channel).context("cannot tell the VMM of the new size")
    }

    fn dev(&self) -> crate::Result<&S::Device> {
        self.dev.as_ref().ok_or_else(|| refuse("no front end"))
    }

    fn vring(&mut self, index: u32) -> crate::Result<&mut Vring> {
        self.vrings
            .get_mut(index as usize)
            .ok_or_else(|| refuse(&format!("there is no vring {index}")))
    }

    fn stopped_vring(&mut self, index: u32, what: &str) -> crate::Result<&mut Vring> {
        let vring = self.vring(index)?;
        if vring.running {
            return Err(refuse(&format!("{what} of running vring {index}")));
        }
        Ok(vring)
    }

    /// Starts each vring that is ready and does not run.
    fn settle(&mut self) -> crate::Result<()> {
        for index in 0..self.vrings.len() as u32 {
            self.settle_one(index)?;
        }
        Ok(())
    }

    /// The same, but leaves alone a vring whose memory was taken away and is not back
    /// yet: a front end that enlarges regions removes them first, and adds one by one.
    fn settle_inside(&mut self) -> crate::Result<()> {
        for index in 0..self.vrings.len() as u32 {
            let vring = self.vring(index)?.clone();
            let inside = |addr| self.our_addresses(index, vring.num, addr).is_ok();
            if vring.addr.is_some_and(inside) {
                self.settle_one(index)?;
            }
        }
        Ok(())
    }

    fn settle_one(&mut self, index: u32) -> crate::Result<()> {
        let vring = self.vring(index)?.clone();
        let ready = vring.enabled && vring.kick && vring.num != 0;
        let Some(addr) = vring.addr.filter(|_| ready && !vring.running) else {
            return Ok(());
        };
        if self.memory.is_empty() {
            self.miss_memory();
            return Ok(());
        }
        let ours = self.our_addresses(index, vring.num, addr)?;
        if !vring.known {
            self.skip_nothing(index, vring.num, addr.used)?;
        }
        let dev = self.dev()?;
        dev.set_vring_addr(&ours)
            .context("the kernel refuses the vring's addresses")?;
        dev.start(index).context("cannot start the vring")?;
        self.missed_news |= self.vrings.iter().all(|v| !v.running);
        self.vring(index)?.running = true;
        self.vring(index)?.known = true;
        if !self.served {
            self.served = true;
            say!("{}: serving a guest", self.service.name());
        }
        Ok(())
    }

    /// QEMU without shared memory sends no table at all, and its guest waits for ever.
    fn miss_memory(&mut self) {
        if !std::mem::replace(&mut self.missed_memory, true) {
            say!(
                "{}: a vring waits, because the VMM has shared no memory yet: {HOW_TO_SHARE}",
                self.service.name()
            );
        }
    }

    /// Has a vring start right behind the last answer that its guest has got.
    ///
    /// A kernel device answers all it has taken before it goes, so what is behind
    /// the used index was never taken. QEMU reconnects with that index. Cloud
    /// Hypervisor reconnects with the available one, and what its guest had
    /// offered meanwhile would never be served. Where a disk had not answered when the
    /// front end left, the used index has moved on since. (A driver that offered a head
    /// twice, or none of the ring's, has fewer answers than it had requests; some
    /// that were answered are served again then, as QEMU has it, too.)
    fn skip_nothing(&self, index: u32, num: u32, used: u64) -> crate::Result<()> {
        let dev = self.dev()?;
        let base = dev
            .vring_base(index)
            .context("cannot read the vring's index")? as u16;
        let raw = self
            .memory
            .read(used.wrapping_add(2))
            .context("cannot read the used ring's index")?;
        let answered = match self.acked & config::F_VERSION_1 {
            0 => u16::from_ne_bytes(raw),
            _ => u16::from_le_bytes(raw),
        };
        let (back, ahead) = (base.wrapping_sub(answered), answered.wrapping_sub(base));
        let name = self.service.name();
        // More than fit into the ring: this is no index of this ring's.
        match (u32::from(back), u32::from(ahead)) {
            (0, _) => return Ok(()),
            (n, _) if n <= num => say!(
                "{name}: vring {index}: continuing {n} requests before the VMM's index, because \
                 the guest has no answers to them"
            ),
            (_, n) if n <= num && self.late => say!(
                "{name}: vring {index}: continuing {n} requests after the VMM's index, because \
                 they were answered after the VMM had left"
            ),
            _ => return Ok(()),
        }
        dev.set_vring_base(index, answered.into())
            .context("the kernel refuses the vring's index")
    }

    fn our_addresses(
        &self,
        index: u32,
        num: u32,
        addr: RingAddr,
    ) -> crate::Result<vhost_vring_addr> {
        let n = u64::from(num);
        let event = if self.acked & config::F_EVENT_IDX != 0 {
            2
        } else {
            0
        };
        let ours = |what, at, len| {
            self.memory.translate(at, len).ok_or_else(|| {
                refuse(&format!(
                    "the {what} of vring {index} is not in memory that is shared with pvio"
                ))
            })
        };
        Ok(vhost_vring_addr {
            index,
            flags: 0,
            desc_user_addr: ours("descriptor table", addr.desc, 16 * n)?,
            avail_user_addr: ours("available ring", addr.avail, 4 + 2 * n + event)?,
            used_user_addr: ours("used ring", addr.used, 4 + 8 * n + event)?,
            log_guest_addr: 0,
        })
    }

    /// Stops a vring. If the host does not answer in time: with `patience` waits on; without, takes
    /// the stop back and fails (a module older than pvio cannot, so this waits as well).
    fn stop_one(&mut self, index: u32, patience: bool) -> crate::Result<()> {
        if !self.vring(index)?.running {
            return Ok(());
        }
        while let Err(e) = self.dev()?.stop(index) {
            if e.raw_os_error() != Some(libc::ETIMEDOUT) {
                return Err(e).context("cannot stop the vring");
            }
            if !self.front_end_is_there() || (!patience && self.dev()?.go_on(index).is_ok()) {
                return Err(e).context(
                    "the host does not answer requests of the guest: try again once it does",
                );
            }
            say!(
                "{}: the host does not answer requests of the guest, and may still read and write \
                 the guest's memory: the VMM waits for the answers; to give up, kill the VMM",
                self.service.name()
            );
        }
        self.vring(index)?.running = false;
        Ok(())
    }

    /// Stops all vrings, up to one that does not stop.
    fn stop_all(&mut self, patience: bool) -> crate::Result<()> {
        (0..self.vrings.len() as u32).try_for_each(|index| self.stop_one(index, patience))
    }

    /// Stops all of them at once, so that none goes on while another one waits.
    fn stop_for_good(&self) -> crate::Result<()> {
        match &self.dev {
            Some(dev) => dev
                .reset_owner()
                .context("the host does not answer requests of the guest"),
            None => Ok(()),
        }
    }

    fn front_end_is_there(&self) -> bool {
        let Some(stream) = &self.front_end else {
            return false;
        };
        let mut fds = [PollFd::new(stream.as_fd(), PollFlags::empty())];
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
        poll(&mut fds, PollTimeout::ZERO).is_ok()
            && fds[0].revents().is_none_or(|seen| !seen.intersects(gone))
    }

    fn map(&self, memory: &mut Memory, r: &VhostUserMemoryRegion, file: File) -> crate::Result<()> {
        let most = self.most_memory();
        if memory.size().saturating_add(r.memory_size) > most {
            return Err(refuse(&format!(
                "the guest's memory regions have more than {} MiB together, the most pvio takes \
                 (with --pinned, what the host has)",
                most >> 20
            )));
        }
        let added = memory.add(region(r), file, self.peer);
        added.map_err(|e| e.to_string().into())
    }

    /// A sparse file costs its front end nothing; the address space is all the disks'.
    fn most_memory(&self) -> u64 {
        let host = self.service.is_pinned().then(host::memory).flatten();
        host.map_or(MOST_MEMORY, |host| host.min(MOST_MEMORY))
    }

    fn give_table(&self, memory: &Memory) -> crate::Result<()> {
        self.dev()?.set_mem_table(&memory.table()).or_else(|e| {
            let why = match e.raw_os_error() {
                Some(libc::ENOMEM) => {
                    "the kernel refuses the memory table: with --pinned, raise the limit \
                     of locked memory (LimitMEMLOCK=, 'ulimit -l') above the guest's size"
                }
                Some(libc::E2BIG) => {
                    "more memory regions than vhost allows: raise vhost's parameter max_mem_regions"
                }
                _ => "the kernel refuses the memory table",
            };
            Err(e).context(why)
        })
    }

    fn set_vring_fd(&mut self, which: VringFd, index: u8, fd: Option<File>) -> crate::Result<()> {
        let index = u32::from(index);
        self.vring(index)?;
        let raw = fd.as_ref().map(File::as_raw_fd);
        self.dev()?
            .set_vring_fd(which, index, raw)
            .context("the kernel refuses a descriptor of the vring")?;
        // The kernel took a reference of its own.
        self.vring(index)?.fds[which as usize] = fd.filter(|_| S::HANDS_OVER).map(Arc::new);
        Ok(())
    }
}

fn region(r: &VhostUserMemoryRegion) -> Region {
    Region {
        gpa: r.guest_phys_addr,
        size: r.memory_size,
        frontend: r.user_addr,
        offset: r.mmap_offset,
    }
}

impl<S: Service> VhostUserBackendReqHandlerMut for Session<S> {
    fn set_owner(&mut self) -> Result<()> {
        Ok(()) // we own the device since we opened it
    }

    /// The specification wants this ignored, or taken for "disable all rings".
    fn reset_owner(&mut self) -> Result<()> {
        for index in 0..self.vrings.len() as u32 {
            self.set_vring_enable(index, false)?;
        }
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        for index in 0..self.vrings.len() as u32 {
            self.get_vring_base(index)?;
            self.dev()?
                .set_vring_base(index, 0)
                .context("the kernel refuses the vring's index")?;
            // It starts anew, at 0, whatever is in the used ring.
            *self.vring(index)? = Vring {
                known: true,
                ..Vring::default()
            };
        }
        // Rings are now checked without room for EVENT_IDX: the kernel must not use it.
        self.dev()?
            .set_features(0)
            .context("the kernel does not reset the features")?;
        self.acked = 0;
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.service.features(self.vhost_features))
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !(self.get_features()? | self.service.tolerated()) != 0 {
            // Of a pvio before this one, most likely.
            return Err(refuse(&format!(
                "the guest negotiated features that {} no longer has; restart the VM",
                self.service.name()
            ))
            .into());
        }
        // A guest that goes on after a pause: its VMM does not ask again.
        if let Some(why) = self.service.outgrown().filter(|_| !self.asked) {
            return Err(refuse(&why).into());
        }
        if self.vrings.iter().any(|v| v.running) {
            if features == self.acked {
                return Ok(());
            }
            return Err(refuse("features cannot change while a vring runs").into());
        }
        let kernel = self.service.for_kernel(features, self.vhost_features);
        self.dev()?
            .set_features(kernel)
            .context("the kernel refuses these features")?;
        self.acked = features;
        if features & config::F_PROTOCOL == 0 {
            self.vrings.iter_mut().for_each(|v| v.enabled = true);
        }
        Ok(self.settle()?)
    }

    fn set_mem_table(
        &mut self,
        ctx: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mut memory = Memory::default();
        for (r, file) in ctx.iter().zip(files) {
            self.map(&mut memory, r, file)?;
        }
        self.stop_all(true)?;
        self.give_table(&memory)?;
        self.memory = memory; // unmaps the old one, which the kernel has let go
        self.settle()?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        if !num.is_power_of_two() || num > MAX_QUEUE_SIZE {
            return Err(refuse(&format!("vring {index} cannot have size {num}")).into());
        }
        self.stopped_vring(index, "size")?;
        self.dev()?
            .set_vring_num(index, num)
            .context("the kernel refuses the vring's size")?;
        self.vring(index)?.num = num;
        Ok(self.settle()?)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        if !flags.is_empty() {
            return Err(refuse("dirty logging was not offered").into());
        }
        self.stop_one(index, true)?;
        self.vring(index)?.addr = Some(RingAddr {
            desc: descriptor,
            avail: available,
            used,
        });
        Ok(self.settle()?)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.stopped_vring(index, "base")?;
        if base > u16::MAX.into() {
            return Err(refuse(&format!("vring base {base} is not an index")).into());
        }
        let dev = self.dev()?;
        Ok(dev
            .set_vring_base(index, base)
            .context("the kernel refuses the vring's index")?)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.stop_one(index, true)?;
        self.vring(index)?.kick = false;
        let dev = self.dev()?;
        let base = dev
            .vring_base(index)
            .context("cannot read the vring's index")?;
        dev.set_vring_fd(VringFd::Kick, index, None)
            .context("cannot take the kick descriptor from the vring")?;
        self.vring(index)?.fds[VringFd::Kick as usize] = None;
        Ok(VhostUserVringState::new(index, base))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        if fd.is_none() {
            return Err(refuse("a vring without a kick descriptor cannot be served").into());
        }
        self.set_vring_fd(VringFd::Kick, index, fd)?;
        self.vring(index.into())?.kick = true;
        Ok(self.settle()?)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        Ok(self.set_vring_fd(VringFd::Call, index, fd)?)
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        Ok(self.set_vring_fd(VringFd::Err, index, fd)?)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | self.service.protocol_features())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        if features & !self.get_protocol_features()?.bits() != 0 {
            return Err(vhost_user::Error::FeatureMismatch);
        }
        self.protocol = features;
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.service.queues().into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.vring(index)?;
        if !enable {
            self.stop_one(index, true)?;
        }
        self.vring(index)?.enabled = enable;
        Ok(self.settle()?)
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        let dev = self.dev.as_ref().ok_or_else(|| refuse("no front end"))?;
        let space = self.service.config(dev)?;
        self.asked = true;
        // Beyond the end there are zeroes; the crate has bounded both numbers.
        let at = |i| space.get(i).copied().unwrap_or(0);
        let start = offset as usize;
        Ok((start..start + size as usize).map(at).collect())
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(refuse("the configuration cannot be written").into())
    }

    fn set_backend_req_fd(&mut self, _backend: Backend) {
        self.channel = self.peeked.take();
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(host::max_mem_slots())
    }

    fn add_mem_region(
        &mut self,
        r: &VhostUserSingleMemoryRegion,
        fd: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        if self.memory.len() as u64 >= host::max_mem_slots() {
            return Err(refuse("no memory slot is left").into());
        }
        let mut memory = std::mem::take(&mut self.memory);
        let added = self.map(&mut memory, r, fd);
        // Nothing that runs loses anything, so nothing has to stop.  A table whose
        // pages could not be pinned is in force all the same: it stays mapped.
        let done = added.and_then(|()| self.give_table(&memory));
        self.memory = memory;
        done?;
        self.settle_inside()?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, r: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.stop_all(true)?;
        let removed = self.memory.take(&region(r));
        if removed.is_none() {
            self.settle()?;
            return Err(refuse("there is no such memory region").into());
        }
        self.give_table(&self.memory)?;
        drop(removed); // unmapped only now
        Ok(self.settle_inside()?)
    }

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        Err(not_offered())
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(not_offered())
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Err(not_offered())
    }

    fn set_inflight_fd(&mut self, _inflight: &VhostUserInflight, _file: File) -> Result<()> {
        Err(not_offered())
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        Err(not_offered())
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(not_offered())
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(not_offered())
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(not_offered())
    }
}

fn not_offered() -> vhost_user::Error {
    vhost_user::Error::InvalidOperation("this was not offered")
}
