"""The refusals of `strandline erase`, by answers that no single node gives: a guard a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from kafka_formats.errors import Conflict, InvalidRequest, NotFound
from strandline.cli.client import NodeClient
from strandline.cli.erase_command import _below, _order, _topic

ID, OTHER = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
OF = ("orders", 0, 15)


class Cluster:
    """Answers to the requests of the command; `changed` are those that change something."""

    def __init__(self) -> None:
        self.tiered: list[dict[str, Any]] | None = []
        self.rows: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = [{"node": 1, "answered": True, "reason": None}]
        self.partition: dict[str, Any] = {
            "topic_id": ID, "mode": "sidecar", "delete_state": None, "claimed_by_node": 1,
        }  # fmt: skip
        self.held_back: str | None = None
        self.undo_fails = False
        self.changed: list[tuple[str, str, dict[str, object] | None, dict[str, object]]] = []

    def pages(self, path: str, items: str, **_: object) -> Iterator[dict[str, Any]]:
        assert (path, items) == ("/v1/topics/orders/tiered-data", "partitions")
        if self.tiered is None:
            raise NotFound("the metadata knows no topic orders")
        return iter(self.tiered)

    def get(self, path: str, **_: object) -> dict[str, Any]:
        if path == "/v1/cluster/partitions":
            return {"partitions": list(self.rows), "nodes": self.nodes, "next_cursor": None}
        assert path == "/v1/topics/orders/partitions/0"
        return self.partition

    def change(
        self, method: str, path: str, body: dict[str, object] | None = None, **params: object
    ) -> dict[str, Any]:
        if body is None or not body.get("dry_run"):
            self.changed.append((method, path, body, params))
        if path.endswith("undo") and self.undo_fails:
            raise Conflict("too late to take it back", reason="GONE")
        return {"held_back": self.held_back}

    @property
    def client(self) -> NodeClient:
        return cast(NodeClient, self)


def tiered(state: str | None, topic_id: str = ID, grace_ms: int | None = None) -> dict[str, Any]:
    return {"topic_id": topic_id, "delete_state": state, "grace_ms": grace_ms}


def row(role: str = "remote_only", mode: str = "sidecar", **more: object) -> dict[str, Any]:
    found = {"topic_id": ID, "partition": 0, "role": role, "mode": mode}
    return found | {"local_log_start_offset": None, "claimed_by_node": 1} | more


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.mark.parametrize("role", ["leader", "follower", "unknown", "not_tiered"])
def test_a_topic_on_a_brokers_disk_that_nobody_marked_is_refused(
    cluster: Cluster, role: str
) -> None:
    cluster.tiered = [tiered("marked"), tiered(None)]
    cluster.rows = [row(), row(role), row(role, topic_id=OTHER)]
    assert "orders exists in Kafka: brokers have 1 of its partitions" in str(
        _topic(cluster.client, "orders", None).refused
    )


def test_a_delegated_topic_that_nobody_marked_is_refused(cluster: Cluster) -> None:
    cluster.tiered, cluster.rows = [tiered(None)], [row(mode="delegated")]
    assert "Delete the topic there" in str(_topic(cluster.client, "orders", None).refused)


@pytest.mark.parametrize("reason", ["unreachable", "other_release", "fenced", "stopped"])
def test_a_node_that_does_not_answer_may_know_better(cluster: Cluster, reason: str) -> None:
    """Its broker may run, and have the topic."""
    cluster.tiered, cluster.rows = [tiered(None)], [row()]
    assert _topic(cluster.client, "orders", None).refused is None
    cluster.nodes += [{"node": 2, "answered": False, "reason": reason, "text": "it is away"}]
    refused = str(_topic(cluster.client, "orders", None).refused)
    assert "node 2 does not answer" in refused
    assert "strandline topics delete orders --yes" in refused


def test_a_node_that_was_removed_from_the_list_may_know_better(cluster: Cluster) -> None:
    cluster.tiered, cluster.rows = [tiered(None)], [row(), row(claimed_by_node=3)]
    refused = str(_topic(cluster.client, "orders", None).refused)
    assert "node 3 copied orders, and was removed from the list of nodes" in refused
    cluster.partition["claimed_by_node"] = 3
    refused = str(_below(cluster.client, OF, None, tier_only=False).refused)
    assert "node 3, which copies orders-0, does not report" in refused
    cluster.partition["claimed_by_node"] = None
    assert _below(cluster.client, OF, None, tier_only=False).refused is None


def test_the_node_that_copies_has_to_tell_what_its_broker_has(cluster: Cluster) -> None:
    cluster.nodes = [{"node": 1, "answered": False, "reason": "timeout", "text": "it is away"}]
    assert "does not report" in str(_below(cluster.client, OF, None, tier_only=False).refused)
    assert _below(cluster.client, OF, None, tier_only=True).refused is None


def test_a_marked_topic_is_asked_of_nobody_and_gone_is_looked_at_again(cluster: Cluster) -> None:
    cluster.tiered, cluster.rows = (
        [tiered("marked", grace_ms=7), tiered("started")],
        [row("leader")],
    )
    found = _topic(cluster.client, "orders", None)
    assert (found.refused, found.topic_ids, found.body["topic_id"]) == (None, (ID,), ID)
    cluster.tiered = [tiered("marked", grace_ms=0), tiered("started")]
    assert _topic(cluster.client, "orders", None).topic_ids == (), "nothing is left to order"
    cluster.tiered = None
    found = _topic(cluster.client, "orders", OTHER)
    assert (found.refused, found.topic_ids, found.body["topic_id"]) == (None, (), OTHER)


def test_of_a_topic_that_was_made_again_one_is_named(cluster: Cluster) -> None:
    cluster.tiered = [tiered("marked"), tiered(None, OTHER)]
    with pytest.raises(InvalidRequest, match=f"one of its topic ids, {ID}, {OTHER}"):
        _topic(cluster.client, "orders", None)
    found = _topic(cluster.client, "orders", ID)
    assert (found.refused, found.topic_ids) == (None, (ID,)), "the living one is not asked about"


@pytest.mark.parametrize("undo_fails", [False, True])
def test_only_the_topic_id_that_was_looked_at_is_ordered(
    cluster: Cluster, undo_fails: bool
) -> None:
    cluster.tiered, cluster.undo_fails = [tiered("marked", grace_ms=7)], undo_fails
    _order(cluster.client, _topic(cluster.client, "orders", None), "why")
    path = "/v1/topics/orders/tiered-data"
    assert cluster.changed == [
        ("POST", f"{path}/undo", None, {"topic_id": ID}),
        ("DELETE", path, None, {"confirm": "orders", "grace_ms": 0, "topic_id": ID}),
    ]


def test_below_an_offset_what_the_broker_still_has_is_refused(cluster: Cluster) -> None:
    cluster.rows = [row("leader", local_log_start_offset=14)]
    found = _below(cluster.client, OF, None, tier_only=False)
    assert "the broker's log of orders-0 starts at 14" in str(found.refused)
    assert _below(cluster.client, OF, None, tier_only=True).refused is None
    for other in (
        row("leader", local_log_start_offset=15),
        row("leader", partition=1, local_log_start_offset=0),
        row("leader", topic_id=OTHER, local_log_start_offset=0),
        row(),
    ):
        cluster.rows = [other]
        assert _below(cluster.client, OF, None, tier_only=False).refused is None, other
    assert cluster.changed == []


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("mode", "delegated", "kafka-delete-records"),
        ("delete_state", "DELETE_PARTITION_MARKED", "leave out --partition and --before"),
    ],
)
def test_below_an_offset_the_broker_or_the_deletion_decides(
    cluster: Cluster, name: str, value: str, why: str
) -> None:
    cluster.partition[name] = value
    assert why in str(_below(cluster.client, OF, None, tier_only=True).refused)


def test_a_pause_is_told_before_anything_is_ordered(cluster: Cluster) -> None:
    cluster.held_back = "deleting is paused"
    found = _below(cluster.client, OF, None, tier_only=True)
    assert (found.refused, cluster.changed) == ("deleting is paused", [])
