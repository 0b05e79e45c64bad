# SPDX-License-Identifier: GPL-2.0
"""The frequency of this machine's TSC, measured.

An emulated CPU's TSC is the machine's.  A kernel that boots on a busy machine measures
it against an emulated timer whose interrupts come late: one found 559 MHz where there
were 2596, so that its clock was five times too fast, and each limit of time in it too
short.  It is told instead.
"""

import ctypes
import mmap
import time

# rdtsc; shl $32, %rdx; or %rdx, %rax; ret
READ = bytes.fromhex("0f31 48c1e220 4809d0 c3")
SECONDS = 0.2
TRIES = 200


def _reader():
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(READ)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(address)
    read.page = page
    return read


def _both(read):
    """(TSC, nanoseconds) of one moment: of many tries the one that was least disturbed."""
    best = None
    for _ in range(TRIES):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        ticks = read()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        if best is None or after - before < best[0]:
            best = after - before, ticks, (before + after) / 2
    return best[1:]


def khz():
    """What tsc_early_khz= of the kernel's command line takes."""
    read = _reader()
    ticks, begin = _both(read)
    time.sleep(SECONDS)
    later, end = _both(read)
    return round((later - ticks) * 1e6 / (end - begin))
