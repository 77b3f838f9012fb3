"""Manifests: Aiven's own, and ours, which must stay readable for Aiven's reader."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats import offset_index
from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.producer_snapshot import OpenTransaction
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.manifest import (
    CHUNK_BYTES,
    MANIFEST_BYTES_MAX,
    ChunkChecksums,
    IndexRange,
    IndexType,
    Manifest,
    ObjectChecksums,
    ProducerSnapshotOrigin,
    parse_manifest,
)
from rlmm.segment import RemoteLogSegmentId

AIVEN = Path(__file__).resolve().parents[2] / "data" / "aiven-manifests"
LOG_BYTES = 5 * 1024 * 1024 + 17
OURS = Manifest(
    segment_id=RemoteLogSegmentId(
        TopicIdPartition("orders", Uuid(b"orders-topic-id!"), 3), Uuid(b"segment-id-16-by")
    ),
    start_offset=100,
    end_offset=299,
    max_timestamp_ms=1_700_000_000_000,
    broker_id=1,
    event_timestamp_ms=1_700_000_000_123,
    leader_epochs=(EpochEntry(9, 100), EpochEntry(10, 150)),
    txn_index_empty=False,
    log_bytes=LOG_BYTES,
    indexes={
        IndexType.OFFSET: IndexRange(0, 80),
        IndexType.TIMESTAMP: IndexRange(80, 120),
        IndexType.PRODUCER_SNAPSHOT: IndexRange(200, 10),
        IndexType.LEADER_EPOCH: IndexRange(210, 20),
        IndexType.TRANSACTION: IndexRange(230, 34),
    },
    checksums=ObjectChecksums(
        ChunkChecksums(LOG_BYTES, 0xDEADBEEF, (1, 2, 3, 4, 5, 2**32 - 1), 1024 * 1024),
        ChunkChecksums(264, 7, (7,)),
        ProducerSnapshotOrigin.COPIED,
        offset_index.encode([(110, 1024 * 1024 + 5), (150, 3 * 1024 * 1024)], 100),
    ),
)


def aiven(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((AIVEN / f"{name}.json").read_bytes())
    return document


def parse(document: object) -> Manifest:
    return parse_manifest(json.dumps(document).encode(), source="m")


def test_a_manifest_of_aivens_writer_is_read() -> None:
    manifest = parse(aiven("transactions"))
    assert str(manifest.segment_id.id) == "G5njkNIVRCChwCbQpJs3-w"
    assert (manifest.start_offset, manifest.end_offset) == (9222, 12479)
    assert manifest.log_bytes == 1041833
    assert manifest.leader_epochs == (EpochEntry(0, 9222),)
    assert manifest.indexes[IndexType.TRANSACTION] == IndexRange(2112, 714)
    assert not manifest.txn_index_empty
    assert manifest.checksums is None


def test_aivens_own_transforms_are_told() -> None:
    assert parse(aiven("plain")).indexes.get(IndexType.TRANSACTION) is None
    assert parse(aiven("plain")).transforms is None
    compressed = parse(aiven("compressed")).transforms
    assert compressed is not None
    assert (compressed.compressed, compressed.encryption) == (True, None)
    encrypted = parse(aiven("encrypted")).transforms
    assert encrypted is not None
    assert encrypted.compressed
    assert encrypted.encryption is not None


def test_ours_is_read_back() -> None:
    assert parse_manifest(OURS.encode(), source="m") == OURS
    without = replace(OURS, indexes={i: r for i, r in OURS.indexes.items() if i != "transaction"})
    assert parse_manifest(without.encode(), source="m") == without
    assert OURS.checksums is not None
    older = replace(OURS, checksums=replace(OURS.checksums, chunk_offset_index=None))
    assert parse_manifest(older.encode(), source="m") == older
    for opened in (None, (OpenTransaction(7, 40), OpenTransaction(2**62, 99))):
        told = replace(OURS, checksums=replace(OURS.checksums, open_at_base=opened))
        assert parse_manifest(told.encode(), source="m") == told


def test_ours_of_a_segment_that_compaction_left_without_a_byte_is_read_back() -> None:
    assert OURS.checksums is not None
    nothing = replace(OURS.checksums, log=ChunkChecksums(0, 0, ()), chunk_offset_index=b"")
    empty = replace(OURS, log_bytes=0, checksums=nothing)
    assert parse_manifest(empty.encode(), source="m") == empty
    leaves = replace(nothing, chunk_offset_index=offset_index.encode([(110, 5)], 100))
    with pytest.raises(CorruptData, match="chunkOffsetIndex"):
        parse_manifest(replace(empty, checksums=leaves).encode(), source="m")


def test_ours_has_unknown_fields_only_where_aivens_reader_ignores_them() -> None:
    ours, theirs = json.loads(OURS.encode()), aiven("transactions")
    assert list(ours) == list(theirs)
    assert list(ours["segmentIndexes"]) == list(theirs["segmentIndexes"])
    assert ours["chunkIndex"].keys() == theirs["chunkIndex"].keys()
    segment = ours["remoteLogSegmentMetadata"]
    assert segment.keys() - theirs["remoteLogSegmentMetadata"].keys() == {"strandline"}
    assert ours["compression"] is False
    plain = json.loads(replace(OURS, indexes={IndexType.OFFSET: IndexRange(0, 0)}).encode())
    assert plain["segmentIndexes"]["transaction"] is None


@pytest.mark.parametrize(
    ("log_bytes", "last"),
    [(0, 0), (1, 1), (4 << 20, 4 << 20), ((4 << 20) + 1, 1), (LOG_BYTES, LOG_BYTES - (4 << 20))],
)
def test_the_last_chunk_is_what_is_left(log_bytes: int, last: int) -> None:
    chunks = json.loads(replace(OURS, log_bytes=log_bytes).encode())["chunkIndex"]
    assert chunks["originalFileSize"] == log_bytes
    assert chunks["finalTransformedChunkSize"] == last


def strandline(document: dict[str, Any]) -> dict[str, Any]:
    ours: dict[str, Any] = document["remoteLogSegmentMetadata"]["strandline"]
    return ours


def changed(path: str, value: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(OURS.encode())
    *parents, name = path.split(".")
    target = document
    for parent in parents:
        target = target[parent]
    target[name] = value
    return document


SEGMENT = "remoteLogSegmentMetadata"
MARK = f"{SEGMENT}.strandline"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", "2"),
        ("version", 1),
        ("compression", None),
        ("compression", True),
        ("encryption", {"dataKey": "k", "aad": "a"}),
        ("chunkIndex", []),
        ("chunkIndex.originalFileSize", LOG_BYTES - 1),
        ("segmentIndexes.offset", None),
        ("segmentIndexes.transaction", {"position": 260, "size": 5}),
        ("segmentIndexes.transaction", {"position": -1, "size": 5}),
        (f"{SEGMENT}.endOffset", 99),
        (f"{SEGMENT}.startOffset", 2**63),
        (f"{SEGMENT}.startOffset", True),
        (f"{SEGMENT}.segmentLeaderEpochs", {"-1": 5}),
        (f"{SEGMENT}.segmentLeaderEpochs", {"١": 5}),
        (f"{SEGMENT}.txnIdxEmpty", "no"),
        (f"{SEGMENT}.remoteLogSegmentId.id", "short"),
        (f"{SEGMENT}.remoteLogSegmentId.topicIdPartition.topicPartition.topic", "../x"),
        (f"{MARK}.version", 2),
        (f"{MARK}.producerSnapshot", "guessed"),
        (f"{MARK}.log.chunkCrc32c", "!"),
        (f"{MARK}.log.chunkCrc32c", "AAAA"),
        (f"{MARK}.log.chunkOffsetIndex", "!"),
        (f"{MARK}.log.chunkOffsetIndex", None),
        (f"{MARK}.log.chunkBytes", 0),
        (f"{MARK}.log.chunkBytes", 2**40),
        (f"{MARK}.log.crc32c", 2**32),
    ],
)
def test_a_wrong_field_is_corrupt_data(path: str, value: object) -> None:
    with pytest.raises(CorruptData):
        parse(changed(path, value))


def test_a_wrong_field_of_any_length_is_shown_in_one_short_line() -> None:
    for name in ("9" * 5_000, "\n" * 50, "\ud800"):
        with pytest.raises(CorruptData) as caught:
            parse(changed(f"{SEGMENT}.segmentLeaderEpochs", {name: 5}))
        assert len(str(caught.value)) < 500
        assert str(caught.value).isprintable()


def test_a_variable_number_of_damaged_bytes_is_never_another_error() -> None:
    data = OURS.encode()
    for position in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[position] ^= 0x5A
        try:
            parse_manifest(bytes(damaged), source="m")
        except CorruptData:
            continue


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_other_json_is_corrupt_data_and_nothing_else(document: object) -> None:
    with pytest.raises(CorruptData):
        parse(document)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"[" * 100_000, b"1" * 10_000, bytes(MANIFEST_BYTES_MAX + 1)]
)
def test_what_is_no_json_is_corrupt_data(data: bytes) -> None:
    with pytest.raises(CorruptData):
        parse_manifest(data, source="m")


def test_the_table_has_one_checksum_a_chunk() -> None:
    assert ChunkChecksums(0, 0, ()).chunks_expected == 0
    assert ChunkChecksums(CHUNK_BYTES, 0, (1,)).chunks_expected == 1
    assert ChunkChecksums(CHUNK_BYTES + 1, 0, (1, 2)).chunks_expected == 2
