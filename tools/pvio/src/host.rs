// SPDX-License-Identifier: GPL-2.0
//! What the host says about itself: CPUs, modules, who holds a device.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::time::{clock_gettime, ClockId};

use crate::kernel::{DEV_BLK, DEV_FS};

/// CPUs that are online, in order.
pub fn online_cpus() -> io::Result<Vec<u32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_list(text.trim())
        .ok_or_else(|| io::Error::other(format!("cannot read a list of CPUs: {text}")))
}

/// CPUs that the scheduler leaves alone (isolcpus=), in order.
pub fn isolated_cpus() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/isolated").unwrap_or_default();
    parse_list(text.trim()).unwrap_or_default()
}

/// Parses `0-3,8` into numbers.
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last - first > 65536 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Parses a list and refuses CPUs that are not online.
pub fn check_cpus(cpus: &[u32]) -> crate::Result<()> {
    let online = online_cpus().map_err(|e| format!("cannot see which CPUs are online: {e}"))?;
    match cpus.iter().find(|cpu| !online.contains(cpu)) {
        None => Ok(()),
        Some(cpu) => {
            let list: Vec<String> = online.iter().map(u32::to_string).collect();
            Err(format!(
                "CPU {cpu} is not online; --poll-cpu takes one or several of {}",
                list.join(",")
            )
            .into())
        }
    }
}

/// A sentence for a control node of ours that does not open.
pub fn explain_node(path: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            let modules = match path {
                DEV_BLK => "-a vhost_poll vhost_blk",
                DEV_FS => "-a vhost_poll vhost_fs",
                _ => "vhost_poll",
            };
            format!(
                "{path} is missing: run 'modprobe {modules}'; if modprobe finds no module, build \
                 the modules for the running kernel ('make install')"
            )
        }
        Some(libc::EACCES | libc::EPERM) => format!(
            "no permission for {path}: run pvio as root, or let its user open the file (a udev \
             rule) and give it CAP_SYS_NICE"
        ),
        _ => format!("{path}: {error}"),
    }
}

/// Memory regions one vhost device can have.
pub fn max_mem_slots() -> u64 {
    const DEFAULT: u64 = 64;
    fs::read_to_string("/sys/module/vhost/parameters/max_mem_regions")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(DEFAULT)
}

/// Bytes of memory the host has.
pub fn memory() -> Option<u64> {
    mem_total(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Says who uses block device `rdev`, as far as /proc and /sys tell.
pub fn holder_of(rdev: u64) -> Option<String> {
    let id = |rdev| format!("{}:{}", libc::major(rdev), libc::minor(rdev));
    let sys = format!("/sys/dev/block/{}", id(rdev));
    let mut ids = vec![id(rdev)];
    ids.extend(partitions(Path::new(&sys)));

    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(place) = ids.iter().find_map(|id| mounted_at(&mounts, id)) {
        return Some(format!(
            "mounted at {place}: unmount it first ('umount {place}')"
        ));
    }
    let mut holders = fs::read_dir(format!("{sys}/holders")).ok()?;
    let name = holders.next()?.ok()?.file_name();
    Some(format!(
        "part of {} (device mapper, RAID or the like): use that instead",
        name.to_string_lossy()
    ))
}

fn partitions(sys: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(sys) else {
        return Vec::new();
    };
    let id = |dir: &Path| {
        dir.join("partition").exists().then_some(())?;
        let dev = fs::read_to_string(dir.join("dev")).ok()?;
        Some(dev.trim().to_owned())
    };
    entries.flatten().filter_map(|e| id(&e.path())).collect()
}

/// Finds where device `id` (`major:minor`) is mounted, in the text of mountinfo.
fn mounted_at(mountinfo: &str, id: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(2);
        (words.next()? == id).then_some(())?;
        words.nth(1).map(|place| place.replace("\\040", " "))
    })
}

/// Finds what is mounted beneath `dir`, which is in mount `id`, in the text of mountinfo. The
/// places are relative to `dir`, and a place where several mounts are is there once.
pub fn mounts_beneath(mountinfo: &str, id: u64, dir: &Path) -> Vec<PathBuf> {
    let all: Vec<_> = mountinfo.lines().filter_map(mount).collect();
    let is_first = |place: &Path| place != dir && place.starts_with(dir);
    let mut found = HashSet::new();
    loop {
        // A mount on one that was found is beneath `dir`, too, and may come in an earlier line.
        let before = found.len();
        for (own, parent, place) in &all {
            if found.contains(parent) || (*parent == id && is_first(place)) {
                found.insert(*own);
            }
        }
        if found.len() == before {
            break;
        }
    }
    let mut seen = HashSet::new();
    let found = all.into_iter().filter(|(own, ..)| found.contains(own));
    found
        .filter_map(|(.., place)| place.strip_prefix(dir).ok().map(Path::to_owned))
        .filter(|place| seen.insert(place.clone()))
        .collect()
}

