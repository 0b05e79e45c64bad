#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""pvio without a guest: sentences that say what to do, and odd front ends."""

import os
import re
import socket
import struct
import subprocess

from pviotest import Front, PvioTest
from pvlab import ktap, paths
from pvlab.pvio import PVIO, run, wait_for

MIB = 1 << 20


class Sentences(PvioTest):
    def test_mounted(self):
        disk = self.nullb("mounted")
        run("mkfs.ext4", "-q", disk.path)
        where = self.tmp / "mnt"
        where.mkdir()
        run("mount", disk.path, where)
        self.addCleanup(run, "umount", where)
        said = self.refused("-s", self.socket(), disk.path)
        self.assertIn(f"mounted at {where}", said)
        self.assertIn("umount", said)

    def test_busy(self):
        disk = self.nullb("busy")
        fd = os.open(disk.path, os.O_RDWR | os.O_EXCL)
        self.addCleanup(os.close, fd)
        self.assertIn("busy", self.refused("-s", self.socket(), disk.path))

    def test_image_in_use_by_another(self):
        image = self.image("i", MIB)
        self.pvio("-s", self.socket(), image, sockets=[self.socket()])
        self.assertIn("in use", self.refused("-s", self.socket("two"), image))
        done = run("qemu-img", "resize", "-f", "raw", image, "2M", check=False)
        self.assertIn("lock", done.stderr, "QEMU sees our lock")

    def test_socket_in_use(self):
        self.pvio("-s", self.socket(), self.image("i", MIB), sockets=[self.socket()])
        said = self.refused("-s", self.socket(), self.image("j", MIB))
        self.assertIn("another process serves", said)

    def test_wrong_cpu(self):
        said = self.refused("-s", self.socket(), "--poll-cpu", "999", self.image("i", MIB))
        self.assertIn("CPU 999 is not online", said)

    def test_qcow2(self):
        image = self.tmp / "q.qcow2"
        run("qemu-img", "create", "-q", "-f", "qcow2", image, "1M")
        said = self.refused("-s", self.socket(), image)
        self.assertIn("qemu-img convert", said)
        self.assertIn("--format raw", said)
        words = ["-s", self.socket(), "--format", "raw", image]
        self.pvio(*words, sockets=[self.socket()])

    def test_a_guest_cannot_keep_its_disk_from_being_served(self):
        """Its first sector is what it likes, on an image and on a device."""
        image, disk = self.image("i", MIB), self.nullb("magic").path
        for name, path in (("i", image), ("d", disk)):
            with open(path, "r+b") as f:
                f.write(b"QFI\xfb\0\0\0\3")
            self.pvio("-s", self.socket(name), path, sockets=[self.socket(name)])

    def test_read_only_device(self):
        disk = self.nullb("ro")
        run("blockdev", "--setro", disk.path)
        self.assertIn("--read-only", self.refused("-s", self.socket(), disk.path))
        self.pvio("-s", self.socket(), "--read-only", disk.path, sockets=[self.socket()])
        front = Front(self.socket())
        self.assertTrue(front.features() & 1 << 5, "VIRTIO_BLK_F_RO")
        front.close()

    def test_no_permission(self):
        self.tmp.chmod(0o777)
        said = self.refused("-s", self.socket(), self.image("i", MIB), user=65534)
        self.assertIn("no permission", said)
        self.assertIn("root", said)

    def test_the_unit_has_what_it_takes_and_no_more(self):
        unit = (paths.TOP / "tools/pvio/pvio-blk@.service.in").read_text()
        (held,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.M)
        held = [name.removeprefix("CAP_").lower() for name in held.split()]
        self.assertNotIn("sys_admin", held)
        bounds = ",".join(["-all", *(f"+{name}" for name in held)])
        disk = self.nullb("unit").path
        words = ["-s", self.socket(), "--pinned", disk]
        self.pvio(*words, sockets=[self.socket()], before=["setpriv", f"--bounding-set={bounds}"])
        Front(self.socket()).features()

    def test_the_units_wait_for_mounts(self):
        """Guests would write to the directory that a mount hides afterwards."""
        for name in ("blk", "fs"):
            unit = (paths.TOP / f"tools/pvio/pvio-{name}@.service.in").read_text()
            (after,) = re.findall(r"^After=(.*)$", unit, re.M)
            self.assertLessEqual({"local-fs.target", "remote-fs.target"}, set(after.split()))

    def test_pollers_spread(self):
        """Two that choose by themselves, beside one that was told where."""
        last = os.cpu_count() - 1
        for name in "abc":
            words = ["-s", self.socket(name), self.image(name, MIB)]
            if name == "a":
                words += ["--poll-cpu", last]
            pvio = self.pvio(*words, sockets=[self.socket(name)])
        cpus = re.findall(r"polling from CPU (\d+)", pvio.log)
        self.assertEqual(len(cpus), 2, pvio.log)
        self.assertNotEqual(int(cpus[0]), last)

    def test_wrong_context(self):
        disk = self.nullb("ctx")
        said = self.refused("-s", self.socket(), "--hctx", "77", disk.path)
        self.assertIn("--hctx 77", said)

    def test_no_such_things(self):
        self.assertIn("does not exist", self.refused("-s", self.socket(), "/nonexistent"))
        self.assertIn("neither", self.refused("-s", self.socket(), "/dev/null"))
        image = self.image("i", MIB)
        self.assertIn("directory", self.refused("-s", "/nonexistent/s", image))
        self.assertIn("engine", self.refused("-s", self.socket(), "--engine", "mq", image))


