"""The recipes of docs/OPERATIONS.md, as typed, on three hosts with a broker each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rsm_backends.store_config import StoreConfig
from tests.e2e.bucket import store_settings
from tests.e2e.hosts import HTTP_PORT, NUMBERS, QUORUM_PORT, Hosts, recipes
from tests.e2e.writer import Writer
from tests.real.certificates import make_certificate
from tests.real.kafka_cluster import KafkaCluster
from tests.real.rclone import packaged_rclone
from tests.real.s3_admin import make_bucket

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "voyages"
TOPIC_CONFIG = {
    "internal.segment.bytes": "49152",
    "index.interval.bytes": "2048",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
ROUND_PAUSE_S = 1.0
"""A round seals a segment of each partition, and recipes take half a minute."""
RECIPES = recipes()


class Fleet:
    """The hosts, the brokers beside them, and what the tests ask of both."""

    def __init__(self, hosts: Hosts, cluster: KafkaCluster) -> None:
        self.hosts = hosts
        self.cluster = cluster

    def partitions(self) -> list[dict[str, Any]]:
        """Each partition as the node beside its leader has it."""
        found = []
        for partition in NUMBERS:
            leader = self.cluster.leader(TOPIC, partition - 1)
            path = f"/v1/topics/{TOPIC}/partitions/{partition - 1}"
            found.append(self.hosts.get(leader, path).json())
        return found

    def wait_until_all_is_copied(self) -> None:
        def copied() -> bool:
            return all(
                status.get("highest_copied_offset")
                == int(self.cluster.leader_log(TOPIC, partition)[-1].stem) - 1
                for partition, status in enumerate(self.partitions())
            )

        self.hosts.wait_until(copied, "everything sealed to be copied")

    def writer(self) -> Writer:
        """Of all partitions."""
        return Writer(self.cluster.bootstrap, TOPIC, len(NUMBERS), pause_s=ROUND_PAUSE_S)

    def quorum(self, number: int = 1) -> dict[str, Any]:
        described: dict[str, Any] = self.hosts.get(number, "/v1/quorum").json()
        return described


def write_settings(hosts: Hosts, cluster: KafkaCluster, store: StoreConfig) -> None:
    """Each host's strandline.toml, with the secret and the certificate that all share."""
    shared = hosts.folder(1).parent / "shared"
    shared.mkdir()
    secret = shared / "quorum-secret"
    secret.touch(0o600)
    secret.write_text("what only these three hosts know\n")
    made = make_certificate(shared, *map(hosts.name, NUMBERS))
    for number, broker in cluster.brokers.items():
        folder = hosts.folder(number)
        sections: dict[str, dict[str, object]] = {
            "node": {"data_dir": str(folder / "data")},
            "kafka": {"log_dirs": [str(broker.log_dir)], "broker": broker.bootstrap},
            "topics": {"include": [TOPIC]},
            "stores.main": store_settings(folder, store),
            "copier": {"interval_s": 0.3, "takeover_settle_s": 0.1},
            "metadata": {"snapshot_upload_check_s": 0.2},
            "http": {
                "host": hosts.address(number),
                "port": HTTP_PORT,
                "tokens_file": str(folder / "tokens"),
            },
            "quorum": {
                "listen": f"{hosts.name(number)}:{QUORUM_PORT}",
                "secret_file": str(secret),
                "tls_certificate_file": str(made.certificate),
                "tls_key_file": str(made.key),
                "tls_ca_file": str(made.certificate),
            },
        }
        (folder / "strandline.toml").write_text(
            "".join(
                f"[{name}]\n" + "".join(f"{key} = {json.dumps(v)}\n" for key, v in values.items())
                for name, values in sections.items()
            )
        )


@contextmanager
def fleet(tmp_path: Path, store: StoreConfig) -> Iterator[Fleet]:
    """Brokers that run, hosts that have settings and no node yet."""
    with KafkaCluster(tmp_path / "kafka") as cluster, Hosts(tmp_path / "hosts") as hosts:
        cluster.create_topic(TOPIC, partitions=len(NUMBERS), config=TOPIC_CONFIG)
        write_settings(hosts, cluster, store)
        hosts.add_program("rclone", packaged_rclone())
        yield Fleet(hosts, cluster)


def assert_a_token_is_private_and_lets_in(hosts: Hosts) -> None:
    """Also where a file is there already, as an earlier paste or hand left it."""
    hosts.typed(2, RECIPES["token"])
    for name in ("token", "tokens"):
        assert (hosts.folder(2) / name).stat().st_mode & 0o077 == 0, name
        (hosts.folder(1) / name).touch()
        (hosts.folder(1) / name).chmod(0o664)
    hosts.typed(1, RECIPES["token"])
    for name in ("token", "tokens"):
        assert (hosts.folder(1) / name).stat().st_mode & 0o007 == 0, name
    for number in NUMBERS[1:]:
        hosts.typed(1, f"scp tokens strand-{number}:")


