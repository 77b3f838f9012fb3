"""Offsets of a partition that the reference's rows serve."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_formats.leader_epoch_checkpoint import epoch_for_offset
from rlmm.partition_state import PartitionState
from rlmm.rows import queries
from rlmm.rows.queries import SegmentAnswer
from rlmm.rows.rows import RowReader
from sim.nodes.reference import Reference


def unserved(reference: Reference, state: PartitionState) -> Iterator[tuple[int, int]]:
    """Offsets from log start to the highest copied that no look-up finds and that are not lost."""
    if state.highest_copied is None:
        return
    offset, highest = max(state.log_start_offset, 0), state.highest_copied[0]
    while offset <= highest:
        lost = [each for each in state.lost_ranges if each.start <= offset <= each.end]
        if lost:
            offset = lost[0].end + 1
            continue
        found = answer(reference.rows, state, offset)
        if found is None:
            yield offset, highest
            return
        offset = found.valid_until + 1


def answer(rows: RowReader, state: PartitionState, offset: int) -> SegmentAnswer | None:
    """Segment that serves an offset in the lineage, whose first epoch is open downwards."""
    if not state.lineage:
        return None
    epoch = epoch_for_offset(state.lineage, offset)
    if epoch is None:
        epoch = state.lineage[0].epoch
    return queries.segment_for_offset(rows, state.partition, epoch, offset)
