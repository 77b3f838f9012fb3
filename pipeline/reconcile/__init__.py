"""A bucket compared with the metadata: the pure parts, and what tasks do."""
