# SPDX-License-Identifier: GPL-2.0
"""The plugin that counts the instructions of a host VM (tools/lab/insns/insns.c).

With LAB_INSNS=1 a host VM boots with it, if it is an emulated one.  The VM finds in
LAB_INSNS_DIR the directory that it shares with the plugin.
"""

import hashlib
import os
import re
import subprocess

from . import emulator, paths
from .paths import LabError

SOURCES = [paths.LAB / "insns" / name for name in ("insns.c", "qemu-plugin.h")]


def wanted():
    return os.environ.get("LAB_INSNS") == "1"


def directory(state):
    """Shared by the plugin and the VM whose state is kept in STATE."""
    return state / "insns"


def program():
    """The emulator that the plugin is for."""
    return emulator.path("tcg") or "qemu-system-x86_64"


def interface():
    """The version of the plugins' interface to ask the emulator for.

    QEMU 9 refuses version 1; of version 2 nothing is used that 1 does not have.
    """
    said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True)
    major = re.search(r"version (\d+)", said.stdout)
    if not major:
        raise LabError(f"{program()} does not tell its version")
    return 1 if int(major[1]) < 9 else 2


def build():
    """The path of the plugin, built when a source or the interface changed."""
    version = interface()
    text = b"".join(source.read_bytes() for source in SOURCES)
    key = hashlib.sha256(text + str(version).encode()).hexdigest()[:16]
    path = paths.CACHE / "insns" / f"{key}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temp = path.with_suffix(f".{os.getpid()}")
        argv = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-fvisibility=hidden"]
        argv += [f"-DVERSION={version}", "-o", temp, SOURCES[0]]
        subprocess.run([str(a) for a in argv], check=True)
        temp.rename(path)
    return path


def qemu_args(state, accelerator):
    """Arguments for the VM's emulator."""
    if not wanted() or accelerator != "tcg":
        return []
    where = directory(state)
    where.mkdir(parents=True, exist_ok=True)
    for old in where.iterdir():
        old.unlink()
    return ["-plugin", f"{build()},dir={where}"]


def environment(state):
    """What a command in the VM finds in its environment."""
    return {"LAB_INSNS_DIR": str(directory(state))} if wanted() else {}
