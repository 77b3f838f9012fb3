"""The chain of trust from the metadata log down to a chunk of an object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, NotFound, Refused
from kafka_formats.kafka_uuid import Uuid
from rlm.data_plane.read_request import Isolation, RecordsRequest, SegmentPiece, TieredSegment
from rlm.data_plane.segment_reader import SegmentReader
from rlm.format.manifest import IndexType
from rlm.format.object_keys import segment_keys
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.memory import MemoryStore
from rsm_backends.streams import read_all
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.tier import PREFIX, STORE, Tier, copy_job, first_job, now_ms, only_partition

AIVEN = Path(__file__).resolve().parents[2] / "data" / "aiven-manifests"


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    """Two small segments; the first with an aborted transaction."""
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.append(3, producer_id=1, transactional=True)
    replica.append(2)
    replica.end_transaction(1, commit=False)
    replica.roll()
    replica.append(4)
    replica.roll()
    return replica


@pytest.fixture
def tier() -> Tier:
    return Tier()


def reader_of(store: MemoryStore, cache_bytes_max: int = 1 << 20) -> SegmentReader:
    return SegmentReader({STORE: store}, cache_bytes_max=cache_bytes_max)


async def overwrite(store: MemoryStore, key: str, data: bytes) -> None:
    await store.put(key, data, crc32c=crc32c(data))


async def test_every_index_is_given_as_it_was(tier: Tier, replica: ReplicaWriter) -> None:
    segment = await tier.copy(first_job(replica.log_dir))
    reader = reader_of(tier.store)
    for index, suffix, offset in (
        (IndexType.OFFSET, ".index", 0),
        (IndexType.TIMESTAMP, ".timeindex", 0),
        (IndexType.TRANSACTION, ".txnindex", 0),
        (IndexType.PRODUCER_SNAPSHOT, ".snapshot", 6),
    ):
        assert await reader.index(segment, index) == replica.path(offset, suffix).read_bytes()
    assert await reader.index(segment, IndexType.LEADER_EPOCH) == b"0\n1\n0 0\n"


async def test_an_index_the_segment_lacks_is_not_found(tier: Tier, replica: ReplicaWriter) -> None:
    partition = only_partition(replica.log_dir)
    replica.path(6, ".snapshot").unlink()
    replica.path(10, ".snapshot").unlink()
    segment = await tier.copy(copy_job(partition, partition.segments[1]))
    for index in (IndexType.TRANSACTION, IndexType.PRODUCER_SNAPSHOT):
        with pytest.raises(NotFound, match=index.value):
            await reader_of(tier.store).index(segment, index)


async def test_an_absent_snapshot_is_not_found_once_another_index_was_read(
    tier: Tier, replica: ReplicaWriter
) -> None:
    """All indexes come with the first. A follower that got an empty snapshot would forget producers
    and open transactions.
    """
    partition = only_partition(replica.log_dir)
    replica.path(6, ".snapshot").unlink()
    replica.path(10, ".snapshot").unlink()
    segment = await tier.copy(copy_job(partition, partition.segments[1]))
    reader = reader_of(tier.store)
    assert await reader.index(segment, IndexType.LEADER_EPOCH)
    for _ in range(2):
        with pytest.raises(NotFound, match=IndexType.PRODUCER_SNAPSHOT.value):
            await reader.index(segment, IndexType.PRODUCER_SNAPSHOT)


class Meeting(MemoryStore):
    """Answers about a key only once the other one was asked for as well."""

    def __init__(self) -> None:
        super().__init__(now_ms)
        self.asked: list[str] = []
        self.both = asyncio.Event()

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        self.asked.append(key.rpartition(".")[2])
        if len(self.asked) == 2:
            self.both.set()
        await self.both.wait()
        async for piece in super().get(key, start=start, end=end):
            yield piece


async def test_manifest_and_indexes_are_asked_for_together(replica: ReplicaWriter) -> None:
    tier = Tier(Meeting())
    segment = await tier.copy(first_job(replica.log_dir))
    async with asyncio.timeout(60):
        await reader_of(tier.store).index(segment, IndexType.OFFSET)
    assert isinstance(tier.store, Meeting)
    assert sorted(tier.store.asked) == ["indexes", "rsm-manifest"]


async def test_damaged_indexes_are_found_where_they_are_although_asked_for_ahead(
    tier: Tier, replica: ReplicaWriter
) -> None:
    segment = await tier.copy(first_job(replica.log_dir))
    key = segment_keys(PREFIX, segment.segment_id, segment.start_offset).indexes
    data = bytearray(await read_all(tier.store, key))
    data[-1] ^= 1
    await overwrite(tier.store, key, bytes(data))
    with pytest.raises(CorruptData, match=key) as caught:
        await reader_of(tier.store).index(segment, IndexType.LEADER_EPOCH)
    assert caught.value.position == 0


async def test_no_request_for_indexes_outlives_a_manifest_that_is_missing(
    tier: Tier, replica: ReplicaWriter
) -> None:
    segment = await tier.copy(first_job(replica.log_dir))
    keys = segment_keys(PREFIX, segment.segment_id, segment.start_offset)
    await tier.store.delete_many([keys.manifest])
    with pytest.raises(CorruptData, match="manifest"):
        await reader_of(tier.store).index(segment, IndexType.OFFSET)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_is_cached_is_not_fetched_again(tier: Tier, replica: ReplicaWriter) -> None:
    segment = await tier.copy(first_job(replica.log_dir))
    reader = reader_of(tier.store)
    first = await reader.index(segment, IndexType.OFFSET)
    times = await reader.index(segment, IndexType.TIMESTAMP)
    await tier.store.delete_many(await tier.keys())
    assert await reader.index(segment, IndexType.OFFSET) == first
    assert await reader.index(segment, IndexType.TIMESTAMP) == times
    with pytest.raises(CorruptData):
        await reader_of(tier.store, cache_bytes_max=0).index(segment, IndexType.OFFSET)


async def outcome(store: MemoryStore, segment: TieredSegment) -> list[bytes]:
    """Everything that can be read of a segment."""
    reader = reader_of(store)
    log = await reader.log(segment)
    return [
        b"".join([p async for parts in log.stream(0, log.size_bytes) for p in parts]),
        *[await reader.index(segment, index) for index in IndexType],
    ]


@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
async def test_whatever_byte_of_an_object_is_damaged_no_wrong_byte_is_given(
    tier: Tier, replica: ReplicaWriter, suffix: str
) -> None:
    segment = await tier.copy(first_job(replica.log_dir))
    right = await outcome(tier.store, segment)
    (key,) = [key for key in await tier.keys() if key.endswith(f".{suffix}")]
    data = await read_all(tier.store, key)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x04
        await overwrite(tier.store, key, bytes(damaged))
        with pytest.raises(CorruptData) as caught:
            await outcome(tier.store, segment)
        assert caught.value.source == key
    for cut in (0, len(data) // 2, len(data) - 1):
        await overwrite(tier.store, key, data[:cut])
        with pytest.raises(CorruptData):
            await outcome(tier.store, segment)
    await overwrite(tier.store, key, data)
    assert await outcome(tier.store, segment) == right


async def test_records_of_damaged_objects_are_right_or_refused(
    tier: Tier, replica: ReplicaWriter
) -> None:
    """The same through the whole read: committed records, from the middle of the segment."""
    segment = await tier.copy(first_job(replica.log_dir))
    tier.pieces.pieces = [SegmentPiece(segment, segment.start_offset, segment.end_offset)]
    request = RecordsRequest(3, 10_000, Isolation.READ_COMMITTED)
    right, _ = await tier.records(request)
    for key in await tier.keys():
        data = await read_all(tier.store, key)
        refused = 0
        for position in range(0, len(data), 3):
            damaged = bytearray(data)
            damaged[position] ^= 0x80
            await overwrite(tier.store, key, bytes(damaged))
            tier.__post_init__()
            try:
                found, _ = await tier.records(request)
            except CorruptData:
                refused += 1
            else:
                assert found == right
        assert refused > 0
        await overwrite(tier.store, key, data)


async def test_a_store_this_node_does_not_have_is_refused(
    tier: Tier, replica: ReplicaWriter
) -> None:
    segment = await tier.copy(first_job(replica.log_dir))
    other = replace(segment, custom_metadata=replace(segment.custom_metadata, store="archive"))
    with pytest.raises(Refused, match=r"\[stores\.archive\]"):
        await reader_of(tier.store).manifest(other)


async def test_a_manifest_of_another_segment_is_corrupt_data(
    tier: Tier, replica: ReplicaWriter
) -> None:
    segment = await tier.copy(first_job(replica.log_dir))
    id_ = RemoteLogSegmentId(segment.segment_id.partition, Uuid(b"another-segment!"))
    source = segment_keys(PREFIX, segment.segment_id, 0).manifest
    target = segment_keys(PREFIX, id_, 0).manifest
    await overwrite(tier.store, target, await read_all(tier.store, source))
    with pytest.raises(CorruptData, match="manifest of a different segment"):
        await reader_of(tier.store).manifest(replace(segment, segment_id=id_))


async def test_a_manifest_that_differs_from_the_log_is_corrupt_data(
    tier: Tier, replica: ReplicaWriter
) -> None:
    segment = await tier.copy(first_job(replica.log_dir))
    recorded = segment.custom_metadata
    for other in (
        replace(segment, end_offset=segment.end_offset + 1),
        replace(segment, custom_metadata=replace(recorded, log_bytes=recorded.log_bytes + 1)),
        replace(segment, custom_metadata=replace(recorded, log_crc32c=7)),
        replace(segment, custom_metadata=replace(recorded, indexes_crc32c=7)),
    ):
        with pytest.raises(CorruptData, match="manifest of a different segment"):
            await reader_of(tier.store).manifest(other)


async def stored_manifest(store: MemoryStore, segment: TieredSegment, data: bytes) -> TieredSegment:
    """The segment, as if `data` were the manifest that the metadata log recorded."""
    key = segment_keys(segment.prefix, segment.segment_id, segment.start_offset).manifest
    await overwrite(store, key, data)
    recorded = replace(
        segment.custom_metadata, manifest_bytes=len(data), manifest_crc32c=crc32c(data)
    )
    return replace(segment, custom_metadata=recorded)


async def test_a_manifest_without_our_checksums_is_not_trusted(
    tier: Tier, replica: ReplicaWriter
) -> None:
    segment = await tier.copy(first_job(replica.log_dir))
    foreign = await stored_manifest(tier.store, segment, (AIVEN / "transactions.json").read_bytes())
    with pytest.raises(CorruptData, match="has no checksums"):
        await reader_of(tier.store).manifest(foreign)


async def test_a_manifest_of_impossible_length_is_not_fetched(
    tier: Tier, replica: ReplicaWriter
) -> None:
    segment = await tier.copy(first_job(replica.log_dir))
    huge = replace(segment, custom_metadata=replace(segment.custom_metadata, manifest_bytes=2**62))
    with pytest.raises(CorruptData, match="too many"):
        await reader_of(tier.store).manifest(huge)


async def test_a_missing_object_is_damage_and_never_nothing(
    tier: Tier, replica: ReplicaWriter
) -> None:
    """To a broker "not found" of a transaction index means that nothing was aborted."""
    segment = await tier.copy(first_job(replica.log_dir))
    for key in sorted(await tier.keys()):
        data = await read_all(tier.store, key)
        await tier.store.delete_many([key])
        with pytest.raises(CorruptData, match="is not in the store") as caught:
            await outcome(tier.store, segment)
        assert (caught.value.source, caught.value.position) == (key, 0)
        if not key.endswith(".log"):
            with pytest.raises(CorruptData, match="is not in the store"):
                await reader_of(tier.store).index(segment, IndexType.TRANSACTION)
        await overwrite(tier.store, key, data)
