// SPDX-License-Identifier: GPL-2.0
//! What a front end may rely on.

#![allow(missing_docs)]

mod common;

use common::{eventfd, memfd, pair, set_used, words, Bench, Company, Front, FRONT, MEM, QUEUES};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use pvio::disk::Options;
use pvio::server::{self, Entrance};
use pvio::stats::Counted;
use pvio::uapi::{BACKEND_NO_DISCARD, BACKEND_PINNED};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::tempdir::TempDir;

#[test]
fn a_log_that_nobody_reads_ends_nothing() {
    let (reader, writer) = UnixStream::pair().unwrap();
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_pvio"))
        .args(["blk", "--socket=/nonexistent/s", "/nonexistent/disk"])
        .stderr(OwnedFd::from(writer))
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1), "it failed, and did not panic");
}

#[test]
fn offers_nothing_that_is_not_complete() {
    let bench = Bench::new();
    let front = bench.connect();
    let features = front.ask_u64(1);
    assert_eq!(features & (1 << 26), 0, "dirty logging");
    assert_eq!(features & (1 << 33), 0, "IOMMU");
    assert_eq!(features & (1 << 34), 0, "packed rings");
    let protocol = front.negotiate();
    assert_eq!(protocol & 1 << 1, 0, "LOG_SHMFD");
    assert_eq!(protocol & 1 << 12, 0, "INFLIGHT_SHMFD");
    assert_eq!(front.ask_u64(17), u64::from(QUEUES));
    // The kernel heard of neither MQ nor bit 30.
    assert_eq!(bench.state().features & (1 << 30 | 1 << 12), 0);
    front.close();
}

#[test]
fn a_vring_runs_exactly_while_it_is_complete() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(MEM), eventfd());
    let front = bench.connect();
    front.negotiate();
    front.give_memory(&mem);
    set_used(&mem, 1, 77);
    front.start_ring(1, 77, &kick);
    {
        let s = bench.state();
        assert!(s.rings[&1].running);
        assert_eq!(s.rings[&1].base, 77);
        assert_eq!(s.rings[&1].placed, Some((71, u32::MAX)), "second poller");
    }
    front.acked(18, &pair(1, 0), &[]);
    assert!(!bench.state().rings[&1].running, "disabled");
    front.acked(18, &pair(1, 1), &[]);
    assert!(bench.state().rings[&1].running, "enabled again");
    assert_eq!(front.base(1), 77);
    assert!(
        !bench.state().rings[&1].running,
        "stopped by GET_VRING_BASE"
    );
    front.acked(18, &pair(1, 1), &[]);
    assert!(!bench.state().rings[&1].running, "needs a new kick");
    front.acked(12, &words(&[1]), &[kick.as_raw_fd()]);
    assert!(bench.state().rings[&1].running);
    front.close();
}

#[test]
fn without_protocol_features_a_kick_starts() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(MEM), eventfd());
    let front = bench.connect();
    let features = front.ask_u64(1);
    front
        .send(2, 1, &words(&[features & !(1 << 30)]), &[])
        .unwrap();
    let table = [pair(1, 0), words(&[0, MEM, FRONT, 0])].concat();
    front.send(5, 1, &table, &[mem.as_raw_fd()]).unwrap();
    front.send(8, 1, &pair(0, 64), &[]).unwrap();
    let addr = [
        pair(0, 0),
        words(&[FRONT, FRONT + 0x2000, FRONT + 0x1000, 0]),
    ]
    .concat();
    front.send(9, 1, &addr, &[]).unwrap();
    front
        .send(12, 1, &words(&[0]), &[kick.as_raw_fd()])
        .unwrap();
    front.ask_u64(1);
    assert!(bench.state().rings[&0].running);
    front.close();
}

/// QEMU without shared memory knows no region to send.
#[test]
fn says_once_that_memory_is_not_shared() {
    let bench = Bench::new();
    let kick = eventfd();
    for connection in 1..=2 {
        let front = bench.connect();
        front.negotiate();
        front.start_ring(0, 0, &kick);
        front.start_ring(1, 0, &kick);
        front.close();
        let said = bench.said();
        let hints = said.iter().filter(|l| l.contains("share=on")).count();
        assert_eq!(hints, connection, "{said:?}");
    }
}

