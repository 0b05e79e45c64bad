# SPDX-License-Identifier: GPL-2.0
"""What the kernel says of the /dev/vhost-blk devices that a process has open."""

import contextlib
import ctypes
import fcntl
import os
import struct
from dataclasses import dataclass

PIDFD_GETFD = 438
ENGINES = ("auto", "mq", "bio", "file")
HCTX_AUTO = 0xFFFFFFFF
INFO = struct.Struct("=IIIIIIQQ48x")
STATS = struct.Struct("=6I16Q256x")
STATS_FIELDS = (
    "size index hctx engine poller_cpu inflight reads writes flushes discards write_zeroes "
    "get_ids unsupp errors malformed read_bytes write_bytes merged commands punted"
).split() + ["kicks", "calls"]


def _iowr(number, size):
    return 3 << 30 | size << 16 | 0xAF << 8 | number


GET_INFO = _iowr(0xD1, INFO.size)
GET_STATS = _iowr(0xD3, STATS.size)


@dataclass
class Device:
    """One device; vrings holds the counters of each, by their names."""

    sectors: int
    engine: str
    nr_hctx: int
    vrings: list

    def total(self, counter):
        return sum(vring[counter] for vring in self.vrings)


def _take(pidfd, number):
    """Another process's descriptor, as ours."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(PIDFD_GETFD, pidfd, number, 0)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return fd


def _ask(fd, request, what, *head):
    data = bytearray(what.size)
    struct.pack_into(f"={len(head) + 1}I", data, 0, what.size, *head)
    fcntl.ioctl(fd, request, data)
    return what.unpack(data)


def _read(fd, vrings):
    _, _, engine, nr_hctx, _, _, _, sectors = _ask(fd, GET_INFO, INFO)
    stats = [
        dict(zip(STATS_FIELDS, _ask(fd, GET_STATS, STATS, i), strict=True)) for i in range(vrings)
    ]
    return Device(sectors, ENGINES[engine], nr_hctx, stats)


def devices(pid, vrings):
    """Those of process PID, with the counters of the first VRINGS vrings."""
    found = []
    pidfd = os.pidfd_open(pid)
    try:
        for number in sorted(map(int, os.listdir(f"/proc/{pid}/fd"))):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"/proc/{pid}/fd/{number}") == "/dev/vhost-blk":
                    fd = _take(pidfd, number)
                    # Not for long: a device that we hold is not closed.
                    try:
                        found.append(_read(fd, vrings))
                    finally:
                        os.close(fd)
    finally:
        os.close(pidfd)
    return found
