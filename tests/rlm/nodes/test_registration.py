"""Registers until it worked. Two living processes with one node id: each hears of the other, stops,
and says what to do.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import Fenced, OutcomeUnknown
from kafka_formats.kafka_uuid import Uuid
from rlm.control.node_problem import ProblemArea
from rlm.control.surroundings import Identity, Surroundings
from rlm.nodes.registration import NodeRegistrar
from rlmm.records.control_records import NodeRegistration, NodeRemoved, NodeStopped
from rlmm.rows.feature_level import REJOINING_LEVEL
from rlmm.rows.nodes import Liveness, RegisteredNode
from rlmm.segment import Incarnation
from tests.rlm.one_node import LIMITS
from tests.rlm.virtual_time import run_virtually, virtual_ambient
from tests.rlmm.metadata_node import Node, running_node

FIRST = Incarnation(1, Uuid(b"the first disk.."), 1)
ANEW = Incarnation(1, Uuid(b"formatted anew.."), 1)
AGAIN = Incarnation(1, ANEW.directory_id, 2)


class Process:
    """One that registers; `told` is why it has to stop."""

    def __init__(self, node: Node, incarnation: Incarnation) -> None:
        self.told: list[str] = []
        limits = replace(LIMITS, scan_interval_s=3_600.0)
        around = Surroundings(Identity("cluster", None, incarnation), limits, virtual_ambient())
        self.registrar = NodeRegistrar(node.manager, around, self.told.append)

    async def register(self) -> None:
        await self.registrar.ensure()
        await self.look()

    async def look(self) -> None:
        await self.registrar.look()


def test_both_stop_and_say_which_they_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_node(tmp_path) as node:
            first, anew = Process(node, FIRST), Process(node, ANEW)
            await first.register()
            await anew.register()
            assert (first.told, anew.told) == ([], []), "the first one may be dead"
            for process in (first, anew, first):
                await process.look()
            for process, other in ((first, ANEW), (anew, FIRST)):
                (told,) = process.told
                assert told.startswith("another process has node id 1: ")
                assert str(other.directory_id) in told
                assert "End one of them for good" in told
            again = Process(node, AGAIN)
            await again.register()
            await again.look()
            assert again.told == []

    run_virtually(main)


def test_an_earlier_life_of_a_directory_stops_as_soon_as_it_registers(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_node(tmp_path) as node:
            await Process(node, AGAIN).register()
            earlier = Process(node, ANEW)
            with pytest.raises(Fenced):
                await earlier.register()
            assert len(earlier.told) == 1

    run_virtually(main)


def test_a_registration_that_an_election_fails_is_tried_again_however_seldom_the_node_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running_node(tmp_path) as node:
            process = Process(node, FIRST)
            register, begin = node.manager.record_node, asyncio.get_running_loop().time()

            async def fails_at_first(said: NodeRegistration, *, deadline_s: float) -> None:
                if asyncio.get_running_loop().time() - begin < 60.0:
                    raise OutcomeUnknown("the leader resigned")
                await register(said, deadline_s=deadline_s)

            monkeypatch.setattr(node.manager, "record_node", fails_at_first)
            task = asyncio.create_task(process.registrar.run())
            await asyncio.sleep(20.0)
            assert list(process.registrar.problems()) == []
            await asyncio.sleep(20.0)
            (problem,) = process.registrar.problems()
            assert (problem.area, problem.name) == (ProblemArea.NODES, "1")
            assert problem.text.endswith("the last error: the leader resigned")
            await asyncio.sleep(25.0)
            assert list(process.registrar.problems()) == []
            assert node.manager.registered_node(1) is not None
            task.cancel()

    run_virtually(main)


def test_a_living_node_that_was_removed_is_back_or_says_that_it_is_left_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_node(tmp_path) as node:
            process, manager = Process(node, FIRST), node.manager

            async def removed() -> RegisteredNode:
                row = manager.registered_node(1)
                assert row is not None
                await manager.record_node(NodeStopped(FIRST, row.boot_offset))
                await manager.record_node(NodeRemoved(1, row.boot_offset))
                await process.look()
                row = manager.registered_node(1)
                assert row is not None
                return row

            await process.register()
            assert (await removed()).liveness is Liveness.REMOVED, "an older program may be beside"
            (problem,) = process.registrar.problems()
            assert (problem.area, problem.name) == (ProblemArea.NODES, "1")
            assert "Restart it" in problem.text
            await manager.finalise_feature_level(REJOINING_LEVEL)
            await process.look()
            assert list(process.registrar.problems()) == []
            assert (await removed()).liveness is Liveness.LIVE
            assert process.told == []

    run_virtually(main)


def test_a_node_that_does_not_come_back_on_the_list_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running_node(tmp_path) as node:
            process, manager = Process(node, FIRST), node.manager
            await process.register()
            await manager.finalise_feature_level(REJOINING_LEVEL)
            row = manager.registered_node(1)
            assert row is not None
            await manager.record_node(NodeStopped(FIRST, row.boot_offset))
            await manager.record_node(NodeRemoved(1, row.boot_offset))
            register, fails = manager.record_node, True

            async def register_or_fail(said: NodeRegistration, *, deadline_s: float) -> None:
                if fails:
                    raise OutcomeUnknown("the leader resigned")
                await register(said, deadline_s=deadline_s)

            monkeypatch.setattr(manager, "record_node", register_or_fail)
            task = asyncio.create_task(process.registrar.run())
            await asyncio.sleep(20.0)
            assert list(process.registrar.problems()) == []
            await asyncio.sleep(20.0)
            (problem,) = process.registrar.problems()
            assert (problem.area, problem.name) == (ProblemArea.NODES, "1")
            assert "removed from the list of nodes, but lives" in problem.text
            assert problem.text.endswith("the last error: the leader resigned")
            fails = False
            await asyncio.sleep(10.0)
            assert list(process.registrar.problems()) == []
            row = manager.registered_node(1)
            assert row is not None
            assert row.liveness is Liveness.LIVE
            task.cancel()

    run_virtually(main)


def test_a_removed_process_whose_directory_lives_on_in_a_later_one_stops(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_node(tmp_path) as node:
            process, manager = Process(node, ANEW), node.manager
            await process.register()
            await manager.finalise_feature_level(REJOINING_LEVEL)
            await Process(node, AGAIN).register()
            row = manager.registered_node(1)
            assert row is not None
            await manager.record_node(NodeStopped(AGAIN, row.boot_offset))
            await manager.record_node(NodeRemoved(1, row.boot_offset))
            with pytest.raises(Fenced):
                await process.look()
            assert len(process.told) == 1

    run_virtually(main)
