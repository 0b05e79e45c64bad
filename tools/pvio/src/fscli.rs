// SPDX-License-Identifier: GPL-2.0
//! The command line of `pvio fs`.
//!
//! Options that mean the same as virtiofsd's have virtiofsd's names, those of the C
//! program behind `-o` included, so that libvirt can start one for the other.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::cli::{Door, PollArgs};
use crate::error::{Error, Result};
use crate::fs::Options;
use crate::uapi;
use crate::virtiofsd::Foreign;

/// Answer to `--print-capabilities`.
pub const CAPABILITIES: &str = r#"{"type":"fs","features":["separate-options"]}"#;

/// What the guest keeps in its own page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cache {
    /// a file's data until it is opened again, names and attributes for a second
    Auto,
    /// nothing: each read and write, and each name, goes to the host
    #[value(alias = "none")]
    Never,
    /// names and attributes, for a day, and no data: only for such a directory as `always`
    Metadata,
    /// everything, for a day: only for a directory that nothing but the guest changes
    Always,
}

/// What the guest's trusted.* and security.* attributes are on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Privileged {
    /// nothing: the guest has none
    Refuse,
    /// attributes user.virtiofs.*
    Map,
    /// the same attributes
    Host,
}

/// User and group that everything is done as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Squash(u32, u32);

impl std::str::FromStr for Squash {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (uid, gid) = text.split_once(':').unwrap_or((text, text));
        match (uid.parse(), gid.parse()) {
            (Ok(uid), Ok(gid)) if uid != u32::MAX && gid != u32::MAX => Ok(Self(uid, gid)),
            _ => Err(format!("'{text}' is not UID or UID:GID, in numbers").into()),
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  pvio fs --socket /run/pvio/home.sock --shared-dir /srv/home
  pvio fs --socket /run/pvio/pub.sock --shared-dir /srv/pub --readonly --squash 65534
  pvio args --fs --socket /run/pvio/home.sock      # prints arguments for QEMU

Load the modules vhost_poll and vhost_fs first. Give the VMM the arguments that 'pvio args'
prints: the guest's memory must be shared. In the guest: mount -t virtiofs TAG /mnt. Stop the
guest before you stop pvio (SIGTERM), because QEMU does not reconnect. To upgrade pvio under
a running guest, install the new one and run 'pvio upgrade'. SIGUSR1 has pvio print counters.";

/// `pvio fs`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct FsArgs {
    /// Socket to listen on
    #[arg(
        short,
        long,
        visible_alias = "socket-path",
        value_name = "PATH",
        conflicts_with = "fd"
    )]
    pub socket: Option<PathBuf>,

    /// Inherited socket to use instead, a descriptor that is listening or connected
    #[arg(long, value_name = "N")]
    pub fd: Option<i32>,

    /// Group that may connect to the socket [default: the umask decides who may]
    #[arg(long, value_name = "GROUP", conflicts_with = "fd")]
    pub socket_group: Option<String>,

    /// Directory to serve, without file systems that are mounted beneath it; pvio names them when
    /// it starts
    #[arg(long, value_name = "DIR")]
    pub shared_dir: Option<PathBuf>,

    /// Refuse all changes
    #[arg(long)]
    pub readonly: bool,

    /// Also serve file systems that are mounted beneath the directory, now and later; guests that
    /// support submounts mount each one separately, with its own device number
    #[arg(long)]
    pub announce_submounts: bool,

    /// What the guest caches
    #[arg(long, value_enum, default_value = "auto", value_name = "POLICY")]
    pub cache: Cache,

    /// Let the guest keep written data in its page cache, and write them back later: only for a
    /// directory that nothing but this guest uses. If the guest dies, unsynced data are lost
    #[arg(long)]
    pub writeback: bool,

    /// How long the guest may cache names, in ms [default: the cache policy's]
    #[arg(long, value_name = "MS")]
    pub entry_timeout: Option<u32>,

    /// How long the guest may cache attributes, in ms [default: the cache policy's]
    #[arg(long, value_name = "MS")]
    pub attr_timeout: Option<u32>,

    /// Offer extended attributes to the guest
    #[arg(long)]
    pub xattr: bool,

    /// With --xattr, where the guest's security.* and trusted.* attributes are on the host
    #[arg(long, value_enum, default_value = "refuse", value_name = "POLICY")]
    pub privileged_xattr: Privileged,

    /// Offer POSIX ACLs to the guest; implies --xattr
    #[arg(long)]
    pub posix_acl: bool,

    /// Keep the guest's file locks in the guest, as virtiofsd does: the host and other
    /// guests do not see them
    #[arg(long)]
    pub local_locks: bool,

    /// Do everything as one user, without capabilities, and have the host check permissions
    /// [default: files belong to the guest's users, the kernel uses pvio's capabilities, and
    /// the guest checks permissions]
    #[arg(long, value_name = "UID[:GID]")]
    pub squash: Option<Squash>,

    /// Most files and directories that the guest may know at a time [default: 1000000]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub max_nodes: u32,

    /// How many of these may pin an inode in the host's memory; for the others the kernel keeps a
    /// file handle [default: on ext4 and xfs a tenth of --max-nodes, but no fewer than are open; on
    /// other file systems no limit]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub max_dentries: u32,

    /// Most files and directories that the guest may have open [default: 65536]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub max_handles: u32,

    /// Most owners of locks, and most requests that wait for a lock [default: 16384]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub max_locks: u32,

    /// Most queues that the VMM may use, 2 to 64: one for high priority, all others for requests
    #[arg(long, value_name = "N", default_value_t = uapi::MAX_VRINGS as u16,
          value_parser = clap::value_parser!(u16).range(2..=uapi::MAX_VRINGS as i64))]
    pub num_queues: u16,

    /// Share of its poller that each vring has, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub weight: u32,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub poll: PollArgs,

    /// Options of older virtiofsd programs: source=, cache=, [no_]writeback, [no_]xattr,
    /// [no_]posix_acl, [no_]posix_lock, [no_]flock, [no_]announce_submounts, sandbox=
    #[arg(short = 'o', value_name = "OPTION[,OPTION...]")]
    pub compat: Vec<String>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub foreign: Foreign,

    /// Print what this back end can do, as JSON, and do nothing else
    #[arg(long)]
    pub print_capabilities: bool,
}

