#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""pvio killed with -9 and restarted while the guest writes: nothing is lost,
nothing is done twice.

The backend takes its time, so that requests are in flight at each kill. A lost
request hangs the guest's fio or fails its verification; one answered twice makes the
guest's virtio driver complain, which the lab takes for a failure.
"""

import threading
import time

from pviotest import PvioTest
from pvlab import ktap, turns
from pvlab.guest import Disk, Guest
from pvlab.pvio import wait_for

KILLS = turns.loops(5, 20)
FIO = (
    "fio --name=k --filename=/dev/vda --size=48M --rw=randrw --bsrange=4k-64k --ioengine=libaio "
    "--direct=1 --iodepth=32 --verify=crc32c --verify_fatal=1 --verify_backlog=64 "
    "--time_based --runtime={seconds}"
)


class Killed(PvioTest):
    def setUp(self):
        super().setUp()
        disk = self.nullb("slow", size_mb=64, irqmode=2, completion_nsec=3000000, submit_queues=2)
        self.daemon = self.pvio("-s", self.socket(), disk.path, sockets=[self.socket()])
        self.guest = Guest(
            name="pvio-killed",
            vcpus=2,
            disks=[Disk.vhost_user(self.socket(), num_queues=2, reconnect=1)],
        )
        self.resumed = 1
        self.guest.start()
        self.wait_until_served()
        self.addCleanup(self.guest.stop)

    def under_load(self, seconds, disturb):
        """Call DISTURB again and again while fio runs; returns how often."""
        result = []
        load = FIO.format(seconds=seconds)
        thread = threading.Thread(
            target=lambda: result.append(self.guest.run(load, timeout=seconds + 180))
        )
        thread.start()
        done = 0
        while done < KILLS:
            time.sleep(1)
            if not thread.is_alive():
                break
            disturb()
            done += 1
            self.resumed += 1
            self.wait_until_served()
        thread.join()
        self.assertTrue(result, "fio did not end")
        self.assertTrue(result[0].ok, result[0].out + result[0].err)
        return done

    def wait_until_served(self):
        # QEMU 7.2 never reconnects after a handshake that was cut short.
        wait_for(
            lambda: self.daemon.log.count("serving a guest") >= self.resumed,
            f"QEMU reconnects\n{self.daemon.log}",
        )

    def kill_and_restart(self):
        self.daemon.kill9()
        self.daemon.start(self.socket())

    def upgrade(self):
        self.daemon.stop()
        self.daemon.start(self.socket())

    def test_while_the_guest_writes(self):
        for disturb in (self.kill_and_restart, self.upgrade):
            with self.subTest(disturb.__name__):
                self.assertGreater(self.under_load(8 * KILLS, disturb), KILLS // 2)


if __name__ == "__main__":
    ktap.main()
