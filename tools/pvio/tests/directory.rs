// SPDX-License-Identifier: GPL-2.0
//! A session over a directory.

#![allow(missing_docs)]

mod common;

use common::{eventfd, memfd, opener, pair, Front, State, MEM};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use pvio::fs::{Directory, Fs, Options, Settings};
use pvio::session::Session;
use pvio::stats::Counted;
use pvio::uapi;
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
