"""A node whose prefix was taken over by a successor cluster writes and deletes nothing there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import Refused, RetryLater
from rlm.control.surroundings import Identity
from rlm.stores.cluster_marker import claim_prefix, confirm_prefix, read_marker, take_over
from rlm.stores.tier_store import TierStore
from rsm_backends.memory import MemoryStore
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import PREFIX, World, new_world
from tests.rlm.planner_facts import ME, NOW_MS
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


class TakenOver:
    """At the first passage of `step` a successor takes the prefix over; then `step` fails.

    What the node asks of the store afterwards is in `later`.
    """

    def __init__(self, world: World, step: str, *, fails: bool) -> None:
        self._world = world
        self._step = step
        self._fails = fails
        self._done = False
        self.later: list[str] = []

    async def __call__(self, name: str) -> None:
        if self._done:
            self.later.append(name)
        if self._done or name != self._step:
            return
        self._done = True
        tier = TierStore("main", self._world.store, PREFIX)
        before = await read_marker(tier)
        assert before is not None
        await take_over(
            tier,
            before,
            before.successor("the-next-one", None, began_with="a snapshot"),
            deadline_s=5,
        )
        if self._fails:
            raise RetryLater("the store is away")


def changing(steps: list[str]) -> list[str]:
    """Those that change the bucket."""
    return [step for step in steps if step.startswith("before ") and _changes(step.split()[1])]


def _changes(verb: str) -> bool:
    return verb in ("put", "replace", "start", "complete", "delete", "abort")


def test_the_objects_of_a_failed_attempt_stay_once_the_prefix_is_another_clusters(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        hook = TakenOver(world, "before put .rsm-manifest", fails=True)
        async with world.boot(hook=hook) as node:
            report = await node.remote_log.run_once()
            assert not report.complete
            assert report.copied == ()
            assert changing(hook.later) == []
            suffixes = sorted(key.rpartition(".")[2] for key in await node.keys())
            assert suffixes == ["indexes", "json", "log"]

    run_virtually(main)


def test_no_copy_begins_once_the_prefix_is_another_clusters(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        hook = TakenOver(world, "after upload", fails=False)
        async with world.boot(hook=hook) as node:
            report = await node.remote_log.run_once()
            assert len(report.copied) == 1  # the one whose last byte was sent before
            assert changing(hook.later) == []
            page = node.remote_log.status(orders.partition)
            assert page.last_error is not None
            assert "took this prefix over" in page.last_error.text

    run_virtually(main)


async def test_who_is_shut_out_is_told_once_and_who_is_not_is_not() -> None:
    tier = TierStore("main", MemoryStore(lambda: NOW_MS), PREFIX)
    ours = Identity("a", "kafka", ME)
    told: list[str] = []
    with pytest.raises(Refused, match="is gone"):
        await confirm_prefix(tier, ours, deadline_s=5, on_shut_out=told.append)
    assert told == []
    await claim_prefix(tier, ours, deadline_s=5)
    await confirm_prefix(tier, ours, deadline_s=5, on_shut_out=told.append)
    assert told == []
    with pytest.raises(Refused):
        await confirm_prefix(
            tier, replace(ours, cluster_id="b"), deadline_s=5, on_shut_out=told.append
        )
    (why,) = told
    assert "prefix of its own" in why
