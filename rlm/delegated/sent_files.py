"""Receives the files of a segment that the broker sends, into a directory like the broker's own.

The stream has an exact length and ends in a checksum. Its last file is the leader epoch checkpoint,
which the plug-in reads after all others: so the copy compares the segment's epochs with those of
that moment, as it does on a shared disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import InvalidRequest, RetryLater
from kafka_formats.log_names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    segment_file_name,
)
from rlm.delegated import wire
from rlm.delegated.spool import to_its_end
from rlm.delegated.wire import CopyFiles, SentFiles

HEAD_BYTES_MAX = 2**20
SMALL_FILE_BYTES_MAX = 64 * 2**20
"""The largest accepted file besides the `.log`, as for files read from a disk."""
PIECE_BYTES = 2**20
"""The most bytes that a thread writes at once."""


@dataclass(slots=True)
class SentBody:
    """The body of a request, read by exact lengths. RetryLater if it ends early."""

    chunks: AsyncIterator[bytes]
    _rest: bytes = b""

    async def some(self, bytes_max: int) -> bytes:
        """Return 1 to `bytes_max` bytes."""
        while not self._rest:
            chunk = await anext(self.chunks, None)
            if chunk is None:
                raise RetryLater("the segment's files ended early: the broker sends them again")
            self._rest = chunk
        taken, self._rest = self._rest[:bytes_max], self._rest[bytes_max:]
        return taken

    async def exactly(self, count: int) -> bytes:
        """Return exactly `count` bytes."""
        taken = bytearray()
        while len(taken) < count:
            taken += await self.some(count - len(taken))
        return bytes(taken)

    async def end(self) -> None:
        """Raise InvalidRequest if further bytes arrive."""
        while not self._rest:
            chunk = await anext(self.chunks, None)
            if chunk is None:
                return
            self._rest = chunk
        raise InvalidRequest("bytes follow the segment's files", field="body")

    async def head(self) -> SentFiles:
        """The segment, and the sizes of its files."""
        length = int.from_bytes(await self.exactly(4), "big")
        if length > HEAD_BYTES_MAX:
            raise InvalidRequest(f"a head has at most {HEAD_BYTES_MAX} bytes", field="body")
        return wire.decode_sent(await self.exactly(length))


@dataclass(slots=True)
class Receiving:
    """One segment's files, received into `directory`; `writing` is entered around each write."""

    sent: SentFiles
    body: SentBody
    directory: Path
    writing: Callable[[], AbstractContextManager[None]]
    _crc: int = field(default=0)

    async def run(self) -> CopyFiles:
        """Write all files; returns their paths. RetryLater: the checksum differs."""
        copy = self.sent.copy
        paths = [*map(self._here, copy.paths), self.directory / PARTITION_METADATA_FILE,
                 self.directory / LEADER_EPOCH_CHECKPOINT_FILE]  # fmt: skip
        for path, size in zip(paths, self.sent.sizes, strict=True):
            if size is not None:
                await self._write(path, size)
        told = int.from_bytes(await self.body.exactly(4), "big")
        await self.body.end()
        if told != self._crc:
            raise RetryLater(
                f"the files of {copy.row.segment_id} came with the checksum {self._crc:08x}, and "
                f"were sent with {told:08x}: something on the way changes bytes"
            )
        # An empty next segment, as on the broker's disk: the segment ends where that one begins.
        following = segment_file_name(copy.row.end_offset + 1, LOG_SUFFIX)
        await self._on_disk((self.directory / following).touch)
        if (newest_ms := copy.row.max_timestamp_ms) >= 0:
            # The broker's largest timestamp; for a segment without timestamps its file's time.
            await self._on_disk(os.utime, paths[0], ns=(newest_ms * 10**6,) * 2)
        log, offset_index, time_index, txn_index, snapshot = map(str, paths[:5])
        has_txn_index = self.sent.sizes[3] is not None
        return replace(
            copy, log=log, offset_index=offset_index, time_index=time_index,
            txn_index=txn_index if has_txn_index else "", producer_snapshot=snapshot,
        )  # fmt: skip

    def _here(self, path: str) -> Path:
        return self.directory / Path(path).name

    async def _write(self, path: Path, size: int) -> None:
        file = await self._on_disk(path.open, "wb")
        try:
            left, piece = size, bytearray()
            while left:
                chunk = await self.body.some(left)
                left -= len(chunk)
                piece += chunk
                if len(piece) >= PIECE_BYTES or not left:
                    self._crc = await self._on_disk(_append, file, bytes(piece), self._crc)
                    piece.clear()
        finally:
            await self._on_disk(file.close)

    async def _on_disk(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        with self.writing():
            return await to_its_end(asyncio.to_thread(work, *given, **named))


def _append(file: BinaryIO, piece: bytes, crc: int) -> int:
    file.write(piece)
    return crc32c(piece, crc)
