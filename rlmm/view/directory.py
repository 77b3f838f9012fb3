"""The view's directory, its replacement by a new one, and damaged views beside it. Blocks."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from kafka_formats.errors import CorruptData
from rlmm.log.disk import sync_path

log = logging.getLogger(__name__)


def settle_swap(path: Path) -> None:
    """Finish or undo an interrupted `install_from`, whose order is: build `.new` completely and
    durably, rename the view to `.old`, rename `.new` to the view, remove `.old`.
    """
    new, old = beside(path, ".new"), beside(path, ".old")
    if not path.exists() and old.exists():
        # The view is renamed to .old only after .new is complete. If .new is missing as well, it
        # was removed by hand, and the old view is still valid.
        (new if new.exists() else old).rename(path)
        sync_path(path.parent)
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def damage_mark(path: Path) -> Path:
    return beside(path, ".damage-found")


def mark_damage(path: Path, found: CorruptData) -> None:
    """Mark the damage in a file beside the view, for the next `View.open`."""
    try:
        damage_mark(path).touch()
    except OSError as unmarked:
        log.error("%s: remove this directory before the next start: %s", found, unmarked)


def set_aside(path: Path, reason: str) -> None:
    """Move a damaged view away, to make room for a new one; it is kept to find the cause."""
    damaged = beside(path, ".damaged")
    log.error(
        "the view %s is damaged (%s): it is kept as %s and made again from the newest snapshot and "
        "the metadata log. Check the disk",
        path,
        reason,
        damaged.name,
    )
    shutil.rmtree(damaged, ignore_errors=True)
    if path.exists():
        path.rename(damaged)
    # Remove the mark last, durably: after a crash before that, this is only repeated.
    damage_mark(path).unlink(missing_ok=True)
    sync_path(path.parent)


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
