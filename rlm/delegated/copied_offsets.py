"""Finds the highest offset that a broker may take for copied: below the first gap among the offsets
on its disk [LOSS-3].

The highest copied offset of an epoch is never forgotten, as in Kafka. But segments that an unclean
election cut off may be deleted under the next leader, and a later leader may bring the epoch back:
a broker that took these offsets for copied would then delete the only copy, the one on its disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from kafka_formats.errors import RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.lineage import epoch_bounds
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import PartitionState
from rlmm.rows.served_ranges import ServedRange, served_ranges

RANGES_AT_ONCE = 200
"""Ranges of the coverage that are read in one go, so that the event loop is not held up."""
REMEMBERED_MAX = 10_000
"""The most partitions whose served offsets are remembered; for others they are read again."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """Offsets that were served under the claim `token`: all from `first`, or from where the tier
    begins above it, to below `following`.
    """

    token: int
    first: int
    following: int


@dataclass(frozen=True, slots=True)
class CopiedOffsets:
    """The copied offsets that a node reports to its broker. `pause` lets other tasks run."""

    metadata: RemoteLogMetadataManager
    pause: Callable[[], Awaitable[None]]
    _seen: dict[TopicIdPartition, _Seen] = field(default_factory=dict)

    async def highest(
        self, tip: TopicIdPartition, leader_epoch: int, disk_start: int | None
    ) -> int | None:
        """The highest copied offset of an epoch; if the tier has a gap at or above `disk_start`,
        the first offset on the broker's disk, the last offset below that gap that lies in the
        epoch. None: no offset counts as copied.

        `disk_start` None: the disk is not visible here, as for a follower; the leader's local log
        start at its claim is used instead. Otherwise a follower would delete offsets that the
        leader has to copy again, and only the leader would have them.

        Ranges recorded as lost, which no replica has, are no gaps, and neither are missing offsets
        below the first served one: the broker's log start passes these before it copies, as by
        retention.

        RetryLater: an admin changed the mode, and no leader was claimed since. The next claim may
        be refused [LOSS-8], and then its consumers need the segments on the broker's disk.
        """
        highest = self.metadata.highest_offset_for_epoch(tip, leader_epoch)
        state = self.metadata.partition_state(tip)
        if highest is None or state is None:
            return highest
        if state.claim is None:
            raise RetryLater(
                f"{tip}: no leader was claimed since it is delegated: segments that nodes copied "
                "before may never be served to its brokers"
            )
        start = max(0, state.local_log_start_offset) if disk_start is None else disk_start
        bounds = epoch_bounds(state.lineage, leader_epoch)
        if highest < start or bounds is None:
            return highest
        last = await self._following(state, start, highest) - 1
        return last if last >= bounds[0] else None

    async def _following(self, state: PartitionState, first: int, last: int) -> int:
        """The first offset above `first` that no segment serves, or the one after `last`, if all
        are served; offsets below the first served one are skipped. `first` if none is served up to
        `last`.
        """
        token = -1 if state.last_claim is None else state.last_claim.token
        seen = self._seen.get(state.partition)
        if seen is not None and seen.token == token and seen.first <= first < seen.following:
            following = seen.following
        else:
            following = first
        if following <= last:  # segments below a gap may be gone: it is at the low end then
            served = next(self._served(state, first, last), None)
            if served is None:
                return first
            following = max(following, served.first_offset)
        before = -1
        while before < following <= last:
            before = following
            for served in islice(self._served(state, following, last), RANGES_AT_ONCE):
                if served.first_offset > following:
                    break
                following = served.last_offset + 1
            following = _past_lost(state, following)
            # Remembered for the next call, if this one runs out of time.
            self._remember(state.partition, _Seen(token, first, following))
            await self.pause()
        return min(following, last + 1)

    def _served(self, state: PartitionState, first: int, last: int) -> Iterator[ServedRange]:
        covered = partial(self.metadata.coverage, state.partition)
        return served_ranges(state.lineage, covered, first, last)

    def _remember(self, tip: TopicIdPartition, seen: _Seen) -> None:
        restart = self.metadata.restart()
        if restart is not None and not restart.is_reconciled:
            return  # segments may be found missing under the same claim
        self._seen.pop(tip, None)
        while len(self._seen) >= REMEMBERED_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[tip] = seen


def _past_lost(state: PartitionState, offset: int) -> int:
    for lost in state.lost_ranges:
        if lost.start <= offset <= lost.end:
            return lost.end + 1
    return offset
