"""Long jobs tell of the bytes that they read: else they would be taken for hanging ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rlm.data_plane.copy_job import CopyJob
from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.read_request import TieredSegment
from rlm.data_plane.repair_jobs import (
    READ_TOLD_BYTES,
    CheckJob,
    GatherJob,
    LocalLog,
    LocalSource,
    expected_objects,
)
from rlm.data_plane.segment_survey import SurveyJob
from rlm.format.object_keys import ObjectSuffix
from rsm_backends.memory import MemoryStore
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.tier import NOW_MS, PREFIX, STORE, first_job, now_ms, tiered


@pytest.fixture
def job(tmp_path: Path) -> CopyJob:
    replica = ReplicaWriter(write_log_dir(tmp_path / "logs"))
    for _ in range(100):
        replica.append(1, value_bytes=10_000)
    replica.roll()
    return first_job(replica.log_dir)


def log_of(job: CopyJob) -> Path:
    return job.directory / f"{job.start_offset:020}.log"


async def test_a_survey_tells_of_its_walk_from_batch_to_batch(job: CopyJob) -> None:
    size, told = log_of(job).stat().st_size, list[int]()
    plane = DataPlane({}, now_ms=now_ms)
    assert (await plane.survey(SurveyJob(job, size), told.append)).missing == ()
    await asyncio.sleep(0)
    assert max(told) < 2 * READ_TOLD_BYTES
    assert sum(told) > size - READ_TOLD_BYTES


async def copied(job: CopyJob) -> tuple[DataPlane, TieredSegment]:
    plane = DataPlane({STORE: MemoryStore(now_ms)}, now_ms=now_ms)
    return plane, tiered(job, await plane.copy(job))


async def test_a_check_tells_of_all_that_it_reads(job: CopyJob) -> None:
    plane, segment = await copied(job)
    objects = expected_objects(PREFIX, segment.segment_id, 0, segment.custom_metadata)
    told = list[int]()
    assert (await plane.check(CheckJob(STORE, objects), told.append)).wrong == ()
    assert sum(told) == sum(each.size_bytes for each in objects)


async def test_a_search_for_a_whole_copy_tells_of_the_walk_and_of_what_it_reads(
    job: CopyJob,
) -> None:
    plane, segment = await copied(job)
    objects = expected_objects(PREFIX, segment.segment_id, 0, segment.custom_metadata)
    # Its end is not known, so that the wanted batches are looked for.
    logs = LocalSource("here", (LocalLog(log_of(job), job.start_offset, None),))
    gathering = GatherJob(
        job.segment_id, job.start_offset, job.end_offset, NOW_MS, True, job.lineage_checkpoint,
        STORE, objects, frozenset({ObjectSuffix.LOG}), (logs,), None,
    )  # fmt: skip
    told = list[int]()
    assert (await plane.gather(gathering, told.append)).source == "here"
    size = log_of(job).stat().st_size
    assert sum(told) > 2 * size - READ_TOLD_BYTES


async def test_a_look_for_the_end_of_an_active_log_tells_of_its_walk(job: CopyJob) -> None:
    plane, segment = await copied(job)
    objects = expected_objects(PREFIX, segment.segment_id, 0, segment.custom_metadata)
    logs = LocalSource("here", (LocalLog(log_of(job), job.start_offset, None),))
    gathering = GatherJob(
        job.segment_id, job.start_offset, job.end_offset, NOW_MS, False, job.lineage_checkpoint,
        STORE, objects, frozenset({ObjectSuffix.INDEXES, ObjectSuffix.MANIFEST}), (logs,), None,
    )  # fmt: skip
    told = list[int]()
    found = await plane.gather(gathering, told.append)
    assert found.tried == ("indexes of here: their transaction indexes have no entry",)
    await asyncio.sleep(0)
    assert sum(told) > 2 * log_of(job).stat().st_size - READ_TOLD_BYTES
