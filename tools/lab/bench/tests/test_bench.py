#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The bench's pure parts: parsing, attribution, arithmetic, drawing."""

import json
import subprocess
import sys
import unittest
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from unittest import mock
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from pvbench import (  # noqa: E402
    counters,
    fio,
    modes,
    page,
    paths,
    polling,
    resume,
    rows,
    svg,
    table,
)

HIST = """# event histogram
#
# trigger info: hist:keys=common_pid,exit_reason:vals=hitcount:sort=hitcount:size=4096 [active]
#

{ common_pid:        812, exit_reason:        114 } hitcount:          3
{ common_pid:        812, exit_reason:       1024 } hitcount:         40
{ common_pid:        900, exit_reason:        120 } hitcount:          7

Totals:
    Hits: 50
    Entries: 3
    Dropped: 0
"""

INTERRUPTS = """           CPU0       CPU1
  0:         44          0   IO-APIC   2-edge      timer
 27:         10          5   PCI-MSI 65536-edge      nvme0q1
 28:          1          2   PCI-MSI 81920-edge      virtio1-req.0
NMI:          0          0   Non-maskable interrupts
"""

MACHINE = {"accelerator": "emulated (QEMU TCG)", "cpus": 2, "commit": "c", "host_kernel": "6.12"}


def a_row(path="virtio_blk/qemu-iothread", **changes):
    row = {
        "path": path,
        "op": "randread",
        "bs": 4096,
        "depth": 1,
        "jobs": 1,
        "vcpus": 1,
        "ios": 1000,
        "iops": 500.0,
        "lat_us": {"mean": 2000, "p50": 1900, "p99": 4000, "p99.9": 6000, "max": 9000},
        "exits": 5200,
        "exits_idle": 200,
        "kicks": 1000,
        "irqs": 1000,
        "csw": 2000,
        "syscalls": 3000,
        "exits_by_reason": {"hlt": 1000, "npf": 4200},
    }
    return {**row, **changes}


class Parsing(unittest.TestCase):
    def test_histogram(self):
        self.assertEqual(counters.parse_hist(HIST), {(812, 114): 3, (812, 1024): 40, (900, 120): 7})

    def test_histogram_negative_key(self):
        text = "{ common_pid: 5, ret:  -95 } hitcount: 4\n"
        self.assertEqual(counters.parse_hist(text), {(5, -95): 4})

    def test_empty_histogram(self):
        self.assertEqual(counters.parse_hist("# event histogram\n"), {})

    def test_block_interrupts_only(self):
        self.assertEqual(counters.parse_interrupts(INTERRUPTS), {"27": 15, "28": 3})

    def test_context_switches(self):
        text = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n"
        self.assertEqual(counters.parse_status_csw(text), 9)

    def test_cpu_time_of_a_thread_with_a_hostile_name(self):
        text = "7 (a) b (c) S 1 1 1 0 -1 0 0 0 0 0 30 12 0 0"
        self.assertEqual(counters.parse_stat_cpu(text, 100), 420_000)


