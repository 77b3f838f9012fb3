"""The fast way to read a manifest says what the general one says, or nothing."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats import offset_index
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.producer_snapshot import OpenTransaction
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.rebuild import stored_manifest
from pipeline.rebuild.stored_manifest import ToldSegment, told_by
from pipeline.rebuild.usual_manifest import usual_segment
from rlm.format.manifest import (
    MANIFEST_BYTES_MAX,
    ChunkChecksums,
    IndexRange,
    IndexType,
    Manifest,
    ObjectChecksums,
    ProducerSnapshotOrigin,
)
from rlm.format.object_keys import ObjectSuffix
from rlm.reconcile.adoption_plan import StoredSegment, WholeSegment, whole_segment
from rlmm.segment import RemoteLogSegmentId
from tests.rlm.format.test_manifest import OURS

INT64_MAX = 2**63 - 1
ids = st.binary(min_size=16, max_size=16).map(Uuid)
USUAL_MAX = 10**18 - 1
numbers = st.integers(0, USUAL_MAX)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Of a segment with any fields, and tables as long as they have to be."""
    start = draw(st.integers(0, USUAL_MAX - 1))
    end = draw(st.integers(start, USUAL_MAX))
    log_bytes = draw(st.integers(1, 1 << 23))
    chunk_bytes = draw(st.sampled_from([1 << 20, 1 << 18, log_bytes]))
    index_sizes = draw(st.lists(st.integers(0, 1 << 20), min_size=5, max_size=5))
    if draw(st.booleans()):
        index_sizes.pop()
    indexes = {
        index: IndexRange(sum(index_sizes[:at]), size)
        for at, (index, size) in enumerate(zip(IndexType, index_sizes, strict=False))
    }
    epochs = draw(st.dictionaries(st.integers(0, 2**31 - 1), numbers, min_size=1, max_size=4))
    topic = draw(st.text("aZ0._-", min_size=1, max_size=9).filter(lambda name: name.strip(".")))
    return Manifest(
        RemoteLogSegmentId(TopicIdPartition(topic, draw(ids), draw(st.integers(0, 99))), draw(ids)),
        start, end,
        draw(st.integers(-1, USUAL_MAX)), draw(st.integers(-1, 9)), draw(st.integers(-1, 1 << 45)),
        tuple(EpochEntry(*each) for each in sorted(epochs.items())),
        draw(st.booleans()), log_bytes, indexes,
        ObjectChecksums(
            _sums(draw, log_bytes, chunk_bytes),
            _sums(draw, sum(index_sizes), 1 << 18),
            draw(st.sampled_from(ProducerSnapshotOrigin)),
            draw(st.sampled_from([None, b"", _first_batches(log_bytes, chunk_bytes)])),
            draw(st.none() | st.lists(st.builds(OpenTransaction, numbers, numbers)).map(tuple)),
        ),
    )  # fmt: skip


