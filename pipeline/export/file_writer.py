"""Writes the Parquet files of one task: split by day, cut at a size, within bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyarrow.fs import FileSystem, LocalFileSystem

from kafka_formats.errors import InvalidRequest, RetryLater
from pipeline.export.export_table import DataFile
from pipeline.export.table_schema import DAY

DAY_US = 86_400_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FILES_OPEN_MAX = 16
"""Files, one a day, that a task has open at once; for one more, the fullest is closed early."""
BUFFERED_BYTES_MAX = 256 * 1024 * 1024
"""Records that a task holds for the row groups of all its open files."""

BOUNDED = ("topic", "partition", "offset", "timestamp")
"""Columns whose lowest and highest values are kept with a file and in its statistics, because
readers prune by them. Statistics of keys and values would only cost.
"""
_DICTIONARY = ("topic", "partition", "timestampType")


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The form of files. Sizes in bytes: `file_bytes` as written, `row_group_bytes` in memory."""

    schema: pa.Schema
    by_day: bool = False
    codec: str = "zstd"
    level: int | None = 1
    file_bytes: int = 256 * 1024 * 1024
    row_group_bytes: int = 64 * 1024 * 1024


class FileWriter:
    """Writes batches into files of a folder. `name_of(sequence)` gives the name of the next one,
    within the folder of its day.
    """

    def __init__(
        self,
        settings: FileSettings,
        filesystem: FileSystem,
        root: str,
        *,
        data_folder: str,
        name_of: Callable[[int], str],
    ) -> None:
        self._settings = settings
        self._filesystem = filesystem
        self._root = root
        self._data_folder = data_folder
        self._name_of = name_of
        self._open: dict[str | None, _OpenFile] = {}
        self._started = 0
        self._finished: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add records; they are written in row groups and files of the sizes in the settings."""
        for day, part in _by_day(batch) if self._settings.by_day else [(None, batch)]:
            file = self._file_of(day)
            file.add(part)
            if file.buffered_bytes >= self._settings.row_group_bytes:
                file.flush()
            if file.size >= self._settings.file_bytes:
                self._finish(day)
        while sum(file.buffered_bytes for file in self._open.values()) > BUFFERED_BYTES_MAX:
            max(self._open.values(), key=lambda file: file.buffered_bytes).flush()

    def finish(self) -> list[DataFile]:
        """Complete all files and return their descriptions."""
        for day in list(self._open):
            self._finish(day)
        return self._finished

    def abandon(self) -> None:
        """Remove the files as far as that works; the run's clean-up does the rest."""
        for file in self._open.values():
            with suppress(Exception):
                file.close()
        paths = [file.path for file in self._open.values()]
        for path in paths + [file.path for file in self._finished]:
            with suppress(OSError):
                self._filesystem.delete_file(self._root + path)

    def _file_of(self, day: str | None) -> _OpenFile:
        if day not in self._open:
            if len(self._open) >= FILES_OPEN_MAX:
                self._finish(max(self._open, key=lambda each: self._open[each].rows))
            folder = self._data_folder if day is None else f"{self._data_folder}{DAY}={day}/"
            path = folder + self._name_of(self._started)
            self._started += 1
            self._open[day] = _OpenFile(self._settings, self._filesystem, self._root, path, day)
        return self._open[day]

    def _finish(self, day: str | None) -> None:
        # It leaves `_open` only once it is complete: `abandon` removes the files of both.
        self._finished.append(self._open[day].finish())
        del self._open[day]


class _OpenFile:
    """One Parquet file being written, and the records for its next row group."""

    def __init__(
        self,
        settings: FileSettings,
        filesystem: FileSystem,
        root: str,
        path: str,
        day: str | None,
    ) -> None:
        self.path = path
        self.rows = 0
        self.buffered_bytes = 0
        self._settings = settings
        self._day = day
        self._local = isinstance(filesystem, LocalFileSystem)
        self._full_path = root + path
        self._buffered: list[pa.RecordBatch] = []
        self._lowest: dict[str, Any] = {}
        self._highest: dict[str, Any] = {}
        self._nulls: dict[str, int] = {}
        with _errors(self._full_path):
            if self._local:
                os.makedirs(os.path.dirname(self._full_path), exist_ok=True)
            self._sink = filesystem.open_output_stream(self._full_path)
            self._writer = parquet.ParquetWriter(
                self._sink,
                settings.schema,
                compression=settings.codec,
                compression_level=settings.level,
                use_dictionary=[each for each in _DICTIONARY if each in settings.schema.names],
                write_statistics=[each for each in BOUNDED if each in settings.schema.names],
                write_page_checksum=True,
                store_schema=False,
            )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._sink.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        """Buffer records; `flush` writes them."""
        if batch.num_rows == 0:
            return
        for name in BOUNDED:
            column = batch.column(name)
            if column.null_count:
                self._nulls[name] = self._nulls.get(name, 0) + column.null_count
                column = column.drop_null()
                if len(column) == 0:
                    continue
            lowest, highest = _bounds(column)
            self._lowest[name] = min(self._lowest.get(name, lowest), lowest)
            self._highest[name] = max(self._highest.get(name, highest), highest)
        self.rows += batch.num_rows
        self.buffered_bytes += batch.nbytes
        self._buffered.append(batch)

    def flush(self) -> None:
        """Write the buffered records as one row group."""
        if not self._buffered:
            return
        with _errors(self._full_path):
            arrays = [batch.columns for batch in self._buffered]
            table = pa.Table.from_batches(
                [pa.RecordBatch.from_arrays(each, schema=self._settings.schema) for each in arrays]
            )
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._buffered = []
        self.buffered_bytes = 0

    def finish(self) -> DataFile:
        """Complete the file; on a local disk, durably."""
        self.flush()
        with _errors(self._full_path):
            self._writer.close()
            size = self.size
            self._sink.close()
            if self._local:
                _synced(self._full_path)
        return DataFile(
            self.path, self.rows, size, self._day, self._lowest, self._highest, self._nulls
        )

    def close(self) -> None:
        """Close the file without completing it."""
        self._buffered = []
        try:
            self._writer.close()
        finally:
            self._sink.close()


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records of each UTC day of their timestamps, which are of the years 1 to 9999."""
    if batch.num_rows == 0:
        return
    micros = batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
    days = micros // DAY_US
    found = np.unique(days)
    for day in found:
        name = (EPOCH + timedelta(days=int(day))).date().isoformat()
        yield name, batch if len(found) == 1 else batch.filter(pa.array(days == day))


def _bounds(column: pa.Array) -> tuple[Any, Any]:
    """Lowest and highest value; topics are text, all other columns are numbers."""
    if pa.types.is_string(column.type):
        # A batch has records of one topic, or few: the first and the last name are its bounds.
        values = sorted(set(column.dictionary_encode().dictionary.to_pylist()))
        return values[0], values[-1]
    numbers = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return int(numbers.min()), int(numbers.max())


def _synced(path: str) -> None:
    """Sync file and folders, so that a file named by a commit survives a power failure."""
    for each in (path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
        fd = os.open(each, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class _errors:  # noqa: N801  used like a function
    """Turns Arrow's errors about a file into ours."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: object, at: object) -> None:
        if kind is None:
            return
        if issubclass(kind, pa.ArrowInvalid | pa.ArrowTypeError):
            raise InvalidRequest(f"{self._path} can't be written: {error}") from None
        if issubclass(kind, OSError):
            raise RetryLater(
                f"{self._path} could not be written: {error}. Check that the target is writable "
                "and has room"
            ) from None
