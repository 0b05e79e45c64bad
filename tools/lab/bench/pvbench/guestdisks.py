# SPDX-License-Identifier: GPL-2.0
"""A disk of the guest of guestinsns.py, and the loads on it.

virtio_blk and virtio_pvblk have the same disk, one after the other.  QEMU serves it in a thread
of its own.
"""

from dataclasses import dataclass

from pvbench import counting

OPS = ("read", "write")
# The disk answers so late that the task that waits sleeps by then, although emulation is slow.
LATENCY_NS = 2_000_000
SIZE = 1 << 30
ARGUMENTS = (
    *("-object", "iothread,id=insns,poll-max-ns=0"),
    "-blockdev",
    f"driver=null-co,node-name=insns,size={SIZE},latency-ns={LATENCY_NS}",
    *("-device", "virtio-blk-pci,drive=insns,iothread=insns,num-queues=2"),
)
# A request's start, once for each.
IO = "blk_mq_start_request"
MODULE = "virtio_pvblk"
TAKE = f"/sys/bus/virtio/drivers/{MODULE}/take"
DRIVERS = ("virtio_blk", MODULE, f"{MODULE}+iopoll")


@dataclass(frozen=True)
class Load:
    """One operation; DEPTH of them at once by io_uring, or one at a time by pread() or pwrite()."""

    driver: str
    op: str
    depth: int = 1
    call: bool = False

    @property
    def path(self):
        return f"guest {self.driver} {'p' * self.call}{self.op}"

    def command(self, disk, times):
        """The command line, for TIMES operations or more: a burst is a sample of its own."""
        how = [] if self.call else ["-u", str(self.depth)]
        if self.driver.endswith("+iopoll"):
            how.append("-p")
        turns = [str(-(-n // min(self.depth, counting.SAMPLE_IOS))) for n in times]
        return " ".join(["guestload", *how, self.op, f"/dev/{disk}", *turns])


def loads(driver, ops, depths):
    """All of one driver.  A task that calls pread() cannot poll for IOPOLL."""
    for op in ops:
        if op not in OPS:
            continue
        if not driver.endswith("+iopoll"):
            yield Load(driver, op, call=True)
        for depth in depths:
            yield Load(driver, op, depth)


def take(machine, disk, parameters):
    """Give the disk to virtio_pvblk."""
    machine.guest.modprobe(MODULE, f"{parameters} poll_queues=1")
    device = machine.sh(f"basename $(readlink -f /sys/block/{disk}/device)")
    machine.sh(f"echo {device} >{TAKE}")


def name(machine):
    """The name of the only virtio disk.  It gets no scheduler, whatever its driver."""
    disk = machine.sh("ls /sys/block | grep ^vd")
    machine.sh(f"echo none >/sys/block/{disk}/queue/scheduler")
    return disk
