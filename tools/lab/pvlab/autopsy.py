# SPDX-License-Identifier: GPL-2.0
"""Whether it is the emulator that lost a host VM.

QEMU's emulation of a CPU with nested guests has faults of its own, which show
on a busy machine once in some hundred programs.  A run that met one has learned
nothing about what was tested.  Six leave traces that no module can:

Ended.  QEMU's emulator finds its own state wrong, and aborts.

Deaf.  The end of an interrupt is lost: the CPU's local APIC holds a vector in
service for ever, every lower one waits, and while its kernel idles nothing
complains, as to RCU and the watchdogs an idle CPU is a quiet one.  But a kernel
ends each interrupt before it can halt.  Or one waits, nothing is in service, and the
halted CPU is not told (lab_vmrun.c).  Seen through QEMU's monitor.

Half in the guest.  A CPU goes on with the host's kernel and a part of the
guest's state.  With the guest's clock its log goes back by minutes, to the age of
the guest.  Without its per-CPU base QEMU's thread, which runs the guest, faults
in the entry of the page fault, again and again, until its stack is full.

Half in the host.  The other way round: a guest goes on with the host's per-CPU base,
for which it has no memory, and faults in the entry of the page fault.

Stale code.  While one CPU patches a jump label another runs the breakpoint that
stood there for a moment after it is gone, and nobody knows it: "Oops: int3".

Interrupted with interrupts off.  A trace has an interrupt within the taking of a
lock that has just turned them off.  Lockdep reports what that would mean if it
could be.
"""

import re

from .paths import LabError
from .qmp import Qmp

SAMPLES = 3
FAULTS_IN_FAULT = re.compile(
    r"stack guard page was hit(?:(?!\n---).)*?"
    r"RIP: 0010:(?:error_entry|exc_page_fault|asm_exc_page_fault)\+",
    re.S,
)
# What a program prints of a guest's log, as comments, up to the next report.
OF_A_GUEST = re.compile(r"^[# ]*--- guest '.*?(?=^[# ]*---)", re.M | re.S)
# A line of a trace that is not a guess ("? ") has one space before the function.
_NEXT = r"\+0x\S+\n(?:\[[ \d.]+\])? +"
MASKED = re.compile(rf"asm_sysvec_\w+{_NEXT}lock_acquire{_NEXT}_raw_spin_lock_irq(?:save)?\+0x")
ABORT = re.compile(r"^ERROR:\S*accel/tcg/\S+: assertion failed", re.M)


def _field(pattern, text):
    found = re.search(pattern, text, re.M)
    return found[1].strip() if found else "?"


def _cpus(registers):
    """[(halted, instruction pointer)] out of `info registers -a`."""
    return [
        (_field(r"HLT=(\d)", part) == "1", _field(r"RIP=([0-9a-f]+)", part))
        for part in re.split(r"^CPU#\d+", registers, flags=re.M)[1:]
    ]


def _apic(text):
    return {n: _field(rf"^{n}\t *(.*)$", text) for n in ("ISR", "IRR")}


def look(ask):
    """[{halted, rip, ISR, IRR} of each CPU] as ASK, a monitor's command, tells it."""
    result = []
    for i, (halted, rip) in enumerate(_cpus(ask("info registers -a"))):
        result.append({"halted": halted, "rip": rip, **_apic(ask(f"info lapic {i}"))})
    return result


def is_deaf(cpu):
    """Halted with an interrupt in service, or waiting: if that lasts, it takes no other."""
    return cpu["halted"] and any(cpu[n] not in ("(none)", "?") for n in ("ISR", "IRR"))


def deaf_cpus(looks):
    """Those that were deaf in the same way each time one looked."""
    first = looks[0]
    return [
        i for i, cpu in enumerate(first) if is_deaf(cpu) and all(each[i] == cpu for each in looks)
    ]


def aborted(said):
    """Whether QEMU's last words are an assertion of its emulator."""
    return ABORT.search(said) is not None


def half_in_guest(reports):
    """Whether the host's kernel shows a guest's state in one of them."""
    return any(r.clock_went_back or _faults_in_fault(str(r)) for r in reports)


def stale_code(reports):
    """Whether a CPU met a breakpoint that was gone."""
    return any(r.title.startswith("Oops: int3: ") for r in reports)


def interrupted_masked(reports):
    """Whether a CPU took an interrupt that it had just turned off."""
    return any(MASKED.search(str(r)) for r in reports)


def half_in_host(said):
    """Whether a guest's kernel shows the host's state in what a program SAID."""
    return any(FAULTS_IN_FAULT.search(report) for report in OF_A_GUEST.findall(said))


def _faults_in_fault(text):
    return "Comm: qemu-system-x86 " in text and FAULTS_IN_FAULT.search(text) is not None


def describe(cpus):
    return "\n".join(
        f"CPU {i}: {'halted' if c['halted'] else 'running'} at {c['rip']}, "
        f"interrupts in service {c['ISR']}, waiting {c['IRR']}"
        for i, c in enumerate(cpus)
    )


def of(socket, wait):
    """(what there is to see, CPUs that are deaf); WAIT() passes time between two looks."""
    try:
        monitor = Qmp(socket, timeout=10)
        try:
            looks = []
            for _ in range(SAMPLES):
                looks.append(look(lambda line: monitor("human-monitor-command", command_line=line)))
                wait()
        finally:
            monitor.close()
    except (OSError, LabError) as e:
        return f"its monitor does not answer: {e}", []
    return "\n".join(describe(one) for one in looks), deaf_cpus(looks)
