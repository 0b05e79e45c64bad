// SPDX-License-Identifier: GPL-2.0
//! A session over a directory.

#![allow(missing_docs)]

mod common;

use common::{eventfd, memfd, opener, pair, ring_at, set_used, words, Fake, Front, State, MEM};
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pvio::fs::{Directory, Fs, Options, Settings};
use pvio::handover;
use pvio::server::{self, Entrance, Shared};
use pvio::session::Session;
use pvio::stats::Counted;
use pvio::uapi;
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::tempdir::TempDir;

#[test]
fn a_directory_is_served_and_its_end_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let options = Options {
        flags: uapi::FS_EXPORT_READ_ONLY,
        ..Default::default()
    };
    let directory = Directory::open(dir.as_path(), &options).unwrap();
    let settings = Settings {
        queues: 3,
        pollers: vec![70, 71],
        weight: 100,
    };
    let (state, opened) = (Arc::new(Mutex::new(State::default())), Arc::default());
    let opened: Arc<AtomicUsize> = opened;
    let service = Fs::new(directory, settings, opener(&state, &opened));
    let session = Arc::new(Mutex::new(Session::new(service).unwrap()));
    let (mem, kick) = (memfd(MEM), eventfd());

    let front = Front::connect(&session, "share");
    let features = front.ask_u64(1);
    assert_eq!(features & 0xff_ffff, 0, "no bit of a device's own");
    let protocol = front.negotiate();
    assert_eq!(protocol & (1 << 9 | 1 << 5), 0, "CONFIG, BACKEND_REQ");
    assert_eq!(front.ask_u64(17), 3, "high priority, and two for requests");
    front.give_memory(&mem);
    front.start_ring(0, 0, &kick);
    front.start_ring(2, 0, &kick);
    {
        let state = state.lock().unwrap();
        assert!(state.log.contains(&"export 0x1".to_owned()));
        assert!(state.rings[&0].running && state.rings[&2].running);
        let auto = uapi::HCTX_AUTO;
        assert_eq!(state.rings[&1].placed, Some((71, auto)));
    }
    let counted = Counted {
        pollers: vec![],
        sessions: vec![("home".to_owned(), Arc::clone(&session))],
    };
    let said: serde_json::Value = serde_json::from_str(&counted.lines()).unwrap();
    assert_eq!(said["share"], "home");
    assert_eq!(said["vrings"][1]["requests"], 9);
    assert_eq!(said["export"]["max_nodes"], 0);
    assert!(said["export"]["size"].is_null(), "for the ioctl only");
    // The configuration space is the VMM's.
    front
        .send(24, 1, &[pair(0, 4), vec![0; 8]].concat(), &[])
        .unwrap();
    assert!(front.reply().is_err());
    front.close();
    assert!(!state.lock().unwrap().open);
}

/// The numbers are this process's own here, and not left by another one.
fn as_inherited(mut front: handover::Front) -> handover::Front {
    // SAFETY: the session that they are of is there until the end of the test.
    let again = |fd| unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
    let again = |fd: RawFd| again(fd).unwrap().into_raw_fd();
    front.connection = again(front.connection);
    for region in &mut front.regions {
        region.file = again(region.file);
    }
    for v in &mut front.vrings {
        (v.kick, v.call, v.err) = (v.kick.map(again), v.call.map(again), v.err.map(again));
    }
    front
}

/// A directory, for one pvio after another.
struct Share {
    dir: TempDir,
    state: Arc<Mutex<State>>,
}

impl Share {
    fn new() -> Self {
        let (dir, state) = (TempDir::new().unwrap(), Arc::default());
        Self { dir, state }
    }

    fn service(&self) -> Fs<Fake> {
        let directory = Directory::open(self.dir.as_path(), &Options::default()).unwrap();
        let settings = Settings {
            queues: 3,
            pollers: vec![70],
            weight: 100,
        };
        Fs::new(directory, settings, opener(&self.state, &Arc::default()))
    }

    /// The first pvio.
    fn serve(&self) -> Shared<Fs<Fake>> {
        Arc::new(Mutex::new(Session::new(self.service()).unwrap()))
    }

    /// The first pvio, and a VMM that has said all until two of its guest's rings run.
    fn serve_a_guest(&self) -> (Arc<Mutex<State>>, Shared<Fs<Fake>>, Front) {
        let (mem, kick) = (memfd(MEM), eventfd());
        let pvio = self.serve();
        let front = Front::connect(&pvio, "share");
        front.negotiate();
        front.give_memory(&mem);
        front.start_ring(0, 0, &kick);
        front.start_ring(2, 0, &kick);
        front.ask_u64(1); // so that the message before was handled
        (Arc::clone(&self.state), pvio, front)
    }

