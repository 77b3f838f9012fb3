"""kcat, librdkafka's command line: Debian's packages, unpacked into the tools folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.real.toolbox import only_one, require_program, tools_dir

PACKAGES = ("librdkafka1", "libyajl2", "libsasl2-2", "kcat")
"""Libraries first: once the program is there, all of it is. Debian's base has what else it needs,
and the machine's Python has libssl."""
FETCH_DEADLINE_S = 300
RUN_DEADLINE_S = 60


def kcat_folder() -> Path:
    """Where it is unpacked; the first call on a machine fetches it."""
    folder = tools_dir() / "kcat"
    with only_one("kcat"):
        if not (folder / "usr" / "bin" / "kcat").exists():
            fetch, unpack = require_program("apt-get"), require_program("dpkg-deb")
            folder.mkdir(exist_ok=True)
            subprocess.run(
                [fetch, "-qq", "download", *PACKAGES],
                cwd=folder, check=True, timeout=FETCH_DEADLINE_S, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            for name in PACKAGES:
                (package,) = folder.glob(f"{name}_*.deb")
                subprocess.run([unpack, "-x", str(package), str(folder)], check=True)
    return folder


def run_kcat(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """What it prints and how it ends, which is the test's to judge."""
    folder = kcat_folder()
    libraries = ":".join(str(each) for each in (folder / "usr" / "lib").glob("*-linux-gnu*"))
    return subprocess.run(
        [str(folder / "usr" / "bin" / "kcat"), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=RUN_DEADLINE_S,
        env=os.environ | {"LD_LIBRARY_PATH": libraries},
    )