class Attribution(unittest.TestCase):
    threads = counters.Threads(vcpus={1}, backend={2, 3}, pollers={4})

    def summary(self, delta, **kw):
        return counters.summarise(Counter(delta), self.threads, "svm", **kw)

    def test_exits_by_reason_are_the_guests_own(self):
        got = self.summary({("exit", 1, 0x78): 5, ("exit", 9, 0x78): 70})
        self.assertEqual(got["exits_by_reason"], {"hlt": 5})
        self.assertEqual(got["exits"], 5)

    def test_exits_of_the_emulations_own_are_left_out(self):
        delta = {("exit", 1, 0x60): 12, ("exit", 1, 0x78): 5, ("forced",): 10}
        got = self.summary(delta)
        self.assertEqual(got["exits_by_reason"], {"hlt": 5, "interrupt": 2})
        self.assertEqual(got["exits"], 7)
        self.assertEqual(self.summary({**delta, ("kvm", "exits"): 20})["exits"], 10)

    def test_kvms_own_count_of_exits_is_preferred(self):
        got = self.summary({("exit", 1, 0x78): 5, ("kvm", "exits"): 6})
        self.assertEqual(got["exits"], 6)

    def test_only_stores_that_signalled_are_kicks(self):
        got = self.summary({("kick", 1, 0): 8, ("kick", 1, -95): 30, ("kick", 9, 0): 4})
        self.assertEqual(got["kicks"], 8)

    def test_kicks_nobody_counted_are_unknown_not_none(self):
        self.assertIsNone(self.summary({}, kicks_known=False)["kicks"])

    def test_timer_vectors_and_reinjections_are_no_device_interrupts(self):
        got = self.summary(
            {
                ("inj", 1, 0x25, 0): 9,
                ("inj", 1, 0x25, 1): 2,
                ("inj", 1, 0xEC, 0): 50,
                ("kvm", "irq_injections"): 61,
            }
        )
        self.assertEqual((got["irqs"], got["irqs_all"]), (9, 61))

    def test_messages_count_where_the_apic_is_virtual(self):
        got = self.summary({("msi", 2): 9, ("kvm", "irq_injections"): 9})
        self.assertEqual(got["irqs"], 9)

    def test_no_interrupts_at_all(self):
        self.assertEqual(self.summary({("msi", 2): 0})["irqs"], 0)

    def test_switches_and_calls_by_thread(self):
        got = self.summary(
            {
                ("csw", 1): 1,
                ("csw", 2): 2,
                ("csw", 4): 4,
                ("sys", 1): 8,
                ("sys", 3): 16,
                ("sys", 9): 99,
            }
        )
        self.assertEqual((got["csw"], got["csw_vcpu"], got["poller_csw"]), (6, 1, 4))
        self.assertEqual((got["syscalls"], got["syscalls_vcpu"]), (16, 8))

    def test_difference_takes_new_keys_whole(self):
        self.assertEqual(
            counters.difference({"a": 1, "b": 5}, {"a": 3, "b": 5, "c": 2}), {"a": 2, "c": 2}
        )


def a_polling_row(who="a SCHED_IDLE thread (busy)", vcpus=1):
    lat = {"p50": 80, "p99": 400, "p99.9": 900, "max": 4000}
    run = {"ios": 100, "exits": 150, "exits_idle": 50, "irqs": 100, "iops": 50.0, "lat_us": lat}
    idle = {"exits": 400, "vcpu_cpu_us": 20_000, "window_s": 4.0}
    return {
        "who": who,
        "ours": "SCHED_IDLE" in who,
        "vcpus": vcpus,
        "alone": run,
        "deep": run,
        "beside": {n.name: {**run, "share": 0.48} for n in polling.NEIGHBOURS},
        "idle": idle,
        "rested": [{"lat_us": {"p50": p50}} for p50 in (90, 70, 80)],
    }


