#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""libvirt's own QEMU driver starts a guest on the XML that `pvio args` prints.

virt-qemu-run is that driver without a daemon: it starts the domain, waits, and ends
it when it is told to end.
"""

import subprocess

from pviotest import PvioTest, long_in_debug
from pvlab import ktap
from pvlab.guest import Guest, emulated
from pvlab.pvio import PVIO, wait_for

VCPUS = 2
MEMORY = {"stock": 512, "debug": 1024}
SIZE = 64
FIO = (
    "fio --name=v --filename=/dev/vda --size=8M --rw=randwrite --bsrange=4k-128k "
    "--ioengine=libaio --direct=1 --iodepth=16 --verify=crc32c --verify_fatal=1 --do_verify=1"
)
# No user but root, and none of what a distribution's daemon would confine it with.
CONFIG = """user = "root"
group = "root"
dynamic_ownership = 0
security_driver = "none"
cgroup_controllers = [ ]
namespaces = [ ]
stdio_handler = "file"
"""
# As root the driver looks for its user before it reads what is configured, and that
# one comes with the daemon's package, which starts services.
START = """
for file in passwd group; do
	{ cat /etc/$file; echo libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin; } >"$1/$file"
	mount --bind "$1/$file" /etc/$file
done
exec virt-qemu-run -r "$1" "$2"
"""
DOMAIN = """<domain type='kvm'>
  <name>lab</name>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{kernel}</kernel>
    <initrd>{initramfs}</initrd>
    <cmdline>{cmdline}</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='host-passthrough'>{cpu}</cpu>
  <on_reboot>destroy</on_reboot>
  {printed}
</domain>
"""
DEVICES = """
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
    <console type='file'><source path='{console}'/><target type='virtio'/></console>
    {ports}
  </devices>"""
PORT = (
    "<channel type='unix'><source mode='bind' path='{path}'/>"
    "<target type='virtio' name='lab.{index}'/></channel>"
)


class Domain(Guest):
    """A guest that libvirt starts, with what was PRINTED for it."""

    def __init__(self, printed):
        super().__init__(name="libvirt", modules=["virtio_blk"])
        self.printed = printed

    def command(self):
        root = self.state / "libvirt"
        (root / "etc").mkdir(parents=True)
        (root / "etc/qemu.conf").write_text(CONFIG)
        (self.state / "domain.xml").write_text(self.xml())
        words = ["sh", "-euc", START, "sh", root, self.state / "domain.xml"]
        return ["unshare", "--mount", *map(str, words)]

    def xml(self):
        ports = [PORT.format(path=path, index=i) for i, path in enumerate(self.ports())]
        devices = DEVICES.format(console=self.console, ports="".join(ports))
        return DOMAIN.format(
            kernel=self.kernel_image(),
            initramfs=self.initramfs(),
            cmdline=self.cmdline(),
            cpu="<feature policy='disable' name='xsave'/>" if emulated() else "",
            printed=self.printed.replace("</devices>", devices),
        )

    def stop(self, check=True):
        """Its monitor is libvirt's, which ends the domain when it ends."""
        self.process.terminate()
        self._wait(30)
        self.kill()
        if check:
            self.check()


@long_in_debug
class Libvirt(PvioTest):
    def printed(self, guest_kernel):
        done = subprocess.run(
            [PVIO, "args", "--vmm", "libvirt", "--socket", self.socket()]
            + ["--vcpus", str(VCPUS), "--memory", str(MEMORY[guest_kernel.lane])],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def test_the_printed_xml(self):
        disk = self.nullb("libvirt", size_mb=SIZE, submit_queues=VCPUS).path
        words = ["--socket", self.socket(), disk]
        daemon = self.pvio(*words, sockets=[self.socket()])
        guest = Domain("")
        guest.printed = self.printed(guest.kernel)
        guest.start()
        self.addCleanup(guest.stop)

        self.assertEqual(guest.run("nproc", check=True).out.strip(), str(VCPUS))
        self.assertEqual(guest.run("cat /sys/block/vda/size").out.strip(), str(SIZE * 2048))
        queues = guest.run("ls /sys/block/vda/mq | wc -l", check=True).out.strip()
        self.assertEqual(queues, str(VCPUS))
        guest.run(FIO, timeout=240, check=True)

        daemon.kill9()
        self.pvio(*words, sockets=[self.socket()])
        wait_for(
            lambda: guest.run("dd if=/dev/vda of=/dev/null bs=4k count=1 iflag=direct").ok,
            "the guest reads from the new pvio",
        )
        guest.run(FIO, timeout=240, check=True)


if __name__ == "__main__":
    ktap.main()
