// SPDX-License-Identifier: GPL-2.0
//! Sockets: listening, serving one front end after another, being told to stop.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{
    bind, getsockname, getsockopt, recv, shutdown, socket, sockopt, AddressFamily, MsgFlags,
    NetlinkAddr, Shutdown, SockFlag, SockProtocol, SockType, UnixAddr,
};
use vhost::vhost_user::{BackendReqHandler, Error};
use vmm_sys_util::eventfd::EventFd;

use crate::channel;
use crate::error::Context;
use crate::handover::{self, Front, KeptListener};
use crate::memory::{peer_pid, HOW_TO_SHARE};
use crate::place::Place;
use crate::service::Service;
use crate::session::Session;

/// Where front ends come from.
#[derive(Debug)]
pub enum Entrance {
    /// They connect, one at a time, any number of times.
    Listener(UnixListener),
    /// The same, on a socket that its owner and our successor still want.
    Inherited(UnixListener),
    /// There is one, connected already.
    Connected(UnixStream),
}

impl Entrance {
    /// Makes a listening socket at `path`, which exists as long as the [`Place`].
    pub fn at_path(path: &Path) -> crate::Result<(Self, Place)> {
        let (listener, place) = Place::listen(path)?;
        Ok((Self::Listener(listener), place))
    }

    /// Takes over descriptor `fd`, listening or connected, from our parent.
    pub fn from_fd(fd: RawFd) -> crate::Result<Self> {
        let wrong = || format!("descriptor {fd} (--fd) is not a Unix stream socket");
        if fd < 0 || !Path::new(&format!("/proc/self/fd/{fd}")).exists() {
            return Err(wrong().into());
        }
        // SAFETY: it is open, and by the meaning of --fd it was left to us.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        if getsockname::<UnixAddr>(fd).is_err()
            || getsockopt(&owned, sockopt::SockType) != Ok(SockType::Stream)
        {
            return Err(wrong().into());
        }
        if getsockopt(&owned, sockopt::AcceptConn) == Ok(true) {
            let listener = UnixListener::from(owned);
            listener.set_nonblocking(false).context(wrong())?;
            return Ok(Self::Inherited(listener));
        }
        let stream = UnixStream::from(owned);
        stream.set_nonblocking(false).context(wrong())?;
        Ok(Self::Connected(stream))
    }

    /// The listening socket at `path` that this process made before it executed this program.
    pub fn inherit(left: KeptListener, path: &Path) -> crate::Result<(Self, Place)> {
        let socket = handover::take(left.socket);
        let place = Place::inherit(handover::take(left.claim), path)?;
        Ok((Self::Listener(socket.into()), place))
    }

    /// Another handle on a listening socket of our own, to [`shut`] it.
    pub fn listener(&self) -> Option<OwnedFd> {
        match self {
            Self::Listener(listener) => listener.try_clone().ok().map(OwnedFd::from),
            _ => None,
        }
    }
}

/// Refuses all who connect from now on.
pub fn shut(listener: &OwnedFd) {
    // It cannot fail in a way that matters: the process ends.
    let _ = shutdown(listener.as_raw_fd(), Shutdown::Both);
}

/// A session that threads share.
pub type Shared<S> = Arc<Mutex<Session<S>>>;

/// Locks a session. A panic ends the process (see Cargo.toml), so no lock is
/// ever found poisoned.
pub fn lock<S: Service>(session: &Shared<S>) -> MutexGuard<'_, Session<S>> {
    session
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Ends all sessions at once. The kernel waits for a disk that does not answer, a minute by
/// default, so several such disks must not wait one after another.
pub fn end_all<S: Service + 'static>(sessions: &[(String, Shared<S>)]) {
    thread::scope(|threads| {
        for (name, session) in sessions {
            let end = || end_soon(name, session);
            if thread::Builder::new().spawn_scoped(threads, end).is_err() {
                end(); // out of threads or memory: this one delays those after it
            }
        }
    });
}

/// Another thread may wait for the disk, with the session locked, so do not wait for that lock
/// for ever.
fn end_soon<S: Service>(name: &str, session: &Shared<S>) {
    match lock_soon(session) {
        Some(mut session) => session.end(),
        None => say!(
            "{name}: the host has not answered requests of the guest: until it does, the kernel \
             keeps the memory and files that they use, and the disk stays in use"
        ),
    }
}

