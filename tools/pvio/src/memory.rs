// SPDX-License-Identifier: GPL-2.0
//! The guest's memory, mapped into this process.
//!
//! Three addresses name one byte: the guest's own (in descriptors), the front
//! end's virtual one (in ring addresses, and in the table as the front end sees
//! it) and this process's (what the kernel device uses, because we own it).
//! This process itself never touches a mapped byte (the one number it wants to
//! know it reads from the file), so a front end that cuts its file short makes
//! requests fail and nothing else.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::statfs::{
    fstatfs, FsType, EXT4_SUPER_MAGIC, HUGETLBFS_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC,
};
use vhost::vhost_kern::vhost_binding::vhost_memory_region;
use vm_memory::mmap::MmapRegion;
use vm_memory::FileOffset;

/// For messages to a user whose VMM keeps the guest's memory to itself.
pub const HOW_TO_SHARE: &str = "give the VMM shared memory (QEMU: \
    -object memory-backend-memfd,id=mem,size=...,share=on -numa node,memdev=mem; \
    libvirt: <memoryBacking><source type='memfd'/><access mode='shared'/>)";

/// A region as the front end describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Guest-physical address.
    pub gpa: u64,
    /// Bytes.
    pub size: u64,
    /// Where the front end has it mapped.
    pub frontend: u64,
    /// Where it starts in its file.
    pub offset: u64,
}

impl Region {
    /// No end of it wraps around.
    fn is_sane(&self) -> bool {
        self.size != 0
            && self.gpa.checked_add(self.size).is_some()
            && self.frontend.checked_add(self.size).is_some()
            && self.offset.checked_add(self.size).is_some()
            && usize::try_from(self.size).is_ok()
    }

    fn overlaps(&self, other: &Region) -> bool {
        let cross = |a: u64, b: u64| a < b + other.size && b < a + self.size;
        cross(self.gpa, other.gpa) || cross(self.frontend, other.frontend)
    }
}

/// A region that is mapped for as long as this lives.
pub struct Mapped {
    region: Region,
    map: MmapRegion<()>,
}

/// The regions of one front end.
#[derive(Default)]
pub struct Memory {
    regions: Vec<Mapped>,
}

