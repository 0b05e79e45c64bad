# SPDX-License-Identifier: GPL-2.0
"""Instructions executed in a window, counted by the emulator's plugin.

Runs in the host VM.  The plugin, tools/lab/insns/insns.c, says what it counts;
begin() and end() execute the no-op at which it begins and ends a window.
"""

import bisect
import contextlib
import ctypes
import json
import mmap
import os
import re
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

SHOWN = 16
# Another task, or an NMI, whose handler ends with more than one IRET.
BREAK = re.compile(r"__schedule|asm_exc_nmi")
INTERRUPT = re.compile(r"asm_sysvec_\w+|asm_common_interrupt|asm_spurious_interrupt")
EXCEPTION = re.compile(r"asm_exc_\w+")
USER_END = 1 << 47
OURS = (
    *("vhost_poll", "vhost_serve", "vhost_blk", "vhost_fs"),
    *("virtio_poll", "virtio_pvblk", "pvfs"),
)
CLASSES = ("other", "work", "idle", "broken", "interrupt", "guest", "rest")


@dataclass(frozen=True)
class Loop:
    """The functions that the rounds of a loop enter: each one, one with work, each I/O.

    A poller's thread asks for the end once a round, and tells its policy of work.
    """

    io: str
    round: str = "kthread_should_stop"
    work: str = "vhost_poll_policy_work"
    idles: bool = True  # has rounds without work, between which I/Os are whole


def system_call(name, alone=True):
    """The loop of a program that makes this call over and over, or several, once this one."""
    entry = f"__x64_sys_{name}"
    call = "entry_SYSCALL_64"
    return Loop(io=entry, round=call, work=entry if alone else call, idles=False)


POLLER = Loop(io="null_queue_rq")
# The marks of a CPU whose server sleeps and is woken by another CPU: the idle loop is no part of
# its work; the interrupt that wakes it, and the switches to the idle task and back, are.
SLEEPER = {
    "do_idle": "rest",
    "schedule_idle": "go",
    "__schedule": "switch",
    "asm_exc_nmi": "break",
    "asm_sysvec_reschedule_ipi": "exception",
    "asm_sysvec_call_function_single": "exception",
}


# A CPU in one of these waits for another one: how long depends on the clock.
SPINS = ("native_queued_spin_lock_slowpath", "osq_lock", "mutex_spin_on_owner")


def directory():
    return os.environ.get("LAB_INSNS_DIR", "")


def available():
    return bool(directory())


def _summary(cpu):
    """What a CPU of a window did, in a few words."""
    rounds = ", ".join(f"{cpu[c]['rounds']} {c} with {cpu[c]['ios']}" for c in CLASSES[1:4])
    return f"{cpu['all_ios']} I/Os, rounds: {rounds}"


def quantile(ordered, share):
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class Symbols:
    """The kernel's functions by address."""

    def __init__(self, kallsyms):
        found = {}
        for line in kallsyms.splitlines():
            words = line.split()
            if words[1] in "tTwW":
                owner = words[3].strip("[]") if len(words) == 4 else "kernel"
                found.setdefault(int(words[0], 16), (owner, words[2]))
        self.starts = sorted(found)
        self.names = [found[start] for start in self.starts]
        self.found = found

    def entry(self, address):
        """The name of the function that begins there, or None."""
        return self.found.get(address, (None, None))[1]

    def at(self, address):
        """(module, function)."""
        if address < USER_END:
            return ("user", "")
        i = bisect.bisect_right(self.starts, address) - 1
        return self.names[i] if i >= 0 else ("kernel", hex(address))

    def sleeper_marks(self):
        """The plugin's marks of a server that sleeps, as lines of text."""
        yield f"user {USER_END:#x}"
        for start, (_, name) in zip(self.starts, self.names, strict=True):
            if name in SLEEPER:
                yield f"{SLEEPER[name]} {start:#x}"
            elif INTERRUPT.fullmatch(name):
                yield f"interrupt {start:#x}"
            elif EXCEPTION.fullmatch(name):
                yield f"exception {start:#x}"

    def marks(self, loop):
        """The plugin's marks as lines of text."""
        yield f"user {USER_END:#x}"
        for start, (_, name) in zip(self.starts, self.names, strict=True):
            for kind in ("round", "work", "io"):
                if name == getattr(loop, kind):
                    yield f"{kind} {start:#x}"
            if BREAK.fullmatch(name):
                yield f"break {start:#x}"
            elif INTERRUPT.fullmatch(name):
                yield f"interrupt {start:#x}"
            elif EXCEPTION.fullmatch(name):
                yield f"exception {start:#x}"


