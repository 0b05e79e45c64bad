# SPDX-License-Identifier: GPL-2.0
"""Which traces count as the emulator's, and which only look so."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pvlab import detect, traces  # noqa: E402

CPU = """
CPU#{number}
RAX={rax:016x} RBX=0000000000000001
RIP={rip} RFL={flags:08x} [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT={halted}
"""
LAPIC = (
    "dumping local APIC state for CPU {number}\n\n"
    "Timer\t DCR=0xb (divide by 1) initial_count = {timer} current_count = {left}\n"
    "ESR\t 0x00000000\nISR\t {isr}\nIRR\t {irr}\n\nAPR 0x00 TPR 0x10\n"
)
ON, OFF = 0x246, 0x46


def cpu(**changes):
    """One CPU at one look: idle, unless CHANGES say otherwise."""
    idle = {
        "rax": 0,
        "rip": "ffffffff81e5c1ab",
        "flags": ON,
        "halted": 1,
        "timer": 4000,
        "left": 0,
        "isr": "(none)",
        "irr": "(none)",
    }
    return {**idle, **changes}


def looks(*cpus_of_each):
    """What traces.look() makes of them."""

    def ask(cpus, line):
        if line.startswith("info registers"):
            return "".join(CPU.format(number=i, **c) for i, c in enumerate(cpus))
        number = int(line.split()[-1])
        return LAPIC.format(number=number, **cpus[number])

    return [traces.look(lambda line, cpus=cpus: ask(cpus, line)) for cpus in cpus_of_each]


class Deaf(unittest.TestCase):
    def deaf(self, *same_cpu):
        return traces.deaf_cpus(looks(*([cpu(), one] for one in same_cpu)))

    def test_idle_is_well(self):
        self.assertEqual(self.deaf(cpu(), cpu(), cpu()), [])

    def test_halted_with_one_waiting_is_deaf(self):
        waits = [cpu(irr="236 251", left=n) for n in range(5)]
        self.assertEqual(self.deaf(*waits), [1])

    def test_halted_with_one_in_service_is_deaf(self):
        stuck = cpu(isr="251", irr="236")
        self.assertEqual(self.deaf(stuck, stuck, stuck), [1])

    def test_an_offlined_cpu_is_not(self):
        offline = cpu(irr="236", flags=OFF)
        self.assertEqual(self.deaf(offline, offline, offline), [])

    def test_one_that_spins_with_interrupts_off_is_not(self):
        spins = [cpu(irr="236", flags=OFF, halted=0, rax=n) for n in range(3)]
        self.assertEqual(self.deaf(*spins), [])

    def test_one_that_runs_and_takes_nothing_is(self):
        runs = [cpu(irr="236", halted=0, rax=n) for n in range(3)]
        self.assertEqual(self.deaf(*runs), [1])

    def test_one_that_did_not_run_between_two_looks_is_not_known_to_be(self):
        starved = cpu(irr="236", halted=0)
        self.assertEqual(self.deaf(starved, starved, starved), [])

    def test_an_idle_one_that_is_late_is_not(self):
        # It took a tick since: the timer has a new count.
        late = [cpu(irr="236", timer=n) for n in (4000, 4000, 3990)]
        self.assertEqual(self.deaf(*late), [])

    def test_one_look_says_nothing(self):
        self.assertEqual(self.deaf(cpu(irr="236")), [])
        self.assertEqual(traces.deaf_cpus([]), [])

    def test_it_is_told(self):
        told = traces.describe(looks([cpu(isr="251", flags=OFF)])[0])
        self.assertIn("halted at ffffffff81e5c1ab, interrupts off, in service 251", told)

    def test_no_monitor(self):
        seen, deaf = traces.look_at("/nonexistent", lambda seconds: None)
        self.assertIn("does not answer", seen)
        self.assertEqual(deaf, [])


class Reports(unittest.TestCase):
    def of(self, log):
        (report,) = detect.scan_text(log)
        return traces.of_report(report)

    def test_the_guests_clock(self):
        warn = "[ {}] WARNING: CPU: 0 PID: 1 at x.c:1\n"
        log = "[ 944.4] fine\n"
        self.assertEqual(self.of(log + warn.format("140.7")), traces.CLOCK)
        self.assertEqual(self.of(log + warn.format("945.0")), "")

    def test_an_interrupt_with_interrupts_off(self):
        log = """\
[ 152.5] WARNING: possible circular locking dependency detected
[ 152.6]  asm_sysvec_call_function_single+0x16/0x20
[ 152.6]  {}+0x1fd/0x510
[ 152.6]  {}+0x3b/0x60
"""

        def masked(*functions):
            return self.of(log.format(*functions)) == traces.MASKED

        self.assertTrue(masked("lock_acquire", "_raw_spin_lock_irqsave"))
        self.assertTrue(masked("lock_acquire", "_raw_spin_lock_irq"))
        self.assertFalse(masked("lock_acquire", "_raw_spin_lock"))
        self.assertFalse(masked("lock_acquire", "_raw_spin_lock_bh"))
        self.assertFalse(masked("lock_acquire", "? _raw_spin_lock_irqsave"))
        self.assertFalse(masked("_raw_spin_unlock_irqrestore", "_raw_spin_lock_irqsave"))


class Ends(unittest.TestCase):
    def test_an_assertion_of_the_emulator(self):
        said = (
            "ERROR:../../accel/tcg/tcg-accel-ops.c:81:tcg_handle_interrupt: assertion failed: (x())"
        )
        self.assertTrue(traces.aborted(f"it has ended\n{said}\nBail out!"))
        self.assertFalse(traces.aborted("ERROR:../../block/io.c:81:f: assertion failed: (x())"))
        self.assertFalse(traces.aborted("qemu-system-x86_64: terminating on signal 15"))

    def test_a_guest_that_ended_without_a_word(self):
        tail = (
            "# --- last lines of guest 'g'\n# [ 3.1] fine\n{}# QEMU ended with status {}\n# ---\n"
        )
        self.assertTrue(traces.lost_guest(tail.format("", 0)))
        warned = "# QEMU said: qemu-system-x86_64: warning: host has no x\n"
        self.assertTrue(traces.lost_guest(tail.format(warned, 0)))
        self.assertFalse(traces.lost_guest(tail.format("", 1)))
        self.assertFalse(traces.lost_guest(tail.format("", "0: the firmware, too")))
        self.assertFalse(traces.lost_guest("# QEMU ended with signal 11\n"))
        self.assertFalse(traces.lost_guest(tail.format("# QEMU said: qemu: vhost-user: lost\n", 0)))
        self.assertFalse(traces.lost_guest(tail.format("# [ 3.2] reboot: Restarting system\n", 0)))

    def test_a_guest_that_was_started_again(self):
        said = f"lab: guest 'a' {traces.STARTED_AGAIN}\nok 1 x\n"
        self.assertEqual(traces.silent_starts(said), ["a"])
        self.assertEqual(traces.silent_starts("ok 1 x\n"), [])


if __name__ == "__main__":
    unittest.main()
