#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Two guests and the host use one directory, as processes of one machine would.

One guest has pvfs.  The other has pvfs, too, and on another device the kernel's virtiofs.
The host side is vhost_fs, with an export of its own for each of the three devices.
"""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pvfs
from pvfs import HELPER, PATIENCE, POLL_MAX_US, TAG, TOOL, PvfsCase, serve
from pvlab import ktap
from pvlab.guest import Guest, Share

KINDS = ("posix", "flock")
# The numbers of fcntl(2) and flock(2), as /proc/PID/syscall has them.
LOCK_CALLS = ("72", "73")
RECORDS = 120
TURNS = 100
RECORD = re.compile(rb"(\w) (\d+) (\d+)\n")


def wait_for(condition, what):
    """Not for all of PATIENCE, or a few cases that fail take the program's whole time."""
    pvfs.wait_for(condition, what, PATIENCE / 2)


class Party:
    """A user of the directory; RUN runs a command and returns what it printed."""

    def __init__(self, name, run, where, tool):
        self.name, self.sh, self.where, self.tool = name, run, where, tool
        self.locks = 0

    def path(self, name):
        return f"{self.where}/{name}"

    def use(self, command):
        """Run the tool; a path in COMMAND is @NAME."""
        return self.sh(f"{self.tool} {self._placed(command)}")

    def _placed(self, command):
        return command.replace("@", f"{self.where}/")

    def free(self, kind, where=""):
        return self.use(f"try {kind} @lock {where}") == "free"

    def lock(self, kind, where=""):
        """A process that wants the lock."""
        self.locks += 1
        out = f"/tmp/{self.name}-{kind}-{self.locks}"
        pid = self.sh(
            f"{self.tool} lock {kind} {self.path('lock')} {where} >{out} 2>&1 </dev/null & echo $!"
        )
        return Lock(self, pid, out)


class Lock:
    def __init__(self, party, pid, out):
        self.party, self.pid, self.out = party, pid, out

    def said(self):
        return self.party.sh(f"cat {self.out} 2>/dev/null || :").split()

    def until(self, word):
        """Wait until it says so."""

        def says():
            said = self.said()
            if said and word not in said:
                raise AssertionError(f"{self.party.name} said {said}, and not {word}")
            return word in said

        wait_for(says, f"{self.party.name}: {word}")
        return self

    def until_asleep(self):
        """Wait until it sleeps in the system call, so without the lock."""

        def asleep():
            call = self.party.sh(f"cat /proc/{self.pid}/syscall").split()[0]
            return call in LOCK_CALLS and not self.said()

        wait_for(asleep, f"{self.party.name} waits for the lock")
        return self

    def unlock(self):
        self.party.sh(f"kill -USR2 {self.pid}")
        wait_for(lambda: "unlocked" in self.said(), f"{self.party.name} unlocks")

    def interrupt(self):
        self.party.sh(f"kill -USR1 {self.pid}")
        self.until("interrupted")

    def kill(self):
        """Wait until it is gone."""
        self.party.sh(f"kill -KILL {self.pid}")
        gone = f"! grep '^State:' /proc/{self.pid}/status 2>/dev/null | grep -vq Z && echo gone"
        wait_for(lambda: self.party.sh(f"{gone} || :") == "gone", f"{self.party.name} dies")


def on_host(command):
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise AssertionError(f"{command} on the host: {done.stderr}")
    return done.stdout.strip()


