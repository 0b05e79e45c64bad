# SPDX-License-Identifier: GPL-2.0
"""Talks to the agent (agent.c) in the host VM or in a guest."""

import contextlib
import errno
import fcntl
import hashlib
import os
import select
import shlex
import signal
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from .paths import CACHE, LabError

SYNC = bytes(b ^ 0xFF for b in b"\xff\x8f\x89\x93\x9e\x9d\xd2\x8c\x86\x91\x9c\xf2\xf5\x01\xfe\xff")
CHUNK = 32768
SOURCE = Path(__file__).with_name("agent.c")


class Timeout(LabError):
    """A command or boot did not end within its limit."""


class Gone(LabError):
    """The virtual machine ended, or its agent did."""


class Silent(Gone):
    """Its agent should say every few seconds that it is there, and did not."""


@dataclass
class Result:
    status: int
    out: str = ""
    err: str = ""

    @property
    def ok(self):
        return self.status == 0


class CommandFailed(LabError):
    def __init__(self, command, result):
        self.result = result
        text = (result.err or result.out).strip()[-2000:]
        super().__init__(f"{command!r} ended with status {result.status}: {text}")


def build():
    """The path of the static agent, built when its source changed."""
    key = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    path = CACHE / "agent" / key
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temp = path.with_suffix(f".{os.getpid()}")
        subprocess.run(["gcc", "-static", "-O2", "-o", temp, SOURCE], check=True)
        temp.rename(path)
    return path


def argv_of(command):
    """A string is for the shell, a list is not."""
    return ["sh", "-c", command] if isinstance(command, str) else [str(a) for a in command]


def _timeout(what, command, note):
    error = Timeout(f"{what}: {shlex.join(argv_of(command))}")
    if note:
        error.add_note(note)
    return error


