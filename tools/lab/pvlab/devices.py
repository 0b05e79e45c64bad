# SPDX-License-Identifier: GPL-2.0
"""Disks and shares of a guest: what they are for QEMU."""

import os
import stat
from dataclasses import dataclass, field

from .paths import LabError

# QEMU writes them with an underscore.
KEPT = (
    "security_model",
    "mount_tag",
    "event_idx",
    "indirect_desc",
    "logical_block_size",
    "physical_block_size",
    "min_io_size",
    "opt_io_size",
    "discard_granularity",
)


def _options(**given):
    """QEMU's way: on/off, dashes mostly, None left out."""
    words = []
    for key, value in given.items():
        if value is None:
            continue
        value = {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value
        key = key if key in KEPT else key.replace("_", "-")
        words.append(f"{key}={str(value).replace(',', ',,')}")
    return ",".join(words)


def _aio():
    """How QEMU does its I/O: the emulator that runs guests on this machine has no io_uring."""
    return "threads" if os.environ.get("LAB_EMULATOR") else "io_uring"


def _takes_direct(path):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


@dataclass
class Disk:
    """KIND is 'qemu' or 'vhost-user'; DEVICE holds more properties of the virtio device."""

    kind: str
    path: str
    num_queues: int = 1
    iothread: bool = True
    aio: str = ""
    readonly: bool = False
    direct: bool | None = None
    reconnect: int = 0
    device: dict = field(default_factory=dict)

    @classmethod
    def qemu(
        cls,
        path,
        iothread=True,
        aio="",
        num_queues=1,
        readonly=False,
        direct=None,
        **device,
    ):
        """A file or block device that QEMU serves, bypassing the page cache where that is possible."""
        return cls("qemu", str(path), num_queues, iothread, aio, readonly, direct, device=device)

    @classmethod
    def vhost_user(cls, socket, num_queues=1, reconnect=0, **device):
        """A vhost-user-blk back end that listens on SOCKET."""
        return cls("vhost-user", str(socket), num_queues, reconnect=reconnect, device=device)

    @classmethod
    def parse(cls, spec):
        """As the command line has it: PATH[,key=value...] or vhost-user:SOCKET[,key=value...]."""
        path, *rest = spec.split(",")
        given = {}
        for word in rest:
            key, _, value = word.partition("=")
            key = {"queues": "num_queues"}.get(key, key)
            number = int(value) if value.isdigit() else value
            given[key] = bool(number) if key in ("iothread", "readonly", "direct") else number
        if path.startswith("vhost-user:"):
            return cls.vhost_user(path.partition(":")[2], **given)
        return cls.qemu(path, **given)

    def arguments(self, index):
        name = f"disk{index}"
        if self.kind == "vhost-user":
            return [
                "-chardev",
                _options_of("socket", id=f"{name}c", path=self.path, reconnect=self.reconnect),
                "-device",
                _options_of(
                    "vhost-user-blk-pci",
                    id=name,
                    chardev=f"{name}c",
                    num_queues=self.num_queues,
                    **self.device,
                ),
            ]
        try:
            block = stat.S_ISBLK(os.stat(self.path).st_mode)
        except OSError as e:
            raise LabError(f"disk {self.path}: {e.strerror}") from e
        direct = _takes_direct(self.path) if self.direct is None else self.direct
        backend = {
            "driver": "host_device" if block else "file",
            "filename": self.path,
            "node-name": f"{name}f",
            "aio": self.aio or _aio(),
            "cache.direct": direct,
            "read-only": self.readonly,
            "discard": "unmap",
        }
        words = [
            "-blockdev",
            _options(**backend),
            "-blockdev",
            _options(
                **{
                    "driver": "raw",
                    "node-name": f"{name}n",
                    "file": f"{name}f",
                    "read-only": self.readonly,
                    "discard": "unmap",
                }
            ),
        ]
        thread = None
        if self.iothread:
            thread = f"{name}t"
            words += ["-object", f"iothread,id={thread}"]
        return [
            *words,
            "-device",
            _options_of(
                "virtio-blk-pci",
                id=name,
                drive=f"{name}n",
                iothread=thread,
                num_queues=self.num_queues,
                **self.device,
            ),
        ]


def _options_of(kind, **given):
    return f"{kind},{_options(**given)}"


@dataclass
class Share:
    kind: str
    path: str
    tag: str
    device: dict = field(default_factory=dict)

    @classmethod
    def virtiofs(cls, socket, tag, **device):
        """A vhost-user-fs back end that listens on SOCKET."""
        return cls("virtiofs", str(socket), tag, device)

    @classmethod
    def p9(cls, directory, tag, **device):
        return cls("9p", str(directory), tag, device)

    def arguments(self, index):
        name = f"share{index}"
        if self.kind == "virtiofs":
            return [
                "-chardev",
                _options_of("socket", id=f"{name}c", path=self.path),
                "-device",
                _options_of(
                    "vhost-user-fs-pci", id=name, chardev=f"{name}c", tag=self.tag, **self.device
                ),
            ]
        return [
            "-fsdev",
            _options_of(
                "local", id=f"{name}f", path=self.path, security_model="none", multidevs="remap"
            ),
            "-device",
            _options_of(
                "virtio-9p-pci", id=name, fsdev=f"{name}f", mount_tag=self.tag, **self.device
            ),
        ]

    def mount(self, where):
        """The shell command that mounts it in the guest."""
        if self.kind == "virtiofs":
            return f"mkdir -p {where} && mount -t virtiofs {self.tag} {where}"
        return f"modprobe 9pnet_virtio; modprobe 9p; mkdir -p {where} && mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 {self.tag} {where}"
