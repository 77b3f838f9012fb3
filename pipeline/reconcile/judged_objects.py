"""Joins listed objects with the metadata and judges them, in Spark."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial, reduce
from operator import add, and_
from typing import Any

import pyarrow as pa
from pyarrow import compute
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kafka_formats.errors import NotFound
from pipeline.listing.listed_objects import OBJECTS_SCHEMA
from pipeline.reconcile.known_rows import known_size
from pipeline.reconcile.verdict import (
    KnownSegment,
    SegmentClass,
    object_class,
    segment_id_of,
)
from pipeline.spark.marked_pickle import SentWork
from pipeline.spark.worker_garbage import begin_task
from pipeline.stores.many_calls import many_calls
from pipeline.stores.opened_store import opened
from rlm.format.object_keys import ObjectSuffix, segment_keys, segment_stem
from rlm.reconcile.adoption_plan import why_missing
from rlm.reconcile.collection_plan import ObjectClass
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig

ID = ["topic_id", "partition", "segment_id"]
SEGMENT = ["store", "topic", *ID, "start_offset"]
JUDGED_SCHEMA = f"{OBJECTS_SCHEMA}, state string, class string, name string"
SEGMENTS_SCHEMA = "class string, name string, size bigint"
KNOWN_COLUMNS = ("state", "known_start", "due_ms")


def judged_objects(
    objects: DataFrame, known: DataFrame, stores: Mapping[str, StoreConfig], now_ms: int
) -> DataFrame:
    """Every object with its class, and `name` as `store:key`."""
    prefixes = {name: config.prefix for name, config in stores.items()}
    joined = objects.join(known.select(*ID, *KNOWN_COLUMNS), ID, "left")
    ordered = joined.select(*_names(OBJECTS_SCHEMA), *KNOWN_COLUMNS)
    return ordered.mapInArrow(SentWork(_JudgeObjects(prefixes, now_ms)), JUDGED_SCHEMA)


def _names(schema: str) -> list[str]:
    return [column.split()[0] for column in schema.split(", ")]


@dataclass(frozen=True)
class _JudgeObjects:
    prefixes: Mapping[str, str]
    now_ms: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for batch in batches:
            kept = [batch.column(name) for name in (*_names(OBJECTS_SCHEMA), "state")]
            name = compute.binary_join_element_wise(batch.column("store"), batch.column("key"), ":")
            yield pa.RecordBatch.from_arrays(
                [*kept, pa.array(self._classes(batch), pa.string()), name],
                names=_names(JUDGED_SCHEMA),
            )

    def _classes(self, batch: pa.RecordBatch) -> list[str]:
        columns = (batch.column(name).to_pylist() for name in ("store", "key", *KNOWN_COLUMNS))
        classes: list[str] = []
        before = None
        for store, key, *known in zip(*columns, strict=True):
            # The objects of a segment have the same class, and are neighbours after the join.
            stem, suffix = segment_stem(key)
            this = None if suffix is None else (store, stem, known)
            is_same = this is not None and this == before
            classes.append(classes[-1] if is_same else self._class(store, key, *known))
            before = this
        return classes

    def _class(
        self, store: str, key: str, state: str | None, start_offset: int, due_ms: int
    ) -> str:
        known = None if state is None else KnownSegment(state, start_offset, due_ms)
        return object_class(key, self.prefixes[store], known, now_ms=self.now_ms).value


def incomplete_segments(judged: DataFrame) -> DataFrame:
    """Segments that were never in the metadata and lack some of the three objects: copies that
    ended early.
    """
    foreign = judged.where(
        (f.col("class") == ObjectClass.FOREIGN.value) & f.col("suffix").isNotNull()
    )
    counted = foreign.groupBy(*SEGMENT).agg(f.count("*").alias("objects"))
    return counted.where(f.col("objects") < len(ObjectSuffix)).select(*SEGMENT)


def table_rows(judged: DataFrame) -> DataFrame:
    """The judged objects; those of incomplete segments get a class of their own."""
    marked = incomplete_segments(judged).withColumn("incomplete", f.lit(True))
    told = f.when(f.col("incomplete"), SegmentClass.INCOMPLETE.value).otherwise(f.col("class"))
    joined = judged.join(marked, SEGMENT, "left").withColumn("class", told)
    return joined.select(*_names(JUDGED_SCHEMA))


def judged_segments(
    judged: DataFrame, known: DataFrame, stores: Mapping[str, StoreConfig]
) -> DataFrame:
    """Segments that are missing or incomplete: class, name, bytes."""
    sizes = [
        f.max(f.when(f.col("suffix") == suffix.value, f.col("size"))).alias(suffix.name.lower())
        for suffix in ObjectSuffix
    ]
    listed = judged.where("suffix IS NOT NULL").groupBy(
        "store", "topic", *ID, "start_offset", "class"
    )
    segments = listed.agg(*sizes, f.sum("size").alias("size"), f.count("*").alias("objects"))
    incomplete = segments.where(
        (f.col("class") == ObjectClass.FOREIGN.value) & (f.col("objects") < len(ObjectSuffix))
    ).select(
        f.lit(SegmentClass.INCOMPLETE.value).alias("class"),
        f.concat_ws(" ", f.concat_ws(":", "store", "topic"), *ID).alias("name"),
        f.col("size").cast("bigint"),
    )
    finished = known.where("state = 'COPY_SEGMENT_FINISHED'")
    there = segments.select(
        f.col("store").alias("known_store"),
        *ID,
        f.col("start_offset").alias("known_start"),
        *(suffix.name.lower() for suffix in ObjectSuffix),
    )
    named = finished.where(f.col("known_store").isin(*stores))
    compared = named.join(there, [*ID, "known_store", "known_start"], "left")
    whole = [f.col(each.name.lower()).eqNullSafe(f.col(known_size(each))) for each in ObjectSuffix]
    suspects = compared.where(~reduce(and_, whole))
    missing = suspects.mapInArrow(SentWork(_FindMissing(dict(stores))), SEGMENTS_SCHEMA)
    unnamed = suspects_by_key(finished, there)
    lost = unnamed.mapInArrow(SentWork(_FindByKey(dict(stores))), SEGMENTS_SCHEMA)
    return missing.unionByName(lost).unionByName(incomplete)


def suspects_by_key(finished: DataFrame, there: DataFrame) -> DataFrame:
    """Rows that name no store and have no listed segment with three objects of the row's bytes."""
    sizes = [f.col(suffix.name.lower()) for suffix in ObjectSuffix]
    total = reduce(add, sizes)  # null without one of them
    rows = finished.where("by_key")
    joined = rows.join(there.drop("known_store"), [*ID, "known_start"])
    whole = joined.where(total == f.coalesce("known_bytes", total))
    return rows.join(whole.select(*ID), ID, "left_anti")


