# SPDX-License-Identifier: GPL-2.0
"""Whether a program that failed on an emulated host VM gets another run.

An emulator on a loaded machine loses host VMs (autopsy.py), guests, and time:
minutes in which a virtual CPU does nothing.  So under TCG, and nowhere else, a
program that failed runs once more, in a new host VM, and a third time where it is
known that the emulator lost the second; what still fails has failed.
What passes then is counted as passed and named as flaky, with all that the runs
before printed, at the end of the run as well.

Some failures stand after one run, as they may be a race that comes seldom, and a
second run would hide it:

- data that is not what was written;
- a kernel's report with a function of our modules in its trace;
- a kernel's report of the kinds that only a bug makes (STANDS), however slow the
  machine.

But not if the host VM bears a trace that the emulator lost it: then nothing that
its kernel reports means anything.
"""

import re

STANDS = {"kasan", "ubsan", "kmemleak", "lockdep", "atomic sleep", "debugobjects"}
# As KernelReports says them; a test's own words come as comments.
REPORT = re.compile(r"^[# ]*--- .*?: ([a-z ]+): ", re.M)
# A frame of a trace; one after "? " was only found on the stack.
FRAME = re.compile(r"(\? )?[\w.]+\+0x[0-9a-f]+/0x[0-9a-f]+ \[(vhost_poll|vhost_blk|virtio_pvblk)\]")
# Words of fio, of fsx, and of our own tests.
DATA = re.compile(
    r"verify: bad |verify failed|bad magic header|(READ|WRITE|COPY) BAD DATA|miscompare"
    r"|sha1sum: WARNING|: FAILED$|Structure needs cleaning|rig_pattern_ok|memcmp\(|AssertionError: b'",
    re.M | re.I,
)


def stands(text):
    """Why a failure counts after the first run; TEXT is all that is known of it."""
    kinds = STANDS & set(REPORT.findall(text))
    if kinds:
        return f"a report of {', '.join(sorted(kinds))}"
    if any(not guess for guess, _ in FRAME.findall(text)):
        return "a report from one of our modules"
    if DATA.search(text):
        return "data was not what was written"
    return ""