def assert_one_cluster_comes_of_three_pastes(fleet: Fleet) -> None:
    hosts = fleet.hosts
    for _ in range(3):
        hosts.typed(1, RECIPES["new quorum"])
    for number in NUMBERS:
        hosts.typed(number, RECIPES["format"])
    for number in NUMBERS:
        hosts.typed(number, "systemctl start strandline")
    for number in NUMBERS:
        hosts.wait_until(lambda: hosts.ready(number), f"node {number} to be ready")  # noqa: B023
    assert {voter["node_id"] for voter in fleet.quorum()["voters"]} == set(NUMBERS)
    clusters = {hosts.get(number, "/v1/cluster").json()["cluster_id"] for number in NUMBERS}
    assert len(clusters) == 1


def let_node_1_lead(fleet: Fleet) -> None:
    """As the recipes suppose; an election may have made another one the leader."""
    as_admin = "STRANDLINE_URL=http://strand-{}:9480 STRANDLINE_TOKEN_FILE=token "

    def leads() -> bool:
        leader = fleet.quorum()["leader_id"]
        if leader is not None and leader > 1:  # between two leaders there is none
            fleet.hosts.type(1, as_admin.format(leader) + "strandline quorum transfer 1")
        return bool(leader == 1)

    fleet.hosts.wait_until(leads, "node 1 to lead the quorum")


def assert_a_rolling_restart_ends_and_stops_nothing(fleet: Fleet) -> None:
    hosts = fleet.hosts
    let_node_1_lead(fleet)
    before = {number: hosts.pid(number) for number in NUMBERS}
    hosts.typed(1, RECIPES["rolling restart"])
    after = {number: hosts.pid(number) for number in NUMBERS}
    assert all(before[number] != after[number] for number in NUMBERS)
    assert all(hosts.ready(number) for number in NUMBERS)


def assert_the_loop_ends_where_it_may_not_go_on(fleet: Fleet) -> None:
    """A wrong token is no reason to ask for ever."""
    hosts = fleet.hosts
    before = {number: hosts.pid(number) for number in NUMBERS}
    (hosts.folder(2) / "token").write_text("another\n")
    done = hosts.type(2, RECIPES["rolling restart"])
    assert "401" in done.stdout or "token" in done.stdout
    assert {number: hosts.pid(number) for number in NUMBERS} == before


def assert_a_dead_voter_comes_back_and_copies_on(fleet: Fleet) -> None:
    """Its broker goes on leading, at the same epoch: the claims are those of the lost directory."""
    hosts = fleet.hosts
    its_own = [each for each in range(len(NUMBERS)) if fleet.cluster.leader(TOPIC, each) == 3]
    assert its_own
    before = fleet.partitions()
    let_node_1_lead(fleet)
    hosts.kill(3)
    shutil.rmtree(hosts.folder(3) / "data")
    hosts.typed(1, RECIPES["dead voter, remove"])
    settings = hosts.folder(3) / "strandline.toml"
    others = json.dumps([f"{each}@{hosts.name(each)}:{QUORUM_PORT}" for each in (1, 2)])
    joins = f"[quorum]\nbootstrap = {others}\n"
    settings.write_text(settings.read_text().replace("[quorum]\n", joins))
    hosts.typed(3, RECIPES["dead voter, format"])
    hosts.wait_until(lambda: hosts.ready(3), "node 3 to be ready")

    def copied_on() -> bool:
        now = fleet.partitions()
        return all(
            now[each]["highest_copied_offset"] > before[each]["highest_copied_offset"]
            for each in its_own
        )

    hosts.wait_until(copied_on, "what broker 3 leads to be copied on")
    let_node_1_lead(fleet)
    hosts.typed(1, RECIPES["dead voter, add"])
    assert {voter["node_id"] for voter in fleet.quorum()["voters"]} == set(NUMBERS)
    assert hosts.type(1, RECIPES["dead voter, remove"]).returncode != 0  # its vote stays
    assert {voter["node_id"] for voter in fleet.quorum()["voters"]} == set(NUMBERS)


