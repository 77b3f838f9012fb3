"""Metadata as brokers told it last."""

from __future__ import annotations

from typing import Any

from kafka_listener.connections.last_metadata import PARTITIONS_MAX, LastMetadata
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.codec import Head, decode_response, encode_response
from rlmm.wire.schema import Values

HEAD = Head(Api.METADATA, 12, 1)
ALL: Values = {"topics": None}


def topic_id(number: int) -> bytes:
    return bytes([number] * 16)


def topic(name: str, number: int, partitions: int = 2, **more: Any) -> Values:
    listed = [
        {"error_code": 0, "partition_index": each, "leader_id": 7, "leader_epoch": 3}
        for each in range(partitions)
    ]
    return {
        "error_code": 0, "name": name, "topic_id": topic_id(number), "partitions": listed, **more,
    }  # fmt: skip


def answer(*topics: Values) -> Values:
    broker = {"node_id": 7, "host": "broker", "port": 9_092}
    body = {"brokers": [broker], "cluster_id": "c", "controller_id": 7, "topics": list(topics)}
    return decode_response(HEAD, encode_response(HEAD, body)[4:])


def told(last: LastMetadata, asked: Values, *heard: str) -> dict[str | None, Values]:
    body = last.answer(asked, [7], lambda name: name in heard)
    written = {**body, "brokers": [each | {"host": "h", "port": 1} for each in body["brokers"]]}
    read = decode_response(HEAD, encode_response(HEAD, written)[4:])
    assert (read["cluster_id"], read["controller_id"]) == ("c", 7)
    return {each["name"]: each for each in read["topics"]}


def test_topics_are_told_as_they_were_to_those_who_may_hear_of_them() -> None:
    last = LastMetadata()
    last.take(answer(topic("orders", 1), topic("salaries", 2)))
    last.take(answer(topic("orders", 1, partitions=3)))
    (one,) = told(last, ALL, "orders").values()
    assert (one["name"], one["topic_id"], len(one["partitions"])) == ("orders", topic_id(1), 3)
    assert one["partitions"][0]["leader_id"] == 7
    assert one["partitions"][0]["leader_epoch"] == 3


def test_what_is_not_known_or_may_not_be_heard_of_looks_the_same() -> None:
    last = LastMetadata()
    last.take(answer(topic("orders", 1), topic("salaries", 2)))
    asked: Values = {"topics": [{"name": name} for name in ("orders", "salaries", "plans")]}
    found = told(last, asked, "orders")
    assert [found[name]["error_code"] for name in ("orders", "salaries", "plans")] == [0, 5, 5]
    hidden, unknown = found["salaries"], found["plans"]
    assert hidden | {"name": ""} == unknown | {"name": ""}


def test_topics_are_found_by_their_ids() -> None:
    last = LastMetadata()
    last.take(answer(topic("orders", 1)))
    asked: Values = {"topics": [{"name": None, "topic_id": topic_id(each)} for each in (1, 2)]}
    found = told(last, asked, "orders")
    assert (found["orders"]["error_code"], found[None]["topic_id"]) == (0, topic_id(2))
    assert found[None]["error_code"] == 5


def test_an_answer_that_refuses_the_whole_request_changes_nothing() -> None:
    last = LastMetadata()
    last.take(answer(topic("orders", 1)))
    refused = {"error_code": -1, "name": "orders", "partitions": []}
    nobody: Values = {"brokers": [], "cluster_id": None, "controller_id": -1, "topics": [refused]}
    last.take(decode_response(HEAD, encode_response(HEAD, nobody)[4:]))
    assert list(told(last, ALL, "orders")) == ["orders"]


def test_a_topic_that_is_gone_is_forgotten_and_the_oldest_make_room() -> None:
    last = LastMetadata()
    last.take(answer(topic("orders", 1), topic("plans", 2)))
    last.take(answer({"error_code": 3, "name": "plans", "partitions": []}))
    assert last.known(ALL) == ("orders",)
    last.take(answer(topic("large", 3, partitions=PARTITIONS_MAX)))
    assert last.known(ALL) == ("large",)
