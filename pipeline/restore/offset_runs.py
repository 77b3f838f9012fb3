"""The offsets of both sides of a restore, as runs in which both ascend by one. Packed, as they come
to the driver: next to each other they differ little, so a run mostly takes two or three bytes.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator

_NUMBERS = 3
_BLOCK_RUNS = 1024
_BLOCK_BYTES = _BLOCK_RUNS * _NUMBERS * 8
_QUICKLY = 1


class OffsetRuns:
    """Takes pairs of offsets, ascending on both sides, until there are `runs_max` runs or about
    `bytes_max` bytes of packed ones. Then it is full for good.
    """

    def __init__(self, runs_max: int, bytes_max: int) -> None:
        self._runs_left = runs_max
        self._bytes_max = bytes_max
        self._run = (0, 0, 0)
        self._ended = (0, 0)
        self._block = array("q")
        self._compressor = zlib.compressobj(_QUICKLY)
        self._packed = bytearray()

    def add(self, source: int, target: int) -> bool:
        """Take a pair; False if there is no room for it."""
        at, to, count = self._run
        if count and source == at + count and target == to + count:
            self._run = (at, to, count + 1)
            return True
        self._end_run()
        if self._runs_left <= 0 or len(self._packed) >= self._bytes_max:
            self._runs_left = 0
            return False
        self._runs_left -= 1
        self._run = (source, target, 1)
        return True

    def packed(self) -> bytes:
        """All runs; call it once, at the end."""
        self._end_run()
        self._pack()
        return bytes(self._packed) + self._compressor.flush()

    def _end_run(self) -> None:
        source, target, count = self._run
        if not count:
            return
        self._block.extend((source - self._ended[0], target - self._ended[1], count))
        self._ended, self._run = (source + count, target + count), (0, 0, 0)
        if len(self._block) == _BLOCK_RUNS * _NUMBERS:
            self._pack()

    def _pack(self) -> None:
        self._packed += self._compressor.compress(self._block.tobytes())
        del self._block[:]


def unpacked(packed: bytes) -> Iterator[tuple[int, int, int]]:
    """The runs: source offset, target offset, records. They are unpacked as they are asked for."""
    decompressor = zlib.decompressobj()
    source = target = 0
    held, left = b"", packed
    while True:
        found = decompressor.decompress(left, _BLOCK_BYTES)
        left, held = decompressor.unconsumed_tail, held + found
        whole = len(held) - len(held) % (_NUMBERS * 8)
        numbers = array("q", held[:whole])
        held = held[whole:]
        for source_gap, target_gap, records in zip(
            numbers[::3], numbers[1::3], numbers[2::3], strict=True
        ):
            source, target = source + source_gap, target + target_gap
            yield source, target, records
            source, target = source + records, target + records
        if not found and (decompressor.eof or not left):
            return
