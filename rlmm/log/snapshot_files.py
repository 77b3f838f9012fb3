"""Snapshot files of the metadata log: `<end offset>-<epoch>.checkpoint` (KIP-630).

A snapshot is a sequence of record batches: SnapshotHeader, KRaftVersion, Voters, the rows,
SnapshotFooter. It is written as `.checkpoint.part` and renamed once it is durable, so a file with
the final name is complete; an interrupted one is removed at start. Every batch carries the time of
the last record in the snapshot, so that nodes at the same offset write the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path

from kafka_formats.bare_records import (
    bare_values,
    control_values,
    encode_bare_values,
    encode_control_values,
)
from kafka_formats.batch_scan import BatchScanner, ScannedBatch
from kafka_formats.control_record import ControlType, control_key, parse_control_key
from kafka_formats.errors import CorruptData
from kafka_formats.record_batch import iter_records
from rlmm.log.disk import LOST, AppendFile, Disk
from rlmm.log.quorum_records import (
    Voter,
    decode_snapshot_header,
    decode_voters,
    encode_kraft_version,
    encode_snapshot_footer,
    encode_snapshot_header,
    encode_voters,
)
from rlmm.log.segment_file import check_place
from rlmm.metadata_log import Proposal, SnapshotId

PART_SUFFIX = ".checkpoint.part"
DOWNLOAD_SUFFIX = f".fetched{PART_SUFFIX}"
"""The name of a download differs: the same snapshot may be written here at that moment."""
DAMAGED_SUFFIX = ".damaged"
"""Suffix of a snapshot that was set aside because it can't be read."""
PRIVATE_CONTROL_TYPES_FROM = 1_000
BATCH_BYTES_TARGET = 64 * 1024
SYNC_BYTES = 8 * 1024 * 1024
"""Bytes between two syncs: a single sync of a large snapshot would delay the log's own syncs."""
READ_CHUNK_BYTES = 1024 * 1024
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def snapshot_file_name(snapshot: SnapshotId) -> str:
    """Kafka's name: 20 digits of the end offset, a dash, 10 digits of the epoch."""
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"


def parse_snapshot_file_name(name: str) -> SnapshotId | None:
    """The id in a complete snapshot's name; None for any other name."""
    match = _NAME.fullmatch(name)
    return SnapshotId(int(match[1]), int(match[2])) if match else None


def list_snapshots(disk: Disk, directory: Path) -> tuple[SnapshotId, ...]:
    """Complete snapshots, oldest first; the bootstrap one, (0, 0), included."""
    found = (parse_snapshot_file_name(name) for name in disk.list_names(directory))
    return tuple(sorted(snapshot for snapshot in found if snapshot is not None))


def download_name(snapshot: SnapshotId) -> str:
    """The name of a snapshot while it comes from the leader."""
    return snapshot_file_name(snapshot).removesuffix(".checkpoint") + DOWNLOAD_SUFFIX


