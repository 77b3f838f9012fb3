"""Planted bugs about topics that no broker knows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from rlm.retention.topic_absence import TopicAbsence
from sim.ground.planting import Patches, edited, planting

ABSENCE_SEEDS_MAX = 40
ABSENCE_EVENTS = 1_500


def _again() -> Patches:
    never, now = "state.delete_offset < 0", "state.delete_state is None"
    return ((TopicAbsence, "_unmarked", edited(TopicAbsence._unmarked, never, now)),)


BUGS_OF_ABSENCE: dict[str, Callable[[], Patches]] = {
    "a topic whose mark an admin took back is marked again": _again,
}
"""Bugs found by seeds with topics that no broker knows, within `ABSENCE_SEEDS_MAX`."""


def planted_in_absence(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting(BUGS_OF_ABSENCE[name]())
