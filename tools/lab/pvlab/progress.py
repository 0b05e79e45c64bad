# SPDX-License-Identifier: GPL-2.0
"""For whoever waits for something long."""

import threading
import time

from .paths import say


class Progress:
    """A line every 20 seconds while something long goes on."""

    def __init__(self, what):
        self.what = what
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def _tell(self):
        begin = time.monotonic()
        while not self._done.wait(20):
            say(f"{self.what} ({time.monotonic() - begin:.0f} s)")

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *args):
        self._done.set()
        self._thread.join()
