"""Kafka's own metadata manager in a process of its own, on the topic of running brokers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.topic_id_partition import TopicIdPartition
from tests.real.kafka import kafka_jars
from tests.real.maven import require_java

VERSION = "4.3.0"
DEADLINE_S = 120


@dataclass(frozen=True, slots=True)
class KafkasSegment:
    """A row of its list; `epochs` as in "0@0,2@17"."""

    segment_id: str
    state: str
    start_offset: int
    end_offset: int
    size_bytes: int
    epochs: str


@dataclass(frozen=True, slots=True)
class KafkasMetadata:
    """Its lists, and the segment that it finds by topic, partition, leader epoch and offset, at the
    first and last offset of each epoch of each segment; "-": none.
    """

    segments: frozenset[KafkasSegment]
    found: dict[tuple[str, int, int, int], str]


def read_by_kafkas_manager(
    bootstrap: str, log_dir: Path, metadata_partitions: int, partitions: Iterable[TopicIdPartition]
) -> KafkasMetadata:
    """All that it makes of the topic now. `log_dir`: a folder for its files."""
    source = Path(__file__).parent / "java" / "ReadMetadataTopic.java"
    asked = [f"{each.topic}:{each.topic_id}:{each.partition}" for each in partitions]
    command = [require_java(), "-cp", f"{kafka_jars(VERSION)}/*", str(source), bootstrap]
    command += [str(log_dir), str(metadata_partitions), *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    lines = done.stdout.splitlines()
    assert "DONE" in lines, done.stdout + done.stderr
    segments, found = set(), {}
    for kind, *words in map(str.split, lines):
        if kind == "ROW":
            _, _, id_, state, start, end, size, epochs = words
            segments.add(KafkasSegment(id_, state, int(start), int(end), int(size), epochs))
        elif kind == "LOOK":
            topic, partition, epoch, offset, id_ = words
            found[topic, int(partition), int(epoch), int(offset)] = id_
    return KafkasMetadata(frozenset(segments), found)
