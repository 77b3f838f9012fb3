"""Decoded values through the whole job: in Spark's tasks, into tables, and back out of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet
from pyspark.sql import SparkSession
from rich.console import Console

from kafka_formats.record_batch import Record, encode_batch
from pipeline.export.iceberg_table import open_catalog
from pipeline.export.schema_registry import RegistryAddress
from pipeline.export.value_decoding import Format, ValueFormats
from pipeline.jobs import export
from pipeline.jobs.job import JobContext
from pipeline.source.options import Subscription
from tests.pipeline.export.registry_server import RegistryServer, framed
from tests.pipeline.export.serialised import (
    ORDER_V1,
    ORDER_V2,
    avro,
    order_descriptor,
    protobuf_order,
)
from tests.pipeline.read.folder_tier import tier_log_dir
from tests.pipeline.restore.captured_tier import CapturedTier
from tests.rlm.broker_files import FIRST_TIMESTAMP_MS, ReplicaWriter, write_log_dir

pytestmark = pytest.mark.spark

JSON_ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "lines": {"type": "array", "items": {"type": "object",
                                             "properties": {"sku": {"type": "string"}}}},
    },
}  # fmt: skip
AVRO_VALUE = {"id": 1, "amount": Decimal("1.25"), "placed": datetime(2026, 1, 1, tzinfo=UTC)}
ADDED = {"note": None, "either": None}
JSON_VALUE = {"id": 2, "lines": [{"sku": "x"}, {"sku": "y"}]}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def values_by_topic(registry: RegistryServer) -> dict[str, list[bytes | None]]:
    """A tombstone in the end of each; Avro by two versions of its schema."""
    old = registry.add("avro-value", "AVRO", json.dumps(ORDER_V1))
    new = registry.add("avro-value", "AVRO", json.dumps(ORDER_V2))
    text = registry.add("json-value", "JSON", json.dumps(JSON_ORDER))
    proto = registry.add("protobuf-value", "PROTOBUF", "unused", order_descriptor())
    return {
        "avro": [
            framed(old, avro(ORDER_V1, AVRO_VALUE)),
            framed(new, avro(ORDER_V2, {**AVRO_VALUE, "tags": ["a"]})),
            None,
        ],
        "json": [framed(text, json.dumps(JSON_VALUE).encode()), None],
        "protobuf": [framed(proto, protobuf_order(id=7, tags=["a"], line={"raw": b"r"})), None],
    }


def tier_values(folder: Path, by_topic: dict[str, list[bytes | None]]) -> CapturedTier:
    log_dir = write_log_dir(folder / "logs")
    for topic, values in by_topic.items():
        replica = ReplicaWriter(log_dir, topic=topic)
        records = [
            Record(offset, FIRST_TIMESTAMP_MS + offset, b"key", value, ())
            for offset, value in enumerate(values)
        ]
        replica.batches.append(encode_batch(records, base_offset=0, partition_leader_epoch=0))
        replica.next_offset = len(values)
        replica.roll()
    tier = tier_log_dir(log_dir, folder / "tier")
    return CapturedTier(tier.stores, tier.found)


def test_avro_json_and_protobuf_reach_tables_as_structs(
    spark: SparkSession, registry: RegistryServer, tmp_path: Path
) -> None:
    tier = tier_values(tmp_path, values_by_topic(registry))
    context = JobContext(spark, {}, tier, Console(stderr=True, quiet=True))
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }

    def exported(kind: Format, to: str, **more: Any) -> None:
        wanted = export.ExportOptions(
            to=to,
            subscription=Subscription((kind,)),
            formats=ValueFormats(value=kind, registry=RegistryAddress(registry.url)),
            **more,
        )
        assert export.run(context, wanted).ok

    exported("avro", str(tmp_path / "delta"), table_format="delta")
    assert values(DeltaTable(str(tmp_path / "delta")).to_pyarrow_table()) == [
        {**AVRO_VALUE, **ADDED, "tags": []},
        {**AVRO_VALUE, **ADDED, "tags": ["a"]},
        None,
    ]
    exported(
        "json", "lake.json", table_format="iceberg", catalog="tests", catalog_properties=catalog
    )
    table = open_catalog("tests", catalog).load_table("lake.json")
    assert values(table.scan().to_arrow()) == [JSON_VALUE, None]
    exported("protobuf", str(tmp_path / "files"))
    (file,) = (tmp_path / "files").glob("*.parquet")
    assert values(parquet.read_table(file)) == [
        {"id": 7, "tags": ["a"], "line": {"raw": b"r"}},
        None,
    ]


def values(table: pa.Table) -> list[object]:
    return list(table.sort_by("offset").column("value").to_pylist())
