"""Releases that know other feature levels, in one quorum: they run together until a level is
raised, which every voter must know, and from then on an older one refuses instead of diverging.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict, InvalidRequest, Refused, RetryLater
from rlmm.quorum.admin import QuorumAdmin
from rlmm.raft.timers import RaftSettings
from rlmm.records.control_records import LogStart
from rlmm.rows.feature_level import LEVELS_KNOWN, FeatureLevels
from tests.rlmm.metadata_node import PARTITION, claim, copied
from tests.rlmm.quorum.local_network import NODES, Network, Replica
from tests.rlmm.quorum.three_managers import Node, leading, same_everywhere, three_nodes

OLD = FeatureLevels(1, 1)
NEW = FeatureLevels(1, 2)
NEWEST = FeatureLevels(2, 3)
STEADY = RaftSettings(
    election_timeout_ms=250,
    fetch_timeout_ms=5_000,
    election_backoff_max_ms=80,
    retry_backoff_ms=5,
    pre_vote_retry_ms=20,
    fetch_wait_max_ms=40,
    shutdown_timeout_ms=100,
)
"""A leader stays while it runs, on a busy machine too; one that stops hands over at once."""


@pytest.fixture
def network() -> Network:
    return Network(settings=STEADY)


@pytest.fixture
async def nodes(tmp_path: Path, network: Network) -> AsyncIterator[list[Node]]:
    async with three_nodes(tmp_path, network) as nodes:
        yield nodes


async def check(
    leader: Node, network: Network, level: int, *, observers_upgraded: bool = False
) -> None:
    """What the leader's node asks before it finalises."""
    known = network.levels.get(leader.replica.node_id, LEVELS_KNOWN)
    admin = QuorumAdmin(leader.replica.log.driver, levels_known=known)
    await admin.check_feature_level(
        level,
        leader.manager.feature_level(),
        observers_upgraded=observers_upgraded,
        deadline_s=10,
    )


async def runs(node: Node, network: Network, levels: FeatureLevels) -> None:
    """Another release is installed and the node restarted."""
    if node.replica.running:
        await node.stop()
    network.levels[node.replica.node_id] = levels
    await node.start()


async def fails_to_start(node: Node, network: Network, levels: FeatureLevels) -> str:
    """As `runs`, and what the node says when it refuses."""
    await node.stop()
    network.levels[node.replica.node_id] = levels
    with pytest.raises(Refused) as refused:
        await node.start()
    await node.replica.stop()
    assert node.view is not None
    node.view.close()
    return str(refused.value)


async def test_an_upgrade_is_finalised_once_every_voter_knows_it_and_taken_back_before(
    nodes: list[Node], network: Network
) -> None:
    network.levels |= dict.fromkeys(NODES, OLD)
    for number, node in enumerate(nodes):
        await runs(node, network, NEW)
        await copied((await leading(nodes)).manager, 1, first=number, boot=number + 1)
        await same_everywhere(nodes)
        leader = await leading(nodes)
        if number < 2:
            with pytest.raises(Conflict, match="node 3 knows 1 to 1") as refused:
                await check(leader, network, 2)
            assert refused.value.reason == "UNSUPPORTED_FEATURE_LEVEL"
    # Back to the old release, as long as nothing is finalised, and forth again.
    for levels in (OLD, NEW):
        for node in nodes:
            await runs(node, network, levels)
    leader = await leading(nodes)
    await check(leader, network, 2)
    await leader.manager.finalise_feature_level(2)
    await same_everywhere(nodes)
    assert {node.manager.feature_level() for node in nodes} == {2}
    with pytest.raises(InvalidRequest, match="can only be raised"):
        await check(leader, network, 1)


async def test_an_older_release_refuses_after_that_and_the_others_go_on(
    nodes: list[Node], network: Network
) -> None:
    for node in nodes:
        await runs(node, network, NEW)
    leader = await leading(nodes)
    await leader.manager.finalise_feature_level(2)
    await same_everywhere(nodes)
    late = next(node for node in nodes if node is not leader)
    said = await fails_to_start(late, network, OLD)
    assert "has feature level 2, and this program knows 1 to 1: run a newer Strandline" in said
    await copied((await leading(nodes)).manager, 3)
    await runs(late, network, NEW)
    await copied(late.manager, 1, first=3, boot=2)
    await same_everywhere(nodes)


