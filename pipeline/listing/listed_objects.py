"""Lists every object of the stores as a Spark table, in tasks.

Columns: store, key, size, modified_ms (-1 if the store does not give it); and, null for keys that
do not belong to segments: topic, topic_id, partition, start_offset, segment_id, suffix.
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
from pipeline.spark.marked_pickle import SentWork
from pipeline.spark.worker_garbage import begin_task
from rlm.format.object_keys import parse_segment_key, segment_stem
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

_Segment = tuple[str, str, int, int, str] | tuple[None, None, None, None, None]
_NO_SEGMENT: _Segment = (None, None, None, None, None)


def listed_objects(spark: SparkSession, stores: Mapping[str, StoreConfig]) -> DataFrame:
    """The table. Each computation lists anew: keep it (`persist`) to read it twice."""
    if not stores:
        raise InvalidRequest("is missing: give the bucket's address", field="--store")
    ranges = [each for config in stores.values() for each in key_ranges(config)]
    tasks = TASKS_PER_SLOT * spark.sparkContext.defaultParallelism
    groups = dealt_out(ranges, tasks)
    numbers = spark.range(0, len(groups), 1, len(groups))
    return numbers.mapInArrow(SentWork(_ListGroups(dict(stores), groups)), OBJECTS_SCHEMA)


@dataclass(frozen=True)
class _ListGroups:
    """The work of a task: list the groups with the given numbers."""

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
    segments: list[_Segment] = []
    suffixes: list[str | None] = []
    stem_before, segment = "", _NO_SEGMENT
    for each in page:
        # The three objects of a segment are neighbours, and their keys differ only in the suffix.
        stem, suffix = segment_stem(each.key)
        if suffix is not None and stem != stem_before:
            stem_before, segment = stem, _segment(config.prefix, each.key)
        segments.append(_NO_SEGMENT if suffix is None else segment)
        suffixes.append(None if segments[-1] is _NO_SEGMENT else suffix)
    columns = [
        [config.name] * len(page),
        [each.key for each in page],
        [each.size for each in page],
        [-1 if each.last_modified_ms is None else each.last_modified_ms for each in page],
        *([each[at] for each in segments] for at in range(len(_NO_SEGMENT))),
        suffixes,
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, each.type) for column, each in zip(columns, _ARROW, strict=True)],
        schema=_ARROW,
    )


def _segment(prefix: str, key: str) -> _Segment:
    parsed = parse_segment_key(prefix, key)
    if parsed is None:
        return _NO_SEGMENT
    partition = parsed.segment_id.partition
    return (
        partition.topic, str(partition.topic_id), partition.partition, parsed.start_offset,
        str(parsed.segment_id.id),
    )  # fmt: skip
