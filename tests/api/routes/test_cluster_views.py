"""Lag, sizes, running work and problems of all nodes over HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.copy.lag import Lag
from rlm.copy.partition_status import CopyUnderWay, PartitionStatus
from rlm.delete.clean_up_tasks import PendingCleanUp
from rlmm.quorum.envelopes import Envelope
from rlmm.quorum.network_ports import PeerFailedError
from rlmm.segment import RemoteLogSegmentId
from tests.api.fake_cluster import FakeCluster
from tests.api.fakes import make_node, make_status, segment_uuid

TOPICS = ("a", "b", "c", "d")


def tip(topic: str, partition: int) -> TopicIdPartition:
    return TopicIdPartition(topic, Uuid(topic.encode().ljust(16)), partition)


def a_copy(of: TopicIdPartition, number: int) -> CopyUnderWay:
    return CopyUnderWay(RemoteLogSegmentId(of, segment_uuid(number)), 300, 399, 10, 1_000)


def statuses(node_id: int) -> Iterable[PartitionStatus]:
    """Of each topic the partitions 0 to 2: node 1 leads 0, and so on; all have a replica. `d` is
    known on node 3 alone, and up to date.
    """
    for topic in TOPICS if node_id == 3 else TOPICS[:3]:
        for partition in range(3):
            leads = partition + 1 == node_id
            each = tip(topic, partition)
            lag = Lag(100, 1, partition * 1_000 + ord(topic)) if leads else None
            copying = a_copy(each, partition) if leads and topic == "a" else None
            yield replace(
                make_status(each), lag=Lag(0, 0, 0) if leads and topic == "d" else lag,
                copying=copying, local_bytes=10 * node_id, remote_bytes=7, trash_bytes=2,
                remote_segments=1,
            )  # fmt: skip


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    for node_id, node in made.nodes.items():
        node.rlm.known = list(statuses(node_id))
        removed = RemoteLogSegmentId(tip("b", node_id - 1), segment_uuid(9))
        node.rlm.removals = [PendingCleanUp(removed, 5_000, "older than 7 d")]
        node.rlm.troubles = [NodeProblem(ProblemArea.STORE, "main", f"of node {node_id}")]
    return made


async def pages(cluster: FakeCluster, view: str, items: str, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = await cluster.ask(f"/v1/cluster/{view}", **params)
        assert len(page[items]) <= params["limit"]
        found += page[items]
        if page["next_cursor"] is None:
            return found
        params["cursor"] = page["next_cursor"]


async def silence(cluster: FakeCluster, node_id: int) -> None:
    async def gone(_: Envelope) -> bytes:
        raise PeerFailedError("gone", sent=False)

    cluster.answers[node_id] = gone


def name(of: dict[str, Any]) -> tuple[str, int, int]:
    return of["topic"], of["partition"], of["node"]


@pytest.mark.parametrize("limit", [1, 2, 4, 9, 100])
async def test_what_lags_on_any_node_in_pages(cluster: FakeCluster, limit: int) -> None:
    found = await pages(cluster, "lag", "partitions", limit=limit)
    assert [name(each) for each in found] == [(t, p, p + 1) for t in "abc" for p in range(3)]
    assert found[4]["lag"] == {"size_bytes": 100, "segments": 1, "age_ms": 1_098}


async def test_the_sum_of_the_lag_and_what_is_worst(cluster: FakeCluster) -> None:
    view = await cluster.ask("/v1/cluster/lag", asked=2, limit=1)
    assert view["total"] == {
        "size_bytes": 900, "segments": 9, "age_ms": 2_099, "gone_offsets": 0, "partitions": 10,
        "behind": 9, "blocked": 0,
    }  # fmt: skip
    assert [(each["node"], each["behind"]) for each in view["by_node"]] == [(1, 3), (2, 3), (3, 3)]
    assert [name(each) for each in view["worst"][:4]] == [
        ("c", 2, 3), ("b", 2, 3), ("a", 2, 3), ("c", 1, 2),
    ]  # fmt: skip
    await silence(cluster, 3)
    view = await cluster.ask("/v1/cluster/lag", asked=2)
    assert [each["node"] for each in view["nodes"] if not each["answered"]] == [3]
    assert (view["total"]["behind"], len(view["by_node"])) == (6, 2)


@pytest.mark.parametrize("limit", [1, 3, 4, 100])
async def test_sizes_of_a_topic_on_all_machines(cluster: FakeCluster, limit: int) -> None:
    found = await pages(cluster, "sizes", "topics", limit=limit)
    sizes = {each.pop("topic"): each for each in found}
    same = {"partitions": 3, "remote_segments": 3, "remote_bytes": 21, "trash_bytes": 6}
    assert sizes == {
        **{topic: {**same, "replicas": 9, "local_bytes": 180} for topic in "abc"},
        "d": {**same, "replicas": 3, "local_bytes": 90},
    }
    view = await cluster.ask("/v1/cluster/sizes")
    assert view["local"] == [
        {"node": 1, "replicas": 9, "local_bytes": 90},
        {"node": 2, "replicas": 9, "local_bytes": 180},
        {"node": 3, "replicas": 12, "local_bytes": 360},
    ]
    assert view["tier"]["size_bytes"] == 3_000


async def test_the_tiers_size_is_told_by_the_node_with_the_newest_metadata(
    cluster: FakeCluster,
) -> None:
    for node_id, offset in ((1, 50), (2, 90), (3, 70)):
        node = cluster.nodes[node_id]
        node.manager.applied_offset = offset
        node.rlm.known = [replace(make_status(tip("a", 0)), remote_bytes=offset)]
    view = await cluster.ask("/v1/cluster/sizes")
    assert [each["remote_bytes"] for each in view["topics"]] == [90]


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_copies_and_deletions_of_all_nodes(cluster: FakeCluster, limit: int) -> None:
    found = await pages(cluster, "running", "running", limit=limit)
    assert [(each["kind"], *name(each)) for each in found] == [
        *(("copy", "a", p, p + 1) for p in range(3)),
        *(("delete", "b", p, p + 1) for p in range(3)),
    ]
    copy, removal = found[0], found[-1]
    assert (copy["start_offset"], copy["end_offset"], copy["bytes_done"]) == (300, 399, 10)
    assert (copy["due_ms"], removal["due_ms"], removal["why"]) == (None, 5_000, "older than 7 d")
    view = await cluster.ask("/v1/cluster/running")
    assert view["total"] == {
        "copies": 3, "bytes_done": 30, "bytes_total": 3_000, "deletions": 3,
    }  # fmt: skip


async def test_problems_have_their_node(cluster: FakeCluster) -> None:
    await silence(cluster, 2)
    view = await cluster.ask("/v1/cluster/problems")
    assert [(each["node"], each["about"], each["text"]) for each in view["problems"]] == [
        (1, "store", "of node 1"), (3, "store", "of node 3"),
    ]  # fmt: skip
    assert [each["answered"] for each in view["nodes"]] == [True, False, True]
    assert (view["log_dir_problem_count"], view["log_dir_problems"]) == (0, [])


@pytest.mark.parametrize("view", ["lag", "sizes", "running"])
async def test_a_cursor_of_another_list_is_refused(cluster: FakeCluster, view: str) -> None:
    other = "running" if view == "lag" else "lag"
    page = await cluster.ask(f"/v1/cluster/{other}", limit=1)
    for path in (f"/v1/cluster/{view}", f"/v1/node/{view}"):
        answer = await cluster.answer(path, cursor=page["next_cursor"])
        assert (answer.status_code, answer.json()["field"]) == (400, "cursor")


@pytest.mark.parametrize("view", ["lag", "sizes"])
async def test_facts_are_as_old_as_their_metadata_offset_says(view: str) -> None:
    cluster = FakeCluster(2)
    for node in cluster.nodes.values():
        node.context = replace(node.context, monotonic=lambda: 5.0)
    before = await cluster.ask(f"/v1/cluster/{view}")
    for node in cluster.nodes.values():
        node.manager.applied_offset = 200
    kept = await cluster.ask(f"/v1/cluster/{view}")
    assert [each["metadata_offset"] for each in before["nodes"]] == [101, 102]
    assert kept["nodes"] == before["nodes"], "of facts that are kept"
    async with cluster.nodes[1].client() as client:
        told = [
            (await client.get(path, headers=headers)).headers["Strandline-Metadata-Offset"]
            for headers in ({}, {"Strandline-Min-Metadata-Offset": "150"}, {})
            for path in (f"/v1/node/{view}", f"/v1/cluster/{view}")
        ]
    assert told == ["101", "101", "200", "200", "200", "200"], "gathered anew for who asks for more"


async def test_the_age_of_the_facts_is_taken_off_the_time_of_a_part() -> None:
    node = make_node()
    clock = iter(range(100))
    node.context = replace(node.context, monotonic=lambda: float(next(clock)))
    async with node.client() as client:
        age_ms = (await client.get("/v1/node/lag")).json()["survey_age_ms"]
        answer = (await client.get("/v1/cluster/lag")).json()
    assert age_ms > 0
    own = next(each for each in answer["nodes"] if each["node"] == 1)
    assert own["as_of_ms"] < 1_000
