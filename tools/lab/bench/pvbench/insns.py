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
from collections import Counter
from pathlib import Path

SHOWN = 16
# A poller's thread asks for the end once a round, and tells the policy of work.
ROUND, WORK = "kthread_should_stop", "vhost_poll_policy_work"
BREAK = re.compile(r"asm_sysvec_\w+|asm_common_interrupt|asm_exc_nmi|__schedule")
# null_blk enters it once for each request.
IO = "null_queue_rq"
USER_END = 1 << 47
CLASSES = ("other", "work", "idle", "broken", "guest")


def directory():
    return os.environ.get("LAB_INSNS_DIR", "")


def available():
    return bool(directory())


def _summary(cpu):
    """What a CPU of a window did, in a few words."""
    rounds = ", ".join(f"{cpu[c]['rounds']} {c} with {cpu[c]['ios']}" for c in CLASSES[1:4])
    return f"{cpu['all_ios']} I/Os, rounds: {rounds}"


def middle(rows):
    """The median of several windows, with the `spread` of all."""
    rows = sorted(rows, key=lambda r: r["insns"])
    middle = rows[len(rows) // 2]
    spread = (rows[-1]["insns"] - rows[0]["insns"]) / middle["insns"]
    return {**middle, "spread": spread}


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
        self.marks = list(self._marks())

    def at(self, address):
        """(module, function)."""
        if address < USER_END:
            return ("user", "")
        i = bisect.bisect_right(self.starts, address) - 1
        return self.names[i] if i >= 0 else ("kernel", hex(address))

    def _marks(self):
        """The plugin's marks as lines of text."""
        kinds = {ROUND: "round", WORK: "work", IO: "io"}
        for start, (_, name) in zip(self.starts, self.names, strict=True):
            kind = kinds.get(name) or ("break" if BREAK.fullmatch(name) else None)
            if kind:
                yield f"{kind} {start:#x}"


class Window:
    """What a window holds, by CPU and class."""

    def __init__(self, doc, symbols):
        self.cpus = doc["cpus"]
        self.totals = [Counter() for _ in self.cpus]
        self.functions = [{c: Counter() for c in CLASSES} for _ in self.cpus]
        for vaddr, insns, cpu, kind, times in doc["blocks"]:
            self.totals[cpu][kind] += insns * times
            # A nested guest's modules are not where the host's are.
            where = ("guest", "") if kind == "guest" else symbols.at(vaddr)
            self.functions[cpu][kind][where] += insns * times

    def served(self, cpu, rounds):
        """A row of what serves I/O on CPU.

        With ROUNDS: of the rounds at work that nothing broke into, by the I/Os of
        these.  Else of all that the CPU executed, by all I/Os.
        """
        found = self.cpus[cpu]
        ios = found["work"]["ios"] if rounds else found["all_ios"]
        if not ios:
            seen = "; ".join(f"CPU {i}: {_summary(c)}" for i, c in enumerate(self.cpus))
            raise RuntimeError(f"no I/O of CPU {cpu} in the window ({seen})")
        row = {"ios": ios, **self.cost(cpu, ["work"] if rounds else CLASSES, ios)}
        if rounds:
            idle = found["idle"]["rounds"]
            row["ios_per_round"] = ios / found["work"]["rounds"]
            row["idle_round"] = self.totals[cpu]["idle"] / idle if idle else None
        return row

    def sides(self, server):
        """Instructions of the CPU that serves, of nested guests, and of the rest."""
        own = self.totals[server]
        others = [t for cpu, t in enumerate(self.totals) if cpu != server]
        return {
            "server": sum(own[kind] for kind in ("other", "work", "broken")),
            "server_idle": own["idle"],
            "vcpu": sum(t["guest"] for t in self.totals),
            "rest": sum(t.total() - t["guest"] for t in others),
        }

    def cost(self, cpu, kinds, ios):
        """Instructions of CPU for each I/O, and the functions that they are in."""
        merged = sum((self.functions[cpu][kind] for kind in kinds), Counter())
        modules = Counter()
        for (module, _), insns in merged.items():
            modules[module] += insns / ios
        return {
            "insns": sum(merged.values()) / ios,
            "modules": dict(modules.most_common()),
            "functions": [
                {"function": name or module, "module": module, "insns": insns / ios}
                for (module, name), insns in merged.most_common(SHOWN)
            ],
        }


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


class Counting:
    """A window; `window` is what it held, after its end."""

    def __init__(self, known):
        self.dir = Path(directory())
        self.symbols = known
        self.window = None

    def __enter__(self):
        (self.dir / "marks").write_text("\n".join(self.symbols.marks) + "\n")
        self.before = set(self.dir.glob("*.json"))
        _execute(_machine_code(b"b"))
        return self

    def __exit__(self, kind, *rest):
        _execute(_machine_code(b"e"))
        if kind:
            return
        new = set(self.dir.glob("*.json")) - self.before
        if len(new) != 1:
            raise RuntimeError("the emulator's plugin wrote no window")
        path = new.pop()
        self.window = Window(json.loads(path.read_text()), self.symbols)
        path.unlink()
