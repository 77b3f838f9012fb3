"""An Iceberg table of format version 2: files, snapshot and offsets in one commit of its catalog.

    table property     strandline.export.NAME           number, attempt and offsets of all commits
    snapshot summary   strandline.export, .number, .attempt, .offsets: of this commit

In a table of dead letters, which may serve several tables, NAME is `dead_letters_log` of each. The
property is changed by the commit that adds the snapshot, and outlives its expiry; the summary shows
whether the table was rolled back below that commit. This is the only file that imports pyiceberg.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.transforms import DayTransform

from kafka_formats.errors import Conflict, InvalidRequest, RetryLater
from pipeline.export.export_table import Commit
from pipeline.export.file_names import NO_COMMIT, RunId
from pipeline.export.file_writer import BOUNDED
from pipeline.export.offset_ranges import Ranges, as_json, from_json, united
from pipeline.export.parquet_table import overtaken
from pipeline.export.table_schema import (
    check_partitioning,
    check_same,
    check_takes_null,
    columns_of,
)
from pipeline.export.target_folder import folder_url, path_below
from pipeline.export.target_options import target_config
from rsm_backends.store_config import StoreConfig

_METRICS = "write.metadata.metrics"
COMMIT_ATTEMPTS_MAX = 10
FOOTERS_AT_ONCE_MAX = 16
PROPERTY = "strandline.export"
"""The prefix of our properties' names."""


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """The catalog of this name in pyiceberg's own configuration, overridden by `properties`."""
    try:
        return load_catalog(name, **dict(properties))
    except Exception as error:  # each kind of catalog has errors of its own
        raise InvalidRequest(
            f"the Iceberg catalog {name!r} can't be opened: {error}. Give its properties, such as "
            "--catalog-property uri=http://127.0.0.1:8181, or put them into .pyiceberg.yaml",
            field="--catalog",
        ) from error


