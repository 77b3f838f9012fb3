"""The partitions of a broker whose disk this node does not see, as the broker and its plug-in
report them.

Only partitions that the broker leads and tiers itself are reported. The last report of a partition
remains valid while the broker does not answer, as a directory on a shared disk would.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.leadership import BrokerWord, Leads, NoAnswer
from rlm.leadership.unseen_disk import ReportedReplica, ReportedReplicas, UnseenDisk
from rlm.local_log.log_dir import LocalPartition, LocalSegment

NOWHERE = Path("/dev/null")
"""A path below which no file can exist: code that uses such a path on this machine fails."""


@dataclass(slots=True)
class ToldPartitions:
    """The reported partitions of a node without log directories. `_known`: from the broker's last
    answers.
    """

    disk: UnseenDisk
    _replicas: ReportedReplicas = field(init=False)
    _known: dict[TopicIdPartition, LocalPartition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._replicas = ReportedReplicas(self.disk)

    async def ask(
        self, leaders: Collection[TopicIdPartition], words: dict[TopicIdPartition, BrokerWord]
    ) -> list[tuple[LocalPartition, BrokerWord]]:
        """The partitions among `leaders` that are known by now, each with the broker's answer about
        its leadership.
        """
        told = await self._replicas.ask(
            {tip: word for tip, word in words.items() if isinstance(word, Leads)}
        )
        found = {}
        for tip in leaders:
            word, replica = words[tip], told.get(tip)
            if isinstance(replica, ReportedReplica):
                found[tip] = _as_local(tip, replica), word
            elif tip in self._known:
                found[tip] = self._known[tip], replica or word
        self._known = {tip: local for tip, (local, _) in found.items()}
        return list(found.values())

    def forget(self, tip: TopicIdPartition) -> None:
        """Forget a partition, so that it is requested again: the answers may have been about a
        different topic of that name.
        """
        self._replicas.forget(tip)
        self._known.pop(tip, None)

    async def is_deleted(self, topic_id: Uuid) -> bool:
        """True if the broker reports that its metadata has no such topic any more."""
        return await self.disk.knows_topic(topic_id) is False


def wrong_ids(
    leaders: Sequence[TopicIdPartition], ids: dict[str, Uuid | NoAnswer]
) -> dict[TopicIdPartition, NoAnswer]:
    """Partitions whose topic has a different id at the broker now: it is asked by name, and may
    have answered for a topic that was made again.
    """
    wrong: dict[TopicIdPartition, NoAnswer] = {}
    for tip in leaders:
        answer = ids.get(tip.topic, NoAnswer(f"the broker sent no topic id of {tip.topic}"))
        if isinstance(answer, NoAnswer):
            wrong[tip] = answer
        elif answer != tip.topic_id:
            wrong[tip] = NoAnswer(
                f"its plug-in announced the topic id {tip.topic_id}, but the broker has {answer} "
                f"for {tip.topic}: the topic was made again"
            )
    return wrong


def _as_local(tip: TopicIdPartition, told: ReportedReplica) -> LocalPartition:
    """The reported replica in the form of one on a shared disk: a single active segment from its
    first offset on.
    """
    directory = NOWHERE / f"{tip.topic}-{tip.partition}"
    active = LocalSegment(told.local_log_start_offset, directory / "unseen", 0, None)
    return LocalPartition(
        partition=tip,
        directory=directory,
        segments=(active,),
        leader_epochs=told.leader_epochs,
        checkpoint_bytes=leader_epoch_checkpoint.encode(told.leader_epochs),
        high_watermark=None,
        log_start_offset=told.log_start_offset,
        producer_snapshots=(),
        last_stable_offset_bound=0,
        is_seen=False,
    )
