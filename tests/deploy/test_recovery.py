"""A disaster on Kubernetes: the volumes of a majority are lost, and the steps of deploy/README.md
bring the tier back. The scripts run real nodes, as the containers do.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.properties import MetaProperties, encode_meta_properties
from strandline.cli.exit_codes import ExitCode
from strandline.doctor.formatted_identity import formatted_identity
from strandline.node import ambient
from tests.deploy.test_start_scripts import KUBERNETES
from tests.e2e.node_process import NodeProcess, Sections
from tests.e2e.tier_client import TierClient
from tests.real.ports import free_ports
from tests.rlm.kafka_logs import KAFKA_CLUSTER, KafkaLog, new_log_dir
from tests.strandline.command import COMMAND, environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

DEADLINE_S = 90.0
RECONCILE_S = 120.0
COPIER = 1


class Pod(NodeProcess):
    """The container `strandline` of the pod kafka-N: its volumes are folders, its ConfigMaps
    `variables`.
    """

    def __init__(self, node_id: int, volume: Path, kafka: Path, sections: Sections) -> None:
        super().__init__(volume, {**sections, "kafka": {"log_dirs": [str(kafka)]}})
        self.node_id, self.volume, self._kafka = node_id, volume, kafka
        self.variables: dict[str, str] = {}
        self.write_config()
        command = volume / "strandline"
        command.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
        command.chmod(0o755)

    def spawn(self) -> None:
        with (self.volume / "node.log").open("ab") as output:
            self._process = subprocess.Popen(
                self._script("start.sh"),
                env=self._environment(), stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def wait_until_it_serves(self) -> None:
        self.wait_until(lambda: self.readiness()[0] == 503, "an answer", deadline_s=DEADLINE_S)

    def reconcile(self, *options: str) -> subprocess.CompletedProcess[str]:
        """As by `kubectl exec`, beside the running node."""
        return subprocess.run(
            [*self._script("reconcile.sh"), "--json", *options],
            env=self._environment(), capture_output=True, text=True, timeout=RECONCILE_S,
        )  # fmt: skip

    def would_take_over(self) -> subprocess.CompletedProcess[str]:
        """As the guide has it, beside the running node."""
        (command,) = re.findall(
            r"kubectl exec kafka-0 -c strandline -- env (\S+)=/tmp/look (strandline format .+)$",
            (KUBERNETES.parent / "README.md").read_text(), re.M,
        )  # fmt: skip
        return subprocess.run(
            command[1].split(),
            env=self._environment() | {command[0]: str(self.volume / "look")},
            executable=self.volume / "strandline",
            capture_output=True, text=True, timeout=RECONCILE_S,
        )  # fmt: skip

    def _script(self, name: str) -> list[str]:
        text = (KUBERNETES / "sidecar" / name).read_text()
        text = text.replace("/var/lib/strandline", str(self.volume))
        text = text.replace("/var/lib/kafka/data", str(self._kafka))
        text = text.replace("127.0.0.1:9482", f"127.0.0.1:{free_ports(1)[0]}")
        (self.volume / name).write_text(text)
        return ["/bin/sh", str(self.volume / name)]

    def _environment(self) -> dict[str, str]:
        ours = {
            "PATH": f"{self.volume}:/usr/bin:/bin",
            "POD_NAME": f"kafka-{self.node_id}",
            "STRANDLINE_CONFIG": str(self.config),
            "KAFKA_CLUSTER_ID": KAFKA_CLUSTER,
        }
        return environment() | ours | self.variables


class Pods:
    """Three of them, the ConfigMaps that they share, and a topic that one copies."""

    def __init__(self, home: Path) -> None:
        self.tier = home / "tier"
        self.tier.mkdir()
        self._ports = dict(enumerate(free_ports(3)))
        secret = home / "quorum-secret"
        secret.touch(0o600)
        secret.write_text(ambient.new_nonce())
        self.orders = KafkaLog.create(new_log_dir(home / "kafka-1"), "orders", entries=((0, 0),))
        for other in (0, 2):
            (home / f"kafka-{other}").mkdir()
            meta = MetaProperties(1, KAFKA_CLUSTER, other, Uuid(bytes(15) + bytes([50 + other])))
            (home / f"kafka-{other}/meta.properties").write_bytes(encode_meta_properties(meta))
        self.all = [
            Pod(number, home / f"volume-{number}", home / f"kafka-{number}", sections)
            for number, sections in ((each, self._sections(each, secret)) for each in self._ports)
        ]

    def configure(self, cluster_id: str, **first_start: str) -> None:
        """What the ConfigMaps hold; a container sees it at its next start."""
        for pod in self.all:
            pod.variables = {"CLUSTER_ID": cluster_id} | first_start

    def new_voters(self) -> str:
        return ",".join(f"{self._address(each)}:{ambient.new_uuid()}" for each in self._ports)

    def restart(self, *, ready: bool = True) -> None:
        for pod in self.all:
            if pod.running:
                pod.stop()
        for pod in self.all:
            pod.spawn()
        for pod in self.all if ready else ():
            pod.wait_until_ready()

    def segments(self, number: int) -> dict[str, dict[str, Any]]:
        """Those that this node says are copied."""
        rows = TierClient(self.all[number].url, "orders", 0).segments()
        return {row["segment_id"]: row for row in rows if row["state"] == "COPY_SEGMENT_FINISHED"}

    def wait_until_copied(self, count: int) -> None:
        copier = self.all[COPIER]
        copier.wait_until(
            lambda: len(self.segments(COPIER)) == count, f"{count} copies", deadline_s=DEADLINE_S
        )

    def _address(self, number: int) -> str:
        return f"{number}@127.0.0.1:{self._ports[number]}"

    def _sections(self, number: int, secret: Path) -> Sections:
        return {
            "topics": {"include": ["orders"]},
            "stores.main": {"kind": "filesystem", "path": str(self.tier)},
            "copier": {"interval_s": 0.5, "takeover_settle_s": 0.1},
            "metadata": {"snapshot_upload_check_s": 0.2, "snapshot_upload_interval_s": 1},
            "quorum": {
                "listen": f"127.0.0.1:{self._ports[number]}",
                "secret_file": str(secret),
                "bootstrap": [self._address(each) for each in self._ports],
                "ready_silence_max_s": 3.0,
            },
        }


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    made = Pods(tmp_path)
    try:
        yield made
    finally:
        for pod in made.all:
            if pod.running:
                pod.kill()


def snapshots(tier: Path) -> list[Path]:
    return sorted(tier.glob("_strandline/snapshots/*/*.checkpoint"))


def check_not_begun_under_its_own_id(pods: Pods, lost_cluster: str) -> None:
    """A container that sees the snapshot before the new cluster's id."""
    marker = (pods.tier / "_strandline" / "cluster.json").read_bytes()
    pods.configure(lost_cluster, INITIAL_VOTERS=pods.new_voters(), SNAPSHOT="latest")
    pods.all[0].spawn()
    assert lost_cluster in pods.all[0].ends_by_itself()
    assert not (pods.all[0].volume / "data" / "meta.properties").exists()
    assert (pods.tier / "_strandline" / "cluster.json").read_bytes() == marker


