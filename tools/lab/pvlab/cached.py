# SPDX-License-Identifier: GPL-2.0
"""Files in the cache that are expensive to make."""

import fcntl

from .paths import CACHE


def cached(path, name, make):
    """PATH; MAKE(PATH) makes it if it is missing, one process at a time."""
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with open(CACHE / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                make(path)
    return path
