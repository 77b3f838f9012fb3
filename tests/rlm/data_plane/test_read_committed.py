"""What a reader of committed records may see, and where the tier stops deciding."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.batch_scan import scan
from kafka_formats.errors import Conflict, RetryLater
from kafka_formats.record_batch import Record, encode_batch
from kafka_formats.transaction_index import AbortedTransaction
from rlm.data_plane import read_committed
from rlm.data_plane.read_committed import CommittedView
from rlm.data_plane.read_request import (
    Isolation,
    RecordFormat,
    RecordsEnd,
    RecordsRequest,
    SegmentPiece,
)
from rlm.local_log.log_dir import LocalPartition, find_partitions
from tests.rlm.broker_files import CAPTURED, ReplicaWriter, write_checkpoint, write_log_dir
from tests.rlm.tier import Tier, copy_job, only_partition

MAX = 10**9


def committed(offset: int = 0, max_bytes: int = MAX) -> RecordsRequest:
    return RecordsRequest(offset, max_bytes, Isolation.READ_COMMITTED)


def offsets(data: bytes) -> list[int]:
    """The offsets of the batches' records."""
    found: list[int] = []
    for batch in scan(data, source="read"):
        found += range(batch.header.base_offset, batch.header.last_offset + 1)
    return found


async def tier_of(replica: ReplicaWriter, *, segments: int | None = None) -> Tier:
    """The first sealed segments, copied; all without a number."""
    tier = Tier()
    partition = only_partition(replica.log_dir)
    for segment in partition.segments[:-1][:segments]:
        await tier.copy(copy_job(partition, segment))
    return tier


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    return ReplicaWriter(write_log_dir(tmp_path))


async def test_aborted_records_and_markers_are_left_out(replica: ReplicaWriter) -> None:
    replica.append(2, producer_id=1, transactional=True)  # 0, 1: aborted
    replica.append(2)  # 2, 3
    replica.append(2, producer_id=2, transactional=True)  # 4, 5: committed
    replica.append(1, producer_id=1, transactional=True)  # 6: aborted
    replica.end_transaction(1, commit=False)  # 7
    replica.end_transaction(2, commit=True)  # 8
    replica.append(1, producer_id=1, transactional=True)  # 9: committed
    replica.end_transaction(1, commit=True)  # 10
    replica.roll()
    tier = await tier_of(replica)
    data, end = await tier.records(committed())
    assert offsets(data) == [2, 3, 4, 5, 9]
    assert end == RecordsEnd(11, 3, len(data), at_end=True)
    every, _ = await tier.records(RecordsRequest(0, MAX))
    assert every == replica.path(0, ".log").read_bytes()


async def test_an_abort_many_segments_later_counts(replica: ReplicaWriter) -> None:
    replica.append(2, producer_id=1, transactional=True)
    replica.append(1)
    replica.roll()
    for _ in range(3):
        replica.append(2)
        replica.roll()
    replica.end_transaction(1, commit=False)
    replica.roll()
    tier = await tier_of(replica)
    data, _ = await tier.records(committed())
    assert offsets(data) == [2, 3, 4, 5, 6, 7, 8]


async def test_what_the_tier_does_not_decide_is_not_given_out(replica: ReplicaWriter) -> None:
    """The segment is copied since all is decided, but the ABORT is in a segment not yet copied."""
    replica.append(2)
    replica.append(2, producer_id=1, transactional=True)
    replica.append(2)
    replica.roll()
    replica.end_transaction(1, commit=False)
    replica.append(1)
    replica.roll()
    tier = await tier_of(replica, segments=1)
    data, end = await tier.records(committed())
    assert offsets(data) == [0, 1]
    assert end == RecordsEnd(2, 1, len(data), at_end=True)
    data, end = await tier.records(committed(end.next_offset))
    assert (data, end.next_offset, end.at_end) == (b"", 2, True)
    partition = only_partition(replica.log_dir)
    await tier.copy(copy_job(partition, partition.segments[1]))
    data, _ = await tier.records(committed(2))
    assert offsets(data) == [4, 5, 7]


