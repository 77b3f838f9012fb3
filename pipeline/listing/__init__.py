"""Whole buckets listed by many tasks at once."""
