"""A Delta table: files and offsets in one transaction of its log.

The offsets are kept in app transactions, which Delta never removes. Commit messages repeat them for
people only, since they disappear with the log's clean-up.

    strandline/NAME                     number of the last commit
    strandline/NAME/attempt             the run that made it
    strandline/NAME/PARTITION/ranges    number of exported ranges of offsets
    strandline/NAME/PARTITION/0/first   and /0/last: the first range, inclusive; /1/... the second

In a table of dead letters, which may serve several tables, NAME is `dead_letters_log` of each.

Of two concurrent transactions of one app delta-rs refuses the second; it accepts commits of other
apps in between. This is the only file that imports deltalake.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)
from deltalake.transaction import AddAction

from kafka_formats.errors import Conflict, RetryLater, StrandlineError
from pipeline.export.export_table import Commit, DataFile
from pipeline.export.file_names import NO_COMMIT, RunId
from pipeline.export.file_writer import EPOCH
from pipeline.export.offset_ranges import Ranges, as_json, united
from pipeline.export.parquet_table import overtaken
from pipeline.export.table_schema import (
    DAY,
    NEVER_NULL,
    check_partitioning,
    check_same,
    check_takes_null,
    columns_of,
)
from pipeline.export.target_folder import TargetFolder, folder_url, path_below
from pipeline.export.target_options import delta_storage_options
from pipeline.process import ambient
from rsm_backends.store_config import StoreConfig

HISTORY_LOOKED_AT = (10, 100, 1_000)
"""Number of newest commits searched, one after the other, for a roll-back since our last commit:
each commit is an object to read, and our own is nearly always among the first.
"""

COMMIT_ATTEMPTS_MAX = 10

LOG_FOLDER = "_delta_log/"
COLUMN_MAPPING = "delta.columnMapping.mode"
UNSUPPORTED = "Unsupported table features"


class DeltaLakeTable:
    """See the port."""

    data_folder = ""
    any_year = False

    def __init__(self, config: StoreConfig, name: str, schema: pa.Schema, *, by_day: bool) -> None:
        self.file_schema = schema
        self.store = config
        self._app = f"strandline/{name}"
        self._partitioned_by = [DAY] if by_day else []
        self._columns = schema.append(pa.field(DAY, pa.date32())) if by_day else schema
        self._storage_options = delta_storage_options(config)
        self._table: DeltaTable | None = None
        self._exported: dict[str, Ranges] = {}

    @property
    def name(self) -> str:
        return f"the Delta table {folder_url(self.store)}"

    @property
    def id(self) -> str:
        assert self._table is not None, "open comes first"
        return str(self._table.metadata().id).replace("-", "")

    def open(self) -> None:
        try:
            table = self._loaded()
        except TableNotFoundError:
            table = self._created()
        except DeltaError as error:
            raise self._error(error) from error
        self._table = table
        check_partitioning(
            ", ".join(table.metadata().partition_columns),
            ", ".join(self._partitioned_by),
            table=self.name,
        )
        found = pa.schema(table.schema().to_arrow())
        check_same(columns_of(found), columns_of(self._columns), table=self.name)
        check_takes_null(found, self._columns, table=self.name, but=NEVER_NULL)
        self._check_asks_no_more(table)

    def _check_asks_no_more(self, table: DeltaTable) -> None:
        """Raise Conflict(SCHEMA) for a table with column mapping or constraints: an export adds its
        files to the log as written, and renames and checks no columns.
        """
        properties = table.metadata().configuration
        asked = [name for name in properties if name.startswith("delta.constraints.")]
        if properties.get(COLUMN_MAPPING, "none") != "none":
            asked.append(COLUMN_MAPPING)
        if asked:
            raise Conflict(
                f"{self.name} has {', '.join(sorted(asked))}, which an export does not support. "
                "Nothing was written: remove it, or export to a different table",
                reason="SCHEMA",
            )

    def refresh(self) -> RunId:
        self._exported = {}
        try:
            self._table = self._loaded()
        except DeltaError as error:
            raise self._error(error) from error
        number = self._table.transaction_version(self._app)
        if number is None:
            return NO_COMMIT
        attempt = self._table.transaction_version(f"{self._app}/attempt") or 0
        self._check_not_rolled_back(self._table, number)
        return RunId(number, f"{attempt:015x}")

    def exported(self, partition: str) -> Ranges:
        if partition not in self._exported:
            self._exported[partition] = tuple(self._ranges(partition))
        return self._exported[partition]

    def _ranges(self, partition: str) -> Iterator[tuple[int, int]]:
        for index in range(self._version(f"{partition}/ranges") or 0):
            first = self._version(f"{partition}/{index}/first")
            last = self._version(f"{partition}/{index}/last")
            assert first is not None, "written together with their number"
            assert last is not None, "written together with their number"
            yield first, last

    def commit(self, commit: Commit) -> None:
        last = self.refresh()
        if last == commit.run:
            return
        if last.number >= commit.run.number:
            raise overtaken(self.name, commit.run)
        assert self._table is not None
        properties = CommitProperties(
            custom_metadata={
                "strandline": json.dumps(
                    {
                        "export": self._app,
                        "number": commit.run.number,
                        "attempt": commit.run.attempt,
                        "offsets": as_json(commit.offsets),
                        **commit.notes,
                    }
                )
            },
            app_transactions=[
                Transaction(app, version) for app, version in self._transactions(commit).items()
            ],
            max_commit_retries=COMMIT_ATTEMPTS_MAX,
        )
        try:
            self._table.create_write_transaction(
                [_add_action(each) for each in commit.files],
                "append",
                Schema.from_arrow(self._columns),
                self._partitioned_by,
                commit_properties=properties,
            )
        except (DeltaError, OSError) as error:
            self._settle(commit.run, error)

    def named(self, paths: Collection[str]) -> set[str]:
        assert self._table is not None, "refresh comes first"
        there = {path_below(self.store, uri) for uri in self._loaded().file_uris()}
        return set(paths) & {path for path in there if path is not None}

    def _settle(self, run: RunId, error: Exception) -> None:
        """Finds out, by our transactions, if a commit that raised `error` was made after all."""
        last = self.refresh()
        if last == run:
            return
        if last.number >= run.number:
            raise overtaken(self.name, run) from error
        raise self._error(error) from error

    def _loaded(self) -> DeltaTable:
        return DeltaTable(folder_url(self.store), storage_options=self._storage_options)

    def _created(self) -> DeltaTable:
        with TargetFolder(self.store) as folder:
            # A concurrent first run of this export may have made the log in between.
            others = (each.key for each in folder.listed() if not each.key.startswith(LOG_FOLDER))
            strange = next(others, None)
        if strange is not None:
            raise Conflict(
                f"{self.name} is not a Delta table, and its folder holds {strange[:200]!r}: "
                "nothing was written. Export to a folder of its own",
                reason="SCHEMA",
            )
        try:
            return DeltaTable.create(
                folder_url(self.store),
                schema=Schema.from_arrow(self._columns),
                mode="ignore",
                partition_by=self._partitioned_by,
                storage_options=self._storage_options,
            )
        except (DeltaError, OSError) as error:
            raise self._error(error) from error

    def _version(self, what: str) -> int | None:
        assert self._table is not None, "refresh comes first"
        return self._table.transaction_version(f"{self._app}/{what}")

    def _transactions(self, commit: Commit) -> dict[str, int]:
        found = {
            self._app: commit.run.number,
            f"{self._app}/attempt": int(commit.run.attempt, 16),
        }
        for partition, added in commit.offsets.items():
            ranges = united(self.exported(partition), added)
            found[f"{self._app}/{partition}/ranges"] = len(ranges)
            for index, (first, last) in enumerate(ranges):
                found[f"{self._app}/{partition}/{index}/first"] = first
                found[f"{self._app}/{partition}/{index}/last"] = last
        return found

    def _check_not_rolled_back(self, table: DeltaTable, number: int) -> None:
        """Raise Conflict(ROLLED_BACK) after a RESTORE, which removes files but not the transactions
        that count them as exported.
        """
        restored = False
        for looked_at in HISTORY_LOOKED_AT:
            history = table.history(looked_at)
            since = []
            for entry in history:
                ours = _ours(entry)
                if ours.get("export") == self._app and ours.get("number") == number:
                    break
                since.append(entry.get("operation"))
            restored = "RESTORE" in since
            if restored or len(since) < looked_at:
                break
        if restored:
            raise Conflict(
                f"{self.name} was restored to an earlier version after commit {number} of this "
                "export, so its list of exported offsets is no longer true. Export under a "
                "different name, from the offset you need",
                reason="ROLLED_BACK",
            )

    def _error(self, error: Exception) -> StrandlineError:
        # delta-rs has no error class for features that it can't write.
        never = isinstance(error, CommitFailedError) and UNSUPPORTED in str(error)
        if never or isinstance(error, SchemaMismatchError | DeltaProtocolError):
            return Conflict(
                f"{self.name} does not accept this export: {error}. Nothing was committed: export "
                "to a different table",
                reason="SCHEMA",
            )
        if isinstance(error, CommitFailedError):
            return RetryLater(f"{self.name} could not be committed to: {error}. Run it again")
        return RetryLater(
            f"{self.name} could not be read or written: {error}. Check the address, the keys and "
            "that the store answers, then run it again"
        )


def _ours(entry: dict[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(entry.get("strandline", "{}"))
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _add_action(file: DataFile) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {name: _json_value(name, value) for name, value in file.lowest.items()},
        "maxValues": {name: _json_value(name, value) for name, value in file.highest.items()},
        "nullCount": {name: file.nulls.get(name, 0) for name in {**file.lowest, **file.nulls}},
    }
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values={} if file.day is None else {DAY: file.day},
        modification_time=ambient.now_ms(),
        data_change=True,
        stats=json.dumps(stats),
    )


def _json_value(name: str, value: Any) -> Any:
    if name == "timestamp":
        # Milliseconds are exact: Kafka has no finer ones.
        at = EPOCH + timedelta(microseconds=value)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
