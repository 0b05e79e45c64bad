# SPDX-License-Identifier: GPL-2.0
"""How blocks become functions, and when an I/O takes too many instructions."""

import json
import sys
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from pvbench import counting, guestdisks, guestinsns, hostside, insns, insnstable  # noqa: E402

KALLSYMS = """
ffffffff81000100 T kthread_should_stop
ffffffff81000200 T asm_sysvec_reschedule_ipi
ffffffff81000300 D some_data
ffffffff81000400 T asm_exc_page_fault
ffffffff81000500 T asm_exc_nmi
ffffffff81000600 t __schedule
ffffffff81000700 T __x64_sys_pread64
ffffffff81000800 T entry_SYSCALL_64
ffffffffc0000000 t null_queue_rq\t[null_blk]
ffffffffc0001000 t vring_poll\t[vhost_blk]
ffffffffc0001100 T vhost_poll_policy_work\t[vhost_poll]
""".strip()


def rounds(work, ios, idle, samples=()):
    return {
        "all_ios": ios + 7,
        "interrupts": 3,
        "work": {"rounds": work, "ios": ios},
        "idle": {"rounds": idle, "ios": 0},
        "broken": {"rounds": 1, "ios": 7},
        "samples": list(samples),
    }


WINDOW = {
    "cpus": [rounds(0, 0, 0), rounds(5, 10, 2, [[4, 2, 16], [4, 2, 24], [2, 1, 10]])],
    "blocks": [
        [0xFFFFFFFFC0001010, 4, 1, "work", 10],
        [0xFFFFFFFF81000100, 2, 1, "work", 5],
        [0xFFFFFFFF81000100, 2, 1, "idle", 2],
        [0xFFFFFFFFC0001010, 4, 1, "broken", 7],
        [0xFFFFFFFF81000200, 9, 1, "interrupt", 1],
        [0xFFFFFFFFC0001010, 6, 0, "guest", 3],
        [0x401000, 3, 0, "other", 2],
    ],
}


