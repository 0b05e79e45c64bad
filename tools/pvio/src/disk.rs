// SPDX-License-Identifier: GPL-2.0
//! The device or image a guest gets, opened and claimed.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg};

use crate::host;
use crate::uapi::{self, BlkBackend};

/// How a disk is opened and served.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Refuse the guest's writes.
    pub read_only: bool,
    /// Bypass the page cache for an image file.
    pub direct: bool,
    /// The operator says that it is raw, whatever its name says.
    pub is_raw: bool,
    /// [`uapi`]'s `BACKEND_*`, except read-only.
    pub flags: u32,
    /// The kernel's engine, 0 to let it choose.
    pub engine: u32,
    /// Answer to GET_ID; empty: the file's name.
    pub serial: String,
}

/// An open disk.
pub struct Disk {
    file: File,
    /// Where it was found.
    pub path: PathBuf,
    opts: Options,
}

impl Disk {
    /// Opens `path`; an error is a sentence for the user.
    pub fn open(path: &Path, opts: &Options) -> crate::Result<Self> {
        let name = path.display();
        let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => format!("{name} does not exist"),
            io::ErrorKind::PermissionDenied => format!("no permission to reach {name}"),
            _ => format!("{name}: {e}"),
        })?;
        let kind = meta.file_type();
        if !kind.is_block_device() && !kind.is_file() {
            return Err(format!("{name} is neither a block device nor a file").into());
        }
        let is_block = kind.is_block_device();
        if !is_block && !opts.is_raw {
            refuse_other_formats(path)?;
        }
        // Root may open it for writing all the same; only the writes would fail.
        if is_block && !opts.read_only && is_ro(meta.rdev()) {
            return Err(format!("{name} is read-only: give --read-only to serve it").into());
        }
        let file =
            open_patiently(path, is_block, opts).map_err(|e| explain(path, &meta, opts, &e))?;
        let disk = Self {
            file,
            path: path.to_owned(),
            opts: opts.clone(),
        };
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
        // No I/O uses the offset that this moves: all of it is positioned.
        (&self.file).seek(SeekFrom::End(0))
    }

    /// Explains why the kernel did not take the disk.
    pub fn explain_backend(&self, e: &io::Error) -> String {
        let name = self.path.display();
        match e.raw_os_error() {
            Some(libc::EOPNOTSUPP) => format!(
                "the chosen engine cannot serve {name}: leave out --engine, or see Engines in \
                 Documentation/admin-guide/vhost-blk.rst"
            ),
            Some(libc::EPERM | libc::EACCES) => {
                format!(
                    "{name}: no permission: --bypass-scheduler needs CAP_SYS_ADMIN (in the systemd \
                     unit: CapabilityBoundingSet=CAP_SYS_ADMIN, by 'systemctl edit')"
                )
            }
            Some(libc::EROFS) => format!("{name} is read-only: give --read-only"),
            // Disk::open() has refused the kinds of file that vhost_blk does not serve.
            Some(libc::EINVAL) if self.opts.flags & uapi::BACKEND_NO_DISCARD != 0 => format!(
                "{name}: the vhost_blk that is loaded is older than pvio and cannot ignore \
                 discards: load the installed one ('modprobe -r vhost_blk', 'modprobe \
                 vhost_blk'), or leave out --discard=ignore"
            ),
            Some(libc::EINVAL) => format!("{name}: the kernel cannot serve this kind of file"),
            _ => format!("{name}: the kernel refuses it: {e}"),
        }
    }

    /// Takes the locks QEMU takes on an image, so that neither of us opens
    /// what the other one uses.
    fn lock(&self) -> crate::Result<()> {
        const USE: i64 = 100; // + permission: the holder does this
        const DENY: i64 = 200; // + permission: the holder wants no other to do it
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
            match self.set_lock(at) {
                Ok(()) => {}
                Err(Errno::EACCES | Errno::EAGAIN) => return Err(self.in_use()),
                Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {
                    say!(
                        "{}: its file system has no locks, so pvio cannot keep other programs from \
                         using it",
                        self.path.display()
                    );
                    return Ok(());
                }
                Err(e) => {
                    return Err(format!("{}: cannot lock it: {e}", self.path.display()).into())
                }
            }
        }
        for at in theirs {
            match self.is_locked(at) {
                Ok(false) => {}
                Ok(true) => return Err(self.in_use()),
                Err(e) => {
                    let name = self.path.display();
                    return Err(format!("{name}: cannot see whether it is locked: {e}").into());
                }
            }
        }
        Ok(())
    }

    fn in_use(&self) -> crate::Error {
        let name = self.path.display();
        format!(
            "{name} is in use by another process (QEMU, qemu-img or another pvio): stop it first"
        )
        .into()
    }

    fn set_lock(&self, at: i64) -> nix::Result<()> {
        let lock = byte(libc::F_RDLCK, at);
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&lock)).map(drop)
    }

    fn is_locked(&self, at: i64) -> nix::Result<bool> {
        let mut lock = byte(libc::F_WRLCK, at);
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut lock))?;
        Ok(i32::from(lock.l_type) != libc::F_UNLCK)
    }
}

