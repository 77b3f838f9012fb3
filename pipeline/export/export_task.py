"""The work of a task: read, decode, write. It returns only descriptions of files to the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext

from pipeline.export.export_plan import ExportTask
from pipeline.export.export_table import DataFile
from pipeline.export.file_names import RunId, data_file_name
from pipeline.export.file_writer import FileSettings, FileWriter
from pipeline.export.target_folder import arrow_filesystem
from pipeline.process import ambient
from pipeline.read.records import read_slices
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from rsm_backends.store_config import StoreConfig


class ReadRecords(Protocol):
    """A function like `pipeline.read.records.read_slices`."""

    def __call__(
        self,
        slices: Iterable[SegmentSlice],
        stores: Mapping[str, StoreConfig],
        settings: ReadSettings,
    ) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded batch: `good` records, and `dead` ones with their errors; None instead of an empty
    batch. `skipped` counts records in neither.
    """

    good: pa.RecordBatch | None
    dead: pa.RecordBatch | None = None
    skipped: int = 0


Decode = Callable[[pa.RecordBatch], Decoded]


class ValueDecoding(Protocol):
    """Decodes keys and values. Picklable; `start` is called in the task."""

    def start(self) -> Decode:
        """The function that decodes the batches of one task."""


@dataclass(frozen=True, slots=True)
class Output:
    """The target of a task: a table's folder, and the settings of its files."""

    config: StoreConfig
    data_folder: str
    settings: FileSettings


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task. `undecided` counts records left out because the markers of their
    transactions are lost. `retried`: an earlier attempt of the task may have left files behind.
    """

    files: list[DataFile]
    dead_files: list[DataFile] = field(default_factory=list)
    rows: int = 0
    data_bytes: int = 0
    skipped: int = 0
    undecided: int = 0
    retried: bool = False


@dataclass(frozen=True, slots=True)
class WriteFiles:
    """The work of every task of one run. Picklable. `read` None: `read_slices`."""

    name: str
    run: RunId
    stores: Mapping[str, StoreConfig]
    read_settings: ReadSettings
    output: Output
    dead_letters: Output | None = None
    decoding: ValueDecoding | None = None
    read: ReadRecords | None = None

    def __call__(self, task: ExportTask) -> TaskResult:
        """Write the task's records; on an error the files are removed, as far as possible."""
        context = TaskContext.get()
        decode = _as_they_are if self.decoding is None else self.decoding.start()
        good = self._writer(self.output, task)
        dead = None if self.dead_letters is None else self._writer(self.dead_letters, task)
        writers = [each for each in (good, dead) if each is not None]
        rows = data_bytes = skipped = 0
        undecided: list[int] = []
        read = self.read or partial(read_slices, on_undecided=undecided.append)
        with ExitStack() as undo:
            for each in writers:
                undo.callback(each.abandon)
            for batch in read(task.slices, self.stores, self.read_settings):
                data_bytes += batch.nbytes
                parts = decode(batch)
                if parts.good is not None:
                    rows += parts.good.num_rows
                    good.write(parts.good)
                if parts.dead is not None:
                    assert dead is not None, "dead letters only where there is a place for them"
                    dead.write(parts.dead)
                skipped += parts.skipped
            result = TaskResult(
                good.finish(),
                [] if dead is None else dead.finish(),
                rows,
                data_bytes,
                skipped,
                sum(undecided),
                context is not None and context.attemptNumber() > 0,
            )
            undo.pop_all()
        return result

    def _writer(self, output: Output, task: ExportTask) -> FileWriter:
        chance = ambient.new_uuid().hex()[:8]
        filesystem, root = arrow_filesystem(output.config)

        def name_of(sequence: int) -> str:
            return data_file_name(self.name, self.run, task.number, chance, sequence)

        return FileWriter(
            output.settings, filesystem, root, data_folder=output.data_folder, name_of=name_of
        )


def _as_they_are(batch: pa.RecordBatch) -> Decoded:
    return Decoded(batch)
