# SPDX-License-Identifier: GPL-2.0
"""A virtio-fs device that lies: a vhost-user back end with one file, whose replies and
used ring can be made wrong, or that takes requests and says nothing (`silent`).  A lock of
the file is never free, and waiting for it ends with the second INTERRUPT: the first is answered
by -EAGAIN.  The directory `sub` is announced as a submount, and has such a file, too.

It knows enough of FUSE for `cat` and `stat` of the file.  It signals each reply, wanted
or not, so nothing here depends on the order in which memory is written and read.
"""

import array
import contextlib
import errno
import mmap
import os
import select
import socket
import struct
import threading

F_PROTOCOL, F_VERSION_1 = 30, 32
P_MQ = 0
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 14, 15, 17, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, DESTROY, BATCH_FORGET = 25, 26, 27, 28, 29, 38, 42
SETLK, SETLKW, INTERRUPT = 32, 33, 36
F_FLOCK_LOCKS, F_SUBMOUNTS = 1 << 10, 1 << 27
ATTR_SUBMOUNT = 1
SILENT = (FORGET, BATCH_FORGET)
DATA = b"the truth\n"
OUT = struct.Struct("<IiQ")
ROOT, FILE, SUB, SUB_FILE = 1, 2, 3, 4
NAMES = {(ROOT, b"file"): FILE, (ROOT, b"sub"): SUB, (SUB, b"file"): SUB_FILE}


def attr(inode):
    mode = 0o040755 if inode in (ROOT, SUB) else 0o100644
    flags = ATTR_SUBMOUNT if inode == SUB else 0
    return struct.pack(
        "<6Q10I", inode, len(DATA), 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, flags
    )


def index_of(place):
    """(view, n): view[n] is the index of the avail or used ring at PLACE, read and written whole.

    struct.pack_into() writes zeroes first, and a guest that polls takes these for an index.
    """
    area, at = place
    return memoryview(area).cast("H"), at // 2 + 1


class Ring:
    """A virtqueue as the device has it; `at` turns an address of QEMU's into a place."""

    def __init__(self):
        self.kick = self.call = None
        self.size = self.seen = self.used = 0
        self.addresses = None

    def attach(self, at):
        desc, used, avail = (at(a) for a in self.addresses)
        self.desc, self.used_ring, self.avail = desc, used, avail
        self.used_index, self.avail_index = index_of(used), index_of(avail)


class Memory:
    def __init__(self):
        self.regions = []

    def add(self, guest, size, user, offset, fd):
        self.regions.append((guest, size, user, offset, mmap.mmap(fd, size + offset)))

    def _find(self, address, which):
        for region in self.regions:
            start = region[which]
            if start <= address < start + region[1]:
                return region[4], address - start + region[3]
        raise ValueError(f"no memory at {address:#x}")

    def of_user(self, address):
        return self._find(address, 2)

    def read(self, address, size):
        area, at = self._find(address, 0)
        return area[at : at + size]

    def write(self, address, data):
        area, at = self._find(address, 0)
        area[at : at + len(data)] = data


