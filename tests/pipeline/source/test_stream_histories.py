"""Random histories of a tier under a stream: no offset is read twice, and none is left unread."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kafka_formats.errors import RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.tiered_segment import NoSegment, PartitionBounds, TieredSegment
from pipeline.source import stream_reader
from pipeline.source.stream_reader import StreamReader
from pipeline.source.task_partition import TaskPartition
from rlmm.segment import OFFSET_MAX
from tests.pipeline.source.tiered import MadeUpCatalogue, partition, segment

HISTORIES = 300
STEPS = 25
Read = set[tuple[TopicIdPartition, int]]


class ChangingTier(MadeUpCatalogue):
    """A bucket in which one segment after the other comes and expires. The newest ones of `hidden`
    partitions do not show yet, as where the node asked is behind.
    """

    def __init__(self, chance: random.Random) -> None:
        super().__init__({partition(): [segment(0, 4)]}, tells_deletions=False)
        self._chance = chance
        self._ends = {partition(): 5}
        self.hidden: set[TopicIdPartition] = set()

    def change(self) -> None:
        """Take one step of the history."""
        of = self._chance.choice(sorted(self.tier))
        match self._chance.randrange(10):
            case 0 | 1 | 2 | 3:
                start, end = self._ends[of], self._ends[of] + self._chance.randrange(1, 8)
                self.tier[of].append(segment(start, end - 1, of=of))
                self._ends[of] = end
            case 4 | 5:
                del self.tier[of][:1]
            case 6:
                self.tier[of].clear()
            case 7:
                new = partition(number=len(self.tier))
                self.tier[new], self._ends[new] = [], 0
            case 8 | 9:
                self.hidden ^= {of}

    def bounds(self, partition: TopicIdPartition) -> PartitionBounds:
        found = self.segments(partition)
        if not found:
            raise NoSegment(f"{partition} is empty")
        return PartitionBounds(found[0].first_offset, found[-1].last_offset + 1)

    def segments(
        self, partition: TopicIdPartition, first_offset: int = 0, last_offset: int = OFFSET_MAX
    ) -> Sequence[TieredSegment]:
        there = self.tier[partition]
        shown = there[:-1] if partition in self.hidden and len(there) > 1 else there
        return [one for one in shown if one.last_offset >= first_offset]


class Query:
    """A streaming query as Spark carries it out, with its checkpoint. `available_now`: every reader
    reads to the end that it found when it began.
    """

    def __init__(self, *, limit: int | None, available_now: bool) -> None:
        self._limit, self._available_now = limit, available_now
        self._reader = self._new()
        self._start: Any = through_json(self._reader.initialOffset())
        self._planned: Any = None
        self.read: Read = set()

    def restart(self) -> None:
        """The process ends; a batch that was planned is repeated."""
        self._reader = self._new()

    def batch(self, *, killed: bool = False) -> bool:
        """Carry out a batch; False if there is nothing new. `killed`: just before its end."""
        if self._planned is None:
            limit = self._reader.getDefaultReadLimit() if self._limit else ReadAllAvailable()
            end = through_json(self._reader.latestOffset(self._start, limit))
            if end == self._start:
                return False
            self._planned = end
        tasks = self._reader.partitions(self._start, self._planned)
        if killed:
            return True
        for task in tasks:
            for part in task.slices if isinstance(task, TaskPartition) else ():
                for offset in range(part.first_offset, part.last_offset + 1):
                    record = (part.segment.partition, offset)
                    assert record not in self.read
                    self.read.add(record)
        self._start, self._planned = self._planned, None
        return True

    def _new(self) -> StreamReader:
        options = {
            "subscribe": "orders",
            "isolation": "read_uncommitted",
            "startingOffsets": "earliest",
            "failOnDataLoss": "false",
            **({"maxOffsetsPerTrigger": str(self._limit)} if self._limit else {}),
        }
        reader = StreamReader(options)
        if self._available_now:
            reader.prepareForTriggerAvailableNow()
        return reader


def through_json(value: Any) -> Any:
    """As offsets come back from Spark."""
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("available_now", [False, True])
def test_every_offset_is_read_once_whatever_happens_to_tier_and_query(
    monkeypatch: pytest.MonkeyPatch, available_now: bool
) -> None:
    for seed in range(HISTORIES):
        chance = random.Random(seed)
        tier = ChangingTier(chance)
        monkeypatch.setattr(stream_reader, "open_catalogue", lambda options, tier=tier: tier)
        limit = chance.choice([None, 3, 9])
        query = Query(limit=limit, available_now=available_now)
        for _ in range(chance.randrange(STEPS)):
            tier.change()
            try:
                query.batch(killed=chance.random() < 0.2)
            except RetryLater:
                query.restart()
            if chance.random() < 0.3:
                query.restart()
        tier.hidden.clear()
        query.restart()
        while query.batch():
            pass
        assert query.read >= {
            (of, offset)
            for of, segments in tier.tier.items()
            for one in segments
            for offset in range(one.first_offset, one.last_offset + 1)
        }, seed
