"""What goes wrong at a site whose brokers tier by their nodes, beside what goes wrong at any."""

from __future__ import annotations

import random
import shutil
import time
from typing import Final

from tests.e2e.broker_site import Site
from tests.e2e.faults import (
    FAULTS,
    PAUSE_S,
    Fault,
    all_in_sync,
    any_broker,
    any_node,
    for_a_moment,
    move_leaders,
)
from tests.real.kafka_clients import log_bounds
from tests.real.kafka_cluster import BROKERS
from tests.real.process_tree import stopped
from tests.real.store_gate import Passing

CUT_TOPIC: Final = "letters"
HANG_S: Final = (1.0, 8.0)
"""On both sides of a broker's session."""


def restart_broker(site: Site, chance: random.Random) -> None:
    """A clean stop; it hands over what it leads."""
    any_broker(site, chance).restart()
    all_in_sync(site)


def suspend_broker(site: Site, chance: random.Random) -> None:
    """SIGSTOP: it wakes as a leader, or as one that takes itself for it."""
    with stopped(any_broker(site, chance).pid):
        time.sleep(chance.uniform(*HANG_S))
    all_in_sync(site)


def lose_disk(site: Site, chance: random.Random) -> None:
    """The broker comes back with an empty disk, and is built from the tier."""
    broker = any_broker(site, chance)
    broker.kill()
    shutil.rmtree(broker.log_dir)
    for_a_moment(chance)
    broker.format()
    broker.start()
    all_in_sync(site)


def restart_node(site: Site, chance: random.Random) -> None:
    """A clean stop."""
    node = any_node(site, chance)
    node.stop()
    for_a_moment(chance)
    node.start()


def lose_majority(site: Site, chance: random.Random) -> None:
    """Two nodes of three are away, and one of them leads partitions or did."""
    lost = chance.sample(BROKERS, 2)
    site.tell(f"nodes {lost}")
    for number in lost:
        site.quorum.nodes[number].kill()
    _meanwhile(site, chance)
    site.quorum.start(*lost)


def suspend_store(site: Site, chance: random.Random) -> None:
    """SIGSTOP of MinIO: it takes connections and answers none."""
    with stopped(site.minio.pid):
        _meanwhile(site, chance)


def slow_store(site: Site, chance: random.Random) -> None:
    """Each request waits for longer than a consumer's fetch does."""
    site.gate.passing = Passing.SLOWLY
    try:
        _meanwhile(site, chance)
    finally:
        site.gate.passing = Passing.ALL


def delete_records(site: Site, chance: random.Random) -> None:
    """DeleteRecords up to some offset, most likely one that only the tier has."""
    for key in site.topics[CUT_TOPIC].keys:
        cut_at = chance.randint(*log_bounds(site.cluster.bootstrap, key.topic, key.partition))
        site.tell(f"{key.topic}-{key.partition} begins at {cut_at}")
        broker = site.cluster.brokers[chance.choice(BROKERS)]
        broker.delete_records(key.topic, key.partition, cut_at)
        site.log_starts[key] = cut_at


TIERING_FAULTS: Final[dict[str, Fault]] = FAULTS | {
    each.__name__: each
    for each in (
        restart_broker,
        suspend_broker,
        lose_disk,
        restart_node,
        lose_majority,
        suspend_store,
        slow_store,
        delete_records,
    )
}


def _pause(site: Site, chance: random.Random) -> None:
    time.sleep(PAUSE_S)


def _meanwhile(site: Site, chance: random.Random) -> None:
    """Nothing more, or what brokers do by themselves while their nodes or the store are away."""
    chance.choice((_pause, move_leaders, delete_records))(site, chance)
