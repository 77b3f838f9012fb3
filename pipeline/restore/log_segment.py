"""Writes one segment from the tier as files of a broker's log: a task of `--into-log-dirs`.

Every byte is verified before its file gets its name: the chunks' CRC32C, the CRC of every batch,
ascending offsets. A file is fsynced before it is named, and the note of the written segment comes
last, so that a killed run is resumed after the last complete segment.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from kafka_formats import transaction_index
from kafka_formats.batch_order import BatchOrder
from kafka_formats.batch_scan import ANY_BATCH_BYTES, BatchRun, BatchScanner
from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData, NotFound
from kafka_formats.log_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafka_formats.record_batch import LOG_OVERHEAD, HeaderFields
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.read.open_stores import OpenStores
from pipeline.read.segment_objects import SegmentObjects
from rlm.data_plane.index_check import IndexCheck
from rlm.format.manifest import IndexType
from rsm_backends.store_config import StoreConfig

LEADER_EPOCH_AT = 12
"""Position of the leader epoch in a batch: outside of its CRC, so that a leader can stamp it."""

NOTE_SUFFIX = ".restored"
UNFINISHED_SUFFIX = ".unfinished"
_EPOCH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The work of a task: write into `folder` the batches of a segment that hold offsets from
    `first_offset` to `last_offset` (inclusive). `leader_epoch` is stamped on each; None keeps
    theirs. Picklable.
    """

    segment: TieredSegment
    stores: Mapping[str, StoreConfig]
    aiven_keys: tuple[str, ...]
    folder: str
    first_offset: int
    last_offset: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """A written segment. `base_offset` names the files; `last_offset` is the last batch's. Without
    wanted batches there are no files, and `log_bytes` is 0.
    `lineage` is the leader epoch checkpoint that was tiered with the segment, as text.
    """

    segment_id: str
    first_offset: int
    stop_offset: int
    leader_epoch: int | None
    base_offset: int
    last_offset: int
    log_bytes: int
    lineage: str
    resumed: bool = False


def restore_segment(files: SegmentFiles) -> WrittenSegment:
    """Write one segment unless an earlier run did. CorruptData names the object and position."""
    folder = Path(files.folder)
    note = folder / f"{files.segment.segment_id.id}{NOTE_SUFFIX}"
    written = _noted(note, files)
    if written is not None:
        return written
    with OpenStores(files.stores, files.aiven_keys) as stores:
        objects = SegmentObjects(files.segment, stores)
        try:
            with objects.naming():
                written = _SegmentWriter(files, objects, folder).write()
        except NotFound as error:
            raise objects.wrapped(error) from error
    write_durably(note, json.dumps(asdict(written)).encode())
    return written


def _noted(note: Path, files: SegmentFiles) -> WrittenSegment | None:
    """The result of an earlier run for exactly this work, if its log is still complete."""
    try:
        written = WrittenSegment(**(json.loads(note.read_bytes()) | {"resumed": True}))
        log = note.parent / segment_file_name(written.base_offset, LOG_SUFFIX)
        whole = not written.log_bytes or log.stat().st_size == written.log_bytes
    except (OSError, ValueError, TypeError):
        return None
    asked = (files.first_offset, files.last_offset, files.leader_epoch)
    same = (written.first_offset, written.stop_offset, written.leader_epoch) == asked
    return written if whole and same else None