class Agent:
    """A connection to one port of an agent; one command at a time."""

    def __init__(self, sockets, timeout=30.0, alive=lambda: True, silence=None, late=None):
        """Take the first of SOCKETS that nobody uses; wait TIMEOUT for an answer.

        While a command runs the agent is heard at least every SILENCE seconds,
        or it is given up.  LATE is called at the end of a command's limit, before the
        command is killed: what it returns becomes a note of the Timeout.
        """
        self.sock = None
        self.alive = alive
        self.silence = silence
        self.late = late
        self._buf = b""
        self._open(sockets, time.monotonic() + timeout)

    def _open(self, sockets, deadline):
        while True:
            for path in sockets:
                if self._try(path):
                    self._sync(path, deadline)
                    return
            self._check(deadline, f"no agent port is free ({sockets[0]})")
            time.sleep(0.2)

    def _try(self, path):
        # QEMU takes one client a socket: others must not queue up behind it
        try:
            lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(str(path))
        except OSError as e:
            os.close(lock)
            if e.errno in (errno.EAGAIN, errno.ENOENT, errno.ECONNREFUSED):
                return False
            raise
        os.utime(lock)
        self.lock, self.sock = lock, sock
        return True

    def _check(self, deadline, what):
        if not self.alive():
            raise Gone(f"the virtual machine has ended: {what}")
        if deadline is not None and time.monotonic() > deadline:
            raise Timeout(f"time limit reached: {what}")

    def _sync(self, path, deadline):
        nonce = os.urandom(16)
        self.sock.sendall(SYNC + nonce)
        want = struct.pack("<IB", len(nonce), ord("S")) + nonce
        data = b""
        while want not in data:
            self._check(deadline, f"its agent does not answer ({path})")
            data += self._receive(0.5)
        self._buf = data[data.index(want) + len(want) :]

    def _receive(self, timeout):
        if not select.select([self.sock], [], [], max(0, timeout))[0]:
            return b""
        try:
            data = self.sock.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Gone("the virtual machine has ended")
        return data

    def close(self):
        if self.sock:
            self.sock.close()
            with contextlib.suppress(OSError):
                os.utime(self.lock)
            os.close(self.lock)
            self.sock = None

    def _send(self, kind, payload=b""):
        try:
            self.sock.sendall(struct.pack("<IB", len(payload), ord(kind)) + payload)
        except (BrokenPipeError, ConnectionResetError):
            raise Gone("the virtual machine has ended") from None

    def _frames(self, timeout):
        """Frames that arrive within TIMEOUT, at least one look."""
        self._buf += self._receive(timeout)
        while len(self._buf) >= 5:
            size, kind = struct.unpack_from("<IB", self._buf)
            if len(self._buf) < 5 + size:
                return
            payload = self._buf[5 : 5 + size]
            self._buf = self._buf[5 + size :]
            yield chr(kind), payload

    def stream(self, command, *, out, err, stdin=None, env=None, cwd="/", pty=False, timeout=None):
        """Run COMMAND, hand its output on as it comes, return its status.

        OUT and ERR are called with bytes.  STDIN is None, bytes, or a file
        descriptor that is forwarded.  At the end of TIMEOUT the command is
        killed and Timeout raised.
        """
        strings = [("p" if pty else "") + ("b" if self.silence else ""), str(cwd)]
        strings += [f"{k}={v}" for k, v in (env or {}).items()]
        strings += ["", *argv_of(command)]
        payload = "\0".join(strings).encode() + b"\0"
        if len(payload) > 65536:
            raise LabError("the command line is too long")
        self._send("R", payload)
        if isinstance(stdin, bytes):
            for i in range(0, len(stdin), CHUNK):
                self._send("I", stdin[i : i + CHUNK])
        if not isinstance(stdin, int):
            self._send("E")
            stdin = None
        deadline = None if timeout is None else time.monotonic() + timeout
        return self._pump(command, stdin, out, err, deadline)

    def _pump(self, command, stdin, out, err, deadline):
        killed, note = 0, ""
        heard = time.monotonic()
        while True:
            watch = [self.sock] + ([stdin] if stdin is not None else [])
            ready = select.select(watch, [], [], 0.5)[0]
            if stdin in ready and stdin is not None:
                data = os.read(stdin, CHUNK)
                self._send("I" if data else "E", data)
                stdin = stdin if data else None
            if self.sock in ready:
                heard = time.monotonic()
                for kind, payload in self._frames(0):
                    if kind == "O":
                        out(payload)
                    elif kind == "e":
                        err(payload)
                    elif kind == "X" and killed:
                        raise _timeout("time limit reached", command, note)
                    elif kind == "X":
                        return struct.unpack("<I", payload)[0]
            else:
                self._still_there(heard)
            if deadline is not None and time.monotonic() > deadline:
                if killed == 2:
                    raise _timeout("time limit reached, and it cannot be killed", command, note)
                if not killed and self.late:
                    note = self.late()
                self._send("K", bytes([signal.SIGKILL if killed else signal.SIGTERM]))
                killed += 1
                deadline = time.monotonic() + 5

    def _still_there(self, heard):
        """Raises if it is gone, or if it was last HEARD too long ago."""
        if not self.alive():
            raise Gone("the virtual machine has ended")
        if self.silence and time.monotonic() - heard > self.silence:
            raise Silent(f"nothing was heard of the virtual machine for {self.silence} s")

    def run(self, command, *, check=False, timeout=60.0, **kw):
        """Run COMMAND and return its Result."""
        out, err = bytearray(), bytearray()
        try:
            status = self.stream(command, out=out.extend, err=err.extend, timeout=timeout, **kw)
        except Timeout as e:
            e.add_note((out + err).decode(errors="replace")[-2000:])
            raise
        result = Result(status, out.decode(errors="replace"), err.decode(errors="replace"))
        if check and status:
            raise CommandFailed(command, result)
        return result

    def put(self, path, data, timeout=60.0):
        quoted = shlex.quote(str(path))
        done = self.run(
            f'mkdir -p "$(dirname {quoted})" && cat > {quoted} && wc -c <{quoted}',
            stdin=data,
            check=True,
            timeout=timeout,
        )
        if int(done.out) != len(data):
            raise LabError(f"{path} has {done.out.strip()} bytes there, and {len(data)} were sent")

    def get(self, path, timeout=60.0):
        data, err = bytearray(), bytearray()
        status = self.stream(["cat", str(path)], out=data.extend, err=err.extend, timeout=timeout)
        if status:
            raise LabError(err.decode(errors="replace").strip())
        return bytes(data)
