"""Compares the rows of a partition with those of Kafka's own manager, after an import, or before a
way back. Pure.

These must be equal: every segment with its id, state, size, epochs, times and custom metadata; the
highest offset of each epoch; and for every offset of every epoch for which Kafka's manager finds a
segment, the metadata log must find a segment with that offset. These may differ, since no offset
that a broker may ask for gets lost by them:

- If segments overlap, Kafka serves the one with the higher start, the metadata log the one with the
  higher end. Both have the offset in that epoch.
- After the end of a short segment that hides a longer one Kafka finds no segment. The metadata log
  finds the longer one.
- Look-ups and highest offsets end where the recorded epoch of a later leader begins: higher offsets
  are of a log that was truncated. So are epochs that are in no leader's history any more.

Before a way back the recorded epochs are those of the brokers' claims; a largest timestamp may be
the one that the copy found, which Kafka's updates can't express; and a claimed partition without a
segment need not be in the topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, Protocol

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.custom_metadata import CustomMetadata
from rlm.migration.kafka_cache import EpochSegments, KafkaCache, knows_nothing, spans
from rlmm.lineage import epoch_bounds
from rlmm.partition_state import Mode, PartitionState
from rlmm.rows.imported import as_imported, is_row_of
from rlmm.rows.queries import SegmentAnswer
from rlmm.rows.values import Covered
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentMetadata, SegmentState

_OURS = frozenset({"token", "writer", "upload_deadline_ms", "finished_at"})
_TOPICS = tuple(each for each in RemoteLogSegmentMetadata.__slots__ if each not in _OURS)
_of_the_topic = attrgetter(*_TOPICS)
_before_a_way_back = attrgetter(*(each for each in _TOPICS if each != "max_timestamp_ms"))

LOOKED_UP_EACH = 64
"""One in this many segments has its first and last offset looked up as a broker does, besides the
comparison of all ranges.
"""


class Wrong(StrEnum):
    """The kind of a difference. The values are stable."""

    PARTITION = "partition"
    """A partition is only in the log or only in the topic, or is not as imported."""
    SEGMENT = "segment"
    """A segment is only in the log or only in the topic, or differs."""
    LOOK_UP = "look_up"
    """Kafka's manager finds a segment for an offset, the log none, or one without the offset."""
    HIGHEST = "highest"
    """The highest offset of an epoch differs."""
    LINEAGE = "lineage"
    """Served offsets are outside the recorded leader epochs, and no later epoch has them."""
    STORAGE = "storage"
    """A segment was copied by StrandlineStorageManager, and can't be read after a way back."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the log and the topic; `text` has both sides."""

    partition: TopicIdPartition
    wrong: Wrong
    text: str

    def __str__(self) -> str:
        return f"{self.partition}: {self.text}"


class Recorded(Protocol):
    """The reads of the metadata manager that `compare` uses."""

    def partition_state(self, tip: TopicIdPartition, /) -> PartitionState | None: ...

    def list_remote_log_segments(
        self, tip: TopicIdPartition, /
    ) -> Iterator[RemoteLogSegmentMetadata]: ...

    def remote_log_segment_metadata(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int, /
    ) -> SegmentAnswer | None: ...

    def highest_offset_for_epoch(
        self, tip: TopicIdPartition, leader_epoch: int, /
    ) -> int | None: ...

    def highest_recorded(self, tip: TopicIdPartition, leader_epoch: int, /) -> int | None: ...

    def coverage(
        self, tip: TopicIdPartition, leader_epoch: int, start: int, end: int, /
    ) -> Iterator[Covered]: ...


