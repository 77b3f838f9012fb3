"""A node beside a stock broker without tiered storage: copy, lose everything locally, read back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rsm_backends.store_config import StoreConfig
from tests.e2e.bucket import named_objects, store_settings, stored_objects
from tests.e2e.node_process import NodeProcess
from tests.e2e.tier_client import TierClient
from tests.e2e.writer import Writer
from tests.real.kafka import KafkaBroker
from tests.real.kafka_clients import ConsumedRecord, consume_all

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "voyages"
COPY_DEADLINE_S = 180
TOPIC_CONFIG = {
    "internal.segment.bytes": "49152",
    "index.interval.bytes": "2048",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "file.delete.delay.ms": "1000",
}


@dataclass(frozen=True)
class Kept:
    """What a partition held before the broker dropped it."""

    uncommitted: list[ConsumedRecord]
    committed: list[ConsumedRecord]
    sealed: bytes
    active_base: int


class Scene:
    """A broker, a node beside it and a prefix of a bucket for them."""

    def __init__(
        self, broker: KafkaBroker, node: NodeProcess, store: StoreConfig, partitions: int
    ) -> None:
        self.broker = broker
        self.node = node
        self.store = store
        self.partitions = partitions
        self.tier = [TierClient(node.url, TOPIC, number) for number in range(partitions)]

    def wait_for_copies(self, more: int) -> None:
        """Until every partition has `more` finished segments than now."""
        before = [client.status().get("remote_segments", 0) for client in self.tier]
        self.node.wait_until(
            lambda: all(
                client.status().get("remote_segments", 0) >= seen + more
                for client, seen in zip(self.tier, before, strict=True)
            ),
            f"{more} more copied segments in each partition",
            deadline_s=COPY_DEADLINE_S,
        )

    def wait_for_sealed(self, more: int) -> None:
        """Until the broker has sealed `more` segments than now."""
        before = self._segment_counts()
        self.broker.wait_until(
            lambda: all(
                found >= seen + more
                for found, seen in zip(self._segment_counts(), before, strict=True)
            ),
            f"{more} more sealed segments in each partition",
        )

    def wait_until_all_is_copied(self) -> None:
        """Until nothing but the active segment is local only, and no left-over is left."""
        self.node.wait_until(
            lambda: all(map(self._is_copied, range(self.partitions))),
            "everything sealed to be copied and cleaned up",
            deadline_s=COPY_DEADLINE_S,
        )

    def keep(self, partition: int) -> Kept:
        """Read the partition from the broker, as far as it is sealed."""
        *sealed, active = self.broker.segment_files(TOPIC, partition)
        end = int(active.stem)
        bootstrap = self.broker.bootstrap
        everything = consume_all(bootstrap, TOPIC, partition)
        committed = consume_all(bootstrap, TOPIC, partition, isolation="read_committed")
        return Kept(
            uncommitted=[record for record in everything if record.offset < end],
            committed=[record for record in committed if record.offset < end],
            sealed=b"".join(path.read_bytes() for path in sealed),
            active_base=end,
        )

    def drop_locally(self, kept: list[Kept]) -> None:
        """Local retention down to the active segment; the node takes notice."""
        self.broker.alter_topic(TOPIC, {"retention.bytes": "1"})
        self.broker.wait_until(
            lambda: self._segment_counts() == [1] * self.partitions, "local retention"
        )
        self.node.wait_until(
            lambda: all(
                client.status()["local_log_start_offset"] == each.active_base
                for client, each in zip(self.tier, kept, strict=True)
            ),
            "the node to see that the local log is short",
            deadline_s=COPY_DEADLINE_S,
        )

    def rows(self) -> list[dict[str, Any]]:
        """All segment rows of all partitions."""
        return [row for client in self.tier for row in client.segments()]

    def _segment_counts(self) -> list[int]:
        return [len(self.broker.segment_files(TOPIC, number)) for number in range(self.partitions)]

    def _is_copied(self, partition: int) -> bool:
        active = self.broker.segment_files(TOPIC, partition)[-1]
        status, rows = self.tier[partition].status(), self.tier[partition].segments()
        return status.get("highest_copied_offset") == int(active.stem) - 1 and all(
            row["state"] == "COPY_SEGMENT_FINISHED" for row in rows
        )


@contextmanager
def scene(
    tmp_path: Path,
    store: StoreConfig,
    *,
    prefix: str,
    partitions: int,
    **sections: dict[str, object],
) -> Iterator[Scene]:
    """Everything is up, the node with `sections` beside the usual; the topic is there and empty."""
    store = replace(store, prefix=prefix)
    with KafkaBroker(tmp_path / "broker") as broker:
        broker.create_topic(TOPIC, partitions=partitions, config=TOPIC_CONFIG)
        settings = node_settings(tmp_path, broker, store) | sections
        with NodeProcess(tmp_path / "node", settings) as node:
            yield Scene(broker, node, store, partitions)


def node_settings(
    tmp_path: Path, broker: KafkaBroker, store: StoreConfig
) -> dict[str, dict[str, object]]:
    return {
        "kafka": {"log_dirs": [str(broker.log_dir)], "broker": broker.bootstrap},
        "topics": {"include": [TOPIC]},
        "stores.main": store_settings(tmp_path, store),
        "copier": {
            "interval_s": 0.3,
            "upload_deadline_s": 5,
            "upload_margin_s": 1,
            "backoff_base_s": 0.2,
        },
    }


def assert_all_is_read_back(stage: Scene, kept: list[Kept]) -> None:
    for client, before in zip(stage.tier, kept, strict=True):
        assert_same(client.records("read_uncommitted"), before.uncommitted)
        assert_same(client.records("read_committed"), before.committed)
        assert len(before.committed) < len(before.uncommitted)
        same_bytes = client.batches() == before.sealed  # not in the assert: no diff of megabytes
        assert same_bytes


def assert_same(found: list[ConsumedRecord], expected: list[ConsumedRecord]) -> None:
    """Equal lists, or the first difference; a diff of thousands of records helps nobody."""
    for ours, theirs in zip(found, expected, strict=False):
        assert ours == theirs
    assert len(found) == len(expected)


def assert_bucket_and_metadata_agree(stage: Scene) -> None:
    assert stored_objects(stage.store) == named_objects(stage.store.prefix, stage.rows())


def test_everything_is_read_back_after_bounces_kills_and_local_retention(
    tmp_path: Path, minio_store_config: StoreConfig
) -> None:
    with scene(tmp_path, minio_store_config, prefix="e2e/long/", partitions=2) as stage:
        with Writer(stage.broker.bootstrap, TOPIC, stage.partitions) as writer:
            stage.wait_for_copies(2)
            stage.broker.restart()
            stage.wait_for_copies(2)
            stage.node.kill()
            stage.wait_for_sealed(8)
            stage.node.start()
            stage.node.kill()  # in the middle of what it has to catch up with
            stage.node.start()
            stage.wait_for_copies(8)
            stage.broker.kill()
            stage.broker.start()
            stage.wait_for_copies(2)
        writer.write_filler()
        stage.wait_until_all_is_copied()
        kept = [stage.keep(number) for number in range(stage.partitions)]
        before = stage.rows()
        stage.drop_locally(kept)
        assert stage.rows() == before
        stage.node.stop()
        stage.node.start()
        assert_all_is_read_back(stage, kept)
        assert_bucket_and_metadata_agree(stage)


def test_the_same_in_short_on_localstack(
    tmp_path: Path, localstack_store_config: StoreConfig
) -> None:
    with scene(tmp_path, localstack_store_config, prefix="e2e/short/", partitions=1) as stage:
        with Writer(stage.broker.bootstrap, TOPIC, stage.partitions) as writer:
            stage.wait_for_copies(2)
            stage.node.kill()
            stage.node.start()
            stage.wait_for_copies(1)
        writer.write_filler()
        stage.wait_until_all_is_copied()
        kept = [stage.keep(0)]
        stage.drop_locally(kept)
        assert_all_is_read_back(stage, kept)
        assert_bucket_and_metadata_agree(stage)
