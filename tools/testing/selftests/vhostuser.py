# SPDX-License-Identifier: GPL-2.0
"""A vhost-user back end for the tests, whose rings a test may fill with lies.

It signals each entry of a used ring, so nothing here depends on the order in which memory
is written and read.  It offers no ring feature: chains are read from the ring itself.
"""

import array
import contextlib
import mmap
import os
import select
import socket
import struct
import threading

F_PROTOCOL, F_VERSION_1 = 30, 32
P_MQ, P_CONFIG = 0, 9
NEXT, WRITABLE = 1, 2
GET_FEATURES, SET_MEM_TABLE = 1, 5
SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, GET_VRING_BASE = 8, 9, 10, 11
SET_VRING_KICK, SET_VRING_CALL = 12, 13
GET_PROTOCOL_FEATURES, GET_QUEUE_NUM, GET_CONFIG = 15, 17, 24
OF_A_VRING = range(SET_VRING_NUM, SET_VRING_CALL + 1)
IS_A_REPLY = 5  # with the version, 1


def index_of(place):
    """(view, n): view[n] is the index of the avail or used ring at PLACE, read and written whole.

    struct.pack_into() writes zeroes first, and a guest that polls takes these for an index.
    """
    area, at = place
    return memoryview(area).cast("H"), at // 2 + 1


def lie_of(changes):
    """A function that gives these values to fields of an answer."""

    def lie(answer):
        for name, value in changes.items():
            setattr(answer, name, value)

    return lie


class Ring:
    """A virtqueue as the device has it; `at` turns an address of QEMU's into a place."""

    def __init__(self):
        self.kick = self.call = None
        self.size = self.seen = self.used = 0
        self.addresses = None

    def take(self, name, fd):
        """Have FD, or None, as the eventfd NAME; the one before it is closed."""
        if getattr(self, name) is not None:
            os.close(getattr(self, name))
        setattr(self, name, fd)

    def attach(self, at):
        desc, used, avail = (at(a) for a in self.addresses)
        self.desc, self.used_ring, self.avail = desc, used, avail
        self.used_index, self.avail_index = index_of(used), index_of(avail)


class Memory:
    """The guest's memory, by its own addresses and by QEMU's."""

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


class Backend(threading.Thread):
    """Serves the one QEMU that connects; a device defines request(ring, head).

    The thread starts at the end of __init__(), so a device sets its own fields before it
    calls this one.
    """

    FEATURES = 0  # of the device, besides what each has here
    QUEUES = 1
    CONFIG = None  # the bytes of its configuration space, if QEMU asks the back end for them

    def __init__(self, path):
        super().__init__(daemon=True)
        self.socket = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1)
        self.memory = Memory()
        self.rings = {}
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
            if self.peer in ready:
                # It may stop a ring whose kick is ready as well.
                self.message()
                continue
            for fd in ready:
                os.read(fd, 8)
                self.look(kicks[fd])

    # vhost-user

    def message(self):
        fds = array.array("i")
        data, extra, _, _ = self.peer.recvmsg(12, socket.CMSG_SPACE(8 * 4))
        if len(data) < 12:
            raise ConnectionError
        for _, _, raw in extra:
            fds.frombytes(raw[: len(raw) - len(raw) % 4])
        kind, _, size = struct.unpack("<3I", data)
        body = self.peer.recv(size, socket.MSG_WAITALL) if size else b""
        reply = self.handle(kind, body, list(fds))
        if reply is not None:
            self.peer.sendall(struct.pack("<3I", kind, IS_A_REPLY, len(reply)) + reply)

    def handle(self, kind, body, fds):
        """The body of the reply, or None if the message has none."""
        if kind in OF_A_VRING:
            return self.vring(kind, body, fds)
        if kind == GET_FEATURES:
            return struct.pack("<Q", 1 << F_VERSION_1 | 1 << F_PROTOCOL | self.FEATURES)
        if kind == GET_PROTOCOL_FEATURES:
            return struct.pack("<Q", 1 << P_MQ | (self.CONFIG is not None) << P_CONFIG)
        if kind == GET_QUEUE_NUM:
            return struct.pack("<Q", self.QUEUES)
        if kind == GET_CONFIG:
            offset, size = struct.unpack_from("<2I", body)
            return body[:12] + self.CONFIG[offset:].ljust(size, b"\0")[:size]
        if kind == SET_MEM_TABLE:
            self.memory = Memory()
            for i, fd in enumerate(fds):
                self.memory.add(*struct.unpack_from("<4Q", body, 8 + 32 * i), fd)
                os.close(fd)
        return None

    def vring(self, kind, body, fds):
        index, number = struct.unpack_from("<2I", body)
        ring = self.rings.setdefault(index & 0xFF, Ring())
        if kind == SET_VRING_NUM:
            ring.size = number
        elif kind == SET_VRING_ADDR:
            ring.addresses = struct.unpack_from("<3Q", body, 8)
        elif kind == SET_VRING_BASE:
            ring.seen = ring.used = number
        elif kind == GET_VRING_BASE:
            ring.take("kick", None)
            return struct.pack("<2I", index, ring.seen)
        elif kind == SET_VRING_CALL:
            ring.take("call", fds[0] if fds else None)
        elif kind == SET_VRING_KICK:
            ring.attach(self.memory.of_user)
            ring.take("kick", fds[0])
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
        """The bytes that the device may read, and the places where it may write."""
        area, at = ring.desc
        readable, writable = b"", []
        while True:
            address, size, flags, following = struct.unpack_from("<QIHH", area, at + 16 * head)
            if flags & WRITABLE:
                writable.append((address, size))
            else:
                readable += self.memory.read(address, size)
            if not flags & NEXT:
                return readable, writable
            head = following

    def put(self, room, data):
        for address, size in room:
            self.memory.write(address, data[:size])
            data = data[size:]

    def push(self, ring, length, *heads, jump=0):
        """An entry for each of HEADS, and an index that moves once, by so many and JUMP."""
        area, at = ring.used_ring
        for used, head in enumerate(heads, ring.used):
            struct.pack_into("<II", area, at + 4 + 8 * (used % ring.size), head, length)
        self.advance(ring, len(heads) + jump)

    def advance(self, ring, entries):
        """Move the used index, whether or not as many entries were written, and signal it."""
        ring.used = (ring.used + entries) & 0xFFFF
        indexes, n = ring.used_index
        indexes[n] = ring.used
        if ring.call is not None:
            os.write(ring.call, struct.pack("<Q", 1))
