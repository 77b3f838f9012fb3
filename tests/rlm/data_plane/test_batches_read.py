"""Whole batches of a piece, and the list by which any consumer drops what was aborted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.batch_scan import scan
from kafka_formats.errors import CorruptData, InternalError
from rlm.data_plane import batches_read
from rlm.data_plane.read_request import (
    BatchesFound,
    BatchesRequest,
    Isolation,
    RecordsRequest,
    SendRules,
)
from rlm.local_log.log_dir import LocalPartition
from rsm_backends.memory import MemoryStore
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.data_plane.consumers import Aborted, franz, java
from tests.rlm.data_plane.test_read_committed import captured, offsets, over_hole, tier_of
from tests.rlm.tier import Tier, copy_job, only_partition

MAX = 10**9
COMMITTED, ALL = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
CONSUMERS: tuple[Callable[[bytes, tuple[Aborted, ...]], list[int]], ...] = (java, franz)


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    return ReplicaWriter(write_log_dir(tmp_path))


async def batches(
    tier: Tier,
    offset: int,
    *,
    until: int = MAX,
    bytes_max: int = MAX,
    isolation: Isolation = COMMITTED,
) -> tuple[BatchesFound, bytes]:
    piece = await tier.pieces.piece_at(offset)
    assert piece is not None
    request = BatchesRequest(piece, max(offset, piece.first_offset), until, bytes_max, isolation)
    async with tier.plane.waiting_batches(request, tier.pieces) as held:
        data = await held.read()
        assert held.found.size_bytes == len(data)
        return held.found, data


async def read_on(
    tier: Tier, offset: int, bytes_max: int, consumer: Callable[..., list[int]]
) -> list[int]:
    """The offsets that a consumer gets from one answer after the other, as far as is decided."""
    kept: list[int] = []
    while (piece := await tier.pieces.piece_at(offset)) is not None:
        found, data = await batches(tier, max(offset, piece.first_offset), bytes_max=bytes_max)
        kept += consumer(data, found.aborted)
        assert found.decided_until == found.next_offset > offset
        offset = found.next_offset
    return kept


async def test_batches_are_those_from_the_offset_on_as_stored(replica: ReplicaWriter) -> None:
    stored = [replica.append(3) for _ in range(4)]
    replica.roll()
    tier = await tier_of(replica)
    two = len(stored[1]) + len(stored[2])
    for offset, bytes_max, until, expected in (
        (0, MAX, MAX, stored),
        (2, MAX, MAX, stored),
        (3, MAX, MAX, stored[1:]),
        (4, two, MAX, stored[1:3]),
        (4, two - 1, MAX, stored[1:2]),
        (4, 1, MAX, stored[1:2]),
        (0, MAX, 6, stored[:2]),
        (0, MAX, 5, stored[:1]),
        (0, MAX, 1, stored[:1]),
    ):
        for isolation in Isolation:
            found, data = await batches(
                tier, offset, bytes_max=bytes_max, until=until, isolation=isolation
            )
            assert data == b"".join(expected)
            assert found.next_offset == offsets(data)[-1] + 1 == found.decided_until
            assert found.aborted == ()


async def test_nothing_behind_the_lineage_is_given(replica: ReplicaWriter) -> None:
    stored = [replica.append(3) for _ in range(4)]
    replica.roll()
    tier = await tier_of(replica)
    tier.pieces.pieces = [replace(tier.pieces.pieces[0], valid_until=5)]
    found, data = await batches(tier, 0, isolation=ALL)
    assert (data, found.next_offset) == (b"".join(stored[:2]), 6)


async def test_a_piece_without_a_batch_from_the_offset_on_says_where_to_go_on(
    replica: ReplicaWriter,
) -> None:
    replica.append(3)
    replica.roll()
    tier = await tier_of(replica)
    (piece,) = tier.pieces.pieces
    tier.pieces.pieces = [replace(piece, valid_until=9)]
    found, data = await batches(tier, 5)
    assert (data, found.size_bytes, found.next_offset) == (b"", 0, 10)


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("bytes_max", [1, 300, MAX])
async def test_consumers_drop_what_a_committed_read_leaves_out(
    replica: ReplicaWriter, consumer: Callable[..., list[int]], bytes_max: int
) -> None:
    for commit in (False, True, False):
        for producer_id in (1, 2):
            replica.append(2, producer_id=producer_id, transactional=True)
            replica.append(1)
            replica.append(1, producer_id=producer_id, transactional=True)
        replica.end_transaction(1, commit=commit)
        replica.roll()
        replica.append(1, producer_id=1, transactional=True)
        replica.end_transaction(2, commit=not commit)
        replica.end_transaction(1, commit=False)
        replica.roll()
    tier = await tier_of(replica)
    for offset in range(replica.next_offset):
        data, _ = await tier.records(RecordsRequest(offset, MAX, COMMITTED))
        assert await read_on(tier, offset, bytes_max, consumer) == offsets(data)


@pytest.mark.parametrize("partition", captured(), ids=lambda p: str(p.partition))
async def test_consumers_of_captured_partitions_too(partition: LocalPartition) -> None:
    tier = Tier()
    await tier.copy_all(partition)
    start = partition.local_log_start_offset
    data, end = await tier.records(RecordsRequest(start, MAX, COMMITTED))
    for consumer in CONSUMERS:
        kept: list[int] = []
        offset = start
        while offset < end.next_offset:
            found, answer = await batches(tier, offset, bytes_max=2_000, until=end.next_offset)
            kept += consumer(answer, found.aborted)
            offset = found.next_offset
        assert kept == offsets(data)


async def test_the_list_is_of_all_that_touches_the_answer_and_no_more(
    replica: ReplicaWriter,
) -> None:
    replica.append(2, producer_id=1, transactional=True)  # 0, 1
    replica.end_transaction(1, commit=False)  # 2
    first = replica.append(2, producer_id=2, transactional=True)  # 3, 4
    replica.append(1, producer_id=1, transactional=True)  # 5
    replica.end_transaction(2, commit=False)  # 6
    replica.roll()
    replica.end_transaction(1, commit=False)  # 7
    replica.roll()
    tier = await tier_of(replica)
    found, _ = await batches(tier, 4)
    assert found.aborted == ((2, 3), (1, 5))
    found, _ = await batches(tier, 4, bytes_max=len(first))
    assert found.aborted == ((2, 3),)
    found, _ = await batches(tier, 0, isolation=ALL)
    assert found.aborted == ()


async def test_what_is_open_at_the_end_of_the_tier_is_told(replica: ReplicaWriter) -> None:
    replica.append(2)
    replica.append(2, producer_id=1, transactional=True)
    replica.append(2)
    replica.roll()
    replica.append(1)
    replica.roll()
    replica.end_transaction(1, commit=False)
    replica.append(1)
    replica.roll()
    tier = await tier_of(replica, segments=2)
    found, _ = await batches(tier, 0)
    assert (found.decided_until, found.next_offset, found.tier_end) == (2, 6, 7)
    found, data = await batches(tier, 0, until=found.decided_until)
    assert (offsets(data), found.decided_until, found.next_offset) == ([0, 1], 2, 2)
    found, _ = await batches(tier, 6)
    assert found.decided_until == found.next_offset == 7


async def test_without_a_snapshot_at_the_end_nothing_is_decided(replica: ReplicaWriter) -> None:
    replica.append(1)  # 0: lost
    replica.roll()
    replica.append(2)
    replica.append(2, producer_id=1, transactional=True)
    replica.end_transaction(1, commit=True)
    replica.roll()
    for offset in (1, 6):
        replica.path(offset, ".snapshot").unlink()
    replica.path(0, ".log").unlink()
    tier = await over_hole(replica, 0)
    found, _ = await batches(tier, 2)
    assert (found.decided_until, found.next_offset, found.tier_end) == (2, 6, 6)


@pytest.mark.parametrize("consumer", CONSUMERS)
async def test_of_a_lost_outcome_no_record_is_given(
    replica: ReplicaWriter, consumer: Callable[..., list[int]]
) -> None:
    replica.append(2, producer_id=1, transactional=True)  # 0, 1: committed
    replica.end_transaction(1, commit=True)  # 2
    replica.append(2, producer_id=1, transactional=True)  # 3, 4: its marker is lost
    replica.append(1)  # 5
    replica.roll()
    replica.end_transaction(1, commit=False)  # 6
    replica.roll()
    replica.append(2)  # 7, 8
    replica.roll()
    tier = await over_hole(replica, 6)
    found, data = await batches(tier, 0)
    assert (consumer(data, found.aborted), found.decided_until) == ([0, 1, 5], 6)


@pytest.mark.parametrize("consumer", CONSUMERS)
async def test_an_answer_ends_where_the_list_of_lost_outcomes_could_not_tell(
    replica: ReplicaWriter, consumer: Callable[..., list[int]]
) -> None:
    """Without a snapshot at the hole, nobody knows which transactions were open there."""
    replica.append(1)  # 0: lost, and what is known of producers with it
    replica.roll()
    replica.append(1, producer_id=1, transactional=True)  # 1: not known to be committed
    replica.end_transaction(1, commit=True)  # 2
    replica.append(1, producer_id=1, transactional=True)  # 3: the same
    replica.end_transaction(1, commit=True)  # 4
    replica.append(1)  # 5
    replica.roll()
    replica.append(1)  # 6: lost
    replica.roll()
    replica.append(1)  # 7
    replica.roll()
    for offset in (1, 6, 7):
        replica.path(offset, ".snapshot").unlink()
    replica.path(0, ".log").unlink()
    tier = await over_hole(replica, 0, 6)
    data, _ = await tier.records(RecordsRequest(1, MAX, COMMITTED))
    assert offsets(data) == [5, 7]
    found, _ = await batches(tier, 1)
    assert (found.aborted, found.next_offset) == (((1, 1),), 2)
    assert await read_on(tier, 1, MAX, consumer) == [5, 7]


async def test_a_scan_asks_the_store_for_each_byte_once(
    replica: ReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        for _ in range(40):
            replica.append(10, value_bytes=10_000)
        replica.roll()
    partition = only_partition(replica.log_dir)
    tier = Tier(chunk_cache_bytes_max=16 << 20)
    for segment in partition.segments[:-1]:
        await tier.copy(copy_job(partition, segment))
    asked: list[int] = []
    get = MemoryStore.get

    def noted(
        store: MemoryStore, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        if key.endswith(".log"):
            assert end is not None
            asked.append(end - start)
        return get(store, key, start=start, end=end)

    monkeypatch.setattr(MemoryStore, "get", noted)
    offset, found, size = 0, b"", 0
    while (piece := await tier.pieces.piece_at(offset)) is not None:
        following = await tier.pieces.piece_at(piece.valid_until + 1)
        request = BatchesRequest(
            piece, offset, MAX, 700_000, ALL, None if following is None else following.segment
        )
        async with tier.plane.waiting_batches(request, tier.pieces) as held:
            data = await held.read()
        found += data
        size += len(data)
        offset = held.found.next_offset
        for _ in range(300):
            await asyncio.sleep(0)
    assert found == b"".join(replica.path(base, ".log").read_bytes() for base in (0, 400))
    assert sum(asked) <= size
    await tier.plane.close()


async def test_an_index_that_leads_too_far_is_found_out(
    replica: ReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = replica.append(3)
    replica.append(3)
    replica.roll()
    tier = await tier_of(replica)
    monkeypatch.setattr(batches_read, "floor_position", lambda *_: len(first))
    with pytest.raises(CorruptData, match="begins at 3"):
        await batches(tier, 1)


async def test_held_here_they_are_sent_to_nobody(replica: ReplicaWriter) -> None:
    replica.append(1)
    replica.roll()
    tier = await tier_of(replica)
    request = BatchesRequest(tier.pieces.pieces[0], 0, MAX, MAX, ALL)
    async with tier.plane.waiting_batches(request, tier.pieces) as held:
        with pytest.raises(InternalError):
            await held.send_to(None, SendRules(1, 1, 1))  # type: ignore[arg-type]


async def test_answers_side_by_side_are_each_whole(replica: ReplicaWriter) -> None:
    for _ in range(50):
        replica.append(3, value_bytes=500)
    replica.roll()
    tier = await tier_of(replica)
    found = await asyncio.gather(*(batches(tier, at, bytes_max=9_000) for at in range(0, 150, 7)))
    for at, (each, data) in zip(range(0, 150, 7), found, strict=True):
        headers = [batch.header for batch in scan(data, source="answer")]
        assert headers[0].base_offset <= at <= headers[0].last_offset
        assert headers[-1].last_offset + 1 == each.next_offset
