"""Reading what was tiered, through the service: across segments, epochs and dead tails; by time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData, InvalidRequest, NotFound, Refused, StrandlineError
from kafka_formats.log_names import segment_file_name
from kafka_formats.record_batch import Record, encode_batch
from kafka_formats.time_index import TimeIndex
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.data_plane.read_request import Isolation, RecordFormat, RecordsEnd, RecordsRequest
from rlm.fetch.follower_start import FollowerFetchQuery, FollowerPlan
from rlm.fetch.leader_transition import LeaderTransitionQuery
from rlm.fetch.resolved_reads import check_readable
from rlm.format.manifest import IndexType
from rlmm.partition_state import LostOffsets, PartitionState
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlm.broker_files import (
    FIRST_TIMESTAMP_MS,
    ReplicaWriter,
    write_checkpoint,
    write_log_dir,
)
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog, new_log_dir
from tests.rlm.one_node import Node, new_world
from tests.rlm.planner_facts import PARTITION, epochs, state, uuid
from tests.rlm.virtual_time import run_virtually

CAPTURED = Path(__file__).parents[2] / "data" / "kafka-4.3.0" / "log-dir"


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    return log


async def collect(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


async def read_lines(node: Node, partition: TopicIdPartition, offset: int) -> list[tuple[int, str]]:
    """(offset, value) of the records from `offset` on."""
    request = RecordsRequest(offset, 10_000_000, format=RecordFormat.JSON_LINES)
    data = await collect(node.parts.reads.records(partition, request))
    lines = [json.loads(line) for line in data.splitlines()]
    return [(line["offset"], line["value"]) for line in lines]


def expected_lines(start: int, end: int) -> list[tuple[int, str]]:
    return [(offset, f"v{offset}") for offset in range(start, end)]


def test_records_are_read_across_segment_borders_as_stored(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            ends: list[RecordsEnd] = []
            request = RecordsRequest(0, 10_000_000)
            stored = await collect(node.parts.reads.records(orders.partition, request, ends.append))
            assert stored == b"".join(orders.log_bytes(base) for base in (0, 10, 20))
            assert [(end.next_offset, end.at_end) for end in ends] == [(30, True)]
            assert await read_lines(node, orders.partition, 7) == expected_lines(7, 30)
            await node.assert_quiesced()

    run_virtually(main)


def test_a_range_near_the_end_of_a_log_names_the_segment_behind_it(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            reads = node.parts.reads
            found = [reads.served_from(orders.partition, offset) for offset in (0, 10, 20)]
            first, second, last = [served[1] for served in found if served is not None]

            def behind(row: RemoteLogSegmentMetadata, start: int, end: int | None) -> object:
                following = reads._log_request(row.segment_id.id, start, end).following
                return None if following is None else following.segment_id

            assert behind(first, 1, 100) == second.segment_id
            assert behind(second, 1, 100) == last.segment_id
            assert behind(last, 1, 100) is None
            assert behind(first, 0, None) is None, "whole logs are no ranges"
            await node.assert_quiesced()

    run_virtually(main)


def test_a_diverged_tail_is_never_served_and_the_new_leaders_records_are(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
        # Unclean election: from 15 on another log, with other segment borders.
        for base in (10, 20, 30):
            orders.delete_segment(base)
        orders.write(10, 15, end=15)
        orders.write(15, 22, 28, end=29, epoch=1)
        orders.set_epochs((0, 0), (1, 15))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
            request = RecordsRequest(0, 10_000_000)
            stored = await collect(node.parts.reads.records(orders.partition, request))
            assert stored == b"".join(orders.log_bytes(base) for base in (0, 10, 15, 22))
            assert await read_lines(node, orders.partition, 12) == expected_lines(12, 28)

    run_virtually(main)


@pytest.mark.parametrize("topic", ["orders", "codecs", "payments", "events", "profiles"])
def test_captured_logs_are_tiered_and_read_back_byte_for_byte(tmp_path: Path, topic: str) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (CAPTURED,)).boot(data_plane=True) as node:
            report = await node.remote_log.run_once()
            assert report.failed == ()
            found = [each for each in report.partitions if each.partition.topic == topic]
            assert found
            for each in found:
                page = node.remote_log.status(each.partition)
                request = RecordsRequest(page.log_start_offset, 10_000_000)
                stored = await collect(node.parts.reads.records(each.partition, request))
                directory = CAPTURED / f"{topic}-{each.partition.partition}"
                logs = sorted(directory.glob("*.log"))
                sealed = [path for path in logs if int(path.stem) < each.next_offset]
                expected = b"".join(path.read_bytes() for path in sealed)
                assert expected.endswith(stored)
                assert len(expected) - len(stored) < sealed[0].stat().st_size
                committed = replace(request, isolation=Isolation.READ_COMMITTED)
                assert (
                    await collect(node.parts.reads.records(each.partition, committed)) or not stored
                )
            await node.assert_quiesced()

    run_virtually(main)


def test_bytes_and_indexes_of_one_segment(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            (row, *_) = node.metadata.list_remote_log_segments(orders.partition)
            id_ = row.segment_id.id
            log = orders.log_bytes(row.start_offset)
            assert await collect(node.parts.reads.open_log(id_)) == log
            assert await collect(node.parts.reads.open_log(id_, 5, 25)) == log[5:25]
            index = await collect(node.parts.reads.open_index(id_, IndexType.TIMESTAMP))
            assert TimeIndex.parse(index, base_offset=0, source="t").last == (TIMESTAMP_MS + 9, 9)
            with pytest.raises(NotFound):
                await collect(node.parts.reads.open_index(id_, IndexType.TRANSACTION))
            for start, end, field in ((-1, None, "start"), (5, 4, "end")):
                with pytest.raises(InvalidRequest) as caught:
                    await collect(node.parts.reads.open_log(id_, start, end))
                assert caught.value.field == field
            with pytest.raises(NotFound, match="no segment has the id"):
                await collect(node.parts.reads.open_log(uuid(9_999_999)))

    run_virtually(main)


def test_a_segment_that_is_not_finished_is_not_read(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            (row, *_) = node.metadata.list_remote_log_segments(orders.partition)
            started = replace(
                row,
                segment_id=replace(row.segment_id, id=uuid(77)),
                custom_metadata=None,
                state=SegmentState.COPY_SEGMENT_STARTED,
                finished_at=-1,
            )
            await node.metadata.add_remote_log_segment_metadata(started)
            with pytest.raises(NotFound, match="COPY_SEGMENT_STARTED"):
                await collect(node.parts.reads.open_log(uuid(77)))

    run_virtually(main)


READABLE = state(log_start=10, highest=(99, 0), lost=(LostOffsets(40, 49, "gone"),))


@pytest.mark.parametrize(
    ("known", "offset", "error", "text"),
    [
        (READABLE, -1, InvalidRequest, "0 or more"),
        (READABLE, 9, InvalidRequest, "below the log start offset 10"),
        (READABLE, 100, NotFound, "not tiered yet"),
        (READABLE, 45, NotFound, "go on at 50"),
        (state(), 0, NotFound, "nothing of"),
    ],
)
def test_offsets_that_are_not_in_the_tier_say_why(
    known: PartitionState, offset: int, error: type[StrandlineError], text: str
) -> None:
    with pytest.raises(error, match=text):
        check_readable(known, offset)


@pytest.mark.parametrize("offset", [10, 39, 50, 99])
def test_offsets_in_the_tier_are_readable(offset: int) -> None:
    check_readable(READABLE, offset)


def test_a_read_of_an_unknown_partition_or_of_no_bytes_is_refused(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            with pytest.raises(NotFound):
                await collect(node.parts.reads.records(PARTITION, RecordsRequest(0, 1)))
            with pytest.raises(InvalidRequest, match="max_bytes"):
                await collect(node.parts.reads.records(orders.partition, RecordsRequest(0, 0)))

    run_virtually(main)


def test_a_segment_in_a_store_that_is_not_configured_says_which(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
        world.store_name = "second"
        async with world.boot(data_plane=True) as node:
            with pytest.raises(Refused, match=r"\[stores.main\]"):
                await collect(node.parts.reads.records(orders.partition, RecordsRequest(0, 1)))

    run_virtually(main)


def test_a_damaged_object_is_never_served(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            (row, *_) = node.metadata.list_remote_log_segments(orders.partition)
            (key,) = [
                key for key in await node.keys()
                if str(row.segment_id.id) in key and key.endswith(".log")
            ]  # fmt: skip
            await node.store.damage(key)
            with pytest.raises(CorruptData):
                await collect(node.parts.reads.open_log(row.segment_id.id))

    run_virtually(main)


@pytest.mark.parametrize("timestamp", [TIMESTAMP_MS + 1, -3], ids=["a time", "the largest"])
def test_damage_that_a_look_up_by_time_meets_is_noted_for_a_repair(
    tmp_path: Path, orders: KafkaLog, timestamp: int
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            for key in await node.keys():
                if key.endswith(".log"):
                    await node.store.damage(key)
            with pytest.raises(CorruptData):
                await node.parts.answers.offsets(orders.partition, timestamp)
            rows = node.metadata.list_remote_log_segments(orders.partition)
            (noted,) = node.parts.reads.seen.seen
            assert noted in {row.segment_id.id for row in rows}

    run_virtually(main)


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (TIMESTAMP_MS + 13, (13, TIMESTAMP_MS + 13, 0)),
        (0, (0, TIMESTAMP_MS, 0)),
        (TIMESTAMP_MS + 29, (29, TIMESTAMP_MS + 29, 0)),
        (TIMESTAMP_MS + 30, (-1, -1, -1)),
        (2**62, (-1, -1, -1)),
        (-3, (29, TIMESTAMP_MS + 29, 0)),
        (-2, (0, -1, 0)),
        (-5, (29, -1, 0)),
        (-6, (30, -1, 0)),
        (-4, (0, -1, 0)),
        (-1, (35, -1, 0)),
    ],
)
def test_offsets_by_time_and_by_special(
    tmp_path: Path, orders: KafkaLog, timestamp: int, expected: tuple[int, int, int]
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            answer = await node.parts.answers.offsets(orders.partition, timestamp)
            assert (answer.offset, answer.timestamp_ms, answer.leader_epoch) == expected
            assert answer.metadata_offset == node.metadata.applied_offset

    run_virtually(main)


MAX_TIMESTAMP = -3


def test_the_largest_timestamp_may_be_a_markers(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path / "kafka"))
    replica.append(2, producer_id=1, transactional=True)
    replica.end_transaction(1, commit=True)  # 2
    replica.roll()
    write_checkpoint(replica.log_dir, "replication-offset-checkpoint", {("orders", 0): 3})

    async def main() -> None:
        world = new_world(tmp_path, (replica.log_dir,))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
            answer = await node.parts.answers.offsets(replica.partition, MAX_TIMESTAMP)
            assert (answer.offset, answer.timestamp_ms) == (2, FIRST_TIMESTAMP_MS + 2)
            later = await node.parts.answers.offsets(replica.partition, FIRST_TIMESTAMP_MS + 2)
            assert later.offset == 2

    run_virtually(main)


def test_of_records_with_the_largest_timestamp_the_first_counts(tmp_path: Path) -> None:
    """In one batch, over batches and over segments."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    for base, newest in ((0, {4, 5, 8}), (10, {11})):
        path = log.directory / segment_file_name(base, ".log")
        batches = [
            encode_batch(
                [
                    Record(at, TIMESTAMP_MS + (at in newest), None, b"v", ())
                    for at in (one, one + 1)
                ],
                base_offset=one,
                partition_leader_epoch=0,
            )
            for one in range(base, base + 10, 2)
        ]
        path.write_bytes(b"".join(batches))
        path.with_suffix(".index").write_bytes(b"")
        path.with_suffix(".timeindex").write_bytes(b"")

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            answer = await node.parts.answers.offsets(log.partition, MAX_TIMESTAMP)
            assert (answer.offset, answer.timestamp_ms) == (4, TIMESTAMP_MS + 1)

    run_virtually(main)