class Window:
    """What a window holds, by CPU and class."""

    def __init__(self, doc, symbols):
        self.cpus = doc["cpus"]
        self.totals = [Counter() for _ in self.cpus]
        self.functions = [{c: Counter() for c in CLASSES} for _ in self.cpus]
        self.entered = [{c: Counter() for c in CLASSES} for _ in self.cpus]
        for vaddr, insns, cpu, kind, times in doc["blocks"]:
            self.totals[cpu][kind] += insns * times
            # A nested guest's modules are not where the host's are.
            where = ("guest", "") if kind == "guest" else symbols.at(vaddr)
            self.functions[cpu][kind][where] += insns * times
            self.entered[cpu][kind][symbols.entry(vaddr)] += times

    def calls(self, cpu, names):
        """How often the samples of CPU enter one of these functions, for each I/O."""
        entered = self.entered[cpu]["work"]
        return sum(entered[name] for name in names) / self.cpus[cpu]["work"]["ios"]

    def served(self, cpu):
        """A row of all that serves I/O on CPU, by all I/Os."""
        ios = self.cpus[cpu]["all_ios"]
        self._need(ios, cpu, "I/O")
        return {"ios": ios, **self.cost(cpu, CLASSES, ios)}

    def executed(self, cpu, ios, user=True):
        """A row of all that CPU executed but waiting and the machine's interrupts, by IOS.

        `spun` is the waiting for locks.  Without USER: only what the kernel executed.
        """
        without = SPINS if user else (*SPINS, "")
        kinds = [kind for kind in CLASSES if kind not in ("idle", "interrupt", "rest")]
        spun = sum(
            insns
            for kind in kinds
            for (_, name), insns in self.functions[cpu][kind].items()
            if name in SPINS
        )
        return {"ios": ios, "spun": spun / ios, **self.cost(cpu, kinds, ios, without)}

    def sampled(self, cpu):
        """A row of the samples of CPU: `insns` is their median."""
        found = self.cpus[cpu]
        samples = found["samples"]
        self._need(samples, cpu, "whole sample")
        ios = found["work"]["ios"]
        costs = sorted(insns / n for n, _, insns in samples)
        idle = found["idle"]["rounds"]
        return {
            "ios": ios,
            "samples": len(samples),
            "broken_ios": found["broken"]["ios"],
            "interrupts": found["interrupts"],
            "ios_per_round": ios / found["work"]["rounds"],
            "idle_loop": self.totals[cpu]["rest"] / found["all_ios"],
            "idle_round": self.totals[cpu]["idle"] / idle if idle else None,
            **self.cost(cpu, ["work"], ios),
            "mean": self.totals[cpu]["work"] / ios,
            "insns": statistics.median(costs),
            "range": [costs[0], quantile(costs, 0.1), quantile(costs, 0.9), costs[-1]],
        }

    def _need(self, found, cpu, what):
        if not found:
            seen = "; ".join(f"CPU {i}: {_summary(c)}" for i, c in enumerate(self.cpus))
            raise RuntimeError(f"no {what} of CPU {cpu} in the window ({seen})")

    def sides(self, server):
        """Instructions of the CPU that serves, of nested guests, and of the rest."""
        own = self.totals[server]
        others = [t for cpu, t in enumerate(self.totals) if cpu != server]
        return {
            "server": own.total() - own["idle"] - own["guest"],
            "server_idle": own["idle"],
            "vcpu": sum(t["guest"] for t in self.totals),
            "rest": sum(t.total() - t["guest"] for t in others),
        }

    def cost(self, cpu, kinds, ios, without=()):
        """Instructions of CPU for each I/O, and the functions that they are in."""
        merged = sum((self.functions[cpu][kind] for kind in kinds), Counter())
        merged = Counter({where: n for where, n in merged.items() if where[1] not in without})
        modules = Counter()
        for (module, _), insns in merged.items():
            modules[module] += insns / ios
        return {
            "insns": sum(merged.values()) / ios,
            "modules": dict(modules.most_common()),
            "functions": _functions(merged.most_common(SHOWN), ios),
            "ours": _functions([f for f in merged.most_common() if f[0][0] in OURS][:SHOWN], ios),
        }


def _functions(counted, ios):
    return [
        {"function": name or module, "module": module, "insns": insns / ios}
        for (module, name), insns in counted
    ]


def _machine_code(letter):
    """nopl MAGIC(%rax,%rax,1); ret"""
    return b"\x0f\x1f\x84\x00pvi" + letter + b"\xc3"


def _execute(code):
    with contextlib.closing(mmap.mmap(-1, 4096, prot=7)) as page:
        page.write(code)
        start = ctypes.c_char.from_buffer(page)
        ctypes.CFUNCTYPE(None)(ctypes.addressof(start))()
        del start


def symbols():
    """The functions of the kernel and of the modules that are loaded.

    Reading them takes seconds under emulation, so do it before the load begins.
    """
    Path("/proc/sys/kernel/kptr_restrict").write_text("0\n")
    return Symbols(Path("/proc/kallsyms").read_text())


class OwnWindow:
    """A window that a program begins and ends itself; `window` is what it held."""

    def __init__(self, known, marks):
        self.dir = Path(directory())
        self.symbols = known
        self.window = None
        self.marks = list(marks)

    def __enter__(self):
        (self.dir / "marks").write_text("\n".join(self.marks) + "\n")
        self.before = set(self.dir.glob("*.json"))
        return self

    def __exit__(self, kind, *rest):
        if kind:
            return
        new = set(self.dir.glob("*.json")) - self.before
        if len(new) != 1:
            raise RuntimeError("the emulator's plugin wrote no window")
        path = new.pop()
        self.window = Window(json.loads(path.read_text()), self.symbols)
        path.unlink()


class Counting(OwnWindow):
    """A window from here to the end of `with`.

    LOOP has samples of SAMPLE I/Os or a few more: WANT of them at most, behind SKIP.
    """

    def __init__(self, known, loop=POLLER, sample=1, skip=0, want=4096):
        super().__init__(known, known.marks(loop))
        self.marks += [f"sample {sample:#x}", f"skip {skip:#x}"]
        self.marks += [f"want {want:#x}", f"any {int(not loop.idles):#x}"]

    def __enter__(self):
        super().__enter__()
        _execute(_machine_code(b"b"))
        return self

    def enough(self):
        """Whether a CPU has the samples that were wanted."""
        return (self.dir / "enough").exists()

    def __exit__(self, kind, *rest):
        _execute(_machine_code(b"e"))
        super().__exit__(kind, *rest)
