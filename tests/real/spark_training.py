"""What a JVM of Spark does in tests, once each, so that its classes are loaded: see class_data."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

COLUMN = "id bigint"


class Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return COLUMN

    def reader(self, schema: object) -> DataSourceReader:
        return NumbersReader()


class NumbersReader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": pa.array(range(10), pa.int64())})


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def do_all(spark: SparkSession, folder: str) -> None:
    context = spark.sparkContext
    context.setJobGroup("training", "training", interruptOnCancel=True)
    assert sorted(context.parallelize([2, 1], 2).map(abs).collect()) == [1, 2]
    context.statusTracker().getActiveStageIds()
    spark.dataSource.register(Numbers)
    read = spark.read.format("numbers").load().where("id > 0").mapInArrow(same, COLUMN).persist()
    assert read.count() == 9
    rows = read.withColumn("even", f.col("id") % 2 == 0).withColumn("name", f.lit("a"))
    counted = rows.groupBy("even").agg(f.count("*").alias("count"), f.max("id").alias("id"))
    told = counted.select("id", "count")
    left_out = rows.join(told, ["id"], "left_anti").withColumn("count", f.lit(0))
    joined = rows.join(told, ["id"], "left").unionByName(left_out)
    assert joined.where(f.col("count") > 0).distinct().count() == 2
    grouped = rows.repartition(2).groupBy("even").applyInArrow(lambda table: table, rows.schema)
    assert len(list(grouped.orderBy("id").toLocalIterator(prefetchPartitions=True))) == 9
    rows.write.parquet(f"{folder}/parquet")
    rows.write.option("header", "true").csv(f"{folder}/csv")
    assert spark.read.parquet(f"{folder}/parquet").count() == 9
    rows.createOrReplaceTempView("rows")
    assert spark.sql("SELECT collect_set(name) AS names FROM rows ORDER BY 1").count() == 1
    read.unpersist()
    spark.stop()


def main(folder: str) -> None:
    """Once as a cluster's driver, and once where tasks run in this JVM too."""
    do_all(SparkSession.builder.getOrCreate(), f"{folder}/cluster")
    do_all(SparkSession.builder.master("local[2]").getOrCreate(), f"{folder}/local")


if __name__ == "__main__":
    main(sys.argv[1])
