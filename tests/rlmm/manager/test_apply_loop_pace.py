"""Records gather while nobody waits for them, and are applied at once when somebody does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rlmm.manager.apply_loop import ApplyPace
from rlmm.manager.manager import MetadataLimits
from rlmm.metadata_log import Proposal
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import TopicPolicyChange
from rlmm.records.records import encode
from tests.rlmm.metadata_node import Node, running_node

NEVER_MS = 3_600_000


async def test_there_is_no_rest_while_somebody_waits() -> None:
    awaited = ApplyPace(NEVER_MS)
    with awaited.waiting():
        rests = [awaited.rest(), ApplyPace(0).rest()]
        tasks = [asyncio.create_task(each) for each in rests]
        await asyncio.sleep(0)
        assert all(task.done() for task in tasks)


async def test_a_rest_ends_by_itself() -> None:
    resting = asyncio.create_task(ApplyPace(1).rest())
    await asyncio.sleep(0)
    assert not resting.done()
    await asyncio.wait((resting,), timeout=60)
    assert resting.done()


async def test_a_rest_ends_when_somebody_begins_to_wait() -> None:
    resting = ApplyPace(NEVER_MS)
    task = asyncio.create_task(resting.rest())
    await asyncio.sleep(0)
    assert not task.done()
    with resting.waiting():
        await task


def policy(number: int) -> Proposal:
    return encode(TopicPolicyChange(f"topic-{number}", TopicPolicy(retention_ms=number), -1))


async def elsewhere_proposed(node: Node, number: int) -> int:
    """As another node's proposal comes: nobody here waits for its outcome."""
    return await node.log.propose((policy(number),), deadline_s=60)


async def rested(node: Node) -> int:
    """The offset of a record that is committed, and not applied: the node rests."""
    last = await elsewhere_proposed(node, 1)
    await node.manager.wait_for_offset(last, deadline_s=60)
    while node.manager.applied_offset == last:
        # The first behind a wait may still be applied at once.
        before, last = last, await elsewhere_proposed(node, last + 1)
        for _ in range(100):
            await asyncio.sleep(0)
        if node.manager.applied_offset == before:
            break
    return last


@pytest.mark.parametrize("how", ["an offset", "an outcome"])
async def test_a_node_that_rests_applies_for_whoever_waits(tmp_path: Path, how: str) -> None:
    limits = MetadataLimits(apply_rest_ms=NEVER_MS)
    async with running_node(tmp_path, limits=limits) as node:
        last = await rested(node)
        assert node.manager.applied_offset < last
        if how == "an offset":
            await node.manager.wait_for_offset(last, deadline_s=60)
        else:
            change = TopicPolicyChange("mine", TopicPolicy(retention_ms=1), -1)
            last = await node.manager.set_topic_policy(change)
        assert node.manager.applied_offset >= last


async def test_a_node_does_not_rest_while_a_proposer_waits_for_its_outcome(tmp_path: Path) -> None:
    limits = MetadataLimits(apply_rest_ms=NEVER_MS)
    async with asyncio.timeout(60), running_node(tmp_path, limits=limits) as node:
        with node.manager._waiters.proposal():
            for number in range(5):
                last = await elsewhere_proposed(node, number)
                while node.manager.applied_offset < last:
                    await asyncio.sleep(0)


async def test_a_node_that_rests_closes_at_once(tmp_path: Path) -> None:
    limits = MetadataLimits(apply_rest_ms=NEVER_MS)
    async with asyncio.timeout(60), running_node(tmp_path, limits=limits) as node:
        last = await rested(node)
    async with running_node(tmp_path, limits=limits) as node:
        assert node.manager.applied_offset >= last
