"""A tier without bytes, a table of each format in a folder, and runs that are killed where told."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import parquet
from pyiceberg.catalog import Catalog

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.decode.schema import arrow_schema
from pipeline.export.bad_records import OnError
from pipeline.export.delta_table import DeltaLakeTable
from pipeline.export.export_plan import ExportTask, OffsetRange, commits, missing_slices, packed
from pipeline.export.export_run import ExportRun
from pipeline.export.export_table import ExportTable
from pipeline.export.export_task import Output, ReadRecords, TaskResult, ValueDecoding, WriteFiles
from pipeline.export.file_names import RunId, dead_letters_log
from pipeline.export.file_writer import FileSettings
from pipeline.export.iceberg_table import IcebergTable, open_catalog
from pipeline.export.parquet_table import ParquetTable
from pipeline.export.run_records import Place
from pipeline.export.table_schema import dead_letter_schema, record_schema
from pipeline.export.target_folder import TargetFolder
from pipeline.export.target_options import target_config
from pipeline.export.timestamp_check import timestamps_checked
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from rlm.data_plane.read_request import Isolation
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store_config import StoreConfig

FORMATS = ("parquet", "delta", "iceberg")
NAME = "tests"
TOPIC = TopicIdPartition("orders", Uuid(bytes(range(16))), 0)
DAY_MS = 86_400_000
OFFSETS_A_DAY = 7
WHAT_IS_NEW = OffsetRange()


class Killed(BaseException):
    """The process ends here: nothing that catches errors sees it."""


def segment(first: int, last: int, partition: TopicIdPartition = TOPIC) -> TieredSegment:
    segment_id = RemoteLogSegmentId(partition, Uuid(first.to_bytes(8, "big") * 2))
    return TieredSegment(
        segment_id, "main", first, last, first, last, -1, 1000 * (last - first + 1), True, ()
    )


def made_batch(part: SegmentSlice, offsets: Sequence[int]) -> pa.RecordBatch:
    """The records of these offsets: keys, values, times and headers follow from the offset."""
    count = len(offsets)
    millis = [offset // OFFSETS_A_DAY * DAY_MS + offset for offset in offsets]
    columns = [
        [f"k{offset}".encode() if offset % 3 else None for offset in offsets],
        [f"v{offset}".encode() * 20 if offset % 5 else None for offset in offsets],
        [part.segment.partition.topic] * count,
        [part.segment.partition.partition] * count,
        offsets,
        pa.array([each * 1000 for each in millis], pa.timestamp("us", tz="UTC")),
        [0] * count,
        [[{"key": "h", "value": b"1"}] if offset % 2 else None for offset in offsets],
    ]
    schema = arrow_schema()
    arrays = [
        given if isinstance(given, pa.Array) else pa.array(given, field.type)
        for given, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_made(
    slices: Iterable[SegmentSlice], stores: Mapping[str, StoreConfig], settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    for part in slices:
        offsets = range(part.first_offset, part.last_offset + 1)
        for at in range(0, len(offsets), 3):
            yield made_batch(part, offsets[at : at + 3])


class KilledFolder(TargetFolder):
    """Dies before the n-th change that it is to make."""

    def __init__(self, config: StoreConfig, changes: Iterator[int] | None) -> None:
        super().__init__(config)
        self._changes = changes

    def create(self, path: str, document: object) -> None:
        self._change()
        super().create(path, document)

    def remove(self, paths: Sequence[str]) -> None:
        # One by one, as if the process died between two of them.
        for path in paths:
            self._change()
            super().remove([path])

    def _change(self) -> None:
        if self._changes is not None and next(self._changes, None) is None:
            raise Killed


@dataclass
class World:
    """A table in `root`, and the segments that are tiered."""

    format: str
    root: Path
    by_day: bool = False
    segments: list[TieredSegment] = field(default_factory=list)
    decoding: ValueDecoding | None = None
    on_error: OnError = "fail"
    """Of times; a decoding has its own, and always a place for dead letters."""
    value_type: pa.DataType | None = None
    read: ReadRecords = read_made
    attempts: int = 0
    between: Callable[[], None] | None = None
    """Called once, while the tasks of a run write."""
    planned: Callable[[], None] | None = None
    """Called once, when a run has planned and not begun to write."""
    file_bytes: int = 1_000_000
    task_bytes: int = 8_000
    commit_bytes: int = 1_000_000
    dead_root: Path | None = None
    """Where dead letters go; None: beside the table."""
    dead_log: str = NAME

    def root_of(self, suffix: str) -> Path:
        """The folder of the table, or of its dead letters."""
        root = (suffix and self.dead_root) or self.root
        root.mkdir(parents=True, exist_ok=True)
        return root

    def catalog(self, suffix: str = "") -> Catalog:
        root = self.root_of(suffix)
        warehouse = root / "warehouse"
        warehouse.mkdir(exist_ok=True)
        return open_catalog(
            "tests",
            {
                "type": "sql",
                "uri": f"sqlite:///{root}/catalog.db",
                "warehouse": f"file://{warehouse}",
            },
        )

    def table(self, suffix: str, schema: pa.Schema, folder: TargetFolder | None) -> ExportTable:
        options = {"by_day": self.by_day and not suffix}
        name = self.dead_log if suffix else NAME
        if self.format == "iceberg":
            catalog = self.catalog(suffix)
            return IcebergTable(
                catalog, f"lake.orders{suffix}", name, schema, options={}, env={}, **options
            )
        if self.format == "delta":
            config = target_config(f"{self.root_of(suffix)}/table{suffix}", {}, {})
            return DeltaLakeTable(config, name, schema, **options)
        assert folder is not None
        return ParquetTable(folder, name, schema, **options)

    def place(self, suffix: str, schema: pa.Schema, changes: Iterator[int] | None) -> Place:
        if self.format == "iceberg":
            table = self.table(suffix, schema, None)
            table.open()
            return Place(table, KilledFolder(table.store, changes))
        config = target_config(f"{self.root_of(suffix)}/table{suffix}", {}, {})
        folder = KilledFolder(config, changes)
        return Place(self.table(suffix, schema, folder), folder)

    def run(
        self,
        wanted: OffsetRange = WHAT_IS_NEW,
        *,
        kill_behind: str | None = None,
        changes: int | None = None,
        kill_at_record: int | None = None,
    ) -> ExportRun:
        """One run; `kill_behind` a step, before change number `changes`, or in a task."""

        def step(name: str) -> None:
            if name == kill_behind:
                raise Killed

        countdown = None if changes is None else iter(range(changes))
        place = self.place("", record_schema(value=self.value_type), countdown)
        dead = None
        if self.decoding is not None or self.on_error == "dead-letter":
            place.table.open()
            self.dead_log = dead_letters_log(NAME, place.table.id)
            dead = self.place("_dead_letters", dead_letter_schema(), countdown)
        run = ExportRun(NAME, place, dead, new_attempt=self._new_attempt, step=step)
        try:
            run.prepare()
            taken = place.table.exported(str(TOPIC))
            latest = self.segments[-1].end_offset + 1
            slices = missing_slices(
                self.segments, taken, wanted.of(taken, latest), Isolation.READ_COMMITTED
            )
            tasks = packed(slices, self.task_bytes)

            def write(run_id: RunId, tasks: Sequence[ExportTask]) -> Iterator[TaskResult]:
                between, self.between = self.between, None
                if between is not None:
                    between()
                work = self._work(run_id, place, dead, kill_at_record)
                return map(work, tasks)

            planned, self.planned = self.planned, None
            if planned is not None:
                planned()
            run.export(commits(tasks, self.commit_bytes), write)
        finally:
            for each in (place, dead):
                if each is not None:
                    each.folder.close()
        return run

    def _work(
        self, run: RunId, place: Place, dead: Place | None, kill_at_record: int | None
    ) -> WriteFiles:
        def output(at: Place) -> Output:
            settings = FileSettings(
                at.table.file_schema,
                by_day=self.by_day and at is place,
                file_bytes=self.file_bytes,
            )
            return Output(at.table.store, at.table.data_folder, settings)

        def read(
            slices: Iterable[SegmentSlice],
            stores: Mapping[str, StoreConfig],
            settings: ReadSettings,
        ) -> Iterator[pa.RecordBatch]:
            for batch in self.read(slices, stores, settings):
                if kill_at_record in batch.column("offset").to_pylist():
                    raise Killed
                yield batch

        return WriteFiles(
            NAME,
            run,
            {},
            ReadSettings(),
            output(place),
            None if dead is None else output(dead),
            timestamps_checked(place.table, self.decoding, self.on_error),
            read,
        )

    def _new_attempt(self) -> str:
        self.attempts += 1
        return f"{self.attempts:015x}"

    def rows(self, suffix: str = "") -> list[dict[str, object]]:
        """What a reader of the table sees, by offset."""
        if self.format == "iceberg":
            read = self.catalog(suffix).load_table(f"lake.orders{suffix}").scan().to_arrow()
            # pyiceberg 0.12 gives an empty list where a list of structs is NULL.
            return _by_offset(
                {**row, "headers": row["headers"] or None} for row in read.to_pylist()
            )
        if self.format == "delta":
            read = DeltaTable(str(self.root_of(suffix) / f"table{suffix}")).to_pyarrow_table()
        else:
            read = self._parquet_rows(suffix)
        read = read.select([name for name in read.column_names if name != "day"])
        return _by_offset(read.to_pylist())

    def _parquet_rows(self, suffix: str) -> pa.Table:
        return pa.concat_tables(
            [parquet.read_table(each, partitioning=None) for each in self._committed(suffix)]
        )

    def _committed(self, suffix: str) -> list[str]:
        """Files that the logs of a Parquet folder name."""
        root = f"{self.root_of(suffix)}/table{suffix}"
        with TargetFolder(target_config(root, {}, {})) as folder:
            return [
                f"{root}/{file['path']}"
                for each in folder.listed("_strandline/")
                if "/commits/" in each.key
                for file in folder.read(each.key)["files"]
            ]

    def offsets(self, suffix: str = "") -> list[object]:
        return [row["offset"] for row in self.rows(suffix)]

    def data_files(self, suffix: str = "") -> list[str]:
        """Parquet files of ours on the disk, whoever names them or not."""
        at = self.root_of(suffix) / ("warehouse" if self.format == "iceberg" else f"table{suffix}")
        return sorted(
            path
            for folder, _, names in os.walk(at)
            for path in (os.path.join(folder, name) for name in names)
            if re.match(r"strandline-.*\.parquet", os.path.basename(path))
            and (self.format != "iceberg" or (f"orders{suffix}/" in path))
        )

    def named_files(self, suffix: str = "") -> list[str]:
        """Those that the table names."""
        if self.format == "iceberg":
            table = self.catalog(suffix).load_table(f"lake.orders{suffix}")
            found = table.inspect.files()["file_path"].to_pylist()
        elif self.format == "delta":
            found = DeltaTable(str(self.root_of(suffix) / f"table{suffix}")).file_uris()
        else:
            found = self._committed(suffix)
        return sorted(each.removeprefix("file://") for each in found)


def _by_offset(rows: Iterable[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: str(row["offset"]).zfill(20))
