"""A broker's log directory made by hand, as small as can be, with real Kafka files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kafka_formats import (
    leader_epoch_checkpoint,
    offset_checkpoint,
    offset_index,
    producer_snapshot,
    time_index,
)
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import segment_file_name
from kafka_formats.offset_checkpoint import LOG_START_FILE
from kafka_formats.properties import (
    MetaProperties,
    encode_meta_properties,
    encode_partition_metadata,
)
from kafka_formats.record_batch import Record, encode_batch
from kafka_formats.topic_id_partition import TopicIdPartition
from tests.rlm.planner_facts import epochs

KAFKA_CLUSTER = "kafka-cluster-of-the-test"
TIMESTAMP_MS = 1_600_000_000_000


def new_log_dir(path: Path) -> Path:
    """An empty log directory of broker 1."""
    path.mkdir()
    meta = MetaProperties(1, KAFKA_CLUSTER, 1, Uuid(bytes(15) + b"\x21"))
    (path / "meta.properties").write_bytes(encode_meta_properties(meta))
    return path


@dataclass(frozen=True, slots=True)
class KafkaLog:
    """One partition. Records: one a batch, value `v<offset>`, timestamp TIMESTAMP_MS + offset."""

    log_dir: Path
    partition: TopicIdPartition

    @classmethod
    def create(
        cls, log_dir: Path, topic: str, number: int = 0, *, entries: tuple[tuple[int, int], ...]
    ) -> KafkaLog:
        """`entries` are the leader epoch checkpoint."""
        topic_id = Uuid(topic.encode().rjust(16, b"\x01")[:16])
        log = cls(log_dir, TopicIdPartition(topic, topic_id, number))
        log.directory.mkdir()
        (log.directory / "partition.metadata").write_bytes(encode_partition_metadata(topic_id))
        log.set_epochs(*entries)
        return log

    @property
    def directory(self) -> Path:
        return self.log_dir / f"{self.partition.topic}-{self.partition.partition}"

    def set_epochs(self, *entries: tuple[int, int], age_s: float = 3_600.0) -> None:
        """Written down `age_s` ago."""
        data = leader_epoch_checkpoint.encode(epochs(*entries))
        path = self.directory / "leader-epoch-checkpoint"
        path.write_bytes(data)
        written_ns = path.stat().st_mtime_ns - int(age_s * 1e9)
        os.utime(path, ns=(written_ns, written_ns))

    def write(self, *bases: int, end: int, epoch: int = 0) -> None:
        """Segments with these bases, the last one active up to `end` (exclusive), all committed."""
        for base, following in zip(bases, (*bases[1:], end), strict=True):
            self._write_segment(base, following, lambda _: epoch)
        for base in (*bases, end):
            snapshot = self.directory / segment_file_name(base, ".snapshot")
            snapshot.write_bytes(producer_snapshot.encode(()))
        self.set_high_watermark(end)

    def write_across(self, base: int, border: int, end: int, *, epochs: tuple[int, int]) -> None:
        """A segment with an election inside it: the second epoch begins at `border`."""
        self._write_segment(base, end, lambda offset: epochs[offset >= border])

    def write_as(self, base: int, end: int, entries: tuple[tuple[int, int], ...]) -> None:
        """A segment whose batches are of the epochs of this checkpoint."""
        lineage = epochs(*entries)
        self._write_segment(
            base, end, lambda offset: leader_epoch_checkpoint.epoch_for_offset(lineage, offset) or 0
        )

    def _write_segment(self, base: int, end: int, epoch: Callable[[int], int]) -> None:
        batches = []
        positions = []
        position = 0
        for offset in range(base, end):
            record = Record(offset, TIMESTAMP_MS + offset, None, f"v{offset}".encode(), ())
            batch = encode_batch([record], base_offset=offset, partition_leader_epoch=epoch(offset))
            positions.append((offset, position))
            position += len(batch)
            batches.append(batch)
        name = self.directory / segment_file_name(base, ".log")
        name.write_bytes(b"".join(batches))
        name.with_suffix(".index").write_bytes(offset_index.encode(positions[1:], base))
        times = [(TIMESTAMP_MS + end - 1, end - 1)] if end > base else []
        name.with_suffix(".timeindex").write_bytes(time_index.encode(times, base))

    def set_high_watermark(self, offset: int) -> None:
        """The checkpoint of the whole log directory, written aside and renamed, each time later
        than before; other partitions keep theirs.
        """
        path = self.log_dir / "replication-offset-checkpoint"
        offsets, before_ns = {}, 0
        if path.exists():
            offsets = offset_checkpoint.parse(path.read_bytes(), source="test")
            before_ns = path.stat().st_mtime_ns
        offsets[self.partition.topic, self.partition.partition] = offset
        aside = path.with_suffix(".tmp")
        aside.write_bytes(offset_checkpoint.encode(offsets))
        written_ns = max(aside.stat().st_mtime_ns, before_ns + 1)
        os.utime(aside, ns=(written_ns, written_ns))
        aside.replace(path)

    def set_log_start(self, offset: int) -> None:
        """As the broker writes it within a minute of a DeleteRecords whose offset is inside its
        first segment (LogManager.checkpointLogStartOffsets); the epochs are cut at once.
        """
        data = offset_checkpoint.encode({(self.partition.topic, self.partition.partition): offset})
        (self.log_dir / LOG_START_FILE).write_bytes(data)

    def delete_segment(self, base: int) -> None:
        """What local retention does: the log start, and the first epoch with it, follow."""
        for suffix in (".log", ".index", ".timeindex", ".snapshot"):
            (self.directory / segment_file_name(base, suffix)).unlink(missing_ok=True)
        checkpoint = self.directory / "leader-epoch-checkpoint"
        known = leader_epoch_checkpoint.parse(checkpoint.read_bytes(), source="test")
        left = [int(path.stem) for path in self.directory.glob("*.log")]
        kept = leader_epoch_checkpoint.truncate_from_start(known, min(left, default=0))
        checkpoint.write_bytes(leader_epoch_checkpoint.encode(kept))

    def damage(self, base: int) -> None:
        """Turn one byte in the middle of a segment's log."""
        path = self.directory / segment_file_name(base, ".log")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)

    def log_bytes(self, base: int) -> bytes:
        """A segment's `.log`."""
        return (self.directory / segment_file_name(base, ".log")).read_bytes()