class _SegmentWriter:
    """Writes the files of one segment."""

    def __init__(self, files: SegmentFiles, objects: SegmentObjects, folder: Path) -> None:
        self._files = files
        self._segment = files.segment
        self._objects = objects
        self._log = objects.keys.log
        self._folder = folder
        self._base: int | None = None
        self._last = -1
        self._order = BatchOrder(self._segment.start_offset, self._segment.end_offset, self._log)
        self._written = 0
        self._indexes: IndexCheck | None = None

    def write(self) -> WrittenSegment:
        unfinished = self._folder / f"{self._segment.segment_id.id}{UNFINISHED_SUFFIX}"
        with unfinished.open("wb") as out:
            self._copy_log(out)
            out.flush()
            os.fdatasync(out.fileno())
        if self._base is None:
            unfinished.unlink()
        else:
            self._write_beside(self._base)
            unfinished.replace(self._folder / segment_file_name(self._base, LOG_SUFFIX))
        return WrittenSegment(
            segment_id=str(self._segment.segment_id.id),
            first_offset=self._files.first_offset,
            stop_offset=self._files.last_offset,
            leader_epoch=self._files.leader_epoch,
            base_offset=self._segment.start_offset if self._base is None else self._base,
            last_offset=self._last,
            log_bytes=self._written,
            lineage=self._index(IndexType.LEADER_EPOCH).decode("ascii", "replace"),
        )

    def _index(self, index: IndexType) -> bytes:
        return self._objects.index(index) or b""

    def _copy_log(self, out: BinaryIO) -> None:
        """Verifies every batch, wanted or not, since a damaged object must not be restored from."""
        scanner = BatchScanner(self._log, batch_bytes_max=ANY_BATCH_BYTES)
        for piece in self._objects.log(0, self._objects.manifest.log_bytes):
            for run in scanner.feed_runs(piece):
                self._take(run, out)
        scanner.finish()
        if scanner.ends_in_zeros:
            raise CorruptData(
                "zeros follow the last batch", source=self._log, position=scanner.position
            )

    def _take(self, run: BatchRun, out: BinaryIO) -> None:
        self._order.check(run)
        wanted: list[HeaderFields] = []
        begin = end = at = 0
        for header in run.headers:
            base_offset, size = header[0], LOG_OVERHEAD + header[1]
            last_offset = base_offset + header[6]
            if base_offset <= self._files.last_offset:
                self._last = last_offset
            if last_offset >= self._files.first_offset and base_offset <= self._files.last_offset:
                begin = begin if wanted else at
                end = at + size
                wanted.append(header)
            at += size
        if not wanted:
            return
        if self._indexes is None:
            self._indexes = self._begin(wanted[0][0])
        self._indexes.take(wanted, self._written)
        out.write(self._stamped(run.data[begin:end], wanted))
        self._written += end - begin

    def _begin(self, first_base: int) -> IndexCheck:
        """Sets the base offset and the indexes. A segment that keeps its head keeps its name; a
        whole one keeps its tiered indexes, as far as they fit the batches.
        """
        keeps_head = self._files.first_offset <= self._segment.start_offset
        self._base = self._segment.start_offset if keeps_head else first_base
        whole = keeps_head and self._ends_whole
        return IndexCheck(
            self._base,
            lambda: self._objects.index(IndexType.OFFSET) if whole else None,
            lambda: self._objects.index(IndexType.TIMESTAMP) if whole else None,
        )

    @property
    def _ends_whole(self) -> bool:
        return self._files.last_offset >= self._segment.end_offset

    def _stamped(self, data: memoryview, headers: list[HeaderFields]) -> Buffer:
        """The batches with the leader epoch stamped; it is not part of a batch's CRC."""
        if self._files.leader_epoch is None:
            return data
        stamped = bytearray(data)
        at = 0
        for header in headers:
            _EPOCH.pack_into(stamped, at + LEADER_EPOCH_AT, self._files.leader_epoch)
            at += LOG_OVERHEAD + header[1]
        return stamped

    def _write_beside(self, base: int) -> None:
        """Writes the indexes, and the producers' state after the segment if its end is kept."""
        assert self._indexes is not None, "the first batch gives a file its name"
        files = {
            segment_file_name(base, INDEX_SUFFIX): self._indexes.offset_index(),
            segment_file_name(base, TIME_INDEX_SUFFIX): self._indexes.time_index(),
        }
        source = self._objects.keys.indexes
        aborted = transaction_index.parse(self._index(IndexType.TRANSACTION), source=source)
        inside = [entry for entry in aborted if base <= entry.last_offset <= self._last]
        if inside:
            name = segment_file_name(base, TRANSACTION_INDEX_SUFFIX)
            files[name] = transaction_index.encode(inside)
        snapshot = self._index(IndexType.PRODUCER_SNAPSHOT)
        if snapshot and self._ends_whole:
            files[segment_file_name(self._segment.end_offset + 1, SNAPSHOT_SUFFIX)] = snapshot
        for name, data in files.items():
            write_durably(self._folder / name, data)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; it is durable on return, except its name (`sync_path`)."""
    unfinished = path.with_name(f"{path.name}{UNFINISHED_SUFFIX}")
    with unfinished.open("wb") as out:
        out.write(data)
        out.flush()
        os.fdatasync(out.fileno())
    unfinished.replace(path)
