# SPDX-License-Identifier: GPL-2.0
"""The host, from outside: a VM that virtme-ng boots, or this machine itself.

    with Host(lane="stock") as h:
        h.run("uname -a", check=True)

A host VM sees this machine's root file system, which it cannot change (what it
writes goes to its memory), and this checkout, which it can.
"""

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from . import accel, agent, emulator, image, insns, paths, traces, tsc, venv
from .agent import Gone, Result, Timeout
from .detect import KernelReports, LogWatch
from .paths import LabError, say
from .progress import Progress

PORTS = 8
BOOT_SECONDS = {"stock": 300, "debug": 900}
# Without a word of its agent, which speaks every five seconds, it is lost: an
# emulator that loses a CPU leaves a VM that neither goes on nor complains.  Longer
# than its kernel takes to see a soft lockup, which tells more.
SILENCE = 150
# After these nothing comes any more.
HOPELESS = re.compile(rb"BUG: soft lockup|Kernel panic - not syncing")
# A busy machine under TCG must not look like a stalled one.
APPEND = "loglevel=8 ignore_loglevel no5lvl nokaslr mitigations=off rcupdate.rcu_cpu_stall_timeout=100 watchdog_thresh=60"
# khugepaged interrupts all CPUs at once; emulated ones with guests miss one at times.
EMULATED = "transparent_hugepage=never"
CPU = {"tcg": "max", "kvm": "host"}
ACCEL = {"tcg": "tcg,thread=multi", "kvm": "kvm"}


def _seconds(name, default):
    return float(os.environ.get(name, default))


def _for_emulated():
    """What the kernel of an emulated machine is told."""
    return f"{EMULATED} tsc_early_khz={tsc.khz()}"


