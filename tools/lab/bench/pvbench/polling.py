# SPDX-License-Identifier: GPL-2.0
"""Ways to poll in a guest: the candidates, side by side.

Each serves the same disk of vhost_blk, whose poller is busy.  Five things are
measured of it: reads one at a time; 32 at a time; one at a time beside each kind
of neighbour, a task on each vCPU, and what that task gets of the CPU; what the guest
costs when it has done nothing for a second; and reads with a rest before each.
"""

import functools
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pvbench import fio, resume
from pvbench.counters import Kernel
from pvbench.paths import NullBlk, PvblkVhostBlk, Unavailable
from pvbench.session import booted

READ = fio.Op("randread", 4 * fio.KIB)
DEEP = 32
REST_US = 250_000
# In rounds, the candidates by turns: such a read differs more from one minute to the
# next than from one candidate to the next.
REST_ROUNDS = 3
REST_SECS = 8
IDLE_AFTER = 1
# So long that the gates' own exits are few a second.
IDLE_SECS = 10
PARAMETERS = "/sys/module/virtio_pvblk/parameters"
DRIVERS = "/sys/bus/virtio/drivers"
NEIGHBOUR = Path(__file__).resolve().parents[1] / "neighbour.c"


@dataclass(frozen=True)
class Candidate:
    """Who polls.  KTHREADS is the policy of the driver's threads, as chrt has it."""

    name: str
    driver: str = "virtio_pvblk"
    mode: str = "busy"
    kthreads: str = "--idle"
    iopoll: bool = False
    idle_loop: bool = False
    ours: bool = False


CANDIDATES = (
    Candidate("nobody, mainline virtio_blk", driver="virtio_blk"),
    Candidate("nobody (irq)", mode="irq"),
    Candidate("the waiter (IOPOLL)", iopoll=True),
    Candidate("the idle loop (cpuidle-haltpoll)", mode="irq", idle_loop=True),
    Candidate("a normal thread", kthreads="--other"),
    Candidate("a SCHED_IDLE thread (busy)", ours=True),
    Candidate("a SCHED_IDLE thread (adaptive)", mode="adaptive", ours=True),
)


@dataclass(frozen=True)
class Neighbour:
    """A task that computes for BUSY_US, and sleeps for REST_US."""

    name: str
    busy_us: int
    rest_us: int


NEIGHBOURS = (
    Neighbour("computes always", 1000, 0),
    Neighbour("3 ms of 3.3", 3000, 300),
    Neighbour("0.3 ms of 0.6", 300, 300),
)

# Uptime, and the nanoseconds that the neighbours ran.
NOTE = """\
#!/bin/sh
read -r up _ </proc/uptime
sum=0
for pid in $(cat /run/neighbours); do
	read -r ns _ </proc/$pid/schedstat
	sum=$((sum + ns))
done
echo $up $sum >>/run/noted
"""


# What a guest is asked, in the order of use.
GIVE = """\
n=0
while [ -e {drivers}/virtio_pvblk/{device} ]; do
	[ $n -lt 50 ] || exit 1
	echo {device} 2>/dev/null >{drivers}/virtio_pvblk/give || sleep .1
	n=$((n + 1))
done
"""
TAKE = """\
echo {iopoll} >{parameters}/poll_queues &&
echo {device} >{drivers}/virtio_pvblk/take &&
disk=$(ls /sys/bus/virtio/devices/{device}/block) &&
echo {mode} >/sys/block/$disk/pvblk/mode || exit 1
n=0
for comm in $(grep -l ^virtio-poll/ /proc/[0-9]*/comm); do
	pid=${{comm#/proc/}}
	chrt {kthreads} -p 0 ${{pid%/comm}} || exit 1
	n=$((n + 1))
done
[ $n -gt 0 ]
"""
COMPUTE = """\
: >/run/neighbours
rm -f /run/noted
for cpu in $(seq 0 {last}); do
	taskset $(printf %x $((1 << cpu))) neighbour {busy_us} {rest_us} >/dev/null 2>&1 &
	echo $! >>/run/neighbours
done
"""


class Target(PvblkVhostBlk):
    """The path, with the disk under whichever driver a candidate wants."""

    modules = ("virtio_blk",)
    needs = ("chrt",)

    def __init__(self, env, vcpus):
        super().__init__(env)
        self.vcpus = vcpus

    def guest_args(self):
        disk = self.env.Disk.vhost_user(str(self.socket), num_queues=self.vcpus + 1)
        return {"disks": [disk], "vcpus": self.vcpus}

    def target(self, guest):
        """The device; which disk it is changes with its driver."""
        guest.modprobe("virtio_pvblk")
        guest.put("/bin/chrt", Path(shutil.which("chrt")))
        guest.put("/bin/neighbour", self.neighbour())
        guest.put("/run/note", NOTE.encode())
        guest.run("chmod 755 /bin/chrt /bin/neighbour; : >/run/neighbours", check=True)
        found = guest.run("basename $(readlink -f /sys/block/vda/device)", check=True)
        return found.out.strip()

    def neighbour(self):
        """The program, built for any guest."""
        built = Path(self.env.workdir) / "neighbour"
        subprocess.run(["gcc", "-static", "-O2", "-o", built, NEIGHBOUR], check=True)
        return built


def choose(guest, device, candidate):
    """Have CANDIDATE serve the device; where its disk is then."""
    words = {
        "device": device,
        "drivers": DRIVERS,
        "parameters": PARAMETERS,
        "mode": candidate.mode,
        "kthreads": candidate.kthreads,
        "iopoll": int(candidate.iopoll),
    }
    guest.run(GIVE.format(**words), check=True)
    if candidate.driver == "virtio_pvblk":
        guest.run(TAKE.format(**words), check=True)
    return f"/dev/{guest.run(f'ls /sys/bus/virtio/devices/{device}/block', check=True).out.strip()}"


