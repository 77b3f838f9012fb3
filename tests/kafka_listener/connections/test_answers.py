"""A client's answers while its broker answers oddly or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_client.connection import AnswerTooLargeError
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.error_codes import ErrorCode
from rlmm.wire.server_connection import DisconnectError
from tests.kafka_listener.connections.answers_scene import AnswersScene

TOO_LARGE = AnswerTooLargeError("an answer of 99999999 bytes is announced", source="broker-1:9092")


@pytest.mark.parametrize(
    ("asked", "topics"),
    [
        (None, []),
        ([{"name": "orders"}], [("orders", ErrorCode.LEADER_NOT_AVAILABLE)]),
    ],
)
async def test_metadata_too_large_to_read_is_asked_for_again(
    asked: Any, topics: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Without brokers clients take nothing of it: they keep what they know."""
    scene = AnswersScene(TOO_LARGE)
    for _ in range(3):
        body = await scene.ask(Api.METADATA, 12, {"topics": asked})
        assert body["brokers"] == []
        assert [(each["name"], each["error_code"]) for each in body["topics"]] == topics
    (line,) = caplog.messages
    assert "METADATA version 12" in line
    assert "99999999 bytes" in line
    assert scene.counts.refusals == 3


async def test_a_cluster_too_large_to_read_is_an_error_without_a_brokers_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = AnswersScene(TOO_LARGE)
    body = await scene.ask(Api.DESCRIBE_CLUSTER, 0, {})
    assert body["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "9092" not in body["error_message"]
    assert len(caplog.messages) == 1


async def test_a_relayed_answer_too_large_to_read_ends_the_connection_with_a_line() -> None:
    scene = AnswersScene(TOO_LARGE)
    with pytest.raises(DisconnectError, match=r"OFFSET_FETCH version 8.*99999999 bytes"):
        await scene.begin(Api.OFFSET_FETCH, 8, {"groups": []})


async def test_versions_are_answered_although_the_brokers_own_cannot_be_read() -> None:
    scene = AnswersScene(TOO_LARGE)
    scene.brokers.versions = scene.twin.api_versions
    body = await scene.ask(Api.API_VERSIONS, 3, {})
    assert body["error_code"] == ErrorCode.NONE
    assert Api.FETCH in {each["api_key"] for each in body["api_keys"]}
