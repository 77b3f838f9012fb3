"""Segments of Aiven's plug-in, read by ranges: right, or refused, and no more than is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats import (
    leader_epoch_checkpoint,
    offset_index,
    producer_snapshot,
    time_index,
    transaction_index,
)
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, InvalidRequest, Refused, RetryLater, StrandlineError
from kafka_formats.record_batch import Record, encode_batch
from kafka_formats.transaction_index import AbortedTransaction
from rlm.data_plane.aiven_reader import READ_CHUNK_BYTES_MAX, READ_INDEX_BYTES_MAX
from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.read_request import (
    AivenSegment,
    IndexRequest,
    LogRequest,
    NoSuchIndex,
    RecordFormat,
    RecordsRequest,
    SegmentPiece,
    StorePlace,
)
from rlm.format.manifest import IndexType, parse_manifest
from rlm.format.object_keys import segment_keys
from rlmm.segment import RemoteLogSegmentMetadata
from rsm_backends.memory import MemoryStore
from tests.rlm.aiven_writer import KEY_ID, KEYS, AivenWriter
from tests.rlm.planner_facts import epochs, segment_row
from tests.rlm.tier import PREFIX, Pieces, now_ms

START, BATCHES, RECORDS = 500, 60, 3
KEY_FILES = {"main": {KEY_ID: KEYS / "private.pem"}}
WRITERS = {
    "plain": AivenWriter(1_000),
    "compressed": AivenWriter(1_000, compressed=True),
    "encrypted": AivenWriter(1_000, encrypted=True),
    "both": AivenWriter(1_000, compressed=True, encrypted=True),
}


@cache
def batches() -> tuple[bytes, ...]:
    """Three records a batch, of uneven sizes."""
    return tuple(
        encode_batch(
            [
                Record(at, 1_000 + at, None, f"v{at}-".encode() * (1 + at % 40), ())
                for at in range(base, base + RECORDS)
            ],
            base_offset=base,
        )
        for base in range(START, START + BATCHES * RECORDS, RECORDS)
    )


@cache
def log() -> bytes:
    return b"".join(batches())


@cache
def indexes() -> Mapping[IndexType, bytes]:
    positions = [(START + 3 * at + 2, len(b"".join(batches()[:at]))) for at in range(BATCHES)]
    aborted = AbortedTransaction(7, START, START + 10, START)
    return {
        IndexType.OFFSET: offset_index.encode(positions[3::3], START),
        IndexType.TIMESTAMP: time_index.encode(
            [(1_000 + at, at) for at, _ in positions[3::3]], START
        ),
        IndexType.PRODUCER_SNAPSHOT: producer_snapshot.encode(()),
        IndexType.LEADER_EPOCH: leader_epoch_checkpoint.encode(epochs((0, 0))),
        IndexType.TRANSACTION: transaction_index.encode([aborted]),
    }


class AskedStore(MemoryStore):
    """Notes what is asked for."""

    def __init__(self) -> None:
        super().__init__(now_ms)
        self.asked: list[tuple[str, int, int | None]] = []

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        self.asked.append((key.rpartition(".")[2], start, end))
        async for piece in super().get(key, start=start, end=end):
            yield piece


@dataclass
class Tier:
    """One segment in a store."""

    writer: AivenWriter
    key_files: Mapping[str, Mapping[str, Path]] = field(default_factory=lambda: KEY_FILES)
    chunk_cache_bytes_max: int = 0
    has_transactions: bool = True

    def __post_init__(self) -> None:
        last = START + BATCHES * RECORDS - 1
        row = replace(segment_row(1, START, last), size_bytes=len(log()))
        self.row: RemoteLogSegmentMetadata = replace(row, leader_epochs=((0, START),))
        self.store = AskedStore()
        self.segment = AivenSegment(
            row.segment_id, START, last, len(log()), not self.has_transactions,
            (StorePlace("main", PREFIX),),
        )  # fmt: skip
        self.keys = segment_keys(PREFIX, row.segment_id, START)
        given = {
            index: data
            for index, data in indexes().items()
            if self.has_transactions or index is not IndexType.TRANSACTION
        }
        self.objects = self.writer.objects(self.row, log(), given)
        self.renew()

    def renew(self) -> None:
        """Forget all that was read."""
        self.plane = DataPlane(
            {"main": self.store, "empty": MemoryStore(now_ms)},
            now_ms=now_ms,
            chunk_cache_bytes_max=self.chunk_cache_bytes_max,
            aiven_keys=self.key_files,
        )

    async def put(self, **changed: bytes) -> Tier:
        """Store the objects, some of them changed."""
        for suffix, data in {**self.objects, **changed}.items():
            await self.store.put(self.keys.stem + suffix, data, crc32c=crc32c(data))
        return self

    async def log(self, start: int = 0, end: int | None = None) -> bytes:
        stream = self.plane.read_log(LogRequest(self.segment, start, end))
        return b"".join([piece async for piece in stream])

    async def index(self, index: IndexType) -> bytes:
        stream = self.plane.read_index(IndexRequest(self.segment, index))
        return b"".join([piece async for piece in stream])

    async def or_source(self, reading: Awaitable[bytes]) -> bytes | str:
        """What is read, or the source of its damage."""
        try:
            return await reading
        except CorruptData as error:
            return error.source

    async def records(self, request: RecordsRequest) -> bytes:
        pieces = Pieces([SegmentPiece(self.segment, START, self.segment.end_offset)])
        return b"".join([piece async for piece in self.plane.read_records(request, pieces)])

    def manifest(self, **changed: object) -> bytes:
        document = json.loads(self.objects["rsm-manifest"])
        for path, value in changed.items():
            *parents, name = path.split("__")
            at = document
            for each in parents:
                at = at[each]
            at[name] = value
        return json.dumps(document).encode()


@settings(max_examples=10, deadline=None)
@given(
    chunk_bytes=st.integers(1, 3_000) | st.integers(len(log()) - 1, len(log()) + 9),
    compressed=st.booleans(),
    encrypted=st.booleans(),
    cache=st.sampled_from([0, 5_000, 10**6]),
    ranges=st.lists(
        st.tuples(st.integers(0, len(log())), st.integers(0, len(log()) + 5)), max_size=12
    ),
)
def test_every_range_is_that_of_the_whole(
    chunk_bytes: int, compressed: bool, encrypted: bool, cache: int, ranges: list[tuple[int, int]]
) -> None:
    async def main() -> None:
        writer = AivenWriter(max(chunk_bytes, 40), compressed=compressed, encrypted=encrypted)
        tier = await Tier(writer, chunk_cache_bytes_max=cache).put()
        assert await tier.log() == log()
        for start, end in ranges:
            if start <= end:
                assert await tier.log(start, end) == log()[start:end]
            else:
                with pytest.raises(InvalidRequest):
                    await tier.log(start, end)

    asyncio.run(main())


@pytest.mark.parametrize("name", WRITERS)
async def test_every_index_is_given_as_it_was(name: str) -> None:
    tier = await Tier(WRITERS[name]).put()
    for index, data in indexes().items():
        assert await tier.index(index) == data
    tier = await Tier(WRITERS[name], has_transactions=False).put()
    with pytest.raises(NoSuchIndex):
        await tier.index(IndexType.TRANSACTION)


@pytest.mark.parametrize("name", WRITERS)
async def test_records_are_read_from_any_offset(name: str) -> None:
    tier = await Tier(WRITERS[name]).put()
    for offset in range(START, tier.segment.end_offset + 1, 31):
        lines = await tier.records(RecordsRequest(offset, 10**6, format=RecordFormat.JSON_LINES))
        found = [json.loads(line)["offset"] for line in lines.splitlines()]
        assert found == list(range(offset, tier.segment.end_offset + 1))
        stored = await tier.records(RecordsRequest(offset, 10**6))
        assert stored == b"".join(batches()[(offset - START) // RECORDS :])


@pytest.mark.parametrize("name", ["encrypted", "both"])
async def test_only_the_chunks_of_a_range_are_fetched(name: str) -> None:
    tier = await Tier(WRITERS[name]).put()
    await tier.log(0, 1)
    tier.store.asked.clear()
    assert await tier.log(3_100, 4_900) == log()[3_100:4_900]
    sizes = [len(chunk) for chunk in _chunks(tier)]
    assert tier.store.asked == [("log", sum(sizes[:3]), sum(sizes[:5]))]


@pytest.mark.parametrize("name", ["plain", "compressed"])
async def test_without_tags_whole_batches_are_fetched_for_their_checksums(name: str) -> None:
    tier = await Tier(WRITERS[name]).put()
    await tier.log(0, 1)
    tier.store.asked.clear()
    at = len(b"".join(batches()[:20]))
    assert await tier.log(at + 5, at + 6) == log()[at + 5 : at + 6]
    ((_, start, end),) = tier.store.asked[:1]
    sizes = [0, *(len(chunk) for chunk in _chunks(tier))]
    begins = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    assert start in begins
    assert end is not None
    size = 256 * 1024 if name == "plain" else 8_000
    assert end - start <= size


def _chunks(tier: Tier) -> list[bytes]:
    """As they are stored, by decoding the manifest's own list of sizes."""
    transforms = parse_manifest(tier.objects["rsm-manifest"], source="m").transforms
    if transforms is None:
        return [tier.objects["log"]]
    data = tier.objects["log"]
    return [data[c.position : c.position + c.stored_bytes] for c in transforms.chunks.chunks()]


