"""The next transaction that brings the metadata topic after the metadata log. Pure.

Kafka's own manager reads uncommitted records, so what stands in the topic counts, whether its
transaction was committed, aborted or never ended. Each record that is written here names the
metadata offset of the row it was made from. In each partition of the topic these ascend, and the
last one found there is where the next writer resumes: a row at or below it is written, one above is
not. A row that was written twice could bring a segment back whose deletion is finished, one that is
left out could hide a segment for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from kafka_formats.errors import InternalError

HEADER = "strandline.metadata.offset"
"""The header with the metadata offset, eight bytes, big-endian."""
FILLER_HEADER = "strandline.filler"
"""The header of a record that says nothing, so that a partition does not end with a marker."""
_HEADER_BYTES = 8
NONE_WRITTEN = -1


@dataclass(frozen=True, slots=True)
class ShadowRow:
    """A change that is to be in the topic: metadata offset, time of its batch in the metadata log,
    the topic's partition, and the record's value.
    """

    offset: int
    timestamp_ms: int
    partition: int
    value: bytes


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record of the topic: its offset there, and the metadata offset that it names; None: it was
    not written by a shadow.
    """

    topic_offset: int
    metadata_offset: int | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Tail:
    """A partition of the topic, read up to `next_offset`, exclusive. `last_read` is the highest
    metadata offset found below that, `last` the highest that is there: own writes are known before
    they are read.
    """

    next_offset: int = 0
    last_read: int = NONE_WRITTEN
    last: int = NONE_WRITTEN


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Bounds of one transaction, and of the rows that are looked at for it."""

    rows_max: int = 1_000
    bytes_max: int = 512 * 1024
    looked_at_max: int = 5_000


@dataclass(frozen=True, slots=True)
class ReadTail:
    """Result of reading on. `foreign` is the first record that no shadow wrote, `disorder` the
    first whose metadata offset is not above the one before.
    """

    tail: Tail
    foreign: FoundRecord | None = None
    disorder: FoundRecord | None = None


@dataclass(frozen=True, slots=True)
class Transaction:
    """Rows to be written, by the topic's partition, ascending. `written_up_to`: every row at or
    below it is in the topic already; None: the lowest one is not. `hides_others`: these are as many
    as are looked at, so others behind them are not seen until a report removes them.
    """

    rows: Mapping[int, Sequence[ShadowRow]] = field(default_factory=dict)
    written_up_to: int | None = None
    hides_others: bool = False


def header_value(metadata_offset: int) -> bytes:
    """The header's value."""
    return metadata_offset.to_bytes(_HEADER_BYTES, "big", signed=True)


def metadata_offset_in(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    """The metadata offset in a record's headers; None: it has none that is well-formed."""
    for key, value in headers:
        if key == HEADER and value is not None and len(value) == _HEADER_BYTES:
            return int.from_bytes(value, "big", signed=True)
    return None


def tail_after(tail: Tail, records: Iterable[FoundRecord], next_offset: int) -> ReadTail:
    """The tail after more records of its partition, whatever became of their transactions."""
    last, foreign, disorder = tail.last_read, None, None
    for found in records:
        if found.metadata_offset is None:
            foreign = foreign or found
        elif found.metadata_offset <= last:
            disorder = disorder or found
        else:
            last = found.metadata_offset
    return ReadTail(Tail(next_offset, last, max(last, tail.last)), foreign, disorder)


def differing(
    records: Iterable[FoundRecord], kept: Callable[[int], bytes | None]
) -> FoundRecord | None:
    """The first record that is another one than the row of the same metadata offset, where such a
    row is kept: it comes from a history that the metadata log has lost.
    """
    for found in records:
        if found.metadata_offset is not None:
            value = kept(found.metadata_offset)
            if value is not None and value != found.value:
                return found
    return None


def next_transaction(
    rows: Iterable[ShadowRow], tails: Mapping[int, Tail], limits: TransactionLimits
) -> Transaction:
    """The next rows to write of `rows`, which ascend and begin at the lowest one that is kept.
    Partitions without a tail can't be written now: their rows wait, those of others don't.
    """
    chosen: dict[int, list[ShadowRow]] = {}
    count = size_bytes = looked_at = 0
    written_up_to: int | None = None
    all_written, before = True, NONE_WRITTEN
    for row in islice(rows, limits.looked_at_max):
        if row.offset <= before:
            raise InternalError(f"row {row.offset} of the shadow follows {before}")
        before = row.offset
        looked_at += 1
        tail = tails.get(row.partition)
        if tail is not None and row.offset <= tail.last:
            written_up_to = row.offset if all_written else written_up_to
            continue
        all_written = False
        if tail is None:
            continue
        if count and size_bytes + len(row.value) > limits.bytes_max:
            break
        chosen.setdefault(row.partition, []).append(row)
        count += 1
        size_bytes += len(row.value)
        if count >= limits.rows_max:
            break
    return Transaction(chosen, written_up_to, all_written and looked_at == limits.looked_at_max)


def after_writing(tails: Mapping[int, Tail], written: Transaction) -> dict[int, Tail]:
    """The tails once a transaction is committed."""
    after = dict(tails)
    for partition, rows in written.rows.items():
        after[partition] = replace(after[partition], last=rows[-1].offset)
    return after


def lost_records(tail: Tail, *, start: int, end: int) -> str | None:
    """The reason why a partition that goes from `start` to `end`, exclusive, is not the one that
    was read up to `tail` any more; None: it is.
    """
    if start > 0:
        return (
            f"it begins at offset {start}: the records before are gone (retention, DeleteRecords)"
        )
    if end < tail.next_offset:
        return (
            f"it ends at offset {end}, and had records up to {tail.next_offset}: they were lost "
            "(an unclean election), or the topic was made anew"
        )
    return None
