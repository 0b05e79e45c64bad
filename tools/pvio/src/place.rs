// SPDX-License-Identifier: GPL-2.0
//! A path to listen at, claimed by one process.
//!
//! A socket whose owner was killed stays on the file system, and the next pvio replaces
//! it. Two that start at once could both find it dead; the second would then remove the
//! live socket of the first. So a process locks `PATH.lock` before it looks, and keeps
//! the lock for as long as it listens. The kernel drops the lock of a killed process,
//! so a lock file that is left behind means nothing. What is in it is for [`crate::upgrade`].

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{connect, socket, AddressFamily, SockFlag, SockType, UnixAddr};
use nix::unistd::{chown, Group};

use crate::error::Context;
use crate::host;
use crate::upgrade::{Ended, Record};

/// A predecessor that was just killed may still be ending.
const PATIENCE: Duration = Duration::from_secs(1);

/// A claimed path. Dropping it removes the socket, then gives the claim back.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// Device and inode of our socket, once there is one.
    made: Option<(u64, u64)>,
    lock_path: PathBuf,
    lock: Flock<File>,
}

impl Place {
    /// Claims `path` and listens there, in place of a socket whose owner is gone.
    pub fn listen(path: &Path) -> crate::Result<(UnixListener, Self)> {
        Self::listen_within(path, PATIENCE)
    }

    /// Goes on with a claim of `path`, where a socket listens that this process made before it
    /// executed this program. The lock belongs to the open file `claim` and has stayed, so no
    /// other process had the path meanwhile.
    pub fn inherit(claim: OwnedFd, path: &Path) -> crate::Result<Self> {
        let lock = Flock::lock(File::from(claim), FlockArg::LockExclusiveNonblock)
            .map_err(|(_, e)| e)
            .context(format!("cannot claim socket {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            made: fs::symlink_metadata(path).map(|m| id(&m)).ok(),
            lock_path: lock_path(path),
            lock,
        })
    }

    /// The descriptor that has the lock, for a successor.
    pub fn claimed(&self) -> RawFd {
        self.lock.as_raw_fd()
    }

    fn listen_within(path: &Path, patience: Duration) -> crate::Result<(UnixListener, Self)> {
        let name = path.display();
        let explain = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => {
                format!("the directory of socket {name} does not exist: create it first")
            }
            io::ErrorKind::PermissionDenied => format!("no permission to make socket {name}"),
            _ => format!("cannot make socket {name}: {e}"),
        };
        let mut place = Self::claim(path, patience)
            .map_err(explain)?
            .ok_or_else(|| {
                format!(
                    "another process serves socket {name}: stop it first, or choose another path"
                )
            })?;
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(explain)?;
        place.made = fs::symlink_metadata(path).map(|m| id(&m)).ok();
        Ok((listener, place))
    }

    /// Lets members of `group` connect, and no others but the owner.
    pub fn give_to_group(&self, group: &str) -> crate::Result<()> {
        let known = Group::from_name(group).ok().flatten();
        let gid = known
            .ok_or_else(|| format!("there is no group {group} (--socket-group)"))?
            .gid;
        let doing = format!(
            "cannot give socket {} to group {group}",
            self.path.display()
        );
        chown(&self.path, None, Some(gid)).context(&doing)?;
        fs::set_permissions(&self.path, Permissions::from_mode(0o660)).context(&doing)
    }

    /// Tells `pvio upgrade` how a hand-over of this process ended: see [`Ended::why`].
    pub fn tell(&self, why: Option<&str>) {
        self.record(Some(Ended {
            at: host::monotonic(),
            why: why.map(ToOwned::to_owned),
        }));
    }

    /// On a file system that is full, `pvio upgrade` says that it got no answer.
    fn record(&self, ended: Option<Ended>) {
        let pid = std::process::id();
        let _ = Record { pid, ended }.write(&self.lock);
    }

    /// None if another process has it.
    fn claim(path: &Path, patience: Duration) -> io::Result<Option<Self>> {
        let deadline = Instant::now() + patience;
        let lock_path = lock_path(path);
        loop {
            if let Some(lock) = try_lock(&lock_path)? {
                let place = Self {
                    path: path.to_owned(),
                    made: None,
                    lock_path,
                    lock,
                };
                place.record(None);
                return Ok(Some(place));
            }
            if Instant::now() > deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Another program may have put its own socket there: that one stays.
        let ours = |meta: fs::Metadata| self.made == Some(id(&meta));
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            let _ = fs::remove_file(&self.path);
        }
        // While it is locked: a file of that name is ours.
        let _ = fs::remove_file(&self.lock_path);
    }
}

/// The lock file of the socket at `path`.
pub fn lock_path(path: &Path) -> PathBuf {
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    lock_path.into()
}

/// Locks the file at `path`, or tells that it is locked.
fn try_lock(path: &Path) -> io::Result<Option<Flock<File>>> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => lock,
        Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
        Err((_, e)) => return Err(e.into()),
    };
    // Its last owner may have removed it between our open and our lock, and another
    // process locked a new one: the lock counts only on the file that is there.
    let there = fs::symlink_metadata(path).ok().map(|meta| id(&meta));
    Ok((there == Some(id(&lock.metadata()?))).then_some(lock))
}

fn id(meta: &fs::Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// Asks whether a socket listens at `path`, without a connection to it: a program that serves one
/// connection would take this for it, and a full backlog would make pvio wait.
///
/// The kernel looks for the owner first, and then compares the types. So a datagram socket gets
/// ECONNREFUSED where no process has the socket, and EPROTOTYPE where a stream socket is there.
fn probe(path: &Path) -> nix::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let asks = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
    connect(asks.as_raw_fd(), &UnixAddr::new(path)?)
}

