"""Checks that the batches of a sealed segment are in their places. Pure.

No CRC covers a batch's base offset and length: where nothing else proves the bytes of a log, a
batch with a damaged one passes for another's, and a reader of some offsets passes over its own.
"""

from __future__ import annotations

from kafka_formats.batch_scan import BatchRun
from kafka_formats.errors import CorruptData
from kafka_formats.record_batch import LOG_OVERHEAD


class BatchOrder:
    """Takes a segment's batches in their order: their offsets ascend within `start_offset` and
    `end_offset`, both inclusive.
    """

    def __init__(self, start_offset: int, end_offset: int, source: str) -> None:
        self._next = start_offset
        self._last = end_offset
        self._source = source

    def check(self, run: BatchRun) -> None:
        """Take the next batches; CorruptData at one that is not in its place."""
        position = run.position
        for base_offset, length, _, _, _, _, delta, *_ in run.headers:
            last_offset = base_offset + delta
            if not self._next <= base_offset <= last_offset <= self._last:
                raise CorruptData(
                    f"a batch of the offsets {base_offset} to {last_offset} is not within "
                    f"{self._next} to {self._last}",
                    source=self._source,
                    position=position,
                )
            self._next = last_offset + 1
            position += LOG_OVERHEAD + length
