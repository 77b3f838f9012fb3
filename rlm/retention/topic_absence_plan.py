"""Decides which topics were deleted in Kafka, from several brokers' answers about their ids. Pure.

Absence alone proves nothing: a broker may start with old metadata, a listing may be filtered. So a
topic id counts as deleted only if, in several passes over some time, every live broker answered
UNKNOWN_TOPIC_ID, and these were at least two. Then its data is *marked*, and the grace and undo of
a mark precede the first delete. Many missing topics at once, or all topics of the tier (even a
single one), look like a rebuilt cluster: then nothing is marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from kafka_formats.kafka_uuid import Uuid

BROKERS_MIN = 2
LOOKS_MIN = 3
ABSENT_FOR_S = 600.0
MARKED_MAX_PERCENT = 20.0
ALWAYS_ALLOWED = 1


@dataclass(frozen=True, slots=True)
class Absence:
    """A topic id unknown to all brokers: in `looks` passes, since `since_s` (monotonic seconds)."""

    looks: int
    since_s: float


@dataclass(frozen=True, slots=True)
class AbsencePlan:
    """The plan of a pass. `absent` is kept for the next pass; `gone` may be marked now. `stopped`:
    why nothing is marked.
    """

    absent: Mapping[Uuid, Absence]
    gone: frozenset[Uuid]
    stopped: str | None = None


def plan_absence(
    topic_ids: Set[Uuid],
    answers: Mapping[int, Iterable[Uuid]],
    before: Mapping[Uuid, Absence],
    now_s: float,
) -> AbsencePlan:
    """Plan one pass for `topic_ids`, all in the tier. `answers`: the ids unknown to each live
    broker, by its node id. Answers that lack a live broker must not be passed.
    """
    if len(answers) < BROKERS_MIN:
        return AbsencePlan({}, frozenset(), f"{len(answers)} brokers are too few to be sure")
    unknown = frozenset.intersection(*(frozenset(each) for each in answers.values()))
    absent = {}
    for topic_id in unknown & topic_ids:
        known = before.get(topic_id, Absence(0, now_s))
        absent[topic_id] = Absence(known.looks + 1, known.since_s)
    gone = frozenset(
        topic_id
        for topic_id, each in absent.items()
        if each.looks >= LOOKS_MIN and now_s - each.since_s >= ABSENT_FOR_S
    )
    allowed = max(ALWAYS_ALLOWED, int(len(topic_ids) * MARKED_MAX_PERCENT / 100))
    knows_none = len(absent) == len(topic_ids)
    if absent and (knows_none or len(absent) > allowed):
        beyond = "and no other is known" if knows_none else f"more than {allowed}"
        return AbsencePlan(
            absent,
            frozenset(),
            f"{len(absent)} of {len(topic_ids)} topics are unknown to the brokers, {beyond}: this "
            "is a different cluster, or it was made anew. Nothing is marked; mark topics that "
            "were really deleted with `strandline topics delete`",
        )
    return AbsencePlan(absent, gone)
