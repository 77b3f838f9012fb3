"""What COPY_SEGMENT_STARTED must say of a segment, found without reading the segment."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.leader_epoch_checkpoint import Epochs
from rlm.log_dir import LocalSegment


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """`leader_epochs` are the lineage's entries inside the segment, the first moved to its base."""

    size_bytes: int
    max_timestamp_ms: int
    txn_index_empty: bool
    leader_epochs: Epochs


def segment_facts(segment: LocalSegment, lineage: Epochs) -> SegmentFacts:
    """Look at a sealed segment. Blocks for a few file reads; callers use an executor.

    Conflict(SOURCE_CHANGED) when its files are gone, InvalidRequest for the active segment.
    """
    raise NotImplementedError
