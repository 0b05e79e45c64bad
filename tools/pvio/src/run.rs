// SPDX-License-Identifier: GPL-2.0
//! `pvio blk` and `pvio fs`: set everything up, then wait for signals and for news of
//! disks.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use vmm_sys_util::eventfd::EventFd;

use crate::blk::{self, Blk};
use crate::cli::{self, BlkArgs, Cache, Discard, DiskArgs, Door, PollArgs, Unit};
use crate::cpus::{self, Places};
use crate::disk::{self, Disk};
use crate::error::{Context, Error, Result};
use crate::fs::{self, Directory, Fs};
use crate::fscli::FsArgs;
use crate::handover::{self, Front, Kept, KeptListener, Memo, Successor};
use crate::host;
use crate::kernel::{Node, PollMode, Poller};
use crate::place::Place;
use crate::server::{self, Entrance, Shared, Uevents};
use crate::service::Service;
use crate::session::Session;
use crate::stats::{Counted, Printer};
use crate::uapi;

/// How often image files are looked at; devices announce their new sizes.
const LOOK_MS: u16 = 5000;

struct Served<S: Service> {
    name: String,
    session: Shared<S>,
    entrance: Entrance,
    /// A front end that the pvio before this one has served.
    front: Option<Front>,
    /// The socket's path, where pvio made it.
    place: Option<Place>,
}

/// What every command sets up before it serves anything, and keeps until its end.
struct Host {
    pollers: Vec<Poller>,
    signals: Signals,
    places: Places,
    /// The pvio before this one has handed over.
    goes_on: bool,
}

impl Host {
    fn pollers(&self) -> Vec<RawFd> {
        self.pollers.iter().map(AsRawFd::as_raw_fd).collect()
    }
}

/// Runs `pvio blk`.
pub fn blk(args: &BlkArgs) -> Result<()> {
    let units = cli::units(args)?;
    check_distinct(&units)?;
    // Disks before modules: a wrong name is the commoner mistake, and costs no core.
    let (host, disks) = set_up(&args.poll, &cli::name_of(&units[0]), || {
        units.iter().map(open_disk).collect::<Result<Vec<_>>>()
    })?;
    let both = units.iter().zip(disks);
    let served = both.map(|(unit, disk)| serve_disk(unit, disk, host.pollers()));
    start(served.collect::<Result<_>>()?, host)
}

/// Runs `pvio fs`.
pub fn fs(args: &FsArgs) -> Result<()> {
    let kept = handover::inherited()?;
    let share = args.share()?;
    let open = || Directory::open(&share.path, &share.options);
    let (host, directory) = match &kept {
        Some(kept) => set_up_again(kept, open)?,
        None => set_up(&args.poll, &share.name(), open)?,
    };
    let hidden = directory.hidden_mounts();
    let (listener, front) = kept.map_or((None, None), |kept| (kept.listener, kept.front));
    let settings = fs::Settings {
        queues: args.num_queues,
        pollers: host.pollers(),
        weight: args.weight,
    };
    let mut service = Fs::new(directory, settings, fs::kernel_opener());
    if let Some(front) = &front {
        let device = Node::inherit(handover::take(front.device));
        service = service.inherit(device.context("cannot go on with the guest")?);
    }
    let session = Session::new(service)?;
    say!("{}: {}", share.name(), share.path.display());
    if let Some(hidden) = hidden {
        say!("{}: {hidden}", share.name());
    }
    let group = args.socket_group.as_deref();
    let mut one = serve(share.name(), &share.door, group, listener, session)?;
    server::lock(&one.session).set_takes_over(front.is_some());
    one.front = front;
    start(vec![one], host)
}

