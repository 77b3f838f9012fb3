"""Holds back the expiration of a leader that does not know yet which offsets are copied.

For `retention.bytes` a broker counts the segments on its disk above the highest copied offset that
it knows, and all of the tier (Kafka's UnifiedLog, onlyLocalLogSegmentsSize). It learns that offset
from its copy task, or as a follower. In a log that it has just opened, at its start or in a
different log directory, it knows none. Until then segments that are on its disk and in the tier
count twice, and as much too much expires (KAFKA-20732, fixed in 4.3.2). The broker reports the
offset that it knows in ListOffsets (KIP-1005).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from kafka_formats.errors import RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import Surroundings
from rlm.copy.asked_by_name import highest_tiered_of
from rlm.copy.partition_work import PartitionWork
from rlm.copy.scanner import BrokerPort
from rlm.leadership.leadership import NoAnswer, NotLeading
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.rows.served_ranges import served_ranges
from rlmm.segment import OFFSET_MAX

logger = logging.getLogger(__name__)

TOLD_AFTER_S = 60.0
"""The time after which a held-back expiration is logged and shown with the partition: a copy that
ends holds a list back for a moment, a fresh leader for a run or two.
"""
ASKS_BY_ITSELF = (4, 3, 2)
"""The Kafka version from which on an expiration that lacks the offset asks for it."""
VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})(?![0-9])")
REMEMBERED_MAX = 10_000
"""The most partitions remembered as held back, each with the time since when."""


@dataclass(slots=True)
class FreshLeaders:
    """Asks brokers for the highest offset that they take for copied. `work`: the partition here."""

    metadata: RemoteLogMetadataManager
    work: Callable[[TopicIdPartition], PartitionWork | None]
    around: Surroundings
    _held: dict[TopicIdPartition, float] = field(default_factory=dict)

    async def why_not_expire(
        self, tip: TopicIdPartition, broker: BrokerPort, kafka_version: str
    ) -> str | None:
        """The reason why the leader would count too much now; None: it counts right."""
        work = self.work(tip)
        if work is None or work.local is None:
            return f"{tip}: this node has not looked at its replica yet"
        first = work.local.local_log_start_offset
        if self._is_served_from(tip, first):
            said = await highest_tiered_of(broker, work.local)
            if isinstance(said, NotLeading | NoAnswer):
                why = said.reason if isinstance(said, NoAnswer) else "it does not lead"
                return f"{tip}: the broker did not report its highest copied offset: {why}"
            asks = said < 0 and _numbers(kafka_version) >= ASKS_BY_ITSELF
            if not asks and self._is_served_from(tip, max(first, said + 1)):
                return self._hold(work, said)
        self._held.pop(tip, None)
        return None

    def _is_served_from(self, tip: TopicIdPartition, first: int) -> bool:
        """True if the tier serves an offset of the lineage from `first` on."""
        state = self.metadata.partition_state(tip)
        if state is None:
            return False
        covered = partial(self.metadata.coverage, tip)
        return next(served_ranges(state.lineage, covered, first, OFFSET_MAX), None) is not None

    def _hold(self, work: PartitionWork, copied: int) -> str:
        tip, now_s = work.partition, self.around.ambient.monotonic()
        if tip not in self._held:
            while len(self._held) >= REMEMBERED_MAX:
                del self._held[next(iter(self._held))]
            self._held[tip] = now_s
        text = (
            f"{_opening(tip)} its leader takes only records up to offset {copied} for copied, and "
            "would count later segments twice, on its disk and in the tier. It learns the offset "
            "with its next copy; with remote.log.copy.disable=true there is none: let a different "
            "broker lead for a minute, or enable copying"
        )
        if now_s - self._held[tip] >= TOLD_AFTER_S:
            if work.last_error is None or not work.last_error.text.startswith(_opening(tip)):
                logger.warning("%s", text)
            work.failed(RetryLater.kind, text, self.around.ambient.now_ms())
        return text


def _opening(tip: TopicIdPartition) -> str:
    return f"nothing of {tip} expires:"


def _numbers(version: str) -> tuple[int, ...]:
    """Kafka's version as numbers; () for other text, and for Confluent's 7.x, which are
    Kafka 3.x.
    """
    found = VERSION.match(version)
    return () if found is None or found[1] == "7" else tuple(map(int, found.groups()))
