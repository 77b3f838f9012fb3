"""Classes that many short-lived JVMs load, kept in an archive: reading and checking them anew is
half of what a JVM costs that lives for seconds.

A JVM that finds the archive made by another Java, or of other jars, goes on without it.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.real.maven import require_java
from tests.real.toolbox import only_one

QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""A JVM that goes on without its archive would say so on standard output."""


def class_options(archive: Path) -> tuple[str, ...]:
    """Of a JVM that takes its classes from there."""
    return (*QUIET, f"-XX:SharedArchiveFile={archive}")


def class_data(name: str, folder: Path, jars: Path, train: Callable[[str], object]) -> Path:
    """The archive of the classes in `jars`, in `folder`. Where there is none yet,
    `train` runs the program once, with the JVM's option that it is given, to a clean end.
    """
    made_for = _java_version() + "".join(
        f"{path} {path.stat().st_mtime_ns}\n" for path in sorted(jars.glob("*.jar"))
    )
    archive = folder / f"{name}-{hashlib.sha256(made_for.encode()).hexdigest()[:16]}.jsa"
    with only_one(f"{name}.jsa"):
        if not archive.exists():
            for older in folder.glob(f"{name}-*.jsa"):
                older.unlink()
            unfinished = archive.with_suffix(".unfinished")
            unfinished.unlink(missing_ok=True)
            train(f"-XX:ArchiveClassesAtExit={unfinished}")
            unfinished.rename(archive)
    return archive


def _java_version() -> str:
    command = [require_java(), "-version"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
