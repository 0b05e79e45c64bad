# SPDX-License-Identifier: GPL-2.0
"""When a host VM counts as lost to the emulator."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pvlab import autopsy, detect  # noqa: E402

REGISTERS = """
CPU#0
RAX=0000000000000000 RBX=0000000000000001
RIP=ffffffff81e5c1ab RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1

CPU#1
RAX=0000000000000000 RBX=0000000000000001
RIP=00000000005107e7 RFL=00000202 [-------] CPL=3 II=0 A20=1 SMM=0 HLT=0
"""
LAPIC = (
    "dumping local APIC state\n\nESR\t 0x00000000\nISR\t {isr}\nIRR\t {irr}\n\nAPR 0x00 TPR 0x10\n"
)


def monitor(isr=("(none)", "(none)"), irr=("(none)", "(none)")):
    """A monitor of two CPUs, the first of them halted."""

    def ask(line):
        if line.startswith("info registers"):
            return REGISTERS
        cpu = int(line.split()[-1])
        return LAPIC.format(isr=isr[cpu], irr=irr[cpu])

    return ask


class Autopsy(unittest.TestCase):
    def deaf(self, *monitors):
        return autopsy.deaf_cpus([autopsy.look(m) for m in monitors])

    def test_idle_is_well(self):
        self.assertEqual(self.deaf(monitor(), monitor()), [])
        self.assertEqual(self.deaf(monitor(irr=("236", "(none)")), monitor()), [])

    def test_halted_with_one_waiting_is_deaf(self):
        lost = monitor(irr=("236 251", "(none)"))
        self.assertEqual(self.deaf(lost, lost, lost), [0])

    def test_in_a_handler_is_well(self):
        self.assertEqual(self.deaf(monitor(isr=("(none)", "236"))), [])

    def test_halted_with_one_in_service_is_deaf(self):
        stuck = monitor(isr=("251", "(none)"), irr=("236", "(none)"))
        self.assertEqual(self.deaf(stuck, stuck), [0])

    def test_what_passes_is_well(self):
        self.assertEqual(self.deaf(monitor(isr=("251", "(none)")), monitor()), [])

    def test_a_report_with_the_guests_clock(self):
        oops = "[ {}] BUG: unable to handle page fault\n"
        log = "[ 944.4] fine\n"
        self.assertTrue(autopsy.half_in_guest(detect.scan_text(log + oops.format("140.7"))))
        self.assertFalse(autopsy.half_in_guest(detect.scan_text(log + oops.format("945.0"))))

    def test_a_fault_in_the_entry_of_a_fault(self):
        log = """\
[ 867.6] BUG: TASK stack guard page was hit at 0 (stack is 1..2)
[ 867.6] CPU: 0 UID: 0 PID: 2915 Comm: {} Tainted: G
[ 867.6] RIP: 0010:{}+0x1a/0x170
"""

        def lost(comm, function):
            return autopsy.half_in_guest(detect.scan_text(log.format(comm, function)))

        self.assertTrue(lost("qemu-system-x86", "error_entry"))
        self.assertFalse(lost("qemu-system-x86", "vring_poll"))
        self.assertFalse(lost("vhost-poll/1-a", "error_entry"))

    def test_a_guest_with_the_hosts_state(self):
        said = """\
# # --- guest 'move': oops: BUG: #DF stack guard page was hit at 0 (stack is 1..2)
# # [   24.9] BUG: #DF stack guard page was hit at 0 (stack is 1..2)
# # [   24.9] CPU: 1 UID: 0 PID: 0 Comm: swapper/1 Tainted: G
# # [   24.9] RIP: 0010:{}+0x17/0x170
# # ---
# # --- guest 'move': warn: WARNING: stack recursion on stack type 5
# # [   24.9] RIP: 0010:error_entry+0x17/0x170
# # ---
"""
        self.assertTrue(autopsy.half_in_host(said.format("error_entry")))
        self.assertFalse(autopsy.half_in_host(said.format("pvblk_look")))
        self.assertFalse(autopsy.half_in_host(said.replace("guest 'move'", "host VM 'x'")))

    def test_a_breakpoint_that_was_gone(self):
        def stale(title):
            return autopsy.stale_code(detect.scan_text(f"[ 15.7] {title}\n"))

        self.assertTrue(stale("Oops: int3: 0000 [#1] PREEMPT SMP NOPTI"))
        self.assertFalse(stale("Oops: general protection fault: 0000 [#1] PREEMPT SMP NOPTI"))

    def test_an_interrupt_with_interrupts_off(self):
        log = """\
[ 152.5] WARNING: possible circular locking dependency detected
[ 152.6]  asm_sysvec_call_function_single+0x16/0x20
[ 152.6]  {}+0x1fd/0x510
[ 152.6]  {}+0x3b/0x60
"""

        def masked(*functions):
            return autopsy.interrupted_masked(detect.scan_text(log.format(*functions)))

        self.assertTrue(masked("lock_acquire", "_raw_spin_lock_irqsave"))
        self.assertTrue(masked("lock_acquire", "_raw_spin_lock_irq"))
        self.assertFalse(masked("lock_acquire", "_raw_spin_lock"))
        self.assertFalse(masked("lock_acquire", "_raw_spin_lock_bh"))
        self.assertFalse(masked("lock_acquire", "? _raw_spin_lock_irqsave"))
        self.assertFalse(masked("_raw_spin_unlock_irqrestore", "_raw_spin_lock_irqsave"))

    def test_an_assertion_of_the_emulator(self):
        said = (
            "ERROR:../../accel/tcg/tcg-accel-ops.c:81:tcg_handle_interrupt: assertion failed: (x())"
        )
        self.assertTrue(autopsy.aborted(f"it has ended\n{said}\nBail out!"))
        self.assertFalse(autopsy.aborted("ERROR:../../block/io.c:81:f: assertion failed: (x())"))
        self.assertFalse(autopsy.aborted("qemu-system-x86_64: terminating on signal 15"))

    def test_it_is_told(self):
        told = autopsy.describe(autopsy.look(monitor(isr=("251", "(none)"))))
        self.assertIn("CPU 0: halted at ffffffff81e5c1ab, interrupts in service 251", told)

    def test_no_monitor(self):
        seen, deaf = autopsy.of("/nonexistent", lambda: None)
        self.assertIn("does not answer", seen)
        self.assertEqual(deaf, [])


if __name__ == "__main__":
    unittest.main()
