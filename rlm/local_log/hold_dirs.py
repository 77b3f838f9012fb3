"""Hold directories that the settings name (`hold.dirs`). Everything here blocks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kafka_formats.errors import InvalidRequest
from rlm.local_log.hold_directory import HoldDirectory


def hold_directories(
    dirs: Sequence[Path], log_dirs: Sequence[Path], *, own_name: str
) -> tuple[HoldDirectory, ...]:
    """Pair each log directory with the hold directory on its mount; `own_name` is this node's.

    InvalidRequest(hold.dirs) if one lies in a log directory or does not exist, or if a log
    directory has none on its mount. A missing log directory is left out, but a hold directory
    without log directories is still returned, with its held segments.
    """
    for path in dirs:
        for log_dir in log_dirs:
            if path.resolve().is_relative_to(log_dir.resolve()):
                raise InvalidRequest(
                    f"{path} lies in the log directory {log_dir}; a broker refuses to start when "
                    "it finds it there: choose a directory beside it, on the same mount",
                    field="hold.dirs",
                )
    by_device = {_device(path): path for path in reversed(dirs)}
    found: dict[Path, list[Path]] = {path: [] for path in dirs}
    for log_dir in log_dirs:
        try:
            device = os.stat(log_dir).st_dev
        except OSError:
            continue  # the scan reports it
        if device not in by_device:
            raise InvalidRequest(
                f"no hold directory is on the mount of {log_dir}: name one for each mount of "
                "kafka.log_dirs",
                field="hold.dirs",
            )
        found[by_device[device]].append(log_dir)
    return tuple(HoldDirectory(path / own_name, tuple(paths)) for path, paths in found.items())


def _device(path: Path) -> int:
    try:
        return os.stat(path).st_dev
    except OSError as error:
        raise InvalidRequest(
            f"{path} cannot be read ({error.strerror}): make it, on the mount of a log directory, "
            "and give it to the node's user",
            field="hold.dirs",
        ) from error
