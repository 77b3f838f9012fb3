"""Checks every length in a frame against the bytes that are present, before kio decodes it.

kio allocates an array before it reads the first element, of the length that the frame announces: a
malformed length requests more memory than the machine has, and the process is aborted. Here the
frame is walked by the same schema without building anything, and an element takes at least one
byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from kio.static.protocol import Entity

_FIXED_BYTES = {
    "int8": 1, "uint8": 1, "bool": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4,
    "uint32": 4, "timedelta_i32": 4, "int64": 8, "uint64": 8, "float64": 8, "timedelta_i64": 8,
    "datetime_i64": 8, "uuid": 16,
}  # fmt: skip
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UVARINT_BYTES_MAX = 5
_ELEMENT_BYTES_MIN = 1

Skip = Callable[[bytes, int], int]
"""Takes a frame and the start of a value; returns its end."""


class FrameError(ValueError):
    """A length that does not fit the frame, or a field unknown to kio."""


def frame_end(entity: type[Entity], frame: bytes, at: int) -> int:
    """The end of the `entity` that starts at `at`. FrameError: it does not fit."""
    return _bounded(frame, _skip_entity(entity)(frame, at))


@cache
def _skip_entity(entity: type[Entity]) -> Skip:
    plain: list[Skip] = []
    tagged: dict[int, Skip] = {}
    for each in fields(entity):
        skip = _skip_field(each, flexible=entity.__flexible__)
        if "tag" in each.metadata:
            tagged[each.metadata["tag"]] = skip
        else:
            plain.append(skip)
    if entity.__flexible__:
        plain.append(_skip_tagged_fields(entity.__name__, tagged))

    def skip_all(frame: bytes, at: int) -> int:
        for skip in plain:
            at = skip(frame, at)
        return at

    return skip_all


def _skip_field(each: Field[Any], *, flexible: bool) -> Skip:
    kind, nullable = _without_none(each.type)
    if get_origin(kind) is tuple:
        element, _ = _without_none(get_args(kind)[0])
        return _skip_array(_skip_single(each, element, flexible, nullable=False), flexible)
    return _skip_single(each, kind, flexible, nullable)


def _skip_single(each: Field[Any], kind: Any, flexible: bool, nullable: bool) -> Skip:
    if is_dataclass(kind):
        skip = _skip_entity(kind)  # type: ignore[arg-type]  # every dataclass of a schema is one
        return _skip_nullable_entity(skip) if nullable else skip
    kafka_type = each.metadata["kafka_type"]
    fixed = _FIXED_BYTES.get(kafka_type)
    if fixed is not None:
        return lambda _, at: at + fixed
    if flexible:
        return _skip_compact_bytes
    return _skip_string if kafka_type == "string" else _skip_bytes


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) is UnionType:
        return next(each for each in get_args(kind) if each is not NoneType), True
    return kind, False


def _skip_array(skip_element: Skip, flexible: bool) -> Skip:
    def skip(frame: bytes, at: int) -> int:
        if flexible:
            count, at = _uvarint(frame, at)
            count -= 1
        else:
            count, at = _unpack(_INT32, frame, at)
        if count * _ELEMENT_BYTES_MIN > len(frame) - at:
            raise FrameError(f"{count} elements are announced in {len(frame) - at} bytes")
        for _ in range(count):
            at = _bounded(frame, skip_element(frame, at))
        return at

    return skip


def _skip_nullable_entity(skip_present: Skip) -> Skip:
    def skip(frame: bytes, at: int) -> int:
        marker = frame[_bounded(frame, at + 1) - 1]
        return skip_present(frame, at + 1) if marker == 1 else at + 1

    return skip


def _skip_tagged_fields(name: str, known: Mapping[int, Skip]) -> Skip:
    def skip(frame: bytes, at: int) -> int:
        count, at = _uvarint(frame, at)
        for _ in range(count):
            tag, at = _uvarint(frame, at)
            size, at = _uvarint(frame, at)
            end = _bounded(frame, at + size)
            if tag not in known:
                raise FrameError(f"{name} has the unknown tagged field {tag}")
            if known[tag](frame, at) != end:
                raise FrameError(f"tagged field {tag} of {name} is not {size} bytes long")
            at = end
        return at

    return skip


def _skip_compact_bytes(frame: bytes, at: int) -> int:
    length, at = _uvarint(frame, at)
    return _bounded(frame, at + max(length - 1, 0))


def _skip_string(frame: bytes, at: int) -> int:
    length, at = _unpack(_INT16, frame, at)
    return _bounded(frame, at + max(length, 0))


def _skip_bytes(frame: bytes, at: int) -> int:
    length, at = _unpack(_INT32, frame, at)
    return _bounded(frame, at + max(length, 0))


def _unpack(layout: struct.Struct, frame: bytes, at: int) -> tuple[int, int]:
    end = _bounded(frame, at + layout.size)
    return layout.unpack_from(frame, at)[0], end


def _uvarint(frame: bytes, at: int) -> tuple[int, int]:
    value = 0
    for position in range(_UVARINT_BYTES_MAX):
        byte = frame[_bounded(frame, at + position + 1) - 1]
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, at + position + 1
    raise FrameError("a length has more than five bytes")


def _bounded(frame: bytes, end: int) -> int:
    if end > len(frame):
        raise FrameError(f"a value ends at byte {end} of {len(frame)}")
    return end
