// SPDX-License-Identifier: GPL-2.0
//! `pvio upgrade`: has a `pvio fs` hand its directory over, see [`crate::handover`], waits for
//! it, and says how it ended.
//!
//! A signal has no answer, so the pvio that listens at a socket writes its own number and the end
//! of its last hand-over into the lock file beside the socket ([`crate::place`]). The lock file
//! belongs to the open file that has the lock, which both programs of the process have, so either
//! of them can answer: the old one if it goes on, and the new one once the guest does.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::host;
use crate::place::lock_path;

/// How long a hand-over may take: ten seconds for a pause of the VMM, the minute of
/// `stop_timeout`, ten seconds for the guest to go on, and some for the programs.
pub const PATIENCE: Duration = Duration::from_secs(85);

/// `pvio upgrade`
#[derive(Debug, Args)]
pub struct UpgradeArgs {
    /// Socket that the running 'pvio fs' listens on
    #[arg(short, long, visible_alias = "socket-path", value_name = "PATH")]
    pub socket: PathBuf,
}

/// The content of a lock file.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The process that listens.
    pub pid: u32,
    /// Its last hand-over.
    pub ended: Option<Ended>,
}

/// The end of a hand-over.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// On the monotonic clock.
    pub at: Duration,
    /// Why the installed pvio does not serve the guest; None if it does.
    pub why: Option<String>,
}

impl Record {
    /// Writes the record into `file`. A reader never finds a part of it, but may find nothing.
    pub fn write(&self, file: &File) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        file.set_len(0)?;
        file.write_all_at(&text, 0)
    }

    fn read(file: &File) -> Option<Self> {
        let mut text = vec![0; file.metadata().ok()?.len() as usize];
        file.read_exact_at(&mut text, 0).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// Runs `pvio upgrade`.
pub fn main(args: &UpgradeArgs) -> Result<()> {
    ask(&args.socket, PATIENCE, |pid| {
        kill(Pid::from_raw(pid as i32), Signal::SIGUSR2)
    })
}

/// Asks the pvio that listens at `socket` by `signal`.
fn ask(
    socket: &Path,
    patience: Duration,
    signal: impl FnOnce(u32) -> nix::Result<()>,
) -> Result<()> {
    let name = socket.display();
    let lock = File::open(lock_path(socket)).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => no_one_at(socket),
        io::ErrorKind::PermissionDenied => not_allowed(socket),
        _ => format!("socket {name}: cannot read its lock file: {e}").into(),
    })?;
    if !is_locked(&lock) {
        return Err(no_one_at(socket));
    }
    let record = Record::read(&lock).unwrap_or_default();
    // An older pvio leaves the record as it was, and the number may be another process's by now.
    // So may that of a pvio in another PID namespace.
    if !has_open(record.pid, &lock) {
        return Err(format!(
            "the pvio that listens at socket {name} does not say which process it is (it is older \
             than 'pvio upgrade', or in another container): send it SIGUSR2 yourself, and read in \
             its messages whether it was handed over"
        )
        .into());
    }
    let (pid, asked) = (record.pid, host::monotonic());
    signal(pid).map_err(|e| match e {
        Errno::EPERM => not_allowed(socket),
        _ => format!("cannot send a signal to pvio (process {pid}): {e}").into(),
    })?;
    wait(&lock, pid, asked, patience)
}

fn no_one_at(socket: &Path) -> Error {
    let name = socket.display();
    format!("no pvio listens at socket {name}: start one, or name the socket of one that runs")
        .into()
}

fn not_allowed(socket: &Path) -> Error {
    let name = socket.display();
    format!("no permission to signal the pvio that listens at socket {name}: run this as its user")
        .into()
}

/// Whether the process that has the lock is still there.
fn is_locked(lock: &File) -> bool {
    let same = lock.try_clone();
    same.map_or(true, |same| {
        Flock::lock(same, FlockArg::LockSharedNonblock).is_err() // else it is unlocked here
    })
}

/// Whether process `pid` has `file` open.
fn has_open(pid: u32, file: &File) -> bool {
    let id = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let Ok(wanted) = file.metadata().map(id) else {
        return false;
    };
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
    let fds = fds.flatten().flatten();
    fds.into_iter()
        .any(|fd| fs::metadata(fd.path()).map(id).is_ok_and(|id| id == wanted))
}

