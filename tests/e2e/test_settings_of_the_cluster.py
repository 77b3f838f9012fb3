"""Settings of the cluster on three real nodes: set at one of them, in force on all without a
restart, and after one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.properties import MetaProperties, encode_meta_properties
from strandline.cli.exit_codes import ExitCode
from tests.e2e.http import PLAIN
from tests.e2e.node_quorum import FOUNDERS, NodeQuorum
from tests.rlm.kafka_logs import KafkaLog
from tests.strandline.command import invoke

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

DEADLINE_S = 60.0
KAFKA_CLUSTER = "kafka-cluster"
RATE = 50 * 2**20


class Cluster:
    """Three nodes, each with one partition of two topics on its own broker's disk."""

    def __init__(self, quorum: NodeQuorum, logs: dict[int, dict[str, KafkaLog]]) -> None:
        self.quorum = quorum
        self.logs = logs

    def run(self, asked: int, *arguments: object) -> Any:
        said = invoke(*arguments, "--json", "--url", self.quorum.nodes[asked].url)
        assert said.exit_code == ExitCode.OK, said.stderr
        return json.loads(said.stdout)

    def copied(self, topic: str) -> list[int]:
        """Segments in the tier of each partition, in the order of nodes."""
        asked = next(iter(self.quorum.running))
        url = f"{self.quorum.nodes[asked].url}/v1/topics/{topic}?limit=100"
        answer = PLAIN.get(url)
        if answer.status_code == 404:
            return []
        pages = answer.json()["partition_list"]
        return [each["remote_segments"] for each in pages]

    def wait_for(self, topic: str, count: int) -> None:
        self.quorum.wait_until(
            lambda: self.copied(topic) == [count] * len(FOUNDERS),
            f"{count} segments of {topic} on each node",
            deadline_s=DEADLINE_S,
        )

    def wait_for_problem(self, name: str, *, there: bool) -> None:
        self.quorum.wait_until(
            lambda: all((name in self.problems(each)) is there for each in FOUNDERS),
            f"the problem {name}, there: {there}",
            deadline_s=DEADLINE_S,
        )

    def problems(self, asked: int) -> set[str | None]:
        answer = PLAIN.get(f"{self.quorum.nodes[asked].url}/v1/cluster").json()
        return {each["name"] for each in answer["problems"]}

    def roll(self, topic: str, *bases: int) -> None:
        """One segment more on each disk."""
        for node_id in FOUNDERS:
            self.logs[node_id][topic].write(*bases, end=bases[-1] + 1)


def new_cluster(home: Path) -> tuple[dict[str, dict[str, object]], dict[int, dict[str, KafkaLog]]]:
    """The `[kafka]` of each node, and its logs."""
    kafka: dict[str, dict[str, object]] = {}
    logs: dict[int, dict[str, KafkaLog]] = {}
    for number, node_id in enumerate(FOUNDERS):
        path = home / f"kafka-{node_id}"
        path.mkdir()
        meta = MetaProperties(1, KAFKA_CLUSTER, node_id, Uuid(bytes(15) + bytes((node_id,))))
        (path / "meta.properties").write_bytes(encode_meta_properties(meta))
        logs[node_id] = {
            topic: KafkaLog.create(path, topic, number, entries=((0, 0),))
            for topic in ("orders", "logs.web")
        }
        for log in logs[node_id].values():
            log.write(0, 10, end=12)
        kafka[f"{node_id}"] = {"log_dirs": [str(path)]}
    return kafka, logs


def would_be_tiered(cluster: Cluster) -> list[tuple[str, int, bool]]:
    if PLAIN.get(f"{cluster.quorum.nodes[2].url}/v1/topics/orders").status_code == 404:
        return []  # the node that is asked has not looked yet
    effect = cluster.run(2, "topics", "enable", "orders", "--dry-run")["effect"]
    return [(each["topic"], each["node"], each["tiered"]) for each in effect["topics"]]


