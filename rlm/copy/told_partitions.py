"""The partitions of a broker whose disk this node does not see, as its plug-in and it tell them.

Only partitions that the broker leads and tiers itself are told. What is known of one stays while
the broker does not answer, as a directory on a shared disk would.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.leadership import BrokerWord, Leads, NoAnswer
from rlm.leadership.unseen_disk import ToldReplica, ToldReplicas, UnseenDisk
from rlm.local_log.log_dir import LocalPartition, LocalSegment

NOWHERE = Path("/dev/null")
"""No file can be below it: whoever takes such a path for one of this machine fails."""


@dataclass(slots=True)
class ToldPartitions:
    """The told partitions of a node without log directories. `_known`: by the broker's last
    answers.
    """

    disk: UnseenDisk
    _replicas: ToldReplicas = field(init=False)
    _known: dict[TopicIdPartition, LocalPartition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._replicas = ToldReplicas(self.disk)

    async def ask(
        self, leaders: Collection[TopicIdPartition], words: dict[TopicIdPartition, BrokerWord]
    ) -> list[tuple[LocalPartition, BrokerWord]]:
        """The partitions among `leaders` that are known by now, with the broker's word on each."""
        told = await self._replicas.ask(
            {tip: word for tip, word in words.items() if isinstance(word, Leads)}
        )
        found = {}
        for tip in leaders:
            word, replica = words[tip], told.get(tip)
            if isinstance(replica, ToldReplica):
                found[tip] = _as_local(tip, replica), word
            elif tip in self._known:
                found[tip] = self._known[tip], replica or word
        self._known = {tip: local for tip, (local, _) in found.items()}
        return list(found.values())

    def forget(self, tip: TopicIdPartition) -> None:
        """Ask anew: the answers may have been about another topic of that name."""
        self._replicas.forget(tip)
        self._known.pop(tip, None)

    async def is_deleted(self, topic_id: Uuid) -> bool:
        """True if the broker says that its metadata has no such topic any more."""
        return await self.disk.knows_topic(topic_id) is False


def wrong_ids(
    leaders: Sequence[TopicIdPartition], ids: dict[str, Uuid | NoAnswer]
) -> dict[TopicIdPartition, NoAnswer]:
    """Partitions whose topic the broker knows under another id by now: it is asked by name, and may
    have answered for a topic that was made anew.
    """
    wrong: dict[TopicIdPartition, NoAnswer] = {}
    for tip in leaders:
        answer = ids.get(tip.topic, NoAnswer(f"the broker names no id of {tip.topic}"))
        if isinstance(answer, NoAnswer):
            wrong[tip] = answer
        elif answer != tip.topic_id:
            wrong[tip] = NoAnswer(
                f"its plug-in announced the topic id {tip.topic_id}, and the broker knows "
                f"{tip.topic} as {answer}: it was made anew"
            )
    return wrong


def _as_local(tip: TopicIdPartition, told: ToldReplica) -> LocalPartition:
    """The told replica in the form of one on a shared disk: one active segment from the first
    offset on.
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
