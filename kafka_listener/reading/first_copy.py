"""The offset from which nodes will copy a partition of which nothing is copied yet. Pure.

Local retention may delete records before their first copy, as while the store is away. A node
beside the broker holds their segments (`rlm/local_log`) and copies them later, or records them as
lost, so they are no gap, and readers wait for them.
"""

from __future__ import annotations

from rlmm.partition_state import Mode, PartitionState


def first_offset_to_copy(state: PartitionState, *, is_disabled: bool) -> int | None:
    """The recorded log start, or before that is recorded, as while copying is paused, the start of
    the disk that the claim reports. None: no node is known to copy the partition, or something of
    it is copied already. `is_disabled`: a setting of the cluster ended its topic's tiering. The
    files of nodes are not asked: a replica's own need not name the topics that other nodes tier.
    """
    if is_disabled or state.delete_state is not None or state.highest_copied is not None:
        return None
    if state.mode not in (Mode.SIDECAR, Mode.PAUSED) or not state.lineage:
        return None
    start = state.first_readable_offset
    if start < 0 and state.claim is not None:
        start = state.local_log_start_offset
    return start if start >= 0 else None
