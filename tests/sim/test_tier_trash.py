"""Retention with a trash: nothing goes before its time, and what is taken back is there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import rlm.retention.expirer
import rlm.retention.retention_plan
import rlmm.apply.expiry
import rlmm.apply.offsets
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.retention.trash import DueMark, MarksSeen
from rlmm.partition_state import Expiry, PartitionState
from sim.tier.planted_bugs import EVENTS
from sim.tier.world import Plan, run
from tests.sim.worlds import assert_found, fresh, held

SEEDS = 4
FRESH_SEEDS = 2
SOAK_SEEDS = 60
PLANTED_SEEDS_MAX = 30
TRASH = Plan(
    nodes=3,
    topics=2,
    trash=True,
    admins=frozenset({"retention_ms", "retention_bytes", "switches"}),
    damage=False,
)


def test_nothing_goes_before_its_time_and_in_the_end_the_trash_is_empty() -> None:
    seeds = (*range(1, SEEDS + 1), *fresh(FRESH_SEEDS))
    results = held("tier", run, seeds, events=EVENTS, plan=TRASH)
    assert sum(result.restored for result in results) > 0
    assert sum(result.thrown_away for result in results) > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_goes_before_its_time_over_many_seeds() -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=EVENTS, plan=TRASH)


def _no_objection(*_: object) -> None:
    pass


def _at_once(*_: object) -> int:
    return 0


def _log_start(state: PartitionState) -> int:
    return state.log_start_offset


class _Remembers:
    """Goes by the marks that it saw first."""

    def __init__(self) -> None:
        self.first: dict[TopicIdPartition, Expiry] = {}

    def due(self, marks: MarksSeen, tip: TopicIdPartition, expiry: Expiry) -> DueMark | None:
        if expiry.marks:
            self.first.setdefault(tip, expiry)
        seen = self.first.get(tip, expiry)
        return DueMark(seen.marks[-1], 0) if seen.marks and not expiry.marks else None


Planted = tuple[tuple[Any, str, Any], ...]


def _planted() -> dict[str, Planted]:
    remembers = _Remembers()
    return {
        "readers start at the log start": (
            (PartitionState, "first_readable_offset", property(_log_start)),
        ),
        "the log start follows at once": (
            (MarksSeen, "left_ms", _at_once),
            (rlmm.apply.offsets, "not_due", _no_objection),
        ),
        "the log start goes without a mark": ((rlm.retention.expirer.Expirer, "_trash_ms", 0),),
        "what was taken back goes": (
            (MarksSeen, "due", lambda *args: remembers.due(*args)),
            (rlmm.apply.offsets, "not_due", _no_objection),
        ),
        "a hold is forgotten": (
            (rlmm.apply.expiry, "on_hold", _no_objection),
            (rlm.retention.retention_plan, "_hold", _no_objection),
        ),
    }


@pytest.mark.parametrize("name", _planted())
def test_planted_mistakes_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, attribute, replacement in _planted()[name]:
        monkeypatch.setattr(target, attribute, replacement)
    found_in: Callable[[int, int], object] = partial(run, plan=TRASH)
    assert_found(name, found_in, seeds=PLANTED_SEEDS_MAX, events=EVENTS)
