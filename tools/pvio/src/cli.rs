// SPDX-License-Identifier: GPL-2.0
//! The command line.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::fs::Directory;
use crate::fscli::{self, FsArgs};
use crate::kernel::PollMode;
use crate::upgrade::{self, UpgradeArgs};
use crate::{handover, host, run, uapi, vmm};

const CAPABILITIES: &str = r#"{"type":"block","features":["read-only","blk-file"]}"#;

#[derive(Parser)]
#[command(
    name = "pvio",
    version,
    propagate_version = true,
    about = "Exit-less storage for virtual machines"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve block devices and images to virtual machines
    Blk(Box<BlkArgs>),
    /// Serve a directory to virtual machines
    Fs(Box<FsArgs>),
    /// Print the virtual machine monitor's arguments for a socket of 'pvio blk' or 'pvio fs'
    Args(vmm::VmmArgs),
    /// Have a running 'pvio fs' execute the pvio that is installed now
    ///
    /// Waits until the guest goes on with the installed pvio. Fails, and says why, if it does not.
    Upgrade(UpgradeArgs),
    /// Print which form of a guest's state this program can take over from a pvio that was started
    /// with these words, and fail if it would not start with them
    #[command(hide = true)]
    HandOverVersion {
        /// The words, the name of the program first
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

/// Where pvio polls from, and how the pollers wait.
#[derive(Debug, Args)]
pub struct PollArgs {
    /// CPUs to poll from (3 or 2,3 or 4-7), one kernel thread on each, which share the vrings
    /// [default: one CPU, isolated if there is any, with the fewest pollers of pvio]
    #[arg(long, value_name = "N[,N...]")]
    pub poll_cpu: Option<CpuList>,

    /// How the pollers wait for work
    #[arg(long, value_enum, default_value = "adaptive", value_name = "MODE")]
    pub poll_mode: PollMode,
}

/// A parsed list of CPUs.
#[derive(Debug, Clone)]
pub struct CpuList(pub Vec<u32>);

impl std::str::FromStr for CpuList {
    type Err = crate::Error;

    fn from_str(text: &str) -> crate::Result<Self> {
        host::parse_list(text)
            .map(Self)
            .ok_or_else(|| format!("'{text}' is not a list of CPUs such as 3 or 2,3 or 4-7").into())
    }
}

/// How the kernel submits a disk's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// the best one that the disk or image allows
    Auto = 0,
    /// straight to a hardware queue of the disk, past the I/O scheduler
    Mq = 1,
    /// through the block layer's submit_bio()
    Bio = 2,
    /// by the image file's own read and write
    File = 3,
}

/// When a write of the guest is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cache {
    /// a write is done when the disk or image has it; the guest flushes
    Writeback,
    /// a write is done when it is on the medium
    Writethrough,
}

/// How pvio treats the discards of the guest; the words are those of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Discard {
    /// nothing: the guest frees no blocks, and zeroes that it writes stay allocated
    #[value(alias = "off")]
    Ignore,
    /// blocks of the disk, or of the image's file system, are freed
    #[value(alias = "on")]
    Unmap,
}

/// The format of an image. The operator says it; its content is the guest's to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// the guest's bytes as they are
    Raw,
}

/// How each disk is served; a --device may say otherwise.
#[derive(Debug, Clone, Args)]
pub struct DiskArgs {
    /// Refuse the guest's writes
    #[arg(long)]
    pub read_only: bool,

    /// Open an image file with O_DIRECT, past the host's page cache
    #[arg(long)]
    pub direct: bool,

    /// The image's format; without it a name such as disk.qcow2 is refused
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,

