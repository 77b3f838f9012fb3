"""Decides which runs of a broker's expiration may not begin.

An expiration lists all segments, moves its log start, then deletes one segment after the other, up
to the first that fails. The rest lies below its log start, and `retention.bytes` counts it again at
the next run (Kafka's RemoteLogManager, cleanupExpiredRemoteLogSegments): after each failed run as
much again expires. So a run whose deletions would fail gets no list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafka_formats.errors import RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import Surroundings
from rlm.delegated.fresh_leaders import FreshLeaders
from rlmm.manager.manager import RemoteLogMetadataManager

CONFIRM_DEADLINE_S = 0.6
"""The deadline of the barrier before a list; the list itself is answered within 0.8 s."""
CONFIRMED_FOR_S = 1.0
"""The time for which a barrier is valid: a broker lists its partitions one after the other, and
they share one barrier, which is a record of the metadata log.
"""


@dataclass(slots=True)
class Expirations:
    """The expirations of a node's broker. `why_not_delete`: the reason why no data of a topic may
    be deleted now; None: it may.
    """

    metadata: RemoteLogMetadataManager
    why_not_delete: Callable[[str], str | None]
    fresh: FreshLeaders
    around: Surroundings
    _confirmed_s: float | None = None

    def check(self, tip: TopicIdPartition) -> None:
        """Raise RetryLater if nothing of the partition may be deleted now."""
        why = self.why_not_delete(tip.topic)
        if why is not None:
            raise RetryLater(f"nothing of {tip} is deleted now: {why}")

    async def before_list(self, tip: TopicIdPartition) -> None:
        """Raise RetryLater if deletions would fail, by `check` or because the quorum has no
        majority.
        """
        self.check(tip)
        now, confirmed = self.around.ambient.monotonic(), self._confirmed_s
        if confirmed is None or not 0 <= now - confirmed < CONFIRMED_FOR_S:
            await self.metadata.catch_up(deadline_s=CONFIRM_DEADLINE_S)
            self._confirmed_s = now