#[test]
fn a_new_table_stops_moves_and_restarts() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(2 * MEM), eventfd());
    let front = bench.connect();
    front.negotiate();
    front.give_memory(&mem);
    set_used(&mem, 0, 5);
    front.start_ring(0, 5, &kick);
    let before = bench.state().rings[&0].addr;
    bench.state().log.clear();
    let body = [
        pair(2, 0),
        words(&[0, MEM, FRONT, 0]),
        words(&[MEM, MEM, FRONT + MEM, MEM]),
    ]
    .concat();
    front.acked(5, &body, &[mem.as_raw_fd(), mem.as_raw_fd()]);
    let s = bench.state();
    assert_eq!(s.log, ["stop 0", "table 2", "start 0"]);
    assert_ne!(s.rings[&0].addr, before);
    assert_eq!(s.rings[&0].base, 5);
    drop(s);
    front.close();
}

#[test]
fn regions_come_and_go() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(2 * MEM), eventfd());
    let front = bench.connect();
    front.negotiate();
    front.give_memory(&mem);
    front.start_ring(0, 0, &kick);
    bench.state().log.clear();
    let second = words(&[0, MEM, MEM, FRONT + MEM, MEM]);
    front.acked(37, &second, &[mem.as_raw_fd()]);
    assert_eq!(bench.state().log, ["table 2"], "hotplug stops nothing");
    front.acked(38, &second, &[]);
    assert!(bench.state().rings[&0].running);
    // The region of the rings itself: enlarged, so removed and added, after another.
    front.acked(38, &words(&[0, 0, MEM, FRONT, 0]), &[]);
    assert!(!bench.state().rings[&0].running);
    let far = words(&[0, 4 * MEM, MEM, FRONT + 4 * MEM, MEM]);
    front.acked(37, &far, &[mem.as_raw_fd()]);
    assert!(!bench.state().rings[&0].running);
    front.acked(37, &words(&[0, 0, 2 * MEM, FRONT, 0]), &[mem.as_raw_fd()]);
    assert!(bench.state().rings[&0].running);
    front.close();
}

/// Sparse files: what would be mapped costs the front end nothing.
#[test]
fn refuses_more_memory_than_there_can_be() {
    let pinned = Options {
        flags: BACKEND_PINNED,
        ..Default::default()
    };
    let size = 9 << 40;
    let sparse = memfd(size);
    for (options, fit) in [(Options::default(), 1), (pinned, 0)] {
        let bench = Bench::with(true, &options);
        let front = bench.connect();
        front.negotiate();
        for n in 0..=fit {
            let region = words(&[0, n << 44, size, (n << 44) + FRONT, 0]);
            front
                .send(37, 1 | 8, &region, &[sparse.as_raw_fd()])
                .unwrap();
            let (_, answer) = front.reply().unwrap();
            assert_eq!(answer == words(&[0]), n < fit, "region {n}");
        }
        front.close();
    }
}

#[test]
fn says_what_features_that_are_gone_need() {
    let bench = Bench::new();
    let front = bench.connect();
    let features = front.ask_u64(1);
    front
        .send(2, 1, &words(&[features | 1 << 11]), &[])
        .unwrap();
    front.close();
    let said = bench.said();
    assert!(said.last().unwrap().contains("restart the VM"), "{said:?}");
}

/// A device may be told that its cache writes through, or not to discard, while it is used.
#[test]
fn a_guest_keeps_what_its_disk_has_lost() {
    let lost = 1 << 9 | 1 << 13 | 1 << 14;
    for writeback in [true, false] {
        let bench = Bench::with_cache(writeback);
        let front = bench.connect();
        let had = front.ask_u64(1);
        front.close();
        bench.state().lost_features = lost;
        let front = bench.connect();
        front.negotiate();
        assert_eq!(bench.state().features & lost, 0, "not for a new guest");
        front.acked(2, &words(&[had]), &[]);
        let kept = if writeback { lost } else { lost & !(1 << 9) };
        assert_eq!(bench.state().features & lost, kept);
        front.close();
    }
}

