# SPDX-License-Identifier: GPL-2.0
"""make demo is red when a path of ours did not run."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

BENCH = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH.parent)]


def load_demo():
    """tools/lab/bench/demo as a module."""
    loader = importlib.machinery.SourceFileLoader("lab_demo", str(BENCH / "demo"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("lab_demo", loader))
    loader.exec_module(module)
    return module


def row(path):
    counts = dict.fromkeys(("exits", "kicks", "irqs", "csw", "syscalls"), 1)
    return {"path": path, "depth": 1, "ios": 10, **counts}


class Demo(unittest.TestCase):
    OURS = ("virtio_blk/vhost_blk", "virtio_pvblk/vhost_blk", "virtiofs/vhost_fs", "pvfs/vhost_fs")

    def demo(self, measured, poller=0, paths=0):
        """(its status, what it said is wrong) when rows of MEASURED come out."""
        demo = load_demo()
        with (
            tempfile.TemporaryDirectory() as out,
            mock.patch.object(demo, "OUT", Path(out)),
            mock.patch.object(demo, "run", return_value=0),
            mock.patch.object(demo.tree, "build"),
            mock.patch.object(demo.rows, "warning", return_value=""),
            mock.patch.object(sys, "argv", ["demo"]),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):

            def measure():
                doc = {"machine": {}, "rows": [row(p) for p in measured]}
                if measured:
                    (Path(out) / "bench.json").write_text(json.dumps(doc))
                return paths

            parts = {"the poller": lambda: poller, "the paths": measure}
            with mock.patch.object(demo, "PARTS", parts):
                return demo.main(), err.getvalue()

    def test_all_of_ours_ran(self):
        self.assertEqual(self.demo(["9p/qemu", *self.OURS]), (0, ""))

    def test_a_peer_may_be_missing(self):
        self.assertEqual(self.demo(self.OURS)[0], 0)

    def test_one_of_ours_may_not(self):
        for missing in self.OURS:
            status, said = self.demo([p for p in (*self.OURS, "9p/qemu") if p != missing])
            self.assertEqual(status, 1)
            self.assertIn(f"{missing} did not run", said)

    def test_nothing_at_all(self):
        self.assertIn("nothing was measured", self.demo([])[1])

    def test_the_poller(self):
        self.assertEqual(self.demo(self.OURS, poller=1), (1, "make demo: failed: the poller\n"))


if __name__ == "__main__":
    unittest.main()