class SnapshotWriter:
    """Writes one snapshot: construct, `add` rows in key order, `finish` or `abandon`. Blocks."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        snapshot: SnapshotId,
        *,
        last_contained_timestamp_ms: int,
        voters: tuple[Voter, ...],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._name = snapshot_file_name(snapshot)
        self._part = directory / (self._name + ".part")
        self._epoch = snapshot.epoch
        self._timestamp_ms = last_contained_timestamp_ms
        self._next_offset = 0
        self._unsynced_bytes = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._pending_type: int | None = None
        disk.remove(self._part)
        self._file: AppendFile = disk.open_append(self._part)
        try:
            self._control(
                ControlType.SNAPSHOT_HEADER, encode_snapshot_header(last_contained_timestamp_ms)
            )
            self._control(ControlType.KRAFT_VERSION, encode_kraft_version())
            self._control(ControlType.KRAFT_VOTERS, encode_voters(voters))
        except BaseException:
            self.abandon()  # the caller has no object yet to abandon
            raise

    def add(self, rows: Iterable[Proposal]) -> None:
        """Append rows. A batch has rows of one kind; where it ends depends on the rows alone, not
        on the calls.
        """
        pending, size_bytes, kind = self._pending, self._pending_bytes, self._pending_type
        for control_type, value in rows:
            if control_type != kind or size_bytes >= BATCH_BYTES_TARGET:
                self._append(kind, pending)
                pending, size_bytes, kind = [], 0, control_type
            pending.append(value)
            size_bytes += len(value)
        self._pending, self._pending_bytes, self._pending_type = pending, size_bytes, kind

    def finish(self) -> Path:
        """Complete it: footer, bytes durable, final name, name durable. OSError: the unfinished
        file is removed, since further attempts would fill the disk.
        """
        path = self._directory / self._name
        try:
            self._append(self._pending_type, self._pending)
            self._control(ControlType.SNAPSHOT_FOOTER, encode_snapshot_footer())
            self._file.sync()
            self._file.close()
            self._disk.rename(self._part, path)
            self._disk.sync_directory(self._directory)
        except OSError:
            with suppress(OSError):
                self.abandon()
            raise
        return path

    def abandon(self) -> None:
        """Give up: close and remove the file."""
        self._file.close()
        self._disk.remove(self._part)

    def _control(self, control_type: ControlType, value: bytes) -> None:
        self._append(int(control_type), [value])

    def _append(self, control_type: int | None, values: Sequence[bytes]) -> None:
        if not values:
            return
        place = {
            "base_offset": self._next_offset,
            "leader_epoch": self._epoch,
            "timestamp_ms": self._timestamp_ms,
        }
        batch = (
            encode_bare_values(values, **place)
            if control_type is None
            else encode_control_values(values, key=control_key(control_type), **place)
        )
        self._file.append(batch)
        self._next_offset += len(values)
        self._unsynced_bytes += len(batch)
        if self._unsynced_bytes >= SYNC_BYTES:
            self._file.sync()
            self._unsynced_bytes = 0


def write_bootstrap_snapshot(disk: Disk, directory: Path, voters: tuple[Voter, ...]) -> Path:
    """Kafka's bootstrap snapshot (0, 0), which names a formatted directory's first voters."""
    writer = SnapshotWriter(
        disk, directory, SnapshotId(0, 0), last_contained_timestamp_ms=0, voters=voters
    )
    return writer.finish()


def snapshot_voters(disk: Disk, path: Path) -> tuple[Voter, ...]:
    """The voter set of a snapshot; blocks. CorruptData: the file or the set is missing."""
    source = str(path)
    try:
        for batch in snapshot_batches(disk, path):
            if not batch.header.is_control:
                continue
            for record in iter_records(batch.data, source=source, position=batch.position):
                kind = parse_control_key(record.key, source=source, position=batch.position)
                if kind == ControlType.KRAFT_VOTERS:
                    return decode_voters(record.value or b"", source=source)
    except FileNotFoundError as error:
        raise CorruptData("the snapshot is gone", source=source) from error
    raise CorruptData("the snapshot names no voters", source=source)


def snapshot_batches(disk: Disk, path: Path) -> Iterator[ScannedBatch]:
    """The batches of a snapshot file, each checked with its neighbours. Blocks. CorruptData."""
    source = str(path)
    scanner = BatchScanner(source)
    position = next_offset = 0
    epoch: int | None = None
    while chunk := _chunk(disk, path, position):
        position += len(chunk)
        for batch in scanner.feed(chunk):
            header = batch.header
            check_place(header, next_offset, source, batch.position)
            next_offset = header.last_offset + 1
            if epoch not in (None, header.partition_leader_epoch):
                raise CorruptData(
                    f"batches of the epochs {epoch} and {header.partition_leader_epoch} in one "
                    "snapshot",
                    source=source,
                    position=batch.position,
                )
            epoch = header.partition_leader_epoch
            yield batch
    scanner.finish()


def _chunk(disk: Disk, path: Path, position: int) -> bytes:
    try:
        return disk.read(path, position, READ_CHUNK_BYTES)
    except OSError as error:
        if error.errno not in LOST:
            raise
        raise CorruptData(f"{error}", source=str(path), position=position) from error


def check_snapshot(disk: Disk, path: Path) -> None:
    """Raise CorruptData unless every byte is intact; much faster than to read its rows. Blocks."""
    source = str(path)
    first = last = None
    for batch in snapshot_batches(disk, path):
        last = ScannedBatch(batch.header, batch.position, bytes(batch.data))
        first = first or last
    if first is None or last is None:
        raise CorruptData("the snapshot is empty", source=source)
    if _control_types(first, source)[:1] != [ControlType.SNAPSHOT_HEADER]:
        raise CorruptData("no snapshot header", source=source)
    if _control_types(last, source)[-1:] != [ControlType.SNAPSHOT_FOOTER]:
        raise CorruptData("the snapshot has no footer", source=source, position=last.position)


def _control_types(batch: ScannedBatch, source: str) -> list[int]:
    """The control types of the batch's records; none if it holds data."""
    if not batch.header.is_control:
        return []
    records = iter_records(batch.data, source=source, position=batch.position)
    return [parse_control_key(each.key, source=source, position=batch.position) for each in records]


def read_snapshot(disk: Disk, path: Path) -> Iterator[Proposal]:
    """The rows of a snapshot, in order, without Kafka's own control records. Blocks.

    CorruptData: damage, or a missing header or footer. Use the rows only once the iterator ended
    without an error.
    """
    source = str(path)
    position = 0
    seen_header = seen_footer = False
    for batch in snapshot_batches(disk, path):
        position = batch.position
        for kind, value in _records(batch, source):
            if seen_footer:
                raise CorruptData("records after the footer", source=source, position=position)
            if not seen_header:
                if kind != ControlType.SNAPSHOT_HEADER:
                    raise CorruptData("no snapshot header", source=source, position=position)
                decode_snapshot_header(value, source=source)
                seen_header = True
            elif kind == ControlType.SNAPSHOT_FOOTER:
                seen_footer = True
            elif kind is None or kind >= PRIVATE_CONTROL_TYPES_FROM:
                yield Proposal(kind, value)
    if not seen_footer:
        raise CorruptData("the snapshot has no footer", source=source, position=position)


def _records(batch: ScannedBatch, source: str) -> Iterator[tuple[int | None, bytes]]:
    """The control type (None for data) and value of each record."""
    header, position, data = batch.header, batch.position, bytes(batch.data)
    if (values := bare_values(data, header)) is not None:
        return zip(repeat(None), values)
    if (control := control_values(data, header)) is not None:
        kind = parse_control_key(control[0], source=source, position=position)
        return zip(repeat(kind), control[1])
    return _records_one_by_one(batch, source)


def _records_one_by_one(batch: ScannedBatch, source: str) -> Iterator[tuple[int | None, bytes]]:
    position = batch.position
    for record in iter_records(batch.data, source=source, position=position):
        is_control = batch.header.is_control
        yield (
            parse_control_key(record.key, source=source, position=position) if is_control else None,
            record.value or b"",
        )
