"""Chromium: the machine's own, or Debian's packages, unpacked into the tools folder with what this
machine lacks of its libraries.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.real.toolbox import missing, only_one, require_program, tools_dir

FETCH_DEADLINE_S = 600
FLAGS = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass(frozen=True, slots=True)
class Chromium:
    """The program, and what its environment needs besides."""

    program: Path
    environment: dict[str, str] = field(default_factory=dict)


def chromium() -> Chromium:
    """The machine's own, or the unpacked one; the first call on a machine fetches it."""
    own = shutil.which("chromium")
    if own is not None:
        return Chromium(Path(own))
    folder = tools_dir() / "chromium"
    with only_one("chromium"):
        if not (folder / "usr" / "bin" / "chromium").exists():
            try:
                _fetch(folder)
            except subprocess.SubprocessError as error:
                missing(f"Debian's package chromium ({error}: {getattr(error, 'stderr', '')})")
    libraries = sorted({str(each.parent) for each in folder.glob("**/lib*.so*")})
    return Chromium(
        folder / "usr" / "lib" / "chromium" / "chromium",
        {
            "LD_LIBRARY_PATH": ":".join(libraries),
            "FONTCONFIG_FILE": str(folder / "fonts.conf"),
        },
    )


def _fetch(folder: Path) -> None:
    """Everything that an installation would bring onto this machine, and one font."""
    unpack = require_program("dpkg-deb")
    scratch = folder.with_suffix(".unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        _download(scratch)
    except subprocess.SubprocessError:
        # Security updates replace Chromium each week: lists of packages that are older name a
        # version that is gone.
        _apt(["update"], scratch)
        _download(scratch)
    for package in sorted(scratch.glob("*.deb")):
        subprocess.run([unpack, "-x", str(package), str(scratch)], check=True)
        package.unlink()
    fonts = "".join(
        f"<dir>{each}</dir>" for each in ("/usr/share/fonts", folder / "usr/share/fonts")
    )
    (scratch / "fonts.conf").write_text(
        f"<fontconfig>{fonts}<cachedir>{folder / 'font-cache'}</cachedir></fontconfig>"
    )
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)


def _download(folder: Path) -> None:
    """Package files into a folder. SubprocessError: apt-get failed."""
    wanted = ["chromium", "fonts-dejavu-core"]
    told = _apt(["-s", "--no-install-recommends", "install", *wanted], folder)
    packages = [line.split()[1] for line in told.splitlines() if line.startswith("Inst ")]
    _apt(["download", *packages], folder)


def _apt(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        [require_program("apt-get"), "-qq", *arguments],
        cwd=folder, check=True, capture_output=True, text=True, timeout=FETCH_DEADLINE_S,
    )  # fmt: skip
    return done.stdout
