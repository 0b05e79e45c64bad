// SPDX-License-Identifier: GPL-2.0
//! A kernel device made of memory, and a front end made of bytes.

#![allow(dead_code)] // each test uses a part
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{memfd_create, MFdFlags};
use vhost::vhost_kern::vhost_binding::{vhost_memory_region, vhost_vring_addr};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;
use vmm_sys_util::tempfile::TempFile;

use pvio::blk::{Blk, Settings};
use pvio::disk::{Disk, Options};
use pvio::kernel::{BlkDevice, FsDevice, Opener, Placement, Vhost, VringFd};
use pvio::server::{self, Shared};
use pvio::service::Service;
use pvio::session::Session;
use pvio::uapi::{BlkBackend, BlkInfo, BlkStats, FsExport, FsInfo, ServeStats, BACKEND_NO_DISCARD};

pub const MEM: u64 = 1 << 20;
pub const FRONT: u64 = 0x7f00_0000_0000;
pub const QUEUES: u16 = 4;

const EVENT_IDX: u64 = 1 << 29;
/// VERSION_1, EVENT_IDX, INDIRECT_DESC, and LOG_ALL, which must not get out.
const VHOST_FEATURES: u64 = 1 << 32 | EVENT_IDX | 1 << 28 | 1 << 26;
/// SEG_MAX, BLK_SIZE, FLUSH, CONFIG_WCE, DISCARD, WRITE_ZEROES.
const BLK_FEATURES: u64 = 1 << 2 | 1 << 6 | 1 << 9 | 1 << 11 | 1 << 13 | 1 << 14;

#[derive(Default, Clone, Debug, PartialEq)]
pub struct Ring {
    pub num: u32,
    pub base: u32,
    pub addr: Option<(u64, u64, u64)>,
    pub fds: [bool; 3],
    pub placed: Option<(RawFd, u32)>,
    pub running: bool,
}

/// What the kernel would hold, and what it was told, in order.
#[derive(Default)]
pub struct State {
    pub open: bool,
    pub regions: Vec<(u64, u64, u64)>,
    pub rings: BTreeMap<u32, Ring>,
    pub features: u64,
    /// Features that the disk had before, and has lost.
    pub lost_features: u64,
    /// The owner forbids discards.
    pub no_discard: bool,
    /// Blocks are larger than a sector by this power of two.
    pub larger_blocks: u32,
    pub stats_fail: bool,
    /// The next time, as a module does that is older than pvio.
    pub hand_over_fails: bool,
    /// So often a stop gives up first, as the disk does not answer.
    pub stops_fail: u32,
    /// Each stop of this vring does.
    pub stops_fail_at: Option<u32>,
    /// The owner's reset waits until the resets of so many devices wait.
    pub company: Option<Arc<Company>>,
    pub log: Vec<String>,
}

/// Meets others, or stays alone for too long.
#[derive(Debug)]
pub struct Company {
    pub wanted: u32,
    pub there: Mutex<u32>,
    pub came: Condvar,
    pub alone: AtomicUsize,
}

impl Company {
    pub fn of(wanted: u32) -> Arc<Self> {
        Arc::new(Self {
            wanted,
            there: Mutex::new(0),
            came: Condvar::new(),
            alone: AtomicUsize::new(0),
        })
    }

    fn meet(&self) {
        let mut there = self.there.lock().unwrap();
        *there += 1;
        self.came.notify_all();
        let missing = |there: &mut u32| *there < self.wanted;
        let (_there, waited) = self
            .came
            .wait_timeout_while(there, Duration::from_secs(20), missing)
            .unwrap();
        if waited.timed_out() {
            self.alone.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl State {
    fn note(&mut self, what: String) {
        self.log.push(what);
    }

    fn ring(&mut self, index: u32) -> &mut Ring {
        self.rings.entry(index).or_default()
    }

    fn in_table(&self, at: u64, len: u64) -> bool {
        self.regions
            .iter()
            .any(|(_, size, ours)| at >= *ours && at - ours <= *size && len <= size - (at - ours))
    }

    fn check_running(&self) {
        for (index, ring) in &self.rings {
            let Some((desc, avail, used)) = ring.addr.filter(|_| ring.running) else {
                continue;
            };
            let n = u64::from(ring.num);
            let event = if self.features & EVENT_IDX != 0 { 2 } else { 0 };
            for (at, len) in [
                (desc, 16 * n),
                (avail, 4 + 2 * n + event),
                (used, 4 + 8 * n + event),
            ] {
                assert!(self.in_table(at, len), "vring {index} outside the table");
            }
        }
    }
}

pub struct Fake(pub Arc<Mutex<State>>);

impl Fake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let mut s = self.state();
        assert!(s.rings.values().all(|r| !r.running), "closed while running");
        s.open = false;
        s.regions.clear();
        s.rings.clear();
        s.features = 0;
        s.note("close".into());
    }
}

fn busy() -> io::Error {
    io::Error::from_raw_os_error(libc::EBUSY)
}

impl Vhost for Fake {
    fn features(&self) -> io::Result<u64> {
        Ok(VHOST_FEATURES)
    }

