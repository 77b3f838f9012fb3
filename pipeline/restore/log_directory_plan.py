"""Plans the segments that become a log directory, and checks that they form one log. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.errors import CorruptData, NotFound
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.restore.log_segment import WrittenSegment

FIRST_LEADER_EPOCH = 0
"""The epoch of a topic just created. Brokers would take higher ones in its log for truncated."""


@dataclass(frozen=True, slots=True)
class WantedSegment:
    """A segment, and the offsets of it (inclusive) whose batches are written."""

    segment: TieredSegment
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class RestoredLog:
    """A log for a broker. `end_offset` is exclusive: the next one to be written.

    `log_start_offset` is above `base_offset` if the log start lies inside the first segment.
    `left_out_last`: the offsets from `end_offset` to this one were requested, and are left out
    since a transaction is open at each.
    """

    base_offset: int
    log_start_offset: int
    end_offset: int
    log_bytes: int
    epochs: Epochs
    left_out_last: int | None = None


def wanted_segments(
    segments: Sequence[TieredSegment], start: int, end: int
) -> tuple[WantedSegment, ...]:
    """The segments with the offsets [start, end). `segments` are ascending and disjoint.

    NotFound if an offset is in no segment. The first segment is taken with its head, which the log
    start offset hides, so that it keeps its name and its producers; from a later one only offsets
    are taken that the one before does not have.
    """
    wanted: list[WantedSegment] = []
    at = start
    for segment in segments:
        if segment.last_offset < at or segment.first_offset >= end:
            continue
        if segment.first_offset > at:
            break
        first = segment.first_offset if wanted else min(segment.start_offset, at)
        wanted.append(WantedSegment(segment, first, min(segment.last_offset, end - 1)))
        at = segment.last_offset + 1
    if at < end:
        raise NotFound(
            f"the offset {at} is in no tiered segment, so the log from {start} to {end - 1} cannot "
            "be restored as one: restore the parts before and after it by producing, or choose a "
            "different range"
        )
    return tuple(wanted)


def kept_leader_epoch(source: TopicIdPartition, target_topic_id: Uuid) -> int | None:
    """The leader epoch to stamp on batches, or None to keep theirs. They are kept for the topic
    they came from; a new topic starts with epoch 0, and its leader takes higher ones for those of a
    different leader.
    """
    return None if source.topic_id == target_topic_id else FIRST_LEADER_EPOCH


def join(
    written: Sequence[WrittenSegment], start: int, leader_epoch: int | None, *, source: str
) -> RestoredLog:
    """The log that the segments form together. CorruptData if they overlap. `start` is the first
    offset that readers may see.
    """
    files = [each for each in written if each.log_bytes]
    if not files:
        raise NotFound(f"{source}: no record batch is in the range")
    for before, after in pairwise(files):
        if after.base_offset <= before.last_offset:
            raise CorruptData(
                f"the segment {after.segment_id} begins at {after.base_offset}, inside "
                f"{before.segment_id}, which ends at {before.last_offset}",
                source=source,
                position=0,
            )
    base, end = files[0].base_offset, files[-1].last_offset + 1
    return RestoredLog(
        base_offset=base,
        log_start_offset=max(base, start),
        end_offset=end,
        log_bytes=sum(each.log_bytes for each in files),
        epochs=_lineage(files[-1], base, end, leader_epoch),
    )


def _lineage(last: WrittenSegment, base: int, end: int, leader_epoch: int | None) -> Epochs:
    """The log's lineage, from the last segment, which was tiered with that of all before it."""
    if leader_epoch is not None:
        return (EpochEntry(leader_epoch, base),)
    data = last.lineage.encode("ascii")
    epochs = leader_epoch_checkpoint.parse(data, source=f"the lineage of {last.segment_id}")
    return leader_epoch_checkpoint.entries_in_range(epochs, base, end)
