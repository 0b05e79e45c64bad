# SPDX-License-Identifier: GPL-2.0
"""Traces that only QEMU's emulation of a CPU leaves.

QEMU's emulation of a CPU with nested guests has faults of its own: once in some
hundred programs it loses a host VM or a guest.  A trace is here only if our code
cannot leave it, neither in a guest nor on the host; the comment at each says why.
verdict.py decides what a trace explains.

Two traces were here once: an oops in the entry of a page fault, and one for a breakpoint
that is gone.  QEMU's emulator causes both, but verdict.py lets every oops stand.
"""

import re
import time
from dataclasses import dataclass

from .paths import LabError
from .qmp import Qmp

# Looks at the CPUs, and the time between two: a CPU whose thread only waits for the
# outer machine moves within that time.
LOOKS = 5
PAUSE_SECONDS = 2.0
INTERRUPTS_ON = 0x200

# Our code runs inside the emulated machine; it cannot reach the emulator's own state,
# whose consistency these assertions check.
ABORTED = "the emulator aborted by an assertion of its own"
_ABORT = re.compile(r"^(?:\[[ \d.]+\] )?ERROR:\S*accel/tcg/\S+: assertion failed", re.M)

# A CPU with interrupts on takes a waiting one before its next instruction, whatever
# that instruction is: no code can keep it from that for seconds.  (An offlined CPU,
# or one that spins with interrupts off, has them off: it is not deaf.)
DEAF = "a CPU of the host VM has interrupts on and takes none"

# The log's clock is the TSC.  It goes back by seconds only if a CPU of the host reads
# it with a guest's offset, and none of our code writes a TSC, an offset or that clock.
CLOCK = "the host's log has the clock of a guest"

# _raw_spin_lock_irqsave() turns interrupts off and then calls lock_acquire(); no code
# in between turns them on, so a CPU takes no interrupt there, whatever its caller did.
MASKED = "a CPU took an interrupt while it had interrupts off"
# A line of a trace that is not a guess ("? ") has one space before the function.
_NEXT = r"\+0x\S+\n(?:\[[ \d.]+\])? +"
_MASKED = re.compile(rf"asm_sysvec_\w+{_NEXT}lock_acquire{_NEXT}_raw_spin_lock_irq(?:save)?\+0x")

# The kernel's report begins with the flags that the CPU has just pushed.  No instruction sets the
# bits of them that are reserved, and no CPU pushes one of these that is set.
FLAGS = "a CPU had flags that no instruction can set"
_FLAGS = re.compile(r" EFLAGS: ([0-9a-f]{8})$", re.M)
_FLAGS_OF_A_CPU = 0x3F7FD7

# A QEMU that the lab did not end has status 0 for a reset of its guest only.  A kernel that
# QEMU loaded and that resets itself says so first: what is left is a triple fault, which the
# emulated CPU takes with a half-loaded state.  Memory that our code overwrote could end
# so as well, though hardly ever without an oops first.  So this trace never passes a
# program: it runs again, from its start; the same trace in two runs in a row, or more than
# three excused runs in a lane, is a failure.
LOST_GUEST = "a guest ended by a triple fault, without a word"
# As Guest.tail() says it.
_ENDED = re.compile(r"^[# ]*QEMU ended with status 0$", re.M)
_SAID = re.compile(r"^[# ]*QEMU said: (?!.*\bwarning: )", re.M)
_RESET = re.compile(r"\breboot: |Restarting system|Power down|sysrq: ", re.M)

# The guest's QEMU had set up each device and its vCPUs ran (guest.py asks its monitor),
# its kernel came from QEMU and not from a disk, and its console has not one byte: no
# driver of ours was loaded, and no request had gone to a disk.
SILENT_GUEST = "a guest said nothing while it started"
STARTED_AGAIN = "said nothing while it started: it starts once more"
_STARTED_AGAIN = re.compile(rf"guest '(?P<name>[^'\n]*)' {STARTED_AGAIN}")

