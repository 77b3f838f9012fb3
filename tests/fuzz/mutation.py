"""Makes hostile inputs out of good ones: random, truncated, bit-flipped, spliced, and with numbers
replaced by what a length or count should never be.

Everything is drawn from one seeded source, so that seed and number of an input name its bytes.
Choices are made by `random()` and not by `choice()`: the long run makes 10^6 inputs a parser, and
most parsers are quicker than the making of their input.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

_T = TypeVar("_T")

Repair = Callable[[bytes], bytes]
"""Recomputes checksums, so that a changed input reaches the parser behind them."""

INPUT_BYTES_MAX = 16 << 10
GROUP_INPUTS = 500
"""Inputs that are drawn from one source, one after the other."""
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


def _varint(value: int) -> bytes:
    raw = value & 2**70 - 1
    out = bytearray()
    while raw >= 0x80 and len(out) < 10:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw & 0x7F)
    return bytes(out)


_NUMBERS = {
    size: tuple(sorted({(each & (1 << 8 * size) - 1).to_bytes(size, "big") for each in _HOSTILE}))
    for size in (1, 2, 4, 8)
}
_VARINTS = tuple(map(_varint, _HOSTILE))
_DECIMALS = tuple(str(value).encode() for value in _HOSTILE)
_ODD_DECIMALS = (b"-0", b"007", b"9" * 5_000)


class Mutator:
    """Inputs for one parser."""

    def __init__(self, seeds: Sequence[bytes], repair: Repair | None = None) -> None:
        assert seeds, "a parser without one good input would never be looked into deeply"
        self._seeds = [seed[:INPUT_BYTES_MAX] for seed in seeds]
        self._repair = repair
        self._steps: tuple[Callable[[random.Random, bytearray], None], ...] = (
            _flip_bits, _truncate, _insert, _remove, _repeat, _replace_number, _replace_number,
            _replace_varint, _replace_decimal, _put_word, self._splice,
        )  # fmt: skip

    def inputs(self, name: str, first: int, count: int) -> Iterator[tuple[int, bytes]]:
        """Inputs [first, first + count) of the run `name`, each with its number.

        A group's source is drawn from its beginning, whatever is asked for: a number names its
        bytes, and another group's inputs need not be made.
        """
        end = first + count
        for group in range(first // GROUP_INPUTS, -(-end // GROUP_INPUTS)):
            source = random.Random(f"{name} {group}")
            begin = group * GROUP_INPUTS
            for number in range(begin, min(begin + GROUP_INPUTS, end)):
                data = self.make(source)
                if number >= first:
                    yield number, data

    def make(self, source: random.Random) -> bytes:
        """The next input."""
        kind = source.random()
        if kind < 0.05:
            return source.randbytes(_one(source, (0, 1, 2, 8, 17, 61, 200, 1_000)))
        data = bytearray(_one(source, self._seeds))
        if kind < 0.08:
            return bytes(data)
        for _ in range(_one(source, (1, 1, 1, 2, 2, 3, 5, 8))):
            _one(source, self._steps)(source, data)
        del data[INPUT_BYTES_MAX:]
        if self._repair is not None and source.random() < _REPAIRED_SHARE:
            return self._repair(bytes(data))
        return bytes(data)

    def _splice(self, source: random.Random, data: bytearray) -> None:
        other = _one(source, self._seeds)
        at, start = _at(source, data), int(source.random() * (len(other) + 1))
        data[at : at + _one(source, (0, 16, len(data)))] = other[
            start : start + _one(source, (1, 8, 61, len(other)))
        ]


def _one(source: random.Random, among: Sequence[_T]) -> _T:
    return among[int(source.random() * len(among))]


def _at(source: random.Random, data: bytearray) -> int:
    """A position; the front of the data, where headers are, half of the time."""
    end = len(data) + 1
    drawn = source.random()
    return int(2 * drawn * min(end, 80)) if drawn < 0.5 else int((2 * drawn - 1) * end)


def _flip_bits(source: random.Random, data: bytearray) -> None:
    for _ in range(_one(source, (1, 1, 2, 8))):
        if data:
            data[min(_at(source, data), len(data) - 1)] ^= 1 << int(source.random() * 8)


def _truncate(source: random.Random, data: bytearray) -> None:
    del data[_at(source, data) :]


def _insert(source: random.Random, data: bytearray) -> None:
    at = _at(source, data)
    data[at:at] = source.randbytes(_one(source, (1, 2, 4, 16, 64)))


def _remove(source: random.Random, data: bytearray) -> None:
    at = _at(source, data)
    del data[at : at + _one(source, (1, 2, 4, 16, 64))]


def _repeat(source: random.Random, data: bytearray) -> None:
    at = _at(source, data)
    piece = data[at : at + _one(source, (1, 4, 12, 61, 200))]
    data[at:at] = piece * _one(source, (1, 2, 20, 300))
    del data[INPUT_BYTES_MAX:]


def _replace_number(source: random.Random, data: bytearray) -> None:
    """A big-endian field of 1, 2, 4 or 8 bytes takes a value at some border."""
    size = _one(source, (1, 2, 4, 4, 4, 8))
    at = _at(source, data)
    data[at : at + size] = _one(source, _NUMBERS[size])


def _replace_varint(source: random.Random, data: bytearray) -> None:
    at = _at(source, data)
    varint = _one(source, _VARINTS)
    data[at : at + _one(source, (1, 1, len(varint)))] = varint


def _replace_decimal(source: random.Random, data: bytearray) -> None:
    """The first number at or behind some position."""
    match = _DECIMAL.search(data, _at(source, data)) or _DECIMAL.search(data)
    if match is not None:
        data[match.start() : match.end()] = _one(
            source, _ODD_DECIMALS if source.random() < 0.25 else _DECIMALS
        )


def _put_word(source: random.Random, data: bytearray) -> None:
    at = _at(source, data)
    data[at : at + _one(source, (0, 0, 1, 8))] = _one(source, _WORDS)
