# SPDX-License-Identifier: GPL-2.0
"""Things in the cache that are made once, however many ask for them."""

import fcntl

from .paths import CACHE


def once(path, name, make):
    """PATH; MAKE(PATH) makes it when it is missing, one process at a time."""
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with open(CACHE / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                make(path)
    return path