/// A directory to serve.
#[derive(Debug)]
pub struct Share {
    /// Where its front ends come from.
    pub door: Door,
    /// What is served.
    pub path: PathBuf,
    /// And how.
    pub options: Options,
}

impl Share {
    /// A short name for messages and threads.
    pub fn name(&self) -> String {
        let path: &Path = match &self.door {
            Door::Path(path) => path,
            Door::Fd(_) => &self.path,
        };
        let stem = path.file_stem().map(|n| n.to_string_lossy().into_owned());
        stem.unwrap_or_default()
    }
}

/// What `-o` may change.
struct Choices {
    path: Option<PathBuf>,
    cache: Cache,
    writeback: bool,
    submounts: bool,
    xattr: bool,
    acl: bool,
    /// Locks that the host sees: POSIX, flock.
    locks: [bool; 2],
}

impl Choices {
    fn take(&mut self, option: &str) -> Result<()> {
        match option.split_once('=').unwrap_or((option, "")) {
            ("source", path) => self.path = Some(path.into()),
            ("cache", policy) => {
                self.cache = Cache::from_str(policy, false).map_err(|_| {
                    format!("-o cache is auto, never, metadata or always, not '{policy}'")
                })?;
            }
            ("writeback", "") => self.writeback = true,
            ("no_writeback", "") => self.writeback = false,
            ("announce_submounts", "") => self.submounts = true,
            ("no_announce_submounts", "") => self.submounts = false,
            ("xattr", "") => self.xattr = true,
            ("no_xattr", "") => self.xattr = false,
            ("posix_acl", "") => self.acl = true,
            ("no_posix_acl", "") => self.acl = false,
            ("posix_lock", "") => self.locks[0] = true,
            ("no_posix_lock", "") => self.locks[0] = false,
            ("flock", "") => self.locks[1] = true,
            ("no_flock", "") => self.locks[1] = false,
            /* How virtiofsd does its work; see virtiofsd.rs. */
            ("sandbox" | "loglevel" | "log_level", _) => {}
            ("allow_direct_io" | "no_allow_direct_io", "") => {}
            ("readdirplus" | "no_readdirplus", "") => {}
            ("killpriv_v2" | "no_killpriv_v2", "") => {}
            _ => return Err(format!("-o has no option '{option}'; see 'pvio fs --help'").into()),
        }
        Ok(())
    }
}

