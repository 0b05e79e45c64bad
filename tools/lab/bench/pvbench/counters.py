# SPDX-License-Identifier: GPL-2.0
"""What the host did between two moments, counted by the kernel.

A snapshot is one flat Counter keyed by tuples, ("exit", tid, reason) and the
like, so that a window is the difference of two of them.  All counting is done
by the kernel itself (KVM's statistics, histogram triggers on tracepoints,
/proc); nothing is sampled and no event is copied out, so the counts are exact
and the measured path is not slowed by readers.

Histogram keys are thread ids: attribution to a guest's vCPUs or to a backend
happens afterwards, in summarise(), which is pure.
"""

import contextlib
import os
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")
KVM_DEBUG = Path("/sys/kernel/debug/kvm")
INSTANCE = "pvbench"
KICK_PROBE = "pvbench_kick"
# Exits that are the emulation's: see tools/lab/modules/lab_vmrun.c.
FORCED = Path("/sys/module/lab_vmrun/parameters/forced")

# Guest vectors that can only be devices: below are exceptions, from 0xec on
# Linux keeps its own (local timer, IPIs, call function).
DEVICE_VECTORS = range(0x20, 0xEC)

SVM_REASONS = {
    0x60: "interrupt",
    0x61: "nmi",
    0x64: "irq-window",
    0x65: "cr-write",
    0x6E: "rdtsc",
    0x72: "cpuid",
    0x77: "pause",
    0x78: "hlt",
    0x7B: "io",
    0x7C: "msr",
    0x81: "hypercall",
    0x87: "rdtscp",
    0x8A: "monitor",
    0x8B: "mwait",
    0x8D: "xsetbv",
    0x400: "npf",
    0x401: "avic-ipi",
    0x402: "avic-noaccel",
}
VMX_REASONS = {
    0: "exception",
    1: "interrupt",
    7: "irq-window",
    8: "nmi-window",
    10: "cpuid",
    12: "hlt",
    18: "hypercall",
    28: "cr",
    29: "dr",
    30: "io",
    31: "msr-read",
    32: "msr-write",
    40: "pause",
    44: "apic-access",
    45: "eoi",
    48: "ept-violation",
    49: "ept-misconfig",
    52: "timer",
    54: "wbinvd",
    55: "xsetbv",
    56: "apic-write",
}

HIST_LINE = re.compile(r"^\{(.*)\}\s*hitcount:\s*(\d+)")


def parse_hist(text):
    """A tracefs `hist` file as {(key, ...): hits}, keys in the trigger's order."""
    out = Counter()
    for line in text.splitlines():
        m = HIST_LINE.match(line.strip())
        if not m:
            continue
        keys = tuple(_number(part) for part in m.group(1).split(","))
        out[keys] += int(m.group(2))
    return out


def _number(part):
    value = part.rsplit(":", 1)[1].strip()
    return int(value, 16) if value.startswith("0x") else int(value)


def parse_interrupts(text, names=("nvme", "virtio", "null", "ahci")):
    """Block devices' lines of /proc/interrupts as {line name: count}."""
    out = Counter()
    lines = text.splitlines()
    cpus = len(lines[0].split()) if lines else 0
    for line in lines[1:]:
        words = line.split()
        desc = " ".join(words[1 + cpus :])
        if any(n in desc for n in names):
            out[words[0].rstrip(":")] = sum(int(w) for w in words[1 : 1 + cpus] if w.isdigit())
    return out


def parse_status_csw(text):
    """Voluntary and involuntary switches of a /proc/PID/task/TID/status."""
    return sum(int(line.split()[1]) for line in text.splitlines() if "ctxt_switches" in line)


def parse_stat_cpu(text, hz):
    """User and system time in µs of a /proc/PID/task/TID/stat."""
    words = text.rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) * 1_000_000 // hz


@dataclass
class Threads:
    """Who is who: the guest's vCPUs, its backend's threads, our pollers."""

    vcpus: set = field(default_factory=set)
    backend: set = field(default_factory=set)
    pollers: set = field(default_factory=set)

    def __or__(self, other):
        return Threads(
            self.vcpus | other.vcpus, self.backend | other.backend, self.pollers | other.pollers
        )

    def everyone(self):
        return self.vcpus | self.backend | self.pollers


def reason_name(reason, isa):
    table = SVM_REASONS if isa == "svm" else VMX_REASONS
    return table.get(reason, f"{reason:#x}")


def summarise(delta, threads, isa, kicks_known=True):
    """A window's Counter as the fields of a row."""

    def total(kind, tids=None, want=lambda key: True):
        return sum(
            n
            for key, n in delta.items()
            if key[0] == kind and (tids is None or key[1] in tids) and want(key)
        )

    by_reason = Counter()
    for key, n in delta.items():
        if key[0] == "exit" and key[1] in threads.vcpus and n:
            by_reason[reason_name(key[2], isa)] += n
    forced = min(delta.get(("forced",), 0), by_reason["interrupt"])
    by_reason["interrupt"] -= forced
    injected = total("inj", threads.vcpus, lambda k: not k[3])
    irqs_all = delta.get(("kvm", "irq_injections"), injected)
    # With an APIC virtualised by hardware nothing is injected by hand.
    irqs = (
        total("inj", threads.vcpus, lambda k: k[2] in DEVICE_VECTORS and not k[3])
        if injected or not irqs_all
        else total("msi")
    )
    return {
        "exits": delta[("kvm", "exits")] - forced
        if ("kvm", "exits") in delta
        else sum(by_reason.values()),
        "exits_by_reason": {k: n for k, n in by_reason.most_common() if n},
        "kicks": total("kick", threads.vcpus, lambda k: k[2] == 0) if kicks_known else None,
        "irqs": irqs,
        "irqs_all": irqs_all,
        "csw": total("csw", threads.backend | threads.pollers),
        "csw_vcpu": total("csw", threads.vcpus),
        "syscalls": total("sys", threads.backend),
        "syscalls_vcpu": total("sys", threads.vcpus),
        "poller_csw": total("csw", threads.pollers),
        "poller_syscalls": total("sys", threads.pollers),
        "host_irqs": total("hostirq"),
        "backend_cpu_us": total("cpu", threads.backend | threads.pollers),
        "vcpu_cpu_us": total("cpu", threads.vcpus),
    }