async def test_a_segment_that_arrives_meanwhile_decides(
    replica: ReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.append(2, producer_id=1, transactional=True)
    replica.roll()
    replica.end_transaction(1, commit=False)
    replica.roll()
    replica.append(1)
    replica.roll()
    tier = await tier_of(replica)
    pieces = tier.pieces.pieces
    tier.pieces.pieces = pieces[:1]
    real = tier.pieces.piece_at

    async def arriving(offset: int) -> SegmentPiece | None:
        found = await real(offset)
        tier.pieces.pieces = pieces
        return found

    monkeypatch.setattr(tier.pieces, "piece_at", arriving)
    data, end = await tier.records(committed())
    assert (offsets(data), end.next_offset) == ([3], 4)


async def test_a_read_from_the_middle_of_a_transaction_still_leaves_it_out(
    replica: ReplicaWriter,
) -> None:
    for _ in range(3):
        replica.append(2, producer_id=1, transactional=True)
    replica.append(1)
    replica.end_transaction(1, commit=False)
    replica.roll()
    tier = await tier_of(replica)
    data, _ = await tier.records(committed(3))
    assert offsets(data) == [6]


async def test_dropped_batches_are_read_up_to_the_first_that_is_given(
    replica: ReplicaWriter,
) -> None:
    for _ in range(5):
        replica.append(2, producer_id=1, transactional=True)
    replica.end_transaction(1, commit=False)
    replica.append(1)
    replica.append(1)
    replica.roll()
    tier = await tier_of(replica)
    data, end = await tier.records(committed(0, max_bytes=1))
    assert offsets(data) == [11]
    assert (end.next_offset, end.at_end) == (12, False)


async def test_dropped_batches_are_read_and_count_against_max_bytes(replica: ReplicaWriter) -> None:
    """Once something is given: a page of little that goes through all of a log takes as long."""
    size = len(replica.append(1))  # 0
    dropped = [len(replica.append(1, producer_id=1, transactional=True)) for _ in range(5)]
    replica.end_transaction(1, commit=False)  # 6
    replica.append(1)  # 7
    replica.roll()
    tier = await tier_of(replica)
    page = size + sum(dropped[:2])
    data, end = await tier.records(committed(0, max_bytes=page))
    assert offsets(data) == [0]
    assert end == RecordsEnd(3, 1, size, at_end=False)
    data, end = await tier.records(committed(3, max_bytes=page))
    assert offsets(data) == [7]
    assert end == RecordsEnd(8, 1, len(data), at_end=True)


async def test_a_diverged_tails_markers_decide_nothing(replica: ReplicaWriter) -> None:
    """The lineage was cut below the ABORT: in it, the transaction is still open."""
    replica.append(2, producer_id=1, transactional=True)
    replica.append(2)
    replica.end_transaction(1, commit=False)
    replica.append(1)
    replica.roll()
    tier = await tier_of(replica)
    (piece,) = tier.pieces.pieces
    tier.pieces.pieces = [replace(piece, valid_until=3)]
    for offset in (0, 2):
        data, end = await tier.records(committed(offset))
        assert (data, end.next_offset, end.at_end) == (b"", offset, True)


async def test_without_a_producer_snapshot_at_the_end_nothing_is_guessed(
    replica: ReplicaWriter,
) -> None:
    replica.append(2)
    replica.roll()
    replica.append(2)
    replica.roll()
    replica.path(2, ".snapshot").unlink()
    replica.path(4, ".snapshot").unlink()
    tier = await tier_of(replica)
    assert len(tier.pieces.pieces) == 2
    with pytest.raises(Conflict, match="no producer snapshot") as caught:
        await tier.records(committed(2))
    assert caught.value.reason == "TRANSACTIONS_UNKNOWN"


async def test_a_complete_search_needs_no_end_of_the_tier(replica: ReplicaWriter) -> None:
    replica.append(2, producer_id=1, transactional=True)
    replica.roll()
    replica.end_transaction(1, commit=False)
    replica.roll()
    replica.append(1)
    replica.roll()
    replica.path(4, ".snapshot").unlink()
    tier = await tier_of(replica)
    view = await read_committed.committed_view(
        tier.plane._reader, tier.pieces, tier.pieces.pieces[0], 0
    )
    assert view.stable_end == 2


async def test_without_any_last_piece_the_piece_itself_is_the_end(replica: ReplicaWriter) -> None:
    replica.append(2)
    replica.roll()
    tier = await tier_of(replica)
    piece = tier.pieces.pieces.pop()
    view = await read_committed.committed_view(tier.plane._reader, tier.pieces, piece, 0)
    assert view.stable_end == 2


async def test_an_endless_chain_of_indexes_is_given_up(
    replica: ReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.append(1, producer_id=9, transactional=True)  # stays open: no search is complete
    for _ in range(3):
        replica.append(1, producer_id=1, transactional=True)
        replica.end_transaction(1, commit=False)
        replica.roll()
    monkeypatch.setattr(read_committed, "HOPS_MAX", 2)
    tier = await tier_of(replica)
    with pytest.raises(RetryLater, match="more than 2"):
        await tier.records(committed())


def test_spans_of_one_producer_are_told_apart() -> None:
    view = CommittedView(
        [AbortedTransaction(1, 30, 40, 41), AbortedTransaction(1, 0, 10, 11)], stable_end=100
    )
    replica_batches = {0: True, 9: True, 12: False, 30: True, 45: False}
    for offset, dropped in replica_batches.items():
        (batch,) = scan(transactional_batch(offset), source="made")
        assert view.drops(batch.header) is dropped


def transactional_batch(offset: int) -> bytes:
    return encode_batch(
        [Record(offset, 0, None, b"v")],
        base_offset=offset,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def captured() -> list[LocalPartition]:
    scan_ = find_partitions([CAPTURED / "log-dir"], kafka_cluster_id=None)
    return [p for p in scan_.partitions if not p.partition.topic.startswith("__")]


def comparable(line: dict[str, Any], *, ours: bool) -> tuple[object, ...]:
    def raw(name: str) -> bytes | None:
        value = line[name]
        if value is None:
            return None
        if ours and line[f"{name}_encoding"] == "utf-8":
            return str(value).encode()
        return b64decode(value)

    return line["offset"], line["timestamp_ms" if ours else "timestamp"], raw("key"), raw("value")


@pytest.mark.parametrize("partition", captured(), ids=lambda p: str(p.partition))
@pytest.mark.parametrize("isolation", list(Isolation))
async def test_captured_partitions_read_as_a_consumer_read_them(
    partition: LocalPartition, isolation: Isolation
) -> None:
    tier = Tier()
    await tier.copy_all(partition)
    offset, lines = partition.local_log_start_offset, b""
    while True:
        data, end = await tier.records(
            RecordsRequest(offset, 3_000, isolation, RecordFormat.JSON_LINES)
        )
        lines += data
        offset = end.next_offset
        if end.at_end:
            break
    found = [comparable(json.loads(line), ours=True) for line in lines.splitlines()]
    name = f"{partition.partition.topic}-{partition.partition.partition}.jsonl.gz"
    consumed = [
        json.loads(line)
        for line in gzip.decompress((CAPTURED / "expected" / name).read_bytes()).splitlines()
    ]
    expected = [
        comparable(record, ours=False)
        for record in consumed
        if record["offset"] < offset
        and (record["committed"] or isolation is Isolation.READ_UNCOMMITTED)
    ]
    assert found == expected
    assert len(found) > 50


async def test_the_broker_counts_a_segment_as_decided_before_the_tier_does(
    replica: ReplicaWriter,
) -> None:
    replica.append(2, producer_id=1, transactional=True)
    replica.roll()
    replica.end_transaction(1, commit=True)
    replica.roll()
    write_checkpoint(replica.log_dir, "replication-offset-checkpoint", {("orders", 0): 3})
    assert only_partition(replica.log_dir).last_stable_offset_bound == 3
    tier = await tier_of(replica, segments=1)
    data, _ = await tier.records(committed())
    assert data == b""


async def over_hole(replica: ReplicaWriter, *lost: int) -> Tier:
    """All sealed segments copied but those with these base offsets, which are lost."""
    tier = Tier()
    partition = only_partition(replica.log_dir)
    for segment in partition.segments[:-1]:
        if segment.base_offset not in lost:
            await tier.copy(copy_job(partition, segment))
    return tier


async def test_an_abort_among_lost_offsets_leaves_its_records_out_counted(
    replica: ReplicaWriter,
) -> None:
    replica.append(2, producer_id=1, transactional=True)  # 0, 1: aborted at 3, which is lost
    replica.append(1)  # 2
    replica.roll()
    replica.end_transaction(1, commit=False)  # 3
    replica.append(1)  # 4
    replica.roll()
    replica.append(2)  # 5, 6
    replica.roll()
    tier = await over_hole(replica, 3)
    data, end = await tier.records(committed())
    assert offsets(data) == [2, 5, 6]
    assert (end.lost, end.undecided_records) == (((3, 4),), 2)
    every, end = await tier.records(RecordsRequest(0, MAX))
    assert offsets(every) == [0, 1, 2, 5, 6]
    assert (end.lost, end.undecided_records) == (((3, 4),), 0)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("segments_behind", [0, 2])
async def test_a_transaction_still_open_behind_the_hole_is_decided_by_its_marker(
    replica: ReplicaWriter, commit: bool, segments_behind: int
) -> None:
    replica.append(2, producer_id=1, transactional=True)  # 0, 1
    replica.append(1, producer_id=2, transactional=True)  # 2: its marker is lost
    replica.roll()
    replica.end_transaction(2, commit=True)  # 3
    replica.append(1, producer_id=1, transactional=True)  # 4
    replica.roll()
    for _ in range(segments_behind):
        replica.append(1)
        replica.roll()
    marker = replica.next_offset
    replica.end_transaction(1, commit=commit)
    replica.append(1)
    replica.roll()
    tier = await over_hole(replica, 3)
    data, end = await tier.records(committed())
    given = [0, 1] if commit else []
    assert offsets(data) == [*given, *range(5, marker), marker + 1]
    assert end.undecided_records == 1


async def test_a_marker_behind_the_hole_decides_nothing_of_an_earlier_transaction(
    replica: ReplicaWriter,
) -> None:
    """The producer ended its first transaction among the lost offsets and began another there."""
    replica.append(2, producer_id=1, transactional=True)  # 0, 1: aborted at 2
    replica.roll()
    replica.end_transaction(1, commit=False)  # 2
    replica.append(1, producer_id=1, transactional=True)  # 3
    replica.roll()
    replica.append(1, producer_id=1, transactional=True)  # 4
    replica.end_transaction(1, commit=True)  # 5
    replica.roll()
    tier = await over_hole(replica, 2)
    data, end = await tier.records(committed())
    assert offsets(data) == [4]
    assert end.undecided_records == 2


async def test_what_is_open_at_the_end_of_the_tier_is_waited_for_over_a_hole(
    replica: ReplicaWriter,
) -> None:
    replica.append(1)  # 0
    replica.append(2, producer_id=1, transactional=True)  # 1, 2
    replica.roll()
    replica.append(1)  # 3
    replica.roll()
    replica.append(1)  # 4
    replica.roll()
    tier = await over_hole(replica, 3)
    data, end = await tier.records(committed())
    assert (offsets(data), end.next_offset, end.undecided_records) == ([0], 1, 0)


async def test_without_a_snapshot_on_either_side_no_transaction_before_the_hole_is_given(
    replica: ReplicaWriter,
) -> None:
    replica.append(1)  # 0
    replica.roll()
    replica.append(1, producer_id=1, transactional=True)  # 1
    replica.end_transaction(1, commit=True)  # 2
    replica.append(1)  # 3
    replica.roll()
    replica.append(1)  # 4
    replica.roll()
    replica.append(1, producer_id=3, transactional=True)  # 5
    replica.end_transaction(3, commit=True)  # 6
    replica.roll()
    for offset in (1, 4, 5):
        replica.path(offset, ".snapshot").unlink()
    replica.path(0, ".log").unlink()
    tier = await over_hole(replica, 0, 4)
    data, end = await tier.records(committed(1))
    assert offsets(data) == [3, 5]
    assert (end.undecided_records, end.next_offset) == (1, 7)


async def test_two_holes_are_each_crossed_by_what_stands_behind_them(
    replica: ReplicaWriter,
) -> None:
    replica.append(1, producer_id=1, transactional=True)  # 0: open over both, committed
    replica.append(1, producer_id=2, transactional=True)  # 1: open over one, its end is lost
    replica.roll()
    replica.append(1)  # 2: lost
    replica.roll()
    replica.append(1)  # 3
    replica.roll()
    replica.end_transaction(2, commit=True)  # 4: lost
    replica.roll()
    replica.end_transaction(1, commit=True)  # 5
    replica.roll()
    tier = await over_hole(replica, 2, 4)
    data, end = await tier.records(committed())
    assert offsets(data) == [0, 3]
    assert (end.undecided_records, end.lost) == (1, ((2, 2), (4, 4)))