#[test]
fn a_guest_whose_discards_are_ignored_is_told_so() {
    let ignored = Options {
        flags: BACKEND_NO_DISCARD,
        ..Default::default()
    };
    for (options, discards) in [(Options::default(), true), (ignored, false)] {
        let bench = Bench::with(true, &options);
        let front = bench.connect();
        let offered = front.ask_u64(1);
        front.negotiate();
        assert_eq!(offered & 1 << 13 != 0, discards, "DISCARD");
        assert_ne!(offered & 1 << 14, 0, "WRITE_ZEROES");
        let space = front.config()[12..].to_vec();
        assert_eq!(space[36..40] != [0; 4], discards, "max_discard_sectors");
        assert_eq!(space[56] == 1, discards, "write_zeroes_may_unmap");
        // One that could discard before pvio was started again goes on.
        front.acked(2, &words(&[offered | 1 << 13]), &[]);
        front.close();
    }
}

/// Its requests of a sector would fail, one by one.
#[test]
fn a_guest_is_not_given_larger_blocks_than_it_knows() {
    let bench = Bench::new();
    let front = bench.connect();
    front.negotiate();
    front.config();
    front.close();
    bench.state().larger_blocks = 3;
    let front = bench.connect();
    let features = words(&[front.ask_u64(1)]);
    front.send(2, 1, &features, &[]).unwrap();
    front.close();
    assert_eq!(bench.state().features, 0);
    let said = bench.said();
    assert!(
        said.last().unwrap().contains("are 4096 bytes now"),
        "{said:?}"
    );
    // The VMM of a guest that starts asks before.
    let front = bench.connect();
    front
        .send(16, 1, &words(&[front.ask_u64(15)]), &[])
        .unwrap();
    assert_eq!(front.config()[12 + 20..12 + 24], 4096u32.to_le_bytes());
    front.send(2, 1, &features, &[]).unwrap();
    front.ask_u64(1);
    assert_ne!(bench.state().features, 0);
    front.close();
}

/// With FLUSH the kernel would not write through.
#[test]
fn a_guest_that_is_to_have_no_cache_flushes_nothing() {
    let bench = Bench::with_cache(false);
    let front = bench.connect();
    let features = front.ask_u64(1);
    front.send(2, 1, &words(&[features | 1 << 9]), &[]).unwrap();
    front.close();
    assert_eq!(bench.state().features, 0);
    assert!(bench.said().last().unwrap().contains("restart the VM"));
}

#[test]
fn a_dying_front_end_leaves_nothing_running() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(MEM), eventfd());
    for round in 1..=3 {
        let front = bench.connect();
        front.negotiate();
        front.give_memory(&mem);
        for index in 0..4 {
            front.start_ring(index, 0, &kick);
        }
        front.close();
        let s = bench.state();
        assert!(!s.open);
        assert!(s.log.ends_with(&["reset owner".into(), "close".into()]));
        assert_eq!(bench.opened.load(Ordering::SeqCst), round);
    }
}

#[test]
fn a_front_end_waits_for_a_disk_that_does_not_answer() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(MEM), eventfd());
    let front = bench.connect();
    front.negotiate();
    front.give_memory(&mem);
    set_used(&mem, 1, 5);
    front.start_ring(1, 5, &kick);
    bench.state().stops_fail = 2;
    assert_eq!(front.base(1), 5);
    let log = bench.state().log.clone();
    assert!(log.ends_with(&["no answer 1".into(), "no answer 1".into(), "stop 1".into()]));
    let waits = bench
        .said()
        .iter()
        .filter(|l| l.contains("the VMM waits"))
        .count();
    assert_eq!(waits, 2);
    front.close();
}

/// Its memory must stay where it is, and nothing else may come in its place.
#[test]
fn a_guest_that_left_keeps_its_device_until_all_is_answered() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(MEM), eventfd());
    let front = bench.connect();
    front.negotiate();
    front.give_memory(&mem);
    front.start_ring(0, 0, &kick);
    front.start_ring(1, 0, &kick);
    bench.state().stops_fail = 2;
    front.close();
    assert!(bench.state().open, "the device is kept");
    assert!(bench.state().rings[&0].running);
    let log = bench.state().log.clone();
    assert!(log.ends_with(&["start 1".into(), "reset owner".into()]));

    bench.connect().close();
    assert!(bench.said().last().unwrap().contains("refused a VMM"));
    assert_eq!(bench.opened.load(Ordering::SeqCst), 1);

    // The VMM has not seen the answers that came after it had left.
    let front = bench.connect();
    front.negotiate();
    front.give_memory(&mem);
    set_used(&mem, 0, 3);
    front.start_ring(0, 1, &kick);
    assert_eq!(bench.state().rings[&0].base, 3);
    front.close();
    assert!(!bench.state().open);
    assert_eq!(bench.opened.load(Ordering::SeqCst), 2);
}

