"""Makes the copy order of the segment that a partition's plan chose."""

from __future__ import annotations

from rlm.copy.copier import CopyOrder
from rlm.copy.copy_plan import CopySegment
from rlm.copy.mending import Mender
from rlm.copy.partition_work import PartitionWork
from rlm.local_log.hold_plan import with_heads
from rlmm.lineage import known_from
from rlmm.partition_state import PartitionState


async def order_of(
    work: PartitionWork, state: PartitionState | None, step: CopySegment, mender: Mender
) -> CopyOrder | None:
    """The order for the whole segment; None if it is not on this node any more. For files that are
    gone the mender makes an empty stand-in segment.
    """
    local = work.local
    if state is None or local is None or work.claim is None:
        return None
    hole = (step.base_offset, step.end_offset)
    segment = (
        await mender.stand_in(work.partition, local.directory, state.lineage, hole)
        if step.gone
        else work.segment(step.base_offset)
    )
    if segment is None:
        return None
    held = tuple(unit for unit in work.kept if unit.segment == segment)
    from_links = step.gone or bool(held)
    first = max(segment.base_offset, segment.first_known_offset)
    # A held segment may lie below the first entry of every claim's checkpoint, in lower epochs too.
    lineage = known_from(with_heads(held, state.lineage), first)
    return CopyOrder(
        work.partition, segment, lineage, state.log_start_offset, work.claim.token,
        from_links=from_links,
        gaps_allowed=not step.gone and (local.cleaned or bool(state.gaps_allowed)),
        once_there=work.once_there(step.base_offset, step.end_offset, state.lost_ranges),
    )  # fmt: skip
