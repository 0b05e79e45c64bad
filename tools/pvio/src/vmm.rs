// SPDX-License-Identifier: GPL-2.0
//! `pvio args`: what the other side of the socket has to be told.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::error::{Error, Result};
use crate::uapi::MAX_VRINGS;

/// Virtual machine monitors with a vhost-user front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Vmm {
    Qemu,
    Libvirt,
    CloudHypervisor,
    Crosvm,
}

const NO_TAG: &str = "crosvm asks the back end for the tag, which 'pvio fs' does not have";

/// `pvio args`
#[derive(Debug, Args)]
pub struct VmmArgs {
    /// The virtual machine monitor (VMM) [default: QEMU's arguments and libvirt's XML]
    #[arg(long, value_enum)]
    pub vmm: Option<Vmm>,

    /// The socket belongs to 'pvio fs' (a directory, not a disk)
    #[arg(long)]
    pub fs: bool,

    /// With --fs, the name by which the guest mounts the directory: mount -t virtiofs TAG DIR
    #[arg(long, default_value = "share", value_name = "TAG")]
    pub tag: String,

    /// The socket given to 'pvio blk' or 'pvio fs'
    #[arg(short, long, default_value = "/run/pvio/vm1.sock", value_name = "PATH")]
    pub socket: PathBuf,

    /// The guest's vCPUs; the device gets one queue for each, but no more than it can have
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub vcpus: u16,

    /// The guest's memory in MiB
    #[arg(long, default_value_t = 1024, value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub memory: u32,

    /// The size of each queue, as given to 'pvio blk' [default: 256, with --fs 1024]
    #[arg(long, value_name = "N", value_parser = crate::cli::queue_size)]
    pub queue_size: Option<u32>,
}

impl VmmArgs {
    /// A directory has one more, for high priority.
    fn queues(&self) -> u16 {
        self.vcpus.min(MAX_VRINGS as u16 - u16::from(self.fs))
    }

    /// A request of 1 MiB to a directory takes 256 pages and some more.
    fn queue_size(&self) -> u32 {
        self.queue_size.unwrap_or(if self.fs { 1024 } else { 256 })
    }
}

/// Renders the arguments as text.
pub fn render(args: &VmmArgs) -> Result<String> {
    let one = |vmm| match (vmm, args.fs) {
        (Vmm::Qemu, false) => Ok(qemu(args)),
        (Vmm::Qemu, true) => Ok(qemu_fs(args)),
        (Vmm::Libvirt, false) => Ok(libvirt(args)),
        (Vmm::Libvirt, true) => Ok(libvirt_fs(args)),
        (Vmm::CloudHypervisor, false) => Ok(cloud_hypervisor(args)),
        (Vmm::CloudHypervisor, true) => Ok(cloud_hypervisor_fs(args)),
        (Vmm::Crosvm, false) => Ok(crosvm(args)),
        (Vmm::Crosvm, true) => Err(Error::from(NO_TAG)),
    };
    Ok(match args.vmm {
        Some(vmm) => one(vmm)?,
        None => format!(
            "# QEMU\n{}\n<!-- libvirt -->\n{}",
            one(Vmm::Qemu)?,
            one(Vmm::Libvirt)?
        ),
    })
}

fn qemu(a: &VmmArgs) -> String {
    let socket = a.socket.display().to_string().replace(',', ",,");
    format!(
        "-smp {cpus} -m {mem}M \\\n\
         -object memory-backend-memfd,id=pvio-mem,size={mem}M,share=on \\\n\
         -numa node,memdev=pvio-mem \\\n\
         -chardev socket,id=pvio0,path={socket},reconnect=1 \\\n\
         -device vhost-user-blk-pci,chardev=pvio0,num-queues={queues},queue-size={size}\n\
         # QEMU 10.2 and newer: reconnect-ms=1000 in place of reconnect=1\n",
        cpus = a.vcpus,
        queues = a.queues(),
        mem = a.memory,
        size = a.queue_size()
    )
}

/// QEMU 7.2 and 10 have num-request-queues, and no reconnect.
fn qemu_fs(a: &VmmArgs) -> String {
    let commas = |text: &str| text.replace(',', ",,");
    format!(
        "-smp {cpus} -m {mem}M \\\n\
         -object memory-backend-memfd,id=pvio-mem,size={mem}M,share=on \\\n\
         -numa node,memdev=pvio-mem \\\n\
         -chardev socket,id=pvio1,path={socket} \\\n\
         -device vhost-user-fs-pci,chardev=pvio1,tag={tag},num-request-queues={queues},\
         queue-size={size}\n\
         # in the guest: mount -t virtiofs {tag} /mnt\n",
        socket = commas(&a.socket.display().to_string()),
        tag = commas(&a.tag),
        cpus = a.vcpus,
        queues = a.queues(),
        mem = a.memory,
        size = a.queue_size()
    )
}

