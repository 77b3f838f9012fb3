"""CRC-32C (Castagnoli), the checksum of record batches, producer snapshots and object stores.

The checksum itself runs in hardware; it reads any buffer without a copy and lets other threads run
meanwhile when the buffer is large.
"""

from __future__ import annotations

# `crc32c(data, crc=0)`: the checksum of earlier bytes, whose checksum is `crc`, followed by `data`.
from functools import cache

# The library's own function, since a call for each small batch would double what the batch costs.
from crc32c import crc32c as crc32c

Buffer = bytes | bytearray | memoryview

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed


def crc32c_combine(crc_a: int, crc_b: int, b_bytes: int) -> int:
    """Checksum of A followed by B, from the checksums of both and the length of B in bytes.

    Appending a zero byte maps a checksum linearly over GF(2); this applies the map `b_bytes` times,
    by the powers of two that `b_bytes` is made of.
    """
    if b_bytes < 0:
        raise ValueError(f"a length cannot be negative: {b_bytes}")
    power = 0
    while b_bytes:
        if b_bytes & 1:
            low, second, third, high = _zeros_tables(power)
            crc_a = (
                low[crc_a & 0xFF]
                ^ second[crc_a >> 8 & 0xFF]
                ^ third[crc_a >> 16 & 0xFF]
                ^ high[crc_a >> 24]
            )
        b_bytes >>= 1
        power += 1
    return crc_a ^ crc_b


def _apply(columns: tuple[int, ...], vector: int) -> int:
    """A 32 x 32 bit matrix, given by its columns, times a vector."""
    result = 0
    for column in columns:
        if vector & 1:
            result ^= column
        vector >>= 1
    return result


@cache
def _zeros_columns(power: int) -> tuple[int, ...]:
    """The matrix that appends 2**power zero bytes."""
    if power:
        half = _zeros_columns(power - 1)
        return tuple(_apply(half, column) for column in half)
    columns = []
    for bit in range(32):
        crc = 1 << bit
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        columns.append(crc)
    return tuple(columns)


@cache
def _zeros_tables(power: int) -> tuple[tuple[int, ...], ...]:
    """The matrix as four tables, one for each byte of the vector: four look-ups a product."""
    columns = _zeros_columns(power)
    return tuple(
        tuple(_apply(columns[first : first + 8], byte) for byte in range(256))
        for first in (0, 8, 16, 24)
    )
