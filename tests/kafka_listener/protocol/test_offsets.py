"""ListOffsets and OffsetForLeaderEpoch of two: the tier and the leader."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_listener.protocol import offsets
from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.protocol.offsets import Asked
from kafka_listener.reading.read_port import EpochEnd, FoundOffset
from rlmm.wire.schema import Values


def request(*timestamps: int) -> Values:
    partitions = [
        {"partition_index": number, "timestamp": timestamp}
        for number, timestamp in enumerate(timestamps)
    ]
    return {"replica_id": 3, "topics": [{"name": "orders", "partitions": partitions}]}


def answered(
    timestamp: int, tier: FoundOffset | ErrorCode | None, leader: tuple[int, int] | int | None
) -> tuple[int, int]:
    """(error, offset) for one partition; `leader`: (timestamp, offset), or its error."""
    said: dict[tuple[str, int], Any] = {}
    if isinstance(leader, int):
        said["orders", 0] = {"partition_index": 0, "error_code": leader}
    elif leader is not None:
        said["orders", 0] = {
            "partition_index": 0, "error_code": 0, "timestamp": leader[0], "offset": leader[1],
        }  # fmt: skip
    asked = Asked("orders", 0, timestamp)
    body = offsets.merged(request(timestamp), said, {} if tier is None else {asked: tier})
    (one,) = body["topics"][0]["partitions"]
    return one["error_code"], one.get("offset", -1)


@pytest.mark.parametrize(
    ("timestamp", "tier", "leader", "expected"),
    [
        (offsets.LATEST, None, (-1, 500), (0, 500)),
        (offsets.LATEST, None, None, (ErrorCode.LEADER_NOT_AVAILABLE, -1)),
        (offsets.EARLIEST, FoundOffset(-1, 0, 2), (-1, 300), (0, 0)),
        (offsets.EARLIEST, FoundOffset(-1, 0, 2), None, (0, 0)),
        (offsets.EARLIEST, None, (-1, 300), (0, 300)),
        (1_000, FoundOffset(1_001, 40, 2), None, (0, 40)),
        (1_000, None, (2_000, 320), (0, 320)),
        (offsets.MAX_TIMESTAMP, FoundOffset(900, 40, 2), (1_000, 320), (0, 320)),
        (offsets.MAX_TIMESTAMP, FoundOffset(1_000, 40, 2), (1_000, 320), (0, 40)),
        (offsets.MAX_TIMESTAMP, FoundOffset(1_000, 40, 2), (-1, -1), (0, 40)),
        (offsets.MAX_TIMESTAMP, FoundOffset(1_000, 40, 2), None, (5, -1)),
        (offsets.MAX_TIMESTAMP, FoundOffset(1_000, 40, 2), 6, (6, -1)),
        (offsets.EARLIEST, ErrorCode.LEADER_NOT_AVAILABLE, (-1, 300), (5, -1)),
    ],
)
def test_the_tier_answers_for_what_it_holds_and_the_leader_for_the_rest(
    timestamp: int, tier: FoundOffset | ErrorCode | None, leader: Any, expected: tuple[int, int]
) -> None:
    assert answered(timestamp, tier, leader) == expected


def test_the_leader_is_asked_as_a_consumer_for_what_is_left() -> None:
    body = request(offsets.EARLIEST, offsets.LATEST, 1_000)
    left = offsets.without(body, [Asked("orders", 0, offsets.EARLIEST)])
    assert left["replica_id"] == -1
    assert [each.partition for each in offsets.asked_in(left)] == [1, 2]
    assert offsets.without(body, offsets.asked_in(body))["topics"] == []


@pytest.mark.parametrize(
    ("timestamp", "asked"),
    [(-1, False), (-2, True), (-3, True), (-4, False), (-5, True), (-6, False), (0, True)],
)
def test_special_offsets_that_are_the_leaders_alone(timestamp: int, asked: bool) -> None:
    assert offsets.tier_is_asked(timestamp) is asked


def epochs(error: int = 0) -> Values:
    one = {"partition": 0, "error_code": error, "leader_epoch": 4, "end_offset": 300}
    return {"topics": [{"topic": "orders", "partitions": [one]}]}


def test_the_tiers_end_of_an_old_epoch_takes_the_place_of_the_leaders_but_not_of_its_error() -> (
    None
):
    body = epochs()
    offsets.with_epoch_ends(body, {("orders", 0): EpochEnd(2, 120)})
    assert body["topics"][0]["partitions"][0]["end_offset"] == 120
    fenced = epochs(74)
    offsets.with_epoch_ends(fenced, {("orders", 0): EpochEnd(2, 120)})
    assert fenced["topics"][0]["partitions"][0]["error_code"] == 74
    assert fenced["topics"][0]["partitions"][0]["end_offset"] == 300


def test_without_a_leader_an_epoch_that_the_tier_does_not_know_is_asked_for_again() -> None:
    asked = {"topics": [{"topic": "orders", "partitions": [{"partition": 0}, {"partition": 1}]}]}
    body = offsets.no_epoch_ends(asked, {("orders", 1): EpochEnd(2, 120)})
    first, second = body["topics"][0]["partitions"]
    assert first["error_code"] == ErrorCode.LEADER_NOT_AVAILABLE
    assert (second["error_code"], second["end_offset"]) == (0, 120)
