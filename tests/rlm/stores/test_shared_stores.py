"""A store that is not the one other nodes copy to is told, and nothing that only looks like it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.surroundings import Identity, Surroundings
from rlm.format.object_keys import segment_keys
from rlm.stores.shared_stores import LOOK_INTERVAL_S, LOOKS_MIN, SharedStores
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.segment import Incarnation
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ObjectStore
from tests.rlm.hooked_store import HookedStore
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, PREFIX, Node, new_world
from tests.rlm.planner_facts import DIRECTORY
from tests.rlm.test_service_retention import EVERYTHING_IS_OLD, decide, expire
from tests.rlm.virtual_time import run_virtually, virtual_ambient

TOLD_WITHIN_S = (LOOKS_MIN + 1) * LOOK_INTERVAL_S


@asynccontextmanager
async def copied(tmp_path: Path) -> AsyncIterator[tuple[Node, KafkaLog]]:
    """Node 1 has copied two segments of each of two partitions."""
    log_dir = new_log_dir(tmp_path / "kafka")
    logs = [KafkaLog.create(log_dir, "orders", number, entries=((0, 0),)) for number in (0, 1)]
    for log in logs:
        log.write(0, 10, 20, end=25)
    async with new_world(tmp_path, (log_dir,)).boot() as node:
        assert (await node.remote_log.run_once()).complete
        yield node, logs[0]


@asynccontextmanager
async def looking(node: Node, store: ObjectStore, node_id: int = 2) -> AsyncIterator[SharedStores]:
    """Another node, with a store of the same name."""
    identity = Identity("strandline-cluster", None, Incarnation(node_id, DIRECTORY, 1))
    shared = SharedStores(
        node.metadata,
        TierStores({"main": TierStore("main", store, PREFIX)}, "main"),
        Surroundings(identity, LIMITS, virtual_ambient()),
    )
    task = asyncio.create_task(shared.run())
    try:
        await asyncio.sleep(TOLD_WITHIN_S)
        yield shared
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_store_without_anything_that_another_node_copied_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        empty = MemoryStore(lambda: 0)
        async with copied(tmp_path) as (node, log), looking(node, empty) as shared:
            (problem,) = shared.problems()
            assert (problem.area, problem.name) == (ProblemArea.STORE, "main")
            assert "node 1 copied to the store 'main'" in problem.text
            assert "(and none of 1 more of other nodes)" in problem.text
            assert str(log.partition.topic_id) in problem.text

    run_virtually(main)


def test_a_shared_store_is_not_told_nor_is_what_a_node_copied_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with copied(tmp_path) as (node, _):
            async with looking(node, node.store) as shared:
                assert shared.problems() == ()
            async with looking(node, MemoryStore(lambda: 0), node_id=1) as shared:
                assert shared.problems() == ()

    run_virtually(main)


def test_one_object_of_one_segment_shows_that_a_store_is_shared(tmp_path: Path) -> None:
    async def main() -> None:
        async with copied(tmp_path) as (node, _):
            rows = [
                row
                for tip in node.metadata.partitions()
                for row in node.metadata.list_remote_log_segments(tip)
            ]
            last = max(rows, key=lambda row: row.start_offset)
            keep = segment_keys(PREFIX, last.segment_id, last.start_offset).indexes
            for row in rows:
                keys = segment_keys(PREFIX, row.segment_id, row.start_offset).all()
                await MemoryStore.delete_many(node.store, [key for key in keys if key != keep])
            async with looking(node, node.store) as shared:
                assert shared.problems() == ()
            await MemoryStore.delete_many(node.store, [keep])
            async with looking(node, node.store) as shared:
                assert len(shared.problems()) == 1

    run_virtually(main)


def test_a_store_that_does_not_answer_shows_nothing_and_the_right_one_ends_it(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with copied(tmp_path) as (node, _):
            there: ObjectStore = MemoryStore(lambda: 0)
            trouble: RetryLater | None = RetryLater("connection refused")

            async def hook(step: str) -> None:
                if trouble is not None and step.startswith("before"):
                    raise trouble

            store = HookedStore(there, hook)
            async with looking(node, store) as shared:
                assert shared.problems() == ()
                trouble = None
                await asyncio.sleep(TOLD_WITHIN_S)
                told: tuple[NodeProblem, ...] = shared.problems()
                assert len(told) == 1
                trouble = RetryLater("connection refused")
                await asyncio.sleep(TOLD_WITHIN_S)
                assert shared.problems() == told
                trouble = None
                shared.stores = TierStores({"main": TierStore("main", node.store, PREFIX)}, "main")
                await asyncio.sleep(TOLD_WITHIN_S)
                assert shared.problems() == ()

    run_virtually(main)


def test_segments_that_expired_meanwhile_are_not_missed(tmp_path: Path) -> None:
    async def main() -> None:
        async with copied(tmp_path) as (node, _):
            await decide(node, EVERYTHING_IS_OLD)
            await expire(node)
            async with looking(node, MemoryStore(lambda: 0)) as shared:
                assert shared.problems() == ()

    run_virtually(main)


def test_a_node_that_cannot_catch_up_does_not_tell_of_what_may_be_deleted_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def alone(self: RemoteLogMetadataManager, *, deadline_s: float) -> None:
        raise RetryLater(f"no quorum leader within {deadline_s:g} s")

    async def main() -> None:
        async with copied(tmp_path) as (node, _):
            monkeypatch.setattr(RemoteLogMetadataManager, "catch_up", alone)
            async with looking(node, MemoryStore(lambda: 0)) as shared:
                assert shared.problems() == ()

    run_virtually(main)
