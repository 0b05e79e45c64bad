# SPDX-License-Identifier: GPL-2.0
"""A unittest runner that prints KTAP.

    if __name__ == "__main__":
        ktap.main()

Exits 0 when all passed, 1 when any failed, 4 when all were skipped.
Test names on the command line choose, as unittest has it.
"""

import sys
import time
import traceback
import unittest

PASS, FAIL, SKIP = 0, 1, 4


class _Result(unittest.TestResult):
    def __init__(self, stream):
        super().__init__()
        self.stream = stream
        self.number = 0
        self.skips = 0
        self.bad = 0
        self._subtests = []

    def say(self, line):
        print(line, file=self.stream, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self._subtests = []
        self._begin = time.monotonic()
        self._failed = False
        self._skipped = None

    def stopTest(self, test):
        super().stopTest(test)
        for i, (name, good) in enumerate(self._subtests, 1):
            if i == 1:
                self.say("    KTAP version 1")
            self.say(f"    {'ok' if good else 'not ok'} {i} {name}")
        if self._subtests:
            self.say(f"    1..{len(self._subtests)}")
        self._report(_name(test), not self._failed, self._skipped, time.monotonic() - self._begin)

    def _report(self, name, good, skipped, seconds):
        self.number += 1
        self.bad += not good
        self.skips += skipped is not None
        skip = f" # SKIP {skipped}" if skipped is not None else f" # {seconds:.1f} s"
        self.say(f"{'ok' if good else 'not ok'} {self.number} {name}{skip}")

    def _why(self, err):
        text = "".join(traceback.format_exception(*err))
        for line in text.rstrip().splitlines():
            self.say(f"# {line}")

    def _fail(self, test, err):
        self._failed = True
        self._why(err)
        # setUpClass and the like fail without a test that started
        if not isinstance(test, unittest.TestCase):
            self._report(str(test), False, None, 0)

    def addError(self, test, err):
        super().addError(test, err)
        self._fail(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._fail(test, err)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._failed = True

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if (
            isinstance(test, unittest.TestCase)
            and hasattr(self, "_begin")
            and test.id() == getattr(self, "_id", test.id())
        ):
            self._skipped = reason
        else:
            self._report(str(test), True, reason, 0)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        self._subtests.append((subtest._subDescription(), err is None))
        if err:
            self._failed = True
            self._why(err)


def _name(test):
    return test.id().removeprefix("__main__.")


def _load(module):
    loader = unittest.TestLoader()
    if sys.argv[1:]:
        return loader.loadTestsFromNames(sys.argv[1:], module)
    return loader.loadTestsFromModule(module)


def run(suite, stream=None):
    """Run SUITE, print KTAP on STREAM, return the exit status."""
    stream = stream or sys.stdout
    result = _Result(stream)
    result.say("KTAP version 1")
    result.say(f"1..{suite.countTestCases()}")
    suite.run(result)
    bad = result.bad
    result.say(
        f"# Totals: pass:{result.number - bad - result.skips} fail:{bad} xfail:0 xpass:0 skip:{result.skips} error:0"
    )
    if bad:
        return FAIL
    return SKIP if result.number == result.skips else PASS


def main(module="__main__"):
    """Run MODULE's tests and exit."""
    module = sys.modules[module] if isinstance(module, str) else module
    sys.exit(run(_load(module)))


__all__ = ["FAIL", "PASS", "SKIP", "main", "run"]
