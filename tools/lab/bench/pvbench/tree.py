# SPDX-License-Identifier: GPL-2.0
"""The tree that is measured: built as it stands, and named."""

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[4]
RINGLOAD = "tools/testing/selftests/vhost_blk"
FSLOAD = "tools/testing/selftests/vhost_fs"


def build(pvio=True, fsload=False, kdir=None):
    """Our modules, pvio and the load generators.  Old ones must not pass for new ones."""
    targets = [["modules", *([f"KDIR={kdir}"] if kdir else [])], ["-C", RINGLOAD]]
    targets += [["pvio"]] * pvio + [["-C", FSLOAD, f"{TOP / FSLOAD}/fsload"]] * fsload
    for words in targets:
        argv = ["make", "-s", *words]
        done = subprocess.run(argv, cwd=TOP, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"bench: '{' '.join(argv)}' fails:\n{done.stderr[-2000:]}")


def commit():
    """Which one it is."""
    argv = ["git", "-C", TOP, "describe", "--always", "--dirty"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
