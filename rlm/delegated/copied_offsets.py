"""The end of what a broker may take for copied: below the first gap among its own offsets [LOSS-3].

The highest copied offset of an epoch is never forgotten, as in Kafka. Segments that an unclean
election cut off may be deleted by the next leader, though, and the epoch come back by another one:
a broker that took it for copied then would delete the only copy, on its disk.
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
"""The ranges of the coverage that are read at once: few enough not to hold up the event loop."""
REMEMBERED_MAX = 10_000
"""Partitions whose offsets are known to be there; of others they are looked for again."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The offsets that were served under the claim `token`: each from `first`, or where the tier
    begins above it, to below `following`.
    """

    token: int
    first: int
    following: int


@dataclass(frozen=True, slots=True)
class CopiedOffsets:
    """The copied offsets that a node tells its broker. `pause` gives the event loop a turn."""

    metadata: RemoteLogMetadataManager
    pause: Callable[[], Awaitable[None]]
    _seen: dict[TopicIdPartition, _Seen] = field(default_factory=dict)

    async def highest(
        self, tip: TopicIdPartition, leader_epoch: int, disk_start: int | None
    ) -> int | None:
        """The highest copied offset of an epoch; lower, or None, where the tier has a gap from
        `disk_start` on, the first offset on the broker's disk. None: it is not known, as of a
        follower whose disk is not seen: that of the leader when it was claimed counts. What the
        leader copies again a follower deleted else, and only the leader would have it.

        RetryLater: an admin changed the mode, and nobody has claimed since. The leader may be one
        that is refused [LOSS-8], and then its consumers need what is on the broker's disk.

        Not counted: what is recorded as lost, which is nowhere, and a gap at the low end. The
        broker's log start goes past that before it copies, as it was retention.
        """
        highest = self.metadata.highest_offset_for_epoch(tip, leader_epoch)
        state = self.metadata.partition_state(tip)
        if highest is None or state is None:
            return highest
        if state.claim is None:
            raise RetryLater(
                f"no leader was claimed for the brokers of {tip} yet: what nodes copied may never "
                "be served to them"
            )
        start = max(0, state.local_log_start_offset) if disk_start is None else disk_start
        bounds = epoch_bounds(state.lineage, leader_epoch)
        if highest < start or bounds is None:
            return highest
        last = await self._following(state, start, highest) - 1
        return last if last >= bounds[0] else None

    async def _following(self, state: PartitionState, first: int, last: int) -> int:
        """The first offset that nothing serves above a gap at `first`, or the one behind `last`;
        `first` if nothing is served from there on.
        """
        token = -1 if state.last_claim is None else state.last_claim.token
        seen = self._seen.get(state.partition)
        if seen is not None and seen.token == token and seen.first <= first < seen.following:
            following = seen.following
        else:
            following = first
        if following <= last:  # what was below a gap may have gone: then that is at the low end
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
            # Also for the next call, where this one runs out of time.
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
