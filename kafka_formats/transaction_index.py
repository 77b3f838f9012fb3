"""`.txnindex`: the aborted transactions whose marker lies in the segment.

34-byte entries in the order of their markers. Source: Kafka's TransactionIndex and AbortedTxn.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData, InvalidRequest

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """Records of `producer_id` in [first_offset, last_offset) that its marker aborted.

    `last_offset` is that of the marker; `last_stable_offset` was the partition's right after it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse(data: Buffer, *, source: str) -> tuple[AbortedTransaction, ...]:
    """Read the entries; an empty file is legal, anything malformed is CorruptData.

    Brokers before 2.8 listed transactions without records, too (KAFKA-10702): their first offset is
    that of the marker. These abort nothing, and are left out.
    """
    if len(data) % _ENTRY.size:
        raise CorruptData(
            f"a transaction index has entries of {_ENTRY.size} bytes, and the file has {len(data)}",
            source=source,
            position=len(data) - len(data) % _ENTRY.size,
        )
    entries: list[AbortedTransaction] = []
    marker = -1
    for number, (version, producer_id, first, last, stable) in enumerate(_ENTRY.iter_unpack(data)):
        position = number * _ENTRY.size
        if version != _VERSION:
            raise CorruptData(
                f"a transaction index entry has the unknown version {version}",
                source=source,
                position=position,
            )
        without_records = first == last and (last > 0 or stable > 0)  # zeros are no entry
        if (
            producer_id < 0
            or stable < 0
            or not (0 <= first < last or without_records)
            or last <= marker
        ):
            raise CorruptData(
                f"an impossible aborted transaction: producer {producer_id}, offsets {first} to "
                f"{last}, last stable offset {stable}, after a marker at {marker}",
                source=source,
                position=position,
            )
        marker = last
        if not without_records:
            entries.append(AbortedTransaction(producer_id, first, last, stable))
    return tuple(entries)


def encode(entries: Iterable[AbortedTransaction]) -> bytes:
    """Write entries; one that does not fit is an InvalidRequest."""
    try:
        return b"".join(
            _ENTRY.pack(
                _VERSION,
                entry.producer_id,
                entry.first_offset,
                entry.last_offset,
                entry.last_stable_offset,
            )
            for entry in entries
        )
    except struct.error as error:
        raise InvalidRequest(f"a transaction index entry does not fit ({error})") from error


def collect(
    entries: Iterable[AbortedTransaction], fetch_offset: int, upper_bound_offset: int
) -> tuple[tuple[AbortedTransaction, ...], bool]:
    """Aborted transactions touching [fetch_offset, upper_bound_offset), and True if these are all.

    False means that an index of a later segment may hold more: a transaction is listed where its
    marker is, not where its records are.
    """
    found: list[AbortedTransaction] = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound_offset:
            return tuple(found), True
    return tuple(found), False
