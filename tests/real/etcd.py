"""etcd, the peer of the quorum's benchmark: Debian's packages, unpacked into the tools folder.

The load comes from etcd's own `benchmark` tool, which Debian does not package; it is built from the
Go module of the 3.4 line.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.real.toolbox import only_one, require_program, tools_dir

PACKAGE = "etcd-server"
BENCHMARK_VERSION = "v0.5.0-alpha.5.0.20200910180754-dd1b699fc489"
"""The Go module's name for etcd 3.4.13: later ones of 3.4 are not on the module proxy."""
FETCH_DEADLINE_S = 300
BUILD_DEADLINE_S = 1200


def etcd_program() -> Path:
    """The path of the server; the first call on a machine fetches it."""
    folder = tools_dir() / PACKAGE
    program = folder / "usr" / "bin" / "etcd"
    with only_one("etcd"):
        if not program.exists():
            fetch, unpack = require_program("apt-get"), require_program("dpkg-deb")
            folder.mkdir(exist_ok=True)
            subprocess.run(
                [fetch, "-qq", "download", PACKAGE],
                cwd=folder, check=True, timeout=FETCH_DEADLINE_S, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            (package,) = folder.glob("*.deb")
            subprocess.run([unpack, "-x", str(package), str(folder)], check=True)
    return program


def etcd_benchmark_program() -> Path:
    """The path of the load generator; the first call on a machine builds it (a minute)."""
    folder = tools_dir() / f"etcd-benchmark-{BENCHMARK_VERSION}"
    program = folder / "benchmark"
    with only_one("etcd-benchmark"):
        if not program.exists():
            module = f"go.etcd.io/etcd/tools/benchmark@{BENCHMARK_VERSION}"
            subprocess.run(
                [require_program("go"), "install", module],
                env=os.environ | {"GOBIN": str(folder), "GOFLAGS": "-mod=mod"},
                cwd=tools_dir(),
                check=True,
                timeout=BUILD_DEADLINE_S,
            )
    return program
