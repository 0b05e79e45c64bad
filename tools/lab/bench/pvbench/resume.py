# SPDX-License-Identifier: GPL-2.0
"""Work that goes on in a new guest where an emulator lost the one before.

Under TCG a guest ends now and then that no kernel ended (pvlab/traces.py tells the
same of tests).  So there, and nowhere else, what was left to measure is measured
in another guest, and that is said.
"""

from pvlab.guest import emulated

from pvbench.paths import Unavailable

GUESTS = 3  # at most


def all_of(name, todo, work, say):
    """WORK(), which takes from the list TODO what it has done, until nothing is left.

    What made it fail, or None.
    """
    guests = GUESTS if emulated() else 1
    for n in range(1, guests + 1):
        try:
            work()
            return None
        except Unavailable:
            raise
        except Exception as e:
            if n == guests or not todo:
                say(f"{name}: FAILED: {e}")
                return e
            say(f"{name}: once more in a new guest, as this host is emulated: {e}")
    return None
