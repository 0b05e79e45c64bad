# SPDX-License-Identifier: GPL-2.0
"""A virtio-fs device that lies: a vhost-user back end with one file, whose replies and
used ring can be made wrong, or that takes requests and says nothing (`silent`).  A lock of
the file is never free, and waiting for it ends with the second INTERRUPT: the first is answered
by -EAGAIN.  With `locks`, a dictionary, locks are granted; it has the owner of each.  The
directory `sub` is announced as a submount, and has such a file, too.

Requests whose numbers are in `hold` are answered late: before the next request after they were
taken out of it, or at poke().
Requests whose numbers are in `says`, a dictionary, are answered by what it has for them: an error,
or the body of a reply.  A write changes nothing; `writes` has the offset and size of each.
`handles` and `lookups` are what the guest has not given back yet.  `owners` has the lock owner of
each READ and FLUSH, in turn.  `polls` counts FUSE_POLL, which says that the file is not ready.

It knows enough of FUSE for `cat` and `stat` of the file.  It signals each reply, wanted
or not, so nothing here depends on the order in which memory is written and read.
"""

import errno
import os
import struct
from collections import Counter

from vhostuser import Backend

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE = 1, 2, 3, 4, 14, 15, 16
STATFS, RELEASE = 17, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, DESTROY, BATCH_FORGET = 25, 26, 27, 28, 29, 38, 42
SETLK, SETLKW, INTERRUPT, POLL, READDIRPLUS, SYNCFS = 32, 33, 36, 40, 44, 50
F_DO_READDIRPLUS, F_ASYNC_DIO = 1 << 13, 1 << 15
F_ASYNC_READ, F_POSIX_LOCKS, F_FLOCK_LOCKS, F_SUBMOUNTS = 1 << 0, 1 << 1, 1 << 10, 1 << 27
ATTR_SUBMOUNT = 1
F_UNLCK, RELEASE_FLOCK_UNLOCK, READ_LOCKOWNER = 2, 1 << 1, 1 << 1
SILENT = (FORGET, BATCH_FORGET)
DATA = b"the truth\n"
# The answers that are always the same.
FIXED = {
    STATFS: struct.pack("<5Q10I", 1, 1, 1, 1, 1, 4096, 255, *[0] * 8),
    POLL: bytes(8),
    READDIR: b"",
    DESTROY: b"",
    SYNCFS: b"",
}
OUT = struct.Struct("<IiQ")
ROOT, FILE, SUB, SUB_FILE, ODD = 1, 2, 3, 4, 5
NAMES = {(ROOT, b"file"): FILE, (ROOT, b"sub"): SUB, (SUB, b"file"): SUB_FILE}


def attr(inode):
    mode = 0o040755 if inode in (ROOT, SUB) else 0o100644
    flags = ATTR_SUBMOUNT if inode == SUB else 0
    return struct.pack(
        "<6Q10I", inode, len(DATA), 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, flags
    )


def wrote(size):
    return struct.pack("<II", size, 0)


def opcode_of(message):
    return struct.unpack_from("<I", message, 4)[0]


