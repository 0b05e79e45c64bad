# SPDX-License-Identifier: GPL-2.0
"""A QEMU's monitor."""

import json
import socket

from .paths import LabError


class Qmp:
    def __init__(self, path, timeout=30.0):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(str(path))
        self.file = self.sock.makefile("rw")
        self.events = []
        self._read()
        self("qmp_capabilities")

    def _read(self):
        line = self.file.readline()
        if not line:
            raise LabError("QEMU closed its monitor")
        return json.loads(line)

    def __call__(self, command, **arguments):
        # QEMU's old commands have underscores, in their arguments too.
        if "_" not in command:
            arguments = {k.replace("_", "-"): v for k, v in arguments.items()}
        self.file.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.file.flush()
        while True:
            answer = self._read()
            if "error" in answer:
                raise LabError(f"QMP {command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
            self.events.append(answer)

    def close(self):
        self.file.close()
        self.sock.close()