class Liar(threading.Thread):
    """LIE is called with the Reply to each request about the file, and may change it."""

    def __init__(self, directory):
        super().__init__(daemon=True)
        self.socket = directory / "liar.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.socket))
        self.listener.listen(1)
        self.memory = Memory()
        self.rings = {}
        self.lie = None
        self.silent = False
        self.valid = 0  # seconds that names and attributes hold
        self.told = 0
        self.waiting = {}
        self.interrupts = 0
        self.failed = None
        self.start()

    def stop(self):
        self.listener.close()

    def run(self):
        try:
            with contextlib.suppress(ConnectionError, OSError):
                self.peer, _ = self.listener.accept()
                self.serve()
        except Exception as e:  # shown by the test
            self.failed = e
            raise

    def serve(self):
        while True:
            kicks = {r.kick: r for r in self.rings.values() if r.kick is not None}
            ready = select.select([self.peer, *kicks], [], [])[0]
            for fd in ready:
                if fd is self.peer:
                    self.message()
                elif fd in kicks:
                    os.read(fd, 8)
                    self.look(kicks[fd])

    # vhost-user

    def message(self):
        data, fds = b"", array.array("i")
        data, extra, _, _ = self.peer.recvmsg(12, socket.CMSG_SPACE(8 * 4))
        if len(data) < 12:
            raise ConnectionError
        for _, _, raw in extra:
            fds.frombytes(raw[: len(raw) - len(raw) % 4])
        kind, _, size = struct.unpack("<3I", data)
        body = self.peer.recv(size, socket.MSG_WAITALL) if size else b""
        reply = self.handle(kind, body, list(fds))
        if reply is not None:
            self.peer.sendall(struct.pack("<3I", kind, 5, len(reply)) + reply)

    def ring(self, index):
        return self.rings.setdefault(index, Ring())

    def handle(self, kind, body, fds):
        if kind == 1:
            return struct.pack("<Q", 1 << F_VERSION_1 | 1 << F_PROTOCOL)
        if kind == 15:
            return struct.pack("<Q", 1 << P_MQ)
        if kind == 17:
            return struct.pack("<Q", 8)
        if kind == 5:
            self.memory = Memory()
            for i, fd in enumerate(fds):
                self.memory.add(*struct.unpack_from("<4Q", body, 8 + 32 * i), fd)
                os.close(fd)
        elif kind in (8, 9, 10, 11, 12, 13):
            return self.vring(kind, body, fds)
        return None

    def vring(self, kind, body, fds):
        index, number = struct.unpack_from("<2I", body)
        ring = self.ring(index & 0xFF)
        if kind == 8:
            ring.size = number
        elif kind == 9:
            ring.addresses = struct.unpack_from("<3Q", body, 8)
        elif kind == 10:
            ring.seen = ring.used = number
        elif kind == 11:
            ring.kick = None
            return struct.pack("<2I", index, ring.seen)
        elif kind == 13:
            ring.call = fds[0] if fds else None
        elif kind == 12:
            ring.attach(self.memory.of_user)
            ring.kick = fds[0]
        return None

    # the ring

    def look(self, ring):
        area, at = ring.avail
        indexes, n = ring.avail_index
        while ring.seen != indexes[n]:
            head = struct.unpack_from("<H", area, at + 4 + 2 * (ring.seen % ring.size))[0]
            ring.seen = (ring.seen + 1) & 0xFFFF
            self.request(ring, head)

    def chain(self, ring, head):
        """What can be read as bytes, and where can be written."""
        area, at = ring.desc
        readable, writable = b"", []
        while True:
            address, size, flags, following = struct.unpack_from("<QIHH", area, at + 16 * head)
            if flags & 2:
                writable.append((address, size))
            else:
                readable += self.memory.read(address, size)
            if not flags & 1:
                return readable, writable
            head = following

    def request(self, ring, head):
        if self.silent:
            return
        message, room = self.chain(ring, head)
        _, opcode, unique, nodeid = struct.unpack_from("<IIQQ", message)
        reply = Reply(head, unique)
        if opcode == SETLKW:
            self.waiting[unique] = (ring, room, reply)
            return
        if opcode == INTERRUPT:
            self.interrupt(reply, struct.unpack_from("<Q", message, 40)[0])
        elif opcode in SILENT:
            reply.header = b""
        else:
            reply.fill(self.answer(opcode, nodeid, message[40:]))
        if self.lie and nodeid != 0 and opcode in (LOOKUP, GETATTR):
            self.told += 1
            self.lie(reply)
        self.send(ring, room, reply)

    def send(self, ring, room, reply):
        self.put(room, reply.header + reply.body)
        for _ in range(reply.times):
            self.push(ring, reply.head, reply.length())

    def interrupt(self, reply, unique):
        self.interrupts += 1
        if self.interrupts == 1:
            reply.error = -errno.EAGAIN
            return
        reply.header = b""
        if unique in self.waiting:
            ring, room, waiter = self.waiting.pop(unique)
            waiter.error = -errno.EINTR
            self.send(ring, room, waiter)

    def put(self, room, data):
        for address, size in room:
            self.memory.write(address, data[:size])
            data = data[size:]

    def push(self, ring, head, length):
        area, at = ring.used_ring
        struct.pack_into("<II", area, at + 4 + 8 * (ring.used % ring.size), head, length)
        ring.used = (ring.used + 1) & 0xFFFF
        indexes, n = ring.used_index
        indexes[n] = ring.used
        if ring.call is not None:
            os.write(ring.call, struct.pack("<Q", 1))

    # FUSE

    def answer(self, opcode, nodeid, arguments):
        """An error number, or the body of a reply."""
        if opcode == INIT:
            return struct.pack(
                "<4IHHIIHHI28x", 7, 31, 65536, F_FLOCK_LOCKS | F_SUBMOUNTS, 8, 6, 65536, 1, 0, 0, 0
            )
        if opcode == LOOKUP:
            inode = NAMES.get((nodeid, arguments.rstrip(b"\0")))
            if inode is None:
                return errno.ENOENT
            return struct.pack("<4Q2I", inode, 0, self.valid, self.valid, 0, 0) + attr(inode)
        if opcode == GETATTR:
            return struct.pack("<QII", self.valid, 0, 0) + attr(nodeid)
        if opcode in (OPEN, OPENDIR):
            return struct.pack("<QII", 1, 0, 0)
        if opcode == READ:
            return DATA[struct.unpack_from("<Q", arguments, 8)[0] :]
        if opcode == STATFS:
            return struct.pack("<5Q", 1, 1, 1, 1, 1) + struct.pack("<10I", 4096, 255, *[0] * 8)
        if opcode in (RELEASE, RELEASEDIR, FLUSH, READDIR, DESTROY, SETLK):
            return b""
        return errno.ENOSYS


class Reply:
    def __init__(self, head, unique):
        self.head, self.unique, self.error = head, unique, 0
        self.body = b""
        self.times = 1
        self.said = self.written = None
        self.nothing = False
        self._header = None

    def fill(self, body):
        if isinstance(body, int):
            self.error = -body
        else:
            self.body = body

    @property
    def header(self):
        if self._header is not None:
            return self._header
        said = 16 + len(self.body) if self.said is None else self.said
        return OUT.pack(said, self.error, self.unique & (1 << 64) - 1)

    @header.setter
    def header(self, value):
        self._header = value

    def length(self):
        return len(self.header) + len(self.body) if self.written is None else self.written