/// Removes a socket that no process has. Programs that know nothing of our lock listen, too.
fn remove_stale(path: &Path) -> crate::Result<()> {
    let name = path.display();
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        _ => return Err(format!("{name} exists and is not a socket").into()),
    }
    match probe(path) {
        Err(Errno::ECONNREFUSED) => {
            fs::remove_file(path).context(format!("cannot remove the old socket {name}"))
        }
        Err(Errno::ENOENT) => Ok(()),
        Ok(()) | Err(Errno::EPROTOTYPE) => Err(format!(
            "another process serves socket {name}: stop it first, or choose another path"
        )
        .into()),
        Err(e) => Err(format!(
            "socket {name} exists, and pvio cannot see whether it is in use ({e}): remove it, or \
             choose another path"
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixDatagram, UnixStream};
    use std::sync::Barrier;
    use std::thread;
    use vmm_sys_util::tempdir::TempDir;

    #[test]
    fn replaces_a_stale_socket_but_not_a_live_one() {
        let dir = TempDir::new().unwrap();
        let path = dir.as_path().join("s");
        // One that knows nothing of our lock.
        let live = UnixListener::bind(&path).unwrap();
        assert!(Place::listen(&path)
            .unwrap_err()
            .to_string()
            .contains("another"));
        drop(live); // leaves the file, as kill -9 does
        assert!(path.exists());
        let (_ours, place) = Place::listen(&path).unwrap();
        assert!(Place::listen(&path)
            .unwrap_err()
            .to_string()
            .contains("another"));
        drop(place);
        assert_eq!(fs::read_dir(dir.as_path()).unwrap().count(), 0);
    }

    #[test]
    fn of_many_that_start_at_once_one_serves() {
        let dir = TempDir::new().unwrap();
        let path = dir.as_path().join("s");
        for _ in 0..200 {
            drop(UnixListener::bind(&path).unwrap()); // dead
            let start = Barrier::new(4);
            let one = || {
                start.wait();
                Place::listen_within(&path, Duration::ZERO).ok()
            };
            let won: Vec<_> = thread::scope(|s| {
                let all: Vec<_> = (0..4).map(|_| s.spawn(one)).collect();
                all.into_iter().filter_map(|t| t.join().unwrap()).collect()
            });
            assert_eq!(won.len(), 1);
            UnixStream::connect(&path).unwrap();
        }
    }

    #[test]
    fn the_next_program_of_a_process_has_its_claim() {
        let dir = TempDir::new().unwrap();
        let path = dir.as_path().join("s");
        let (_ours, place) = Place::listen(&path).unwrap();
        let other = || Place::listen_within(&path, Duration::ZERO).map(drop);
        // As the next program finds it: an open file, and no Place that was dropped.
        let claim = place.lock.try_clone().unwrap();
        let place = std::mem::ManuallyDrop::new(place);
        nix::unistd::close(place.claimed()).unwrap();
        assert!(other().is_err(), "no one has come between");
        let place = Place::inherit(claim.into(), &path).unwrap();
        assert!(other().is_err());
        drop(place);
        assert_eq!(fs::read_dir(dir.as_path()).unwrap().count(), 0);
    }

    #[test]
    fn removes_no_socket_of_another() {
        let dir = TempDir::new().unwrap();
        let path = dir.as_path().join("s");
        let (_ours, place) = Place::listen(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _theirs = UnixListener::bind(&path).unwrap();
        drop(place);
        UnixStream::connect(&path).unwrap();
    }

    /// virtiofsd ends with its only connection.
    #[test]
    fn does_not_connect_to_the_socket_of_another() {
        let dir = TempDir::new().unwrap();
        let path = dir.as_path().join("s");
        let live = UnixListener::bind(&path).unwrap();
        live.set_nonblocking(true).unwrap();
        let error = Place::listen(&path).unwrap_err().to_string();
        assert!(error.contains("another"), "{error}");
        let came = live.accept().unwrap_err();
        assert_eq!(came.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn leaves_a_socket_of_another_type() {
        let dir = TempDir::new().unwrap();
        let path = dir.as_path().join("s");
        let other = UnixDatagram::bind(&path).unwrap();
        let error = Place::listen(&path).unwrap_err().to_string();
        assert!(error.contains("another"), "{error}");
        // It takes datagrams from one socket only, so the kernel refuses ours.
        let peer = dir.as_path().join("peer");
        let _peer = UnixDatagram::bind(&peer).unwrap();
        other.connect(&peer).unwrap();
        let error = Place::listen(&path).unwrap_err().to_string();
        assert!(error.contains("remove it"), "{error}");
        assert!(path.exists());
    }

    #[test]
    fn a_group_may_connect_and_no_others() {
        let dir = TempDir::new().unwrap();
        let path = dir.as_path().join("s");
        let (_ours, place) = Place::listen(&path).unwrap();
        let own = nix::unistd::getgid();
        let name = Group::from_gid(own).unwrap().unwrap().name;
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        place.give_to_group(&name).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.gid(), meta.mode() & 0o777), (own.as_raw(), 0o660));
        let error = place.give_to_group("no such group").unwrap_err();
        assert!(error.to_string().contains("--socket-group"), "{error}");
    }

    #[test]
    fn explains_bad_paths() {
        let dir = TempDir::new().unwrap();
        let file = dir.as_path().join("f");
        fs::write(&file, "").unwrap();
        assert!(Place::listen(&file)
            .unwrap_err()
            .to_string()
            .contains("not a socket"));
        let deep = dir.as_path().join("no/such/dir");
        assert!(Place::listen(&deep)
            .unwrap_err()
            .to_string()
            .contains("directory"));
    }
}
