"""Zig-zag varints of records: small numbers of either sign in few bytes, low seven bits first.

Source: Kafka's ByteUtils. The readers work on `bytes` and a position and return the value and the
position after it; the short cases, nearly all of them, come first.
"""

from __future__ import annotations

_VARINT_BITS = 32
_VARLONG_BITS = 64


class MalformedError(ValueError):
    """The bytes are not valid records. Internal: `record_batch` turns it into CorruptData."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of 32 bits."""
    try:
        byte = data[at]
        if byte < 0x80:
            return byte >> 1 ^ -(byte & 1), at + 1
        second = data[at + 1]
    except IndexError as error:
        raise MalformedError("the records end inside a number") from error
    if second < 0x80:
        return (byte & 0x7F | second << 7) >> 1 ^ -(byte & 1), at + 2
    return _read_long_form(data, at, _VARINT_BITS)


def read_varlong(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of 64 bits."""
    try:
        byte = data[at]
    except IndexError as error:
        raise MalformedError("the records end inside a number") from error
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at + 1
    return _read_long_form(data, at, _VARLONG_BITS)


def _read_long_form(data: bytes, at: int, bits: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, bits, 7):
        if at >= len(data):
            raise MalformedError("the records end inside a number")
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return raw >> 1 ^ -(raw & 1), at
    raise MalformedError(f"a number does not fit into {bits} bits")


def read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Read a length and as many bytes, which must end by `end`; length -1 is None."""
    length, at = read_varint(data, at)
    if length < 0:
        if length < -1:
            raise MalformedError(f"a field has the length {length}")
        return None, at
    after = at + length
    if after > end:
        raise MalformedError(f"a field of {length} bytes passes the end of its record")
    return data[at:after], after


def write(out: bytearray, value: int) -> None:
    """Append a number of up to 64 bits; 32-bit numbers have the same form."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def write_bytes(out: bytearray, value: bytes | None) -> None:
    """Append a length and the bytes; None is length -1."""
    if value is None:
        out.append(1)
    else:
        write(out, len(value))
        out += value
