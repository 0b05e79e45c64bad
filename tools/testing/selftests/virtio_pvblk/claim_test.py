#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Which driver has a device once the modules are loaded, by claim= and names; other parameters."""

from pvblk import MoveCase
from pvlab import ktap


class Claim(MoveCase):
    def test_a_name_that_is_taken(self):
        """The disk stays where it is."""
        self.reload("first_index=0", ours_first=False)
        disk = self.sh("ls -i /sys/block/vdb/uevent")
        refused = self.guest.run("pvblkctl take vdb")
        self.assertNotEqual(refused.status, 0)
        self.assertIn("the name it would get is taken", refused.err)
        self.assertEqual(self.sh("ls -i /sys/block/vdb/uevent"), disk)
        self.reload("")

    def test_a_probe_that_fails(self):
        """virtio_blk can have the device all the same."""
        dev = self.sh("basename $(readlink /sys/block/vdb/device)")
        self.fails_to_probe(dev, f"claim={dev}")

    def test_a_probe_that_fails_while_the_driver_is_registered(self):
        dev = self.overridable("vdb")
        override = f"/sys/bus/virtio/devices/{dev}/driver_override"
        self.addCleanup(self.sh, f"echo >{override}")
        self.sh(f"echo virtio_pvblk >{override}")
        self.fails_to_probe(dev, "", f"echo >{override}")

    def fails_to_probe(self, dev, parameters, afterwards="true"):
        bus = "/sys/bus/virtio"
        self.sh(f"rmmod virtio_pvblk; echo {dev} >{bus}/drivers/virtio_blk/unbind")
        self.guest.modprobe("virtio_pvblk", f"first_index=0 {parameters}")
        self.assertIn("the name vda is taken", self.sh("dmesg | tail -5"))
        self.assertEqual(int(self.sh(f"cat {bus}/devices/{dev}/status"), 0), 1)
        self.sh(f"{afterwards}; echo {dev} >{bus}/drivers/virtio_blk/bind")
        self.assertEqual(int(self.sh(f"cat {bus}/devices/{dev}/status"), 0) & 0x80, 0)
        self.assertEqual(self.names(), self.THEIRS)
        self.sh("dd if=/dev/vdb of=/dev/null bs=4k count=16 iflag=direct")
        self.reload("")

    def test_queues_as_asked_for(self):
        self.reload("num_request_queues=1 queue_depth=8")
        disk = self.take("vda")
        self.assertEqual(self.sh(f"ls /sys/block/{disk}/mq").split(), ["0"])
        self.assertEqual(self.attribute(disk, "queue/nr_requests"), "8")
        self.reload("")

    def test_claim_none(self):
        self.assertEqual(self.reload(""), ((), self.THEIRS))

    def test_claim_all(self):
        self.assertEqual(self.reload("claim=all first_index=0"), (self.THEIRS, self.THEIRS))
        self.assertEqual(self.drivers(), ["DRIVER", *["virtio_pvblk"] * 3])
        # virtio_blk would have it as vda, and fail
        refused = self.guest.run("pvblkctl give vdb")
        self.assertNotEqual(refused.status, 0)
        self.assertIn("the name it would get is taken", refused.err)
        self.assertEqual(self.names(), self.THEIRS)
        self.sh("pvblkctl give vda")
        self.assertEqual(self.drivers(), ["DRIVER", "virtio_blk", *["virtio_pvblk"] * 2])

    def test_claim_by_name(self):
        self.reload("")
        _, pci, *_ = self.sh("pvblkctl list").splitlines()[2].split()
        ours, all_ = self.reload(f"claim=nothing,{pci}")
        self.assertEqual((ours, all_), (("vdaa",), ("vda", "vdaa", "vdb")))
        self.assertEqual(self.attribute("vdaa", "serial"), "serial-1")

    def test_claim_of_what_there_is_not_is_said(self):
        said = "dmesg | grep 'virtio_pvblk: claim=' | wc -l"
        before = int(self.sh(said))
        self.assertEqual(self.reload("claim=none"), ((), self.THEIRS))
        self.assertEqual(int(self.sh(said)), before)
        self.assertEqual(self.reload("claim=all,vdb"), ((), self.THEIRS))
        self.assertEqual(int(self.sh(said)), before + 1)


if __name__ == "__main__":
    ktap.main()
