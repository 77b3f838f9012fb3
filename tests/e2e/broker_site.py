"""A whole site: three stock brokers, a node beside each, MinIO behind a gate, and what is written.

Everything a fault or the auditor needs is reached from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rsm_backends.store_config import StoreConfig
from tests.e2e.bucket import store_settings
from tests.e2e.http import PLAIN
from tests.e2e.ledger import Ledger, LogKey
from tests.e2e.node_process import NodeProcess
from tests.e2e.node_quorum import NodeQuorum
from tests.e2e.steady_writer import SteadyWriter
from tests.e2e.tier_client import TierClient
from tests.real.kafka_cluster import BROKERS, KafkaCluster
from tests.real.minio import MinioServer
from tests.real.store_gate import StoreGate

PREFIX = "e2e/site/"
SEGMENT_BYTES = 49_152
TOPIC_CONFIG = {
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "index.interval.bytes": "2048",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "file.delete.delay.ms": "1000",
}
TIERED = {
    "remote.storage.enable": "true",
    "local.retention.ms": "-1",
    "local.retention.bytes": "1",
}
"""Of a topic that its brokers tier: they keep no more than the active segment."""
UPLOAD_DEADLINE_S = 5
UPLOAD_MARGIN_S = 1
PAST_LIVES_S = 150.0
"""Some passes of a node over what nobody deletes to the end."""
SECTIONS: dict[str, dict[str, object]] = {
    "topics": {"include": ["*"]},
    "http": {"anonymous_role": "admin"},
    "copier": {
        "interval_s": 0.5,
        "upload_deadline_s": UPLOAD_DEADLINE_S,
        "upload_margin_s": UPLOAD_MARGIN_S,
        "backoff_base_s": 0.2,
        "backoff_max_s": 2,
    },
    "retention": {
        "interval_s": 1,
        "delete_delay_s": 1,
        "deletion_settle_s": 1,
        "max_percent": 95,
        "trash_s": 0,
    },
}


@dataclass(slots=True)
class Topic:
    """A topic as it is now. `past_ids` are the topic ids of its earlier lives, oldest first."""

    name: str
    partitions: int
    past_ids: list[str]
    past_partitions: list[int]

    @property
    def keys(self) -> list[LogKey]:
        """Its partitions in the ledger."""
        return [LogKey(self.name, len(self.past_ids), each) for each in range(self.partitions)]


BrokerSettings = Callable[[str], Mapping[str, str]]
"""Lines for a broker's `server.properties`, by the URL of the node beside it."""


