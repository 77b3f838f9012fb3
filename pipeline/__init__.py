"""The tiered history on Spark: a data source, and jobs that never touch a broker."""