/// The number of a mount, that of its parent, and its place.
fn mount(line: &str) -> Option<(u64, u64, PathBuf)> {
    let mut words = line.split_ascii_whitespace();
    let (own, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((own, parent, unescape(words.nth(2)?)))
}

/// The kernel writes some characters as a backslash and three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut parts = text.as_bytes().split(|byte| *byte == b'\\');
    let mut bytes = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let digits = part.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part[3..]);
            }
            None => bytes.extend(part), // not the kernel's
        }
    }
    OsString::from_vec(bytes).into()
}

/// The number of the mount in which descriptor `fd` was opened.
pub fn mount_of(fd: RawFd) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("mnt_id:"))?;
    line.trim().parse().ok()
}

/// The clock that only goes forward.
pub fn monotonic() -> Duration {
    // It cannot fail: Linux has this clock.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

/// Tells systemd, if it asked, that the service is up.
pub fn notify_ready() {
    notify("READY=1");
}

/// Tells systemd, if it asked, that the service reloads, until [`notify_ready`].
pub fn notify_reloading() {
    notify(&reloading(monotonic()));
}

/// systemd 253 and newer want to know when it began.
fn reloading(since: Duration) -> String {
    format!("RELOADING=1\nMONOTONIC_USEC={}", since.as_micros())
}

fn notify(state: &str) {
    let Ok(path) = std::env::var("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(e) = notify_at(&path, state) {
        let what = state.lines().next().unwrap_or_default();
        say!("cannot tell systemd ({path}) {what}: {e}");
    }
}

fn notify_at(path: &str, state: &str) -> io::Result<()> {
    let addr = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &addr)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_lists_of_cpus() {
        assert_eq!(parse_list("0-2,7"), Some(vec![0, 1, 2, 7]));
        assert_eq!(parse_list("3"), Some(vec![3]));
        for bad in ["", "a", "3-1", "1,", "0-4294967295", "-1"] {
            assert_eq!(parse_list(bad), None, "{bad}");
        }
    }

    #[test]
    fn knows_the_size_of_memory() {
        let text = "MemTotal:       16307116 kB\nMemFree:          123 kB\n";
        assert_eq!(mem_total(text), Some(16307116 << 10));
        assert_eq!(mem_total("MemFree: 1 kB\n"), None);
        assert!(memory().is_some());
    }

    #[test]
    fn finds_the_mount() {
        let info = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n\
                    37 35 8:1 / /data\\040disk rw - ext4 /dev/sda1 rw\n";
        assert_eq!(mounted_at(info, "8:1").as_deref(), Some("/data disk"));
        assert_eq!(mounted_at(info, "98:0").as_deref(), Some("/mnt2"));
        assert_eq!(mounted_at(info, "8:2"), None);
    }

    #[test]
    fn finds_what_is_mounted_beneath_a_directory() {
        let info = "30 25 0:9 / /srv/d/b\\040c/below rw - tmpfs x rw\n\
                    20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                    21 20 8:2 / /srv/d rw - ext4 /dev/sda2 rw\n\
                    22 21 0:1 / /srv/d/a rw - tmpfs x rw\n\
                    23 22 0:2 / /srv/d/a rw - tmpfs x rw\n\
                    24 20 0:3 / /srv/dd rw - tmpfs x rw\n\
                    25 21 0:4 / /srv/d/b\\040c rw - tmpfs x rw\n\
                    26 21 0:5 / /srv/d rw - tmpfs x rw\n";
        let beneath = |id, dir| mounts_beneath(info, id, Path::new(dir));
        let (a, b) = (PathBuf::from("a"), PathBuf::from("b c"));
        assert_eq!(beneath(21, "/srv/d"), [b.join("below"), a.clone(), b]);
        assert_eq!(beneath(25, "/srv/d/b c"), [PathBuf::from("below")]);
        let all = ["d/b c/below", "d", "d/a", "dd", "d/b c"];
        assert_eq!(beneath(20, "/srv"), all.map(PathBuf::from));
        // The directory that 21 hides has none of its mounts.
        assert!(beneath(20, "/srv/d").is_empty());
        assert!(beneath(24, "/srv/dd").is_empty());
    }

    #[test]
    fn systemd_is_told_what_it_wants_to_know() {
        let dir = vmm_sys_util::tempdir::TempDir::new().unwrap();
        let path = dir.as_path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        notify_at(path.to_str().unwrap(), &reloading(Duration::new(7, 8009))).unwrap();
        let mut got = [0; 64];
        let n = systemd.recv(&mut got).unwrap();
        assert_eq!(&got[..n], b"RELOADING=1\nMONOTONIC_USEC=7000008");
        assert!(monotonic() > Duration::ZERO);
    }

    #[test]
    fn names_the_modules_to_load() {
        let gone = io::Error::from_raw_os_error(libc::ENOENT);
        assert!(explain_node(DEV_BLK, &gone).contains("modprobe -a vhost_poll vhost_blk"));
        assert!(explain_node(DEV_FS, &gone).contains("modprobe -a vhost_poll vhost_fs"));
    }
}
