// SPDX-License-Identifier: GPL-2.0
//! Hands a directory over to the pvio that is installed now, while a guest has it mounted.
//!
//! QEMU's vhost-user-fs does not reconnect, so its connection has to outlive the program. At
//! SIGUSR2, which `pvio upgrade` sends (see [`crate::upgrade`]), pvio stops the vrings, and writes
//! what it knows of the front end ([`Kept`]) to a memfd. It gives up the kernel device with the
//! guest's session in it (`VHOST_SERVE_HAND_OVER`), and executes its successor. The process, its
//! sockets, its pollers and the kernel device stay.
//!
//! The successor sets its session up by the protocol's own messages: it plays the front end
//! ([`Front::play`]) on a socket pair, and then puts the VMM's connection in the place of that
//! socket. So the front end's state is rebuilt, and checked, by the code that built it.
//!
//! The order is what keeps requests from being lost or served twice: the rings have stopped
//! before their indices are read, and the session is locked between two messages from then
//! until the process is executed, so that no message is half read.

use std::env;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::unistd::execve;
use serde::{Deserialize, Serialize};
use vhost::vhost_user::message::VhostUserHeaderFlag;
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use crate::config;
use crate::error::{Context, Result};
use crate::uapi;

/// Names the memfd's descriptor to the successor.
const VARIABLE: &str = "PVIO_HAND_OVER";

/// The successor prints this at `pvio hand-over-version -- WORDS`: both must mean the same by
/// [`Kept`]. It fails if it would not start with these words.
pub const VERSION: u32 = 4;

/// A process leaves this to its successor. Descriptors are its numbers, which stay the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    /// The listening socket, unless it is `--fd`.
    pub listener: Option<KeptListener>,
    /// The pollers, in the order of `--poll-cpu`. The successor might not get new ones: a CPU may
    /// have gone offline since, or a right to poll from it been taken away.
    pub pollers: Vec<RawFd>,
    /// The registry of CPUs, with this process's places in it: see [`crate::cpus`].
    pub places: Option<RawFd>,
    /// The front end that is connected.
    pub front: Option<Front>,
}

/// A socket at a path, which other processes must not take meanwhile.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct KeptListener {
    /// It listens.
    pub socket: RawFd,
    /// The lock of its path: see [`crate::place`].
    pub claim: RawFd,
}

/// A front end's state.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Front {
    pub connection: RawFd,
    /// The kernel device, without an owner.
    pub device: RawFd,
    /// Negotiated: virtio's, and the protocol's.
    pub features: u64,
    pub protocol: u64,
    pub regions: Vec<KeptRegion>,
    pub vrings: Vec<KeptVring>,
}

/// A region of the guest's memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct KeptRegion {
    pub gpa: u64,
    pub size: u64,
    pub frontend: u64,
    pub offset: u64,
    pub file: RawFd,
}

/// A vring, as far as the front end has set it up: a message may set any part of it before the
/// others. Addresses are the front end's.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct KeptVring {
    pub index: u32,
    /// 0 if it has no size yet.
    pub num: u32,
    pub base: u32,
    /// `base` is the kernel's own, and needs no look at the used ring.
    pub known: bool,
    /// Descriptors, available ring, used ring.
    pub addr: Option<(u64, u64, u64)>,
    pub kick: Option<RawFd>,
    pub call: Option<RawFd>,
    pub err: Option<RawFd>,
    pub enabled: bool,
}

impl Kept {
    fn descriptors(&self) -> Vec<RawFd> {
        let of = |l: KeptListener| [l.socket, l.claim];
        let mut all: Vec<RawFd> = self.listener.map(of).into_iter().flatten().collect();
        all.extend(self.places);
        all.extend(&self.pollers);
        if let Some(front) = &self.front {
            all.extend([front.connection, front.device]);
            all.extend(front.regions.iter().map(|r| r.file));
            let of = |v: &KeptVring| [v.kick, v.call, v.err];
            all.extend(front.vrings.iter().flat_map(of).flatten());
        }
        all
    }
}

/// A program that can go on where this process stops.
pub struct Successor {
    program: PathBuf,
}

impl Successor {
    /// Finds the program that is installed in this one's place, and asks it whether it
    /// understands what it would be left.
    pub fn find() -> Result<Self> {
        let program = installed(&env::current_exe().context("cannot find this program")?);
        let name = program.display();
        let said = Command::new(&program)
            .arg0("pvio") // whatever its file is called, see cli::main()
            .args(["hand-over-version", "--"])
            .args(env::args_os())
            .output()
            .context(format!("cannot run {name}"))?;
        if !said.status.success() {
            let why = String::from_utf8_lossy(&said.stderr);
            return Err(format!("{name} cannot take over: {}", why.trim()).into());
        }
        let version = String::from_utf8_lossy(&said.stdout);
        if version.trim() != VERSION.to_string() {
            return Err(format!(
                "{name} cannot take over, because it keeps the state in another form: stop the \
                 guest, and start pvio again"
            )
            .into());
        }
        Ok(Self { program })
    }

