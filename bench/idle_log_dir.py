"""A log directory of many idle partitions, and a few that roll a segment now and then."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint, offset_checkpoint, producer_snapshot
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.properties import (
    MetaProperties,
    encode_meta_properties,
    encode_partition_metadata,
)
from kafka_formats.record_batch import Record, encode_batch

TOPIC, BUSY = "idle", "busy"
TOPIC_ID = Uuid(blake2b(TOPIC.encode(), digest_size=16).digest())
BUSY_TOPIC_ID = Uuid(blake2b(BUSY.encode(), digest_size=16).digest())
RECORDS, RECORD_BYTES = 64, 1024
EMPTY_SUFFIXES = (".log", ".index", ".timeindex")


def write_log_dir(
    path: Path, *, cluster_id: str, node_id: int, partitions: int, segments: int = 1
) -> None:
    """`segments` empty segments a partition, of which the last is the active one."""
    path.mkdir(parents=True)
    properties = MetaProperties(1, cluster_id, node_id, Uuid(bytes(15) + b"\x09"))
    (path / "meta.properties").write_bytes(encode_meta_properties(properties))
    topic_id = encode_partition_metadata(TOPIC_ID)
    epochs = leader_epoch_checkpoint.encode((EpochEntry(0, 0),))
    producers = producer_snapshot.encode(())
    bases = [f"{base:020d}" for base in range(0, segments * 1_000, 1_000)]
    for number in range(partitions):
        directory = path / f"{TOPIC}-{number}"
        directory.mkdir()
        (directory / "partition.metadata").write_bytes(topic_id)
        (directory / "leader-epoch-checkpoint").write_bytes(epochs)
        empty, state = directory / f"{bases[0]}.log", directory / f"{bases[0]}.snapshot"
        empty.touch()
        state.write_bytes(producers)
        # Links: a hundred thousand names are meant, not as many inodes.
        for base in bases:
            for suffix in EMPTY_SUFFIXES:
                if base + suffix != empty.name:
                    os.link(empty, directory / (base + suffix))
            if base != bases[0]:
                os.link(state, directory / f"{base}.snapshot")
    marks = {(TOPIC, number): 0 for number in range(partitions)}
    _write_marks(path, marks)


class BusyTopic:
    """Partitions of a topic of its own in the same directory."""

    def __init__(self, log_dir: Path, partitions: int) -> None:
        self.rolls = 0
        self._log_dir = log_dir
        self._directories = [log_dir / f"{BUSY}-{number}" for number in range(partitions)]
        for directory in self._directories:
            directory.mkdir()
            (directory / "partition.metadata").write_bytes(encode_partition_metadata(BUSY_TOPIC_ID))
            epochs = leader_epoch_checkpoint.encode((EpochEntry(0, 0),))
            (directory / "leader-epoch-checkpoint").write_bytes(epochs)
            self._begin(directory, 0)
        self._mark(0)

    def roll(self) -> None:
        """Write the active segment of each partition full, and begin the next."""
        base = self.rolls * RECORDS
        records = [Record(base + each, 1_700_000_000_000, None, b"x" * RECORD_BYTES)
                   for each in range(RECORDS)]  # fmt: skip
        batch = encode_batch(records, base_offset=base, partition_leader_epoch=0)
        for directory in self._directories:
            with (directory / f"{base:020d}.log").open("ab") as log:
                log.write(batch)
            self._begin(directory, base + RECORDS)
        self.rolls += 1
        self._mark(base + RECORDS)

    def _begin(self, directory: Path, base: int) -> None:
        (directory / f"{base:020d}.snapshot").write_bytes(producer_snapshot.encode(()))
        for suffix in EMPTY_SUFFIXES:
            (directory / f"{base:020d}{suffix}").touch()

    def _mark(self, high_watermark: int) -> None:
        path = self._log_dir / _MARKS
        marks = offset_checkpoint.parse(path.read_bytes(), source=str(path))
        marks |= {(BUSY, number): high_watermark for number in range(len(self._directories))}
        _write_marks(self._log_dir, marks)


def _write_marks(log_dir: Path, marks: dict[tuple[str, int], int]) -> None:
    """Write checkpoints as a broker does: aside, then renamed."""
    aside = log_dir / f"{_MARKS}.tmp"
    aside.write_bytes(offset_checkpoint.encode(marks))
    aside.rename(log_dir / _MARKS)


_MARKS = "replication-offset-checkpoint"
