# SPDX-License-Identifier: GPL-2.0
"""Empty stand-ins for libraries that a program is linked to and never calls.

Debian's fio is linked to Ceph, Gluster, RDMA and what they need: 90 MB and 60
libraries, for engines that have no business in a guest.  A stand-in has the
library's name and defines the symbols the program wants of it.
"""

import hashlib
import re
import subprocess
import tempfile
from pathlib import Path

from .paths import CACHE

KEEP = re.compile(
    r"^(libc|libm|libdl|librt|libpthread|libaio|libnuma|libz|liburing|libgcc_s|ld-linux.*)\.so"
)


def _objdump(flag, path):
    return subprocess.run(
        ["objdump", flag, path], capture_output=True, text=True, check=True
    ).stdout


def needed(program):
    return re.findall(r"^\s+NEEDED\s+(\S+)", _objdump("-p", program), re.M)


def _version_owner(program):
    """Which library each symbol version is wanted from."""
    owner, lib = {}, None
    for line in _objdump("-p", program).splitlines():
        if m := re.match(r"\s+required from (\S+):", line):
            lib = m[1]
        elif lib and (m := re.match(r"\s+0x[0-9a-f]+ 0x[0-9a-f]+ \d+ (\S+)", line)):
            owner.setdefault(m[1], set()).add(lib)
    return owner


def _symbols(path, undefined):
    """(name, version or '', is data) of the dynamic symbols."""
    for line in _objdump("-T", path).splitlines():
        m = re.match(
            r"[0-9a-f]{16} (.{7}) (\S+)\t[0-9a-f]+\s+(?:\(?([\w.+-]+)\)?\s+)?(?:\.\w+ )?(\S+)$",
            line,
        )
        if m and (m[2] == "*UND*") == undefined:
            yield m[4], "" if m[3] in (None, "Base") else m[3], "O" in m[1]


def _wanted(program, kept_paths):
    """Symbols each stand-in has to define: {library: {(name, version, data)}}."""
    stand_ins = [n for n in needed(program) if not KEEP.match(n)]
    there = {s[0] for path in kept_paths for s in _symbols(path, False)}
    owner = _version_owner(program)
    result = {name: set() for name in stand_ins}
    for name, version, data in _symbols(program, True):
        libs = owner.get(version, set()) & set(stand_ins)
        if libs:
            result[libs.pop()].add((name, version, data))
        elif (
            not version
            and name not in there
            and stand_ins
            and not name.startswith(("_ITM", "__gmon", "__cxa"))
        ):
            result[stand_ins[0]].add((name, "", data))
    return result


def _compile(soname, symbols, directory):
    code = ["/* a stand-in */"]
    versions = {}
    for name, version, data in sorted(symbols):
        code.append(f"char {name}[4096];" if data else f"void {name}(void) {{ __builtin_trap(); }}")
        if version:
            versions.setdefault(version, []).append(name)
    source = Path(directory) / "stub.c"
    source.write_text("\n".join(code) + "\n")
    script = Path(directory) / "stub.map"
    script.write_text(
        "".join(f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in versions.items())
    )
    target = Path(directory) / soname
    command = [
        "gcc",
        "-w",
        "-fno-builtin",
        "-shared",
        "-fPIC",
        "-nostdlib",
        f"-Wl,-soname,{soname}",
        "-o",
        target,
        source,
    ]
    subprocess.run(command + ([f"-Wl,--version-script,{script}"] if versions else []), check=True)
    return target


def replacements(program, kept_paths):
    """{file name: path} of stand-ins for all PROGRAM needs but the KEEP ones."""
    stat = Path(program).stat()
    key = hashlib.sha256(
        f"{program} {stat.st_size} {stat.st_mtime_ns}".encode() + Path(__file__).read_bytes()
    ).hexdigest()[:16]
    cached = CACHE / "stubs" / key
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cached.parent) as temp:
            made = Path(temp) / "lib"
            made.mkdir()
            for soname, symbols in _wanted(program, kept_paths).items():
                built = _compile(soname, symbols, temp)
                built.rename(made / soname)
            if not cached.exists():
                made.rename(cached)
    return {p.name: p for p in sorted(cached.iterdir())}