/// Raises limits, takes signals, opens what is served, makes the pollers.
fn set_up<T>(poll: &PollArgs, name: &str, open: impl FnOnce() -> Result<T>) -> Result<(Host, T)> {
    let places = Places::open(Path::new(cpus::RUN));
    let cpus = poll_cpus(poll, &places)?;
    let signals = prepare()?;
    let opened = open()?;
    let make = |cpu: &u32| Poller::create(*cpu, poll.poll_mode, name);
    let pollers = cpus.iter().map(make).collect::<Result<_>>()?;
    let host = Host {
        pollers,
        signals,
        places,
        goes_on: false,
    };
    Ok((host, opened))
}

/// The same, with the pollers of the pvio before this one. Asks for nothing that it could be
/// refused, because the guest cannot go back.
fn set_up_again<T>(kept: &Kept, open: impl FnOnce() -> Result<T>) -> Result<(Host, T)> {
    let inherit = |fd: &RawFd| Poller::inherit(handover::take(*fd));
    let host = Host {
        pollers: kept.pollers.iter().map(inherit).collect(),
        places: Places::inherit(kept.places.map(handover::take)),
        signals: prepare()?,
        goes_on: true,
    };
    Ok((host, open()?))
}

/// Comes before any thread is made, so that all of them leave signals to this one.
fn prepare() -> Result<Signals> {
    raise_limits();
    Signals::block().context("cannot receive signals")
}

fn check_distinct(units: &[Unit]) -> Result<()> {
    let mut seen = HashSet::new();
    for unit in units {
        let door = unit.door.to_string();
        if !seen.insert(door.clone()) {
            return Err(format!("two disks have the same {door}").into());
        }
    }
    Ok(())
}

/// Takes a place on each CPU that is asked for, or on one that has room.
fn poll_cpus(args: &PollArgs, places: &Places) -> Result<Vec<u32>> {
    let taken = match &args.poll_cpu {
        Some(list) => {
            host::check_cpus(&list.0)?;
            let mut seen = HashSet::new();
            let distinct = list.0.iter().filter(|cpu| seen.insert(**cpu));
            distinct.flat_map(|&cpu| places.take(&[cpu])).collect()
        }
        None => {
            let one = places.take(&cpus::candidates()?);
            let one = one.ok_or("no CPU is online")?;
            say!("polling from CPU {}; --poll-cpu chooses another", one.cpu);
            vec![one]
        }
    };
    for place in &taken {
        if place.others > 0 && args.poll_mode == PollMode::Busy {
            say!(
                "CPU {}: another pvio polls from it, too; in busy mode each gets half of the CPU",
                place.cpu
            );
        }
    }
    Ok(taken.into_iter().map(|place| place.cpu).collect())
}

fn open_disk(unit: &Unit) -> Result<Disk> {
    Disk::open(&unit.path, &disk_options(&unit.args))
}

fn disk_options(a: &DiskArgs) -> disk::Options {
    let flag = |on, bit| if on { bit } else { 0 };
    disk::Options {
        read_only: a.read_only,
        direct: a.direct,
        is_raw: a.format.is_some(),
        flags: flag(a.pinned, uapi::BACKEND_PINNED)
            | flag(a.bypass_scheduler, uapi::BACKEND_BYPASS_SCHEDULER)
            | flag(a.no_poll_queues, uapi::BACKEND_NO_POLL_QUEUES)
            | flag(a.discard == Discard::Ignore, uapi::BACKEND_NO_DISCARD),
        engine: a.engine as u32,
        serial: a.serial.clone(),
    }
}

fn serve_disk(unit: &Unit, disk: Disk, pollers: Vec<RawFd>) -> Result<Served<Blk<Node>>> {
    let a = &unit.args;
    let settings = blk::Settings {
        queues: a.num_queues,
        queue_size: a.queue_size,
        pollers,
        hctx: a.hctx.clone(),
        weight: a.weight,
        writeback: a.cache == Cache::Writeback,
    };
    let session = Session::new(Blk::new(disk, settings, blk::kernel_opener()))?;
    let name = cli::name_of(unit);
    describe(&name, unit, session.service().info());
    serve(name, &unit.door, a.socket_group.as_deref(), None, session)
}