impl Memory {
    /// Maps `region` of `file`. `peer` is the front end's process, if known.
    pub fn add(&mut self, region: Region, file: File, peer: Option<i32>) -> io::Result<()> {
        if !region.is_sane() {
            return Err(refuse("a memory region is empty or wraps around"));
        }
        if self.regions.iter().any(|m| m.region.overlaps(&region)) {
            return Err(refuse("two memory regions overlap"));
        }
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(refuse("guest memory must be a memfd or a file"));
        }
        if !is_local(&file)? {
            return Err(refuse(
                "guest memory must be a memfd, or a file on tmpfs, hugetlbfs, ext4 or xfs: if a \
                 page of another file system never came, pvio could not be stopped",
            ));
        }
        if meta.len() < region.size || meta.len() - region.size < region.offset {
            return Err(refuse("a memory region is longer than its file"));
        }
        if peer.is_some_and(|pid| is_private(pid, &region, &meta)) {
            return Err(refuse(&format!(
                "the guest's memory is not shared with pvio: {HOW_TO_SHARE}"
            )));
        }
        let map = MmapRegion::from_file(FileOffset::new(file, region.offset), region.size as usize)
            .map_err(|e| io::Error::other(format!("cannot map guest memory: {e}")))?;
        self.regions.push(Mapped { region, map });
        Ok(())
    }

    /// Takes a region out of the table, still mapped: the kernel has to be
    /// told before it may go.
    pub fn take(&mut self, region: &Region) -> Option<Mapped> {
        let same = |m: &Mapped| {
            let r = &m.region;
            r.gpa == region.gpa && r.size == region.size && r.frontend == region.frontend
        };
        let at = self.regions.iter().position(same)?;
        Some(self.regions.remove(at))
    }

    /// How many regions there are.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Bytes of all regions together.
    pub fn size(&self) -> u64 {
        self.regions.iter().map(|m| m.region.size).sum()
    }

    /// True before the first table.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// The regions, and the file of each.
    pub fn regions(&self) -> impl Iterator<Item = (Region, &File)> {
        // Each is mapped from a file, so none is left out.
        self.regions
            .iter()
            .filter_map(|m| Some((m.region, m.map.file_offset()?.file())))
    }

    /// The table as the kernel wants it.
    pub fn table(&self) -> Vec<vhost_memory_region> {
        let row = |m: &Mapped| vhost_memory_region {
            guest_phys_addr: m.region.gpa,
            memory_size: m.region.size,
            userspace_addr: m.map.as_ptr() as u64,
            flags_padding: 0,
        };
        self.regions.iter().map(row).collect()
    }

    /// Turns a front end's address into ours, if all of `len` bytes are in
    /// one region.
    pub fn translate(&self, addr: u64, len: u64) -> Option<u64> {
        let (m, start) = self.find(addr, len)?;
        Some(m.map.as_ptr() as u64 + start)
    }

    /// What is at a front end's address.
    pub fn read<const N: usize>(&self, addr: u64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        let (m, start) = self
            .find(addr, bytes.len() as u64)
            .ok_or_else(|| refuse("not in memory that is shared with pvio"))?;
        let file = m
            .map
            .file_offset()
            .ok_or_else(|| refuse("not in a file"))?
            .file();
        file.read_exact_at(&mut bytes, m.region.offset + start)?;
        Ok(bytes)
    }

    /// The region that holds all of `len` bytes, and where in it they start.
    fn find(&self, addr: u64, len: u64) -> Option<(&Mapped, u64)> {
        self.regions.iter().find_map(|m| {
            let start = addr.checked_sub(m.region.frontend)?;
            if start > m.region.size || len > m.region.size - start {
                return None;
            }
            Some((m, start))
        })
    }
}

fn refuse(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Whether a page of the file comes without the help of another process.
///
/// The kernel device waits for the guest's pages where nothing can interrupt it. A
/// front end that answers for a file system (FUSE, a server) could keep it waiting.
fn is_local(file: &File) -> io::Result<bool> {
    const LOCAL: [FsType; 4] = [
        TMPFS_MAGIC,
        HUGETLBFS_MAGIC,
        EXT4_SUPER_MAGIC,
        XFS_SUPER_MAGIC,
    ];
    Ok(LOCAL.contains(&fstatfs(file)?.filesystem_type()))
}

/// Whether process `pid` maps the region copy-on-write.
///
/// Then both of us would see a file that the guest's writes never reach, and
/// the guest would wait for ever; nothing in the protocol tells. Where /proc
/// cannot be read the answer is no.
fn is_private(pid: i32, region: &Region, meta: &std::fs::Metadata) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/maps"))
        .is_ok_and(|maps| maps.lines().any(|l| is_private_line(l, region, meta.ino())))
}

fn is_private_line(line: &str, region: &Region, inode: u64) -> bool {
    let mut words = line.split_ascii_whitespace();
    let (Some(range), Some(perms)) = (words.next(), words.next()) else {
        return false;
    };
    let Some((start, end)) = range.split_once('-') else {
        return false;
    };
    let hex = |s| u64::from_str_radix(s, 16);
    let (Ok(start), Ok(end)) = (hex(start), hex(end)) else {
        return false;
    };
    let there = start <= region.frontend && region.frontend < end;
    there && perms.ends_with('p') && words.nth(2).and_then(|w| w.parse().ok()) == Some(inode)
}