def _sums(draw: st.DrawFn, size: int, chunk_bytes: int) -> ChunkChecksums:
    chunks = -(-size // chunk_bytes)
    crcs = st.integers(0, 2**32 - 1)
    return ChunkChecksums(size, draw(crcs), tuple(draw(crcs) for _ in range(chunks)), chunk_bytes)


def _first_batches(log_bytes: int, chunk_bytes: int) -> bytes:
    positions = range(chunk_bytes + 1, log_bytes, chunk_bytes)
    return offset_index.encode([(7 * at, at) for at in positions if 7 * at < 2**31], 0)


def listed(manifest: Manifest, data: bytes) -> StoredSegment:
    """The segment as a listing has it."""
    assert manifest.checksums is not None
    sizes = (manifest.log_bytes, manifest.checksums.indexes.size_bytes, len(data))
    return StoredSegment(
        manifest.segment_id,
        manifest.start_offset,
        "main",
        dict(zip(ObjectSuffix, sizes, strict=True)),
    )


def check(stored: StoredSegment, data: bytes) -> WholeSegment | None:
    """None, or what the general way says."""
    fast = usual_segment(stored, data)
    assert fast is None or fast == whole_segment(stored, data, None), data
    return fast


@given(manifests())
@settings(max_examples=400, deadline=None)
def test_what_we_write_is_read_the_fast_way(manifest: Manifest) -> None:
    data = manifest.encode()
    stored = listed(manifest, data)
    assert isinstance(whole_segment(stored, data, None), WholeSegment)
    assert check(stored, data) is not None


def test_no_changed_byte_makes_it_say_anything_else() -> None:
    data = OURS.encode()
    stored = listed(OURS, data)
    read = 0
    for at in range(len(data)):
        front, rest = data[:at], data[at + 1 :]
        for other in (b"", b"0", b"1", b"9", b"-", b"A", b"=", b'"', b",", b" ", b"\\", b"\xff"):
            read += check(stored, front + other + rest) is not None
            check(stored, front + other + data[at:])
    assert read > 500, "checksums, times and the like may be any"


def test_what_is_cut_short_or_goes_on_is_nothing_to_it() -> None:
    data = OURS.encode()
    stored = listed(OURS, data)
    for size in range(len(data)):
        assert check(stored, data[:size]) is None
    for end in (b" ", b"\n", b"}", b"\0", b",", data):
        assert usual_segment(stored, data + end) is None


def test_numbers_at_their_bounds_are_judged_alike() -> None:
    data = OURS.encode()
    stored = listed(OURS, data)
    values = (
        -2,
        -1,
        0,
        1,
        263,
        264,
        265,
        2**31,
        2**32 - 1,
        2**32,
        USUAL_MAX,
        USUAL_MAX + 1,
        INT64_MAX,
        INT64_MAX + 1,
        10**19,
    )
    texts = [*map(b"%d".__mod__, values), b"01", b"-0", b"1.0", b"1e1", b"null", b"true", b'"1"']
    for number in re.finditer(rb"(?<![A-Za-z0-9_-])-?[0-9]+(?![A-Za-z0-9_-])", data):
        for text in texts:
            check(stored, data[: number.start()] + text + data[number.end() :])


def test_epochs_are_judged_alike() -> None:
    data = OURS.encode()
    stored = listed(OURS, data)
    for text in (
        b"", b",", b'"1":1', b'"1":1,', b',"1":1', b'"1":1,,"2":2', b'"1":1"2":2', b'"2":2,"1":1',
        b'"1":1,"1":2', b'"01":1', b'"1":-1', b'"12345678901":1', b'"1":9223372036854775808',
        b"1:1",
    ):  # fmt: skip
        check(stored, data.replace(b'"9":100,"10":150', text))


def test_an_object_that_is_listed_otherwise_is_judged_alike() -> None:
    data = OURS.encode()
    stored = listed(OURS, data)
    assert check(stored, data) is not None
    partition = OURS.segment_id.partition
    for other in (
        replace(partition, topic="other"),
        replace(partition, topic_id=Uuid(bytes(16))),
        replace(partition, partition=4),
    ):
        segment_id = replace(stored.segment_id, partition=other)
        assert check(replace(stored, segment_id=segment_id), data) is None
    other_id = replace(stored.segment_id, id=Uuid(bytes(16)))
    assert check(replace(stored, segment_id=other_id), data) is None
    assert check(replace(stored, start_offset=101), data) is None
    for suffix in (ObjectSuffix.LOG, ObjectSuffix.INDEXES):
        for size in (None, 0, stored.sizes[suffix] + 1):
            sizes = {each: known for each, known in stored.sizes.items() if each is not suffix}
            sizes |= {} if size is None else {suffix: size}
            assert check(replace(stored, sizes=sizes), data) is None


def test_one_that_is_too_long_is_judged_alike() -> None:
    assert OURS.checksums is not None
    size = MANIFEST_BYTES_MAX // 5
    table = ChunkChecksums(size, 0, (0,) * size, 1)
    sums = replace(OURS.checksums, log=table, chunk_offset_index=None)
    manifest = replace(OURS, log_bytes=size, checksums=sums)
    data = manifest.encode()
    assert len(data) > MANIFEST_BYTES_MAX
    assert check(listed(manifest, data), data) is None


def test_where_the_module_is_not_built_the_general_way_says_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = OURS.encode()
    stored = listed(OURS, data)
    found = told_by(stored, data)
    assert isinstance(found, ToldSegment)
    monkeypatch.setattr(stored_manifest, "compiled", lambda name: None)
    assert told_by(stored, data) == found