fn libvirt_fs(a: &VmmArgs) -> String {
    format!(
        "<memory unit='MiB'>{mem}</memory>\n\
         <vcpu>{cpus}</vcpu>\n\
         <memoryBacking>\n  <source type='memfd'/>\n  <access mode='shared'/>\n</memoryBacking>\n\
         <devices>\n  <filesystem type='mount'>\n    \
         <driver type='virtiofs' queue='{size}'/>\n    \
         <source socket='{socket}'/>\n    <target dir='{tag}'/>\n  </filesystem>\n</devices>\n\
         <!-- in the guest: mount -t virtiofs {tag} /mnt -->\n",
        socket = xml(&a.socket.display().to_string()),
        tag = xml(&a.tag),
        mem = a.memory,
        cpus = a.vcpus,
        size = a.queue_size()
    )
}

fn cloud_hypervisor_fs(a: &VmmArgs) -> String {
    format!(
        "--cpus boot={cpus} \\\n\
         --memory size={mem}M,shared=on \\\n\
         --fs tag={tag},socket={socket},num_queues={queues},queue_size={size}\n",
        cpus = a.vcpus,
        queues = a.queues(),
        mem = a.memory,
        size = a.queue_size(),
        tag = a.tag,
        socket = a.socket.display()
    )
}

fn libvirt(a: &VmmArgs) -> String {
    let socket = xml(&a.socket.display().to_string());
    format!(
        "<memory unit='MiB'>{mem}</memory>\n\
         <vcpu>{cpus}</vcpu>\n\
         <memoryBacking>\n  <source type='memfd'/>\n  <access mode='shared'/>\n</memoryBacking>\n\
         <devices>\n  <disk type='vhostuser' device='disk'>\n    \
         <driver name='qemu' type='raw' queues='{queues}' queue_size='{size}'/>\n    \
         <source type='unix' path='{socket}'>\n      <reconnect enabled='yes' timeout='1'/>\n    \
         </source>\n    <target dev='vda' bus='virtio'/>\n  </disk>\n</devices>\n",
        mem = a.memory,
        cpus = a.vcpus,
        queues = a.queues(),
        size = a.queue_size()
    )
}

fn cloud_hypervisor(a: &VmmArgs) -> String {
    format!(
        "--cpus boot={cpus} \\\n\
         --memory size={mem}M,shared=on \\\n\
         --disk vhost_user=true,socket={socket},num_queues={queues},queue_size={size}\n",
        cpus = a.vcpus,
        queues = a.queues(),
        mem = a.memory,
        size = a.queue_size(),
        socket = a.socket.display()
    )
}

fn crosvm(a: &VmmArgs) -> String {
    format!(
        "--cpus {cpus} --mem {mem} \\\n\
         --vhost-user block,socket={socket},max-queue-size={size}\n",
        cpus = a.vcpus,
        mem = a.memory,
        size = a.queue_size(),
        socket = a.socket.display()
    )
}

fn xml(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(vmm: Vmm) -> VmmArgs {
        VmmArgs {
            vmm: Some(vmm),
            socket: "/run/a,b'.sock".into(),
            vcpus: 4,
            memory: 2048,
            queue_size: None,
            fs: false,
            tag: "a<b".into(),
        }
    }

    #[test]
    fn memory_is_always_shared() {
        assert!(render(&args(Vmm::Qemu)).unwrap().contains("share=on"));
        assert!(render(&args(Vmm::Libvirt))
            .unwrap()
            .contains("<access mode='shared'/>"));
        assert!(render(&args(Vmm::CloudHypervisor))
            .unwrap()
            .contains("shared=on"));
    }

    #[test]
    fn a_directory_has_a_tag_and_room_for_its_requests() {
        let fs = |vmm| {
            render(&VmmArgs {
                fs: true,
                vcpus: 64,
                ..args(vmm)
            })
        };
        assert!(fs(Vmm::Crosvm).is_err());
        let fs = |vmm| fs(vmm).unwrap();
        let qemu = fs(Vmm::Qemu);
        assert!(qemu.contains("tag=a<b,num-request-queues=63,queue-size=1024\n"));
        assert!(!qemu.contains("reconnect"));
        assert!(fs(Vmm::Libvirt).contains("<target dir='a&lt;b'/>"));
        assert!(fs(Vmm::CloudHypervisor).contains("--fs tag=a<b,socket="));
    }

    #[test]
    fn a_queue_for_each_vcpu_and_awkward_paths() {
        let qemu = render(&args(Vmm::Qemu)).unwrap();
        assert!(qemu.contains("num-queues=4") && qemu.contains("/run/a,,b'.sock"));
        assert!(qemu.contains("size=2048M") && qemu.contains("reconnect=1"));
        assert!(render(&args(Vmm::Libvirt))
            .unwrap()
            .contains("path='/run/a,b&apos;.sock'"));
        let many = VmmArgs {
            vcpus: 100,
            ..args(Vmm::Libvirt)
        };
        assert!(render(&many).unwrap().contains("<vcpu>100</vcpu>"));
        assert!(render(&many).unwrap().contains("queues='64'"));
    }
}
