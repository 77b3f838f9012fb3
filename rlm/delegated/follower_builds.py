"""Keeps a follower from building its log until its leader's claim is recorded, which shows where
segments end [LOSS-9].

A follower that lacks more than its leader has on its disk begins its log after a segment of the
tier (Kafka's TierStateMachine). After an unclean election the leader's history may leave that
segment before its end; the leader's claim records that, but may come late or be refused. A follower
that began after the diverged tail would truncate its log to an offset where it has no segment, and
its log would then start there (UnifiedLog.truncateTo): as a leader it would delete the tier below.
So the node asks its broker whether it follows a later leader than the claimed one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_formats.errors import RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import Ambient
from rlm.copy.partition_work import PartitionWork
from rlm.copy.scanner import BrokerPort
from rlm.delegated.plugin import Plugin
from rlm.leadership.leadership import NoAnswer
from rlmm.manager.metadata_reads import MetadataReads

BELIEVED_S = 1.0
"""The time for which an answer is valid for look-ups. Without the disk the node can't tell a
follower's look-ups from those of consumers, which come with each fetch. For a follower's indexes
the broker is asked each time.
"""
BELIEVED_MAX = 10_000
"""The most partitions whose answers are remembered."""


async def build_at_will(_tip: TopicIdPartition, _offset: int | None = None) -> None:
    """Return at once, for a node without a broker."""


@dataclass(slots=True)
class FollowerBuilds:
    """The follower replicas of a node's broker. `work` is the partition on this node. `_believed`:
    for each partition the claimed leader epoch for which the broker reported no later one, and the
    time (monotonic, s) of that answer.
    """

    plugin: Plugin
    metadata: MetadataReads
    work: Callable[[TopicIdPartition], PartitionWork | None]
    broker: BrokerPort | None
    ambient: Ambient
    _believed: dict[TopicIdPartition, tuple[int, float]] = field(default_factory=dict)

    async def check(self, tip: TopicIdPartition, offset: int | None = None) -> None:
        """Raise RetryLater if the broker follows a leader that is not claimed, or does not answer.
        `offset`: that of a look-up; below the first offset on the broker's disk it is a consumer's,
        and is not checked.
        """
        if self.broker is None or not self.plugin.has(tip) or tip in self.plugin.leaders:
            return
        if offset is not None and self._is_consumers(tip, offset):
            return
        state = self.metadata.partition_state(tip)
        if state is None:
            return
        epoch = -1 if state.last_claim is None else state.last_claim.leader_epoch
        if offset is not None and self._is_believed(tip, epoch):
            return
        later: bool | NoAnswer = True
        if epoch >= 0:
            later = await self.broker.knows_later_epoch((tip.topic, tip.partition), epoch)
        if isinstance(later, NoAnswer):
            raise RetryLater(
                f"{tip}: it is not known if the broker follows a later leader than that of epoch "
                f"{epoch}: {later.reason}"
            )
        if later:
            raise RetryLater(
                f"{tip}: the broker follows a later leader than the one of epoch {epoch}, and no "
                "claim of that leader is recorded, so it is not known which segments it cuts. "
                "The follower's log is built once the node beside the leader has claimed it"
            )
        self._believed.pop(tip, None)
        while len(self._believed) >= BELIEVED_MAX:
            del self._believed[next(iter(self._believed))]
        self._believed[tip] = epoch, self.ambient.monotonic()

    def _is_consumers(self, tip: TopicIdPartition, offset: int) -> bool:
        work = self.work(tip)
        return (
            work is not None
            and work.local is not None
            and offset < work.local.local_log_start_offset
        )

    def _is_believed(self, tip: TopicIdPartition, epoch: int) -> bool:
        believed, since_s = self._believed.get(tip, (-1, 0.0))
        return epoch == believed >= 0 and 0 <= self.ambient.monotonic() - since_s < BELIEVED_S
