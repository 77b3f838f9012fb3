"""Kafka 4.3's own tools change a quorum, once they log in as a peer, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafka_formats.kafka_uuid import Uuid
from rlmm.data_directory.data_directory import NewDirectory, format_data_directory
from rlmm.wire.sasl_server import PEER_USER, SCRAM
from tests.real.kafka import run_tool
from tests.rlmm.quorum.following import data
from tests.rlmm.quorum.local_network import directory_id
from tests.rlmm.wire.wire_network import (
    CLUSTER_ID,
    HOST,
    SECRET,
    STEADY,
    Wire,
    WireReplica,
    leader_of,
    replicas,
)

pytestmark = pytest.mark.integration

QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
LOGIN = f"""
security.protocol=SASL_PLAINTEXT
sasl.mechanism={SCRAM}
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="{PEER_USER}" password="{SECRET}";
"""
DEADLINE_S = 60


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[list[WireReplica]]:
    async with replicas(Wire(raft=STEADY), home=tmp_path) as running:
        await leader_of(running)
        yield running


def admin_config(home: Path, node: WireReplica, *, login: str = LOGIN) -> str:
    """What `add-controller` reads of the node it adds: its directory and where it listens."""
    directory = home / f"formatted-{node.node_id}"
    format_data_directory(
        directory,
        NewDirectory(Uuid.parse(CLUSTER_ID), "kafka", node.node_id, node.directory_id, ()),
    )
    config = home / "admin.properties"
    config.write_text(
        f"""
process.roles=controller
node.id={node.node_id}
log.dirs={directory}
controller.listener.names=QUORUM
listeners=QUORUM://{HOST}:{node.port}
listener.security.protocol.map=QUORUM:SASL_PLAINTEXT
{login}"""
    )
    return str(config)


async def tool(*arguments: str) -> str:
    return await asyncio.to_thread(run_tool, QUORUM_TOOL, *arguments)


def voters(node: WireReplica) -> list[int]:
    return [key.node_id for key in node.log.driver.core.voters.keys]


async def test_kafkas_own_tool_removes_a_voter_and_adds_it_again(
    nodes: list[WireReplica], tmp_path: Path
) -> None:
    leader = await leader_of(nodes)
    moved = next(node for node in nodes if node is not leader)
    config = admin_config(tmp_path, moved)
    asked = ("--bootstrap-server", f"{HOST}:{leader.port}", "--command-config", config)
    printed = await tool(
        *asked,
        "remove-controller",
        *("--controller-id", str(moved.node_id)),
        *("--controller-directory-id", str(moved.directory_id)),
    )
    assert f"KRaft controller {moved.node_id} with directory id" in printed
    assert moved.node_id not in voters(leader)
    await leader.log.propose(data(b"without it"), deadline_s=DEADLINE_S)
    async with asyncio.timeout(DEADLINE_S):
        while moved.log.describe().state != "observer":
            await asyncio.sleep(0.05)
    printed = await tool(*asked, "add-controller")
    assert f"Added controller {moved.node_id} with directory id {moved.directory_id}" in printed
    assert voters(leader) == [1, 2, 3]
    assert directory_id(moved.node_id) == moved.directory_id
    end = await moved.log.propose(data(b"with it"), deadline_s=DEADLINE_S) + 1
    assert await leader.log.barrier(deadline_s=DEADLINE_S) >= end


async def test_who_does_not_log_in_changes_nothing(
    nodes: list[WireReplica], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leader = await leader_of(nodes)
    moved = next(node for node in nodes if node is not leader)
    config = admin_config(tmp_path, moved, login="")
    asked = ("--bootstrap-server", f"{HOST}:{leader.port}", "--command-config", config)
    with pytest.raises(RuntimeError, match="ClusterAuthorizationException"):
        await tool(*asked, "add-controller")
    with pytest.raises(RuntimeError, match="ClusterAuthorizationException"):
        await tool(
            *asked,
            "remove-controller",
            *("--controller-id", str(moved.node_id)),
            *("--controller-directory-id", str(moved.directory_id)),
        )
    assert voters(leader) == [1, 2, 3]
    assert "REMOVE_RAFT_VOTER, which is refused: only peers may" in caplog.text
