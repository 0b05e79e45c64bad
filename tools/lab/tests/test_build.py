# SPDX-License-Identifier: GPL-2.0
"""The build's scripts: what they refuse, what they leave alone."""

import importlib.machinery
import importlib.util
import os
import shutil
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

TOP = Path(__file__).resolve().parents[3]


def load(path):
    """A script without a suffix, as a module."""
    loader = importlib.machinery.SourceFileLoader(path.name + "_script", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    with mock.patch("sys.dont_write_bytecode", True):
        loader.exec_module(module)
    return module


class Temporary(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def put(self, name, text="", mode=0o644):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path


class PrivateHeader(Temporary):
    """scripts/private-header takes vhost.h of exactly the kernel, or says why not."""

    RELEASE = "6.12.9-test"

    def run_it(self, headers, source):
        """With a dpkg that knows these versions of the two packages."""
        self.put("kdir/include/config/kernel.release", self.RELEASE + "\n")
        answer = (
            "#!/bin/sh\nfor last; do :; done\ncase $last in\n"
            f"linux-headers-*) printf '%s' '{headers}'; [ -n '{headers}' ] ;;\n"
            f"linux-source-*) printf '%s' '{source}'; [ -n '{source}' ] ;;\nesac\n"
        )
        self.put("bin/dpkg-query", answer, 0o755)
        env = {**os.environ, "PATH": f"{self.dir}/bin:{os.environ['PATH']}"}
        env["XDG_CACHE_HOME"] = str(self.dir / "cache")
        header = "drivers/vhost/vhost.h"
        command = [TOP / "scripts/private-header", self.dir / "kdir", "", header, self.dir / "out"]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    def header(self):
        return (self.dir / "out/vhost.h").read_text()

    def test_same_version_is_taken(self):
        self.put("cache/pvio-lab/linux-source/6.12.9-1/drivers/vhost/vhost.h", "right")
        done = self.run_it("6.12.9-1", "6.12.9-1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.header(), "right")

    def test_the_packages_own_file_is_taken_not_the_patched_one(self):
        """... even if an earlier run took the patched one."""
        tree = "cache/pvio-lab/linux-source/6.12.9-1"
        self.put(f"{tree}/drivers/vhost/vhost.h", "patched")
        self.put(f"{tree}/.pvio/orig/drivers/vhost/vhost.h", "right")
        self.put("out/vhost.h", "patched")
        self.put("out/version", "6.12.9-1\n")
        self.assertEqual(self.run_it("6.12.9-1", "6.12.9-1").returncode, 0)
        self.assertEqual(self.header(), "right")

    def test_other_version_is_refused_in_one_line(self):
        self.put("cache/pvio-lab/linux-source/6.12.8-1/drivers/vhost/vhost.h", "wrong")
        done = self.run_it("6.12.9-1", "6.12.8-1")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("install linux-source-6.12=6.12.9-1", done.stderr)
        self.assertFalse((self.dir / "out/vhost.h").exists())

    def test_missing_package_is_named(self):
        done = self.run_it("6.12.9-1", "")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("install linux-source-6.12=6.12.9-1", done.stderr)

    def test_header_of_a_built_tree_is_preferred(self):
        self.put("kdir/drivers/vhost/vhost.h", "tree")
        done = self.run_it("", "")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(self.header(), "tree")

    def test_same_header_is_not_touched(self):
        self.put("kdir/drivers/vhost/vhost.h", "tree")
        self.run_it("", "")
        os.utime(self.dir / "out/vhost.h", (1, 1))
        self.run_it("", "")
        self.assertEqual((self.dir / "out/vhost.h").stat().st_mtime, 1)


class Tree(Temporary):
    """scripts/tree changes no file that need not change, and none of the kernel's."""

    PATCH = (
        "a patch\n---\ndiff --git a/block/core.c b/block/core.c\n"
        "--- a/block/core.c\n+++ b/block/core.c\n@@ -1 +1 @@\n-old\n+{}\n"
    )
    NEW_FILE = (
        "a patch\n---\ndiff --git a/block/new.c b/block/new.c\nnew file mode 100644\n"
        "--- /dev/null\n+++ b/block/new.c\n@@ -0,0 +1 @@\n+made\n"
    )

    def setUp(self):
        super().setUp()
        self.tree = load(TOP / "scripts/tree")
        self.tree.TOP = self.dir / "ours"
        self.dest = self.dir / "dest"
        self.put("dest/block/core.c", "old\n")
        self.put("dest/.pvio/version", "1")
        self.put("ours/patches/0001-x.patch", self.PATCH.format("new"))
        self.put("ours/drivers/a.c", "a")

    def lay(self):
        self.tree.apply_patches(self.dest)
        self.tree.lay_overlay(self.dest)

    def core(self):
        return (self.dest / "block/core.c").read_text()

    def test_lays_patches_and_files(self):
        self.lay()
        self.assertEqual(self.core(), "new\n")
        self.assertEqual((self.dest / "drivers/a.c").read_text(), "a")

    def test_a_tree_of_somebody_else_is_left_alone(self):
        self.put("theirs/scripts/checkpatch.pl", "")
        with self.assertRaisesRegex(SystemExit, "not made by this script"):
            self.tree.unpack(self.dir / "theirs", "1")
        self.assertEqual(os.listdir(self.dir / "theirs"), ["scripts"])

    def test_a_tree_of_another_version_is_left_alone(self):
        with self.assertRaisesRegex(SystemExit, "holds linux-source-6.12 1, and 2 is installed"):
            self.tree.unpack(self.dest, "2")
        self.assertEqual(self.core(), "old\n")

    def test_a_new_tree_is_unpacked_beside_what_is_there(self):
        self.put("new.part/theirs", "")

        def tar(argv, **_):
            (Path(argv[2]) / "Makefile").touch()

        with mock.patch.object(self.tree.subprocess, "run", tar):
            self.tree.unpack(self.dir / "new", "3")
        self.assertEqual(sorted(os.listdir(self.dir / "new")), [".pvio", "Makefile"])
        self.assertEqual(os.listdir(self.dir / "new.part"), ["theirs"])

    def test_a_tree_that_cannot_be_unpacked_leaves_nothing(self):
        with (
            mock.patch.object(self.tree.subprocess, "run", side_effect=OSError),
            self.assertRaises(OSError),
        ):
            self.tree.unpack(self.dir / "new", "3")
        self.assertEqual([n for n in os.listdir(self.dir) if n.startswith("new")], [])

    def test_again_touches_nothing(self):
        self.lay()
        for name in ("block/core.c", "drivers/a.c"):
            os.utime(self.dest / name, (1, 1))
        self.lay()
        for name in ("block/core.c", "drivers/a.c"):
            self.assertEqual((self.dest / name).stat().st_mtime, 1, name)

    def test_changed_patch_starts_from_the_original(self):
        self.lay()
        self.put("ours/patches/0001-x.patch", self.PATCH.format("newer"))
        self.lay()
        self.assertEqual(self.core(), "newer\n")

    def test_removed_patch_and_file_are_taken_back(self):
        self.lay()
        (self.dir / "ours/patches/0001-x.patch").unlink()
        (self.dir / "ours/drivers/a.c").unlink()
        self.lay()
        self.assertEqual(self.core(), "old\n")
        self.assertFalse((self.dest / "drivers/a.c").exists())

    def test_a_file_that_a_patch_makes_is_made_again_and_taken_back(self):
        self.put("ours/patches/0002-y.patch", self.NEW_FILE)
        for _ in range(2):
            self.lay()
            self.assertEqual((self.dest / "block/new.c").read_text(), "made\n")
        (self.dir / "ours/patches/0002-y.patch").unlink()
        self.lay()
        self.assertFalse((self.dest / "block/new.c").exists())

    def test_kernels_own_file_is_not_replaced(self):
        self.put("dest/drivers/a.c", "the kernel's")
        with self.assertRaisesRegex(SystemExit, "drivers/a.c"):
            self.lay()
        self.assertEqual((self.dest / "drivers/a.c").read_text(), "the kernel's")

    def test_patch_that_does_not_apply_is_named(self):
        self.put("dest/block/core.c", "other\n")
        with self.assertRaisesRegex(SystemExit, "0001-x.patch does not apply"):
            self.lay()


class KernelKey(unittest.TestCase):
    """What makes another debug kernel, and what does not."""

    def setUp(self):
        self.build = load(TOP / "tools/lab/kernel/build")
        self.build.compiler = lambda: "12"

    def test_version_matters(self):
        self.assertNotEqual(self.build.key("1"), self.build.key("2"))

    def test_comments_do_not_matter_and_options_do(self):
        before = self.build.key("1")
        with tempfile.TemporaryDirectory() as tmp:
            copy = Path(tmp) / "debug.config"
            text = self.build.FRAGMENT.read_text()
            self.build.FRAGMENT = copy
            copy.write_text("# more\n" + text)
            self.assertEqual(self.build.key("1"), before)
            copy.write_text(text + "CONFIG_MORE=y\n")
            self.assertNotEqual(self.build.key("1"), before)

    def test_plain_kernel_leaves_out_what_finds_mistakes(self):
        plain, debug = self.build.options("plain"), self.build.options()
        self.assertLess(set(plain), set(debug))
        self.assertIn("CONFIG_FUSE_FS=y", plain)
        for option in ("KASAN", "PROVE_LOCKING", "FAULT_INJECTION", "KUNIT"):
            self.assertIn(f"CONFIG_{option}=y", debug)
            self.assertNotIn(f"CONFIG_{option}=y", plain)
        self.assertNotEqual(self.build.key("1", "plain"), self.build.key("1"))


class Mutants(unittest.TestCase):
    """Each still applies, and says which test has to find it and how."""

    def test_each_applies(self):
        for patch in sorted((TOP / "tools/testing/mutants").glob("*.patch")):
            with self.subTest(patch.name):
                command = ["patch", "-p1", "-s", "-f", "--dry-run", "-i", patch]
                done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stdout)

    def test_each_names_its_test(self):
        for patch in sorted((TOP / "tools/testing/mutants").glob("*.patch")):
            with self.subTest(patch.name):
                fields = dict(
                    line.split(": ", 1)
                    for line in patch.read_text().split("\n---", 1)[0].splitlines()
                    if ": " in line
                )
                self.assertIn("Expect", fields)
                directory = fields.get("Test", "").split(".")[0]
                self.assertTrue((TOP / "tools/testing/selftests" / directory).is_dir(), directory)


class Documentation(unittest.TestCase):
    def test_every_page_is_in_the_index(self):
        docs = TOP / "Documentation"
        index = (docs / "index.rst").read_text()
        for page in {*docs.rglob("*.rst")} - {docs / "index.rst"}:
            name = str(page.relative_to(docs))
            section, _, base = name.rpartition("/")
            with self.subTest(name):
                self.assertTrue(name in index or (f"{section}/" in index and base in index))


class Commands(unittest.TestCase):
    def test_dry_run_of_check_only_prints(self):
        done = subprocess.run(
            ["make", "-n", "check"], cwd=TOP, capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("tools/lab/check", done.stdout)
        self.assertNotIn("passed", done.stdout)

    def test_scripts_are_executable(self):
        for name in ("setup", "check", "packages", "kernel/build"):
            path = TOP / "tools/lab" / name
            if path.read_text().startswith("#!"):
                self.assertTrue(path.stat().st_mode & stat.S_IXUSR, name)


if __name__ == "__main__":
    unittest.main()
