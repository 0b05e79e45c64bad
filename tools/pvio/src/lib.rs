// SPDX-License-Identifier: GPL-2.0
//! pvio: the control path of exit-less storage.
//!
//! `pvio blk` speaks vhost-user to a virtual machine monitor on one side and
//! vhost ioctls to `/dev/vhost-blk` on the other. No data passes through it: it
//! hands the kernel the guest's memory and the kick and call descriptors, and
//! waits for the next message.
//!
//! | module      | holds                                                        |
//! |-------------|--------------------------------------------------------------|
//! | [`cli`]     | the command line                                             |
//! | [`run`]     | `pvio blk`: sets everything up, waits for signals and resizes |
//! | [`stats`]   | counters, as lines of JSON                                   |
//! | [`server`]  | sockets, one front end after another                         |
//! | [`session`] | the protocol's state, and what each message does             |
//! | [`memory`]  | the guest's memory and its three addresses                   |
//! | [`channel`] | messages from us to the front end                            |
//! | [`config`]  | features and configuration space                             |
//! | [`disk`]    | opening and claiming what the guest gets                     |
//! | [`kernel`]  | the kernel devices, behind a trait                           |
//! | [`uapi`]    | their structures                                             |
//! | [`host`]    | what /proc and /sys know                                     |
//! | [`vmm`]     | `pvio args`                                                  |

/// Prints a line to standard error, if somebody is there to read it: eprintln!() panics
/// once the terminal is gone or the log's disk is full, and a panic takes all disks along.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "pvio: {}", format_args!($($text)*));
    }};
}

pub mod channel;
pub mod cli;
pub mod config;
pub mod disk;
pub mod host;
pub mod kernel;
pub mod memory;
pub mod run;
pub mod server;
pub mod session;
pub mod stats;
pub mod uapi;
pub mod vmm;
