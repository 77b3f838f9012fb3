"""The Spark data source `strandline`."""
