// SPDX-License-Identifier: GPL-2.0
//! The device or image a guest gets, opened and claimed.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::host;
use crate::uapi::{self, BlkBackend};

/// How a disk is opened and served.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Refuse the guest's writes.
    pub read_only: bool,
    /// Bypass the page cache for an image file.
    pub direct: bool,
    /// Serve the bytes even if they look like another format than raw.
    pub force_raw: bool,
    /// [`uapi`]'s `BACKEND_*`, except read-only.
    pub flags: u32,
    /// The kernel's engine, 0 to let it choose.
    pub engine: u32,
    /// Answer to GET_ID; empty: the file's name.
    pub serial: String,
}

/// What O_DIRECT reads into.
#[repr(align(4096))]
struct Block([u8; 4096]);

/// An open disk.
pub struct Disk {
    file: File,
    /// Where it was found.
    pub path: PathBuf,
    opts: Options,
}

impl Disk {
    /// Opens `path`; an error is a sentence for the user.
    pub fn open(path: &Path, opts: &Options) -> Result<Self, String> {
        let name = path.display();
        let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => format!("{name} does not exist"),
            io::ErrorKind::PermissionDenied => format!("no permission to reach {name}"),
            _ => format!("{name}: {e}"),
        })?;
        let kind = meta.file_type();
        if !kind.is_block_device() && !kind.is_file() {
            return Err(format!("{name} is neither a block device nor a file"));
        }
        let is_block = kind.is_block_device();
        // Root may open it for writing all the same; only the writes would fail.
        if is_block && !opts.read_only && is_ro(meta.rdev()) {
            return Err(format!("{name} is read-only: give --read-only to serve it"));
        }
        let file =
            open_patiently(path, is_block, opts).map_err(|e| explain(path, &meta, opts, &e))?;
        let disk = Self {
            file,
            path: path.to_owned(),
            opts: opts.clone(),
        };
        if !opts.force_raw {
            disk.refuse_other_formats()?;
        }
        if !is_block {
            disk.lock()?;
        }
        Ok(disk)
    }

    /// What the kernel is told of it.
    pub fn backend(&self) -> BlkBackend {
        let mut serial = [0u8; uapi::SERIAL_LEN];
        let own = self.path.file_name().map(|n| n.to_string_lossy());
        let text: &str = match self.opts.serial.as_str() {
            "" => own.as_deref().unwrap_or_default(),
            given => given,
        };
        for (to, from) in serial.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        let read_only = if self.opts.read_only {
            uapi::BACKEND_READ_ONLY
        } else {
            0
        };
        BlkBackend {
            size: size_of::<BlkBackend>() as u32,
            flags: self.opts.flags | read_only,
            fd: self.file.as_raw_fd(),
            engine: self.opts.engine,
            serial,
            pad: 0,
        }
    }

    /// Bytes, now.
    pub fn size(&self) -> io::Result<u64> {
        // The offset this moves is nobody's: all I/O is positioned.
        (&self.file).seek(SeekFrom::End(0))
    }

    /// Explains why the kernel did not take the disk.
    pub fn explain_backend(&self, e: &io::Error) -> String {
        let name = self.path.display();
        match e.raw_os_error() {
            Some(libc::EOPNOTSUPP) => format!(
                "{name} cannot be served by the chosen engine: leave out --engine, or see \
                 Documentation/admin-guide/vhost-blk.rst"
            ),
            Some(libc::EPERM | libc::EACCES) => {
                format!("{name}: no permission (--bypass-scheduler needs CAP_SYS_ADMIN)")
            }
            Some(libc::EROFS) => format!("{name} is read-only: give --read-only"),
            Some(libc::EINVAL) => format!("{name}: the kernel cannot serve this kind of file"),
            _ => format!("{name}: the kernel does not take it: {e}"),
        }
    }

    fn refuse_other_formats(&self) -> Result<(), String> {
        let mut head = Block([0; 4096]);
        let Ok(len) = self.file.read_at(&mut head.0, 0) else {
            return Ok(()); // unreadable: the guest will get the error
        };
        let Some(format) = format_of(&head.0[..len]) else {
            return Ok(());
        };
        let name = self.path.display();
        Err(format!(
            "{name} is a {format} image, and only raw ones can be served: convert it \
             ('qemu-img convert -O raw {name} NEW.img'), or serve the device made by \
             'qemu-nbd -c /dev/nbd0 {name}'; if these bytes really are a raw disk, give --raw"
        ))
    }

    /// Takes the locks QEMU takes on an image, so that neither of us opens
    /// what the other one uses.
    fn lock(&self) -> Result<(), String> {
        const USE: i64 = 100; // + permission: somebody does this
        const DENY: i64 = 200; // + permission: somebody wants nobody to do it
        const READ: i64 = 0;
        const WRITE: i64 = 1;
        const RESIZE: i64 = 3;
        let uses: &[i64] = if self.opts.read_only {
            &[READ]
        } else {
            &[READ, WRITE]
        };
        let denies = [WRITE, RESIZE];
        let ours = uses.iter().map(|p| USE + p);
        let ours: Vec<i64> = ours.chain(denies.iter().map(|p| DENY + p)).collect();
        let theirs = uses.iter().map(|p| DENY + p);
        let theirs = theirs.chain(denies.iter().map(|p| USE + p));

        // First ours, then a look at theirs: of two that race one sees the other.
        for at in ours {
            if self.ofd_lock(libc::F_OFD_SETLK, libc::F_RDLCK, at).is_err() {
                return Ok(()); // a file system without locks
            }
        }
        for at in theirs {
            let found = self.ofd_lock(libc::F_OFD_GETLK, libc::F_WRLCK, at);
            if found.is_ok_and(|kind| kind != libc::F_UNLCK) {
                return Err(format!(
                    "{} is in use by another process (QEMU, qemu-img or another pvio): stop it \
                     first",
                    self.path.display()
                ));
            }
        }
        Ok(())
    }

    fn ofd_lock(&self, command: i32, kind: i32, at: i64) -> io::Result<i32> {
        // SAFETY: all-zero is a valid flock.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = at;
        lock.l_len = 1;
        // SAFETY: the kernel reads and writes one flock.
        if unsafe { libc::fcntl(self.file.as_raw_fd(), command, &mut lock) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(lock.l_type.into())
    }
}