    /// The pvio that goes on, and the thread that serves its front end.
    fn go_on(&self, kept: handover::Front) -> (Shared<Fs<Fake>>, JoinHandle<()>) {
        let new = self.service().inherit(Fake(Arc::clone(&self.state)));
        let new = Arc::new(Mutex::new(Session::new(new).unwrap()));
        new.lock().unwrap().set_takes_over(true);
        let (mine, _) = UnixStream::pair().unwrap();
        let (session, kept) = (Arc::clone(&new), as_inherited(kept));
        let stop = EventFd::new(0).unwrap();
        let server = thread::spawn(move || {
            let entrance = Entrance::Connected(mine);
            server::serve(entrance, Some(kept), &session, "share", &stop);
        });
        (new, server)
    }
}

#[test]
fn a_guest_goes_on_with_the_next_pvio() {
    let share = Share::new();
    let (state, old, front) = share.serve_a_guest();
    let call = eventfd();
    front
        .send(13, 1, &words(&[2]), &[call.as_raw_fd()])
        .unwrap();
    front.ask_u64(1); // so that the message before was handled
    state.lock().unwrap().rings.get_mut(&2).unwrap().base = 5;
    let before = state.lock().unwrap().rings.clone();

    // Locked from here on, as it is until the next program is executed.
    let mut ends = old.lock().unwrap();
    state.lock().unwrap().hand_over_fails = true;
    assert!(ends.hand_over(Ok).is_err());
    assert!([0, 2]
        .iter()
        .all(|i| state.lock().unwrap().rings[i].running));
    let full = |_| Err::<(), _>("out of file descriptors".into());
    assert!(ends.hand_over(full).is_err());
    {
        let state = state.lock().unwrap();
        assert!([0, 2].iter().all(|i| state.rings[i].running));
        let given_up = state.log.iter().any(|l| l == "hand over");
        assert!(!given_up, "the session is gone, and no pvio knows it");
    }
    let kept = ends.hand_over(Ok).unwrap().unwrap();
    state.lock().unwrap().log.clear();
    let (new, server) = share.go_on(kept);
    // The VMM goes on talking, on its old connection.
    assert_eq!(front.ask_u64(17), 3);
    // It can be handed over again, once the answer has been sent.
    server::wait_for_guest(&new).unwrap();
    {
        let state = state.lock().unwrap();
        let same = |index| {
            let (was, is) = (&before[&index], &state.rings[&index]);
            assert_eq!((was.num, was.base, was.fds), (is.num, is.base, is.fds));
            assert!(is.running);
        };
        [0, 2].into_iter().for_each(same);
        assert!(!state.rings[&1].running);
        assert!(!state.log.iter().any(|l| l.starts_with("export")));
    }
    assert_eq!(front.ask(11, &pair(2, 0)), pair(2, 5));
    assert!(!state.lock().unwrap().rings[&2].running);
    // A front end that leaves does not take the next one's device along.
    front.sock.shutdown(std::net::Shutdown::Both).unwrap();
    server.join().unwrap();
    assert!(!state.lock().unwrap().open);
    // The old session has a device that is closed, and a thread that waits for the lock.
    std::mem::forget((ends, front));
}

/// A file system is frozen, say. Nothing but the guest would wait for it, so pvio must not.
#[test]
fn a_guest_that_waits_for_the_host_is_not_handed_over() {
    let (state, old, front) = Share::new().serve_a_guest();

    let mut ends = old.lock().unwrap();
    {
        let mut state = state.lock().unwrap();
        state.stops_fail_at = Some(2);
        state.log.clear();
    }
    let why = ends.hand_over(Ok).unwrap_err().to_string();
    assert!(why.contains("does not answer"), "{why}");
    {
        let mut state = state.lock().unwrap();
        assert_eq!(state.log, ["stop 0", "no answer 2", "go on 2", "start 0"]);
        assert!([0, 2].iter().all(|i| state.rings[i].running));
        state.stops_fail_at = None;
    }
    assert!(ends.hand_over(Ok).unwrap().is_some());
    std::mem::forget((ends, front));
}

/// A late write of this guest could otherwise hit what the next one has written.
#[test]
fn a_guest_that_left_without_its_answers_is_not_forgotten_by_an_upgrade() {
    let (state, old, front) = Share::new().serve_a_guest();
    state.lock().unwrap().stops_fail = 1;
    front.close();

    let mut session = old.lock().unwrap();
    assert!(session.is_held());
    let why = session.hand_over(Ok).unwrap_err().to_string();
    assert!(why.contains("guest that has left"), "{why}");
    assert!(state.lock().unwrap().open, "the device is still there");
    session.let_go();
    assert!(!session.is_held());
    assert!(session.hand_over(Ok).unwrap().is_none());
}

