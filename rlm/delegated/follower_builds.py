"""Holds back the log of a follower until its leader's claim tells where segments end [LOSS-9].

A follower whose leader has less on its disk than the follower lacks begins its log behind a segment
of the tier (Kafka's TierStateMachine). Behind an unclean election the leader's history may leave
that segment amid, which its claim records, and it may be long till then: the claim may be refused.
A follower that began behind the diverged tail would cut its log back to where no segment of its own
is, and then has a log start there (UnifiedLog.truncateTo): as a leader it deletes what the tier has
below. So its node asks its broker whether it follows a later leader than the claimed one.
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
"""The time that an answer counts for look-ups. Where this node does not see the disk it can't tell
those of consumers, which come for each fetch; the indexes of a follower are asked about each time.
"""
BELIEVED_MAX = 10_000
"""Partitions whose answers are remembered."""


async def build_at_will(_tip: TopicIdPartition, _offset: int | None = None) -> None:
    """Return at once: there is no broker that follows."""


@dataclass(slots=True)
class FollowerBuilds:
    """The followers of a node's broker. `work` is the partition on this node. `_believed`: the
    claimed leader epoch that the broker knew no later one than, and when it said so.
    """

    plugin: Plugin
    metadata: MetadataReads
    work: Callable[[TopicIdPartition], PartitionWork | None]
    broker: BrokerPort | None
    ambient: Ambient
    _believed: dict[TopicIdPartition, tuple[int, float]] = field(default_factory=dict)

    async def check(self, tip: TopicIdPartition, offset: int | None = None) -> None:
        """Raise RetryLater if the broker follows a leader that is not claimed. `offset`: that of a
        look-up. Below what the broker has on its disk it is a consumer's.
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
                f"{tip}: the broker does not tell if it follows a leader later than the one of "
                f"epoch {epoch}: {later.reason}"
            )
        if later:
            raise RetryLater(
                f"{tip}: the broker follows a later leader than the one of epoch {epoch}, and no "
                "claim of that leader is recorded: where its history ends segments is not known. "
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
