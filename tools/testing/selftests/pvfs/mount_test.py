#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""What users of a local file system do with its mount: fstab, remount, root, suspend."""

import os
import shutil
import subprocess
import unittest
from pathlib import Path

from pvfs import DEBUG, HELPER, PATIENCE, TAG, PvfsCase, Virtiofsd
from pvlab import image, ktap
from pvlab import modules as kmod
from pvlab.guest import Guest, Share

# Options that mount(8) has for itself, and passes to helpers.  busybox has fewer.
ITS_OWN = {
    "mount": "noatime",
    "mount-linux": "_netdev,nofail,auto,user,exec,x-systemd.automount,X-a=b,comment=c",
}


class Mounts(PvfsCase):
    vcpus = 2
    # busybox has a mount of its own.
    overlay = image.overlay(**{"mount-linux": "mount", "umount-linux": "umount"})

    def setUp(self):
        self.addCleanup(self.fresh)

    def fresh(self):
        """The mount as PvfsCase has it."""
        self.sh("rm -f /etc/fstab; umount /mnt; umount /mnt2 2>/dev/null; true")
        self.mount()

    def shown(self):
        """The options in /proc/mounts."""
        return self.sh("grep '^share /mnt pvfs' /proc/mounts").split()[3].split(",")

    def writes(self):
        return self.status("echo x >/mnt/w") == 0

    def test_remounted(self):
        self.sh(f"umount /mnt; mount.pvfs {TAG} /mnt -o cache=always,timeout=30")
        self.assertLessEqual({"rw", "cache=always", "timeout=30"}, set(self.shown()))
        for mount in ("mount", "mount-linux"):
            with self.subTest(mount):
                self.sh(f"{mount} -o remount,ro /mnt")
                self.assertIn("ro", self.shown())
                self.assertFalse(self.writes())
                # As it does what fstab and the mount have, too.
                self.sh(f"{mount} -o remount,rw,noatime,cache=always,timeout=30 /mnt")
                self.assertLessEqual({"rw", "noatime", "cache=always"}, set(self.shown()))
                self.assertTrue(self.writes())
                for other in ("cache=none", "timeout=31", "timeout=0"):
                    self.assertNotEqual(self.status(f"{mount} -o remount,{other} /mnt"), 0)
                self.assertLessEqual({"cache=always", "timeout=30"}, set(self.shown()))

    def test_read_only_is_refused_while_a_file_is_open_to_write(self):
        done = self.guest.run("exec 3>/mnt/open; mount -o remount,ro /mnt")
        self.assertIn("busy", done.err.lower())
        self.sh("mount -o remount,ro /mnt")

    def test_fstab(self):
        for mount in ("mount", "mount-linux"):
            for options, wanted in (
                ("defaults", {"rw"}),
                (f"ro,{ITS_OWN[mount]},timeout=30", {"ro", "timeout=30"}),
                ("nodev,nosuid,cache=auto", {"nodev", "nosuid", "cache=auto"}),
            ):
                with self.subTest(f"{mount} {options}"):
                    self.sh(
                        f"umount /mnt; echo '{TAG} /mnt pvfs {options} 0 0' >/etc/fstab; {mount} -a"
                    )
                    self.assertLessEqual(wanted, set(self.shown()))
                    self.sh(f"{mount} -o remount,ro /mnt")
                    self.assertIn("ro", self.shown())

    def test_what_is_not_there(self):
        for options in ("nofail", "defaults"):
            with self.subTest(options):
                self.sh("umount /mnt 2>/dev/null; mkdir -p /mnt2")
                self.sh(
                    f"echo 'nosuch /mnt2 pvfs {options} 0 0\n{TAG} /mnt pvfs defaults 0 0' "
                    ">/etc/fstab"
                )
                done = self.guest.run("mount-linux -a")
                self.assertIn("no virtio-fs device with tag nosuch", done.err)
                self.assertIn("rw", self.shown())
        done = self.guest.run(f"mount.pvfs {TAG} /mnt2 -o nosuch=option")
        self.assertNotEqual(done.status, 0)

    def test_bound(self):
        self.sh("mkdir -p /mnt/sub /mnt2; echo bound >/mnt/sub/file; mount -o bind /mnt/sub /mnt2")
        self.assertEqual(self.sh("cat /mnt2/file"), "bound")
        self.sh("mount -o remount,bind,ro /mnt2")
        self.assertNotEqual(self.status("echo x >/mnt2/file"), 0)
        self.assertTrue(self.writes())

    def test_read_only_beside_another(self):
        """The second mount of a tag is the same file system, so it is not another in this."""
        self.sh(f"mkdir -p /mnt2; mount.pvfs {TAG} /mnt2 -o ro")
        self.assertNotEqual(self.status("echo x >/mnt2/file"), 0)
        self.assertTrue(self.writes())

    def test_lazy(self):
        """Open files go on, and the device is free once they are closed."""
        self.sh("echo lazy >/mnt/file")
        pid = self.start('sh -c "exec sleep 1000 </mnt/file"')
        self.sh(f"until readlink /proc/{pid}/fd/0 | grep -q file; do sleep 0.1; done")
        self.sh("umount -l /mnt; ! grep -q pvfs /proc/mounts")
        self.assertEqual(self.sh(f"cat /proc/{pid}/fd/0"), "lazy")
        self.sh(f"kill {pid}")
        self.ended()
        self.sh(f"mount.pvfs {TAG} /mnt -o cache=always")

    def test_statfs(self):
        here = os.statvfs(self.share)
        there = self.sh("stat -f -c '%s %b %l' /mnt").split()
        self.assertEqual(int(there[2]), here.f_namemax)
        self.assertEqual(int(there[0]) * int(there[1]), here.f_bsize * here.f_blocks)
        self.sh("df /mnt; df -i /mnt; sync; sync -f /mnt/file")

    def test_freezing_is_refused(self):
        self.assertIn("not supported", self.guest.run("fsfreeze --freeze /mnt").err)
        self.assertTrue(self.writes())

    def suspend(self):
        """All but the last step, and back."""
        return self.guest.run(
            "echo devices >/sys/power/pm_test; echo mem >/sys/power/state", timeout=PATIENCE
        )

    def test_suspended(self):
        self.sh("echo before >/mnt/file; umount /mnt")
        self.assertEqual(self.suspend().status, 0)
        self.mount()
        self.assertEqual(self.sh("cat /mnt/file"), "before")
        self.sh("echo after >/mnt/file")

    def test_suspend_is_refused_while_it_is_mounted(self):
        self.sh("echo before >/mnt/file")
        done = self.suspend()
        self.assertIn("busy", done.err.lower())
        self.assertIn("is mounted", self.sh("dmesg | tail -n 60"))
        self.assertEqual(self.sh("cat /mnt/file"), "before")
        self.sh("echo after >/mnt/file")


