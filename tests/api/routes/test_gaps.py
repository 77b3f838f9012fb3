"""Offsets are skipped, and gaps allowed, over the real metadata and log manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from api.http.tokens import Role
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.leadership import Leads, NoAnswer, NotLeading
from tests.api.fake_audit import FakeAudit
from tests.api.fakes import BASE, app_over, make_node, write_tokens
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node, new_world
from tests.rlm.virtual_time import run_virtually

PATH = "/v1/topics/orders/partitions/0"
KEY = ("orders", 0)


@dataclass
class World:
    """A node beside the leader; segment 10 to 19 was cut behind offset 13."""

    node: Node
    broker: FakeBroker
    client: httpx.AsyncClient

    async def post(self, what: str, **body: object) -> httpx.Response:
        return await self.client.post(f"{PATH}/{what}", json={"reason": "it died"} | body)

    async def done(self, what: str, **body: object) -> dict[str, Any]:
        answer = await self.post(what, **body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        await asyncio.sleep(30)
        return found


@asynccontextmanager
async def damaged(tmp_path: Path) -> AsyncIterator[tuple[World, KafkaLog]]:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    path = log.directory / f"{10:020d}.log"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 10 * 4])
    broker = FakeBroker({KEY: Leads(0, 35)})
    world = new_world(tmp_path, (log.log_dir,))
    async with world.boot(data_plane=True, broker=broker) as node:
        await node.remote_log.start()
        await asyncio.sleep(30)
        fakes = make_node()
        context = replace(
            fakes.context,
            manager=node.metadata,
            rlm=node.remote_log,
            answers=node.parts.answers,
            reads=node.parts.reads,
            anonymous_role=Role.ADMIN,
        )
        transport = httpx.ASGITransport(app_over(context))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield World(node, broker, client), log


def test_a_dry_run_says_what_would_be_given_up_and_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with damaged(tmp_path) as (world, log):
            answer = await world.done("skip")
            assert answer["ranges"] == [{"first_offset": 14, "last_offset": 19}]
            assert (answer["offsets"], answer["changed"], answer["dry_run"]) == (6, False, True)
            assert "no good batch of offsets 14 to 19: no broker is configured" in answer["why"]
            assert (await world.done("allow-gaps"))["changed"] is False
            state = world.node.metadata.partition_state(log.partition)
            assert state is not None
            assert (state.lost_ranges, state.gaps_allowed, state.next_offset) == ((), "", 10)

    run_virtually(main)


def test_what_is_skipped_is_lost_with_a_name_and_copying_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with damaged(tmp_path) as (world, log):
            ranges = (await world.done("skip"))["ranges"]
            assert (await world.post("skip", dry_run=False)).json()["field"] == "ranges"
            for other in ([], [{"first_offset": 14, "last_offset": 18}], [*ranges, *ranges]):
                answer = await world.post("skip", dry_run=False, ranges=other)
                assert (answer.status_code, answer.json()["reason"]) == (409, "OTHER_OFFSETS")
            assert world.node.finished(log.partition) == [(0, 9)]
            assert (await world.done("skip", dry_run=False, ranges=ranges))["changed"] is True
            assert world.node.finished(log.partition) == [(0, 9), (10, 13), (20, 29)]
            state = world.node.metadata.partition_state(log.partition)
            assert state is not None
            (lost,) = state.lost_ranges
            assert (lost.start, lost.end) == (14, 19)
            assert lost.why.startswith("skipped by ")
            assert lost.why.endswith(": it died")
            answer = await world.post("skip", dry_run=False, ranges=ranges)
            assert (answer.status_code, answer.json()["reason"]) == (409, "NOT_NEEDED")

    run_virtually(main)


def test_what_is_being_asked_for_is_neither_shown_nor_given_up(tmp_path: Path) -> None:
    class Asked:
        """A replica that is asked; what it has is not known yet."""

        def __init__(self, world: World) -> None:
            self.world = world
            self.answers: list[httpx.Response] = []

        async def replicas(self, partition: TopicIdPartition) -> NoAnswer:
            ranges = [{"first_offset": 14, "last_offset": 19}]
            for body in ({}, {"dry_run": False, "ranges": ranges}):
                self.answers.append(await self.world.post("skip", **body))
            return NoAnswer("it starts")

        async def close(self) -> None:
            """Nothing is open."""

    async def main() -> None:
        async with damaged(tmp_path) as (world, _):
            mender = world.node.remote_log.table._driver.copying.mender
            mender.directory = tmp_path / "mending"
            mender.replicas = asked = cast(Any, Asked(world))
            await asyncio.sleep(700)
            assert [each.json()["reason"] for each in asked.answers[:2]] == ["MENDING"] * 2
            assert (await world.done("skip"))["offsets"] == 6

    run_virtually(main)


def test_offsets_that_are_named_are_given_up_only_among_sealed_ones_not_copied_yet(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with damaged(tmp_path) as (world, log):
            for first, last in ((9, 19), (10, 30), (15, 12), (14, None)):
                body = {"first_offset": first, "last_offset": last, "dry_run": False}
                assert (await world.post("skip", **body)).status_code == 400, body
            await world.done("skip", first_offset=10, last_offset=19, dry_run=False)
            # What can be read of them fills the lost range.
            assert world.node.finished(log.partition) == [(0, 9), (10, 13), (20, 29)]
            answer = await world.post("skip", first_offset=30, last_offset=39, dry_run=False)
            assert (answer.status_code, answer.json()["reason"]) == (409, "NOT_NEEDED")
            assert "every sealed offset" in answer.json()["detail"]

    run_virtually(main)


def test_gaps_that_are_allowed_are_copied_as_they_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with damaged(tmp_path) as (world, log):
            answer = await world.done("allow-gaps", dry_run=False)
            assert answer["changed"] is True
            assert answer["gaps_allowed"].endswith(": it died")
            assert world.node.finished(log.partition) == [(0, 9), (10, 19), (20, 29)]
            assert (await world.done("allow-gaps", dry_run=False))["changed"] is False

    run_virtually(main)


def test_a_node_that_does_not_lead_skips_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with damaged(tmp_path) as (world, _):
            world.broker.words[KEY] = NotLeading()
            await asyncio.sleep(30)
            answer = await world.post("skip", dry_run=False)
            assert (answer.status_code, answer.json()["reason"]) == (409, "NOT_LEADER")

    run_virtually(main)


@pytest.mark.parametrize("what", ["skip", "allow-gaps"])
async def test_these_need_an_admin_and_a_reason(tmp_path: Path, what: str) -> None:
    node = make_node(tokens=write_tokens(tmp_path / "tokens"))
    async with node.client(token="operator-token") as client:
        body = {"reason": "it died"}
        assert (await client.post(f"{BASE}/{what}", json=body)).status_code == 403
    async with node.client(token="boss-token") as client:
        assert (await client.post(f"{BASE}/{what}", json={"reason": ""})).status_code == 400
        assert (await client.post(f"{BASE}/{what}", json={})).status_code == 400
        named = {"reason": "it died", "dry_run": False}
        assert (await client.post(f"{BASE}/allow-gaps", json=named)).status_code == 200
    assert isinstance(node.context.audit, FakeAudit)
    line = node.context.audit.lines[-1]
    assert (line.action, line.by, line.why) == ("gaps_allowed", "boss", "it died")
