#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Two CPUs that share a queue, a ring that is always full, and a queue for each CPU."""

from pvfs import FIO, Files, PvfsCase, wait_for
from pvlab import ktap
from server import GETATTR


class TwoCpus(Files, PvfsCase):
    vcpus = 2

    def test_both_at_once(self):
        job = f"{FIO} --size=1M --rw=randrw --bs=4k --ioengine=psync --direct=1 --verify=crc32c"
        with self.counting() as grown:
            self.sh(
                f"{job} --filename=/mnt/one --cpus_allowed=0 >/tmp/one 2>&1 & one=$!; "
                f"{job} --filename=/mnt/two --cpus_allowed=1 >/tmp/two 2>&1 & two=$!; "
                "s=0; wait $one || s=1; wait $two || s=1; cat /tmp/one /tmp/two; exit $s"
            )
        self.say("fio on each CPU", grown)
        self.assertEqual(grown["bad_replies"], 0)


class SmallRing(Files, PvfsCase):
    """Requests wait for room, in order, and none is lost."""

    vcpus = 2
    queue_size = 16
    fsx_operations = 150

    def test_zz_requests_waited_for_room(self):
        """By the name the last: the others have filled the ring."""
        self.assertGreater(self.counters()["queued"], 0)


class OwnQueues(PvfsCase):
    vcpus = 4
    lies = True
    share_bus = {"num-request-queues": 4}

    def requests(self):
        """How many each queue has sent."""
        shown = self.sh("cat /sys/bus/virtio/drivers/pvfs/virtio*/pvfs/requests")
        return [int(word) for word in shown.split()]

    def test_each_cpu_has_its_queue(self):
        used = []
        for cpu in range(self.vcpus):
            before = self.requests()
            self.sh(f"taskset {1 << cpu:x} stat /mnt >/dev/null")
            now = self.requests()
            used.append([i for i in range(len(now)) if now[i] != before[i]])
        self.assertEqual(sorted(used), [[0], [1], [2], [3]])

    def test_a_request_outlives_its_cpu(self):
        """The CPU goes offline before the server answers."""
        for cpu in range(1, self.vcpus):
            with self.subTest(f"CPU {cpu}"):
                online = f"/sys/devices/system/cpu/cpu{cpu}/online"
                self.server.hold = (GETATTR,)
                self.start(f"taskset {1 << cpu:x} stat /mnt")
                wait_for(lambda: self.server.held, "the server has the request")
                # Its caller has ceased to poll, and sleeps.
                self.sh(f"sleep 0.5; echo 0 >{online}")
                try:
                    # The server answers the held request at the next one.
                    self.server.hold = ()
                    self.assertEqual(self.status("timeout 20 taskset 1 stat -f /mnt"), 0)
                    self.assertEqual(self.ended(), 0)
                finally:
                    self.sh(f"echo 1 >{online}")
        self.assertIsNone(self.server.failed)


if __name__ == "__main__":
    ktap.main()