def without_unchecked_fields(data: bytes) -> bytes:
    """A batch's first offset and leader epoch are under no CRC."""
    changed, at = bytearray(data), 0
    for batch in batches():
        changed[at : at + 8] = bytes(8)
        changed[at + 12 : at + 16] = bytes(4)
        at += len(batch)
    return bytes(changed)


@pytest.mark.parametrize("name", WRITERS)
async def test_whatever_byte_of_the_log_is_damaged_no_wrong_byte_is_given(name: str) -> None:
    tier = Tier(WRITERS[name])
    stored = tier.objects["log"]
    await tier.put()
    authentic = tier.writer.encrypted
    refused = 0
    for position in range(0, len(stored), len(stored) // 50):
        damaged = bytearray(stored)
        damaged[position] ^= 0x10
        await tier.put(log=bytes(damaged))
        found = await tier.or_source(tier.log())
        if isinstance(found, str):
            assert found == tier.keys.log
            refused += 1
        else:
            assert not authentic
            assert without_unchecked_fields(found) == without_unchecked_fields(log())
    assert refused > 40
    for cut in (0, 10, len(stored) // 2, len(stored) - 1):
        await tier.put(log=stored[:cut])
        with pytest.raises(CorruptData):
            await tier.log()
    await tier.store.delete_many([tier.keys.log])
    with pytest.raises(CorruptData, match="not in the store"):
        await tier.log(0, 5)


async def test_a_batch_whose_first_offset_was_turned_is_not_given_wherever_the_range_ends() -> None:
    """No CRC covers it. The batch behind it tells, where there is one."""
    tier = Tier(WRITERS["compressed"])
    for number in range(12, 34):  # some of them are the last whole ones of a chunk
        changed = bytearray(log())
        at = len(b"".join(batches()[:number]))
        behind = at + len(batches()[number])
        base_offset = START + number * RECORDS
        bit = next(bit for bit in (64, 32, 16) if not base_offset & bit)
        changed[at : at + 8] = (base_offset + bit).to_bytes(8, "big")
        await tier.put(**tier.writer.objects(tier.row, bytes(changed), indexes()))
        tier.renew()
        for start, end in product((0, at - 1, at), (at + 1, behind - 1, behind, behind + 1)):
            with pytest.raises(CorruptData, match="is not within"):
                await tier.log(start, end)


@pytest.mark.parametrize("name", WRITERS)
async def test_damage_to_indexes_and_manifest_gives_no_wrong_bytes_of_the_log(name: str) -> None:
    tier = Tier(WRITERS[name])
    for suffix in ("indexes", "rsm-manifest"):
        stored = tier.objects[suffix]
        for position in range(7, len(stored), len(stored) // 12):
            damaged = bytearray(stored)
            damaged[position] ^= 0x04
            await tier.put(**{suffix: bytes(damaged)})
            tier.renew()
            for start in (0, 5_000):
                with contextlib.suppress(CorruptData, Refused):
                    assert await tier.log(start, 9_000) == log()[start:9_000]
        await tier.put()


async def test_encrypted_indexes_are_right_or_refused() -> None:
    tier = Tier(WRITERS["encrypted"])
    stored = tier.objects["indexes"]
    await tier.put()
    await tier.log(0, 1)  # the private key's power is slow: once
    right = indexes()
    for position in range(3, len(stored), len(stored) // 12):
        damaged = bytearray(stored)
        damaged[position] ^= 0x40
        await tier.put(indexes=bytes(damaged))
        tier.plane._reader._aivens._indexes._entries.clear()
        found = [await tier.or_source(tier.index(index)) for index in IndexType]
        assert found.count(tier.keys.indexes) == 1
        assert all(
            each in (tier.keys.indexes, right[index])
            for index, each in zip(IndexType, found, strict=True)
        )


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"chunkIndex__originalFileSize": 77}, CorruptData, "bytes"),
        ({"remoteLogSegmentMetadata__endOffset": 10**6}, CorruptData, "the metadata"),
        (
            {"segmentIndexes__offset": {"position": 0, "size": READ_INDEX_BYTES_MAX + 1}},
            Refused,
            "index",
        ),
        ({"segmentIndexes__offset": {"position": 0, "size": 5_000}}, CorruptData, "ends inside"),
        ({"segmentIndexes__offset": {"position": 0, "size": 7}}, CorruptData, "offset index"),
        ({"version": "2"}, CorruptData, "version"),
    ],
)
async def test_what_a_manifest_may_claim_is_bounded(
    changed: dict[str, object], kind: type[StrandlineError], words: str
) -> None:
    tier = Tier(WRITERS["plain"])
    await tier.put(**{"rsm-manifest": tier.manifest(**changed)})
    with pytest.raises(kind, match=words):
        await tier.log(600, 700)


