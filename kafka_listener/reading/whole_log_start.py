"""The leader's word on the start of the whole log, where the brokers tier the partition. Pure.

A broker that tiers moves its log start by retention or DeleteRecords, wherever its disk begins, and
the tier's start follows as its remote log manager deletes. The log start of one that does not tier
is that of its disk, below which the tier has more. The two starts that a broker tells don't say
which of them it is: retention may run between the answers, and DeleteRecords may reach its disk.
The mode in the metadata log does.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_listener.reading.read_port import BrokerLogEnds, LostOffsets
from rlm.delegated.older_history import is_kept
from rlmm.partition_state import Mode, PartitionState
from rlmm.segment import RemoteLogSegmentMetadata


def whole_log_start(
    state: PartitionState,
    tier_start: int,
    broker: BrokerLogEnds | None,
    oldest: Callable[[], RemoteLogSegmentMetadata | None],
) -> int | None:
    """The lowest offset that is served, if the leader's log start says more than `tier_start`, the
    tier's own; else None. `oldest` is the first segment that readers get.
    """
    told = None if broker is None else broker.log_start_offset
    if told is None or told <= tier_start or not _brokers_tier(state):
        return None
    first = oldest()
    if first is not None and first.end_offset < told and is_kept(first, state):
        return None  # of before the brokers tiered it: this leader's log never had it
    return told


def gap_below_log_start(
    state: PartitionState, broker: BrokerLogEnds | None, offset: int, next_served: int | None
) -> LostOffsets | None:
    """The offsets from `offset` on that are gone: below the leader's log start where the brokers
    tier the partition, and served by nothing. No node records them as lost: the broker copies, and
    what it no longer has it never will. None where that is not so. `next_served`: the first offset
    from `offset` on that the tier serves.
    """
    told = None if broker is None else broker.log_start_offset
    if told is None or not _brokers_tier(state):
        return None
    end = told if next_served is None else min(told, next_served)
    if end <= offset:
        return None
    why = f"the brokers tier it, and the leader's log starts at {told}"
    return LostOffsets(offset, end - 1, why)


def _brokers_tier(state: PartitionState) -> bool:
    """True if a node has claimed the partition for its broker's remote log manager. Where the mode
    was set and the broker does not get it, its log start is that of its disk.
    """
    last = state.last_claim
    return state.mode is Mode.DELEGATED and last is not None and last.token >= state.mode_offset