    /// Most queues that the VMM may use, 1 to 64; usually it uses one for each vCPU
    #[arg(long, value_name = "N", default_value_t = uapi::MAX_VRINGS as u16,
          value_parser = clap::value_parser!(u16).range(1..=uapi::MAX_VRINGS as i64))]
    pub num_queues: u16,

    /// Size of the queues, as given to the VMM; limits the segments of a request
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = queue_size)]
    pub queue_size: u32,

    /// How the kernel submits the requests to the disk
    #[arg(long, value_enum, default_value = "auto", value_name = "ENGINE")]
    pub engine: Engine,

    /// Hardware contexts (queues) of the disk for the vrings, in turn [default: with a patched
    /// kernel vring n gets the disk's context n, else each vring gets that of its poller's CPU]
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = hctx)]
    pub hctx: Vec<u32>,

    /// Share of its poller that each vring of the disk has, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub weight: u32,

    /// Pin all guest memory for as long as the VM runs (counts as locked memory)
    #[arg(long)]
    pub pinned: bool,

    /// Submit past the device's I/O scheduler (needs CAP_SYS_ADMIN)
    #[arg(long)]
    pub bypass_scheduler: bool,

    /// Do not use the disk's poll queues
    #[arg(long)]
    pub no_poll_queues: bool,

    /// Serial number that the guest reads, up to 20 bytes [default: the file's name, cut to that]
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        value_parser = serial
    )]
    pub serial: String,

    /// When a write of the guest is done; the guest cannot change this while the VM runs
    #[arg(long, value_enum, default_value = "writeback", value_name = "MODE")]
    pub cache: Cache,

    /// How to treat the discards of the guest (fstrim)
    #[arg(long, value_enum, default_value = "unmap", value_name = "MODE")]
    pub discard: Discard,

    /// Group that may connect to the socket [default: the umask decides who may]
    #[arg(long, value_name = "GROUP", conflicts_with = "fd")]
    pub socket_group: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  pvio blk --socket /run/pvio/vm1.sock --poll-cpu 3 /dev/nvme0n1
  pvio blk --socket /run/pvio/vm1.sock --read-only --format raw base.img
  pvio blk --poll-cpu 2,3 --device socket=/run/pvio/a.sock,path=/dev/vg/a \\
           --device socket=/run/pvio/b.sock,path=/srv/b.img,format=raw,read-only
  pvio args --socket /run/pvio/vm1.sock      # prints arguments for QEMU

Load the modules vhost_poll and vhost_blk first. Give the VMM the arguments that 'pvio args'
prints: the guest's memory must be shared. SIGTERM stops pvio, SIGHUP has it look for new
sizes of image files, and SIGUSR1 has it print counters.";

/// `pvio blk`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BlkArgs {
    /// Socket to listen on
    #[arg(short, long, visible_alias = "socket-path", value_name = "PATH",
          conflicts_with_all = ["fd", "device"])]
    pub socket: Option<PathBuf>,

    /// Inherited socket to use instead, a descriptor that is listening or connected
    #[arg(long, value_name = "N", conflicts_with = "device")]
    pub fd: Option<i32>,

    /// Block device or raw image file to serve
    #[arg(value_name = "DEVICE", conflicts_with = "device")]
    pub path: Option<PathBuf>,

    /// The same as DEVICE, under the name that QEMU and libvirt use
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["path", "device"])]
    pub blk_file: Option<PathBuf>,

    /// One of several disks: socket=PATH or fd=N, path=DEVICE, and any of read-only, direct,
    /// format=raw, pinned, bypass-scheduler, no-poll-queues, serial=, cache=, discard=, engine=,
    /// hctx=N:N.., num-queues=, queue-size=, weight=, socket-group=; a comma in a value is written
    /// twice
    #[arg(short, long, value_name = "KEY=VALUE,...")]
    pub device: Vec<String>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub poll: PollArgs,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub disk: DiskArgs,

    /// Print what this back end can do, as JSON, and do nothing else
    #[arg(long)]
    pub print_capabilities: bool,
}

/// Where a disk's front ends come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Door {
    /// A path to listen at.
    Path(PathBuf),
    /// An inherited descriptor.
    Fd(i32),
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "socket {}", path.display()),
            Self::Fd(fd) => write!(f, "descriptor {fd}"),
        }
    }
}

/// One disk to serve.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Where its front ends come from.
    pub door: Door,
    /// What is served.
    pub path: PathBuf,
    /// And how.
    pub args: DiskArgs,
}

fn hctx(text: &str) -> crate::Result<u32> {
    text.parse().map_err(|_| "not a number".into())
}

pub(crate) fn queue_size(text: &str) -> crate::Result<u32> {
    let n: u32 = text.parse().map_err(|_| "not a number".to_string())?;
    if !n.is_power_of_two() || !(2..=32768).contains(&n) {
        return Err("must be a power of two from 2 to 32768".into());
    }
    Ok(n)
}

/// Runs the command; an error is a sentence for the user.
pub fn main(mut argv: Vec<OsString>) -> crate::Result<()> {
    name_command(&mut argv);
    // The conventions want every other argument ignored, wrong ones included.
    if argv.iter().any(|word| word == "--print-capabilities") {
        let command = argv.get(1).and_then(|word| word.to_str());
        let by_command = [("blk", CAPABILITIES), ("fs", fscli::CAPABILITIES)];
        if let Some((_, json)) = by_command.iter().find(|(name, _)| command == Some(name)) {
            println!("{json}");
            return Ok(());
        }
    }
    match Cli::parse_from(argv).command {
        Command::Blk(args) => run::blk(&args),
        Command::Fs(args) => run::fs(&args),
        Command::Args(args) => {
            print!("{}", vmm::render(&args)?);
            Ok(())
        }
        Command::Upgrade(args) => upgrade::main(&args),
        Command::HandOverVersion { words } => {
            check_words(words)?;
            println!("{}", handover::VERSION);
            Ok(())
        }
    }
}