/// The protocol has no order for the parts of a vring. QEMU sends the call descriptor first.
#[test]
fn a_guest_that_has_begun_goes_on_with_the_next_pvio() {
    let share = Share::new();
    let old = share.serve();
    let (mem, kick, call) = (memfd(MEM), eventfd(), eventfd());
    let front = Front::connect(&old, "share");
    front.negotiate();
    front.give_memory(&mem);
    // One has descriptors only, and the other has all but them, and has not run.
    front.acked(13, &words(&[1]), &[call.as_raw_fd()]);
    front.acked(14, &words(&[1]), &[call.as_raw_fd()]);
    front.acked(12, &words(&[1]), &[kick.as_raw_fd()]);
    front.acked(18, &pair(1, 1), &[]);
    front.acked(8, &pair(0, 128), &[]);
    front.acked(10, &pair(0, 7), &[]);
    front.acked(9, &ring_at(0), &[]);
    set_used(&mem, 0, 5);

    let mut ends = old.lock().unwrap();
    let kept = ends.hand_over(Ok).unwrap().unwrap();
    let (_new, server) = share.go_on(kept);
    front.acked(8, &pair(1, 128), &[]);
    front.acked(9, &ring_at(1), &[]);
    front.acked(12, &words(&[0]), &[kick.as_raw_fd()]);
    front.acked(18, &pair(0, 1), &[]);
    let rings = share.state.lock().unwrap().rings.clone();
    assert!(rings[&1].running);
    assert_eq!(rings[&1].fds, [true; 3], "kick, call, err");
    assert!(rings[&0].running);
    assert_eq!(rings[&0].base, 5, "as where no pvio was in between");
    front.sock.shutdown(std::net::Shutdown::Both).unwrap();
    server.join().unwrap();
    std::mem::forget((ends, front));
}

/// The vhost-user crate does not answer a message that it finds wrong. So pvio must not wait.
#[test]
fn a_state_that_makes_no_sense_ends_the_guests_session() {
    let share = Share::new();
    let old = share.serve();
    let front = Front::connect(&old, "share");
    front.negotiate();
    let mut ends = old.lock().unwrap();
    let mut kept = ends.hand_over(Ok).unwrap().unwrap();
    kept.vrings[0].addr = Some((1, 2, 4)); // not aligned
    let (new, server) = share.go_on(kept);
    let patience = Instant::now() + Duration::from_secs(60);
    while !server.is_finished() {
        assert!(Instant::now() < patience, "pvio waits for itself");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!new.lock().unwrap().talks(), "another program may go on");
    let said = server::wait_for_guest(&new).unwrap_err().to_string();
    assert!(said.contains("did not go on"), "{said}");
    std::mem::forget((ends, front));
}

/// Else a guest's memory would stay for as long as pvio runs.
#[test]
fn a_guest_that_cannot_go_on_leaves_no_descriptor() {
    let (state, session, front) = Share::new().serve_a_guest();

    let end = |sock: UnixStream| sock.into_raw_fd();
    let (connection, region, call) = (sockets(), sockets(), sockets());
    let kept = handover::Front {
        connection: end(connection.1),
        device: -1,
        features: 0,
        protocol: 0,
        regions: vec![handover::KeptRegion {
            gpa: 0,
            size: MEM,
            frontend: 0,
            offset: 0,
            file: end(region.1),
        }],
        vrings: vec![handover::KeptVring {
            index: 0,
            num: 0,
            base: 0,
            known: false,
            addr: None,
            kick: None,
            call: Some(end(call.1)),
            err: None,
            enabled: false,
        }],
    };
    // Another guest has the device, and the host does not answer it.
    state.lock().unwrap().stops_fail = 2;
    let entrance = Entrance::Connected(sockets().0);
    let stop = EventFd::new(0).unwrap();
    server::serve(entrance, Some(kept), &session, "share", &stop);
    for mut other_end in [connection.0, region.0, call.0] {
        other_end.set_nonblocking(true).unwrap();
        assert_eq!(other_end.read(&mut [0]).unwrap(), 0, "it is closed");
    }
    front.close();
    assert!(!state.lock().unwrap().open);
}

fn sockets() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

#[test]
fn a_front_end_that_has_just_said_something_is_not_left() {
    let old = Share::new().serve();
    let mut session = old.lock().unwrap();
    assert!(session.may_leave());
    // Unless this thread did not run for as long as a pause takes.
    let left = (0..1000).find_map(|_| {
        let now = Instant::now();
        session.hear(None);
        let talking = session.may_leave();
        session.handled();
        let left = (talking, session.may_leave());
        (now.elapsed() < Duration::from_millis(100)).then_some(left)
    });
    assert_eq!(left, Some((false, false)));
    while !session.may_leave() {
        thread::yield_now();
    }
}

#[test]
fn says_what_is_wrong_with_a_directory() {
    let dir = TempDir::new().unwrap();
    let file = dir.as_path().join("f");
    std::fs::write(&file, "").unwrap();
    let said = |path| {
        let error = Directory::open(path, &Options::default()).err().unwrap();
        error.to_string()
    };
    assert!(said(&file).contains("not a directory"));
    assert!(said(&dir.as_path().join("no")).contains("does not exist"));
}
