"""The records of the metadata log and their bytes."""
