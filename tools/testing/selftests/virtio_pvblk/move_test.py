#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A device moves from virtio_blk to virtio_pvblk and back, by pvblkctl; attributes stay."""

from pvblk import MoveCase
from pvlab import ktap


class Move(MoveCase):
    def test_loading_changes_nothing(self):
        self.assertEqual(self.names(), self.THEIRS)

    def test_take_and_give(self):
        self.assertEqual(self.sh("pvblkctl take vda").split()[-1], "vdaa")
        self.assertEqual(self.names(), ("vdaa", "vdb", "vdc"))
        self.assertEqual(self.sh("pvblkctl give vdaa").split()[-1], "vda")
        self.assertEqual(self.names(), self.THEIRS)

    def test_nobody_to_give_it_to(self):
        disk = self.take("vda")
        self.sh("rmmod virtio_blk")
        refused = self.guest.run(f"pvblkctl give {disk}")
        self.assertNotEqual(refused.status, 0)
        self.assertIn("no other driver is loaded", refused.err)
        self.assertEqual(self.names(), (disk,))
        self.guest.modprobe("virtio_blk")

    def test_tools_know_it_as_a_virtio_disk(self):
        """LVM and parted look for the major's name."""
        major = self.sh(f"cut -d: -f1 /sys/block/{self.take('vda')}/dev")
        name = f"awk '/^Block/ {{ blk = 1 }} blk && $1 == {major} {{ print $2 }}' /proc/devices"
        self.assertEqual(self.sh(name), "virtblk")

    def test_again_and_again(self):
        for _ in range(5):
            self.take("vda")
            self.give_all()

    def test_by_a_link(self):
        self.sh("ln -sf /dev/vda /run/fast0")
        self.assertEqual(self.sh("pvblkctl take /run/fast0").split()[-1], "vdaa")

    def test_driver_override_keeps_it(self):
        """Until `give`, no other driver gets the device, whichever driver is loaded first."""
        dev = self.overridable("vdb")
        override = f"/sys/bus/virtio/devices/{dev}/driver_override"
        # virtio_blk has the disk, but does not match it any more: udev sets the name earlier.
        self.sh(f"echo virtio_pvblk >{override}; pvblkctl take vdb")
        self.assertEqual(self.reload(""), (("vdaa",), ("vda", "vdaa", "vdb")))
        self.assertEqual(self.attribute("vdaa", "serial"), "serial-1")
        self.assertEqual(self.reload("", ours_first=False)[1], ("vda", "vdaa", "vdb"))
        refused = self.guest.run("exec 5</dev/vdaa; pvblkctl give vdaa")
        self.assertIn("open in process", refused.err)
        self.assertEqual(self.sh(f"cat {override}"), "virtio_pvblk")
        self.sh("pvblkctl give vdaa")
        self.assertEqual(self.sh(f"cat {override}"), "(null)")
        self.assertEqual(self.reload(""), ((), self.THEIRS))

    def test_all_of_them(self):
        taken = self.sh("pvblkctl take -m irq all").splitlines()
        self.assertEqual([line.split()[-1] for line in taken], ["vdaa", "vdab", "vdac"])
        self.assertEqual(self.sh("pvblkctl mode vdab"), "irq")
        self.sh("pvblkctl mode vdab busy")
        self.assertEqual(self.attribute("vdab", "pvblk/mode"), "busy")
        self.assertEqual(self.attribute("vdac", "pvblk/mode"), "irq")
        self.sh("pvblkctl give all")
        self.assertEqual(self.names(), self.THEIRS)

    def test_a_wrong_mode_moves_nothing(self):
        for words in ("-m bussy vda", "-m"):
            refused = self.guest.run(f"pvblkctl take {words}")
            self.assertNotEqual(refused.status, 0)
            self.assertIn("a mode is busy, adaptive or irq", refused.err)
        self.assertEqual(self.names(), self.THEIRS)

    def test_what_is_no_disk_moves_nothing(self):
        for word in ("''", ".", "/dev/", "vda/queue", "vdz"):
            self.assertNotEqual(self.status(f"pvblkctl take {word}"), 0, word)
        self.assertEqual(self.names(), self.THEIRS)

    def test_taking_twice_is_fine(self):
        disk = self.take("vda")
        self.assertEqual(self.take(disk), disk)

    def test_refused_while_mounted(self):
        self.sh("mkfs.ext4 -qF /dev/vda && modprobe ext4; mkdir -p /mnt/m && mount /dev/vda /mnt/m")
        refused = self.guest.run("pvblkctl take vda")
        self.assertNotEqual(refused.status, 0)
        self.assertIn("mounted on /mnt/m", refused.err)
        self.sh("umount /mnt/m")
        disk = self.take("vda")
        self.sh(f"mount /dev/{disk} /mnt/m")
        self.assertNotEqual(self.status(f"pvblkctl give {disk}"), 0)
        self.sh("umount /mnt/m")

    def test_refused_while_open(self):
        refused = self.guest.run("exec 5</dev/vda; pvblkctl take vda")
        self.assertNotEqual(refused.status, 0)
        self.assertIn("open in process", refused.err)

    def test_not_a_block_device(self):
        other = self.sh(
            "for d in /sys/bus/virtio/devices/*; do "
            "[ $(cat $d/device) = 0x0002 ] || { basename $d; break; }; done"
        )
        take = "/sys/bus/virtio/drivers/virtio_pvblk/take"
        for name in (other, "virtio999", "nonsense" * 20):
            self.assertNotEqual(self.status(f"echo {name} >{take}"), 0, name)

    def test_attributes_are_as_virtio_blk_has_them(self):
        names = (
            "serial",
            "cache_type",
            "ro",
            "size",
            "queue/logical_block_size",
            "queue/physical_block_size",
            "queue/max_segments",
            "queue/max_segment_size",
            "queue/max_hw_sectors_kb",
            "queue/rotational",
            "queue/discard_max_hw_bytes",
            "queue/discard_granularity",
            "queue/write_zeroes_max_bytes",
            "queue/write_cache",
            "queue/fua",
            "queue/minimum_io_size",
            "queue/optimal_io_size",
            "alignment_offset",
        )
        for theirs in self.THEIRS:
            expected = self.attributes(theirs, names)
            ours = self.take(theirs)
            self.assertEqual(self.attributes(ours, names), expected)
            self.give_all()

    def test_blocks_of_4k(self):
        disk = self.take("vdc")
        self.assertEqual(self.attribute(disk, "queue/logical_block_size"), "4096")
        self.verify(disk, "--bsrange=4k-128k --iodepth=8", "2M")

    def test_read_only(self):
        disk = self.take("vdb")
        self.assertEqual(self.attribute(disk, "ro"), "1")
        self.assertNotEqual(
            self.status(f"dd if=/dev/zero of=/dev/{disk} bs=4k count=1 oflag=direct"), 0
        )

    def test_cache_type(self):
        disk = self.take("vda")
        for kind in ("write through", "write back"):
            self.sh(f"echo {kind} >/sys/block/{disk}/cache_type")
            self.assertEqual(self.attribute(disk, "queue/write_cache"), kind)

    def flushes(self, disk):
        return int(self.attribute(disk, "stat").split()[15])

    def test_what_was_cached_is_flushed(self):
        disk = self.take("vda")
        self.sh(f"echo write back >/sys/block/{disk}/cache_type")
        self.sh(f"dd if=/dev/zero of=/dev/{disk} bs=4k count=1 oflag=direct")
        before = self.flushes(disk)
        self.sh(f"echo write through >/sys/block/{disk}/cache_type")
        self.assertEqual(self.flushes(disk), before + 1)
        self.sh(f"echo write through >/sys/block/{disk}/cache_type")
        self.assertEqual(self.flushes(disk), before + 1)

    def test_list_shows_both(self):
        self.take("vda")
        self.assertEqual(self.drivers(), ["DRIVER", *["virtio_blk"] * 2, "virtio_pvblk"])

    def test_stat(self):
        disk = self.take("vda")
        self.assertIn("interrupts", self.sh(f"pvblkctl stat {disk}"))

    def test_nothing_moves_where_one_name_is_wrong(self):
        refused = self.guest.run("pvblkctl take vda vdz")
        self.assertNotEqual(refused.status, 0)
        self.assertIn("no virtio-blk device vdz", refused.err)
        self.assertEqual(self.names(), self.THEIRS)


if __name__ == "__main__":
    ktap.main()
