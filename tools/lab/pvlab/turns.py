# SPDX-License-Identifier: GPL-2.0
"""In which order programs run, and which have their turn by date.

A program that takes long in a lane (`long_in_debug=`, `long_in_stock=` in a
directory's `settings`) has its turn by date, after the programs that run each day.  With
LAB_DEADLINE a lane runs as many of them as there is time for, beginning with those of the
day, and the stock lane leaves the debug lane, which is the last, its time.  Without it
PER_DAY of them run.  Those that run without the host VM (here.py) have turns of their own
after the others, which leave them half of the time.  What does not run is named as left to
another day.  The stock lane's have turns in `.ci/run` only, which sets LAB_DAY: `make
check` by hand runs them all.

A long form (FULL=1) is left to `.ci/run`, which runs one a day, if there is time.
"""

import json
import os
import time

from . import paths

# By what a bug costs: data first, then who serves it, then the tools.
ORDER = (
    "vhost_blk",
    "vhost_fs",
    "vhost_poll",
    "virtio_pvblk",
    "pvfs",
    "pvio",
    "kunit",
    "lab",
)
PER_DAY = 3
# For the debug lane, whose daily programs fail if there is no time for them, and for some
# of its turns.
LAST_LANE_SECONDS = 2400
# A boot of a host VM, and a few windows in which instructions are counted.
INSNS_SECONDS = 600
WHY = "it takes minutes in the debug lane: it has its turn by date there, or with LAB_TURN=1"
LATER = "its turn in this lane is by date, and not today"
DURATIONS = paths.CACHE / "durations.json"


def has_come():
    """For a case that takes minutes in the debug lane: whether it runs now."""
    lane = os.environ.get("LAB_LANE")
    return lane != "debug" or bool(os.environ.get("FULL") or os.environ.get("LAB_TURN"))


def loops(few, full=None):
    """How often a test does a thing: LAB_LOOPS, or FULL times with FULL=1, or FEW times."""
    long = full if full and os.environ.get("FULL") else few
    return int(os.environ.get("LAB_LOOPS") or long)


def rotate(lane):
    """Whether LANE leaves long programs to other days."""
    return lane == "debug" or bool(os.environ.get("LAB_DAY"))


def counts_insns():
    """Whether the stock lane, where there is a deadline, keeps time to count instructions."""
    return today() % 2 == 1


def by_worth(directories):
    """DIRECTORIES in ORDER, and what it does not know behind."""
    worth = {name: i for i, name in enumerate(ORDER)}
    return sorted(directories, key=lambda d: (worth.get(d.name, len(ORDER)), d.name))


def today():
    """The number of the day, or LAB_DAY."""
    return int(os.environ.get("LAB_DAY") or time.time() // 86400)


def rotated(items, day, step):
    """ITEMS, beginning with the STEP that are the first on that DAY."""
    if not items:
        return []
    first = day * step % len(items)
    return [*items[first:], *items[:first]]


def _durations():
    try:
        return json.loads(DURATIONS.read_text())
    except (OSError, ValueError):
        return {}


def expected(lane, name, otherwise):
    """How many seconds a program took the last time, or OTHERWISE."""
    return float(_durations().get(f"{lane}: {name}", otherwise))


def remember(lane, name, seconds):
    """What a program took, for expected()."""
    known = _durations() | {f"{lane}: {name}": round(seconds)}
    DURATIONS.parent.mkdir(parents=True, exist_ok=True)
    temp = DURATIONS.with_suffix(f".{os.getpid()}")
    temp.write_text(json.dumps(known, indent=0, sort_keys=True))
    temp.rename(DURATIONS)
