"""Readers of committed records, where an unclean election cut a segment: its batches decide."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.batch_scan import ScannedBatch, scan
from kafka_formats.errors import Conflict
from kafka_formats.producer_snapshot import OpenTransaction
from rlm.data_plane.read_request import Isolation, RecordsRequest, SegmentPiece
from rlm.data_plane.transaction_batches import OpenAtCut
from rlm.format.manifest import Manifest
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.data_plane.cut_logs import CutLogs, cut_logs
from tests.rlm.tier import Tier, copy_job, only_partition

MAX = 10**9


def committed(offset: int = 0) -> RecordsRequest:
    return RecordsRequest(offset, MAX, Isolation.READ_COMMITTED)


def offsets(data: bytes) -> list[int]:
    return [
        offset
        for batch in scan(data, source="read")
        for offset in range(batch.header.base_offset, batch.header.last_offset + 1)
    ]


async def copied(tier: Tier, replica: ReplicaWriter) -> list[SegmentPiece]:
    """All sealed segments; the tier's own pieces stay as they are."""
    pieces, tier.pieces.pieces = tier.pieces.pieces, []
    partition = only_partition(replica.log_dir)
    for segment in partition.segments[:-1]:
        await tier.copy(copy_job(partition, segment, attempt=len(pieces)))
    found, tier.pieces.pieces = tier.pieces.pieces, pieces
    return found


async def cut_tier(logs: CutLogs) -> Tier:
    """What the lineage serves of the log whose tail is gone."""
    tier = Tier()
    tier.pieces.pieces = [
        replace(piece, valid_until=min(piece.valid_until, logs.cut - 1))
        for piece in await copied(tier, logs.gone)
        if piece.first_offset < logs.cut
    ]
    assert tier.pieces.pieces[-1].segment.start_offset == logs.cut_base
    return tier