async def test_chunks_too_large_for_a_node_are_refused() -> None:
    tier = Tier(WRITERS["encrypted"])
    index = json.loads(tier.objects["rsm-manifest"])["chunkIndex"]
    index |= {
        "originalChunkSize": READ_CHUNK_BYTES_MAX + 1,
        "transformedChunkSize": READ_CHUNK_BYTES_MAX + 29,
        "finalTransformedChunkSize": len(log()) + 28,
    }
    await tier.put(**{"rsm-manifest": tier.manifest(chunkIndex=index)})
    with pytest.raises(Refused, match="on Spark"):
        await tier.log(0, 1)


async def test_a_transaction_index_that_the_row_denies_is_no_answer() -> None:
    tier = await Tier(WRITERS["plain"]).put()
    tier.segment = replace(tier.segment, txn_index_empty=True)
    with pytest.raises(CorruptData, match="transaction index"):
        await tier.index(IndexType.OFFSET)


async def test_a_manifest_that_tells_nothing_of_a_transaction_index_is_damaged() -> None:
    """[LOSS-7] A reader takes a missing transaction index for "none was aborted"."""
    tier = Tier(WRITERS["plain"])
    damaged = tier.objects["rsm-manifest"].replace(b'"transaction"', b'"tRansaction"')
    await tier.put(**{"rsm-manifest": damaged})
    with pytest.raises(CorruptData, match=r"segmentIndexes.transaction is missing"):
        await tier.index(IndexType.TRANSACTION)


