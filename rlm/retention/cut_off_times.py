"""The time that segments have been outside the lineage of their partition's leader.

An unclean leader cuts off what its log lacks, and so does one whose disk was lost. Such segments
stay for the time of the trash, counted by this process's monotonic clock from its first plan that
shows them so. It begins anew under another claim, also of the same node, and in a new process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition


@dataclass(slots=True)
class CutOffSeen:
    """The times at which this process first saw each segment cut off, under the token of a claim:
    while retention is held back nothing is planned, and a claim may bring a segment back that the
    next one cuts off again.
    """

    monotonic: Callable[[], float]
    _since_s: dict[TopicIdPartition, tuple[int, dict[Uuid, float]]] = field(default_factory=dict)

    def look(self, tip: TopicIdPartition, token: int, cut_off: Collection[Uuid]) -> int:
        """Take all segments that are cut off now, and forget those that came back. Returns how many
        of them are new.
        """
        before, now_s = self._seen(tip, token), self.monotonic()
        self._since_s.pop(tip, None)
        if cut_off:
            self._since_s[tip] = token, {each: before.get(each, now_s) for each in cut_off}
        return sum(each not in before for each in cut_off)

    def keep(self, tips: Collection[TopicIdPartition]) -> None:
        """Forget all other partitions."""
        self._since_s = {tip: seen for tip, seen in self._since_s.items() if tip in tips}

    def stayed(self, tip: TopicIdPartition, token: int, trash_ms: int) -> frozenset[Uuid]:
        """The segments that have been cut off for `trash_ms`."""
        seen = self._seen(tip, token)
        return frozenset(
            each for each, since_s in seen.items() if self._left(since_s, trash_ms) <= 0
        )

    def left_ms(self, tip: TopicIdPartition, token: int, trash_ms: int) -> int | None:
        """Milliseconds until the first one has been cut off for so long, 0 if one has; None: none
        is cut off.
        """
        seen = self._seen(tip, token)
        left = (self._left(since_s, trash_ms) for since_s in seen.values())
        return min((max(0, each) for each in left), default=None)

    def _seen(self, tip: TopicIdPartition, token: int) -> dict[Uuid, float]:
        known, seen = self._since_s.get(tip, (token, {}))
        return seen if known == token else {}

    def _left(self, since_s: float, trash_ms: int) -> int:
        return trash_ms - int((self.monotonic() - since_s) * 1000)