class Liar(Backend):
    """LIE is called with the Reply to each request about the file, and may change it."""

    QUEUES = 8

    def __init__(self, directory):
        self.lie = None
        self.silent = False
        self.hold = ()
        self.held = []
        self.says = {}
        self.async_dio = True
        self.handles = 0
        self.lookups = Counter()
        self.mounted = False
        self.late = 0  # FORGETs between DESTROY and the next INIT
        self.plus = False  # names come by READDIRPLUS, and one of them with nonsense
        self.valid = 0  # seconds that names and attributes hold
        self.told = 0
        self.waiting = {}
        self.interrupts = 0
        self.locks = None
        self.askers = set()  # who has asked for a lock
        self.owners = []
        self.polls = 0
        self.writes = []
        super().__init__(directory / "liar.sock")

    def request(self, ring, head):
        if self.silent:
            return
        self.let_go()
        message, room = self.chain(ring, head)
        if opcode_of(message) in self.hold:
            self.held.append((ring, head, message, room))
        else:
            self.answered(ring, head, message, room)

    def look(self, ring):
        if not self.silent:
            self.let_go()
        super().look(ring)

    def let_go(self):
        hold = self.hold
        held, self.held = self.held, [h for h in self.held if opcode_of(h[2]) in hold]
        for late in held:
            if opcode_of(late[2]) not in hold:
                self.answered(*late)

    def poke(self):
        """As if the guest had kicked."""
        kick = next(r.kick for r in self.rings.values() if r.kick is not None)
        os.write(kick, struct.pack("Q", 1))

    def answered(self, ring, head, message, room):
        _, opcode, unique, nodeid = struct.unpack_from("<IIQQ", message)
        reply = Reply(head, unique)
        if opcode == SETLKW and not self.takes(nodeid, message[40:]):
            self.waiting[unique] = (ring, room, reply, nodeid, message[40:])
            return
        if opcode == INTERRUPT:
            self.interrupt(reply, struct.unpack_from("<Q", message, 40)[0])
        elif opcode in SILENT:
            self.late += not self.mounted
            self.forgotten(opcode, nodeid, message[40:])
            reply.header = b""
        else:
            self.note(opcode, message[40:])
            body = self.says.get(opcode)
            reply.fill(self.answer(opcode, nodeid, message[40:]) if body is None else body)
        if self.lie and nodeid != 0 and opcode in (LOOKUP, GETATTR):
            self.told += 1
            self.lie(reply)
        self.send(ring, room, reply)

    def note(self, opcode, arguments):
        if opcode == INIT:
            self.mounted = True
        elif opcode == DESTROY:
            self.mounted = False
            self.lookups.clear()
        elif opcode == POLL:
            self.polls += 1
        elif opcode == WRITE:
            self.writes.append(struct.unpack_from("<QI", arguments, 8))

    def send(self, ring, room, reply):
        self.put(room, reply.header + reply.body)
        for _ in range(reply.times):
            self.push(ring, reply.length(), reply.head)

    def interrupt(self, reply, unique):
        self.interrupts += 1
        if self.interrupts == 1:
            reply.error = -errno.EAGAIN
            return
        reply.header = b""
        if unique in self.waiting:
            ring, room, waiter, *_ = self.waiting.pop(unique)
            waiter.error = -errno.EINTR
            self.send(ring, room, waiter)

    def takes(self, nodeid, arguments):
        """Whether the lock of a node is its owner's now."""
        owner = struct.unpack_from("<Q", arguments, 8)[0]
        self.askers.add((nodeid, owner))
        return self.locks is not None and self.locks.setdefault(nodeid, owner) == owner

    def unlock(self, nodeid, owner):
        """The one that has waited longest has it next."""
        if not self.locks or self.locks.get(nodeid) != owner:
            return
        del self.locks[nodeid]
        for unique, (ring, room, reply, of, arguments) in self.waiting.items():
            if of == nodeid:
                del self.waiting[unique]
                self.takes(nodeid, arguments)
                self.send(ring, room, reply)
                return

    def lock(self, nodeid, arguments):
        if struct.unpack_from("<I", arguments, 32)[0] == F_UNLCK:
            self.unlock(nodeid, struct.unpack_from("<Q", arguments, 8)[0])
            return b""
        if self.locks is not None and not self.takes(nodeid, arguments):
            return errno.EAGAIN
        return b""

    def closed(self, opcode, nodeid, arguments):
        _, _, flags, owner = struct.unpack_from("<QIIQ", arguments)
        if opcode == FLUSH:
            self.owners.append((FLUSH, owner))
        else:
            self.handles -= 1
        if opcode == FLUSH or flags & RELEASE_FLOCK_UNLOCK:
            self.unlock(nodeid, owner)

    # FUSE

    def forgotten(self, opcode, nodeid, arguments):
        if opcode == FORGET:
            self.lookups[nodeid] -= struct.unpack_from("<Q", arguments)[0]
            return
        for i in range(struct.unpack_from("<I", arguments)[0]):
            nodeid, times = struct.unpack_from("<QQ", arguments, 8 + 16 * i)
            self.lookups[nodeid] -= times

    def init(self):
        flags = F_ASYNC_READ | F_POSIX_LOCKS | F_FLOCK_LOCKS | F_SUBMOUNTS
        flags |= F_ASYNC_DIO if self.async_dio else 0
        flags |= F_DO_READDIRPLUS if self.plus else 0
        return struct.pack("<4IHHIIHHI28x", 7, 31, 65536, flags, 8, 6, 65536, 1, 0, 0, 0)

    def answer(self, opcode, nodeid, arguments):
        """An error number, or the body of a reply."""
        if opcode == INIT:
            return self.init()
        if opcode == LOOKUP:
            inode = NAMES.get((nodeid, arguments.rstrip(b"\0")))
            if inode is None:
                return errno.ENOENT
            self.lookups[inode] += 1
            return struct.pack("<4Q2I", inode, 0, self.valid, self.valid, 0, 0) + attr(inode)
        if opcode == GETATTR:
            return struct.pack("<QII", self.valid, 0, 0) + attr(nodeid)
        if opcode in (OPEN, OPENDIR):
            self.handles += 1
            return struct.pack("<QII", 1, 0, 0)
        if opcode == READDIRPLUS:
            return self.odd_name(struct.unpack_from("<Q", arguments, 8)[0])
        if opcode == READ:
            return self.read(arguments)
        if opcode == WRITE:
            return wrote(self.writes[-1][1])
        if opcode in (FLUSH, RELEASE, RELEASEDIR):
            self.closed(opcode, nodeid, arguments)
            return b""
        if opcode in (SETLK, SETLKW):
            return self.lock(nodeid, arguments)
        return FIXED.get(opcode, errno.ENOSYS)

    def read(self, arguments):
        offset, size, flags, owner = struct.unpack_from("<QIIQ", arguments, 8)
        if flags & READ_LOCKOWNER:
            self.owners.append((READ, owner))
        return DATA[offset : offset + size]

    def odd_name(self, offset):
        """It is of no type that there is, so the guest forgets it at once."""
        if offset:
            return b""
        self.lookups[ODD] += 1
        entry = struct.pack("<4Q2I", ODD, 0, 0, 0, 0, 0) + bytes(88)
        return entry + struct.pack("<QQII8s", ODD, 1, 3, 0, b"odd")


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