INIT = f"""#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in $(cat /ours/order); do insmod /ours/$module; done
mkdir /newroot
mount.pvfs {TAG} /newroot -o cache=always
umount /dev /sys /proc
exec switch_root /newroot /init
"""


@unittest.skipIf(
    DEBUG and not os.environ.get("FULL"),
    "in the debug lane FULL=1 runs it: its limit of time is short",
)
class Root(unittest.TestCase):
    """A guest whose initramfs mounts its root by pvfs."""

    @classmethod
    def setUpClass(cls):
        cls.directory = Path("/dev/shm") / f"pvfs-{os.getpid()}-root"
        cls.share = cls.directory / "share"
        cls.share.mkdir(parents=True)
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        server = Virtiofsd(cls.directory, cls.share)
        cls.addClassCleanup(server.stop)
        guest = Guest(name="pvfsroot", shares=[Share.virtiofs(server.socket, TAG, queue_size=1024)])
        with open(guest.initramfs(), "rb") as archive:
            subprocess.run(
                ["busybox", "cpio", "-idm"],
                stdin=archive,
                cwd=cls.share,
                check=True,
                capture_output=True,
            )
        guest.overlay = {
            "init": INIT.encode(),
            "usr/sbin/mount.pvfs": HELPER.read_bytes(),
            **cls.modules(guest.kernel),
            **image.overlay(**{"mount-linux": "mount"}),
        }
        for name, data in image.overlay(**{"mount-linux": "mount"}).items():
            (cls.share / name).write_bytes(data)
            (cls.share / name).chmod(0o755)
        cls.guest = cls.enterClassContext(guest)

    @staticmethod
    def modules(kernel):
        """Ours, as files of an overlay, and their order."""
        order, left = [], ["pvfs"]
        while left:
            path = kmod.ours(kernel, left.pop())
            order.insert(0, path)
            left += kmod.needs(path)
        files = {f"ours/{path.name}": path.read_bytes() for path in order}
        return {**files, "ours/order": " ".join(path.name for path in order).encode()}

    @classmethod
    def sh(cls, command):
        return cls.guest.run(command, timeout=PATIENCE, check=True).out.strip()

    def test_1_it_works(self):
        self.assertIn(f"{TAG} / pvfs rw", self.sh("cat /proc/mounts"))
        self.sh("echo by the guest >/var/file; sync")
        self.assertEqual((self.share / "var/file").read_text(), "by the guest\n")

    def test_2_an_image_on_it_is_mounted(self):
        self.sh(
            "modprobe loop; modprobe ext4; truncate -s 16M /var/image; "
            "mkfs.ext4 -q /var/image; mount -o loop /var/image /mnt; cp -r /etc /mnt; "
            "umount /mnt; e2fsck -fn /var/image"
        )

    def test_3_as_init_remounts_it(self):
        """By the line for it in fstab: read-only at first, then read-write, and last read-only."""
        for mount in ("mount", "mount-linux"):
            with self.subTest(mount):
                self.sh(
                    f"echo '{TAG} / pvfs cache=always 0 1' >/etc/fstab; {mount} -o remount,ro /"
                )
                self.assertNotEqual(self.guest.run("echo x >/var/x").status, 0)
                self.sh(f"{mount} -o remount,rw /; echo x >/var/x")

    def test_4_what_was_written_before_the_end_is_there(self):
        self.sh("head -c 300000 /dev/urandom >/var/last; mount -o remount,ro /")
        last = self.guest.get("/var/last")
        self.guest.poweroff()
        self.assertEqual((self.share / "var/last").read_bytes(), last)


if __name__ == "__main__":
    ktap.main()
