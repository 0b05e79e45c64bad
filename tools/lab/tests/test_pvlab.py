# SPDX-License-Identifier: GPL-2.0
"""The lab's library, as far as it goes without a virtual machine."""

import io
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import tty
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pvlab import agent, cpio, image, ktap, paths, selftests, tsc  # noqa: E402
from pvlab.devices import Disk, Share  # noqa: E402
from pvlab.guest import KEEPER, Guest  # noqa: E402
from pvlab.paths import Kernel  # noqa: E402


class Sample(unittest.TestCase):
    def test_good(self):
        pass

    def test_bad(self):
        self.fail("because")

    def test_skipped(self):
        self.skipTest("not here")

    def test_parts(self):
        for i in range(2):
            with self.subTest(i=i):
                self.assertEqual(i, 0)


class Talking(unittest.TestCase):
    """A command's end, or that of the machine it runs in."""

    def setUp(self):
        ours, self.theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(self.theirs.close)
        self.agent = object.__new__(agent.Agent)
        self.agent.sock, self.agent._buf = ours, b""
        self.agent.alive, self.agent.silence, self.agent.late = (lambda: True), 1, None

    def say(self, kind, payload=b""):
        self.theirs.sendall(struct.pack("<IB", len(payload), ord(kind)) + payload)

    def test_a_machine_that_says_nothing_is_given_up(self):
        with self.assertRaisesRegex(agent.Silent, "for 1 s"):
            self.agent.run("sleep 100", timeout=50)
        flags = self.theirs.recv(4096)[5:].split(b"\0")[0]
        self.assertEqual(flags, b"b")

    def test_one_that_speaks_is_waited_for(self):
        def speak():
            for _ in range(4):
                time.sleep(0.5)
                self.say("B")
            self.say("X", struct.pack("<I", 3))

        speaker = threading.Thread(target=speak)
        speaker.start()
        self.assertEqual(self.agent.run("sleep 100", timeout=50).status, 3)
        speaker.join()


class Port:
    """The client's end of a terminal, used as the socket of a port."""

    def __init__(self, fd):
        self.fd = fd

    def fileno(self):
        return self.fd

    def sendall(self, data):
        while data:
            data = data[os.write(self.fd, data) :]

    def recv(self, most):
        return os.read(self.fd, most)


# The first look while a command runs says that the port can be read, as it could before a suspend.
LIAR = r"""
#include <poll.h>
int __real_poll(struct pollfd *p, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *p, nfds_t n, int timeout)
{
	static int told;
	int lie = n == 5 && p[2].fd >= 0 && !told;
	int ready = __real_poll(p, n, lie ? 0 : timeout);

	if (!lie)
		return ready;
	told = 1;
	p[0].revents |= POLLIN;
	return ready + 1;
}
"""


class Served(unittest.TestCase):
    """The agent itself, behind a terminal."""

    def setUp(self):
        self.serve(agent.build())

    def serve(self, binary):
        ours, theirs = os.openpty()
        tty.setraw(theirs)
        self.addCleanup(os.close, theirs)
        self.addCleanup(os.close, ours)
        server = subprocess.Popen([binary, "--port", os.ttyname(theirs)])
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.agent = object.__new__(agent.Agent)
        self.agent.sock, self.agent.silence, self.agent.late = Port(ours), None, None
        self.agent.alive = lambda: server.poll() is None
        self.agent._sync("the terminal", time.monotonic() + 10)

    def put(self, size):
        with tempfile.TemporaryDirectory() as d:
            path = Path(d) / "file"
            data = os.urandom(size)
            self.agent.put(path, data)
            self.assertEqual(path.read_bytes(), data)

    def test_what_is_put_is_there(self):
        for size in (0, 1, agent.CHUNK, 10 * agent.CHUNK + 1):
            with self.subTest(size=size):
                self.put(size)

    def test_a_command_that_ends_before_its_input_does_not_end_the_next_ones(self):
        self.agent._send("R", b"\0/\0\0true\0")
        while not any(kind == "X" for kind, _ in self.agent._frames(0.5)):
            self.assertTrue(self.agent.alive())
        self.agent._send("E")
        self.put(10 * agent.CHUNK)

    def test_a_port_that_has_nothing_to_read_after_all_is_not_waited_for(self):
        with tempfile.TemporaryDirectory() as d:
            liar, binary = Path(d) / "liar.c", Path(d) / "agent"
            liar.write_text(LIAR)
            wrap = ["-static", "-Wl,--wrap=poll", "-o", binary]
            subprocess.run(["gcc", *wrap, agent.SOURCE, liar], check=True)
            self.serve(binary)
            self.assertEqual(self.agent.run("sleep 0.5; exit 3", timeout=10).status, 3)

    def test_a_late_command_is_looked_at_before_it_is_killed(self):
        with tempfile.TemporaryDirectory() as d:
            pid = Path(d) / "pid"
            self.agent.late = lambda: Path(f"/proc/{pid.read_text().strip()}/cmdline").read_text()
            with self.assertRaises(agent.Timeout) as caught:
                self.agent.run(f"echo $$ >{pid}; exec sleep 100", timeout=1)
        self.assertIn("sleep\x00100\x00", caught.exception.__notes__)

    def test_what_cannot_be_run_is_said(self):
        self.assertEqual(self.agent.run(["/nonexistent"]).status, 127)
        self.put(10 * agent.CHUNK)


