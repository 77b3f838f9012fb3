"""Histories of a partition, with leaders that truncate, and the segments they left in a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

PARTITION = TopicIdPartition("orders", Uuid(b"t" * 16), 3)
LEADERS_MAX = 6


def a_segment(
    number: int,
    start: int,
    end: int,
    *epochs: tuple[int, int],
    partition: TopicIdPartition = PARTITION,
    size_bytes: int = 1_000,
) -> RemoteLogSegmentMetadata:
    """As a manifest tells it; copied at a time in the order of `number`."""
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, Uuid(number.to_bytes(16, "big"))),
        start,
        end,
        1,
        1_700_000_000_000 + end,
        1_700_000_000_000 + number,
        epochs,
        size_bytes,
        None,
        SegmentState.COPY_SEGMENT_STARTED,
    )


@dataclass
class BucketHistory:
    """`log` is the epoch of each offset in the last leader's log, `segments` what is in the bucket,
    `served_to` the last offset that was copied from that log.
    """

    random: Random
    log: list[int] = field(default_factory=list)
    segments: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    served_to: int = -1
    """Highest copied of the claims, as the metadata had it."""

    _highest: dict[int, int] = field(default_factory=dict)

    def run(self) -> BucketHistory:
        """Leaders one after the other; the last one copies something of its own."""
        epoch = 0
        leaders = self.random.randint(1, LEADERS_MAX)
        for leader in range(leaders):
            epoch += self.random.randint(1, 2)
            cut = self.random.randint(0, 12) if self.random.random() < 0.6 else 0
            self.log = self.log[: max(0, len(self.log) - cut)]
            own_from = len(self.log)
            self.log += [epoch] * self.random.randint(1, 20)
            last = leader == leaders - 1
            self._copy(len(self.log) if last else self.random.randint(0, len(self.log)))
            if last:
                assert self.served_to >= own_from
        return self

    def _copy(self, up_to: int) -> None:
        """Segments of this leader's log, each containing the next offset; some of them twice."""
        while (following := self._next_offset()) < up_to:
            start = max(0, following - self.random.choice((0, 0, 0, 1, 5)))
            end = min(len(self.log) - 1, following + self.random.randint(0, 12))
            self._add(start, end)
            if self.random.random() < 0.2:
                self._add(start, end)  # an attempt that was given up, whole
            for offset in range(start, end + 1):
                known = self._highest.get(self.log[offset], -1)
                self._highest[self.log[offset]] = max(known, offset)
        self.served_to = self._next_offset() - 1

    def _next_offset(self) -> int:
        """By the rule of highest copied, within this leader's lineage."""
        for epoch in sorted(set(self.log), reverse=True):
            if epoch in self._highest:
                last = max(at for at, each in enumerate(self.log) if each == epoch)
                first = self.log.index(epoch)
                if (highest := min(self._highest[epoch], last)) >= first:
                    return highest + 1
        return 0

    def _add(self, start: int, end: int) -> None:
        epochs = [(self.log[start], start)]
        for offset in range(start + 1, end + 1):
            if self.log[offset] != epochs[-1][0]:
                epochs.append((self.log[offset], offset))
        self.segments.append(a_segment(len(self.segments) + 1, start, end, *epochs))

    def lineage(self) -> Sequence[tuple[int, int]]:
        """The last leader's checkpoint."""
        return [
            (each, at) for at, each in enumerate(self.log) if at == 0 or self.log[at - 1] != each
        ]
