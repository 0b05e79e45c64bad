# SPDX-License-Identifier: GPL-2.0
"""Programs from crates.io that test file systems, and virtiofsd, each built once into the cache."""

import os
import subprocess

from .cached import cached
from .paths import CACHE, TOP, LabError, say
from .progress import Progress

VERSIONS = {"fsx": "0.3.2", "pjdfstest": "0.2.2", "virtiofsd": "1.13.3"}
# The others are compiled faster so; a run of them waits for the guest's disk anyway.
OPTIMISED = ("virtiofsd",)
LIMIT = 1200


def path(name):
    """Where a program is once it has been built."""
    return CACHE / f"{name}-{VERSIONS[name]}" / "bin" / name


def program(name):
    """The path of a program, built when it is missing."""
    return cached(path(name), name, _build)


def _build(binary):
    name, version = binary.name, VERSIONS[binary.name]
    say(f"building {name} {version} from crates.io, once")
    env = {
        **os.environ,
        "CARGO_PROFILE_RELEASE_OPT_LEVEL": "3" if name in OPTIMISED else "0",
        "CARGO_PROFILE_RELEASE_STRIP": "true",
    }
    install = f"cargo install -q --locked --root {binary.parent.parent} {name}@{version}"
    command = ["sh", "-ec", f". scripts/rust-env; exec {install}"]
    try:
        with Progress(f"still building {name}"):
            done = subprocess.run(
                command, cwd=TOP, env=env, capture_output=True, text=True, timeout=LIMIT
            )
    except subprocess.TimeoutExpired:
        raise LabError(f"building {name} took more than {LIMIT} s") from None
    if done.returncode:
        raise LabError(f"building {name} failed: {done.stderr.strip()[-1000:]}")
