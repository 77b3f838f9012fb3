"""The shipped view (`rlmm/view/view.py`) over a database in memory that loses what was not flushed.

RocksDB's part is played here: rows and write batches, flushes of its own whenever it likes, and
that a crash leaves the rows as some write batch since the last flush left them.
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
    """As far as the view uses RocksDB's."""

    def __init__(self, *, raw_mode: bool) -> None:
        assert raw_mode
        self.writes: list[RowWrite] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.writes.append((key, value))

    def delete(self, key: bytes) -> None:
        self.writes.append((key, None))


class ViewDisk:
    """What of one view is durable; it outlives the process."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def wipe(self) -> None:
        self.rows = {}


class MemoryDatabase:
    """As far as the view uses RocksDB's; `flushes_itself` is asked after each batch."""

    def __init__(self, disk: ViewDisk, flushes_itself: Callable[[], bool]) -> None:
        self._disk = disk
        self._flushes_itself = flushes_itself
        self.rows = MemoryRows(disk.rows.items())

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def write(self, batch: MemoryBatch) -> None:
        self.rows.write(batch.writes)
        if self._flushes_itself():
            self.flush()

    def set_options(self, options: dict[str, str]) -> None:
        """How files are merged, of which there are none."""

    def flush(self) -> None:
        self._disk.rows = dict(self.rows.items())

    def close(self) -> None:
        self.flush()


class MemoryView(View):
    """`committed` hears of each commit and each installation, once it is there; `told_offset` is
    how far it heard.
    """

    def __init__(
        self,
        disk: ViewDisk,
        *,
        flushes_itself: Callable[[], bool],
        operate: Callable[[], None],
        committed: Callable[[View], None],
    ) -> None:
        self._memory = MemoryDatabase(disk, flushes_itself)
        self._view_disk = disk
        self._flushes_itself = flushes_itself
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
        """All or nothing: the power may go before it and behind it."""
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
        self._memory = MemoryDatabase(self._view_disk, self._flushes_itself)
        self._use(cast(Any, self._memory))
        self._tell()

    def all_rows(self) -> list[tuple[bytes, bytes]]:
        """The logical rows, now."""
        return list(self.scan(LOGICAL_START, LOGICAL_END))


def memory_batches() -> AbstractContextManager[object]:
    """While it lasts, views collect their writes for a database in memory."""
    return patch.object(rlmm.view.view, "WriteBatch", MemoryBatch)
