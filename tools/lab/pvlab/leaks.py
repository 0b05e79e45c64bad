# SPDX-License-Identifier: GPL-2.0
"""kmemleak on the host: `python3 -m pvlab.leaks [clear]` prints what it finds."""

import sys
import time
from pathlib import Path

FILE = Path("/sys/kernel/debug/kmemleak")
# kmemleak leaves out what is younger than five seconds.  A pointer in a register is not
# seen, so what is found must be found twice.
PAUSE_SECONDS = 6


def clear():
    """What leaked before now is not ours."""
    if FILE.exists():
        FILE.write_text("scan=off\n")
        FILE.write_text("scan\n")
        FILE.write_text("clear\n")


def leaks():
    """What has leaked since clear(); '' where the kernel has no kmemleak."""
    if not FILE.exists():
        return ""
    found = ""
    for _ in range(2):
        time.sleep(PAUSE_SECONDS)
        FILE.write_text("scan\n")
        found = FILE.read_text()
        if not found:
            break
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["clear"]:
        clear()
    else:
        sys.stdout.write(leaks())