impl FsArgs {
    /// The directory the command line asks for.
    pub fn share(&self) -> Result<Share> {
        self.foreign.check()?;
        let mut chosen = Choices {
            path: self.shared_dir.clone(),
            cache: self.cache,
            writeback: self.writeback,
            submounts: self.announce_submounts,
            xattr: self.xattr,
            acl: self.posix_acl,
            locks: [!self.local_locks; 2],
        };
        for option in self.compat.iter().flat_map(|text| text.split(',')) {
            chosen.take(option)?;
        }
        let door = match (&self.socket, self.fd) {
            (Some(socket), _) => Door::Path(socket.clone()),
            (None, Some(fd)) => Door::Fd(fd),
            (None, None) => return Err("no socket is given: use --socket PATH (or --fd N)".into()),
        };
        let options = self.options(&chosen)?;
        let path = chosen
            .path
            .ok_or("no directory is given: use --shared-dir DIR")?;
        Ok(Share {
            door,
            path,
            options,
        })
    }

    fn options(&self, chosen: &Choices) -> Result<Options> {
        let [posix, flock] = chosen.locks;
        if posix != flock {
            return Err("-o posix_lock and -o flock must both be on, or both be off".into());
        }
        let flag = |on, bit| if on { bit } else { 0 };
        // ACLs are attributes for the guest, as for virtiofsd.
        let xattr = chosen.xattr || chosen.acl;
        let privileged = match self.privileged_xattr {
            _ if !xattr => 0,
            Privileged::Refuse => 0,
            Privileged::Map => uapi::FS_EXPORT_MAP_XATTR,
            Privileged::Host => uapi::FS_EXPORT_RAW_XATTR,
        };
        let (cache, timeout) = match chosen.cache {
            Cache::Auto => (uapi::FS_CACHE_AUTO, 1000),
            Cache::Never => (uapi::FS_CACHE_NONE, 0),
            Cache::Metadata => (uapi::FS_CACHE_NONE, 86_400_000),
            Cache::Always => (uapi::FS_CACHE_ALWAYS, 86_400_000),
        };
        let Squash(uid, gid) = self.squash.unwrap_or(Squash(0, 0));
        Ok(Options {
            flags: flag(self.readonly, uapi::FS_EXPORT_READ_ONLY)
                | flag(self.squash.is_some(), uapi::FS_EXPORT_SQUASH)
                | flag(!xattr, uapi::FS_EXPORT_NO_XATTR)
                | flag(!chosen.acl, uapi::FS_EXPORT_NO_ACL)
                | flag(!posix, uapi::FS_EXPORT_LOCAL_LOCKS)
                | flag(chosen.writeback, uapi::FS_EXPORT_WRITEBACK)
                | flag(chosen.submounts, uapi::FS_EXPORT_SUBMOUNTS)
                | privileged,
            cache,
            squash: (uid, gid),
            entry_timeout: self.entry_timeout.unwrap_or(timeout),
            attr_timeout: self.attr_timeout.unwrap_or(timeout),
            max_nodes: self.max_nodes,
            max_dentries: self.max_dentries,
            max_handles: self.max_handles,
            max_locks: self.max_locks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: FsArgs,
    }

    fn share(line: &[&str]) -> Result<Share> {
        let words = ["fs", "--socket=/s/home.sock"].iter().chain(line);
        let line = Line::try_parse_from(words).map_err(|e| e.to_string())?;
        line.args.share()
    }

    const BARE: u32 = uapi::FS_EXPORT_NO_XATTR | uapi::FS_EXPORT_NO_ACL;

    #[test]
    fn virtiofsd_s_defaults_but_for_locks() {
        let one = share(&["--shared-dir=/d"]).unwrap();
        assert_eq!(
            (one.path.to_str(), one.name().as_str()),
            (Some("/d"), "home")
        );
        assert_eq!(one.options.flags, BARE);
        assert_eq!(
            (one.options.entry_timeout, one.options.attr_timeout),
            (1000, 1000)
        );
    }

    #[test]
    fn options_reach_the_kernel() {
        let all = "--shared-dir=/d --readonly --cache=never --xattr --posix-acl --local-locks \
                   --privileged-xattr=map --squash=7:8 --max-nodes=1 --max-handles=2 \
                   --max-locks=3 --max-dentries=4 --attr-timeout=9 --writeback \
                   --announce-submounts";
        let words: Vec<&str> = all.split(' ').collect();
        let o = share(&words).unwrap().options;
        let bits = [0, 1, 3, 5, 7, 8].map(|bit| 1 << bit);
        assert_eq!(o.flags, bits.iter().sum::<u32>());
        assert_eq!((o.cache, o.squash), (uapi::FS_CACHE_NONE, (7, 8)));
        assert_eq!((o.entry_timeout, o.attr_timeout), (0, 9));
        assert_eq!((o.max_nodes, o.max_handles, o.max_locks), (1, 2, 3));
        assert_eq!(o.max_dentries, 4);
        let alone = ["--shared-dir=/d", "--squash=7"];
        assert_eq!(share(&alone).unwrap().options.squash, (7, 7));
    }

    #[test]
    fn starts_on_libvirt_s_words() {
        let one = share(&[
            "-o",
            "source=/d,cache=always,sandbox=chroot,xattr,flock,posix_lock",
        ]);
        let one = one.unwrap();
        assert_eq!(one.path, PathBuf::from("/d"));
        assert_eq!(one.options.cache, uapi::FS_CACHE_ALWAYS);
        assert_eq!(one.options.flags, uapi::FS_EXPORT_NO_ACL);
        let local = share(&["-o", "source=/d", "-o", "no_flock,no_posix_lock"]).unwrap();
        assert_eq!(local.options.flags, BARE | uapi::FS_EXPORT_LOCAL_LOCKS);
        let late = share(&["-o", "source=/d,writeback"]).unwrap();
        assert_eq!(late.options.flags, BARE | uapi::FS_EXPORT_WRITEBACK);
        let below = share(&["-o", "source=/d,announce_submounts"]).unwrap();
        assert_eq!(below.options.flags, BARE | uapi::FS_EXPORT_SUBMOUNTS);
        let not = [
            "--announce-submounts",
            "-o",
            "source=/d,no_announce_submounts",
        ];
        assert_eq!(share(&not).unwrap().options.flags, BARE);
    }

    #[test]
    fn starts_on_virtiofsd_s_words() {
        let all = "--shared-dir=/d --cache=metadata --sandbox=none --seccomp=none \
                   --thread-pool-size=4 --rlimit-nofile=9 --inode-file-handles=prefer --tag=t \
                   --log-level=debug --syslog -d --allow-direct-io --allow-mmap \
                   --no-readdirplus --no-announce-submounts --killpriv-v2 --preserve-noatime -f \
                   -o log_level=warn,allow_direct_io,no_readdirplus,killpriv_v2";
        let words: Vec<&str> = all.split_whitespace().collect();
        let o = share(&words).unwrap().options;
        assert_eq!((o.flags, o.cache), (BARE, uapi::FS_CACHE_NONE));
        assert_eq!((o.entry_timeout, o.attr_timeout), (86_400_000, 86_400_000));
    }

    #[test]
    fn says_what_to_use_for_what_it_lacks() {
        for (word, instead) in [
            ("--xattrmap=:prefix:all::user.:", "--privileged-xattr"),
            ("--uid-map=:0:100000:65536:", "idmap"),
            ("--gid-map=:0:100000:65536:", "idmap"),
            ("--translate-uid=map:0:100:1", "idmap"),
            ("--translate-gid=map:0:100:1", "idmap"),
            ("--modcaps=-sys_admin", "CapabilityBoundingSet"),
            ("--security-label", "--xattr"),
            ("--migration-mode=find-paths", "migrated"),
        ] {
            let error = share(&["--shared-dir=/d", word]).unwrap_err().to_string();
            assert!(error.contains(instead), "{word}: {error}");
        }
    }

    #[test]
    fn refuses_nonsense() {
        for line in [
            &[][..],
            &["--shared-dir=/d", "-o", "colour=red"],
            &["--shared-dir=/d", "-o", "no_flock"],
            &["--shared-dir=/d", "--squash=root"],
            &["--shared-dir=/d", "--squash=4294967295"],
            &["--shared-dir=/d", "--num-queues=1"],
            &["--shared-dir=/d", "--fd=3"],
        ] {
            assert!(share(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn capabilities_are_json() {
        let json: serde_json::Value = serde_json::from_str(CAPABILITIES).unwrap();
        assert_eq!(json["type"], "fs");
    }
}
