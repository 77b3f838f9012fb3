"""The counts of what a switch or a way back compared."""

from __future__ import annotations

import asyncio

import pytest

from kafka_formats.kafka_uuid import Uuid
from rlm.migration.compared import Compared, counted
from rlm.migration.switching import Switching, Time
from rlm.migration.topic_replay import TopicReplay
from rlmm.migration_phase import MigrationPhase
from rlmm.records.segment_records import encode_segment_record
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from tests.rlm.migration.test_switching import DEADLINE_S, PARTITIONS, World

COPYING, COPIED, *_ = SegmentState


def test_a_partition_of_the_topic_is_counted() -> None:
    replay, offset = TopicReplay("topic"), 0
    for number, (tip, epochs, state) in enumerate(
        (
            (PARTITIONS[0], ((0, 0), (2, 5)), COPIED),
            (PARTITIONS[0], ((2, 10),), COPYING),
            (PARTITIONS[1], ((0, 20),), COPIED),
        )
    ):
        id_ = RemoteLogSegmentId(tip, Uuid(number.to_bytes(16, "big")))
        row = RemoteLogSegmentMetadata(
            id_, 10 * number, 10 * number + 9, 1, 1, 1, epochs, 10, None, COPYING
        )
        records: list[RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate] = [row]
        if state is COPIED:
            records.append(RemoteLogSegmentMetadataUpdate(id_, 1, 5, None, COPIED))
        for record in records:
            replay.apply(offset, encode_segment_record(record))
            offset += 1
    assert counted(7, offset, replay) == Compared(7, 5, 2, {COPIED: 2, COPYING: 1}, 3, 29)
    assert counted(8, 0, TopicReplay("topic")) == Compared(8, 0, 0, {}, 0, None)


@pytest.mark.parametrize("phase", [MigrationPhase.SWITCHING, MigrationPhase.BACK])
def test_an_attempt_tells_all_that_it_compared(phase: MigrationPhase) -> None:
    """Once, however often it was tried."""

    async def carried_out(seed: int) -> World:
        world = World(seed, None, phase)
        ours = Switching(world, world, Time(lambda: world.now, world.sleep), DEADLINE_S)
        attempt = ours.begin()
        assert attempt is not None
        await ours.run(attempt)
        if world.phase is not world.before:
            assert [each.metadata_partition for each in attempt.compared] == [0, 1]
            assert sum(sum(each.segments.values()) for each in attempt.compared) == len(world.topic)
        return world

    ended = [asyncio.run(carried_out(seed)) for seed in range(20)]
    assert any(each.phase is not each.before and each.topic for each in ended)
