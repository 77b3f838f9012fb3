"""Settings of brokers that tier by Kafka's own managers, and of those that get the bridge."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from zipfile import ZipFile

from tests.e2e.tiering_broker import broker_settings
from tests.real.broker_plugin import bridge_class_path
from tests.real.kafka import kafka_jars
from tests.real.maven import fetch_jars
from tests.real.toolbox import only_one, tools_dir

KAFKAS_STORAGE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
KAFKAS_METADATA = (
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
)
BRIDGE = "io.strandline.broker.MigratingMetadataManager"
METADATA_PARTITIONS = 3
_REFERENCE_VERSION = "4.3.0"
_REFERENCE = f"org.apache.kafka:kafka-storage:{_REFERENCE_VERSION}:test"
"""LocalTieredStorage, of the newest published test jar."""
_GONE_IN_4_4 = "org/apache/kafka/common/utils/LogContext"
_METADATA = "remote.log.metadata.manager"


def storage_jars() -> Path:
    """The folder with Kafka's LocalTieredStorage, and the class of an earlier client that it needs
    and brokers of 4.4 have no more.
    """
    reference = fetch_jars(f"kafka-storage-test-{_REFERENCE_VERSION}", (_REFERENCE,), alone=True)
    folder = tools_dir() / f"kafka-reference-storage-{_REFERENCE_VERSION}"
    with only_one(folder.name):
        if not folder.is_dir():
            clients = kafka_jars(_REFERENCE_VERSION) / f"kafka-clients-{_REFERENCE_VERSION}.jar"
            with tempfile.TemporaryDirectory(dir=tools_dir()) as scratch:
                jars = Path(shutil.copytree(reference, Path(scratch, "jars")))
                with ZipFile(clients) as all_of_it, ZipFile(jars / "gone.jar", "w") as gone:
                    for name in all_of_it.namelist():
                        if name.startswith(_GONE_IN_4_4):
                            gone.writestr(name, all_of_it.read(name))
                jars.rename(folder)
    return folder


def of_kafka(tier: Path, *, replicas: int = 1) -> dict[str, str]:
    """Lines for `server.properties` of a broker that tiers by Kafka's own managers."""
    same = {
        name: value
        for name, value in broker_settings("").items()
        if ".manager.class" not in name and ".strandline." not in name
    }
    return {
        **same,
        "remote.log.storage.manager.class.name": KAFKAS_STORAGE,
        "remote.log.storage.manager.class.path": f"{storage_jars()}/*",
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