#[test]
fn a_guest_that_left_is_let_go_of_once_all_is_answered() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(MEM), eventfd());
    let front = bench.connect();
    front.negotiate();
    front.give_memory(&mem);
    front.start_ring(0, 0, &kick);
    bench.state().stops_fail = 2;
    front.close();
    assert!(bench.state().open);

    let dir = TempDir::new().unwrap();
    let (entrance, _place) = Entrance::at_path(&dir.as_path().join("s")).unwrap();
    let listener = entrance.listener().unwrap();
    let stop = EventFd::new(0).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| server::serve(entrance, None, &bench.session, "waits", &stop));
        // A stop would wait for a minute, so none is tried before the disk has answered.
        std::thread::sleep(Duration::from_millis(1500));
        assert!(bench.state().open);
        assert_eq!(bench.state().stops_fail, 1);
        bench.state().stops_fail = 0;
        let mut patience = 3000;
        while bench.state().open && patience > 0 {
            std::thread::sleep(Duration::from_millis(10));
            patience -= 1;
        }
        stop.write(1).unwrap();
        server::shut(&listener);
    });
    assert!(!bench.state().open);
}

/// A stop of a disk that does not answer takes a minute, so three must not take three.
#[test]
fn all_disks_are_stopped_at_once() {
    let benches = [Bench::new(), Bench::new(), Bench::new()];
    let (mem, kick) = (memfd(MEM), eventfd());
    let mut fronts = Vec::new();
    for bench in &benches {
        let front = bench.connect();
        front.negotiate();
        front.give_memory(&mem);
        front.start_ring(0, 0, &kick);
        fronts.push(front);
    }
    let company = Company::of(3);
    for bench in &benches {
        bench.state().company = Some(Arc::clone(&company));
    }
    // One of them gives up. The others end as ever.
    benches[0].state().stops_fail = 1;
    let name = |bench: &Bench| bench.image.as_path().display().to_string();
    let sessions: Vec<_> = benches
        .iter()
        .map(|bench| (name(bench), Arc::clone(&bench.session)))
        .collect();
    server::end_all(&sessions);
    assert_eq!(company.alone.load(Ordering::SeqCst), 0);
    assert!(benches[0].state().open, "the device is kept");
    assert!(!benches[1].state().open && !benches[2].state().open);

    for bench in &benches {
        bench.state().company = None;
    }
    fronts.into_iter().for_each(Front::close);
}

#[test]
fn an_inherited_listener_outlives_us() {
    let bench = Bench::new();
    let dir = TempDir::new().unwrap();
    let path = dir.as_path().join("s");
    let owners = UnixListener::bind(&path).unwrap();
    let fd = owners.try_clone().unwrap().into_raw_fd();
    let entrance = Entrance::from_fd(fd).unwrap();
    if let Some(listener) = entrance.listener() {
        server::shut(&listener);
    }
    let stop = EventFd::new(0).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| server::serve(entrance, None, &bench.session, "inherited", &stop));
        let mut served = UnixStream::connect(&path).unwrap();
        served.write_all(&common::header(1, 1, 0)).unwrap();
        served.read_exact(&mut [0; 20]).unwrap();
        stop.write(1).unwrap();
    });
    let _later = UnixStream::connect(&path).unwrap();
    owners.accept().unwrap();
}

#[test]
fn death_at_any_point_of_the_handshake() {
    let bench = Bench::new();
    let mem = memfd(MEM);
    let table = [pair(1, 0), words(&[0, MEM, FRONT, 0])].concat();
    let messages = [
        (common::header(1, 1, 0), vec![], false),
        (common::header(16, 1, 8), words(&[0x208]), false),
        (common::header(5, 1, 40), table, true),
        (common::header(9, 1, 40), vec![0; 40], false),
    ];
    for (head, body, with_fd) in &messages {
        let whole = [&head[..], body].concat();
        for cut in 1..=whole.len() {
            let front = bench.connect();
            let fds: &[i32] = if *with_fd { &[mem.as_raw_fd()] } else { &[] };
            let (one, two) = whole[..cut].split_at(cut.min(12));
            front.send_raw(one, two, fds).unwrap();
            front.close();
        }
    }
    let front = bench.connect();
    front.negotiate();
    front.close();
}

