"""`<offset>.snapshot`: the state of all producers of a partition up to that offset, exclusive.

int16 version, CRC-32C of all that follows it, int32 count, 46 bytes an entry. Source: Kafka's
ProducerStateManager.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

from kafka_formats.crc32c import Buffer, crc32c
from kafka_formats.errors import CorruptData, InvalidRequest

_VERSION = 1
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_ENTRIES_AT = _PREFIX.size + _COUNT.size


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer's state, from which a broker refuses duplicates and finds open transactions.

    `last_sequence`, `last_offset` and `timestamp_ms` are those of its last batch, whose offsets
    span `offset_delta`. `current_txn_first_offset` is -1 without an open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


class OpenTransaction(NamedTuple):
    """A transaction without a marker yet, and the offset where it began."""

    producer_id: int
    first_offset: int


def parse(data: Buffer, *, source: str) -> tuple[ProducerState, ...]:
    """Read a snapshot. An empty file is CorruptData, as everywhere in Kafka."""
    return tuple(ProducerState(*fields) for fields in _ENTRY.iter_unpack(_entries(data, source)))


def parse_open(data: Buffer, *, source: str) -> frozenset[OpenTransaction]:
    """Read only the open transactions: a snapshot may have 100,000 producers, only a few of which
    are in a transaction.
    """
    return frozenset(
        OpenTransaction(fields[0], fields[-1])
        for fields in _ENTRY.iter_unpack(_entries(data, source))
        if fields[-1] >= 0
    )


def _entries(data: Buffer, source: str) -> memoryview:
    """The bytes of the entries. CorruptData if size, version, CRC or count of the file is wrong."""
    if len(data) < _ENTRIES_AT:
        raise CorruptData(
            f"a producer snapshot has at least {_ENTRIES_AT} bytes, and the file has {len(data)}",
            source=source,
            position=len(data),
        )
    version, stored_crc = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise CorruptData(
            f"a producer snapshot of the unknown version {version}", source=source, position=0
        )
    view = memoryview(data)
    computed_crc = crc32c(view[_PREFIX.size :])
    if computed_crc != stored_crc:
        raise CorruptData(
            f"the producer snapshot fails its CRC: {stored_crc:#010x} is stored, "
            f"{computed_crc:#010x} computed",
            source=source,
            position=2,
        )
    count = _COUNT.unpack_from(data, _PREFIX.size)[0]
    if count * _ENTRY.size != len(data) - _ENTRIES_AT:
        raise CorruptData(
            f"{count} producers are announced in {len(data) - _ENTRIES_AT} bytes",
            source=source,
            position=_PREFIX.size,
        )
    return view[_ENTRIES_AT:]


def ending_at(data: Buffer, end: int) -> list[bytes]:
    """The snapshots within `data` that end there: by version, count and CRC."""
    found = []
    for count, start in enumerate(range(end - _ENTRIES_AT, -1, -_ENTRY.size)):
        version, stored_crc = _PREFIX.unpack_from(data, start)
        counted = memoryview(data)[start + _PREFIX.size : end]
        if version != _VERSION or _COUNT.unpack_from(counted)[0] != count:
            continue
        if crc32c(counted) == stored_crc:
            found.append(bytes(data[start:end]))
    return found


def open_transactions(entries: Iterable[ProducerState]) -> frozenset[OpenTransaction]:
    """The open transactions of producers that were already read."""
    return frozenset(
        OpenTransaction(entry.producer_id, entry.current_txn_first_offset)
        for entry in entries
        if entry.current_txn_first_offset >= 0
    )


def encode(entries: Sequence[ProducerState]) -> bytes:
    """Write a snapshot; an entry that does not fit is an InvalidRequest."""
    try:
        checked = _COUNT.pack(len(entries)) + b"".join(
            _ENTRY.pack(*astuple(entry)) for entry in entries
        )
    except struct.error as error:
        raise InvalidRequest(f"a producer snapshot entry does not fit ({error})") from error
    return _PREFIX.pack(_VERSION, crc32c(checked)) + checked


def first_unstable_offset(entries: Iterable[ProducerState]) -> int | None:
    """First offset of the earliest open transaction as of the snapshot; None if none is open."""
    return min(
        (
            entry.current_txn_first_offset
            for entry in entries
            if entry.current_txn_first_offset >= 0
        ),
        default=None,
    )
