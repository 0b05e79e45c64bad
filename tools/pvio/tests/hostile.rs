// SPDX-License-Identifier: GPL-2.0
//! A front end that sends whatever comes to its mind. The kernel device made of
//! memory asserts what must always hold: nothing changes under a running vring,
//! no address leaves the table, and every device is closed with nothing running.

#![allow(missing_docs)]

mod common;

use common::{eventfd, header, memfd, pair, words, Bench, Front, FRONT, MEM};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::Mutex;

/// xorshift64*: deterministic, so that a failure can be had again.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Numbers of the kind that breaks things.
    fn number(&mut self) -> u64 {
        let edge = self.pick(&[0, 1, 2, 64, 128, MEM, FRONT, u64::MAX, 1 << 63, 1 << 32]);
        match self.below(4) {
            0 => self.next(),
            1 => edge,
            2 => edge.wrapping_add(self.below(64)).wrapping_sub(32),
            _ => FRONT + self.below(MEM / 16) * 16,
        }
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

struct Fds {
    memory: File,
    event: File,
    null: File,
}

impl Fds {
    fn some(&self, rng: &mut Rng, n: usize) -> Vec<RawFd> {
        let all = [&self.memory, &self.event, &self.null].map(AsRawFd::as_raw_fd);
        (0..n).map(|_| rng.pick(&all)).collect()
    }
}

/// A body of the right shape for `request`, most of the time.
fn body(rng: &mut Rng, request: u32) -> Vec<u8> {
    let index = if rng.one_in(8) {
        rng.next() as u32
    } else {
        rng.below(4) as u32
    };
    match request {
        _ if rng.one_in(16) => {
            let n = rng.below(300) as usize;
            rng.bytes(n)
        }
        1 | 3 | 4 | 15 | 17 | 34 | 36 | 21 => Vec::new(),
        2 => words(&[rng.next() & 0x1_7000_0a44 | (rng.below(2) << 30)]),
        16 => words(&[rng.next() & 0xa229]),
        5 => table(rng),
        8 => pair(index, rng.pick(&[64, 128, 256, 32768, 0, 3, 1 << 31])),
        9 => {
            let mut at = || rng.number() & !15;
            let parts = [at(), at(), at(), 0];
            [pair(index, 0), words(&parts)].concat()
        }
        10 | 11 => pair(index, rng.below(70000) as u32),
        12..=14 => words(&[u64::from(index & 0xff) | (rng.below(8) / 7) << 8]),
        18 => pair(index, rng.below(3) as u32),
        24 | 25 => {
            let (at, n) = (
                rng.pick(&[0, 32, 60, 4095, u32::MAX]),
                rng.pick(&[1, 4, 60]),
            );
            let payload = rng.bytes(n);
            [pair(at, n as u32), vec![0; 4], payload].concat()
        }
        37 | 38 => [words(&[0]), region(rng)].concat(),
        _ => {
            let n = rng.below(64) as usize;
            rng.bytes(n)
        }
    }
}

fn region(rng: &mut Rng) -> Vec<u8> {
    match rng.below(3) {
        0 => words(&[0, MEM, FRONT, 0]),
        1 => words(&[MEM, MEM, FRONT + MEM, rng.below(2) * 4096]),
        _ => words(&[rng.number(), rng.number(), rng.number(), rng.number()]),
    }
}

fn table(rng: &mut Rng) -> Vec<u8> {
    let n = rng.below(4) as u32;
    let claimed = if rng.one_in(10) { rng.next() as u32 } else { n };
    let mut body = pair(claimed, 0);
    for _ in 0..n {
        body.extend(region(rng));
    }
    body
}

fn one_message(rng: &mut Rng, front: &Front, fds: &Fds) -> std::io::Result<()> {
    let request = rng.pick(&[
        1, 2, 3, 4, 5, 5, 8, 9, 9, 10, 11, 12, 12, 13, 14, 15, 16, 17, 18, 18, 21, 24, 25, 34, 36,
        37, 38, 6, 7, 20, 28, 31, 32, 33, 40, 41, 42, 43, 44, 45, 0xffff,
    ]);
    let flags = if rng.one_in(50) {
        rng.next() as u32
    } else {
        1 | rng.pick(&[0, 8])
    };
    let body = body(rng, request);
    let size = if rng.one_in(50) {
        rng.next() as u32
    } else {
        body.len() as u32
    };
    let count = match request {
        _ if rng.one_in(20) => rng.below(5) as usize,
        5 => body.len() / 32,
        12..=14 | 21 | 37 => 1,
        _ => 0,
    };
    let attached = match request {
        5 | 37 if !rng.one_in(10) => vec![fds.memory.as_raw_fd(); count],
        12..=14 if !rng.one_in(10) => vec![fds.event.as_raw_fd(); count],
        _ => fds.some(rng, count),
    };
    front.send_raw(&header(request, flags, size), &body, &attached)
}

/// Now and then a proper start, so that the nonsense meets running vrings.
fn well_begun(rng: &mut Rng, bench: &Bench, fds: &Fds) -> Front {
    let front = bench.connect();
    if !rng.one_in(3) {
        front.negotiate();
        front.give_memory(&fds.memory);
        for index in 0..rng.below(4) as u32 {
            front.start_ring(index, 0, &fds.event);
        }
    }
    front
}

/// One test at a time, because each counts the process's descriptors.
static ALONE: Mutex<()> = Mutex::new(());

fn open_descriptors() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.flat_map(|fd| std::fs::read_link(fd.path())).collect()
}

#[test]
fn survives_ten_thousand_messages() {
    let _alone = ALONE.lock().unwrap();
    let bench = Bench::new();
    let fds = Fds {
        memory: memfd(2 * MEM),
        event: eventfd(),
        null: File::open("/dev/null").unwrap(),
    };
    let mut rng = Rng(0x1234_5678_9abc_def1);
    let mut sent = 0;
    let mut started = 0;
    let before = open_descriptors();
    while sent < 10_000 {
        let front = well_begun(&mut rng, &bench, &fds);
        for _ in 0..rng.below(40) {
            sent += 1;
            if one_message(&mut rng, &front, &fds).is_err() {
                break; // hung up on, as it should be
            }
            front.drain();
        }
        front.close();
        let state = &mut *bench.state();
        assert!(!state.open);
        started += state.log.iter().filter(|l| l.starts_with("start")).count();
        state.log.clear();
    }
    let after = open_descriptors();
    // The test's own machinery may come and go; a leak would make hundreds.
    assert!(after.len() < before.len() + 8, "a leak: {after:?}");
    assert!(started > 100, "only {started} vrings ever ran");
    let front = bench.connect();
    front.negotiate();
    front.give_memory(&fds.memory);
    front.start_ring(0, 0, &fds.event);
    assert!(bench.state().rings[&0].running, "an honest one is served");
    front.close();
}

#[test]
fn survives_plain_noise() {
    let _alone = ALONE.lock().unwrap();
    let bench = Bench::new();
    let mut rng = Rng(0x0dd_ba11);
    for _ in 0..500 {
        let front = bench.connect();
        let n = 1 + rng.below(200) as usize;
        let noise = rng.bytes(n);
        let _ = front.send_raw(&noise, &[], &[]);
        front.close();
    }
}