#[test]
fn the_write_cache_is_not_the_guests_to_choose() {
    for writeback in [true, false] {
        let bench = Bench::with_cache(writeback);
        let front = bench.connect();
        front.negotiate();
        let features = bench.state().features;
        assert_eq!(features & (1 << 11), 0, "CONFIG_WCE");
        assert_eq!(features & (1 << 9) != 0, writeback, "FLUSH");
        let config = front.config();
        assert_eq!(config[12 + 32], u8::from(writeback));
        assert_eq!(config[12..14], [0, 8], "2048 sectors");
        front.close();
    }
}

#[test]
fn a_new_size_reaches_the_front_end() {
    let bench = Bench::new();
    let front = bench.connect();
    front.negotiate();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    front.acked(21, &[], &[theirs.as_raw_fd()]);
    drop(theirs);
    let look = || bench.session.lock().unwrap().check_size().unwrap();
    assert_eq!(look(), None);
    bench.image.as_file().set_len(2 << 20).unwrap();
    assert_eq!(look(), Some(2 << 20));
    let mut got = [0u8; 12];
    ours.read_exact(&mut got).unwrap();
    assert_eq!(got[..4], 2u32.to_ne_bytes(), "CONFIG_CHANGE_MSG");
    assert_eq!(look(), None);
    // A front end that does not listen does not hold us up.
    drop(ours);
    bench.image.as_file().set_len(3 << 20).unwrap();
    assert!(bench.session.lock().unwrap().check_size().is_err());
    front.close();
}

/// One that came while no guest ran is dropped by QEMU.
#[test]
fn a_new_size_is_told_again_once_a_guest_runs() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(MEM), eventfd());
    let front = bench.connect();
    front.negotiate();
    front.give_memory(&mem);
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    front.acked(21, &[], &[theirs.as_raw_fd()]);
    let look = || bench.session.lock().unwrap().check_size().unwrap();
    let told = || (&ours).read(&mut [0u8; 24]).unwrap_or(0) / 12;
    for _ in 0..2 {
        front.start_ring(0, 0, &kick);
        front.start_ring(1, 0, &kick);
        look();
        assert_eq!(told(), 0, "not into a handshake");
        std::thread::sleep(Duration::from_millis(250));
        look();
        look();
        assert_eq!(told(), 1);
        front.base(0);
        front.base(1);
    }
    front.close();
}

#[test]
fn a_reset_forgets_the_rings() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(MEM), eventfd());
    let front = bench.connect();
    front.negotiate();
    front.give_memory(&mem);
    set_used(&mem, 0, 9);
    front.start_ring(0, 9, &kick);
    front.acked(34, &[], &[]);
    assert!(!bench.state().rings[&0].running);
    front.acked(18, &pair(0, 1), &[]);
    assert!(!bench.state().rings[&0].running);
    assert_eq!(front.base(0), 0);
    front.start_ring(0, 3, &kick);
    assert!(bench.state().rings[&0].running);
    front.close();
}

/// The device checks its rings as it starts: with EVENT_IDX they are longer.
#[test]
fn a_reset_forgets_the_features() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(MEM), eventfd());
    let front = bench.connect();
    front.negotiate();
    front.give_memory(&mem);
    front.acked(34, &[], &[]);
    assert_eq!(bench.state().features, 0);
    let used = FRONT + MEM - (4 + 8 * 64);
    let addr = [pair(0, 0), words(&[FRONT, used, FRONT + 0x1000, 0])].concat();
    front.acked(8, &pair(0, 64), &[]);
    front.acked(9, &addr, &[]);
    front.acked(12, &words(&[0]), &[kick.as_raw_fd()]);
    front.acked(18, &pair(0, 1), &[]);
    assert!(bench.state().rings[&0].running, "without EVENT_IDX it fits");
    front.close();
}

