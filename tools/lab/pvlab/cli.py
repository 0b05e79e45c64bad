# SPDX-License-Identifier: GPL-2.0
"""lab: a host VM, guests in it, and commands in both.

  lab host run -- uname -a                      boots the host VM if none is up
  lab --lane debug host run -- dmesg
  lab guest start -g a --vcpus 2 --disk /tmp/a.img
  lab guest run -g a -- fio --version
  lab guest stop -g a
  lab host start --disk /srv/big.img           boots the host VM with a disk of its own
  lab host stop

A disk is a PATH (QEMU serves it, in an I/O thread), or
  PATH,iothread=0,aio=threads,readonly=1        how QEMU serves it
  vhost-user:SOCKET,queues=2                    a vhost-user-blk back end
"""

import argparse
import contextlib
import dataclasses
import os
import shutil
import sys
import termios
import tty
from pathlib import Path

from . import guestcli, paths
from .devices import Disk
from .paths import LabError, say


def _parser():
    p = argparse.ArgumentParser(
        prog="lab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("-H", "--host", metavar="NAME", help="which host VM (default: the lane's name)")
    p.add_argument(
        "--lane", choices=("stock", "debug"), default=os.environ.get("LAB_LANE", "stock")
    )
    areas = p.add_subparsers(dest="area", required=True)

    host = areas.add_parser("host", help="the host VM").add_subparsers(dest="verb", required=True)
    for verb in ("start", "stop", "status", "log", "shell", "leaks"):
        one = host.add_parser(verb)
        if verb == "start":
            one.add_argument("--cpus", type=int, default=2)
            one.add_argument("--mem")
            one.add_argument(
                "--disk",
                action="append",
                default=[],
                metavar="SPEC",
                help="a file or block device of this machine, as a virtio disk (vda, vdb...)",
            )
    run = host.add_parser("run", help="run a command in it")
    run.add_argument("-t", "--timeout", type=float, default=600.0, metavar="SECONDS")
    run.add_argument("command", nargs=argparse.REMAINDER)

    guestcli.add_arguments(areas.add_parser("guest", help="guests on the host"))
    for verb in ("get", "put"):
        one = areas.add_parser(
            verb, help=f"{verb} a file {'from' if verb == 'get' else 'to'} the host, or a guest"
        )
        one.add_argument("-g", "--guest")
        one.add_argument("source")
        one.add_argument("target")
    return p


def _command(words):
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        raise LabError("no command is given")
    return words


def _host(args, **kw):
    from .host import Host  # not wanted by what runs on the host, where imports are slow

    return Host(lane=args.lane, name=args.host or args.lane, **kw)


def _host_start(args):
    """Boot it.  Its disks are those of its start, so that one that is up gets none."""
    # Its QEMU runs in another directory.
    disks = [Disk.parse(spec) for spec in args.disk]
    disks = [dataclasses.replace(d, path=os.path.abspath(d.path)) for d in disks]
    words = [w for i, disk in enumerate(disks) for w in disk.arguments(i)]
    h = _host(args, cpus=args.cpus, mem=args.mem, qemu_args=words)
    if args.disk and h.up():
        raise LabError(f"host VM '{h.name}' is up, and gets no disk any more: stop it, or take -H")
    h.start()
    if args.disk:
        h.run("modprobe virtio_blk; until [ -b /dev/vda ]; do sleep 0.1; done", timeout=60)
    h.disconnect()
    return 0


def _host_shell(h):
    old = None
    with contextlib.suppress(termios.error):
        old = termios.tcgetattr(0)
    size = shutil.get_terminal_size()
    env = {"COLUMNS": str(size.columns), "LINES": str(size.lines)}
    try:
        if old:
            tty.setraw(0)
        return h.stream(["bash", "-l"], stdin=0, env=env, pty=old is not None)
    finally:
        if old:
            termios.tcsetattr(0, termios.TCSADRAIN, old)


def _host_leaks(h):
    text = h.run([sys.executable, "-m", "pvlab.leaks"], timeout=300).out
    print(text, end="")
    return 1 if text.strip() else 0


def _stdin():
    """Our input, if it is a file or a pipe; a terminal is not the command's."""
    return None if sys.stdin is None or sys.stdin.isatty() else 0


def host_verb(args):
    if args.verb == "start":
        return _host_start(args)
    h = _host(args)
    if args.verb == "stop":
        h.stop()
        return 0
    if args.verb == "status":
        print("up" if h.up() else "down")
        return 0 if h.up() else 3
    if args.verb == "log":
        sys.stdout.write(h.log())
        return 0
    with h:
        if args.verb == "shell":
            return _host_shell(h)
        if args.verb == "leaks":
            return _host_leaks(h)
        words = _command(args.command)
        words = words[0] if len(words) == 1 else words
        return h.stream(words, stdin=_stdin(), timeout=args.timeout, cwd=_inside(Path.cwd()))


def _inside(directory):
    """DIRECTORY if the host has it, else the checkout."""
    return directory if directory.is_relative_to(paths.TOP) else paths.TOP


def _must_be_up(h):
    """Guests live in the host VM: do not boot one to say that there is none."""
    if not h.up():
        raise LabError("no host VM is up, so there is no guest")


def _sent_to_host(args, argv):
    """`lab guest ...` typed outside is run in the host VM."""
    h = _host(args)
    if args.verb not in ("start", "run"):
        _must_be_up(h)
    with h:
        return h.stream([str(paths.LAB / "lab"), *argv], stdin=_stdin(), cwd=_inside(Path.cwd()))


def copy_verb(args, argv):
    if args.guest:
        if not os.environ.get("LAB_HOST"):
            return _copy_through_host(args)
        return guestcli.copy(args)
    with _host(args) as h:
        if args.area == "get":
            Path(args.target).write_bytes(h.get(args.source))
        else:
            h.put(args.target, Path(args.source).read_bytes())
    return 0


def _copy_through_host(args):
    with _host(args) as h:
        if args.area == "get":
            h.run(["lab", "get", "-g", args.guest, args.source, "/tmp/lab.copy"], check=True)
            Path(args.target).write_bytes(h.get("/tmp/lab.copy"))
        else:
            h.put("/tmp/lab.copy", Path(args.source).read_bytes())
            h.run(["lab", "put", "-g", args.guest, "/tmp/lab.copy", args.target], check=True)
    return 0


def _dispatch(args, argv):
    if args.area == "host":
        if os.environ.get("LAB_HOST"):
            raise LabError("this is the host already")
        return host_verb(args)
    if args.area == "guest":
        return (
            guestcli.verb(args)
            if os.environ.get("LAB_HOST")
            else _sent_to_host(args, _without_host(argv))
        )
    return copy_verb(args, argv)


def _without_host(argv):
    return argv[argv.index("guest") :]


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    args = _parser().parse_args(argv)
    try:
        return _dispatch(args, argv)
    except LabError as e:
        say(str(e))
        for note in getattr(e, "__notes__", ()):
            print(note, file=sys.stderr)
        return 124 if type(e).__name__ == "Timeout" else 125
    except KeyboardInterrupt:
        say("interrupted")
        return 130
