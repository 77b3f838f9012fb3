"""Counts rows by class, with their bytes and the first few names, in one pass over a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import compute
from pyspark.sql import DataFrame

from pipeline.spark.marked_pickle import SentWork
from pipeline.spark.worker_garbage import begin_task

EXAMPLES_MAX = 20

_SCHEMA = "class string, count bigint, size_bytes bigint, examples array<string>"
_ARROW = pa.schema(
    [
        ("class", pa.string()),
        ("count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("examples", pa.list_(pa.string())),
    ]
)


@dataclass
class Found:
    """Objects (or segments) of a class, their bytes, the first few names."""

    count: int = 0
    size_bytes: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, count: int, size_bytes: int, names: Iterable[str]) -> None:
        """Add another part."""
        self.count += count
        self.size_bytes += size_bytes
        self.examples = sorted([*self.examples, *names])[:EXAMPLES_MAX]


def tally(frame: DataFrame, classes: Iterable[str]) -> dict[str, Found]:
    """The counts by class, empty classes included. Columns of `frame`: class, name, size."""
    found = {each: Found() for each in classes}
    parts = frame.select("class", "name", "size").mapInArrow(SentWork(_tally_of_task), _SCHEMA)
    for row in parts.collect():
        found[row["class"]].add(row["count"], row["size_bytes"], row["examples"])
    return found


def _tally_of_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    begin_task()
    found: dict[str, Found] = {}
    for batch in batches:
        classes = batch.column("class")
        for each in compute.unique(classes).to_pylist():
            part = batch.filter(compute.equal(classes, each))
            names = part.column("name")
            first = names.take(compute.select_k_unstable(names, EXAMPLES_MAX, [("", "ascending")]))
            size_bytes = compute.sum(part.column("size")).as_py() or 0
            found.setdefault(each, Found()).add(part.num_rows, size_bytes, first.to_pylist())
    rows = [{"class": name, **vars(each)} for name, each in found.items()]
    yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