def compare(
    recorded: Recorded, tip: TopicIdPartition, cache: KafkaCache | None, *, since: int | None
) -> Iterator[Difference]:
    """The differences of one partition. `cache` None: the topic does not have it, so it must not be
    recorded. `since`: metadata offset of the phase SWITCHING that imported it; None before a way
    back.
    """
    state = recorded.partition_state(tip)
    if cache is not None and knows_nothing(cache):
        cache = None
    if cache is None and state is not None and since is None and _is_empty(recorded, state):
        return
    if cache is None or state is None:
        if cache is not None or state is not None:
            who = "the metadata topic" if state is None else "the metadata log"
            yield Difference(tip, Wrong.PARTITION, f"only {who} has it")
        return
    yield from _of_state(state, cache, since)
    yield from _of_segments(recorded, tip, cache, since)
    if since is None:
        yield from _of_storage(tip, cache)
    floors = _lowest_above(cache)
    for epoch, segments in sorted(cache.epochs.items()):
        above = -1 if since is None else floors.get(epoch, OFFSET_MAX)
        yield from _of_epoch(recorded, state, cache, epoch, segments, above)
    for epoch, _ in state.lineage:
        if since is not None and epoch not in cache.epochs:
            yield Difference(tip, Wrong.LINEAGE, f"no segment of the topic has epoch {epoch}")


def _is_empty(recorded: Recorded, state: PartitionState) -> bool:
    """True if the partition was claimed, but has no segment and never had a finished one: its topic
    is new, and Kafka's manager does not know it before its first segment.
    """
    rows = recorded.list_remote_log_segments(state.partition)
    return state.highest_copied is None and next(rows, None) is None


def _of_state(state: PartitionState, cache: KafkaCache, since: int | None) -> Iterator[Difference]:
    finished = [row for row in cache.rows.values() if _is_finished(row)]
    size_bytes = sum(row.size_bytes for row in finished)
    found = (state.mode, state.segment_count, state.size_bytes)
    is_new = state.claim is None and state.delete_state is None
    if found != (Mode.DELEGATED, len(finished), size_bytes) or not (is_new or since is None):
        yield Difference(
            state.partition,
            Wrong.PARTITION,
            f"it is {state.mode.name}, {'un' if state.claim is None else ''}claimed, with "
            f"{state.segment_count} finished segments of {state.size_bytes} bytes, but the topic "
            f"has {len(finished)} of {size_bytes} bytes",
        )


def _is_finished(row: RemoteLogSegmentMetadata) -> bool:
    return row.state is SegmentState.COPY_SEGMENT_FINISHED


def _of_segments(
    recorded: Recorded, tip: TopicIdPartition, cache: KafkaCache, since: int | None
) -> Iterator[Difference]:
    seen = set()
    for row in recorded.list_remote_log_segments(tip):
        id_ = row.segment_id.id
        known = cache.rows.get(id_)
        seen.add(id_)
        if known is None:
            text = f"only the metadata log has segment {id_}, {row.state.name}"
            yield Difference(tip, Wrong.SEGMENT, text)
        elif not _is_as_expected(known, row, since):
            text = f"segment {id_} is {_other(row, _expected(known, row, since))}"
            yield Difference(tip, Wrong.SEGMENT, text)
    for id_ in cache.rows.keys() - seen:
        text = f"only the topic has segment {id_}, {cache.rows[id_].state.name}"
        yield Difference(tip, Wrong.SEGMENT, text)


def _of_storage(tip: TopicIdPartition, cache: KafkaCache) -> Iterator[Difference]:
    """The difference for segments of StrandlineStorageManager in the topic. In phase KAFKA nodes do
    not serve delegated topics, so copies by that manager fail, and a different one can neither read
    nor delete these segments.
    """
    ours = [
        row
        for row in cache.rows.values()
        if row.custom_metadata and CustomMetadata.is_ours(row.custom_metadata)
    ]
    if ours:
        text = (
            f"{len(ours)} segments, such as {ours[0].segment_id.id}, were copied by "
            "StrandlineStorageManager. Only it can read them, and it works only in phase QUORUM: "
            "there is no way back until they are deleted"
        )
        yield Difference(tip, Wrong.STORAGE, text)


def _is_as_expected(
    known: RemoteLogSegmentMetadata, row: RemoteLogSegmentMetadata, since: int | None
) -> bool:
    """True if the row equals `_expected`, without the cost of making that."""
    if since is None:
        return bool(_before_a_way_back(row) == _before_a_way_back(known))
    return is_row_of(row, since) and bool(_of_the_topic(row) == _of_the_topic(known))


