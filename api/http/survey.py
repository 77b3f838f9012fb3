"""Facts about all partitions of a node, kept for a while: collecting them takes 0.1 ms per
partition, and views are requested every few seconds.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from rlm.copy.lag import Lag, summed
from rlm.copy.partition_status import PartitionStatus

FRESH_S = 1.0
WORST_SHOWN = 10
SHARE_OF_TIME = 0.05
"""The largest share of time that surveys take: the next one begins only when the time since the
last one is long enough.
"""
KEPT_FACTOR = 3.0
"""The age at which a survey is too old to answer with, as a multiple of its freshness."""
Monotonic = Callable[[], float]
Gather = Callable[[], Awaitable[tuple[int, Iterable[PartitionStatus]]]]
"""Returns a metadata offset, and the status of all partitions, which reflects all records
up to it.
"""


@dataclass(frozen=True, slots=True)
class TopicSize:
    """The sizes of all topics with one name. `trash_bytes` are part of `remote_bytes`.
    `local_bytes`: `.log` files of `replicas` on this node, held segments included.
    """

    topic: str
    partitions: int
    remote_segments: int
    remote_bytes: int
    trash_bytes: int
    replicas: int
    local_bytes: int


@dataclass(frozen=True, slots=True)
class Survey:
    """The facts of one survey. `behind`: the partitions that lag or are blocked, among those whose
    lag this node reports, by `partition_key`; `worst` are the most urgent of them. `lag` is the sum
    over the `reported` partitions whose lag this node reports. `topics` are ordered by name,
    `partitions`, all known ones, by `partition_key`. They reflect all records up to
    `metadata_offset`.
    """

    made_at_s: float
    took_s: float
    metadata_offset: int
    reported: int
    lag: Lag
    behind: tuple[PartitionStatus, ...]
    worst: tuple[PartitionStatus, ...]
    topics: tuple[TopicSize, ...]
    partitions: tuple[PartitionStatus, ...]

    @property
    def fresh_s(self) -> float:
        """The time for which no further survey is made."""
        return max(FRESH_S, self.took_s / SHARE_OF_TIME)


def survey_of(
    statuses: Iterable[PartitionStatus], made_at_s: float, took_s: float, metadata_offset: int
) -> Survey:
    """The facts of `statuses`."""
    by_topic: dict[str, list[PartitionStatus]] = {}
    behind: list[PartitionStatus] = []
    lags: list[Lag] = []
    for each in statuses:
        by_topic.setdefault(each.partition.topic, []).append(each)
        if each.lag is not None:
            lags.append(each.lag)
            if each.lag.segments or each.lag.gone_offsets or each.blocked is not None:
                behind.append(each)
    behind.sort(key=partition_key)
    topics = tuple(_size(topic, by_topic[topic]) for topic in sorted(by_topic))
    worst = tuple(heapq.nsmallest(WORST_SHOWN, behind, key=_urgency_of))
    everything = sorted((each for known in by_topic.values() for each in known), key=partition_key)
    return Survey(
        made_at_s,
        took_s,
        metadata_offset,
        len(lags),
        summed(lags),
        tuple(behind),
        worst,
        topics,
        tuple(everything),
    )


def partition_key(status: PartitionStatus) -> tuple[str, int, str]:
    """The sort key by topic, partition number and topic id."""
    return status.partition.topic, status.partition.partition, str(status.partition.topic_id)


def urgency(gone_offsets: int, blocked: str | None, age_ms: int) -> tuple[bool, bool, int]:
    """The sort key by urgency: partitions with lost offsets first, then blocked ones, then the
    oldest lag.
    """
    return not gone_offsets, blocked is None, -age_ms


def _urgency_of(status: PartitionStatus) -> tuple[bool, bool, int]:
    assert status.lag is not None, "partitions in `behind` have a lag"
    return urgency(status.lag.gone_offsets, status.blocked, status.lag.age_ms)


def _size(topic: str, statuses: list[PartitionStatus]) -> TopicSize:
    local = [each.local_bytes for each in statuses if each.local_bytes is not None]
    return TopicSize(
        topic=topic,
        partitions=len(statuses),
        remote_segments=sum(each.remote_segments for each in statuses),
        remote_bytes=sum(each.remote_bytes for each in statuses),
        trash_bytes=sum(each.trash_bytes for each in statuses),
        replicas=len(local),
        local_bytes=sum(local),
    )


class Surveys:
    """The last survey of a node. A caller waits for a new one only if none is recent enough;
    otherwise a new one is made in the background.
    """

    def __init__(self) -> None:
        self._last: Survey | None = None
        self._making: asyncio.Task[Survey] | None = None

    async def recent(
        self, gather: Gather, monotonic: Monotonic, *, at_least: int = -1
    ) -> tuple[Survey, int]:
        """A survey, and its age in milliseconds. It reflects all records up to the metadata offset
        `at_least`, which this node has applied.
        """
        last, now_s = self._last, monotonic()
        age_s = math.inf if last is None else now_s - last.made_at_s
        if last is None or age_s > last.fresh_s:
            making = self._begun(gather, monotonic)
            if last is None or age_s > last.fresh_s * KEPT_FACTOR:
                last = await asyncio.shield(making)
        while last.metadata_offset < at_least:  # a survey under way may have begun too early, too
            last = await asyncio.shield(self._begun(gather, monotonic))
        return last, max(0, round((monotonic() - last.made_at_s) * 1_000))

    def _begun(self, gather: Gather, monotonic: Monotonic) -> asyncio.Task[Survey]:
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(
                self._make(gather, monotonic), name="survey for views"
            )
        return self._making

    async def _make(self, gather: Gather, monotonic: Monotonic) -> Survey:
        began_s = monotonic()
        offset, statuses = await gather()
        took_s = monotonic() - began_s
        # In a thread: with thousands of partitions it would block the event loop for too long.
        self._last = await asyncio.to_thread(survey_of, statuses, began_s, took_s, offset)
        return self._last