class Polling(unittest.TestCase):
    def test_what_a_busy_task_gets(self):
        self.assertEqual(polling.share("10.00 1000000000\n14.00 3000000000\n", 1), 0.5)
        self.assertEqual(polling.share("0.5 0\n10.00 0\n12.00 2000000000\n", 2), 0.5)

    def test_the_poller_keeps_a_cpu(self):
        self.assertEqual(list(polling.boots(1)), [])
        self.assertEqual([vcpus for vcpus, _ in polling.boots(2)], [1, 1])
        self.assertEqual([vcpus for vcpus, _ in polling.boots(8)], [1, 1, 2, 2])

    def test_the_guests_shell_can_read_what_it_is_given(self):
        words = dict.fromkeys(("device", "drivers", "parameters", "mode", "kthreads"), "w")
        read = fio.command("/dev/vda", polling.READ, 1, 4, more=["--hipri=1"], note="sh /run/note")
        for script in (
            polling.GIVE.format(**words),
            polling.TAKE.format(**words, iopoll=1),
            polling.COMPUTE.format(last=1, busy_us=300, rest_us=300),
            polling.NOTE,
            read,
        ):
            done = subprocess.run(["sh", "-n"], input=script, text=True, check=False)
            self.assertEqual(done.returncode, 0, script)

    def test_notes_are_taken_within_the_window(self):
        command = fio.command("/dev/vda", polling.READ, 1, 4, note="note")
        self.assertIn("--exec_prerun='echo B >&9; read -r _ <&9; note'", command)
        self.assertIn("--exec_postrun='note; echo E >&9; read -r _ <&9'", command)

    def test_loads(self):
        lines = rows.polling_cells(a_polling_row())
        cells = [dict(zip(rows.POLLING_HEADINGS, line, strict=True)) for line in lines]
        self.assertEqual([c["load"] for c in cells[:2]], ["alone", "alone, 32 at a time"])
        self.assertEqual(len(cells), 2 + len(polling.NEIGHBOURS))
        self.assertEqual(cells[0]["exits per I/O"], "1.50")
        self.assertEqual(cells[0]["caused"], "1.00")
        self.assertEqual([cells[0][k] for k in ("p99", "p99.9", "max")], ["400", "900", "4,000"])
        shares = [c["neighbour's share"] for c in cells]
        self.assertEqual(shares, ["", ""] + ["48%"] * len(polling.NEIGHBOURS))

    def test_at_rest(self):
        line = rows.resting_cells(a_polling_row())
        cells = dict(zip(rows.RESTING_HEADINGS, line, strict=True))
        self.assertEqual(cells["rested: p50 µs"], "80 (70 to 90)")
        self.assertEqual(cells["idle: exits a second"], "100")
        self.assertEqual(cells["idle: % of a CPU"], "0.50")

    def test_what_the_guest_does_without_reads(self):
        row = polling.with_baseline({"window_s": 6.0}, {"exits": 100, "window_s": 2.0})
        self.assertEqual(row["exits_idle"], 300)

    def test_candidates_by_their_names(self):
        self.assertEqual(polling.chosen([]), list(polling.CANDIDATES))
        self.assertEqual(len(polling.chosen(["mainline", "(busy)"])), 2)
        with self.assertRaises(paths.Unavailable):
            polling.chosen(["no such"])

    def test_a_neighbour_rests_unless_it_computes_always(self):
        ways = [(n.busy_us, n.rest_us) for n in polling.NEIGHBOURS]
        self.assertEqual(ways, [(1000, 0), (3000, 300), (300, 300)])

    def test_shown_on_both(self):
        doc = {"machine": MACHINE, "rows": [a_polling_row(), a_polling_row("nobody <irq>")]}
        self.assertIn("nobody <irq>", table.render_polling(doc))
        self.assertIn("nobody &lt;irq&gt;", page.render(polling=doc))


class Resuming(unittest.TestCase):
    def lost_twice(self, emulated):
        """A guest is lost before each of two pieces of three: (error, what was left, said)."""
        todo, lost, said = [1, 2, 3], {1, 3}, []

        def work():
            while todo:
                if todo[0] in lost:
                    lost.remove(todo[0])
                    raise RuntimeError("the guest is gone")
                del todo[0]

        with mock.patch.object(resume, "emulated", lambda: emulated):
            return resume.all_of("path", todo, work, said.append), todo, said

    def test_an_emulated_host_goes_on_where_it_was(self):
        error, left, said = self.lost_twice(emulated=True)
        self.assertEqual((error, left, len(said)), (None, [], 2))

    def test_elsewhere_a_failure_is_one(self):
        error, left, said = self.lost_twice(emulated=False)
        self.assertIsInstance(error, RuntimeError)
        self.assertEqual((left, said), ([1, 2, 3], ["path: FAILED: the guest is gone"]))