class Counted(unittest.TestCase):
    def setUp(self):
        self.symbols = insns.Symbols(KALLSYMS)
        self.window = insns.Window(WINDOW, self.symbols)

    def test_marks_are_what_begins_a_round_what_is_work_and_what_breaks_in(self):
        self.assertEqual(
            list(self.symbols.marks(insns.POLLER)),
            [
                "user 0x800000000000",
                "round 0xffffffff81000100",
                "interrupt 0xffffffff81000200",
                "exception 0xffffffff81000400",
                "break 0xffffffff81000500",
                "break 0xffffffff81000600",
                "io 0xffffffffc0000000",
                "work 0xffffffffc0001100",
            ],
        )

    def test_marks_of_a_system_call(self):
        marks = set(self.symbols.marks(insns.system_call("pread64")))
        entry = {f"{kind} 0xffffffff81000700" for kind in ("work", "io")}
        self.assertLessEqual({"round 0xffffffff81000800", *entry}, marks)
        self.assertNotIn("io 0xffffffffc0000000", marks)

    def test_an_io_costs_the_median_of_the_samples(self):
        row = self.window.sampled(1)
        self.assertEqual((row["ios"], row["samples"], row["broken_ios"]), (10, 3, 7))
        self.assertEqual(row["insns"], 5.0)
        self.assertEqual(row["range"], [4.0, 4.0, 6.0, 6.0])
        self.assertEqual(row["idle_round"], 2)
        self.assertEqual(row["ios_per_round"], 2)
        self.assertEqual(row["modules"], {"vhost_blk": 4.0, "kernel": 1.0})

    def test_calls_are_counted_where_a_function_begins(self):
        self.assertEqual(self.window.calls(1, ["kthread_should_stop"]), 0.5)
        self.assertEqual(self.window.calls(1, ["vring_poll", "unknown"]), 0)

    def test_the_idle_loop_is_counted_by_all_ios(self):
        rest = [[0xFFFFFFFF81000600, 17, 1, "rest", 4]]
        window = insns.Window({**WINDOW, "blocks": WINDOW["blocks"] + rest}, self.symbols)
        self.assertEqual(window.sampled(1)["idle_loop"], 4)
        self.assertEqual(window.sampled(1)["insns"], self.window.sampled(1)["insns"])
        self.assertEqual(window.executed(1, 4)["insns"], self.window.executed(1, 4)["insns"])

    def test_functions_of_ours_are_listed_apart(self):
        row = self.window.sampled(1)
        ours = {"function": "vring_poll", "module": "vhost_blk", "insns": 4.0}
        self.assertEqual(row["ours"], [ours])
        self.assertEqual(len(row["functions"]), 2)

    def test_without_rounds_all_that_was_executed_counts(self):
        row = self.window.served(1)
        self.assertEqual((row["ios"], row["insns"]), (17, (40 + 10 + 4 + 28 + 9) / 17))

    def test_the_server_has_its_interrupts_and_not_its_idle_rounds(self):
        sides = self.window.sides(1)
        self.assertEqual(sides, {"server": 87, "server_idle": 4, "vcpu": 18, "rest": 6})

    def test_a_window_of_operations_has_other_tasks_and_no_idle_rounds(self):
        row = self.window.executed(1, 4)
        self.assertEqual((row["ios"], row["insns"]), (4, (40 + 10 + 28) / 4))

    def test_user_space_is_left_out_of_a_system_calls_operations(self):
        self.assertEqual(self.window.executed(0, 2)["insns"], (6 + 18) / 2)
        self.assertEqual(self.window.executed(0, 2, user=False)["insns"], 0)

    def test_a_guest_and_user_space_have_no_functions(self):
        self.assertEqual(self.window.functions[0]["guest"], {("guest", ""): 18})
        self.assertEqual(self.window.functions[0]["other"], {("user", ""): 6})

    def test_no_io_and_no_sample_are_errors(self):
        nothing = {"cpus": [{**rounds(0, 0, 0), "all_ios": 0}], "blocks": []}
        with self.assertRaisesRegex(RuntimeError, "no whole sample"):
            self.window.sampled(0)
        with self.assertRaisesRegex(RuntimeError, "no I/O"):
            insns.Window(nothing, self.symbols).served(0)


class Load:
    """A load that is a shell command."""

    path, depth, loop, sample, whole = "load", 1, insns.POLLER, 16, False

    def __init__(self, command):
        self.argv = ["sh", "-c", command]

    def command(self, secs):
        del secs
        return self.argv


class Begins(unittest.TestCase):
    """A window must not outlast its load, nor wait for ever."""

    def setUp(self):
        self.windows = []
        patches = [
            mock.patch.object(counting, "SETTLE", 0),
            mock.patch.object(counting, "LIMIT", 0.3),
            mock.patch.object(counting.insns, "Counting", self.window),
        ]
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def window(self, symbols, loop, sample, skip, want):
        del symbols, loop
        self.windows.append((sample, skip, want))
        found = mock.MagicMock()
        found.__enter__.return_value = found
        found.__exit__.return_value = False
        found.enough.return_value = False
        return found

    def test_a_load_that_ends_within_the_window_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "load: too bad"):
            counting.counted(Load("echo too bad >&2"), 0, None)

    def test_a_load_of_too_few_ios_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "51 samples of 16 I/Os took more"):
            counting.counted(Load("exec sleep 60"), 0, None)
        self.assertEqual(self.windows, [(16, 10, 41)])