    fn set_features(&self, features: u64) -> io::Result<()> {
        assert_eq!(features & !(VHOST_FEATURES | BLK_FEATURES), 0);
        let mut s = self.state();
        s.features = features;
        s.note(format!("features {features:#x}"));
        Ok(())
    }

    fn set_mem_table(&self, regions: &[vhost_memory_region]) -> io::Result<()> {
        let mut s = self.state();
        s.regions = regions
            .iter()
            .map(|r| (r.guest_phys_addr, r.memory_size, r.userspace_addr))
            .collect();
        s.check_running();
        s.note(format!("table {}", regions.len()));
        Ok(())
    }

    fn set_vring_num(&self, index: u32, num: u32) -> io::Result<()> {
        let mut s = self.state();
        assert!(!s.ring(index).running);
        s.ring(index).num = num;
        Ok(())
    }

    fn set_vring_addr(&self, a: &vhost_vring_addr) -> io::Result<()> {
        let mut s = self.state();
        s.ring(a.index).addr = Some((a.desc_user_addr, a.avail_user_addr, a.used_user_addr));
        Ok(())
    }

    fn set_vring_base(&self, index: u32, base: u32) -> io::Result<()> {
        let mut s = self.state();
        if s.ring(index).running {
            return Err(busy());
        }
        s.ring(index).base = base;
        Ok(())
    }

    fn vring_base(&self, index: u32) -> io::Result<u32> {
        let mut s = self.state();
        assert!(!s.ring(index).running, "base of a running vring");
        Ok(s.ring(index).base)
    }

    fn set_vring_fd(&self, which: VringFd, index: u32, fd: Option<RawFd>) -> io::Result<()> {
        let at = which as usize;
        self.state().ring(index).fds[at] = fd.is_some();
        Ok(())
    }

    fn place_vring(&self, p: &Placement) -> io::Result<()> {
        let mut s = self.state();
        let ring = s.ring(p.index);
        assert!(ring.placed.is_none() && !ring.running);
        ring.placed = Some((p.poller, p.hctx));
        Ok(())
    }

    fn start(&self, index: u32) -> io::Result<()> {
        let mut s = self.state();
        let ring = s.ring(index);
        assert!(!ring.running && ring.num != 0 && ring.fds[0] && ring.placed.is_some());
        ring.running = true;
        s.check_running();
        s.note(format!("start {index}"));
        Ok(())
    }

