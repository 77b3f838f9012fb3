"""Two nodes with one id, or one directory: one of them is refused and says what to do, and the
quorum goes on.
"""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from kafka_formats.kafka_uuid import Uuid
from tests.real.ports import free_ports
from tests.rlmm.log.crash_disk import CrashDisk
from tests.rlmm.quorum.local_network import directory_id
from tests.rlmm.wire.lying_leader import (
    same_everywhere,
    written,
)
from tests.rlmm.wire.wire_network import (
    WireReplica,
    leader_of,
    replicas,
)

pytestmark = pytest.mark.timeout(400)
LOADED_S = 120
"""A test takes 2 s, and was seen to take 21 s where the process stood still for up to 1.2 s at a
time: a deadline is for what never ends.
"""


async def test_a_wiped_voter_formatted_anew_follows_without_a_vote_and_is_told_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with replicas() as nodes:
        values = (b"%d" % number for number in count())
        acknowledged = await written(nodes, values, 5)
        leader = await leader_of(nodes)
        lost = next(node for node in nodes if node is not leader)
        await lost.stop()
        ports = {node.node_id: node.port for node in nodes}
        wiped = WireReplica(lost.node_id, ports, lost.wire, directory=Uuid(b"a new directory."))
        await wiped.start()
        known = f"the voter {lost.node_id} has {directory_id(lost.node_id)}"
        async with asyncio.timeout(LOADED_S):
            while known not in caplog.text:
                await asyncio.sleep(0.01)
        assert wiped.log.describe().state == "observer"
        assert f"quorum remove-voter {lost.node_id} --directory-id" in caplog.text
        # It does not vote as the old one: nobody leads with its help.
        other = next(node for node in nodes if node not in (leader, lost))
        await leader.stop()
        async with asyncio.timeout(LOADED_S):
            while "does not vote for a directory that is gone" not in caplog.text:
                await asyncio.sleep(0.01)
        assert not other.log.driver.core.established
        await leader.start()
        acknowledged += await written(nodes, values, 3)
        await wiped.stop()
        await lost.start()
        await same_everywhere(nodes, acknowledged)
        assert wiped.failures == []


async def test_a_voter_formatted_by_the_line_of_its_first_time_helps_nobody_who_lacks_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with replicas() as nodes:
        values = (b"%d" % number for number in count())
        acknowledged = await written(nodes, values, 1)
        leader = await leader_of(nodes)
        lost, behind = (node for node in nodes if node is not leader)
        await behind.stop()
        acknowledged += await written(nodes, values, 5)
        await leader.stop()
        await lost.stop()
        ports = {node.node_id: node.port for node in nodes}
        again = WireReplica(lost.node_id, ports, lost.wire)
        await again.start()
        await behind.start()
        # A round of elections is over, and the one that lacks records was refused.
        async with asyncio.timeout(LOADED_S):
            while f"No answer from node {leader.node_id}" not in caplog.text:
                await asyncio.sleep(0.01)
        assert not any(node.log.driver.core.established for node in (again, behind))
        assert again.log.describe().remembers_nothing
        await leader.start()
        now = [leader, again, behind]
        await same_everywhere(now, acknowledged)
        assert not again.log.describe().remembers_nothing
        await again.stop()


@pytest.mark.parametrize("of_the_leader", [False, True], ids=["of a follower", "of the leader"])
async def test_of_two_nodes_with_one_copied_directory_one_stops_and_the_quorum_goes_on(
    caplog: pytest.LogCaptureFixture, of_the_leader: bool
) -> None:
    async with replicas() as nodes:
        values = (b"%d" % number for number in count())
        acknowledged = await written(nodes, values, 5)
        leader = await leader_of(nodes)
        original = next(node for node in nodes if (node is leader) == of_the_leader)
        disk = original.disk
        assert isinstance(disk, CrashDisk)
        ports = {node.node_id: node.port for node in nodes}
        copy = WireReplica(
            original.node_id,
            ports,
            original.wire,
            disk=disk.copy(),
            port=free_ports(1)[0],
            starts=original.starts,
        )
        await copy.start()
        two = (original, copy)
        async with asyncio.timeout(LOADED_S):
            while not any(node.failures for node in two):
                await asyncio.sleep(0.01)
        (stopped,) = (node for node in two if node.failures)
        assert "another process with this node's identity" in stopped.failures[0]
        assert "a data directory was copied, or restored while its node ran" in stopped.failures[0]
        assert "was refused: a data directory was copied" in caplog.text
        others = [node for node in nodes if node is not original]
        acknowledged += await written(others, values, 5)
        for node in two:
            node.failures.clear()
            await node.stop()
        await original.start()
        await same_everywhere(nodes, acknowledged)
