"""Finds the good batches of a damaged segment. Runs in a worker; nothing is uploaded.

A good batch counts if the batch before or after it is adjacent (the file's name counts as the end
of the batch before the first). A batch that fails its check, or can't be read, is skipped if the
next one begins where its length says. Otherwise, and after RANGES_TOLD_MAX runs, the rest of the
file counts as missing; to fetch too much costs only time. A hole is doubtful if good bytes or a
misplaced batch may be in it.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from kafka_formats.errors import Conflict, CorruptData, RetryLater
from kafka_formats.leader_epoch_checkpoint import epoch_for_offset
from kafka_formats.log_names import LOG_SUFFIX, segment_file_name
from kafka_formats.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    ControlType,
    check_crc,
    control_record_type,
    iter_records,
    parse_header,
)
from rlm.data_plane.copy_job import CopyJob
from rlm.data_plane.repair_jobs import READ_TOLD_BYTES, OnRead, tell_nobody
from rlm.data_plane.segment_source import CHANGED
from rlm.local_log.batch_places import is_in_order, joins
from rlm.local_log.damage import Run, Survey, ThinnedHole, without
from rlm.local_log.gap_rule import RANGES_TOLD_MAX, Offsets, overlaps, shows_cleaner
from rlmm.log.disk import LOST


@dataclass(frozen=True, slots=True)
class SurveyJob:
    """A survey of the segment that `job` would copy; its `.log` had `size_bytes` when it was
    planned.
    """

    job: CopyJob
    size_bytes: int


def survey(asked: SurveyJob, on_read: OnRead = tell_nobody) -> Survey:
    """Read the whole `.log`, one batch in memory at a time. It blocks: callers use a thread, from
    which `on_read` is called.

    Raises RetryLater if the file can't be read, Conflict(SOURCE_CHANGED) if it changed: bytes that
    a broker truncates are not lost.
    """
    job = asked.job
    path = job.directory / segment_file_name(job.start_offset, LOG_SUFFIX)
    found = _Found(job)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            before = os.fstat(descriptor)
            size, position, told = before.st_size, 0, 0
            while position < size:
                if found.is_full:
                    break
                left = min(job.limits.batch_bytes_max, size - position)
                header, data = None, b""
                with _without_lost_bytes():
                    header = walkable_header(descriptor, position, left, str(path))
                if header is None:
                    break
                with _without_lost_bytes():
                    data = os.pread(descriptor, header.size_bytes, position)
                good = data != b"" and is_good(data, header, str(path))
                aborts = good and is_abort(header, data, str(path))
                found.take(_Batch(header, position, good, aborts))
                position += header.size_bytes
                if position - told >= READ_TOLD_BYTES:
                    on_read(position - told)
                    told = position
            (found.ends if position == size else found.stops)()
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RetryLater(f"{path} can't be read: {error.strerror}") from error
    if (size, before.st_mtime_ns) != (asked.size_bytes, after.st_mtime_ns):
        raise Conflict(f"{path} changed while its damage was surveyed", reason=CHANGED)
    return found.result(path)


@contextmanager
def _without_lost_bytes() -> Iterator[None]:
    """Suppress the error of a read of bytes that the disk lost."""
    try:
        yield
    except OSError as error:
        if error.errno not in LOST:
            raise


def walkable_header(
    descriptor: int, position: int, bytes_max: int, name: str
) -> BatchHeader | None:
    """The header at `position`; None if the next batch can't be found from it: it is malformed, or
    its batch is larger than `bytes_max`.
    """
    head = os.pread(descriptor, HEADER_BYTES, position)
    try:
        header = parse_header(head, source=name, position=position)
    except CorruptData:
        return None
    return header if header.size_bytes <= bytes_max else None


def is_good(data: bytes, header: BatchHeader, name: str) -> bool:
    """True if the batch has the CRC of its header."""
    try:
        check_crc(data, 0, header, source=name, position=0)
    except CorruptData:
        return False
    return True


def is_abort(header: BatchHeader, data: bytes, name: str) -> bool:
    """True for the marker of an aborted transaction."""
    if not header.is_control:
        return False
    record = next(iter_records(data, source=name, position=0), None)
    if record is None:
        return False
    return control_record_type(record, source=name, position=0) == ControlType.ABORT


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch by its header, at `position` of the file. `good`: it passes its CRC check."""

    header: BatchHeader
    position: int
    good: bool
    is_abort: bool

    @property
    def first(self) -> int:
        return self.header.base_offset

    @property
    def last(self) -> int:
        return self.header.last_offset


