"""A node's own broker that tells of its disk, by Kafka's arithmetic on its leader epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka_formats.leader_epoch_checkpoint import Epochs, end_offset_for
from rlm.copy.scanner import TopicPartition
from rlm.leadership.leadership import Leads, NoAnswer, NotLeading
from rlm.leadership.unseen_disk import EpochAt
from tests.rlm.fake_broker import FakeBroker


@dataclass(slots=True)
class TellingBroker(FakeBroker):
    """`epochs` is every partition's checkpoint, which begins at the log start."""

    epochs: Epochs = ()
    end_offset: int = 25
    asked: list[tuple[int, int]] = field(default_factory=list)

    async def log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, EpochAt | NotLeading | NoAnswer]:
        first = self.epochs[0]
        return dict.fromkeys(partitions, EpochAt(first.epoch, first.start_offset))

    async def epoch_ends(
        self, asked: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochAt | NotLeading | NoAnswer]:
        self.asked += asked.values()
        found: dict[TopicPartition, EpochAt | NotLeading | NoAnswer] = {}
        for each, (present, epoch) in asked.items():
            word = self.words[each]
            if isinstance(word, Leads) and word.leader_epoch == present:
                found[each] = EpochAt(*end_offset_for(self.epochs, epoch, self.end_offset))
            else:
                found[each] = NotLeading()
        return found
