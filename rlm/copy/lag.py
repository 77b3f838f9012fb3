"""Measures how far copying is behind. Pure.

The lag is Kafka's RemoteCopyLagBytes and RemoteCopyLagSegments, with an age. Unlike those it
remains while copies fail or the broker does not answer (KAFKA-19995), is known before a new
leader's first copy, and is zero for an idle or single-record partition (KAFKA-16895, KAFKA-20977),
since the active segment never counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rlm.copy.copy_plan import Segment, uncopied


class TimedSegment(Segment, Protocol):
    """A local segment with the time of its roll."""

    @property
    def sealed_at_ms(self) -> int | None:
        """The Unix time (ms) when the broker rolled it; None for the active one."""


@dataclass(frozen=True, slots=True)
class Lag:
    """Sealed segments with the next offset or later ones, whether or not they may be copied now.

    `age_ms`: the time since the oldest was sealed. `gone_offsets`: uncopied offsets that this
    machine no longer has, not yet recorded as lost.
    """

    size_bytes: int
    segments: int
    age_ms: int
    gone_offsets: int = 0


def lag(segments: Sequence[TimedSegment], next_offset: int, now_ms: int) -> Lag:
    """The lag; `next_offset` -1: nothing of the partition was ever copied."""
    behind = uncopied(segments, next_offset)
    sealed = [each.sealed_at_ms for each in behind if each.sealed_at_ms is not None]
    age_ms = max(0, now_ms - min(sealed)) if sealed else 0
    first = next((each.base_offset for each in (*behind, *segments[-1:])), next_offset)
    gone = max(0, first - next_offset) if next_offset >= 0 else 0
    return Lag(sum(each.size_bytes for each in behind), len(behind), age_ms, gone)


def answers_for_lag(leads: bool | None, *, claimed_here: bool, led_when_last_heard: bool) -> bool:
    """True if this node reports the lag, so that each partition counts on one node of a cluster.

    `leads` None: the broker does not answer. Then the node whose claim is in force reports it, or
    without a claim the node whose broker led at its last answer.
    """
    return claimed_here or led_when_last_heard if leads is None else leads


OTHER_TOPICS = "other topics"
"""The label of all topics beyond the bound; no topic's name has a space."""


def summed(lags: Iterable[Lag]) -> Lag:
    """The sum of bytes, segments and offsets, with the oldest's age."""
    size_bytes = segments = age_ms = gone_offsets = 0
    for each in lags:
        size_bytes += each.size_bytes
        segments += each.segments
        age_ms = max(age_ms, each.age_ms)
        gone_offsets += each.gone_offsets
    return Lag(size_bytes, segments, age_ms, gone_offsets)


def worst_topics(lags: Mapping[str, Lag], topics_max: int) -> dict[str, Lag]:
    """The `topics_max` topics with the oldest lag, and one sum of the rest."""
    behind = {topic: each for topic, each in lags.items() if each.segments or each.gone_offsets}
    if len(behind) <= topics_max:
        return behind
    worst = heapq.nlargest(
        topics_max, behind, key=lambda topic: (behind[topic].age_ms, behind[topic].size_bytes)
    )
    shown = {topic: behind[topic] for topic in worst}
    shown[OTHER_TOPICS] = summed(each for topic, each in behind.items() if topic not in shown)
    return shown
