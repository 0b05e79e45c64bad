# SPDX-License-Identifier: GPL-2.0
"""The host's end of the gate: the guest stops there while it is counted."""

import contextlib
import socket
import time


class Gate:
    """A socket behind one of the guest's serial ports; see fio.py."""

    def __init__(self, path):
        self.path = path
        self.sock = None
        self.buf = b""

    def qemu_args(self):
        return [
            "-chardev",
            f"socket,id=gate,path={self.path},server=on,wait=off",
            "-device",
            "isa-serial,chardev=gate,index=2",
        ]

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))

    def wait(self, word, timeout, alive=lambda: True):
        """Until the guest says WORD; alive() says whether it still may."""
        deadline = time.monotonic() + timeout
        self.sock.settimeout(0.5)
        while word.encode() not in self.buf:
            if time.monotonic() > deadline or not alive():
                raise TimeoutError(f"the guest did not reach '{word}'")
            with contextlib.suppress(TimeoutError):
                data = self.sock.recv(4096)
                if not data:
                    raise ConnectionError("the guest is gone")
                self.buf += data
        self.buf = b""

    def open(self):
        """Let the guest go on."""
        self.sock.sendall(b"\n")

    def close(self):
        if self.sock:
            self.sock.close()
