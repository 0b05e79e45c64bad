// SPDX-License-Identifier: GPL-2.0
//! `pvio blk`: sets everything up, then waits for signals and for news of disks.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use vmm_sys_util::eventfd::EventFd;

use crate::cli::{self, BlkArgs, Cache, Door, PollArgs, Unit};
use crate::disk::{self, Disk};
use crate::host;
use crate::kernel::Poller;
use crate::server::{self, Entrance, Shared, Uevents};
use crate::session::{kernel_opener, Session, Settings};
use crate::stats::{Counted, Printer};
use crate::uapi;

/// How often image files are looked at; devices announce their new sizes.
const LOOK_MS: i32 = 5000;

struct Served {
    name: String,
    session: Shared,
    entrance: Entrance,
}

/// Runs `pvio blk`; an error is a sentence for the user.
pub fn blk(args: &BlkArgs) -> Result<(), String> {
    let units = cli::units(args)?;
    check_distinct(&units)?;
    let cpus = poll_cpus(&args.poll)?;
    raise_limits();
    // Before any thread is made, so that all of them leave signals to this one.
    let signals = Signals::block().map_err(|e| format!("cannot receive signals: {e}"))?;

    // Disks before modules: a wrong name is the commoner mistake, and costs no core.
    let disks = units.iter().map(open_disk).collect::<Result<Vec<_>, _>>()?;
    let pollers = make_pollers(&cpus, args, &cli::name_of(&units[0]))?;
    let mut served = Vec::new();
    for (unit, disk) in units.iter().zip(disks) {
        match serve_unit(unit, disk, &pollers) {
            Ok(one) => served.push(one),
            Err(e) => {
                remove_sockets(served.iter().filter_map(|s| s.entrance.path()));
                return Err(e);
            }
        }
    }
    start(served, pollers, &signals)
}

fn check_distinct(units: &[Unit]) -> Result<(), String> {
    let mut seen = HashSet::new();
    for unit in units {
        let door = unit.door.to_string();
        if !seen.insert(door.clone()) {
            return Err(format!("two disks at the same {door}"));
        }
    }
    Ok(())
}

fn poll_cpus(args: &PollArgs) -> Result<Vec<u32>, String> {
    if let Some(list) = &args.poll_cpu {
        host::check_cpus(&list.0)?;
        let mut seen = HashSet::new();
        let distinct = list.0.iter().copied().filter(|cpu| seen.insert(*cpu));
        return Ok(distinct.collect());
    }
    let online = host::online_cpus().map_err(|e| format!("which CPUs are online? {e}"))?;
    let last = *online.last().ok_or("no CPU is online")?;
    say!("polling from CPU {last}, the last one; --poll-cpu chooses another");
    Ok(vec![last])
}

fn make_pollers(cpus: &[u32], args: &BlkArgs, name: &str) -> Result<Vec<Poller>, String> {
    let make = |cpu: &u32| Poller::create(*cpu, args.poll.poll_mode, name);
    cpus.iter().map(make).collect()
}

fn open_disk(unit: &Unit) -> Result<Disk, String> {
    let a = &unit.args;
    let flag = |on, bit| if on { bit } else { 0 };
    let opts = disk::Options {
        read_only: a.read_only,
        direct: a.direct,
        force_raw: a.raw,
        flags: flag(a.pinned, uapi::BACKEND_PINNED)
            | flag(a.bypass_scheduler, uapi::BACKEND_BYPASS_SCHEDULER)
            | flag(a.no_poll_queues, uapi::BACKEND_NO_POLL_QUEUES),
        engine: a.engine as u32,
        serial: a.serial.clone(),
    };
    Disk::open(&unit.path, &opts)
}

fn serve_unit(unit: &Unit, disk: Disk, pollers: &[Poller]) -> Result<Served, String> {
    let a = &unit.args;
    let settings = Settings {
        queues: a.num_queues,
        queue_size: a.queue_size,
        pollers: pollers.iter().map(AsRawFd::as_raw_fd).collect(),
        hctx: a.hctx.clone(),
        weight: a.weight,
        writeback: a.cache == Cache::Writeback,
    };
    let session = Session::new(disk, settings, kernel_opener())?;
    let entrance = match &unit.door {
        Door::Path(path) => Entrance::at_path(path)?,
        Door::Fd(fd) => Entrance::from_fd(*fd)?,
    };
    let name = cli::name_of(unit);
    describe(&name, unit, &session);
    Ok(Served {
        name,
        session: Arc::new(Mutex::new(session)),
        entrance,
    })
}

fn describe(name: &str, unit: &Unit, session: &Session) {
    let info = session.info();
    let engine = ["auto", "mq", "bio", "file"];
    let engine = engine.get(info.engine as usize).unwrap_or(&"?");
    let reach = match (info.nr_hctx, info.free_choice) {
        (0, _) => "",
        (_, 0) => ", each poller to its CPU's",
        _ => ", any poller to any",
    };
    say!(
        "{name}: {} ({} MiB, engine {engine}, {} hardware contexts, {} polled{reach})",
        unit.path.display(),
        info.capacity / 2048,
        info.nr_hctx,
        info.nr_poll_hctx
    );
}

