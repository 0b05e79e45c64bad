# SPDX-License-Identifier: GPL-2.0
"""Where a core's time goes while it serves a load, by perf.

The clock is perf's cpu-clock: a virtual machine has no cycle counter to
sample by.  What runs with interrupts off is told at the place that turns them
on again.
"""

import re
import shutil
import subprocess
from pathlib import Path

HERTZ = 2000
SHOWN = 16
LINE = re.compile(
    r"^\s*(?P<share>[\d.]+)%\s+(?P<comm>\S.*?)\s+(?P<dso>\S+)\s+\[(?P<kind>[.k])\]\s+(?P<name>\S+)"
)


class Sampler:
    """Samples a core while the command it is put before runs."""

    def __init__(self, core, workdir):
        self.core = core
        self.data = Path(workdir) / "perf.data"
        # perf needs the addresses of the kernel's functions
        Path("/proc/sys/kernel/kptr_restrict").write_text("0\n")

    def before(self):
        """perf itself stays off the core: it runs where the player does."""
        return (
            *("taskset", "-c", "0", "perf", "record", "-q", "-e", "cpu-clock"),
            *("-F", HERTZ, "-C", self.core, "-o", self.data, "--"),
        )

    def report(self):
        argv = ["perf", "report", "-q", "--stdio", "--sort", "comm,dso,sym", "-i", self.data]
        text = subprocess.run(
            [str(a) for a in argv], capture_output=True, text=True, check=True
        ).stdout
        return parse(text, kernel_modules(Path("/proc/kallsyms").read_text()))


def available():
    return shutil.which("perf") is not None


def kernel_modules(kallsyms):
    """{function: module} of what is not built in."""
    found = {}
    for line in kallsyms.splitlines():
        words = line.split()
        if len(words) == 4:
            found[words[2]] = words[3].strip("[]")
    return found


def parse(text, modules):
    """[(share of the time at work, module, function)] of perf's report, the largest first."""
    rows = []
    for m in map(LINE.match, text.splitlines()):
        if m and m["comm"] not in ("swapper", "perf"):
            owner = modules.get(m["name"], "kernel") if m["kind"] == "k" else m["dso"].strip("[]")
            rows.append((float(m["share"]), owner, m["name"]))
    whole = sum(share for share, *_ in rows) or 1
    merged = {}
    for share, owner, name in rows:
        merged[owner, name] = merged.get((owner, name), 0) + share / whole
    return sorted(((share, *key) for key, share in merged.items()), reverse=True)


def of(rows, ns_per_io):
    """The same as ns of each I/O, by module and by function."""
    modules = {}
    for share, module, _ in rows:
        modules[module] = modules.get(module, 0) + share * ns_per_io
    return {
        "modules": dict(sorted(modules.items(), key=lambda item: -item[1])),
        "functions": [
            {"function": function, "module": module, "ns": share * ns_per_io}
            for share, module, function in rows[:SHOWN]
        ],
    }
