"""Planted bugs that show where a node goes away for good."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from rlm.delegated.sweeper import Sweeper
from sim.ground.planting import Patches, edited, planting

DEPARTED_SEEDS_MAX = 100
DEPARTED_EVENTS = 1_500


def _only_its_own() -> Patches:
    due, own = "return now_s - since_s >=", "return mine and now_s - since_s >="
    return ((Sweeper, "_is_due", edited(Sweeper._is_due, due, own)),)


BUGS_OF_DEPARTED: dict[str, Callable[[], Patches]] = {
    "what a node that went began to delete is left to it": _only_its_own,
}
"""Bugs found by seeds with a node that goes, within `DEPARTED_SEEDS_MAX`."""


def planted_in_departed(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting(BUGS_OF_DEPARTED[name]())
