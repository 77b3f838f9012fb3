"""The broker view against a scripted broker: what is believed, and what is only no answer."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.describe_configs.v3 import DescribeConfigsRequest, DescribeConfigsResponse
from kio.schema.describe_configs.v3.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets import v5, v8
from kio.schema.metadata import v10, v12
from kio.schema.metadata.v8 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v8.response import MetadataResponseBroker
from kio.schema.offset_for_leader_epoch import v3 as epochs_v3
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from kafka_client import broker_requests
from kafka_client.connection import RESPONSE_BYTES_MAX
from kafka_formats.errors import InvalidRequest, Refused, RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.leadership.broker_view import (
    PARTITIONS_PER_REQUEST_MAX,
    BrokerConnectionSettings,
    BrokerView,
)
from rlm.leadership.leadership import Leads, LocalLogStart, NoAnswer, NotLeading, TopicConfig
from rlm.leadership.unseen_disk import EpochAt
from tests.kafka_client.fake_broker import (
    NO_THROTTLE,
    VERSIONS,
    FakeBroker,
    HangUp,
    RawFrame,
    Reply,
    fake_broker,
)

CLUSTER_ID = "the-cluster"
NODE_ID = 3
OFFSETS = {"orders": {0: (ErrorCode.none, 42, 5), 1: (ErrorCode.not_leader_or_follower, -1, -1)}}

Script = dict[type[Any], Callable[[Any], Reply]]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def metadata(port: int = 0, cluster_id: str = CLUSTER_ID) -> MetadataResponse:
    known = MetadataResponseBroker(node_id=BrokerId(NODE_ID), host="127.0.0.1", port=i32(port))
    return MetadataResponse(
        throttle_time=NO_THROTTLE, brokers=(known,), cluster_id=cluster_id, topics=()
    )


def configs(request: DescribeConfigsRequest, values: dict[str, str | None]) -> Reply:
    return DescribeConfigsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            DescribeConfigsResult(
                error_code=ErrorCode.none,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(
                    DescribeConfigsResourceResult(
                        name=name,
                        value=value,
                        read_only=False,
                        is_sensitive=False,
                        synonyms=(),
                        documentation=None,
                    )
                    for name, value in values.items()
                ),
            )
            for resource in request.resources
        ),
    )


def refuse_configs(code: ErrorCode) -> Callable[[DescribeConfigsRequest], Reply]:
    def answer(request: DescribeConfigsRequest) -> Reply:
        return DescribeConfigsResponse(
            throttle_time=NO_THROTTLE,
            results=tuple(
                DescribeConfigsResult(
                    error_code=code,
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=(),
                )
                for resource in request.resources
            ),
        )

    return answer


def offsets_v5(request: v5.ListOffsetsRequest) -> Reply:
    return v5.ListOffsetsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            v5.response.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    v5.response.ListOffsetsPartitionResponse(
                        partition_index=i32(partition),
                        error_code=code,
                        offset=i64(offset),
                        leader_epoch=i32(epoch),
                    )
                    for partition, (code, offset, epoch) in OFFSETS[str(topic.name)].items()
                ),
            )
            for topic in request.topics
            if str(topic.name) in OFFSETS
        ),
    )


def offsets_v8(request: v8.ListOffsetsRequest) -> Reply:
    partition = v8.response.ListOffsetsPartitionResponse(
        partition_index=i32(0), error_code=ErrorCode.none, offset=i64(17), leader_epoch=i32(5)
    )
    topic = v8.response.ListOffsetsTopicResponse(name=TopicName("orders"), partitions=(partition,))
    return v8.ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=(topic,))


def good_script() -> Script:
    return {
        MetadataRequest: lambda _: metadata(),
        DescribeConfigsRequest: lambda request: configs(request, {}),
        v5.ListOffsetsRequest: offsets_v5,
        v8.ListOffsetsRequest: offsets_v8,
    }


def asked(broker: FakeBroker, kind: type[Any]) -> list[Any]:
    return [request for request in broker.asked if isinstance(request, kind)]


def view_of(broker: FakeBroker, clock: Clock | None = None, **more: Any) -> BrokerView:
    settings = BrokerConnectionSettings(
        host="127.0.0.1", port=broker.port, node_id=NODE_ID, kafka_cluster_id=CLUSTER_ID
    )
    return BrokerView(
        replace(settings, **more),
        monotonic=clock or Clock(),
        random_fraction=lambda: 0.0,
        new_nonce=lambda: "nonce",
    )


@asynccontextmanager
async def scripted(
    script: Script | None = None, clock: Clock | None = None, **more: Any
) -> AsyncIterator[tuple[FakeBroker, BrokerView]]:
    async with fake_broker(good_script() | (script or {})) as broker:
        view = view_of(broker, clock, **more)
        try:
            yield broker, view
        finally:
            await view.close()


def reason(answers: dict[tuple[str, int], Any], partition: tuple[str, int]) -> str:
    answer = answers[partition]
    assert isinstance(answer, NoAnswer)
    return answer.reason


async def test_one_request_asks_for_the_last_stable_offset_of_all_partitions() -> None:
    partitions = [("orders", 0), ("orders", 1), ("orders", 7), ("unheard-of", 0)]
    async with scripted() as (broker, view):
        answers = await view.leadership(partitions)
    assert answers["orders", 0] == Leads(leader_epoch=5, last_stable_offset=42)
    assert answers["orders", 1] == NotLeading()
    assert "leaves out orders-7" in reason(answers, ("orders", 7))
    assert "leaves out unheard-of-0" in reason(answers, ("unheard-of", 0))
    (request,) = asked(broker, v5.ListOffsetsRequest)
    assert (request.replica_id, request.isolation_level) == (-1, 1)
    assert {part.timestamp for topic in request.topics for part in topic.partitions} == {-1}


async def test_many_partitions_are_asked_in_bounded_requests() -> None:
    partitions = [("orders", number) for number in range(PARTITIONS_PER_REQUEST_MAX + 1)]
    async with scripted() as (broker, view):
        answers = await view.leadership(partitions)
    assert len(answers) == len(partitions)
    assert len(asked(broker, v5.ListOffsetsRequest)) == 2


async def test_nothing_is_asked_about_nothing() -> None:
    async with scripted() as (broker, view):
        assert await view.leadership([]) == {}
        assert await view.topic_configs([]) == {}
    assert broker.connections == 0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((ErrorCode.fenced_leader_epoch, -1, -1), NotLeading()),
        ((ErrorCode.none, 42, -1), NoAnswer("the broker knows no leader epoch of orders-0")),
        ((ErrorCode.none, -1, 3), NoAnswer("the broker knows no leader epoch of orders-0")),
        (
            (ErrorCode.topic_authorization_failed, -1, -1),
            NoAnswer("the broker answered topic_authorization_failed for orders-0"),
        ),
    ],
)
async def test_other_answers_of_the_broker_start_nothing(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[ErrorCode, int, int], expected: object
) -> None:
    monkeypatch.setitem(OFFSETS, "orders", {0: answer})
    async with scripted() as (_, view):
        assert await view.leadership([("orders", 0)]) == {("orders", 0): expected}


async def test_the_local_log_start_is_asked_as_earliest_local() -> None:
    async with scripted() as (broker, view):
        answers = await view.local_log_start([("orders", 0)])
    assert answers == {("orders", 0): LocalLogStart(offset=17, leader_epoch=5)}
    (request,) = asked(broker, v8.ListOffsetsRequest)
    assert request.topics[0].partitions[0].timestamp == -4


async def test_a_broker_that_does_not_know_earliest_local_is_asked_for_earliest() -> None:
    async with fake_broker(good_script(), versions={**VERSIONS, 2: (1, 7)}) as broker:
        view = view_of(broker)
        answers = await view.local_log_start([("orders", 0)])
        await view.close()
    assert answers == {("orders", 0): LocalLogStart(offset=42, leader_epoch=5)}
    (request,) = asked(broker, v5.ListOffsetsRequest)
    assert request.topics[0].partitions[0].timestamp == -2


TOO_LARGE = RawFrame(struct.pack(">i", RESPONSE_BYTES_MAX + 1))


def ids_v10(request: v10.MetadataRequest, *, at_once_max: int, huge: str | None = None) -> Reply:
    """Ids by name. More names than `at_once_max`, or `huge` among them, answer too much."""
    names = [str(topic.name) for topic in request.topics or ()]
    if len(names) > at_once_max or huge in names:
        return TOO_LARGE
    return v10.MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(),
        topics=tuple(
            v10.response.MetadataResponseTopic(
                error_code=ErrorCode.none,
                name=TopicName(name),
                topic_id=UUID(bytes=id_of(name)),
                partitions=(),
            )
            for name in names
        ),
    )


def id_of(name: str) -> Uuid:
    return Uuid(name.encode().rjust(16, b"-"))


async def test_topic_ids_whose_answer_is_too_large_are_asked_in_smaller_parts() -> None:
    names = [f"topic-{number}" for number in range(10)]
    answer = partial(ids_v10, at_once_max=3)
    async with scripted({v10.MetadataRequest: answer}) as (broker, view):
        assert await view.topic_ids(names) == {name: id_of(name) for name in names}
        assert len(asked(broker, v10.MetadataRequest)) <= 7


async def test_one_topic_whose_answer_is_too_large_is_named_and_stops_no_other() -> None:
    names = [f"topic-{number}" for number in range(5)]
    answer = partial(ids_v10, at_once_max=10, huge="topic-2")
    async with scripted({v10.MetadataRequest: answer}) as (_, view):
        found = await view.topic_ids(names)
    refused = found.pop("topic-2")
    assert isinstance(refused, NoAnswer)
    assert f"answer about topic-2 alone has more than {RESPONSE_BYTES_MAX} bytes" in refused.reason
    assert found == {name: id_of(name) for name in names if name != "topic-2"}


async def test_unknown_ids_whose_answer_is_too_large_are_asked_in_smaller_parts() -> None:
    known, huge, gone = id_of("known"), id_of("huge"), id_of("gone")

    def answer(request: v12.MetadataRequest) -> Reply:
        ids = [Uuid(topic.topic_id.bytes) for topic in request.topics or () if topic.topic_id]
        if len(ids) > 1 or huge in ids:
            return TOO_LARGE
        error = ErrorCode.unknown_topic_id if ids == [gone] else ErrorCode.none
        topic = v12.response.MetadataResponseTopic(
            error_code=error, name=None, topic_id=UUID(bytes=ids[0]), partitions=()
        )
        return v12.MetadataResponse(throttle_time=NO_THROTTLE, brokers=(), topics=(topic,))

    async with scripted({v12.MetadataRequest: answer}) as (broker, view):
        broker.script[MetadataRequest] = lambda _: metadata(port=broker.port)
        assert await view.unknown_topic_ids([known, huge, gone]) == {NODE_ID: frozenset({gone})}


async def test_the_log_start_is_asked_as_earliest_with_the_epoch_of_that_offset() -> None:
    async with scripted() as (broker, view):
        answers = await view.log_start([("orders", 0), ("orders", 1)])
    assert answers == {("orders", 0): EpochAt(5, 42), ("orders", 1): NotLeading()}
    (request,) = asked(broker, v5.ListOffsetsRequest)
    assert request.topics[0].partitions[0].timestamp == -2


async def test_the_end_of_an_epoch_is_asked_under_the_present_one() -> None:
    def ends(request: epochs_v3.OffsetForLeaderEpochRequest) -> Reply:
        answers = {0: (ErrorCode.none, 3, 40), 1: (ErrorCode.fenced_leader_epoch, -1, -1)}
        return epochs_v3.OffsetForLeaderEpochResponse(
            throttle_time=NO_THROTTLE,
            topics=tuple(
                epochs_v3.response.OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=tuple(
                        epochs_v3.response.EpochEndOffset(
                            error_code=answers[int(each.partition)][0],
                            partition=each.partition,
                            leader_epoch=i32(answers[int(each.partition)][1]),
                            end_offset=i64(answers[int(each.partition)][2]),
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    script = good_script() | {epochs_v3.OffsetForLeaderEpochRequest: ends}
    async with fake_broker(script, versions={**VERSIONS, 23: (2, 4)}) as broker:
        view = view_of(broker)
        answers = await view.epoch_ends({("orders", 0): (5, 4), ("orders", 1): (7, 6)})
        await view.close()
    assert answers == {("orders", 0): EpochAt(3, 40), ("orders", 1): NotLeading()}
    (request,) = asked(broker, epochs_v3.OffsetForLeaderEpochRequest)
    assert [
        (each.current_leader_epoch, each.leader_epoch) for each in request.topics[0].partitions
    ] == [(5, 4), (7, 6)]


async def test_topic_configs_come_back_as_numbers() -> None:
    values: dict[str, str | None] = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "1000",
        "remote.storage.enable": "true",
    }
    script: Script = {DescribeConfigsRequest: lambda request: configs(request, values)}
    async with scripted(script) as (broker, view):
        answers = await view.topic_configs(["orders"])
    assert answers == {"orders": TopicConfig("delete", -1, 1000, remote_storage_enable=True)}
    resource = asked(broker, DescribeConfigsRequest)[-1].resources[0]
    assert (resource.resource_type, resource.resource_name) == (i8(2), "orders")


@pytest.mark.parametrize("values", [{}, {"cleanup.policy": "delete", "retention.ms": "soon"}])
async def test_configs_that_make_no_sense_are_no_answer(values: dict[str, str | None]) -> None:
    script: Script = {DescribeConfigsRequest: lambda request: configs(request, values)}
    async with scripted(script) as (_, view):
        answer = (await view.topic_configs(["orders"]))["orders"]
    assert isinstance(answer, NoAnswer)
    assert "orders" in answer.reason


async def test_a_broker_of_another_cluster_is_never_believed() -> None:
    script: Script = {MetadataRequest: lambda _: metadata(cluster_id="another")}
    async with scripted(script) as (broker, view):
        with pytest.raises(Refused, match="belongs to Kafka cluster another"):
            await view.check()
        answers = await view.leadership([("orders", 0)])
    assert "another" in reason(answers, ("orders", 0))
    assert asked(broker, v5.ListOffsetsRequest) == []


async def test_another_node_of_the_cluster_is_never_believed() -> None:
    script: Script = {DescribeConfigsRequest: refuse_configs(ErrorCode.invalid_request)}
    async with scripted(script) as (broker, view):
        with pytest.raises(Refused, match="is not node 3"):
            await view.check()
    resource = asked(broker, DescribeConfigsRequest)[0].resources[0]
    assert (resource.resource_type, resource.resource_name) == (i8(4), "3")


async def test_without_the_right_to_describe_the_advertised_address_decides() -> None:
    refuse = refuse_configs(ErrorCode.cluster_authorization_failed)
    async with scripted({DescribeConfigsRequest: refuse}) as (broker, view):
        broker.script[MetadataRequest] = lambda _: metadata(port=broker.port)
        await view.check()
        broker.script[MetadataRequest] = lambda _: metadata(port=broker.port + 1)
        with pytest.raises(Refused, match=f"advertises .127.0.0.1:{broker.port + 1}"):
            await view.check()


async def test_a_lost_connection_is_opened_again_for_the_same_question() -> None:
    replies: list[Callable[[Any], Reply]] = [offsets_v5, lambda _: HangUp(), offsets_v5]
    script: Script = {v5.ListOffsetsRequest: lambda request: replies.pop(0)(request)}
    async with scripted(script) as (broker, view):
        first = await view.leadership([("orders", 0)])
        second = await view.leadership([("orders", 0)])
    assert first == second == {("orders", 0): Leads(5, 42)}
    assert broker.connections == 2


async def test_a_broker_that_is_away_is_asked_again_only_after_a_growing_pause() -> None:
    clock = Clock()
    async with scripted({MetadataRequest: lambda _: HangUp()}, clock) as (broker, view):
        pauses = []
        for _ in range(3):
            seen = broker.connections
            answers = await view.leadership([("orders", 0)])
            assert "closed the connection" in reason(answers, ("orders", 0))
            assert broker.connections == seen + 1
            waited = await view.leadership([("orders", 0)])
            assert broker.connections == seen + 1
            pauses.append(float(reason(waited, ("orders", 0)).split()[-2]))
            clock.now += pauses[-1] + 0.1
        assert pauses == sorted(set(pauses))
        broker.script[MetadataRequest] = lambda _: metadata()
        assert await view.leadership([("orders", 0)]) == {("orders", 0): Leads(5, 42)}


async def test_check_does_not_wait_for_the_pause() -> None:
    async with scripted({MetadataRequest: lambda _: HangUp()}) as (broker, view):
        await view.leadership([("orders", 0)])
        with pytest.raises(RetryLater):
            await view.check()
        broker.script[MetadataRequest] = lambda _: metadata()
        await view.check()


async def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    async with scripted(security_protocol="SSL", ssl_ca_file=missing) as (_, view):
        with pytest.raises(Refused, match=str(missing)):
            await view.check()
        answers = await view.leadership([("orders", 0)])
    assert str(missing) in reason(answers, ("orders", 0))


async def test_unusable_credentials_are_refused_when_the_view_is_made() -> None:
    async with fake_broker() as broker:
        with pytest.raises(InvalidRequest, match="sasl_username"):
            view_of(broker, security_protocol="SASL_SSL", sasl_password="x")


async def test_the_address_may_be_told_later_and_anew_and_nonsense_changes_nothing() -> None:
    async with scripted(host="", port=0) as (broker, view):
        answer = (await view.leadership([("orders", 0)]))[("orders", 0)]
        assert isinstance(answer, NoAnswer)
        assert "has not announced the broker's address yet" in answer.reason
        for text in ("", "nowhere", "host:", "host:x"):
            view.move_to(text)
        assert isinstance(await view.ask(broker_requests.describe_cluster), NoAnswer)
        view.move_to(f"127.0.0.1:{broker.port},127.0.0.1:1")
        assert not isinstance(await view.ask(broker_requests.describe_cluster), NoAnswer)
        view.move_to("127.0.0.1:1")
        assert isinstance(await view.ask(broker_requests.describe_cluster), NoAnswer)