class Trial:
    """One candidate in one guest."""

    def __init__(self, session, candidate, secs):
        self.session, self.candidate, self.secs = session, candidate, secs
        self.guest, self.vcpus = session.guest, session.path.vcpus
        self.disk = choose(session.guest, session.target, candidate)

    def read(self, secs, depth=1, more=(), **kw):
        more = [*(["--hipri=1"] if self.candidate.iopoll else []), *more]
        return self.session.fio(self.disk, READ, depth, secs, more=more, **kw)

    def beside(self, neighbour):
        """Reads beside a task on each vCPU, and its share of them.

        Then the same guest without reads, for what they caused.
        """
        words = {"busy_us": neighbour.busy_us, "rest_us": neighbour.rest_us}
        self.guest.run(COMPUTE.format(**words, last=self.vcpus - 1), check=True)
        try:
            row = self.read(self.secs, note="sh /run/note")
            noted = self.guest.run("cat /run/noted", check=True).out
            without = self.without(self.secs)
        finally:
            self.guest.run("kill -9 $(cat /run/neighbours); : >/run/neighbours")
        return {**with_baseline(row, without), "share": share(noted, self.vcpus)}

    def without(self, secs):
        """The guest for as long, without reads."""
        result, counts, took = self.session.counted(fio.idle_command(secs, False), secs)
        if result.status:
            raise RuntimeError(f"the idle guest's sleep ended with {result.status}")
        return {**counts, "window_s": round(took, 3)}

    def idle(self):
        self.guest.run(f"sleep {IDLE_AFTER}", check=True)
        return self.without(IDLE_SECS)

    def row(self):
        alone, deep = self.read(self.secs), self.read(self.secs, DEEP)
        beside = {n.name: self.beside(n) for n in NEIGHBOURS}
        idle = self.idle()
        return {
            "who": self.candidate.name,
            "ours": self.candidate.ours,
            "vcpus": self.vcpus,
            "alone": with_baseline(alone, idle),
            "deep": with_baseline(deep, idle),
            "beside": beside,
            "idle": idle,
            "rested": [],
        }

    def rested(self):
        return self.read(REST_SECS, more=[f"--thinktime={REST_US}"])


def with_baseline(row, without):
    """ROW with the exits of the same guest WITHOUT reads, as if for the same time."""
    scale = row["window_s"] / without["window_s"]
    return {**row, "exits_idle": round(without["exits"] * scale)}


def share(noted, vcpus):
    """What the neighbours got of the vCPUs between the two notes: 1 is all of them."""
    (up0, ns0), (up1, ns1) = (map(float, line.split()) for line in noted.strip().splitlines()[-2:])
    return (ns1 - ns0) / 1e9 / (up1 - up0) / vcpus


def boots(cpus):
    """(vCPUs, with haltpoll): one vCPU, and two, as long as the poller keeps a CPU."""
    for vcpus in (1, 2):
        if vcpus < cpus:
            yield vcpus, False
            yield vcpus, True


def check_idle_loop(guest, wanted):
    """An idle loop that polls is the kernel's to have, not ours."""
    found = guest.run("cat /sys/devices/system/cpu/cpuidle/current_driver").out.strip()
    if (found == "haltpoll") != wanted:
        raise RuntimeError(f"the guest's idle loop is '{found}'")


def measure_guest(env, vcpus, idle_loop, todo, rows, secs, kernel, say):
    """Into ROWS, what is TODO of the candidates that one boot serves."""
    append = "cpuidle_haltpoll.force=1" if idle_loop else ""
    with (
        tempfile.TemporaryDirectory(prefix="pvbench") as env.workdir,
        booted(Target(env, vcpus), kernel, env.workdir, append=append) as session,
    ):
        check_idle_loop(session.guest, idle_loop)
        while todo:
            candidate, what = todo[0]
            trial = Trial(session, candidate, secs)
            if what == "row":
                rows[candidate] = trial.row()
                say(f"polling: {vcpus} vCPU, {candidate.name}: {brief(rows[candidate])}")
            else:
                rows[candidate]["rested"].append(trial.rested())
            del todo[0]


def brief(row):
    said = [f"{row['alone']['iops']:.0f} IOPS"]
    said += [f"{run['iops']:.0f} beside one that {name}" for name, run in row["beside"].items()]
    return f"{row['alone']['exits'] / row['alone']['ios']:.2f} exits per I/O; {', '.join(said)}"


def chosen(words):
    """The candidates whose names contain one of WORDS; all, if there are none."""
    found = [c for c in CANDIDATES if not words or any(w in c.name for w in words)]
    if not found:
        raise Unavailable(f"no candidate's name contains {' or '.join(words)}")
    return found


def measure(env, secs, emit, say):
    """All rows, of the candidates that WHO names; how many guests failed."""
    candidates = chosen(fio.split_list(os.environ.get("WHO")))
    guests = list(boots(os.cpu_count()))
    if not guests:
        raise Unavailable("the poller needs a CPU besides the guest's")
    failed = 0
    with NullBlk() as null, Kernel() as kernel:
        env.device = null.path
        for vcpus, idle_loop in guests:
            here = [c for c in candidates if c.idle_loop == idle_loop]
            if not here:
                continue
            todo = [(c, what) for what in ["row", *["rested"] * REST_ROUNDS] for c in here]
            rows = {}
            work = functools.partial(
                measure_guest, env, vcpus, idle_loop, todo, rows, secs, kernel, say
            )
            # One that is lost for good leaves the others.
            failed += bool(resume.all_of(f"polling: {vcpus} vCPU", todo, work, say))
            for row in rows.values():
                if row["rested"]:
                    emit(row)
    return failed
