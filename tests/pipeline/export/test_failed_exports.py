"""Runs that meet damaged or deleted segments commit nothing; the next one is whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_formats.errors import CorruptData, NotFound
from pipeline.export.export_plan import OffsetRange
from pipeline.read.records import read_slices
from pipeline.read.segment_slice import COLUMNS, ReadSettings, SegmentSlice
from rsm_backends.store_config import StoreConfig
from tests.pipeline.export.export_world import FORMATS, TOPIC, World
from tests.pipeline.read.folder_tier import FolderTier, tier_log_dir
from tests.rlm.broker_files import ReplicaWriter, write_log_dir


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> FolderTier:
    """Three segments of ten records each."""
    folder = tmp_path_factory.mktemp("failed")
    replica = ReplicaWriter(write_log_dir(folder / "logs"), topic_id=TOPIC.topic_id)
    for _ in range(3):
        replica.append(10)
        replica.roll()
    return tier_log_dir(folder / "logs", folder / "tier")


@pytest.fixture
def tier(whole: FolderTier, tmp_path: Path) -> FolderTier:
    """One that a test may damage."""
    return whole.copied_to(tmp_path / "tier")


@pytest.fixture(params=FORMATS)
def world(request: pytest.FixtureRequest, tier: FolderTier, tmp_path: Path) -> World:
    """A task a segment, and four offsets exported already."""

    def read(
        slices: Iterable[SegmentSlice], stores: Mapping[str, StoreConfig], settings: ReadSettings
    ) -> Iterator[pa.RecordBatch]:
        columns = (*COLUMNS, "headers")
        return read_slices(slices, tier.stores, ReadSettings(columns=columns))

    made = World(
        request.param,
        tmp_path / "lake",
        segments=list(tier.segments(TOPIC.topic)),
        read=read,
        task_bytes=1,
    )
    made.run(OffsetRange(0, 3))
    return made


def assert_nothing_was_committed(world: World, before: list[str]) -> None:
    """Though earlier tasks of the run have written their files."""
    assert world.offsets() == [0, 1, 2, 3]
    assert world.named_files() == before
    assert set(before) < set(world.data_files())


def assert_whole(world: World, offsets: list[int]) -> None:
    assert world.run().done.commits == [2]
    assert world.offsets() == offsets
    assert world.data_files() == world.named_files()
    assert world.run().done.commits == []


def test_a_damaged_object_fails_a_run_that_then_has_committed_nothing(
    world: World, tier: FolderTier
) -> None:
    before, path = world.named_files(), tier.file(world.segments[2])
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\0\0" + data[102:])
    with pytest.raises(
        CorruptData, match=rf"{path.name} at byte 0.* of orders-0, offsets 20 to 29"
    ):
        world.run()
    assert_nothing_was_committed(world, before)
    path.write_bytes(data)
    assert_whole(world, list(range(30)))


def test_a_segment_deleted_since_the_plan_fails_the_run_and_the_next_one_takes_the_rest(
    world: World, tier: FolderTier
) -> None:
    before, path = world.named_files(), tier.file(world.segments[1])
    world.planned = path.unlink
    gone = "of orders-0, offsets 10 to 19, is not in the store .* Run the job again,"
    with pytest.raises(NotFound, match=gone):
        world.run()
    assert_nothing_was_committed(world, before)
    del world.segments[1]
    assert_whole(world, [*range(10), *range(20, 30)])
