"""A bug of ours in the quorum stops the node, whoever meets it: it never hangs in silence."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from unittest.mock import patch

import pytest

from kafka_formats.errors import OutcomeUnknown, RetryLater
from rlmm.quorum import driver
from rlmm.raft.actions import Action
from rlmm.raft.core import RaftCore
from rlmm.raft.events import Event, FlushCompleted, RequestReceived, Tick
from rlmm.raft.messages import Batch, DescribeQuorumRequest
from tests.rlmm.quorum.following import data
from tests.rlmm.quorum.local_network import NODES, Network, Replica, leader_of, voters_of

step = RaftCore.step


@pytest.mark.parametrize("met_by", [Tick, FlushCompleted, RequestReceived])
async def test_a_step_that_fails_stops_the_node(met_by: type[Event]) -> None:
    network = Network()
    replicas = [Replica(network, node_id, voters_of(*NODES)) for node_id in NODES]
    for replica in replicas:
        await replica.start()
    leader = await leader_of(replicas)
    its_core = leader.log.driver.core

    def broken(core: RaftCore, event: Event, now_ms: int) -> tuple[Action, ...]:
        if core is its_core and isinstance(event, met_by):
            raise AssertionError("a bug")
        return step(core, event, now_ms)

    with patch.object(RaftCore, "step", broken):
        proposing = asyncio.ensure_future(leader.log.propose(data(b"a"), deadline_s=30))
        async with asyncio.timeout(10):
            while not leader.failures:
                await asyncio.sleep(0.005)
        assert leader.failures == ["internal error: AssertionError('a bug')"]
        # It may be committed before the step that fails, or be refused because that came first.
        with suppress(OutcomeUnknown, RetryLater):
            await proposing
        with pytest.raises(RetryLater, match="a bug"):
            await leader.log.driver.answer(DescribeQuorumRequest())
        async with asyncio.timeout(10):
            await leader.stop()
        others = [replica for replica in replicas if replica is not leader]
        await (await leader_of(others)).log.propose(data(b"b"), deadline_s=10)
        for replica in others:
            await replica.stop()


async def test_an_action_that_fails_behind_a_stored_vote_stops_the_node() -> None:
    """The first record of an epoch is placed once its leadership is on the disk."""
    network = Network()
    replica = Replica(network, 1, voters_of(1))

    def broken(batch: Batch, *, timestamp_ms: int) -> None:
        raise AssertionError(f"a bug at {batch.base_offset}, {timestamp_ms}")

    with patch.object(driver, "place", broken):
        async with asyncio.timeout(5):
            with suppress(RetryLater):
                await replica.start()
            while not replica.failures:
                await asyncio.sleep(0.005)
    assert "a bug at 0" in replica.failures[0]
