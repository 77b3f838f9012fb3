"""What a task is given to read: a part of a segment, and how it shall be read. Pure: data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.tiered_segment import TieredSegment
from rlm.data_plane.read_request import Isolation

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""Those of a record without `headers`, in the order of Kafka's own data source."""

LATER_MAX = 64
"""Segments behind a slice that its task may look into for the end of its transactions.

A transaction is listed where its ABORT marker is. Brokers end transactions within minutes
(`transaction.max.timeout.ms`), so that more indexes than this are never needed, but for segments of
a few kilobytes.
"""


@dataclass(frozen=True, slots=True)
class SegmentSlice:
    """The offsets `first_offset` to `last_offset` (inclusive) of a segment. Picklable.

    `later`: for read_committed, the partition's segments behind this one that tell of its
    transactions, ascending: those that list aborted ones, and the two at the ends of each hole.
    `behind_holes` are the first offsets of those of them that stand right behind a hole.
    """

    segment: TieredSegment
    first_offset: int
    last_offset: int
    later: tuple[TieredSegment, ...] = ()
    behind_holes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """How slices are read. Picklable: it goes to tasks.

    `columns` are what the batches have, in this order; `headers` is one of them where it is asked
    for. `verify` holds objects against the checksums that we recorded of them, beside the CRC of
    every batch, which is always checked. Without `fail_on_data_loss` a segment that was deleted
    since the plan is passed over, and `on_lost` told. `aiven_keys` are PEM files, or folders of
    them, on the machine that reads: for segments that Aiven's plug-in encrypted. `batch_bytes_max`
    None: `RECORDS_BYTES_MAX` of the decoder.
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

    `segments` are those of one partition, ascending, and for read_committed all to its end: the
    indexes behind the range decide about it. What is not decided there must not be asked for: see
    `pipeline.read.transactions.stable_end`.
    """
    if first_offset < 0:
        raise InvalidRequest(f"{first_offset} is no offset", field="first_offset")
    slices: list[SegmentSlice] = []
    later: tuple[TieredSegment, ...] = ()
    behind_holes: tuple[int, ...] = ()
    behind: TieredSegment | None = None
    at_hole = False  # whether one is right behind `behind`
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
