"""Planted bugs about what is late: uploads behind a delete, and readers of what was marked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import rlm.delete.clean_up
from rlm.control.surroundings import CopyLimits
from rlm.delete.clean_up import CleanUp
from rlmm.segment import RemoteLogSegmentMetadata
from sim.ground.planting import Patches, edited, planting

LATE_SEEDS_MAX = 40
LATE_EVENTS = 1_500


def _at_once(row: RemoteLogSegmentMetadata, _: CopyLimits) -> int:
    return row.event_timestamp_ms


def _once() -> Patches:
    again = "    self._check_allowed(row)\n        await self.delete_objects(row)\n"
    first = "    self._check_allowed(row)\n"
    return ((CleanUp, "remove", edited(CleanUp.remove, again, first)),)


BUGS_OF_LATE: dict[str, Callable[[], Patches]] = {
    "objects are deleted once, before late uploads": _once,
    "readers of a finished segment have no time": lambda: (
        (rlm.delete.clean_up, "objects_due_ms", _at_once),
    ),
}
"""Bugs found by seeds with late uploads and slow readers, within `LATE_SEEDS_MAX`."""


def planted_in_late(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting(BUGS_OF_LATE[name]())