    /// Becomes the successor. Returns only if that fails.
    pub fn become_it(&self, memo: &Memo) -> Result<()> {
        let text = memo.text.as_raw_fd();
        for fd in memo.descriptors.iter().chain([&text]) {
            keep_open(*fd, true)?;
        }
        // The old program can still be executed when its file is gone.
        for program in [self.program.as_path(), Path::new("/proc/self/exe")] {
            let e = execute(program, text);
            say!("cannot execute {}: {e}", program.display());
        }
        Err("no program could take the guest over".into())
    }
}

/// The kernel says "PATH (deleted)" once the file was replaced.
fn installed(exe: &Path) -> PathBuf {
    const GONE: &[u8] = b" (deleted)";
    let bytes = exe.as_os_str().as_bytes();
    let path = bytes.strip_suffix(GONE).unwrap_or(bytes);
    OsString::from_vec(path.to_vec()).into()
}

/// The state, written down for a successor. The writer makes it while it can still go on itself.
pub struct Memo {
    text: File,
    descriptors: Vec<RawFd>,
}

impl Memo {
    /// Writes `kept` down. It may fail, because it takes a descriptor and memory.
    pub fn write(kept: &Kept) -> Result<Self> {
        let text =
            memfd_create("pvio-hand-over", MFdFlags::MFD_CLOEXEC).context("cannot make a memfd")?;
        let mut text = File::from(text);
        let json = serde_json::to_vec(kept).map_err(|e| format!("cannot write the state: {e}"))?;
        text.write_all(&json).context("cannot write the state")?;
        text.rewind().context("cannot write the state")?;
        Ok(Self {
            text,
            descriptors: kept.descriptors(),
        })
    }
}

fn keep_open(fd: RawFd, open: bool) -> Result<()> {
    let flags = if open {
        FdFlag::empty()
    } else {
        FdFlag::FD_CLOEXEC
    };
    // SAFETY: borrowed for the call only; a number that is not open fails with EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(fd, FcntlArg::F_SETFD(flags)).context("a descriptor cannot be handed over")?;
    Ok(())
}

/// Not [`std::process::Command`]: that lets blocked signals in, and a second SIGUSR2 would then
/// kill the process on its way.
fn execute(program: &Path, memo: RawFd) -> nix::errno::Errno {
    let text = |s: OsString| CString::new(s.into_vec()).unwrap_or_default();
    let args: Vec<CString> = env::args_os().map(text).collect();
    let mut vars: Vec<CString> = env::vars_os()
        .filter(|(name, _)| name != VARIABLE)
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            text(name)
        })
        .collect();
    vars.push(text(format!("{VARIABLE}={memo}").into()));
    match execve(&text(program.into()), &args, &vars) {
        Err(e) => e,
        Ok(never) => match never {},
    }
}

/// Reads the state that the process before this one left, if there was one. The caller calls it
/// once, before it starts another thread.
pub fn inherited() -> Result<Option<Kept>> {
    let Some(memo) = env::var_os(VARIABLE) else {
        return Ok(None);
    };
    env::remove_var(VARIABLE);
    let wrong = "cannot read the state that the previous pvio left";
    let memo: RawFd = memo.to_str().and_then(|n| n.parse().ok()).ok_or(wrong)?;
    // SAFETY: the process before this one left it to this one, which asks once.
    let mut memo = unsafe { File::from_raw_fd(memo) };
    let mut text = Vec::new();
    memo.read_to_end(&mut text).context(wrong)?;
    let kept: Kept = serde_json::from_slice(&text).map_err(|e| format!("{wrong}: {e}"))?;
    for fd in kept.descriptors() {
        keep_open(fd, false)?;
    }
    Ok(Some(kept))
}

