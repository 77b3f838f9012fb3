"""A clean Debian with Python in a folder of its own, in place of the image's base.

It has what our Dockerfile needs of `python:3.11-slim-bookworm`: Debian 12, Python 3.11 with its
headers and `venv` as /usr/local/bin/python, authorities' certificates, and no compiler.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.real.toolbox import missing, only_one, require_program, tools_dir

SUITE = "bookworm"
PACKAGES = ("python3", "python3-dev", "python3-venv", "ca-certificates")
FETCH_DEADLINE_S = 900


def debian_root() -> Path:
    """Where it is; the first call on a machine makes it. Needs root, as chroot does."""
    if os.geteuid() != 0:
        missing("root, to make a clean root directory")
    root = tools_dir() / f"{SUITE}-root"
    with only_one(f"{SUITE}-root"):
        if not root.exists():
            unfinished = root.with_suffix(".unfinished")
            _run(["rm", "-rf", str(unfinished)])
            _bootstrap(unfinished)
            for name in ("python", "python3"):
                (unfinished / "usr/local/bin" / name).symlink_to("/usr/bin/python3")
            unfinished.rename(root)
    return root


def _bootstrap(root: Path) -> None:
    """Debian's own debootstrap, unpacked, from the mirror that this machine installs from."""
    folder = tools_dir() / "debootstrap"
    folder.mkdir(exist_ok=True)
    if not (folder / "usr/sbin/debootstrap").exists():
        fetch, unpack = require_program("apt-get"), require_program("dpkg-deb")
        _run([fetch, "-qq", "download", "debootstrap"], cwd=folder)
        (package,) = folder.glob("debootstrap_*.deb")
        _run([unpack, "-x", str(package), str(folder)])
    _run(
        [
            str(folder / "usr/sbin/debootstrap"),
            *("--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root), _mirror()),
        ],
        environment={"DEBOOTSTRAP_DIR": str(folder / "usr/share/debootstrap")},
    )


def _mirror() -> str:
    """The first mirror of Debian itself among the machine's sources."""
    listed = subprocess.run(
        [require_program("apt-get"), "indextargets", "--format", "$(SITE) $(RELEASE)"],
        check=True, capture_output=True, text=True, timeout=60,
    ).stdout.splitlines()  # fmt: skip
    sites = [
        site for site, _, release in (line.partition(" ") for line in listed) if release == SUITE
    ]
    if not sites:
        missing(f"a mirror of Debian {SUITE} among its package sources")
    return sites[0]


def _run(
    command: list[str], *, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> None:
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | (environment or {}), timeout=FETCH_DEADLINE_S,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise OSError(f"{command[0]} ended with {done.returncode}: {done.stdout[-2000:]}")
