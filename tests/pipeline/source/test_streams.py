"""A stream on Spark: bounded batches, a sink that fails, a checkpoint, a tier that grows."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.pipeline.restore.captured_tier import tier_captured
from tests.pipeline.source.captured_rows import Captured, captured, consumed
from tests.rlm.tier import PREFIX

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

LIMIT = 250


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    asyncio.run(tier_captured(folder, "codecs", "payments"))
    return folder


def put_aside(store: Path, aside: Path) -> None:
    """As if these segments were tiered later."""
    for topic, base_offset in (("codecs", 152), ("payments", 252), ("payments", 267)):
        for path in store.rglob(f"{topic}-*/*/{base_offset:020}-*"):
            target = aside / path.relative_to(store)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)


def until(**ends: tuple[int, ...]) -> list[Captured]:
    return [
        record
        for topic, offsets in ends.items()
        for number, end in enumerate(offsets)
        for record in consumed(topic, number)
        if record.offset < end
    ]


class Sink:
    """Keeps each batch by its number, and fails once at one of them."""

    def __init__(self, fails_at: int) -> None:
        self.batches: dict[int, list[Captured]] = {}
        self._fails_at: int | None = fails_at

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = captured(frame.collect())
        if batch_id == self._fails_at:
            self._fails_at = None
            raise RuntimeError("the sink is down")
        self.batches[batch_id] = rows

    def rows(self) -> list[Captured]:
        every = [row for rows in self.batches.values() for row in rows]
        return sorted(every, key=lambda row: row[:3])


def start(
    spark: SparkSession, store: Path, checkpoint: Path, sink: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    return (
        spark.readStream.format("strandline")
        .option("strandline.store", f"{store.as_uri()}?prefix={PREFIX}")
        .option("subscribePattern", "codecs|payments")
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(LIMIT))
        .load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", checkpoint.as_uri())
        .trigger(availableNow=True)
        .start()
    )


def test_a_stream_goes_on_exactly_where_it_failed_and_reads_what_is_tiered_later(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    put_aside(store, tmp_path / "later")
    sink = Sink(fails_at=1)
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(StreamingQueryException, match="the sink is down"):
        start(spark, store, checkpoint, sink).awaitTermination()
    assert sorted(sink.batches) == [0]
    start(spark, store, checkpoint, sink).awaitTermination()
    early = until(codecs=(152,), payments=(252, 252))
    assert sink.rows() == early
    # No batch is larger than asked for, but for the one offset that each partition may take.
    assert max(map(len, sink.batches.values())) <= LIMIT + 3
    assert len(sink.batches) >= len(early) // LIMIT

    shutil.copytree(tmp_path / "later", store, dirs_exist_ok=True)
    start(spark, store, checkpoint, sink).awaitTermination()
    # payments-0 ends at 252 still: a transaction is open there.
    assert sink.rows() == until(codecs=(236,), payments=(252, 336))