/// Opens and claims. A predecessor that was just killed may still be letting
/// go of the device, so a busy one is tried again for a moment.
fn open_patiently(path: &Path, is_block: bool, opts: &Options) -> io::Result<File> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match open_once(path, is_block, opts) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(100));
            }
            result => return result,
        }
    }
}

fn open_once(path: &Path, is_block: bool, opts: &Options) -> io::Result<File> {
    // A disk that is only read may have several readers.
    let excl = if is_block && !opts.read_only {
        libc::O_EXCL
    } else {
        0
    };
    let direct = if opts.direct { libc::O_DIRECT } else { 0 };
    let open = |flags| {
        OpenOptions::new()
            .read(true)
            .write(!opts.read_only)
            .custom_flags(flags)
            .open(path)
    };
    // The poller reads cached pages itself only if no access time has to be noted.
    // That is for the owner and root to leave out.
    match open(excl | direct | libc::O_NOATIME) {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            let file = open(excl | direct)?;
            if !is_block {
                say!(
                    "{}: access times are noted (neither its owner nor CAP_FOWNER), so workers \
                     read what the page cache has",
                    path.display()
                );
            }
            Ok(file)
        }
        result => result,
    }
}

fn explain(path: &Path, meta: &Metadata, opts: &Options, e: &io::Error) -> String {
    let name = path.display();
    match e.raw_os_error() {
        Some(libc::EBUSY) => match host::holder_of(meta.rdev()) {
            Some(holder) => format!("{name} is busy: it is {holder}"),
            None => format!(
                "{name} is busy: another process has claimed it ('fuser -v {name}' shows who)"
            ),
        },
        Some(libc::EROFS) if meta.is_file() => format!(
            "{name} is on a file system that pvio cannot write to: name its directory in the \
             unit's ReadWritePaths= ('systemctl edit'), or give --read-only"
        ),
        Some(libc::EROFS) => format!("{name} is read-only: give --read-only to serve it"),
        Some(libc::EACCES | libc::EPERM) => format!(
            "no permission to open {name}: run pvio as root or as a user that may (block devices: \
             group 'disk'), or give --read-only if reading is all it needs"
        ),
        Some(libc::EINVAL) if opts.direct => {
            format!("{name}: its file system cannot do --direct")
        }
        Some(libc::ENXIO | libc::ENODEV) => format!("{name}: there is no such device any more"),
        _ => format!("{name}: {e}"),
    }
}

