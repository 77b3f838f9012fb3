"""What goes wrong at a site, one thing after the other; each leaves the site whole again, and tells
the site's story which part of it was hit.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from tests.e2e.broker_site import UPLOAD_DEADLINE_S, UPLOAD_MARGIN_S, Site
from tests.e2e.ledger import LogKey
from tests.e2e.node_process import NodeProcess
from tests.real.kafka import KafkaBroker
from tests.real.kafka_cluster import BROKERS
from tests.real.store_gate import Passing

SHORT_S = (1.0, 3.0)
PAUSE_S = UPLOAD_DEADLINE_S + UPLOAD_MARGIN_S + 2.0
DELETED_TOPIC = "comets"
SHORTENED_TOPIC = "events"
GROWING_TOPIC = "orders"
RETAINED_BYTES = 200_000

Fault = Callable[[Site, random.Random], None]


def move_leaders(site: Site, chance: random.Random) -> None:
    """Every partition gets another leader."""
    for key in site.logs():
        _lead_elsewhere(site, key, chance)
        for_a_moment(chance)


def kill_broker(site: Site, chance: random.Random) -> None:
    """SIGKILL; the others lead, then it comes back."""
    broker = any_broker(site, chance)
    broker.kill()
    for_a_moment(chance)
    broker.start()
    all_in_sync(site)


def kill_node(site: Site, chance: random.Random) -> None:
    """SIGKILL of a node, then it comes back."""
    node = any_node(site, chance)
    node.kill()
    for_a_moment(chance)
    node.start()


def kill_machine(site: Site, chance: random.Random) -> None:
    """A broker and the node beside it at once."""
    number = chance.choice(BROKERS)
    site.tell(f"machine {number}")
    broker, node = site.cluster.brokers[number], site.quorum.nodes[number]
    node.kill()
    broker.kill()
    for_a_moment(chance)
    node.spawn()
    broker.start()
    node.wait_until_ready()
    all_in_sync(site)


def suspend_node(site: Site, chance: random.Random) -> None:
    """SIGSTOP of a node that copies, its partitions move away, it wakes past every deadline."""
    node_id = chance.choice(BROKERS)
    site.tell(f"node {node_id}")
    led = [key for key in site.logs() if site.cluster.leader(key.topic, key.partition) == node_id]
    node = site.quorum.nodes[node_id]
    node.suspend()
    try:
        for key in led:
            _lead_elsewhere(site, key, chance)
        time.sleep(PAUSE_S)
    finally:
        node.wake()
    node.wait_until_ready()


def kill_store(site: Site, chance: random.Random) -> None:
    """SIGKILL of MinIO, then it comes back."""
    site.minio.kill()
    for_a_moment(chance)
    site.minio.start()


def make_store_read_only(site: Site, chance: random.Random) -> None:
    """Every write is refused for a while."""
    site.gate.passing = Passing.READS
    try:
        time.sleep(2 * chance.uniform(*SHORT_S))
    finally:
        site.gate.passing = Passing.ALL


def recreate_topic(site: Site, chance: random.Random) -> None:
    """Deleted while it is copied, and made again under its name."""
    topic = site.topics[DELETED_TOPIC]
    with site.writer.paused():
        site.delete_topic(DELETED_TOPIC)
        site.make_topic(DELETED_TOPIC, topic.partitions)


def grow_and_reassign(site: Site, chance: random.Random) -> None:
    """A partition more; one is moved to two brokers, away from its leader, and back to three."""
    topic = site.topics[GROWING_TOPIC]
    with site.writer.paused():
        site.cluster.add_partitions(GROWING_TOPIC, topic.partitions + 1)
        topic.partitions += 1
        site.writer.targets |= set(topic.keys)
    partition = chance.randrange(topic.partitions)
    left_out = site.cluster.leader(GROWING_TOPIC, partition)
    others = [each for each in BROKERS if each != left_out]
    chance.shuffle(others)
    site.tell(f"{GROWING_TOPIC}-{partition} leaves broker {left_out}")
    site.cluster.reassign(GROWING_TOPIC, partition, others)
    for_a_moment(chance)
    site.cluster.reassign(GROWING_TOPIC, partition, [*others, left_out])


def shorten_retention(site: Site, chance: random.Random) -> None:
    """The tier keeps less of one topic from now on."""
    site.set_retention(SHORTENED_TOPIC, RETAINED_BYTES)


FAULTS: dict[str, Fault] = {
    each.__name__: each
    for each in (
        move_leaders,
        kill_broker,
        kill_node,
        kill_machine,
        suspend_node,
        kill_store,
        make_store_read_only,
        recreate_topic,
        grow_and_reassign,
        shorten_retention,
    )
}
REPEATED = sorted(FAULTS.keys() - {"recreate_topic", "grow_and_reassign", "shorten_retention"})
"""Those that may come again: the others make the site larger each time."""


def run_faults(
    site: Site,
    chance: random.Random,
    faults: Mapping[str, Fault],
    *,
    kinds: int | None = None,
    faults_s: float = 0,
) -> None:
    """Until the time is over and each kind, or as many as `kinds`, has been."""
    end = time.monotonic() + faults_s
    once = sorted(faults)
    chance.shuffle(once)  # no two orders alike
    once = once[:kinds]
    while once or time.monotonic() < end:
        name = once.pop(0) if once else chance.choice(REPEATED)
        site.tell(name)
        faults[name](site, chance)
        for node in site.quorum.running.values():
            node.assert_alive()


def _lead_elsewhere(site: Site, key: LogKey, chance: random.Random) -> None:
    found = site.cluster.partitions(key.topic)[key.partition]
    others = [int(each) for each in found.isrs if each != found.leader]
    if others:
        to = chance.choice(others)
        site.tell(f"broker {to} is to lead {key.topic}-{key.partition}")
        site.cluster.move_leader(key.topic, key.partition, to)


def any_broker(site: Site, chance: random.Random) -> KafkaBroker:
    """One by chance, and told."""
    number = chance.choice(BROKERS)
    site.tell(f"broker {number}")
    return site.cluster.brokers[number]


def any_node(site: Site, chance: random.Random) -> NodeProcess:
    """One beside a broker by chance, and told."""
    number = chance.choice(BROKERS)
    site.tell(f"node {number}")
    return site.quorum.nodes[number]


def all_in_sync(site: Site) -> None:
    """Wait until every replica of every partition is."""
    for topic in site.topics.values():
        site.cluster.wait_for_replicas(topic.name, topic.partitions)


def for_a_moment(chance: random.Random) -> None:
    """As long as a restart takes."""
    time.sleep(chance.uniform(*SHORT_S))
