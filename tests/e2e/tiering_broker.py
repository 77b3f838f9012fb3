"""A stock broker with tiered storage, both managers the plug-in, and the node beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.e2e.broker_site import SECTIONS, TIERED
from tests.e2e.broker_site import TOPIC_CONFIG as ANY_TOPIC_CONFIG
from tests.e2e.node_process import NodeProcess, Sections
from tests.e2e.node_quorum import NodeQuorum
from tests.e2e.tier_client import TierClient
from tests.real.broker_plugin import plugin_jar
from tests.real.kafka import KAFKA_VERSION, KafkaBroker
from tests.real.kafka_clients import ConsumedRecord
from tests.real.kafka_cluster import KafkaCluster

TOPIC = "voyages"
TOPIC_CONFIG = ANY_TOPIC_CONFIG | TIERED


def broker_settings(node_url: str, jar: Path | None = None) -> dict[str, str]:
    """The lines for `server.properties`; with another jar than today's."""
    jar = jar or plugin_jar()
    managers = {"storage": "Storage", "metadata": "Metadata"}
    lines = {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
    }
    for name, title in managers.items():
        manager = f"remote.log.{name}.manager"
        prefix = "rsm.config." if name == "storage" else "rlmm.config."
        lines |= {
            f"{manager}.class.name": f"io.strandline.broker.Strandline{title}Manager",
            f"{manager}.class.path": str(jar),
            f"{manager}.impl.prefix": prefix,
            f"{prefix}strandline.node.url": node_url,
        }
    return lines


def topic_config(version: str) -> dict[str, str]:
    """`TOPIC_CONFIG` as brokers of that version name it."""
    config = dict(TOPIC_CONFIG)
    if version.startswith(("3.", "4.0.")):
        config["segment.bytes"] = config.pop("internal.segment.bytes")
    return config


def node_sections(tmp_path: Path, broker: KafkaBroker) -> dict[str, dict[str, object]]:
    """Settings of the node beside `broker`, which tells it its address."""
    return {
        "kafka": {"log_dirs": [str(broker.log_dir)], "broker": "announced"},
        "stores.main": {"kind": "filesystem", "path": str(tmp_path / "tier")},
        "copier": {"interval_s": 0.3, "upload_deadline_s": 5, "upload_margin_s": 1},
        "topics": {"include": ["*"]},
        "http": {"anonymous_role": "admin"},
    }


@contextmanager
def site(
    tmp_path: Path,
    version: str = KAFKA_VERSION,
    *,
    announced: bool = True,
    shared: bool = True,
    read: str = "",
) -> Iterator[tuple[KafkaBroker, NodeProcess]]:
    """A node, then a broker that tiers by it, and tells the node its address if `announced`.
    Not `shared`: the node is not told of the broker's disk. `read` is its address as a read
    replica.
    """
    broker = KafkaBroker(tmp_path / "broker", version=version)
    (tmp_path / "tier").mkdir()
    settings = node_sections(tmp_path, broker)
    if read:
        settings["read"] = {"listen": read}
    if not announced:
        settings["kafka"]["broker"] = broker.bootstrap
    identity: tuple[str, ...] = ()
    if not shared:
        settings["kafka"]["log_dirs"] = []
        identity = ("--node-id", str(broker.node_id), "--kafka-cluster-id", broker.cluster_id)
    broker.format()
    node = NodeProcess(tmp_path / "node", settings)
    try:
        broker.override(broker_settings(node.url))
        node.format(*identity)
        node.start()
        broker.start()
        yield broker, node
    finally:
        if node.running:
            node.kill()
        broker.close()


def tasks_of(broker: KafkaBroker) -> set[str]:
    """Names of the remote log manager's thread pools that live, as the kernel shows them."""
    names = set()
    for path in Path(f"/proc/{broker.pid}/task").glob("*/comm"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread ended meanwhile
            names.add(path.read_text().strip())
    return {name.rstrip("0123456789-") for name in names if "rlm" in name or "remote" in name}


@contextmanager
def three(
    tmp_path: Path, version: str = KAFKA_VERSION, *, shared: bool = True
) -> Iterator[tuple[KafkaCluster, NodeQuorum]]:
    """Three brokers that tier, a node beside each, one folder as the store of all. `shared`:
    the nodes see the brokers' disks.
    """
    cluster = KafkaCluster(tmp_path / "kafka", version=version)
    cluster.format()
    (tmp_path / "tier").mkdir()
    kafka = {
        str(number): {
            "log_dirs": [str(broker.log_dir)] if shared else [],
            "broker": broker.bootstrap,
        }
        for number, broker in cluster.brokers.items()
    }
    sections: Sections = {
        **SECTIONS,
        "stores.main": {"kind": "filesystem", "path": str(tmp_path / "tier")},
    }
    with NodeQuorum(tmp_path, cluster.cluster_id, sections, kafka) as quorum:
        for number, broker in cluster.brokers.items():
            broker.override(broker_settings(quorum.nodes[number].url))
        with cluster:
            yield cluster, quorum


def below(records: list[ConsumedRecord], tier: TierClient) -> list[ConsumedRecord]:
    """The records that are in the tier."""
    highest = tier.status()["highest_copied_offset"]
    return [record for record in records if record.offset <= highest]
