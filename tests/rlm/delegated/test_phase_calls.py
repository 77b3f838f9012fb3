"""The bridge of a broker asks for the phase of the move, over HTTP, on a real view and log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.errors import RetryLater
from rlm.delegated.phase_bodies import PhaseAsked
from rlmm.migration_phase import MigrationPhase
from rlmm.partition_state import Mode
from rlmm.records.control_records import MigrationPhaseChange
from sim.tier import plugin_bodies
from tests.api.fakes import app_over, make_node
from tests.rlm.delegated.delegating import NO_TOPICS, broker_of
from tests.rlm.delegated.plugin_client import PluginClient, client_of, refused
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node, new_world
from tests.rlm.virtual_time import run_virtually

CLUSTER = "kafka-1"
FIRST = PhaseAsked(CLUSTER, 1, -1, 0)
KAFKA, SWITCHING, QUORUM, DONE, BACK = (
    MigrationPhase.KAFKA, MigrationPhase.SWITCHING, MigrationPhase.QUORUM, MigrationPhase.DONE,
    MigrationPhase.BACK,
)  # fmt: skip


@asynccontextmanager
async def beside(tmp_path: Path, orders: KafkaLog) -> AsyncIterator[tuple[Node, PluginClient]]:
    """A running node beside a broker."""
    world = new_world(tmp_path, (orders.log_dir,))
    async with world.boot(broker=broker_of(orders), topics=NO_TOPICS) as node:
        await node.remote_log.start()
        plugin = client_of(node)
        async with plugin.http:
            yield node, plugin
        await node.remote_log.close()


async def asked(plugin: PluginClient, question: PhaseAsked = FIRST) -> tuple[int, int]:
    """The phase's number, and since when it stands."""
    body = await plugin.call("phase", plugin_bodies.phase(question))
    return plugin_bodies.read_phase(body)[1:]


async def turn(node: Node, *phases: MigrationPhase) -> int:
    """The metadata offset of the last one's record."""
    for phase in phases:
        stands = node.metadata.migration()
        change = MigrationPhaseChange(phase, stands.since, CLUSTER, "ann", "the move")
        await node.metadata.record_move(change)
    return node.metadata.migration().since


async def shown(plugin: PluginClient) -> dict[str, Any]:
    """The answer to GET /v1/migration."""
    answer = await plugin.http.get("/v1/migration")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_each_phase_is_told_with_the_offset_of_its_record(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            assert await asked(plugin) == (0, -1)
            await node.metadata.finalise_feature_level(2)
            for phase in (KAFKA, SWITCHING, QUORUM, BACK, KAFKA, SWITCHING, QUORUM, DONE):
                since = await turn(node, phase)
                assert await asked(plugin) == (phase, since)

    run_virtually(main)


def test_the_topics_phase_is_told_only_where_a_majority_confirms_it(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A node that was cut off has an old view, by which its broker would write behind a switch."""

    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            await node.metadata.finalise_feature_level(2)
            caught_up = type(node.metadata).catch_up

            async def nobody(*_: Any, **__: Any) -> None:
                raise RetryLater("no leader confirms it")

            async def late(*given: Any, **how: Any) -> None:
                await turn(node, KAFKA, SWITCHING)
                await caught_up(*given, **how)

            patched = pytest.MonkeyPatch()
            patched.setattr(type(node.metadata), "catch_up", nobody)
            told = await refused(asked(plugin))
            assert told.kind == "retry_later"
            patched.setattr(type(node.metadata), "catch_up", late)
            assert (await asked(plugin))[0] == SWITCHING, "by what was applied meanwhile"
            patched.setattr(type(node.metadata), "catch_up", nobody)
            assert (await asked(plugin))[0] == SWITCHING, "old or not, it freezes the broker"
            patched.undo()

    run_virtually(main)


def test_only_this_nodes_broker_is_answered(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            told = await refused(asked(plugin, replace(FIRST, broker_id=2)))
            assert (told.kind, told.reason) == ("refused", "BROKER_ID")
            await node.metadata.finalise_feature_level(2)
            await turn(node, KAFKA)
            told = await refused(asked(plugin, replace(FIRST, kafka_cluster_id="kafka-2")))
            assert (told.kind, told.reason) == ("refused", "CLUSTER")
            for seen, outstanding in ((5, 0), (-2, 0), (0, -1)):
                bad = replace(FIRST, seen=seen, outstanding=outstanding)
                told = await refused(asked(plugin, bad))
                assert told.kind == "invalid_request"

    run_virtually(main)


def test_a_node_with_delegated_partitions_and_no_move_says_so(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """[LOSS-2] Kafka's topic has nothing of them, and the broker would believe that."""

    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            await plugin.announce(orders.partition)
            await asyncio.sleep(5)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.mode is Mode.DELEGATED
            told = await refused(asked(plugin))
            assert (told.kind, told.reason) == ("refused", "DELEGATED")

    run_virtually(main)


def test_what_the_broker_says_is_shown_with_the_phase(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            calls = node.parts.new_broker_calls()
            fake = make_node()
            monotonic = node.parts.around.ambient.monotonic
            context = replace(
                fake.context, manager=node.metadata, broker=calls, monotonic=monotonic
            )
            plugin.http._transport.app = app_over(context)  # type: ignore[attr-defined]
            nothing = await shown(plugin)
            assert nothing == {
                "phase": "none", "since": None, "since_ms": None, "kafka_cluster_id": None,
                "who": None, "why": None, "bridge": None, "attempt": None, "comparison": None,
                "has_broker": False,
            }  # fmt: skip
            await plugin.announce()
            await node.metadata.finalise_feature_level(2)
            await turn(node, KAFKA)
            await asked(plugin)
            since = await turn(node, SWITCHING)
            await asked(plugin, replace(FIRST, seen=0, outstanding=2))
            await asyncio.sleep(3)
            view = await shown(plugin)
            assert (view["phase"], view["since"], view["who"]) == ("switching", since, "ann")
            assert view["bridge"] == {
                "broker_id": 1, "plugin_version": "0.1.0", "seen": "kafka", "outstanding": 2,
                "confirms": False, "age_ms": 3000, "has_lease": True,
            }  # fmt: skip
            await asked(plugin, replace(FIRST, seen=1))
            assert (await shown(plugin))["bridge"]["confirms"]
            await asyncio.sleep(10)
            assert not (await shown(plugin))["bridge"]["has_lease"]

    run_virtually(main)
