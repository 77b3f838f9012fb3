"""Planted bugs that show at awkward moments of partitions that brokers tier: one line each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from rlm.delegated.diverged_tail import end_of_batches
from rlm.delegated.segment_lists import SegmentLists
from rlmm.lineage import epoch_bounds
from rlmm.rows.coverage import epoch_ranges, ranges_in_lineage
from sim.ground.planting import Patches, edited, planting

ROUGH_SEEDS_MAX = 40
ROUGH_EVENTS = 1_200


def _wherever(function: Callable[..., Any], old: str, new: str) -> Patches:
    """The edited function in the place of each import of it."""
    made = edited(function, old, new)
    return tuple(
        (module, name, made)
        for where, module in sorted(sys.modules.items())
        if where.startswith(("rlm.", "rlmm."))
        for name, found in sorted(vars(module).items())
        if found is function
    )


def _method(owner: type, name: str, old: str, new: str) -> Patches:
    return ((owner, name, edited(getattr(owner, name), old, new)),)


BUGS_OF_ROUGH: dict[str, tuple[frozenset[str], Callable[[], Patches]]] = {
    "an epoch reaches one offset into the next": (
        frozenset({"there_and_back"}),
        partial(_wherever, epoch_bounds, "].start_offset - 1 if", "].start_offset if"),
    ),
    "a cut segment lacks its last batch": (
        frozenset({"there_and_back"}),
        partial(_wherever, end_of_batches, "> last_valid", ">= last_valid"),
    ),
    "one offset of an epoch in the lineage is not served": (
        frozenset({"there_and_back"}),
        partial(_wherever, ranges_in_lineage, ") <= (high", ") < (high"),
    ),
    "an epoch of one offset amid a segment serves nothing": (
        frozenset({"brief"}),
        partial(_wherever, epoch_ranges, "each.start <= each.end", "each.start < each.end"),
    ),
    "changes of a list have nothing that went": (
        frozenset({"look"}),
        partial(_method, SegmentLists, "_changes", "if row is None]", "if False]"),
    ),
    "the tag of a list stays when it changes": (
        frozenset({"look"}),
        partial(_method, SegmentLists, "_tag",
                "self.metadata.segments_changed_at(asked.partition)", "0"),
    ),
}  # fmt: skip
"""Bugs found by seeds with these moments, within `ROUGH_SEEDS_MAX`."""


def planted(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting(BUGS_OF_ROUGH[name][1]())
