# SPDX-License-Identifier: GPL-2.0
"""What a guest was doing when a command in it was late.

Looked at before the command is killed: a signal, or only the interrupt that brings it, may
set going what had stopped.
"""

import contextlib
from pathlib import Path

from . import agent, traces
from .paths import LabError

# Each task that runs, that waits without being interruptible, or that has a command line
# (kernel threads that sleep have nothing to tell), with its stack; and the interrupts.
TASKS = r"""
exec 2>/dev/null
for t in /proc/[0-9]*/task/[0-9]*; do
	state=$(sed -n 's/^State:[[:space:]]*//p' $t/status)
	case $state in
	[SIT]*) [ "$(tr -d '\0' <$t/cmdline)" ] || continue ;;
	esac
	echo "$(cat $t/comm) (${t##*/}): $state, $(tr '\0\n' '  ' <$t/cmdline | cut -c 1-100)"
	sed 's/^/   /' $t/stack
done
cat /proc/interrupts
"""


def _threads(guest):
    """A line for the thread of each CPU: its state, where it sleeps, its turns."""
    lines = []
    with contextlib.suppress(OSError, LabError, ValueError):
        for cpu in guest.qmp("query-cpus-fast"):
            task = Path(f"/proc/{guest.pid}/task/{cpu['thread-id']}")
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            where = (task / "wchan").read_text()
            turns = (task / "schedstat").read_text().strip()
            lines.append(
                f"CPU {cpu['cpu-index']}'s thread: {state} {where}, run, waited, turns: {turns}"
            )
    return lines


def cpus(guest):
    """What its CPUs do, and the host's threads that run them, over some seconds."""
    before = _threads(guest)
    seen, _ = traces.look_at(guest.state / "qmp")
    return "\n".join(["its CPUs:", *before, seen, *_threads(guest)])


def tasks(guest):
    """What its tasks do, by another port than the late command's."""
    try:
        one = agent.Agent(guest.ports(), 10, guest.alive)
    except LabError as e:
        return f"its tasks: {e}"
    try:
        return "its tasks:\n" + one.run(TASKS, timeout=30).out
    except LabError as e:
        return f"its tasks: {e}"
    finally:
        one.close()


def look(guest):
    """The CPUs come first, because the question for the tasks is an interrupt for one of them."""
    return f"{cpus(guest)}\n{tasks(guest)}"
