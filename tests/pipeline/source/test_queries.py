"""Queries as people write them, on Spark, over a bucket's folder and nothing else."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from tests.pipeline.read.aiven_bucket import SMALL, AivenTopic, expected, shown
from tests.pipeline.restore.captured_tier import tier_captured
from tests.pipeline.source.captured_rows import Captured, captured, consumed
from tests.rlm.tier import PREFIX

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ENDS = {"orders": (432, 864, 1206), "payments": (252, 336), "events": (249, 249), "codecs": (236,)}
"""Where what is tiered and decided ends; the broker kept the rest to itself."""

STARTS = {"events": (150, 170)}
"""Where the log start is above 0: below it stands nothing, or a part of a segment."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("queries") / "store"
    asyncio.run(tier_captured(folder, *ENDS))
    return folder


def address(store: Path) -> str:
    return f"{store.as_uri()}?prefix={PREFIX}"


def load(spark: SparkSession, store: Path, **options: str) -> DataFrame:
    return (
        spark.read.format("strandline")
        .options(**{"strandline.store": address(store), "includeHeaders": "true"} | options)
        .load()
    )


def committed(*topics: str) -> list[Captured]:
    """What a consumer saw of it."""
    return [
        record
        for topic in sorted(topics)
        for number, end in enumerate(ENDS[topic])
        for record in consumed(topic, number)
        if record.offset < end
    ]


def test_a_query_for_a_broker_gives_what_a_consumer_read(spark: SparkSession, store: Path) -> None:
    """All codecs, transactions, headers and none, null keys; several topics and partitions."""
    frame = (
        spark.read.format("strandline")
        .option("kafka.bootstrap.servers", "broker:9092")
        .option("strandline.store", address(store))
        .option("SUBSCRIBE", "orders,codecs,payments")
        .option("includeheaders", "true")
        .load()
    )
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert captured(frame.collect()) == committed("orders", "codecs", "payments")


def test_sql_reads_a_view_and_times_and_types_are_the_brokers(
    spark: SparkSession, store: Path
) -> None:
    since = consumed("events", 1)[50].timestamp_ms
    spark.sql(
        f"""CREATE OR REPLACE TEMP VIEW young USING strandline OPTIONS (
            `strandline.store` '{address(store)}', subscribePattern 'ev.*',
            startingTimestamp '{since}', isolation 'read_uncommitted')"""
    )
    rows = spark.sql(
        "SELECT partition, min(offset) AS first, max(offset) AS last, "
        "collect_set(timestampType) AS types FROM young GROUP BY partition ORDER BY partition"
    ).collect()
    firsts = [
        next(one.offset for one in consumed("events", number) if one.timestamp_ms >= since)
        for number in (0, 1)
    ]
    assert [tuple(row) for row in rows] == [(0, firsts[0], 248, [1]), (1, firsts[1], 248, [1])]
    spark.catalog.dropTempView("young")


def test_assigned_offsets_split_as_asked_and_columns_chosen(
    spark: SparkSession, store: Path
) -> None:
    frame = load(
        spark,
        store,
        assign='{"orders": [2], "codecs": [0]}',
        startingOffsets='{"orders": {"2": 100}, "codecs": {"0": -2}}',
        endingOffsets='{"orders": {"2": 700}, "codecs": {"0": 10}}',
        columns="offset,topic",
        minPartitions="12",
    )
    assert frame.columns == ["topic", "offset"]
    assert frame.rdd.getNumPartitions() >= 12
    expected = [("codecs", at) for at in range(10)] + [("orders", at) for at in range(100, 700)]
    assert sorted(map(tuple, frame.collect())) == expected


def test_each_query_of_a_frame_has_its_own_filters_and_all_its_rows(
    spark: SparkSession, store: Path
) -> None:
    """Whatever an earlier one left out, or the other side of a join."""
    every = committed("orders")
    of_1 = [one for one in every if one.partition == 1 and one.offset >= 400]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, store, subscribe="orders")
        some = frame.where((col("partition") == 1) & (col("offset") >= 400))
        assert captured(some.collect()) == of_1
        assert captured(frame.collect()) == every
        assert frame.where("partition = 0 OR offset >= 0").count() == len(every)
        of_0 = frame.where("partition = 0").select(col("offset").alias("same"))
        assert of_0.join(some, col("same") == col("offset")).count() == 432 - 400
        assert some.union(frame).count() == len(of_1) + len(every)
        with pytest.raises(AnalysisException, match="later queries, which would lack rows"):
            load(spark, store, subscribe="orders", filterPushdown="true")
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize(
    ("topic", "options"),
    [
        (AivenTopic(SMALL, "comp", "comp/"), {}),
        (AivenTopic(SMALL, "compenc", "enc/"), {"strandline.aiven.keys": str(SMALL / "keys")}),
    ],
    ids=["compressed", "encrypted"],
)
def test_a_bucket_of_aivens_plug_in_gives_what_a_consumer_read(
    spark: SparkSession, topic: AivenTopic, options: Mapping[str, str]
) -> None:
    address = f"{SMALL.as_uri()}?prefix={topic.prefix}"
    frame = load(spark, SMALL, subscribe=topic.topic, **{"strandline.store": address}, **options)
    (segment,) = topic.segments()
    consumer = expected(SMALL / "expected", topic.topic, "read_uncommitted")
    rows = sorted(shown(row.asDict() for row in frame.collect()))
    assert rows == [row for row in consumer if row[0] <= segment.end_offset]


def test_nothing_to_read_is_an_empty_frame(spark: SparkSession, store: Path) -> None:
    assert load(spark, store, subscribePattern="parcels").collect() == []
    empty = {"assign": '{"codecs": [0]}', "endingOffsets": '{"codecs": {"0": 0}}'}
    assert load(spark, store, **empty).count() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "orders", "startingOffset": "earliest"}, "startingOffset: is not an option"),
        ({"subscribe": "parcels"}, "parcels"),
        (
            {"assign": '{"codecs": [0]}', "startingOffsets": '{"codecs": {"0": 900}}'},
            "codecs-0: the starting offset 900",
        ),
        ({"subscribe": "orders", "startingOffsets": "latest"}, "startingOffsets: can't be latest"),
    ],
)
def test_errors_name_option_topic_and_offset(
    spark: SparkSession, store: Path, options: Mapping[str, str], words: str
) -> None:
    with pytest.raises(PySparkException, match="(?i)" + words):
        load(spark, store, **options).collect()


def test_a_schema_of_ones_own_is_refused(spark: SparkSession, store: Path) -> None:
    reader = spark.read.format("strandline").schema("offset bigint, value string")
    with pytest.raises(PySparkException, match="schema: the schema is struct<key:binary"):
        reader.options(**{"strandline.store": address(store), "subscribe": "orders"}).load().count()


@pytest.mark.parametrize("fail", [True, False])
def test_a_segment_deleted_after_the_plan_fails_the_query_or_is_passed_over(
    spark: SparkSession, store: Path, tmp_path: Path, fail: bool
) -> None:
    shrinking = tmp_path / "store"
    shutil.copytree(store, shrinking)
    frame = load(spark, shrinking, subscribe="codecs", failOnDataLoss=str(fail))
    assert frame.rdd.getNumPartitions() == 1
    for gone in shrinking.rglob("codecs-*/0/00000000000000000060-*"):
        gone.unlink()
    if fail:
        with pytest.raises(PySparkException, match="codecs-0, offsets 60 to 151"):
            frame.collect()
        return
    rest = [one for one in committed("codecs") if not 60 <= one.offset <= 151]
    assert captured(frame.collect()) == rest
