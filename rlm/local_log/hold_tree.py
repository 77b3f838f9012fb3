"""The directory tree of a node's held segments, `<topic>-<partition>/<topic id>/`. Everything here
blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kafka_formats.errors import StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import DirectoryKind, parse_partition_directory
from kafka_formats.topic_id_partition import TopicIdPartition


def directory_of(root: Path, id_: TopicIdPartition) -> Path:
    """The partition's directory, perhaps not made yet."""
    return root / f"{id_.topic}-{id_.partition}" / str(id_.topic_id)


def directories(root: Path) -> Iterator[tuple[TopicIdPartition, Path]]:
    """The partitions that have a directory. OSError if one cannot be listed."""
    for name in names(root):
        parsed = parse_partition_directory(name)
        if parsed is None or parsed.kind is not DirectoryKind.LIVE:
            continue
        for topic_id in names(root / name):
            try:
                id_ = Uuid.parse(topic_id)
            except StrandlineError:
                continue
            yield TopicIdPartition(parsed.topic, id_, parsed.partition), root / name / topic_id


def names(directory: Path) -> list[str]:
    """The entries of a directory; none if it does not exist. Passes OSError."""
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
