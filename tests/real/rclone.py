"""rclone: the peer of the copy benchmarks, built from its Go module, and Debian's for recipes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.real.toolbox import only_one, require_program, tools_dir

RCLONE_VERSION = "v1.76.0"
BUILD_DEADLINE_S = 1200
FETCH_DEADLINE_S = 300


def packaged_rclone() -> Path:
    """The path of Debian's rclone, which is older and fetched in a moment."""
    folder = tools_dir() / "rclone-packaged"
    program = folder / "usr" / "bin" / "rclone"
    with only_one("rclone-packaged"):
        if not program.exists():
            fetch, unpack = require_program("apt-get"), require_program("dpkg-deb")
            folder.mkdir(exist_ok=True)
            subprocess.run(
                [fetch, "-qq", "download", "rclone"],
                cwd=folder, check=True, timeout=FETCH_DEADLINE_S, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            (package,) = folder.glob("rclone_*.deb")
            subprocess.run([unpack, "-x", str(package), str(folder)], check=True)
    return program


def rclone_program() -> Path:
    """The path of the program; the first call on a machine builds it (some minutes)."""
    folder = tools_dir() / f"rclone-{RCLONE_VERSION}"
    program = folder / "rclone"
    with only_one("rclone"):
        if not program.exists():
            subprocess.run(
                [require_program("go"), "install", f"github.com/rclone/rclone@{RCLONE_VERSION}"],
                env=os.environ | {"GOBIN": str(folder), "GOFLAGS": "-mod=mod"},
                cwd=tools_dir(),
                check=True,
                timeout=BUILD_DEADLINE_S,
            )
    return program
