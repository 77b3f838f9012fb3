"""The records of runs, by which a later run finds and removes the files of a killed one.

    runs/00000007-0123456789abcde.started   before the first file: a run writes for commit 7
    runs/00000007-0123456789abcde.files     before the commit: the files that it will name
    runs/00000007-0123456789abcde.settled   afterwards: the files that a commit names; all others
    are removed

Commit 7 is made once. Until then any run that wrote for it may still be at work, and its files are
left alone, whatever their age. Once it is made, by any run, the table refuses every other commit 7,
so files that other runs wrote for it can be removed, even while such a run still writes because it
does not know yet that it lost. That run removes its own files; if it can't, every later run looks
for them again for `WATCHED_MS`.

A run settles earlier runs before it writes anything, so a run that is not settled belongs to the
last commit or to the next. A file is removed only if its name matches the pattern, with export,
number and attempt, and if the table, asked once more, does not name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kafka_formats.errors import AlreadyExists, InternalError, NotFound
from pipeline.export.export_table import DataFile, ExportTable
from pipeline.export.file_names import (
    SIDE_FOLDER,
    RunId,
    record_key,
    record_of_key,
    run_of_data_file,
    runs_folder,
)
from pipeline.export.target_folder import TargetFolder
from rsm_backends.store import UnfinishedUpload

WATCHED_MS = 24 * 3600 * 1000
"""Time, by the store's own clock, for which files of a settled run are looked for."""


@dataclass(frozen=True, slots=True)
class Place:
    """A table and its folder: the table of the records, or the table of its dead letters."""

    table: ExportTable
    folder: TargetFolder


@dataclass(frozen=True, slots=True)
class FilesToCommit:
    """The files that a run is about to commit, its dead letters included. `dead_place` (name and
    id) is the table that these were written for; None in records of earlier releases.
    """

    files: list[DataFile]
    dead_files: list[DataFile]
    dead_place: tuple[str, str] | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "files": [each.as_json() for each in self.files],
            "dead_files": [each.as_json() for each in self.dead_files],
            "dead_place": self.dead_place,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> FilesToCommit:
        place = found.get("dead_place")
        return cls(
            [DataFile(**each) for each in found["files"]],
            [DataFile(**each) for each in found["dead_files"]],
            None if place is None else (str(place[0]), str(place[1])),
        )


class RunRecords:
    """The records of one export, in the folder of its table; see the module."""

    def __init__(self, name: str, places: Sequence[Place]) -> None:
        self._name = name
        self._places = places
        self._folder = places[0].folder

    def started(self, run: RunId) -> None:
        """Record that the run will write files."""
        self._folder.create(record_key(self._name, run, "started"), {"run": str(run)})

    def files(self, run: RunId, files: FilesToCommit) -> None:
        """Record the files that the commit will name."""
        self._folder.create(record_key(self._name, run, "files"), files.as_json())

    def files_of(self, run: RunId) -> FilesToCommit | None:
        """The recorded files of a run's commit; None once the run is settled."""
        try:
            return FilesToCommit.from_json(self._folder.read(record_key(self._name, run, "files")))
        except NotFound:
            return None

    def settle(self, last: RunId, *, watched: bool = True) -> int:
        """Remove files that can't be committed any more, now that `last` is the last commit, and
        return their number, unfinished uploads to S3 included. Runs that may still be under way are
        left alone. `watched` False: no task of `last` was ever repeated, so its commit names all
        its files.
        """
        removed = 0
        for run, kinds in self._runs().items():
            if run.number > last.number:
                continue
            if "settled" in kinds:
                removed += self._look_again(run, kinds)
            elif run == last and not watched:
                self._forget(run, kinds)
            else:
                removed += self._settle(run, kinds, is_last=run == last)
        return removed

    def give_up(self, run: RunId) -> int:
        """Remove the files of a run that found itself overtaken."""
        return self._settle(run, self._runs().get(run, {}), is_last=False)

    def under_way(self, last: RunId) -> list[RunId]:
        """Runs for a commit that is not made yet: at work, or killed."""
        return sorted(run for run in self._runs() if run.number > last.number)

    def _runs(self) -> dict[RunId, dict[str, int]]:
        """Records by run: kind -> time of its write, by the store's clock."""
        found: dict[RunId, dict[str, int]] = {}
        for each in self._folder.listed(runs_folder(self._name)):
            record = record_of_key(each.key)
            if record is not None:
                found.setdefault(record[0], {})[record[1]] = each.last_modified_ms or 0
        return found

    def _settle(self, run: RunId, kinds: dict[str, int], *, is_last: bool) -> int:
        kept: set[str] = set()
        if is_last:
            files = self.files_of(run)
            if files is None and (
                self._folder.exists(record_key(self._name, run, "settled"))
                or not self._folder.exists(record_key(self._name, run, "started"))
            ):
                return 0  # a different run, or this commit's own, settled it a moment ago
            if files is None:
                raise InternalError(
                    f"commit {run} was made without {record_key(self._name, run, 'files')}: "
                    "nothing was removed. If that object was deleted by hand, delete .started too"
                )
            kept = {each.path for each in (*files.files, *files.dead_files)}
        removed = self._remove(run, kept)
        with suppress(AlreadyExists):  # a concurrent run settles the same, with the same result
            self._folder.create(record_key(self._name, run, "settled"), {"kept": sorted(kept)})
        self._drop(run, [kind for kind in kinds if kind != "settled"])
        return removed

    def _look_again(self, run: RunId, kinds: dict[str, int]) -> int:
        key = record_key(self._name, run, "settled")
        removed = self._remove(run, set(self._folder.read(key)["kept"]))
        self._drop(run, [kind for kind in kinds if kind != "settled"])
        newest = max(each.last_modified_ms or 0 for each in self._folder.listed(key))
        if self._now_ms() - newest > WATCHED_MS:
            self._drop(run, ["settled"])
        return removed

    def _forget(self, run: RunId, kinds: dict[str, int]) -> None:
        # `.files` goes last: a commit with `.started` alone would count as one that lost `.files`.
        self._drop(run, sorted(kinds, reverse=True))

    def _drop(self, run: RunId, kinds: Sequence[str]) -> None:
        for kind in kinds:
            self._folder.remove([record_key(self._name, run, kind)])

    def _now_ms(self) -> int:
        """The time by the store's clock: the write of the newest record."""
        return max((max(kinds.values()) for kinds in self._runs().values()), default=0)

    def _remove(self, run: RunId, kept: set[str]) -> int:
        removed = 0
        for place in self._places:
            # Aborted before the files are listed: an upload completed meanwhile is then listed.
            removed += place.folder.abort(self._begun(place, run))
            doomed = [path for path in self._written(place, run) if path not in kept]
            if not doomed:
                continue
            if still_named := place.table.named(doomed):
                raise InternalError(
                    f"{place.table.name} names {min(still_named)}, but run {run} counts as never "
                    "committed: nothing was removed; report this"
                )
            place.folder.remove(doomed)
            removed += len(doomed)
        return removed

    def _begun(self, place: Place, run: RunId) -> Iterator[UnfinishedUpload]:
        """Uploads to S3 that killed tasks left unfinished, which no list of objects shows."""
        for each in place.folder.uploads(place.table.data_folder):
            if run_of_data_file(each.key, self._name) == run:
                yield each

    def _written(self, place: Place, run: RunId) -> Iterator[str]:
        for each in place.folder.listed(place.table.data_folder):
            if each.key.startswith((SIDE_FOLDER, "_delta_log/")):
                continue
            if run_of_data_file(each.key, self._name) == run:
                yield each.key
