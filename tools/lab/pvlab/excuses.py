# SPDX-License-Identifier: GPL-2.0
"""The runs that were excused by a trace of the emulator's, kept from run to run.

Lines of JSON in the cache: when, which commit, lane and program, which trace.
`python3 -m pvlab.excuses` prints how many there were of each.
"""

import collections
import json
import subprocess
import time

from . import paths

# More in one run of a lane make it red: so many are no accident.
MOST = 3
KEEP_DAYS = 90
FILE = paths.CACHE / "excused.jsonl"


def commit():
    """The checkout's, marked if something in it has changed."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=paths.TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def keep(lane, program, trace):
    """Add one line; a line is written at once, so that two checks do not mix theirs."""
    line = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit(),
        "lane": lane,
        "program": program,
        "trace": trace,
    }
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with open(FILE, "a") as f:
        f.write(json.dumps(line) + "\n")


def kept(days=KEEP_DAYS):
    """The lines of the last DAYS; one that cannot be read is left out."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - days * 86400))
    found = []
    try:
        text = FILE.read_text()
    except OSError:
        return found
    for line in text.splitlines():
        try:
            one = json.loads(line)
            if one["date"] >= since:
                found.append((one["lane"], one["program"], one["trace"]))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def history():
    """What is kept, as lines for the end of a run."""
    found = kept()
    if not found:
        return []
    traces = collections.Counter(trace for _, _, trace in found)
    programs = collections.Counter(program for _, program, _ in found)
    return [
        f"excused in the last {KEEP_DAYS} days ({FILE}):",
        *(f"  {n} x {trace}" for trace, n in traces.most_common()),
        "  most often: " + ", ".join(f"{p} ({n})" for p, n in programs.most_common(5)),
    ]


if __name__ == "__main__":
    print("\n".join(history()) or "nothing was excused")
