"""A topic that was deleted and made again under its name is the newest of the name after a switch,
wherever the records of either lie in the metadata topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.comparing import compare
from rlm.migration.import_plan import plan_import
from rlm.migration.kafka_cache import KafkaCache
from rlm.migration.switching import Switching, Time
from rlm.migration.topic_checks import PartitionRead
from rlm.migration.topic_replay import TopicReplay
from rlmm.migration_phase import Migration, MigrationPhase
from rlmm.records.segment_records import SegmentRecord, encode_segment_record
from rlmm.rows import queries
from rlmm.rows.migration import open_imports
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from tests.rlm.migration.test_import import Reads
from tests.rlmm.apply.migration_world import MigrationWorld

COPYING, COPIED, DELETING, DELETED = SegmentState
OLD, NEW = (Uuid(name.ljust(16, b"-")) for name in (b"old", b"new"))


@dataclass
class Log:
    """The metadata log by its rules, and a Kafka cluster whose brokers are all silent already. The
    records of the topic, by its partitions.
    """

    topic: Sequence[Sequence[SegmentRecord]]
    world: MigrationWorld = field(default_factory=MigrationWorld)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.world.phases(MigrationPhase.KAFKA, MigrationPhase.SWITCHING)

    def leads(self) -> bool:
        return True

    def standing(self) -> Migration:
        return self.world.migration

    def acknowledged(self, since: int) -> Collection[int]:
        return ()

    def partitions(self) -> Collection[TopicIdPartition]:
        return list(queries.partitions(self.world.rows))

    def newest_topic(self, name: str) -> Uuid:
        return queries.newest_topic_id(self.world.rows, name)

    async def bring(self, tip: TopicIdPartition, cache: KafkaCache | None, since: int) -> None:
        recorded = len(list(queries.list_segments(self.world.rows, tip)))
        for record in plan_import(tip, cache, since=since, recorded=recorded):
            self.world.put(record)
        assert next(open_imports(self.world.rows), None) is None

    async def differences(self, tip: TopicIdPartition, cache: KafkaCache | None) -> Sequence[str]:
        since = self.standing().since
        return [each.text for each in compare(Reads(self.world.rows), tip, cache, since=since)]

    def behind_topic(self) -> int:
        return 0

    async def begin_shadow(self, since: int, topic_id: Uuid, ends: Sequence[int]) -> None:
        assert list(ends) == [len(each) for each in self.topic]

    async def move(self, before: Migration, phase: MigrationPhase, why: str) -> None:
        assert phase is MigrationPhase.QUORUM, why
        self.world.phases(phase)

    async def hand_over(self, since: int) -> bool:
        return False

    async def live(self) -> Collection[int]:
        return ()

    async def open_topic(self) -> Source:
        return Source(self)


@dataclass
class Source:
    """The topic as it is read."""

    log: Log

    @property
    def topic_id(self) -> Uuid:
        return Uuid(b"metadata-topic-1")

    @property
    def partitions(self) -> Sequence[int]:
        return range(len(self.log.topic))

    async def read(
        self, partition: int, progress: Callable[[int, int], None]
    ) -> tuple[TopicReplay, PartitionRead]:
        replay, records = TopicReplay("topic"), self.log.topic[partition]
        for offset, record in enumerate(records):
            replay.apply(offset, encode_segment_record(record))
        return replay, PartitionRead(partition, 0, len(records), len(records))

    async def close(self) -> None:
        pass


def life(
    topic_id: Uuid, number: int, at_ms: int, *states: SegmentState, partition: int = 0
) -> list[SegmentRecord]:
    """A segment that was copied, and came through these states."""
    id_ = RemoteLogSegmentId(
        TopicIdPartition("orders", topic_id, partition), Uuid(number.to_bytes(16, "big"))
    )
    row = RemoteLogSegmentMetadata(id_, 0, 9, 1, at_ms, at_ms, ((0, 0),), 10, None, COPYING)
    updates = (
        RemoteLogSegmentMetadataUpdate(id_, 1, at_ms + 1, None, state)
        for state in (COPIED, *states)
    )
    return [row, *updates]


GONE = life(OLD, 1, 1_000, DELETING, DELETED)
LEFT = life(OLD, 2, 1_500, DELETING, partition=1)
"""A broker deletes a topic's segments once: one that failed stays for ever."""
PRESENT = life(NEW, 3, 9_000)
PRESENT_TOO = life(NEW, 4, 9_500, partition=1)


@pytest.mark.parametrize(
    "topic",
    [
        [GONE, PRESENT],
        [PRESENT, GONE],
        [[*PRESENT, *LEFT], GONE, PRESENT_TOO],
        [PRESENT_TOO, GONE, LEFT, PRESENT],
        [LEFT, [*GONE, *PRESENT]],
    ],
)
def test_the_topic_that_was_made_last_is_the_newest_of_its_name(
    topic: list[list[SegmentRecord]],
) -> None:
    """Else readers by name, and admins, would have the old one, of which nothing is left."""
    log = Log(topic)

    async def sleep(seconds: float) -> None:
        log.now += seconds

    ours = Switching(log, log, Time(lambda: log.now, sleep), 60.0)
    attempt = ours.begin()
    assert attempt is not None
    asyncio.run(ours.run(attempt))
    assert log.standing().phase is MigrationPhase.QUORUM, log.standing().why
    assert log.newest_topic("orders") == NEW
    whole = TopicReplay("all")
    for offset, record in enumerate(each for part in topic for each in part):
        whole.apply(offset, encode_segment_record(record))
    assert set(log.partitions()) == set(whole.caches)
    for tip, cache in whole.caches.items():
        found = compare(Reads(log.world.rows), tip, cache, since=attempt.standing.since)
        assert list(found) == [], tip
