"""Plans the next transaction that writes changes of the metadata log to the metadata topic. Pure.

Kafka's own manager reads uncommitted records, so every record in the topic counts, regardless of
the end of its transaction. Each record of the shadow has the metadata offset of its row in a
header. In each partition of the topic these ascend, and the next writer resumes after the last one:
rows at or below it are written, rows above it are not. A row that is written twice could bring back
a segment whose deletion is finished; a row that is left out could hide a segment for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from kafka_formats.errors import InternalError

HEADER = "strandline.metadata.offset"
"""Name of the header with the metadata offset: eight bytes, big-endian."""
FILLER_HEADER = "strandline.filler"
"""Name of the header of a filler, a record that only keeps a partition from ending with a
marker.
"""
_HEADER_BYTES = 8
NONE_WRITTEN = -1


@dataclass(frozen=True, slots=True)
class ShadowRow:
    """A change to write to the topic: its metadata offset, the time of its batch in the metadata
    log, the topic's partition, and the record's value.
    """

    offset: int
    timestamp_ms: int
    partition: int
    value: bytes


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record of the topic: its offset there, and the metadata offset in its header; None if no
    shadow wrote it.
    """

    topic_offset: int
    metadata_offset: int | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Tail:
    """A partition of the topic, read up to `next_offset` (exclusive). `last_read` is the highest
    metadata offset that was read; `last` includes this node's writes that were not read back yet.
    """

    next_offset: int = 0
    last_read: int = NONE_WRITTEN
    last: int = NONE_WRITTEN


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """The limits of one transaction, and of the rows that are examined for it."""

    rows_max: int = 1_000
    bytes_max: int = 512 * 1024
    looked_at_max: int = 5_000


@dataclass(frozen=True, slots=True)
class ReadTail:
    """The tail after more records. `foreign` is the first record that no shadow wrote, `disorder`
    the first whose metadata offset is not above that of the one before.
    """

    tail: Tail
    foreign: FoundRecord | None = None
    disorder: FoundRecord | None = None


@dataclass(frozen=True, slots=True)
class Transaction:
    """The rows to write, by the topic's partition, ascending. `written_up_to`: every row at or
    below it is in the topic; None if the lowest row is not. `hides_others`: all examined rows are
    written, so that further rows are not seen until a report removes these.
    """

    rows: Mapping[int, Sequence[ShadowRow]] = field(default_factory=dict)
    written_up_to: int | None = None
    hides_others: bool = False


def header_value(metadata_offset: int) -> bytes:
    """The value of the header for this metadata offset."""
    return metadata_offset.to_bytes(_HEADER_BYTES, "big", signed=True)


def metadata_offset_in(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    """The metadata offset in a record's headers; None if there is no well-formed one."""
    for key, value in headers:
        if key == HEADER and value is not None and len(value) == _HEADER_BYTES:
            return int.from_bytes(value, "big", signed=True)
    return None


def tail_after(tail: Tail, records: Iterable[FoundRecord], next_offset: int) -> ReadTail:
    """The tail after more records of its partition, including those of aborted transactions."""
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
    """The first record whose value differs from that of the kept row of its metadata offset, if
    there is such a row: the record is from a history that the metadata log has lost.
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
    """The next rows to write. `rows` ascend and begin at the lowest kept one. Partitions without a
    tail can't be written now; their rows wait, those of other partitions don't.
    """
    chosen: dict[int, list[ShadowRow]] = {}
    count = size_bytes = looked_at = 0
    written_up_to: int | None = None
    all_written, before = True, NONE_WRITTEN
    for row in islice(rows, limits.looked_at_max):
        if row.offset <= before:
            raise InternalError(f"row {row.offset} of the shadow comes after row {before}")
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
    """The tails after the transaction was committed."""
    after = dict(tails)
    for partition, rows in written.rows.items():
        after[partition] = replace(after[partition], last=rows[-1].offset)
    return after


def lost_records(tail: Tail, *, start: int, end: int) -> str | None:
    """The reason why a partition with the offsets [start, end) is no longer the one that was read
    up to `tail`; None if it is.
    """
    if start > 0:
        return (
            f"it begins at offset {start}: earlier records were deleted (retention, DeleteRecords)"
        )
    if end < tail.next_offset:
        return (
            f"it ends at offset {end}, but had records up to {tail.next_offset}: they were lost "
            "(an unclean election), or the topic was recreated"
        )
    return None