/// Cloud Hypervisor reconnects with the available index.
#[test]
fn what_was_not_answered_is_served() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(MEM), eventfd());
    // What the front end says, how far the guest was answered, where it goes on.
    for (base, used, goes_on) in [
        (5, 3, 3),
        (5, 5, 5),
        (3, 5, 3), // behind: never seen, and not ours to say
        (128, 0, 0),
        (129, 0, 129), // more than the ring holds
        (1, 65534, 65534),
    ] {
        let front = bench.connect();
        front.negotiate();
        front.give_memory(&mem);
        set_used(&mem, 2, used);
        front.start_ring(2, base, &kick);
        assert_eq!(bench.state().rings[&2].base, goes_on, "{base} {used}");
        // It has run here: whatever the guest writes now, it is not put right again.
        assert_eq!(front.base(2), goes_on, "{base} {used} at the pause");
        set_used(&mem, 2, used.wrapping_sub(1));
        front.start_ring(2, goes_on, &kick);
        assert_eq!(bench.state().rings[&2].base, goes_on, "{base} {used} again");
        // Nor is it after a reset.
        front.acked(34, &[], &[]);
        set_used(&mem, 2, 65535);
        front.start_ring(2, 0, &kick);
        assert_eq!(bench.state().rings[&2].base, 0, "{base} {used} reset");
        front.close();
    }
}

#[test]
fn counts_the_vrings_that_run() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(MEM), eventfd());
    let counted = Counted {
        pollers: vec![],
        sessions: vec![("vm1".to_owned(), Arc::clone(&bench.session))],
    };
    let said = || -> serde_json::Value { serde_json::from_str(&counted.lines()).unwrap() };
    let front = bench.connect();
    front.negotiate();
    front.give_memory(&mem);
    assert_eq!(said()["vrings"], serde_json::json!([]));
    front.start_ring(2, 0, &kick);
    let all = said();
    let vring = &all["vrings"][0];
    assert_eq!(all["disk"], "vm1");
    assert_eq!(all["backend"]["capacity"], 2048);
    assert_eq!((&vring["index"], &vring["reads"]), (&2.into(), &7.into()));
    assert_eq!(vring["latency"].as_array().unwrap().len(), 32);

    bench.state().stats_fail = true;
    assert!(said()["vrings"]["error"].is_string());
    let busy = bench.session.lock().unwrap();
    assert!(said()["vrings"].is_null() && said()["backend"].is_null());
    drop(busy);
    front.close();
    assert!(said()["backend"].is_null());
}

#[test]
fn hangs_up_on_what_makes_no_sense() {
    let bench = Bench::new();
    let (mem, kick) = (memfd(MEM), eventfd());
    let far = FRONT + MEM;
    let bad: &[(u32, Vec<u8>)] = &[
        (8, pair(QUEUES.into(), 128)),
        (8, pair(0, 100)),
        (8, pair(0, 0)),
        (8, pair(0, 65536)),
        (10, pair(1, 65536)),
        (11, pair(99, 0)),
        (18, pair(99, 1)),
        (2, words(&[u64::MAX])),
        (2, words(&[1 << 26])),
        (9, [pair(0, 0), words(&[far, far, far, 0])].concat()),
        (9, [pair(0, 1), words(&[FRONT, FRONT, FRONT, 0])].concat()),
        (9, [pair(0, 0), words(&[FRONT, FRONT, far - 4, 0])].concat()),
        (10, pair(0, 1)), // it runs
        (37, words(&[0, u64::MAX, 2, 0, 0])),
        (38, words(&[0, 1, 2, 3, 4])),
        (25, [pair(0, 1), pair(0, 0)[..4].to_vec(), vec![1]].concat()),
        (25, [pair(32, 1), vec![0; 5]].concat()), // wce
        (31, words(&[0, 0, 0])),
        (6, words(&[0, 0])),
    ];
    for (request, body) in bad {
        let front = bench.connect();
        front.negotiate();
        front.give_memory(&mem);
        front.start_ring(0, 0, &kick);
        front.send(*request, 1, body, &[]).unwrap();
        let mut rest = Vec::new();
        let _ = (&front.sock).read_to_end(&mut rest);
        assert!(rest.is_empty(), "request {request} was answered");
        front.close();
        assert!(!bench.state().open);
    }
}