/// Called by the names that libvirt finds in its directory of back ends, this is 'pvio blk' or
/// 'pvio fs', and takes the options that the conventions have.
fn name_command(argv: &mut Vec<OsString>) {
    let name = argv.first().map(PathBuf::from).unwrap_or_default();
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    let by_name = [("vhost-user-blk", "blk"), ("virtiofsd", "fs")];
    if let Some((_, command)) = by_name.iter().find(|(end, _)| name.ends_with(end)) {
        argv.splice(..1, ["pvio".into(), (*command).into()]);
    }
}

/// Whether `pvio fs` would understand these words, and find its directory.
fn check_words(mut words: Vec<OsString>) -> crate::Result<()> {
    if words.is_empty() {
        return Ok(());
    }
    name_command(&mut words);
    let line = Cli::try_parse_from(words).map_err(|e| e.to_string())?;
    if let Command::Fs(args) = line.command {
        let share = args.share()?;
        Directory::open(&share.path, &share.options)?;
    }
    Ok(())
}

/// The disks the command line asks for.
pub fn units(args: &BlkArgs) -> crate::Result<Vec<Unit>> {
    if !args.device.is_empty() {
        return args
            .device
            .iter()
            .map(|text| parse_device(text, &args.disk))
            .collect();
    }
    let path = args.path.as_ref().or(args.blk_file.as_ref());
    let path = path.ok_or("no disk is given: name a block device or a raw image file")?;
    let door = match (&args.socket, args.fd) {
        (Some(socket), _) => Door::Path(socket.clone()),
        (None, Some(fd)) => Door::Fd(fd),
        (None, None) => return Err("no socket is given: use --socket PATH (or --fd N)".into()),
    };
    Ok(vec![Unit {
        door,
        path: path.clone(),
        args: args.disk.clone(),
    }])
}

/// Splits at single commas; two stand for one.
fn split_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == ',' && chars.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

fn parse_device(text: &str, defaults: &DiskArgs) -> crate::Result<Unit> {
    let mut door = None;
    let mut path = None;
    let mut args = defaults.clone();
    for part in split_commas(text) {
        let (key, value) = part.split_once('=').unwrap_or((&part, "on"));
        match key {
            "socket" => door = Some(Door::Path(value.into())),
            "fd" => door = Some(Door::Fd(number(key, value)?)),
            "path" => path = Some(PathBuf::from(value)),
            _ => set_option(&mut args, key, value)?,
        }
    }
    let door = door.ok_or_else(|| format!("--device {text}: socket=PATH or fd=N is missing"))?;
    let path = path.ok_or_else(|| format!("--device {text}: path=DEVICE is missing"))?;
    if args.socket_group.is_some() && matches!(door, Door::Fd(_)) {
        return Err(format!("--device {text}: a socket group is for socket=, not for fd=").into());
    }
    Ok(Unit { door, path, args })
}

fn set_option(args: &mut DiskArgs, key: &str, value: &str) -> crate::Result<()> {
    match key {
        "read-only" => args.read_only = switch(key, value)?,
        "direct" => args.direct = switch(key, value)?,
        "format" => args.format = Some(choice(key, value)?),
        "pinned" => args.pinned = switch(key, value)?,
        "bypass-scheduler" => args.bypass_scheduler = switch(key, value)?,
        "no-poll-queues" => args.no_poll_queues = switch(key, value)?,
        "serial" => {
            args.serial = serial(value).map_err(|e| format!("--device {key}: {e}"))?;
        }
        "cache" => args.cache = choice(key, value)?,
        "discard" => args.discard = choice(key, value)?,
        "socket-group" => args.socket_group = Some(value.into()),
        "engine" => args.engine = choice(key, value)?,
        "weight" => args.weight = bounded(key, value, 1000)?,
        "num-queues" => args.num_queues = bounded(key, value, uapi::MAX_VRINGS)? as u16,
        "queue-size" => {
            args.queue_size = queue_size(value).map_err(|e| format!("--device {key}: {e}"))?;
        }
        "hctx" => {
            let list: Result<_, _> = value.split(':').map(|n| number(key, n)).collect();
            args.hctx = list?;
        }
        _ => return Err(format!("--device has no option '{key}'; see 'pvio blk --help'").into()),
    }
    Ok(())
}