@dataclass(frozen=True)
class _FindMissing:
    """Checks rows whose objects are not listed as expected: each object is requested, since the
    list may have passed its key before it was written.
    """

    configs: Mapping[str, StoreConfig]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for batch in batches:
            yield _segments(asyncio.run(self._confirmed(batch.to_pylist())))

    async def _confirmed(self, rows: list[dict[str, Any]]) -> list[dict[str, object]]:
        names = {row["known_store"] for row in rows}
        async with _opened(self.configs, names) as stores:
            there = await many_calls(stores.asked, rows)
        found: list[dict[str, object]] = []
        for row, sizes in zip(rows, there, strict=True):
            expected = {suffix: row[known_size(suffix)] for suffix in ObjectSuffix}
            if why := why_missing(expected, sizes):
                found.append(_told(SegmentClass.MISSING, f"{row['known_store']}:", row, why))
        return found


@dataclass(frozen=True)
class _FindByKey:
    """Checks rows that name no store: the objects of each are requested from every store."""

    configs: Mapping[str, StoreConfig]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for batch in batches:
            yield _segments(asyncio.run(self._confirmed(batch.to_pylist())))

    async def _confirmed(self, rows: list[dict[str, Any]]) -> list[dict[str, object]]:
        async with _opened(self.configs, self.configs) as stores:
            there = [await many_calls(stores.of(name), rows) for name in sorted(self.configs)]
        found: list[dict[str, object]] = []
        for row, *sizes in zip(rows, *there, strict=True):
            why = why_not_by_key(row["known_bytes"], sizes)
            if why is not None:
                found.append(_told(why[0], "", row, why[1]))
        return found


def why_not_by_key(
    known_bytes: int | None, found: Sequence[Mapping[ObjectSuffix, int]]
) -> tuple[SegmentClass, str] | None:
    """The class of a segment by the sizes of its objects in each store; None: one has it whole."""
    some = [sizes for sizes in found if sizes]
    if not some:
        return SegmentClass.UNFOUND, "no store here has an object of it"
    for sizes in some:
        gone = [f".{suffix} is gone" for suffix in ObjectSuffix if suffix not in sizes]
        total = sum(sizes.values())
        if not gone and known_bytes in (None, total):
            return None
        why = ", ".join(gone) or f"its objects have {total} bytes instead of {known_bytes}"
    return SegmentClass.MISSING, why


@asynccontextmanager
async def _opened(
    configs: Mapping[str, StoreConfig], names: Collection[str]
) -> AsyncIterator[_OpenStores]:
    async with AsyncExitStack() as stack:
        yield _OpenStores(
            configs,
            {
                name: await stack.enter_async_context(opened(configs[name]))
                for name in sorted(names)
            },
        )


@dataclass(frozen=True)
class _OpenStores:
    configs: Mapping[str, StoreConfig]
    stores: Mapping[str, ObjectStore]

    async def asked(self, row: Mapping[str, Any]) -> dict[ObjectSuffix, int]:
        """The sizes of a row's objects in the store that it names."""
        return await self.asked_in(row["known_store"], row)

    def of(self, name: str) -> Callable[[Mapping[str, Any]], Awaitable[dict[ObjectSuffix, int]]]:
        """Asks this store, not the one that the row names."""
        return partial(self.asked_in, name)

    async def asked_in(self, store: str, row: Mapping[str, Any]) -> dict[ObjectSuffix, int]:
        """The sizes of a row's objects, each by a request of its own."""
        prefix = self.configs[store].prefix
        keys = segment_keys(prefix, segment_id_of(row), row["known_start"])
        found = {}
        for suffix, key in (
            (ObjectSuffix.LOG, keys.log),
            (ObjectSuffix.INDEXES, keys.indexes),
            (ObjectSuffix.MANIFEST, keys.manifest),
        ):
            try:
                found[suffix] = (await self.stores[store].head(key)).size
            except NotFound:
                continue
        return found


def _told(class_: SegmentClass, where: str, row: Mapping[str, Any], why: str) -> dict[str, object]:
    offsets = f"offsets {row['known_start']} to {row['known_end']}"
    partition = f"{where}{row['topic']}-{row['partition']}"
    name = f"{partition} {offsets}, segment {row['segment_id']}: {why}"
    return {"class": class_.value, "name": name, "size": 0}


def _segments(found: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        found,
        schema=pa.schema([("class", pa.string()), ("name", pa.string()), ("size", pa.int64())]),
    )
