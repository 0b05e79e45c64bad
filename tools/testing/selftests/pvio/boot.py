#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Guests boot from the disk that pvio serves: firmware, boot loader, kernel.

One image is for both kinds of firmware: a FAT partition with the lab's kernel and
initramfs, and syslinux in both its forms.
"""

import struct

from pviotest import PvioTest, long_in_debug
from pvlab import ktap
from pvlab.guest import Disk, Guest, emulated
from pvlab.pvio import run

MIB = 1 << 20
SECTOR = 512
MBR = "/usr/lib/syslinux/mbr/mbr.bin"
EFI_LOADER = "/usr/lib/SYSLINUX.EFI/efi64/syslinux.efi"
EFI_MODULE = "/usr/lib/syslinux/modules/efi64/ldlinux.e64"
OVMF = "/usr/share/ovmf/OVMF.fd"
MARK = "lab.loader=syslinux"
CONFIG = """DEFAULT lab
LABEL lab
  LINUX /vmlinuz
  INITRD /initrd
  APPEND {append}
"""


def partition_table(sectors, first):
    """A boot sector that starts the one partition, FAT with LBA."""
    with open(MBR, "rb") as f:
        code = f.read(440)
    entry = struct.pack(
        "<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x0C, b"\xfe\xff\xff", first, sectors - first
    )
    return code.ljust(446, b"\0") + entry.ljust(64, b"\0") + b"\x55\xaa"


def make_bootable(path, kernel, initramfs, append):
    """Make the file PATH, and put all that firmware needs on it."""
    first = MIB // SECTOR
    # FAT32, as firmware wants it, has at least 65,525 clusters
    size = max(kernel.stat().st_size + initramfs.stat().st_size + 8 * MIB, 64 * MIB)
    size = -(-size // MIB) * MIB
    with open(path, "wb") as f:
        f.write(partition_table(size // SECTOR, first))
        f.truncate(size)
    inside = f"{path}@@{MIB}"
    run(
        *("mformat", "-i", inside, "-F", "-c", 1, "-H", first),
        *("-T", size // SECTOR - first, "-h", 64, "-s", 32, "::"),
    )
    run("syslinux", "--install", "--offset", MIB, path)
    config = path.with_suffix(".cfg")
    config.write_text(CONFIG.format(append=append))
    run("mmd", "-i", inside, "::/EFI", "::/EFI/BOOT")
    for source, target in (
        (kernel, "vmlinuz"),
        (initramfs, "initrd"),
        (config, "syslinux.cfg"),
        (EFI_LOADER, "EFI/BOOT/BOOTX64.EFI"),
        (EFI_MODULE, "EFI/BOOT/ldlinux.e64"),
    ):
        run("mcopy", "-i", inside, source, f"::/{target}")


@long_in_debug
class Boot(PvioTest):
    def guest(self, name, qemu_args=(), **kw):
        return Guest(
            name=name,
            disks=[Disk.vhost_user(self.socket(), bootindex=0)],
            append=MARK,
            qemu_args=qemu_args,
            direct_kernel=False,
            **kw,
        )

    def boots(self, guest, backend):
        """GUEST comes up, from a boot loader, on BACKEND; returns it running."""
        image = self.tmp / "boot.img"
        make_bootable(image, guest.kernel_image(), guest.initramfs(), guest.cmdline())
        disk = backend(image)
        self.pvio("-s", self.socket(), disk, sockets=[self.socket()])
        guest.start()
        self.addCleanup(guest.stop)
        cmdline = guest.run("cat /proc/cmdline", check=True).out
        self.assertIn(MARK, cmdline)
        self.assertIn("BOOT_IMAGE=/vmlinuz", cmdline, "a boot loader says what it loaded")
        size = guest.run("cat /sys/block/vda/vda1/start", check=True).out
        self.assertEqual(int(size), MIB // SECTOR)
        return guest

    def on_null_blk(self, image):
        """The engine mq."""
        null = self.nullb("boot", size_mb=image.stat().st_size // MIB, submit_queues=2)
        run("dd", f"if={image}", f"of={null.path}", "bs=1M", "oflag=direct")
        return null.path

    def test_bios(self):
        guest = self.boots(self.guest("pvio-bios"), self.on_null_blk)
        self.assertFalse(guest.run("test -d /sys/firmware/efi").ok)

    def test_uefi(self):
        # OVMF in a guest of kvm_amd makes an emulated CPU abort: tcg_handle_interrupt()
        # without its lock.  So there the guest is emulated, too; its disk is the same.
        emulate = ["-machine", "accel=tcg", "-cpu", "max"] if emulated() else []
        guest = self.guest("pvio-uefi", ["-bios", OVMF, *emulate])
        guest.boot_timeout *= 2
        self.boots(guest, lambda image: image)
        self.assertTrue(guest.run("test -d /sys/firmware/efi").ok)


if __name__ == "__main__":
    ktap.main()
