"""The shadow of a metadata log in the metadata topic of stock brokers."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import TypeVar
from uuid import uuid4

import pytest

from kafka_formats.errors import Fenced, RetryLater
from rlm.leadership.broker_view import BrokerView
from rlm.migration.shadow_plan import TransactionLimits, metadata_offset_in
from rlm.migration.shadow_topic import KafkaTopic
from rlm.migration.shadow_writer import ShadowWriter
from rlm.migration.topic_checks import TOPIC
from rlm.migration.topic_reader import TopicReader
from tests.integration.test_broker_view import connection_settings, view_of
from tests.integration.test_metadata_topic import KEPT
from tests.real.kafka import KafkaBroker
from tests.real.kafka_clients import NewRecord, consume_all, produce
from tests.real.kafkas_metadata import by_our_replay, read_by_kafkas_manager
from tests.rlm.migration.shadow_world import (
    PARTITIONS,
    USER_PARTITIONS,
    Node,
    World,
    partition_of,
    state_of,
)

Done = TypeVar("Done")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture(scope="module", params=["3.9.2", "4.4.0"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    home = tmp_path_factory.mktemp("kafka") / "broker"
    with KafkaBroker(home, version=request.param) as running:
        yield running


@pytest.fixture
def topic(broker: KafkaBroker) -> Iterator[str]:
    broker.create_topic(TOPIC, partitions=PARTITIONS, config=KEPT)
    yield TOPIC
    broker.delete_topic(TOPIC)
    broker.wait_until(lambda: TOPIC not in broker.admin().list_topics().topics, "its deletion")


@pytest.fixture
def id_() -> str:
    return f"strandline-shadow-{uuid4()}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def world_of(changes: int, seed: int = 7) -> World:
    """A metadata log with so many changes; one node has applied all."""
    world = World(Random(seed), calm=True)
    for _ in range(changes):
        world.accept()
    world.nodes = [Node(world, 0)]
    world.nodes[0].apply(changes)
    return world


def writer_of(view: BrokerView, node: Node, id_: str, rows_max: int = 1_000) -> ShadowWriter:
    return ShadowWriter(
        KafkaTopic(view, id_, asyncio.sleep, now_ms),
        node,
        partition_of,
        time.monotonic,
        limits=TransactionLimits(rows_max=rows_max),
    )


def offsets_in(broker: KafkaBroker, isolation: str = "read_uncommitted") -> list[int]:
    """The metadata offsets in the topic, sorted; those of each partition ascend there."""
    found: list[int] = []
    for partition in range(PARTITIONS):
        records = consume_all(broker.bootstrap, TOPIC, partition, isolation=isolation)  # type: ignore[arg-type]
        named = [metadata_offset_in(each.headers) for each in records]
        offsets = [each for each in named if each is not None]
        assert offsets == sorted(offsets)
        found += offsets
    return sorted(found)


async def insisted(call: Callable[[], Awaitable[Done]]) -> Done:
    """Its result, once the brokers know a topic that was just made."""
    for _ in range(100):
        with suppress(RetryLater):
            return await call()
        await asyncio.sleep(0.1)
    return await call()


async def judge(view: BrokerView, world: World) -> None:
    """The topic as Kafka's own manager reads it is the whole log."""
    reader = await TopicReader.open(view)
    try:
        for number, partition in enumerate(world.partitions):
            replay, read = await reader.read(number, lambda *_: None)
            assert (read.error, read.unreadable, read.gaps) == (None, 0, ())
            assert state_of(replay) == partition.states[-1]
    finally:
        await reader.close()


async def test_the_topic_is_brought_after_the_log(
    broker: KafkaBroker, topic: str, id_: str
) -> None:
    world = world_of(200)
    (node,) = world.nodes
    async with view_of(connection_settings(broker)) as view:
        writer = writer_of(view, node, id_, rows_max=17)
        while await insisted(writer.step):
            pass
        await insisted(writer.look)
        await writer.close()
        assert node.rows == {}
        assert (node.state.incomplete, node.state.foreign) == ("", "")
        await judge(view, world)
    assert offsets_in(broker) == offsets_in(broker, "read_committed") == [*range(200)]