/// Takes a descriptor that was left. Each is taken once.
pub fn take(fd: RawFd) -> OwnedFd {
    // SAFETY: it is open, as inherited() has seen, and has no other owner in this process.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

impl Front {
    /// Says to a back end at the other end of `sock` what the front end has said to the pvio
    /// before this one. The back end has descriptors of its own by the end, so `files`, which are
    /// those of [`Front::files`], go.
    pub fn play(&self, sock: UnixStream, files: Vec<OwnedFd>) -> Result<()> {
        let mut end = Frontend::from_stream(sock, u64::from(uapi::MAX_VRINGS));
        let played = self.negotiate(&mut end).and_then(|()| {
            self.share_memory(&mut end)?;
            self.vrings.iter().try_for_each(|v| self.start(&mut end, v))
        });
        drop(files);
        Ok(played.map_err(|e| format!("cannot go on with the guest: {e}"))?)
    }

    /// Takes the descriptors of its memory and of its vrings. The caller does this once, and before
    /// anything can fail, because nothing else closes them.
    pub fn files(&self) -> Vec<OwnedFd> {
        let of = |v: &KeptVring| [v.kick, v.call, v.err];
        let vrings = self.vrings.iter().flat_map(of).flatten();
        let regions = self.regions.iter().map(|r| r.file);
        regions.chain(vrings).map(take).collect()
    }

    fn negotiate(&self, end: &mut Frontend) -> vhost::Result<()> {
        end.set_owner()?;
        end.get_features()?;
        if self.protocol != 0 {
            end.get_protocol_features()?;
            end.set_protocol_features(VhostUserProtocolFeatures::from_bits_retain(self.protocol))?;
        }
        // From here on each message is answered, if the front end negotiated that.
        end.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        if self.features != 0 {
            end.set_features(self.features)?;
        }
        Ok(())
    }

    fn share_memory(&self, end: &mut Frontend) -> vhost::Result<()> {
        let region = |r: &KeptRegion| VhostUserMemoryRegionInfo {
            guest_phys_addr: r.gpa,
            memory_size: r.size,
            userspace_addr: r.frontend,
            mmap_offset: r.offset,
            mmap_handle: r.file,
        };
        let all: Vec<_> = self.regions.iter().map(region).collect();
        if self.protocol & VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS.bits() != 0 {
            return all.iter().try_for_each(|r| end.add_mem_region(r).map(drop));
        }
        if !all.is_empty() {
            end.set_mem_table(&all)?;
        }
        Ok(())
    }

    fn start(&self, end: &mut Frontend, v: &KeptVring) -> vhost::Result<()> {
        let index = v.index as usize;
        // A ring has at most 32,768 entries, and an index has 16 bits.
        if v.num != 0 {
            end.set_vring_num(index, v.num as u16)?;
        }
        end.set_vring_base(index, v.base as u16)?;
        if let Some((desc, avail, used)) = v.addr {
            let data = VringConfigData {
                queue_max_size: v.num as u16,
                queue_size: v.num as u16,
                flags: 0,
                desc_table_addr: desc,
                used_ring_addr: used,
                avail_ring_addr: avail,
                log_addr: None,
            };
            end.set_vring_addr(index, &data)?;
        }
        if let Some(fd) = duplicate(v.call)? {
            end.set_vring_call(index, &fd)?;
        }
        if let Some(fd) = duplicate(v.err)? {
            end.set_vring_err(index, &fd)?;
        }
        if let Some(fd) = duplicate(v.kick)? {
            end.set_vring_kick(index, &fd)?;
        }
        if self.features & config::F_PROTOCOL != 0 {
            end.set_vring_enable(index, v.enabled)?;
        }
        Ok(())
    }
}

/// As the crate's type.
fn duplicate(fd: Option<RawFd>) -> vhost::Result<Option<EventFd>> {
    let Some(fd) = fd else {
        return Ok(None);
    };
    // SAFETY: borrowed for the call only; Front::play() has it open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let own = fd.try_clone_to_owned().map_err(vhost::Error::IoctlError)?;
    // SAFETY: it was just made, and has no other owner.
    Ok(Some(unsafe { EventFd::from_raw_fd(own.into_raw_fd()) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_installed_in_its_place() {
        let path = |p| installed(Path::new(p));
        assert_eq!(path("/usr/bin/pvio (deleted)"), Path::new("/usr/bin/pvio"));
        assert_eq!(path("/usr/bin/pvio"), Path::new("/usr/bin/pvio"));
    }

    #[test]
    fn the_state_can_be_read_again() {
        let kept = Kept {
            listener: Some(KeptListener {
                socket: 3,
                claim: 4,
            }),
            pollers: vec![11, 12],
            places: Some(10),
            front: Some(Front {
                connection: 5,
                device: 900,
                features: 1 << 32,
                protocol: 3,
                regions: vec![KeptRegion {
                    gpa: 0,
                    size: u64::MAX,
                    frontend: 1,
                    offset: 2,
                    file: 7,
                }],
                vrings: vec![KeptVring {
                    index: 1,
                    num: 256,
                    base: 65535,
                    known: true,
                    addr: Some((1, 2, 3)),
                    kick: Some(8),
                    call: None,
                    err: Some(9),
                    enabled: true,
                }],
            }),
        };
        assert_eq!(kept.descriptors(), [3, 4, 10, 11, 12, 5, 900, 7, 8, 9]);
        let mut text = Vec::new();
        let mut memo = Memo::write(&kept).unwrap();
        memo.text.read_to_end(&mut text).unwrap();
        let read: Kept = serde_json::from_slice(&text).unwrap();
        assert_eq!(format!("{read:?}"), format!("{kept:?}"));
    }
}