/// Opens the door to `session`, for members of `group`, where the pvio before this one has not left
/// it open.
fn serve<S: Service>(
    name: String,
    door: &Door,
    group: Option<&str>,
    left: Option<KeptListener>,
    session: Session<S>,
) -> Result<Served<S>> {
    let with_place = |(entrance, place)| (entrance, Some(place));
    let (entrance, place) = match (door, left) {
        (Door::Path(path), Some(left)) => Entrance::inherit(left, path).map(with_place)?,
        (Door::Path(path), None) => Entrance::at_path(path).map(with_place)?,
        (Door::Fd(fd), _) => (Entrance::from_fd(*fd)?, None),
    };
    if let (Some(group), Some(place), None) = (group, &place, left) {
        place.give_to_group(group)?;
    }
    Ok(Served {
        name,
        session: Arc::new(Mutex::new(session)),
        entrance,
        front: None,
        place,
    })
}

fn describe(name: &str, unit: &Unit, info: &uapi::BlkInfo) {
    let engine = ["auto", "mq", "bio", "file"];
    let engine = engine.get(info.engine as usize).unwrap_or(&"?");
    let reach = match (info.nr_hctx, info.free_choice) {
        (0, _) => "",
        (_, 0) => ", each poller uses its CPU's",
        _ => ", any poller uses any",
    };
    say!(
        "{name}: {} ({} MiB, engine {engine}, {} hardware contexts, {} polled{reach})",
        unit.path.display(),
        info.capacity / 2048,
        info.nr_hctx,
        info.nr_poll_hctx
    );
}

/// Starts a thread for each session and looks after them until told to stop, or until
/// the last one's front end is gone and no other can come.
fn start<S: Service + 'static>(served: Vec<Served<S>>, host: Host) -> Result<()> {
    let mut sessions = Vec::new();
    let mut places = Vec::new();
    let mut listeners = Vec::new();
    let mut threads = 0;
    let event =
        || EventFd::new(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK).context("cannot make an eventfd");
    let (ended, stop) = (event()?, event()?);
    for one in served {
        let tell = ended.try_clone().context("cannot make an eventfd")?;
        let stop = stop.try_clone().context("cannot make an eventfd")?;
        places.extend(one.place);
        listeners.extend(one.entrance.listener());
        sessions.push((one.name.clone(), Arc::clone(&one.session)));
        let run = move || {
            server::serve(one.entrance, one.front, &one.session, &one.name, &stop);
            drop(tell.write(1)); // cannot fail: that would take 2^64 of them
        };
        let thread = thread::Builder::new().spawn(run);
        thread.context("cannot start a thread")?;
        threads += 1;
    }
    let kept = Kept {
        listener: listeners.first().zip(places.first()).map(kept_listener),
        pollers: host.pollers(),
        places: host.places.descriptor(),
        front: None,
    };
    let counted = Counted {
        pollers: host.pollers,
        sessions: sessions.clone(),
    };
    let printer = Printer::start(counted).context("cannot start a thread")?;
    host::notify_ready();
    if host.goes_on {
        let each = sessions.iter().map(|(_, s)| server::wait_for_guest(s));
        let why = each.collect::<Result<()>>().err().map(|e| e.to_string());
        tell(&places, why.as_deref());
    }
    let watch = Watch {
        sessions: &sessions,
        places: &places,
        kept: &kept,
        printer: &printer,
        signals: &host.signals,
    };
    watch.until_told_to_end(threads, &ended)?;
    // First the paths: once a socket refuses, a successor puts its own there.
    drop(places);
    drop(stop.write(1));
    listeners.iter().for_each(server::shut);
    let_finish_talking(&sessions);
    // Finish what was taken while the front ends still hold on.
    server::end_all(&sessions);
    Ok(())
}

fn kept_listener((socket, place): (&OwnedFd, &Place)) -> KeptListener {
    KeptListener {
        socket: socket.as_raw_fd(),
        claim: place.claimed(),
    }
}

