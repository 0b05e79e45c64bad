# SPDX-License-Identifier: GPL-2.0
"""The `lab guest` verbs, on the host."""

import sys
from pathlib import Path

from .guest import Disk, Guest, Share
from .paths import LabError, say


def add_arguments(parser):
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("start", help="boot a guest")
    start.add_argument("--vcpus", type=int, default=1)
    start.add_argument("--mem", help="512M, in the debug lane 1G")
    start.add_argument("--disk", action="append", default=[], metavar="SPEC")
    start.add_argument(
        "--share",
        action="append",
        default=[],
        metavar="DIR",
        help="9p, at /mnt/NAME; or virtiofs:SOCKET,TAG",
    )
    start.add_argument("--driver", help="virtio_blk (default) or virtio_pvblk")
    start.add_argument("--append", default="", help="for its kernel's command line")
    start.add_argument(
        "--serial", action="store_true", help="console on a serial port: slow, shows early failures"
    )
    start.add_argument("--qemu-arg", action="append", default=[], metavar="ARG")
    run = verbs.add_parser("run", help="run a command in it")
    run.add_argument("-t", "--timeout", type=float, default=600.0, metavar="SECONDS")
    for name in ("stop", "status", "log"):
        verbs.add_parser(name)
    for one in verbs.choices.values():
        one.add_argument("-g", "--guest", default="guest", metavar="NAME")
    run.add_argument("command", nargs="...")


def _share(index, spec):
    if spec.startswith("virtiofs:"):
        socket, _, tag = spec.removeprefix("virtiofs:").partition(",")
        return Share.virtiofs(socket, tag or f"share{index}"), tag or f"share{index}"
    return Share.p9(spec, f"share{index}"), Path(spec).resolve().name


def _start(args):
    shares = [_share(i, s) for i, s in enumerate(args.share)]
    modules = [args.driver or "virtio_blk"] if args.disk or args.driver else []
    guest = Guest(
        args.guest,
        args.vcpus,
        args.mem,
        [Disk.parse(d) for d in args.disk],
        [s for s, _ in shares],
        append=args.append,
        qemu_args=args.qemu_arg,
        modules=modules,
        serial=args.serial,
        kept=True,
    )
    say(f"booting guest '{args.guest}' (at most {guest.boot_timeout:.0f} s)")
    guest.start()
    for share, name in shares:
        guest.run(share.mount(f"/mnt/{name}"), check=True)
    guest.check()
    say("guest is up")
    return 0


def _run(args):
    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise LabError("no command is given")
    stdin = None if sys.stdin is None or sys.stdin.isatty() else 0
    return Guest.attach(args.guest).stream(
        words[0] if len(words) == 1 else words,
        stdin=stdin,
        timeout=args.timeout,
        out=_to(sys.stdout.buffer),
        err=_to(sys.stderr.buffer),
    )


def _to(file):
    def write(data):
        file.write(data)
        file.flush()

    return write


def verb(args):
    if args.verb == "start":
        return _start(args)
    if args.verb == "run":
        return _run(args)
    guest = Guest.attach(args.guest)
    if args.verb == "stop":
        guest.stop()
    elif args.verb == "log":
        sys.stdout.write(guest.log())
    else:
        print("up" if guest.alive() else "down")
        return 0 if guest.alive() else 3
    return 0


def copy(args):
    guest = Guest.attach(args.guest)
    if args.area == "get":
        Path(args.target).write_bytes(guest.get(args.source))
    else:
        guest.put(args.target, Path(args.source))
    return 0
