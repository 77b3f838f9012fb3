"""A broker's log directory, around the segments of its first partition.

The other partitions are hard links to the first one's files.
"""

from __future__ import annotations

import os
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint, offset_checkpoint
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.log_names import segment_file_name
from kafka_formats.properties import (
    MetaProperties,
    encode_meta_properties,
    encode_partition_metadata,
)

CLUSTER_ID = "c3RyYW5kbGluZS1iZW5jaA"


def begin_log_dir(path: Path, topic: str, topic_id: Uuid) -> Path:
    """Make it; the answer is the folder of partition 0, which takes segments."""
    path.mkdir(parents=True)
    properties = MetaProperties(1, CLUSTER_ID, 1, Uuid(bytes(15) + b"\x09"))
    (path / "meta.properties").write_bytes(encode_meta_properties(properties))
    first = path / f"{topic}-0"
    first.mkdir()
    (first / "partition.metadata").write_bytes(encode_partition_metadata(topic_id))
    epochs = leader_epoch_checkpoint.encode((EpochEntry(0, 0),))
    (first / "leader-epoch-checkpoint").write_bytes(epochs)
    return first


def end_log_dir(first: Path, partitions: int, end_offset: int) -> None:
    """An empty active segment at the end, the other partitions, and where all of them end."""
    for suffix in (".log", ".index", ".timeindex"):
        segment_file(first, end_offset, suffix).write_bytes(b"")
    topic = first.name.removesuffix("-0")
    for number in range(1, partitions):
        other = first.with_name(f"{topic}-{number}")
        other.mkdir()
        for file in first.iterdir():
            os.link(file, other / file.name)
    ends = {(topic, number): end_offset for number in range(partitions)}
    checkpoint = first.with_name("replication-offset-checkpoint")
    checkpoint.write_bytes(offset_checkpoint.encode(ends))


def segment_file(directory: Path, base_offset: int, suffix: str) -> Path:
    """A file of the segment that begins at this offset."""
    return directory / segment_file_name(base_offset, suffix)