def load_tests(loader, tests, pattern):
    """All but Sample, which is the material of the others."""
    del tests, pattern
    suite = unittest.TestSuite()
    for case in globals().values():
        if isinstance(case, type) and issubclass(case, unittest.TestCase) and case is not Sample:
            suite.addTests(loader.loadTestsFromTestCase(case))
    return suite


class Ktap(unittest.TestCase):
    def run_sample(self, *names):
        out = io.StringIO()
        status = ktap.run(unittest.TestSuite(Sample(n) for n in names), out)
        return status, out.getvalue()

    def test_all_good(self):
        status, text = self.run_sample("test_good")
        self.assertEqual(status, ktap.PASS)
        self.assertRegex(text, r"(?m)^1\.\.1$")
        self.assertRegex(text, r"(?m)^ok 1 .*Sample\.test_good")

    def test_a_failure_says_why(self):
        status, text = self.run_sample("test_good", "test_bad")
        self.assertEqual(status, ktap.FAIL)
        self.assertRegex(text, r"(?m)^not ok 2 ")
        self.assertRegex(text, r"(?m)^# .*because")

    def test_all_skipped(self):
        status, text = self.run_sample("test_skipped")
        self.assertEqual(status, ktap.SKIP)
        self.assertIn("# SKIP not here", text)

    def test_parts_are_indented_and_fail_the_whole(self):
        status, text = self.run_sample("test_parts")
        self.assertEqual(status, ktap.FAIL)
        self.assertRegex(text, r"(?m)^    not ok \d .*i=1")
        self.assertRegex(text, r"(?m)^not ok 1 ")

    def test_a_class_that_cannot_be_set_up_fails(self):
        class Broken(Sample):
            @classmethod
            def setUpClass(cls):
                raise ValueError("no luck")

        out = io.StringIO()
        self.assertEqual(ktap.run(unittest.TestSuite([Broken("test_good")]), out), ktap.FAIL)
        self.assertIn("no luck", out.getvalue())

    def test_a_class_that_is_skipped_counts(self):
        @unittest.skip("elsewhere")
        class Skipped(Sample):
            pass

        out = io.StringIO()
        self.assertEqual(ktap.run(unittest.TestSuite([Skipped("test_good")]), out), ktap.SKIP)


class Counting(unittest.TestCase):
    def test_cases_are_counted(self):
        self.assertEqual(
            selftests.count_cases("ok 1 a\nnot ok 2 b\nok 3 c # SKIP why\n    ok 1 inner\n", 1),
            (1, 1, 1),
        )

    def test_a_status_counts_when_no_case_says_so(self):
        self.assertEqual(selftests.count_cases("", 0), (1, 0, 0))
        self.assertEqual(selftests.count_cases("ok 1 a\n", 1), (1, 1, 0))
        self.assertEqual(selftests.count_cases("", 4), (0, 0, 1))

    def test_a_name_that_is_none_is_refused(self):
        found = selftests.chosen("stock", ["virtio_pvblk.io_test"])
        self.assertEqual([p.path.name for p in found], ["io_test.py"])
        with self.assertRaisesRegex(paths.LabError, "no test io in virtio_pvblk; it has io_test"):
            selftests.chosen("stock", ["virtio_pvblk.io"])


