"""One run of an export on the driver: settle, plan, write, commit, clean up.

If a run is killed, the next one completes or undoes its work: before the commit nothing of it
counts, after the commit everything does. The steps, and what a run killed after each leaves:

    open         an empty table
    settle       nothing: it commits the last commit's dead letters, removes files of killed runs
    started      a record of a run without files
    write        files that no commit names, and the record
    files        the same, and the list of files
    commit       the commit; its dead letters are not committed yet: `files` lists them
    dead-letters only records, and files of repeated tasks
    clean-up     nothing
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kafka_formats.errors import Conflict, InvalidRequest
from pipeline.export.export_plan import ExportTask, offsets_of
from pipeline.export.export_table import Commit, DataFile
from pipeline.export.export_task import TaskResult
from pipeline.export.file_names import NO_COMMIT, RunId, runs_folder
from pipeline.export.run_records import FilesToCommit, Place, RunRecords

Write = Callable[[RunId, Sequence[ExportTask]], Iterable[TaskResult]]
"""Runs the tasks of one commit, on Spark or not, and returns their results."""

Step = Callable[[str], None]


@dataclass
class Exported:
    """The result of one run. `data_bytes` uncompressed, `file_bytes` as written."""

    commits: list[int] = field(default_factory=list)
    rows: int = 0
    data_bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    dead_letters: int = 0
    skipped: int = 0
    undecided: int = 0
    removed_files: int = 0
    under_way: list[str] = field(default_factory=list)


class ExportRun:
    """Runs the steps in order. `place` is the table, `dead` the table of its dead letters, which
    keeps their commits under `dead_letters_log` of this table. `step` is called after each step,
    for tests that kill a run there.
    """

    def __init__(
        self,
        name: str,
        place: Place,
        dead: Place | None,
        *,
        new_attempt: Callable[[], str],
        step: Step = lambda _: None,
        watched: bool = False,
    ) -> None:
        self._name = name
        self._place = place
        self._dead = dead
        self._records = RunRecords(name, [place] if dead is None else [place, dead])
        self._new_attempt = new_attempt
        self._step = step
        self._watched = watched
        self._prepared_behind = NO_COMMIT
        self.done = Exported()

    def prepare(self) -> None:
        """Open the tables and complete the last run. Then `exported` of the table is current, and
        `export` commits only if this last commit is still the last one.
        """
        self._place.table.open()
        if self._dead is not None:
            self._dead.table.open()
        self._step("open")
        self._settle_last()
        self._step("settle")

    def export(self, groups: Iterator[list[ExportTask]], write: Write) -> None:
        """Make a commit of each group of tasks. Conflict(OVERTAKEN) if a different run of this
        export committed meanwhile; files of this run since its last commit are removed.
        """
        # Not looked up anew: the groups include offsets that a different run committed since
        # `prepare`.
        expected = self._prepared_behind
        for tasks in groups:
            run = RunId(expected.number + 1, self._new_attempt())
            self._records.started(run)
            self._step("started")
            # Checked again after the record is written: any later commit will find the record.
            if self._place.table.refresh() != expected:
                raise self._overtaken(run, None)
            self._export_one(run, tasks, write)
            expected = run
        self.done.under_way = [str(each) for each in self._records.under_way(expected)]

    def _export_one(self, run: RunId, tasks: Sequence[ExportTask], write: Write) -> None:
        results = list(write(run, tasks))
        self._step("write")
        files = FilesToCommit(
            [file for result in results for file in result.files],
            [file for result in results for file in result.dead_files],
            None if self._dead is None else (self._dead.table.name, self._dead.table.id),
        )
        self._check_written(run, files)
        self._records.files(run, files)
        self._step("files")
        skipped = sum(result.skipped for result in results)
        dead_rows = sum(file.rows for file in files.dead_files)
        notes = {"skipped": str(skipped), "dead_letters": str(dead_rows)}
        try:
            self._place.table.commit(Commit(run, files.files, offsets_of(tasks), notes))
        except Conflict as error:
            if error.reason == "OVERTAKEN":
                raise self._overtaken(run, error) from error
            raise
        self._step("commit")
        self._commit_dead_letters(run, files)
        self._step("dead-letters")
        watched = self._watched or any(result.retried for result in results)
        self.done.removed_files += self._records.settle(run, watched=watched)
        self._step("clean-up")
        self._count(run, results, files, skipped=skipped, dead_rows=dead_rows)

    def _check_written(self, run: RunId, files: FilesToCommit) -> None:
        """An executor may have written to a folder of its own: its offsets would count as exported.
        A run that was faster has removed the files of this one.
        """
        try:
            self._place.folder.check_written({file.path: file.size for file in files.files})
            if self._dead is not None:
                sizes = {file.path: file.size for file in files.dead_files}
                self._dead.folder.check_written(sizes)
        except InvalidRequest:
            if self._place.table.refresh().number >= run.number:
                raise self._overtaken(run, None) from None
            raise

    def _settle_last(self) -> None:
        # The dead letters' table is read first: then its last commit is never ahead of the table's.
        dead_last = NO_COMMIT if self._dead is None else self._dead.table.refresh()
        last = self._prepared_behind = self._place.table.refresh()
        self._check_same_commits(last, dead_last)
        files = self._records.files_of(last)
        if files is not None and files.dead_files and not self._are_named(files.dead_files):
            self._check_dead_place(last, files)
            self._commit_dead_letters(last, files)
        self.done.removed_files += self._records.settle(last)
        self.done.under_way = [str(each) for each in self._records.under_way(last)]

    def _check_same_commits(self, last: RunId, dead_last: RunId) -> None:
        """Raise Conflict(DEAD_LETTERS) if the table is a copy or lost commits: it would reuse
        numbers of commits that its dead letters have already, and new dead letters would count as
        committed.
        """
        if self._dead is None or dead_last == last or dead_last.number < last.number:
            return
        raise Conflict(
            f"{self._dead.table.name} holds dead letters of commit {dead_last}, which "
            f"{self._place.table.name} does not have, so it is a copy or was rolled back. Nothing "
            "was written: give its dead letters a place of their own (--dead-letters-to)",
            reason="DEAD_LETTERS",
        )

    def _are_named(self, dead_files: Sequence[DataFile]) -> bool:
        """True if their table names the files; earlier releases kept these commits under a
        different name.
        """
        return self._dead is not None and bool(
            self._dead.table.named([each.path for each in dead_files])
        )

    def _check_dead_place(self, run: RunId, files: FilesToCommit) -> None:
        """Raise Conflict(DEAD_LETTERS) unless this run's place of dead letters is the one that
        holds the files.
        """
        if files.dead_place is None:
            # Records of an earlier release do not name the place: look for the files there.
            there = self._dead is not None and all(
                self._dead.folder.exists(each.path) for each in files.dead_files
            )
            told = "the place given to that run"
        else:
            told, table_id = files.dead_place
            there = self._dead is not None and self._dead.table.id == table_id
        if there:
            return
        now = "nowhere" if self._dead is None else self._dead.table.name
        raise Conflict(
            f"commit {run.number} of this export has dead letters that its run did not commit. "
            f"They are in {told}, and this run's go to {now}: nothing was committed. Run it again "
            "with --on-error dead-letter and the former --dead-letters-to. If that place is lost "
            "for good, and they may be lost, too, first remove the objects "
            f"{self._place.folder.shown(runs_folder(self._name))}{run}.*",
            reason="DEAD_LETTERS",
        )

    def _commit_dead_letters(self, run: RunId, files: FilesToCommit) -> None:
        if not files.dead_files:
            return
        assert self._dead is not None, "dead letters only where there is a place for them"
        if self._dead.table.refresh().number < run.number:
            self._dead.table.commit(Commit(run, files.dead_files, {}))

    def _overtaken(self, run: RunId, error: Conflict | None) -> Conflict:
        self.done.removed_files += self._records.give_up(run)
        return error or Conflict(
            f"another run of this export has committed to {self._place.table.name} since this one "
            "began; nothing of this run counts. Run it again: it exports what is still missing",
            reason="OVERTAKEN",
        )

    def _count(
        self,
        run: RunId,
        results: Sequence[TaskResult],
        files: FilesToCommit,
        *,
        skipped: int,
        dead_rows: int,
    ) -> None:
        done = self.done
        done.commits.append(run.number)
        done.rows += sum(result.rows for result in results)
        done.data_bytes += sum(result.data_bytes for result in results)
        done.files += len(files.files)
        done.file_bytes += sum(file.size for file in files.files)
        done.dead_letters += dead_rows
        done.skipped += skipped
        done.undecided += sum(result.undecided for result in results)
