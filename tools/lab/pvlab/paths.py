# SPDX-License-Identifier: GPL-2.0
"""Where things are: this checkout, the cache, each lane's kernel and modules."""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
OUT = TOP / "out"
LAB = TOP / "tools/lab"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pvio-lab"
if os.environ.get("LAB_CACHE"):
    CACHE = Path(os.environ["LAB_CACHE"])


class LabError(Exception):
    """What went wrong, in a sentence for the user."""


def say(text):
    """Progress, for whoever waits."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Kernel:
    """A lane's kernel; it serves as host and as guest."""

    lane: str
    release: str
    image: Path
    modules: Path  # the directory with modules.dep
    build: Path = Path()  # for KDIR=

    @property
    def ours(self):
        """Where our modules for this kernel are."""
        return OUT / "build" / self.release


def _version_key(release):
    return [int(n) for n in re.findall(r"\d+", release)]


def _stock_kernel():
    wanted = os.environ.get("KVER")
    found = [
        p.name
        for p in Path("/lib/modules").glob("*")
        if (p / "modules.dep").exists() and Path(f"/boot/vmlinuz-{p.name}").exists()
    ]
    if wanted:
        found = [r for r in found if r == wanted]
    if not found:
        raise LabError(
            f"no kernel {wanted or ''} is installed: run tools/lab/setup (package linux-image-6.12-amd64)"
        )
    release = max(found, key=lambda r: (Path(f"/lib/modules/{r}/build").exists(), _version_key(r)))
    return Kernel(
        "stock",
        release,
        Path(f"/boot/vmlinuz-{release}"),
        Path(f"/lib/modules/{release}"),
        Path(f"/lib/modules/{release}/build"),
    )


def _debug_dir():
    """The one that this checkout asks for, else the newest there is."""
    if os.environ.get("LAB_DEBUG_KERNEL"):
        return Path(os.environ["LAB_DEBUG_KERNEL"])
    exact = subprocess.run(
        [LAB / "kernel/build", "--path"], capture_output=True, text=True, check=False
    )
    if exact.returncode == 0:
        return Path(exact.stdout.strip())
    built = sorted(CACHE.glob("debug-kernel/*/bzImage"), key=lambda p: p.stat().st_mtime)
    if not built:
        raise LabError("the debug kernel is not built: run `make debug-kernel`")
    say("this checkout's debug kernel is not built (`make debug-kernel`), taking an older one")
    return built[-1].parent


def _debug_kernel():
    directory = _debug_dir()
    found = sorted(directory.glob("modules/lib/modules/*/modules.dep"))
    if not found or not (directory / "bzImage").exists():
        raise LabError(f"{directory} holds no kernel with modules: run `make debug-kernel`")
    modules = found[-1].parent
    return Kernel("debug", modules.name, directory / "bzImage", modules, directory / "build")


def running_kernel(lane, release):
    """The kernel of this machine, for native mode."""
    if lane == "debug":
        ours = _debug_kernel()
        if ours.release == release:
            return ours
        raise LabError("native mode: this machine does not run the debug kernel")
    return Kernel(
        lane,
        release,
        Path(f"/boot/vmlinuz-{release}"),
        Path(f"/lib/modules/{release}"),
        Path(f"/lib/modules/{release}/build"),
    )


def kernel(lane):
    if lane == "stock":
        return _stock_kernel()
    if lane == "debug":
        return _debug_kernel()
    raise LabError(f"there is no lane '{lane}': stock or debug")


def socket_dir(name):
    """Sockets of the host VM NAME of this checkout; socket paths must be short."""
    key = hashlib.sha256(f"{TOP}\0{name}".encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"pvlab-{os.getuid()}" / key
