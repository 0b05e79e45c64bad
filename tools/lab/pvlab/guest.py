# SPDX-License-Identifier: GPL-2.0
"""Guests, on the host.

    with Guest(name="g", disks=[Disk.qemu("/dev/nullb0")]) as g:
        print(g.run("cat /proc/partitions", check=True).out)

Leaving `with` ends the guest, and raises if its kernel reported anything.
Guests keep their things in /run/pvlab/guests/NAME; a copy of the console is
left in out/lab/HOST/.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

from . import agent, cpio, image, late, paths, tsc
from . import modules as kmod
from .agent import CommandFailed, Gone, Result, Timeout
from .detect import KernelReports, LogWatch
from .devices import Disk, Share
from .paths import LabError, say
from .qmp import Qmp
from .traces import STARTED_AGAIN

RUN = Path("/run/pvlab")
# hostinit.sh mounts it.
HUGE = RUN / "huge"
PORTS = 3
QEMU = "qemu-system-x86_64"
# Waits for the QEMU of a guest that outlives who started it.
KEEPER = '"$@" & echo $! >"$0/pid"; wait $!; echo $? >"$0/status"'
TAIL = "--- last lines of guest"
# The part of its boot's time after which a guest under emulation has said something.
FIRST_WORD = 0.4
BOOT_SECONDS = {"stock": 300, "debug": 600}
MEMORY = {"stock": "512M", "debug": "1G"}
# Quiet until the agent turns it up: each 16 bytes on the console are an exit.
APPEND = "console=hvc0 loglevel=5 panic=-1 no5lvl nokaslr mitigations=off rcupdate.rcu_cpu_stall_timeout=100 watchdog_thresh=60"


def _lane():
    return os.environ.get("LAB_LANE", "stock")


def kernel_here():
    """The host's own kernel serves its guests, too."""
    lane = _lane()
    release = os.environ.get("LAB_KERNEL_RELEASE")
    if os.environ.get("LAB_ACCEL") == "native":
        return paths.running_kernel(lane, os.uname().release)
    found = paths.kernel(lane)
    if release and release != found.release:
        raise LabError(
            f"the host runs {release}, but the {lane} kernel is now {found.release}: start the host anew"
        )
    return found


class _NoWord(LabError):
    """A guest that said nothing while it started."""


def emulated():
    """Whether the host is itself a VM, under TCG."""
    return "QEMU TCG CPU" in Path("/proc/cpuinfo").read_text()


def emulator_here():
    """The emulator that runs guests on this machine, without a host VM (here.py), or ""."""
    return os.environ.get("LAB_EMULATOR", "")


def _qemu():
    """The program that runs a guest: Debian's, or LAB_GUEST_QEMU."""
    path = os.environ.get("LAB_GUEST_QEMU")
    if not path:
        return QEMU
    # In a host VM the machine's files are read there (hostinit.sh).
    seen = next((p for p in (Path("/run/root" + path), Path(path)) if p.exists()), None)
    if not seen:
        raise LabError(f"LAB_GUEST_QEMU={path} is not there: give QEMU's whole path")
    return str(seen)


def _machine():
    """QEMU, how it runs a guest, and the CPU that the guest has."""
    if emulator_here():
        return emulator_here(), "tcg,thread=multi", "max"
    # The state sizes of xsave are emulated wrongly at times, and the guest WARNs.
    return _qemu(), "kvm", "host,-xsave" if emulated() else "host"


def keep_interrupts_single():
    """Load the module without which QEMU's emulator delivers some to a guest twice."""
    try:
        kmod.load("lab_vmrun")
    except LabError as e:
        raise LabError(
            f"guests under emulation want lab_vmrun: run `make modules` first ({e})"
        ) from e