class Loads(unittest.TestCase):
    def test_requests_are_counted_at_each_depth_that_fsload_has_and_calls_once(self):
        loads = counting.loads_of([], [1, 32, 128], ["read"])
        rows = [(load.path, load.depth) for load in loads]
        ring = "ring/vhost_fs read"
        self.assertEqual(rows, [(ring, 1), (ring, 32), ("host read", 1)])
        self.assertEqual(loads[1].command(9)[1:], ["read", "tmpfs", 9, "--depth", 32, "--burst"])

    def test_calls_make_as_many_files_at_a_time_as_requests(self):
        loads = counting.loads_of([], [1, 32, 128], ["create"])
        rows = [(load.path, load.depth) for load in loads]
        ring, host = "ring/vhost_fs create", "host create"
        self.assertEqual(rows, [(ring, 1), (ring, 32), (host, 1), (host, 32)])
        self.assertTrue(all(load.whole for load in loads))

    def test_fsload_reads_one_directory_at_a_time(self):
        loads = counting.loads_of([], [1, 32], ["readdirplus"])
        rows = [(load.path, load.depth) for load in loads]
        self.assertEqual(rows, [("ring/vhost_fs readdirplus", 1), ("host readdirplus", 1)])


class Whole(unittest.TestCase):
    """The poller's thread does an operation after its round."""

    def test_one_at_a_time_it_has_no_samples(self):
        loads = counting.loads_of([], [1, 32], ["read", "write"])
        whole = [(load.path, load.depth) for load in loads if load.whole]
        self.assertEqual(whole, [("ring/vhost_fs write", 1), ("host write", 1)])

    def counted(self, load):
        """Its row, and the command line."""
        with (
            mock.patch.object(counting.hostside, "output_of") as run,
            mock.patch.object(counting.insns, "OwnWindow") as window,
        ):
            run.return_value = '{"hot": 2048, "punted": 0, "handoffs": 0, "csw": 7}'
            found = window.return_value.__enter__.return_value
            found.window.executed.side_effect = lambda cpu, ios, user: {"of": (cpu, ios, user)}
            row = counting.counted(load, 0.5, mock.MagicMock())
        return row, run.call_args.args[0][1:]

    def test_a_window_ends_after_so_many_operations(self):
        row, argv = self.counted(counting.File("write", False))
        self.assertEqual((row["path"], row["depth"]), ("ring/vhost_fs write", 1))
        self.assertEqual(row["of"], (1, 2048, True))
        self.assertEqual((row["hot"], row["punted"], row["handoffs"]), (2048, 0, 0))
        self.assertEqual(argv, ["write", "tmpfs", 0, "--depth", 1, "--burst", "--times", 2048])

    def test_a_long_one_is_done_less_often_and_a_call_counts_without_its_program(self):
        row, argv = self.counted(counting.File("create", True))
        self.assertEqual((row["path"], row["of"]), ("host create", (1, 256, False)))
        self.assertEqual(argv, ["create", "tmpfs", 0, "--depth", 1, "--host", "--times", 256])


class Middle(unittest.TestCase):
    def test_the_median_of_the_windows_and_their_spread(self):
        row = counting.middle([{"insns": 110}, {"insns": 90}, {"insns": 100}])
        self.assertEqual(row, {"insns": 100, "windows": [90, 100, 110], "spread": 0.2})


def doc_of(count, path=hostside.VHOST_BLK, **machine):
    row = {"path": path, "depth": 1, "insns": count}
    return {"machine": {"kernel": "6.12", "compiler": "GCC", **machine}, "rows": [row]}


ROW = {
    "depth": 1,
    "ios": 656,
    "windows": [1],
    "modules": {},
    "ours": [],
    "functions": [],
    "calls": {"kicks": 1, "irqs": 0.001},
}


