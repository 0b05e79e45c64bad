#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""One CPU: data arrives, callers poll, and they leave the CPU to others."""

from pvfs import TAG, Files, PvfsCase
from pvlab import ktap


class OneCpu(Files, PvfsCase):
    def stats(self, times):
        self.sh(f"for i in $(seq {times}); do stat /mnt/x; done >/dev/null")

    def test_a_caller_alone_polls(self):
        # One process, so that no other task wants the CPU when it sends a request.  Where
        # the machine is busy a caller may have to leave before its reply is there; then it
        # counts as `slept`, and an interrupt tells.
        self.sh("dd if=/dev/zero of=/mnt/x bs=4k count=1 2>/dev/null; sleep 1")
        with self.counting() as grown:
            self.sh("dd if=/mnt/x of=/dev/null bs=16 count=200 2>/dev/null")
        self.say("200 reads", grown)
        self.assertGreaterEqual(grown["requests"], 200)
        self.assertGreater(grown["polled"] + grown["slept"], grown["requests"] / 2)
        self.assertGreater(grown["polled"], 0)
        # A caller that polls turns interrupts off; a few may have started before.
        self.assertLess(grown["interrupts"], grown["requests"] - grown["polled"] + 20)

    def test_never_polling(self):
        self.poll_max(0)
        self.sh("echo >/mnt/x")
        with self.counting() as grown:
            self.stats(20)
            self.sh("dd if=/dev/zero of=/mnt/x bs=64k count=4 2>/dev/null")
        self.say("20 stats, 4 writes, poll_max_us=0", grown)
        self.assertEqual((grown["polled"], grown["slept"]), (0, 0))
        self.assertGreater(grown["interrupts"], 10)

    def test_a_poller_gives_way_to_others(self):
        """Beside a task that computes nearly all is left to interrupts."""
        self.sh("echo >/mnt/x")
        pid = self.start('sh -c "while :; do :; done"')
        try:
            # It has started only once it has had the CPU (utime, in ticks).
            self.sh(f"until [ $(cut -d' ' -f14 /proc/{pid}/stat) -ge 10 ]; do sleep 0.1; done")
            # In turns: the CPU's thread may run in between, and must not be taken for proof
            # that the CPU is free.
            for _ in range(5):
                with self.counting() as grown:
                    self.stats(20)
                self.say("20 stats beside a task that computes", grown)
                self.assertLess(grown["polled"], grown["requests"] / 2)
        finally:
            self.sh(f"kill -9 {pid}")

    def test_data_is_not_cached(self):
        cached = "awk '/^Cached:/ { print $2 }' /proc/meminfo"
        self.sh("dd if=/dev/urandom of=/mnt/big bs=64k count=128 2>/dev/null; sync")
        before = int(self.sh(f"echo 1 >/proc/sys/vm/drop_caches; {cached}"))
        self.sh("cat /mnt/big >/dev/null")
        self.assertLess(int(self.sh(cached)) - before, 4096)

    def test_given_back(self):
        """To virtiofs, which mounts it; and mount.pvfs does not take what is mounted."""
        dev = self.sh("cd /sys/bus/virtio/drivers/pvfs && echo virtio*")
        self.sh(
            f"umount /mnt; cd /sys/bus/virtio/drivers; echo {dev} >pvfs/unbind; "
            f"echo {dev} >virtiofs/bind; mount -t virtiofs {TAG} /mnt"
        )
        self.assertIn("is mounted by virtiofs", self.guest.run(f"mount.pvfs {TAG} /mnt").err)
        self.sh("echo by virtiofs >/mnt/whose; umount /mnt")
        self.mount()
        self.assertEqual(self.sh("cat /mnt/whose"), "by virtiofs")

    def test_bad_options(self):
        self.assertNotEqual(self.status(f"mount -i -t pvfs -o cache=some {TAG} /mnt"), 0)
        self.assertNotEqual(self.status("mount -i -t pvfs none /mnt"), 0)
        self.assertNotEqual(self.status(f"mount -i -t pvfs -o cache=auto {TAG} /run"), 0)
        self.assertIn("no virtio-fs device", self.guest.run("mount.pvfs none /mnt").err)
        self.assertEqual(self.sh("cat /sys/bus/virtio/drivers/pvfs/virtio*/pvfs/cache"), "none")


if __name__ == "__main__":
    ktap.main()
