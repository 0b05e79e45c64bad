# SPDX-License-Identifier: GPL-2.0
"""A virtio-blk device that lies: a vhost-user back end with a small disk, whose answers and
used rings can be made wrong, or that takes requests and says nothing (`silent`).

A device whose ring has lied may not touch the guest's memory any more: a driver that has
taken a request for answered has given its buffers away.  So it is silent from then on, and
the test shows what the driver makes of the ring as it stands.
"""

import random
import struct

from vhostuser import Backend

T_IN, T_OUT, T_GET_ID = 0, 1, 8
S_OK, S_IOERR, S_UNSUPP = 0, 1, 2
F_SEG_MAX, F_MQ = 2, 12
SEG_MAX = 8
SECTOR = 512
HEADER = struct.Struct("<IIQ")
DISK_BYTES = 1 << 20
SERIAL = b"liar"


class Liar(Backend):
    """LIE is called with the Answer to each read and write, and may change it."""

    FEATURES = 1 << F_SEG_MAX | 1 << F_MQ  # QEMU knows how many queues
    QUEUES = 2
    CONFIG = struct.pack("<QII", DISK_BYTES // SECTOR, 0, SEG_MAX)

    def __init__(self, path):
        self.data = bytearray(random.Random(0).randbytes(DISK_BYTES))
        self.lie = None
        self.silent = False
        self.told = 0
        super().__init__(path)

    def request(self, ring, head):
        if self.silent:
            return
        message, room = self.chain(ring, head)
        answer = self.answer(head, message, room)
        if self.lie and answer.kind in (T_IN, T_OUT):
            self.told += 1
            self.lie(answer)
        if answer.lost:
            return
        if answer.is_the_last():
            self.silent = True
        self.send(ring, room, answer)

    def answer(self, head, message, room):
        kind, _, sector = HEADER.unpack_from(message)
        size = sum(s for _, s in room) - 1
        at = sector * SECTOR
        answer = Answer(head, kind, size + 1)
        if kind == T_IN:
            answer.data = bytes(self.data[at : at + size])
        elif kind == T_OUT:
            written = message[HEADER.size :]
            self.data[at : at + len(written)] = written
        elif kind == T_GET_ID:
            answer.data = SERIAL.ljust(size, b"\0")
        else:
            answer.status = S_UNSUPP
        return answer

    def send(self, ring, room, answer):
        """The status is a place of its own, the last one, as virtio_pvblk has it."""
        self.put(room[:-1], answer.data)
        if answer.status is not None:
            self.put(room[-1:], bytes([answer.status]))
        heads = [answer.head] * answer.times + answer.others
        self.push(ring, answer.length, *heads, jump=answer.jump)


class Answer:
    """What goes into the used ring, and how often, and what into the guest's memory."""

    def __init__(self, head, kind, length):
        self.head, self.kind, self.length = head, kind, length
        self.status = S_OK  # None: it is not written
        self.data = b""
        self.times = 1
        self.others = []  # heads, in entries behind it
        self.jump = 0  # by so many entries more than were written
        self.lost = False
        self._head = head

    def is_the_last(self):
        return self.head != self._head or self.times != 1 or self.others or self.jump != 0
