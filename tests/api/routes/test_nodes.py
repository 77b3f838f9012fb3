"""The nodes of the cluster over HTTP: list, show, remove."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kafka_formats.errors import Conflict
from rlmm.records.control_records import NodeRemoved
from rlmm.rows.nodes import Liveness
from tests.api.fake_audit import FakeAudit
from tests.api.fake_nodes import FENCED_NODE, LIVE_NODE
from tests.api.fakes import make_node, write_tokens


async def test_every_registered_node_is_told_with_what_it_registered() -> None:
    node = make_node()
    async with node.client() as client:
        found = (await client.get("/v1/nodes")).json()
    live, fenced = found["nodes"]
    assert found["metadata_offset"] == node.manager.applied_offset
    assert live == {
        "node_id": 1,
        "directory_id": str(LIVE_NODE.directory_id),
        "boot_counter": 3,
        "node_epoch": 60,
        "registered_ms": 1_700_000_000_000,
        "liveness": "live",
        "liveness_since_ms": 1_700_000_000_000,
        "contested": False,
        "quorum_role": "leader",
        "release": "0.1.0",
        "feature_levels": "1 to 1",
        "http": "https://n1:9480",
        "quorum": "n1:9481",
        "read": {"host": "n1", "port": 19_092, "zone": "zone-a"},
        "log_dirs": 2,
    }
    assert (fenced["liveness"], fenced["quorum_role"]) == ("fenced", "observer")
    assert fenced["liveness_since_ms"] == FENCED_NODE.liveness_ms
    assert [fenced[name] for name in ("release", "http", "read", "log_dirs")] == [None] * 4


async def test_a_node_that_is_gone_is_removed_once_and_noted() -> None:
    node = make_node()
    async with node.client() as client:
        for _ in range(2):
            answer = await client.delete("/v1/nodes/7")
            assert (answer.status_code, answer.json()["liveness"]) == (200, "removed")
        assert [each["node_id"] for each in (await client.get("/v1/nodes")).json()["nodes"]] == [1]
        assert (await client.get("/v1/nodes/7")).json()["liveness"] == "removed"
    assert node.manager.removed == [NodeRemoved(7, FENCED_NODE.boot_offset)]
    assert isinstance(node.context.audit, FakeAudit)
    (line,) = [each for each in node.context.audit.lines if each.action == "node_removed"]
    assert line.why == (
        f"node 7, directory {FENCED_NODE.directory_id}, was removed from the list of nodes"
    )


async def test_voters_living_and_unknown_nodes_are_not_removed() -> None:
    node = make_node()
    node.manager.nodes = (replace(LIVE_NODE, liveness=Liveness.FENCED), LIVE_NODE, FENCED_NODE)
    async with node.client() as client:
        answer = await client.delete("/v1/nodes/1")
        assert (answer.status_code, answer.json()["reason"]) == (409, "IS_A_VOTER")
        assert "remove-voter 1" in answer.json()["detail"]
        assert (await client.delete("/v1/nodes/9")).status_code == 404
        assert (await client.get("/v1/nodes/9")).status_code == 404
        node.manager.not_removed = Conflict("node 7 lives", reason="CONFLICT")
        assert (await client.delete("/v1/nodes/7")).status_code == 409
    assert node.manager.removed == []


async def test_only_an_admin_removes_a_node(tmp_path: Path) -> None:
    node = make_node(anonymous_role=None, tokens=write_tokens(tmp_path / "tokens"))
    async with node.client() as client:
        for name, status in (("reader", 403), ("operator", 403), ("boss", 200)):
            headers = {"Authorization": f"Bearer {name}-token"}
            assert (await client.get("/v1/nodes", headers=headers)).status_code == 200
            answer = await client.delete("/v1/nodes/7", headers=headers)
            assert answer.status_code == status, name


async def test_nodes_are_counted_by_liveness() -> None:
    node = make_node()
    async with node.client() as client:
        metrics = (await client.get("/metrics")).text
    assert 'strandline_nodes{liveness="live"} 1.0' in metrics
    assert 'strandline_nodes{liveness="fenced"} 1.0' in metrics
    assert 'strandline_nodes{liveness="stopped"} 0.0' in metrics
