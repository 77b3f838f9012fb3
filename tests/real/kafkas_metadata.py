"""Kafka's own metadata manager in a process of its own, on the topic of running brokers."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.kafka_cache import KafkaCache, spans
from tests.real.kafka import kafka_jars
from tests.real.maven import require_java

VERSION = "4.3.0"
DEADLINE_S = 120
EPOCHS_ASKED = 64
"""So many leader epochs, 0 and up, are asked about."""


@dataclass(frozen=True, slots=True)
class KafkasSegment:
    """A row of its list; `custom_metadata` in base64."""

    segment_id: str
    state: str
    start_offset: int
    end_offset: int
    size_bytes: int
    epochs: tuple[tuple[int, int], ...]
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    custom_metadata: str | None


@dataclass(slots=True)
class KafkasPartition:
    """What it has of a partition: the list of all segments, those that it lists by leader epoch,
    the highest offset by epoch, and the segment that it finds by leader epoch and offset, at the
    first and last offset of each epoch of each segment. None, and an absent epoch: nothing.
    """

    segments: set[KafkasSegment] = field(default_factory=set)
    by_epoch: dict[int, set[str]] = field(default_factory=dict)
    highest: dict[int, int] = field(default_factory=dict)
    found: dict[tuple[int, int], str | None] = field(default_factory=dict)


def by_our_replay(cache: KafkaCache) -> KafkasPartition:
    """The same by our own replay of the topic."""
    ours = KafkasPartition()
    for id_, row in cache.rows.items():
        custom = row.custom_metadata
        ours.segments.add(
            KafkasSegment(
                str(id_), row.state.name, row.start_offset, row.end_offset, row.size_bytes,
                tuple(row.leader_epochs), row.broker_id, row.max_timestamp_ms,
                row.event_timestamp_ms,
                None if custom is None else base64.b64encode(custom).decode("ascii"),
            )
        )  # fmt: skip
        for epoch, start, end in spans(row):
            for offset in (start, end):
                found = cache.look_up(epoch, offset)
                ours.found[epoch, offset] = None if found is None else str(found.segment_id.id)
    for epoch, segments in cache.epochs.items():
        if ids := {*segments.unreferenced, *segments.by_start.values()}:
            ours.by_epoch[epoch] = {str(id_) for id_ in ids}
        if segments.highest_offset is not None:
            ours.highest[epoch] = segments.highest_offset
    return ours


def read_by_kafkas_manager(
    bootstrap: str, log_dir: Path, metadata_partitions: int, partitions: Iterable[TopicIdPartition]
) -> dict[tuple[str, int], KafkasPartition]:
    """All that it makes of the topic now, by topic and partition. `log_dir`: a folder for its
    files.
    """
    source = Path(__file__).parent / "java" / "ReadMetadataTopic.java"
    asked = [f"{each.topic}:{each.topic_id}:{each.partition}" for each in partitions]
    command = [require_java(), "-cp", f"{kafka_jars(VERSION)}/*", str(source), bootstrap]
    command += [str(log_dir), str(metadata_partitions), str(EPOCHS_ASKED), *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    lines = done.stdout.splitlines()
    assert "DONE" in lines, done.stdout + done.stderr
    read = {}
    for line in lines:
        if line.startswith("PARTITION "):
            told = json.loads(line.removeprefix("PARTITION "))
            partition = read[told["topic"], told["partition"]] = KafkasPartition()
            for id_, state, start, end, size, epochs, *rest in told["rows"]:
                of_row = tuple((epoch, at) for epoch, at in epochs)
                partition.segments.add(KafkasSegment(id_, state, start, end, size, of_row, *rest))
            for epoch, ids, highest in told["epochs"]:
                if ids:
                    partition.by_epoch[epoch] = set(ids)
                if highest is not None:
                    partition.highest[epoch] = highest
            for epoch, offset, id_ in told["found"]:
                partition.found[epoch, offset] = id_
    return read
