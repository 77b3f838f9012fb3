"""What an executor that was killed while it wrote to S3 leaves: parts that no listing of objects
shows. The folder's own store stands for S3, whose uploads it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest, Refused, StrandlineError
from pipeline.export.file_names import RunId, data_file_name
from pipeline.export.target_folder import TargetFolder
from pipeline.export.target_options import target_config
from pipeline.stores.opened_store import opened
from rsm_backends.filesystem import FilesystemStore
from rsm_backends.store_config import StoreConfig
from tests.pipeline.export.export_world import NAME, Killed, World, segment

RUN = RunId(1, f"{1:015x}")
"""The first run of a World."""


def started(config: StoreConfig, keys: Sequence[str]) -> None:
    async def start() -> None:
        async with opened(config) as store:
            for key in keys:
                await store.start_multipart(key)

    asyncio.run(start())


def left(config: StoreConfig) -> list[str]:
    with TargetFolder(config) as folder:
        return sorted(each.key for each in folder.uploads())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World("parquet", tmp_path, segments=[segment(0, 9)])


def test_uploads_of_a_killed_run_are_aborted_by_the_next_and_no_others(world: World) -> None:
    config = target_config(f"{world.root}/table", {}, {})
    with pytest.raises(Killed):
        world.run(kill_behind="write")
    killed = data_file_name(NAME, RUN, 3, "0badcafe", 0)
    others = [
        data_file_name("another_export", RUN, 3, "0badcafe", 0),
        data_file_name(NAME, RunId(2, RUN.attempt), 3, "0badcafe", 0),
        f"{killed}.part",
        "theirs.parquet",
    ]
    started(config, [killed, f"day=2026-01-31/{killed}", *others])
    done = world.run().done
    assert left(config) == sorted(others)
    assert done.removed_files == 2 + 1  # the uploads, and the file that was written


def test_an_upload_that_begins_after_its_run_was_settled_is_found_again(world: World) -> None:
    config = target_config(f"{world.root}/table", {}, {})
    with pytest.raises(Killed):
        world.run(kill_behind="write")
    world.run()
    started(config, [data_file_name(NAME, RUN, 3, "0badcafe", 0)])
    assert world.run().done.removed_files == 1
    assert left(config) == []


@pytest.mark.parametrize(
    "error", [Refused("s3:ListBucketMultipartUploads is denied"), InvalidRequest("not implemented")]
)
def test_a_store_that_does_not_tell_of_uploads_stops_no_export(
    world: World, error: StrandlineError, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: FilesystemStore, prefix: str) -> None:
        raise error

    monkeypatch.setattr(FilesystemStore, "uploads_below", refuse)
    with pytest.raises(Killed):
        world.run(kill_behind="write")
    assert world.run().done.removed_files == 1
    assert world.offsets() == list(range(10))
