"""Keys of control records: transaction markers and the metadata quorum's own records.

Source: Kafka's ControlRecordType. The key is int16 version and int16 type;
a reader skips types that it does not know, and keys may grow in later versions.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from kafka_formats.errors import CorruptData, InvalidRequest

_KEY = struct.Struct(">hh")


class ControlType(IntEnum):
    """Kafka's control record types."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_key(type_: int, version: int = 0) -> bytes:
    """The key of a control record."""
    try:
        return _KEY.pack(version, type_)
    except struct.error as error:
        raise InvalidRequest(f"control record type {type_} does not fit ({error})") from error


def parse_control_key(key: bytes | None, *, source: str, position: int) -> int:
    """The type in a control record's key, known or not; CorruptData if there is no such key."""
    if key is None or len(key) < _KEY.size:
        raise CorruptData("a control record lacks its key", source=source, position=position)
    type_: int = _KEY.unpack_from(key)[1]
    return type_