def _expected(
    known: RemoteLogSegmentMetadata, row: RemoteLogSegmentMetadata, since: int | None
) -> RemoteLogSegmentMetadata:
    """The row that Kafka's segment should have."""
    if since is not None:
        return as_imported(known, since)
    return replace(
        known,
        token=row.token,
        writer=row.writer,
        upload_deadline_ms=row.upload_deadline_ms,
        finished_at=row.finished_at,
        max_timestamp_ms=row.max_timestamp_ms,
    )


def _other(row: RemoteLogSegmentMetadata, expected: RemoteLogSegmentMetadata) -> str:
    """The fields that differ, with both values."""
    named = (
        (name, getattr(row, name), getattr(expected, name))
        for name in RemoteLogSegmentMetadata.__slots__
    )
    return "; ".join(
        f"{name} {ours!r} instead of {theirs!r}" for name, ours, theirs in named if ours != theirs
    )


def _lowest_above(cache: KafkaCache) -> dict[int, int]:
    """The lowest offset that a finished segment has in any higher epoch, by epoch."""
    lowest: dict[int, int] = {}
    for row in cache.rows.values():
        if _is_finished(row):
            for epoch, start, end in spans(row):
                if start <= end:
                    lowest[epoch] = min(start, lowest.get(epoch, start))
    above: dict[int, int] = {}
    at = OFFSET_MAX
    for epoch in sorted(cache.epochs, reverse=True):
        above[epoch] = at
        at = min(at, lowest.get(epoch, at))
    return above


class _Piece(NamedTuple):
    """Offsets that Kafka's manager serves from the segment `theirs`, and the metadata log from
    `ours`; None if there is no such segment.
    """

    start: int
    end: int
    theirs: Uuid | None
    ours: Uuid | None


def _of_epoch(
    recorded: Recorded,
    state: PartitionState,
    cache: KafkaCache,
    epoch: int,
    segments: EpochSegments,
    above: int,
) -> Iterator[Difference]:
    """The differences of one epoch. `above`: the lowest offset of any higher epoch; -1 if the
    recorded lineage is that of a broker's claim.
    """
    tip = state.partition
    theirs = _served(cache, epoch, segments)
    ours = list(recorded.coverage(tip, epoch, 0, OFFSET_MAX))
    for piece in _pieces(theirs, ours):
        if piece.theirs is not None and piece.ours is None:
            text = (
                f"no segment serves {piece.start}-{piece.end} of epoch {epoch}, in the topic "
                f"{piece.theirs} does"
            )
            yield Difference(tip, Wrong.LOOK_UP, text)
        elif piece.theirs != piece.ours and not _has(cache, piece.ours, epoch, piece):
            text = (
                f"{piece.ours} serves {piece.start}-{piece.end} of epoch {epoch}, but does not "
                "have these offsets"
            )
            yield Difference(tip, Wrong.LOOK_UP, text)
    outside = _outside(state.lineage, epoch, theirs)
    if outside is not None and outside < above:
        text = f"offset {outside} of epoch {epoch} is outside the lineage {_text(state.lineage)}"
        yield Difference(tip, Wrong.LINEAGE, text)
    yield from _of_highest(recorded, state, epoch, segments, above)
    yield from _of_look_ups(recorded, state, cache, epoch, theirs)


def _served(cache: KafkaCache, epoch: int, segments: EpochSegments) -> list[_Piece]:
    """The ranges in which Kafka's look-ups of the epoch find a segment."""
    ranges = []
    for at, start in enumerate(segments.starts):
        id_ = segments.by_start[start]
        end = next(end for each, _, end in spans(cache.rows[id_]) if each == epoch)
        if at + 1 < len(segments.starts):
            end = min(end, segments.starts[at + 1] - 1)
        if start <= end:
            ranges.append(_Piece(start, end, id_, None))
    return ranges


