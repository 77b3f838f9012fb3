"""A store that is down, or that hangs, is told within twenty seconds, whatever the node does."""

from __future__ import annotations

import asyncio
import logging

from kafka_formats.errors import RetryLater
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.stores.store_watch import StoreWatch
from rlm.stores.tier_store import TierStore, TierStores
from rsm_backends.memory import MemoryStore
from tests.rlm.hooked_store import HookedStore
from tests.rlm.virtual_time import run_virtually, virtual_ambient

WITHIN_S = 20.0


def test_a_store_is_told_while_it_is_down_and_while_it_hangs() -> None:
    async def main() -> None:
        trouble = ""

        async def hook(step: str) -> None:
            if trouble == "down" and step.startswith("before"):
                raise RetryLater("connection refused")
            if trouble == "hangs" and step.startswith("before"):
                await asyncio.Event().wait()

        ambient = virtual_ambient()
        tier = TierStore("main", HookedStore(MemoryStore(ambient.now_ms), hook), "tier/")
        log = ProblemLog(logging.getLogger(__name__))
        watch = StoreWatch(TierStores({"main": tier}, "main"), ambient, log)
        task = asyncio.create_task(watch.run())

        def told() -> list[NodeProblem]:
            return list(watch.problems())

        await asyncio.sleep(WITHIN_S)
        assert told() == []  # an empty store answers
        trouble = "down"
        await asyncio.sleep(WITHIN_S)
        (problem,) = told()
        assert (problem.area, problem.name) == (ProblemArea.STORE, "main")
        assert problem.text.startswith("it does not work now, for 1")
        assert problem.text.endswith("connection refused")
        trouble = ""
        await asyncio.sleep(WITHIN_S)
        assert told() == []
        trouble = "hangs"
        await asyncio.sleep(WITHIN_S)
        assert [each.text for each in told()] == ["it does not work now: no answer in 8 s"]
        task.cancel()

    run_virtually(main)


async def test_calls_that_hang_are_told_of_a_store_that_answers_and_of_one_that_does_not() -> None:
    hung = {"main": "2 calls hang", "other": "1 call hangs"}
    ambient = virtual_ambient()
    tier = TierStore("main", MemoryStore(ambient.now_ms), "tier/")
    log = ProblemLog(logging.getLogger(__name__))
    watch = StoreWatch(TierStores({"main": tier}, "main"), ambient, log, lambda: hung)
    watch._silent["main"] = "it does not work now"
    assert [(each.name, each.text) for each in watch.problems()] == [
        ("main", "it does not work now; 2 calls hang"),
        ("other", "1 call hangs"),
    ]
