"""Three real nodes tell of each other: one killed, one hung, one stopped, one gone for good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.exit_codes import ExitCode
from tests.e2e.http import PLAIN
from tests.e2e.node_quorum import NodeQuorum
from tests.strandline.command import invoke

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

DEADLINE_S = 60.0


class Cluster:
    """What its running nodes say of each other."""

    def __init__(self, quorum: NodeQuorum) -> None:
        self.quorum = quorum

    def nodes(self, asked: int, *arguments: object) -> Any:
        said = invoke("nodes", *arguments, "--json", "--url", self.quorum.nodes[asked].url)
        assert said.exit_code == ExitCode.OK, said.stderr
        return json.loads(said.stdout)

    def liveness(self) -> dict[int, str]:
        """As all running nodes tell it, empty while they differ."""
        told = [
            {each["node_id"]: each["liveness"] for each in self.nodes(asked, "list")["nodes"]}
            for asked in self.quorum.running
        ]
        return told[0] if all(each == told[0] for each in told) else {}

    def wait_for(self, **liveness: str) -> None:
        """Until all running nodes tell this; by `n1="live"` and so on."""
        wanted = {int(name.removeprefix("n")): word for name, word in liveness.items()}
        self.quorum.wait_until(
            lambda: self.liveness() == wanted, f"{wanted}", deadline_s=DEADLINE_S
        )

    def start_again(self, node_id: int) -> None:
        """Until all tell that it lives, by its new registration: its fetches are sooner."""
        asked = next(iter(self.quorum.running))
        before = self.nodes(asked, "show", node_id)["node_epoch"]
        self.quorum.nodes[node_id].start()
        self.quorum.wait_until(
            lambda: all(self.nodes(each, "show", node_id)["node_epoch"] > before for each in ALL),
            f"the registration of node {node_id}",
            deadline_s=DEADLINE_S,
        )
        self.wait_for(**EVERYBODY)

    def problems(self, asked: int) -> list[tuple[str, str | None]]:
        answer = PLAIN.get(f"{self.quorum.nodes[asked].url}/v1/cluster").json()
        return [(each["about"], each["name"]) for each in answer["problems"]]


ALL = (1, 2, 3)
EVERYBODY = {"n1": "live", "n2": "live", "n3": "live"}


def change_through(cluster: Cluster, asked: int) -> None:
    """A change for the leader, posted to `asked` alone until it was handed on: another node leads
    then.
    """
    quorum = cluster.quorum

    def handed_on() -> bool:
        answer = PLAIN.post(f"{quorum.nodes[asked].url}/v1/quorum/transfer", json={"node_id": None})
        if answer.status_code != 200:  # no leader yet, or one that is gone
            assert answer.json()["kind"] in ("retry_later", "conflict"), answer.text
            return False
        by = answer.headers.get("Strandline-Answered-By")
        assert answer.json()["leader_id"] not in (-1, asked if by is None else int(by))
        return by is not None

    quorum.wait_until(handed_on, f"a change posted to node {asked}", deadline_s=DEADLINE_S)


def ask_any_node(cluster: Cluster) -> None:
    """With all, and after the leader was killed."""
    quorum = cluster.quorum
    for asked in ALL:
        change_through(cluster, asked)
    killed = quorum.leader()
    quorum.nodes[killed].kill()
    for asked in quorum.running:
        change_through(cluster, asked)
    cluster.start_again(killed)


def kill_a_voter(cluster: Cluster) -> None:
    quorum = cluster.quorum
    leader = quorum.leader()
    killed, other = (each for each in ALL if each != leader)
    quorum.nodes[killed].kill()
    cluster.wait_for(**{**EVERYBODY, f"n{killed}": "fenced"})
    for asked in (leader, other):
        quorum.wait_until(
            lambda: cluster.problems(asked) == [("nodes", f"{killed}")],  # noqa: B023
            "the problem of the killed node",
            deadline_s=DEADLINE_S,
        )
    refused = invoke("nodes", "remove", killed, "--url", quorum.nodes[other].url)
    assert refused.exit_code == ExitCode.CONFLICT
    assert f"quorum remove-voter {killed}" in refused.stderr
    cluster.start_again(killed)


def hang_the_leader(cluster: Cluster) -> None:
    """The next one gives everybody else a whole silence."""
    quorum = cluster.quorum
    hung = quorum.leader()
    before = {each["node_id"]: each for each in cluster.nodes(hung, "list")["nodes"]}
    quorum.nodes[hung].suspend()
    others = [each for each in ALL if each != hung]
    quorum.wait_until(
        lambda: all(cluster.nodes(each, "show", hung)["liveness"] == "fenced" for each in others),
        "the hung leader to be fenced",
        deadline_s=DEADLINE_S,
    )
    quorum.nodes[hung].wake()
    cluster.wait_for(**EVERYBODY)
    for node_id in others:
        found, known = cluster.nodes(node_id, "show", node_id), before[node_id]
        role = {"quorum_role": found["quorum_role"]}
        assert found == known | role, "it lived all the time"


def stop_and_remove(cluster: Cluster) -> None:
    """A stop is told at once, and is no problem; then it is gone for good, on every node."""
    quorum = cluster.quorum
    stopped = next(each for each in ALL if each != quorum.leader())
    quorum.nodes[stopped].stop()
    rest = [each for each in ALL if each != stopped]
    assert cluster.nodes(rest[0], "show", stopped)["liveness"] == "stopped"
    assert all(cluster.problems(each) == [] for each in rest)
    # Asked of the stopped one, then of a follower, which names the leader.
    follower = next(each for each in rest if each != quorum.leader())
    urls = f"{quorum.nodes[stopped].url},{quorum.nodes[follower].url}"
    for command in (("quorum", "remove-voter"), ("nodes", "remove")):
        said = invoke(*command, stopped, "--url", urls)
        assert said.exit_code == ExitCode.OK, said.stderr
    cluster.wait_for(**{f"n{each}": "live" for each in rest})


def test_who_is_silent_is_told_by_all_and_nobody_else_is(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    sections: dict[str, dict[str, object]] = {
        "http": {"anonymous_role": "admin"},
        "stores.main": {"kind": "filesystem", "path": str(tmp_path / "store")},
    }
    with NodeQuorum(tmp_path, "kafka-cluster", sections, {}) as quorum:
        cluster = Cluster(quorum)
        cluster.wait_for(**EVERYBODY)
        roles = {each["quorum_role"] for each in cluster.nodes(1, "list")["nodes"]}
        assert roles == {"leader", "voter"}
        ask_any_node(cluster)
        kill_a_voter(cluster)
        hang_the_leader(cluster)
        stop_and_remove(cluster)