fn is_ro(rdev: u64) -> bool {
    let (major, minor) = (libc::major(rdev), libc::minor(rdev));
    std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"))
        .is_ok_and(|text| text.trim() == "1")
}

fn format_of(head: &[u8]) -> Option<&'static str> {
    const MAGICS: [(&[u8], &str); 5] = [
        (b"QFI\xfb", "qcow2"),
        (b"QED\0", "qed"),
        (b"KDMV", "vmdk"),
        (b"vhdxfile", "vhdx"),
        (b"conectix", "vpc"),
    ];
    let found = MAGICS.iter().find(|(magic, _)| head.starts_with(magic));
    found.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm_sys_util::tempfile::TempFile;

    fn image(content: &[u8]) -> TempFile {
        let f = TempFile::new().unwrap();
        f.as_file().write_all_at(content, 0).unwrap();
        f
    }

    #[test]
    fn refuses_qcow2_unless_forced() {
        let f = image(b"QFI\xfb\0\0\0\x03");
        let error = Disk::open(f.as_path(), &Options::default()).err().unwrap();
        assert!(error.contains("qcow2") && error.contains("qemu-img convert"));
        let raw = Options {
            force_raw: true,
            ..Default::default()
        };
        assert!(Disk::open(f.as_path(), &raw).is_ok());
    }

    #[test]
    fn refuses_qcow2_past_the_page_cache() {
        let f = image(b"QFI\xfb\0\0\0\x03");
        let direct = Options {
            direct: true,
            ..Default::default()
        };
        let error = Disk::open(f.as_path(), &direct).err().unwrap();
        if !error.contains("cannot do --direct") {
            assert!(error.contains("qcow2"), "{error}");
        }
    }

    #[test]
    fn one_writer_many_readers() {
        let f = image(&[0; 512]);
        let ro = Options {
            read_only: true,
            ..Default::default()
        };
        {
            let _writer = Disk::open(f.as_path(), &Options::default()).unwrap();
            let error = Disk::open(f.as_path(), &Options::default()).err().unwrap();
            assert!(error.contains("in use"));
            assert!(Disk::open(f.as_path(), &ro).is_err());
        }
        let _one = Disk::open(f.as_path(), &ro).unwrap();
        let _two = Disk::open(f.as_path(), &ro).unwrap();
        assert!(Disk::open(f.as_path(), &Options::default()).is_err());
    }

    #[test]
    fn says_what_is_wrong_with_a_path() {
        let err = |p: &str| Disk::open(Path::new(p), &Options::default()).err().unwrap();
        assert!(err("/nonexistent/x").contains("does not exist"));
        assert!(err("/dev/null").contains("neither"));
    }

    #[test]
    fn names_what_keeps_the_unit_from_writing() {
        let f = image(&[0; 512]);
        let path = f.as_path();
        let said = |meta: Metadata| {
            let error = io::Error::from_raw_os_error(libc::EROFS);
            explain(path, &meta, &Options::default(), &error)
        };
        assert!(said(path.metadata().unwrap()).contains("ReadWritePaths="));
        let device = Path::new("/dev/null").metadata().unwrap();
        assert!(!said(device).contains("ReadWritePaths="));
    }

    #[test]
    fn serial_is_given_or_the_name() {
        let f = image(&[0; 512]);
        let mut opts = Options {
            serial: "a serial that is much too long".into(),
            ..Default::default()
        };
        let disk = Disk::open(f.as_path(), &opts).unwrap();
        assert_eq!(&disk.backend().serial, b"a serial that is muc");
        assert_eq!(disk.size().unwrap(), 512);
        drop(disk);
        opts.serial.clear();
        opts.read_only = true;
        let b = Disk::open(f.as_path(), &opts).unwrap().backend();
        assert_ne!(b.serial[0], 0);
        assert_eq!(b.flags, uapi::BACKEND_READ_ONLY);
    }
}
