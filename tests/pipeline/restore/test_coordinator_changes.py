"""A look at how far a restore came, while the cluster makes or moves the group's coordinator."""

from __future__ import annotations

from itertools import chain, count, repeat
from unittest import mock

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafka_formats.errors import Refused, RetryLater
from pipeline.process import ambient
from pipeline.restore import kafka_target
from pipeline.restore.kafka_target import KafkaAddress, Progress, committed_progress

CHANGES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def look(monkeypatch: pytest.MonkeyPatch, *answers: object) -> dict[int, Progress]:
    """With a consumer that gives these, the last one again and again, and a second between."""
    consumer = mock.Mock()
    consumer.committed.side_effect = chain(answers[:-1], repeat(answers[-1]))
    monkeypatch.setattr(kafka_target, "Consumer", lambda settings: consumer)
    monkeypatch.setattr(ambient, "monotonic", count().__next__)
    monkeypatch.setattr(ambient, "wait", lambda seconds: None)
    return committed_progress(KafkaAddress({"bootstrap.servers": "x:1"}), "orders", [0], "owner")


def failed(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def test_it_is_asked_again_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [TopicPartition("orders", 0, 7, "so far")]
    assert look(monkeypatch, *map(failed, CHANGES), found) == {0: Progress(7, "so far")}


@pytest.mark.parametrize("code", CHANGES)
def test_a_coordinator_that_does_not_come_is_tried_later(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    with pytest.raises(RetryLater):
        look(monkeypatch, failed(code))


def test_another_error_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [TopicPartition("orders", 0, 7, "so far")]
    with pytest.raises(Refused, match="rights that a restore needs"):
        look(monkeypatch, failed(KafkaError.GROUP_AUTHORIZATION_FAILED), found)
