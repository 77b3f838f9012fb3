"""Kafka's messages as plain data, read and written by kio's schemas. Pure.

A message is a dict by kio's field names: integers (times in milliseconds, error codes by number),
text, bytes (records, and uuids as 16 bytes), lists of dicts. Fields that a version lacks are not
written, missing values have the schema's default, so one function can answer every version.

kio itself writes slowly, refuses unknown tagged fields where Kafka skips them, and allocates as
many elements as a length announces. Here every length is first compared with the bytes that are
present, and unknown tagged fields are skipped (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.static.protocol import Entity

from kafka_client.frame_check import FrameError

ELEMENTS_MAX = 200
"""The most elements of one array. The longest arrays of real messages are lists of replicas or of
API versions.
"""


class Elsewhere:
    """Bytes of a message that are sent separately: only their size is written. `at` is their
    position in the bytes that were written.
    """

    __slots__ = ("at", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.at = -1

    def __len__(self) -> int:
        return self.size_bytes


Values = dict[str, Any]
Read = Callable[[bytes, int], tuple[Any, int]]
Write = Callable[[bytearray, Any], None]

_FIXED = {
    "int8": ">b", "uint8": ">B", "bool": ">?", "int16": ">h", "uint16": ">H", "error_code": ">h",
    "int32": ">i", "uint32": ">I", "timedelta_i32": ">i", "int64": ">q", "uint64": ">Q",
    "float64": ">d", "timedelta_i64": ">q", "datetime_i64": ">q", "uuid": ">16s",
}  # fmt: skip
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UVARINT_BYTES_MAX = 5
_NO_UUID = bytes(16)


def load(entity: type[Entity]) -> None:
    """Compile a schema now instead of at its first use."""
    _codec(entity)


def read(
    entity: type[Entity], frame: bytes, at: int, elements_max: int = ELEMENTS_MAX
) -> tuple[Values, int]:
    """The message that starts at `at`, and its end (exclusive). FrameError: malformed."""
    values: Values
    values, end = _codec(entity, elements_max)[0](frame, at)
    return values, end


def write(entity: type[Entity], into: bytearray, values: Mapping[str, Any]) -> None:
    """Append a message; values that the version lacks are left out."""
    _codec(entity)[1](into, values)


def read_uvarint(frame: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint, and its end (exclusive)."""
    value = 0
    for position in range(at, at + _UVARINT_BYTES_MAX):
        if position >= len(frame):
            raise FrameError(f"a length is missing at byte {position}")
        byte = frame[position]
        value |= (byte & 0x7F) << (7 * (position - at))
        if byte < 0x80:
            return value, position + 1
    raise FrameError(f"a length at byte {at} has more than five bytes")


