# SPDX-License-Identifier: GPL-2.0
"""Runs on the host: boots a guest for each path and measures each row."""

import contextlib
import json
import os
import platform
import subprocess
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

from pvlab.guest import Disk, Guest, Share

from pvbench import fio, modes
from pvbench.counters import Kernel, difference, summarise, threads_of
from pvbench.gate import Gate
from pvbench.paths import NullBlk, Unavailable, sh

TOP = Path(__file__).resolve().parents[4]
WARM_SECS = 1
# Another VM on the same cores can make a boot under emulation this slow.
BOOT_SECS = 400
# Booting, warming and laying out take this long at most beside the run itself.
SLACK_SECS = 120


class Session:
    """One guest on one path, with everything that counts it."""

    def __init__(self, path, guest, gate, kernel):
        self.path, self.guest, self.gate, self.kernel = path, guest, gate, kernel
        self.target = path.target(guest)
        gate.connect()
        self.vcpus = {c["thread-id"] for c in guest.qmp("query-cpus-fast")}

    def threads(self):
        backends = [self.guest.pid, *self.path.backend_pids()]
        return threads_of(self.vcpus, backends, self.path.poller_pids())

    def pin(self):
        """The vCPU on CPU 0, what serves its I/O on CPU 1, for each path alike."""
        if os.cpu_count() < 2:
            return
        who = self.threads()
        for cpu, tids in ((0, who.vcpus), (self.path.backend_cpu, who.backend)):
            for tid in tids:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(tid, {cpu})

    def counted(self, command, secs):
        """Run COMMAND in the guest; (its output, what was counted, seconds)."""
        answer = SimpleNamespace(result=None, error=None)

        def run():
            try:
                answer.result = self.guest.run(command, timeout=secs + SLACK_SECS)
            except Exception as e:  # handed to the main thread below
                answer.error = e

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            self.gate.wait(fio.BEGIN, SLACK_SECS, thread.is_alive)
            who = self.threads()
            before, t0 = self.kernel.snapshot(self.guest.pid, who)
            self.gate.open()
            self.gate.wait(fio.END, secs + SLACK_SECS, thread.is_alive)
            who |= self.threads()  # thread pools grow
            after, t1 = self.kernel.snapshot(self.guest.pid, who)
            self.gate.open()
        except TimeoutError as e:
            thread.join(1)
            raise RuntimeError(f"{e}: {answer.error or answer.result}") from e
        thread.join()
        if answer.error:
            raise answer.error
        delta = difference(before, after)
        counts = summarise(delta, who, self.kernel.isa, self.kernel.knows("kick"))
        return answer.result, counts, t1 - t0

    def idle(self, secs):
        """Exits a second of this guest without I/O."""
        _, counts, took = self.counted(fio.idle_command(secs, self.path.spin), secs)
        self.idle_reasons = {k: n / took for k, n in counts["exits_by_reason"].items()}
        return {key: counts[key] / took for key in ("exits", "irqs_all", "csw")}

    def row(self, op, depth, secs, idle):
        command = fio.command(self.target, op, depth, secs, self.path.engine, WARM_SECS)
        result, counts, took = self.counted(command, secs)
        if result.status:
            raise RuntimeError(
                f"fio ended with {result.status}: " f"{(result.err or result.out)[-500:]}"
            )
        return {
            "path": self.path.name,
            "op": op.rw,
            "bs": op.bs,
            "depth": depth,
            "jobs": 1,
            "vcpus": 1,
            "engine": self.path.engine,
            **fio.result(result.out),
            **counts,
            "window_s": round(took, 3),
            **{f"{key}_idle": round(rate * took) for key, rate in idle.items()},
            "idle_by_reason": {k: round(n * took) for k, n in self.idle_reasons.items()},
            "idle_guest": "spinning" if self.path.spin else "asleep",
        }


def measure(path_class, ops, depths, secs, env, kernel, emit, say):
    """All rows of one path, on one boot of a guest."""
    path = path_class(env)
    path.check()
    say(f"{path.name}: booting a guest")
    gate = Gate(Path(env.workdir) / "gate.sock")
    try:
        path.start()
        args = {"qemu_args": [], **path.guest_args()}
        args["qemu_args"] = [*args["qemu_args"], *gate.qemu_args()]
        with Guest(
            name="bench", modules=list(path.modules), boot_timeout=BOOT_SECS, **args
        ) as guest:
            session = Session(path, guest, gate, kernel)
            session.pin()
            idle = session.idle(secs)
            for op in ops:
                for depth in depths:
                    emit(session.row(op, depth, secs, idle))
    finally:
        gate.close()
        path.stop()


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

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    pvio = cache / "pvio-lab/cargo/release/pvio"
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


def run_modes(secs, out, commit, say):
    """The poller's modes under load, into OUT."""
    with tempfile.TemporaryDirectory(prefix="pvbench") as workdir:
        env = environment(workdir, None)
        try:
            rows = modes.measure(env, secs, say)
        except Unavailable as e:
            say(f"modes: not run: {e}")
            return 0
        except Exception as e:
            say(f"modes: FAILED: {e}")
            return 1
    write_json(out, {"machine": machine(commit), "rows": rows})
    return 0


def run(paths, ops, depths, secs, out, commit, say):
    """Measure, keeping OUT up to date; the number of paths that failed."""
    prepare_host()
    doc = {"machine": machine(commit), "rows": [], "skipped": []}
    failed = Counter()

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
        NullBlk() as null,
        Kernel() as kernel,
    ):
        env = environment(workdir, null.path)
        for path in paths:
            try:
                measure(path, ops, depths, secs, env, kernel, emit, say)
            except Unavailable as e:
                doc["skipped"].append({"path": path.name, "reason": str(e)})
                say(f"{path.name}: not run: {e}")
            except Exception as e:  # one broken path must not hide the others
                failed[path.name] += 1
                doc["skipped"].append({"path": path.name, "reason": f"failed: {e}"})
                say(f"{path.name}: FAILED: {e}")
            write_json(out, doc)
    return sum(failed.values())