    fn stop(&self, index: u32) -> io::Result<()> {
        let mut s = self.state();
        assert!(s.ring(index).running);
        if s.stops_fail > 0 {
            s.stops_fail -= 1;
            s.note(format!("no answer {index}"));
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        if s.stops_fail_at == Some(index) {
            s.note(format!("no answer {index}"));
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        s.ring(index).running = false;
        s.note(format!("stop {index}"));
        Ok(())
    }

    fn go_on(&self, index: u32) -> io::Result<()> {
        let mut s = self.state();
        assert!(s.ring(index).running);
        s.note(format!("go on {index}"));
        Ok(())
    }

    fn reset_owner(&self) -> io::Result<()> {
        let company = self.state().company.clone();
        if let Some(company) = company {
            company.meet();
        }
        let mut s = self.state();
        s.note("reset owner".into());
        if s.stops_fail > 0 {
            s.stops_fail -= 1;
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        s.rings.values_mut().for_each(|ring| ring.running = false);
        Ok(())
    }

    fn hand_over(&self) -> io::Result<()> {
        let mut s = self.state();
        assert!(s.rings.values().all(|r| !r.running));
        if std::mem::take(&mut s.hand_over_fails) {
            return Err(io::Error::from_raw_os_error(libc::ENOTTY));
        }
        s.regions.clear();
        s.rings.clear();
        s.features = 0;
        s.note("hand over".into());
        Ok(())
    }

    fn descriptor(&self) -> RawFd {
        -1
    }
}

impl BlkDevice for Fake {
    fn set_backend(&self, backend: &BlkBackend) -> io::Result<()> {
        assert!(backend.fd >= 0);
        let mut s = self.state();
        s.note("backend".into());
        s.no_discard = backend.flags & BACKEND_NO_DISCARD != 0;
        Ok(())
    }

    fn info(&self) -> io::Result<BlkInfo> {
        let s = self.state();
        let (discard, max) = if s.no_discard {
            (1 << 13, 0)
        } else {
            (0, 2048)
        };
        Ok(BlkInfo {
            features: BLK_FEATURES & !s.lost_features & !discard,
            max_discard_sectors: max,
            write_zeroes_may_unmap: (max != 0).into(),
            capacity: 2048,
            seg_max: 254,
            blk_size: 512 << s.larger_blocks,
            nr_hctx: 4,
            ..Default::default()
        })
    }

    fn stats(&self, index: u32) -> io::Result<BlkStats> {
        assert!(self.state().ring(index).running);
        if self.state().stats_fail {
            return Err(busy());
        }
        Ok(BlkStats {
            index,
            reads: 7,
            inflight: self.state().stops_fail,
            ..Default::default()
        })
    }
}

impl FsDevice for Fake {
    fn set_export(&self, export: &FsExport) -> io::Result<()> {
        assert!(export.fd >= 0);
        let mut s = self.state();
        assert!(s.rings.values().all(|r| !r.running));
        s.note(format!("export {:#x}", export.flags));
        Ok(())
    }

    fn info(&self) -> io::Result<FsInfo> {
        Ok(FsInfo::default())
    }

    fn stats(&self, index: u32) -> io::Result<ServeStats> {
        Ok(ServeStats {
            index,
            requests: 9,
            ..Default::default()
        })
    }
}

/// What pvio says, which goes past the capture of cargo test.
static LOG: LazyLock<File> = LazyLock::new(|| {
    let log = memfd(0);
    nix::unistd::dup2_stderr(&log).unwrap();
    log
});

/// Everything below the socket, without a kernel.
pub struct Bench {
    pub state: Arc<Mutex<State>>,
    pub session: Shared<Blk<Fake>>,
    pub opened: Arc<AtomicUsize>,
    pub image: TempFile,
}

impl Bench {
    pub fn new() -> Self {
        Self::with_cache(true)
    }

    pub fn with_cache(writeback: bool) -> Self {
        Self::with(writeback, &Options::default())
    }

    pub fn with(writeback: bool, options: &Options) -> Self {
        LazyLock::force(&LOG);
        let image = TempFile::new().unwrap();
        image.as_file().set_len(1 << 20).unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let opened = Arc::new(AtomicUsize::new(0));
        let disk = Disk::open(image.as_path(), options).unwrap();
        let settings = Settings {
            queues: QUEUES,
            queue_size: 128,
            pollers: vec![70, 71],
            hctx: vec![],
            weight: 100,
            writeback,
        };
        let service = Blk::new(disk, settings, opener(&state, &opened));
        let session = Session::new(service).unwrap();
        Self {
            state,
            session: Arc::new(Mutex::new(session)),
            opened,
            image,
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What was said of this disk, as often as it was.
    pub fn said(&self) -> Vec<String> {
        let mut log = vec![0; LOG.metadata().unwrap().len() as usize];
        LOG.read_exact_at(&mut log, 0).unwrap();
        let path = self.image.as_path().to_str().unwrap();
        let log = String::from_utf8(log).unwrap();
        let ours = log.lines().filter(|line| line.contains(path));
        ours.map(ToOwned::to_owned).collect()
    }

    pub fn connect(&self) -> Front {
        Front::connect(&self.session, &self.image.as_path().display().to_string())
    }
}

pub fn opener(state: &Arc<Mutex<State>>, opened: &Arc<AtomicUsize>) -> Opener<Fake> {
    let (state, opened) = (Arc::clone(state), Arc::clone(opened));
    Arc::new(move || {
        let mut s = state.lock().unwrap();
        assert!(!s.open, "two devices at once");
        s.open = true;
        opened.fetch_add(1, Ordering::SeqCst);
        Ok(Fake(Arc::clone(&state)))
    })
}

/// A front end.
pub struct Front {
    pub sock: UnixStream,
    server: Option<JoinHandle<()>>,
}

pub fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

/// Two 32-bit numbers, as in a vring's state.
pub fn pair(a: u32, b: u32) -> Vec<u8> {
    [a.to_ne_bytes(), b.to_ne_bytes()].concat()
}

impl Front {
    pub fn connect<S: Service + 'static>(session: &Shared<S>, name: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (session, name) = (Arc::clone(session), name.to_owned());
        Self {
            sock: ours,
            server: Some(thread::spawn(move || {
                server::serve_one(theirs, &session, &name);
            })),
        }
    }

    /// Sends a message; an error means that we were hung up on.
    pub fn send(&self, request: u32, flags: u32, body: &[u8], fds: &[RawFd]) -> io::Result<()> {
        let size = body.len() as u32;
        self.send_raw(&header(request, flags, size), body, fds)
    }

    pub fn send_raw(&self, header: &[u8], body: &[u8], fds: &[RawFd]) -> io::Result<()> {
        // Apart, as front ends do: descriptors belong to the header.
        self.sock.send_with_fds(&[header], fds).map_err(io_error)?;
        if !body.is_empty() {
            let none: [RawFd; 0] = [];
            self.sock.send_with_fds(&[body], &none).map_err(io_error)?;
        }
        Ok(())
    }

    /// Sends a message and wants to be told that it worked.
    pub fn acked(&self, request: u32, body: &[u8], fds: &[RawFd]) {
        self.send(request, 1 | 8, body, fds).unwrap();
        let (got, answer) = self.reply().unwrap();
        assert_eq!((got, answer), (request, words(&[0])), "request {request}");
    }

    /// Sends a message and returns the answer's body.
    pub fn ask(&self, request: u32, body: &[u8]) -> Vec<u8> {
        self.send(request, 1, body, &[]).unwrap();
        let (got, answer) = self.reply().unwrap();
        assert_eq!(got, request);
        answer
    }

    pub fn ask_u64(&self, request: u32) -> u64 {
        u64::from_ne_bytes(self.ask(request, &[]).try_into().unwrap())
    }

    pub fn reply(&self) -> io::Result<(u32, Vec<u8>)> {
        let mut head = [0u8; 12];
        (&self.sock).read_exact(&mut head)?;
        let word = |i: usize| u32::from_ne_bytes(head[i..i + 4].try_into().unwrap());
        assert_eq!(word(4), 1 | 4, "a reply, version 1");
        let mut body = vec![0u8; word(8) as usize];
        (&self.sock).read_exact(&mut body)?;
        Ok((word(0), body))
    }

    /// Reads and forgets what has come, without waiting.
    pub fn drain(&self) {
        self.sock.set_nonblocking(true).unwrap();
        let mut buf = [0u8; 4096];
        while matches!((&self.sock).read(&mut buf), Ok(1..)) {}
        self.sock.set_nonblocking(false).unwrap();
    }

    /// Waits for the server's end of the connection to be over.
    pub fn close(mut self) {
        let _ = self.sock.shutdown(std::net::Shutdown::Both);
        self.server.take().unwrap().join().unwrap();
    }

    /// What every front end says first.
    pub fn negotiate(&self) -> u64 {
        let features = self.ask_u64(1);
        assert_ne!(features & (1 << 30), 0);
        let protocol = self.ask_u64(15);
        self.send(16, 1, &words(&[protocol]), &[]).unwrap();
        self.acked(3, &[], &[]);
        self.acked(2, &words(&[features]), &[]);
        protocol
    }

    /// The configuration space of a disk, behind a header of 12 bytes.
    pub fn config(&self) -> Vec<u8> {
        self.ask(24, &[pair(0, 60), vec![0; 64]].concat())
    }

    pub fn give_memory(&self, memory: &File) {
        let body = [pair(1, 0), words(&[0, MEM, FRONT, 0])].concat();
        self.acked(5, &body, &[memory.as_raw_fd()]);
    }

    /// Everything that makes vring `index` run, with base `base`.
    pub fn start_ring(&self, index: u32, base: u32, kick: &File) {
        self.acked(8, &pair(index, 128), &[]);
        self.acked(10, &pair(index, base), &[]);
        self.acked(9, &ring_at(index), &[]);
        let kick = kick.as_raw_fd();
        self.acked(12, &words(&[index.into()]), &[kick]);
        self.acked(13, &words(&[index.into()]), &[kick]);
        self.acked(18, &pair(index, 1), &[]);
    }

    pub fn base(&self, index: u32) -> u32 {
        let answer = self.ask(11, &pair(index, 0));
        u32::from_ne_bytes(answer[4..].try_into().unwrap())
    }
}

pub fn header(request: u32, flags: u32, size: u32) -> Vec<u8> {
    [pair(request, flags), size.to_ne_bytes().to_vec()].concat()
}

fn io_error(e: vmm_sys_util::errno::Error) -> io::Error {
    io::Error::from_raw_os_error(e.errno())
}

pub fn memfd(len: u64) -> File {
    let file = File::from(memfd_create("test", MFdFlags::MFD_CLOEXEC).unwrap());
    file.set_len(len).unwrap();
    file
}

/// The addresses of vring `index`, as [`Front::start_ring`] lays it.
pub fn ring_at(index: u32) -> Vec<u8> {
    let at = FRONT + u64::from(index) * 0x1_0000;
    [pair(index, 0), words(&[at, at + 0x2000, at + 0x1000, 0])].concat()
}

/// What the device has answered in vring `index`, as [`Front::start_ring`] lays it.
pub fn set_used(memory: &File, index: u64, used: u16) {
    let at = index * 0x1_0000 + 0x2000 + 2;
    memory.write_all_at(&used.to_le_bytes(), at).unwrap();
}

pub fn eventfd() -> File {
    let fd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
    File::from(OwnedFd::from(fd))
}
