"""Ends a written log where no transaction is open, with its producers beside it: a task of
`--into-log-dirs`.

A broker reads the producers at a log's end from the last snapshot. A transaction open there, whose
marker never comes, blocks all readers of committed records for good; and a broker that was stopped
cleanly, and finds no snapshot, takes the records of a transaction without a marker for committed
ones. Source: Kafka's LogLoader and ProducerStateManager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_formats import producer_snapshot
from kafka_formats.batch_scan import ANY_BATCH_BYTES, BatchRun, BatchScanner
from kafka_formats.errors import Conflict
from kafka_formats.log_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file_name,
    segment_file_name,
)
from kafka_formats.producer_snapshot import OpenTransaction, ProducerState
from kafka_formats.record_batch import (
    LOG_OVERHEAD,
    TRANSACTIONAL_OR_CONTROL,
    BatchHeader,
    ControlType,
    control_record_type,
    iter_records,
)
from pipeline.restore.log_segment import (
    NOTE_SUFFIX,
    SegmentFiles,
    WrittenSegment,
    restore_segment,
    write_durably,
)
from rlm.data_plane.producer_replay import ProducerReplay
from rlmm.log.disk import sync_path

PIECE_BYTES = 1 << 20
_LENGTH = BatchHeader._fields.index("length")
_ATTRIBUTES = BatchHeader._fields.index("attributes")
_NO_PRODUCERS_BYTES = len(producer_snapshot.encode(()))


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """The work of a task: end the log in `folder`. `files` are the requested segments, `written`
    the results; readers see it from `start` on. Picklable.
    """

    name: str
    folder: str
    start: int
    files: tuple[SegmentFiles, ...]
    written: tuple[WrittenSegment, ...]


@dataclass(frozen=True, slots=True)
class EndedLog:
    """The segments that the log keeps. `left_out_last`: the requested log ends with this offset;
    None: the log has all.
    """

    written: tuple[WrittenSegment, ...]
    left_out_last: int | None = None


def end_log(log: WrittenLog) -> EndedLog:
    """Leave out what follows the last offset without an open transaction, and write the snapshot of
    the producers at the end. Conflict if nothing is left.
    """
    folder = Path(log.folder)
    files = _with_batches(log.written)
    if not files:
        return EndedLog(log.written)
    last = files[-1].last_offset
    quiet = quiet_end(folder, files)
    if quiet > last:
        _write_snapshot(folder, files)
        return EndedLog(log.written)
    written = tuple(_cut(folder, log, quiet))
    files = _with_batches(written)
    if not files or files[-1].last_offset < log.start:
        raise Conflict(
            f"{log.name}: transactions are open from the offset {quiet} to the end of the range, "
            f"{last}, one after the other, so that no log can end between: restore this partition "
            "by producing (--bootstrap), or leave it out (--partition)",
            reason="TRANSACTIONS_OPEN",
        )
    _write_snapshot(folder, files)
    return EndedLog(written, last)


def _with_batches(written: Sequence[WrittenSegment]) -> list[WrittenSegment]:
    return [each for each in written if each.log_bytes]


def quiet_end(folder: Path, files: Sequence[WrittenSegment]) -> int:
    """The last offset (exclusive) at which no transaction of the log is open."""
    stretch = _OpenStretch()
    for each in files[_quiet_file(folder, files) :]:
        for run in _runs(folder, each):
            stretch.take(run, segment_file_name(each.base_offset, LOG_SUFFIX))
    return files[-1].last_offset + 1 if stretch.since is None else stretch.since


def _quiet_file(folder: Path, files: Sequence[WrittenSegment]) -> int:
    """The number of the last file in front of which no transaction is open, by the snapshots. One
    without producers proves nothing, unless all are: a broker that lost its snapshots writes such.
    """
    snapshots = _snapshots(folder)
    none_has_producers = all(
        path.stat().st_size == _NO_PRODUCERS_BYTES for path in snapshots.values()
    )
    for number in range(len(files), 0, -1):
        at = _border(snapshots, files, number)
        if at is None:
            continue
        data = snapshots[at].read_bytes()
        relied_upon = len(data) > _NO_PRODUCERS_BYTES or none_has_producers
        if relied_upon and not producer_snapshot.parse_open(data, source=str(snapshots[at])):
            return number
    return 0


def _border(
    snapshots: Mapping[int, Path], files: Sequence[WrittenSegment], number: int
) -> int | None:
    """The offset of the snapshot between a file and the one before it; None if there is none."""
    before = files[number - 1].last_offset
    base = None if number == len(files) else files[number].base_offset
    return next(
        (at for at in sorted(snapshots) if at > before and (base is None or at <= base)), None
    )


def _snapshots(folder: Path) -> dict[int, Path]:
    found = {}
    for path in folder.glob(f"*{SNAPSHOT_SUFFIX}"):
        parsed = parse_segment_file_name(path.name)
        if parsed is not None:
            found[parsed[0]] = path
    return found


def _runs(folder: Path, written: WrittenSegment) -> Iterator[BatchRun]:
    path = folder / segment_file_name(written.base_offset, LOG_SUFFIX)
    scanner = BatchScanner(str(path), batch_bytes_max=ANY_BATCH_BYTES)
    with path.open("rb") as log:
        while piece := log.read(PIECE_BYTES):
            yield from scanner.feed_runs(piece)
    scanner.finish()


class _OpenStretch:
    """Takes a log's batches in order. `since`: base offset of the batch with which the stretch
    began in which some transaction is always open; None outside of one.
    """

    def __init__(self) -> None:
        self.since: int | None = None
        self._open: set[int] = set()

    def take(self, run: BatchRun, source: str) -> None:
        at = 0
        for fields in run.headers:
            end = at + LOG_OVERHEAD + fields[_LENGTH]
            if fields[_ATTRIBUTES] & TRANSACTIONAL_OR_CONTROL:
                header = BatchHeader._make(fields)
                if not header.is_control:
                    self._open.add(header.producer_id)
                    self.since = header.base_offset if self.since is None else self.since
                elif _ends(run.data[at:end], source, run.position + at):
                    self._open.discard(header.producer_id)
                    self.since = self.since if self._open else None
            at = end


def _ends(data: memoryview, source: str, position: int) -> bool:
    """True if a control batch ends its producer's transaction. If a marker is gone, the cleaner had
    removed its transaction before.
    """
    record = next(iter_records(data, source=source, position=position), None)
    if record is None:
        return True
    type_ = control_record_type(record, source=source, position=position)
    return type_ in (ControlType.ABORT, ControlType.COMMIT)


def _cut(folder: Path, log: WrittenLog, end: int) -> Iterator[WrittenSegment]:
    """Writes anew the segment that the end cuts, and removes those after it."""
    for files, each in zip(log.files, log.written, strict=True):
        if each.last_offset < end and each.log_bytes:
            yield each
            continue
        _remove(folder, each)
        if files.first_offset < end:
            yield restore_segment(replace(files, last_offset=end - 1))


def _remove(folder: Path, written: WrittenSegment) -> None:
    """The note is removed first: because of it a later run would rely on the other files."""
    (folder / f"{written.segment_id}{NOTE_SUFFIX}").unlink(missing_ok=True)
    sync_path(folder)
    if not written.log_bytes:
        return
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
        (folder / segment_file_name(written.base_offset, suffix)).unlink(missing_ok=True)
    for at, path in _snapshots(folder).items():
        if at > written.base_offset:
            path.unlink()


def _write_snapshot(folder: Path, files: Sequence[WrittenSegment]) -> None:
    """Writes the snapshot at the end. Transactions that snapshots show as open there began below
    the log, which has no record of them: without a marker they would be open for good, so they are
    removed from all snapshots.
    """
    end = files[-1].last_offset + 1
    snapshots = _snapshots(folder)
    for at in [at for at in snapshots if at > end]:
        # Brokers remove it, too. It was tiered with a segment that the cleaner had cut at its end.
        snapshots.pop(at).replace(folder / segment_file_name(end, SNAPSHOT_SUFFIX))
        snapshots[end] = folder / segment_file_name(end, SNAPSHOT_SUFFIX)
    producers = _producers_at_end(folder, snapshots, files)
    stuck = producer_snapshot.open_transactions(producers)
    if end in snapshots and not stuck:
        return
    written = {folder / segment_file_name(end, SNAPSHOT_SUFFIX): producers}
    if stuck:
        for path in snapshots.values():
            written.setdefault(path, producer_snapshot.parse(path.read_bytes(), source=str(path)))
    for path, states in written.items():
        write_durably(path, producer_snapshot.encode(_without(states, stuck)))


def _producers_at_end(
    folder: Path, snapshots: Mapping[int, Path], files: Sequence[WrittenSegment]
) -> tuple[ProducerState, ...]:
    number, at = len(files), _border(snapshots, files, len(files))
    while at is None and number > 1:
        number -= 1
        at = _border(snapshots, files, number)
    if at is None:
        number, start, known = 0, files[0].base_offset, None
    else:
        start = at
        known = producer_snapshot.parse(snapshots[at].read_bytes(), source=str(snapshots[at]))
    replay = ProducerReplay(known, start)
    for each in files[number:]:
        for run in _runs(folder, each):
            replay.take(run, segment_file_name(each.base_offset, LOG_SUFFIX))
    return replay.producers


def _without(
    states: Sequence[ProducerState], stuck: frozenset[OpenTransaction]
) -> tuple[ProducerState, ...]:
    return tuple(
        replace(each, current_txn_first_offset=-1)
        if (each.producer_id, each.current_txn_first_offset) in stuck
        else each
        for each in states
    )
