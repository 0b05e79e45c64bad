# SPDX-License-Identifier: GPL-2.0
"""Unit tests: Python's and Rust's.  KUnit's are in the debug lane."""

import re

from .runner import CACHE, OUT_OF_TIME, TOP, execute, say
from .static import cargo

PYTHON_RAN = re.compile(r"^Ran (\d+) tests?", re.M)
PYTHON_END = re.compile(r"^(?:OK|FAILED)(?: \((.*)\))?$", re.M)
CARGO_END = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)


def python_counts(text):
    """(passed, failed, skipped) of unittest's output, or None."""
    ran, end = PYTHON_RAN.search(text), PYTHON_END.search(text)
    if not ran or not end:
        return None
    count = dict.fromkeys(("failures", "errors", "skipped", "unexpected successes"), 0)
    for part in (end[1] or "").split(", "):
        key, _, value = part.partition("=")
        if key in count:
            count[key] = int(value)
    failed = count["failures"] + count["errors"] + count["unexpected successes"]
    return max(int(ran[1]) - failed - count["skipped"], 0), failed, count["skipped"]


def cargo_counts(text):
    """(passed, failed, skipped) summed over all test binaries, or None."""
    found = [tuple(map(int, m.groups())) for m in CARGO_END.finditer(text)]
    return tuple(map(sum, zip(*found, strict=False))) if found else None


def counted(runner, name, command, counts, limit, env=None):
    """A command that holds many tests."""
    if runner.out_of_time():
        runner.fail(name, OUT_OF_TIME)
        return
    done = execute(name, command, limit, env=env)
    result = counts(done.text)
    if not result or (done.status and not result[1]):
        runner.fail(name, done.tail, done.seconds)
        return
    passed, failed, skipped = result
    if failed:
        runner.fail(name, done.tail, done.seconds)
        failed -= 1
    runner.passed += passed
    runner.lanes["unit"] += passed + failed
    runner.failed += [name] * failed
    for _ in range(skipped):
        runner.skipped.append(f"{name}: by its own decision, see {done.log}")
    if not result[1]:
        note = f", {skipped} skipped" if skipped else ""
        say(f"ok       {name}: {passed} passed{note} ({done.seconds:.0f} s)")


def run(runner, wanted):
    for tests in sorted(TOP.glob("tools/**/tests")):
        name = f"unit: {tests.parent.relative_to(TOP)}"
        if list(tests.glob("test_*.py")) and wanted(name):
            command = ["python3", "-m", "unittest", "discover", "-s", tests, "-b"]
            counted(runner, name, command, python_counts, 300)
    if (TOP / "tools/pvio/Cargo.toml").exists() and wanted("unit: tools/pvio"):
        env = {"CARGO_TARGET_DIR": str(CACHE / "cargo"), "RUST_BACKTRACE": "1"}
        counted(runner, "unit: tools/pvio", cargo("test", "--locked"), cargo_counts, 900, env)
