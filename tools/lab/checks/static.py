# SPDX-License-Identifier: GPL-2.0
"""Checks that read the code and do not run it."""

import re
import subprocess

from .runner import CACHE, TOP

LINES = 900
SPDX = re.compile(r"SPDX-License-Identifier: .*GPL-2\.0")
# Files that cannot or need not carry the line.
NO_SPDX = re.compile(
    r"^Documentation/ABI/|(^|/)(COPYING|Cargo\.lock|\.gitignore|\.gitkeep|settings|config|lanes)$|\.(patch|json(\.in)?|svg)$"
)
HOME_PATH = re.compile(r"(^|[\s\"'=(:])/(root|work|home)/\w")


def ours(kind):
    out = subprocess.run(
        [TOP / "scripts/ours", kind], capture_output=True, text=True, check=True, cwd=TOP
    )
    return out.stdout.split("\n")[:-1]


def kernel_source():
    """Where tools/lab/kernel/build and this lane lay the tree."""
    version = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", "linux-source-6.12"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return CACHE / "linux-source" / (version or "missing")


def sparse_verdict(done):
    """Sparse warns but does not fail; its warnings about our files are failures."""
    if done.status:
        return None
    bad = [x for x in done.text.splitlines() if re.search(r"out/build/.*(warning|error):", x)]
    return "\n".join(bad[:60]) or None


def files_problems():
    """Licence lines, size, stray white space, paths of one machine."""
    problems = []
    for name in ours("all"):
        try:
            text = (TOP / name).read_text()
        except UnicodeDecodeError:
            problems.append(f"{name}: not text")
            continue
        problems += one_file(name, text)
    return problems


def one_file(name, text):
    lines = text.splitlines()
    if not text:
        return []
    found = []
    if not NO_SPDX.search(name) and not any(SPDX.search(x) for x in lines[:5]):
        found.append(f"{name}: no SPDX line (GPL-2.0)")
    if name.endswith((".patch", "COPYING", "Cargo.lock")):
        return found
    if len(lines) > LINES:
        found.append(f"{name}: {len(lines)} lines, more than {LINES}")
    if not text.endswith("\n"):
        found.append(f"{name}: no newline at the end")
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            found.append(f"{name}:{number}: trailing white space")
        if HOME_PATH.search(line) and "Makefile" not in name:
            found.append(f"{name}:{number}: a path of one machine")
    return found


def cargo(*args):
    """A cargo command with the Rust that scripts/rust-env finds."""
    return ["sh", "-ec", '. scripts/rust-env; cd tools/pvio; exec cargo "$@"', "cargo", *args]


def run(step):
    """Every static check; step(name, ...) leaves out what was not asked for."""
    source = kernel_source()
    step("tree", ["scripts/tree", source], limit=600)
    checkpatch = [source / "scripts/checkpatch.pl", "--no-tree", "--strict", "--terse", "--quiet"]
    # FUSE has a server answer ENOSYS to an operation that it does not have.
    checkpatch += ["--show-types", "--no-summary", "--ignore", "ENOSYS"]
    trace = [name for name in ours("c") if name.startswith("include/trace/")]
    code = [name for name in ours("c") if name not in trace]
    if code:
        step("checkpatch", [*checkpatch, "-f", *code])
    if trace:
        # TRACE_EVENT() has a layout of its own, which checkpatch does not know.
        layout = ["--ignore", "OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT"]
        step("checkpatch of traces", [*checkpatch, *layout, "-f", *trace])
    # On stdin: a tracked file it would take for code, not for a patch.
    patches = ["sh", "-c", 'for p in patches/*.patch; do "$@" - <"$p" || exit 1; done', "sh"]
    # A Fixes: names a commit of the kernel's repository, which checkpatch looks for in ours.
    quiet = ["--ignore", "FILE_PATH_CHANGES,CONFIG_DESCRIPTION,UNKNOWN_COMMIT_ID"]
    step("checkpatch of patches", [*patches, *checkpatch, *quiet])
    if ours("kernel"):
        step("kernel-doc", [source / "scripts/kernel-doc", "-none", "-Werror", *ours("kernel")])
    step("files", ["tools/lab/check", "--files"])
    step("shellcheck", ["shellcheck", *ours("shell")])
    step("ruff", ["scripts/ruff"])
    step("sparse", ["make", "C=2", "CF=-D__CHECK_ENDIAN__"], limit=600, verdict=sparse_verdict)
    step("in-tree", ["scripts/check-tree", source], limit=900)
    if (TOP / "tools/pvio/Cargo.toml").exists():
        env = {"CARGO_TARGET_DIR": str(CACHE / "cargo")}
        step("rustfmt", cargo("fmt", "--all", "--check"), env=env)
        clippy = ("clippy", "--locked", "--all-targets", "-q", "--", "-D", "warnings")
        step("clippy", cargo(*clippy), limit=900, env=env)
        step("install", ["scripts/check-install"], limit=900)
