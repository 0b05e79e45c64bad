# SPDX-License-Identifier: GPL-2.0
"""fsx, the file system exerciser, from crates.io, built once into the cache."""

import os
import subprocess

from .cached import cached
from .paths import CACHE, TOP, LabError, say
from .progress import Progress

VERSION = "0.3.2"
LIMIT = 1200


def fsx():
    """The path of fsx, built when it is missing."""
    return cached(CACHE / f"fsx-{VERSION}" / "bin/fsx", "fsx", _build)


def _build(path):
    say(f"building fsx {VERSION} from crates.io, once")
    # Compiled faster; a run of it waits for the guest's disk anyway.
    env = {
        **os.environ,
        "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0",
        "CARGO_PROFILE_RELEASE_STRIP": "true",
    }
    install = f"cargo install -q --locked --root {path.parent.parent} fsx@{VERSION}"
    command = ["sh", "-ec", f". scripts/rust-env; exec {install}"]
    try:
        with Progress("still building fsx"):
            done = subprocess.run(
                command, cwd=TOP, env=env, capture_output=True, text=True, timeout=LIMIT
            )
    except subprocess.TimeoutExpired:
        raise LabError(f"building fsx took more than {LIMIT} s") from None
    if done.returncode:
        raise LabError(f"building fsx failed: {done.stderr.strip()[-1000:]}")