def test_the_largest_timestamp_is_one_that_can_be_read(tmp_path: Path, orders: KafkaLog) -> None:
    """The newest record of all lies in a tail that another leader's lineage cut off."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
        for base in (10, 20, 30):
            orders.delete_segment(base)
        orders.write(10, 15, end=15)
        orders.write(15, 17, end=18, epoch=1)
        orders.set_epochs((0, 0), (1, 15))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
            assert await read_lines(node, orders.partition, 12) == expected_lines(12, 17)
            answer = await node.parts.answers.offsets(orders.partition, MAX_TIMESTAMP)
            assert (answer.offset, answer.timestamp_ms) == (16, TIMESTAMP_MS + 16)
            assert answer.leader_epoch == 1

    run_virtually(main)


def test_a_leader_transition_and_a_followers_question(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            query = LeaderTransitionQuery(orders.partition, 3, epochs((0, 0), (3, 33)), 0, 40)
            transition = node.parts.answers.leader_transition(query)
            assert (transition.highest_copied_offset, transition.next_offset) == (29, 30)
            assert transition.left_overs == ()
            assert transition.metadata_offset == node.metadata.applied_offset
            fetch = FollowerFetchQuery(orders.partition, 3, 0, 20)
            follower = await node.parts.answers.follower_fetch(fetch)
            assert (follower.plan, follower.fetch_offset) == (FollowerPlan.BUILD_FROM_TIER, 20)
            # Without a broker and without the offset, the directory's own start is the leader's.
            asked = replace(fetch, leader_local_log_start_offset=None)
            local = await node.parts.answers.follower_fetch(asked)
            assert local.plan is FollowerPlan.FETCH_LOCALLY
            with pytest.raises(InvalidRequest, match="no replica"):
                await node.parts.answers.follower_fetch(replace(asked, partition=PARTITION))

    run_virtually(main)
