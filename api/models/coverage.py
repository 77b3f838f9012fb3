"""Offsets of a topic that can be read from the tier, and the segments that serve them."""

from __future__ import annotations

import base64
import json
from typing import Annotated

from pydantic import Field

from api.models.base import TopicIdText, Wire
from rlmm.rows.queries import ServedSegment


class PartitionCoverage(Wire):
    """Offsets of a partition that can be read from the tier; none if both offsets are equal."""

    partition: int
    earliest_offset: Annotated[
        int, Field(description="The first offset that a segment serves.", examples=[0])
    ]
    latest_offset: Annotated[
        int, Field(description="The offset after the last tiered one (exclusive).", examples=[1300])
    ]


class TopicCoverage(Wire):
    """One incarnation of a topic with all its partitions, by number."""

    topic: Annotated[str, Field(examples=["payments"])]
    topic_id: TopicIdText
    partitions: list[PartitionCoverage]


def coverage_line(served: ServedSegment) -> bytes:
    """One line of a partition's coverage, as JSON; a partition may have a hundred thousand."""
    offsets, segment = served
    custom = segment.custom_metadata
    line = {
        "partition": segment.segment_id.partition.partition,
        "first_offset": offsets.first_offset,
        "last_offset": offsets.last_offset,
        "segment_id": str(segment.segment_id.id),
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "leader_epochs": [
            {"epoch": epoch, "start_offset": start} for epoch, start in segment.leader_epochs
        ],
        "size_bytes": segment.size_bytes,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "txn_index_empty": segment.txn_index_empty,
        "custom_metadata": None if custom is None else base64.b64encode(custom).decode("ascii"),
    }
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"
