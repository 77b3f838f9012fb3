"""Reads of finished segments, across their borders."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats import offset_index
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, InternalError, InvalidRequest
from kafka_formats.offset_index import OffsetIndex, floor_position
from kafka_formats.record_batch import encode_batch
from rlm.data_plane.read_request import (
    IndexRequest,
    Isolation,
    LogRequest,
    RecordFormat,
    RecordsEnd,
    RecordsRequest,
    SegmentPiece,
    TieredSegment,
)
from rlm.data_plane.verified_chunks import VerifiedObject
from rlm.format.manifest import ChunkChecksums, IndexType
from rlm.local_log.log_dir import find_partitions
from rsm_backends.memory import MemoryStore
from rsm_backends.streams import closing_stream
from tests.rlm.broker_files import CAPTURED, ReplicaWriter, write_log_dir
from tests.rlm.tier import Tier, copy_job, only_partition

MAX = 10**9


class Stored:
    """Segments of a replica in the tier, and their batches as stored."""

    def __init__(self, tier: Tier, batches: list[tuple[int, int, bytes]]) -> None:
        self.tier = tier
        self.batches = batches

    def from_offset(self, offset: int, until: int = MAX) -> bytes:
        """The batches from the one that holds `offset`, up to the last at or below `until`."""
        return b"".join(data for _, last, data in self.batches if last >= offset and last <= until)


@pytest.fixture(params=[0, 45_000], ids=["", "through-a-cache-of-two-segments"])
async def stored(tmp_path: Path, request: pytest.FixtureRequest) -> Stored:
    """Three segments of 30 batches of 4 records, with a gap of 10 offsets between the last two."""
    replica = ReplicaWriter(write_log_dir(tmp_path))
    batches = []
    for number in range(90):
        first = replica.next_offset
        data = replica.append(4, value_bytes=150)
        batches.append((first, replica.next_offset - 1, data))
        if number == 59:
            replica.skip(10)
        if number % 30 == 29:
            replica.roll()
    tier = Tier(chunk_cache_bytes_max=request.param)
    partition = only_partition(tmp_path)
    for segment in partition.segments[:-1]:
        await tier.copy(copy_job(partition, segment))
    return Stored(tier, batches)


@pytest.mark.parametrize("offset", [0, 1, 3, 4, 77, 119, 120, 121, 239, 240, 245, 250, 369])
async def test_batches_are_given_exactly_as_stored(stored: Stored, offset: int) -> None:
    data, end = await stored.tier.records(RecordsRequest(offset, MAX))
    assert data == stored.from_offset(offset)
    assert (end.next_offset, end.stored_bytes, end.at_end) == (370, len(data), True)


@pytest.mark.parametrize("max_bytes", [1, 700, 4_000, 30_000])
async def test_reads_go_on_where_the_last_one_ended(stored: Stored, max_bytes: int) -> None:
    offset, pieces = 0, []
    for _ in range(200):
        data, end = await stored.tier.records(RecordsRequest(offset, max_bytes))
        pieces.append(data)
        assert end.stored_bytes == len(data)
        assert end.batches == 1 or len(data) <= max_bytes
        offset = end.next_offset
        if end.at_end:
            break
    assert b"".join(pieces) == stored.from_offset(0)


async def test_beyond_the_tier_there_is_nothing(stored: Stored) -> None:
    data, end = await stored.tier.records(RecordsRequest(370, MAX))
    assert (data, end) == (b"", RecordsEnd(370, 0, 0, at_end=True))


async def test_nothing_above_valid_until_is_served(stored: Stored) -> None:
    pieces = stored.tier.pieces
    first, second, _ = pieces.pieces
    for until, last in ((99, 99), (98, 95), (101, 99), (0, -1)):
        pieces.pieces = [replace(first, valid_until=until)]
        data, end = await stored.tier.records(RecordsRequest(0, MAX))
        assert data == stored.from_offset(0, last)
        assert (end.next_offset, end.at_end) == (until + 1, True)
    pieces.pieces = [replace(first, valid_until=99), second]
    data, _ = await stored.tier.records(RecordsRequest(50, MAX))
    assert data == b"".join(
        d for _, last, d in stored.batches if 50 <= last <= 99 or 120 <= last <= 239
    )


async def test_overlapping_segments_give_each_offset_once(tmp_path: Path, stored: Stored) -> None:
    """Another leader rolled elsewhere: its segment begins before the one before ends."""
    replica = ReplicaWriter(write_log_dir(tmp_path / "other"), next_offset=60)
    for _ in range(30):
        replica.append(4, value_bytes=150)
    replica.roll()
    partition = only_partition(tmp_path / "other")
    job = copy_job(partition, partition.segments[0], attempt=1)
    other = await stored.tier.copy(job)
    pieces = stored.tier.pieces.pieces
    stored.tier.pieces.pieces = [
        replace(pieces[0], valid_until=99),
        SegmentPiece(other, 100, 179),
        pieces[1],
        pieces[2],
    ]
    data, _ = await stored.tier.records(RecordsRequest(0, MAX))
    assert data == stored.from_offset(0)


async def test_behind_a_hole_a_segment_is_read_from_where_it_is_served(stored: Stored) -> None:
    """Its head may be of a leader outside the lineage, or what DeleteRecords took."""
    pieces = stored.tier.pieces
    first, second, _ = pieces.pieces
    pieces.pieces = [replace(first, valid_until=99), replace(second, first_offset=160)]
    data, end = await stored.tier.records(RecordsRequest(50, MAX))
    assert data == b"".join(
        d for _, last, d in stored.batches if 50 <= last <= 99 or 160 <= last <= 239
    )
    assert end.next_offset == second.valid_until + 1


@pytest.mark.parametrize("isolation", list(Isolation))
async def test_a_segment_that_compaction_left_without_a_byte_is_passed_over(
    tmp_path: Path, isolation: Isolation
) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.skip(10)
    replica.roll()
    batch = replica.append(4)
    replica.roll()
    tier, partition = Tier(), only_partition(tmp_path)
    for segment in partition.segments[:-1]:
        await tier.copy(copy_job(partition, segment))
    for offset in (0, 9, 10):
        data, end = await tier.records(RecordsRequest(offset, MAX, isolation=isolation))
        assert (data, end.next_offset, end.at_end) == (batch, 14, True)
    empty = tier.pieces.pieces[0].segment
    assert [piece async for piece in tier.plane.read_log(LogRequest(empty, 0, 0))] == []


async def test_json_lines_begin_at_the_very_offset(stored: Stored) -> None:
    request = RecordsRequest(77, 2_000, format=RecordFormat.JSON_LINES)
    data, end = await stored.tier.records(request)
    found = [json.loads(line)["offset"] for line in data.splitlines()]
    assert found == list(range(77, end.next_offset))
    assert end.stored_bytes <= 2_000


async def test_segments_are_resolved_one_at_a_time(stored: Stored) -> None:
    asked = stored.tier.pieces.asked
    stream = stored.tier.plane.read_records(RecordsRequest(0, MAX), stored.tier.pieces)
    await anext(stream)
    assert asked == [0]
    await stream.aclose()  # type: ignore[attr-defined] # it is an async generator
    assert asked == [0]


def named(stored: Stored, segment: int) -> str:
    """The id of the stored segment of this number, as keys have it."""
    return str(stored.tier.pieces.pieces[segment].segment.segment_id.id)


async def test_the_next_segment_is_fetched_while_the_one_before_it_ends(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    get = MemoryStore.get

    def noted(
        store: MemoryStore, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        asked.append(key)
        return get(store, key, start=start, end=end)

    monkeypatch.setattr(MemoryStore, "get", noted)
    stream = stored.tier.plane.read_records(RecordsRequest(0, MAX), stored.tier.pieces)
    data = await anext(stream)
    for _ in range(20):
        await asyncio.sleep(0)
    ahead = [key.rpartition(".")[2] for key in asked if named(stored, 1) in key]
    kept = stored.tier.chunk_cache_bytes_max > 0
    assert ahead == (["rsm-manifest", "log"] if kept else ["rsm-manifest"])
    assert not [key for key in asked if named(stored, 2) in key]
    data += b"".join([part async for part in stream])
    assert data == stored.from_offset(0)
    assert len(asked) == 6  # nothing twice
    behind = [piece.segment for piece in stored.tier.pieces.pieces[1:]]
    sizes = [each.custom_metadata.log_bytes for each in behind if isinstance(each, TieredSegment)]
    used = sum(sizes) if kept else 0
    counts = stored.tier.plane.chunk_counts
    assert (counts.ahead_used_bytes, counts.ahead_wasted_bytes) == (used, 0)


async def test_reads_side_by_side_are_each_right_whatever_is_kept_or_ahead(stored: Stored) -> None:
    """Some are left early: what came until then is right."""
    chance = random.Random(11)

    async def one(offset: int, max_bytes: int, pieces_max: int) -> None:
        request = RecordsRequest(offset, max_bytes)
        whole = stored.from_offset(offset)
        taken = b""
        stream = stored.tier.plane.read_records(request, stored.tier.pieces)
        async with closing_stream(stream):
            async for part in stream:
                taken += part
                await asyncio.sleep(0)
                pieces_max -= 1
                if pieces_max == 0:
                    break
        assert taken
        assert taken == whole[: len(taken)]
        assert pieces_max == 0 or len(whole) == len(taken) or len(taken) > max_bytes - 2_000

    for _ in range(20):
        reads = [
            one(chance.randrange(370), chance.randrange(1, 90_000), chance.randrange(4))
            for _ in range(6)
        ]
        await asyncio.gather(*reads)


async def test_what_a_read_does_not_reach_is_not_fetched(stored: Stored) -> None:
    request = RecordsRequest(0, 700)
    stream = stored.tier.plane.read_records(request, stored.tier.pieces)
    await anext(stream)
    for _ in range(20):
        await asyncio.sleep(0)
    assert stored.tier.pieces.asked == [0]


async def test_what_is_wrong_with_the_next_segment_is_told_when_its_turn_comes(
    stored: Stored,
) -> None:
    for key in await stored.tier.keys():
        if named(stored, 1) in key:
            await stored.tier.store.delete_many([key])
    stream = stored.tier.plane.read_records(RecordsRequest(0, MAX), stored.tier.pieces)
    assert await anext(stream) == stored.from_offset(0, 119)
    for _ in range(20):
        await asyncio.sleep(0)
    with pytest.raises(CorruptData, match="is not in the store"):
        await anext(stream)


async def test_a_read_that_is_left_leaves_no_fetch_behind(stored: Stored) -> None:
    before = asyncio.all_tasks()
    stream = stored.tier.plane.read_records(RecordsRequest(0, MAX), stored.tier.pieces)
    await anext(stream)
    assert asyncio.all_tasks() > before
    await stream.aclose()  # type: ignore[attr-defined]  # it is an async generator
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (RecordsRequest(-1, 5), "offset"),
        (RecordsRequest(2**63, 5), "offset"),
        (RecordsRequest(0, 0), "max_bytes"),
    ],
)
async def test_impossible_requests_are_refused(
    stored: Stored, request_: RecordsRequest, field: str
) -> None:
    with pytest.raises(InvalidRequest, match=field):
        await stored.tier.records(request_)


async def test_a_resolver_that_runs_in_circles_is_our_bug(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = stored.tier.pieces

    async def piece_at(offset: int) -> SegmentPiece:
        return pieces.pieces[0]

    monkeypatch.setattr(pieces, "piece_at", piece_at)
    with pytest.raises(InternalError, match="ends at 119"):
        await stored.tier.records(RecordsRequest(0, MAX))


async def test_log_bytes_are_given_for_any_range(stored: Stored) -> None:
    segment = stored.tier.pieces.pieces[0].segment
    log = b"".join(data for _, last, data in stored.batches if last < 120)
    for start, end in ((0, None), (0, 10), (17, 900), (len(log), None), (5, 10**12)):
        request = LogRequest(segment, start, end)
        found = b"".join([piece async for piece in stored.tier.plane.read_log(request)])
        assert found == log[start:end]


@pytest.mark.parametrize(("start", "end"), [(-1, None), (10, 9), (10**12, None)])
async def test_impossible_ranges_are_refused(stored: Stored, start: int, end: int | None) -> None:
    request = LogRequest(stored.tier.pieces.pieces[0].segment, start, end)
    with pytest.raises(InvalidRequest, match="range"):
        await anext(stored.tier.plane.read_log(request))


async def test_an_index_is_given_whole(stored: Stored) -> None:
    segment = stored.tier.pieces.pieces[0].segment
    stream = stored.tier.plane.read_index(IndexRequest(segment, IndexType.LEADER_EPOCH))
    assert b"".join([piece async for piece in stream]) == b"0\n1\n0 0\n"


@pytest.mark.parametrize("topic", ["codecs", "events", "profiles", "payments"])
async def test_captured_segments_are_read_back_from_every_offset(topic: str) -> None:
    for partition in find_partitions([CAPTURED / "log-dir"], kafka_cluster_id=None).partitions:
        if partition.partition.topic != topic:
            continue
        tier = Tier()
        await tier.copy_all(partition)
        logs = b"".join(
            (partition.directory / f"{piece.segment.start_offset:020}.log").read_bytes()
            for piece in tier.pieces.pieces
        )
        assert (await tier.records(RecordsRequest(0, MAX)))[0] == logs
        for offset in range(partition.segments[0].base_offset, partition.segments[-1].base_offset):
            data, _ = await tier.records(RecordsRequest(offset, 1))
            assert data == b"" or logs.endswith(data) or data in logs


def test_the_floor_is_found_without_parsing() -> None:
    entries = [(105, 4_200), (110, 9_000), (300, 12_345)]
    data = offset_index.encode(entries, 100)
    index = OffsetIndex.parse(data, base_offset=100, source="i")
    for offset in range(100, 400):
        assert floor_position(data, offset - 100) == index.lookup(offset)
    assert floor_position(b"", 5) == 0


async def test_a_batch_that_breaks_off_at_the_end_of_the_log_is_corrupt_data(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checksums right, log wrong: only if it was so when it was copied, which the copy refuses."""
    data = stored.from_offset(0)[:-3]
    await stored.tier.store.put("cut", data, crc32c=crc32c(data))
    checksums = ChunkChecksums(len(data), crc32c(data), (crc32c(data),))
    verified = VerifiedObject(stored.tier.store, "cut", checksums)

    async def log(_: object) -> VerifiedObject:
        return verified

    monkeypatch.setattr(stored.tier.plane._reader, "log", log)
    pieces = stored.tier.pieces
    pieces.pieces = [replace(pieces.pieces[0], valid_until=10**6)]
    with pytest.raises(CorruptData, match=r"ends|cut off"):
        await stored.tier.records(RecordsRequest(0, MAX))