fn lock_soon<S: Service>(session: &Shared<S>) -> Option<MutexGuard<'_, Session<S>>> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match session.try_lock() {
            Ok(session) => return Some(session),
            Err(_) if Instant::now() > deadline => return None,
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// An eventfd as something to wait for.
pub fn borrow(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: it is open for as long as `event` lives, and so for as long as this is used.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

/// Waits for something to read from any of `fds`, and says from which there is.
pub fn wait<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: PollTimeout) -> [bool; N] {
    let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match poll(&mut fds, timeout) {
        Ok(_) => fds.map(|fd| fd.any().unwrap_or(true)),
        Err(_) => [false; N], // interrupted: there is nothing to read yet
    }
}

/// How long a front end may take to connect before the guest that left is seen to again.
const AGAIN_MS: u16 = 1000;

/// Serves front ends until there can be no more. `name` is for messages; once `stop`
/// has something to read, pvio takes no front end from a listener that others have, too.
/// The first front end is `front`, if the pvio before this one has served one.
pub fn serve<S: Service>(
    entrance: Entrance,
    front: Option<Front>,
    session: &Shared<S>,
    name: &str,
    stop: &EventFd,
) {
    let had_one = front.is_some();
    if let Some(front) = front {
        serve_kept(front, session, name);
    }
    let (listener, inherited) = match entrance {
        Entrance::Connected(_) if had_one => return, // it was this one
        Entrance::Connected(stream) => return serve_one(stream, session, name),
        Entrance::Listener(listener) => (listener, false),
        Entrance::Inherited(listener) => (listener, true),
    };
    let stop = borrow(stop);
    let stopping = || wait([stop], PollTimeout::ZERO)[0];
    loop {
        let held = lock(session).is_held();
        if inherited || held {
            let timeout = if held {
                AGAIN_MS.into()
            } else {
                PollTimeout::NONE
            };
            let [stopping, ready] = wait([stop, listener.as_fd()], timeout);
            if stopping && inherited {
                return;
            }
            if !ready && !stopping {
                lock(session).let_go();
                continue;
            }
        }
        match listener.accept() {
            // Others took the one that was there, and we waited for the next.
            Ok(_) if inherited && stopping() => return,
            Ok((stream, _)) => serve_one(stream, session, name),
            // Shut down, and all who had connected before are served.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                if !stopping() {
                    say!(
                        "{name}: another process shut the socket down, so no VMM can connect any \
                         more"
                    );
                }
                return;
            }
            Err(e) => {
                say!("{name}: cannot accept a connection: {e}");
                // Out of descriptors or memory; ask again, but not at once.
                thread::sleep(Duration::from_secs(1));
            }
        }
    }
}

/// Serves one front end until it leaves or breaks the protocol.
pub fn serve_one<S: Service>(stream: UnixStream, session: &Shared<S>, name: &str) {
    let peer = peer_pid(&stream);
    if let Err(e) = lock(session).begin(&stream, peer) {
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
fn converse<S: Service>(stream: &UnixStream, session: &Shared<S>) -> String {
    let Ok(sock) = stream.try_clone() else {
        return "out of file descriptors".into();
    };
    let mut handler = BackendReqHandler::from_stream(sock, Arc::clone(session));
    handle(&mut handler, stream, session)
}

fn handle<S: Service>(
    handler: &mut BackendReqHandler<Mutex<Session<S>>>,
    stream: &UnixStream,
    session: &Shared<S>,
) -> String {
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
        lock(session).handled();
    }
}

/// Goes on with a front end that the pvio before this one has served: see [`handover`].
fn serve_kept<S: Service>(front: Front, session: &Shared<S>, name: &str) {
    let stream = UnixStream::from(handover::take(front.connection));
    let why = go_on(front, &stream, session).unwrap_or_else(|e| e.to_string());
    lock(session).end();
    lock(session).set_takes_over(false);
    say!("{name}: {why}");
}

/// Waits until [`serve`] goes on with the front end that the pvio before this one has served.
pub fn wait_for_guest<S: Service>(session: &Shared<S>) -> crate::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let quiet = session.try_lock().ok().filter(|session| !session.talks());
        let why = match quiet.map(|session| session.info().is_some()) {
            Some(true) => return Ok(()),
            Some(false) => "its guest did not go on, or its VMM has ended",
            None if Instant::now() > deadline => "its guest does not go on yet",
            None => {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
        };
        return Err(
            format!("the installed pvio serves, but {why}: read the messages of pvio").into(),
        );
    }
}

