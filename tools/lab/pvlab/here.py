# SPDX-License-Identifier: GPL-2.0
"""This machine as the place for programs that need nothing but guests.

Without KVM a guest in the host VM is emulated by a machine that is itself emulated, and
takes several times as long as a guest that the same emulator runs here.  A program that
`guest_only=` in its directory's `settings` names needs nothing else of its host, so it runs
here then.  It sees no real exit and can count none.

The machine is not the tests': such a program has mounts and process numbers of its own,
and an empty /run and /dev/shm, and it cannot load modules.  With its end the kernel kills
what it has started, and its mounts and its files in these directories are gone.
"""

import os
import subprocess

from . import accel, emulator, image, paths
from .host import NativeHost, host_environment

# It ends with the runner (setpriv), and all that it has started with it (unshare).
APART = (
    *("setpriv", "--pdeathsig", "KILL", "--bounding-set=-sys_module"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
PRIVATE = ("/run", "/dev/shm")
MOUNTS = "/proc/self/ns/mnt"
# $0 is the machine's own name space, in which nothing may be mounted.  The shell stays, as the
# first process, to wait for those whose parents have ended.
PREPARE = (
    f'[ "$(readlink {MOUNTS})" != "$0" ] && mount -t tmpfs -o mode=755 tmpfs /run && '
    'mount -t tmpfs -o mode=1777 tmpfs /dev/shm || exit 125; ulimit -c 0; "$@"; exit $?'
)


def _apart(argv):
    return [*APART, "sh", "-c", PREPARE, os.readlink(MOUNTS), *argv]


def possible():
    """Whether programs can run here; if not, they run in the host VM, as all others."""
    if accel.accel() != "tcg":
        return False
    if any(p.is_relative_to(d) for p in (paths.TOP, paths.CACHE) for d in PRIVATE):
        return False
    try:
        return not subprocess.run(_apart(["true"]), capture_output=True, check=False).returncode
    except OSError:
        return False


class Here(NativeHost):
    """What the runner of the selftests asks of a host, without one."""

    place = "on this machine"
    guests_only = True

    def __init__(self, lane, name):
        super().__init__(lane, name=name, kernel=paths.kernel(lane))
        self.emulator = None

    def start(self):
        self.state.mkdir(parents=True, exist_ok=True)
        self.image = str(image.build(self.kernel))
        self.emulator = emulator.path("tcg") or "qemu-system-x86_64"
        return self

    def environment(self, env=None):
        return host_environment(self, {"LAB_EMULATOR": self.emulator, **(env or {})})

    def reports(self):
        """None: no module of ours is in this machine's kernel."""
        return []

    def argv_of(self, command):
        return _apart(super().argv_of(command))