def test_a_majority_lost_its_volumes(pods: Pods) -> None:
    pods.orders.write(0, 10, end=15)
    lost_cluster, cluster = str(ambient.new_uuid()), str(ambient.new_uuid())
    pods.configure(lost_cluster, INITIAL_VOTERS=pods.new_voters())
    pods.restart()
    pods.wait_until_copied(1)
    # One that is made behind the second copy: of what did not change there is no other.
    copier, before_it = pods.all[COPIER], snapshots(pods.tier)
    pods.orders.write(10, 20, end=25)
    pods.wait_until_copied(2)
    copier.wait_until(lambda: snapshots(pods.tier) > before_it, "a snapshot", deadline_s=DEADLINE_S)
    pods.orders.write(20, 30, 40, end=45)
    pods.wait_until_copied(4)
    before = pods.segments(COPIER)

    for pod in pods.all:
        pod.kill()
    for pod in pods.all[:2]:
        shutil.rmtree(pod.volume / "data")
    check_not_begun_under_its_own_id(pods, lost_cluster)
    pods.configure(lost_cluster)
    pods.restart(ready=False)
    for pod in pods.all:
        pod.wait_until_it_serves()
    assert "voters" in pods.all[0].readiness()[1]

    told = pods.all[0].would_take_over()
    assert (told.returncode, lost_cluster in told.stderr) == (ExitCode.USAGE, True), told.stderr
    pods.configure(cluster, INITIAL_VOTERS=pods.new_voters(), SNAPSHOT="latest")
    pods.restart()
    for pod in pods.all:
        assert (pod.volume / f"data.lost-{lost_cluster}" / "meta.properties").exists()

    found = json.loads(pods.all[0].reconcile().stdout)
    assert (found["missing"], found["reconciled"]) == ([], False)
    done = pods.all[0].reconcile("--apply")
    assert done.returncode == ExitCode.OK, done.stderr
    assert json.loads(done.stdout)["reconciled"] is True
    pods.wait_until_copied(4)
    assert pods.segments(COPIER).keys() == before.keys()

    # The next start, before anybody took the ConfigMap away, changes nothing.
    pods.restart()
    assert pods.segments(COPIER).keys() == before.keys()
    for pod in pods.all:
        assert [path.name for path in pod.volume.glob("data.*")] == [f"data.lost-{lost_cluster}"]
        identity = formatted_identity(pod.volume / "data")
        assert identity is not None
        assert identity.cluster_id == cluster
