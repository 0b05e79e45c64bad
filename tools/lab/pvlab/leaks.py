# SPDX-License-Identifier: GPL-2.0
"""kmemleak on the host: `python3 -m pvlab.leaks [clear]` prints what it finds."""

import sys
import time
from pathlib import Path

FILE = Path("/sys/kernel/debug/kmemleak")
# A pointer in a register or on a stack is not seen: what is found must be found twice.
PAUSE_SECONDS = 5


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
    FILE.write_text("scan\n")
    time.sleep(PAUSE_SECONDS)
    FILE.write_text("scan\n")
    return FILE.read_text()


if __name__ == "__main__":
    if sys.argv[1:] == ["clear"]:
        clear()
    else:
        sys.stdout.write(leaks())
