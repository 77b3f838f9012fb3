"""Kafka's own rules about segments, by the examples of Kafka's tests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.kafka_cache import Ignored, KafkaCache
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)

COPYING, COPIED, DELETING, DELETED = SegmentState
PARTITION = TopicIdPartition("orders", Uuid(b"topic-id-16bytes"), 0)
LIFE = {
    0: (0, 100, ((0, 0), (1, 20), (2, 80))),
    1: (101, 200, ((2, 101),)),
    2: (201, 300, ((2, 201), (3, 240))),
    3: (250, 400, ((3, 250), (4, 370))),
}


def id_of(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def started(
    number: int, start: int, end: int, epochs: Sequence[tuple[int, int]] = ()
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, id_of(number)),
        start,
        end,
        1,
        1_000,
        2_000,
        tuple(epochs) or ((0, start),),
        1_024,
        None,
        COPYING,
    )


def update(
    number: int, state: SegmentState, custom: bytes | None = None
) -> RemoteLogSegmentMetadataUpdate:
    id_ = RemoteLogSegmentId(PARTITION, id_of(number))
    return RemoteLogSegmentMetadataUpdate(id_, 2, 3_000, custom, state)


def copied(*segments: tuple[int, int]) -> KafkaCache:
    """Segments of epoch 0 that finished in this order."""
    cache = KafkaCache()
    for number, (start, end) in enumerate(segments):
        assert cache.add(started(number, start, end)) is None
        assert cache.update(update(number, COPIED)) is None
    return cache


@pytest.mark.parametrize(
    ("segments", "referenced", "unreferenced", "highest"),
    [
        ([(10, 100), (101, 200)], {10: 0, 101: 1}, set(), 200),
        ([(10, 100), (5, 150)], {5: 1}, {0}, 150),
        ([(10, 100), (5, 150), (148, 155), (4, 200)], {4: 3}, {0, 1, 2}, 200),
        ([(10, 100), (10, 100)], {10: 1}, {0}, 100),
        ([(10, 100), (10, 120)], {10: 1}, {0}, 120),
        ([(10, 200), (5, 150)], {5: 1, 10: 0}, set(), 200),
    ],
)
def test_a_later_segment_hides_those_that_it_covers(
    segments: list[tuple[int, int]],
    referenced: dict[int, int],
    unreferenced: set[int],
    highest: int,
) -> None:
    epoch = copied(*segments).epochs[0]
    assert epoch.by_start == {start: id_of(number) for start, number in referenced.items()}
    assert epoch.starts == sorted(referenced)
    assert epoch.unreferenced == {id_of(number) for number in unreferenced}
    assert epoch.highest_offset == highest


def life() -> KafkaCache:
    cache = KafkaCache()
    for number, (start, end, epochs) in LIFE.items():
        cache.add(started(number, start, end, epochs))
        cache.update(update(number, COPIED))
    return cache


@pytest.mark.parametrize(
    ("epoch", "offset", "number"),
    [(1, 40, 0), (2, 110, 1), (3, 240, 2), (3, 250, 3), (4, 375, 3)],
)
def test_an_offset_of_an_epoch_is_found(epoch: int, offset: int, number: int) -> None:
    row = life().look_up(epoch, offset)
    assert row is not None
    assert row.segment_id.id == id_of(number)


@pytest.mark.parametrize(("epoch", "offset"), [(1, 110), (4, 401), (5, 301), (2, 79)])
def test_an_offset_outside_the_epoch_is_not_found(epoch: int, offset: int) -> None:
    assert life().look_up(epoch, offset) is None


def test_highest_offsets_stay_when_a_segment_is_deleted() -> None:
    cache = life()
    expected = {0: 19, 1: 79, 2: 239, 3: 369, 4: 400}
    assert {epoch: cache.highest_offset(epoch) for epoch in range(5)} == expected
    assert cache.update(update(0, DELETING)) is None
    assert cache.look_up(1, 40) is None
    assert id_of(0) in cache.rows
    assert cache.update(update(0, DELETED)) is None
    assert id_of(0) not in cache.rows
    assert not any(epoch.unreferenced for epoch in cache.epochs.values())
    assert {epoch: cache.highest_offset(epoch) for epoch in range(6)} == {**expected, 5: None}


def test_what_an_unfinished_copy_has_is_not_found() -> None:
    cache = KafkaCache()
    cache.add(started(0, 0, 100))
    assert cache.look_up(0, 50) is None
    assert cache.highest_offset(0) is None
    assert cache.epochs[0].unreferenced == {id_of(0)}


def test_custom_metadata_is_replaced_also_by_none() -> None:
    cache = copied()
    cache.add(started(0, 0, 100))
    cache.update(update(0, COPIED, b"\xca\xfe"))
    row = cache.rows[id_of(0)]
    assert (row.custom_metadata, row.broker_id, row.event_timestamp_ms) == (b"\xca\xfe", 2, 3_000)
    cache.update(update(0, DELETING))
    assert cache.rows[id_of(0)].custom_metadata is None


def test_records_that_kafka_passes_over_change_nothing() -> None:
    cache = copied((0, 100))
    before = dict(cache.rows)
    not_a_start = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, id_of(7)), 0, 9, 1, 1, 1, ((0, 0),), 1, None, COPIED
    )
    assert cache.add(not_a_start) is Ignored.NOT_A_START
    assert cache.add(started(0, 0, 100)) is Ignored.INVALID_TRANSITION
    assert cache.update(update(9, DELETED)) is Ignored.UNKNOWN_SEGMENT
    assert cache.update(update(0, DELETED)) is Ignored.INVALID_TRANSITION
    assert cache.update(update(0, COPYING)) is Ignored.INVALID_TRANSITION
    assert dict(cache.rows) == before


def test_a_deletion_of_a_hidden_segment_leaves_the_one_that_hid_it() -> None:
    cache = copied((10, 100), (10, 120))
    cache.update(update(0, DELETING))
    found = cache.look_up(0, 50)
    assert found is not None
    assert found.segment_id.id == id_of(1)
    cache.update(update(0, DELETED))
    assert cache.epochs[0].unreferenced == set()