async def test_a_second_writer_fences_the_first_and_resumes(
    broker: KafkaBroker, topic: str, id_: str
) -> None:
    world = world_of(60)
    earlier, later = world.nodes[0], Node(world, 1)
    later.apply(60)
    async with view_of(connection_settings(broker)) as view:
        first = writer_of(view, earlier, id_, rows_max=10)
        second = writer_of(view, later, id_, rows_max=10)
        assert await insisted(first.step)
        assert await insisted(second.step)
        with pytest.raises(Fenced):
            await first.step()
        while await second.step():
            pass
        # The first believes once more that it leads: it finds that all is written.
        assert not await first.step()
        await judge(view, world)
        await first.close()
        await second.close()
    assert offsets_in(broker) == [*range(60)]


async def test_a_writer_killed_in_a_transaction_leaves_what_its_successor_goes_on_behind(
    broker: KafkaBroker, topic: str, id_: str
) -> None:
    settings = asdict(connection_settings(broker))
    asked = json.dumps([7, 30, settings, id_])
    command = [sys.executable, "-m", "tests.integration.shadow_process", asked]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert offsets_in(broker, "read_committed") == []
    world = world_of(30)
    for _ in range(20):
        world.accept()
    (node,) = world.nodes
    node.apply(20)
    async with view_of(connection_settings(broker)) as view:
        writer = writer_of(view, node, id_)
        while await insisted(writer.step):
            pass
        await insisted(writer.look)
        await writer.close()
        await judge(view, world)
    assert offsets_in(broker) == [*range(50)]
    assert offsets_in(broker, "read_committed") == [*range(30, 50)]
    assert node.rows == {}


async def test_a_record_of_another_writer_is_told(
    broker: KafkaBroker, topic: str, id_: str
) -> None:
    world = world_of(20)
    (node,) = world.nodes
    async with view_of(connection_settings(broker)) as view:
        writer = writer_of(view, node, id_)
        await insisted(writer.step)
        await insisted(writer.look)
        produce(broker.bootstrap, TOPIC, 1, [NewRecord(b"by a broker")])
        await insisted(writer.look)
        await writer.close()
    assert "partition 1 of the topic has a record" in node.state.foreign


async def test_a_topic_made_anew_is_told(broker: KafkaBroker, topic: str, id_: str) -> None:
    world = world_of(20)
    (node,) = world.nodes
    async with view_of(connection_settings(broker)) as view:
        writer = writer_of(view, node, id_)
        await insisted(writer.step)
        await insisted(writer.look)
        await writer.close()
        broker.delete_topic(TOPIC)
        broker.wait_until(lambda: TOPIC not in broker.admin().list_topics().topics, "its end")
        broker.create_topic(TOPIC, partitions=PARTITIONS, config=KEPT)
        with pytest.raises(Exception, match="it was recreated"):
            await insisted(writer.look)
    assert "recreated" in node.state.incomplete


async def test_kafkas_own_manager_has_our_rows(
    broker: KafkaBroker, topic: str, id_: str, tmp_path: Path
) -> None:
    world = world_of(120)
    async with view_of(connection_settings(broker)) as view:
        writer = writer_of(view, world.nodes[0], id_, rows_max=25)
        while await insisted(writer.step):
            pass
        await (
            writer.look()
        )  # a partition that ends with a marker is never ready for Kafka's manager
        await insisted(writer.look)
        await writer.close()
    assert world.nodes[0].state.foreign == ""
    caches = {
        (tip.topic, tip.partition): cache
        for partition in world.partitions
        for tip, cache in partition.wanted.caches.items()
    }
    assert sum(len(cache.rows) for cache in caches.values()) > 10
    kafkas = read_by_kafkas_manager(broker.bootstrap, tmp_path, PARTITIONS, USER_PARTITIONS)
    assert kafkas == {at: by_our_replay(cache) for at, cache in caches.items()}
