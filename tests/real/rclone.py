"""rclone, the peer of the copy benchmarks, built once from its Go module into the tools folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.real.toolbox import only_one, require_program, tools_dir

RCLONE_VERSION = "v1.76.0"
BUILD_DEADLINE_S = 1200


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
