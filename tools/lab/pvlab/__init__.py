# SPDX-License-Identifier: GPL-2.0
"""The lab: a host VM, guests in it, and what is seen of them.

pvlab.host        the host VM (or the machine itself), from outside
pvlab.guest       guests, on the host
pvlab.detect      finds the kernel's reports in its log
pvlab.selftests   runs tools/testing/selftests in a lane
pvlab.ktap        a unittest runner that prints KTAP
"""
