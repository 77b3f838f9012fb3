"""The tier's records as tables: planned, written in tasks, committed once with their offsets."""
