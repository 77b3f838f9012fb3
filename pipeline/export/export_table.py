"""The port of a table that an export appends to, and what a commit is made of.

Exactly once rests on one thing: a commit holds its files, its number and its offsets, and counts
only if the last commit of this export has a lower number. Of two runs that both want to make
commit 7 one makes it; the other's files can never be committed any more, and so may be removed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from pipeline.export.file_names import RunId
from pipeline.export.offset_ranges import Ranges
from rsm_backends.store_config import StoreConfig


@dataclass(frozen=True, slots=True)
class DataFile:
    """A finished Parquet file. `path` is relative to the table's folder; `day` (2026-01-31, UTC) is
    the partition it belongs to, None where the table has none. Bounds are inclusive, None for a
    file that knows none; timestamps in microseconds since the epoch. `nulls`: how many values are
    NULL, of columns with bounds that have any.
    """

    path: str
    rows: int
    size: int
    day: str | None = None
    lowest: Mapping[str, Any] = field(default_factory=dict)
    highest: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As it stands in commit logs and records of runs."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Commit:
    """What a run wants to add: `offsets` are those of this commit alone, by partition."""

    run: RunId
    files: Sequence[DataFile]
    offsets: Mapping[str, Ranges]
    notes: Mapping[str, str] = field(default_factory=dict)


class ExportTable(Protocol):
    """A table of one export. Implementations: Parquet with a log of its own, Delta, Iceberg.

    All methods raise errors of `kafka_formats.errors` only. Conflict: another schema or another
    partitioning (SCHEMA), a commit that somebody else made first (OVERTAKEN), a table that was
    rolled back (ROLLED_BACK).
    """

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def id(self) -> str:
        """What no other table has, nor one made anew at the same place; hex digits. `open` comes
        first.
        """
        ...

    def open(self) -> None:
        """Make the table unless it exists; Conflict(SCHEMA) names what differs in one that does."""
        ...

    def refresh(self) -> RunId:
        """Look at the table anew: the run that made the last commit, `NO_COMMIT` if there is none.
        What is read afterwards is of this moment.
        """
        ...

    def exported(self, partition: str) -> Ranges:
        """The offsets of this partition that commits of this export hold."""
        ...

    def commit(self, commit: Commit) -> None:
        """Add files and offsets in one step, if the last commit still has a lower number. Nothing
        happens if this very commit is there.

        Conflict(OVERTAKEN): it has not, and nothing of this commit ever counts. Any other error
        leaves open whether it happened: `refresh` tells.
        """
        ...

    def named(self, paths: Collection[str]) -> set[str]:
        """Which of these paths the table refers to now: a last look before files are removed."""
        ...

    @property
    def any_year(self) -> bool:
        """Whether it takes every timestamp that Kafka may have; else those of years 1 to 9999."""
        ...

    @property
    def file_schema(self) -> pa.Schema:
        """What the data files contain, with the field ids that the table wants."""
        ...

    @property
    def store(self) -> StoreConfig:
        """Where the table's folder is; `prefix` is the folder, ending with `/` on S3."""
        ...

    @property
    def data_folder(self) -> str:
        """Where data files go, below the table's folder: empty, or ending with `/`."""
        ...