async def test_an_encrypted_segment_needs_its_private_key(tmp_path: Path) -> None:
    files: dict[str, Path] = {}
    tier = await Tier(WRITERS["both"], {"main": files}).put()
    with pytest.raises(Refused, match=r"'key1'.*stores\.main\.aiven_keys"):
        await tier.log(0, 1)
    for wrong in (KEYS / "public.pem", tmp_path / "absent.pem"):
        files[KEY_ID] = wrong
        with pytest.raises(Refused, match=r"stores\.main\.aiven_keys\.key1"):
            await tier.log(0, 1)
    files[KEY_ID] = KEYS / "private.pem"
    assert await tier.log(0, 1) == log()[:1]


async def test_the_store_that_has_the_manifest_is_found() -> None:
    tier = await Tier(WRITERS["plain"]).put()
    tier.segment = replace(
        tier.segment, places=(StorePlace("empty", ""), StorePlace("main", PREFIX))
    )
    assert await tier.log() == log()
    tier.segment = replace(tier.segment, places=(StorePlace("empty", ""), StorePlace("main", "")))
    tier.renew()
    with pytest.raises(Refused, match="none of the stores empty, main"):
        await tier.log()


class SilentStore(MemoryStore):
    """A store that is down."""

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        if key:
            raise RetryLater("it does not answer")
        yield b""


async def test_a_store_that_is_down_hides_no_segment_of_another() -> None:
    tier = await Tier(WRITERS["plain"]).put()
    tier.plane = DataPlane({"main": tier.store, "down": SilentStore(now_ms)}, now_ms=now_ms)
    down = StorePlace("down", "")
    tier.segment = replace(tier.segment, places=(down, StorePlace("main", PREFIX)))
    assert await tier.log() == log()
    tier.plane = DataPlane({"down": SilentStore(now_ms)}, now_ms=now_ms)
    tier.segment = replace(tier.segment, places=(down,))
    with pytest.raises(RetryLater, match="does not answer"):
        await tier.log()
