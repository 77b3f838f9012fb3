"""Default hold directories, for which there is no setting: `strandline-hold` beside a log
directory.

It lies on the log directory's mount, and in no log directory: a broker that finds it in one refuses
to start. Log directories of one mount share the first one. Everything here blocks.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from tempfile import TemporaryDirectory

from kafka_formats.errors import Refused
from kafka_formats.log_names import META_PROPERTIES_FILE
from rlm.local_log.active_links import active_root
from rlm.local_log.hold_directory import FULL, HoldDirectory, try_link

DIRECTORY_NAME = "strandline-hold"


@dataclass(frozen=True, slots=True)
class Beside:
    """Log directories with their default hold directories. `paths`: each hold directory, existing
    or to be made, with its log directories. `not_held`: log directories that have none, each with
    the reason and what to do. A log directory that does not exist is in neither: the scan reports
    it.
    """

    paths: dict[Path, list[Path]]
    not_held: dict[Path, str]


def sibling(log_dir: Path) -> Path:
    """The hold directory beside a log directory."""
    return log_dir.resolve().parent / DIRECTORY_NAME


def find_beside(log_dirs: Sequence[Path]) -> Beside:
    """Pair each log directory with a hold directory that can have a link from it. The links made to
    try this are removed.
    """
    found = Beside({}, {})
    siblings = [sibling(each) for each in log_dirs]
    for log_dir in log_dirs:
        if not os.path.exists(log_dir / META_PROPERTIES_FILE):
            continue
        own = sibling(log_dir)
        tried: dict[Path, str | None] = {}
        for path in dict.fromkeys((*found.paths, own, *siblings)):
            tried[path] = _why_not(path, log_dir, log_dirs)
            if tried[path] is None:
                found.paths.setdefault(path, []).append(log_dir)
                break
        else:
            found.not_held[log_dir] = why_not_held(log_dir, tried[own])
    return found


def left_beside(log_dirs: Iterable[Path], own_name: str) -> list[Path]:
    """Default hold directories beside these log directories in which a node of that name has, or
    may have, its own directory.
    """
    found = dict.fromkeys(sibling(each) for each in log_dirs)
    return [path for path in found if may_be_there(path / own_name)]


def may_be_there(own: Path) -> bool:
    """True unless the node's own hold directory surely does not exist; also True if that can't be
    checked, say for lack of permission.
    """
    try:
        return S_ISDIR(os.stat(own).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def is_left(own: Path) -> bool:
    """True if segments are held in a node's own hold directory. Passes OSError."""
    return HoldDirectory(own, ()).holds_any() or any(active_root(own).glob("*/*/*/*.log"))


def why_not_held(log_dir: Path, why: object) -> str:
    """A sentence about a log directory whose segments are not held, and what to do."""
    return (
        f"no segment of {log_dir} is held, so segments that the broker deletes before they are "
        f"copied are lost to the tier: {why}. If they may be lost, set hold.dirs = []"
    )


def _why_not(path: Path, log_dir: Path, log_dirs: Iterable[Path]) -> str | None:
    """The reason why `path` can't be the hold directory of `log_dir`, with what to do; None if it
    can.
    """
    for each in log_dirs:
        if path.resolve().is_relative_to(each.resolve()):
            return (
                f"{path} would lie in the log directory {each}; set hold.dirs to a directory on "
                f"the mount of {log_dir} and in no log directory"
            )
    into = path if os.path.exists(path) else path.parent
    try:
        if os.stat(into).st_dev != os.stat(log_dir).st_dev:
            return _on_another_mount(into, log_dir)
        _try(log_dir, into, path)
    except Refused as error:
        crosses = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EXDEV
        return _on_another_mount(into, log_dir) if crosses else str(error)
    except OSError as error:
        return (
            f"{path} cannot be made or written to ({error.strerror}); make it and give it to the "
            f"node's user, or set hold.dirs to another directory on the mount of {log_dir}"
        )
    return None


def _try(log_dir: Path, into: Path, path: Path) -> None:
    """Try a link in a temporary directory, so that no other process tries the same name. Refused
    as in `try_link`; OSError if no directory can be made there.
    """
    try:
        with TemporaryDirectory(prefix=".strandline-probe-", dir=into) as aside:
            try_link(log_dir, Path(aside), path)
    except OSError as error:
        if error.errno not in FULL or into != path:
            raise
        try_link(log_dir, path, path)  # a full disk has room for a name; it may have more soon


def _on_another_mount(path: Path, log_dir: Path) -> str:
    return (
        f"{path} is on another mount than {log_dir}, so that no link can be made there; mount the "
        "broker's disk one directory higher, with the log directory as a directory on it"
    )
