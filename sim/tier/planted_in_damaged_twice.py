"""Planted bugs about segments that are damaged twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from rlm.repair.segment_repair import SegmentRepairs
from sim.ground.planting import Patches, edited, planting

TWICE_SEEDS_MAX = 40
TWICE_EVENTS = 2_500


def _by_any() -> Patches:
    whole, any_found = "if found is None or found.wrong:", "if found is None:"
    return ((SegmentRepairs, "_retire", edited(SegmentRepairs._retire, whole, any_found)),)


BUGS_OF_DAMAGED_TWICE: dict[str, Callable[[], Patches]] = {
    "a damaged segment goes for one that is damaged, too": _by_any,
}
"""Bugs found by seeds with damage, within `TWICE_SEEDS_MAX`."""


def planted_in_damaged_twice(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting(BUGS_OF_DAMAGED_TWICE[name]())