def enable_topics(cluster: Cluster) -> None:
    """Said at one node, by name and by pattern, each node copies what its broker has."""
    wanted = [("orders", node_id, True) for node_id in FOUNDERS]
    cluster.quorum.wait_until(
        lambda: would_be_tiered(cluster) == wanted,
        "each node to have looked at its disk, and to be asked",
        deadline_s=DEADLINE_S,
    )
    assert not any(cluster.copied("orders"))
    told = cluster.run(2, "topics", "enable", "orders", "--why", "the audit asks")
    assert (told["setting"]["who"], told["setting"]["why"]) == ("anonymous", "the audit asks")
    cluster.wait_for("orders", 1)
    assert not any(cluster.copied("logs.web"))
    cluster.run(3, "topics", "enable", "logs.*")
    cluster.wait_for("logs.web", 1)
    lists = [cluster.run(asked, "settings", "list")["settings"] for asked in FOUNDERS]
    assert [each["scope"]["name"] for each in lists[0]] == ["logs.*", "orders"]
    assert lists[1:] == lists[:-1]
    lines = cluster.run(2, "audit")
    assert any(each["action"] == "setting_changed" and "the audit asks" in each["why"]
               for each in lines)  # fmt: skip


def disable_a_topic(cluster: Cluster) -> None:
    """It is copied no more while the other goes on, also after a restart of all nodes."""
    cluster.run(1, "topics", "disable", "logs.web")
    for asked in FOUNDERS:
        cluster.quorum.wait_until(
            lambda: not tiered(cluster, asked, "logs.web"),  # noqa: B023
            "logs.web to be left out",
            deadline_s=DEADLINE_S,
        )
    for node_id in FOUNDERS:
        cluster.quorum.nodes[node_id].stop()
    cluster.roll("logs.web", 10, 20)
    cluster.roll("orders", 10, 20)
    cluster.quorum.start(*FOUNDERS)
    cluster.wait_for("orders", 2)
    assert cluster.copied("logs.web") == [1] * len(FOUNDERS)
    cluster.run(2, "settings", "remove", "topics.tiered", "--topic", "logs.web")
    cluster.wait_for("logs.web", 2)


def tiered(cluster: Cluster, asked: int, topic: str) -> bool:
    found = cluster.run(asked, "topics", "list")
    return next(each["why_not_tiered"] for each in found if each["topic"] == topic) is None


def pause_and_limit(cluster: Cluster) -> None:
    """For the cluster, and for one node, which wins."""
    name = "copying (cluster settings)"
    cluster.run(3, "pause", "copying", "--cluster", "--why", "the bucket moves")
    cluster.wait_for_problem(name, there=True)
    cluster.roll("orders", 20, 30)
    cluster.run(1, "resume", "copying", "--node", 2)
    cluster.quorum.wait_until(
        lambda: name not in cluster.problems(2), "node 2 to go on", deadline_s=DEADLINE_S
    )
    assert name in cluster.problems(1)
    cluster.quorum.wait_until(
        lambda: cluster.copied("orders") == [2, 3, 2], "node 2 to copy", deadline_s=DEADLINE_S
    )
    assert cluster.run(1, "resume", "copying", "--cluster")["paused"] == []
    cluster.wait_for("orders", 3)
    cluster.run(1, "limits", "set", "--copy", "50MiB", "--cluster")
    cluster.run(1, "limits", "set", "--copy", "100MiB", "--node", 3)
    wanted = {1: RATE, 2: RATE, 3: 2 * RATE}
    cluster.quorum.wait_until(
        lambda: {each: limit(cluster, each) for each in FOUNDERS} == wanted,
        "the limits",
        deadline_s=DEADLINE_S,
    )


def limit(cluster: Cluster, asked: int) -> int | None:
    found: int | None = cluster.run(asked, "limits", "show")["copy_bytes_per_s"]
    return found


def test_a_setting_of_the_cluster_is_in_force_everywhere(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    sections: dict[str, dict[str, object]] = {
        "http": {"anonymous_role": "admin"},
        "stores.main": {"kind": "filesystem", "path": str(tmp_path / "store")},
        "copier": {"interval_s": 3_600.0},  # what happens here waits for no regular look
    }
    kafka, logs = new_cluster(tmp_path)
    with NodeQuorum(tmp_path, KAFKA_CLUSTER, sections, kafka) as quorum:
        cluster = Cluster(quorum, logs)
        enable_topics(cluster)
        disable_a_topic(cluster)
        pause_and_limit(cluster)
