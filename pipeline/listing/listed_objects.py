"""Every object of the stores as a Spark table, listed in tasks.

Columns: store, key, size, modified_ms (-1 where the store does not tell); and, null where the key
is no segment's: topic, topic_id, partition, start_offset, segment_id, suffix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafka_formats.errors import InvalidRequest
from pipeline.listing.key_ranges import KeyRange, dealt_out
from pipeline.listing.store_calls import config_named, key_ranges, list_ranges
from pipeline.worker_garbage import begin_task
from rlm.object_keys import parse_segment_key
from rsm_backends.store import ObjectInfo
from rsm_backends.store_config import StoreConfig

TASKS_PER_SLOT = 8
OBJECTS_SCHEMA = (
    "store string, key string, size bigint, modified_ms bigint, topic string, topic_id string, "
    "partition int, start_offset bigint, segment_id string, suffix string"
)
_ARROW = pa.schema(
    [
        ("store", pa.string()),
        ("key", pa.string()),
        ("size", pa.int64()),
        ("modified_ms", pa.int64()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("start_offset", pa.int64()),
        ("segment_id", pa.string()),
        ("suffix", pa.string()),
    ]
)


def listed_objects(spark: SparkSession, stores: Mapping[str, StoreConfig]) -> DataFrame:
    """Lists when it is computed, each time anew: keep it (`persist`) to look at it twice."""
    if not stores:
        raise InvalidRequest("say where the bucket is", field="--store")
    ranges = [each for config in stores.values() for each in key_ranges(config)]
    tasks = TASKS_PER_SLOT * spark.sparkContext.defaultParallelism
    groups = dealt_out(ranges, tasks)
    numbers = spark.range(0, len(groups), 1, len(groups))
    return numbers.mapInArrow(_ListGroups(dict(stores), groups), OBJECTS_SCHEMA)


@dataclass(frozen=True)
class _ListGroups:
    """What a task does: list the groups whose numbers it is given."""

    configs: Mapping[str, StoreConfig]
    groups: Sequence[Sequence[KeyRange]]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                ranges = sorted(self.groups[number], key=lambda each: each.store)
                for store, of_store in groupby(ranges, key=lambda each: each.store):
                    config = config_named(self.configs, store)
                    for page in list_ranges(config, of_store):
                        yield object_rows(config, page)


def object_rows(config: StoreConfig, page: Sequence[ObjectInfo]) -> pa.RecordBatch:
    """One page in the columns above."""
    rows = []
    for each in page:
        modified_ms = -1 if each.last_modified_ms is None else each.last_modified_ms
        row: dict[str, object] = {
            "store": config.name, "key": each.key, "size": each.size, "modified_ms": modified_ms,
        }  # fmt: skip
        parsed = parse_segment_key(config.prefix, each.key)
        if parsed is not None:
            partition = parsed.segment_id.partition
            row |= {
                "topic": partition.topic,
                "topic_id": str(partition.topic_id),
                "partition": partition.partition,
                "start_offset": parsed.start_offset,
                "segment_id": str(parsed.segment_id.id),
                "suffix": parsed.suffix.value,
            }
        rows.append(row)
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)
