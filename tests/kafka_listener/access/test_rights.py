"""Rights as brokers tell them, and topics as the settings give them."""

from __future__ import annotations

import pytest

from kafka_listener.access import rights
from kafka_listener.access.rights import (
    ALL,
    EVERYTHING,
    NO_RIGHTS,
    ReadableTopics,
    Rights,
    RightsOrError,
)
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.codec import Head, decode_response, encode_response
from rlmm.wire.schema import Values

HEAD = Head(Api.METADATA, 12, 1)


def metadata(*topics: Values) -> Values:
    body = {
        "brokers": [], "cluster_id": "c", "controller_id": 1,
        "topics": [{"error_code": 0, "partitions": [], **topic} for topic in topics],
    }  # fmt: skip
    return decode_response(HEAD, encode_response(HEAD, body)[4:])


def test_the_bits_of_a_brokers_answer() -> None:
    body = metadata(
        {"name": "all", "topic_authorized_operations": 0b1_0000_1000},
        {"name": "described", "topic_authorized_operations": 0b1_0000_0000},
        {"name": "written", "topic_authorized_operations": 0b1_0001_0000},
        {"name": "refused", "error_code": 29},
        {"name": "gone", "error_code": 3},
        {"name": "not told"},
        {"name": None, "topic_id": bytes(range(16)), "error_code": 100},
    )
    described = Rights(describe=True, read=False)
    assert rights.rights_in(body) == {
        "all": ALL, "described": described, "written": described, "refused": NO_RIGHTS, "gone": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("told", "fetch", "offsets"),
    [
        (ALL, 0, 0),
        (Rights(describe=True, read=False), 29, 0),
        (NO_RIGHTS, 29, 29),
        (3, 3, 5),
        (None, 78, 5),
    ],
)
def test_errors_are_kafkas_and_nobody_asked_is_asked_again(
    told: RightsOrError | None, fetch: int, offsets: int
) -> None:
    assert (rights.fetch_error(told), rights.offset_error(told)) == (fetch, offsets)


def test_topics_are_given_by_patterns() -> None:
    assert EVERYTHING.allows("orders")
    some = ReadableTopics(("orders", "logs.*"))
    assert [some.allows(each) for each in ("orders", "orders2", "logs.a", "Orders", "logs")] == [
        True, False, True, False, False,
    ]  # fmt: skip


def test_metadata_keeps_the_other_topics_back() -> None:
    given = ReadableTopics(("orders",))
    partition = {"error_code": 0, "partition_index": 0, "leader_id": 1}
    topics = [
        {"name": name, "topic_id": bytes([number] * 16), "partitions": [partition]}
        for number, name in enumerate(("orders", "salaries", "plans"), 1)
    ]
    every = metadata(*topics)
    rights.leave_out(every, given.allows, {"topics": None})
    assert [topic["name"] for topic in every["topics"]] == ["orders"]
    named = metadata(*topics)
    asked: Values = {"topics": [{"name": "salaries"}, {"name": None, "topic_id": bytes([3] * 16)}]}
    rights.leave_out(named, given.allows, asked)
    (_, by_name, by_id) = decode_response(HEAD, encode_response(HEAD, named)[4:])["topics"]
    assert (by_name["name"], by_name["error_code"], by_name["partitions"]) == ("salaries", 29, [])
    assert (by_id["name"], by_id["error_code"], by_id["partitions"]) == (None, 100, [])
    assert by_name["topic_id"] == bytes(16)