/// A guest that knows its disks by their serials must not meet half of one.
fn serial(text: &str) -> crate::Result<String> {
    if text.len() > uapi::SERIAL_LEN {
        return Err(format!(
            "a serial number has at most {} bytes, this one has {}",
            uapi::SERIAL_LEN,
            text.len()
        )
        .into());
    }
    Ok(text.into())
}

fn switch(key: &str, value: &str) -> crate::Result<bool> {
    match value {
        "on" | "yes" | "true" => Ok(true),
        "off" | "no" | "false" => Ok(false),
        _ => Err(format!("--device {key} is 'on' or 'off', not '{value}'").into()),
    }
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> crate::Result<T> {
    value
        .parse()
        .map_err(|_| format!("--device {key} wants a number, not '{value}'").into())
}

fn bounded(key: &str, value: &str, max: u32) -> crate::Result<u32> {
    let n = number(key, value)?;
    if !(1..=max).contains(&n) {
        return Err(format!("--device {key} must be from 1 to {max}").into());
    }
    Ok(n)
}

fn choice<T: ValueEnum>(key: &str, value: &str) -> crate::Result<T> {
    T::from_str(value, false).map_err(|_| format!("--device {key} cannot be '{value}'").into())
}

/// A short name for messages and threads: the socket's, without its ending.
pub fn name_of(unit: &Unit) -> String {
    let stem = |p: &Path| p.file_stem().map(|n| n.to_string_lossy().into_owned());
    let found = match &unit.door {
        Door::Path(path) => stem(path),
        Door::Fd(_) => stem(&unit.path),
    };
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> crate::Result<BlkArgs> {
        let argv = ["pvio", "blk"].iter().chain(line);
        match Cli::try_parse_from(argv)
            .map_err(|e| e.to_string())?
            .command
        {
            Command::Blk(args) => Ok(*args),
            _ => Err("another command".into()),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    /// Management programs ask a back end by the name under which they start it.
    #[test]
    fn each_command_and_name_says_its_version() {
        for line in [
            &["pvio"][..],
            &["pvio", "blk"],
            &["pvio", "fs"],
            &["/usr/libexec/pvio-virtiofsd"],
            &["/usr/libexec/pvio-vhost-user-blk"],
        ] {
            let words = line.iter().chain(&["--version"]);
            let mut words: Vec<OsString> = words.map(OsString::from).collect();
            name_command(&mut words);
            let said = Cli::try_parse_from(words).map(drop).unwrap_err();
            assert_eq!(
                said.kind(),
                clap::error::ErrorKind::DisplayVersion,
                "{line:?}"
            );
            assert!(said.to_string().contains(env!("CARGO_PKG_VERSION")));
        }
    }

    #[test]
    fn the_options_beside_qemu_storage_daemon_s_exist() {
        use clap::CommandFactory;
        let all = Cli::command();
        let blk = all.find_subcommand("blk").unwrap();
        let known = |name| blk.get_arguments().any(|a| a.get_long() == Some(name));
        let page = "../../Documentation/admin-guide/pvio.rst";
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
        let page = std::fs::read_to_string(page).unwrap();
        let (_, table) = page.split_once("\nqemu-storage-daemon  ").unwrap();
        let mut lines = table.lines().skip(1);
        let ruler = lines.next().unwrap();
        let ours = ruler.find("  ").unwrap() + 2;
        let mut seen = 0;
        for row in lines.take_while(|line| *line != ruler) {
            let words = row.get(ours..).unwrap_or_default().split("``").skip(1);
            for option in words.step_by(2).filter_map(|word| word.strip_prefix("--")) {
                let name = option.split_whitespace().next().unwrap();
                assert!(known(name), "--{name}");
                seen += 1;
            }
        }
        assert!(seen > 10, "{seen} options");
    }

    #[test]
    fn a_serial_is_not_cut() {
        let fits = "12345678901234567890";
        let ask = |serial: &str| parse(&["-s", "/s", "/d", &format!("--serial={serial}")]);
        assert_eq!(ask(fits).unwrap().disk.serial, fits);
        assert!(ask(&format!("{fits}1"))
            .unwrap_err()
            .to_string()
            .contains("at most 20"));
        let device = format!("--device=socket=/s,path=/d,serial={fits}1");
        let said = units(&parse(&[&device]).unwrap()).unwrap_err().to_string();
        assert!(said.contains("at most 20"), "{said}");
    }

    #[test]
    fn takes_the_conventional_spellings() {
        let args = parse(&["--socket-path=/s", "--blk-file=/d", "--read-only"]).unwrap();
        let unit = units(&args).unwrap().remove(0);
        assert_eq!(unit.door, Door::Path("/s".into()));
        assert_eq!(unit.path, PathBuf::from("/d"));
        assert!(unit.args.read_only);
        let unit = units(&parse(&["--fd=5", "/d"]).unwrap()).unwrap().remove(0);
        assert_eq!(unit.door, Door::Fd(5));
    }

    #[test]
    fn devices_inherit_and_override() {
        let args = parse(&[
            "--queue-size=256",
            "--serial=x",
            "--device",
            "socket=/a.sock,path=/x,,y,read-only,format=raw,hctx=1:2,queue-size=64",
            "--device",
            "fd=7,path=/b,cache=writethrough",
        ])
        .unwrap();
        let u = units(&args).unwrap();
        assert_eq!(u[0].path, PathBuf::from("/x,y"));
        assert_eq!((u[0].args.queue_size, u[1].args.queue_size), (64, 256));
        assert_eq!(u[0].args.hctx, [1, 2]);
        assert!(u[0].args.read_only && !u[1].args.read_only);
        assert_eq!(
            (u[0].args.format, u[1].args.format),
            (Some(Format::Raw), None)
        );
        assert_eq!(u[1].args.cache, Cache::Writethrough);
        assert_eq!(u[1].args.serial, "x");
        assert_eq!(name_of(&u[0]), "a");
    }

    #[test]
    fn discards_may_be_ignored_as_qemu_says_it() {
        let modes = |line: &[&str]| -> crate::Result<_> {
            let modes = units(&parse(line)?)?.into_iter();
            Ok(modes.map(|u| u.args.discard).collect::<Vec<_>>())
        };
        assert_eq!(modes(&["-s/s", "/d"]).unwrap(), [Discard::Unmap]);
        for (word, mode) in [
            ("ignore", Discard::Ignore),
            ("off", Discard::Ignore),
            ("unmap", Discard::Unmap),
            ("on", Discard::Unmap),
        ] {
            let one = format!("--discard={word}");
            assert_eq!(modes(&["-s/s", &one, "/d"]).unwrap(), [mode], "{word}");
        }
        let two = modes(&[
            "--discard=ignore",
            "--device=socket=/a,path=/x",
            "--device=socket=/b,path=/y,discard=unmap",
        ]);
        assert_eq!(two.unwrap(), [Discard::Ignore, Discard::Unmap]);
        assert!(modes(&["-s/s", "--discard=never", "/d"]).is_err());
        assert!(modes(&["--device=socket=/a,path=/x,discard=never"]).is_err());
    }

    #[test]
    fn each_socket_may_have_a_group() {
        let group = |line: &[&str]| -> crate::Result<_> {
            let groups = units(&parse(line)?)?.into_iter();
            Ok(groups.map(|u| u.args.socket_group).collect::<Vec<_>>())
        };
        let some = |name: &str| Some(name.to_owned());
        let one = group(&["--socket=/s", "--socket-group=kvm", "/d"]);
        assert_eq!(one.unwrap(), [some("kvm")]);
        let two = group(&[
            "--socket-group=kvm",
            "--device=socket=/a,path=/x",
            "--device=socket=/b,path=/y,socket-group=qemu",
        ]);
        assert_eq!(two.unwrap(), [some("kvm"), some("qemu")]);
        assert!(group(&["--fd=3", "--socket-group=kvm", "/d"]).is_err());
        assert!(group(&["--device=fd=3,path=/d,socket-group=kvm"]).is_err());
        assert!(group(&["--socket-group=kvm", "--device=fd=3,path=/d"]).is_err());
    }

    #[test]
    fn refuses_nonsense() {
        for line in [
            &["--poll-cpu=x", "/d"][..],
            &["--queue-size=100", "/d"],
            &["--num-queues=65", "/d"],
            &["--num-queues=0", "/d"],
            &["--weight=1001", "/d"],
            &["--socket=/s", "--fd=3", "/d"],
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
        for device in [
            "path=/d",
            "socket=/s",
            "socket=/s,path=/d,format=qcow2",
            "socket=/s,path=/d,colour=red",
            "",
        ] {
            let args = parse(&["--device", device]).unwrap();
            assert!(units(&args).is_err(), "{device}");
        }
        assert!(units(&parse(&["/d"]).unwrap()).is_err());
        assert!(units(&parse(&["--socket=/s"]).unwrap()).is_err());
    }

    #[test]
    fn capabilities_are_json() {
        let json: serde_json::Value = serde_json::from_str(CAPABILITIES).unwrap();
        assert_eq!(json["type"], "block");
        assert_eq!(json["features"].as_array().unwrap().len(), 2);
    }
}
