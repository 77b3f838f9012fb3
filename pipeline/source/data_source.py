"""The data source that Spark finds by `format("strandline")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from kafka_formats.errors import InvalidRequest
from pipeline.source.options import parse_options
from pipeline.spark.spark_version import check_spark_version

if TYPE_CHECKING:
    from pipeline.source.batch_reader import BatchReader
    from pipeline.source.stream_reader import StreamReader

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),
}
"""The types of `pipeline.decode.schema` in Spark's form. Spark's workers can't parse DDL."""


def spark_schema(columns: tuple[str, ...]) -> StructType:
    """The schema of these columns, in spark-sql-kafka's types."""
    schema = StructType()
    for name in columns:
        schema.add(name, _TYPES[name])
    return schema


class StrandlineDataSource(DataSource):
    """Tiered history, with the options and the schema of spark-sql-kafka.

    Readers are imported only when one is needed: an older Spark lacks their base classes, and has
    to be refused by its version first.
    """

    @classmethod
    def name(cls) -> str:
        """The name for `format`, and for USING in SQL."""
        return "strandline"

    def schema(self) -> StructType:
        """The schema by the options. Options and Spark's version are checked here, so that `load`
        refuses them.
        """
        check_spark_version()
        return spark_schema(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> BatchReader:
        """The reader of a batch query."""
        self._check(schema)
        from pipeline.source.batch_reader import BatchReader

        return BatchReader(self.options)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  Spark's name
        """The reader of a streaming query."""
        self._check(schema)
        from pipeline.source.stream_reader import StreamReader

        return StreamReader(self.options)

    def _check(self, schema: StructType) -> None:
        """Raise InvalidRequest for a schema given by the user that differs from this source's."""
        own = self.schema()
        if schema.simpleString() != own.simpleString():
            raise InvalidRequest(
                f"the schema is {own.simpleString()}, and no other can be given; choose columns by "
                "the options columns and includeHeaders, then cast",
                field="schema",
            )
