"""The start of a process of the pipeline: clocks, chance, compiled modules."""
