"""The start of the whole log as the leader reports it, where the brokers tier the partition. Pure.

If the brokers tier a partition, retention or DeleteRecords move its log start independently of
where the leader's disk begins, and the tier's start follows as the remote log manager deletes
segments. If they do not, the log start is that of the disk, and the tier has more below it. The two
starts that a broker reports don't show which case it is: retention may run between the answers, and
DeleteRecords may reach its disk. The mode in the metadata log does.
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
    """The lowest offset that is served, if the leader's log start is above `tier_start`, the tier's
    own; else None. `oldest` returns the first segment that readers get.
    """
    reported = None if broker is None else broker.log_start_offset
    if reported is None or reported <= tier_start or not _brokers_tier(state):
        return None
    first = oldest()
    if first is not None and first.end_offset < reported and is_kept(first, state):
        return None  # it was tiered before the brokers took over: this leader's log never had it
    return reported


def gap_below_log_start(
    state: PartitionState, broker: BrokerLogEnds | None, offset: int, next_served: int | None
) -> LostOffsets | None:
    """The offsets from `offset` on that are gone: they are below the leader's log start where the
    brokers tier the partition, and no segment serves them. No node records them as lost: the broker
    copies, and can't copy any more what it has deleted. None if there are none. `next_served`: the
    first offset from `offset` on that the tier serves.
    """
    reported = None if broker is None else broker.log_start_offset
    if reported is None or not _brokers_tier(state):
        return None
    end = reported if next_served is None else min(reported, next_served)
    if end <= offset:
        return None
    why = f"the brokers tier this partition themselves, and the leader's log starts at {reported}"
    return LostOffsets(offset, end - 1, why)


def _brokers_tier(state: PartitionState) -> bool:
    """True if a node has claimed the partition for its broker's remote log manager. As long as the
    mode is set but no claim followed, the broker's log start is that of its disk.
    """
    last = state.last_claim
    return state.mode is Mode.DELEGATED and last is not None and last.token >= state.mode_offset