def default_memory():
    """6 GiB, on a small machine a third of what it has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return f"{min(6144, total // 3)}M"


class NoBoot(LabError):
    """A host VM did not come up; its kernel reported nothing."""


class Host:
    """A host VM.  Without a name it is a new one, and stops at the end of `with`;
    with a name it is the one of that name, booted when it is not up."""

    place = "in the host VM"
    guests_only = False

    def __new__(cls, *args, **kw):
        if cls is Host and accel.accel() == "native":
            return super().__new__(NativeHost)
        return super().__new__(cls)

    def __init__(self, lane="stock", cpus=2, mem=None, name=None, append="", qemu_args=()):
        self.lane = lane
        self.kernel = paths.kernel(lane)
        self.cpus = cpus
        self.mem = mem or default_memory()
        self.name = name or f"{lane}-{os.getpid()}"
        self.stop_at_exit = name is None
        self.append = append
        self.qemu_args = list(qemu_args)
        self.state = paths.OUT / "lab" / self.name
        self.sockets = paths.socket_dir(self.name)
        self.console = self.state / "console.log"
        self.image = None
        self._agent = None
        self._watch = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, trace):
        try:
            if self.up() and kind is None:
                self.check()
        finally:
            if self.stop_at_exit:
                self.stop()
            else:
                self.disconnect()

    # its life

    def up(self):
        """Whether its keeper (pvlab.hostd) lives."""
        try:
            pid = int((self.state / "pid").read_text())
            os.kill(pid, 0)
        except (OSError, ValueError):
            return False
        return True

    def ports(self):
        return [self.sockets / f"p{i}" for i in range(PORTS)]

    def start(self):
        """Boot it, if it is not up, and wait for it."""
        self.state.mkdir(parents=True, exist_ok=True)
        self.sockets.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.state / "start.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.up():
                meta = json.loads((self.state / "spec.json").read_text())
                if meta["lane"] != self.lane:
                    raise LabError(
                        f"host VM '{self.name}' is up in the {meta['lane']} lane: stop it, or take another name (-H)"
                    )
                self.image = meta.get("image") or str(image.build(self.kernel))
            else:
                self._boot()
        if not self._watch:
            self._watch = LogWatch(self.console, f"host VM '{self.name}'", self._scanned())
        return self

    def _command(self):
        arguments = []
        for i, port in enumerate(self.ports()):
            arguments += [
                "-chardev",
                f"socket,id=lab{i},path={port},server=on,wait=off",
                "-device",
                f"virtserialport,bus=lab.0,chardev=lab{i},name=lab.{i}",
            ]
        kind = accel.accel()
        qemu = [
            "-cpu",
            CPU[kind],
            "-accel",
            ACCEL[kind],
            # The firmware waits half a minute for an empty DVD drive of QEMU 10's.
            "-nodefaults",
            "-device",
            f"virtio-serial-pci,id=lab,max_ports={PORTS + 1}",
            *arguments,
            "-qmp",
            f"unix:{self.sockets}/qmp,server=on,wait=off",
            "-fsdev",
            "local,id=labroot,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device",
            "virtio-9p-pci,fsdev=labroot,mount_tag=lab.root",
            *insns.qemu_args(self.state, kind),
            *self.qemu_args,
        ]
        init = [
            paths.LAB / "pvlab/hostinit.sh",
            agent.build(),
            self.kernel.modules,
            paths.CACHE,
        ]
        command = [
            venv.vng(),
            "--verbose",
            "--run",
            self.kernel.image,
            "--name",
            f"lab-{self.name}",
            "--user",
            "root",
            "--force-9p",
            "--disable-microvm",
            "--cwd",
            "/",
            "--rwdir",
            paths.TOP,
            "--cpus",
            self.cpus,
            "--memory",
            self.mem,
            f"--append={APPEND} {_for_emulated() if kind == 'tcg' else ''} {self.append}",
            f"--qemu-opts={shlex.join(str(a) for a in qemu)}",
            f"--exec={shlex.join(str(a) for a in init)}",
        ]
        if kind == "tcg":
            command.insert(1, "--disable-kvm")
        program = emulator.path(kind)
        if program:
            command[1:1] = ["--qemu", program]
        return [str(c) for c in command]

    def _boot(self):
        for leftover in ("ended", "slot", "scanned", "hostd.log"):
            (self.state / leftover).unlink(missing_ok=True)
        self.console.write_bytes(b"")
        spec = {
            "image": str(image.build(self.kernel)),
            "client": os.getpid(),
            "lane": self.lane,
            "state": str(self.state),
            "command": self._command(),
            "ports": [str(p) for p in self.ports()],
            "idle": _seconds("LAB_IDLE", 900),
            "slots": int(os.environ.get("LAB_VMS", 2)),
            "slot_limit": _seconds("LAB_SLOT_WAIT", 3600),
        }
        self.image = spec["image"]
        path = self.state / "spec.json"
        path.write_text(json.dumps(spec))
        env = {
            **os.environ,
            "PYTHONPATH": str(paths.LAB),
            "PATH": f"{venv.vng().parent}:{os.environ['PATH']}",
        }
        subprocess.run([sys.executable, "-m", "pvlab.hostd", path], check=True, env=env)
        self._await_slot()
        self._await_agent()

    def _await_slot(self):
        told = time.monotonic() + 2
        while not (self.state / "slot").exists():
            if (self.state / "ended").exists():
                raise LabError(
                    f"the host VM did not start: {(self.state / 'ended').read_text().strip()}\n{self._tail()}"
                )
            if told and time.monotonic() > told:
                say("waiting for other host VMs on this machine to end (LAB_VMS)")
                told = None
            time.sleep(0.1)

    def _await_agent(self):
        limit = _seconds("LAB_BOOT_SECONDS", BOOT_SECONDS[self.lane])
        begin = time.monotonic()
        say(
            f"booting host VM '{self.name}' ({self.lane}, {self.kernel.release}, {accel.accel()}; at most {limit:.0f} s)"
        )
        try:
            with Progress("still booting"):
                self._agent = agent.Agent(self.ports(), limit, self.up)
        except (Timeout, Gone) as e:
            reports = LogWatch(self.console, self.name).reports()
            self.stop()
            if reports:
                raise KernelReports(f"host VM '{self.name}'", reports) from e
            raise NoBoot(f"the host VM did not boot: {e}\n{self._tail()}") from e
        say(f"host VM is up after {time.monotonic() - begin:.0f} s")

    def stop(self):
        """End it; what was new in its log is not looked at any more."""
        self.disconnect()
        try:
            pid = int((self.state / "pid").read_text())
            os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError):
            pid = None
        for _ in range(100):
            if pid is None or not self.up():
                break
            time.sleep(0.1)
        shutil.rmtree(self.sockets, ignore_errors=True)

    def disconnect(self):
        if self._agent:
            self._agent.close()
            self._agent = None

    # its kernel's log

    def _scanned(self):
        try:
            return int((self.state / "scanned").read_text())
        except (OSError, ValueError):
            return 0

    def reports(self):
        """What its kernel has reported since the last look."""
        found = self._watch.reports()
        with contextlib.suppress(OSError):
            (self.state / "scanned").write_text(str(self._watch.offset))
        return found

    def check(self):
        found = self.reports()
        if found:
            raise KernelReports(self._watch.where, found)

    def log(self):
        return self.console.read_text(errors="replace")

    def _goes_on(self):
        """Whether it makes sense to wait for it."""
        return self.up() and not self._watch.ahead(HOPELESS)

    def look_at_cpus(self):
        """(what its CPUs do, those that take no interrupts), as its QEMU tells it."""
        return traces.look_at(self.sockets / "qmp")

    def _tail(self):
        lines = LogWatch(self.console, "").tail()
        with contextlib.suppress(OSError):
            lines = f"{(self.state / 'hostd.log').read_text()[-2000:]}{lines}"
        return f"--- last lines of its console\n{lines}\n---"

    # commands

    def _connect(self):
        if not self._agent:
            self._agent = agent.Agent(self.ports(), 60, self._goes_on, SILENCE)
        return self._agent

    def environment(self, env=None):
        return host_environment(self, env)

    def _guarded(self, function):
        """Run FUNCTION; an end of the VM or of a limit tells what the console had."""
        try:
            result = function(self._connect())
        except (Gone, Timeout) as e:
            self.disconnect()
            found = self.reports()
            if found:
                raise KernelReports(self._watch.where, found) from e
            e.add_note(self._tail())
            raise
        try:
            self.check()
        except KernelReports as e:
            e.status = result if isinstance(result, int) else None
            raise
        return result

    def run(self, command, *, timeout=600.0, check=False, cwd=None, env=None, stdin=None):
        """Run COMMAND (a string for the shell, or a list); raises if its kernel reports anything."""
        kw = {"cwd": cwd or paths.TOP, "env": self.environment(env), "stdin": stdin}
        return self._guarded(lambda a: a.run(command, timeout=timeout, check=check, **kw))

    def stream(
        self,
        command,
        *,
        timeout=None,
        cwd=None,
        env=None,
        stdin=None,
        pty=False,
        out=None,
        err=None,
    ):
        """The same, its output going to ours as it comes; returns its status."""
        out = out or _writer(1)
        err = err or _writer(2)
        kw = {"cwd": cwd or paths.TOP, "env": self.environment(env), "stdin": stdin, "pty": pty}
        return self._guarded(lambda a: a.stream(command, timeout=timeout, out=out, err=err, **kw))

    def put(self, path, data):
        self._guarded(lambda a: a.put(path, data))

    def get(self, path):
        return self._guarded(lambda a: a.get(path))


def _writer(fd):
    def write(data):
        while data:
            data = data[os.write(fd, data) :]

    return write


def host_environment(host, env=None):
    """What a command on the host finds in its environment."""
    given = {
        k: v
        for k, v in os.environ.items()
        if k.startswith("LAB_") or k in ("FULL", "TERM", "LANG", "V")
    }
    if host.lane == "debug":
        given["LAB_DEBUG_KERNEL"] = str(host.kernel.image.parent)
    return {
        "PATH": f"{paths.LAB}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": os.environ.get("HOME", "/root"),
        "USER": "root",
        "LOGNAME": "root",
        "PYTHONPATH": str(paths.LAB),
        "PYTHONPYCACHEPREFIX": "/run/pvlab/pycache",
        "PYTHONUNBUFFERED": "1",
        **given,
        "LAB_CACHE": str(paths.CACHE),
        "LAB_HOST": host.name,
        "LAB_LANE": host.lane,
        "LAB_KERNEL_RELEASE": host.kernel.release,
        "LAB_IMAGE": host.image,
        **insns.environment(host.state),
        **(env or {}),
    }


class NativeHost(Host):
    """This machine as the host (LAB_ACCEL=native)."""

    place = "on this machine"

    def __init__(
        self, lane="stock", cpus=None, mem=None, name=None, append="", qemu_args=(), kernel=None
    ):
        del cpus, mem, append, qemu_args
        self.lane = lane
        self.name = name or "native"
        self.kernel = kernel or paths.running_kernel(lane, os.uname().release)
        self.state = paths.OUT / "lab" / self.name
        self.console = self.state / "console.log"
        self._kmsg = None
        self._watch = None

    def up(self):
        return True

    def start(self):
        self.state.mkdir(parents=True, exist_ok=True)
        self.image = str(image.build(self.kernel))
        for module in ("kvm_amd", "kvm_intel"):
            if not os.path.exists("/dev/kvm"):
                subprocess.run(["modprobe", module], check=False, capture_output=True)
        self.console.write_bytes(b"")
        self._watch = LogWatch(self.console, "this machine")
        self._kmsg = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self._kmsg, 0, os.SEEK_END)
        return self

    def stop(self):
        self.disconnect()

    def disconnect(self):
        if self._kmsg is not None:
            os.close(self._kmsg)
            self._kmsg = None

    def look_at_cpus(self):
        return "", []

    def argv_of(self, command):
        """The words that run COMMAND."""
        return agent.argv_of(command)

    def reports(self):
        with open(self.console, "ab") as f:
            while True:
                try:
                    record = os.read(self._kmsg, 65536)
                except BlockingIOError:
                    break
                except BrokenPipeError:
                    continue
                head, _, text = record.partition(b";")
                stamp = int(head.split(b",")[2]) / 1e6
                f.write(b"[%12.6f] %s\n" % (stamp, text.split(b"\n")[0]))
        return self._watch.reports()

    def stream(
        self,
        command,
        *,
        timeout=None,
        cwd=None,
        env=None,
        stdin=None,
        pty=False,
        out=None,
        err=None,
    ):
        del pty
        source = (
            subprocess.PIPE
            if isinstance(stdin, bytes)
            else stdin
            if stdin is not None
            else subprocess.DEVNULL
        )
        child = subprocess.Popen(
            self.argv_of(command),
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd or paths.TOP,
            env=self.environment(env),
            start_new_session=True,
        )
        threads = [
            threading.Thread(target=_forward, args=(f, w))
            for f, w in ((child.stdout, out or _writer(1)), (child.stderr, err or _writer(2)))
        ]
        for thread in threads:
            thread.start()
        try:
            if isinstance(stdin, bytes):
                child.stdin.write(stdin)
                child.stdin.close()
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Timeout(f"time limit reached: {command}") from None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        for thread in threads:
            thread.join(2)
        status = status if status >= 0 else 128 - status
        try:
            self.check()
        except KernelReports as e:
            e.status = status
            raise
        return status

    def run(self, command, *, timeout=600.0, check=False, cwd=None, env=None, stdin=None):
        out, err = bytearray(), bytearray()
        status = self.stream(
            command, timeout=timeout, cwd=cwd, env=env, stdin=stdin, out=out.extend, err=err.extend
        )
        result = Result(status, out.decode(errors="replace"), err.decode(errors="replace"))
        if check and status:
            raise agent.CommandFailed(command, result)
        return result

    def put(self, path, data):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)

    def get(self, path):
        return Path(path).read_bytes()


def _forward(file, write):
    while data := os.read(file.fileno(), 65536):
        write(data)
