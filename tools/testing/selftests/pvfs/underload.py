# SPDX-License-Identifier: GPL-2.0
"""A guest whose device ends while it has requests in flight."""

import contextlib

from pvfs import FIO, Virtiofsd, wait_for
from pvlab.paths import LabError

UNBIND = "cd /sys/bus/virtio/drivers/pvfs; for d in virtio*; do echo $d >unbind; done"


class UnderLoad:
    """Acts of a case on its device, which is mounted at /mnt."""

    qemu_args = ("-device", "pcie-root-port,id=rp0,chassis=1,slot=1")
    load = (
        f"{FIO} --filename=/mnt/load --size=2M --rw=randrw --bs=16k --time_based --runtime=600 "
        "--ioengine=libaio --direct=1 --iodepth=8"
    )

    def bind(self):
        """The first device has the driver again."""
        self.sh(
            "echo $(cd /sys/bus/virtio/devices; grep -l 0x001a */device | head -n 1 | cut -d/ -f1) "
            ">/sys/bus/virtio/drivers/pvfs/bind"
        )

    def under_load(self):
        self.start(self.load)
        before = self.counters()["requests"]
        wait_for(lambda: self.counters()["requests"] > before + 50, "there is load")

    def over(self):
        """The requests in flight met an error, and the mount can be left behind."""
        self.assertNotEqual(self.ended(), 0)
        self.assertNotEqual(self.status("ls /mnt"), 0)
        self.sh("umount /mnt")

    def plug(self, tag):
        """Another device, below the port, mounted at /mnt."""
        directory = self.directory / tag
        directory.mkdir()
        server = Virtiofsd(directory, self.share)
        self.guest.qmp(
            "chardev-add",
            id=f"{tag}c",
            backend={
                "type": "socket",
                "data": {
                    "addr": {"type": "unix", "data": {"path": str(server.socket)}},
                    "server": False,
                },
            },
        )
        device = {
            "driver": "vhost-user-fs-pci",
            "id": tag,
            "bus": "rp0",
            "chardev": f"{tag}c",
            "tag": tag,
            "queue-size": 1024,
        }
        self.guest.qmp("device_add", **device)
        self.sh(f"until mount.pvfs {tag} /mnt 2>/tmp/said; do sleep 0.5; done")
        return server

    def unplug(self, tag):
        self.guest.qmp("device_del", id=tag)

    def is_plugged(self, tag):
        """Whether QEMU has the device; it goes only when the guest has let it go."""
        with contextlib.suppress(LabError):
            self.guest.qmp("qom-get", path=f"/machine/peripheral/{tag}", property="realized")
            return True
        return False

    def wait_unplugged(self, tag):
        wait_for(lambda: not self.is_plugged(tag), "QEMU has let the device go")
