"""The input of a reading task: parts of segments, and the settings of the read. Pure: data only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.tiered_segment import TieredSegment
from rlm.data_plane.read_request import Isolation

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of a record without `headers`, in the order of Spark's own Kafka source."""

AIVEN_KEYS_OPTION = "strandline.aiven.keys"
"""PEM files, or folders of them, with commas: for segments that Aiven's plug-in encrypted."""

LATER_MAX = 64
"""Segments after a slice in which its task may look for the end of its transactions.

A transaction is listed where its ABORT marker is. Brokers end transactions within minutes
(`transaction.max.timeout.ms`), so that only segments of a few kilobytes could need more indexes.
"""


def aiven_keys_in(options: Mapping[str, str]) -> tuple[str, ...]:
    """The paths that AIVEN_KEYS_OPTION gives; none without it."""
    for key, value in options.items():
        if key.lower() == AIVEN_KEYS_OPTION:
            return tuple(part.strip() for part in value.split(",") if part.strip())
    return ()


@dataclass(frozen=True, slots=True)
class SegmentSlice:
    """The offsets `first_offset` to `last_offset` (inclusive) of a segment. Picklable.

    `later`: for read_committed, later segments of the partition that decide its transactions,
    ascending: those that list aborted ones, and the two at the ends of each hole. `behind_holes`
    are the first offsets of those directly after a hole.
    """

    segment: TieredSegment
    first_offset: int
    last_offset: int
    later: tuple[TieredSegment, ...] = ()
    behind_holes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """The settings with which tasks read slices. Picklable.

    `columns` are the columns of the batches, in this order; `headers` may be one of them. `verify`
    checks objects by our recorded checksums, beside the CRC of every batch, which is always
    checked. Without `fail_on_data_loss` a segment deleted after the plan is skipped, and `on_lost`
    called. `aiven_keys` are PEM files, or folders of them, on the machine that reads: for segments
    that Aiven's plug-in encrypted. `batch_bytes_max` None: `RECORDS_BYTES_MAX` of the decoder.
    """

    columns: tuple[str, ...] = COLUMNS
    isolation: Isolation = Isolation.READ_COMMITTED
    verify: bool = True
    fail_on_data_loss: bool = True
    aiven_keys: tuple[str, ...] = ()
    batch_bytes_max: int | None = None


def plan_slices(
    segments: Sequence[TieredSegment], first_offset: int, last_offset: int, isolation: Isolation
) -> list[SegmentSlice]:
    """The slices that hold the offsets `first_offset` to `last_offset` (inclusive).

    `segments` are those of one partition, ascending, and for read_committed all to its end: later
    indexes decide about transactions in the range. Undecided offsets must not be requested: see
    `pipeline.read.transactions.stable_end`.
    """
    if first_offset < 0:
        raise InvalidRequest(f"{first_offset} is not an offset", field="first_offset")
    slices: list[SegmentSlice] = []
    later: tuple[TieredSegment, ...] = ()
    behind_holes: tuple[int, ...] = ()
    behind: TieredSegment | None = None
    at_hole = False  # true if a hole follows `behind` directly
    for segment in reversed(segments):
        if behind is not None and isolation is Isolation.READ_COMMITTED:
            hole = segment.last_offset + 1 < behind.first_offset
            if hole or at_hole or not behind.txn_index_empty:
                later = (behind, *later[: LATER_MAX - 1])
            if hole:
                behind_holes = (behind.first_offset, *behind_holes[: LATER_MAX - 1])
            at_hole = hole
        first = max(first_offset, segment.first_offset)
        last = min(last_offset, segment.last_offset)
        if first <= last:
            slices.append(SegmentSlice(segment, first, last, later, behind_holes))
        behind = segment
    return slices[::-1]


def cut(part: SegmentSlice, first_offset: int, last_offset: int) -> SegmentSlice:
    """The offsets of a slice that lie in a range, for tasks smaller than a segment."""
    return replace(
        part,
        first_offset=max(part.first_offset, first_offset),
        last_offset=min(part.last_offset, last_offset),
    )
