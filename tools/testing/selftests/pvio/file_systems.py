#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""File systems of a stock guest on disks that pvio serves: exercised, checked, and
cut off in the midst of writing.

After the cut everything whose fsync() had returned must be there.  The guest is
killed with its QEMU; the null_blk then loses its power, too, and with that what was
in its write-back cache: a flush that did not reach it is a file that is gone.
"""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

from pviotest import FSX_CONFIG, PvioTest, long_in_debug
from pvlab import ktap
from pvlab.guest import Disk, Gone, Guest
from pvlab.pvio import wait_for

FULL = bool(os.environ.get("FULL"))
SIZE_MB = 400  # xfs wants 300
# A write-back cache that nothing is pushed out of by what the test writes.
CACHE_MB = 128
FSX_OPERATIONS = 3000 if FULL else 300
SYNCED_FILES = 100 if FULL else 15

MAKE = {"ext4": "mkfs.ext4 -qF", "xfs": "mkfs.xfs -qf"}
CHECK = {"ext4": "e2fsck -fn", "xfs": "xfs_repair -n"}
REPLAYED = {"ext4": "EXT4-fs ({disk}): recovery complete", "xfs": "XFS ({disk}): Ending recovery"}

FIO = (
    "fio --name=v --filename=/mnt/{disk}/fio --size=4M --rw=randwrite --bsrange=4k-64k "
    "--ioengine=libaio --direct={direct} --iodepth=16 --verify=crc32c --verify_fatal=1 "
    "--do_verify=1 --invalidate=1"
)
# Each line it prints is a file that is to last; the other writer keeps I/O in flight.
WRITER = """
cd /mnt/{disk} || exit
(while :; do dd if=/dev/zero of=noise bs=64k count=32 conv=notrunc oflag=direct; done) 2>/dev/null &
n=0
while :; do
	n=$((n + 1))
	head -c $((RANDOM * 6 + 1)) /dev/urandom >/tmp/{disk}
	dd if=/tmp/{disk} of=$n bs=16k conv=fsync 2>/dev/null || exit
	echo "$(sha1sum </tmp/{disk} | cut -c-40)  $n"
done
"""


@long_in_debug
class FileSystems(PvioTest):
    def setUp(self):
        super().setUp()
        self.null = self.nullb(
            "fs", size_mb=SIZE_MB, submit_queues=2, discard=1, cache_size=CACHE_MB
        )
        self.raw = self.image("fs.img", SIZE_MB << 20)
        self.sockets = [self.socket("null"), self.socket("raw")]
        self.guests = 0
        self.serve()

    def serve(self):
        words = []
        for sock, disk in zip(self.sockets, (self.null.path, self.raw), strict=True):
            words += ["--device", f"socket={sock},path={disk}"]
        self.daemon = self.pvio(*words, sockets=self.sockets)

    def start(self):
        self.guests += 1
        guest = Guest(
            name=f"pvio-fs{self.guests}",
            vcpus=2,
            disks=[Disk.vhost_user(s, num_queues=2) for s in self.sockets],
        )
        guest.start()
        self.addCleanup(guest.stop)
        return guest

    def sh(self, command, timeout=240):
        return self.guest.run(command, timeout=timeout, check=True).out

    def mount(self, disk, fs):
        self.sh(f"modprobe {fs}; mkdir -p /mnt/{disk}; mount -t {fs} /dev/{disk} /mnt/{disk}")

    def make(self, disk, fs):
        self.sh(f"{MAKE[fs]} /dev/{disk}")
        self.mount(disk, fs)

    def check(self, disk, fs):
        """Unmounted, it is found without fault."""
        self.sh(f"umount /mnt/{disk}")
        self.sh(f"{CHECK[fs]} /dev/{disk} >/tmp/said 2>&1 || {{ cat /tmp/said; false; }}")

    # every day

    def test_every_day(self):
        self.guest = self.start()
        self.guest.put("/tmp/fsx.toml", FSX_CONFIG)
        seed = 0
        for fs in MAKE:
            for disk in ("vda", "vdb"):
                seed += 1
                with self.subTest(f"{fs} on {disk}"):
                    self.make(disk, fs)
                    self.exercise(disk, seed)
                    self.check(disk, fs)
                    self.mount(disk, fs)
                    self.sh(f"cd /mnt/{disk} && sha1sum -c -s /tmp/sums")
                    self.sh(f"umount /mnt/{disk}")

    def exercise(self, disk, seed):
        for direct in (0, 1):
            self.sh(FIO.format(disk=disk, direct=direct))
        self.sh(
            f"fsx -q -S {seed} -N {FSX_OPERATIONS} -f /tmp/fsx.toml -P /tmp /mnt/{disk}/fsx "
            ">/tmp/said 2>&1 || { tail -n 30 /tmp/said; false; }"
        )
        self.sh(
            f"cd /mnt/{disk} && cp -r /usr/lib/modules copy && sync && fstrim . && "
            "find . -type f -exec sha1sum {} + >/tmp/sums"
        )
        self.assertGreater(int(self.sh("wc -l </tmp/sums")), 5)

    # the cut

    def test_cut_off(self):
        """Both file systems on both disks, in two rounds."""
        self.guest = self.start()
        for kinds in (("ext4", "xfs"), ("xfs", "ext4")):
            disks = dict(zip(("vda", "vdb"), kinds, strict=True))
            for disk, fs in disks.items():
                self.make(disk, fs)
            synced = self.write_until_killed(disks)
            self.power_cut()
            self.guest = self.start()
            for disk, fs in disks.items():
                with self.subTest(f"{fs} on {disk}"):
                    self.recovers(disk, fs, synced[disk])

    def write_until_killed(self, disks):
        """What each disk's writer said it had synced."""
        said = {disk: bytearray() for disk in disks}
        with ThreadPoolExecutor(len(disks)) as pool:
            writers = [pool.submit(self.write, disk, said[disk].extend) for disk in disks]
            try:
                wait_for(
                    lambda: any(writer.done() for writer in writers)
                    or all(lines.count(b"\n") >= SYNCED_FILES for lines in said.values()),
                    "files are written and synced",
                    seconds=300,
                )
            finally:
                os.kill(self.guest.pid, signal.SIGKILL)
        self.guest.kill()
        for writer in writers:
            with self.assertRaises(Gone, msg="it wrote until the end"):
                writer.result()
        return {disk: bytes(lines[: lines.rindex(b"\n") + 1]) for disk, lines in said.items()}

    def write(self, disk, out):
        self.guest.stream(WRITER.format(disk=disk), out=out, err=out)

    def power_cut(self):
        self.daemon.stop()
        self.null.power_cycle()
        self.serve()

    def recovers(self, disk, fs, synced):
        self.mount(disk, fs)
        log = self.sh("dmesg")
        self.assertIn(REPLAYED[fs].format(disk=disk), log, "it was mounted when it was cut off")
        self.guest.put("/tmp/sums", synced)
        wrong = self.sh(f"cd /mnt/{disk} && sha1sum -c /tmp/sums 2>&1 | grep -v ': OK$' || true")
        self.assertEqual(wrong, "", "what was synced is there")
        self.check(disk, fs)


if __name__ == "__main__":
    ktap.main()
