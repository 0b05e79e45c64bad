# SPDX-License-Identifier: GPL-2.0
"""Our modules, and the kernel's, on the host: `python3 -m pvlab.modules load|unload NAME...`."""

import os
import re
import subprocess
import sys
from pathlib import Path

from . import paths
from .paths import LabError


def _normal(name):
    return name.replace("-", "_")


def ours(kernel, name):
    """The path of our module NAME built for KERNEL, or None."""
    direct = kernel.ours / f"{name}.ko"
    if direct.exists():
        return direct
    return next(
        (p for p in sorted(kernel.ours.rglob("*.ko")) if _normal(p.stem) == _normal(name)), None
    )


def needs(path):
    """The modules that the one at PATH depends on."""
    found = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
    return found[1].decode().split(",") if found and found[1] else []


def loaded(name):
    return Path(f"/sys/module/{_normal(name)}/initstate").exists()


def _running():
    release = os.uname().release
    return paths.Kernel(
        os.environ.get("LAB_LANE", "stock"), release, Path(), Path(f"/lib/modules/{release}")
    )


def _do(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(str(c) for c in command)}: {done.stderr.strip()}")


def load(name, *parameters):
    """Load NAME, one of ours or of the kernel's, with all it needs, unless it is loaded."""
    if loaded(name):
        return
    path = ours(_running(), name)
    if path is None:
        _do("modprobe", name, *parameters)
        return
    for need in needs(path):
        load(need)
    try:
        _do("insmod", path, *parameters)
    except LabError:
        # Somebody else may have done it meanwhile.
        if not loaded(name):
            raise


def unload(name):
    if loaded(name):
        _do("rmmod", name)


def main():
    verb, *names = sys.argv[1:]
    try:
        for name in names:
            {"load": load, "unload": unload}[verb](name)
    except LabError as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
