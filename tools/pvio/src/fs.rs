// SPDX-License-Identifier: GPL-2.0
//! A directory, as a [`Service`]: `/dev/vhost-fs` serves it.

use std::fs;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{open, OFlag};
use nix::sys::stat::Mode;

use crate::error::{Context, Error, Result};
use crate::host;
use crate::kernel::{FsDevice, Node, Opener, Placement, DEV_FS};
use crate::service::Service;
use crate::uapi::{self, FsExport, FsInfo, ServeStats};

/// What a guest may do with a directory, and how much of it.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// [`uapi`]'s `FS_EXPORT_*`.
    pub flags: u32,
    /// [`uapi`]'s `FS_CACHE_*`.
    pub cache: u32,
    /// With `FS_EXPORT_SQUASH`: whose rights everything is done with.
    pub squash: (u32, u32),
    /// How long the guest may believe a name, in ms.
    pub entry_timeout: u32,
    /// How long the guest may believe attributes, in ms.
    pub attr_timeout: u32,
    /// Files and directories the guest may know at a time; 0 is the kernel's default.
    pub max_nodes: u32,
    /// Of those, how many may pin an inode of the host.
    pub max_dentries: u32,
    /// And have open.
    pub max_handles: u32,
    /// Owners of locks, and requests that wait for one.
    pub max_locks: u32,
}

/// How it is served.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Vrings the front end may use, the one for high priority included.
    pub queues: u16,
    /// Pollers, one descriptor each; vring i goes to number i modulo their count.
    pub pollers: Vec<RawFd>,
    /// Share of a poller's round; 0 is the default.
    pub weight: u32,
}

/// An open directory.
pub struct Directory {
    dir: OwnedFd,
    path: PathBuf,
    opts: Options,
}

impl Directory {
    /// Opens `path` once: renamed or mounted over, the directory stays the same.
    pub fn open(path: &Path, opts: &Options) -> Result<Self> {
        let name = path.display();
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = open(path, flags, Mode::empty()).map_err(|e| match e {
            Errno::ENOENT => Error::from(format!("{name} does not exist")),
            Errno::ENOTDIR => format!("{name} is not a directory").into(),
            Errno::EACCES => format!("no permission to reach {name}").into(),
            _ => format!("{name}: {e}").into(),
        })?;
        Ok(Self {
            dir,
            path: path.to_owned(),
            opts: opts.clone(),
        })
    }

    /// Says what is mounted beneath the directory if the guest will not see it.
    pub fn hidden_mounts(&self) -> Option<String> {
        if self.opts.flags & uapi::FS_EXPORT_SUBMOUNTS != 0 {
            return None;
        }
        let fd = self.dir.as_raw_fd();
        let dir = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        // A place need not be UTF-8.
        let all = fs::read("/proc/self/mountinfo").ok()?;
        let all = String::from_utf8_lossy(&all);
        let places = host::mounts_beneath(&all, host::mount_of(fd)?, &dir);
        let (mounts, them) = match places.len() {
            0 => return None,
            1 => ("1 mount".to_owned(), "it"),
            n => (format!("{n} mounts"), "them"),
        };
        Some(format!(
            "the guest will not see {mounts} beneath {} ({}): give --announce-submounts to serve \
             {them}",
            self.path.display(),
            some_of(&places)
        ))
    }

    fn export(&self) -> FsExport {
        let o = &self.opts;
        FsExport {
            size: size_of::<FsExport>() as u32,
            flags: o.flags,
            fd: self.dir.as_raw_fd(),
            cache: o.cache,
            squash_uid: o.squash.0,
            squash_gid: o.squash.1,
            entry_timeout_ms: o.entry_timeout,
            attr_timeout_ms: o.attr_timeout,
            max_nodes: o.max_nodes,
            max_handles: o.max_handles,
            max_locks: o.max_locks,
            max_dentries: o.max_dentries,
        }
    }

    fn explain(&self, e: &io::Error) -> Error {
        let name = self.path.display();
        match e.raw_os_error() {
            Some(libc::EPERM) => format!(
                "{name}: no permission to serve it: run pvio as root, or with CAP_SYS_ADMIN (and \
                 CAP_SETUID and CAP_SETGID for --squash)"
            ),
            Some(libc::EACCES) => format!("{name}: no permission to read it"),
            Some(libc::EINVAL) => format!(
                "{name}: the kernel cannot serve it: a limit is too large, or its mount cannot be \
                 bound elsewhere (unbindable, or of another mount namespace)"
            ),
            Some(libc::EOPNOTSUPP) => format!("{name}: vhost_fs cannot serve its file system"),
            _ => format!("{name}: the kernel refuses it: {e}"),
        }
        .into()
    }
}

