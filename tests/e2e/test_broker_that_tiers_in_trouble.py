"""What can be wrong around a stock broker that tiers through its node: the broker loses no segment,
no thread and no task, its log says what to do, and all goes on once the trouble is over.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.e2e.bucket import store_settings, stored_objects
from tests.e2e.node_process import NodeProcess
from tests.e2e.node_quorum import NodeQuorum
from tests.e2e.tier_client import TierClient
from tests.e2e.tiering_broker import (
    TOPIC,
    broker_settings,
    node_sections,
    tasks_of,
    topic_config,
)
from tests.e2e.writer import Writer
from tests.real.certificates import make_certificate
from tests.real.kafka import KAFKA_VERSION, KafkaBroker
from tests.real.kafka_clients import consume_all
from tests.real.minio import MinioServer
from tests.real.process_tree import stopped
from tests.real.store_gate import Passing, StoreGate

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(400)]

TROUBLE_S = 15
"""Past every deadline of the plug-in but that of a write."""
OVER_S = 90.0
"""The waits between two tries of what failed for a while."""


@dataclass(frozen=True)
class Tiering:
    """A broker, a node beside it, and what its topic has in the tier."""

    broker: KafkaBroker
    tier: TierClient

    def begin(self) -> None:
        """A topic with copies."""
        self.broker.create_topic(TOPIC, partitions=1, config=topic_config(self.broker.version))

    def copies(self) -> int:
        return int(self.tier.status().get("remote_segments", 0))

    def wait_for_copies(self, more: int) -> None:
        """Beyond those of now."""
        count = self.copies() + more
        self.broker.wait_until(lambda: self.copies() >= count, "copies", deadline_s=OVER_S)

    def write_until_copied(self, more: int) -> None:
        """Records enough for so many more segments: what trouble kept back, and new ones."""
        with Writer(self.broker.bootstrap, TOPIC, 1):
            self.wait_for_copies(more)

    def write_into_trouble(self) -> None:
        """Sealed segments whose copies fail for a while."""
        with Writer(self.broker.bootstrap, TOPIC, 1):
            sealed = len(self.broker.segment_files(TOPIC, 0)) + 2
            self.broker.wait_until(
                lambda: len(self.broker.segment_files(TOPIC, 0)) >= sealed, "sealed segments"
            )
        time.sleep(TROUBLE_S)

    def told(self, *words: str) -> None:
        """The broker's log has a line with all of them."""
        log = self.broker.home / "server.log"

        def stands() -> bool:
            lines = log.read_text(errors="replace").splitlines()
            return any(all(word in line for word in words) for line in lines)

        self.broker.wait_until(stands, f"a line with {words}")

    def assert_whole(self) -> None:
        """A consumer reads each offset once, from 0 on, though the disk has few of them."""
        with Writer(self.broker.bootstrap, TOPIC, 1) as writer:
            pass
        writer.write_filler()
        self.broker.wait_until(
            lambda: len(self.broker.segment_files(TOPIC, 0)) <= 2, "local retention"
        )
        offsets = [record.offset for record in consume_all(self.broker.bootstrap, TOPIC, 0)]
        assert offsets[0] == 0 < int(self.broker.segment_files(TOPIC, 0)[0].stem)
        assert offsets == sorted(set(offsets))


@contextmanager
def beside_three_nodes(
    tmp_path: Path, version: str, store: dict[str, object] | None = None
) -> Iterator[tuple[Tiering, NodeQuorum]]:
    """The broker tiers through node 1, the quorum's other two serve none."""
    broker = KafkaBroker(tmp_path / "broker", version=version)
    (tmp_path / "tier").mkdir()
    broker.format()
    sections = node_sections(tmp_path, broker)
    kafka = sections.pop("kafka")
    if store is not None:
        sections["stores.main"] = store
    home = tmp_path / "nodes"
    home.mkdir()
    try:
        with NodeQuorum(home, broker.cluster_id, sections, {"1": kafka}) as quorum:
            node = quorum.nodes[1]
            broker.start(overrides=broker_settings(node.url))
            there = Tiering(broker, TierClient(node.url, TOPIC, 0))
            there.begin()
            yield there, quorum
    finally:
        broker.close()


