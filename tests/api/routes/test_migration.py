"""The move from Kafka's metadata topic over HTTP, as one node sees it and as all do."""

from __future__ import annotations

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