def write_uvarint(into: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value >= 0x80:
        into.append(value & 0x7F | 0x80)
        value >>= 7
    into.append(value)


TAGGED_FIELDS_MAX = 64
"""The most tagged fields of one header or structure; Kafka's have up to six. Reading thousands
would block the event loop.
"""


def read_client_id(frame: bytes, at: int) -> tuple[str | None, int]:
    """The client id, a nullable string in request headers of every version, and its end."""
    text, end = _string(flexible=False, nullable=True)[0](frame, at)
    return text, end


def skip_tagged_fields(frame: bytes, at: int) -> int:
    """The end of the tagged fields that start at `at`; all are skipped."""
    return _read_tagged({}, frame, at, {})


@cache
def _codec(entity: type[Entity], elements_max: int = ELEMENTS_MAX) -> tuple[Read, Write]:
    plain: list[tuple[str, Any, Read, Write]] = []
    tagged: dict[int, tuple[str, Any, Read, Write]] = {}
    for each in fields(entity):
        field_codec = (each.name, _default(each), *_field(each, entity.__flexible__, elements_max))
        if "tag" in each.metadata:
            tagged[int(each.metadata["tag"])] = field_codec
        else:
            plain.append(field_codec)
    flexible = entity.__flexible__
    by_tag = {tag: (name, read_one) for tag, (name, _, read_one, _) in tagged.items()}

    def read_entity(frame: bytes, at: int) -> tuple[Values, int]:
        values: Values = {}
        for name, _, read_one, _ in plain:
            values[name], at = read_one(frame, at)
        if flexible:
            for name, default, _, _ in tagged.values():
                values[name] = default
            at = _read_tagged(by_tag, frame, at, values)
        return values, at

    def write_entity(into: bytearray, values: Mapping[str, Any]) -> None:
        for name, default, _, write_one in plain:
            write_one(into, values.get(name, default))
        if flexible:
            _write_tagged(into, sorted(tagged.items()), values)

    return read_entity, write_entity


def _read_tagged(
    known: Mapping[int, tuple[str, Read]], frame: bytes, at: int, values: Values
) -> int:
    count, at = read_uvarint(frame, at)
    if count > TAGGED_FIELDS_MAX:
        raise FrameError(f"{count} tagged fields, {TAGGED_FIELDS_MAX} are read at most")
    for _ in range(count):
        tag, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        end = _bounded(frame, at + size)
        if tag in known:
            name, read_one = known[tag]
            values[name], read_to = read_one(frame, at)
            if read_to != end:
                raise FrameError(f"tagged field {tag} is not {size} bytes long")
        at = end
    return at


def _write_tagged(
    into: bytearray, tagged: list[tuple[int, tuple[str, Any, Read, Write]]], values: Values | Any
) -> None:
    given = [
        (tag, write_one, values[name])
        for tag, (name, default, _, write_one) in tagged
        if values.get(name, default) != default
    ]
    write_uvarint(into, len(given))
    for tag, write_one, value in given:
        content = bytearray()
        write_one(content, value)
        write_uvarint(into, tag)
        write_uvarint(into, len(content))
        into += content


def _field(each: Field[Any], flexible: bool, elements_max: int) -> tuple[Read, Write]:
    kind, nullable = _without_none(each.type)
    array = get_origin(kind) is tuple
    element, element_nullable = (
        (_without_none(get_args(kind)[0])[0], False) if array else (kind, nullable)
    )
    if is_dataclass(element):
        # Every dataclass of a schema is an Entity.
        nested = _codec(element, elements_max)  # type: ignore[arg-type]
        single = _nullable_entity(nested) if element_nullable else nested
    else:
        single = _single(each, flexible, element_nullable)
    return _array(single, flexible, nullable, elements_max) if array else single


def _single(each: Field[Any], flexible: bool, nullable: bool) -> tuple[Read, Write]:
    kafka_type = each.metadata["kafka_type"]
    if kafka_type in _FIXED:
        return _fixed(struct.Struct(_FIXED[kafka_type]))
    if kafka_type == "string":
        return _string(flexible=flexible, nullable=nullable)
    return _bytes(flexible=flexible, nullable=nullable)


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) is UnionType:
        return next(each for each in get_args(kind) if each is not NoneType), True
    return kind, False


def _default(each: Field[Any]) -> Any:
    """The schema's default as plain data, else the initial value in Kafka's generated classes."""
    if each.default is not MISSING:
        return _plain(each.default, each)
    kind, nullable = _without_none(each.type)
    if each.metadata.get("kafka_type") == "uuid" and get_origin(kind) is not tuple:
        return _NO_UUID
    if nullable:
        return None
    if get_origin(kind) is tuple:
        return []
    if is_dataclass(kind):
        return {one.name: _default(one) for one in fields(kind)}
    kafka_type = each.metadata["kafka_type"]
    if kafka_type in _FIXED:
        return 0
    return "" if kafka_type == "string" else b""


def _plain(value: Any, each: Field[Any]) -> Any:
    if value is None:
        kind = each.metadata.get("kafka_type")
        return _NO_UUID if kind == "uuid" else -1 if kind in _FIXED else None
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, tuple):
        return [_plain(element, each) for element in value]
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name), one) for one in fields(value)}
    return value


