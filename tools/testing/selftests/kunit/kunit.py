#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Loads every KUnit module that was built with ours and passes on its results.

The kernel runs a module's suites when it is loaded and leaves what came of
them in debugfs.  Exit status and output are kselftest's.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[4]
DEBUGFS = Path("/sys/kernel/debug/kunit")
CASE = re.compile(r"^ +(ok|not ok) \d+ (\S+)(.*)$")
SUITES = b".kunit_test_suites"


def modules():
    built = TOP / "out/build" / os.uname().release
    return {p.stem: p for p in sorted(built.glob("*.ko"))}


def needs(path):
    out = subprocess.run(
        ["modinfo", "-F", "depends", path], capture_output=True, text=True, check=True
    )
    return [name for name in out.stdout.strip().split(",") if name]


def insert(name, built):
    """Load a module of ours, or of the kernel's, and what it needs."""
    if Path(f"/sys/module/{name}/initstate").exists():
        return []
    if name not in built:
        subprocess.run(["modprobe", name], check=True)
        return []
    loaded = []
    for need in needs(built[name]):
        loaded += insert(need, built)
    subprocess.run(["insmod", built[name]], check=True)
    return [name, *loaded]


def suites():
    return set(os.listdir(DEBUGFS))


def cases(suite):
    """(good, name, rest) of each case of a suite."""
    text = (DEBUGFS / suite / "results").read_text()
    # Parameters of a case are one level deeper than the cases themselves.
    found = [m for m in map(CASE.match, text.splitlines()) if m]
    depth = min((len(m[0]) - len(m[0].lstrip()) for m in found), default=0)
    for m in found:
        if len(m[0]) - len(m[0].lstrip()) == depth:
            yield m[1] == "ok", f"{suite}.{m[2]}", m[3]
    if not found:
        yield False, suite, " # it left no results"
    for line in text.splitlines():
        if "not ok" in line or line.lstrip().startswith("# "):
            print(line.strip() if "not ok" not in line else f"# {line.strip()}")


def main():
    if not DEBUGFS.is_dir():
        print("1..0 # SKIP this kernel has no KUnit")
        return 4
    built = modules()
    tests = [name for name, path in built.items() if SUITES in path.read_bytes()]
    if not tests:
        print("1..0 # SKIP no KUnit module is built")
        return 4
    print("KTAP version 1")
    number = failed = 0
    for name in tests:
        before = suites()
        loaded = insert(name, built)
        for suite in sorted(suites() - before):
            for good, case, rest in cases(suite):
                number += 1
                failed += not good
                print(f"{'ok' if good else 'not ok'} {number} {case}{rest}", flush=True)
        for module in loaded:
            subprocess.run(["rmmod", module], check=True)
    print(f"1..{number}")
    return 1 if failed or not number else 0


if __name__ == "__main__":
    sys.exit(main())
