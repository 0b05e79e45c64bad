# SPDX-License-Identifier: GPL-2.0
"""Which accelerator the host VM runs under.

A /dev/kvm that opens proves nothing: something small must boot on it, within a
limit, and find the instructions for nested guests.
"""

import gzip
import json
import os
import subprocess
import tempfile
from pathlib import Path

from . import cpio, paths
from .paths import LabError, say

LIMIT_SECONDS = 40
KINDS = ("tcg", "kvm", "native")


def _boot_id():
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _boots(kernel):
    """Whether the kernel comes up with KVM and could run guests itself."""
    init = "#!/bin/sh\n/bin/busybox mount -t proc proc /proc\n/bin/busybox grep -qwE 'svm|vmx' /proc/cpuinfo && echo LAB-NESTED\n/bin/busybox poweroff -f\n"
    archive = cpio.Archive()
    for name in ("dev", "proc", "bin"):
        archive.directory(name)
    archive.file("bin/busybox", Path("/bin/busybox").read_bytes(), 0o755)
    archive.symlink("bin/sh", "busybox")
    archive.device("dev/console", 5, 1)
    archive.file("init", init.encode(), 0o755)
    with tempfile.NamedTemporaryFile(suffix=".cpio.gz") as f:
        f.write(gzip.compress(archive.bytes(), 1))
        f.flush()
        command = [
            "qemu-system-x86_64",
            "-accel",
            "kvm",
            "-cpu",
            "host",
            "-m",
            "256M",
            "-nodefaults",
            "-display",
            "none",
            "-no-reboot",
            "-serial",
            "stdio",
            "-kernel",
            kernel.image,
            "-initrd",
            f.name,
            "-append",
            "console=ttyS0 panic=-1 quiet",
        ]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_SECONDS
            )
        except (subprocess.TimeoutExpired, OSError):
            return False
    return b"LAB-NESTED" in done.stdout


def accel():
    """tcg, kvm or native: LAB_ACCEL, or what was found on this boot of the machine."""
    wanted = os.environ.get("LAB_ACCEL", "auto")
    if wanted in KINDS:
        return wanted
    if wanted != "auto":
        raise LabError(f"LAB_ACCEL={wanted}: it is tcg, kvm, native or auto")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    cache = paths.CACHE / "accel.json"
    try:
        known = json.loads(cache.read_text())
        if known["boot_id"] == _boot_id():
            return known["accel"]
    except (OSError, ValueError, KeyError):
        pass
    say(f"/dev/kvm is here: does it work? (at most {LIMIT_SECONDS} s)")
    found = "kvm" if _boots(paths.kernel("stock")) else "tcg"
    say(f"accelerator: {found}")
    cache.parent.mkdir(parents=True, exist_ok=True)
    temp = cache.with_suffix(f".{os.getpid()}")
    temp.write_text(json.dumps({"boot_id": _boot_id(), "accel": found}))
    temp.rename(cache)
    return found