def assert_nothing_is_lost_and_nothing_is_wrong(fleet: Fleet) -> None:
    """The brokers' retention deletes nothing here: what is missing was given up by a node."""
    hosts = fleet.hosts
    fleet.wait_until_all_is_copied()
    for status in fleet.partitions():
        assert status["lost_ranges"] == [], status
        assert status["why_not_copying"] in ("no_sealed_segment", "waiting_for_slot"), status
    for number in NUMBERS:
        hosts.wait_until(
            lambda: hosts.get(number, "/v1/cluster").json()["problems"] == [],  # noqa: B023
            f"node {number} to have no problem",
        )


def assert_a_disaster_is_recovered_from(fleet: Fleet) -> None:
    """All data directories are gone; a new quorum has everything that the bucket has."""
    hosts = fleet.hosts
    lost = hosts.get(1, "/v1/cluster").json()["cluster_id"]
    before = fleet.partitions()
    for number in NUMBERS:
        hosts.typed(number, RECIPES["disaster, set aside"])
    hosts.typed(1, RECIPES["new quorum"])
    for number in NUMBERS:
        hosts.typed(number, RECIPES["disaster, format"])
    for number in (2, 3):
        hosts.typed(number, "systemctl start strandline")
    for number in (2, 3):
        hosts.wait_until(lambda: hosts.ready(number), f"node {number} to be ready")  # noqa: B023
    hosts.typed(1, RECIPES["disaster, compare"])
    hosts.typed(1, RECIPES["disaster, record"])
    hosts.wait_until(lambda: hosts.ready(1), "node 1 to be ready")
    settings = hosts.get(1, "/v1/settings").json()["settings"]
    assert [each["setting"] for each in settings] == ["deleting.paused"]
    hosts.typed(1, RECIPES["disaster, resume"])
    assert hosts.get(1, "/v1/settings").json()["settings"] == []
    fleet.wait_until_all_is_copied()
    assert hosts.get(1, "/v1/cluster").json()["cluster_id"] != lost
    for then, now in zip(before, fleet.partitions(), strict=True):
        assert now["remote_segments"] == then["remote_segments"]


def assert_a_store_moves_while_its_readers_go_on(fleet: Fleet, store: StoreConfig) -> None:
    hosts = fleet.hosts
    make_bucket(replace(store, bucket="kafka-tier-2"))
    remote = {
        "RCLONE_CONFIG_STORE_TYPE": "s3",
        "RCLONE_CONFIG_STORE_PROVIDER": "Minio",
        "RCLONE_CONFIG_STORE_ENDPOINT": str(store.endpoint_url),
        "RCLONE_CONFIG_STORE_ACCESS_KEY_ID": str(store.access_key_id),
        "RCLONE_CONFIG_STORE_SECRET_ACCESS_KEY": str(store.secret_access_key),
    }
    as_admin = {"STRANDLINE_TOKEN_FILE": "token"}
    hosts.typed(1, RECIPES["move, copy"], environment=remote)
    hosts.typed(1, RECIPES["move, pause"], environment=as_admin)
    hosts.typed(1, RECIPES["move, copy"], environment=remote)
    for number in NUMBERS:
        settings = hosts.folder(number) / "strandline.toml"
        moved = settings.read_text().replace('"kafka-tier"', '"kafka-tier-2"')
        (hosts.folder(number) / "moved.toml").write_text(moved)
    hosts.typed(1, RECIPES["move, verify"], environment=as_admin)
    for number in NUMBERS:
        hosts.typed(number, "cp moved.toml strandline.toml")
    let_node_1_lead(fleet)
    hosts.typed(1, RECIPES["rolling restart"])
    hosts.typed(1, RECIPES["move, resume"], environment=as_admin)
    for number in NUMBERS:
        problems = hosts.get(number, "/v1/cluster").json()["problems"]
        assert problems == []
    fleet.wait_until_all_is_copied()


def test_the_recipes_do_what_they_say(tmp_path: Path, minio_store_config: StoreConfig) -> None:
    store = replace(minio_store_config, bucket="kafka-tier", prefix="prefix/")
    make_bucket(store)
    with fleet(tmp_path, store) as site:
        assert_a_token_is_private_and_lets_in(site.hosts)
        assert_one_cluster_comes_of_three_pastes(site)
        with site.writer() as writer:
            assert_a_rolling_restart_ends_and_stops_nothing(site)
        writer.write_filler()
        assert_the_loop_ends_where_it_may_not_go_on(site)
        site.wait_until_all_is_copied()
        assert_a_store_moves_while_its_readers_go_on(site, store)
        with site.writer() as writer:
            assert_a_dead_voter_comes_back_and_copies_on(site)
        writer.write_filler()
        assert_nothing_is_lost_and_nothing_is_wrong(site)
        assert_a_disaster_is_recovered_from(site)
