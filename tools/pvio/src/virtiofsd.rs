// SPDX-License-Identifier: GPL-2.0
//! Options of virtiofsd that `pvio fs` has no use for.
//!
//! A command line that was written for virtiofsd should start pvio, too, so options that
//! say how virtiofsd's process does its work are taken and do nothing.  Those that would give the
//! guest something else than it gets here are refused, and the message says what to use.

use clap::Args;

use crate::error::Result;

/// virtiofsd's options; see the head of this file
#[derive(Debug, Default, Args)]
pub struct Foreign {
    /// there is nothing to be confined, because no process serves the files
    #[arg(long, value_name = "MODE", hide = true)]
    sandbox: Option<String>,

    /// the same
    #[arg(long, value_name = "ACTION", hide = true)]
    seccomp: Option<String>,

    /// the kernel has its own workers
    #[arg(long, value_name = "N", hide = true)]
    thread_pool_size: Option<u32>,

    /// an open file takes no descriptor; --max-handles is the limit
    #[arg(long, value_name = "N", hide = true)]
    rlimit_nofile: Option<u64>,

    /// the kernel has file handles for nodes beyond --max-dentries
    #[arg(long, value_name = "MODE", hide = true)]
    inode_file_handles: Option<String>,

    /// the VMM says it
    #[arg(long, value_name = "TAG", hide = true)]
    tag: Option<String>,

    /// pvio's messages are errors, and go to its standard error
    #[arg(long, value_name = "LEVEL", hide = true)]
    log_level: Option<String>,

    /// the same
    #[arg(long, hide = true)]
    syslog: bool,

    /// the same
    #[arg(short, hide = true)]
    debug: bool,

    /// it always is
    #[arg(long, hide = true)]
    allow_direct_io: bool,

    /// it always is
    #[arg(long, hide = true)]
    allow_mmap: bool,

    /// the guest's O_NOATIME always counts
    #[arg(long, hide = true)]
    preserve_noatime: bool,

    /// the guest asks for what it wants
    #[arg(long, hide = true)]
    no_readdirplus: bool,

    /// the default here
    #[arg(long, hide = true, overrides_with = "announce_submounts")]
    no_announce_submounts: bool,

    /// the host drops set-id bits in any case
    #[arg(long, hide = true)]
    killpriv_v2: bool,

    /// the same
    #[arg(long, hide = true)]
    no_killpriv_v2: bool,

    /// pvio stays in the foreground
    #[arg(short, hide = true)]
    foreground: bool,

    /// refused, as all that follow: check() says why
    #[arg(long, value_name = "RULES", hide = true)]
    xattrmap: Option<String>,

    #[arg(long, value_name = "MAP", hide = true)]
    uid_map: Vec<String>,

    #[arg(long, value_name = "MAP", hide = true)]
    gid_map: Vec<String>,

    #[arg(long, value_name = "MAP", hide = true)]
    translate_uid: Vec<String>,

    #[arg(long, value_name = "MAP", hide = true)]
    translate_gid: Vec<String>,

    #[arg(long, value_name = "CAPS", hide = true)]
    modcaps: Option<String>,

    #[arg(long, hide = true)]
    security_label: bool,

    #[arg(long, value_name = "MODE", hide = true)]
    migration_mode: Option<String>,

    #[arg(long, value_name = "ACTION", hide = true)]
    migration_on_error: Option<String>,

    #[arg(long, hide = true)]
    migration_verify_handles: bool,

    #[arg(long, hide = true)]
    migration_confirm_paths: bool,
}

const IDS: &str = "serve an id-mapped mount of the directory (mount --bind -o X-mount.idmap=...)";

const MIGRATION: &str = "a guest with this device cannot be migrated";

impl Foreign {
    /// Refuse what would give the guest something else than it gets.
    pub fn check(&self) -> Result<()> {
        let ids = [
            ("uid-map", &self.uid_map),
            ("gid-map", &self.gid_map),
            ("translate-uid", &self.translate_uid),
            ("translate-gid", &self.translate_gid),
        ];
        let ids = ids.map(|(name, words)| (name, !words.is_empty(), IDS));
        let others = [
            (
                "xattrmap",
                self.xattrmap.is_some(),
                "use --privileged-xattr, which has three fixed policies",
            ),
            (
                "modcaps",
                self.modcaps.is_some(),
                "the kernel uses the capabilities that pvio is started with (systemd: \
                 CapabilityBoundingSet=)",
            ),
            (
                "security-label",
                self.security_label,
                "the guest can set labels by --xattr --privileged-xattr=host",
            ),
            ("migration-mode", self.migration_mode.is_some(), MIGRATION),
            (
                "migration-on-error",
                self.migration_on_error.is_some(),
                MIGRATION,
            ),
            (
                "migration-verify-handles",
                self.migration_verify_handles,
                MIGRATION,
            ),
            (
                "migration-confirm-paths",
                self.migration_confirm_paths,
                MIGRATION,
            ),
        ];
        match ids.iter().chain(&others).find(|(_, given, _)| *given) {
            Some((name, _, instead)) => Err(format!(
                "--{name} is virtiofsd's, and pvio has no such option: {instead}"
            )
            .into()),
            None => Ok(()),
        }
    }
}
