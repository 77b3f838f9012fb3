"""Registers the data source `strandline` by itself: Spark imports every package `pyspark_*`."""