class Choosing(unittest.TestCase):
    def test_ops(self):
        self.assertEqual(
            fio.parse_ops("randread, write:64k"), [fio.Op("randread", 4096), fio.Op("write", 65536)]
        )
        self.assertEqual(fio.parse_ops(""), list(fio.DEFAULT_OPS))
        self.assertEqual([str(o) for o in fio.parse_ops("read")], ["read:32k", "read:128k"])

    def test_what_is_refused(self):
        for text in ("randwrite:0", "trim", "read:x", "read:4g"):
            with self.subTest(text), self.assertRaises(ValueError):
                fio.parse_ops(text)
        for text in ("0", "2000", "x"):
            with self.subTest(text), self.assertRaises(ValueError):
                fio.parse_depths(text)
        with self.assertRaises(ValueError):
            paths.choose(["nosuch"])

    def test_paths(self):
        names = [p.name for p in paths.choose(["virtio_blk/vhost_blk", "9p"])]
        self.assertEqual(names, ["9p/qemu", "virtio_blk/vhost_blk"])
        self.assertEqual(len(paths.choose([])), len(paths.ALL))

    def test_file_systems_of_the_host(self):
        chosen = paths.choose(["pvfs/vhost_fs", "pvblk+ext4"], ["ext4", "tmpfs"])
        self.assertEqual(
            [p.name for p in chosen],
            ["pvfs/vhost_fs (ext4)", "pvfs/vhost_fs", "virtio_pvblk+ext4/vhost_blk"],
        )
        self.assertEqual([p.fs for p in chosen[:2]], ["ext4", "tmpfs"])
        self.assertTrue(all(rows.is_ours(p.name) for p in chosen))
        with self.assertRaises(ValueError):
            paths.choose([], ["btrfs"])

    def test_a_disk_of_a_file_is_not_the_other_paths_one(self):
        env = SimpleNamespace(workdir="/none", device=Path("/dev/d"))
        self.assertEqual(paths.PvblkVhostBlk(env).disk, env.device)
        one = paths.Ext4PvblkVhostBlk(env)
        one.medium = SimpleNamespace(null=SimpleNamespace(path=Path("/dev/other")))
        self.assertEqual(one.disk, Path("/dev/other"))
        self.assertEqual([one.engine_at(depth) for depth in (1, 32)], ["psync", "libaio"])
        self.assertEqual(paths.PvblkVhostBlk(env).engine_at(1), "io_uring")


class Fio(unittest.TestCase):
    def test_the_measured_job_is_taken(self):
        got = fio.result("noise\n" + (HERE / "fio.json").read_text())
        self.assertEqual(got["ios"], 823233)
        self.assertEqual(got["lat_us"]["p50"], 3.22)

    def test_a_failed_job_is_an_error(self):
        doc = json.loads((HERE / "fio.json").read_text())
        doc["jobs"][1]["error"] = 5
        with self.assertRaises(RuntimeError):
            fio.result(json.dumps(doc))

    def test_gate_surrounds_the_measured_job_only(self):
        command = fio.command("/dev/vda", fio.DEFAULT_OPS[0], 32, 4)
        before, after = command.split("--name=row")
        self.assertNotIn("exec_", before)
        self.assertIn("--iodepth=32", before)
        self.assertIn("--stonewall", after)
        self.assertEqual((after.count("exec_prerun"), after.count("exec_postrun")), (1, 1))


