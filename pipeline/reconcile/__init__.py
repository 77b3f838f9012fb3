"""Compares a bucket with the metadata: the pure parts, and the work of tasks."""