class Guests(unittest.TestCase):
    """A guest that is not nested."""

    def test_a_devices_interrupt_and_the_scheduler_are_part_of_a_call(self):
        lines = {
            "entry_SYSCALL_64": ["round", "work"],
            "asm_common_interrupt": ["exception"],
            "asm_sysvec_apic_timer_interrupt": ["interrupt"],
            "asm_exc_page_fault": ["exception"],
            "__schedule": ["switch"],
            "do_idle": ["rest"],
            "virtio_poll_cpu_wanted": ["spin"],
            "pvfs_request_reply": ["found"],
            "pvblk_iopoll": ["spin"],
            "blk_mq_complete_request_remote": ["found"],
            "__x64_sys_pread64": ["io"],
            "__x64_sys_pwrite64": [],
        }
        for name, kinds in lines.items():
            with self.subTest(name):
                self.assertEqual(list(guestinsns.kinds_of(name, "__x64_sys_pread64")), kinds)

    def test_marks_are_written_with_the_size_of_a_sample(self):
        lines = list(guestinsns.marks(insns.Symbols(KALLSYMS), "__x64_sys_pread64"))
        self.assertIn("io 0xffffffff81000700", lines)
        self.assertIn("work 0xffffffff81000800", lines)
        self.assertEqual(lines[-4:], ["sample 0x10", "skip 0xa", "want 0x29", "any 0x1"])

    def test_a_part_is_told_by_module_or_name(self):
        functions = {
            ("pvfs", "pvfs_add"): 10,
            ("virtio_poll", "virtio_poll_watch"): 6,
            ("virtio_pvblk", "pvblk_prep"): 20,
            ("virtio_blk", "virtblk_done"): 22,
            ("kernel", "blk_mq_submit_bio"): 24,
            ("kernel", "io_submit_sqes"): 26,
            ("kernel", "__update_load_avg_se"): 28,
            ("kernel", "io_schedule"): 2,
            ("kernel", "handle_edge_irq"): 34,
            ("kernel", "__fuse_simple_request"): 8,
            ("kernel", "request_wait_answer"): 4,
            ("kernel", "virtio_fs_enqueue_req"): 2,
            ("kernel", "virtqueue_add_sgs"): 12,
            ("kernel", "vfs_read"): 14,
        }
        found = {
            "interrupts": 17,
            "scheduler": 15,
            "io_uring": 13,
            "block layer": 12,
            "virtio_blk": 11,
            "virtio_pvblk": 10,
            "other": 7,
            "virtio": 6,
            "FUSE core": 6,
            "pvfs": 5,
            "virtio_poll": 3,
            "virtio_fs": 1,
        }
        self.assertEqual(guestinsns.parts(functions, 2), found)

    def test_each_row_of_ours_is_compared_with_mainlines_of_the_same_depth(self):
        counts = {
            "guest pvfs read": 300,
            "guest virtiofs read": 800,
            "guest pvfs stat": 5,
            "guest virtio_blk read": 20,
            "guest virtio_pvblk read": 10,
            "guest virtio_pvblk+iopoll read": 8,
            "host read": 200,
        }
        rows = [doc_of(count, path)["rows"][0] for path, count in counts.items()]
        rows.append({"path": "guest virtio_pvblk read", "depth": 32, "insns": 3})
        pairs = insnstable.guest_pairs(rows)
        found = [(ours["insns"], theirs["insns"]) for ours, theirs in pairs]
        self.assertEqual(found, [(300, 800), (10, 20), (8, 20)])

    def test_the_comparison_says_what_the_idle_loop_adds(self):
        machine = {"commit": "c"}
        rows = [
            {**ROW, "path": f"guest virtio_{name} pread", "insns": insns, "idle_loop": rest}
            for name, insns, rest in (("blk", 100, 60), ("pvblk", 90, 6))
        ]
        text = insnstable.render_guest({"machine": machine, "rows": rows}, {"rows": []})
        self.assertIn(
            "pread, depth 1: 90.0 by virtio_pvblk, 100.0 by virtio_blk: 0.90 times; "
            "with the idle loop's 6.0 and 60.0: 0.60 times",
            text,
        )
        self.assertIn("    656 I/Os, and for each 1.00 kicks, 0.00 irqs", text)

    def test_a_row_that_is_not_kept_is_not_judged(self):
        doc = doc_of(300, "guest pvfs read")
        self.assertEqual(insnstable.worse(doc, {"rows": []}), [])
        kept = json.loads(insnstable.kept(doc, {"rows": []}))
        self.assertEqual(len(insnstable.worse(doc_of(400, "guest pvfs read"), kept)), 1)


