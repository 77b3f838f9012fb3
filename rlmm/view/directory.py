"""The view's directory and its neighbours: the swap for a new one, and damaged ones. Blocks."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from kafka_formats.errors import CorruptData
from rlmm.log.disk import sync_path

log = logging.getLogger(__name__)


def settle_swap(path: Path) -> None:
    """Finish or undo an interrupted `install_from`, whose order is: build `.new` whole and durably,
    rename the view to `.old`, rename `.new` to the view, remove `.old`.
    """
    new, old = beside(path, ".new"), beside(path, ".old")
    if not path.exists() and old.exists():
        # Only a complete .new replaces the view. If .new is missing as well, somebody removed it:
        # the old view is still right.
        (new if new.exists() else old).rename(path)
        sync_path(path.parent)
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def damage_mark(path: Path) -> Path:
    return beside(path, ".damage-found")


def mark_damage(path: Path, found: CorruptData) -> None:
    """Remember damage beside the view, for the next `View.open`."""
    try:
        damage_mark(path).touch()
    except OSError as unmarked:
        log.error("%s: remove this directory before the next start: %s", found, unmarked)


def set_aside(path: Path, reason: str) -> None:
    """Make room for a new view. The damaged one is kept for a look at the cause."""
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
    # The mark goes last and durably: a crash before only repeats this.
    damage_mark(path).unlink(missing_ok=True)
    sync_path(path.parent)


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