class Site:
    """See the module. With `tiering` the brokers tier by themselves. `log_starts`: where
    DeleteRecords has cut a log, 0 for all others. `retained`: retention in bytes, by topic.
    """

    def __init__(
        self,
        home: Path,
        cluster: KafkaCluster,
        quorum: NodeQuorum,
        minio: MinioServer,
        gate: StoreGate,
        store: StoreConfig,
        seed: int,
        *,
        tiering: bool,
    ) -> None:
        self.cluster = cluster
        self.quorum = quorum
        self.minio = minio
        self.gate = gate
        self.store = store
        self.ledger = Ledger()
        self.writer = SteadyWriter(cluster.bootstrap, self.ledger, seed)
        self.topics: dict[str, Topic] = {}
        self.tiering = tiering
        self.topic_config = TOPIC_CONFIG | (TIERED if tiering else {})
        self.log_starts: dict[LogKey, int] = {}
        self.retained: dict[str, int] = {}
        self._story = home / "story.txt"
        self._began_s = time.monotonic()

    def tell(self, what: str) -> None:
        """An event of the run's story, which stays beside the logs of a run that fails."""
        line = f"{time.monotonic() - self._began_s:7.1f} s  {what}"
        print(line, flush=True)
        with self._story.open("a") as story:
            story.write(f"{line}\n")

    def make_topic(self, name: str, partitions: int) -> None:
        """A topic that the writer writes to."""
        self.cluster.create_topic(name, partitions=partitions, config=self.topic_config)
        topic = self.topics.setdefault(name, Topic(name, partitions, [], []))
        self.writer.targets |= set(topic.keys)

    def delete_topic(self, name: str) -> None:
        """Nothing is written to it any more, and what it was is a past life."""
        topic, topic_id = self.topics[name], self.topic_id(name)
        self.writer.targets -= set(topic.keys)
        self.cluster.delete_topic(name)
        topic.past_ids.append(topic_id)
        topic.past_partitions.append(topic.partitions)

    def logs(self) -> list[LogKey]:
        """Every partition that is there now."""
        return [key for topic in self.topics.values() for key in topic.keys]

    def past_logs(self) -> list[LogKey]:
        """Every partition of topics that were deleted."""
        return [
            LogKey(topic.name, life, each)
            for topic in self.topics.values()
            for life, partitions in enumerate(topic.past_partitions)
            for each in range(partitions)
        ]

    def wait_for_past_lives_to_go(self) -> None:
        """No row is left of a topic that was deleted."""
        node = next(iter(self.quorum.running.values()))
        self.quorum.wait_until(
            lambda: not any(self.tier(node, key).segments() for key in self.past_logs()),
            "past lives to go",
            deadline_s=PAST_LIVES_S,
        )

    def lead_by_turns(self) -> None:
        """Each broker leads a partition, if there are as many."""
        for number, key in enumerate(self.logs()):
            self.cluster.move_leader(key.topic, key.partition, BROKERS[number % len(BROKERS)])

    def tier(self, node: NodeProcess, key: LogKey) -> TierClient:
        """One partition, of this or an earlier life, as `node` has it."""
        topic = self.topics[key.topic]
        past = topic.past_ids[key.life] if key.life < len(topic.past_ids) else None
        return TierClient(node.url, key.topic, key.partition, topic_id=past)

    def leader_node(self, key: LogKey) -> NodeProcess:
        """The node beside the broker that leads."""
        return self.quorum.nodes[self.cluster.leader(key.topic, key.partition)]

    def topic_id(self, name: str) -> str:
        """The present topic id, once the metadata has it."""
        found: list[str] = []
        topic = self.topics[name]

        def known() -> bool:
            node = self.leader_node(topic.keys[0])
            answer = TierClient(node.url, name, 0).status()
            found[:] = [answer["topic_id"]] if answer else []
            return bool(found) and found[0] not in topic.past_ids

        self.quorum.wait_until(known, f"{name} to be known")
        return found[0]

    def set_retention(self, topic: str, retention_bytes: int) -> None:
        """The topic's own where its brokers tier it, else its policy, by way of any node."""
        self.retained[topic] = retention_bytes
        if self.tiering:
            broker = next(iter(self.cluster.running.values()))
            broker.alter_topic(topic, {"retention.bytes": str(retention_bytes)})
            return
        body = {
            "retention_ms": None,
            "retention_bytes": retention_bytes,
            "copy_paused": False,
            "delete_paused": False,
        }
        self._change("PUT", f"/v1/topics/{topic}/policy", json=body)

    def delete_tiered_data(self, topic: str, topic_id: str) -> None:
        """As soon as a node looks: no grace."""
        asked = {"confirm": topic, "topic_id": topic_id, "grace_ms": "0"}
        self._change("DELETE", f"/v1/topics/{topic}/tiered-data", params=asked)

    def _change(self, method: str, path: str, **what: Any) -> None:
        def done() -> bool:
            url = next(iter(self.quorum.running.values())).url
            answer = PLAIN.request(method, f"{url}{path}", **what)
            # 504: its outcome is unknown, as the quorum's leader went. The same again is right.
            assert answer.status_code in (200, 409, 503, 504), answer.text
            return answer.status_code == 200

        self.quorum.wait_until(done, f"{method} {path}")


@contextmanager
def open_site(
    home: Path,
    seed: int,
    *,
    copier: Mapping[str, object] | None = None,
    tiering: BrokerSettings | None = None,
) -> Iterator[Site]:
    """Everything is up and empty. `copier` instead of the short pauses of the tests; `tiering` for
    brokers that tier by their nodes.
    """
    minio = MinioServer(home / "minio")
    with ExitStack() as stack:
        stack.enter_context(minio)
        host, port = minio.endpoint_url.removeprefix("http://").split(":")
        gate = stack.enter_context(StoreGate(host, int(port)))
        cluster = KafkaCluster(home / "kafka")
        cluster.format()
        store = replace(minio.store_config, prefix=PREFIX)
        sections = {
            **SECTIONS,
            **({} if copier is None else {"copier": dict(copier)}),
            "stores.main": store_settings(home, replace(store, endpoint_url=gate.url)),
        }
        beside = {
            str(number): {"log_dirs": [str(broker.log_dir)], "broker": broker.bootstrap}
            for number, broker in cluster.brokers.items()
        }
        quorum = stack.enter_context(NodeQuorum(home, cluster.cluster_id, sections, beside))
        for number, broker in cluster.brokers.items():
            broker.override(tiering(quorum.nodes[number].url) if tiering else {})
        stack.enter_context(cluster)
        yield Site(home, cluster, quorum, minio, gate, store, seed, tiering=tiering is not None)
