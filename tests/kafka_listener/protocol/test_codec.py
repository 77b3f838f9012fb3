"""Requests as clients send them."""

from __future__ import annotations

import pytest

from kafka_client.frame_check import FrameError
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.codec import decode_request

ALL_TOPICS = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")
"""Metadata of librdkafka 2.16 (AdminClient.list_topics): no topics named, and three bytes behind
its end.
"""


def test_bytes_behind_the_end_of_a_request_are_let_through_as_brokers_do() -> None:
    request = decode_request(ALL_TOPICS)
    assert (request.head.api_key, request.head.version) == (Api.METADATA, 13)
    assert request.client_id == "rdkafka"
    assert request.body["topics"] is None


def test_a_request_that_ends_too_early_is_malformed() -> None:
    with pytest.raises(FrameError):
        decode_request(ALL_TOPICS[:-6])