fn go_on<S: Service>(
    front: Front,
    stream: &UnixStream,
    session: &Shared<S>,
) -> crate::Result<String> {
    let files = front.files();
    lock(session).begin(stream, peer_pid(stream))?;
    lock(session).expect(&front);
    let (ours, theirs) = UnixStream::pair().context("cannot make sockets")?;
    let place = ours.as_raw_fd();
    let mut handler = BackendReqHandler::from_stream(ours, Arc::clone(session));
    let player = thread::Builder::new()
        .spawn(move || front.play(theirs, files))
        .context("cannot start a thread")?;
    let mut ended = Ok(());
    while ended.is_ok() {
        ended = handler.handle_request();
    }
    if let Err(e) = ended.or_else(end_of_play) {
        // The player may wait for an answer: an error of the crate's own has none.
        drop(handler);
        let _ = player.join();
        return Err(explain(0, &e).into());
    }
    player.join().map_err(|_| "cannot go on with the guest")??;
    // SAFETY: both are open; the handler's socket becomes the VMM's connection.
    if unsafe { libc::dup3(stream.as_raw_fd(), place, libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error()).context("cannot go on with the guest");
    }
    lock(session).set_takes_over(false);
    say!(
        "{}: going on with the guest",
        lock(session).service().name()
    );
    Ok(handle(&mut handler, stream, session))
}

/// The player has said all, and closed its end.
fn end_of_play(e: Error) -> std::result::Result<(), Error> {
    match e {
        Error::Disconnected => Ok(()),
        e => Err(e),
    }
}

fn explain(request: u32, error: &Error) -> String {
    const SET_MEM_TABLE: u32 = 5;
    match error {
        Error::Disconnected => "disconnected".into(),
        Error::InvalidMessage if request == SET_MEM_TABLE => {
            format!(
                "closed the connection: the VMM sent a memory table without file descriptors; its \
                 guest's memory must be shared: {HOW_TO_SHARE}"
            )
        }
        Error::ReqHandlerError(e) => format!("closed the connection: {e}"),
        e => format!("closed the connection: {e} (message {request})"),
    }
}

/// Listens to the kernel's news of block devices.
pub struct Uevents(OwnedFd);

impl Uevents {
    /// Opens the netlink socket.
    pub fn open() -> crate::Result<Self> {
        const FROM_THE_KERNEL: u32 = 1; // not udev's
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkKObjectUEvent,
        )
        .context("cannot open a netlink socket")?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, FROM_THE_KERNEL))
            .context("cannot open a netlink socket")?;
        Ok(Self(fd))
    }

    /// Takes what has come.
    pub fn drain(&self) {
        let mut buf = [0u8; 4096];
        loop {
            match recv(self.0.as_raw_fd(), &mut buf, MsgFlags::MSG_DONTWAIT) {
                Ok(1..) => {}
                Err(Errno::ENOBUFS) => {} // some were lost, which is said once
                _ => return,
            }
        }
    }
}

impl AsFd for Uevents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm_sys_util::tempdir::TempDir;

    #[test]
    fn a_shut_listener_serves_who_came_before() {
        let dir = TempDir::new().unwrap();
        let path = dir.as_path().join("s");
        let (entrance, _place) = Entrance::at_path(&path).unwrap();
        let _early = UnixStream::connect(&path).unwrap();
        shut(&entrance.listener().unwrap());
        assert!(UnixStream::connect(&path).is_err());
        let Entrance::Listener(listener) = entrance else {
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
        assert!(matches!(Entrance::from_fd(fd), Ok(Entrance::Inherited(_))));
        let (one, _two) = UnixStream::pair().unwrap();
        let fd = one.into_raw_fd();
        assert!(matches!(Entrance::from_fd(fd), Ok(Entrance::Connected(_))));
        assert!(Entrance::from_fd(9999).is_err());
    }
}