@pytest.mark.parametrize("max_bytes", [1, 100, 200])
async def test_a_page_of_json_is_only_empty_at_the_end(tmp_path: Path, max_bytes: int) -> None:
    """Markers, and batches that the cleaner emptied, give no line and fill no page."""
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.append(1, producer_id=1, transactional=True)  # 0
    for _ in range(3):
        replica.end_transaction(1, commit=True)  # 1, 2, 3
    replica.append(1, value_bytes=9_000)  # 4
    emptied = encode_batch([], base_offset=5, last_offset=6, partition_leader_epoch=0)
    replica._take(emptied, 7)  # 5, 6
    replica.append(1, value_bytes=9_000)  # 7
    replica.end_transaction(1, commit=True)  # 8
    replica.roll()
    tier = Tier()
    partition = only_partition(tmp_path)
    await tier.copy(copy_job(partition, partition.segments[0]))
    offset, found = 0, list[list[int]]()
    while True:
        data, end = await tier.records(
            RecordsRequest(offset, max_bytes, format=RecordFormat.JSON_LINES)
        )
        found.append([json.loads(line)["offset"] for line in data.splitlines()])
        if end.at_end:
            break
        assert found[-1]
        offset = end.next_offset
    assert [offset for page in found for offset in page] == [0, 4, 7]
    assert end.next_offset == 9