/// The process at the other end of a Unix socket.
pub fn peer_pid(sock: &UnixStream) -> Option<i32> {
    let peer = getsockopt(sock, PeerCredentials).ok()?;
    Some(peer.pid()).filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{memfd_create, MFdFlags};

    fn file(len: u64) -> File {
        let f = File::from(memfd_create("test", MFdFlags::MFD_CLOEXEC).unwrap());
        f.set_len(len).unwrap();
        f
    }

    fn region(gpa: u64, size: u64, frontend: u64, offset: u64) -> Region {
        Region {
            gpa,
            size,
            frontend,
            offset,
        }
    }

    #[test]
    fn translates_only_what_lies_inside() {
        let mut mem = Memory::default();
        mem.add(region(0, 0x4000, 0x7000_0000, 0x1000), file(0x5000), None)
            .unwrap();
        let base = mem.table()[0].userspace_addr;
        assert_eq!(mem.translate(0x7000_0000, 0x4000), Some(base));
        assert_eq!(mem.translate(0x7000_3fff, 1), Some(base + 0x3fff));
        assert_eq!(mem.translate(0x7000_3fff, 2), None);
        assert_eq!(mem.translate(0x6fff_ffff, 1), None);
        assert_eq!(mem.translate(0x7000_0010, u64::MAX), None);
        assert_eq!(mem.translate(u64::MAX, 1), None);
    }

    #[test]
    fn reads_what_the_guest_wrote() {
        let (mut mem, guest) = (Memory::default(), file(0x5000));
        guest.write_all_at(&[0x34, 0x12], 0x1ffe).unwrap();
        let ours = guest.try_clone().unwrap();
        mem.add(region(0, 0x4000, 0x7000_0000, 0x1000), ours, None)
            .unwrap();
        assert_eq!(mem.read(0x7000_0ffe).unwrap(), [0x34, 0x12]);
        assert!(mem.read::<2>(0x7000_3fff).is_err());
        guest.set_len(0x1000).unwrap();
        assert!(mem.read::<2>(0x7000_0ffe).is_err(), "cut short");
    }

    #[test]
    fn refuses_what_wraps_overlaps_or_is_too_long() {
        let mut mem = Memory::default();
        let mut bad = |r, len| mem.add(r, file(len), None).is_err();
        assert!(bad(region(0, 0, 0, 0), 4096));
        assert!(bad(region(u64::MAX, 4096, 0, 0), 4096));
        assert!(bad(region(0, 4096, u64::MAX - 4094, 0), 4096));
        assert!(bad(region(0, 4096, 0, u64::MAX), 4096));
        assert!(bad(region(0, 4097, 0, 0), 4096));
        assert!(bad(region(0, 4096, 0, 4096), 4096));
        assert!(!bad(region(0x1000, 0x2000, 0x1_0000, 0), 0x2000));
        assert!(bad(region(0x2000, 0x1000, 0x9_0000, 0), 0x2000));
        assert!(bad(region(0x9000, 0x1000, 0x1_1000, 0), 0x2000));
        assert_eq!(mem.len(), 1);
    }

    #[test]
    fn refuses_descriptors_that_are_not_files() {
        let null = File::open("/dev/null").unwrap();
        assert!(Memory::default()
            .add(region(0, 4096, 0, 0), null, None)
            .is_err());
    }

    #[test]
    fn refuses_files_whose_pages_may_never_come() {
        // procfs stands for all that is not local.
        let odd = File::open("/proc/version").unwrap();
        assert!(!is_local(&odd).unwrap());
        assert!(is_local(&file(4096)).unwrap());
    }

    #[test]
    fn sees_private_mappings() {
        let r = region(0, 4096, 0x7f00_0000_1000, 0);
        let line = |p, ino| format!("7f0000000000-7f0000009000 {p} 00000000 00:01 {ino}  /memfd:x");
        assert!(is_private_line(&line("rw-p", 77), &r, 77));
        assert!(!is_private_line(&line("rw-s", 77), &r, 77));
        assert!(!is_private_line(&line("rw-p", 78), &r, 77));
        assert!(!is_private_line("nonsense", &r, 77));
    }

    #[test]
    fn removes_the_very_region() {
        let mut mem = Memory::default();
        let r = region(0, 4096, 0x10_0000, 0);
        mem.add(r, file(4096), None).unwrap();
        assert!(mem.take(&Region { size: 8192, ..r }).is_none());
        assert!(mem.take(&r).is_some());
        assert!(mem.is_empty());
    }
}
