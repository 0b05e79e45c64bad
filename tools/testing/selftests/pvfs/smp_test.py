#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Two CPUs that share a queue, and a ring that is always full."""

from pvfs import FIO, Files, PvfsCase
from pvlab import ktap


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


if __name__ == "__main__":
    ktap.main()