/// The first of `places`, in a line of bounded length.
fn some_of(places: &[PathBuf]) -> String {
    const MOST: usize = 3;
    const LONGEST: usize = 40;
    let name = |place: &PathBuf| {
        let text = place.to_string_lossy().replace(char::is_control, "?");
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    };
    let names: Vec<_> = places.iter().take(MOST).map(name).collect();
    let names = names.join(", ");
    match places.len().saturating_sub(MOST) {
        0 => names,
        left => format!("{names} and {left} more"),
    }
}

/// A directory that is served by devices of type `D`.
pub struct Fs<D> {
    directory: Directory,
    settings: Settings,
    opener: Opener<D>,
    /// Of the pvio before this one, with a guest's session in it.
    inherited: Option<D>,
}

impl<D: FsDevice> Fs<D> {
    /// Serves `directory` with devices from `opener`.
    pub fn new(directory: Directory, settings: Settings, opener: Opener<D>) -> Self {
        Self {
            directory,
            settings,
            opener,
            inherited: None,
        }
    }

    /// The first device is `dev`, which has an export and a guest's session.
    pub fn inherit(mut self, dev: D) -> Self {
        self.inherited = Some(dev);
        self
    }
}

impl<D: FsDevice> Service for Fs<D> {
    type Device = D;
    type Stats = ServeStats;
    type Info = FsInfo;

    const KIND: &'static str = "share";
    const INFO_KEY: &'static str = "export";
    const HANDS_OVER: bool = true;

    fn name(&self) -> String {
        self.directory.path.display().to_string()
    }

    fn open(&mut self) -> Result<D> {
        if let Some(dev) = self.inherited.take() {
            return Ok(dev);
        }
        let dev = (self.opener)().map_err(|e| host::explain_node(DEV_FS, &e))?;
        dev.set_export(&self.directory.export())
            .map_err(|e| self.directory.explain(&e))?;
        Ok(dev)
    }

    fn place(&self, dev: &D, index: u32) -> Result<()> {
        let placement = Placement {
            index,
            poller: Placement::poller_of(&self.settings.pollers, index),
            hctx: uapi::HCTX_AUTO,
            weight: self.settings.weight,
        };
        dev.place_vring(&placement)
            .context(format!("cannot give vring {index} a poller"))
    }

    fn queues(&self) -> u16 {
        self.settings.queues
    }

    fn is_pinned(&self) -> bool {
        false
    }

    fn device_info(&self, dev: &D) -> io::Result<FsInfo> {
        dev.info()
    }

    fn stats(&self, dev: &D, index: u32) -> io::Result<ServeStats> {
        dev.stats(index)
    }

    fn waits(&self, dev: &D, index: u32) -> io::Result<bool> {
        Ok(dev.stats(index)?.inflight != 0)
    }
}

/// For [`Fs::new`]: the real device.
pub fn kernel_opener() -> Opener<Node> {
    std::sync::Arc::new(Node::fs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_that_the_guest_will_not_see_a_mount() {
        let root = |flags| {
            let options = Options {
                flags,
                ..Default::default()
            };
            Directory::open(Path::new("/"), &options).unwrap()
        };
        // This test reads /proc, so there is one.
        let said = root(0).hidden_mounts().unwrap();
        assert!(said.contains("beneath / ("), "{said}");
        assert!(said.contains("--announce-submounts"), "{said}");
        assert!(!said.contains('\n'), "{said}");
        assert_eq!(root(uapi::FS_EXPORT_SUBMOUNTS).hidden_mounts(), None);
        let dir = vmm_sys_util::tempdir::TempDir::new().unwrap();
        let empty = Directory::open(dir.as_path(), &Options::default()).unwrap();
        assert_eq!(empty.hidden_mounts(), None);
    }

    #[test]
    fn names_only_some_places_of_bounded_length() {
        let of = |names: &[&str]| some_of(&names.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["a"]), "a");
        assert_eq!(of(&["a", "b\nc", "d"]), "a, b?c, d");
        assert_eq!(of(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
        let long = "\u{e9}".repeat(300);
        assert_eq!(of(&[&long]), format!("{}...", "\u{e9}".repeat(40)));
    }
}
