// SPDX-License-Identifier: GPL-2.0
//! Which CPUs this process polls from.
//!
//! Each pvio process takes a place for each of its pollers, so that those which are
//! left to choose spread over the CPUs. A place is a byte of one file, which its owner
//! keeps locked: the kernel gives it back when the process ends, however that comes.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg};
use nix::sched::{sched_getaffinity, CpuSet};
use nix::unistd::Pid;

use crate::host;

/// Directory of the registry, and of the sockets that the systemd unit makes.
pub const RUN: &str = "/run/pvio";

/// Places on one CPU; a process that finds none left goes without.
const PLACES: u32 = 256;

/// The registry, and the places of this process, which last as long as it does.
pub struct Places(Option<File>);

/// A CPU to poll from.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub cpu: u32,
    /// How many other pollers were there.
    pub others: u32,
}

impl Places {
    /// Opens the registry in `dir`. Without one each process chooses by itself.
    pub fn open(dir: &Path) -> Self {
        let open = || {
            match DirBuilder::new().mode(0o750).create(dir) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(dir.join("pollers"))
        };
        let file = open().inspect_err(|e| {
            say!(
                "{}: {e}: cannot see which CPUs other pvio processes poll from",
                dir.display()
            );
        });
        Self(file.ok())
    }

    /// The registry that the pvio before this one has left, with the places of this process: the
    /// kernel keeps the locks for as long as the file is open.
    pub fn inherit(registry: Option<OwnedFd>) -> Self {
        Self(registry.map(File::from))
    }

    /// For a successor.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.0.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Takes a place on the CPU of `cpus` that the fewest poll from; of several such,
    /// on the first.
    pub fn take(&self, cpus: &[u32]) -> Option<Place> {
        let all = (0..PLACES).flat_map(|others| cpus.iter().map(move |&cpu| Place { cpu, others }));
        let first = cpus.first().map(|&cpu| Place { cpu, others: 0 });
        match &self.0 {
            Some(file) => all.into_iter().find(|p| lock(file, p)).or(first),
            None => first,
        }
    }
}

fn lock(file: &File, place: &Place) -> bool {
    let byte = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: i64::from(place.cpu) * i64::from(PLACES) + i64::from(place.others),
        l_len: 1,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&byte)) {
        Err(Errno::EAGAIN | Errno::EACCES) => false,
        // Without locks there is no registry: the first CPU will do.
        _ => true,
    }
}

/// CPUs that pvio may choose from, the best first: those that the operator has
/// isolated, else those that this process may run on, the last one first, because
/// interrupts and most else start at 0.
pub fn candidates() -> crate::Result<Vec<u32>> {
    let online =
        host::online_cpus().map_err(|e| format!("cannot see which CPUs are online: {e}"))?;
    let isolated = host::isolated_cpus();
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_else(|_| CpuSet::new());
    let allowed = |cpu: u32| allowed.is_set(cpu as usize).unwrap_or(false);
    Ok(prefer(&online, &isolated, allowed))
}

fn prefer(online: &[u32], isolated: &[u32], allowed: impl Fn(u32) -> bool) -> Vec<u32> {
    let that = |wanted: &dyn Fn(u32) -> bool| -> Vec<u32> {
        online
            .iter()
            .rev()
            .copied()
            .filter(|&c| wanted(c))
            .collect()
    };
    let choices = [
        that(&|cpu| isolated.contains(&cpu)),
        that(&allowed),
        that(&|_| true),
    ];
    choices
        .into_iter()
        .find(|c| !c.is_empty())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm_sys_util::tempdir::TempDir;

    fn at(cpu: u32, others: u32) -> Option<Place> {
        Some(Place { cpu, others })
    }

    #[test]
    fn processes_spread_over_the_cpus() {
        let dir = TempDir::new().unwrap();
        let process = || Places::open(dir.as_path());
        let (one, two, three) = (process(), process(), process());
        assert_eq!(one.take(&[3]), at(3, 0));
        assert_eq!(two.take(&[3, 2]), at(2, 0), "3 is taken");
        assert_eq!(three.take(&[3, 2]), at(3, 1), "each has one");
        drop(one);
        assert_eq!(process().take(&[2, 3]), at(3, 0), "its end gave it back");
    }

    #[test]
    fn the_next_program_of_a_process_has_its_places() {
        let dir = TempDir::new().unwrap();
        let old = Places::open(dir.as_path());
        old.take(&[3]);
        // Closed where the next program is executed, and another one kept open.
        let kept = old.0.as_ref().unwrap().try_clone().unwrap();
        drop(old);
        let new = Places::inherit(Some(kept.into()));
        assert_eq!(Places::open(dir.as_path()).take(&[3]), at(3, 1));
        assert!(new.descriptor().is_some());
    }

    #[test]
    fn without_a_registry_the_first_is_taken() {
        let none = Places::open(Path::new("/proc/no"));
        assert_eq!(none.take(&[3, 2]), at(3, 0));
        assert_eq!(none.take(&[]), None);
    }

    #[test]
    fn isolated_ones_come_first() {
        let online = [0, 1, 2, 3];
        assert_eq!(prefer(&online, &[1, 2, 9], |_| true), [2, 1]);
        assert_eq!(prefer(&online, &[], |cpu| cpu < 2), [1, 0]);
        assert_eq!(prefer(&online, &[], |_| false), [3, 2, 1, 0]);
    }
}