class _Found:
    """Joins good batches in their right places into runs. A batch is judged once the next one is
    known.
    """

    def __init__(self, job: CopyJob) -> None:
        self._job = job
        self.runs: list[list[int]] = []  # first, last, position, size
        self._cleaned = job.gaps_allowed
        self._aborts: list[int] = []
        self._max_timestamp_ms = -1
        self._bad: list[tuple[int, int | None]] = []  # (mark, base offset) of each bad batch
        self._doubtful: list[Offsets] = []  # holes that overlap these are doubtful
        self._before = job.start_offset - 1  # the file's name is the first base offset
        self._batch: _Batch | None = None

    @property
    def is_full(self) -> bool:
        """True if RANGES_TOLD_MAX is reached, so the survey ends."""
        return len(self.runs) + len(self._doubtful) >= RANGES_TOLD_MAX

    def take(self, batch: _Batch) -> None:
        """Take the next batch in the file."""
        self._settle(batch.first)
        self._batch = batch

    def ends(self) -> None:
        """End the survey: the file ends after the last batch taken."""
        batch, end = self._batch, self._job.next_base_offset
        # After a gap, whole files may be missing too, so the next file's name proves nothing.
        self._settle(end if batch is not None and batch.first <= self._before + 1 else None)

    def stops(self) -> None:
        """End the survey: the rest of the file can't be read, or is left out."""
        self._settle(None)
        self._bad.append((self._mark, None))
        self._doubtful.append((self._mark, self._job.end_offset))

    @property
    def _mark(self) -> int:
        """The offset after the last good batch."""
        return self.runs[-1][1] + 1 if self.runs else self._job.start_offset

    def _settle(self, behind: int | None) -> None:
        batch, before = self._batch, self._before
        if batch is None:
            return
        self._batch, self._before = None, batch.last
        is_in_place = joins(before, batch.first, batch.last, behind) or (
            self._cleaned and is_in_order(before, batch.first, batch.last, behind)
        )
        if batch.good and is_in_place and self._fits(batch):
            self._add(batch)
            return
        self._bad.append((self._mark, batch.first))
        is_between = (before, behind) == (batch.first - 1, batch.last + 1)
        is_full = batch.header.record_count == batch.header.last_offset_delta + 1
        if batch.good or not (is_between and is_full):
            # A good batch may belong anywhere up to the next good one. A damaged batch may have a
            # damaged length, and so cover good bytes: only adjacent batches on both sides and a
            # record for each offset prove that it does not.
            self._doubtful += [(self._mark, self._mark), (batch.first, batch.last)]

    def _fits(self, batch: _Batch) -> bool:
        """True if the batch is after the taken ones, within the segment, and in the lineage."""
        job, header = self._job, batch.header
        if not self._mark <= batch.first <= batch.last <= job.end_offset:
            return False
        # The log start may be inside the batch, and below it the lineage may lack epochs.
        epoch = epoch_for_offset(job.leader_epochs, max(batch.first, job.log_start_offset))
        return header.partition_leader_epoch == epoch or batch.last < job.log_start_offset

    def _add(self, batch: _Batch) -> None:
        header, mark = batch.header, self._mark
        if shows_cleaner(header.attributes, header.last_offset_delta, header.record_count):
            self._cleaned = True
        if batch.is_abort:
            self._aborts.append(batch.last)
        self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp)
        joins = mark == batch.first or self._is_legal(mark, batch.first - 1)
        if self.runs and joins and sum(self.runs[-1][2:]) == batch.position:
            self.runs[-1][1] = batch.last
            self.runs[-1][3] += header.size_bytes
        else:
            self.runs.append([batch.first, batch.last, batch.position, header.size_bytes])

    def _is_legal(self, first: int, last: int) -> bool:
        """True if these offsets may be a gap that Kafka's cleaner left; such gaps, which may be
        many, do not end a run.
        """
        return self._cleaned and not overlaps(first, last, self._job.once_there)

    def _thinned(self, holes: Iterable[Offsets]) -> Iterator[ThinnedHole]:
        """The holes whose damaged batches are all known."""
        for first, last in holes:
            begin = bisect_left(self._bad, first, key=itemgetter(0))
            end = bisect_right(self._bad, last, key=itemgetter(0))
            bases = [base for _, base in self._bad[begin:end]]
            told = tuple(base for base in bases if base is not None)
            if len(told) == len(bases) <= RANGES_TOLD_MAX and self._is_legal(first, last):
                yield ThinnedHole(first, last, told)

    def result(self, path: Path) -> Survey:
        job = self._job
        holes = without(
            ((job.start_offset, job.end_offset),), ((run[0], run[1]) for run in self.runs)
        )
        doubtful = tuple(hole for hole in holes if overlaps(*hole, self._doubtful))
        thinned: tuple[ThinnedHole, ...] = ()
        if self._cleaned:  # gaps are legal, except those that damage made
            marks = (*((mark, mark) for mark, _ in self._bad), *job.once_there)
            holes = tuple(each for each in holes if overlaps(*each, marks))
            thinned = tuple(self._thinned(holes))
        # Not earlier: the damage of a hole that reaches above the log start may be below it.
        missing = without(holes, ((job.start_offset, job.log_start_offset - 1),))
        runs = tuple(Run(first, last, path, at, size) for first, last, at, size in self.runs)
        aborts = tuple(self._aborts)
        return Survey(runs, missing, aborts, self._max_timestamp_ms, thinned, doubtful)
