"""What the files of an export are called. Pure.

    strandline-NAME-00000007-0123456789abcde-00012-1f2e3d4c-000.parquet    a data file
    _strandline/NAME/runs/00000007-0123456789abcde.started                 a run: see run_records

A file's name says which commit it was written for, by which run, task and attempt of the task. So
a file that no commit names can be told from everything else there is in a table's folder: only
names of this pattern, of this export, are ever removed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kafka_formats.errors import InvalidRequest

ATTEMPT_BITS = 60
"""A run's own number: fits the signed 64 bits that Delta has for a transaction's version."""

SIDE_FOLDER = "_strandline/"
"""Hidden from Spark, Delta and DuckDB's globs of data by its underscore."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_]{0,38}[a-z0-9])?")
_FILE = re.compile(
    r"strandline-(?P<name>[a-z0-9_]+)-(?P<number>\d{8})-(?P<attempt>[0-9a-f]{15})"
    r"-\d{5}-[0-9a-f]{8}-\d{3,}\.parquet"
)
_RECORD = re.compile(
    r"(?P<number>\d{8})-(?P<attempt>[0-9a-f]{15})\.(?P<kind>started|files|settled)"
)


@dataclass(frozen=True, slots=True, order=True)
class RunId:
    """One run that wants to make commit `number` (from 1) of an export; `attempt` is chance."""

    number: int
    attempt: str

    def __str__(self) -> str:
        return f"{self.number:08d}-{self.attempt}"


NO_COMMIT = RunId(0, "0" * 15)
"""What stands for the last commit of an export that has none."""


def check_export_name(name: str) -> str:
    """The name; InvalidRequest if it would not fit into file names."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name[:60]!r} must be 1 to 40 small letters, digits and underscores", field="--name"
        )
    return name


def data_file_name(name: str, run: RunId, task: int, chance: str, sequence: int) -> str:
    """The name of a task's file; `chance` (8 hex digits) differs between attempts of the task."""
    return f"strandline-{name}-{run}-{task:05d}-{chance}-{sequence:03d}.parquet"


def run_of_data_file(path: str, name: str) -> RunId | None:
    """Which run of export `name` wrote this file; None: it is none of its files."""
    match = _FILE.fullmatch(path.rpartition("/")[2])
    if match is None or match["name"] != name:
        return None
    return RunId(int(match["number"]), match["attempt"])


def is_data_file(path: str) -> bool:
    """Whether any run of any export wrote this file, by its name."""
    return _FILE.fullmatch(path.rpartition("/")[2]) is not None


def export_folder(name: str) -> str:
    """Where the export keeps what is no data, below the table's folder."""
    return f"{SIDE_FOLDER}{name}/"


def runs_folder(name: str) -> str:
    """Where an export's runs leave word of themselves."""
    return f"{export_folder(name)}runs/"


def dead_letters_log(name: str, table_id: str) -> str:
    """Under which name a table of dead letters keeps the commits of the export `name` of the table
    with this id. Commit numbers count for one table only, and several may share a place.
    """
    return f"{name}-{table_id}"


def record_key(name: str, run: RunId, kind: str) -> str:
    """The object by which a run says that it `started`, has `files` to commit, is `settled`."""
    return f"{runs_folder(name)}{run}.{kind}"


def record_of_key(key: str) -> tuple[RunId, str] | None:
    """Run and kind of a record; None for any other object."""
    match = _RECORD.fullmatch(key.rpartition("/")[2])
    if match is None:
        return None
    return RunId(int(match["number"]), match["attempt"]), match["kind"]
