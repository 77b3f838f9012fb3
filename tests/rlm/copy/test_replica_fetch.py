"""How much of an answer a node takes from another broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from kio.schema.describe_configs.v3 import DescribeConfigsRequest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets import v5
from kio.schema.metadata.v8 import MetadataRequest

from kafka_client.replica_answers import Batches, Extent, Replicas
from kafka_formats.errors import RetryLater
from kafka_formats.record_batch import HEADER_BYTES, Record, encode_batch
from rlm.copy import replica_fetch
from rlm.copy.replica_fetch import FETCH_BYTES, ReplicaFetch
from rlm.leadership.leadership import NoAnswer
from tests.kafka_client.fake_broker import fake_broker
from tests.rlm.leadership.test_broker_view import (
    Script,
    asked,
    good_script,
    metadata,
    refuse_configs,
    view_of,
)
from tests.rlm.planner_facts import PARTITION


@dataclass
class View:
    """Knows one replica, which is down."""

    bounds: list[int] = field(default_factory=list)

    async def ask(self, _: object) -> Replicas:
        return Replicas((2,), {2: ("broker-2", 9092)})

    async def connect_to(self, _: int, host: str, port: int, *, response_bytes_max: int) -> Any:
        self.bounds.append(response_bytes_max)
        raise RetryLater(f"no answer from {host}:{port}")


@pytest.mark.parametrize("batch_bytes_max", [1 << 20, 128 << 20, 500 << 20])
async def test_an_answer_may_have_a_batch_of_the_size_that_is_copied(batch_bytes_max: int) -> None:
    view = View()
    fetch = ReplicaFetch(cast(Any, view), batch_bytes_max)
    assert await fetch.replicas(PARTITION) == (2,)
    assert isinstance(await fetch.fetch(2, PARTITION, 0), NoAnswer)
    (bound,) = view.bounds
    assert bound > max(batch_bytes_max, FETCH_BYTES)


LARGE = encode_batch([Record(0, 0, None, bytes(500), ())], base_offset=0)
SMALL = encode_batch([Record(1, 0, None, b"", ())], base_offset=1)


class Reachable:
    """A connection to every broker."""

    closed = False

    async def connect_to(self, *_: object, response_bytes_max: int) -> Reachable:
        return self


@pytest.mark.parametrize(
    ("log", "sent"),
    [(LARGE + SMALL, LARGE + SMALL[:HEADER_BYTES]), (LARGE, LARGE), (SMALL + LARGE, None)],
)
async def test_what_stands_behind_a_batch_that_fills_an_answer_shows(
    log: bytes, sent: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone it looks as if its file ended there."""
    asked: list[int] = []

    async def answer(*_: object, bytes_max: int) -> Batches:
        asked.append(bytes_max)
        first = LARGE if log.startswith(LARGE) else SMALL  # a broker sends it whole
        return Batches(log[: max(bytes_max, len(first))], 2)

    monkeypatch.setattr(replica_fetch, "FETCH_BYTES", 200)
    monkeypatch.setattr(replica_fetch, "fetch_batches", answer)
    fetch = ReplicaFetch(cast(Any, Reachable()), _addresses={1: ("host", 1)})
    assert await fetch.fetch(1, PARTITION, 0) == Batches(log[:200] if sent is None else sent, 2)
    assert len(asked) == (1 if sent is None else 2)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ({MetadataRequest: lambda _: metadata(cluster_id="another")}, "to Kafka cluster another"),
        ({DescribeConfigsRequest: refuse_configs(ErrorCode.invalid_request)}, "is not node 7"),
    ],
)
async def test_an_address_of_another_cluster_or_node_says_nothing_of_a_replica(
    script: Script, why: str
) -> None:
    """What it says of its log would prove offsets lost."""
    async with fake_broker(good_script() | script) as broker:
        fetch = ReplicaFetch(view_of(broker), _addresses={7: ("127.0.0.1", broker.port)})
        for answer in (await fetch.extent(7, PARTITION), await fetch.fetch(7, PARTITION, 0)):
            assert isinstance(answer, NoAnswer)
            assert why in answer.reason
        assert asked(broker, v5.ListOffsetsRequest) == []


async def test_a_replica_proves_who_it_is_once_a_connection() -> None:
    async with fake_broker(good_script()) as broker:
        fetch = ReplicaFetch(view_of(broker), _addresses={7: ("127.0.0.1", broker.port)})
        for _ in range(2):
            assert await fetch.extent(7, PARTITION) == Extent(42, 42)
        (request,) = asked(broker, DescribeConfigsRequest)
        assert request.resources[0].resource_name == "7"
        await fetch.close()