class Kernel:
    """The running kernel's counters, armed on entry and taken away on exit."""

    HISTS = (  # kind, event, keys
        ("exit", "kvm/kvm_exit", "common_pid,exit_reason"),
        ("inj", "kvm/kvm_inj_virq", "common_pid,vector,reinjected"),
        ("msi", "kvm/kvm_msi_set_irq", "common_pid"),
        ("sys", "raw_syscalls/sys_enter", "common_pid"),
        ("kick", f"kprobes/{KICK_PROBE}", "common_pid,ret"),
    )

    def __init__(self):
        self.instance = TRACEFS / "instances" / INSTANCE
        self.armed = []
        self.hz = os.sysconf("SC_CLK_TCK")
        self.isa = "vmx" if "vmx" in _cpu_flags() else "svm"

    def __enter__(self):
        self._drop_leftovers()
        # ioeventfd_write() is asked for each store to a device's bus and
        # returns 0 where it signalled an eventfd: exactly the kicks.
        with contextlib.suppress(OSError):
            _append(
                TRACEFS / "kprobe_events", f"r:{KICK_PROBE} kvm:ioeventfd_write ret=$retval:s32"
            )
        self.instance.mkdir()
        for kind, event, keys in self.HISTS:
            base = self.instance / "events" / event
            if not base.exists():
                continue
            _append(base / "trigger", f"hist:keys={keys}:size=4096")
            self.armed.append((kind, base))
        return self

    def __exit__(self, *exc):
        self._drop_leftovers()

    def knows(self, kind):
        return any(k == kind for k, _ in self.armed)

    def _drop_leftovers(self):
        for _, base in self.armed:
            with contextlib.suppress(OSError):
                for line in (base / "trigger").read_text().splitlines():
                    if line.startswith("hist:"):
                        _append(base / "trigger", "!" + line.split(" [")[0])
        self.armed = []
        with contextlib.suppress(OSError):
            self.instance.rmdir()
        with contextlib.suppress(OSError):
            _append(TRACEFS / "kprobe_events", f"-:{KICK_PROBE}")

    def snapshot(self, vm_pid, threads):
        """Everything as of now.  KVM's own counts are those of vm_pid's VM."""
        snap = Counter()
        for kind, base in self.armed:
            for keys, n in parse_hist((base / "hist").read_text()).items():
                snap[(kind, *keys)] = n
        for name, n in vm_stats(vm_pid).items():
            snap[("kvm", name)] = n
        for tid in threads.everyone():
            proc = Path(f"/proc/{tid}/task/{tid}")
            with contextlib.suppress(OSError):
                snap[("csw", tid)] = parse_status_csw((proc / "status").read_text())
                snap[("cpu", tid)] = parse_stat_cpu((proc / "stat").read_text(), self.hz)
        with contextlib.suppress(OSError):
            snap[("forced",)] = int(FORCED.read_text())
        interrupts = Path("/proc/interrupts").read_text()
        for name, n in parse_interrupts(interrupts).items():
            snap[("hostirq", name)] = n
        return snap, time.monotonic()


def vm_stats(pid):
    """KVM's statistics of the process's VM; one that never ran is a probe."""
    for vm in sorted(KVM_DEBUG.glob(f"{pid}-*")):
        stats = {}
        for entry in vm.iterdir():
            if entry.is_file():
                with contextlib.suppress(OSError, ValueError):
                    stats[entry.name] = int(entry.read_text())
        if stats.get("exits"):
            return stats
    return {}


def difference(a, b):
    """What was counted from a to b; a histogram that lost keys counts as 0."""
    return Counter({key: n - a.get(key, 0) for key, n in b.items() if n > a.get(key, 0)})


def threads_of(vcpus, backend_pids, poller_pids=()):
    """Sort threads: what is not a vCPU serves I/O, the VMM's other ones too."""
    return Threads(set(vcpus), _tasks(backend_pids) - set(vcpus), _tasks(poller_pids))


def _tasks(pids):
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found |= {int(tid) for tid in os.listdir(f"/proc/{pid}/task")}
    return found


def find_kthreads(prefix):
    """Kernel threads by name: our pollers."""
    pids = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            is_kernel = not (comm.parent / "cmdline").read_bytes()
            if is_kernel and comm.read_text().startswith(prefix):
                pids.append(int(comm.parent.name))
    return pids


def _append(path, text):
    # Not open(path, "a"): that seeks to the end, which kprobe_events refuses.
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, text.encode() + b"\n")
    finally:
        os.close(fd)


def _cpu_flags():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return line.split(":", 1)[1].split()
    return []
