# SPDX-License-Identifier: GPL-2.0
"""Runs on the host: boots a guest for each path and measures each row."""

import functools
import itertools
import json
import os
import platform
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

from pvlab.guest import Disk, Share

from pvbench import resume
from pvbench.counters import Kernel
from pvbench.paths import NullBlk, Unavailable, sh, that_takes
from pvbench.rows import is_ours
from pvbench.session import booted

TOP = Path(__file__).resolve().parents[4]


def measure(path_class, todo, secs, env, kernel, emit, say):
    """The rows TODO of one path, on one boot of a guest."""
    path = path_class(env)
    say(f"{path.name}: booting a guest")
    with booted(path, kernel, env.workdir) as session:
        idle = session.idle(secs)
        while todo:
            emit(session.row(*todo[0], secs, idle))
            del todo[0]


def accelerator():
    """What runs the host's own instructions, as far as the host can tell."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    nested = "kvm_amd" if " svm" in cpuinfo else "kvm_intel"
    if "QEMU TCG" in cpuinfo:
        return f"emulated (QEMU TCG; guests nested by {nested})"
    if " hypervisor" in cpuinfo:
        return f"KVM (guests nested by {nested})"
    return f"bare metal ({nested})"


def machine(commit):
    return {
        "accelerator": accelerator(),
        "cpus": os.cpu_count(),
        "host_kernel": platform.release(),
        "guest_kernel": platform.release(),
        "qemu": sh("qemu-system-x86_64", "--version").split("(")[0].split()[-1],
        "fio": sh("fio", "--version").strip().removeprefix("fio-"),
        "commit": commit,
    }


def environment(workdir, device):
    """What a path may ask of the host."""
    ours = TOP / "out/build" / platform.release()

    def module(name):
        return next(iter(sorted(ours.rglob(f"{name}.ko"))), None)

    def load(name):
        if Path(f"/sys/module/{name}").exists():
            return
        path = module(name)
        sh("insmod", path) if path else sh("modprobe", name)

    pvio = TOP / "out/bin/pvio"
    return SimpleNamespace(
        workdir=workdir,
        device=device,
        Disk=Disk,
        Share=Share,
        module=module,
        load=load,
        pvio=pvio if pvio.exists() else None,
    )


def prepare_host():
    """Counters need both file systems; without them a run counts nothing."""
    for kind, where in (("debugfs", "/sys/kernel/debug"), ("tracefs", "/sys/kernel/tracing")):
        if not any(Path(where).iterdir()):
            subprocess.run(["mount", "-t", kind, kind, where], check=False)
    sh("modprobe", "kvm")


def write_json(path, doc):
    temp = path.with_suffix(".tmp")
    temp.write_text(json.dumps(doc, indent=1) + "\n")
    temp.rename(path)


def run_extra(name, measure, secs, out, commit, say):
    """Rows that are not of one path, from MEASURE, into OUT; how much of it failed."""
    prepare_host()
    doc = {"machine": machine(commit), "rows": []}

    def emit(row):
        doc["rows"].append(row)
        write_json(out, doc)

    with tempfile.TemporaryDirectory(prefix="pvbench") as workdir:
        try:
            return measure(environment(workdir, None), secs, emit, say)
        except Unavailable as e:
            # It is of ours.
            say(f"{name}: not run: {e}")
            return 1
        except Exception as e:
            say(f"{name}: FAILED: {e}")
            return 1


def run(paths, ops, depths, secs, disk_us, out, commit, say):
    """Measure, keeping OUT up to date; the number of paths that failed, and of ours that
    could not run.  A peer may be missing."""
    prepare_host()
    doc = {"machine": machine(commit), "rows": [], "skipped": []}
    if disk_us:
        doc["machine"]["disk_us"] = disk_us
    failed = set()

    def emit(row):
        doc["rows"].append(row)
        write_json(out, doc)
        say(
            f"{row['path']} {row['op']} {row['bs'] // 1024}k depth "
            f"{row['depth']}: {row['exits'] / row['ios']:.2f} exits per I/O, "
            f"{row['iops']:.0f} IOPS"
        )

    with (
        tempfile.TemporaryDirectory(prefix="pvbench") as workdir,
        NullBlk(that_takes(disk_us)) as null,
        Kernel() as kernel,
    ):
        env = environment(workdir, null.path)
        for path in paths:
            todo = list(itertools.product(ops, depths))
            work = functools.partial(measure, path, todo, secs, env, kernel, emit, say)
            try:
                error = resume.all_of(path.name, todo, work, say)
            except Unavailable as e:
                doc["skipped"].append({"path": path.name, "reason": str(e)})
                say(f"{path.name}: not run: {e}")
                error = None
                if is_ours(path.name):
                    failed.add(path.name)
            if error:  # one broken path must not hide the others
                failed.add(path.name)
                doc["skipped"].append({"path": path.name, "reason": f"failed: {error}"})
            write_json(out, doc)
    return len(failed)
