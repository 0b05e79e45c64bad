// SPDX-License-Identifier: GPL-2.0
//! pvio: the control path of exit-less storage.
//!
//! `pvio blk` and `pvio fs` speak vhost-user to a virtual machine monitor on one side
//! and vhost ioctls to `/dev/vhost-blk` or `/dev/vhost-fs` on the other. No data passes
//! through them: they hand the kernel the guest's memory and the kick and call
//! descriptors, and wait for the next message.
//!
//! | module      | holds                                                          |
//! |-------------|----------------------------------------------------------------|
//! | [`cli`]     | the command line                                               |
//! | [`fscli`]   | that of `pvio fs`                                              |
//! | [`virtiofsd`] | virtiofsd's options that `pvio fs` has no use for           |
//! | [`run`]     | sets everything up, waits for signals and resizes              |
//! | [`stats`]   | counters, as lines of JSON                                     |
//! | [`upgrade`] | `pvio upgrade`                                                 |
//! | [`place`]   | a path to listen at, claimed by one process                    |
//! | [`server`]  | sockets, one front end after another                           |
//! | [`session`] | the protocol's state, and what each message does               |
//! | `vring`     | what a session knows of one vring                              |
//! | [`memory`]  | the guest's memory and its three addresses                     |
//! | [`channel`] | messages from us to the front end                              |
//! | [`service`] | the boundary between a session and what it serves              |
//! | [`blk`]     | a disk as such a service                                       |
//! | [`fs`]      | a directory as such a service                                  |
//! | [`config`]  | features and configuration space                               |
//! | [`disk`]    | opening and claiming a disk                                    |
//! | [`kernel`]  | the kernel devices, behind traits                              |
//! | [`uapi`]    | their structures                                               |
//! | [`cpus`]    | which CPUs to poll from                                        |
//! | [`host`]    | what /proc and /sys know                                       |
//! | [`error`]   | the one type of error                                          |
//! | [`vmm`]     | `pvio args`                                                    |

/// Prints a line to standard error. It may have no reader: eprintln!() panics once the
/// terminal is gone or the log's disk is full, and a panic takes all disks along.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "pvio: {}", format_args!($($text)*));
    }};
}

pub use error::{Error, Result};

pub mod blk;
pub mod channel;
pub mod cli;
pub mod config;
pub mod cpus;
pub mod disk;
pub mod error;
pub mod fs;
pub mod fscli;
pub mod handover;
pub mod host;
pub mod kernel;
pub mod memory;
pub mod place;
pub mod run;
pub mod server;
pub mod service;
pub mod session;
pub mod stats;
pub mod uapi;
pub mod upgrade;
pub mod virtiofsd;
pub mod vmm;
mod vring;
