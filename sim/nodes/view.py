"""The shipped view (`rlmm/view/view.py`) over a database in memory that loses unflushed rows.

It plays RocksDB's part: rows and write batches, flushes at any time, and after a crash the rows as
of some write batch since the last flush. A flush takes time, in which batches are written that are
not part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import rlmm.view.view
from kafka_formats.errors import CorruptData, InternalError
from rlmm.rows.keys import LOGICAL_END, LOGICAL_START
from rlmm.rows.rows import MemoryRows, RowChange, RowWrite
from rlmm.view.view import View, row_digest

_POSITION_KEY = rlmm.view.view._POSITION_KEY
PATH = Path("/data/view")


class MemoryBatch:
    """RocksDB's write batch, as far as the view uses it."""

    def __init__(self, *, raw_mode: bool) -> None:
        assert raw_mode
        self.writes: list[RowWrite] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.writes.append((key, value))

    def delete(self, key: bytes) -> None:
        self.writes.append((key, None))


class ViewDisk:
    """The durable rows of a view, which outlive the process."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    @property
    def applied_offset(self) -> int:
        """The metadata offset of the rows; -1 before the first."""
        position = self.rows.get(_POSITION_KEY)
        return -1 if position is None else rlmm.view.view._POSITION.unpack(position)[0]

    def wipe(self) -> None:
        self.rows = {}


class MemoryDatabase:
    """RocksDB's database, as far as the view uses it; `flushes_itself` is asked after
    each batch, `flushing` called in the middle of a flush, where it may take its time.
    """

    def __init__(
        self, disk: ViewDisk, flushes_itself: Callable[[], bool], flushing: Callable[[], None]
    ) -> None:
        self._disk = disk
        self._flushes_itself = flushes_itself
        self._flushing = flushing
        self.rows = MemoryRows(disk.rows.items())

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def write(self, batch: MemoryBatch) -> None:
        self.rows.write(batch.writes)
        if self._flushes_itself():
            self._disk.rows = dict(self.rows.items())

    def set_options(self, options: dict[str, str]) -> None:
        """Ignore the options: there are no files to merge."""

    def flush(self) -> None:
        """Make the rows of this call durable: what is written meanwhile may be lost."""
        rows, before = dict(self.rows.items()), self._disk.rows
        self._flushing()
        if self._disk.rows is before:  # else it flushed itself, and has newer ones
            self._disk.rows = rows

    def close(self) -> None:
        self._disk.rows = dict(self.rows.items())


class MemoryView(View):
    """A view whose commits and installations `committed` hears; `told_offset` is the last one."""

    def __init__(
        self,
        disk: ViewDisk,
        *,
        flushes_itself: Callable[[], bool],
        flushing: Callable[[], None],
        operate: Callable[[], None],
        committed: Callable[[View], None],
    ) -> None:
        self._memory = MemoryDatabase(disk, flushes_itself, flushing)
        self._view_disk = disk
        self._flushes_itself, self._flushing = flushes_itself, flushing
        self._operate = operate
        self._told = committed
        super().__init__(PATH, cast(Any, self._memory))
        self.told_offset = self.applied_offset

    def commit_changes(
        self, changes: Iterable[RowChange], *, applied_offset: int, epoch: int
    ) -> None:
        super().commit_changes(changes, applied_offset=applied_offset, epoch=epoch)
        self._tell()

    def _tell(self) -> None:
        self.told_offset = self.applied_offset
        self._told(self)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self._memory.rows.scan(start, end, reverse=reverse)))

    def rows_in_key_order(self) -> Generator[tuple[bytes, bytes], None, None]:
        rows = self.scan(LOGICAL_START, LOGICAL_END)  # as they are at this call
        return (row for row in rows)

    def install_from(
        self, rows: Iterable[tuple[bytes, bytes]], *, applied_offset: int, epoch: int
    ) -> None:
        """Install rows, all or none: the power may go before and after."""
        if applied_offset < self.applied_offset:
            raise InternalError(
                f"a snapshot at {applied_offset} would take back {self.applied_offset}"
            )
        built: dict[bytes, bytes] = {}
        digest, before = 0, b""
        for key, value in rows:
            if not LOGICAL_START <= key < LOGICAL_END or key <= before:
                raise CorruptData("a row is out of order", source="snapshot", position=0)
            before = key
            built[key] = value
            digest += row_digest(key, value)
        built[_POSITION_KEY] = rlmm.view.view._encode_position(
            applied_offset, epoch, digest % 2**128
        )
        self._operate()
        self._view_disk.rows = built
        self._operate()
        self._memory = MemoryDatabase(self._view_disk, self._flushes_itself, self._flushing)
        self._use(cast(Any, self._memory))
        self._tell()

    def all_rows(self) -> list[tuple[bytes, bytes]]:
        """The present logical rows."""
        return list(self.scan(LOGICAL_START, LOGICAL_END))


def memory_batches() -> AbstractContextManager[object]:
    """Make views collect writes for a database in memory, for the length of the block."""
    return patch.object(rlmm.view.view, "WriteBatch", MemoryBatch)
