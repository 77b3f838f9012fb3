"""Kafka's flexible-version encodings: fixed-width integers, uvarints, compact strings and arrays.

Source: KIP-482; Kafka's ByteUtils, Readable, Writable and RawTaggedFieldWriter. All integers are
big-endian. A length is written as uvarint(length + 1), so that 0 can stand for null.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.kafka_uuid import Uuid

UVARINT_MAX = 2**32 - 1
UVARINT_BYTES_MAX = 5

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class Writer:
    """Builds one message; `done` returns it. A value that does not fit is an InvalidRequest."""

    def __init__(self) -> None:
        self._data = bytearray()

    def _fixed(self, layout: struct.Struct, value: int) -> None:
        try:
            self._data += layout.pack(value)
        except struct.error as error:
            raise InvalidRequest(
                f"{value} does not fit into {layout.size * 8} bits ({error})"
            ) from error

    def int8(self, value: int) -> None:
        self._fixed(_INT8, value)

    def int16(self, value: int) -> None:
        self._fixed(_INT16, value)

    def int32(self, value: int) -> None:
        self._fixed(_INT32, value)

    def int64(self, value: int) -> None:
        self._fixed(_INT64, value)

    def boolean(self, value: bool) -> None:
        self._data.append(1 if value else 0)

    def uuid(self, value: Uuid) -> None:
        self._data += value

    def uvarint(self, value: int) -> None:
        if not 0 <= value <= UVARINT_MAX:
            raise InvalidRequest(f"{value} does not fit into an unsigned varint of 32 bits")
        while value >= 0x80:
            self._data.append(value & 0x7F | 0x80)
            value >>= 7
        self._data.append(value)

    def string(self, value: str) -> None:
        try:
            self.bytes_(value.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"the text {value[:40]!r} is not valid Unicode") from error

    def bytes_(self, value: Buffer) -> None:
        self.uvarint(len(value) + 1)
        self._data += value

    def nullable_bytes(self, value: Buffer | None) -> None:
        if value is None:
            self.uvarint(0)
        else:
            self.bytes_(value)

    def array_length(self, count: int) -> None:
        """Start an array of `count` elements; the caller writes them next."""
        self.uvarint(count + 1)

    def tagged_fields(self, fields: Iterable[tuple[int, bytes]]) -> None:
        """Write (tag, encoded value) pairs in ascending order of tags, as Kafka demands."""
        ordered = sorted(fields)
        if len({tag for tag, _ in ordered}) != len(ordered):
            raise InvalidRequest("a tag occurs twice among the tagged fields of one struct")
        self.uvarint(len(ordered))
        for tag, value in ordered:
            self.uvarint(tag)
            self.uvarint(len(value))
            self._data += value

    def fields(self, layout: struct.Struct, *values: object) -> None:
        """Write fields of fixed sizes in one step."""
        try:
            self._data += layout.pack(*values)
        except struct.error as error:
            raise InvalidRequest(f"a value of {values} does not fit its field ({error})") from error

    def done(self) -> bytes:
        return bytes(self._data)


class Reader:
    """Reads one message of `data`. Malformed input is CorruptData at the byte where it shows.

    `position` is the position of `data[0]` in `source`, for messages only. Every length is compared
    with what is left before anything is taken, so that damage never costs memory.
    """

    def __init__(self, data: Buffer, source: str, position: int = 0) -> None:
        self._data = bytes(data)
        self._at = 0
        self._source = source
        self._position = position

    @property
    def remaining(self) -> int:
        """Bytes not yet read."""
        return len(self._data) - self._at

    def expect_end(self) -> None:
        """Raise CorruptData if bytes follow the message: then it was not understood."""
        if self.remaining:
            raise self.corrupt(f"{self.remaining} bytes follow the end of the message")

    def corrupt(self, message: str) -> CorruptData:
        """The error for what was read last, at the present position."""
        return CorruptData(message, source=self._source, position=self._position + self._at)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise self.corrupt(f"{size} bytes are announced and only {self.remaining} are left")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _fixed(self, layout: struct.Struct) -> int:
        try:
            value: int = layout.unpack_from(self._data, self._at)[0]
        except struct.error:
            self._take(layout.size)  # says what is missing
            raise
        self._at += layout.size
        return value

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read fields of fixed sizes in one step."""
        return layout.unpack(self._take(layout.size))

    def int8(self) -> int:
        return self._fixed(_INT8)

    def int16(self) -> int:
        return self._fixed(_INT16)

    def int32(self) -> int:
        return self._fixed(_INT32)

    def int64(self) -> int:
        return self._fixed(_INT64)

    def boolean(self) -> bool:
        value = self._take(1)[0]
        if value > 1:
            raise self.corrupt(f"a boolean is 0 or 1, not {value}")
        return value == 1

    def uuid(self) -> Uuid:
        return Uuid(self._take(16))

    def uvarint(self) -> int:
        at = self._at
        if at < len(self._data) and (byte := self._data[at]) < 0x80:
            self._at = at + 1  # nearly all are one byte long
            return byte
        value = 0
        for index in range(UVARINT_BYTES_MAX):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                break
        else:
            raise self.corrupt(f"an unsigned varint is longer than {UVARINT_BYTES_MAX} bytes")
        if value > UVARINT_MAX:
            raise self.corrupt("an unsigned varint does not fit into 32 bits")
        return value

    def _length(self, what: str) -> int:
        length = self.uvarint()
        if not length:
            raise self.corrupt(f"{what} is null where null is not allowed")
        return length - 1

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.corrupt(f"a string is not valid UTF-8 ({error.reason})") from error

    def string(self) -> str:
        return self._text(self._take(self._length("a string")))

    def bytes_(self) -> bytes:
        return self._take(self._length("a byte field"))

    def nullable_bytes(self) -> bytes | None:
        length = self.uvarint()
        return self._take(length - 1) if length else None

    def array_length(self) -> int:
        """Number of elements. CorruptData if over the bytes left: an element takes at least one."""
        count = self._length("an array")
        if count > self.remaining:
            raise self.corrupt(
                f"an array of {count} elements is announced and {self.remaining} bytes are left"
            )
        return count

    def tagged_fields(self) -> tuple[tuple[int, bytes], ...]:
        """The (tag, encoded value) pairs of a struct, ascending, known and unknown alike."""
        fields: list[tuple[int, bytes]] = []
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            if fields and tag <= fields[-1][0]:
                raise self.corrupt(f"tagged field {tag} follows tagged field {fields[-1][0]}")
            fields.append((tag, self._take(self.uvarint())))
        return tuple(fields)
