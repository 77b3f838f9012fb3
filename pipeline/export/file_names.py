"""The names of an export's files. Pure.

    strandline-NAME-00000007-0123456789abcde-00012-1f2e3d4c-000.parquet    a data file
    _strandline/NAME/runs/00000007-0123456789abcde.started                 a run: see run_records

A file's name contains the commit it was written for, and the run, task and attempt of the task. So
a file that no commit names differs from all other files in a table's folder: only names of this
pattern, of this export, are ever removed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kafka_formats.errors import InvalidRequest

ATTEMPT_BITS = 60
"""Bits of a run's random number: it fits the signed 64 bits of a transaction's version in Delta."""

SIDE_FOLDER = "_strandline/"
"""The folder beside the data, hidden from Spark, Delta and DuckDB's globs of data by its
underscore.
"""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_]{0,38}[a-z0-9])?")
_FILE = re.compile(
    r"strandline-(?P<name>[a-z0-9_]+)-(?P<number>\d{8,})-(?P<attempt>[0-9a-f]{15})"
    r"-\d{5,}-[0-9a-f]{8}-\d{3,}\.parquet"
)
_RECORD = re.compile(
    r"(?P<number>\d{8,})-(?P<attempt>[0-9a-f]{15})\.(?P<kind>started|files|settled)"
)


@dataclass(frozen=True, slots=True, order=True)
class RunId:
    """One run that wants to make commit `number` (from 1) of an export; `attempt` is random."""

    number: int
    attempt: str

    def __str__(self) -> str:
        return f"{self.number:08d}-{self.attempt}"


NO_COMMIT = RunId(0, "0" * 15)
"""The last commit of an export without commits."""


def check_export_name(name: str) -> str:
    """Returns the name; InvalidRequest if it does not fit into file names."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name[:60]!r} must be 1 to 40 lower-case letters, digits and underscores",
            field="--name",
        )
    return name


def data_file_name(name: str, run: RunId, task: int, chance: str, sequence: int) -> str:
    """The name of a task's file; `chance` (8 hex digits) differs between attempts of the task."""
    return f"strandline-{name}-{run}-{task:05d}-{chance}-{sequence:03d}.parquet"


def run_of_data_file(path: str, name: str) -> RunId | None:
    """The run of export `name` that wrote this file; None for any other file."""
    match = _FILE.fullmatch(path.rpartition("/")[2])
    if match is None or match["name"] != name:
        return None
    return RunId(int(match["number"]), match["attempt"])


def is_data_file(path: str) -> bool:
    """True if, by its name, a run of any export wrote this file."""
    return _FILE.fullmatch(path.rpartition("/")[2]) is not None


def export_folder(name: str) -> str:
    """The folder, below the table's, for the export's objects that are not data."""
    return f"{SIDE_FOLDER}{name}/"


def runs_folder(name: str) -> str:
    """The folder of the records of an export's runs."""
    return f"{export_folder(name)}runs/"


def dead_letters_log(name: str, table_id: str) -> str:
    """The name under which a table of dead letters keeps the commits of export `name` of the table
    with this id. Commit numbers count for one table only, and several may share a place.
    """
    return f"{name}-{table_id}"


def record_key(name: str, run: RunId, kind: str) -> str:
    """The object that records that a run `started`, has `files` to commit, or is `settled`."""
    return f"{runs_folder(name)}{run}.{kind}"


def record_of_key(key: str) -> tuple[RunId, str] | None:
    """Run and kind of a record; None for any other object."""
    match = _RECORD.fullmatch(key.rpartition("/")[2])
    if match is None:
        return None
    return RunId(int(match["number"]), match["attempt"]), match["kind"]
