"""A small file replaced: the old one or the new one, whole, whenever the power goes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rlmm.synced_path import sync_path


def replace_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Write `pieces` in its place. Blocks. OSError: the old one stands, or, if only the sync of
    the directory failed, either does after a power cut.
    """
    scratch = path.with_suffix(".tmp")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
    sync_path(path.parent)
