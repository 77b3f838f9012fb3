"""A node's own broker that answers what a test says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_formats.kafka_uuid import Uuid
from rlm.copy.scanner import TopicPartition
from rlm.leadership.leadership import (
    BrokerWord,
    Leads,
    LocalLogStart,
    NoAnswer,
    NotLeading,
    TopicConfig,
)
from rlm.leadership.unseen_disk import EpochAt

DELETE = TopicConfig("delete", -1, -1, False)


@dataclass(slots=True)
class FakeBroker:
    """Answers what the test says."""

    words: dict[TopicPartition, BrokerWord] = field(default_factory=dict)
    config: TopicConfig | NoAnswer = DELETE
    local_start: LocalLogStart | NotLeading | NoAnswer = field(
        default_factory=lambda: LocalLogStart(0, 0)
    )
    ids: dict[str, Uuid | NoAnswer] = field(default_factory=dict)
    tiered_start: EpochAt | NotLeading | NoAnswer = field(default_factory=lambda: EpochAt(0, 0))
    unknown_topics: bool | NoAnswer = False
    copied: int | NotLeading | NoAnswer = 1 << 40
    followed_epoch: int | NoAnswer = -1
    """The leader epoch of what it does not lead."""

    async def leadership(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, BrokerWord]:
        return {each: self.words[each] for each in partitions if each in self.words}

    async def local_log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LocalLogStart | NotLeading | NoAnswer]:
        return dict.fromkeys(partitions, self.local_start)

    async def log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, EpochAt | NotLeading | NoAnswer]:
        return dict.fromkeys(partitions, self.tiered_start)

    async def highest_tiered(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | NotLeading | NoAnswer]:
        return dict.fromkeys(partitions, self.copied)

    async def topic_configs(self, topics: Sequence[str]) -> dict[str, TopicConfig | NoAnswer]:
        return dict.fromkeys(topics, self.config)

    async def topic_ids(self, topics: Sequence[str]) -> dict[str, Uuid | NoAnswer]:
        return {each: self.ids[each] for each in topics if each in self.ids}

    async def knows_topic(self, topic_id: Uuid) -> bool | NoAnswer:
        unknown = self.unknown_topics
        return unknown if isinstance(unknown, NoAnswer) else not unknown

    async def knows_later_epoch(
        self, partition: TopicPartition, leader_epoch: int
    ) -> bool | NoAnswer:
        word = self.words.get(partition)
        epoch = word.leader_epoch if isinstance(word, Leads) else self.followed_epoch
        return epoch if isinstance(epoch, NoAnswer) else epoch > leader_epoch
