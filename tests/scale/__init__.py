"""Large tables: answers, counts and bounds, never timings."""
