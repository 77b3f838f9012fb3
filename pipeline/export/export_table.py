"""The port of a table that an export appends to, and the parts of a commit.

Exactly once rests on one rule: a commit holds its files, its number and its offsets, and succeeds
only if the last commit of this export has a lower number. If two runs try to make commit 7, one
succeeds; the files of the other can never be committed any more, and so may be removed.
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
    its partition, None in an unpartitioned table. `lowest` and `highest` are inclusive bounds by
    column, if known; timestamps in microseconds since the epoch. `nulls` counts NULLs by column,
    for columns with bounds.
    """

    path: str
    rows: int
    size: int
    day: str | None = None
    lowest: Mapping[str, Any] = field(default_factory=dict)
    highest: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The form in commit logs and records of runs."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit that a run wants to make; `offsets` are of this commit alone, by partition."""

    run: RunId
    files: Sequence[DataFile]
    offsets: Mapping[str, Ranges]
    notes: Mapping[str, str] = field(default_factory=dict)


class ExportTable(Protocol):
    """A table of one export. Implementations: Parquet with a log of its own, Delta, Iceberg.

    All methods raise errors of `kafka_formats.errors` only. Conflict: a different schema or
    partitioning (SCHEMA), a commit that a different run made first (OVERTAKEN), a table that was
    rolled back (ROLLED_BACK).
    """

    @property
    def name(self) -> str:
        """The table's name in messages."""

    @property
    def id(self) -> str:
        """A unique id in hex digits; a table created anew at the same place gets a new one. Call
        `open` first.
        """

    def open(self) -> None:
        """Create the table unless it exists; Conflict(SCHEMA) names what differs if it does."""

    def refresh(self) -> RunId:
        """Read the table anew; returns the run that made the last commit, or `NO_COMMIT`. Later
        reads answer as of this moment.
        """

    def exported(self, partition: str) -> Ranges:
        """The offsets of this partition in all commits of this export."""

    def commit(self, commit: Commit) -> None:
        """Add files and offsets in one step, if the last commit still has a lower number. Does
        nothing if this very commit was made already.

        Conflict(OVERTAKEN) if the last commit has the same or a higher number: then nothing of this
        commit ever counts. After any other error the commit may have been made: `refresh` shows it.
        """

    def named(self, paths: Collection[str]) -> set[str]:
        """The paths among `paths` that the table refers to now: a last check before files are
        removed.
        """

    @property
    def any_year(self) -> bool:
        """True if it accepts every timestamp of Kafka; otherwise only those of years 1 to 9999."""

    @property
    def file_schema(self) -> pa.Schema:
        """The schema of the data files, with the table's field ids."""

    @property
    def store(self) -> StoreConfig:
        """The store of the table's folder; `prefix` is the folder, ending with `/` on S3."""

    @property
    def data_folder(self) -> str:
        """The folder of data files below the table's folder: empty, or ending with `/`."""