/// QEMU (7.2 among others) never reconnects after a back end that went in the
/// middle of a handshake, so let it finish if it is not long.
fn let_finish_talking<S: Service>(sessions: &[(String, Shared<S>)]) {
    let deadline = Instant::now() + Duration::from_secs(3);
    let quiet = |(_, session): &(String, Shared<S>)| session.try_lock().is_ok_and(|s| s.is_quiet());
    while !sessions.iter().all(quiet) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
}

fn tell(places: &[Place], why: Option<&str>) {
    places.iter().for_each(|place| place.tell(why));
}

/// Executes the installed pvio, and leaves it `kept` and the front end. Returns only an error: the
/// bool says that nothing is served any more.
fn hand_over<S: Service>(
    sessions: &[(String, Shared<S>)],
    kept: &Kept,
) -> std::result::Result<(), (Error, bool)> {
    let stays = |e| (e, false);
    let one = match sessions {
        [(_, session)] if S::HANDS_OVER => session,
        _ => {
            let why = "SIGUSR2 is for directories only: for disks restart pvio, their guests go on";
            return Err(stays(why.into()));
        }
    };
    let successor = Successor::find().map_err(stays)?;
    let mut session = lock_between_messages(one).map_err(stays)?;
    let keep = |front| {
        Memo::write(&Kept {
            front,
            ..kept.clone()
        })
    };
    let memo = session.hand_over(keep).map_err(stays)?;
    successor.become_it(&memo).map_err(|e| (e, true))
}

/// Waits for a moment without messages.
fn lock_between_messages<S: Service>(session: &Shared<S>) -> Result<MutexGuard<'_, Session<S>>> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(session) = session.try_lock().ok().filter(|s| s.may_leave()) {
            return Ok(session);
        }
        if Instant::now() > deadline {
            return Err("the VMM does not stop sending messages: try again later".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The first thread looks after this while the others serve.
struct Watch<'a, S: Service> {
    sessions: &'a [(String, Shared<S>)],
    places: &'a [Place],
    kept: &'a Kept,
    printer: &'a Printer,
    signals: &'a Signals,
}

impl<S: Service> Watch<'_, S> {
    /// Returns when pvio is to end.
    fn until_told_to_end(&self, served: usize, ended: &EventFd) -> Result<()> {
        let uevents = Uevents::open()
            .inspect_err(|e| {
                say!("cannot listen for new sizes of disks, pvio looks every five seconds: {e}")
            })
            .ok();
        let mut left = served as u64;
        loop {
            let (signal, ended_fd) = (self.signals.0.as_fd(), server::borrow(ended));
            // Without news of devices, a second time for the signals.
            let news = uevents.as_ref().map_or(signal, AsFd::as_fd);
            server::wait([signal, ended_fd, news], LOOK_MS.into());
            if let Some(uevents) = &uevents {
                uevents.drain(); // the sizes themselves tell
            }
            while let Some(signal) = self.signals.next() {
                match signal as i32 {
                    libc::SIGHUP => {}
                    libc::SIGUSR1 => self.printer.ask(),
                    libc::SIGUSR2 => self.upgrade()?,
                    _ => return Ok(()),
                }
            }
            left -= ended.read().unwrap_or(0);
            if left == 0 {
                return Ok(());
            }
            look_at_sizes(self.sessions);
        }
    }

    /// Hands over to the installed pvio. Returns if this one goes on, or with an error if nothing
    /// is served any more. systemd hears of the end before `pvio upgrade`, which is systemd's own
    /// process in a reload: its end must not come first.
    fn upgrade(&self) -> Result<()> {
        host::notify_reloading();
        let Err((e, all_is_lost)) = hand_over(self.sessions, self.kept) else {
            return Ok(());
        };
        if all_is_lost {
            tell(self.places, Some(&e.to_string()));
            return Err(e);
        }
        let why = format!("not handed over to the installed pvio, this one goes on: {e}");
        say!("{why}");
        host::notify_ready();
        tell(self.places, Some(&why));
        Ok(())
    }
}

