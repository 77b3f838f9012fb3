"""Lists whole buckets with many tasks at once."""
