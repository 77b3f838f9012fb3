"""Builds the page of `/ui` into `dist/` beside this file, with npm; needs no Python package.

Does nothing if `dist/` was built from the present sources and lock file. If npm is missing or
fails, the reason is printed on standard error and the exit code is 0, as everything else works
without the page; 1 with STRANDLINE_REQUIRE_TOOLS=1.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = HERE / "dist"
SOURCES = ("*.json", "*.html", "*.ts", ".npmrc", "src/**/*")
MARK = "built-from"
"""Name of the file in the built page that has the digest of its sources."""


def digest_of(folder: Path) -> str:
    """The digest of the page's sources and of the lock file of its packages."""
    found = hashlib.sha256()
    for path in sorted({path for pattern in SOURCES for path in folder.glob(pattern)}):
        if path.is_file():
            found.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


def is_built(folder: Path = HERE) -> bool:
    """True if the page was built from the present sources."""
    mark = folder / "dist" / MARK
    return mark.is_file() and mark.read_text() == digest_of(folder)


def build() -> None:
    """Build the page. OSError, CalledProcessError: npm is missing, or failed."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is not installed: install Node.js 20.19 or newer")
    sys.stderr.write("building the page of /ui (once, about half a minute)\n")
    for command in (["ci"], ["run", "--silent", "build"]):
        subprocess.run([npm, *command], cwd=HERE, check=True, stdout=sys.stderr)  # noqa: S603 - ours
    (BUILT / MARK).write_text(digest_of(HERE))


def main() -> int:
    """Build the page if needed; return the exit code."""
    if is_built():
        return 0
    try:
        build()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"the page of /ui is not built, everything else works: {error}\n")
        return int(os.environ.get("STRANDLINE_REQUIRE_TOOLS") == "1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
