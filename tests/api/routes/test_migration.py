"""The move from Kafka's metadata topic over HTTP, as one node sees it and as all do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.http.vouched_requests import VouchedRequests
from rlm.migration.acknowledgements import Acknowledgement
from rlmm.migration_phase import Migration, MigrationPhase
from tests.api.fake_cluster import FakeCluster

MOVE = Migration(MigrationPhase.KAFKA, 70, "kafka-1", "ann", "the move", 1_000)


async def test_each_node_tells_of_itself() -> None:
    cluster = FakeCluster()
    for number in (1, 2):
        cluster.nodes[number].manager.move = MOVE
    view = await cluster.ask("/v1/cluster/migration")
    assert [each["answered"] for each in view["nodes"]] == [True] * 3
    phases = [(each["node"], each["phase"], each["since"]) for each in view["seen"]]
    assert phases == [(1, "kafka", 70), (2, "kafka", 70), (3, "none", None)]
    own = await cluster.ask("/v1/migration", asked=2)
    assert own == {
        "phase": "kafka", "since": 70, "since_ms": 1_000, "kafka_cluster_id": "kafka-1",
        "who": "ann", "why": "the move", "bridge": None, "attempt": None,
    }  # fmt: skip


class Brokers:
    """The Kafka cluster as node 1 sees it: three brokers live."""

    async def live(self) -> Collection[int]:
        return [1, 2, 3]


@pytest.mark.parametrize(
    ("stands", "wanted"),
    [
        (MigrationPhase.KAFKA, "switching"),
        (MigrationPhase.QUORUM, "back"),
        (MigrationPhase.QUORUM, "done"),
    ],
)
async def test_a_living_broker_that_no_node_hears_stands_in_the_way(
    stands: MigrationPhase, wanted: str
) -> None:
    """Of `done`, too: it may act by an earlier phase still, or have Kafka's own class, and the
    topic that it reads is then written no more.
    """
    cluster = FakeCluster()
    for number, node in cluster.nodes.items():
        node.manager.move = replace(MOVE, phase=stands)
        node.manager.feature_level = lambda: 2  # type: ignore[method-assign]
        age_s = 11.0 if number == 3 else 0.0
        heard_s = node.context.monotonic() - age_s
        last = Acknowledgement(number, "0.1.0", stands, 0, 70, heard_s)
        calls = SimpleNamespace(phases=SimpleNamespace(last=last))
        node.context = replace(
            node.context,
            broker=cast("Any", calls),
            moving=cast("Any", SimpleNamespace(brokers=Brokers(), attempt=None)),
            identity=replace(node.context.identity, kafka_cluster_id="kafka-1"),
        )
    for number, node in cluster.nodes.items():
        cluster.vouched[number] = VouchedRequests(node.app(), node.context.identity)
    body = {"phase": wanted, "why": "", "dry_run": True}
    async with cluster.nodes[1].client() as client:
        answer = await client.put("/v1/migration", json=body)
        assert answer.status_code == 200, answer.text
        (wrong,) = answer.json()["in_the_way"]
        assert wrong.startswith("broker 3 lives and no node hears its bridge")
        refused = await client.put("/v1/migration", json=body | {"dry_run": False})
        assert refused.status_code == 409
