"""Makes hostile inputs out of good ones: random, truncated, bit-flipped, spliced, and with numbers
replaced by what a length or count should never be.

Everything is drawn from one seeded source, so that seed and number of an input name its bytes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

Repair = Callable[[bytes], bytes]
"""Recomputes checksums, so that a changed input reaches the parser behind them."""

INPUT_BYTES_MAX = 16 << 10
_REPAIRED_SHARE = 0.75
_BORDERS = (0, 1, 2, 7, 8, 31, 32, 63, 64, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536)
_HOSTILE = tuple(
    sorted(
        {
            sign * (near + off)
            for near in (*_BORDERS, 2**24, 2**31, 2**32, 2**47, 2**60, 2**63, 2**64)
            for off in (-1, 0, 1)
            for sign in (1, -1)
        }
    )
)
_DECIMAL = re.compile(rb"-?[0-9]+")
_WORDS = (
    b"-1", b"9223372036854775807", b"9223372036854775808", b"2147483648", b"9" * 40, b"9" * 5_000,
    b"1e999", b"NaN", b"null", b"true", b"[]", b"{}", b"[" * 3_000, b'{"a":' * 1_500, b"\\ud800",
    b"\xff", b"\x00", b"\n", b"\r\n", b"=", b",", b"\xe2\x80\xae", b"\xd9\xa3", b" ",
)  # fmt: skip


class Mutator:
    """Inputs for one parser."""

    def __init__(self, seeds: Sequence[bytes], repair: Repair | None = None) -> None:
        assert seeds, "a parser without one good input would never be looked into deeply"
        self._seeds = seeds
        self._repair = repair
        self._steps: tuple[Callable[[random.Random, bytearray], None], ...] = (
            _flip_bits, _truncate, _insert, _remove, _repeat, _replace_number, _replace_number,
            _replace_varint, _replace_decimal, _put_word, self._splice,
        )  # fmt: skip

    def make(self, source: random.Random) -> bytes:
        """The next input."""
        kind = source.random()
        if kind < 0.05:
            return source.randbytes(source.choice((0, 1, 2, 8, 17, 61, 200, 1_000)))
        data = bytearray(source.choice(self._seeds))
        if kind < 0.08:
            return bytes(data)
        for _ in range(source.choice((1, 1, 1, 2, 2, 3, 5, 8))):
            source.choice(self._steps)(source, data)
        del data[INPUT_BYTES_MAX:]
        if self._repair is not None and source.random() < _REPAIRED_SHARE:
            return self._repair(bytes(data))
        return bytes(data)

    def _splice(self, source: random.Random, data: bytearray) -> None:
        other = source.choice(self._seeds)
        at, start = _at(source, data), source.randrange(len(other) + 1)
        data[at : at + source.choice((0, 16, len(data)))] = other[
            start : start + source.choice((1, 8, 61, len(other)))
        ]


def _at(source: random.Random, data: bytearray) -> int:
    """A position; the front of the data, where headers are, half of the time."""
    end = len(data) + 1
    return source.randrange(min(end, 80) if source.random() < 0.5 else end)


def _flip_bits(source: random.Random, data: bytearray) -> None:
    for _ in range(source.choice((1, 1, 2, 8))):
        if data:
            data[min(_at(source, data), len(data) - 1)] ^= 1 << source.randrange(8)


def _truncate(source: random.Random, data: bytearray) -> None:
    del data[_at(source, data) :]


def _insert(source: random.Random, data: bytearray) -> None:
    at = _at(source, data)
    data[at:at] = source.randbytes(source.choice((1, 2, 4, 16, 64)))


def _remove(source: random.Random, data: bytearray) -> None:
    at = _at(source, data)
    del data[at : at + source.choice((1, 2, 4, 16, 64))]


def _repeat(source: random.Random, data: bytearray) -> None:
    at = _at(source, data)
    piece = data[at : at + source.choice((1, 4, 12, 61, 200))]
    data[at:at] = piece * source.choice((1, 2, 20, 300))
    del data[INPUT_BYTES_MAX:]


def _replace_number(source: random.Random, data: bytearray) -> None:
    """A big-endian field of 1, 2, 4 or 8 bytes takes a value at some border."""
    size = source.choice((1, 2, 4, 4, 4, 8))
    at = _at(source, data)
    value = source.choice(_HOSTILE) & (1 << 8 * size) - 1
    data[at : at + size] = value.to_bytes(size, "big")


def _replace_varint(source: random.Random, data: bytearray) -> None:
    at = _at(source, data)
    raw = source.choice(_HOSTILE) & 2**70 - 1
    out = bytearray()
    while raw >= 0x80 and len(out) < 10:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw & 0x7F)
    data[at : at + source.choice((1, 1, len(out)))] = out


def _replace_decimal(source: random.Random, data: bytearray) -> None:
    found = list(_DECIMAL.finditer(data))
    if found:
        match = source.choice(found)
        value = source.choice((str(source.choice(_HOSTILE)).encode(), b"-0", b"007", b"9" * 5_000))
        data[match.start() : match.end()] = value


def _put_word(source: random.Random, data: bytearray) -> None:
    at = _at(source, data)
    data[at : at + source.choice((0, 0, 1, 8))] = source.choice(_WORDS)
