"""Three metadata managers over three replicas: one state, whichever node writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rlmm.records.control_records import LogStart
from tests.rlmm.metadata_node import PARTITION, claim, copied, finished, started
from tests.rlmm.quorum.local_network import NODES, Network
from tests.rlmm.quorum.three_managers import Node, leading, same_everywhere, three_nodes


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
async def nodes(tmp_path: Path, network: Network) -> AsyncIterator[list[Node]]:
    async with three_nodes(tmp_path, network) as nodes:
        yield nodes


async def test_what_any_node_writes_is_readable_there_and_the_same_everywhere(
    nodes: list[Node],
) -> None:
    await leading(nodes)
    answer = await nodes[0].manager.claim_partition(claim())
    await nodes[1].manager.record_log_start(LogStart(PARTITION, answer.token, 1, 0))
    for number, node in enumerate(nodes):
        segment = started(number, answer.token)
        await node.manager.add_remote_log_segment_metadata(segment)
        offset = await node.manager.update_remote_log_segment_metadata(finished(segment))
        found = node.manager.remote_log_segment_metadata(PARTITION, 1, number * 100)
        assert found is not None
        for other in nodes:
            await other.manager.wait_for_offset(offset, deadline_s=10)
    await same_everywhere(nodes)


async def test_a_running_node_that_was_cut_off_goes_on_from_the_leaders_snapshot(
    network: Network, nodes: list[Node]
) -> None:
    leader = await leading(nodes)
    await copied(leader.manager, 2)
    behind = next(node for node in nodes if node is not leader)
    others = [node for node in nodes if node is not behind]
    network.isolate(behind.replica.node_id, NODES)
    leader = await leading(others)
    await copied(leader.manager, 20, first=2, boot=2)
    await leader.manager.take_snapshot()
    assert leader.manager.describe().log_start_offset > behind.manager.applied_offset + 1
    network.cut.clear()
    await same_everywhere(nodes)
    assert behind.manager.remote_log_segment_metadata(PARTITION, 1, 2_150) is not None
    await copied(behind.manager, 1, first=22, boot=3)
    await same_everywhere(nodes)
