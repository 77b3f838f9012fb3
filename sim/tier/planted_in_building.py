"""Planted bugs in the answers about the tier to followers and new leaders."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import rlm.fetch.follower_start
import rlm.fetch.leader_transition
import rlm.fetch.tier_answers
from rlm.fetch.follower_start import (
    FollowerFetchAnswer,
    FollowerFetchQuery,
    _build_up_to,
    _built_from,
)
from rlm.fetch.leader_transition import LeaderTransitionAnswer, answer_leader_transition
from rlm.fetch.tier_answers import Answers
from rlmm.partition_state import PartitionState
from rlmm.rows.queries import SegmentAnswer
from sim.ground.planting import Patches, planting

BUILDING_SEEDS_MAX = 40


def _no_objection(*_: object, **__: object) -> None:
    pass


def _one_further(query: FollowerFetchQuery, state: PartitionState, start: int) -> int:
    return _build_up_to(query, state, start) + 1


def _whole_lineage(
    found: SegmentAnswer, locally: FollowerFetchAnswer, state: PartitionState
) -> FollowerFetchAnswer:
    return replace(_built_from(found, locally, state), leader_epochs=state.lineage)


def _as_it_is(offset: int, _: object) -> int:
    return offset


def _unmerged(query: Any, state: Any, forecast: Any, *rest: Any) -> LeaderTransitionAnswer:
    if state is not None and forecast.state is not None:
        forecast = replace(forecast, state=state)
    return answer_leader_transition(query, state, forecast, *rest)


def _behind_the_highest(query: Any, *rest: Any) -> LeaderTransitionAnswer:
    answer = answer_leader_transition(query, *rest)
    return replace(answer, next_offset=answer.highest_copied_offset + 1)


BUGS_OF_BUILDING: dict[str, Patches] = {
    "nothing is tiered before a node is ready": ((Answers, "_check_ready", _no_objection),),
    "a follower of another epoch is answered": (
        (rlm.fetch.follower_start, "_check_epoch", _no_objection),
    ),
    "a follower is built one offset further": (
        (rlm.fetch.follower_start, "_build_up_to", _one_further),
    ),
    "a follower gets epochs above its log": (
        (rlm.fetch.follower_start, "_built_from", _whole_lineage),
    ),
    "a leader is told to copy what is lost": (
        (rlm.fetch.leader_transition, "_past_lost_ranges", _as_it_is),
    ),
    "a leader is told of the lineage before its claim": (
        (rlm.fetch.tier_answers, "answer_leader_transition", _unmerged),
    ),
    "a leader is told to copy below the log start": (
        (rlm.fetch.tier_answers, "answer_leader_transition", _behind_the_highest),
    ),
}
"""Bugs found by seeds of a world of followers and new leaders, within `BUILDING_SEEDS_MAX`."""


def planted_in_building(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting(BUGS_OF_BUILDING[name])
