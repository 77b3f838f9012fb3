"""Planted bugs whose state, or whose harm, only a scene of some steps leads to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import rlm.retention.retention_plan
from rlm.copy.partition_work import PartitionWork
from rlm.delegated.calls import BrokerCalls
from rlm.delegated.copied_offsets import CopiedOffsets
from rlm.delegated.older_history import OlderHistory
from rlm.delegated.plugin import Plugin
from sim.ground.planting import Patches, edited, planting

SCENES_SEEDS_MAX = 40
SCENES_EVENTS = 1_500


def _edit(owner: object, name: str, old: str, new: str) -> Patches:
    return ((owner, name, edited(getattr(owner, name), old, new)),)


BUGS_OF_SCENES: dict[str, Callable[[], Patches]] = {
    "a claim lacks the heads that the tier proves": partial(
        _edit, PartitionWork, "epochs_to_claim",
        "known = with_lost_claims(known, tiered_head(known, stays, listed))", "del listed, stays",
    ),
    "a log start passes a copy under way": partial(
        _edit, rlm.retention.retention_plan, "_new_log_start",
        "min(facts.state.next_offset, _first_under_way(facts))", "facts.state.next_offset",
    ),
}  # fmt: skip
"""Bugs of nodes that copy, found within `SCENES_SEEDS_MAX`."""

BUGS_OF_BROKER_SCENES: dict[str, Callable[[], Patches]] = {
    "a broker reads on whoever claimed meanwhile": partial(
        _edit, Plugin, "why_not_read", "tip in self._led_on and self.holds_claim(tip)",
        "tip in self._led_on",
    ),
    "a copy ends under a later claim": partial(
        _edit, BrokerCalls, "_finish_copy", "row.token != token", "row.token > token"
    ),
    "gaps count as copied": partial(
        _edit, CopiedOffsets, "_following", "served.first_offset > following",
        "served.first_offset < 0",
    ),
    "older history goes below where its leader began": partial(
        _edit, OlderHistory, "check", "max(began, row.end_offset) <", "row.end_offset <"
    ),
}  # fmt: skip


def planted_in_scenes(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    bugs = BUGS_OF_SCENES | BUGS_OF_BROKER_SCENES
    return planting(bugs[name]())
