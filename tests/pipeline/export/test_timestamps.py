"""Timestamps that no calendar has: bad records to tables with years, not to a plain folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from kafka_formats.errors import InvalidRequest
from pipeline.export.timestamp_check import FIRST_US, LAST_US
from pipeline.jobs.export import ExportOptions, check_options
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.source.options import Subscription
from rsm_backends.store_config import StoreConfig
from tests.pipeline.export.export_world import FORMATS, World, read_made, segment
from tests.pipeline.export.test_dead_letters import OddOnesAreBad

MICROSECONDS_AS_MILLIS = 1_790_000_000_000_000
TIMES_MS = {
    2: MICROSECONDS_AS_MILLIS,
    4: -1,  # none, to Kafka
    5: LAST_US // 1000,
    6: LAST_US // 1000 + 1,
    7: FIRST_US // 1000,
    8: FIRST_US // 1000 - 1,
}
BAD = [2, 6, 8]
GOOD = [0, 1, 3, 4, 5, 7, 9]


def read_odd_times(
    slices: Iterable[SegmentSlice], stores: Mapping[str, StoreConfig], settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    for batch in read_made(slices, stores, settings):
        at = batch.schema.get_field_index("timestamp")
        made = batch.column(at).cast(pa.int64()).to_pylist()
        offsets = batch.column("offset").to_pylist()
        times = [
            TIMES_MS[offset] * 1000 if offset in TIMES_MS else micros
            for offset, micros in zip(offsets, made, strict=True)
        ]
        field = batch.schema.field(at)
        yield batch.set_column(at, field, pa.array(times, field.type))


@pytest.fixture(
    params=[(each, days) for each in FORMATS for days in (False, True)][1:],
    ids=lambda each: f"{each[0]}{'-by-day' if each[1] else ''}",
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Of every table that has years."""
    format, by_day = request.param
    return World(format, tmp_path, by_day, [segment(0, 9)], read=read_odd_times)


def test_a_record_of_no_year_fails_the_run_by_its_offset(world: World) -> None:
    with pytest.raises(InvalidRequest, match="the record at offset 2 of orders-0") as caught:
        world.run()
    assert f"timestamp: {MICROSECONDS_AS_MILLIS} ms" in str(caught.value)
    assert "--on-error skip or dead-letter" in str(caught.value)
    assert world.data_files() == world.named_files() == []
    world.on_error = "skip"
    assert world.run().done.commits == [1]


def test_records_of_no_year_are_skipped_and_counted(world: World) -> None:
    world.on_error = "skip"
    done = world.run().done
    assert (done.rows, done.skipped) == (len(GOOD), len(BAD))
    assert world.run().done.commits == []
    assert len(world.data_files()) > 0
    assert world.data_files() == world.named_files()


def test_records_of_no_year_are_dead_letters_with_their_times_as_text(world: World) -> None:
    world.on_error = "dead-letter"
    done = world.run().done
    assert (done.rows, done.dead_letters) == (len(GOOD), len(BAD))
    dead = world.rows("_dead_letters")
    assert [row["offset"] for row in dead] == BAD
    assert [row["timestamp"] for row in dead] == [None] * len(BAD)
    assert [row["value"] for row in dead] == [b"v2" * 20, b"v6" * 20, b"v8" * 20]
    for row, offset in zip(dead, BAD, strict=True):
        assert f"timestamp: {TIMES_MS[offset]} ms" in str(row["error"])


def test_both_kinds_of_bad_records_share_a_run(world: World) -> None:
    world.decoding, world.on_error = OddOnesAreBad(), "dead-letter"
    world.run()
    assert world.offsets("_dead_letters") == [1, 2, 3, 5, 6, 7, 8, 9]
    assert world.offsets() == [0, 4]


def test_a_run_may_hold_nothing_but_records_of_no_year(world: World) -> None:
    world.on_error = "skip"
    world.segments = [segment(2, 2)]
    done = world.run().done
    assert (done.rows, done.skipped, done.files) == (0, 1, 0)
    world.segments.append(segment(3, 3))
    assert world.run().done.rows == 1
    assert world.offsets() == [3]


def test_a_plain_folder_holds_every_time(tmp_path: Path) -> None:
    world = World("parquet", tmp_path, segments=[segment(0, 9)], read=read_odd_times)
    assert world.run().done.rows == 10
    (path,) = world.data_files()
    times = parquet.read_table(path).column("timestamp").cast(pa.int64()).to_pylist()
    assert {at: times[at] // 1000 for at in TIMES_MS} == TIMES_MS


def test_an_error_mode_without_effect_is_refused(tmp_path: Path) -> None:
    to, topics = str(tmp_path / "table"), Subscription(("orders",))
    plain = ExportOptions(to=to, subscription=topics, on_error="skip")
    with pytest.raises(InvalidRequest, match=r"--on-error: has no effect here"):
        check_options(plain, {})
    check_options(replace(plain, by_day=True), {})
    check_options(replace(plain, table_format="delta", on_error="dead-letter"), {})
