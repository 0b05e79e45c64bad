// SPDX-License-Identifier: GPL-2.0
//! Sockets: listening, serving one front end after another, being told to stop.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use vhost::vhost_user::{BackendReqHandler, Error};
use vmm_sys_util::eventfd::EventFd;

use crate::channel;
use crate::memory::{peer_pid, HOW_TO_SHARE};
use crate::session::Session;

/// Where front ends come from.
#[derive(Debug)]
pub enum Entrance {
    /// They connect, one at a time, any number of times.
    Listener(UnixListener, Option<PathBuf>),
    /// There is one, connected already.
    Connected(UnixStream),
}

impl Entrance {
    /// Makes a listening socket at `path`, in place of one whose owner is gone.
    pub fn at_path(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let listener = match UnixListener::bind(path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path)?;
                UnixListener::bind(path)
            }
            result => result,
        };
        match listener {
            Ok(l) => Ok(Self::Listener(l, Some(path.to_owned()))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(format!(
                "the directory of socket {name} does not exist: create it first"
            )),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                Err(format!("no permission to make socket {name}"))
            }
            Err(e) => Err(format!("cannot make socket {name}: {e}")),
        }
    }

    /// Takes over descriptor `fd`, listening or connected, from our parent.
    pub fn from_fd(fd: RawFd) -> Result<Self, String> {
        let wrong = || format!("descriptor {fd} (--fd) is not a Unix stream socket");
        if socket_option(fd, libc::SO_DOMAIN) != Some(libc::AF_UNIX)
            || socket_option(fd, libc::SO_TYPE) != Some(libc::SOCK_STREAM)
        {
            return Err(wrong());
        }
        // SAFETY: it is open, and by the meaning of --fd it was left to us.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        if socket_option(fd, libc::SO_ACCEPTCONN) == Some(1) {
            let listener = UnixListener::from(owned);
            listener.set_nonblocking(false).map_err(|_| wrong())?;
            return Ok(Self::Listener(listener, None));
        }
        let stream = UnixStream::from(owned);
        stream.set_nonblocking(false).map_err(|_| wrong())?;
        Ok(Self::Connected(stream))
    }

    /// Another handle on the listening socket, to [`shut`] it. None for one that was
    /// inherited: its owner and who comes after us still want it.
    pub fn listener(&self) -> Option<OwnedFd> {
        match self {
            Self::Listener(listener, Some(_)) => listener.try_clone().ok().map(OwnedFd::from),
            _ => None,
        }
    }

    /// The socket's path, if it was made by us.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Listener(_, path) => path.as_deref(),
            Self::Connected(_) => None,
        }
    }
}

fn socket_option(fd: RawFd, option: i32) -> Option<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `len` bytes into `value`; a bad
    // descriptor is an error.
    let ret = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &mut len,
        )
    };
    (ret == 0).then_some(value)
}

fn remove_stale(path: &Path) -> Result<(), String> {
    let name = path.display();
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()), // gone meanwhile
        _ => return Err(format!("{name} exists and is not a socket")),
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|e| format!("cannot remove the old socket {name}: {e}"))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(format!(
            "socket {name} exists, and whether it is in use cannot be seen ({e}): remove it, or \
             choose another path"
        )),
        Ok(_) => Err(format!(
            "another process serves socket {name}: stop it first, or choose another path"
        )),
    }
}

/// Refuses whoever connects from now on.
pub fn shut(listener: &OwnedFd) {
    // SAFETY: no pointers. It cannot fail in a way that matters: the process ends.
    unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
}

/// A session that threads share.
pub type Shared = Arc<Mutex<Session>>;

/// Locks a session. A panic ends the process (see Cargo.toml), so no lock is
/// ever found poisoned.
pub fn lock(session: &Shared) -> MutexGuard<'_, Session> {
    session
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits for something to read from any of `fds`, and says from which there is.
pub fn wait<const N: usize>(fds: [RawFd; N], timeout_ms: i32) -> [bool; N] {
    let mut fds = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: `fds` is valid for its length. With an error there is nothing to read yet.
    unsafe { libc::poll(fds.as_mut_ptr(), N as libc::nfds_t, timeout_ms) };
    fds.map(|fd| fd.revents != 0)
}

/// Serves front ends until there can be no more. `name` is for messages; once `stop`
/// has something to read, nobody is taken from a listener that others have, too.
pub fn serve(entrance: Entrance, session: &Shared, name: &str, stop: &EventFd) {
    let stop = stop.as_raw_fd();
    match entrance {
        Entrance::Connected(stream) => serve_one(stream, session, name),
        Entrance::Listener(listener, path) => loop {
            if path.is_none() {
                let [stopping, ready] = wait([stop, listener.as_raw_fd()], -1);
                if stopping {
                    return;
                }
                if !ready {
                    continue;
                }
            }
            match listener.accept() {
                // Others took the one that was there, and we waited for the next.
                Ok(_) if path.is_none() && wait([stop], 0)[0] => return,
                Ok((stream, _)) => serve_one(stream, session, name),
                // Shut down, and nobody is left who had connected before.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                    if !wait([stop], 0)[0] {
                        say!("{name}: its socket listens no more: somebody has shut it down");
                    }
                    return;
                }
                Err(e) => {
                    say!("{name}: accept: {e}");
                    // Out of descriptors or memory; ask again, but not at once.
                    std::thread::sleep(std::time::Duration::from_secs(1));
                }
            }
        },
    }
}