fn look_at_sizes<S: Service>(sessions: &[(String, Shared<S>)]) {
    for (name, session) in sessions {
        // One that is busy, or waits for its kernel device, must not hold up the others.
        let Ok(mut session) = session.try_lock() else {
            continue;
        };
        match session.check_size() {
            Ok(None) => {}
            Ok(Some(0)) => say!("{name}: the disk is gone: start pvio again once it is back"),
            Ok(Some(size)) => say!("{name}: the disk has {size} bytes now"),
            Err(e) => say!("{name}: cannot read its size: {e}"),
        }
    }
}

/// The signals that mean something to us, as something to read.
struct Signals(SignalFd);

impl Signals {
    /// Before there is a second thread: the mask is the thread's.
    fn block() -> nix::Result<Self> {
        let ours = [
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
        ];
        let set: SigSet = ours.into_iter().collect();
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        SignalFd::with_flags(&set, flags).map(Self)
    }

    fn next(&self) -> Option<u32> {
        self.0.read_signal().ok().flatten().map(|i| i.ssi_signo)
    }
}

/// Takes what may be taken: descriptors for many regions and vrings, and locked
/// memory for --pinned. What is refused will be said where it is missed.
fn raise_limits() {
    for resource in [Resource::RLIMIT_NOFILE, Resource::RLIMIT_MEMLOCK] {
        if let Ok((_, most)) = getrlimit(resource) {
            let _ = setrlimit(resource, most, most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::fs;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BlkArgs,
    }

    #[test]
    fn a_disk_s_switches_reach_the_kernel() {
        let flags = |words: &[&str]| {
            let words = ["blk", "-s/s", "/d"].iter().chain(words);
            disk_options(&Line::try_parse_from(words).unwrap().args.disk).flags
        };
        assert_eq!(flags(&[]), 0);
        assert_eq!(flags(&["--discard=unmap"]), 0);
        for (word, flag) in [
            ("--discard=ignore", uapi::BACKEND_NO_DISCARD),
            ("--pinned", uapi::BACKEND_PINNED),
            ("--bypass-scheduler", uapi::BACKEND_BYPASS_SCHEDULER),
            ("--no-poll-queues", uapi::BACKEND_NO_POLL_QUEUES),
        ] {
            assert_eq!(flags(&[word]), flag, "{word}");
        }
    }

    /// The number behind `word`.
    fn number(file: &str, word: &str) -> u64 {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = fs::read_to_string(path).unwrap();
        let at = text.find(word).unwrap() + word.len();
        let digits = text[at..].split(|c: char| !c.is_ascii_digit()).next();
        digits.unwrap().parse().unwrap()
    }

    /// Else systemd would say "timed out", and not why.
    #[test]
    fn systemd_waits_longer_than_a_hand_over_does() {
        let unit = "pvio-fs@.service.in";
        let vring = "../../drivers/vhost/serve/vring.c";
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(unit)).unwrap();
        assert!(text.contains("ExecReload=@bindir@/pvio upgrade --socket /run/pvio/%i.sock\n"));
        let patience = crate::upgrade::PATIENCE.as_secs();
        assert!(patience > 10 + number(vring, "vserve_stop_timeout = ") + 10);
        assert!(number(unit, "TimeoutStartSec=") > patience);
    }

    /// The kernel's wait comes after those of let_finish_talking() and of end_all().
    #[test]
    fn systemd_waits_longer_than_a_stop_does() {
        let vring = "../../drivers/vhost/serve/vring.c";
        let stop = 3 + 10 + number(vring, "vserve_stop_timeout = ");
        for unit in ["pvio-blk@.service.in", "pvio-fs@.service.in"] {
            assert!(number(unit, "TimeoutStopSec=") > stop, "{unit}");
        }
    }
}
