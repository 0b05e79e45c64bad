#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Ends under load, again and again; LAB_LOOPS= says how often.

Before each end the guest writes a file and syncs it.  After each end the host has that file as
it was written, and the next mount works.
"""

from pvfs import PvfsCase, wait_for
from pvlab import image, ktap, turns
from underload import UNBIND, UnderLoad

LOOPS = turns.loops(2, 20)


class Again(UnderLoad):
    vcpus = 2

    def again(self, end, after):
        """END a mount that is under load, and have the next one by AFTER, LOOPS times."""
        for number in range(LOOPS):
            text = f"{self.id()} {number}"
            self.sh(f"echo {text} >/mnt/kept; sync /mnt/kept")
            self.under_load()
            # The counters of a device go with it.
            self.assertEqual(self.counters()["bad_replies"], 0)
            end()
            self.assertEqual((self.share / "kept").read_text(), f"{text}\n")
            after()
            self.assertEqual(self.sh("cat /mnt/kept"), text)
            self.assertEqual(self.counters()["bad_replies"], 0)


class Loops(Again, PvfsCase):
    # busybox's tries without force first.
    overlay = image.overlay(**{"umount-now": "umount"})

    def kill(self):
        # fio's child has the file open, too, and may end after fio.
        self.sh("killall -9 fio; while pidof fio >/dev/null; do sleep 0.05; done")
        self.assertNotEqual(self.ended(), 0)

    def test_killed(self):
        self.again(self.kill, lambda: None)
        wait_for(lambda: self.counters()["inflight"] == 0, "all is answered")

    def umount(self):
        self.kill()
        self.sh("umount /mnt")

    def test_unmounted(self):
        self.again(self.umount, self.mount)

    def force(self):
        """The file system loses its name at once, and ends with the last process."""
        self.sh("umount-now -f -l /mnt && killall -9 fio")
        self.assertNotEqual(self.ended(), 0)

    def test_unmounted_by_force(self):
        self.again(self.force, self.mount)

    def unbind(self):
        self.sh(UNBIND)
        self.over()

    def bind_and_mount(self):
        self.bind()
        self.mount()

    def test_unbound(self):
        self.again(self.unbind, self.bind_and_mount)


class Plugged(Again, PvfsCase):
    """The device goes for good, and another one comes."""

    number = 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sh(f"umount /mnt; {UNBIND}")

    def next(self):
        type(self).number += 1
        self.tag = f"hot{self.number}"
        self.server_of_tag = self.plug(self.tag)
        self.addCleanup(self.server_of_tag.stop)

    def gone(self):
        self.unplug(self.tag)
        self.wait_unplugged(self.tag)
        self.server_of_tag.stop()
        self.next()

    def tearDown(self):
        """The last one goes, so that the port is free."""
        self.sh("umount /mnt || true")
        self.unplug(self.tag)
        self.wait_unplugged(self.tag)

    def pull(self):
        self.unplug(self.tag)
        self.over()

    def pulled(self):
        self.wait_unplugged(self.tag)
        self.server_of_tag.stop()
        self.next()

    def test_unplugged(self):
        self.next()
        self.again(self.pull, self.pulled)

    def die(self):
        """Requests in flight end when the device is unbound."""
        self.server_of_tag.stop()
        self.sh(UNBIND)
        self.over()

    def test_server_dies(self):
        self.next()
        self.again(self.die, self.gone)


if __name__ == "__main__":
    ktap.main()