class FrontEnds(PvioTest):
    def test_capabilities(self):
        done = run(PVIO, "blk", "--print-capabilities", "--whatever")
        self.assertEqual(done.stdout, '{"type":"block","features":["read-only","blk-file"]}\n')

    def test_names_of_all_kinds(self):
        for name in ("a disk", "größe", "x" * 60):
            pvio = self.pvio(
                "-s", self.socket(name), self.image(name, MIB), sockets=[self.socket(name)]
            )
            Front(self.socket(name)).features()
            pvio.stop()

    def test_inherited_listening_socket(self):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.socket()))
            listener.listen()
            fd = listener.fileno()
            self.pvio(f"--fd={fd}", f"--blk-file={self.image('i', MIB)}", pass_fds=[fd])
        for _ in range(2):
            front = Front(self.socket())
            front.features()
            front.close()

    def test_inherited_connection_ends_with_it(self):
        ours, theirs = socket.socketpair()
        pvio = self.pvio(
            f"--fd={theirs.fileno()}", self.image("i", MIB), pass_fds=[theirs.fileno()]
        )
        theirs.close()
        front = Front(ours)
        front.features()
        front.close()
        wait_for(lambda: pvio.process.poll() is not None, "pvio ends with its connection")
        self.assertEqual(pvio.process.returncode, 0)

    def test_death_half_way_and_nonsense(self):
        pvio = self.pvio("-s", self.socket(), self.image("i", MIB), sockets=[self.socket()])
        for half in (b"\1", b"\1\0\0\0\1\0\0\0", struct.pack("=III", 5, 1, 40), os.urandom(200)):
            front = Front(self.socket())
            front.sock.sendall(half)
            front.close()
        table = struct.pack("=IIQQQQ", 1, 0, 0, 4096, 0, 0)
        front = Front(self.socket())
        front.send(5, table)
        self.assertTrue(front.hung_up())
        front.close()
        front = Front(self.socket())
        self.assertTrue(front.features() & 1 << 32, "VERSION_1")
        front.close()
        wait_for(lambda: "must be shared" in pvio.log, "the missing descriptors are explained")

    def test_many_come_and_go(self):
        pvio = self.pvio("-s", self.socket(), self.image("i", MIB), sockets=[self.socket()])
        fds = f"/proc/{pvio.process.pid}/fd"
        for i in range(100):
            front = Front(self.socket())
            front.features()
            front.close()
            if i == 10:
                before = len(os.listdir(fds))
        wait_for(lambda: len(os.listdir(fds)) <= before, "its descriptors are closed")

    def test_sigterm_tidies_up(self):
        pvio = self.pvio("-s", self.socket(), self.image("i", MIB), sockets=[self.socket()])
        front = Front(self.socket())
        front.features()
        pvio.stop()
        self.assertEqual(pvio.process.returncode, 0)
        self.assertTrue(front.hung_up())
        self.assertFalse(self.socket().exists())

    def test_takes_over_after_kill(self):
        disk = self.nullb("kill")
        pvio = self.pvio("-s", self.socket(), disk.path, sockets=[self.socket()])
        pvio.kill9()
        self.assertTrue(self.socket().exists())
        pvio.start(self.socket())
        Front(self.socket()).features()

    def test_memory_that_is_not_shared(self):
        pvio = self.pvio("-s", self.socket(), self.image("i", MIB), sockets=[self.socket()])
        # SeaBIOS looks at the disk, so no guest is needed.
        qemu = subprocess.Popen(
            [
                "qemu-system-x86_64",
                "-nodefaults",
                "-display",
                "none",
                "-machine",
                "q35,accel=kvm",
                "-m",
                "64M",
                "-object",
                "memory-backend-memfd,id=m,size=64M,share=off",
                "-numa",
                "node,memdev=m",
                "-chardev",
                f"socket,id=c,path={self.socket()}",
                "-device",
                "vhost-user-blk-pci,chardev=c",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: "share=on" in pvio.log, "private memory is explained")
        finally:
            qemu.kill()
            qemu.wait()


if __name__ == "__main__":
    ktap.main()
