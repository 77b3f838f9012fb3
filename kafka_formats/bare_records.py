"""A fast codec for batches of bare records (no key, no headers, the batch's own time), as every
producer of the metadata log writes them, and of control records that share one key, as its
snapshots have them. Batches that differ in any byte are left to `record_batch`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from kafka_formats import varints
from kafka_formats.record_batch import HEADER_BYTES, BatchHeader, seal_batch

_CONTROL = 0x20
_NO_BARE_RECORD = 0x07 | _CONTROL  # a codec, control records
CONTROL_KEY_BYTES = 4
_FIRST_OF_CONTROL = bytes(
    (0, 0, 0, CONTROL_KEY_BYTES << 1)
)  # attributes, time and offset as the batch's, the key's length
_FRONTS_KEPT = 2_048
_WRITTEN_KEPT = 2_048


def bare_values(data: bytes, header: BatchHeader) -> list[bytes] | None:
    """The values of a whole batch of bare records, neither compressed nor control, at neighbouring
    offsets from the batch's on. None for any other batch: read it the general way.
    """
    if header.attributes & _NO_BARE_RECORD:
        return None
    return _values(data, header, None)


def control_values(data: bytes, header: BatchHeader) -> tuple[bytes, list[bytes]] | None:
    """The key and the values of a whole batch of two or more control records that share one key of
    the usual size; otherwise as `bare_values`. None for any other batch: read it the general way.
    """
    if header.attributes & _NO_BARE_RECORD != _CONTROL or header.record_count < 2:
        return None
    try:
        _, at = varints.read_varint(data, HEADER_BYTES)
    except varints.MalformedError:
        return None
    key = data[at + len(_FIRST_OF_CONTROL) : at + len(_FIRST_OF_CONTROL) + CONTROL_KEY_BYTES]
    if len(key) != CONTROL_KEY_BYTES or not data.startswith(_FIRST_OF_CONTROL, at):
        return None
    values = _values(data, header, key)
    return None if values is None else (key, values)


def _values(data: bytes, header: BatchHeader, key: bytes | None) -> list[bytes] | None:
    """The values of a batch whose body `_records` wrote with this key; None for any other."""
    count = header.record_count
    if count < 1 or len(data) != header.size_bytes:
        return None
    fronts: Iterable[bytes] = _fronts(key)
    if count > _FRONTS_KEPT:
        fronts = (_front(index, key) for index in range(count))
    values = []
    at = HEADER_BYTES
    try:
        for _, front in zip(range(count), fronts, strict=False):
            size, at = varints.read_varint(data, at)
            end = at + size
            if not data.startswith(front, at):
                return None
            length, at = varints.read_varint(data, at + len(front))
            # The record ends with the number of headers, 0.
            if length < 0 or at + length + 1 != end or data[at + length]:
                return None
            values.append(data[at : at + length])
            at = end
    except (IndexError, varints.MalformedError):
        return None
    return values if at == len(data) else None


def encode_bare_values(
    values: Sequence[bytes], *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    """Encode a batch of bare records with these values (at least one) at neighbouring offsets, to
    the same bytes as `encode_batch`. InvalidRequest if a number does not fit its field.
    """
    body = _records(values, None)
    return _sealed(0, body, len(values), base_offset, leader_epoch, timestamp_ms)


def encode_control_values(
    values: Sequence[bytes],
    *,
    key: bytes,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
) -> bytes:
    """Encode a batch of control records that share one key; otherwise as `encode_bare_values`."""
    body = _records(values, key)
    return _sealed(_CONTROL, body, len(values), base_offset, leader_epoch, timestamp_ms)


def _records(values: Sequence[bytes], key: bytes | None) -> bytes:
    fronts: Iterable[bytes] = _fronts(key)
    if len(values) > _FRONTS_KEPT:
        fronts = (_front(index, key) for index in range(len(values)))
    parts: list[bytes] = []
    for front, value in zip(fronts, values, strict=False):
        number = len(value)
        length = _WRITTEN[number] if number < _WRITTEN_KEPT else _written(number)
        number += len(front) + len(length) + 1
        size = _WRITTEN[number] if number < _WRITTEN_KEPT else _written(number)
        parts += (size, front, length, value, b"\0")
    return b"".join(parts)


def _sealed(
    attributes: int,
    body: bytes,
    count: int,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
) -> bytes:
    fields = (attributes, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count)
    return seal_batch(fields, body, base_offset=base_offset, leader_epoch=leader_epoch)


def _written(number: int) -> bytes:
    out = bytearray()
    varints.write(out, number)
    return bytes(out)


_WRITTEN = tuple(map(_written, range(_WRITTEN_KEPT)))


def _front(index: int, key: bytes | None) -> bytes:
    """The bytes of a record between its size and its value's length."""
    front = bytearray(2)  # attributes, and the batch's time
    varints.write(front, index)
    varints.write_bytes(front, key)
    return bytes(front)


@lru_cache(maxsize=64)  # more than there are types of control records
def _fronts(key: bytes | None) -> tuple[bytes, ...]:
    return tuple(_front(index, key) for index in range(_FRONTS_KEPT))