class Archives(unittest.TestCase):
    def test_cpio_reads_it(self):
        archive = cpio.Archive()
        archive.file("a/b/file", b"text\n", 0o755)
        archive.symlink("a/link", "b/file")
        with tempfile.TemporaryDirectory() as d:
            subprocess.run(["cpio", "-id", "--quiet"], input=archive.bytes(), cwd=d, check=True)
            self.assertEqual((Path(d) / "a/link").read_text(), "text\n")

    def test_a_module_comes_after_what_it_needs(self):
        with tempfile.TemporaryDirectory() as d:
            dep = "fs/x.ko: lib/y.ko lib/z.ko\nlib/y.ko: lib/z.ko\nlib/z.ko:\n"
            (Path(d) / "modules.dep").write_text(dep)
            self.assertEqual(
                image.module_closure(Path(d), ["x", "built-in"]),
                ["lib/z.ko", "lib/y.ko", "fs/x.ko"],
            )


class Devices(unittest.TestCase):
    def test_a_vhost_user_disk(self):
        words = " ".join(Disk.parse("vhost-user:/run/s,queues=2").arguments(0))
        self.assertIn("vhost-user-blk-pci", words)
        self.assertIn("num-queues=2", words)

    def test_a_file_that_qemu_serves(self):
        with tempfile.NamedTemporaryFile() as f:
            words = " ".join(Disk.parse(f"{f.name},iothread=0,aio=threads,readonly=1").arguments(1))
        self.assertIn("aio=threads", words)
        self.assertNotIn("iothread", words)
        self.assertIn("read-only=on", words)

    def test_a_file_that_is_not_there_is_said(self):
        with self.assertRaisesRegex(paths.LabError, "disk /nowhere/x: No such file"):
            Disk.parse("/nowhere/x").arguments(0)

    def test_shares_name_their_tag(self):
        self.assertIn("tag=t", " ".join(Share.virtiofs("/run/s", "t").arguments(0)))
        self.assertIn("mount_tag=t", " ".join(Share.p9("/tmp", "t").arguments(0)))

    def test_an_nvme_disk_is_empty_at_each_boot(self):
        with tempfile.TemporaryDirectory(suffix=",") as d:
            image = Path(d) / "nvme.img"
            image.write_bytes(b"old")
            words = " ".join(selftests.nvme_disk(Path(d)))
            self.assertIn(f"file={d},/nvme.img", words)
            self.assertEqual(image.read_bytes(), bytes(selftests.NVME_BYTES))


class Tsc(unittest.TestCase):
    def test_its_frequency_is_the_same_each_time(self):
        first, second = tsc.khz(), tsc.khz()
        self.assertGreater(first, 100_000)
        self.assertLess(abs(first - second) / first, 1e-3)


class Guests(unittest.TestCase):
    def test_the_keeper_tells_how_its_guest_ended(self):
        for script, told in (
            ("exit 0", "QEMU ended with status 0\n"),
            ("exit 3", "QEMU ended with status 3\n"),
            ("kill -9 $$", "QEMU ended with signal 9\n"),
        ):
            with self.subTest(script), tempfile.TemporaryDirectory() as state:
                one = Guest("g", kernel=Kernel("stock", "r", Path("/k"), Path("/m")), kept=True)
                one.state = Path(state)
                words = ["sh", "-c", KEEPER, state, "sh", "-c", f"sleep 0.2; {script}"]
                one.process = subprocess.Popen(words, start_new_session=True)
                one.pid = one._pid_by_keeper()
                self.assertTrue(one.alive())
                one.process.wait()
                self.assertEqual(one._end(), told)
                # another process has no child to ask
                one.process = None
                self.assertEqual(one._end(), told)

    def test_firmware_is_given_no_kernel(self):
        kernel = Kernel("stock", "r", Path("/k"), Path("/m"))
        guest = Guest("g", kernel=kernel, direct_kernel=False, append="more")
        self.assertFalse({"-kernel", "-initrd", "-append"} & set(guest.command()))
        self.assertTrue(guest.cmdline().endswith("more"))


if __name__ == "__main__":
    unittest.main()