class Guest:
    def __init__(
        self,
        name="guest",
        vcpus=1,
        mem=None,
        disks=(),
        shares=(),
        kernel=None,
        append="",
        qemu_args=(),
        modules=None,
        boot_timeout=None,
        serial=False,
        overlay=None,
        direct_kernel=True,
        kept=False,
    ):
        """KERNEL is a paths.Kernel, default the host's.  MODULES are loaded once it is
        up, default virtio_blk if there are disks; ours are found by their name too.
        SERIAL puts the console on ttyS0: slow, and shows the earliest words.
        OVERLAY is {path: data} of programs and files to put over the initramfs.
        Without DIRECT_KERNEL the firmware boots from a disk, on which the caller has
        put kernel_image(), initramfs() and cmdline().  One that is KEPT outlives this
        process; how it ended is told to those that attach()."""
        self.name = name
        self.vcpus = vcpus
        self.kernel = kernel or kernel_here()
        self.mem = mem or MEMORY[self.kernel.lane]
        self.disks = list(disks)
        self.shares = list(shares)
        self.append = append
        self.qemu_args = list(qemu_args)
        self.modules = list(modules) if modules is not None else ["virtio_blk"] if disks else []
        self.boot_timeout = boot_timeout or float(
            os.environ.get("LAB_BOOT_SECONDS", BOOT_SECONDS[self.kernel.lane])
        )
        self.serial = serial
        self.overlay = overlay or {}
        self.direct_kernel = direct_kernel
        self.kept = kept
        self._paths()

    def _paths(self):
        self.state = RUN / "guests" / self.name
        self.console = self.state / "console.log"
        self.pid = None
        self.process = None
        self._free = []
        self._lock = threading.Lock()
        self._expecting = None
        self._looked = False
        self._watch = LogWatch(self.console, f"guest '{self.name}'")

    @classmethod
    def attach(cls, name):
        """The running guest of that name, started by another process."""
        self = cls.__new__(cls)
        self.name = name
        self.kept = True
        self._paths()
        try:
            spec = json.loads((self.state / "spec.json").read_text())
        except OSError:
            raise LabError(f"there is no guest '{name}' here") from None
        self.pid = spec["pid"]
        self.direct_kernel = spec["direct_kernel"]
        self.kernel = paths.Kernel(spec["lane"], spec["release"], Path(), Path(spec["modules"]))
        with contextlib.suppress(OSError, ValueError):
            self._watch.offset = int((self.state / "scanned").read_text())
        return self

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, trace):
        self.stop(check=kind is None)

    # its life

    def alive(self):
        if self.process:
            return self.process.poll() is None
        try:
            os.kill(self.pid, 0)
        except (OSError, TypeError):
            return False
        return Path(f"/proc/{self.pid}/stat").read_text().split()[2] != "Z"

    def ports(self):
        return [self.state / f"p{i}" for i in range(PORTS)]

    def initramfs(self):
        """The path of a copy that needs no walk to the outside."""
        source = Path(os.environ.get("LAB_IMAGE") or image.build(self.kernel))
        if self.kernel.release not in source.name:
            source = image.build(self.kernel)
        copy = RUN / "images" / source.name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            temp = copy.with_suffix(f".{os.getpid()}")
            shutil.copyfile(source, temp)
            temp.rename(copy)
        return copy

    def _overlaid(self):
        """The initramfs with the overlay as a second archive behind it."""
        if not self.overlay:
            return self.initramfs()
        archive = cpio.Archive()
        for name, data in self.overlay.items():
            archive.file(name, data, 0o755)
        path = self.state / "initramfs"
        path.write_bytes(self.initramfs().read_bytes() + archive.bytes())
        return path

    def kernel_image(self):
        """The path of a copy that needs no walk to the outside."""
        copy = RUN / "images" / f"{self.kernel.lane}-{self.kernel.image.stat().st_mtime_ns}"
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            temp = copy.with_suffix(f".{os.getpid()}")
            shutil.copyfile(self.kernel.image, temp)
            temp.rename(copy)
        return copy

    def cmdline(self):
        """The kernel's command line."""
        append = f"{APPEND} {self.append}"
        if self.serial:
            append = append.replace(
                "console=hvc0 loglevel=5", "console=ttyS0 earlyprintk=serial ignore_loglevel"
            )
        return f"tsc_early_khz={tsc.khz()} {append}" if emulator_here() else append

    def _kernel_words(self):
        if not self.direct_kernel:
            return []
        return [
            "-kernel",
            self.kernel_image(),
            "-initrd",
            self._overlaid(),
            "-append",
            self.cmdline(),
        ]

    def _memory(self):
        """In huge pages where the host VM has some: most exits of a boot are for its pages."""
        if os.path.ismount(HUGE):
            return f"memory-backend-file,id=mem,size={self.mem},share=on,mem-path={HUGE},align=2M"
        return f"memory-backend-memfd,id=mem,size={self.mem},share=on"

    def command(self):
        """The QEMU command line."""
        program, accel, cpu = _machine()
        words = [
            program,
            "-name",
            f"lab-{self.name}",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-machine",
            "q35,memory-backend=mem",
            "-accel",
            accel,
            "-cpu",
            cpu,
            "-smp",
            self.vcpus,
            "-m",
            self.mem,
            "-object",
            self._memory(),
            *self._kernel_words(),
            "-qmp",
            f"unix:{self.state}/qmp,server=on,wait=off",
            "-chardev",
            f"file,id=console,path={self.console},append=on",
            "-device",
            f"virtio-serial-pci,id=lab,max_ports={PORTS + 2}",
        ]
        words += (
            ["-serial", "chardev:console"]
            if self.serial
            else ["-device", "virtconsole,bus=lab.0,chardev=console"]
        )
        for i, port in enumerate(self.ports()):
            words += [
                "-chardev",
                f"socket,id=lab{i},path={port},server=on,wait=off",
                "-device",
                f"virtserialport,bus=lab.0,chardev=lab{i},name=lab.{i}",
            ]
        for devices in (self.disks, self.shares):
            for i, device in enumerate(devices):
                words += device.arguments(i)
        return [str(w) for w in (*words, *self.qemu_args)]

    def start(self):
        """Boot it.  Under emulation one that says no word is started once more, which the
        selftests count as an excuse (traces.py)."""
        if not (emulated() or emulator_here()):
            return self._start(self._await_agent)
        if emulated():
            keep_interrupts_single()
        if not self.direct_kernel:
            # Its firmware reads the disk, which may be ours: silence is no excuse.
            return self._start(self._await_agent)
        try:
            return self._start(self._await_first_word)
        except _NoWord:
            say(f"guest '{self.name}' {STARTED_AGAIN}")
        return self._start(self._await_agent)

    def connect(self, limit, alive=None):
        return agent.Agent(self.ports(), limit, alive or self.alive, late=self._late)

    def _await_agent(self):
        return self.connect(self.boot_timeout)

    def _await_first_word(self):
        """Its agent; _NoWord if its vCPUs ran, and its console had not a byte."""
        ran = threading.Event()
        begin = time.monotonic()
        try:
            limit = self.boot_timeout * FIRST_WORD
            return self.connect(limit, lambda: self._alive_and(ran))
        except (Gone, Timeout) as e:
            silent = ran.is_set() and not self.log().strip()
            # Its sockets close before it ends, and only then there is a status.
            ended = isinstance(e, Gone) and self._wait(5)
            if silent and not (ended and self.process.returncode):
                raise _NoWord(str(e)) from e
            if isinstance(e, Gone):
                raise
        left = self.boot_timeout - (time.monotonic() - begin)
        return self.connect(left)

    def _alive_and(self, ran):
        """Whether it lives; RAN is set once its monitor says that its vCPUs run, so that
        each of its devices was set up."""
        if not ran.is_set():
            with contextlib.suppress(OSError, LabError, ValueError):
                if self.qmp("query-status")["running"]:
                    ran.set()
        return self.alive()

    def _start(self, await_agent):
        self._clear_old()
        command = self.command()
        (self.state / "command").write_text(" ".join(command) + "\n")
        keeper = ["sh", "-c", KEEPER, self.state] if self.kept else []
        with open(self.state / "qemu.log", "wb") as log:
            self.process = subprocess.Popen(
                [*keeper, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._pid_by_keeper() if self.kept else self.process.pid
        spec = {
            "pid": self.pid,
            "lane": self.kernel.lane,
            "release": self.kernel.release,
            "modules": str(self.kernel.modules),
            "direct_kernel": self.direct_kernel,
        }
        (self.state / "spec.json").write_text(json.dumps(spec))
        try:
            self._free.append(await_agent())
            for module in self.modules:
                self.modprobe(module)
        except (LabError, KeyboardInterrupt) as e:
            found = self._watch.reports()
            self._tell_end(e)
            self.kill()
            if found and isinstance(e, LabError):
                raise KernelReports(self._watch.where, found) from e
            raise
        return self

    def _pid_by_keeper(self):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                return int((self.state / "pid").read_text())
            time.sleep(0.05)
        self.process.kill()
        raise LabError(f"guest '{self.name}': QEMU was not started")

    def _clear_old(self):
        if (self.state / "spec.json").exists():
            old = Guest.attach(self.name)
            if old.alive():
                raise LabError(f"guest '{self.name}' runs already")
        shutil.rmtree(self.state, ignore_errors=True)
        self.state.mkdir(parents=True)

    def stop(self, check=True):
        """End it, at once; then its log must be clean."""
        try:
            with contextlib.suppress(OSError, LabError):
                if self.alive():
                    self.qmp("quit")
            self._wait(5)
        finally:
            self.kill()
        if check:
            self.check()

    def poweroff(self, timeout=30):
        """End it as its user would."""
        with contextlib.suppress(Gone):
            self._command(["poweroff", "-f"], timeout=timeout)
        if not self._wait(timeout):
            raise Timeout(f"guest '{self.name}' did not power off")
        self.kill()
        self.check()

    def _wait(self, seconds):
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def kill(self):
        """End it the hard way, if it still is."""
        for one in self._free:
            one.close()
        self._free.clear()
        with contextlib.suppress(OSError, TypeError):
            if self.alive():
                os.kill(self.pid, signal.SIGKILL)
        if self.process:
            self.process.wait()
        else:
            self._wait(10)
        self._keep_log()

    def _keep_log(self):
        directory = paths.OUT / "lab" / os.environ.get("LAB_HOST", "native")
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.console, directory / f"guest-{self.name}.log")

    # its kernel's log

    def log(self):
        return self.console.read_text(errors="replace") if self.console.exists() else ""

    def tail(self):
        """Its last lines, what QEMU said, and how QEMU ended if it has."""
        with contextlib.suppress(OSError):
            said = (self.state / "qemu.log").read_text(errors="replace")[-2000:].splitlines()
            lines = [self._watch.tail(), *(f"QEMU said: {line}" for line in said)]
            return "\n".join([f"{TAIL} '{self.name}'", *lines, f"{self._end()}---"])
        return ""

    def _tell_end(self, error):
        """Its tail, once for each error, however many see that on its way."""
        if not any(note.startswith(TAIL) for note in getattr(error, "__notes__", ())):
            error.add_note(self.tail())
            # It was looked at before, if a command is what was late.
            if isinstance(error, Timeout) and not self._looked:
                self._looked = True
                error.add_note(late.cpus(self))

    def _late(self):
        """A note for the first command that is late."""
        if self._looked:
            return ""
        self._looked = True
        return late.look(self)

    def _end(self):
        """How QEMU ended, if it has: 0 without being asked is a reset of the guest."""
        if not self._wait(1):
            return ""
        status = self.process.returncode if self.process and not self.kept else self._kept_status()
        if status is None:
            return "QEMU ended\n"
        if not (status or self.direct_kernel):
            # OVMF's watchdog resets a guest whose boot loader stands for five minutes.  The
            # words after the status keep traces.lost_guest() from taking that for a triple
            # fault.
            return "QEMU ended with status 0: the firmware, too, resets without a word\n"
        return f"QEMU ended with {f'signal {-status}' if status < 0 else f'status {status}'}\n"

    def _kept_status(self):
        """What its keeper wrote, which it does just after the end."""
        for _ in range(20):
            with contextlib.suppress(OSError, ValueError):
                status = int((self.state / "status").read_text())
                return 128 - status if status > 128 else status
            time.sleep(0.05)
        return None

    def check(self):
        """Raise what its kernel reported since the last look, unless it is expected."""
        found = self._watch.reports()
        with contextlib.suppress(OSError):
            (self.state / "scanned").write_text(str(self._watch.offset))
        if self._expecting is not None:
            self._expecting += found
        elif found:
            raise KernelReports(self._watch.where, found)

    @contextlib.contextmanager
    def expecting(self):
        """In here reports do not raise; they are gathered in what `as` gives."""
        self._expecting = reports = []
        try:
            yield reports
            self.check()
        finally:
            self._expecting = None

    def mark(self, text):
        """A line in its kernel's log."""
        self._command(["sh", "-c", 'echo "<6>lab: mark $0" >/dev/kmsg', text])

    def leaks(self):
        """What kmemleak finds since leaks_clear(); empty without kmemleak."""
        return self._command(
            "f=/sys/kernel/debug/kmemleak; [ -e $f ] || exit 0; echo scan >$f; sleep 5; echo scan >$f; cat $f",
            timeout=300,
        ).out

    def leaks_clear(self):
        self._command(
            "f=/sys/kernel/debug/kmemleak; [ -e $f ] || exit 0; echo scan=off >$f; echo scan >$f; echo clear >$f",
            timeout=300,
        )

    # commands

    @contextlib.contextmanager
    def _agent(self):
        with self._lock:
            one = self._free.pop() if self._free else None
        one = one or self.connect(30)
        try:
            yield one
        except (Gone, Timeout):
            one.close()
            raise
        except BaseException as e:
            if not isinstance(e, LabError):
                one.close()
                raise
            self._free.append(one)
            raise
        self._free.append(one)

    def _guarded(self, function):
        try:
            with self._agent() as one:
                result = function(one)
        except (Gone, Timeout) as e:
            self._tell_end(e)
            found = self._watch.reports()
            if found and self._expecting is None:
                raise KernelReports(self._watch.where, found) from e
            if found:
                self._expecting += found
            raise
        self.check()
        return result

    def _command(self, command, **kw):
        with self._agent() as one:
            return one.run(command, **kw)

    def run(self, command, *, timeout=60.0, check=False, stdin=None, env=None, cwd="/"):
        """Run COMMAND (a string for the shell, or a list); raises if the kernel reports anything."""
        return self._guarded(
            lambda a: a.run(command, timeout=timeout, check=check, stdin=stdin, env=env, cwd=cwd)
        )

    def stream(self, command, **kw):
        """See Agent.stream."""
        return self._guarded(lambda a: a.stream(command, **kw))

    def put(self, path, data, timeout=60.0):
        """DATA is bytes, or the Path of a file here."""
        data = data.read_bytes() if isinstance(data, Path) else data
        self._guarded(lambda a: a.put(path, data, timeout))

    def get(self, path, timeout=60.0):
        return self._guarded(lambda a: a.get(path, timeout))

    def qmp(self, command, **arguments):
        monitor = Qmp(self.state / "qmp")
        try:
            return monitor(command, **arguments)
        finally:
            monitor.close()

    def modprobe(self, module, parameters=""):
        """Load MODULE with all it needs: one of ours, a path, or one of the kernel's."""
        path = Path(module) if "/" in str(module) else kmod.ours(self.kernel, module)
        if path is None:
            self.run(f"modprobe {module} {parameters}", check=True)
            return
        for need in kmod.needs(path):
            if not self.run(["grep", "-q", f"^{need} ", "/proc/modules"]).ok:
                self.modprobe(need)
        self.put(f"/tmp/{path.name}", path)
        self.run(f"insmod /tmp/{path.name} {parameters}", check=True)


__all__ = ["CommandFailed", "Disk", "Gone", "Guest", "KernelReports", "Result", "Share", "Timeout"]