/// Serves one front end until it leaves or breaks the protocol.
pub fn serve_one(stream: UnixStream, session: &Shared, name: &str) {
    let peer = peer_pid(&stream);
    if let Err(e) = lock(session).begin(peer) {
        say!("{name}: {e}");
        return;
    }
    match peer {
        Some(pid) => say!("{name}: process {pid} connected"),
        None => say!("{name}: connected"),
    }
    let why = converse(&stream, session);
    // What was taken must be in the ring before the socket closes: the front
    // end reads the ring then.
    lock(session).end();
    say!("{name}: {why}");
}

/// Handles messages; returns why there are no more.
fn converse(stream: &UnixStream, session: &Shared) -> String {
    let Ok(sock) = stream.try_clone() else {
        return "out of file descriptors".into();
    };
    let mut handler = BackendReqHandler::from_stream(sock, Arc::clone(session));
    loop {
        let peeked = match channel::peek(stream) {
            Ok(peeked) => peeked,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return format!("the connection broke: {e}"),
        };
        lock(session).hear(peeked.channel);
        if let Err(e) = handler.handle_request() {
            return explain(peeked.request, &e);
        }
    }
}

fn explain(request: u32, error: &Error) -> String {
    const SET_MEM_TABLE: u32 = 5;
    match error {
        Error::Disconnected => "disconnected".into(),
        Error::InvalidMessage if request == SET_MEM_TABLE => {
            format!(
                "hung up: the VMM sent a memory table without file descriptors; its guest's \
                 memory must be shared: {HOW_TO_SHARE}"
            )
        }
        Error::ReqHandlerError(e) => format!("hung up: {e}"),
        e => format!("hung up: {e} (message {request})"),
    }
}

/// Listens to the kernel's news of block devices.
pub struct Uevents(OwnedFd);

impl Uevents {
    /// Opens the netlink socket.
    pub fn open() -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero is a valid sockaddr_nl.
        let mut addr: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        addr.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        addr.nl_groups = 1; // the kernel's own, not udev's
        let len = size_of_val(&addr) as libc::socklen_t;
        // SAFETY: `addr` is a sockaddr_nl of the stated length.
        if unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), len) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(fd))
    }

    /// Takes what has come.
    pub fn drain(&self) {
        let mut buf = [0u8; 4096];
        loop {
            // SAFETY: `buf` is valid for its length.
            let n = unsafe {
                libc::recv(
                    self.0.as_raw_fd(),
                    buf.as_mut_ptr().cast(),
                    buf.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            // Once, it is said that some were lost.
            let lost = || io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS);
            if n == 0 || (n < 0 && !lost()) {
                return;
            }
        }
    }
}

impl AsRawFd for Uevents {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm_sys_util::tempdir::TempDir;

    #[test]
    fn replaces_a_stale_socket_but_not_a_live_one() {
        let dir = TempDir::new().unwrap();
        let path = dir.as_path().join("s");
        let live = Entrance::at_path(&path).unwrap();
        assert!(Entrance::at_path(&path).unwrap_err().contains("another"));
        drop(live); // leaves the file, as kill -9 does
        assert!(path.exists());
        Entrance::at_path(&path).unwrap();
    }

    #[test]
    fn leaves_a_socket_that_is_not_surely_stale() {
        let dir = TempDir::new().unwrap();
        let path = dir.as_path().join("s");
        let _other = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        let error = Entrance::at_path(&path).unwrap_err();
        assert!(error.contains("remove it"), "{error}");
        assert!(path.exists());
    }

    #[test]
    fn explains_bad_paths() {
        let dir = TempDir::new().unwrap();
        let file = dir.as_path().join("f");
        fs::write(&file, "").unwrap();
        assert!(Entrance::at_path(&file)
            .unwrap_err()
            .contains("not a socket"));
        let deep = dir.as_path().join("no/such/dir");
        assert!(Entrance::at_path(&deep).unwrap_err().contains("directory"));
    }

    #[test]
    fn a_shut_listener_serves_who_came_before() {
        let dir = TempDir::new().unwrap();
        let path = dir.as_path().join("s");
        let entrance = Entrance::at_path(&path).unwrap();
        let _early = UnixStream::connect(&path).unwrap();
        shut(&entrance.listener().unwrap());
        assert!(UnixStream::connect(&path).is_err());
        let Entrance::Listener(listener, _) = entrance else {
            panic!("it listens");
        };
        listener.accept().unwrap();
        let error = listener.accept().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn tells_listening_from_connected() {
        use std::os::fd::IntoRawFd;
        let dir = TempDir::new().unwrap();
        let listener = UnixListener::bind(dir.as_path().join("s")).unwrap();
        let fd = listener.into_raw_fd();
        assert!(matches!(Entrance::from_fd(fd), Ok(Entrance::Listener(..))));
        let (one, _two) = UnixStream::pair().unwrap();
        let fd = one.into_raw_fd();
        assert!(matches!(Entrance::from_fd(fd), Ok(Entrance::Connected(_))));
        assert!(Entrance::from_fd(9999).is_err());
    }
}
