"""The job `export`: appends tiered records to a table, every offset once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from kafka_formats.errors import InvalidRequest
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.export.bad_records import OnError
from pipeline.export.delta_table import DeltaLakeTable
from pipeline.export.export_plan import (
    ExportTask,
    OffsetRange,
    commits,
    holes,
    missing_slices,
    packed,
)
from pipeline.export.export_run import Exported, ExportRun
from pipeline.export.export_table import ExportTable
from pipeline.export.export_task import Output, TaskResult, ValueDecoding, WriteFiles
from pipeline.export.file_names import ATTEMPT_BITS, RunId, check_export_name, dead_letters_log
from pipeline.export.file_writer import FileSettings
from pipeline.export.offset_ranges import Ranges, count, end
from pipeline.export.parquet_table import ParquetTable
from pipeline.export.run_records import Place
from pipeline.export.table_schema import dead_letter_schema, record_schema
from pipeline.export.target_folder import TargetFolder
from pipeline.export.target_options import iceberg_file_properties, target_config
from pipeline.export.timestamp_check import timestamps_checked
from pipeline.export.value_decoding import RegistryDecoding, ValueFormats
from pipeline.jobs.job import JobContext
from pipeline.jobs.tasks import run_tasks
from pipeline.process import ambient
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.source.options import Subscription
from pipeline.source.tier_view import TierView
from pipeline.spark.session import speculates
from rlm.data_plane.read_request import Isolation

TableFormat = Literal["parquet", "delta", "iceberg"]
Codec = Literal["zstd", "snappy", "gzip", "lz4", "none"]
HOLES_TOLD_MAX = 20

_COLUMNS = (*ReadSettings().columns, "headers")


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The source and target of an export. `to`: a folder, or NAMESPACE.TABLE in the Iceberg
    `catalog`.

    `name` is the identity of the export: no offset is exported twice under one name. Sizes in
    bytes: `file_bytes` of a file as written, the others of log.
    """

    to: str
    table_format: TableFormat = "parquet"
    subscription: Subscription
    offsets: OffsetRange = field(default_factory=OffsetRange)
    name: str = "export"
    by_day: bool = False
    isolation: Isolation = Isolation.READ_COMMITTED
    verify: bool = True
    aiven_keys: tuple[str, ...] = ()
    codec: Codec = "zstd"
    level: int | None = 1
    file_bytes: int = 256 * 1024 * 1024
    task_bytes: int = 128 * 1024 * 1024
    commit_bytes: int = 256 * 1024**3
    catalog: str = "default"
    catalog_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    formats: ValueFormats = field(default_factory=ValueFormats)
    on_error: OnError = "fail"
    dead_letters_to: str | None = None

    @property
    def dead_letters_place(self) -> str:
        """The place of dead letters: as given, or beside the table."""
        return self.dead_letters_to or f"{self.to.rstrip('/')}_dead_letters"


