"""Registers the data source `strandline` by itself: Spark imports every package `pyspark_*`."""

from pipeline.source.data_source import StrandlineDataSource as DefaultSource

__all__ = ["DefaultSource"]