class IcebergTable:
    """See the port. `identifier`: NAMESPACE.TABLE."""

    data_folder = "data/"
    any_year = False

    def __init__(
        self,
        catalog: Catalog,
        identifier: str,
        name: str,
        schema: pa.Schema,
        *,
        by_day: bool,
        options: Mapping[str, str],
        env: Mapping[str, str],
    ) -> None:
        self._catalog = catalog
        self._identifier = identifier
        self._property = f"{PROPERTY}.{name}"
        self._export = name
        self._schema = schema
        self._by_day = by_day
        self._options = options
        self._env = env
        self._table: Table | None = None
        self._exported: dict[str, Ranges] = {}

    @property
    def name(self) -> str:
        return f"the Iceberg table {self._identifier}"

    @property
    def file_schema(self) -> pa.Schema:
        ids = {field.name: field for field in self._there.schema().fields}
        return pa.schema(
            [_with_ids(field, ids[field.name].field_id, ids[field.name].field_type)
             for field in self._schema]
        )  # fmt: skip

    @property
    def store(self) -> StoreConfig:
        return target_config(self._there.location(), self._options, self._env)

    @property
    def id(self) -> str:
        return self._there.metadata.table_uuid.hex

    def open(self) -> None:
        with _errors(self.name):
            try:
                self._table = self._catalog.load_table(self._identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                self._table = self._created()
        found = schema_to_pyarrow(self._table.schema(), include_field_ids=False)
        check_same(columns_of(found), columns_of(self._schema), table=self.name)
        # pyiceberg refuses files with nullable columns where the table's are not, NULLs or not.
        check_takes_null(found, self._schema, table=self.name)
        spec = self._table.spec()
        names = {field.field_id: field.name for field in self._table.schema().fields}
        parts = ", ".join(f"{each.transform}({names[each.source_id]})" for each in spec.fields)
        wanted = "day(timestamp)" if self._by_day else ""
        check_partitioning(parts, wanted, table=self.name)

    def refresh(self) -> RunId:
        with _errors(self.name):
            self._table = self._catalog.load_table(self._identifier)
        text = self._table.properties.get(self._property)
        if text is None:
            self._exported = {}
            return NO_COMMIT
        source = f"{self._identifier}: {self._property}"
        try:
            found = json.loads(text)
            last = RunId(int(found["number"]), str(found["attempt"]))
            exported = found["offsets"]
        except (KeyError, TypeError, ValueError):
            raise InvalidRequest(
                "was not written by Strandline: remove the property or export under a different "
                "name",
                field=source,
            ) from None
        self._exported = from_json(exported, source=source)
        self._check_not_rolled_back(last)
        return last

    def exported(self, partition: str) -> Ranges:
        return self._exported.get(partition, ())

    def commit(self, commit: Commit) -> None:
        # Any commit in between makes the catalog refuse ours: read the table and try again.
        for _ in range(COMMIT_ATTEMPTS_MAX):
            last = self.refresh()
            if last == commit.run:
                return  # an attempt that seemed to fail did not
            if last.number >= commit.run.number:
                raise overtaken(self.name, commit.run)
            try:
                self._commit(commit)
                return
            except CommitFailedException:
                continue
            except Exception as error:  # each catalog and store has errors of its own
                if self.refresh() == commit.run:
                    return
                raise _translated(self.name, error) from error
        if self.refresh() == commit.run:
            return
        raise RetryLater(
            f"other writers committed to {self.name} during each of {COMMIT_ATTEMPTS_MAX} attempts "
            "of this run: nothing of it counts. Run it again when the table is quieter"
        )

    def named(self, paths: Collection[str]) -> set[str]:
        with _errors(self.name):
            files = self._there.inspect.all_files()["file_path"].to_pylist()
        there = {path_below(self.store, each) for each in files}
        return set(paths) & {path for path in there if path is not None}

    @property
    def _there(self) -> Table:
        assert self._table is not None, "open comes first"
        return self._table

    def _created(self) -> Table:
        namespace = self._identifier.rpartition(".")[0]
        if not namespace:
            raise InvalidRequest(f"{self._identifier!r} must be NAMESPACE.TABLE", field="--to")
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(namespace)
        try:
            with self._catalog.create_table_transaction(
                self._identifier, self._schema, properties={"format-version": "2"}
            ) as new:
                if self._by_day:
                    with new.update_spec() as spec:
                        spec.add_field("timestamp", DayTransform(), "timestamp_day")
        except TableAlreadyExistsError:
            pass
        return self._catalog.load_table(self._identifier)

    def _commit(self, commit: Commit) -> None:
        table = self._there
        # pyiceberg repeats a refused append on top of what refused it. Two runs of one export would
        # then both succeed. These change the copy in memory only: requests carry no properties.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        table.metadata.properties[f"{_METRICS}.default"] = "none"
        for column in BOUNDED:
            table.metadata.properties[f"{_METRICS}.column.{column}"] = "full"
        exported = {
            name: united(self.exported(name), commit.offsets.get(name, ()))
            for name in self._exported.keys() | commit.offsets.keys()
        }
        state = {
            "number": commit.run.number,
            "attempt": commit.run.attempt,
            "offsets": as_json(exported),
        }
        summary = {
            PROPERTY: self._export,
            f"{PROPERTY}.number": str(commit.run.number),
            f"{PROPERTY}.attempt": commit.run.attempt,
            f"{PROPERTY}.offsets": json.dumps(as_json(commit.offsets)),
            **{f"{PROPERTY}.{name}": value for name, value in commit.notes.items()},
        }
        folder = folder_url(self.store)
        with ThreadPoolExecutor(FOOTERS_AT_ONCE_MAX) as threads:
            files = list(
                threads.map(
                    lambda each: parquet_file_to_data_file(
                        table.io, table.metadata, f"{folder}/{each.path}"
                    ),
                    commit.files,
                )
            )
        with table.transaction() as transaction:
            with transaction.update_snapshot(snapshot_properties=summary).fast_append() as append:
                for file in files:
                    append.append_data_file(file)
            transaction.set_properties({self._property: json.dumps(state)})

    def _check_not_rolled_back(self, last: RunId) -> None:
        table = self._there
        parent: int | None = None
        for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
            summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
            if summary.get(PROPERTY) == self._export:
                if summary.get(f"{PROPERTY}.number") == str(last.number):
                    return
                break
            parent = snapshot.parent_snapshot_id
        else:
            if parent is not None:
                return  # older snapshots have expired: only the property is left
        raise Conflict(
            f"{self.name} does not hold commit {last.number} of this export any more: it was "
            "rolled back. Roll it forward, or export under a different name from the offset you "
            "need",
            reason="ROLLED_BACK",
        )


def _with_ids(field: pa.Field, field_id: int, kind: Any) -> pa.Field:
    """The field, and all fields within it, with the table's ids, which Parquet keeps."""
    arrow = field.type
    if pa.types.is_list(arrow):
        element = arrow.value_field.with_name("element")
        arrow = pa.list_(_with_ids(element, kind.element_id, kind.element_type))
    elif pa.types.is_map(arrow):
        arrow = pa.map_(
            _with_ids(arrow.key_field, kind.key_id, kind.key_type),
            _with_ids(arrow.item_field, kind.value_id, kind.value_type),
        )
    elif pa.types.is_struct(arrow):
        ids = {each.name: each for each in kind.fields}
        arrow = pa.struct(
            [_with_ids(each, ids[each.name].field_id, ids[each.name].field_type) for each in arrow]
        )
    return pa.field(field.name, arrow, field.nullable, {"PARQUET:field_id": str(field_id)})


class _errors:  # noqa: N801  used like a function
    """Turns errors of pyiceberg and its catalogs into ours."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: object, at: object) -> None:
        from kafka_formats.errors import StrandlineError

        if isinstance(error, Exception) and not isinstance(error, StrandlineError):
            raise _translated(self._table, error) from error


def _translated(table: str, error: Exception) -> RetryLater:
    return RetryLater(
        f"{table} could not be read or committed to: {type(error).__name__}: {error}. Check that "
        "the catalog and the store answer, then run it again"
    )
