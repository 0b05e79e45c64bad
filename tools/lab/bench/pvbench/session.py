# SPDX-License-Identifier: GPL-2.0
"""One guest, and what its host does while it runs a command."""

import contextlib
import os
import threading
from pathlib import Path
from types import SimpleNamespace

from pvlab.guest import Guest

from pvbench import fio, insns
from pvbench.counters import difference, summarise, threads_of
from pvbench.gate import Gate
from pvbench.paths import POLL_CPU
from pvbench.rows import HAVE_IDLE

WARM_SECS = 1
# Another VM on the same cores can make a boot under emulation this slow.
BOOT_SECS = 400
# Booting, warming and laying out take this long at most beside the run itself.
SLACK_SECS = 120


@contextlib.contextmanager
def booted(path, kernel, workdir, **more):
    """A guest on PATH, whose backend is up as long; MORE are arguments of Guest."""
    path.check()
    gate = Gate(Path(workdir) / "gate.sock")
    try:
        path.start()
        args = {"qemu_args": [], **path.guest_args(), **more}
        args["qemu_args"] = [*args["qemu_args"], *gate.qemu_args()]
        with Guest(
            name="bench", modules=list(path.modules), boot_timeout=BOOT_SECS, **args
        ) as guest:
            session = Session(path, guest, gate, kernel)
            session.pin()
            yield session
    finally:
        gate.close()
        path.stop()


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
        """The vCPUs off the CPU of what serves, which paths name; for each path alike."""
        cpus = os.cpu_count()
        if cpus < 2:
            return
        free = [cpu for cpu in range(cpus) if cpu != POLL_CPU]
        who = self.threads()
        places = [(tid, free[i % len(free)]) for i, tid in enumerate(sorted(who.vcpus))]
        places += [(tid, self.path.backend_cpu) for tid in who.backend]
        for tid, cpu in places:
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
            window = contextlib.nullcontext()
            if insns.available():
                window = insns.Counting(insns.symbols())
            before, t0 = self.kernel.snapshot(self.guest.pid, who)
            with window as counting:
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
        counts["insns"] = counting.window.sides(POLL_CPU) if counting else None
        return answer.result, counts, t1 - t0

    def idle(self, secs):
        """What is counted in a second of this guest without I/O."""
        _, counts, took = self.counted(fio.idle_command(secs, self.path.spin), secs)
        self.idle_reasons = {k: n / took for k, n in counts["exits_by_reason"].items()}
        keys = (*HAVE_IDLE, "irqs_all", "poller_csw")
        return {key: counts[key] / took for key in keys}

    def fio(self, target, op, depth, secs, **more):
        """One run of fio's, counted; MORE as fio.command() has it."""
        engine = self.path.engine_at(depth)
        command = fio.command(target, op, depth, secs, engine, WARM_SECS, **more)
        result, counts, took = self.counted(command, secs)
        if result.status:
            raise RuntimeError(
                f"fio ended with {result.status}: {(result.err or result.out)[-500:]}"
            )
        return {**fio.result(result.out), **counts, "window_s": round(took, 3)}

    def row(self, op, depth, secs, idle):
        counted = self.fio(self.target, op, depth, secs)
        took = counted["window_s"]
        return {
            "path": self.path.name,
            "op": op.rw,
            "bs": op.bs,
            "depth": depth,
            "jobs": 1,
            "vcpus": 1,
            "engine": self.path.engine_at(depth),
            **counted,
            **{f"{key}_idle": round(rate * took) for key, rate in idle.items()},
            "idle_by_reason": {k: round(n * took) for k, n in self.idle_reasons.items()},
            "idle_guest": "spinning" if self.path.spin else "asleep",
        }
