"""What an export takes, what it refuses, and what it leaves alone: for each table format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from kafka_formats.errors import Conflict, InternalError, InvalidRequest
from pipeline.decode.schema import arrow_schema
from pipeline.export.export_plan import OffsetRange
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from rsm_backends.store_config import StoreConfig
from tests.pipeline.export.export_world import (
    FORMATS,
    Killed,
    World,
    made_batch,
    read_made,
    segment,
)

OF_OTHERS_TOO = pytest.mark.parametrize("world", ["delta", "iceberg"], indirect=True)
"""The log of a Parquet folder is the export's own."""


@pytest.fixture(params=FORMATS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path, segments=[segment(0, 9), segment(10, 19)])


def expected(offsets: range) -> list[dict[str, object]]:
    part = SegmentSlice(segment(0, 99), 0, 99)
    return list(made_batch(part, offsets).to_pylist())


def test_the_next_run_goes_on_where_the_last_commit_ended(world: World) -> None:
    assert world.run().done.rows == 20
    assert world.run().done.commits == []
    world.segments.append(segment(20, 29))
    done = world.run().done
    assert (done.commits, done.rows) == ([2], 10)
    assert world.rows() == expected(range(30))


def test_a_backfill_takes_of_its_range_what_is_missing(world: World) -> None:
    world.run(OffsetRange(12, 15))
    assert world.offsets() == [12, 13, 14, 15]
    world.run()
    assert world.offsets() == list(range(12, 20))
    world.run(OffsetRange(3, 13))
    assert world.offsets() == list(range(3, 20))
    assert world.run(OffsetRange(3, 19)).done.commits == []


def test_of_two_runs_at_once_one_loses_and_leaves_nothing(world: World) -> None:
    world.between = lambda: None if world.run().done.rows == 20 else pytest.fail("the winner")
    with pytest.raises(Conflict, match="another run") as caught:
        world.run()
    assert caught.value.reason == "OVERTAKEN"
    assert world.offsets() == list(range(20))
    assert world.data_files() == world.named_files()


def test_a_run_that_planned_before_another_one_committed_exports_nothing_twice(
    world: World,
) -> None:
    world.planned = lambda: None if world.run().done.rows == 20 else pytest.fail("the winner")
    with pytest.raises(Conflict, match="another run") as caught:
        world.run()
    assert caught.value.reason == "OVERTAKEN"
    assert world.offsets() == list(range(20))
    assert world.data_files() == world.named_files()


def test_a_run_whose_files_the_winner_removed_is_told_that_it_lost(world: World) -> None:
    """Not that its folder is another one, which was never so."""

    def slow(
        slices: Iterable[SegmentSlice], stores: Mapping[str, StoreConfig], settings: ReadSettings
    ) -> Iterator[pa.RecordBatch]:
        if world.data_files():
            world.read = read_made
            assert world.run().done.rows == 20
        yield from read_made(slices, stores, settings)

    world.task_bytes, world.read = 1, slow
    with pytest.raises(Conflict, match="another run") as caught:
        world.run()
    assert caught.value.reason == "OVERTAKEN"
    assert world.offsets() == list(range(20))
    assert world.data_files() == world.named_files()


def test_what_a_run_under_way_has_written_is_left_alone(world: World) -> None:
    world.run(OffsetRange(0, 4))
    with pytest.raises(Killed):
        world.run(kill_behind="files")
    at_work = set(world.data_files()) - set(world.named_files())
    assert at_work
    done = world.run(OffsetRange(0, 4)).done  # nothing to commit, so nothing is decided
    assert len(done.under_way) == 1
    assert at_work < set(world.data_files())
    assert world.run().done.removed_files == len(at_work)
    assert world.data_files() == world.named_files()


def test_files_of_others_are_never_removed(world: World) -> None:
    world.run(OffsetRange(0, 4))
    one = Path(world.data_files()[0])
    others = [
        one.with_name("part-00000.parquet"),
        one.with_name(one.name.replace("strandline-tests-", "strandline-other-")),
        one.with_name(one.name + ".crc"),
    ]
    for other in others:
        other.write_bytes(one.read_bytes())
    with pytest.raises(Killed):
        world.run(kill_at_record=17)
    world.run()
    assert all(other.exists() for other in others)


def test_a_file_that_the_table_names_is_not_removed_whatever_the_records_say(world: World) -> None:
    run = world.run()
    for file in world.root.rglob("*.settled"):
        pytest.fail(f"nothing was repeated, yet {file} is watched")
    forged = world.root / "forged"
    forged.mkdir()
    place = world.place("", arrow_schema(), None)
    try:
        first = Path(world.named_files()[0]).name
        attempt = first.split("-")[3]
        place.folder.create(f"_strandline/tests/runs/00000001-{attempt}.settled", {"kept": []})
    finally:
        place.folder.close()
    with pytest.raises(InternalError, match="nothing was removed"):
        world.run()
    assert run.done.rows == 20
    assert world.offsets() == list(range(20))


def test_files_that_the_driver_does_not_see_are_not_committed(world: World) -> None:
    """As where a folder of that name on an executor's own disk took them."""
    world.run(OffsetRange(0, 4))
    before = set(world.data_files())

    def wrote_elsewhere(
        slices: Iterable[SegmentSlice], stores: Mapping[str, StoreConfig], settings: ReadSettings
    ) -> Iterator[pa.RecordBatch]:
        for path in set(world.data_files()) - before:
            Path(path).rename(world.root / Path(path).name)
        yield from read_made(slices, stores, settings)

    world.task_bytes, world.read = 1, wrote_elsewhere
    with pytest.raises(InvalidRequest, match=r"--to: .*strandline-tests-00000002-.* same folder"):
        world.run()
    assert world.offsets() == list(range(5))
    world.read = read_made
    world.run()
    assert world.rows() == expected(range(20))


