# SPDX-License-Identifier: GPL-2.0
"""virtme-ng, from PyPI, in a virtual environment in the cache."""

import os
import subprocess
import sys

from .cached import cached
from .paths import CACHE, LabError, say

VERSION = "1.42"


def vng():
    """The path of vng, installed when it is missing."""
    return cached(CACHE / f"venv-{VERSION}" / "bin/vng", "venv", _install)


def _install(path):
    say(f"installing virtme-ng {VERSION} from PyPI")
    venv = path.parent.parent
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    for command in (
        [sys.executable, "-m", "venv", venv],
        [venv / "bin/pip", "install", "-q", f"virtme-ng=={VERSION}"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600)
        if done.returncode:
            raise LabError(
                f"installing virtme-ng failed: {done.stderr.strip()[-500:] or done.stdout.strip()[-500:]}"
            )