/// A lock of one byte.
fn byte(kind: i32, at: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at,
        l_len: 1,
        l_pid: 0,
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
    // The poller reads cached pages in its round only if no access time has to be noted.
    // That is for the owner and root to leave out.
    match open(excl | direct | libc::O_NOATIME) {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            let file = open(excl | direct)?;
            if !is_block {
                say!(
                    "{}: reads from the page cache cost more, because the kernel updates access \
                     times: run pvio as the image's owner, or with CAP_FOWNER",
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
            format!("{name}: its file system has no direct I/O: leave out --direct")
        }
        Some(libc::ENXIO | libc::ENODEV) => format!("{name}: the device is gone"),
        _ => format!("{name}: {e}"),
    }
}

fn is_ro(rdev: u64) -> bool {
    let (major, minor) = (libc::major(rdev), libc::minor(rdev));
    std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"))
        .is_ok_and(|text| text.trim() == "1")
}

/// Refuses an image whose name says that it is not raw.
///
/// The name is the operator's; the content is the guest's. A guest that writes the
/// magic number of another format to its first sector must not keep its disk, and the
/// others of this process, from being served again. So nothing looks at the content.
fn refuse_other_formats(path: &Path) -> crate::Result<()> {
    // The operator may have given a link.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let Some(format) = format_of(path).or_else(|| format_of(&target)) else {
        return Ok(());
    };
    let name = path.display();
    Err(format!(
        "{name} is a {format} image by its name, and pvio serves only raw ones: convert it \
         ('qemu-img convert -O raw {name} NEW.img'), or serve the device that 'qemu-nbd -c \
         /dev/nbd0 {name}' makes; if the file is raw all the same, give --format raw"
    )
    .into())
}

/// The format other than raw that a file of this name has.
fn format_of(path: &Path) -> Option<&'static str> {
    const FORMATS: [&str; 9] = [
        "qcow2",
        "qcow",
        "qed",
        "vmdk",
        "vhdx",
        "vhd",
        "vpc",
        "vdi",
        "parallels",
    ];
    let ending = path.extension()?;
    let found = FORMATS.iter().find(|f| ending.eq_ignore_ascii_case(f));
    found.copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use vmm_sys_util::{tempdir::TempDir, tempfile::TempFile};

    fn image(content: &[u8]) -> TempFile {
        let f = TempFile::new().unwrap();
        f.as_file().write_all_at(content, 0).unwrap();
        f
    }

    #[test]
    fn no_content_keeps_a_disk_from_being_served() {
        for magic in [
            &b"QFI\xfb\0\0\0\x03"[..],
            b"QED\0",
            b"KDMV",
            b"vhdxfile",
            b"conectix",
        ] {
            let f = image(magic);
            Disk::open(f.as_path(), &Options::default()).unwrap();
        }
    }

    #[test]
    fn the_name_or_the_operator_says_the_format() {
        let dir = TempDir::new().unwrap();
        let (image, link) = (dir.as_path().join("d.QCOW2"), dir.as_path().join("d.img"));
        File::create(&image).unwrap();
        std::os::unix::fs::symlink(&image, &link).unwrap();
        let raw = Options {
            is_raw: true,
            ..Default::default()
        };
        for path in [image, link] {
            let error = Disk::open(&path, &Options::default())
                .err()
                .unwrap()
                .to_string();
            assert!(error.contains("qcow2") && error.contains("--format raw"));
            Disk::open(&path, &raw).unwrap();
        }
    }

    #[test]
    fn a_conflict_is_not_a_file_system_without_locks() {
        let f = image(&[0; 512]);
        // A lock that is in the way of ours, and not one that GETLK is asked about.
        let other = OpenOptions::new().write(true).open(f.as_path()).unwrap();
        let lock = byte(libc::F_WRLCK, 100);
        fcntl(&other, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
        let error = Disk::open(f.as_path(), &Options::default())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("in use"), "{error}");
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
            let error = Disk::open(f.as_path(), &Options::default())
                .err()
                .unwrap()
                .to_string();
            assert!(error.contains("in use"));
            assert!(Disk::open(f.as_path(), &ro).is_err());
        }
        let _one = Disk::open(f.as_path(), &ro).unwrap();
        let _two = Disk::open(f.as_path(), &ro).unwrap();
        assert!(Disk::open(f.as_path(), &Options::default()).is_err());
    }

    #[test]
    fn says_what_is_wrong_with_a_path() {
        let err = |p: &str| {
            Disk::open(Path::new(p), &Options::default())
                .err()
                .unwrap()
                .to_string()
        };
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
    fn a_module_that_cannot_ignore_discards_is_named() {
        let f = image(&[0; 512]);
        let said = |flags| {
            let opts = Options {
                flags,
                ..Default::default()
            };
            let disk = Disk::open(f.as_path(), &opts).unwrap();
            disk.explain_backend(&io::Error::from_raw_os_error(libc::EINVAL))
        };
        assert!(said(uapi::BACKEND_NO_DISCARD).contains("--discard=ignore"));
        assert!(!said(0).contains("--discard"));
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