def test_days_are_partitions_and_files_hold_one_each(world: World) -> None:
    world.by_day = True
    world.run()
    assert world.rows() == expected(range(20))
    days = {str(path).partition("day=")[2][:10] for path in world.data_files()}
    assert days == {"1970-01-01", "1970-01-02", "1970-01-03"}
    if world.format == "iceberg":
        spec = world.catalog().load_table("lake.orders").inspect.partitions()
        assert {row["partition"]["timestamp_day"].isoformat() for row in spec.to_pylist()} == days
    if world.format == "delta":
        table = DeltaTable(str(world.root / "table")).to_pyarrow_table()
        assert {each.isoformat() for each in table.column("day").to_pylist()} == days


def test_a_run_commits_in_pieces_so_that_a_kill_loses_one_only(world: World) -> None:
    world.task_bytes, world.commit_bytes = 10_000, 10_000
    with pytest.raises(Killed):
        world.run(kill_at_record=15)
    assert world.offsets() == list(range(10))
    assert world.run().done.commits == [2]
    assert world.rows() == expected(range(20))


def test_a_table_whose_schema_differs_is_refused_and_untouched(world: World) -> None:
    world.run(OffsetRange(0, 4))
    world.value_type = pa.struct([pa.field("amount", pa.int64())])
    with pytest.raises(Conflict, match="value is binary and should be struct<amount: int64>"):
        world.run()
    world.value_type, world.by_day = None, True
    with pytest.raises(Conflict, match="partitioned by nothing"):
        world.run()
    world.by_day = False
    assert world.offsets() == list(range(5))
    assert world.data_files() == world.named_files()


@pytest.mark.parametrize("stray", ["theirs.parquet", "day=2026-01-31/part-0.parquet"])
def test_a_folder_that_holds_what_others_wrote_is_no_place_for_a_new_table(
    world: World, stray: str
) -> None:
    if world.format == "iceberg":
        pytest.skip("its catalog says where a table is")
    theirs = world.root / "table" / stray
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    with pytest.raises(Conflict, match=f"holds '{stray}'"):
        world.run()
    assert [path for path in (world.root / "table").rglob("*") if path.is_file()] == [theirs]


@OF_OTHERS_TOO
def test_commits_of_others_in_between_do_not_stop_an_export(world: World) -> None:
    foreign = made_batch(SegmentSlice(segment(0, 999), 0, 999), [900])

    def somebody_appends() -> None:
        if world.format == "delta":
            write_deltalake(str(world.root / "table"), pa.table(foreign), mode="append")
        else:
            world.catalog().load_table("lake.orders").append(pa.table(foreign))

    world.run(OffsetRange(0, 4))
    world.between = somebody_appends
    world.run()
    assert world.offsets() == [*range(20), 900]
    world.segments.append(segment(20, 22))
    world.run()
    assert world.offsets() == [*range(23), 900]


@OF_OTHERS_TOO
def test_a_table_that_was_rolled_back_is_refused(world: World) -> None:
    world.run(OffsetRange(0, 4))
    if world.format == "delta":
        DeltaTable(str(world.root / "table")).restore(0)
    else:
        first = world.catalog().load_table("lake.orders").current_snapshot()
        assert first is not None
        world.run(OffsetRange(5, 9))
        world.catalog().load_table("lake.orders").manage_snapshots().set_current_snapshot(
            first.snapshot_id
        ).commit()
    with pytest.raises(Conflict) as caught:
        world.run()
    assert caught.value.reason == "ROLLED_BACK"


def test_duckdb_reads_what_was_exported(world: World) -> None:
    world.run()
    files = ", ".join(f"'{path}'" for path in world.named_files())
    read = duckdb.sql(f'select * from read_parquet([{files}]) order by "offset"').arrow()
    table = read if isinstance(read, pa.Table) else read.read_all()
    wanted = expected(range(20))
    for row, should in zip(table.to_pylist(), wanted, strict=True):
        assert {**row, "timestamp": row["timestamp"].timestamp()} == {
            **should,
            "timestamp": should["timestamp"].timestamp(),  # type: ignore[attr-defined]  # datetime
        }


def test_readers_prune_files_by_offset(world: World) -> None:
    world.task_bytes = 10_000
    world.run()
    for path in world.data_files():
        group = parquet.read_metadata(path).row_group(0)
        stats = {
            group.column(at).path_in_schema: group.column(at).statistics
            for at in range(group.num_columns)
        }
        assert stats["offset"].max - stats["offset"].min == 9
        assert stats["value"] is None
    if world.format == "delta":
        actions = pa.table(DeltaTable(str(world.root / "table")).get_add_actions(flatten=True))
        assert sorted(actions.column("min.offset").to_pylist()) == [0, 10]
    if world.format == "iceberg":
        scan = world.catalog().load_table("lake.orders").scan("offset = 3")
        assert len(list(scan.plan_files())) == 1


def test_the_offsets_stand_in_the_commit_itself(world: World) -> None:
    world.run()
    offsets = {"orders-0(AAECAwQFBgcICQoLDA0ODw)": [[0, 19]]}
    if world.format == "iceberg":
        snapshot = world.catalog().load_table("lake.orders").current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        told = snapshot.summary.additional_properties["strandline.export.offsets"]
    elif world.format == "delta":
        told = DeltaTable(str(world.root / "table")).history(1)[0]["strandline"]
    else:
        folder = world.root / "table/_strandline/tests/commits"
        told = (folder / "000000000001.json").read_text()
    for text in (next(iter(offsets)), "[0, 19]"):
        assert text in " ".join(told.split()).replace("[ ", "[").replace(" ]", "]")