# Our modules are loaded after the boot.  The stock kernel has no code of ours at all, so a report
# of it counts here, too.
NO_BOOT = "the host VM did not boot; no module of ours was in it"


@dataclass(frozen=True)
class Cpu:
    """One look at a CPU of the host VM."""

    halted: bool
    rip: str
    flags: int
    in_service: str
    waiting: str
    registers: str  # all of them
    apic: str  # all of it, without the count that runs by itself

    def takes_no(self, later):
        """Whether an interrupt that this CPU had to take still waited at the look LATER."""
        if not (self.flags & later.flags & INTERRUPTS_ON) or self.apic != later.apic:
            return False
        if self.halted and later.halted:
            busy = self.in_service != NONE or self.waiting != NONE
            return busy and self.registers == later.registers
        # It runs, and takes nothing.
        return (
            not self.halted
            and not later.halted
            and self.in_service == NONE
            and self.waiting != NONE
            and self.registers != later.registers
        )


NONE = "(none)"


def _field(pattern, text, otherwise="?"):
    found = re.search(pattern, text, re.M)
    return found[1].strip() if found else otherwise


def _cpu(registers, apic):
    return Cpu(
        halted=_field(r"HLT=(\d)", registers) == "1",
        rip=_field(r"RIP=([0-9a-f]+)", registers),
        flags=int(_field(r"RFL=([0-9a-f]+)", registers, "0"), 16),
        in_service=_field(r"^ISR\t *(.*)$", apic, NONE),
        waiting=_field(r"^IRR\t *(.*)$", apic, NONE),
        registers=registers,
        apic=re.sub(r"current_count = \d+", "", apic),
    )


def look(ask):
    """Each CPU, as ASK, a monitor's command, tells it."""
    parts = re.split(r"^CPU#\d+", ask("info registers -a"), flags=re.M)[1:]
    return [_cpu(part, ask(f"info lapic {i}")) for i, part in enumerate(parts)]


def deaf_cpus(looks):
    """The numbers of those that took no interrupt from each look to the next."""
    count = min(map(len, looks), default=0)
    pairs = list(zip(looks, looks[1:], strict=False))
    return [
        i for i in range(count) if pairs and all(one[i].takes_no(next_[i]) for one, next_ in pairs)
    ]


def describe(cpus):
    return "\n".join(
        f"CPU {i}: {'halted' if c.halted else 'running'} at {c.rip}, "
        f"interrupts {'on' if c.flags & INTERRUPTS_ON else 'off'}, "
        f"in service {c.in_service}, waiting {c.waiting}"
        for i, c in enumerate(cpus)
    )


def look_at(socket, pause=time.sleep):
    """(a text of what its CPUs do, those that are deaf) of the host VM with that monitor."""
    try:
        monitor = Qmp(socket, timeout=10)
        try:
            looks = []
            for i in range(LOOKS):
                if i:
                    pause(PAUSE_SECONDS)
                looks.append(look(lambda line: monitor("human-monitor-command", command_line=line)))
        finally:
            monitor.close()
    except (OSError, LabError, ValueError) as e:
        return f"its monitor does not answer: {e}", []
    return "\n".join(map(describe, looks)), deaf_cpus(looks)


def aborted(said):
    """Whether QEMU's last words are an assertion of its emulator."""
    return _ABORT.search(said) is not None


def of_report(report, of_host=True):
    """The trace that a kernel's report bears itself, or an empty string."""
    # A guest's log may begin anew.
    if of_host and report.clock_went_back:
        return CLOCK
    if _MASKED.search(str(report)):
        return MASKED
    flags = _FLAGS.search(str(report))
    return FLAGS if flags and int(flags[1], 16) & ~_FLAGS_OF_A_CPU else ""


def lost_guest(said):
    """Whether SAID, the words about one failure, tell of a guest lost by a triple fault."""
    return bool(_ENDED.search(said)) and not (_SAID.search(said) or _RESET.search(said))


def silent_starts(said):
    """The guests that were started once more because they said nothing."""
    return [m["name"] for m in _STARTED_AGAIN.finditer(said)]