async def test_a_node_that_does_not_know_what_was_finalised_stops_before_it_and_does_not_diverge(
    nodes: list[Node], network: Network
) -> None:
    for node in nodes[:2]:
        await runs(node, network, NEW)
    old = nodes[2]
    await runs(old, network, OLD)
    leader = await leading(nodes)
    if leader is old:
        await QuorumAdmin(old.replica.log.driver).transfer(1, deadline_s=10)
    others = nodes[:2]
    leader = await leading(others)
    token = (await leader.manager.claim_partition(claim())).token
    await same_everywhere(nodes)
    before = old.manager.applied_offset
    # As if it had been put back to the old release between the question and the commit.
    end = await leader.manager.finalise_feature_level(2)
    end = await leader.manager.record_log_start(LogStart(PARTITION, token, 1, 5))
    await same_everywhere(others)
    with pytest.raises(RetryLater):
        await old.manager.wait_for_offset(end, deadline_s=10)
    (failure,) = old.failures
    assert "run a newer Strandline on this node" in failure
    assert before <= old.manager.applied_offset < end - 1
    old.failures.clear()
    await runs(old, network, NEW)
    await same_everywhere(nodes)


async def test_a_snapshot_of_a_level_that_is_not_known_is_refused_as_well(
    nodes: list[Node], network: Network
) -> None:
    for node in nodes:
        await runs(node, network, NEW)
    await leading(nodes)
    await same_everywhere(nodes)
    behind = next(node for node in nodes if node is not nodes[0])
    others = [node for node in nodes if node is not behind]
    network.isolate(behind.replica.node_id, NODES)
    leader = await leading(others)
    level_at = await leader.manager.finalise_feature_level(2)
    await copied(leader.manager, 20)
    await leader.manager.take_snapshot()
    await behind.stop()
    network.cut.clear()
    network.levels[behind.replica.node_id] = OLD
    await behind.start()
    with pytest.raises(RetryLater):
        await behind.manager.wait_for_offset(leader.manager.applied_offset, deadline_s=20)
    (failure,) = behind.failures
    assert "has feature level 2, and this program knows 1 to 1" in failure
    behind.failures.clear()
    await behind.stop()
    assert behind.view is not None
    # It may apply what it had fetched before it was cut off, and nothing of the snapshot.
    assert behind.view.applied_offset < level_at
    network.levels[behind.replica.node_id] = NEW
    await behind.start()
    await same_everywhere(nodes)


async def test_a_release_without_the_old_rules_waits_for_the_upgrade(
    nodes: list[Node], network: Network
) -> None:
    leader = await leading(nodes)
    late = next(node for node in nodes if node is not leader)
    said = await fails_to_start(late, network, NEWEST)
    assert "has feature level 1, and this program knows 2 to 3" in said
    assert "run the release before it on every node, `strandline quorum finalize 2`" in said
    for node in nodes:
        await runs(node, network, NEW)
    leader = await leading(nodes)
    await check(leader, network, 2)
    await leader.manager.finalise_feature_level(2)
    await same_everywhere(nodes)
    await runs(late, network, NEWEST)
    await same_everywhere(nodes)


async def test_who_cannot_be_asked_holds_the_upgrade_back(
    nodes: list[Node], network: Network
) -> None:
    for node in nodes:
        await runs(node, network, NEW)
    leader = await leading(nodes)
    silent = next(node for node in nodes if node is not leader)
    await silent.stop()
    with pytest.raises(RetryLater, match=f"the nodes {silent.replica.node_id} did not report"):
        await check(leader, network, 2)
    await silent.start()
    observer = Replica(network, 9, (), bootstrap=NODES)
    await observer.start()
    seen = leader.replica.log.driver.core.describe
    while not seen().observers:
        await leader.replica.log.barrier(deadline_s=10)
    with pytest.raises(Conflict, match="the observers 9 cannot be asked") as refused:
        await check(leader, network, 2)
    assert refused.value.reason == "OBSERVERS_NOT_ASKED"
    await check(leader, network, 2, observers_upgraded=True)
    await observer.stop()
    follower = next(node for node in nodes if node is not leader)
    with pytest.raises(Conflict, match="does not lead"):
        await check(follower, network, 2)
