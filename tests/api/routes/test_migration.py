"""The move from Kafka's metadata topic over HTTP, as one node sees it and as all do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
        "who": "ann", "why": "the move", "bridge": None, "attempt": None, "has_broker": False,
        "comparison": None,
    }  # fmt: skip


NO_VOTER = "no voter of the metadata quorum has kafka.broker set and a live broker"


EQUAL: Mapping[int, str] = {}
STANDING: Mapping[int, MigrationPhase] = {}


class Brokers:
    """The Kafka cluster as node 1 sees it: three brokers live."""

    async def live(self) -> Collection[int]:
        return [1, 2, 3]


def moving_cluster(
    stands: MigrationPhase,
    *,
    ages_s: Mapping[int, float],
    without: Collection[int] = (),
    releases: Mapping[int, str] = EQUAL,
    acts_by: Mapping[int, MigrationPhase] = STANDING,
) -> FakeCluster:
    """Each node hears its broker's bridge, so long ago as `ages_s` says, and has `kafka.broker` if
    it is not `without`. `releases` are those of plug-ins that are not the node's, `acts_by` the
    phases that are not the standing one.
    """
    cluster = FakeCluster()
    for number, node in cluster.nodes.items():
        node.manager.move = replace(MOVE, phase=stands)
        node.manager.feature_level = lambda: 2  # type: ignore[method-assign]
        release = releases.get(number, node.context.identity.version)
        heard_s = node.context.monotonic() - ages_s.get(number, 0.0)
        last = Acknowledgement(number, release, acts_by.get(number, stands), 0, 70, heard_s)
        calls = SimpleNamespace(phases=SimpleNamespace(last=last))
        moving = SimpleNamespace(
            brokers=Brokers(), attempt=None, ended=None, has_broker=number not in without
        )
        node.context = replace(
            node.context,
            broker=cast("Any", calls),
            moving=cast("Any", moving),
            identity=replace(node.context.identity, kafka_cluster_id="kafka-1"),
        )
    for number, node in cluster.nodes.items():
        cluster.vouched[number] = VouchedRequests(node.app(), node.context.identity)
    return cluster


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
    cluster = moving_cluster(stands, ages_s={3: 11.0})
    body = {"phase": wanted, "why": "", "dry_run": True}
    async with cluster.nodes[1].client() as client:
        answer = await client.put("/v1/migration", json=body)
        assert answer.status_code == 200, answer.text
        (wrong,) = answer.json()["in_the_way"]
        assert wrong.startswith("broker 3 is live, but no node gets requests of its bridge")
        refused = await client.put("/v1/migration", json=body | {"dry_run": False})
        assert refused.status_code == 409


async def test_a_broker_that_acts_by_an_earlier_phase_keeps_a_move_from_ending() -> None:
    """It is heard, but takes none of the answers, as behind a restart from an older snapshot: it
    looks up in the topic, which would be written no more. One that has just begun hears it first,
    and in BACK look-ups are the node's.
    """
    acts = {1: MigrationPhase.BACK, 2: MigrationPhase.NONE, 3: MigrationPhase.KAFKA}
    cluster = moving_cluster(MigrationPhase.QUORUM, ages_s={}, acts_by=acts)
    async with cluster.nodes[1].client() as client:
        answer = await client.put("/v1/migration", json={"phase": "done", "dry_run": True})
        assert answer.status_code == 200, answer.text
        (wrong,) = answer.json()["in_the_way"]
    assert wrong.startswith("broker 3 still acts by phase KAFKA and looks up in the topic")


@pytest.mark.parametrize(
    ("stands", "wanted", "voters", "wrong"),
    [
        (MigrationPhase.KAFKA, "switching", (1, 2, 3), ""),
        (MigrationPhase.KAFKA, "switching", (2, 3), NO_VOTER),
        (MigrationPhase.QUORUM, "back", (2, 3), NO_VOTER),
        (MigrationPhase.QUORUM, "done", (2, 3), ""),
    ],
)
async def test_a_voter_that_can_carry_it_out_is_needed(
    stands: MigrationPhase, wanted: str, voters: tuple[int, ...], wrong: str
) -> None:
    """Node 1 alone can: the quorum's leader hands over to it if it votes."""
    cluster = moving_cluster(stands, ages_s={}, without=(2, 3))
    asked = cluster.nodes[1]
    told = asked.manager.describe()
    told = replace(told, voters=tuple(each for each in told.voters if each.node_id in voters))
    asked.manager.describe = lambda: told  # type: ignore[method-assign]
    async with asked.client() as client:
        body = {"phase": wanted, "why": "", "dry_run": True}
        answer = await client.put("/v1/migration", json=body)
        assert answer.status_code == 200, answer.text
        in_the_way = answer.json()["in_the_way"]
    assert [each.startswith(wrong) for each in in_the_way] == ([True] if wrong else [])
    assert all("a node that has both (node 1) a voter" in each for each in in_the_way)


async def test_a_node_without_a_broker_begins_no_switch() -> None:
    """It can't ask which brokers live."""
    cluster = moving_cluster(MigrationPhase.KAFKA, ages_s={}, without=(1,))
    async with cluster.nodes[1].client() as client:
        answer = await client.put("/v1/migration", json={"phase": "switching"})
    assert answer.status_code == 409
    assert (
        "no broker to ask for the live brokers: ask a node with kafka.broker set"
        in answer.json()["detail"]
    )


@pytest.mark.parametrize(
    ("stands", "wanted", "releases", "wrong"),
    [
        (MigrationPhase.KAFKA, "switching", {2: "9.0.0", 3: "9.0.1"}, "broker 2 9.0.0, broker 3 9"),
        (MigrationPhase.KAFKA, "switching", {2: ""}, ""),
        (MigrationPhase.QUORUM, "back", {2: "9.0.0"}, ""),
        (MigrationPhase.QUORUM, "done", {2: "9.0.0"}, ""),
    ],
)
async def test_plug_ins_of_another_release_begin_no_switch(
    stands: MigrationPhase, wanted: str, releases: Mapping[int, str], wrong: str
) -> None:
    """Nor do they keep a move from going back or ending. One that was not announced yet will be."""
    cluster = moving_cluster(stands, ages_s={}, releases=releases)
    async with cluster.nodes[1].client() as client:
        answer = await client.put(
            "/v1/migration", json={"phase": wanted, "why": "", "dry_run": True}
        )
        assert answer.status_code == 200, answer.text
        in_the_way = answer.json()["in_the_way"]
    assert [wrong in each for each in in_the_way] == ([True] if wrong else [])
