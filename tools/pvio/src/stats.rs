// SPDX-License-Identifier: GPL-2.0
//! Counters of pollers and vrings, as lines of JSON: what SIGUSR1 prints.
//!
//! Names and numbers are those of `struct vhost_poll_stats` and `struct
//! vhost_blk_stats`; the kernel's headers explain them.
//!
//! A thread of their own gathers and prints them: whoever reads the lines may take
//! his time, and no guest has to wait for him.

use std::io::{self, Write};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread;

use serde::Serialize;

use crate::kernel::Poller;
use crate::server::Shared;
use crate::uapi::{BlkStats, PollStats};

/// What there is to count.
pub struct Counted {
    /// In the order of `--poll-cpu`.
    pub pollers: Vec<Poller>,
    /// Disks by name.
    pub sessions: Vec<(String, Shared)>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Line<'a> {
    Poller(Stats<PollStats>),
    #[serde(untagged)]
    Disk {
        disk: &'a str,
        /// None while its front end is in the middle of saying something.
        vrings: Option<Stats<Vec<BlkStats>>>,
    },
}

/// Counters, or why there are none.
#[derive(Serialize)]
#[serde(untagged)]
enum Stats<T> {
    Known(T),
    Error { error: String },
}

impl<T> From<io::Result<T>> for Stats<T> {
    fn from(result: io::Result<T>) -> Self {
        match result {
            Ok(stats) => Self::Known(stats),
            Err(e) => Self::Error {
                error: e.to_string(),
            },
        }
    }
}

impl Counted {
    /// A line for each poller, then one for each disk.
    pub fn lines(&self) -> String {
        let pollers = self.pollers.iter().map(|p| Line::Poller(p.stats().into()));
        let disks = self.sessions.iter().map(|(name, session)| Line::Disk {
            disk: name,
            vrings: session.try_lock().ok().map(|s| s.stats().into()),
        });
        let text = |line: Line| serde_json::to_string(&line).unwrap_or_default() + "\n";
        pollers.chain(disks).map(text).collect()
    }
}

/// Prints the counters when asked to.
pub struct Printer(SyncSender<()>);

impl Printer {
    /// Starts the thread. It ends with the process.
    pub fn start(counted: Counted) -> io::Result<Self> {
        let (ask, asked) = sync_channel(1);
        thread::Builder::new().spawn(move || print(&counted, &asked))?;
        Ok(Self(ask))
    }

    /// Does not wait; who asks again while it prints gets it once more.
    pub fn ask(&self) {
        // Full: it will print anyway.
        let _ = self.0.try_send(());
    }
}

fn print(counted: &Counted, asked: &Receiver<()>) {
    for () in asked {
        // Whoever reads it may have gone.
        drop(io::stdout().write_all(counted.lines().as_bytes()));
        drop(io::stdout().flush());
    }
}