class Disks(unittest.TestCase):
    """The loads on a guest's disk."""

    def test_each_operation_at_each_depth_and_one_at_a_time_by_a_system_call(self):
        found = guestdisks.loads("virtio_blk", ["read", "stat"], [1, 32])
        rows = [(load.path, load.depth) for load in found]
        read = "guest virtio_blk read"
        self.assertEqual(rows, [("guest virtio_blk pread", 1), (read, 1), (read, 32)])

    def test_a_system_call_does_not_poll(self):
        found = guestdisks.loads("virtio_pvblk+iopoll", ["write"], [32])
        self.assertEqual([load.path for load in found], ["guest virtio_pvblk+iopoll write"])

    def test_a_burst_is_one_turn_of_the_program_and_a_sample(self):
        load = guestdisks.Load("virtio_pvblk", "write", 32)
        self.assertEqual(load.command("vdaa", (200, 864)), "guestload -u 32 write /dev/vdaa 13 54")
        load = guestdisks.Load("virtio_pvblk+iopoll", "read")
        self.assertEqual(
            load.command("vdaa", (200, 864)), "guestload -u 1 -p read /dev/vdaa 200 864"
        )
        load = guestdisks.Load("virtio_blk", "read", call=True)
        self.assertEqual(load.command("vda", (200, 864)), "guestload read /dev/vda 200 864")


class Kept(unittest.TestCase):
    def setUp(self):
        self.kept = json.loads(insnstable.kept(doc_of(1000.0), {"rows": []}))

    def test_five_percent_more_is_too_many(self):
        self.assertEqual(insnstable.worse(doc_of(1050), self.kept), [])
        self.assertEqual(len(insnstable.worse(doc_of(1051), self.kept)), 1)

    def test_a_row_that_is_not_kept_is_found(self):
        self.assertEqual(len(insnstable.worse(doc_of(1), {"rows": []})), 1)

    def test_others_may_take_what_they_like(self):
        self.assertEqual(insnstable.worse(doc_of(9999, hostside.URING), self.kept), [])

    def test_another_kernel_or_compiler_does_not_compare(self):
        self.assertIn("kernel", insnstable.incomparable(doc_of(1, kernel="7.0"), self.kept))
        self.assertIn("compiler", insnstable.incomparable(doc_of(1, compiler="clang"), self.kept))
        self.assertEqual(insnstable.incomparable(doc_of(1000), self.kept), "")

    def test_rows_that_were_not_counted_stay_if_they_still_compare(self):
        old = json.loads(insnstable.kept(doc_of(2, "ring/vhost_fs read"), self.kept))
        self.assertEqual(len(old["rows"]), 2)
        new = json.loads(insnstable.kept(doc_of(2, compiler="clang"), old))
        self.assertEqual(len(new["rows"]), 1)

    def test_a_request_is_compared_with_its_system_call(self):
        rows = doc_of(300, "ring/vhost_fs read")["rows"] + doc_of(200, "host read")["rows"]
        rows += [{"path": "ring/vhost_fs read", "depth": 32, "insns": 250}]
        rows += doc_of(9, "ring/vhost_fs lookup")["rows"]
        found = [("read", 1, 300, 200, 1.5), ("read", 32, 250, 200, 1.25)]
        self.assertEqual(list(insnstable.ratios(rows)), found)
        rows = [{"path": "ring/vhost_fs create", "depth": 32, "insns": 300}]
        rows += [{"path": "host create", "depth": d, "insns": n} for d, n in ((1, 100), (32, 200))]
        self.assertEqual(list(insnstable.ratios(rows)), [("create", 32, 300, 200, 1.5)])


if __name__ == "__main__":
    unittest.main()