/// Waits for the end of a hand-over that was asked for at `asked`.
fn wait(lock: &File, pid: u32, asked: Duration, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        // In this order, because pvio writes the reason before it ends.
        let is_there = is_locked(lock);
        let ended = Record::read(lock).and_then(|record| record.ended);
        if let Some(ended) = ended.filter(|ended| ended.at >= asked) {
            return ended.why.map_or(Ok(()), |why| Err(why.into()));
        }
        if !is_there {
            return Err(format!(
                "pvio (process {pid}) has ended, and the guest has lost the directory: read its \
                 messages, and start the guest again"
            )
            .into());
        }
        if Instant::now() > deadline {
            return Err(format!(
                "pvio (process {pid}) has not answered within {} seconds: read in its messages \
                 whether it is handed over later",
                patience.as_secs()
            )
            .into());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;
    use vmm_sys_util::tempdir::TempDir;

    const SOON: Duration = Duration::from_millis(200);

    struct Listener {
        dir: TempDir,
        place: Place,
    }

    fn listener() -> Listener {
        let dir = TempDir::new().unwrap();
        let (_, place) = Place::listen(&dir.as_path().join("s")).unwrap();
        Listener { dir, place }
    }

    impl Listener {
        /// Asks, and has `answer` come of it.
        fn ask(&self, answer: impl FnOnce(&Place)) -> std::result::Result<(), String> {
            let signal = |pid| {
                assert_eq!(pid, std::process::id());
                answer(&self.place);
                Ok(())
            };
            ask(&self.dir.as_path().join("s"), SOON, signal).map_err(|e| e.to_string())
        }
    }

    #[test]
    fn tells_how_a_hand_over_ended() {
        let pvio = listener();
        let refused = pvio.ask(|place| place.tell(Some("a lengthy reason\nof two lines")));
        assert_eq!(refused.unwrap_err(), "a lengthy reason\nof two lines");
        pvio.ask(|place| place.tell(None)).unwrap();
    }

    #[test]
    fn an_earlier_end_is_not_this_one() {
        let pvio = listener();
        pvio.place.tell(None);
        let said = pvio.ask(|_| {}).unwrap_err();
        assert!(said.contains("has not answered"), "{said}");
    }

    #[test]
    fn tells_that_pvio_has_ended() {
        let Listener { dir, place } = listener();
        let path = dir.as_path().join("s");
        let ends = |_| {
            drop(place);
            Ok(())
        };
        let said = ask(&path, SOON, ends).unwrap_err().to_string();
        assert!(said.contains("has ended"), "{said}");

        let Listener { dir, place } = listener();
        let path = dir.as_path().join("s");
        let ends = |_| {
            place.tell(Some("no program"));
            drop(place);
            Ok(())
        };
        assert_eq!(
            ask(&path, SOON, ends).unwrap_err().to_string(),
            "no program"
        );
    }

    /// SIGUSR2 would end another process.
    #[test]
    fn signals_no_other_process() {
        let dir = TempDir::new().unwrap();
        let path = dir.as_path().join("s");
        let asked = || {
            let never = |pid| -> nix::Result<()> { panic!("a signal to {pid}") };
            ask(&path, SOON, never).unwrap_err().to_string()
        };
        assert!(asked().contains("no pvio listens"));
        let lock = File::create(lock_path(&path)).unwrap();
        // Left behind by a pvio that was killed.
        let left = |pid| Record { pid, ended: None }.write(&lock).unwrap();
        left(std::process::id());
        assert!(asked().contains("no pvio listens"));
        let _locked = Flock::lock(lock.try_clone().unwrap(), FlockArg::LockExclusive).unwrap();
        for pid in [1, u32::MAX, 0] {
            left(pid);
            assert!(asked().contains("which process"), "{pid}");
        }
        lock.set_len(0).unwrap();
        assert!(asked().contains("which process"));
    }

    #[test]
    fn a_new_listener_forgets_the_old_one_s_end() {
        let Listener { dir, place } = listener();
        let path = dir.as_path().join("s");
        place.tell(Some("an end"));
        let lock = lock_path(&path);
        let left = fs::read(&lock).unwrap();
        drop(place);
        fs::write(&lock, left).unwrap();
        let (_, _place) = Place::listen(&path).unwrap();
        let record = Record::read(&File::open(&lock).unwrap()).unwrap();
        let pid = std::process::id();
        assert_eq!(record, Record { pid, ended: None });
    }
}
