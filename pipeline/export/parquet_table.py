"""A folder of Parquet files with a log of commits beside them.

    <folder>/[day=2026-01-31/]strandline-....parquet
    <folder>/_strandline/NAME/table.json                 columns and partitioning
    <folder>/_strandline/NAME/id.json                    the table's unique id
    <folder>/_strandline/NAME/commits/000000000007.json  files of commit 7, and all offsets so far

In a folder of dead letters, which may serve several tables, NAME is `dead_letters_log` of each. A
commit is one create-only write of the next number, so only one of two runs makes it. A reader that
must see every record once takes the files that the commits name (docs/PIPELINE.md); one that reads
the whole folder may see files of a running or killed run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

import pyarrow as pa

from kafka_formats.errors import AlreadyExists, Conflict, InvalidRequest
from pipeline.export.export_table import Commit
from pipeline.export.file_names import (
    NO_COMMIT,
    SIDE_FOLDER,
    RunId,
    export_folder,
    is_data_file,
)
from pipeline.export.offset_ranges import Ranges, as_json, from_json, united
from pipeline.export.table_schema import DAY, check_partitioning, check_same, columns_of
from pipeline.export.target_folder import TargetFolder
from pipeline.process import ambient
from rsm_backends.store_config import StoreConfig


class ParquetTable:
    """See the port. The caller closes `folder`."""

    data_folder = ""

    def __init__(self, folder: TargetFolder, name: str, schema: pa.Schema, *, by_day: bool) -> None:
        self.file_schema = schema
        self._folder = folder
        self._at = export_folder(name)
        self.any_year = not by_day
        self._partitioned_by = DAY if by_day else ""
        self._id = ""
        self._last = NO_COMMIT
        self._exported: dict[str, Ranges] = {}

    @property
    def name(self) -> str:
        return f"the Parquet folder {self._folder.shown('')}"

    @property
    def store(self) -> StoreConfig:
        return self._folder.config

    @property
    def id(self) -> str:
        assert self._id, "open comes first"
        return self._id

    def open(self) -> None:
        path = f"{self._at}table.json"
        columns = columns_of(self.file_schema)
        if not self._folder.exists(path):
            self._check_others(columns)
        try:
            self._folder.create(
                path, {"version": 1, "columns": columns, "partitioned_by": self._partitioned_by}
            )
        except AlreadyExists:
            self._check_same_table(path, columns)
        # A separate object: tables of earlier releases get their id now, and if two runs write
        # one, only the first succeeds.
        path = f"{self._at}id.json"
        with suppress(AlreadyExists):
            self._folder.create(path, {"id": ambient.new_uuid().hex()})
        self._id = str(self._folder.read(path)["id"])

    def _check_others(self, columns: Mapping[str, str]) -> None:
        """Raise Conflict(SCHEMA) if a different program writes to the folder: readers of a new
        table see all files.
        """
        for each in self._folder.listed():
            if each.key.startswith(SIDE_FOLDER):
                if each.key.endswith("/table.json"):
                    self._check_same_table(each.key, columns)
            elif not is_data_file(each.key):
                raise Conflict(
                    f"{self.name} holds {each.key[:200]!r}, which no export wrote: nothing was "
                    "written. Export to a folder of its own",
                    reason="SCHEMA",
                )

    def _check_same_table(self, path: str, columns: Mapping[str, str]) -> None:
        found = self._folder.read(path)
        check_same(dict(found.get("columns") or {}), columns, table=self.name)
        check_partitioning(str(found.get("partitioned_by")), self._partitioned_by, table=self.name)

    def refresh(self) -> RunId:
        commits = [each.key for each in self._folder.listed(f"{self._at}commits/")]
        if not commits:
            self._last, self._exported = NO_COMMIT, {}
            return self._last
        found = self._folder.read(commits[-1])
        source = self._folder.shown(commits[-1])
        try:
            self._last = RunId(int(found["number"]), str(found["attempt"]))
            exported = found["exported"]
        except (KeyError, TypeError, ValueError):
            raise InvalidRequest(
                "is not a commit of Strandline: export to a different folder or under a different "
                "name",
                field=source,
            ) from None
        self._exported = from_json(exported, source=source)
        return self._last

    def exported(self, partition: str) -> Ranges:
        return self._exported.get(partition, ())

    def commit(self, commit: Commit) -> None:
        last = self.refresh()
        if last == commit.run:
            return
        if last.number >= commit.run.number:
            raise overtaken(self.name, commit.run)
        exported = {
            name: united(self.exported(name), commit.offsets.get(name, ()))
            for name in self._exported.keys() | commit.offsets.keys()
        }
        document = {
            "number": commit.run.number,
            "attempt": commit.run.attempt,
            "at_ms": ambient.now_ms(),
            "files": [each.as_json() for each in commit.files],
            "offsets": as_json(commit.offsets),
            "exported": as_json(exported),
            **commit.notes,
        }
        try:
            self._folder.create(self._commit_path(commit.run.number), document)
        except AlreadyExists:
            if self.refresh() != commit.run:
                raise overtaken(self.name, commit.run) from None

    def named(self, paths: Collection[str]) -> set[str]:
        # In the logs of all exports: one folder of dead letters may serve several.
        found: set[str] = set()
        for each in self._folder.listed(SIDE_FOLDER):
            if "/commits/" in each.key:
                files = self._folder.read(each.key)["files"]
                found |= {file["path"] for file in files} & set(paths)
        return found

    def _commit_path(self, number: int) -> str:
        return f"{self._at}commits/{number:012d}.json"


def overtaken(table: str, run: RunId) -> Conflict:
    """The error of a run whose commit a different run made first."""
    return Conflict(
        f"another run of this export has committed to {table} since this one began (its commit "
        f"would have been number {run.number}); nothing of this run counts. Run it again: it "
        "exports what is still missing",
        reason="OVERTAKEN",
    )
