"""One broker's copy of a partition, and the files that a node beside it sees.

The files are real; an active segment's content is never read. Their times are set by hand, so that
a replay sees the same ones.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from kafka_formats import (
    leader_epoch_checkpoint,
    producer_snapshot,
    time_index,
    transaction_index,
)
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import (
    EpochEntry,
    Epochs,
    append_entry,
    truncate_from_end,
    truncate_from_start,
)
from kafka_formats.log_names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafka_formats.producer_snapshot import ProducerState
from kafka_formats.properties import encode_partition_metadata
from kafka_formats.transaction_index import AbortedTransaction
from sim.tier.decided import aborted_within, producer_states

NS_PER_MS = 1_000_000
FOREVER_MS = 1 << 50
ABORTED_PRODUCER = 7


@dataclass(frozen=True, slots=True)
class Batch:
    """Offsets [base, last], as one leader wrote them. `producer` is that of a transaction's
    records, or of its `marker`, ABORT or COMMIT. `aborted`: a batch of ABORTED_PRODUCER and the
    marker at `last` that aborts it.
    """

    base: int
    last: int
    epoch: int
    timestamp_ms: int
    data: bytes
    aborted: bool = False
    producer: int = -1
    marker: str | None = None


class Replica:
    """A replica. `batches` go back to offset 0, also below `bases[0]`, where the disk begins;
    `bases` are those of segments, of which the last is active. `leads` and `epoch` are the broker's
    belief. DeleteRecords sets `log_start`, inside a segment or above whole ones that go later.
    `open_at` gives the transaction open at an offset; None: no producer snapshots. `passed` are
    offsets that the log start passed some time before their segments went. `truncated_ms` is the
    time of the last truncation. `lost` are batches that damage took from the disk. Local retention
    of a broker that tiers goes by `highest_copied`; Kafka's own never falls, so that an unclean
    election can make it drop what no tier has (UnifiedLog.updateHighestOffsetInRemoteStorage).
    `begun` is the highest offset where the log began, by the leader epoch that it believed in.
    `has_transactions`: producer snapshots show those of the log's batches.
    """

    def __init__(self, directory: Path, topic_id: Uuid, now_ms: Callable[[], int]) -> None:
        self.directory = directory
        self.batches: list[Batch] = []
        self.bases = [0]
        self.log_start = 0
        self.epochs: Epochs = ()
        self.epoch = -1
        self.leads = False
        self.high_watermark = 0
        self.last_stable = 0
        self.passed: list[range] = []
        self.open_at: Callable[[int], int | None] | None = None
        self.truncated_ms = -FOREVER_MS
        self.lost: list[Batch] = []
        self.highest_copied = -1
        self.is_removed = False
        self.begun: dict[int, int] = {}
        self.has_transactions = False
        self._now_ms = now_ms
        self._ticks = 0
        directory.mkdir(parents=True)
        (directory / PARTITION_METADATA_FILE).write_bytes(encode_partition_metadata(topic_id))
        self._path(0).touch()
        self._write_epochs(())

    @property
    def end(self) -> int:
        """The log end offset, exclusive."""
        return self.batches[-1].last + 1 if self.batches else 0

    def within(self, start: int, end: int) -> list[Batch]:
        """The batches of [start, end)."""
        return batches_within(self.batches, start, end)

    def sealed(self, *, below: int) -> Iterator[tuple[Path, int, int]]:
        """Log, first offset with a known epoch and end of sealed segments that end `below`, or
        there. DeleteRecords may have taken all of one.
        """
        for base, end in pairwise(self.bases):
            start = max(base, self.epochs[0].start_offset) if self.epochs else end
            if start < end <= below:
                yield self._path(base), start, end

    def active(self) -> Iterator[tuple[Path, int, int]]:
        """Log, first offset with a known epoch and end of the active segment, if it has records."""
        start = max(self.bases[-1], self.epochs[0].start_offset) if self.epochs else self.end
        if start < self.end:
            yield self._path(self.bases[-1]), start, self.end

    def append(self, batch: Batch, *, lost: bool = False) -> None:
        """Append a batch; `lost`: the leader's disk has lost it, and its follower skips it."""
        assert batch.base == self.end
        if not self.epochs or batch.epoch > self.epochs[-1].epoch:
            self._write_epochs(append_entry(self.epochs, batch.epoch, batch.base))
        self.batches.append(batch)
        if lost:
            self.lost.append(batch)
            return
        path = self._path(self.bases[-1])
        with path.open("ab") as file:
            file.write(batch.data)
        self._stamp(path)

    def begin_epoch(self, epoch: int) -> None:
        """Begin to lead from the log's end on."""
        self._write_epochs(append_entry(self.epochs, epoch, self.end))

    def roll(self) -> bool:
        """Seal the active segment; False if it is empty."""
        if self.end <= self.bases[-1]:
            return False
        self._seal(self.end)
        self._changed()
        return True

    def _seal(self, end: int) -> None:
        """End the active segment and begin the next."""
        self._index(self.bases[-1], end)
        self.bases.append(end)
        self._path(end).touch()
        if self.has_transactions:
            self._write_snapshot(
                end, producer_states(each for each in self.batches if each.last < end)
            )
        elif self.open_at is not None:
            first = self.open_at(end)
            # One producer did everything.
            who = ProducerState(
                1, 0, 0, end - 1, 0, self._now_ms(), 0, -1 if first is None else first
            )
            self._write_snapshot(end, [who])

    def truncate(self, end: int) -> None:
        """Truncate to `end`, a border of batches."""
        if end >= self.end:
            # As Kafka does: of a leadership without a record an entry may be left.
            if self.epochs and self.epochs[-1].start_offset >= self.end:
                self._write_epochs(truncate_from_end(self.epochs, self.end))
            return
        self.truncated_ms = self._now_ms()
        self.batches = [batch for batch in self.batches if batch.last < end]
        for base in [base for base in self.bases if base >= end]:
            self._drop(base)
        if not self.bases:
            self.bases = [end]
            self._path(end).touch()
        self.lost = [batch for batch in self.lost if batch.last < end]
        within = self.within(self.bases[-1], end)
        kept = b"".join(each.data for each in within if each not in self.lost)
        path = self._path(self.bases[-1])
        if not path.exists():  # damage took it, and the broker opens it anew
            path.write_bytes(kept)
        os.truncate(path, len(kept))
        self._stamp(path)
        aborted = transaction_index.encode(self.aborted(self.bases[-1], end))
        for suffix, kept in ((TIME_INDEX_SUFFIX, b""), (TRANSACTION_INDEX_SUFFIX, aborted)):
            if path.with_suffix(suffix).exists():
                # As the broker does, also through links.
                os.truncate(path.with_suffix(suffix), len(kept))
        self.high_watermark = min(self.high_watermark, end)
        self.last_stable = min(self.last_stable, end)
        self.log_start = min(self.log_start, end)
        self.highest_copied = min(self.highest_copied, end - 1)
        self._write_epochs(truncate_from_end(self.epochs, end))

    def trim(self, start: int) -> None:
        """Remove whole segments below `start`, a segment's base, as local retention does."""
        going = [base for base in self.bases if base < start]
        self._passed(going, start)
        for base in going:
            self._drop(base)
        self._changed()
        self.cut(start)

    def drop_local(self, start: int) -> None:
        """Remove whole segments below `start`, a segment's base, which the tier has: the log start
        stays.
        """
        for base in [base for base in self.bases if base < start]:
            self._drop(base)
        self._changed()

    def rebuild(self, before: list[Batch], start: int, log_start: int, epochs: Epochs) -> None:
        """Begin at `start` with what the tier told of the log below, as a follower does whose
        leader has less on its disk than the follower lacks.
        """
        self.start_over(before, start)
        self.log_start = log_start
        self._write_epochs(epochs)

    def cut(self, start: int) -> None:
        """Begin the log at `start`, as DeleteRecords does; segments below stay until `tidy`."""
        if start > self.log_start and not self.is_removed:
            self.log_start = start
            self._write_epochs(truncate_from_start(self.epochs, start))

    def lose(self, base: int) -> None:
        """Lose all files of a sealed segment."""
        self.lost += self.within(base, self._next_base(base))
        for suffix in (LOG_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX):
            self._path(base).with_suffix(suffix).unlink(missing_ok=True)
        self._changed()

    def shorten(self, base: int) -> None:
        """Cut a sealed segment at its last batch, as a broker does that finds it bad when indexing
        anew.
        """
        last = self.within(base, self._next_base(base))[-1]
        self.lost.append(last)
        path = self._path(base)
        os.truncate(path, path.stat().st_size - len(last.data))
        path.with_suffix(TIME_INDEX_SUFFIX).unlink(missing_ok=True)
        self._stamp(path)
        self._changed()

    def forget(self, offset: int) -> None:
        """Damage the batch there; no node reads the file."""
        self.lost += [each for each in self.batches if each.base <= offset <= each.last]

    def _passed(self, going: list[int], end: int) -> None:
        """Note removed segments, of which the last ends at `end`."""
        if going and going[0] < self.log_start:
            self.passed.append(range(going[0], min(end, self.log_start)))

    def _next_base(self, base: int) -> int:
        return self.bases[self.bases.index(base) + 1]

    def tidy(self) -> None:
        """Remove segments that lie wholly below the log start."""
        for base in [base for base in self.bases[1:] if base <= self.log_start][-1:]:
            self.trim(base)

    def start_over(self, before: list[Batch], start: int) -> None:
        """Kafka's truncateFullyAndStartAt; `before` is what everybody had below."""
        self.truncated_ms = self._now_ms()
        for base in tuple(self.bases):
            self._drop(base)
        self.batches, self.lost = list(before), []
        self.bases = [start]
        self.log_start = start
        self._path(start).touch()
        self.high_watermark = self.last_stable = start
        self._write_epochs(())

    def move(self, start: int, rolls: Callable[[], bool]) -> None:
        """Move to another log directory, whose copy was fetched from `start`, a log start that may
        have moved since, with segments that end elsewhere.
        """
        aside = self.directory.with_name(f"{self.directory.name}-gone")
        self.directory.rename(aside)
        self.directory.mkdir()
        shutil.copy(aside / PARTITION_METADATA_FILE, self.directory)
        left = [each for each in self.batches if each.last >= start]
        self._passed(self.bases, self.end)
        self.bases = [left[0].base if left else self.end]
        self._path(self.bases[0]).touch()
        for batch in left:
            if batch.base > self.bases[-1] and rolls():
                self._seal(batch.base)
            with self._path(self.bases[-1]).open("ab") as file:
                file.write(batch.data)
        self._write_epochs(self.epochs)
        shutil.rmtree(aside)

    def remove(self) -> None:
        """Remove the directory of a deleted topic; tasks of its broker may go on for a moment."""
        shutil.rmtree(self.directory)
        self.is_removed = True

    def _path(self, base: int) -> Path:
        return self.directory / segment_file_name(base, LOG_SUFFIX)

    def _drop(self, base: int) -> None:
        self.bases.remove(base)
        self._path(base).unlink(missing_ok=True)  # damage may have taken it
        for suffix in (TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX):
            self._path(base).with_suffix(suffix).unlink(missing_ok=True)

    def _index(self, base: int, end: int) -> None:
        newest = max((each.timestamp_ms, each.last) for each in self.within(base, end))
        times = time_index.encode([newest], base)
        self._path(base).with_suffix(TIME_INDEX_SUFFIX).write_bytes(times)
        if aborted := self.aborted(base, end):
            path = self._path(base).with_suffix(TRANSACTION_INDEX_SUFFIX)
            path.write_bytes(transaction_index.encode(aborted))

    def aborted(self, base: int, end: int) -> list[AbortedTransaction]:
        """The transaction index for the markers of [base, end)."""
        return aborted_within((each for each in self.batches if each.last < end), base)

    def _write_snapshot(self, end: int, producers: Sequence[ProducerState]) -> None:
        """Write a producer snapshot as a roll there does."""
        path = self._path(end).with_suffix(SNAPSHOT_SUFFIX)
        path.write_bytes(producer_snapshot.encode(producers))
        self._stamp(path)

    def overwrite(self, name: str, data: bytes) -> None:
        """Let a file have another content; that of the leader epochs until they change."""
        path = self.directory / name
        path.write_bytes(data)
        self._stamp(path)
        self._changed()

    def write_epochs(self) -> None:
        """Write the leader epochs again."""
        self._write_epochs(self.epochs)

    def _write_epochs(self, epochs: tuple[EpochEntry, ...]) -> None:
        self.epochs = epochs
        path = self.directory / LEADER_EPOCH_CHECKPOINT_FILE
        aside = path.with_suffix(".tmp")
        aside.write_bytes(leader_epoch_checkpoint.encode(epochs))
        aside.replace(path)
        self._stamp(path)
        self._changed()

    def _changed(self) -> None:
        self._stamp(self.directory)
        begins = max(self.bases[0], self.log_start)
        self.begun[self.epoch] = max(begins, self.begun.get(self.epoch, 0))

    def _stamp(self, path: Path) -> None:
        """Set a file's time, different for each change."""
        self._ticks += 1
        modified_ns = self._now_ms() * NS_PER_MS + self._ticks
        os.utime(path, ns=(modified_ns, modified_ns))


def batches_within(batches: list[Batch], start: int, end: int) -> list[Batch]:
    """Batches that lie wholly in [start, end)."""
    return [batch for batch in batches if start <= batch.base and batch.last < end]