def _fixed(layout: struct.Struct) -> tuple[Read, Write]:
    size = layout.size

    def read_fixed(frame: bytes, at: int) -> tuple[Any, int]:
        end = at + size
        if end > len(frame):
            raise FrameError(f"a value ends at byte {end} of {len(frame)}")
        return layout.unpack_from(frame, at)[0], end

    def write_fixed(into: bytearray, value: Any) -> None:
        into += layout.pack(value)

    return read_fixed, write_fixed


def _sized(*, flexible: bool, short: bool, nullable: bool) -> tuple[Read, Write]:
    """Bytes with their length before them: a compact length, an int16 or an int32."""
    layout = _INT16 if short else _INT32

    def read_sized(frame: bytes, at: int) -> tuple[bytes | None, int]:
        if flexible:
            length, at = read_uvarint(frame, at)
            length -= 1
        else:
            end = _bounded(frame, at + layout.size)
            length, at = layout.unpack_from(frame, at)[0], end
        if length < 0:
            if not nullable:
                raise FrameError(f"a value is null before byte {at}, where null is not allowed")
            return None, at
        end = _bounded(frame, at + length)
        return frame[at:end], end

    def write_sized(into: bytearray, value: bytes | Elsewhere | None) -> None:
        length = -1 if value is None else len(value)
        if flexible:
            write_uvarint(into, length + 1)
        else:
            into += layout.pack(length)
        if isinstance(value, Elsewhere):
            value.at = len(into)
        elif value is not None:
            into += value

    return read_sized, write_sized


def _bytes(*, flexible: bool, nullable: bool) -> tuple[Read, Write]:
    return _sized(flexible=flexible, short=False, nullable=nullable)


@cache
def _string(*, flexible: bool, nullable: bool) -> tuple[Read, Write]:
    read_raw, write_raw = _sized(flexible=flexible, short=True, nullable=nullable)

    def read_text(frame: bytes, at: int) -> tuple[str | None, int]:
        raw, end = read_raw(frame, at)
        try:
            return None if raw is None else raw.decode(), end
        except UnicodeDecodeError as error:
            raise FrameError(f"a text at byte {at} is not UTF-8") from error

    def write_text(into: bytearray, value: str | None) -> None:
        write_raw(into, None if value is None else value.encode())

    return read_text, write_text


def _array(
    element: tuple[Read, Write], flexible: bool, nullable: bool, elements_max: int
) -> tuple[Read, Write]:
    read_element, write_element = element

    def read_array(frame: bytes, at: int) -> tuple[list[Any] | None, int]:
        if flexible:
            count, at = read_uvarint(frame, at)
            count -= 1
        else:
            end = _bounded(frame, at + _INT32.size)
            count, at = _INT32.unpack_from(frame, at)[0], end
        if count < 0:
            if not nullable:
                raise FrameError(f"a list is null before byte {at}, where null is not allowed")
            return None, at
        if count > min(len(frame) - at, elements_max):
            raise FrameError(
                f"{count} elements are announced in {len(frame) - at} bytes; at most "
                f"{elements_max} are accepted"
            )
        found = []
        for _ in range(count):
            value, at = read_element(frame, at)
            found.append(value)
        return found, at

    def write_array(into: bytearray, value: Any) -> None:
        count = -1 if value is None else len(value)
        if flexible:
            write_uvarint(into, count + 1)
        else:
            into += _INT32.pack(count)
        for each in value or ():
            write_element(into, each)

    return read_array, write_array


def _nullable_entity(present: tuple[Read, Write]) -> tuple[Read, Write]:
    read_present, write_present = present

    def read_nullable(frame: bytes, at: int) -> tuple[Values | None, int]:
        marker = frame[_bounded(frame, at + 1) - 1]
        return read_present(frame, at + 1) if marker == 1 else (None, at + 1)

    def write_nullable(into: bytearray, value: Any) -> None:
        into += b"\xff" if value is None else b"\x01"
        if value is not None:
            write_present(into, value)

    return read_nullable, write_nullable


def _bounded(frame: bytes, end: int) -> int:
    if end > len(frame):
        raise FrameError(f"a value ends at byte {end} of {len(frame)}")
    return end
