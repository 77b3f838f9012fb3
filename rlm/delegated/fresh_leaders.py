"""Holds back the expiration of a leader that does not know yet what is copied.

Until a broker was told the highest copied offset, by its copy task or as a follower, all of its
disk counts as not copied: `retention.bytes` counts what is in the tier, too, twice, and as much too
much expires (Kafka's UnifiedLog, onlyLocalLogSegmentsSize; KAFKA-20732, mended in 4.3.2).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated.wire import WHOLE_SET, Announcement

logger = logging.getLogger(__name__)

HELD_FOR_S = 90.0
"""Three runs of its tasks. A broker that asked another process of this node, before it ended, does
not ask again, and one that was started with remote.log.copy.disable=true never does.
"""


@dataclass(slots=True)
class FreshLeaders:
    """The partitions of the broker's session, and since when each is held back."""

    now_s: Callable[[], float]
    session: Uuid | None = None
    _told: set[TopicIdPartition] = field(default_factory=set)
    _held: dict[TopicIdPartition, float] = field(default_factory=dict)

    def announced(self, said: Announcement) -> None:
        """Forget what a broker that was started again knew, and of replicas that left it."""
        if said.session != self.session:
            self.session = said.session
            self._told.clear()
            self._held.clear()
        elif said.base_seq == WHOLE_SET:
            self._forget((self._told | self._held.keys()).difference(said.leaders, said.followers))
        else:
            self._forget(said.stopped)

    def _forget(self, tips: Iterable[TopicIdPartition]) -> None:
        for tip in tips:
            self._told.discard(tip)
            self._held.pop(tip, None)

    def told(self, tip: TopicIdPartition, session: Uuid | None) -> None:
        """The broker knows the partition's highest copied offset, since a call of this session."""
        if session == self.session:
            self._told.add(tip)
            self._held.pop(tip, None)

    def why_not_expire(self, tip: TopicIdPartition) -> str | None:
        """The reason why a leader would count too much now, to be asked at each of its lists."""
        if tip in self._told:
            return None
        now = self.now_s()
        if tip not in self._held:
            self._held[tip] = now
            logger.info("the expiration of %s waits until its leader knows what is copied", tip)
        left = self._held[tip] + HELD_FOR_S - now
        if left <= 0:
            return None
        return (
            "its leader has not asked for the highest copied offset yet, and would count twice "
            "what is on its disk and in the tier; its copy task asks (the expiration waits for "
            f"{left:.0f} s more at most)"
        )
