# SPDX-License-Identifier: GPL-2.0
"""What the tests of pvio share: a case with a process and its backends, a front end."""

import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from pvlab import turns
from pvlab.pvio import DEADLINE, PVIO, Nullb, Pvio, need_pvio

long_in_debug = unittest.skipUnless(turns.has_come(), turns.WHY)

FSX_CONFIG = b"""
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1
invalidate = 1
mapread = 5
mapwrite = 5
read = 10
write = 10
truncate = 3
fsync = 1
fdatasync = 1
posix_fallocate = 1
punch_hole = 3
sendfile = 2
posix_fadvise = 3
copy_file_range = 2
"""


class Front:
    """As much of a front end as it takes to see whether one is answered."""

    def __init__(self, sock):
        if isinstance(sock, socket.socket):
            self.sock = sock
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(str(sock))
        self.sock.settimeout(DEADLINE)

    def send(self, request, body=b"", flags=1):
        self.sock.sendall(struct.pack("=III", request, flags, len(body)) + body)

    def features(self):
        self.send(1)
        data = b""
        while len(data) < 20:
            more = self.sock.recv(20 - len(data))
            if not more:
                raise AssertionError("hung up on")
            data += more
        return struct.unpack("=IIIQ", data)[3]

    def hung_up(self):
        try:
            while self.sock.recv(4096):
                pass
        except ConnectionError:
            pass
        return True

    def close(self):
        self.sock.close()


class PvioTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        need_pvio()

    def setUp(self):
        self.tmp = Path(tempfile.mkdtemp(prefix="pvio-", dir="/run"))
        self.addCleanup(shutil.rmtree, self.tmp)

    def pvio(self, *args, sockets=(), **kw):
        one = Pvio(*args, directory=self.tmp, **kw)
        self.addCleanup(one.stop)
        return one.start(*sockets)

    def refused(self, *args, user=None):
        """What pvio says when it does not start."""
        before = ["setpriv", f"--reuid={user}", "--clear-groups"] if user else []
        done = subprocess.run(
            [*before, PVIO, "blk", *map(str, args)],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        self.assertNotEqual(done.returncode, 0, done.stderr)
        said = [
            line for line in done.stderr.splitlines() if not re.search("polling from CPU", line)
        ]
        return "\n".join(said)

    def nullb(self, name, **kw):
        one = Nullb(name, **kw)
        self.addCleanup(one.remove)
        return one

    def image(self, name, size):
        path = self.tmp / name
        path.touch()
        os.truncate(path, size)
        return path

    def socket(self, name="s"):
        return self.tmp / f"{name}.sock"
