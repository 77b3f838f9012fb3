"""The start scripts of deploy/kubernetes, run as the container does."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_formats.kafka_uuid import Uuid
from strandline.doctor.formatted_identity import formatted_identity
from tests.real.toolbox import REPOSITORY
from tests.strandline.command import COMMAND, environment

KUBERNETES = REPOSITORY / "deploy" / "kubernetes"
DEADLINE_S = 60
CLUSTER = "cDH8ZFhlQqOxXgtr_qeveA"
KAFKA_CLUSTER = "4L6g3nShT-eMCtK--X86sw"
OWN, OTHER = "AAAAAAAAQqOxXgtr_qeveA", "BBBBBBBBQqOxXgtr_qeveA"
VOTERS = f"1@kafka-1.kafka:9481:{OWN},2@kafka-2.kafka:9481:{OTHER}"


@dataclass
class Pod:
    """A pod's files, and a `strandline` that formats and only says that it would run a node."""

    folder: Path
    script: Path
    log: Path

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    def start(self, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", self.script],
            env=environment()
            | {
                "PATH": f"{self.folder}:/usr/bin:/bin",
                "STRANDLINE_CONFIG": str(self.folder / "strandline.toml"),
                "CLUSTER_ID": CLUSTER,
                "KAFKA_CLUSTER_ID": KAFKA_CLUSTER,
            }
            | variables,
            capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip

    def asked(self) -> list[str]:
        """Each command that was given to `strandline`, and forget them."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines

    def broker_writes(self, node_id: int) -> None:
        log_dir = self.folder / "kafka"
        log_dir.mkdir()
        (log_dir / "meta.properties").write_text(
            f"version=1\ncluster.id={KAFKA_CLUSTER}\nnode.id={node_id}\ndirectory.id={OTHER}\n"
        )


def pod(folder: Path, name: str) -> Pod:
    """With the script and the settings of deploy/kubernetes/NAME."""
    log = folder / "asked"
    command = folder / "strandline"
    command.write_text(
        f'#!/bin/sh\necho "$1" >> {log}\n[ "$1" = node ] || exec {" ".join(COMMAND)} "$@"\n'
    )
    command.chmod(0o755)
    for file in ("start.sh", "strandline.toml"):
        text = (KUBERNETES / name / file).read_text()
        assert text.count("/var/lib/strandline/data") == 1
        text = text.replace("/var/lib/strandline/data", str(folder / "data"))
        assert text.count("/var/lib/kafka/data") == (name == "sidecar")
        (folder / file).write_text(text.replace("/var/lib/kafka/data", str(folder / "kafka")))
    return Pod(folder, folder / "start.sh", log)


@pytest.fixture
def sidecar(tmp_path: Path) -> Pod:
    return pod(tmp_path, "sidecar")


@pytest.fixture
def observer(tmp_path: Path) -> Pod:
    return pod(tmp_path, "observer")


def voters(data_dir: Path) -> str:
    """What the new log begins with, as text: the ids of a directory that votes stand in it."""
    return "".join(
        path.read_bytes().hex() for path in sorted((data_dir / "metadata").rglob("*.checkpoint"))
    )


def hexadecimal(uuid: str) -> str:
    return bytes(Uuid.parse(uuid)).hex()


def test_a_first_start_makes_a_voter_once(sidecar: Pod) -> None:
    sidecar.broker_writes(1)
    started = sidecar.start(INITIAL_VOTERS=VOTERS)
    assert started.returncode == 0, started.stderr
    assert sidecar.asked() == ["format", "node"]
    identity = formatted_identity(sidecar.data_dir)
    assert identity is not None
    assert (identity.node_id, identity.cluster_id) == (1, CLUSTER)
    assert f"directory.id={OWN}" in (sidecar.data_dir / "meta.properties").read_text()
    assert hexadecimal(OTHER) in voters(sidecar.data_dir)

    assert sidecar.start(INITIAL_VOTERS=VOTERS).returncode == 0
    assert sidecar.asked() == ["node"]


@pytest.mark.parametrize(("node_id", "given"), [(1, ""), (3, VOTERS), (11, VOTERS)])
def test_who_is_no_first_voter_joins(sidecar: Pod, node_id: int, given: str) -> None:
    sidecar.broker_writes(node_id)
    started = sidecar.start(INITIAL_VOTERS=given)
    assert started.returncode == 0, started.stderr
    assert sidecar.asked() == ["format", "node"]
    identity = formatted_identity(sidecar.data_dir)
    assert identity is not None
    assert identity.node_id == node_id
    assert OWN not in (sidecar.data_dir / "meta.properties").read_text()
    assert hexadecimal(OWN) not in voters(sidecar.data_dir)


def test_no_node_runs_before_the_broker_has_made_its_directory(sidecar: Pod) -> None:
    assert sidecar.start(INITIAL_VOTERS=VOTERS).returncode != 0
    assert sidecar.asked() == []
    assert not sidecar.data_dir.exists()


def test_no_node_runs_in_a_directory_that_was_not_made(sidecar: Pod) -> None:
    sidecar.broker_writes(1)
    sidecar.data_dir.write_text("not a directory")
    assert sidecar.start(INITIAL_VOTERS=VOTERS).returncode != 0
    assert sidecar.asked() == ["format"]


def test_a_snapshot_is_fetched_to_the_nodes_volume(sidecar: Pod) -> None:
    """`/tmp` has 64 MiB, and a snapshot of a million segments 384: the pod would be evicted."""
    sidecar.broker_writes(1)
    command = sidecar.folder / "strandline"
    command.write_text(
        f'#!/bin/sh\necho "$1" "$TMPDIR" >> {sidecar.log}\n'
        '[ "$1" = node ] || touch "$TMPDIR/snapshot"\nexit $KILLED\n'
    )
    new = {"INITIAL_VOTERS": VOTERS, "SNAPSHOT": "latest", "TMPDIR": "/tmp"}
    fetched = sidecar.folder / "data.format"
    assert sidecar.start(**new, KILLED="9").returncode == 9
    assert sidecar.asked() == [f"format {fetched}"]
    assert sidecar.start(**new, KILLED="0").returncode == 0
    assert sidecar.asked() == [f"format {fetched}", "node /tmp"]
    assert not fetched.exists()


def test_an_observer_joins_under_an_id_above_the_brokers(observer: Pod) -> None:
    started = observer.start(POD_NAME="strandline-observer-1")
    assert started.returncode == 0, started.stderr
    assert observer.asked() == ["format", "node"]
    identity = formatted_identity(observer.data_dir)
    assert identity is not None
    assert identity.node_id == 1001
    assert identity.kafka_cluster_id == KAFKA_CLUSTER

    assert observer.start(POD_NAME="strandline-observer-1").returncode == 0
    assert observer.asked() == ["node"]