/// Starts a thread for each disk and looks after them until told to stop, or
/// until the last one has nobody left to serve.
fn start(served: Vec<Served>, pollers: Vec<Poller>, signals: &Signals) -> Result<(), String> {
    let mut sessions = Vec::new();
    let mut sockets = Vec::new();
    let mut listeners = Vec::new();
    let mut threads = 0;
    let event = || {
        EventFd::new(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)
            .map_err(|e| format!("cannot make an eventfd: {e}"))
    };
    let (ended, stop) = (event()?, event()?);
    for one in served {
        let tell = ended.try_clone().map_err(|e| e.to_string())?;
        let stop = stop.try_clone().map_err(|e| e.to_string())?;
        sockets.extend(one.entrance.path().map(ToOwned::to_owned));
        listeners.extend(one.entrance.listener());
        sessions.push((one.name.clone(), Arc::clone(&one.session)));
        let run = move || {
            server::serve(one.entrance, &one.session, &one.name, &stop);
            drop(tell.write(1)); // cannot fail: nobody counts that far
        };
        let thread = thread::Builder::new().spawn(run);
        thread.map_err(|e| format!("cannot start a thread: {e}"))?;
        threads += 1;
    }
    let counted = Counted {
        pollers,
        sessions: sessions.clone(),
    };
    let printer = Printer::start(counted).map_err(|e| format!("cannot start a thread: {e}"))?;
    host::notify_ready();
    watch(&sessions, &printer, threads, &ended, signals);
    // First the paths: once a socket refuses, a successor puts its own there.
    remove_sockets(sockets.iter().map(|p| p.as_path()));
    drop(stop.write(1));
    listeners.iter().for_each(server::shut);
    let_finish_talking(&sessions);
    // Finish what was taken while the front ends still hold on.
    for (_, session) in &sessions {
        server::lock(session).end();
    }
    Ok(())
}

/// QEMU (7.2 among others) never reconnects after a back end that went in the
/// middle of a handshake, so let it finish if it is not long.
fn let_finish_talking(sessions: &[(String, Shared)]) {
    let deadline = Instant::now() + Duration::from_secs(3);
    let quiet = |(_, session): &(String, Shared)| session.try_lock().is_ok_and(|s| s.is_quiet());
    while !sessions.iter().all(quiet) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
}

fn remove_sockets<'a>(paths: impl Iterator<Item = &'a std::path::Path>) {
    for path in paths {
        // Somebody else may have tidied up already.
        let _ = std::fs::remove_file(path);
    }
}

fn watch(
    sessions: &[(String, Shared)],
    printer: &Printer,
    served: usize,
    ended: &EventFd,
    signals: &Signals,
) {
    let uevents = Uevents::open()
        .inspect_err(|e| say!("new sizes of devices will not be noticed: {e}"))
        .ok();
    let mut left = served as u64;
    loop {
        let no_fd = -1; // poll() leaves it out
        let uevent_fd = uevents.as_ref().map_or(no_fd, AsRawFd::as_raw_fd);
        server::wait(
            [signals.0.as_raw_fd(), ended.as_raw_fd(), uevent_fd],
            LOOK_MS,
        );
        if let Some(uevents) = &uevents {
            uevents.drain(); // the sizes themselves tell
        }
        while let Some(signal) = signals.next() {
            match signal as i32 {
                libc::SIGHUP => {}
                libc::SIGUSR1 => printer.ask(),
                _ => return,
            }
        }
        left -= ended.read().unwrap_or(0);
        if left == 0 {
            return;
        }
        look_at_sizes(sessions);
    }
}

fn look_at_sizes(sessions: &[(String, Shared)]) {
    for (name, session) in sessions {
        // One that is busy, or waits for its kernel device, must not hold up the others.
        let Ok(mut session) = session.try_lock() else {
            continue;
        };
        match session.check_capacity() {
            Ok(None) => {}
            Ok(Some(0)) => say!("{name}: the disk is gone: start pvio again once it is back"),
            Ok(Some(size)) => say!("{name}: the disk has {size} bytes now"),
            Err(e) => say!("{name}: looking at its size: {e}"),
        }
    }
}

/// The signals that mean something to us, as something to read.
struct Signals(OwnedFd);

impl Signals {
    fn block() -> io::Result<Self> {
        // SAFETY: all-zero is a valid sigset, and the calls only fill it in;
        // the mask is changed before there is a second thread.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn next(&self) -> Option<u32> {
        // SAFETY: all-zero is a valid signalfd_siginfo.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let len = size_of_val(&info);
        // SAFETY: the kernel writes no more than `len` bytes into `info`.
        let n = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), len) };
        (n == len as isize).then_some(info.ssi_signo)
    }
}

/// Takes what may be taken: descriptors for many regions and vrings, and locked
/// memory for --pinned. What is refused will be said where it is missed.
fn raise_limits() {
    for resource in [libc::RLIMIT_NOFILE, libc::RLIMIT_MEMLOCK] {
        // SAFETY: both calls get a valid rlimit.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(resource, &mut limit) == 0 {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(resource, &limit);
            }
        }
    }
}