@dataclass(frozen=True)
class ExportReport:
    """See the Report protocol. `ended`: by partition the offset after the last exported one."""

    table: str
    done: Exported
    exported_offsets: int
    ended: Mapping[str, int]
    missing: Mapping[str, Ranges]
    took_s: float

    @property
    def ok(self) -> bool:
        """True unless offsets are missing because no segment has them any more. Skipped records and
        dead letters were requested.
        """
        return not self.missing

    def as_json(self) -> dict[str, object]:
        done = self.done
        return {
            "table": self.table,
            "commits": done.commits,
            "rows": done.rows,
            "data_bytes": done.data_bytes,
            "files": done.files,
            "file_bytes": done.file_bytes,
            "dead_letters": done.dead_letters,
            "skipped": done.skipped,
            "undecided": done.undecided,
            "exported_offsets": self.exported_offsets,
            "ended": dict(self.ended),
            "missing": {name: [list(each) for each in has] for name, has in self.missing.items()},
            "removed_files": done.removed_files,
            "runs_under_way": done.under_way,
            "took_s": round(self.took_s, 3),
        }

    def lines(self) -> Iterable[str]:
        done = self.done
        if done.commits:
            numbers = ", ".join(map(str, done.commits))
            files = "1 file" if done.files == 1 else f"{done.files:,} files"
            yield f"{done.rows:,} records in {files} ({_megabytes(done.file_bytes)})"
            yield f"committed to {self.table} as number {numbers}"
            rate = done.data_bytes / max(self.took_s, 0.001)
            yield f"{_megabytes(done.data_bytes)} in {self.took_s:.1f} s: {_megabytes(rate)}/s"
        else:
            yield f"nothing to export: {self.table} has all requested records"
        if done.dead_letters:
            yield f"{done.dead_letters:,} records could not be exported and are dead letters"
        if done.skipped:
            yield f"{done.skipped:,} records could not be exported and were skipped"
        if done.undecided:
            yield (
                f"{done.undecided:,} records were left out: the outcome of their transactions is "
                "lost"
            )
        if done.removed_files:
            yield f"{done.removed_files} files of killed runs were removed"
        for run in done.under_way:
            yield f"run {run} is under way, or was killed: the next commit removes its files"
        for name, ranges in list(self.missing.items())[:HOLES_TOLD_MAX]:
            told = ", ".join(f"{first} to {last}" for first, last in ranges[:HOLES_TOLD_MAX])
            yield f"{name}: offsets {told} are in no segment: deleted before an export, or lost"


def run(context: JobContext, options: ExportOptions) -> ExportReport:
    """Export the records missing in the table. See `pipeline.export.export_run` for the steps.

    Conflict: the table's schema differs (SCHEMA), a different run of the export committed
    (OVERTAKEN), the table was rolled back (ROLLED_BACK). After any other error a run may be
    repeated.
    """
    check_options(options, context.options)
    began = ambient.monotonic()
    view = TierView(context.catalogue, _read_settings(options))
    partitions = view.subscribed(options.subscription)
    _check_first_offset(view, partitions, options.offsets.first)
    decoding = RegistryDecoding.of(options.formats, options.on_error, options.subscription.topics)
    with ExitStack() as closing:
        types = {} if decoding is None else decoding.types()
        schema = record_schema(types.get("key"), types.get("value"))
        place = _place(
            context, options, options.to, schema, closing, name=options.name, by_day=options.by_day
        )
        dead = None
        if options.on_error == "dead-letter":
            place.table.open()  # for its id
            dead = _place(
                context,
                options,
                options.dead_letters_place,
                dead_letter_schema(),
                closing,
                name=dead_letters_log(options.name, place.table.id),
                by_day=False,
            )
        watched = speculates(context.spark)
        export = ExportRun(options.name, place, dead, new_attempt=_new_attempt, watched=watched)
        export.prepare()
        plan = _Plan.of(view, partitions, options, place.table)
        checked = timestamps_checked(place.table, decoding, options.on_error)
        work = _Work(context, options, place, dead, checked)
        groups = commits(packed(plan.slices, options.task_bytes), options.commit_bytes)
        export.export(groups, work)
        place.table.refresh()
        return ExportReport(
            place.table.name,
            export.done,
            sum(each.last_offset - each.first_offset + 1 for each in plan.slices),
            {str(one): end(place.table.exported(str(one))) for one in partitions},
            plan.missing,
            ambient.monotonic() - began,
        )


def check_options(options: ExportOptions, tier: Mapping[str, str]) -> None:
    """Raise InvalidRequest for options that are wrong by themselves, before anything is started."""
    check_export_name(options.name)
    options.formats.check()
    if options.on_error != "fail" and not (options.formats.decoded() or _has_years(options)):
        raise InvalidRequest(
            "has no effect here: a folder of Parquet files without days takes every record whose "
            "key and value are not decoded. Leave it out, or give --value-format, --key-format, "
            "--partition-by-day or a different --format",
            field="--on-error",
        )
    if options.table_format != "iceberg":
        target_config(options.to, tier, os.environ)


def _has_years(options: ExportOptions) -> bool:
    """True if the table bounds timestamps: see `ExportTable.any_year`."""
    return options.table_format != "parquet" or options.by_day


