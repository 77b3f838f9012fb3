"""Lines about clients that are sent away or wait."""

from __future__ import annotations

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.connections.read_counts import (
    LINES_KEPT_MAX,
    LINES_PER_S_MAX,
    REPEAT_S,
    SHOWN_CHARACTERS_MAX,
    ReadCounts,
)
from kafka_listener.reading.read_port import LostOffsets


def test_a_client_that_waits_is_told_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    counts = ReadCounts(lambda: now[0])
    for _ in range(2 * int(REPEAT_S) + 2):
        counts.not_available("the leader is away")
        now[0] += 0.5
    counts.not_available("another reason")
    lines = [each.getMessage() for each in caplog.records]
    assert [line.rsplit(": ")[-1] for line in lines] == [
        "the leader is away", "the leader is away", "another reason",
    ]  # fmt: skip
    assert counts.not_available_answers == 2 * int(REPEAT_S) + 3


def test_many_lines_of_a_second_are_counted_alone(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    counts = ReadCounts(lambda: now[0])
    for number in range(50):
        counts.refused(f"client {number}", "did something odd")
    assert len(caplog.records) == LINES_PER_S_MAX
    now[0] = 1.0
    counts.refused("client 49", "did something odd")
    assert len(caplog.records) == LINES_PER_S_MAX + 1, "it was not told before"
    for number in range(LINES_KEPT_MAX + 10):
        now[0] += 1
        counts.refused(f"client {number}", "did something odd")
    assert len(counts._told) == LINES_KEPT_MAX


def test_a_client_id_is_no_line_of_its_own_and_no_long_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = TopicIdPartition("orders", Uuid(bytes(range(16))), 0)
    client_id = "me\n2026-01-01 INFO strandline: all is well" + "x" * 30_000
    ReadCounts(lambda: 0.0).lost_range("a:1", client_id, partition, LostOffsets(1, 2, "gone"))
    (line,) = caplog.messages
    assert "\n" not in line
    assert len(line) < SHOWN_CHARACTERS_MAX + 200
