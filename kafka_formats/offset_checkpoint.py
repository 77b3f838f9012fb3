"""Offset checkpoints of a log directory: high watermarks, recovery points, log start offsets,
and how far the log cleaner has come.

Text: version, count, then `topic partition offset` a line. Source: Kafka's OffsetCheckpointFile.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_formats.checkpoint_text import encode_entries, parse_entries, parse_number
from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData

HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
CLEANER_FILE = "cleaner-offset-checkpoint"
_PARTITION_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1


def parse(data: Buffer, *, source: str) -> dict[tuple[str, int], int]:
    """Offsets by (topic, partition); an empty file has none, anything malformed is CorruptData."""
    offsets: dict[tuple[str, int], int] = {}
    for position, (topic, partition_text, offset_text) in parse_entries(
        data, fields=3, source=source
    ):
        partition = parse_number(
            partition_text, source=source, position=position, largest=_PARTITION_MAX
        )
        if (topic, partition) in offsets:
            raise CorruptData(
                f"partition {partition} of {topic[:60]!r} is listed twice",
                source=source,
                position=position,
            )
        offsets[topic, partition] = parse_number(
            offset_text, source=source, position=position, largest=_OFFSET_MAX
        )
    return offsets


def encode(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Write a checkpoint in the order of the mapping."""
    return encode_entries(
        f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()
    )
