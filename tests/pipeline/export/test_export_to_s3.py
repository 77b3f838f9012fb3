"""Exports to a store of S3: files by Arrow's client, commits by Delta's and our own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka_formats.errors import Conflict
from pipeline.export.delta_table import DeltaLakeTable
from pipeline.export.export_plan import ExportTask, commits, missing_slices, packed
from pipeline.export.export_run import Exported, ExportRun
from pipeline.export.export_table import ExportTable
from pipeline.export.export_task import Output, TaskResult, WriteFiles
from pipeline.export.file_names import RunId, run_of_data_file
from pipeline.export.file_writer import FileSettings
from pipeline.export.parquet_table import ParquetTable
from pipeline.export.run_records import Place
from pipeline.export.table_schema import record_schema
from pipeline.export.target_folder import TargetFolder, folder_url
from pipeline.export.target_options import delta_storage_options
from pipeline.read.segment_slice import ReadSettings
from rlm.read_request import Isolation
from rsm_backends.store_config import StoreConfig
from tests.pipeline.export.export_world import NAME, TOPIC, Killed, read_made, segment
from tests.real.minio import MinioServer

pytestmark = pytest.mark.integration


@pytest.fixture
def target(tmp_path: Path) -> Iterator[StoreConfig]:
    with MinioServer(tmp_path / "minio") as server:
        given = server.store_config
        yield StoreConfig(
            name="target",
            kind="s3",
            bucket=given.bucket,
            prefix="lake/orders/",
            endpoint_url=given.endpoint_url,
            access_key_id=given.access_key_id,
            secret_access_key=given.secret_access_key,
        )


def exported(target: StoreConfig, format: str, attempt: int, *, kill: bool = False) -> Exported:
    """One run over the same two segments."""

    def step(name: str) -> None:
        if kill and name == "files":
            raise Killed

    attempts = iter(range(attempt, attempt + 10))

    def new_attempt() -> str:
        return f"{next(attempts):015x}"

    with TargetFolder(target) as folder:
        schema = record_schema()
        table: ExportTable = ParquetTable(folder, NAME, schema, by_day=True)
        if format == "delta":
            table = DeltaLakeTable(target, NAME, schema, by_day=True)
        run = ExportRun(
            NAME,
            Place(table, folder),
            None,
            new_attempt=lambda: f"{next(attempts):015x}",
            step=step,
        )
        run.prepare()
        segments = [segment(0, 9), segment(10, 19)]
        taken = table.exported(str(TOPIC))
        slices = missing_slices(segments, taken, (0, 19), Isolation.READ_COMMITTED)
        output = Output(target, "", FileSettings(table.file_schema, by_day=True))

        def write(run_id: RunId, tasks: Sequence[ExportTask]) -> Iterator[TaskResult]:
            return map(WriteFiles(NAME, run_id, {}, ReadSettings(), output, read=read_made), tasks)

        run.export(commits(packed(slices, 1), 1 << 30), write)
        return run.done


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_an_export_to_s3_that_is_killed_and_run_again_is_exactly_once(
    format: str, target: StoreConfig
) -> None:
    with pytest.raises(Killed):
        exported(target, format, 1, kill=True)
    done = exported(target, format, 100)
    assert (done.rows, done.commits) == (20, [1])
    assert done.removed_files > 0
    assert exported(target, format, 200).commits == []
    with TargetFolder(target) as folder:
        data = [each.key for each in folder.listed() if run_of_data_file(each.key, NAME)]
        assert len(data) == done.files
        if format == "parquet":
            with pytest.raises(Conflict):
                folder.create(f"_strandline/{NAME}/commits/{1:012d}.json", {})
    if format == "delta":
        table = DeltaTable(folder_url(target), storage_options=delta_storage_options(target))
        offsets = table.to_pyarrow_table().column("offset").to_pylist()
        assert sorted(offsets) == list(range(20))
