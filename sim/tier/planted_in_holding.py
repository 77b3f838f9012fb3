"""Planted bugs about records that never left the active segment before local retention took it."""

from __future__ import annotations

from contextlib import AbstractContextManager

import rlm.copy.active_hold
from rlm.local_log.hold_directory import HoldDirectory, RebuiltUnit
from sim.ground.planting import Patches, planting


def _none(*_: object) -> None:
    return None


def no_unit(*_: object, **__: object) -> RebuiltUnit:
    """No file tells of a unit."""
    return RebuiltUnit(None)


BUGS_OF_QUIET: dict[str, Patches] = {
    "an active segment is not linked": ((rlm.copy.active_hold, "to_link", _none),),
    "a file that left the log becomes no unit": ((HoldDirectory, "hold_left", no_unit),),
}
"""Bugs found by seeds of a world whose local retention takes active segments, too."""


def planted_in_holding(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting(BUGS_OF_QUIET[name])