def _check_first_offset(
    view: TierView, partitions: Sequence[TopicIdPartition], first_offset: int | None
) -> None:
    """Raise InvalidRequest if no partition has an offset at or after `first_offset`."""
    if first_offset is None:
        return
    there = view.partitions(dict.fromkeys(partitions, first_offset))
    latest = max((each.bounds.latest for each in there.values()), default=0)
    if first_offset >= latest:
        raise InvalidRequest(
            f"{first_offset} is above all exportable offsets, which end at {latest - 1}: give a "
            "lower one",
            field="--first-offset",
        )


@dataclass(frozen=True)
class _Plan:
    """The slices of this run; `missing` are offsets in no segment."""

    slices: list[SegmentSlice]
    missing: dict[str, Ranges]

    @classmethod
    def of(
        cls,
        view: TierView,
        partitions: Sequence[TopicIdPartition],
        options: ExportOptions,
        table: ExportTable,
    ) -> _Plan:
        taken = {one: table.exported(str(one)) for one in partitions}
        first = {one: options.offsets.of(taken[one], 0)[0] for one in partitions}
        slices: list[SegmentSlice] = []
        missing: dict[str, Ranges] = {}
        for one, there in view.partitions(first).items():
            bounds = options.offsets.of(taken[one], there.lost_to)
            found = missing_slices(there.segments, taken[one], bounds, options.isolation)
            slices += found
            lost = holes(found, taken[one], bounds, there.bounds.earliest)
            if count(lost):
                missing[str(one)] = lost
        return cls(slices, missing)


@dataclass(frozen=True)
class _Work:
    """Runs the tasks of one commit on Spark."""

    context: JobContext
    options: ExportOptions
    place: Place
    dead: Place | None
    decoding: ValueDecoding | None

    def __call__(self, run: RunId, tasks: Sequence[ExportTask]) -> Iterator[TaskResult]:
        options = self.options
        work = WriteFiles(
            options.name,
            run,
            self.context.catalogue.stores,
            _read_settings(options),
            self._output(self.place, by_day=options.by_day),
            None if self.dead is None else self._output(self.dead, by_day=False),
            self.decoding,
        )
        return run_tasks(
            self.context.spark.sparkContext,
            list(tasks),
            work,
            what="export",
            console=self.context.console,
        )

    def _output(self, place: Place, *, by_day: bool) -> Output:
        options = self.options
        settings = FileSettings(
            place.table.file_schema,
            by_day=by_day,
            codec=options.codec,
            level=options.level,
            file_bytes=options.file_bytes,
        )
        return Output(place.table.store, place.table.data_folder, settings)


def _place(
    context: JobContext,
    options: ExportOptions,
    to: str,
    schema: pa.Schema,
    closing: ExitStack,
    *,
    name: str,
    by_day: bool,
) -> Place:
    """The table at `to` and its folder, which `closing` closes. Its commits are kept by `name`."""
    given, env = context.options, os.environ
    if options.table_format == "iceberg":
        # Imported here, since it takes longer than all other imports of an export.
        from pipeline.export.iceberg_table import IcebergTable, open_catalog

        properties = {
            **iceberg_file_properties(given, env),
            **options.catalog_properties,
        }
        catalog = open_catalog(options.catalog, properties)
        table = IcebergTable(catalog, to, name, schema, by_day=by_day, options=given, env=env)
        table.open()  # the table knows its folder
        return Place(table, closing.enter_context(TargetFolder(table.store)))
    config = target_config(to, given, env)
    folder = closing.enter_context(TargetFolder(config))
    if options.table_format == "delta":
        return Place(DeltaLakeTable(config, name, schema, by_day=by_day), folder)
    return Place(ParquetTable(folder, name, schema, by_day=by_day), folder)


def _read_settings(options: ExportOptions) -> ReadSettings:
    return ReadSettings(
        columns=_COLUMNS,
        isolation=options.isolation,
        verify=options.verify,
        aiven_keys=options.aiven_keys,
    )


def _new_attempt() -> str:
    return f"{int.from_bytes(ambient.new_uuid()[:8], 'big') >> (64 - ATTEMPT_BITS):015x}"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
