# SPDX-License-Identifier: GPL-2.0
"""Makes the guests' initramfs from Debian's packages, cached by its contents."""

import hashlib
import lzma
import os
import re
import shutil
import subprocess
from pathlib import Path

from . import agent, cpio, crates, paths, stubs
from .paths import LabError, say

TOOLS = (
    "fio",
    "mkfs.ext4",
    "mkfs.xfs",
    "xfs_repair",
    "e2fsck",
    "blkdiscard",
    "dd",
    "stat",
    "flock",
    "fallocate",
    "truncate",
    "mountpoint",
)
OPTIONAL = ("strace", "setfattr", "getfattr")
MODULES = (
    "virtio_blk",
    "xfs",
    "ext4",
    "9p",
    "9pnet_virtio",
    "crc32c_generic",
    "crc32c-intel",
    "loop",
    "virtio_balloon",
    "virtio_mem",
    "overlay",
)
MANY_LIBRARIES = 30
DIRECTORIES = (
    "dev",
    "proc",
    "sys",
    "tmp",
    "run",
    "root",
    "mnt",
    "etc",
    "var",
    "usr/bin",
    "usr/sbin",
)


def libraries(program):
    """What PROGRAM is linked to."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True)
    return sorted(set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.M)))


def module_closure(modules_dir, names):
    """Files under MODULES_DIR of NAMES and all they need, needed ones first."""
    depends, paths_of = {}, {}
    for line in (modules_dir / "modules.dep").read_text().splitlines():
        path, _, needs = line.partition(":")
        paths_of[module_name(path)] = path
        depends[path] = needs.split()
    order = []
    for name in names:
        path = paths_of.get(name.replace("-", "_"))
        if path:
            order += [p for p in [*reversed(depends[path]), path] if p not in order]
    return order


def module_name(path):
    return Path(path).name.split(".ko")[0].replace("-", "_")


def _module_data(path):
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq", path], capture_output=True, check=True).stdout
    if path.suffix == ".gz":
        return subprocess.run(["gzip", "-dc", path], capture_output=True, check=True).stdout
    return data


def _add_modules(archive, kernel):
    """Modules, uncompressed, with the tables modprobe wants."""
    base = f"usr/lib/modules/{kernel.release}"
    chosen = module_closure(kernel.modules, MODULES)
    plain = {p: re.sub(r"\.(xz|zst|gz)$", "", p) for p in chosen}
    for path, name in plain.items():
        archive.file(f"{base}/{name}", _module_data(kernel.modules / path))
    dep = []
    for line in (kernel.modules / "modules.dep").read_text().splitlines():
        path, _, needs = line.partition(":")
        if path in plain:
            dep.append(f"{plain[path]}: {' '.join(plain[n] for n in needs.split())}\n")
    archive.file(f"{base}/modules.dep", "".join(dep).encode())
    names = {module_name(p) for p in chosen}
    alias = kernel.modules / "modules.alias"
    lines = alias.read_text().splitlines() if alias.exists() else []
    wanted = [line for line in lines if line.split()[-1].replace("-", "_") in names]
    archive.file(f"{base}/modules.alias", ("\n".join(wanted) + "\n").encode())
    archive.file(f"{base}/modules.symbols", b"")


def _libraries_in(program):
    """{path in the image: path here} of what PROGRAM is linked to."""
    linked = libraries(program)
    if len(linked) < MANY_LIBRARIES:
        return {_normal(lib): lib for lib in linked}
    kept = [lib for lib in linked if stubs.KEEP.match(Path(lib).name)]
    made = stubs.replacements(program, kept)
    return {_normal(lib): lib for lib in kept} | {
        f"usr/lib/x86_64-linux-gnu/{name}": str(path) for name, path in made.items()
    }


def _normal(lib):
    return re.sub(r"^/(lib|lib64)/", r"usr/\1/", lib).lstrip("/")


def _sources():
    """Programs and libraries that go in."""
    programs = {"fsx": str(crates.program("fsx"))}
    for name in (*TOOLS, *OPTIONAL):
        path = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
        if path:
            programs[name] = path
        elif name in TOOLS:
            raise LabError(f"{name} is missing: run tools/lab/setup")
    found = {}
    for program in programs.values():
        found |= _libraries_in(program)
    return programs, found


def overlay(*names, **renamed):
    """{path: data} of programs that few guests want, and their libraries, for a Guest's
    overlay.

    RENAMED: a name in the guest, and the program's, where busybox has a program of that name.
    """
    files = {}
    for name, here in {**dict(zip(names, names, strict=False)), **renamed}.items():
        program = shutil.which(here)
        if not program:
            raise LabError(f"{here} is missing: run tools/lab/setup")
        files |= {f"usr/bin/{name}": program, **_libraries_in(program)}
    return {path: Path(source).read_bytes() for path, source in files.items()}


def _key(kernel, programs, found):
    digest = hashlib.sha256(
        Path(__file__).read_bytes() + str(agent.build()).encode() + kernel.release.encode()
    )
    for path in [
        *programs.values(),
        *found.values(),
        "/bin/busybox",
        kernel.modules / "modules.dep",
        kernel.image,
    ]:
        s = os.stat(path)
        digest.update(f"{path} {s.st_size} {s.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def build(kernel):
    """The path of the initramfs for guests that run KERNEL."""
    programs, found = _sources()
    if libraries("/bin/busybox"):
        raise LabError("/bin/busybox is not static: install busybox-static (tools/lab/setup)")
    path = paths.CACHE / "image" / f"{kernel.release}-{_key(kernel, programs, found)}.cpio"
    if not path.exists():
        say(f"making the guests' initramfs for {kernel.release}")
        path.parent.mkdir(parents=True, exist_ok=True)
        temp = path.with_suffix(f".{os.getpid()}")
        temp.write_bytes(_archive(kernel, programs, found))
        temp.rename(path)
    return path


def _archive(kernel, programs, found):
    archive = cpio.Archive()
    for name in DIRECTORIES:
        archive.directory(name)
    for link, target in (
        ("bin", "usr/bin"),
        ("sbin", "usr/sbin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
    ):
        archive.symlink(link, target)
    archive.directory("usr/lib64")
    archive.device("dev/console", 5, 1)
    archive.file("init", b"#!/bin/agent --init\n", 0o755)
    archive.file("usr/bin/agent", agent.build().read_bytes(), 0o755)
    archive.file("usr/bin/busybox", Path("/bin/busybox").read_bytes(), 0o755)
    for name, path in programs.items():
        archive.file(f"usr/bin/{name}", Path(path).read_bytes(), 0o755)
    for name, lib in found.items():
        archive.file(name, Path(lib).read_bytes(), 0o755)
    applets = subprocess.run(
        ["/bin/busybox", "--list"], capture_output=True, text=True, check=True
    ).stdout.split()
    for applet in applets:
        archive.symlink(f"usr/bin/{applet}", "busybox")
        if applet in ("modprobe", "insmod"):
            archive.symlink(f"usr/sbin/{applet}", "../bin/busybox")
    for name, text in (
        ("passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"),
        ("group", "root:x:0:\nnogroup:x:65534:\n"),
    ):
        archive.file(f"etc/{name}", text.encode())
    _add_modules(archive, kernel)
    return archive.bytes()
