"""Walks the batches of a `.log` file and verifies each: complete, magic 2, matching CRC.

Nothing is decompressed, and a batch that lies whole within one piece is not copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData, InternalError, InvalidRequest
from kafka_formats.record_batch import (
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    HeaderFields,
    check_crc,
    parse_header,
    whole_batches,
)

BATCH_BYTES_MAX = 128 << 20
ANY_BATCH_BYTES = 2**31 - 1
"""The limit that no batch exceeds: its length is an int32."""

RUN_BATCHES_MAX = 4096
_ZERO_CHECK_BYTES = 1 << 20
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8


class ScannedBatch(NamedTuple):
    """A verified batch and the position of its first byte in the file.

    `data` may be a view into what the caller fed: take a copy of it to keep it longer than that.
    """

    header: BatchHeader
    position: int
    data: memoryview | bytes


class BatchRun(NamedTuple):
    """Adjacent verified batches: their headers, and the position of the first.

    `data` are their bytes; it may be a view into what the caller fed.
    """

    headers: list[HeaderFields]
    position: int
    data: memoryview

    def batches(self) -> Iterator[ScannedBatch]:
        """The batches of the run, one by one."""
        at = 0
        for fields in self.headers:
            header = BatchHeader._make(fields)
            end = at + header.size_bytes
            yield ScannedBatch(header, self.position + at, self.data[at:end])
            at = end


class BatchScanner:
    """Takes a file in pieces of any size and gives its batches.

    A batch whose length is 0 ends the data: the rest of a preallocated file, which must be all
    zeros (zeros in front of more data are a hole that some crash left, and so CorruptData). No more
    than `batch_bytes_max` bytes are ever held back, and a larger batch is CorruptData; where the
    end of the data is known (`size_bytes`) one that fits into it is an InvalidRequest that names
    `limit`, the setting to raise.
    """

    def __init__(
        self,
        source: str,
        *,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        position: int = 0,
        size_bytes: int | None = None,
        limit: str = "batch_bytes_max",
    ) -> None:
        self._source = source
        self._batch_bytes_max = batch_bytes_max
        self._size_bytes = size_bytes
        self._limit = limit
        self._position = position
        self._held = bytearray()  # the front of the batch at `_position`
        self._header: BatchHeader | None = None  # of that batch, once it is there
        self._in_zero_tail = False
        self._feeding = False

    @property
    def position(self) -> int:
        """The position of the next batch: after the last run returned."""
        return self._position

    @property
    def ends_in_zeros(self) -> bool:
        """True if zeros follow the last batch, which no sealed segment has."""
        return self._in_zero_tail

    def feed(self, data: Buffer) -> Iterator[ScannedBatch]:
        """The batches that `data` completes. Exhaust the iterator before the next call."""
        return (batch for run in self.feed_runs(data) for batch in run.batches())

    def feed_runs(self, data: Buffer) -> Iterator[BatchRun]:
        """The batches that `data` completes, many at once: small batches then cost little more than
        their checksums. Exhaust the iterator before the next call.
        """
        if self._feeding:
            raise InternalError("a batch scanner was fed before the last batches were taken")
        self._feeding = True
        return self._scan(memoryview(data))

    def finish(self) -> None:
        """Say that the file ends here; bytes of an unfinished batch are CorruptData."""
        if self._feeding:
            raise InternalError("a batch scanner was finished before the last batches were taken")
        if not self._held:
            return
        if self._header is None:
            parse_header(self._held, source=self._source, position=self._position)
        assert self._header is not None  # fewer bytes than a header are always refused above
        raise self._corrupt(
            f"the file ends inside a record batch of {self._header.size_bytes} bytes, after "
            f"{len(self._held)} of them"
        )

    def _scan(self, data: memoryview) -> Iterator[BatchRun]:
        at = 0
        while at < len(data):
            if self._in_zero_tail:
                self._check_zeros(data[at:])
                break
            if not self._held:
                headers, end = whole_batches(
                    data, at, batch_bytes_max=self._batch_bytes_max, count_max=RUN_BATCHES_MAX
                )
                if headers:
                    yield self._run(headers, data[at:end])
                    at = end
                    continue
                # The next batch is incomplete or damaged: it is checked alone, to tell which.
                header = self._read_header(data, at)
                if header is not None and at + header.size_bytes <= len(data):
                    check_crc(data, at, header, source=self._source, position=self._position)
                    raise InternalError("a correct record batch was passed over")
            at += self._hold(data[at:])
            if self._header is not None and len(self._held) == self._header.size_bytes:
                header, batch = self._header, memoryview(self._held).toreadonly()
                self._header, self._held = None, bytearray()
                check_crc(batch, 0, header, source=self._source, position=self._position)
                yield self._run([header], batch)
        self._feeding = False

    def _run(self, headers: list[HeaderFields], data: memoryview) -> BatchRun:
        run = BatchRun(headers, self._position, data)
        self._position += len(data)
        return run

    def _read_header(self, data: Buffer, at: int) -> BatchHeader | None:
        """The header of the batch at `data[at]`; None if it is not whole yet or the data ends."""
        left = len(data) - at
        if left >= LOG_OVERHEAD and _LENGTH.unpack_from(data, at + _LENGTH_AT)[0] == 0:
            self._in_zero_tail = True
            return None
        if left < HEADER_BYTES:
            return None
        header = parse_header(data, at, source=self._source, position=self._position)
        if header.length > self._batch_bytes_max - LOG_OVERHEAD:
            if self._size_bytes is not None:
                self._check_ends(header, self._size_bytes)
            raise self._corrupt(
                f"a record batch of {header.size_bytes} bytes is announced, over the limit of "
                f"{self._batch_bytes_max}"
            )
        return header

    def _check_ends(self, header: BatchHeader, size_bytes: int) -> None:
        """Raise InvalidRequest if the batch fits into the data, so that only the limit refuses
        it.
        """
        if self._position + header.size_bytes <= size_bytes:
            raise InvalidRequest(
                f"{self._source} at byte {self._position}: the record batch at offset "
                f"{header.base_offset} has {header.size_bytes} bytes, over the limit of "
                f"{self._batch_bytes_max}: raise the limit to at least that size",
                field=self._limit,
            )

    def _hold(self, data: memoryview) -> int:
        """Keep the bytes that belong to the unfinished batch; returns how many."""
        wanted = HEADER_BYTES if self._header is None else self._header.size_bytes
        taken = data[: wanted - len(self._held)]
        self._held += taken
        if self._header is None:
            self._header = self._read_header(self._held, 0)
            if self._in_zero_tail:
                self._check_zeros(memoryview(self._held))
                self._held = bytearray()
        return len(taken)

    def _check_zeros(self, data: memoryview) -> None:
        for at in range(0, len(data), _ZERO_CHECK_BYTES):
            piece = bytes(data[at : at + _ZERO_CHECK_BYTES])
            if piece.count(0) != len(piece):
                raise self._corrupt("a hole: a record batch of length 0, and more data behind it")

    def _corrupt(self, message: str) -> CorruptData:
        return CorruptData(message, source=self._source, position=self._position)


def scan(data: Buffer, *, source: str, position: int = 0) -> Iterator[ScannedBatch]:
    """The batches of a whole file, or of a part that starts at `position` and ends with a batch."""
    scanner = BatchScanner(source, position=position)
    yield from scanner.feed(data)
    scanner.finish()
