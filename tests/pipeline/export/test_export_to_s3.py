"""Exports to a store of S3: files by Arrow's client, commits by Delta's, Iceberg's and our own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet
from pyarrow.fs import S3FileSystem
from pyiceberg.catalog import Catalog

from kafka_formats.errors import Conflict
from pipeline.export.delta_table import DeltaLakeTable
from pipeline.export.export_plan import ExportTask, commits, missing_slices, packed
from pipeline.export.export_run import Exported, ExportRun
from pipeline.export.export_table import ExportTable
from pipeline.export.export_task import Output, TaskResult, WriteFiles
from pipeline.export.file_names import RunId, run_of_data_file
from pipeline.export.file_writer import FileSettings
from pipeline.export.iceberg_table import IcebergTable, open_catalog
from pipeline.export.parquet_table import ParquetTable
from pipeline.export.run_records import Place
from pipeline.export.table_schema import record_schema
from pipeline.export.target_folder import TargetFolder, folder_url
from pipeline.export.target_options import delta_storage_options, iceberg_file_properties
from pipeline.read.segment_slice import ReadSettings
from rlm.data_plane.read_request import Isolation
from rsm_backends.store_config import StoreConfig
from tests.pipeline.export.export_world import FORMATS, NAME, TOPIC, Killed, read_made, segment
from tests.pipeline.export.test_killed_exports import STEPS

pytestmark = pytest.mark.integration

IDENTIFIER = "lake.orders"


@dataclass
class Lake:
    """A table of this format in `target`; `home` has the database of Iceberg's catalog."""

    format: str
    target: StoreConfig
    home: Path
    attempts: Iterator[int] = field(default_factory=lambda: iter(range(1, 1_000)))

    def catalog(self) -> Catalog:
        self.home.mkdir(exist_ok=True)
        named = {
            "type": "sql",
            "uri": f"sqlite:///{self.home}/catalog.db",
            "warehouse": folder_url(self.target),
        }
        return open_catalog("tests", named | iceberg_file_properties(self.options(), {}))

    def options(self) -> dict[str, str]:
        return {
            "strandline.s3.endpoint": str(self.target.endpoint_url),
            "strandline.s3.path-style": "true",
            "strandline.s3.access.key": str(self.target.access_key_id),
            "strandline.s3.secret.key": str(self.target.secret_access_key),
        }

    def table(self, folder: TargetFolder) -> ExportTable:
        schema = record_schema()
        if self.format == "iceberg":
            return IcebergTable(
                self.catalog(), IDENTIFIER, NAME, schema,
                by_day=True, options=self.options(), env={},
            )  # fmt: skip
        if self.format == "delta":
            return DeltaLakeTable(self.target, NAME, schema, by_day=True)
        return ParquetTable(folder, NAME, schema, by_day=True)

    def exported(self, *, kill_behind: str | None = None) -> Exported:
        """One run over the same two segments."""

        def step(name: str) -> None:
            if name == kill_behind:
                raise Killed

        with ExitStack() as stack:
            folder = stack.enter_context(TargetFolder(self.target))
            table = self.table(folder)
            if self.format == "iceberg":
                table.open()
                folder = stack.enter_context(TargetFolder(table.store))
            run = ExportRun(
                NAME,
                Place(table, folder),
                None,
                new_attempt=lambda: f"{next(self.attempts):015x}",
                step=step,
            )
            run.prepare()
            segments = [segment(0, 9), segment(10, 19)]
            taken = table.exported(str(TOPIC))
            slices = missing_slices(segments, taken, (0, 19), Isolation.READ_COMMITTED)
            settings = FileSettings(table.file_schema, by_day=True)
            output = Output(table.store, table.data_folder, settings)

            def write(run_id: RunId, tasks: Sequence[ExportTask]) -> Iterator[TaskResult]:
                read = ReadSettings()
                return map(WriteFiles(NAME, run_id, {}, read, output, read=read_made), tasks)

            run.export(commits(packed(slices, 1), 1 << 30), write)
            return run.done

    def named_files(self) -> list[str]:
        """Keys below the bucket that the table names."""
        if self.format == "iceberg":
            table = self.catalog().load_table(IDENTIFIER)
            found = table.inspect.files()["file_path"].to_pylist()
        elif self.format == "delta":
            options = delta_storage_options(self.target)
            found = DeltaTable(folder_url(self.target), storage_options=options).file_uris()
        else:
            with TargetFolder(self.target) as folder:
                found = [
                    f"{folder_url(self.target)}/{file['path']}"
                    for each in folder.listed("_strandline/")
                    if "/commits/" in each.key
                    for file in folder.read(each.key)["files"]
                ]
        return sorted(each.partition(f"{self.target.bucket}/")[2] for each in found)

    def data_files(self) -> list[str]:
        """Those of ours that are there, whoever names them or not."""
        with TargetFolder(self.target) as folder:
            keys = [each.key for each in folder.listed()]
        return sorted(
            f"{self.target.prefix}{key}" for key in keys if run_of_data_file(key, NAME) is not None
        )

    def offsets(self, keys: Iterable[str]) -> list[int]:
        target = self.target
        files = S3FileSystem(
            access_key=target.access_key_id, secret_key=target.secret_access_key,
            endpoint_override=target.endpoint_url, region=target.region,
        )  # fmt: skip
        tables = [
            parquet.read_table(
                f"{target.bucket}/{key}", columns=["offset"], filesystem=files, partitioning=None
            )
            for key in keys
        ]
        return sorted(pa.concat_tables(tables).column("offset").to_pylist())


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_to_s3_that_is_killed_behind_any_step_and_run_again_is_exactly_once(
    format: str, minio_store_config: StoreConfig, tmp_path: Path
) -> None:
    for step in STEPS:
        target = replace(minio_store_config, prefix=f"lake/{format}/{step}/")
        there = Lake(format, target, tmp_path / step)
        with pytest.raises(Killed):
            there.exported(kill_behind=step)
        done = there.exported()
        assert (done.removed_files > 0) == (step in ("write", "files")), step
        named = there.named_files()
        assert there.offsets(named) == list(range(20)), step
        assert there.data_files() == named, step


def test_a_commit_of_parquet_is_made_once(minio_store_config: StoreConfig, tmp_path: Path) -> None:
    there = Lake("parquet", replace(minio_store_config, prefix="lake/once/"), tmp_path)
    done = there.exported()
    assert (done.rows, done.commits, there.exported().commits) == (20, [1], [])
    with TargetFolder(there.target) as folder, pytest.raises(Conflict):
        folder.create(f"_strandline/{NAME}/commits/{1:012d}.json", {})
