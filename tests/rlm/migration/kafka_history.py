"""A partition's life under Kafka's own manager, by chance: leaders come and go, some of them
without records that others had copied; copies overlap, fail, and are deleted from the low end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.kafka_cache import KafkaCache
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from tests.rlmm.state_world import ORDERS

COPYING, COPIED, DELETING, DELETED = SegmentState
CUSTOM = (None, b"", b"foreign", b"\x00" * 40)


@dataclass
class KafkaHistory:
    """`checkpoint` and `end` (exclusive) are the present leader's; `cache` is Kafka's manager, and
    `records` are those that it was made of.
    """

    random: Random
    partition: TopicIdPartition = ORDERS
    cache: KafkaCache = field(default_factory=KafkaCache)
    records: list[RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate] = field(
        default_factory=list
    )
    checkpoint: list[EpochEntry] = field(default_factory=lambda: [EpochEntry(0, 0)])
    end: int = 0
    copied: int = 0
    numbers: int = 0

    @property
    def lineage(self) -> Epochs:
        """The present leader's checkpoint."""
        return tuple(self.checkpoint)

    def step(self) -> None:
        """Something happens."""
        self.end += self.random.randrange(1, 60)
        match self.random.randrange(12):
            case 0:
                self.elected(self.end)
            case 1:
                self.elected(max(0, self.end - self.random.randrange(1, 90)))
            case 2:
                self.copied = max(0, self.copied - self.random.randrange(0, 60))
            case 3:
                self.copies(finishes=False)
            case 4 | 5:
                self.deletes()
            case _:
                self.copies(finishes=True)

    def elected(self, end: int) -> None:
        """A new leader whose log ends at `end`, perhaps below what was copied."""
        epoch = self.checkpoint[-1].epoch + self.random.randrange(1, 3)
        kept = [entry for entry in self.checkpoint if entry.start_offset < end]
        self.checkpoint = [*kept, EpochEntry(epoch, end)]
        self.end = end + self.random.randrange(1, 40)
        self.copied = min(self.copied, end)

    def copies(self, *, finishes: bool) -> None:
        """The leader copies a segment from where it believes the copies end."""
        start = self.copied
        end = min(self.end - 1, start + self.random.randrange(0, 50))
        if end < start:
            return
        row = self._segment(start, end)
        self.records.append(row)
        self.cache.add(row)
        if finishes:
            custom = self.random.choice(CUSTOM)
            self._update(row.segment_id.id, COPIED, custom)
            self.copied = end + 1
        elif self.random.random() < 0.5:
            self._update(row.segment_id.id, DELETING, None)

    def deletes(self) -> None:
        """Retention takes the lowest, or ends a deletion that it began."""
        rows = sorted(self.cache.rows.values(), key=lambda row: row.start_offset)
        if not rows:
            return
        row = rows[0] if self.random.random() < 0.8 else self.random.choice(rows)
        if row.state is COPIED:
            self._update(row.segment_id.id, DELETING, row.custom_metadata)
        elif row.state is DELETING:
            self._update(row.segment_id.id, DELETED, row.custom_metadata)

    def _segment(self, start: int, end: int) -> RemoteLogSegmentMetadata:
        self.numbers += 1
        return RemoteLogSegmentMetadata(
            RemoteLogSegmentId(self.partition, Uuid(self.numbers.to_bytes(16, "big"))),
            start,
            end,
            self.random.randrange(3),
            1_000 + self.numbers,
            2_000 + self.numbers,
            self._epochs(start, end),
            self.random.randrange(1, 5_000),
            None,
            COPYING,
            txn_index_empty=self.random.random() < 0.5,
        )

    def _epochs(self, start: int, end: int) -> tuple[tuple[int, int], ...]:
        """The checkpoint cut to the segment, as the broker makes it."""
        inside = [(epoch, first) for epoch, first in self.checkpoint if first <= end]
        below = [epoch for epoch, first in inside if first <= start]
        head = [(below[-1], start)] if below else []
        return (*head, *((epoch, first) for epoch, first in inside if first > start))

    def _update(self, id_: Uuid, state: SegmentState, custom: bytes | None) -> None:
        update = RemoteLogSegmentMetadataUpdate(
            RemoteLogSegmentId(self.partition, id_), 1, 3_000 + self.numbers, custom, state
        )
        self.records.append(update)
        self.cache.update(update)


def history_of(
    seed: int, *, steps: int | None = None, partition: TopicIdPartition = ORDERS
) -> KafkaHistory:
    """A history by chance."""
    random = Random(seed)
    history = KafkaHistory(random, partition)
    for _ in range(random.randrange(1, 60) if steps is None else steps):
        history.step()
    return history


def without(row: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    """As Kafka's manager has it."""
    return replace(row, token=-1, writer=None, upload_deadline_ms=-1, finished_at=-1)
