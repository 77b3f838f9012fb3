"""Finds the good batches of a damaged segment. Runs in a worker; nothing is uploaded.

A batch that fails its check is skipped if the next one begins where its length says. Else, and
after as many runs as are told, all that follows counts as missing: too much fetched costs only
time.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
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
from rlm.data_plane.segment_source import CHANGED
from rlm.local_log.damage import Run, Survey, ThinnedHole, without
from rlm.local_log.gap_rule import RANGES_TOLD_MAX, Offsets, overlaps, shows_cleaner

BATCH_BYTES_MAX = 128 << 20


@dataclass(frozen=True, slots=True)
class SurveyJob:
    """A survey of the segment that `job` would copy, whose `.log` had `size_bytes` when planned."""

    job: CopyJob
    size_bytes: int


def survey(asked: SurveyJob) -> Survey:
    """Read the whole `.log`, one batch in memory at a time. Blocks: callers use a thread.

    RetryLater: it cannot be read. Conflict(SOURCE_CHANGED): it is being written to; what a broker
    truncates is not lost.
    """
    job = asked.job
    path = job.directory / segment_file_name(job.start_offset, LOG_SUFFIX)
    found = _Found(job)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            before = os.fstat(descriptor)
            size, position = before.st_size, 0
            while position < size:
                if len(found.runs) >= RANGES_TOLD_MAX:
                    found.bad()  # nothing is known of the rest
                    break
                header = walkable_header(descriptor, position, size, str(path))
                if header is None:
                    found.bad()
                    break
                data = os.pread(descriptor, header.size_bytes, position)
                if is_good(data, header, str(path)):
                    found.take(header, data, position)
                else:
                    found.bad(header.base_offset)
                position += header.size_bytes
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RetryLater(f"{path} cannot be read: {error.strerror}") from error
    if (size, before.st_mtime_ns) != (asked.size_bytes, after.st_mtime_ns):
        raise Conflict(f"{path} changed while its damage was looked at", reason=CHANGED)
    return found.result(path)


def walkable_header(descriptor: int, position: int, size: int, name: str) -> BatchHeader | None:
    """The header at `position`; None if the walk cannot go on from there."""
    head = os.pread(descriptor, HEADER_BYTES, position)
    try:
        header = parse_header(head, source=name, position=position)
    except CorruptData:
        return None
    if header.size_bytes > min(BATCH_BYTES_MAX, size - position):
        return None
    return header


def is_good(data: bytes, header: BatchHeader, name: str) -> bool:
    """True if the batch passes its check."""
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
    return control_record_type(record, source=name, position=0) is ControlType.ABORT


@dataclass(slots=True)
class _Last:
    """The batch taken last: the offset before it, its number of offsets, the run without it."""

    before: int
    count: int
    run: list[int] | None
    is_abort: bool


class _Found:
    """Joins good batches to runs. A batch's CRC does not cover its base offset and leader epoch."""

    def __init__(self, job: CopyJob) -> None:
        self._job = job
        self.runs: list[list[int]] = []  # first, last, position, size
        self._cleaned = job.gaps_allowed
        self._aborts: list[int] = []
        self._max_timestamp_ms = -1
        self._bad: list[tuple[int, int | None]] = []  # behind which good batch, with which base
        self._last: _Last | None = None

    def bad(self, base_offset: int | None = None) -> None:
        """Note damage behind the last good batch: a batch, or with None all of the rest."""
        mark = self.runs[-1][1] + 1 if self.runs else self._job.start_offset
        self._bad.append((mark, base_offset))

    def take(self, header: BatchHeader, data: bytes, position: int) -> None:
        job, first, last = self._job, header.base_offset, header.last_offset
        trusted = self._order_holds(first)
        end = self.runs[-1][1] if self.runs else job.start_offset - 1
        epoch = epoch_for_offset(job.leader_epochs, first)
        if (
            not trusted
            or not end < first <= last <= job.end_offset
            or (header.partition_leader_epoch != epoch and last >= job.log_start_offset)
        ):
            self.bad(first)
            return
        if shows_cleaner(header.attributes, header.last_offset_delta, header.record_count):
            self._cleaned = True
        aborts = is_abort(header, data, "segment")
        if aborts:
            self._aborts.append(last)
        self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp)
        joins = end + 1 == first or self._is_legal(end + 1, first - 1)
        run = None
        if self.runs and joins and sum(self.runs[-1][2:]) == position:
            run = list(self.runs[-1])
            self.runs[-1][1], self.runs[-1][3] = last, run[3] + header.size_bytes
        else:
            self.runs.append([first, last, position, header.size_bytes])
        self._last = _Last(end, last - first + 1, run, aborts)

    def _order_holds(self, first: int) -> bool:
        """True if a batch that begins at `first` may be taken after the last one.

        If both claim the same offsets and the last one is behind a gap, a bit flipped in the base
        offset of one of them, and the last is given up. It was the last one's bit if this batch
        joins the run once the gap is gone; else this one is not taken either.
        """
        last = self._last
        if last is None or not last.before < first <= self.runs[-1][1]:
            return True
        base, mark = self.runs[-1][1] - last.count + 1, last.before + 1
        if base == mark:
            return True  # no gap: this one is out of order
        self._last = None
        if last.run is None:
            self.runs.pop()
        else:
            self.runs[-1] = last.run
        if last.is_abort:
            self._aborts.pop()
        behind = []
        while self._bad and self._bad[-1][0] > mark:
            behind.append(self._bad.pop()[1])
        self._bad += [(mark, each) for each in (base, *reversed(behind))]
        return not self._cleaned and first == mark + last.count

    def _is_legal(self, first: int, last: int) -> bool:
        """True if a gap without damaged bytes ends no run: cleaners leave very many."""
        return self._cleaned and not overlaps(first, last, self._job.once_there)

    def _thinned(self, holes: Iterable[Offsets]) -> Iterator[ThinnedHole]:
        """The holes of which all damage can be told."""
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
        thinned: tuple[ThinnedHole, ...] = ()
        if self._cleaned:  # gaps are legal, but for those that damage made
            marks = (*((mark, mark) for mark, _ in self._bad), *job.once_there)
            holes = tuple(each for each in holes if overlaps(*each, marks))
            thinned = tuple(self._thinned(holes))
        # Only now: the cause of a hole that reaches above the log start may be below it.
        missing = without(holes, ((job.start_offset, job.log_start_offset - 1),))
        runs = tuple(Run(first, last, path, at, size) for first, last, at, size in self.runs)
        return Survey(runs, missing, tuple(self._aborts), self._max_timestamp_ms, thinned)