@pytest.mark.parametrize("seed", range(40))
async def test_where_the_tier_ends_with_a_cut_its_batches_tell_how_far_it_decides(
    tmp_path: Path, seed: int
) -> None:
    logs = cut_logs(tmp_path, seed)
    tier = await cut_tier(logs)
    stable = min(logs.open_at_cut, default=logs.cut)
    for offset in {0, stable // 2, max(0, stable - 1), logs.cut_base}:
        data, end = await tier.records(committed(offset))
        wanted = [
            each.offset
            for each in logs.fates_below_cut(offset)
            if each.offset < stable and each.is_committed
        ]
        assert [each for each in offsets(data) if each >= offset] == wanted
        assert (end.next_offset, end.undecided_records) == (max(offset, stable), 0)


@pytest.mark.parametrize("seed", range(40))
async def test_before_a_hole_only_what_ended_in_it_is_undecided(tmp_path: Path, seed: int) -> None:
    logs = cut_logs(tmp_path, seed)
    tier = await cut_tier(logs)
    behind = [each for each in await copied(tier, logs.kept) if each.first_offset >= logs.behind]
    tier.pieces.pieces += behind
    for offset in (0, logs.cut // 2, logs.cut_base):
        data, end = await tier.records(committed(offset))
        served = [each for each in logs.fates if not logs.cut <= each.offset < logs.behind]
        is_lost = [logs.cut <= each.ends_at < logs.behind for each in served]
        wanted = [
            each.offset
            for each, lost in zip(served, is_lost, strict=True)
            if each.is_committed and not lost and each.offset >= offset
        ]
        assert [each for each in offsets(data) if each >= offset] == wanted
        undecided = sum(
            lost and each.batch_end > offset for each, lost in zip(served, is_lost, strict=True)
        )
        assert end.undecided_records == undecided


async def cut_second_segment(tmp_path: Path) -> Tier:
    """Two segments; the second, cut after 4, has the COMMIT of what the first one began."""
    replica = ReplicaWriter(write_log_dir(tmp_path / "log"))
    replica.append(2, producer_id=1, transactional=True)  # 0, 1
    replica.roll()
    replica.append(1)  # 2
    replica.end_transaction(1, commit=True)  # 3
    replica.append(1)  # 4
    replica.append(1)  # 5: cut off
    replica.roll()
    tier = Tier()
    first, second = await copied(tier, replica)
    tier.pieces.pieces = [first, replace(second, valid_until=4)]
    return tier


async def test_what_was_open_at_the_base_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = await cut_second_segment(tmp_path)
    data, end = await tier.records(committed())
    assert (offsets(data), end.next_offset) == ([0, 1, 2, 4], 5)
    tier.plane._reader._open_at_cuts.take((tier.pieces.pieces[1].segment.segment_id, 4))
    monkeypatch.setattr(Manifest, "open_at_base", None)
    data, end = await tier.records(committed())
    assert (data, end.next_offset) == (b"", 0), "as far as the segment before tells"
    with pytest.raises(Conflict, match="outside the lineage") as caught:
        await tier.records(committed(2))
    assert caught.value.reason == "TRANSACTIONS_UNKNOWN"


async def test_the_batches_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = await cut_second_segment(tmp_path)
    fed: list[OpenAtCut] = []
    real = OpenAtCut.feed

    def feed(self: OpenAtCut, data: memoryview) -> None:
        fed.append(self)
        real(self, data)

    monkeypatch.setattr(OpenAtCut, "feed", feed)
    for _ in range(3):
        data, _ = await tier.records(committed())
        assert offsets(data) == [0, 1, 2, 4]
    assert len(set(map(id, fed))) == 1


async def test_a_reader_that_leaves_leaves_its_progress_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = await cut_second_segment(tmp_path)
    real, fed, leaves = OpenAtCut._take, list[int](), {3}

    def take(self: OpenAtCut, batch: ScannedBatch) -> None:
        if batch.header.base_offset in leaves:
            leaves.clear()
            raise asyncio.CancelledError
        fed.append(batch.header.base_offset)
        real(self, batch)

    monkeypatch.setattr(OpenAtCut, "_take", take)
    with pytest.raises(asyncio.CancelledError):
        await tier.records(committed())
    data, _ = await tier.records(committed())
    assert offsets(data) == [0, 1, 2, 4]
    assert fed == [2, 3, 4]


def log_of(tmp_path: Path) -> bytes:
    """A transaction at 0, 1 with its COMMIT at 2, another begun at 3, and a record at 4."""
    replica = ReplicaWriter(write_log_dir(tmp_path / "log"))
    replica.append(2, producer_id=1, transactional=True)
    replica.end_transaction(1, commit=True)
    replica.append(1, producer_id=1, transactional=True)
    replica.append(1)
    return b"".join(replica.batches)


@pytest.mark.parametrize(
    ("valid_until", "opened"), [(1, [(1, 0)]), (2, []), (3, [(1, 3)]), (4, [(1, 3)])]
)
def test_it_ends_with_the_batch_at_the_cut(
    tmp_path: Path, valid_until: int, opened: list[tuple[int, int]]
) -> None:
    cut = OpenAtCut(0, (), valid_until, "a.log")
    data = log_of(tmp_path)
    for at in range(0, len(data), 7):
        cut.feed(data[at : at + 7])
    assert cut.open == frozenset(OpenTransaction(*each) for each in opened)
    assert cut.is_reached


@pytest.mark.parametrize(("start", "valid_until"), [(0, 0), (0, 5), (-1, 2)])
def test_missing_offsets_leave_it_unknown(tmp_path: Path, start: int, valid_until: int) -> None:
    """A cut amid a batch, one above the last batch, and a segment without its first batch."""
    cut = OpenAtCut(start, (), valid_until, "a.log")
    cut.feed(log_of(tmp_path))
    assert cut.open is None


def test_a_hole_in_the_offsets_leaves_it_unknown(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path / "log"))
    replica.append(2, producer_id=1, transactional=True)
    replica.skip(1)
    replica.append(1)
    cut = OpenAtCut(0, (), 3, "a.log")
    cut.feed(b"".join(replica.batches))
    assert cut.is_reached
    assert cut.open is None