class Showing(unittest.TestCase):
    def test_per_io(self):
        row = a_row()
        self.assertEqual(rows.per_io(row, "exits"), 5.2)
        self.assertEqual(rows.caused_per_io(row, "exits"), 5.0)
        self.assertEqual(rows.caused_per_io(row, "kicks"), 1.0)
        for of in (rows.per_io, rows.caused_per_io):
            self.assertIsNone(of(a_row(kicks=None), "kicks"))
        self.assertEqual(rows.caused(a_row(exits=3, exits_idle=9), "exits"), 0)

    def test_nearly_nothing_is_not_nothing(self):
        self.assertEqual(rows.number(0), "0")
        self.assertEqual(rows.number(0.0004), "<0.001")
        self.assertEqual(rows.number(None), "–")

    def test_emulation_is_said(self):
        doc = {"machine": MACHINE, "rows": [a_row()]}
        for text in (table.render(doc), page.render(doc)):
            self.assertIn("are not hardware", text)
        real = {**doc, "machine": {**MACHINE, "accelerator": "bare metal"}}
        for text in (table.render(real), page.render(real)):
            self.assertNotIn("are not hardware", text)

    def test_a_slow_disk_is_said(self):
        slow = {"machine": {**MACHINE, "disk_us": 20}, "rows": [a_row()]}
        self.assertIn("takes 20 us for each I/O", table.render(slow))
        self.assertIn("disk us 20", page.render(slow))
        self.assertNotIn("for each I/O", table.render({**slow, "machine": MACHINE}))

    def test_a_slow_disk_has_no_poll_queue(self):
        self.assertEqual(paths.that_takes(0), {})
        slow = paths.that_takes(20)
        self.assertEqual((slow["completion_nsec"], slow["poll_queues"]), (20_000, 0))

    def test_table_groups_and_aligns(self):
        doc = {
            "machine": MACHINE,
            "rows": [a_row(), a_row("9p/qemu", kicks=None), a_row(depth=32)],
            "skipped": [{"path": "x/y", "reason": "not built"}],
        }
        text = table.render(doc)
        self.assertEqual(text.count("randread 4 KiB"), 2)
        self.assertIn("not run: x/y: not built", text)
        lines = [line for line in text.splitlines() if "/qemu" in line]
        self.assertEqual(len({len(line) for line in lines[:2]}), 1)

    def test_modes_compare_within_a_round(self):
        def answer(iops, p50):
            lat = {"mean": p50, "p50": p50, "p99": 2 * p50}
            return {"ios": 3 * iops, "iops": iops, "cpu_pct": 4.96, "busy_pct": 1, "lat_us": lat}

        # The machine halves its speed in each round; one mode is always a tenth slower.
        rounds = [
            {m: answer(speed * (90 if m == "event" else 100), 12 / speed) for m in modes.MODES}
            for speed in (4, 2, 1)
        ]
        rows = {r["mode"]: r for r in modes.rows_of(rounds, "null_blk", 0, 32)}
        self.assertEqual(rows["adaptive"]["iops"], 200)
        self.assertEqual(rows["event"]["beside"]["busy"]["iops"], 0.9)
        text = table.render_modes({"machine": MACHINE, "rows": [rows["event"]]})
        self.assertRegex(
            text, r"null_blk +event +all it can +32 +180 +x0.90 +4.96 +6 +x1.00 +x1.00"
        )

    def test_table_of_an_idle_poller(self):
        nothing = {"ios": 0, "iops": 0, "cpu_pct": 0.04, "busy_pct": 0}
        nothing["lat_us"] = {"mean": 0, "p50": 0, "p99": 0}
        rounds = [dict.fromkeys(modes.MODES, nothing)] * 3
        rows = list(modes.rows_of(rounds, "null_blk", modes.IDLE, 1))
        text = table.render_modes({"machine": MACHINE, "rows": rows})
        self.assertRegex(text, r"adaptive +nothing +1 +0 +0.04")

    def test_page_stands_alone(self):
        doc = {"machine": MACHINE, "rows": [a_row("a<b>/vhost_blk"), a_row()]}
        text = page.render(doc)
        self.assertNotIn("a<b>", text)
        outside = []

        class Finder(HTMLParser):
            def handle_starttag(self, tag, attrs):
                outside.extend(v for k, v in attrs if k in ("src", "href"))

        Finder().feed(text)
        self.assertEqual(outside, [])
        self.assertNotIn("url(", text)

    def test_page_of_nothing(self):
        self.assertIn("</html>", page.render())


class Drawing(unittest.TestCase):
    def test_bars_are_to_scale(self):
        tree = ElementTree.fromstring(
            svg.bars(
                "t",
                [
                    ("a", 10, "peer", "10", 0),
                    ("b", 5, "ours", "5", 2),
                    ("c", 0, "peer", "0", 0),
                    ("d", None, "peer", "–", 0),
                ],
            )
        )
        widths = [float(r.get("width")) for r in tree.iter("rect")]
        self.assertAlmostEqual(widths[0], 2 * widths[2], delta=0.2)
        self.assertAlmostEqual(widths[3], 0.3 * widths[0], delta=0.2)
        self.assertEqual(len(widths), 4)

    def test_lines_of_one_point_and_of_none(self):
        ElementTree.fromstring(svg.lines("t", [("m", "busy", [(100, 5)])], "x", "y", True))
        self.assertEqual(svg.lines("t", [("m", "busy", [])], "x", "y"), "")

    def test_zero_load_free_of_percent_is_drawn(self):
        ElementTree.fromstring(svg.lines("t", [("m", "busy", [(10, 0), (100, 0)])], "x", "y"))


if __name__ == "__main__":
    unittest.main()