class TwoGuests(PvfsCase):
    @classmethod
    def start_server(cls):
        cls.overlay = {"usr/bin/sharetool": TOOL.read_bytes()}
        cls.socket = serve(cls, "one")
        return cls

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        device = {"queue_size": cls.queue_size}
        stock = Share.virtiofs(serve(cls, "stock"), "stock", **device)
        cls.second = cls.enterClassContext(
            Guest(
                name="twoguests-2",
                shares=[Share.virtiofs(serve(cls, "two"), TAG, **device), stock],
                overlay={"usr/sbin/mount.pvfs": HELPER.read_bytes(), **cls.overlay},
            )
        )
        cls.second.leaks_clear()
        cls.second.modprobe("pvfs", f"poll_max_us={POLL_MAX_US}")
        cls.sh2(f"mount.pvfs {TAG} /mnt; {stock.mount('/stock')}")
        cls.one = Party("one", cls.sh, "/mnt", "sharetool")
        cls.two = Party("two", cls.sh2, "/mnt", "sharetool")
        cls.virtiofs = Party("virtiofs", cls.sh2, "/stock", "sharetool")
        cls.host = Party("host", on_host, cls.share, TOOL)
        cls.parties = (cls.one, cls.two, cls.virtiofs, cls.host)

    @classmethod
    def sh2(cls, command, timeout=PATIENCE):
        """In the second guest."""
        return cls.second.run(command, timeout=timeout, check=True).out.strip()

    def each(self, what, *arguments):
        """Call WHAT of (party, letter) for all parties at once."""
        with ThreadPoolExecutor(len(self.parties)) as pool:
            return list(pool.map(what, self.parties, "ABCD"))

    # locks

    def test_a_lock_is_handed_on(self):
        """From one guest to another party by unlocking, and back by its owner's death."""
        for other in (self.two, self.virtiofs, self.host):
            for kind in KINDS:
                with self.subTest(f"{kind}, {self.one.name} and {other.name}"):
                    self.handed_on(other, kind)

    def handed_on(self, other, kind):
        first = self.one.lock(kind).until("holds")
        self.assertEqual([p.name for p in self.parties if p.free(kind)], [])
        there = other.lock(kind).until_asleep()
        first.unlock()
        there.until("holds")
        back = self.one.lock(kind).until_asleep()
        there.kill()
        back.until("holds")
        self.assertFalse(other.free(kind))
        back.kill()
        first.kill()
        wait_for(lambda: other.free(kind), "the lock is free again")

    def test_kinds_and_ranges_are_apart(self):
        held = [self.one.lock("posix", "0 10"), self.one.lock("flock")]
        for one in held:
            one.until("holds")
        for other in (self.two, self.virtiofs, self.host):
            with self.subTest(other.name):
                self.assertTrue(other.free("posix", "10 5"))
                self.assertFalse(other.free("posix", "9 1"))
        for one in held:
            one.kill()

    def test_a_signal_ends_the_wait(self):
        """The lock of another party is not there after that, either."""
        for holder in (self.two, self.host):
            for kind in KINDS:
                with self.subTest(f"{kind} of {holder.name}"):
                    self.interrupted(holder, kind)

    def interrupted(self, holder, kind):
        held = holder.lock(kind).until("holds")
        waits, dies = self.one.lock(kind).until_asleep(), self.one.lock(kind).until_asleep()
        with self.counting() as grown:
            waits.interrupt()
            dies.kill()
        self.say(f"{kind} interrupted", grown)
        self.assertGreaterEqual(grown["interrupts_sent"], 2)
        self.assertEqual(grown["inflight"], -2)
        held.kill()
        wait_for(lambda: self.host.free(kind), "no one has the lock")

    def test_zz_a_guest_dies_with_locks(self):
        """By the name the last: the second guest is gone then."""
        self.assertEqual(self.second.leaks(), "")
        held = [self.two.lock("posix"), self.virtiofs.lock("flock")]
        for one in held:
            one.until("holds")
        here = [self.one.lock(kind).until_asleep() for kind in KINDS]
        self.second.kill()
        for one in here:
            one.until("holds")
        self.assertFalse(self.host.free("posix") or self.host.free("flock"))
        for one in here:
            one.kill()
        for kind in KINDS:
            wait_for(lambda kind=kind: self.host.free(kind), f"{kind} is free")

    # data

    def test_all_append(self):
        """Each record is there once, whole, and behind those that its writer wrote before."""
        self.each(lambda party, letter: party.use(f"append @log {letter} {RECORDS}"))
        data, at, seen = (self.share / "log").read_bytes(), 0, {}
        while at < len(data):
            head = RECORD.match(data, at)
            self.assertIsNotNone(head, f"no record at {at}: {data[at : at + 20]!r}")
            letter, number, size = head[1], int(head[2]), int(head[3])
            self.assertEqual(number, seen.get(letter, 0))
            self.assertEqual(data[head.end() : head.end() + size], letter * size)
            seen[letter] = number + 1
            at = head.end() + size
        self.assertEqual(set(seen.values()), {RECORDS})
        self.assertEqual(len(seen), len(self.parties))

    def test_what_one_syncs_the_others_read(self):
        for size in (1, 5000, 70000, 3):
            for writer in self.parties:
                with self.subTest(f"{size} bytes of {writer.name}"):
                    writer.sh(
                        f"head -c {size} /dev/urandom >/tmp/data; "
                        f"dd if=/tmp/data of={writer.path('data')} bs=64k conv=fsync 2>/dev/null"
                    )
                    sums = {p.sh(f"sha1sum <{p.path('data')}") for p in self.parties}
                    self.assertEqual(sums, {writer.sh("sha1sum </tmp/data")})

    def test_one_file_has_two_names(self):
        self.one.sh("echo x >/mnt/first; ln /mnt/first /mnt/second")
        seen = {p.sh(f"stat -c %i,%h,%s {p.path('second')}") for p in self.parties}
        self.assertEqual(len(seen), 1, seen)
        self.two.sh("echo more >>/mnt/second; rm /mnt/first")
        seen = {p.sh(f"stat -c %i,%h,%s {p.path('second')}") for p in self.parties}
        self.assertEqual(seen, {f"{(self.share / 'second').stat().st_ino},1,7"})

    # names

    def listings(self, name):
        """What the parties find in a directory, each different answer once."""
        return {p.sh(f"ls {p.path(name)}") for p in self.parties}

    def test_a_file_that_all_rename_stays_one(self):
        (self.share / "swing").mkdir()
        (self.share / "swing/a").write_text("still here")
        moved = self.each(lambda party, _: int(party.use(f"swing @swing {TURNS}")))
        print(f"# renames that found the file: {moved}", flush=True)
        left = self.listings("swing")
        self.assertIn(left, ({"a"}, {"b"}))
        self.assertEqual((self.share / "swing" / left.pop()).read_text(), "still here")

    def test_a_file_that_all_replace_is_always_whole(self):
        (self.share / "replace").mkdir()
        self.each(lambda party, letter: party.use(f"replace @replace {letter} {TURNS}"))
        self.assertEqual(self.listings("replace"), {"target"})


if __name__ == "__main__":
    ktap.main()
