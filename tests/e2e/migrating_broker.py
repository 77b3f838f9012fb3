"""Settings of brokers that tier by Kafka's own managers, and of those that get the bridge."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.tiering_broker import broker_settings
from tests.real.broker_plugin import bridge_class_path
from tests.real.maven import fetch_jars

KAFKAS_STORAGE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
KAFKAS_METADATA = (
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
)
BRIDGE = "io.strandline.broker.MigratingMetadataManager"
METADATA_PARTITIONS = 3
_REFERENCE = "org.apache.kafka:kafka-storage:4.3.0:test"
"""LocalTieredStorage, of the newest published test jar, which 4.4 lacks classes for."""
_METADATA = "remote.log.metadata.manager"


def of_kafka(tier: Path, *, replicas: int = 1) -> dict[str, str]:
    """Lines for `server.properties` of a broker that tiers by Kafka's own managers."""
    jars = fetch_jars("kafka-storage-test-4.3.0", (_REFERENCE,), alone=True)
    same = {
        name: value
        for name, value in broker_settings("").items()
        if ".manager.class" not in name and ".strandline." not in name
    }
    return {
        **same,
        "remote.log.storage.manager.class.name": KAFKAS_STORAGE,
        "remote.log.storage.manager.class.path": f"{jars}/*",
        "rsm.config.dir": str(tier),
        "rsm.config.delete.on.close": "false",
        f"{_METADATA}.class.name": KAFKAS_METADATA,
        f"{_METADATA}.class.path": "",
        "rlmm.config.remote.log.metadata.topic.num.partitions": str(METADATA_PARTITIONS),
        "rlmm.config.remote.log.metadata.topic.replication.factor": str(replicas),
    }


def of_bridge(node_url: str) -> dict[str, str]:
    """What changes for the bridge."""
    return {
        f"{_METADATA}.class.name": BRIDGE,
        f"{_METADATA}.class.path": bridge_class_path(),
        "rlmm.config.strandline.node.url": node_url,
    }
