"""A log directory of many small partitions: each with one active segment, nothing to copy."""

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

TOPIC = "idle"
TOPIC_ID = Uuid(blake2b(TOPIC.encode(), digest_size=16).digest())
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
    (path / "replication-offset-checkpoint").write_bytes(offset_checkpoint.encode(marks))
