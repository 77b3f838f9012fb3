"""Two read replicas beside three brokers and three nodes in a bad half hour: whatever goes wrong, a
consumer through them reads what was acknowledged, each record once and in order.

READ_FAULTS_SEED is the order of the faults of a single run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import faults
from tests.e2e.broker_site import Site, open_site
from tests.e2e.faults import (
    DELETED_TOPIC,
    FAULTS,
    GROWING_TOPIC,
    SHORTENED_TOPIC,
    Fault,
    run_faults,
)
from tests.e2e.ledger import LogKey
from tests.e2e.node_process import NodeProcess
from tests.e2e.node_quorum import SILENCE_MAX_S
from tests.e2e.scanning_reader import ISOLATIONS, ScanningReader
from tests.real.kafka_cluster import BROKERS
from tests.real.ports import ports_in_a_row

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(900)]

REPLICAS = {11: "a", 12: "b"}
SEEDS = [int(each) for each in os.environ.get("READ_FAULTS_SEED", "").split(",") if each]
LOCALLY_RETAINED_BYTES = 150_000


@dataclass(frozen=True)
class Replicas:
    """Two nodes without log directories, each in a zone of its own."""

    site: Site
    ports: dict[int, int]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def any_one(self, chance: random.Random) -> NodeProcess:
        return self.site.quorum.nodes[chance.choice(sorted(self.ports))]

    def faults(self) -> dict[str, Fault]:
        """Those of a site, and the replicas' own."""

        def kill_replica(_: Site, chance: random.Random) -> None:
            node = self.any_one(chance)
            node.kill()
            time.sleep(chance.uniform(*faults.SHORT_S))
            node.start()

        def suspend_replica(_: Site, chance: random.Random) -> None:
            node = self.any_one(chance)
            node.suspend()
            time.sleep(chance.uniform(SILENCE_MAX_S - 2, SILENCE_MAX_S + 3))
            node.wake()
            node.wait_until_ready()

        return FAULTS | {each.__name__: each for each in (kill_replica, suspend_replica)}


@contextmanager
def with_replicas(site: Site) -> Iterator[Replicas]:
    found = Replicas(site, {})
    brokers = [broker.bootstrap for broker in site.cluster.brokers.values()]
    for number, zone in REPLICAS.items():
        found.ports[number] = ports_in_a_row(2 + max(BROKERS))
        read = {
            "listen": f"127.0.0.1:{found.ports[number]}",
            "zone": zone,
        }
        kafka = {"log_dirs": [], "bootstrap": brokers}
        site.quorum.follow(number, kafka=kafka, read=read, topics={"include": []})
    yield found


@pytest.mark.parametrize("seed", SEEDS or range(1, 11))
def test_a_consumer_through_replicas_misses_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    print(f"\nREAD_FAULTS_SEED={seed}, logs in {tmp_path}")
    with open_site(tmp_path, seed) as site, with_replicas(site) as replicas:
        for topic, partitions in ((GROWING_TOPIC, 2), (SHORTENED_TOPIC, 1), (DELETED_TOPIC, 1)):
            site.make_topic(topic, partitions)
        broker = next(iter(site.cluster.brokers.values()))
        broker.alter_topic(GROWING_TOPIC, {"retention.bytes": str(LOCALLY_RETAINED_BYTES)})

        def keys_that_stay() -> list[LogKey]:
            return [key for key in site.logs() if key.topic != DELETED_TOPIC]

        reader = ScanningReader(
            replicas.bootstrap, site.ledger, keys_that_stay, seed, shortened=SHORTENED_TOPIC
        )
        with reader, site.writer:
            run_faults(site, chance, replicas.faults())
        for isolation in ISOLATIONS:
            reader.scan(site.logs(), isolation)
        print(f"{reader.scans} scans, {reader.records} records, {site.ledger.total()} written")
        assert reader.scans > 2
        for number, node in site.quorum.nodes.items():
            assert "Traceback" not in node.log, f"node {number}"
