# SPDX-License-Identifier: GPL-2.0
"""The QEMU that runs the host VM, and without KVM the guests that need none (here.py).

Under KVM it is the installed one.  Without KVM QEMU emulates SVM, with faults
that lose guests and host VMs, in Debian's 7.2 and in 10.0; tools/lab/qemu/build makes
one with patches for them, which is the default.  LAB_QEMU chooses: `installed`,
`built`, or a path.
"""

import os
import subprocess

from . import paths
from .paths import LabError

DEFAULT = "built"


def choice(kind):
    """What LAB_QEMU says for a host VM under KIND, "tcg" or "kvm"."""
    return os.environ.get("LAB_QEMU") or (DEFAULT if kind == "tcg" else "installed")


def path(kind):
    """The program for it; "" for the installed one, which virtme-ng finds by itself."""
    wanted = choice(kind)
    if wanted == "installed":
        return ""
    if wanted == "built":
        return _built()
    if not os.access(wanted, os.X_OK):
        raise LabError(f"LAB_QEMU={wanted}: it is `installed`, `built`, or a program's path")
    return wanted


def _built():
    """Built now, if need be: that takes minutes, and says so."""
    done = subprocess.run(
        [paths.LAB / "qemu/build"], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise LabError(
            "the emulator for the host VM was not built (see above); "
            "LAB_QEMU=installed takes the installed one, which loses guests"
        )
    return done.stdout.strip()
