"""How far copying is behind, told honestly. Pure.

Kafka's RemoteCopyLagBytes and RemoteCopyLagSegments, with the age that it lacks, and without what
operators complain of: it does not vanish while copies fail or the broker is silent (KAFKA-19995),
it is known before a new leader's first copy, and an idle or single-record partition has none
(KAFKA-16895, KAFKA-20977), since the active segment never counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rlm.copy.copy_plan import Segment


class TimedSegment(Segment, Protocol):
    """A local segment that says since when it is sealed."""

    @property
    def sealed_at_ms(self) -> int | None:
        """When the broker rolled it (ms since the epoch); None for the active one."""
        ...


@dataclass(frozen=True, slots=True)
class Lag:
    """Sealed segments that hold the next offset or later ones, whether or not they may be copied.

    `age_ms` is how long the oldest of them has been sealed. `gone_offsets` are those from the next
    offset on that this machine has no more: uncopied, and not recorded as lost while nobody claims.
    """

    size_bytes: int
    segments: int
    age_ms: int
    gone_offsets: int = 0


NO_LAG = Lag(0, 0, 0)


def uncopied(segments: Sequence[TimedSegment], next_offset: int) -> tuple[TimedSegment, ...]:
    """Sealed segments that hold the next offset or later ones, oldest first."""
    return tuple(
        segment
        for segment in segments
        if segment.next_base_offset is not None and segment.next_base_offset > next_offset
    )


def lag(segments: Sequence[TimedSegment], next_offset: int, now_ms: int) -> Lag:
    """`next_offset` -1: nothing of the partition was ever copied."""
    behind = uncopied(segments, next_offset)
    sealed = [each.sealed_at_ms for each in behind if each.sealed_at_ms is not None]
    age_ms = max(0, now_ms - min(sealed)) if sealed else 0
    first = next((each.base_offset for each in (*behind, *segments[-1:])), next_offset)
    gone = max(0, first - next_offset) if next_offset >= 0 else 0
    return Lag(sum(each.size_bytes for each in behind), len(behind), age_ms, gone)


def answers_for_lag(leads: bool | None, *, claimed_here: bool, led_when_last_heard: bool) -> bool:
    """Whether the lag is this node's to tell, so that a partition counts on one node of a cluster.

    `leads` None: the broker is silent. The lag then stays with the node of the standing claim, or,
    where nobody claimed the partition yet, with the node whose broker led it when last heard.
    """
    return claimed_here or led_when_last_heard if leads is None else leads


OTHER_TOPICS = "other topics"
"""The label of all topics beyond the bound; no topic's name has a space."""


def summed(lags: Iterable[Lag]) -> Lag:
    """Bytes, segments and offsets added up, the age of the oldest."""
    size_bytes = segments = age_ms = gone_offsets = 0
    for each in lags:
        size_bytes += each.size_bytes
        segments += each.segments
        age_ms = max(age_ms, each.age_ms)
        gone_offsets += each.gone_offsets
    return Lag(size_bytes, segments, age_ms, gone_offsets)


def worst_topics(lags: Mapping[str, Lag], topics_max: int) -> dict[str, Lag]:
    """The topics that are behind: the `topics_max` whose lag is oldest, and one sum of the rest."""
    behind = {topic: each for topic, each in lags.items() if each.segments or each.gone_offsets}
    if len(behind) <= topics_max:
        return behind
    worst = heapq.nlargest(
        topics_max, behind, key=lambda topic: (behind[topic].age_ms, behind[topic].size_bytes)
    )
    shown = {topic: behind[topic] for topic in worst}
    shown[OTHER_TOPICS] = summed(each for topic, each in behind.items() if topic not in shown)
    return shown
