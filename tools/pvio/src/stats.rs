// SPDX-License-Identifier: GPL-2.0
//! Counters of pollers and vrings, and the state of devices, as lines of JSON: what SIGUSR1
//! prints.
//!
//! Names and numbers are those of `struct vhost_poll_stats`, `vhost_blk_stats`,
//! `vhost_blk_info`, `vhost_serve_stats` and `vhost_fs_info`; the kernel's headers explain them.
//!
//! A thread of their own gathers and prints them: the reader of the lines may take its
//! time, and no guest has to wait for it.

use std::io::{self, Write};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::MutexGuard;
use std::thread;
use std::time::{Duration, Instant};

use serde::ser::{SerializeMap, Serializer};
use serde::Serialize;

use crate::kernel::Poller;
use crate::server::Shared;
use crate::service::Service;
use crate::session::Session;
use crate::uapi::PollStats;

/// What there is to count.
pub struct Counted<S: Service> {
    /// In the order of `--poll-cpu`.
    pub pollers: Vec<Poller>,
    /// What is served, by name.
    pub sessions: Vec<(String, Shared<S>)>,
}

#[derive(Serialize)]
struct PollerLine {
    poller: Stats<PollStats>,
}

/// `{"disk": NAME, "backend": ..., "vrings": ...}`
struct ServedLine<'a, S: Service> {
    name: &'a str,
    info: Option<Stats<S::Info>>,
    vrings: Option<Stats<Vec<S::Stats>>>,
}

impl<S: Service> Serialize for ServedLine<'_, S> {
    fn serialize<W: Serializer>(&self, to: W) -> Result<W::Ok, W::Error> {
        let mut map = to.serialize_map(Some(3))?;
        map.serialize_entry(S::KIND, self.name)?;
        map.serialize_entry(S::INFO_KEY, &self.info)?;
        map.serialize_entry("vrings", &self.vrings)?;
        map.end()
    }
}

/// How long a line waits for a message to be handled.
const PATIENCE: Duration = Duration::from_secs(1);

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

impl<S: Service> Counted<S> {
    /// A line for each poller, then one for each of what is served.
    pub fn lines(&self) -> String {
        let line = |line: String| line + "\n";
        let pollers = self.pollers.iter().map(|p| {
            text(&PollerLine {
                poller: p.stats().into(),
            })
        });
        let served = self.sessions.iter().map(|(name, session)| {
            let session = patiently(session);
            text(&ServedLine::<S> {
                name,
                info: session.as_ref().and_then(|s| s.info()).map(Stats::from),
                vrings: session.map(|s| s.stats().into()),
            })
        });
        pollers.chain(served).map(line).collect()
    }
}

fn text(line: &impl Serialize) -> String {
    serde_json::to_string(line).unwrap_or_default()
}

/// A message is handled in much less. One that waits for a backend that never answers
/// must not keep the other lines back: None.
fn patiently<S: Service>(session: &Shared<S>) -> Option<MutexGuard<'_, Session<S>>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match session.try_lock() {
            Ok(guard) => return Some(guard),
            Err(_) if Instant::now() > deadline => return None,
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Prints the counters when asked to.
pub struct Printer(SyncSender<()>);

impl Printer {
    /// Starts the thread. It ends with the process.
    pub fn start<S: Service + 'static>(counted: Counted<S>) -> io::Result<Self> {
        let (ask, asked) = sync_channel(1);
        thread::Builder::new().spawn(move || print(&counted, &asked))?;
        Ok(Self(ask))
    }

    /// Does not wait. Asked again while it prints, it prints once more.
    pub fn ask(&self) {
        // Full: it will print anyway.
        let _ = self.0.try_send(());
    }
}

fn print<S: Service>(counted: &Counted<S>, asked: &Receiver<()>) {
    for () in asked {
        // The reader may have gone.
        drop(io::stdout().write_all(counted.lines().as_bytes()));
        drop(io::stdout().flush());
    }
}