@pytest.mark.parametrize("version", ["3.9.2", "4.4.0"])
def test_a_store_that_refuses_hangs_and_dies_and_then_a_quorum_without_a_majority(
    tmp_path: Path, version: str
) -> None:
    (tmp_path / "minio").mkdir()
    with (
        MinioServer(tmp_path / "minio") as minio,
        StoreGate("127.0.0.1", int(minio.endpoint_url.rpartition(":")[2])) as gate,
    ):
        config = replace(minio.store_config, prefix="t/")
        store = store_settings(tmp_path, replace(config, endpoint_url=gate.url))
        with beside_three_nodes(tmp_path, version, store) as (there, quorum):
            there.write_until_copied(3)
            tasks = tasks_of(there.broker)
            for passing in (Passing.READS, Passing.NOTHING):
                gate.passing = passing
                there.write_into_trouble()
                gate.passing = Passing.ALL
                there.write_until_copied(2)
            with stopped(minio.pid):
                there.write_into_trouble()
            there.write_until_copied(2)
            minio.kill()
            there.write_into_trouble()
            minio.start()
            there.write_until_copied(2)
            for other in (2, 3):
                quorum.nodes[other].kill()
            there.write_into_trouble()
            assert consume_all(there.broker.bootstrap, TOPIC, 0)[0].offset == 0
            quorum.start(2, 3)
            there.write_until_copied(3)
            assert tasks <= tasks_of(there.broker)
            there.assert_whole()
            there.broker.delete_topic(TOPIC)
            there.broker.wait_until(
                lambda: not stored_objects(config), "the bucket to be empty", deadline_s=OVER_S
            )


def test_a_broker_starts_before_its_node_with_the_wrong_token_and_goes_on_with_the_right_one(
    tmp_path: Path,
) -> None:
    broker = KafkaBroker(tmp_path / "broker")
    (tmp_path / "tier").mkdir()
    broker.format()
    certificate = make_certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text("not-the-right-one\n")
    (tmp_path / "tokens").write_text(
        f"broker broker {hashlib.sha256(b'the-right-one').hexdigest()}\n"
    )
    (tmp_path / "tokens").chmod(0o600)
    sections = node_sections(tmp_path, broker)
    sections["http"] = {
        "anonymous_role": "read",
        "tokens_file": str(tmp_path / "tokens"),
        "tls_certificate_file": str(certificate.certificate),
        "tls_key_file": str(certificate.key),
    }
    node = NodeProcess(tmp_path / "node", sections)
    secret = {
        "strandline.token.file": str(token),
        "strandline.truststore.file": str(certificate.certificate),
    }
    settings = {
        f"{prefix}{name}": value
        for prefix in ("rsm.config.", "rlmm.config.")
        for name, value in secret.items()
    }
    try:
        broker.start(overrides=broker_settings(node.url) | settings)
        there = Tiering(broker, TierClient(node.url, TOPIC, 0))
        there.begin()
        there.told("Start the node, or correct strandline.node.url")
        node.format()
        node.start()
        there.told("Put a token of the role broker into the file of strandline.token.file")
        with Writer(broker.bootstrap, TOPIC, 1):
            broker.wait_until(lambda: len(broker.segment_files(TOPIC, 0)) >= 4, "segments")
            assert int(broker.segment_files(TOPIC, 0)[0].stem) == 0
            token.write_text("the-right-one\n")
            there.wait_for_copies(4)
        there.assert_whole()
    finally:
        if node.running:
            node.kill()
        broker.close()


def test_a_second_broker_at_the_node_is_told_so_and_the_first_goes_on(tmp_path: Path) -> None:
    with beside_three_nodes(tmp_path, KAFKA_VERSION) as (there, quorum):
        settings = broker_settings(quorum.nodes[1].url)
        second = KafkaBroker(
            tmp_path / "second", node_id=2, cluster_id=there.broker.cluster_id, overrides=settings
        )
        other = KafkaBroker(
            tmp_path / "other", cluster_id="YW5vdGhlci1jbHVzdGVyLQ", overrides=settings
        )
        with Writer(there.broker.bootstrap, TOPIC, 1):
            there.wait_for_copies(3)
            for each, what in (
                (second, "each broker names its own node"),
                (other, "The node belongs to another Kafka cluster"),
            ):
                with each:
                    stranger = replace(there, broker=each)
                    stranger.begin()
                    stranger.told(what)
                    there.wait_for_copies(2)
        there.assert_whole()
