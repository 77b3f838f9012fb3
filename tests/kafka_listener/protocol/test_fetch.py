"""Fetch taken apart and put together again, in every version."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_listener.protocol import fetch
from kafka_listener.protocol.apis import SERVED, Api
from kafka_listener.protocol.codec import (
    Head,
    decode_request,
    decode_response,
    encode_around,
    encode_request,
    encode_response,
)
from kafka_listener.protocol.fetch import Ends, Wanted
from kafka_listener.reading.read_port import AbortedFrom
from rlmm.wire.schema import Elsewhere, Values

VERSIONS = range(SERVED[Api.FETCH].low, SERVED[Api.FETCH].high + 1)
IDS = {"orders": bytes(range(16)), "bills": bytes(range(16, 32))}


def request(version: int, **more: Any) -> Values:
    """As the listener decodes it."""
    topics = [
        {
            "topic": name, "topic_id": IDS[name],
            "partitions": [
                {"partition": number, "fetch_offset": 10 * number, "partition_max_bytes": 1_000}
                for number in numbers
            ],
        }
        for name, numbers in (("orders", (0, 2)), ("bills", (1,)))
    ]  # fmt: skip
    body = {"topics": topics, "max_wait": 500, "min_bytes": 1, "isolation_level": 1, **more}
    return decode_request(encode_request(Head(Api.FETCH, version, 3), "a-client", body)[4:]).body


def name(version: int, topic: str) -> str | bytes:
    return IDS[topic] if version >= 13 else topic


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_come_in_the_requests_order(version: int) -> None:
    assert fetch.wanted_in(request(version)) == (
        Wanted((0, 0), name(version, "orders"), 0, 0, 1_000),
        Wanted((0, 1), name(version, "orders"), 2, 20, 1_000),
        Wanted((1, 0), name(version, "bills"), 1, 10, 1_000),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_is_asked_for_some_of_them_without_session_rack_or_replica(version: int) -> None:
    more = {"replica_id": 4, "replica_state": {"replica_id": 4, "replica_epoch": 1}}
    body = request(version, session_id=0, session_epoch=0, rack_id="zone", max_bytes=5_000, **more)
    wanted = fetch.wanted_in(body)[1:]
    asked = fetch.for_broker(body, wanted, bytes_max=4_000, at_once=True)
    sent = decode_request(encode_request(Head(Api.FETCH, version, 3), "a", asked)[4:]).body
    assert [(each.topic, each.partition) for each in fetch.wanted_in(sent)] == [
        (name(version, "orders"), 2),
        (name(version, "bills"), 1),
    ]
    assert (sent["max_bytes"], sent["max_wait"], sent["min_bytes"]) == (4_000, 0, 0)
    assert (sent.get("session_id", 0), sent.get("session_epoch", -1)) == (0, -1)
    assert sent.get("rack_id", "") == ""
    assert sent.get("replica_id", -1) == -1
    assert sent.get("replica_state", {}).get("replica_id", -1) == -1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_brokers_answer_is_passed_on_without_its_nodes(version: int) -> None:
    body = request(version)
    data = {
        "partition_index": 2, "error_code": 6, "high_watermark": 30, "last_stable_offset": 29,
        "log_start_offset": 5, "records": b"batches", "preferred_read_replica": 7,
        "current_leader": {"leader_id": 7, "leader_epoch": 3},
        "aborted_transactions": [{"producer_id": 1, "first_offset": 2}],
    }  # fmt: skip
    topic = {"topic": "orders", "topic_id": IDS["orders"], "partitions": [data]}
    endpoints = [{"node_id": 7, "host": "broker-seven", "port": 9_092, "rack": None}]
    head = Head(Api.FETCH, version, 3)
    told = {"responses": [topic], "node_endpoints": endpoints}
    answer = decode_response(head, encode_response(head, told)[4:])
    found = fetch.answers_in(answer, fetch.wanted_in(body))
    frame = encode_response(head, fetch.answer_of(body, found))
    assert b"broker-seven" not in frame
    (one,) = decode_response(head, frame[4:])["responses"]
    assert _topic(one) == name(version, "orders")
    (passed,) = one["partitions"]
    assert (passed["partition_index"], passed["error_code"]) == (2, 6)
    assert passed["records"] == b"batches"
    assert passed["aborted_transactions"] == data["aborted_transactions"]
    assert passed.get("preferred_read_replica", -1) == -1
    assert passed.get("current_leader", {}).get("leader_id", -1) == -1


@given(st.lists(st.binary(max_size=300), min_size=3, max_size=3), st.sampled_from(VERSIONS))
def test_records_from_elsewhere_make_the_same_frame_as_records_that_are_here(
    records: list[bytes], version: int
) -> None:
    body, head = request(version), Head(Api.FETCH, version, 3)
    wanted, ends = fetch.wanted_in(body), Ends(50, 40, 1)
    aborted = (AbortedFrom(7, 3),)
    here = {
        each.where: fetch.records_answer(each, ends, raw, aborted)
        for each, raw in zip(wanted, records, strict=True)
    }
    places = [Elsewhere(len(raw)) for raw in records]
    there = {
        each.where: fetch.records_answer(each, ends, place, aborted)
        for each, place in zip(wanted, places, strict=True)
    }
    pieces = encode_around(head, fetch.answer_of(body, there), tuple(places))
    bodies = dict(zip(map(id, places), records, strict=True))
    joined = b"".join(each if isinstance(each, bytes) else bodies[id(each)] for each in pieces)
    assert joined == encode_response(head, fetch.answer_of(body, here))


def test_an_answer_has_only_partitions_that_are_answered() -> None:
    for version, kept in product((11, 17), range(4)):
        body = request(version)
        wanted = fetch.wanted_in(body)[:kept]
        answers = {each.where: fetch.error_answer(each, 78) for each in wanted}
        told = fetch.answer_of(body, answers)
        assert sum(len(topic["partitions"]) for topic in told["responses"]) == kept
        assert all(topic["partitions"] for topic in told["responses"])


def _topic(topic: Values) -> str | bytes:
    found: str | bytes = topic.get("topic") or topic["topic_id"]
    return found