def _pieces(theirs: Sequence[_Piece], ours: Sequence[Covered]) -> Iterator[_Piece]:
    """The offsets that either serves, split where one of the segments changes."""
    ends = [(each.start, each.end + 1) for each in theirs]
    ends += [(each.start, each.end + 1) for each in ours]
    borders = sorted({border for each in ends for border in each})
    left, right = 0, 0
    for start, following in pairwise(borders):
        while left < len(theirs) and theirs[left].end < start:
            left += 1
        while right < len(ours) and ours[right].end < start:
            right += 1
        has_left = left < len(theirs) and theirs[left].start <= start
        has_right = right < len(ours) and ours[right].start <= start
        if has_left or has_right:
            yield _Piece(
                start,
                following - 1,
                theirs[left].theirs if has_left else None,
                ours[right].segment if has_right else None,
            )


def _has(cache: KafkaCache, id_: Uuid | None, epoch: int, piece: _Piece) -> bool:
    """True if the segment is finished and has these offsets in the epoch."""
    row = None if id_ is None else cache.rows.get(id_)
    if row is None or not _is_finished(row):
        return False
    return any(
        each == epoch and start <= piece.start and piece.end <= end
        for each, start, end in spans(row)
    )


def _outside(lineage: Epochs, epoch: int, served: Sequence[_Piece]) -> int | None:
    """The lowest served offset that the lineage does not have in the epoch."""
    if not served:
        return None
    bounds = epoch_bounds(lineage, epoch)
    if bounds is None or served[0].start < bounds[0]:
        return served[0].start
    return max(served[-1].start, bounds[1] + 1) if served[-1].end > bounds[1] else None


def _of_highest(
    recorded: Recorded, state: PartitionState, epoch: int, segments: EpochSegments, above: int
) -> Iterator[Difference]:
    theirs = segments.highest_offset
    if theirs is not None and theirs < 0:
        theirs = None
    kept = recorded.highest_recorded(state.partition, epoch)
    if kept != theirs:
        text = f"the highest offset of epoch {epoch} is {kept} instead of {theirs}"
        yield Difference(state.partition, Wrong.HIGHEST, text)
    bounds = epoch_bounds(state.lineage, epoch)
    expected = theirs
    if theirs is not None and bounds is not None and theirs > bounds[1]:
        # The limit is valid only if a higher epoch begins there.
        expected = bounds[1] if bounds[1] + 1 >= above else theirs
    elif bounds is None and state.lineage:
        expected = None  # no segment of the present history has this epoch
    ours = recorded.highest_offset_for_epoch(state.partition, epoch)
    if ours != expected:
        text = f"the highest offset of epoch {epoch} is answered as {ours} instead of {expected}"
        yield Difference(state.partition, Wrong.HIGHEST, text)


def _of_look_ups(
    recorded: Recorded,
    state: PartitionState,
    cache: KafkaCache,
    epoch: int,
    served: Sequence[_Piece],
) -> Iterator[Difference]:
    """The differences of look-ups as by a broker, at the borders of some segments."""
    bounds = epoch_bounds(state.lineage, epoch)
    if bounds is None:
        return
    last = len(served) - 1
    for at, (start, end, _, _) in enumerate(served):
        if at % LOOKED_UP_EACH and at != last:
            continue
        for offset in {max(start, bounds[0]), min(end, bounds[1])}:
            if not (start <= offset <= end and bounds[0] <= offset <= bounds[1]):
                continue
            answer = recorded.remote_log_segment_metadata(state.partition, epoch, offset)
            found = None if answer is None else answer.metadata.segment_id.id
            if not _has(cache, found, epoch, _Piece(offset, offset, None, None)):
                text = f"offset {offset} of epoch {epoch} is found in {found}, which lacks it"
                yield Difference(state.partition, Wrong.LOOK_UP, text)


def _text(lineage: Epochs) -> str:
    return f"{{{', '.join(f'{epoch}:{start}' for epoch, start in lineage[-8:])}}}"
