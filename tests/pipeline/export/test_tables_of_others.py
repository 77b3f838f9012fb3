"""Tables that somebody else made: taken if they can hold every record, else refused untouched."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from kafka_formats.errors import Conflict
from pipeline.decode.schema import arrow_schema
from pipeline.read.segment_slice import SegmentSlice
from tests.pipeline.export.export_world import World, made_batch, segment

RECORDS = arrow_schema()
THEIRS = 900
"""The offset of the one row that they have."""


@pytest.fixture(params=["delta", "iceberg"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path, segments=[segment(0, 9)])


def make(world: World, schema: pa.Schema, **configuration: str) -> None:
    """Their table, empty."""
    if world.format == "delta":
        delta_schema, properties = Schema.from_arrow(schema), dict(configuration)
        DeltaTable.create(str(delta(world)), schema=delta_schema, configuration=properties)
        return
    catalog = world.catalog()
    catalog.create_namespace_if_not_exists("lake")
    catalog.create_table("lake.orders", schema)


def delta(world: World) -> Path:
    return world.root / "table"


def version(world: World) -> object:
    if world.format == "delta":
        return DeltaTable(str(delta(world))).version()
    return world.catalog().load_table("lake.orders").metadata_location


def assert_refused(world: World, words: str) -> None:
    before = version(world)
    with pytest.raises(Conflict, match=words) as raised:
        world.run()
    assert raised.value.reason == "SCHEMA"
    assert version(world) == before
    assert world.data_files() == []


def test_an_export_goes_behind_the_rows_that_a_table_has_and_keeps_them(world: World) -> None:
    make(world, pa.schema(reversed(RECORDS)))
    row = pa.table(made_batch(SegmentSlice(segment(0, 999), 0, 999), [THEIRS]))
    if world.format == "delta":
        write_deltalake(str(delta(world)), row.select(RECORDS.names[::-1]), mode="append")
    else:
        world.catalog().load_table("lake.orders").append(row)
    world.run()
    world.segments.append(segment(10, 12))
    world.run()
    assert world.offsets() == [*range(13), THEIRS]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (RECORDS.append(pa.field("region", pa.string())), "region is string and should be absent"),
        (RECORDS.remove(7), "headers is missing and should be list"),
        (RECORDS.set(4, pa.field("offset", pa.string())), "offset is string and should be int64"),
    ],
)
def test_other_columns_are_refused_by_name(world: World, schema: pa.Schema, words: str) -> None:
    make(world, schema)
    assert_refused(world, words)


def test_a_column_that_takes_no_null_is_refused(world: World) -> None:
    make(world, RECORDS.set(0, pa.field("key", pa.binary(), nullable=False)))
    assert_refused(world, "key is NOT NULL")


def test_a_delta_table_that_wants_more_of_its_writers_than_rows_is_refused(tmp_path: Path) -> None:
    """Its rows would be read as NULL, or break what was promised to readers."""
    mapped = World("delta", tmp_path / "mapped", segments=[segment(0, 9)])
    make(mapped, RECORDS, **{"delta.columnMapping.mode": "name"})
    assert_refused(mapped, "delta.columnMapping.mode")
    held = World("delta", tmp_path / "held", segments=[segment(0, 9)])
    make(held, RECORDS)
    DeltaTable(str(delta(held))).alter.add_constraint({"young": "offset >= 900"})
    assert_refused(held, "delta.constraints.young")


def test_a_delta_table_with_features_that_nobody_here_can_write_is_no_case_for_a_repeat(
    tmp_path: Path,
) -> None:
    world = World("delta", tmp_path, segments=[segment(0, 9)])
    make(world, RECORDS)
    (log,) = (delta(world) / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for each in actions:
        if "protocol" in each:
            features = ["rowTracking", "domainMetadata"]
            each["protocol"] = {
                "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features,
            }  # fmt: skip
    log.write_text("".join(json.dumps(each) + "\n" for each in actions))
    with pytest.raises(Conflict, match=r"RowTracking.* Nothing was committed") as raised:
        world.run()
    assert raised.value.reason == "SCHEMA"
    assert world.offsets() == []
