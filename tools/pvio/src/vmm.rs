// SPDX-License-Identifier: GPL-2.0
//! `pvio args`: what the other side of the socket has to be told.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::uapi::MAX_VRINGS;

/// Virtual machine monitors with a vhost-user-blk front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Vmm {
    Qemu,
    Libvirt,
    CloudHypervisor,
    Crosvm,
}

/// `pvio args`
#[derive(Debug, Args)]
pub struct VmmArgs {
    /// The monitor [default: QEMU's arguments and libvirt's XML]
    #[arg(long, value_enum)]
    pub vmm: Option<Vmm>,

    /// The socket given to 'pvio blk'
    #[arg(short, long, default_value = "/run/pvio/vm1.sock", value_name = "PATH")]
    pub socket: PathBuf,

    /// The guest's vCPUs: it gets one queue for each, up to 64
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub vcpus: u16,

    /// The guest's memory in MiB
    #[arg(long, default_value_t = 1024, value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub memory: u32,

    /// The size given to 'pvio blk'
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = crate::cli::queue_size)]
    pub queue_size: u32,
}

impl VmmArgs {
    fn queues(&self) -> u16 {
        self.vcpus.min(MAX_VRINGS as u16)
    }
}

/// Renders the arguments as text.
pub fn render(args: &VmmArgs) -> String {
    match args.vmm {
        Some(Vmm::Qemu) => qemu(args),
        Some(Vmm::Libvirt) => libvirt(args),
        Some(Vmm::CloudHypervisor) => cloud_hypervisor(args),
        Some(Vmm::Crosvm) => crosvm(args),
        None => format!(
            "# QEMU\n{}\n<!-- libvirt -->\n{}",
            qemu(args),
            libvirt(args)
        ),
    }
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
        size = a.queue_size
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
        size = a.queue_size
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
        size = a.queue_size,
        socket = a.socket.display()
    )
}

fn crosvm(a: &VmmArgs) -> String {
    format!(
        "--cpus {cpus} --mem {mem} \\\n\
         --vhost-user block,socket={socket},max-queue-size={size}\n",
        cpus = a.vcpus,
        mem = a.memory,
        size = a.queue_size,
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
            queue_size: 256,
        }
    }

    #[test]
    fn memory_is_always_shared() {
        assert!(render(&args(Vmm::Qemu)).contains("share=on"));
        assert!(render(&args(Vmm::Libvirt)).contains("<access mode='shared'/>"));
        assert!(render(&args(Vmm::CloudHypervisor)).contains("shared=on"));
    }

    #[test]
    fn a_queue_for_each_vcpu_and_awkward_paths() {
        let qemu = render(&args(Vmm::Qemu));
        assert!(qemu.contains("num-queues=4") && qemu.contains("/run/a,,b'.sock"));
        assert!(qemu.contains("size=2048M") && qemu.contains("reconnect=1"));
        assert!(render(&args(Vmm::Libvirt)).contains("path='/run/a,b&apos;.sock'"));
        let many = VmmArgs {
            vcpus: 100,
            ..args(Vmm::Libvirt)
        };
        assert!(render(&many).contains("<vcpu>100</vcpu>"));
        assert!(render(&many).contains("queues='64'"));
    }
}
